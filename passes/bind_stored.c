/* A weight that the checkpoint stores quantised keeps its codes: the part of bind-weights that
 * makes them constants of a quantised type. Linear layers take them as they are, under the scheme
 * of the checkpoint; whatever else reads the weight gets its values in the declared format. A rule
 * that asks for another scheme quantises those values again, with a warning.
 *
 * Before
 *   %w = const weight "fc.weight" : bf16[8, 64]
 *   %y = matmul %x, %w
 *
 * After
 *   %1 = const weight "fc.weight" : i4{group 32}[8, 64]
 *   %2 = dequantize %1
 *   %y = matmul %x, %2 {quant = {stored, weight i4..}}
 */
#include "checkpoint/checkpoint.h"
#include "passes/internal.h"
#include <string.h>

bool weight_is_stored(const Op *matmul)
{
    return matmul->attr.quant && matmul->attr.quant->stored;
}

/* Reading -------------------------------------------------------------------------------------- */

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

/* A row of one number for each row of the weight. */
static const char *read_outers(const ConstReader *reader, QTensor *q, float *dst)
{
    Stored *s = (Stored *)(uintptr_t)reader->stored;

    (void)q;
    return stored_outers(s->module, dst, &s->err) ? NULL : s->err.text;
}

static const ConstReader *reader_create(Arena *arena, const StoredModule *module,
                                        const char *(*read)(const ConstReader *, QTensor *,
                                                            float *))
{
    Stored *s = ARENA_NEW(arena, Stored);
    int64_t num = module->each ? module->experts : 1;
    ConstPart *part = ARENA_NEW_ARRAY(arena, ConstPart, (size_t)num * NUM_PARTS);

    *s = (Stored){.reader = {.read = read, .stored = s, .part = part}, .module = module};
    for (int64_t e = 0; e < num; e++)
        for (int i = 0; i < NUM_PARTS; i++) {
            const TensorView *view = (module->each ? module->each[e] : module)->part[i];
            if (view)
                part[s->reader.num_parts++] = (ConstPart){view->data, view->bytes};
        }
    return &s->reader;
}

/* NULL: no constant that reads codes of matrices apart. */
static const StoredModule *stack_of(const Value *value)
{
    const ConstReader *reader = value->def->kind == OP_CONST ? value->def->constant->reader : NULL;
    const Stored *s = reader && reader->read == read_module ? reader->stored : NULL;

    return s && s->module->each ? s->module : NULL;
}

bool stored_joins(const Value *a, const Value *b)
{
    const StoredModule *x = stack_of(a), *y = stack_of(b);

    return x && y && x->experts == y->experts && x->rows == y->rows && x->outers == y->outers &&
           scheme_equal(&x->scheme, &y->scheme);
}

const ConstReader *stored_join(Module *m, int num, Value *const *in)
{
    StoredModule *all = ARENA_NEW(m->arena, StoredModule);
    const StoredModule *first = stack_of(in[0]), **each;

    for (int i = 1; i < num; i++)
        if (!stored_joins(in[0], in[i]))
            return NULL;
    each = ARENA_NEW_ARRAY(m->arena, const StoredModule *, (size_t)(num * first->experts));
    for (int i = 0; i < num; i++)
        for (int64_t e = 0; e < first->experts; e++)
            each[e * num + i] = stack_of(in[i])->each[e];
    *all = *first;
    all->each = each;
    all->experts *= num;
    all->rows *= num;
    return reader_create(m->arena, all, read_module);
}

const StoredModule *hand_module(Module *m, const char *codes, const ConstParts *parts, int64_t rows,
                                int64_t cols, IoError *err)
{
    const StoredHand hand = {.scheme = parts->scheme,
                             .codes = codes,
                             .scale = parts->scale,
                             .zero = parts->zero,
                             .offset = parts->offset,
                             .outer = parts->outer,
                             .table = parts->table};

    return checkpoint_by_hand(m->checkpoint, &hand, rows, cols, err);
}

/* Checks --------------------------------------------------------------------------------------- */

/* Do no kernels read its codes as they lie? Its values are then kept as f32. */
static bool is_wide(const StoredModule *stored)
{
    return stored->order || stored->row_step || stored->wide;
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
    int64_t rows = stored->experts ? stored->rows / stored->experts : stored->rows;
    const Dim *dim = type->dim + (stored->experts > 0);
    bool is_rank = type->rank == (stored->experts ? 3 : 2);
    if (is_rank && is_size(dim[0], rows) && is_size(dim[1], stored->cols) &&
        (!stored->experts || is_size(type->dim[0], stored->experts)))
        return true;
    const char *experts =
        stored->experts ? arena_printf(m->arena, "%lld, ", (long long)stored->experts) : "";
    diag_error(m->diag, op->span, E_WEIGHT_SHAPE,
               "\"%s\" is stored as codes of a [%s%lld, %lld] weight, but %s here", stored->name,
               experts, (long long)rows, (long long)stored->cols, type_text(m->arena, type));
    if (is_rank && is_size(dim[0], stored->cols) && is_size(dim[1], rows))
        diag_help(m->diag, "weights are [%sout, in]", stored->experts ? "experts, " : "");
    return false;
}

/* Layers --------------------------------------------------------------------------------------- */

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

/* Matrices whose inputs have ranges of their own, which rules do not replace. */
static bool act_refused(Module *m, const Op *matmul, const StoredModule *stored)
{
    const StoredAct *act = &stored->act;
    Sb sb;

    diag_error(m->diag, matmul->span, E_CHECKPOINT_KIND, "%s: %s", layer_name(matmul),
               stored->act_refused);
    sb_init(&sb, m->arena);
    scheme_print(&sb, &act->scheme, true);
    if (act->is_static) {
        sb_printf(&sb, " static %.9g", (double)act->scale);
        if (act->zero)
            sb_printf(&sb, " zero %d", (int)act->zero);
        diag_help(m->diag,
                  "a rule whose scheme has only a line for the activation says what all take: "
                  "act %s",
                  sb.text);
    } else
        diag_help(m->diag, "a rule whose scheme has only an `act` line says what all take");
    return false;
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

/* The scheme in the words of the checkpoint, which may count a second scale in. */
static bool is_scheme_of(const StoredModule *stored, const Scheme *scheme)
{
    Scheme said = stored->scheme;

    said.outer |= stored->outers;
    return scheme_equal(scheme, &said);
}

/* What the layer does with the codes; NULL: a rule wants others. */
static QuantSpec *spec_settle(Module *m, const Op *matmul, const StoredModule *stored)
{
    QuantSpec *spec = ARENA_NEW(m->arena, QuantSpec);
    const Scheme *scheme = &stored->scheme;

    if (matmul->attr.quant)
        *spec = *matmul->attr.quant;
    if (spec->weight && !spec->keep &&
        (is_wide(stored) || stored->offset || !is_scheme_of(stored, spec->weight))) {
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
    bool has_act = spec->keep || spec->act || spec->act_fmt != FMT_NONE;
    if (stored->act_refused && !has_act && !act_refused(m, matmul, stored))
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

/* Offsets: x (q s + m)T = x (q s)T + (sums of x over each group) mT. --------------------------- */

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

/* ends: of the groups whose matrices b holds, or NULL. */
static Value *product(Module *m, Op *at, const Op *matmul, Value *a, Value *b, Value *ends,
                      const char *what)
{
    Value *in[3] = {a, b, ends};
    Attr attr = {.layer = arena_printf(m->arena, "%s %s", layer_name(matmul), what)};

    return rewrite_op(m, at, OP_MATMUL, &attr, NULL, ends ? 3 : 2, in, matmul->span);
}

static Value *ends_of(const Op *matmul)
{
    return matmul->num_in == 3 ? op_in(matmul, 2) : NULL;
}

/* Numbers of the weight's rows, `cols` of each. */
static Value *row_numbers(Module *m, Op *at, const Op *matmul, const StoredModule *stored,
                          int64_t cols, const char *what,
                          const char *(*read)(const ConstReader *, QTensor *, float *))
{
    int64_t experts = stored->experts ? stored->experts : 1;
    Dim dim[3] = {dim_const(experts), dim_const(stored->rows / experts), dim_const(cols)};
    const Dim *first = stored->experts ? dim : dim + 1;
    int rank = (stored->experts > 0) + 1 + (cols > 0);
    Const constant = {.kind = CONST_WEIGHT,
                      .name = arena_printf(m->arena, "%s %s", stored->name, what)};

    constant.reader = reader_create(m->arena, stored, read);
    return build_const(m, matmul->block, at, type_plain(m, FMT_F32, rank, first), &constant,
                       matmul->span);
}

static void result_replace(Value *result, Value *with)
{
    value_replace(result, with);
    op_set_in(with->def, 0, result);
}

/* The second scales of the matrices, which multiply what they give. */
static void outers_multiply(Module *m, Op *matmul, const StoredModule *stored)
{
    Op *at = matmul->next;
    Value *result = op_out(matmul);
    Value *in[2] = {row_numbers(m, at, matmul, stored, 0, "outer scales", read_outers),
                    ends_of(matmul)};
    Value *spread = rewrite_op(m, at, OP_SPREAD, NULL, result->type, 2, in, matmul->span);

    result_replace(result, rewrite_binary(m, at, OP_MUL, result, spread, matmul->span));
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
    Value *offsets =
        row_numbers(m, at, matmul, stored, scheme_col_blocks(&stored->scheme, stored->cols),
                    "offsets", read_offsets);
    Value *sums = product(m, at, matmul, x, sums_weight(m, at, stored, x->type->fmt), NULL, "sums");
    Value *more = product(m, at, matmul, sums, offsets, ends_of(matmul), "offsets");

    result_replace(result, rewrite_binary(m, at, OP_ADD, result, more, matmul->span));
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
        if (stored->outers)
            outers_multiply(m, user, stored);
        if (stored->offset)
            offsets_add(m, user, stored);
    }
}

static void warn_wide(Module *m, const Op *op, const StoredModule *stored)
{
    if (is_wide(stored))
        diag_warning(m->diag, op->span, E_STORED_WIDE,
                     "\"%s\" %s: its values are exact, but kept as f32", stored->name,
                     stored->wide    ? "has matrices whose columns each order or multiply"
                     : stored->order ? "is grouped by activation order"
                                     : "is grouped down its columns");
}

/* The weight's values, exactly: f32. */
static Value *values_const(Module *m, Op *op, const StoredModule *stored)
{
    Const constant = {
        .kind = CONST_WEIGHT, .name = op->constant->name, .parts = op->constant->parts};

    constant.reader = reader_create(m->arena, stored, read_module);
    const Type *type = op->out[0].type;
    return build_const(m, op->block, op, type_plain(m, FMT_F32, type->rank, type->dim), &constant,
                       op->span);
}

static Value *codes_const(Module *m, Op *op, const StoredModule *stored)
{
    Const constant = {
        .kind = CONST_WEIGHT, .name = op->constant->name, .parts = op->constant->parts};
    const Type *plain = op->out[0].type;
    const Type *type =
        type_quantised(m, scheme_intern(m, &stored->scheme), plain->rank, plain->dim);

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
    if (!is_wide(stored) && (stored->offset || stored->outers || stored->part[PART_INPUT_FACTORS]))
        weight = values_const(m, op, stored);
    if (type->fmt != FMT_F32)
        weight = rewrite_unary(m, op, OP_CAST, type, weight, op->span);
    value_replace(op_out(op), weight);
    op_remove(op);
}
