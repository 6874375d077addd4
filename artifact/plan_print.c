/* A plan as text: a line for each tensor, launch and step. For goldens; never read back. */
#include "artifact/artifact.h"

#include <string.h>

static const char *const storage_name[] = {"const", "arena",  "input", "output",
                                           "view",  "scales", "zeros", "outer"};

static const struct {
    const char *name;
    int num_src;
    bool sets;
} step_info[NUM_TILE_OPS] = {
    [TILE_ACC] = {"acc", 0, true},
    [TILE_LOAD] = {"load", 0, true},
    [TILE_CONST] = {"const", 0, true},
    [TILE_ADD_I32] = {"add.i32", 2, true},
    [TILE_SUB_I32] = {"sub.i32", 2, true},
    [TILE_MUL_I32] = {"mul.i32", 2, true},
    [TILE_I32_TO_F32] = {"i32_to_f32", 1, true},
    [TILE_ROUND] = {"round", 1, true},
    [TILE_RMSNORM] = {"rmsnorm", 2, true},
    [TILE_LAYERNORM] = {"layernorm", 3, true},
    [TILE_SOFTMAX] = {"softmax", 1, true},
    [TILE_STORE] = {"store", 1, false},
    [TILE_QUANTIZE] = {"quantize", 1, false},
    [TILE_CODE_SUM] = {"code_sum", 0, false},
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = {name, arity, true},
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};

static const char *text(const char *may_be_null)
{
    return may_be_null ? may_be_null : "";
}

static const char *shown(const Sb *sb, const char *may_be_null)
{
    return arena_shown(sb->arena, text(may_be_null), strlen(text(may_be_null)));
}

static void print_dim(Sb *sb, const Plan *p, PlanDim d)
{
    bool any = false;
    if (d.mul != 0) {
        if (d.mul != 1 || (d.sym[0] < 0 && d.sym[1] < 0)) {
            sb_printf(sb, "%lld", (long long)d.mul);
            any = true;
        }
        for (int i = 0; i < 2; i++)
            if (d.sym[i] >= 0) {
                sb_printf(sb, "%s%s", any ? "*" : "", shown(sb, p->sym[d.sym[i]].name));
                any = true;
            }
    }
    if (!any)
        sb_printf(sb, "%lld", (long long)d.add);
    else if (d.add)
        sb_printf(sb, " %c %lld", d.add < 0 ? '-' : '+', (long long)(d.add < 0 ? -d.add : d.add));
}

static void print_type(Sb *sb, const Plan *p, const PlanTensor *t)
{
    sb_put(sb, format_info[t->fmt].name);
    if (t->quantised) {
        sb_put(sb, "{");
        scheme_print(sb, &t->scheme, false);
        sb_put(sb, t->is_static ? " static}" : "}");
    }
    sb_put(sb, "[");
    for (int i = 0; i < t->rank; i++) {
        sb_put(sb, i ? ", " : "");
        print_dim(sb, p, t->dim[i]);
    }
    sb_put(sb, "]");
}

static void print_tensor(Sb *sb, const Plan *p, int i)
{
    const PlanTensor *t = &p->tensor[i];
    sb_printf(sb, "tensor t%d ", i);
    sb_put_json_string(sb, text(t->name), strlen(text(t->name)));
    sb_put(sb, " ");
    print_type(sb, p, t);
    sb_printf(sb, " %s", storage_name[t->storage]);
    if (t->storage == STORAGE_CONST)
        sb_printf(sb, " at %llu bytes %llu", (unsigned long long)t->offset,
                  (unsigned long long)t->bytes);
    else if (t->storage == STORAGE_VIEW)
        sb_printf(sb, " of t%d column %lld", t->index, (long long)t->view_col);
    else if (storage_is_part(t->storage))
        sb_printf(sb, " of t%d", t->index);
    else if (t->storage != STORAGE_ARENA)
        sb_printf(sb, " %d", t->index);
    for (int b = 0; t->storage == STORAGE_ARENA && b < p->num_buckets; b++)
        sb_printf(sb, "%s%llu", b ? ", " : " at ", (unsigned long long)t->arena_offset[b]);
    if (t->packed)
        sb_printf(sb, t->groups ? " %lld groups packed" : " packed", (long long)t->groups);
    if (t->packed)
        sb_printf(sb, " for %s [%lld, %lld]%s%s", format_info[t->pack_spec.act_fmt].name,
                  (long long)t->pack_spec.n, (long long)t->pack_spec.k,
                  t->pack_spec.parts == 2 ? " in 2 parts" : "",
                  t->pack_spec.mainloop ? " scales in the main loop" : "");
    if (t->packed && plan_is_factored(p, &t->pack_spec))
        sb_put(sb, " held as u4, whole scales");
    if (t->packed && t->pack_spec.layout)
        sb_printf(sb, " as %s", cuda_layout[t->pack_spec.layout].name);
    if (t->is_static)
        sb_printf(sb, " params t%d", t->params);
    sb_put(sb, "\n");
}

void plan_put_layout(Sb *sb, const CpuPackSpec *weight)
{
    CudaPacked packed;
    CudaPackSpec spec = plan_cuda_spec(weight);
    if (!cuda_pack_plan(&spec, &packed))
        return;
    const CudaLayoutRow *row = &cuda_layout[packed.layout];
    sb_printf(sb, "%s%s, ", row->name, row->pieces);
    sb_put(sb, format_info[weight->fmt].name);
    if (packed.bits != format_info[weight->fmt].bits)
        sb_printf(sb, " held as %s", format_info[spec.fmt].name);
    if (spec.table && packed.layout == CUDA_RECORDS)
        sb_put(sb, ", a table of bf16 in pieces");
    if (spec.factored)
        sb_put(sb, ", whole scales");
    else if (packed.scales)
        sb_printf(sb, ", scales %s", format_info[packed.scale_fmt].name);
    if (packed.zeros)
        sb_printf(sb, ", zero points of %d bits", packed.zero_bits);
    sb_printf(sb, ": %.2f bits an element",
              8.0 * (double)packed.bytes / ((double)spec.n * (double)spec.k));
}

/* An earlier tensor holds the same weight in another layout. */
static bool is_copy(const Plan *p, int tensor)
{
    const PlanTensor *t = &p->tensor[tensor];
    for (int i = 0; i < tensor && t->packed && t->storage == STORAGE_CONST; i++) {
        PlanTensor own = p->tensor[i];
        bool apart = own.packed && own.pack_spec.layout != t->pack_spec.layout;
        own.pack_spec.layout = t->pack_spec.layout;
        if (apart && !strcmp(own.name, t->name) && pack_spec_equal(&own.pack_spec, &t->pack_spec))
            return true;
    }
    return false;
}

void plan_put_weight_bytes(Sb *sb, const Plan *plan)
{
    uint64_t copies = 0;
    for (int i = 0; i < plan->num_tensors; i++)
        copies += is_copy(plan, i) ? plan->tensor[i].bytes : 0;
    sb_printf(sb, "%llu bytes of weights", (unsigned long long)plan_weight_bytes(plan));
    if (copies)
        sb_printf(sb, " (%llu of copies in other layouts)", (unsigned long long)copies);
}

static void print_step(Sb *sb, const TileStep *s)
{
    sb_put(sb, "    ");
    if (step_info[s->op].sets)
        sb_printf(sb, "r%d = ", s->dst);
    sb_put(sb, step_info[s->op].name);
    for (int i = 0; i < step_info[s->op].num_src; i++)
        sb_printf(sb, "%s r%d", i ? "," : "", s->src[i]);
    if (s->op == TILE_ACC)
        sb_printf(sb, " %s part %d", format_info[s->fmt].name, s->part);
    if (s->op == TILE_ROUND)
        sb_printf(sb, " to %s", format_info[s->fmt].name);
    if (s->op == TILE_LOAD || plan_writes((TileOp)s->op))
        sb_printf(sb, " o%d", s->tensor);
    if (s->op == TILE_CODE_SUM)
        sb_printf(sb, " of o%d", s->tensor2);
    if (s->op == TILE_CONST || s->op == TILE_RMSNORM || s->op == TILE_LAYERNORM) {
        sb_put(sb, s->op == TILE_CONST ? " " : " eps ");
        sb_put_f32(sb, s->imm);
    }
    sb_put(sb, "\n");
}

static void print_program(Sb *sb, const PlanProgram *p)
{
    for (int i = 0; i < p->num_steps; i++)
        print_step(sb, &p->step[i]);
}

static void print_operands(Sb *sb, const Plan *p, const PlanLaunch *l)
{
    for (int i = 0; i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        sb_printf(sb, "  o%d = t%d", i, o->tensor);
        if (o->row_div.mul != 0 || o->row_div.add != 1) {
            sb_put(sb, " row / ");
            print_dim(sb, p, o->row_div);
        }
        if (o->row_mod.mul != 0 || o->row_mod.add != 0) {
            sb_put(sb, " row % ");
            print_dim(sb, p, o->row_mod);
        }
        if (o->index)
            sb_printf(sb, " row by o%d", o->index - 1);
        if (o->by_group)
            sb_put(sb, " row by group");
        sb_put(sb, o->col_step ? "\n" : " column 0\n");
    }
}

static void print_box(Sb *sb, const Plan *p, const PlanLaunch *l)
{
    sb_printf(sb, "  t%d to t%d", l->src, l->dst);
    for (int i = 0; i < l->move_rank; i++) {
        sb_put(sb, i ? ", " : ": ");
        print_dim(sb, p, l->move_dim[i]);
        sb_put(sb, " by ");
        print_dim(sb, p, l->move_src_stride[i]);
        sb_put(sb, " to ");
        print_dim(sb, p, l->move_dst_stride[i]);
    }
    sb_put(sb, " from ");
    print_dim(sb, p, l->move_src_offset);
    sb_put(sb, " to ");
    print_dim(sb, p, l->move_dst_offset);
    sb_put(sb, "\n");
}

static void print_route(Sb *sb, const PlanLaunch *l)
{
    sb_printf(sb, "  %s", route_step_name[l->route]);
    if (l->groups)
        sb_printf(sb, " of %lld groups", (long long)l->groups);
    for (int i = 0; i < l->num_operands; i++)
        sb_printf(sb, "%s t%d",
                  i == l->num_operands - plan_route_results(l->route) ? " to"
                  : i                                                 ? ","
                                                                      : "",
                  l->operand[i].tensor);
    sb_put(sb, "\n");
}

static void print_launch(Sb *sb, const Plan *p, int i)
{
    const PlanLaunch *l = &p->launch[i];
    sb_printf(sb, "launch %d %s %s", i, launch_family_name[l->family], shown(sb, l->layer));
    if (text(l->place)[0])
        sb_printf(sb, " at %s", shown(sb, l->place));
    sb_printf(sb, " (%s)\n", shown(sb, l->absorbed));
    if (l->family == LAUNCH_ROUTE) {
        print_route(sb, l);
        return;
    }
    print_operands(sb, p, l);
    if (l->grouped)
        sb_printf(sb, "  groups %s t%d%s\n", l->counted ? "count" : "end at", l->ends,
                  l->skips ? ", other rows are skipped" : "");
    if (l->family == LAUNCH_DECODE) {
        sb_printf(sb, "  t%d -> t%d\n", l->src, l->dst);
    } else if (l->family == LAUNCH_MOVE) {
        print_box(sb, p, l);
    } else if (l->family == LAUNCH_TILE) {
        sb_put(sb, l->whole_rows ? "  whole rows\n" : "  tiles\n");
        print_program(sb, &l->program);
    } else {
        if (l->prologue.num_steps)
            sb_put(sb, "  prologue\n");
        print_program(sb, &l->prologue);
        sb_printf(sb, "  t%d x t%d\n", l->a, l->w);
        for (int s = 0; s < l->num_segments; s++) {
            sb_printf(sb, "  columns %lld to ", (long long)l->segment[s].n_begin);
            if (l->segment[s].n_end == PLAN_LAST_COLUMN)
                sb_put(sb, "the last\n");
            else
                sb_printf(sb, "%lld\n", (long long)l->segment[s].n_end);
            print_program(sb, &l->segment[s].epilogue);
        }
    }
}

void plan_print(Sb *sb, const Plan *p)
{
    sb_printf(sb, "plan for %s%s\n", p->target,
              p->rows_independent ? ", rows are independent" : "");
    for (int b = 0; b < p->num_buckets; b++) {
        sb_printf(sb, "bucket %d:", b);
        for (int i = 0; i < p->num_syms; i++)
            sb_printf(sb, " %s = %lld", shown(sb, p->sym[i].name), (long long)plan_bucket(p, b)[i]);
        sb_printf(sb, " arena %llu bytes\n", (unsigned long long)p->arena_bytes[b]);
    }
    for (int i = 0; i < p->num_inputs; i++)
        sb_printf(sb, "input %s t%d\n", shown(sb, p->input[i].name), p->input[i].tensor);
    for (int i = 0; i < p->num_outputs; i++)
        sb_printf(sb, "output %s t%d\n", shown(sb, p->output[i].name), p->output[i].tensor);
    for (int i = 0; i < p->num_tensors; i++)
        print_tensor(sb, p, i);
    for (int i = 0; i < p->num_launches; i++)
        print_launch(sb, p, i);
}
