/* Ranges that products find, from what they stored: by the rules of numerics.h, value by value. */
#include "tests/gpu/ranges.h"

#include <math.h>
#include <string.h>

static bool is_ranges(const Plan *plan, int tensor)
{
    const PlanTensor *t = &plan->tensor[tensor];
    return t->storage == STORAGE_VIEW && !strcmp(plan->tensor[t->index].name, "ranges");
}

bool ranges_of(const Plan *plan, int product, RangesOf *ret)
{
    const PlanLaunch *l = &plan->launch[product];
    int words = -1;
    for (int i = 0; i < l->num_operands && l->family == LAUNCH_GEMM; i++)
        if (is_ranges(plan, l->operand[i].tensor))
            words = l->operand[i].tensor;
    for (int i = product + 1; i < plan->num_launches && words >= 0; i++) {
        const PlanLaunch *row = &plan->launch[i];
        const TileStep *step = row->program.step;
        bool reads = false;
        for (int k = 0; k < row->num_operands && row->family == LAUNCH_TILE; k++)
            reads = reads || row->operand[k].tensor == words;
        if (!reads || step[0].op != TILE_LOAD || step[1].op != TILE_QUANTIZE)
            continue;
        *ret = (RangesOf){words, row->operand[step[0].tensor].tensor,
                          row->operand[step[1].tensor].tensor};
        return true;
    }
    return false;
}

static float stored_value(FormatId fmt, const uint8_t *at)
{
    uint32_t word = 0;
    memcpy(&word, at, format_info[fmt].bits / 8);
    return fmt == FMT_F32 ? num_float(word) : num_decode((int)fmt, word);
}

static void widen(int32_t range[4], const Scheme *s, float x)
{
    int magnitude = num_abs_bits(x), key = num_order_key(x);
    bool counts = x == x || !num_has_nan((int)s->fmt);
    if (counts && magnitude > range[0])
        range[0] = magnitude;
    range[1] = key < range[1] ? key : range[1];
    range[2] = key > range[2] ? key : range[2];
    if (magnitude < NUM_INF_BITS && magnitude > range[3])
        range[3] = magnitude;
}

int ranges_expect(const Plan *plan, const PlanLayout *layout, const RangesOf *of, const uint8_t *x,
                  int32_t ret[4])
{
    const PlanTensor *t = &plan->tensor[of->stored];
    const PlanLayout *at = &layout[of->stored];
    const Scheme *s = &plan->tensor[of->later].scheme;
    int32_t all[4] = {0};
    for (int64_t r = 0; r < at->rows; r++)
        for (int64_t c = 0; c < at->cols; c++)
            widen(all, s,
                  stored_value(t->fmt, x + r * at->pitch + c * (format_info[t->fmt].bits / 8)));
    if (s->block[0] == 1) { /* groups of a row, and one scale for all of theirs */
        ret[0] = all[3];
        return 1;
    }
    bool zero = s->zero != ZERO_NONE;
    const int32_t words[4] = {zero ? 0 : all[0], zero ? all[1] : 0, zero ? all[2] : 0,
                              s->outer ? all[3] : 0};
    memcpy(ret, words, sizeof words);
    return 4;
}

/* A NaN is in it, in whose sign and payload ranges may differ. */
static bool is_nan(const int32_t *range, int num)
{
    int32_t inf = NUM_INF_BITS;
    return num > 1 && (range[0] > inf || range[2] > inf || range[1] < num_order_key(-INFINITY));
}

bool ranges_equal(const int32_t *a, const int32_t *b, int num)
{
    int from = is_nan(a, num) && is_nan(b, num) ? 3 : 0;
    return !memcmp(a + from, b + from, (size_t)(num - from) * sizeof *a);
}
