/* check, compile, calibrate: from a text to its errors, its program, its ranges. */
#include "tools/work.h"
#include <string.h>

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
    if (work_lower(&w, cli->operand.elem[0]))
        work_passes(&w, checking_passes(&w));
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
    const char *path = cli->operand.elem[0];
    const char *out = cli_get(cli, OPTION_OUTPUT_FILE, NULL);
    if (!out)
        out = default_output(cli, path);
    if (!out)
        return cli_usage(cli, "no name for the program follows from '%s'; give -o FILE", path);
    if (!strcmp(out, "-"))
        return cli_usage(cli, "a program cannot be written to standard output");
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    work_compile(&w, path, out);
    return work_end(&w, EXIT_OK);
}

/* Every static quantisation of a block, inside kernels too, with the range that the data gave it.
 */
static int print_ranges(const Block *block)
{
    int num = 0;
    for_each_op(op, block) {
        if (op->body)
            num += print_ranges(op->body);
        if (op->kind != OP_QUANTIZE || !op->attr.range.known)
            continue;
        num++;
        printf("%-32s %14.7g %14.7g  %s\n", op->attr.layer ? op->attr.layer : "-",
               (double)op->attr.range.lo, (double)op->attr.range.hi,
               op->attr.range.calibrator ? op->attr.range.calibrator : "-");
    }
    return num;
}

int cmd_calibrate(Cli *cli)
{
    Work w;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (work_lower(&w, cli->operand.elem[0]) && work_passes(&w, NULL)) {
        printf("%-32s %14s %14s  %s\n", "layer", "low", "high", "calibrator");
        if (!print_ranges(&w.module->body))
            puts("none: every activation is plain or quantised as the program runs");
    }
    return work_end(&w, EXIT_OK);
}
