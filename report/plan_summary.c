/* What `inspect` says of a launch plan: ports, buckets, weights and kernels, not every step. */
#include "report/print.h"
#include <string.h>

/* A name of the file, which may hold anything. */
static const char *shown(const Sb *sb, const char *name)
{
    return arena_shown(sb->arena, name, strlen(name));
}

static void put_dim(Sb *sb, const Plan *plan, PlanDim d)
{
    const char *sep = "";
    if (!d.mul) {
        sb_printf(sb, "%lld", (long long)d.add);
        return;
    }
    if (d.mul != 1 || (d.sym[0] < 0 && d.sym[1] < 0)) {
        sb_printf(sb, "%lld", (long long)d.mul);
        sep = "*";
    }
    for (int i = 0; i < 2; i++)
        if (d.sym[i] >= 0) {
            sb_printf(sb, "%s%s", sep, shown(sb, plan->sym[d.sym[i]].name));
            sep = "*";
        }
    if (d.add)
        sb_printf(sb, " + %lld", (long long)d.add);
}

static void put_scheme(Sb *sb, const PlanTensor *t)
{
    if (!t->quantised) {
        sb_put(sb, format_info[t->fmt].name);
        return;
    }
    scheme_print(sb, &t->scheme, !t->packed);
    if (t->is_static)
        sb_put(sb, " static");
}

static void put_shape(Sb *sb, const Plan *plan, const PlanTensor *t)
{
    sb_putc(sb, '[');
    for (int i = 0; i < t->rank; i++) {
        sb_put(sb, i ? ", " : "");
        put_dim(sb, plan, t->dim[i]);
    }
    sb_putc(sb, ']');
}

void plan_tensor_text(Sb *sb, const Plan *plan, int index)
{
    put_scheme(sb, &plan->tensor[index]);
    put_shape(sb, plan, &plan->tensor[index]);
}

static void put_constant(Sb *sb, const Plan *plan, int index)
{
    const PlanTensor *t = &plan->tensor[index];
    sb_printf(sb, "  t%-4d ", index);
    plan_tensor_text(sb, plan, index);
    if (t->name && t->name[0])
        sb_printf(sb, "  %s", shown(sb, t->name));
    sb_printf(sb, "  at %llu, %llu bytes%s", (unsigned long long)t->offset,
              (unsigned long long)t->bytes, t->packed ? ", packed" : "");
    if (t->packed && plan_is_cuda(plan)) {
        sb_put(sb, " as ");
        plan_put_layout(sb, &t->pack_spec);
    }
    sb_putc(sb, '\n');
}

static void put_launch(Sb *sb, const Plan *plan, int index)
{
    const PlanLaunch *l = &plan->launch[index];
    sb_printf(sb, "  k%-4d %-5s %s", index, launch_family_name[l->family],
              l->layer && l->layer[0] ? shown(sb, l->layer) : "-");
    if (l->family == LAUNCH_GEMM)
        sb_printf(sb, "  t%d x t%d", l->a, l->w);
    else if (l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE)
        sb_printf(sb, "  t%d -> t%d", l->src, l->dst);
    const char *first = l->family == LAUNCH_ROUTE ? "  " : "  with ";
    for (int i = 0; i < l->num_operands; i++) {
        bool is_result =
            l->family == LAUNCH_ROUTE && i == l->num_operands - plan_route_results(l->route);
        sb_printf(sb, "%st%d", is_result ? " -> " : i ? " " : first, l->operand[i].tensor);
    }
    if (l->grouped)
        sb_printf(sb, "  groups %s t%d", l->counted ? "count" : "end at", l->ends);
    if (l->place && l->place[0])
        sb_printf(sb, "  %s", shown(sb, l->place));
    sb_putc(sb, '\n');
    if (l->absorbed && l->absorbed[0])
        sb_printf(sb, "        %s\n", shown(sb, l->absorbed));
}

static void put_buckets(Sb *sb, const Plan *plan)
{
    sb_printf(sb, "buckets %d%s\n", plan->num_buckets,
              plan->rows_independent ? ", larger batches in chunks" : "");
    for (int b = 0; b < plan->num_buckets; b++) {
        sb_put(sb, " ");
        for (int s = 0; s < plan->num_syms; s++)
            sb_printf(sb, " %s=%lld", shown(sb, plan->sym[s].name),
                      (long long)plan->bucket_size[b * plan->num_syms + s]);
        sb_printf(sb, "  arena %llu bytes\n", (unsigned long long)plan->arena_bytes[b]);
    }
}

static void put_ports(Sb *sb, const Plan *plan, const char *what, int num, const PlanPort *port)
{
    for (int i = 0; i < num; i++) {
        const PlanTensor *t = &plan->tensor[port[i].tensor];
        sb_printf(sb, "%s %s: %s", what, shown(sb, port[i].name), format_info[t->fmt].name);
        put_shape(sb, plan, t);
        sb_putc(sb, '\n');
    }
}

void plan_summary(Sb *sb, const Plan *plan)
{
    sb_printf(sb, "target %s\n", plan->target);
    put_ports(sb, plan, "input", plan->num_inputs, plan->input);
    put_ports(sb, plan, "output", plan->num_outputs, plan->output);
    put_buckets(sb, plan);
    sb_put(sb, "weights\n");
    for (int i = 0; i < plan->num_tensors; i++)
        if (plan->tensor[i].storage == STORAGE_CONST)
            put_constant(sb, plan, i);
    sb_printf(sb, "kernels %d\n", plan->num_launches);
    for (int i = 0; i < plan->num_launches; i++)
        put_launch(sb, plan, i);
}

static void put_images(Sb *sb, const DeviceCode *code)
{
    for (int i = 0; i < code->num_images; i++) {
        const char *arch = code->image[i].arch;
        uint64_t bytes = 0;
        int num = 0;
        bool is_first = true;
        for (int j = 0; j < code->num_images; j++) {
            if (strcmp(code->image[j].arch, arch) != 0)
                continue;
            is_first = is_first && j >= i;
            bytes += code->image[j].size;
            num++;
        }
        if (is_first)
            sb_printf(sb, "images %-10s %d kernels, %llu bytes\n", shown(sb, arch), num,
                      (unsigned long long)bytes);
    }
}

void device_summary(Sb *sb, const Plan *plan, const DeviceCode *code)
{
    put_images(sb, code);
    for (int i = 0; i < code->num_launches; i++)
        for (int b = 0; b < code->num_buckets; b++) {
            const DeviceLaunch *d = &code->launch[i * code->num_buckets + b];
            if (d->kernel < 0)
                continue;
            sb_printf(sb, "  k%-4d", i);
            for (int s = 0; s < plan->num_syms; s++)
                sb_printf(sb, " %s=%lld", shown(sb, plan->sym[s].name),
                          (long long)plan_bucket(plan, b)[s]);
            sb_printf(sb, "  %s, %d x %d threads, %d bytes shared\n",
                      shown(sb, code->kernel[d->kernel]), d->grid, d->block, d->smem);
        }
}
