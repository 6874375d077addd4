/* codegen/cuda/roofline: the least time that a launch can take on a GPU of its class: its bytes at
 * the rate of the memory, or its multiplications at the rate of the fastest unit that takes the
 * activation's format, whatever instructions the kernel uses. Rates are the makers', of dense
 * matrices at the highest clock. */
#include "codegen/cuda/family.h"

#include <string.h>

typedef struct Roofline {
    const char *gpu_class, *gpu;
    double bytes;                          /* a microsecond */
    double int8, float8, float16, float32; /* operations a microsecond */
} Roofline;

static const Roofline rooflines[NUM_CODE_CLASSES] = {
    {"sm_90a", "H200", 4.8e6, 1979e6, 1979e6, 989.5e6, 67e6},
    {"portable", "A100", 2.04e6, 624e6, 312e6, 312e6, 19.5e6},
    {"turing", "T4", 0.32e6, 130e6, 65e6, 65e6, 8.1e6},
};

static const Roofline *roofline_of(const CodeClass *gpu)
{
    for (int i = 0; i < NUM_CODE_CLASSES; i++)
        if (!strcmp(rooflines[i].gpu_class, gpu->name))
            return &rooflines[i];
    BUG("no roofline of %s", gpu->name);
}

/* Predictions are those of an H200 whatever the class (cost.c). */
bool cuda_roofline_holds(const CodeClass *gpu, TimingSource source)
{
    return source != TIMING_MODEL || !strcmp(gpu->name, rooflines[0].gpu_class);
}

const char *cuda_roofline_gpu(const CodeClass *gpu)
{
    return roofline_of(gpu)->gpu;
}

static double rate_of(const Roofline *r, FormatId act, const char **ret_unit)
{
    const FormatInfo *f = &format_info[act];
    *ret_unit = f->bits > 16 ? "its f32 units" : "its tensor cores";
    if (f->bits > 16)
        return r->float32;
    if (f->bits > 8)
        return r->float16;
    return f->family == FAMILY_INT ? r->int8 : r->float8;
}

double cuda_floor_us(const CudaKernel *k, const char **ret_bound)
{
    const Roofline *r = roofline_of(k->gpu);
    const PlanLaunch *l = k->launch;
    bool has_weight = l->family == LAUNCH_GEMM && k->plan->tensor[l->w].packed;
    double weights = has_weight ? cuda_weight_bytes(k) * (double)cuda_groups_busy(k) : 0;
    double bytes = launch_bytes(k->plan, l, k->layout) + weights;
    double us = bytes / r->bytes;
    *ret_bound = "its memory";
    if (l->family != LAUNCH_GEMM)
        return us;
    const char *unit;
    double ops = 2.0 * (double)k->layout[l->a].rows * (double)k->spec.n * (double)k->spec.k;
    double work = ops / rate_of(r, k->spec.act_fmt, &unit);
    if (work <= us)
        return us;
    *ret_bound = unit;
    return work;
}
