/* check, compile, calibrate: from a text to its errors, its program, its ranges. */
#include "driver/ranges.h"
#include "driver/work.h"
#include "passes/calibration.h"
#include <string.h>
#include <sys/stat.h>

static bool asks_for_fusion(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->attr.quant && op->attr.quant->fused)
            return true;
    return false;
}

/* The pipeline as far as a text can be wrong: what follows factor-scales only makes it faster,
 * unless a rule says "fused". */
static const char *checking_passes(Work *w)
{
    Sb sb;
    if (asks_for_fusion(w->module) || w->passes.options.check_eval || w->passes.options.print_after)
        return NULL;
    sb_init(&sb, w->arena);
    for (int i = 0; i < num_passes; i++) {
        if (passes[i].level > 0)
            continue;
        sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
        if (!strcmp(passes[i].name, "factor-scales"))
            break;
    }
    return sb.text;
}

int cmd_check(Cli *cli)
{
    Work w;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (work_lower(&w, cli->operand.elem[0])) {
        if (w.num_gpus && asks_for_fusion(w.module))
            work_passes_and_plan(&w);
        else
            work_passes(&w, checking_passes(&w));
    }
    return work_end(&w, EXIT_OK);
}

/* "a/mlp.sinter" compiles to "mlp" in the current folder, as with cc; NULL: no name can be made. */
static const char *default_output(const Cli *cli, const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *dot = strrchr(base, '.');
    if (!dot || dot == base || strcmp(dot, ".sinter") != 0)
        return NULL;
    return arena_strndup(cli->arena, base, (size_t)(dot - base));
}

int cmd_compile(Cli *cli)
{
    Work w;
    struct stat st;
    const char *path = cli->operand.elem[0];
    const char *out = cli_get(cli, OPTION_OUTPUT_FILE, NULL);
    if (!out)
        out = default_output(cli, path);
    if (!out)
        return cli_usage(cli, "no name for the program follows from '%s'; give -o FILE", path);
    if (!cli_has(cli, OPTION_OUTPUT_FILE) && stat(out, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_usage(cli, "'%s', the name that follows from '%s', is a folder; give -o FILE",
                         out, path);
    if (!strcmp(out, "-"))
        return cli_usage(cli, "a program cannot be written to standard output");
    int exit_code;
    if (!cli_claim(cli, "-o", out, &exit_code))
        return exit_code;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (work_compile(&w, path, out) && cli_has(cli, OPTION_VERBOSE)) {
        Sb sb;
        sb_init(&sb, w.arena);
        work_summary(&w, &sb);
        fputs(sb.text, stderr);
    }
    return work_end(&w, EXIT_OK);
}

/* Every layer with a static activation: the range that the data gave it, what it cuts off. */
static void print_ranges(Work *w)
{
    StaticRanges ranges = {0};
    ranges_collect(w->arena, w->module, &ranges);
    if (!ranges.num) {
        puts("no static ranges: every activation is plain or quantised as the program runs");
        return;
    }
    printf("%-32s %14s %14s %8s %10s  %s\n", "layer", "low", "high", "clipped", "rows",
           "calibrator");
    for (int i = 0; i < ranges.num; i++) {
        const StaticRange *range = &ranges.elem[i];
        printf("%-32s %14.7g %14.7g", range->layer ? range->layer : "-", range->lo, range->hi);
        if (range->rows >= 0)
            printf(" %7.3f%% %10lld", 100 * range->outside, (long long)range->rows);
        else
            printf(" %8s %10s", "-", "-");
        printf("  %s\n", range->calibrator);
    }
}

/* The pipeline up to `calibrate` in two parts, around the pass that reads a calibration file. */
static bool run_passes(Work *w, bool after)
{
    return work_passes_part(w, "bind-calibration", "calibrate", after);
}

/* What every layer sees, whatever the schemes are, goes to the file before they are settled. */
static bool write_calibration(Work *w, const char *out)
{
    w->passes.options.new_calibration = true;
    if (!run_passes(w, false))
        return false;
    w->passes.scratch = arena_new();
    bool ok = w->passes.scratch && calibration_write(w->module, &w->passes, out);
    arena_destroy(w->passes.scratch);
    w->passes.scratch = NULL;
    return ok && run_passes(w, true);
}

int cmd_calibrate(Cli *cli)
{
    Work w;
    const char *out = cli_get(cli, OPTION_OUTPUT_FILE, NULL);
    if (out && !strcmp(out, "-"))
        return cli_usage(cli, "a calibration file cannot be written to standard output");
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (!work_lower(&w, cli->operand.elem[0]))
        return work_end(&w, EXIT_OK);
    if (out ? write_calibration(&w, out) : run_passes(&w, false) && run_passes(&w, true))
        print_ranges(&w);
    return work_end(&w, EXIT_OK);
}
