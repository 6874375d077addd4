/* Static ranges; see ranges.h. */
#include "driver/ranges.h"
#include "passes/calibration.h"
#include <math.h>

void ranges_collect(Arena *arena, const Module *m, StaticRanges *ret)
{
    for_each_op(op, &m->body) {
        const ActStats *stats = activation_of(m, op);
        if (!op->attr.range.known)
            continue;
        bool counted = stats && stats->whole.total;
        StaticRange range = {
            .layer = op->attr.layer,
            .lo = (double)op->attr.range.lo,
            .hi = (double)op->attr.range.hi,
            .outside = counted
                           ? histogram_outside(&stats->whole, op->attr.range.lo, op->attr.range.hi)
                           : NAN,
            .rows = counted ? stats->rows : -1,
            .calibrator = op->attr.range.calibrator,
        };
        if (op->attr.range.arg != 0)
            range.calibrator = arena_printf(arena, "%s %g", range.calibrator, op->attr.range.arg);
        ARRAY_PUSH(arena, ret, range);
    }
}
