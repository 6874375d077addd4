/* Calibrator minmax: the whole range of the data. Elements that are not finite are skipped. */
#include "quant/calib.h"
#include "quant/loops.h"
#include <stdlib.h>

struct CalibState {
    float lo, hi;
    bool seen;
};

static CalibState *minmax_create(double arg)
{
    (void)arg;
    return calloc(1, sizeof(CalibState));
}

static bool minmax_observe(CalibState *state, const float *x, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++) {
        if (num_abs_bits(x[i]) >= NUM_INF_BITS)
            continue;
        state->lo = !state->seen || x[i] < state->lo ? x[i] : state->lo;
        state->hi = !state->seen || x[i] > state->hi ? x[i] : state->hi;
        state->seen = true;
    }
    return true;
}

static void minmax_range(const CalibState *state, float *ret_lo, float *ret_hi)
{
    *ret_lo = state->lo;
    *ret_hi = state->hi;
}

static void minmax_destroy(CalibState *state)
{
    free(state);
}

const Calibrator calib_minmax = {
    .name = "minmax",
    .describe = "the smallest and the largest value of the data",
    .create = minmax_create,
    .observe = minmax_observe,
    .range = minmax_range,
    .destroy = minmax_destroy,
};
