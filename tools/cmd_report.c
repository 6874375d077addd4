/* report: a model compiled, run and shown as one page; see report/report.h. */
#include "report/report.h"
#include <string.h>

/* -o; without it "a/mlp.sinter" gives "mlp.html" in the current folder, a text from a pipe
 * standard output. */
static const char *page_path(const Work *w, const char *path)
{
    if (source_is_nowhere(path))
        return cli_get(w->cli, OPTION_OUTPUT_FILE, "-");
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strrchr(base, '.');
    int len = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    return cli_get(w->cli, OPTION_OUTPUT_FILE, arena_printf(w->arena, "%.*s.html", len, base));
}

/* The errors of each layer, where there are inputs to run. False after an error. */
static bool compare(Report *r, Work *w, Work *tapped, Comparison *c, int *ret_exit)
{
    const char *given = cli_get(w->cli, OPTION_INPUT, NULL);
    if (!given && !w->module->expects.num) {
        if (cli_has(w->cli, OPTION_LABELS)) {
            diag_error(&w->diag, (Span){0}, E_USAGE,
                       "--labels scores outputs, but there are no inputs");
            diag_help(&w->diag, "give --input FILE, or the text an expect line");
            return false;
        }
        r->no_errors = "the text has no expect line, and no --input was given";
        return true;
    }
    if (given)
        r->inputs = strchr(given, '=') ? strchr(given, '=') + 1 : given;
    else
        r->inputs = w->module->expects.elem[0].input;
    r->inputs = strrchr(r->inputs, '/') ? strrchr(r->inputs, '/') + 1 : r->inputs;
    tapped->variant.choice = w->choice;
    if (!comparison_make(c, tapped, w->path, NULL, ret_exit))
        return false;
    r->errors = c;
    return true;
}

static bool write_out(Report *r, Work *w)
{
    Sb page, json;
    const char *data = cli_get(w->cli, OPTION_JSON_FILE, NULL);
    sb_init(&page, r->arena);
    sb_init(&json, r->arena);
    report_page(&page, r);
    report_json(&json, r);
    return (!data || work_put(w, data, json.text, json.len)) &&
           work_put(w, page_path(w, w->path), page.text, page.len);
}

/* What the model with taps warns of is what the model itself does, but for the data that ran. */
static void take_warnings(Work *w, const Work *tapped)
{
    for (const DiagMessage *m = tapped->diag.first; m; m = m->next) {
        if (m->id != E_HIDDEN_NAN || m->severity != SEVERITY_WARNING)
            continue;
        diag_warning(&w->diag, (Span){0}, m->id, "%s", m->text);
        for (const DiagMessage *child = m->child; child; child = child->next)
            diag_help(&w->diag, "%s", child->text);
    }
}

static int make_report(Work *w, Work *tapped, const char *path)
{
    Report r = {.arena = w->arena};
    Comparison c;
    int exit_code = EXIT_OK;
    w->calibrated = report_layers;
    w->user = &r;
    const char *program = work_program(w, path);
    if (!program || w->diag.num_errors || !report_gather(&r, w, program))
        return EXIT_OK;
    r.choice = w->choice;
    r.no_times = "times were not asked for";
    if (!compare(&r, w, tapped, &c, &exit_code) ||
        (!cli_has(w->cli, OPTION_NO_MEASURE) && !report_times(&r, w, program, &exit_code)))
        return exit_code;
    take_warnings(w, tapped);
    report_warnings(&r, w);
    write_out(&r, w);
    return EXIT_OK;
}

/* Whether a file can be written is known before a long measurement, not after it. */
static bool writable(Work *w, const char *path)
{
    IoError err;
    OutFile *file = path && strcmp(path, "-") != 0 ? outfile_create(path, 0666, &err) : NULL;
    if (path && strcmp(path, "-") != 0 && !file)
        work_io_error(w, &err);
    outfile_abandon(file);
    return !w->diag.num_errors;
}

static bool can_start(Work *w, const char *path)
{
    if (file_is_program(path)) {
        diag_error(&w->diag, (Span){0}, E_USAGE,
                   "'%s' is a compiled file; a report needs the text of a model", path);
        return false;
    }
    const char *data = cli_get(w->cli, OPTION_JSON_FILE, NULL), *page = page_path(w, path);
    return writable(w, data) && writable(w, page);
}

int cmd_report(Cli *cli)
{
    Work w, tapped;
    int usage;
    const char *path = cli->operand.elem[0];
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (!cli_claim(cli, "-o", page_path(&w, path), &usage))
        return work_end(&w, usage);
    if (!work_init(&tapped, cli))
        return work_end(&w, EXIT_INPUT);
    w.variant.cpu_too = !work_on_gpu(&w);
    int exit_code = can_start(&w, path) ? make_report(&w, &tapped, path) : EXIT_OK;
    if (!tapped.diag.num_errors) /* its warnings were taken, or are those of the model itself */
        diag_init(&tapped.diag, tapped.arena);
    int tapped_exit = work_end(&tapped, exit_code);
    return work_end(&w, exit_code ? exit_code : tapped_exit);
}
