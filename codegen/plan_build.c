/* codegen: the launch list of no target: one launch for each kernel op, in the order of the module;
 * then the arena. */
#include "codegen/build.h"

#include <string.h>

bool build_fail(Builder *b, Span span, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, b->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(b->m->diag, span, E_KERNEL, "%s", sb.text);
    b->failed = true;
    return false;
}

/* Launches ------------------------------------------------------------------------------------- */

static const char *absorbed_text(Builder *b, const Op *op)
{
    Sb sb;
    sb_init(&sb, b->arena);
    if (op->kind != OP_KERNEL)
        return "copy";
    for_each_op(inner, op->body)
        if (inner->kind != OP_ARG && inner->kind != OP_YIELD)
            sb_printf(&sb, "%s%s", sb.len ? " " : "", op_info[inner->kind].name);
    return sb.text;
}

static const char *layer_text(const Op *op)
{
    const char *name = op->num_out ? op->out[0].name : op->name;
    return op->attr.layer ? op->attr.layer : name ? name : op_info[op->kind].name;
}

PlanLaunch *launch_add(Builder *b, const Op *op, LaunchFamily family)
{
    const Op *named = b->kernel ? b->kernel : op;
    PlanLaunch l = {.family = family,
                    .layer = layer_text(named),
                    .place = named->span.file ? span_text(b->m->diag, named->span) : "",
                    .absorbed = absorbed_text(b, named),
                    .a = -1,
                    .w = -1,
                    .src = -1,
                    .dst = -1};
    ARRAY_PUSH(b->arena, &b->launches, l);
    ARRAY_PUSH(b->arena, &b->target->launch_kernels, named);
    return &b->launches.elem[b->launches.num - 1];
}

static Op *body_find(const Op *kernel, OpKind kind)
{
    for_each_op(op, kernel->body)
        if (op->kind == kind)
            return op;
    return NULL;
}

static Op *body_flagged(const Op *kernel, unsigned flag)
{
    Op *ret = NULL;
    for_each_op(op, kernel->body)
        if (op_info[op->kind].flags & flag && !(ret && flag == OPF_ROUTE))
            ret = op;
    return ret; /* the last one, but of routing the first */
}

static void build_kernel(Builder *b, Op *kernel)
{
    uint32_t arg = 0;
    for_each_op(op, kernel->body)
        if (op->kind == OP_ARG)
            op->mark = arg++;
    b->kernel = kernel;
    b->group++;
    Op *matmul = body_find(kernel, OP_MATMUL);
    Op *move = body_flagged(kernel, OPF_MOVE), *route = body_flagged(kernel, OPF_ROUTE);
    if (matmul)
        build_gemm(b, kernel, matmul);
    else if (move)
        build_move(b, kernel, move);
    else if (route)
        build_route(b, kernel, route);
    else
        build_tile(b, kernel);
    b->kernel = NULL;
}

/* A value that no kernel stored there directly is copied to the output. */
static void build_output_op(Builder *b, const Op *op)
{
    int index = (int)op->mark;
    if (b->outputs_from[index])
        return;
    b->group++;
    int src = tensor_get(b, op_in(op, 0), op->span);
    if (src >= 0)
        build_copy(b, src, b->num_inputs + index, op);
}

/* Model ---------------------------------------------------------------------------------------- */

static void add_ports(Builder *b, Plan *plan, OpKind kind)
{
    PlanPort *port;
    int num = 0;
    for_each_op(op, &b->m->body)
        num += op->kind == kind;
    port = ARENA_NEW_ARRAY(b->arena, PlanPort, (size_t)num);
    num = 0;
    for_each_op(op, &b->m->body) {
        if (op->kind != kind)
            continue;
        bool is_input = kind == OP_INPUT;
        const Value *value = is_input ? &op->out[0] : op_in(op, 0);
        int tensor =
            tensor_add(b, op->name, value->type, is_input ? STORAGE_INPUT : STORAGE_OUTPUT);
        b->tensors.elem[tensor].index = num;
        if (is_input)
            ptrmap_put(&b->tensor_of, value, tensor + 1);
        op->mark = (uint32_t)num;
        port[num++] = (PlanPort){op->name, tensor};
    }
    if (kind == OP_INPUT) {
        plan->input = port;
        plan->num_inputs = b->num_inputs = num;
    } else {
        plan->output = port;
        plan->num_outputs = b->num_outputs = num;
        b->outputs_from = ARENA_NEW_ARRAY(b->arena, const Value *, (size_t)num);
    }
}

/* Every combination of the symbols' sizes, the first symbol's slowest. */
static bool add_buckets(Builder *b, Plan *plan)
{
    int num_syms = b->m->syms.num, num = 1;
    PlanSym *sym = ARENA_NEW_ARRAY(b->arena, PlanSym, (size_t)num_syms);
    if (num_syms > LIMIT_SYMS)
        return build_fail(b, b->m->syms.elem[LIMIT_SYMS]->span,
                          "%d dims vary; a compiled model has at most %d", num_syms, LIMIT_SYMS);
    for (int i = 0; i < num_syms; i++) {
        const Sym *from = b->m->syms.elem[i];
        sym[i] = (PlanSym){from->name, from->num_sizes, from->size};
        if (num > LIMIT_BUCKETS / (from->num_sizes ? from->num_sizes : 1))
            return build_fail(b, from->span, "the sizes of all dims make more than %d combinations",
                              LIMIT_BUCKETS);
        num *= from->num_sizes;
    }
    int64_t *size = ARENA_NEW_ARRAY(b->arena, int64_t, (size_t)num * (size_t)num_syms);
    for (int bucket = 0; bucket < num; bucket++)
        for (int i = num_syms - 1, rest = bucket; i >= 0; i--) {
            size[bucket * num_syms + i] = sym[i].size[rest % sym[i].num_sizes];
            rest /= sym[i].num_sizes;
        }
    plan->sym = sym;
    plan->num_syms = num_syms;
    plan->bucket_size = size;
    plan->num_buckets = num;
    return true;
}

static void build_body(Builder *b)
{
    for_each_op(op, &b->m->body) {
        if (op->kind == OP_KERNEL)
            build_kernel(b, op);
        else if (op->kind == OP_OUTPUT)
            build_output_op(b, op);
        if (b->failed)
            return;
    }
}

/* Does an input say how large the dim is, by a dimension of it and numbers? */
static bool sym_is_known(const Module *m, const Sym *sym)
{
    for_each_op(op, &m->body)
        for (int i = 0; op->kind == OP_INPUT && i < op->out[0].type->rank; i++) {
            Dim d = op->out[0].type->dim[i];
            if (d.sym[0] == sym && !d.sym[1])
                return true;
        }
    return false;
}

/* A text's dims all have an input; what is read from a printed module may not. */
static bool check_syms_known(const Module *m)
{
    for_each_op(op, &m->body)
        for (int i = 0; op->kind == OP_INPUT && i < op->out[0].type->rank; i++)
            for (int s = 0; s < 2; s++) {
                const Sym *sym = op->out[0].type->dim[i].sym[s];
                if (!sym || sym_is_known(m, sym))
                    continue;
                diag_error(m->diag, op->span, E_DIM,
                           "no input has '%s' as a dimension of its own, so nothing sets its size",
                           sym->name);
                return false;
            }
    return true;
}

static bool is_empty(const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (dim_is_const(type->dim[i]) && type->dim[i].add == 0)
            return true;
    return false;
}

/* Why no kernel computes a result of the op; NULL: one may. */
static const char *op_problem(Builder *b, const Op *op)
{
    bool is_part = op->kind == OP_SCALES || op->kind == OP_ZEROS || op->kind == OP_CODE_SUM;
    for (int i = 0; i < op->num_out; i++) {
        if (op->kind == OP_ARG || build_is_constant(b, &op->out[i]))
            continue;
        if (is_empty(op->out[i].type))
            return arena_printf(b->arena, "%s makes %s, which holds nothing",
                                op_info[op->kind].name, type_text(b->arena, op->out[i].type));
        if (is_part && op->attr.axis == 1)
            return arena_printf(b->arena,
                                "%s along axis 1 is of weights, and this value is computed",
                                op_info[op->kind].name);
    }
    return NULL;
}

/* What only a printed module can ask for. */
static bool check_ops(Builder *b, const Block *block)
{
    for_each_op(op, block) {
        const char *problem = op_problem(b, op);
        if (problem)
            return build_fail(b, op->span, "%s", problem);
        if (op->body && !check_ops(b, op->body))
            return false;
    }
    return true;
}

bool codegen_list(Module *m, Arena *arena, CodegenTarget *ret)
{
    Builder b = {.m = m, .arena = arena, .target = ret};
    Plan *plan = ARENA_NEW(arena, Plan);
    *ret = (CodegenTarget){.plan = plan};
    ptrmap_init(&b.tensor_of, arena);
    ptrmap_init(&b.packed_of, arena);
    ptrmap_init(&b.constness, arena);
    plan->target = "";
    if (!check_syms_known(m) || !check_ops(&b, &m->body) || !add_buckets(&b, plan))
        return false;
    add_ports(&b, plan, OP_INPUT);
    add_ports(&b, plan, OP_OUTPUT);
    build_body(&b);
    if (b.failed)
        return false;
    plan->rows_independent = rows_independent(&b);
    plan->num_launches = b.launches.num;
    plan->launch = b.launches.elem;
    codegen_skip_rows(arena, b.tensors.elem, b.tensors.num, b.launches.elem, b.launches.num);
    memory_plan(&b, plan);
    plan->num_tensors = b.tensors.num;
    plan->tensor = b.tensors.elem;
    return !b.failed;
}
