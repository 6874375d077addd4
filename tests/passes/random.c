/* random FIRST NUM: random models through the pipeline. For each seed
 *   - every pass keeps the results (check_eval: exact for structural passes),
 *   - level 0 and level 1 end with the same bits, and so does a random subset of the passes that
 * are not needed for meaning,
 *   - the final module prints and parses back to the same text.
 * Expected values are the evaluator's on the module before the passes; nothing is committed. TAP.
 */
#include "passes/internal.h"
#include "tests/passes/models.h"
#include <stdlib.h>
#include <string.h>

/* Checks -------------------------------------------------------------------------------------- */

typedef struct Run {
    Arena *arena;
    Diag diag;
    Module *m;
    EvalRecord *record;
} Run;

static void run_free(Run *r)
{
    eval_record_free(r->record);
    arena_destroy(r->arena);
}

/* NULL, or what went wrong. *ret_refused: choose-scheme reported that the model cannot be. */
static const char *run_passes(Run *r, const char *text, int level, const char *list,
                              bool *ret_refused)
{
    PassContext ctx;
    PassOptions options = {.opt_level = level, .check_eval = true};
    const char *why = NULL;
    static char message[1000];

    *r = (Run){.arena = arena_create()};
    diag_init(&r->diag, r->arena);
    r->m = module_parse(r->arena, &r->diag, diag_add_source(&r->diag, "m.ir", text, strlen(text)));
    if (!r->m)
        return "the text does not parse";
    pass_context_init(&ctx, r->arena, &options);
    *ret_refused = !passes_run(r->m, &ctx, "choose-scheme");
    if (*ret_refused)
        return NULL;
    if (!passes_run(r->m, &ctx, list)) {
        snprintf(message, sizeof message, "%s", r->diag.first ? r->diag.first->text : "failed");
        return message;
    }
    r->record = eval_record(r->m, CHECK_EXACT, r->arena, &why);
    return r->record ? NULL : why;
}

static const char *round_trip(const Run *r)
{
    Arena *arena = arena_create();
    Diag diag;
    Sb first, second;
    const char *why = NULL;

    diag_init(&diag, arena);
    sb_init(&first, arena);
    module_print(&first, r->m, false);
    uint32_t source = diag_add_source(&diag, "m.ir", first.text, first.len);
    Module *m = module_parse(arena, &diag, source);
    sb_init(&second, arena);
    if (m)
        module_print(&second, m, false);
    if (!m || strcmp(first.text, second.text))
        why = "the final module does not print and parse back";
    arena_destroy(arena);
    return why;
}

/* A random subset of what is not needed for meaning, in the pipeline's order. */
static const char *random_list(Arena *arena)
{
    Sb sb;

    sb_init(&sb, arena);
    sb_put(&sb, draw(2) ? "fold,insert-quant" : "insert-quant");
    sb_put(&sb, draw(2) ? ",simplify,quantise-weights" : ",quantise-weights");
    sb_put(&sb, draw(2) ? ",merge-siblings" : "");
    sb_put(&sb, ",factor-scales");
    sb_put(&sb, draw(2) ? ",simplify" : "");
    sb_put(&sb, draw(2) ? ",dce" : "");
    sb_put(&sb, draw(4) ? ",fuse" : "");
    return sb.text;
}

static const char *check_seed(uint64_t seed, Arena *arena, bool *ret_refused)
{
    static const char *const all = "infer-types,fold,insert-quant,quantise-weights,merge-siblings,"
                                   "factor-scales,simplify,dce,fuse,check-fused";
    static const char *const plain = "insert-quant,quantise-weights,factor-scales,fuse";
    const char *text = model_text(arena, seed), *list[3] = {all, plain, random_list(arena)};
    const char *why = NULL;
    Run run[3];
    int num = 0;

    for (; num < 3 && !why; num++) {
        why = run_passes(&run[num], text, num != 1, list[num], ret_refused);
        if (!why && !*ret_refused && num)
            why = eval_record_compare(run[0].record, run[num].record, CHECK_EXACT, arena);
        if (!why && !*ret_refused)
            why = round_trip(&run[num]);
        if (why)
            printf("# passes %s:\n", list[num]);
        if (*ret_refused)
            break;
    }
    for (int i = 0; i < num + *ret_refused && i < 3; i++)
        run_free(&run[i]);
    if (why)
        for (const char *at = text, *end; *at; at = end + 1) {
            end = strchr(at, '\n');
            printf("# %.*s\n", (int)(end - at), at);
        }
    return why;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t num = argc > 2 ? strtoull(argv[2], NULL, 10) : 100, refused = 0, failed = 0;

    for (uint64_t seed = first; seed < first + num; seed++) {
        Arena *arena = arena_create();
        bool is_refused = false;
        const char *why = check_seed(seed, arena, &is_refused);
        if (why)
            printf("# seed %llu: %s\n", (unsigned long long)seed, why);
        failed += why != NULL;
        refused += is_refused;
        arena_destroy(arena);
    }
    printf("%s 1 - %llu random models\n", failed ? "not ok" : "ok", (unsigned long long)num);
    printf("%s 2 - few are refused (%llu)\n1..2\n", refused * 3 < num ? "ok" : "not ok",
           (unsigned long long)refused);
    return failed || refused * 3 >= num;
}
