/* codegen/cuda/ranged: products that find the range of what they store, because a later
 * quantisation has one scale, or one outer scale, for all of it. */
#include "codegen/cuda/plan.h"

static bool is_const(PlanDim d, int64_t value)
{
    return d.sym[0] < 0 && d.add == value;
}

/* The operand is all of its tensor, row by row. */
static bool is_all(const PlanOperand *o)
{
    return o->col_step == 1 && is_const(o->row_div, 1) && is_const(o->row_mod, 0);
}

/* One range of the whole tensor, or one outer scale of its groups'; not one for every few rows. */
static bool has_one_range(const Plan *list, const PlanTensor *t)
{
    const Scheme *s = &t->scheme;
    PlanLayout at;
    bool lies = plan_tensor_layout(t, plan_bucket(list, list->num_buckets - 1), &at);
    bool whole = lies && s->block[0] == 0 && (s->block[1] == 0 || s->block[1] >= at.cols);
    return t->quantised && !t->is_static && (whole || (s->block[0] == 1 && s->outer));
}

/* The tensor that the program quantises with one range of all of `from`, which it loads for nothing
 * else; -1: none. */
static int quantised_from(const Plan *list, const PlanLaunch *l, int from)
{
    const PlanProgram *p = l->family == LAUNCH_GEMM ? &l->prologue : &l->program;
    if (p->num_steps < 2 || p->step[0].op != TILE_LOAD || p->step[1].op != TILE_QUANTIZE)
        return -1;
    const PlanOperand *source = &l->operand[p->step[0].tensor];
    int to = l->operand[p->step[1].tensor].tensor;
    bool same = source->tensor == from && is_all(source) && p->step[1].src[0] == p->step[0].dst;
    return same && has_one_range(list, &list->tensor[to]) ? to : -1;
}

/* The operand by which alone the launch stores this tensor; -1: there are several, or none. */
static int stored_by(const PlanLaunch *l, int tensor)
{
    int ret = -1;
    for (int i = 0; i < l->num_segments; i++)
        for (int k = 0; k < l->segment[i].epilogue.num_steps; k++) {
            const TileStep *s = &l->segment[i].epilogue.step[k];
            bool stores = s->op == TILE_STORE && l->operand[s->tensor].tensor == tensor;
            if (stores && ((ret >= 0 && ret != s->tensor) || !is_all(&l->operand[s->tensor])))
                return -1;
            ret = stores ? s->tensor : ret;
        }
    return ret;
}

int cuda_ranged(const Plan *list, int launch, CudaRanged *ret)
{
    const PlanLaunch *l = &list->launch[launch];
    if (l->family != LAUNCH_GEMM || l->grouped || l->num_operands >= PLAN_MAX_OPERANDS)
        return -1;
    for (int k = 0; k < l->num_operands; k++) {
        int tensor = l->operand[k].tensor, stored = stored_by(l, tensor);
        for (int i = launch + 1; i < list->num_launches && stored >= 0; i++) {
            int of = quantised_from(list, &list->launch[i], tensor);
            *ret = (CudaRanged){.stored = stored, .ranges = -1, .of = of};
            if (of >= 0)
                return i;
        }
    }
    return -1;
}
