/* Whether a module means the same at -O0 and at -O1; see modules.h. */
#include "codegen/codegen.h"
#include "modules.h"
#include "passes/internal.h"
#include "runtime/sinter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ELEMENTS 40000 /* of all values */
#define MOST_PRODUCTS 2e5   /* multiplications of all products */
#define MOST_OPS      200
#define MAX_PORTS     64
#define SIZE          3 /* of symbols, where their buckets are as large */

typedef struct Build { /* of one level */
    Arena *arena;
    Diag diag;
    Module *m;
    EvalRecord *record;
    CodegenTarget target;
    bool planned;
} Build;

/* Size ----------------------------------------------------------------------------------------- */

static void sizes_of(const Module *m, int64_t *ret)
{
    for (int i = 0; i < m->syms.num; i++) {
        const Sym *sym = m->syms.elem[i];
        int64_t largest = sym->num_sizes ? sym->size[sym->num_sizes - 1] : SIZE;
        ret[i] = largest < SIZE ? largest : SIZE;
    }
}

/* Elements; infinity where a dim is none. */
static double type_size(const Type *type, const int64_t *size)
{
    double num = 1;
    for (int i = 0; i < type->rank; i++) {
        int64_t dim;
        if (!dim_eval(type->dim[i], size, &dim))
            return INFINITY;
        num *= (double)dim;
    }
    return num;
}

static bool is_small(const Module *m)
{
    int64_t size[LIMIT_SYMS];
    double elements = 0, products = 0;
    if (m->syms.num > LIMIT_SYMS || m->num_ops > MOST_OPS)
        return false;
    sizes_of(m, size);
    for_each_op(op, &m->body) {
        for (int i = 0; i < op->num_out; i++)
            elements += type_size(op->out[i].type, size);
        if (op->kind == OP_MATMUL)
            products +=
                type_size(op->out[0].type, size) * (double)type_last(op_in(op, 0)->type).add;
    }
    return elements < MOST_ELEMENTS && products < MOST_PRODUCTS;
}

/* Levels --------------------------------------------------------------------------------------- */

static bool build_parse(Build *b, const char *text, size_t size)
{
    b->arena = arena_new();
    diag_init(&b->diag, b->arena);
    b->m = module_parse(b->arena, &b->diag, diag_add_source(&b->diag, "mutant", text, size));
    return b->m != NULL;
}

static bool build_lower(Build *b, int level)
{
    PassContext context;
    const PassOptions options = {.opt_level = level, .base_dir = "/nowhere"};
    pass_context_init(&context, b->arena, &options);
    return passes_run(b->m, &context, NULL) && !b->diag.num_errors;
}

static void build_free(Build *b)
{
    eval_record_free(b->record);
    if (b->m)
        weights_close(b->m->weights);
    if (b->arena)
        arena_destroy(b->arena);
}

/* Only a layer that must be one kernel may be refused at one level alone. */
static bool asks_for_fusion(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->attr.quant && op->attr.quant->fused)
            return true;
    return false;
}

/* Lowering makes none of these; codegen has kernels for what the passes make of them, and may
 * refuse others. */
static bool is_lowered(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->kind == OP_QUANTIZE || op->kind == OP_DEQUANTIZE || op->kind == OP_SCALES ||
            op->kind == OP_ZEROS || op->kind == OP_CODE_SUM || op->kind == OP_OUTER ||
            op->kind == OP_INNER || op->kind == OP_WIDEN || op->kind == OP_KERNEL)
            return false;
    return true;
}

/* What is moved at one level only may have strides of a form that no plan holds. */
static bool is_limit(const Build *b)
{
    return b->diag.first && b->diag.first->id == E_LIMIT;
}

static const char *first_error(Arena *arena, const char *what, const Build *b)
{
    return arena_printf(arena, "%s: %s", what, b->diag.first ? b->diag.first->text : "no error");
}

/* Files ---------------------------------------------------------------------------------------- */

static uint64_t tensor_bytes(const SinterTensor *t)
{
    uint64_t bytes = t->dtype == SINTER_F16 || t->dtype == SINTER_BF16 ? 2 : 4;
    for (int i = 0; i < t->rank; i++)
        bytes *= (uint64_t)t->dim[i];
    return bytes;
}

static FormatId format_of(SinterDtype dtype)
{
    return dtype == SINTER_F16 ? FMT_F16 : dtype == SINTER_BF16 ? FMT_BF16 : FMT_F32;
}

/* The same numbers for both files; inputs of whole numbers only where these are wanted. */
static void fill_inputs(Arena *arena, const Plan *plan, const SinterModel *file, SinterTensor *in)
{
    int64_t size[LIMIT_SYMS];
    Choices c = {.state = 1};
    for (int i = 0; i < plan->num_syms; i++)
        size[i] = plan_bucket(plan, 0)[i] < SIZE ? plan_bucket(plan, 0)[i] : SIZE;
    for (int i = 0; i < plan->num_inputs; i++) {
        const PlanTensor *t = &plan->tensor[plan->input[i].tensor];
        SinterPort port = sinter_input(file, i);
        in[i] = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            in[i].dim[k] = plan_dim_eval(t->dim[k], size);
        uint64_t bytes = tensor_bytes(&in[i]), each = bytes && in[i].dtype != SINTER_F32 ? 2 : 4;
        uint8_t *data = arena_alloc(arena, bytes + 1);
        for (uint64_t at = 0; at < bytes; at += each) {
            float x = (float)choose(&c, 4001) / 500 - 4;
            int32_t whole = (int32_t)x;
            if (in[i].dtype == SINTER_I32)
                memcpy(data + at, &whole, 4);
            else
                format_from_f32(format_of(in[i].dtype), &x, data + at, 1);
        }
        in[i].data = data;
    }
}

static const char *run_file(Arena *arena, Build *b, const char *path, SinterTensor *out,
                            int *ret_num)
{
    SinterError err;
    SinterModel *file = NULL;
    SinterSession *session = NULL;
    SinterTensor in[MAX_PORTS];
    const Plan *plan = b->target.plan;
    const WriteOptions options = {.stub = "", .report = "none\n"};
    const SinterSessionOptions one = {.threads = 1};
    if (!codegen_write(b->m, 1, &(WriteTarget){.target = &b->target}, path, &options))
        return first_error(arena, "writing", b);
    bool ok = !sinter_open(path, &file, &err) && !sinter_session_create(file, &one, &session, &err);
    unlink(path);
    int num = *ret_num = plan->num_outputs;
    if (ok) {
        fill_inputs(arena, plan, file, in);
        for (int i = 0; i < num; i++)
            out[i] = (SinterTensor){.name = sinter_output(file, i).name,
                                    .dtype = sinter_output(file, i).dtype};
        ok = !sinter_output_shapes(session, in, plan->num_inputs, out, num, &err);
        for (int i = 0; ok && i < num; i++)
            out[i].data = arena_alloc(arena, tensor_bytes(&out[i]) + 1);
        ok = ok && !sinter_run(session, in, plan->num_inputs, out, num, &err);
        for (int i = 0; i < num; i++) /* names are the file's, which is closed */
            out[i].name = arena_strdup(arena, out[i].name);
    }
    sinter_session_destroy(session);
    sinter_close(file);
    return ok ? NULL : arena_strdup(arena, err.text);
}

static bool is_nan(SinterDtype dtype, const uint8_t *at)
{
    double value;
    if (dtype == SINTER_I32)
        return false;
    format_to_f64(format_of(dtype), at, &value, 1);
    return isnan(value);
}

static const char *compare_files(Arena *arena, Build *b, const char *folder)
{
    SinterTensor out[2][MAX_PORTS];
    int num[2] = {0};
    if (b[0].target.plan->num_inputs > MAX_PORTS || b[0].target.plan->num_outputs > MAX_PORTS)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const char *path = arena_printf(arena, "%s/mutant%d", folder, i);
        const char *why = run_file(arena, &b[i], path, out[i], &num[i]);
        if (why)
            return arena_printf(arena, "the file of -O%d does not run: %s", i, why);
    }
    for (int i = 0; i < num[0]; i++) {
        const SinterTensor *x = &out[0][i], *y = &out[1][i];
        uint64_t bytes = tensor_bytes(x), each = bytes && format_of(x->dtype) != FMT_F32 ? 2 : 4;
        if (bytes != tensor_bytes(y))
            return "outputs of -O0 and -O1 differ in shape";
        for (uint64_t at = 0; at < bytes; at += each) {
            const uint8_t *p = (uint8_t *)x->data + at, *q = (uint8_t *)y->data + at;
            if (memcmp(p, q, each) != 0 && !(is_nan(x->dtype, p) && is_nan(x->dtype, q)))
                return arena_printf(arena, "element %llu of output \"%s\" differs when run",
                                    (unsigned long long)(at / each), x->name);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- */

static const char *compare_levels(Arena *arena, Build *b, const char *folder, ModuleVerdict *ret)
{
    const char *why = NULL;
    bool lowered[2], may_differ = asks_for_fusion(b[0].m);
    bool same_plans = is_lowered(b[0].m);
    for (int i = 0; i < 2; i++)
        lowered[i] = build_lower(&b[i], i);
    if (lowered[0] != lowered[1] && !may_differ)
        return first_error(arena, lowered[1] ? "only -O0 is refused" : "only -O1 is refused",
                           &b[lowered[0]]);
    if (!lowered[0] || !lowered[1])
        return NULL;
    *ret = MODULE_PLANNED;
    for (int i = 0; i < 2; i++) {
        b[i].record = eval_record(b[i].m, CHECK_EXACT, arena, &why);
        if (!b[i].record)
            break;
    }
    if (!b[0].record != !b[1].record && b[0].record)
        return arena_printf(arena, "only -O1 is not evaluated: %s", why);
    if (!b[0].record)
        return NULL; /* a cast of a constant overflows, say */
    why = eval_record_compare(b[0].record, b[1].record, CHECK_EXACT, arena);
    if (why)
        return why;
    for (int i = 0; i < 2; i++)
        b[i].planned = codegen_plan(b[i].m, b[i].arena, &b[i].target) && !b[i].diag.num_errors;
    if (b[0].planned != b[1].planned && same_plans && !is_limit(&b[b[0].planned]))
        return first_error(arena, "only one level has a plan", &b[b[0].planned]);
    if (!b[0].planned || !b[1].planned)
        return NULL;
    *ret = MODULE_COMPILED;
    return folder ? compare_files(arena, b, folder) : NULL;
}

const char *module_check(Arena *arena, const char *text, size_t size, const char *folder,
                         ModuleVerdict *ret)
{
    Build b[2] = {{0}};
    const char *why = NULL;
    *ret = MODULE_REFUSED;
    if (build_parse(&b[0], text, size)) {
        *ret = MODULE_LARGE;
        if (!module_verify(b[0].m, "parse"))
            why = "what was read does not verify";
        else if (is_small(b[0].m) && build_parse(&b[1], text, size)) {
            *ret = MODULE_REFUSED;
            why = compare_levels(arena, b, folder, ret);
        }
    }
    why = why ? arena_strdup(arena, why) : NULL;
    build_free(&b[0]);
    build_free(&b[1]);
    return why;
}
