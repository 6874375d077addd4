/* codegen/cuda/problem: the name of a product in tables of timings. */
#include "codegen/cuda/choose.h"

#include <inttypes.h>

/* "e4m3/1x128", "i8/0x0z": rows by columns that share a scale (0: all); z: zero points, o: an outer
 * scale. */
static void put_scheme(Sb *sb, const Scheme *scheme)
{
    sb_printf(sb, "/%" PRId64 "x%" PRId64 "%s%s", scheme->block[0], scheme->block[1],
              scheme->zero != ZERO_NONE ? "z" : "", scheme->outer ? "o" : "");
}

static void put_tensor(Sb *sb, const PlanTensor *t)
{
    sb_put(sb, format_info[t->fmt].name);
    if (t->quantised)
        put_scheme(sb, &t->scheme);
}

/* Scales outside the main loop are the epilogue's; whole: codes take them in. */
static void put_weight(Sb *sb, const CudaKernel *k)
{
    const CudaPackSpec *s = &k->spec;
    sb_put(sb, format_info[s->fmt].name);
    if (s->mainloop || s->factored)
        sb_printf(sb, "/%" PRId64 "x%" PRId64, s->block_rows, s->block_cols);
    sb_put(sb, s->factored ? " whole" : "");
    sb_put(sb, s->has_zero ? "z" : "");
    sb_put(sb, s->table ? " by table" : "");
    if (s->bits)
        sb_printf(sb, " in %d bits", s->bits);
    if (s->layout)
        sb_printf(sb, " %s", cuda_layout[s->layout].name);
}

static int count(const PlanProgram *p, TileOp op)
{
    int num = 0;
    for (int i = 0; i < p->num_steps; i++)
        num += p->step[i].op == op;
    return num;
}

/* What a program leaves: "bf16", "e4m3/1x128+bf16". */
static void put_stored(Sb *sb, const CudaKernel *k, const PlanProgram *p, bool *first)
{
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        if (s->op != TILE_STORE && s->op != TILE_QUANTIZE)
            continue;
        sb_put(sb, *first ? "" : "+");
        put_tensor(sb, &k->plan->tensor[k->launch->operand[s->tensor].tensor]);
        *first = false;
    }
}

const char *cuda_problem(Arena *arena, const CudaKernel *k)
{
    Sb sb;
    bool first = true;
    int loads = 0;
    const PlanLaunch *l = k->launch;
    sb_init(&sb, arena);
    sb_put(&sb, "w=");
    put_weight(&sb, k);
    sb_put(&sb, " a=");
    put_tensor(&sb, &k->plan->tensor[l->a]);
    sb_put(&sb, k->plan->tensor[l->a].scheme.fast ? "/fast" : "");
    sb_printf(&sb, " n=%" PRId64 " k=%" PRId64, k->spec.n, k->spec.k);
    if (k->spec.parts > 1)
        sb_printf(&sb, " parts=%d", k->spec.parts);
    if (k->groups)
        sb_printf(&sb, " groups=%" PRId64, k->groups);
    if (k->input == INPUT_LOCAL)
        sb_printf(&sb, " inside=%d", l->prologue.num_steps);
    for (int i = 0; i < l->num_segments; i++)
        loads += count(&l->segment[i].epilogue, TILE_LOAD);
    sb_printf(&sb, " reads=%d out=", loads);
    for (int i = 0; i < l->num_segments; i++)
        put_stored(&sb, k, &l->segment[i].epilogue, &first);
    return sb.text;
}
