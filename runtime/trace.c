/* Times of the launches of one run. */
#include "runtime/device.h"

#include <stdlib.h>

bool trace_add(Trace *trace, const PlanLaunch *l, double begin_us, double bytes, double flops)
{
    if (trace->num == trace->cap) {
        int cap = trace->cap ? 2 * trace->cap : 64;
        SinterLaunchTime *grown = realloc(trace->time, (size_t)cap * sizeof *grown);
        if (!grown)
            return false;
        trace->time = grown;
        trace->cap = cap;
    }
    trace->time[trace->num++] = (SinterLaunchTime){.layer = l->layer,
                                                   .family = launch_family_name[l->family],
                                                   .place = l->place,
                                                   .absorbed = l->absorbed,
                                                   .start_us = begin_us - trace->start_us,
                                                   .duration_us = clock_us() - begin_us,
                                                   .bytes = bytes,
                                                   .flops = flops};
    return true;
}
