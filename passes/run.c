/* passes/run: the pipeline. Each pass runs; the module is verified, unless the pass says that it
 * changed nothing, printed and timed where asked. With check_eval it is always verified, and its
 * outputs on random inputs are compared with those before the pass. Stops after the first pass that
 * reports an error. */
#include "passes/internal.h"
#include <string.h>

#define PASS(id, name, level, describe) {name, describe, level, pass_##id},
const Pass passes[] = {
#include "passes/passes.def"
};
#undef PASS
const int num_passes = COUNT_OF(passes);

/* Passes that change numbers by their purpose, or where rounding moves. All others keep every bit.
 */
static EvalCheck pass_check(const char *name)
{
    static const struct {
        const char *name;
        EvalCheck check;
    } rows[] = {
        {"bind-weights", CHECK_NONE},  {"smooth", CHECK_LOOSE},
        {"rotate", CHECK_LOOSE},       {"calibrate", CHECK_NONE},
        {"insert-quant", CHECK_NONE},  {"quantise-weights", CHECK_NONE},
        {"factor-outer", CHECK_CLOSE}, {"factor-scales", CHECK_CLOSE},
    };

    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].name, name))
            return rows[i].check;
    return CHECK_EXACT;
}

const Pass *pass_find(const char *name)
{
    for (int i = 0; i < num_passes; i++)
        if (!strcmp(passes[i].name, name))
            return &passes[i];
    return NULL;
}

void pass_context_init(PassContext *ctx, Arena *arena, const PassOptions *options)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->arena = arena;
    ctx->options = *options;
}

static void trace_module(const Module *m, const PassContext *ctx, const Pass *pass)
{
    const PassOptions *options = &ctx->options;
    Sb sb;

    if (!options->trace || !options->print_after ||
        (strcmp(options->print_after, "all") && strcmp(options->print_after, pass->name)))
        return;
    sb_init(&sb, ctx->scratch);
    module_print(&sb, m, false);
    fprintf(options->trace, "# after %s\n%s", pass->name, sb.text);
}

static EvalRecord *record(const Module *m, PassContext *ctx, const Pass *pass, EvalCheck check,
                          const char *when)
{
    const char *why = NULL;
    EvalRecord *r = NULL;

    if (check == CHECK_NONE)
        return NULL;
    r = eval_record(m, check, ctx->scratch, &why);
    if (!r)
        ctx->no_check = arena_strdup(ctx->arena, why);
    if (!r && ctx->options.trace)
        fprintf(ctx->options.trace, "# %s: no check-eval %s: %s\n", pass->name, when, why);
    return r;
}

static bool pass_run(Module *m, PassContext *ctx, const Pass *pass)
{
    EvalCheck check = ctx->options.check_eval ? pass_check(pass->name) : CHECK_NONE;
    int errors = m->diag->num_errors;
    EvalRecord *before = record(m, ctx, pass, check, "before");
    double start = clock_us();

    bool changed = pass->run(m, ctx);
    double took = 1e-6 * (clock_us() - start);
    if (ctx->options.time_passes && ctx->options.trace)
        fprintf(ctx->options.trace, "# %-16s %9.3f ms\n", pass->name, took * 1e3);
    if (m->diag->num_errors == errors) {
        if ((changed || ctx->options.check_eval) && !module_verify(m, pass->name))
            BUG("the module is broken after %s", pass->name);
        trace_module(m, ctx, pass);
        EvalRecord *after = before ? record(m, ctx, pass, check, "after") : NULL;
        const char *why =
            before && after ? eval_record_compare(before, after, check, ctx->scratch) : NULL;
        ctx->num_compared += before && after;
        if (why)
            diag_error(m->diag, (Span){0}, E_CHECK_EVAL, "%s changed the module's results: %s",
                       pass->name, why);
        eval_record_free(after);
    }
    eval_record_free(before);
    arena_reset(ctx->scratch);
    return m->diag->num_errors == errors;
}

static bool run_all(Module *m, PassContext *ctx)
{
    for (int i = 0; i < num_passes; i++)
        if (passes[i].level <= ctx->options.opt_level && !pass_run(m, ctx, &passes[i]))
            return false;
    return true;
}

static bool run_list(Module *m, PassContext *ctx, const char *list)
{
    while (*list) {
        size_t len = strcspn(list, ",");
        const char *name = arena_strndup(ctx->arena, list, len);
        const Pass *pass = pass_find(name);

        if (!pass && len) {
            Nearest nearest;
            nearest_init(&nearest, name);
            for (int i = 0; i < num_passes; i++)
                nearest_offer(&nearest, passes[i].name);
            diag_error(m->diag, (Span){0}, E_UNKNOWN_PASS, "there is no pass '%s'", name);
            if (nearest_get(&nearest))
                diag_help(m->diag, "did you mean '%s'?", nearest_get(&nearest));
            return false;
        }
        if (pass && !pass_run(m, ctx, pass))
            return false;
        list += len + (list[len] == ',');
    }
    return true;
}

bool passes_run(Module *m, PassContext *ctx, const char *list)
{
    ctx->scratch = arena_new();
    bool ok = list ? run_list(m, ctx, list) : run_all(m, ctx);
    arena_destroy(ctx->scratch);
    ctx->scratch = NULL;
    return ok && m->diag->num_errors == 0;
}
