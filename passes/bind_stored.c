/* A weight that the checkpoint stores quantised keeps its codes: the part of bind-weights that
 * makes them constants of a quantised type. Linear layers take them as they are, under the scheme
 * of the checkpoint; whatever else reads the weight gets its values in the declared format. A rule
 * that asks for another scheme quantises those values again, with a warning.
 *
 * Before                                        After
 *   %w = const weight "fc.weight" : bf16[8, 64]   %1 = const weight "fc.weight" : i4{group 32}[8,
 * 64] %y = matmul %x, %w                            %2 = dequantize %1 %y = matmul %x, %2 {quant =
 * {stored, weight i4..}}
 */
#include "checkpoint/checkpoint.h"
#include "passes/internal.h"
#include <string.h>

bool weight_is_stored(const Op *matmul)
{
    return matmul->attr.quant && matmul->attr.quant->stored;
}

/* Reading ---------------------------------------------------------------------------------------
 */

typedef struct Stored {
    ConstReader reader;
    const StoredModule *module;
    IoError err; /* of the last read */
} Stored;

static const char *read_module(const ConstReader *reader, QTensor *q, float *dst)
{
    Stored *s = (Stored *)(uintptr_t)reader->stored;
    bool ok = dst ? stored_values(s->module, dst, &s->err) : stored_fill(s->module, q, &s->err);

    return ok ? NULL : s->err.text;
}

/* A row of them for each row of the weight: the rows of one block have the same. */
static const char *read_offsets(const ConstReader *reader, QTensor *q, float *dst)
{
    Stored *s = (Stored *)(uintptr_t)reader->stored;
    const StoredModule *m = s->module;
    int64_t cols = scheme_col_blocks(&m->scheme, m->cols);
    int64_t height = m->scheme.block[0] ? m->scheme.block[0] : m->rows;

    (void)q;
    if (!stored_offsets(m, dst, &s->err))
        return s->err.text;
    for (int64_t r = m->rows; r-- > 0;) /* what is read lies before what is written, or is it */
        memmove(dst + r * cols, dst + r / height * cols, (size_t)cols * sizeof *dst);
    return NULL;
}

static const char *read_input_factors(const ConstReader *reader, QTensor *q, float *dst)
{
    Stored *s = (Stored *)(uintptr_t)reader->stored;

    (void)q;
    return stored_input_factors(s->module, dst, &s->err) ? NULL : s->err.text;
}

static const ConstReader *reader_create(Arena *arena, const StoredModule *module,
                                        const char *(*read)(const ConstReader *, QTensor *,
                                                            float *))
{
    Stored *s = ARENA_NEW(arena, Stored);

    *s = (Stored){.reader = {.read = read, .stored = s}, .module = module};
    for (int i = 0; i < NUM_PARTS; i++) {
        if (!module->part[i] || s->reader.num_parts == COUNT_OF(s->reader.part))
            continue;
        s->reader.part[s->reader.num_parts].data = module->part[i]->data;
        s->reader.part[s->reader.num_parts++].bytes = module->part[i]->bytes;
    }
    return &s->reader;
}

/* Checks ----------------------------------------------------------------------------------------
 */

/* Do no kernels read its codes as they lie? Its values are then kept as f32. */
static bool is_wide(const StoredModule *stored)
{
    return stored->order || stored->row_step;
}

static bool is_size(Dim dim, int64_t size)
{
    return dim_is_const(dim) && dim.add == size;
}

static bool module_fits(Module *m, const Op *op, const StoredModule *stored)
{
    const Type *type = op->out[0].type;

    if (stored->refused) {
        diag_error(m->diag, op->span, E_CHECKPOINT_KIND, "\"%s\" is stored as %s: %s", stored->name,
                   stored->layout, stored->refused);
        return false;
    }
    if (type->rank == 2 && !stored->experts && is_size(type->dim[0], stored->rows) &&
        is_size(type->dim[1], stored->cols))
        return true;
    diag_error(m->diag, op->span, E_WEIGHT_SHAPE,
               "\"%s\" is stored as codes of a [%lld, %lld] weight, but %s here", stored->name,
               (long long)stored->rows, (long long)stored->cols, type_text(m->arena, type));
    if (type->rank == 2 && is_size(type->dim[0], stored->cols) &&
        is_size(type->dim[1], stored->rows))
        diag_help(m->diag, "weights are [out, in]");
    return false;
}

/* Layers ----------------------------------------------------------------------------------------
 */

static Span rule_span(const Op *matmul, Span span)
{
    return span.file ? span : matmul->span;
}

static bool changes_weight(Module *m, const Op *matmul, const QuantSpec *spec)
{
    if (!spec->smooth && !spec->rotate)
        return false;
    diag_error(m->diag, rule_span(matmul, spec->said), E_SCHEME_FIT,
               "%s: its weight is stored quantised, so it cannot be %s", layer_name(matmul),
               spec->smooth ? "smoothed" : "rotated");
    diag_help(m->diag, "a rule that names a scheme quantises it again");
    return true;
}

static void act_take(Module *m, QuantSpec *spec, const StoredAct *act)
{
    if (spec->act || spec->act_fmt != FMT_NONE || !act->is_quantised)
        return;
    spec->act = scheme_intern(m, &act->scheme);
    spec->act_static = spec->act_known = act->is_static;
    spec->act_scale = act->scale;
    spec->act_zero = act->zero;
}

/* What the layer does with the codes; NULL: a rule wants others. */
static QuantSpec *spec_settle(Module *m, const Op *matmul, const StoredModule *stored)
{
    QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
    const Scheme *scheme = &stored->scheme;

    if (matmul->attr.quant)
        *spec = *matmul->attr.quant;
    if (spec->weight && !spec->keep &&
        (is_wide(stored) || stored->offset || !scheme_equal(spec->weight, scheme))) {
        Sb sb;
        sb_init(&sb, m->arena);
        scheme_print(&sb, scheme, false);
        diag_warning(m->diag, rule_span(matmul, spec->weight_span), E_REQUANTISED,
                     "%s: the checkpoint stores it as %s; it is quantised again",
                     layer_name(matmul), sb.text);
        return NULL;
    }
    if (changes_weight(m, matmul, spec))
        return NULL;
    spec->weight = is_wide(stored) ? NULL : scheme_intern(m, scheme);
    spec->stored = !is_wide(stored);
    spec->by = NULL;
    if (!spec->keep)
        act_take(m, spec, &stored->act);
    spec->keep = false;
    if (!spec->scheme_name)
        spec->scheme_name = "stored";
    return spec;
}

/* Offsets: x (q s + m)T = x (q s)T + (sums of x over each group) mT. -----------------------------
 */

/* [groups, columns] of the operand's format: 1 where the column belongs to the group. */
static Value *sums_weight(Module *m, Op *at, const StoredModule *stored, FormatId fmt)
{
    int64_t width = stored->scheme.block[1] ? stored->scheme.block[1] : stored->cols;
    int64_t dim[2] = {(stored->cols + width - 1) / width, stored->cols};
    size_t bytes = (size_t)format_info[fmt].bits / 8;
    uint8_t *data = arena_alloc_array(m->arena, (size_t)(dim[0] * dim[1]), bytes);
    const float one = 1;

    for (int64_t k = 0; k < dim[1]; k++)
        format_from_f32(fmt, &one, data + (size_t)(k / width * dim[1] + k) * bytes, 1);
    return rewrite_const(m, at, fmt, 2, dim, data, at->span);
}

static Value *product(Module *m, Op *at, const Op *matmul, Value *a, Value *b, const char *what)
{
    Value *in[2] = {a, b};
    Attr attr = {.layer = arena_printf(m->arena, "%s %s", layer_name(matmul), what)};

    return rewrite_op(m, at, OP_MATMUL, &attr, NULL, 2, in, matmul->span);
}

/* x f, in the format of x: what the layer's codes are for. */
static void input_multiply(Module *m, Op *matmul, const StoredModule *stored)
{
    Value *x = op_in(matmul, 0);
    const Dim cols = dim_const(stored->cols);
    Const constant = {.kind = CONST_WEIGHT,
                      .name = arena_printf(m->arena, "%s input factors", stored->name)};

    constant.reader = reader_create(m->arena, stored, read_input_factors);
    Value *factors = build_const(m, matmul->block, matmul, type_plain(m, FMT_F32, 1, &cols),
                                 &constant, matmul->span);
    Value *product = rewrite_binary(m, matmul, OP_MUL, x, factors, matmul->span);
    if (product->type != x->type)
        product = rewrite_unary(m, matmul, OP_CAST, x->type, product, matmul->span);
    op_set_in(matmul, 0, product);
}

static void offsets_add(Module *m, Op *matmul, const StoredModule *stored)
{
    Op *at = matmul->next;
    Value *x = op_in(matmul, 0), *result = op_out(matmul);
    int64_t dim[2] = {stored->rows, scheme_col_blocks(&stored->scheme, stored->cols)};
    const Dim dims[2] = {dim_const(dim[0]), dim_const(dim[1])};
    Const constant = {.kind = CONST_WEIGHT,
                      .name = arena_printf(m->arena, "%s offsets", stored->name)};
    Value *sum;

    constant.reader = reader_create(m->arena, stored, read_offsets);
    Value *offsets =
        build_const(m, matmul->block, at, type_plain(m, FMT_F32, 2, dims), &constant, matmul->span);
    Value *sums = product(m, at, matmul, x, sums_weight(m, at, stored, x->type->fmt), "sums");
    Value *more = product(m, at, matmul, sums, offsets, "offsets");
    sum = rewrite_binary(m, at, OP_ADD, result, more, matmul->span);
    value_replace(result, sum);
    op_set_in(sum->def, 0, result);
}

static bool offset_fits(Module *m, const Op *matmul, const StoredModule *stored,
                        const QuantSpec *spec)
{
    if (!stored->offset || !spec->stored || !spec->act)
        return true;
    diag_error(m->diag, rule_span(matmul, spec->act_span), E_SCHEME_FIT,
               "%s: its weight has zero points that are no integers, so its activation stays plain",
               layer_name(matmul));
    diag_help(m->diag, "leave out the `act` line, or name a scheme for the weight too");
    return false;
}

/* The layers that read the value as their weight, casts looked through. */
static void layers_bind(Module *m, const PassContext *ctx, Value *value, Value *weight,
                        const StoredModule *stored)
{
    for_each_use(use, value) {
        Op *user = use->user;
        if (user->kind == OP_CAST)
            layers_bind(m, ctx, op_out(user), weight, stored);
        if (user->kind != OP_MATMUL || use != &user->in[1])
            continue;
        QuantSpec *spec = spec_settle(m, user, stored);
        if (!spec || !offset_fits(m, user, stored, spec))
            continue;
        user->attr.quant = spec;
        op_set_in(user, 1, weight);
        if (!spec->stored) /* its values hold all */
            continue;
        if (stored->part[PART_INPUT_FACTORS])
            input_multiply(m, user, stored);
        if (stored->offset)
            offsets_add(m, user, stored);
    }
}

static void warn_wide(Module *m, const Op *op, const StoredModule *stored)
{
    if (is_wide(stored))
        diag_warning(m->diag, op->span, E_STORED_WIDE,
                     "\"%s\" %s: its values are exact, but kept as f32", stored->name,
                     stored->order ? "is grouped by activation order"
                                   : "is grouped down its columns");
}

/* The weight's values, exactly: f32. */
static Value *values_const(Module *m, Op *op, const StoredModule *stored)
{
    Const constant = {
        .kind = CONST_WEIGHT, .name = op->constant->name, .parts = op->constant->parts};

    constant.reader = reader_create(m->arena, stored, read_module);
    return build_const(m, op->block, op, type_plain(m, FMT_F32, 2, op->out[0].type->dim), &constant,
                       op->span);
}

static Value *codes_const(Module *m, Op *op, const StoredModule *stored)
{
    Const constant = {
        .kind = CONST_WEIGHT, .name = op->constant->name, .parts = op->constant->parts};
    const Type *type =
        type_quantised(m, scheme_intern(m, &stored->scheme), 2, op->out[0].type->dim);

    constant.reader = reader_create(m->arena, stored, read_module);
    Value *codes = build_const(m, op->block, op, type, &constant, op->span);
    return rewrite_unary(m, op, OP_DEQUANTIZE, NULL, codes, op->span);
}

void stored_bind(Module *m, const PassContext *ctx, Op *op, const StoredModule *stored)
{
    const Type *type = op->out[0].type;

    if (!module_fits(m, op, stored))
        return;
    if (type->scheme) { /* printed IR */
        op->constant->reader = reader_create(m->arena, stored, read_module);
        return;
    }
    warn_wide(m, op, stored);
    Value *weight = is_wide(stored) ? values_const(m, op, stored) : codes_const(m, op, stored);
    weight->name = op_out(op)->name;
    layers_bind(m, ctx, op_out(op), weight, stored);
    if (!is_wide(stored) && (stored->offset || stored->part[PART_INPUT_FACTORS]))
        weight = values_const(m, op, stored);
    if (type->fmt != FMT_F32)
        weight = rewrite_unary(m, op, OP_CAST, type, weight, op->span);
    value_replace(op_out(op), weight);
    op_remove(op);
}
