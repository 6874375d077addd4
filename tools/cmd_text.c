/* opt, fmt, explain: texts in, texts out. */
#include "driver/work.h"
#include <string.h>

static bool has_suffix(const char *text, const char *suffix)
{
    size_t len = strlen(text), num = strlen(suffix);
    return len >= num && !strcmp(text + len - num, suffix);
}

/* Somebody who asks for a check is told what it was worth. */
static void tell_checks(Work *w)
{
    int num = w->passes.num_compared;
    if (!cli_has(w->cli, OPTION_CHECK_EVAL))
        return;
    if (num || !w->passes.no_check) {
        fprintf(stderr, "# %d pass%s compared\n", num, num == 1 ? "" : "es");
        return;
    }
    diag_error(&w->diag, (Span){0}, E_NOT_CHECKED, "--check-eval compared nothing: %s",
               w->passes.no_check);
    diag_help(&w->diag, "begin --passes with bind-weights, so that the module can be evaluated");
}

int cmd_opt(Cli *cli)
{
    Work w;
    const char *path = cli->operand.elem[0];
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    bool ok = has_suffix(path, ".sinter") ? work_lower(&w, path) : work_load_ir(&w, path);
    ok = ok && work_passes(&w, cli_get(cli, OPTION_PASSES, NULL));
    if (ok)
        tell_checks(&w);
    if (ok && !w.diag.num_errors) {
        Sb sb;
        sb_init(&sb, w.arena);
        module_print(&sb, w.module, false);
        work_put(&w, cli_get(cli, OPTION_OUTPUT_FILE, NULL), sb.text, sb.len);
    }
    return work_end(&w, EXIT_OK);
}

/* One file of fmt; *differs is set when it is not in canonical form. */
static void format_file(Work *w, const char *path, bool *differs)
{
    uint32_t source = work_source(w, path);
    if (!source)
        return;
    const Source before = w->diag.sources.elem[source - 1];
    const char *text = source_format(w->arena, &w->diag, source);
    if (!text)
        return;
    bool same = strlen(text) == before.len && !memcmp(text, before.text, before.len);
    if (cli_has(w->cli, OPTION_DIFFERS)) {
        if (!same)
            puts(path);
        *differs |= !same;
    } else if (cli_has(w->cli, OPTION_IN_PLACE) && !source_is_stream(path)) {
        if (!same)
            work_put(w, path, text, strlen(text));
    } else {
        work_put(w, NULL, text, strlen(text));
    }
}

int cmd_fmt(Cli *cli)
{
    Work w;
    bool differs = false;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    for (int i = 0; i < cli->operand.num; i++)
        format_file(&w, cli->operand.elem[i], &differs);
    return work_end(&w, differs ? EXIT_INPUT : EXIT_OK);
}

static bool looks_like_code(const char *word)
{
    if ((word[0] != 'E' && word[0] != 'e') || strlen(word) != 5)
        return false;
    return strspn(word + 1, "0123456789") == 4;
}

static int explain_code(Cli *cli, const char *word)
{
    const ErrorInfo *info = error_find(word);
    if (!info) {
        Nearest nearest;
        nearest_init(&nearest, word);
        for (int i = 0; i < NUM_ERRORS; i++)
            nearest_offer(&nearest, error_info[i].code);
        const char *best = nearest_get(&nearest);
        return cli_usage(cli, "no error has the code '%s'%s%s%s", word,
                         best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
    }
    printf("%s: %s\n\n%s\n", info->code, info->title, info->explanation);
    return EXIT_OK;
}

int cmd_explain(Cli *cli)
{
    Work w;
    const char *word = cli->operand.elem[0];
    if (looks_like_code(word))
        return explain_code(cli, word);
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (work_lower(&w, word) && work_passes_and_plan(&w) && work_slower(&w)) {
        Sb sb;
        sb_init(&sb, w.arena);
        work_explain(&w, &sb);
        work_put(&w, NULL, sb.text, sb.len);
    }
    return work_end(&w, EXIT_OK);
}
