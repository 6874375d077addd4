/* codegen/cpu_cost: the cost model of CPUs. */
#include "codegen/codegen.h"

/* Rates of no processor: deliberately round. */
#define CPU_BYTES_US  10000.0  /* bytes in a microsecond */
#define CPU_FLOPS_US  100000.0 /* operations on floats */
#define CPU_IOPS_US   300000.0 /* operations on 8-bit integers */
#define CPU_LAUNCH_US 2.0

double cpu_launch_us(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout)
{
    double bytes = 0, ops = 0, rate = CPU_FLOPS_US;
    for (int i = 0; i < l->num_operands; i++)
        if (plan->tensor[l->operand[i].tensor].storage != STORAGE_CONST)
            bytes += (double)layout[l->operand[i].tensor].bytes;
    if (l->family == LAUNCH_GEMM) {
        const PlanTensor *w = &plan->tensor[l->w], *a = &plan->tensor[l->a];
        double n = (double)(w->packed ? w->pack_spec.n : layout[l->w].rows);
        double k = (double)(w->packed ? w->pack_spec.k : layout[l->w].cols);
        double m = (double)layout[l->a].rows;
        bool ints = a->quantised && scheme_is_integer(&a->scheme) && !w->pack_spec.table;
        bytes += w->packed ? (double)w->bytes : n * k * 4;
        ops = 2 * m * n * k;
        rate = ints ? CPU_IOPS_US : CPU_FLOPS_US;
    }
    double move = bytes / CPU_BYTES_US, work = ops / rate;
    return CPU_LAUNCH_US + (move > work ? move : work);
}
