/* The command line of a compiled model. Options are rows of a table, which gives the parser, the
 * help and the nearest name of an unknown one. */
#include "runtime/program.h"
#include "base/team.h"
#include "base/utf8.h"
#include "runtime/program_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum OptionId {
    OPTION_INPUT,
    OPTION_OUTPUT,
    OPTION_LABELS,
    OPTION_DEVICE,
    OPTION_THREADS,
    OPTION_BENCH,
    OPTION_BUCKET,
    OPTION_REPEAT,
    OPTION_SECONDS,
    OPTION_WARM_UP,
    OPTION_JSON,
    OPTION_TRACE,
    OPTION_NAN,
    OPTION_INFO,
    OPTION_DIAGNOSTICS,
    OPTION_HELP,
    OPTION_VERSION,
    NUM_OPTIONS
} OptionId;

/* clang-format off */
static const struct {
    const char *name, *arg, *describe;
} option_row[NUM_OPTIONS] = {
    [OPTION_INPUT]   = {"--input",   "NAME=FILE", ".npy or .safetensors; one input needs no NAME="},
    [OPTION_OUTPUT]  = {"--output",  "NAME=FILE", ".npy or .safetensors, by the file's ending"},
    [OPTION_LABELS]  = {"--labels",  "FILE",      "score: how often the largest output is right"},
    [OPTION_DEVICE]  = {"--device",  "NAME",      "cpu, cuda or cuda:N (default: a GPU, if any)"},
    [OPTION_THREADS] = {"--threads", "N",         "CPU threads (default: all)"},
    [OPTION_BENCH]   = {"--bench",   NULL,
                        "time every bucket, or --input: p50, p90, p99, rows/s"},
    [OPTION_BUCKET]  = {"--bucket",  "NAME=N",    "with --bench: this size only"},
    [OPTION_REPEAT]  = {"--repeat",  "N",         "with --bench: this many runs"},
    [OPTION_SECONDS] = {"--seconds", "N",
                        "with --bench: so long for each size (default 1)"},
    [OPTION_WARM_UP] = {"--warm-up", "N",
                        "with --bench: so many runs before it (default: 0.1 s)"},
    [OPTION_JSON]    = {"--json",    "FILE",
                        "with --bench: results as JSON ('-': standard output)"},
    [OPTION_TRACE]   = {"--trace",   "FILE",      "times of all launches, for Perfetto"},
    [OPTION_NAN]     = {"--nan",     "warn|error", "inputs whose NaN a static range would hide"},
    [OPTION_INFO]    = {"--info",    NULL,        "inputs, outputs, buckets and sizes"},
    [OPTION_DIAGNOSTICS] = {"--diagnostics", "text|json", "how errors are printed"},
    [OPTION_HELP]    = {"--help",    NULL,        "this text"},
    [OPTION_VERSION] = {"--version", NULL,        "the version of the compiler"},
};
/* clang-format on */

const char *program_shown(const char *name)
{
    static char buf[4][256];
    static int next;
    next = (next + 1) % (int)COUNT_OF(buf);
    return utf8_show(name, buf[next], sizeof buf[next]);
}

/* One line a message and one for its help; with --diagnostics json, one object. */
static void put_message(const Program *p, const char *severity, const char *text, const char *help)
{
    char safe[2048];
    const char *shown = utf8_show(text, safe, sizeof safe);
    Arena *arena = p->json ? arena_create() : NULL;
    Sb sb;
    if (!arena) {
        bool is_error = !strcmp(severity, "error");
        fprintf(stderr, "%s: %s%s%s\n", program_shown(p->name), is_error ? "" : severity,
                is_error ? "" : ": ", shown);
        if (help)
            fprintf(stderr, "help: %s\n", help);
        return;
    }
    sb_init(&sb, arena);
    sb_printf(&sb, "{\"severity\":\"%s\",%s\"message\":", severity,
              help ? "\"code\":\"E1001\"," : "");
    sb_put_json_string(&sb, shown, strlen(shown));
    if (help) {
        sb_put(&sb, ",\"children\":[{\"severity\":\"help\",\"message\":");
        sb_put_json_string(&sb, help, strlen(help));
        sb_put(&sb, "}]");
    }
    fprintf(stderr, "%s}\n", sb.text);
    arena_destroy(arena);
}

int program_fail(const Program *p, int exit_code, const char *fmt, ...)
{
    char text[1024], help[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(help, sizeof help, "%s --help lists all options", program_shown(p->name));
    put_message(p, "error", text, exit_code == PROGRAM_USAGE ? help : NULL);
    return exit_code;
}

void program_warn(const Program *p, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_message(p, "warning", text, NULL);
}

int program_status_code(SinterStatus status)
{
    switch (status) {
    case SINTER_OK: return PROGRAM_OK;
    case SINTER_ERROR_NO_DEVICE:
    case SINTER_ERROR_DEVICE:
    case SINTER_ERROR_UNSUPPORTED: return PROGRAM_DEVICE;
    default: return PROGRAM_INPUT;
    }
}

/* Words ---------------------------------------------------------------------------------------- */

static void print_help(const Program *p)
{
    printf("A compiled model, made by sinter %s: it reads tensors, runs, and writes tensors.\n\n"
           "usage: %s --input NAME=FILE.. [--output NAME=FILE..] [options]\n"
           "       %s --bench | --info | --help\n\n",
           sinter_version(), p->name, p->name);
    for (int i = 0; i < NUM_OPTIONS; i++) {
        char left[32];
        const char *arg = option_row[i].arg;
        snprintf(left, sizeof left, "%s%s%s", option_row[i].name, arg ? " " : "", arg ? arg : "");
        printf("  %-24s %s\n", left, option_row[i].describe);
    }
    printf("\nexamples:\n"
           "  %s --input x=x.npy --output y=y.npy\n"
           "  %s --bench --bucket B=64 --trace t.json\n",
           p->name, p->name);
}

static int unknown_word(const Program *p, const char *word)
{
    Nearest nearest;
    nearest_init(&nearest, word);
    for (int i = 0; i < NUM_OPTIONS; i++)
        nearest_offer(&nearest, option_row[i].name);
    const char *best = nearest_get(&nearest);
    if (best)
        return program_fail(p, PROGRAM_USAGE, "unknown option \"%s\"; did you mean \"%s\"?", word,
                            best);
    return program_fail(p, PROGRAM_USAGE, "unknown option \"%s\"", word);
}

static int words_add(const Program *p, Words *words, const char *option, const char *text)
{
    if (words->num == PROGRAM_MAX_WORDS)
        return program_fail(p, PROGRAM_USAGE, "%s is given more than %d times", option,
                            PROGRAM_MAX_WORDS);
    words->text[words->num++] = text;
    return PROGRAM_OK;
}

static int parse_count(const Program *p, const char *option, const char *text, int least, int limit,
                       int *ret)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > limit)
        return program_fail(p, PROGRAM_USAGE, "%s takes a number from %d to %d, got \"%s\"", option,
                            least, limit, text);
    *ret = (int)value;
    return PROGRAM_OK;
}

/* One of two words; *ret: is it the second? */
static int parse_choice(const Program *p, const char *option, const char *text, const char *first,
                        const char *second, bool *ret)
{
    *ret = !strcmp(text, second);
    if (*ret || !strcmp(text, first))
        return PROGRAM_OK;
    return program_fail(p, PROGRAM_USAGE, "%s takes %s or %s, got \"%s\"", option, first, second,
                        text);
}

static int take_option(Program *p, OptionId id, const char *value)
{
    const char *option = option_row[id].name;
    switch (id) {
    case OPTION_INPUT: return words_add(p, &p->input, option, value);
    case OPTION_OUTPUT: return words_add(p, &p->output, option, value);
    case OPTION_BUCKET: return words_add(p, &p->bucket, option, value);
    case OPTION_LABELS: p->labels = value; return PROGRAM_OK;
    case OPTION_DEVICE: p->device = value; return PROGRAM_OK;
    case OPTION_TRACE: p->trace = value; return PROGRAM_OK;
    case OPTION_THREADS: return parse_count(p, option, value, 0, TEAM_MAX + 1, &p->threads);
    case OPTION_REPEAT: return parse_count(p, option, value, 1, 1000000, &p->repeat);
    case OPTION_SECONDS: return parse_count(p, option, value, 1, 3600, &p->seconds);
    case OPTION_WARM_UP: return parse_count(p, option, value, 1, 1000000, &p->warm);
    case OPTION_JSON: p->as_json = value; return PROGRAM_OK;
    case OPTION_NAN: return parse_choice(p, option, value, "warn", "error", &p->refuses_nan);
    case OPTION_DIAGNOSTICS: return parse_choice(p, option, value, "text", "json", &p->json);
    case OPTION_BENCH: p->bench = true; return PROGRAM_OK;
    case OPTION_INFO: p->info = true; return PROGRAM_OK;
    default: return PROGRAM_OK;
    }
}

/* "--name value" and "--name=value"; *ret_id and *ret_value, i moves over what was used. */
static int next_option(const Program *p, int argc, char **argv, int *i, OptionId *ret_id,
                       const char **ret_value)
{
    const char *word = argv[*i];
    size_t len = strcspn(word, "=");
    for (int k = 0; k < NUM_OPTIONS; k++) {
        const char *name = option_row[k].name;
        if (strncmp(word, name, len) || name[len])
            continue;
        *ret_id = (OptionId)k;
        *ret_value = word[len] ? word + len + 1 : NULL;
        if (!option_row[k].arg && *ret_value)
            return program_fail(p, PROGRAM_USAGE, "%s takes no value", name);
        if (option_row[k].arg && !*ret_value) {
            if (*i + 1 == argc)
                return program_fail(p, PROGRAM_USAGE, "%s needs a value: %s", name,
                                    option_row[k].arg);
            *ret_value = argv[++*i];
        }
        return PROGRAM_OK;
    }
    return word[0] == '-'
               ? unknown_word(p, word)
               : program_fail(p, PROGRAM_USAGE,
                              "unexpected \"%s\"; inputs are given as --input NAME=FILE", word);
}

/* True: nothing is left to do but to exit with *ret_exit. */
static bool parse_words(Program *p, int argc, char **argv, int *ret_exit)
{
    *ret_exit = PROGRAM_OK;
    for (int i = 1; i < argc; i++) /* before anything that may have to be said */
        p->json =
            p->json || !strcmp(argv[i], "--diagnostics=json") ||
            (!strcmp(argv[i], "--diagnostics") && argv[i + 1] && !strcmp(argv[i + 1], "json"));
    for (int i = 1; i < argc; i++) {
        OptionId id = NUM_OPTIONS;
        const char *value = NULL;
        *ret_exit = next_option(p, argc, argv, &i, &id, &value);
        if (*ret_exit)
            return true;
        if (id == OPTION_HELP) {
            print_help(p);
            return true;
        }
        if (id == OPTION_VERSION) {
            printf("sinter %s\n", sinter_version());
            return true;
        }
        *ret_exit = take_option(p, id, value);
        if (*ret_exit)
            return true;
    }
    const char *timing = p->bucket.num ? "--bucket"
                         : p->repeat   ? "--repeat"
                         : p->seconds  ? "--seconds"
                         : p->warm     ? "--warm-up"
                         : p->as_json  ? "--json"
                                       : NULL;
    if (!p->bench && timing)
        *ret_exit = program_fail(p, PROGRAM_USAGE, "%s belongs with --bench", timing);
    else if (p->bench && (p->output.num || p->labels))
        *ret_exit = program_fail(p, PROGRAM_USAGE, "--bench writes no results and scores none");
    else if (p->bench && p->input.num && p->bucket.num)
        *ret_exit = program_fail(p, PROGRAM_USAGE, "--input has a size: --bucket excludes it");
    else if (p->repeat && p->seconds)
        *ret_exit = program_fail(p, PROGRAM_USAGE, "--repeat and --seconds exclude each other");
    return *ret_exit != PROGRAM_OK;
}

/* What it does --------------------------------------------------------------------------------- */

static void print_bytes(uint64_t bytes)
{
    if (bytes < 10000)
        printf("%llu bytes", (unsigned long long)bytes);
    else
        printf("%.2f MB", (double)bytes / 1e6);
}

static void print_info(const Program *p)
{
    const SinterModel *m = p->model;
    char text[160];
    printf("%s, compiled by sinter %s\n", program_shown(sinter_model_name(m)), sinter_version());
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < (side ? sinter_num_outputs(m) : sinter_num_inputs(m)); i++) {
            SinterPort port = side ? sinter_output(m, i) : sinter_input(m, i);
            printf("%-7s %-12s %s\n", side ? "output" : "input", program_shown(port.name),
                   program_shown(sinter_port_text(m, side, i, text, sizeof text)));
        }
    printf("weights ");
    print_bytes(sinter_weight_bytes(m));
    printf(", mapped\n");
    for (int b = 0; b < sinter_num_buckets(m); b++) {
        printf("bucket ");
        for (int s = 0; s < sinter_num_symbols(m); s++)
            printf(" %s = %-6lld", program_shown(sinter_symbol(m, s)),
                   (long long)sinter_bucket_size(m, b, s));
        printf(" activations ");
        print_bytes(sinter_bucket_bytes(m, b));
        printf("\n");
    }
}

static int run_bound(const Program *p, BoundSet *in, BoundSet *out)
{
    SinterError err;
    int code = inputs_read(p, in);
    if (!code)
        code = inputs_check(p, in);
    if (!code)
        code = outputs_name(p, out);
    if (!code)
        code = outputs_alloc(p, in, out);
    if (code)
        return code;
    sinter_session_trace(p->session, p->trace != NULL);
    SinterStatus status = sinter_run(p->session, in->tensor, in->num, out->tensor, out->num, &err);
    if (status)
        return program_fail(p, program_status_code(status), "%s", err.text);
    if (p->labels)
        code = labels_score(p, out);
    if (!code)
        code = outputs_write(p, out);
    if (!code && !p->labels && !p->output.num)
        outputs_print(out);
    return code || !p->trace ? code : trace_write(p);
}

static int run_once(const Program *p)
{
    BoundSet in, out;
    bool ok = bound_init(&in, sinter_num_inputs(p->model));
    ok = bound_init(&out, sinter_num_outputs(p->model)) && ok;
    int code = ok ? run_bound(p, &in, &out) : program_fail(p, PROGRAM_INPUT, "memory is exhausted");
    bound_free(&in);
    bound_free(&out);
    return code;
}

/* Outputs are named before anything is read, so that none takes an input's place. */
static int claim_outputs(const Program *p)
{
    const char *other = NULL;
    for (int i = 0; i < p->output.num; i++) {
        const char *equals = strchr(p->output.text[i], '=');
        const char *path = equals ? equals + 1 : p->output.text[i];
        if (!outputs_add("--output", path, &other))
            return program_fail(p, PROGRAM_USAGE, "%s would be written twice", path);
    }
    if (p->trace && !outputs_add("--trace", p->trace, &other))
        return program_fail(p, PROGRAM_USAGE, "%s and --trace would both write %s",
                            other ? other : "other options", p->trace);
    if (p->as_json && strcmp(p->as_json, "-") != 0 && !outputs_add("--json", p->as_json, &other))
        return program_fail(p, PROGRAM_USAGE, "%s and --json would both write %s",
                            other ? other : "other options", p->as_json);
    return PROGRAM_OK;
}

static int run_program(Program *p, const char *path)
{
    SinterError err;
    int code = claim_outputs(p);
    if (code)
        return code;
    SinterStatus status = sinter_open(path, &p->model, &err);
    if (!status && p->info) {
        print_info(p);
        return PROGRAM_OK;
    }
    const SinterSessionOptions options = {.device = p->device, .threads = p->threads};
    if (!status)
        status = sinter_session_create(p->model, &options, &p->session, &err);
    if (status)
        return program_fail(p, program_status_code(status), "%s", err.text);
    const char *note = sinter_session_note(p->session);
    if (note && !p->json) /* which has errors and warnings alone */
        fprintf(stderr, "%s: runs on the processor (--device=cpu does so without this line): %s\n",
                program_shown(p->name), note);
    return p->bench ? bench_run(p) : run_once(p);
}

int program_main(const char *path, int argc, char **argv)
{
    Program p = {.name = argc > 0 ? argv[0] : "model"};
    int exit_code;
    files_guard(p.name);
    if (!parse_words(&p, argc, argv, &exit_code)) {
        if (!path && team_ignored()) /* of a text that was compiled here it was said */
            program_warn(&p, "SINTER_THREADS is no number of threads, so it is not heeded: %s",
                         program_shown(team_ignored()));
        exit_code = run_program(&p, path);
        sinter_session_destroy(p.session);
        sinter_close(p.model);
    }
    if (!path && (fflush(stdout) || ferror(stdout)) && !exit_code) /* else the command looks */
        exit_code = program_fail(&p, PROGRAM_INPUT, "cannot write to standard output");
    return exit_code;
}
