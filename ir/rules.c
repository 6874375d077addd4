/* The type rules of the operations: rule_<name> for each name in the type_rule column of ops.def.
 * A rule gives the type of the (first) result from operands, attributes and, where the result type
 * is said, the declared type; or reports the two facts that disagree and returns NULL. */
#include "ir/internal.h"
#include <string.h>

typedef const Type *RuleFn(Module *m, const Op *op, const Type *declared);

static const char *op_word(const Op *op)
{
    return op->kind == OP_MATMUL && op->attr.layer ? "linear" : op_info[op->kind].name;
}

static const Type *clash(Module *m, const Op *op, ErrorId id, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

static const Type *clash(Module *m, const Op *op, ErrorId id, const char *fmt, ...)
{
    Sb sb;
    sb_init(&sb, m->arena);
    va_list args;
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(m->diag, op->span, id, "%s: %s", op_word(op), sb.text);
    return NULL;
}

static const Type *in_type(const Op *op, int slot)
{
    return op->in[slot].value->type;
}

static const char *text(Module *m, const Type *type)
{
    return type_text(m->arena, type);
}

static const char *dim_text(Module *m, Dim d)
{
    Sb sb;
    sb_init(&sb, m->arena);
    dim_print(&sb, d);
    return sb.text;
}

static bool is_float(const Type *type)
{
    return !type->scheme && format_info[type->fmt].family == FAMILY_FLOAT;
}

static const Type *need_float(Module *m, const Op *op, const Type *type)
{
    if (is_float(type))
        return type;
    clash(m, op, E_FORMAT, "takes plain floats, not %s", text(m, type));
    if (type->scheme)
        diag_help(m->diag, "dequantize it first");
    return NULL;
}

static const Type *f32_like(Module *m, const Type *type)
{
    return type_plain(m, FMT_F32, type->rank, type->dim);
}

static const Type *with_dims(Module *m, const Type *like, int rank, const Dim *dim)
{
    return like->scheme ? type_quantised(m, like->scheme, rank, dim)
                        : type_plain(m, like->fmt, rank, dim);
}

static const Type *need_declared(const Op *op, const Type *declared)
{
    if (!declared)
        BUG("%s needs a declared type", op_info[op->kind].name);
    return declared;
}

/* Sources, moves ------------------------------------------------------------------------------ */

static const Type *rule_declared(Module *m, const Op *op, const Type *declared)
{
    need_declared(op, declared);
    bool stored = op->kind == OP_CONST && op->constant && op->constant->kind == CONST_WEIGHT;
    if (op->kind != OP_ARG && declared->scheme && !stored)
        return clash(m, op, E_FORMAT, "is plain, not %s; quantize makes quantised values",
                     text(m, declared));
    for (int i = 0; op->kind == OP_CONST && i < declared->rank; i++) {
        if (!dim_is_const(declared->dim[i]))
            return clash(m, op, E_SHAPE, "dimension %s of %s is not a number",
                         dim_text(m, declared->dim[i]), text(m, declared));
    }
    return declared;
}

static const Type *rule_none(Module *m, const Op *op, const Type *declared)
{
    (void)m, (void)declared;
    return in_type(op, 0);
}

/* The product of the dims that are not struck out; false where a Dim cannot hold it. */
static bool product_left(const Type *type, const bool *struck, Dim *ret)
{
    *ret = dim_const(1);
    for (int i = 0; i < type->rank; i++) {
        if (!struck[i] && !dim_mul(*ret, type->dim[i], ret))
            return false;
    }
    return true;
}

/* Strikes equal dims from both sides first, so that products of many symbols compare too. A zero
 * dim may only be struck against nothing else being open, but equal remainders stay equal. */
static bool same_elements(const Type *a, const Type *b)
{
    bool struck_a[LIMIT_RANK] = {0}, struck_b[LIMIT_RANK] = {0};
    for (int i = 0; i < a->rank; i++) {
        for (int j = 0; j < b->rank && !struck_a[i]; j++)
            struck_a[i] = !struck_b[j] && dim_equal(a->dim[i], b->dim[j]) && (struck_b[j] = true);
    }
    Dim left_a, left_b;
    return product_left(a, struck_a, &left_a) && product_left(b, struck_b, &left_b) &&
           dim_equal(left_a, left_b);
}

static const Type *rule_reshape(Module *m, const Op *op, const Type *declared)
{
    const Type *in = in_type(op, 0);
    need_declared(op, declared);
    if (in->fmt != declared->fmt || in->scheme != declared->scheme)
        return clash(m, op, E_FORMAT, "keeps the format, but %s is to become %s", text(m, in),
                     text(m, declared));
    if (!same_elements(in, declared))
        return clash(m, op, E_SHAPE, "%s and %s do not have the same number of elements",
                     text(m, in), text(m, declared));
    if (in->scheme && !dim_equal(type_last(in), type_last(declared)))
        return clash(m, op, E_SHAPE,
                     "a quantised value keeps its last dimension, but %s becomes %s", text(m, in),
                     text(m, declared));
    return declared;
}

static const Type *rule_transpose(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = in_type(op, 0);
    const Attr *attr = &op->attr;
    if (in->scheme)
        return clash(m, op, E_FORMAT, "takes a plain value, not %s", text(m, in));
    if (attr->num_perm != in->rank)
        return clash(m, op, E_SHAPE, "the permutation has %d axes, %s has %d", attr->num_perm,
                     text(m, in), in->rank);
    Dim dim[LIMIT_RANK];
    bool seen[LIMIT_RANK] = {0};
    for (int i = 0; i < in->rank; i++) {
        int from = attr->perm[i];
        if (from < 0 || from >= in->rank || seen[from])
            return clash(m, op, E_SHAPE,
                         "axis %d of the permutation is out of range or twice there", from);
        seen[from] = true;
        dim[i] = in->dim[from];
    }
    return type_plain(m, in->fmt, in->rank, dim);
}

static bool axis_fits(Module *m, const Op *op, const Type *in)
{
    if (op->attr.axis >= 0 && op->attr.axis < in->rank)
        return true;
    clash(m, op, E_SHAPE, "axis %lld does not exist in %s", (long long)op->attr.axis, text(m, in));
    return false;
}

/* Quantised values can be cut only between rows, where a new block of scales begins. */
static bool rows_cut(Module *m, const Op *op, const Type *in, int64_t at)
{
    if (!in->scheme)
        return true;
    int64_t block = in->scheme->block[0];
    int64_t below = 1; /* rows under one step of axis 0 */
    for (int i = 1; i + 1 < in->rank; i++) {
        if (!dim_is_const(in->dim[i]) || __builtin_mul_overflow(below, in->dim[i].add, &below))
            block = 0;
    }
    if (op->attr.axis == 0 && in->rank >= 2 && block > 0 &&
        !__builtin_mul_overflow(below, at, &below) && below % block == 0)
        return true;
    clash(m, op, E_SCHEME_FIT, "blocks of scales of %s cannot be cut at %lld of axis %lld",
          text(m, in), (long long)at, (long long)op->attr.axis);
    return false;
}

static const Type *rule_slice(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = in_type(op, 0);
    const Attr *attr = &op->attr;
    if (!axis_fits(m, op, in))
        return NULL;
    Dim old = in->dim[attr->axis];
    if (attr->start < 0 || attr->stop < attr->start || attr->stop > LIMIT_DIM ||
        (dim_is_const(old) && attr->stop > old.add))
        return clash(m, op, E_SHAPE, "%lld .. %lld does not lie in axis %lld of %s",
                     (long long)attr->start, (long long)attr->stop, (long long)attr->axis,
                     text(m, in));
    if (!dim_is_const(old))
        return clash(m, op, E_SHAPE, "axis %lld of %s has no fixed size to cut",
                     (long long)attr->axis, text(m, in));
    if (!rows_cut(m, op, in, attr->start))
        return NULL;
    Dim dim[LIMIT_RANK];
    memcpy(dim, in->dim, sizeof dim);
    dim[attr->axis] = dim_const(attr->stop - attr->start);
    return with_dims(m, in, in->rank, dim);
}

static bool concat_joins(Module *m, const Op *op, const Type *first, const Type *type)
{
    bool fits = type->rank == first->rank;
    for (int i = 0; fits && i < first->rank; i++)
        fits = i == op->attr.axis || dim_equal(type->dim[i], first->dim[i]);
    if (!fits) {
        clash(m, op, E_SHAPE, "%s and %s differ outside axis %lld", text(m, first), text(m, type),
              (long long)op->attr.axis);
        return false;
    }
    if (type->fmt != first->fmt || type->scheme != first->scheme) {
        clash(m, op, E_FORMAT, "%s and %s are stored differently", text(m, first), text(m, type));
        return false;
    }
    return true;
}

static const Type *rule_concat(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *first = in_type(op, 0);
    if (!axis_fits(m, op, first))
        return NULL;
    if (first->scheme && first->scheme->table == TABLE_TENSOR)
        return clash(m, op, E_SCHEME_FIT, "operands of %s have codebooks of their own",
                     text(m, first));
    if (first->scheme && first->scheme->outer)
        return clash(m, op, E_SCHEME_FIT, "operands of %s have outer scales of their own",
                     text(m, first));
    if (!rows_cut(m, op, first, 0))
        return NULL;
    Dim dim[LIMIT_RANK];
    memcpy(dim, first->dim, sizeof dim);
    for (int i = 1; i < op->num_in; i++) {
        const Type *type = in_type(op, i);
        if (!concat_joins(m, op, first, type))
            return NULL;
        Dim *sum = &dim[op->attr.axis];
        if (first->scheme && (!dim_is_const(*sum) || !rows_cut(m, op, first, sum->add)))
            return dim_is_const(*sum)
                       ? NULL
                       : clash(m, op, E_SHAPE, "axis 0 of %s has no fixed size", text(m, first));
        if (!dim_add(*sum, type->dim[op->attr.axis], sum))
            return clash(m, op, E_SHAPE, "%s and %s cannot be added along axis %lld",
                         dim_text(m, *sum), dim_text(m, type->dim[op->attr.axis]),
                         (long long)op->attr.axis);
    }
    return with_dims(m, first, first->rank, dim);
}

/* Numbers ------------------------------------------------------------------------------------- */

static const Type *rule_cast(Module *m, const Op *op, const Type *declared)
{
    const Type *in = in_type(op, 0);
    need_declared(op, declared);
    if (in->scheme || !is_float(declared))
        return clash(m, op, E_FORMAT, "cannot make %s of %s", text(m, declared), text(m, in));
    if (!type_same_shape(in, declared))
        return clash(m, op, E_SHAPE, "keeps the shape, but %s is to become %s", text(m, in),
                     text(m, declared));
    return declared;
}

/* numpy's rule: shapes aligned at their ends, dims equal or 1. */
static bool broadcast(Module *m, const Op *op, const Type *a, const Type *b, int *ret_rank,
                      Dim *ret)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= rank; i++) {
        Dim one = dim_const(1);
        Dim da = i <= a->rank ? a->dim[a->rank - i] : one;
        Dim db = i <= b->rank ? b->dim[b->rank - i] : one;
        if (!dim_equal(da, db) && !dim_equal(da, one) && !dim_equal(db, one)) {
            clash(m, op, E_SHAPE, "%s and %s disagree: %s against %s in the %s dimension",
                  text(m, a), text(m, b), dim_text(m, da), dim_text(m, db),
                  i == 1   ? "last"
                  : i == 2 ? "last but one"
                           : "same");
            return false;
        }
        ret[rank - i] = dim_equal(da, one) ? db : da;
    }
    *ret_rank = rank;
    return true;
}

static const Type *rule_broadcast(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *a = in_type(op, 0);
    bool integer = !a->scheme && a->fmt == FMT_I32;
    if (integer && op->kind != OP_ADD && op->kind != OP_SUB && op->kind != OP_MUL)
        return need_float(m, op, a);
    if (!integer && !need_float(m, op, a))
        return NULL;
    int rank = a->rank;
    Dim dim[LIMIT_RANK];
    memcpy(dim, a->dim, sizeof dim);
    if (op->num_in == 2) {
        const Type *b = in_type(op, 1);
        if (!b->scheme && (b->fmt == FMT_I32) != integer)
            return clash(m, op, E_FORMAT, "%s and %s do not mix; cast the integers", text(m, a),
                         text(m, b));
        if (!integer && !need_float(m, op, b))
            return NULL;
        if (b->scheme)
            return clash(m, op, E_FORMAT, "takes plain values, not %s", text(m, b));
        if (!broadcast(m, op, a, b, &rank, dim))
            return NULL;
    }
    return type_plain(m, integer ? FMT_I32 : FMT_F32, rank, dim);
}

static const Type *rule_same(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_float(m, op, in_type(op, 0));
    if (in && in->rank == 0)
        return clash(m, op, E_SHAPE, "needs a row, not a single number");
    return in ? f32_like(m, in) : NULL;
}

static const Type *rule_hadamard(Module *m, const Op *op, const Type *declared)
{
    const Type *result = rule_same(m, op, declared);
    Dim cols = result ? type_last(result) : dim_const(1);
    if (result && (!dim_is_const(cols) || !hadamard_exists(cols.add)))
        return clash(m, op, E_SHAPE, "there is no Hadamard matrix for the %s columns of %s",
                     dim_text(m, cols), text(m, in_type(op, 0)));
    return result;
}

static const Type *rule_norm(Module *m, const Op *op, const Type *declared)
{
    const Type *result = rule_same(m, op, declared);
    for (int i = 1; result && i < op->num_in; i++) {
        const Type *param = need_float(m, op, in_type(op, i));
        if (!param)
            return NULL;
        if (param->rank != 1 || !dim_equal(param->dim[0], type_last(result)))
            return clash(m, op, E_SHAPE, "rows of %s have %s columns, but the %s is %s",
                         text(m, in_type(op, 0)), dim_text(m, type_last(result)),
                         i == 1 ? "weight" : "bias", text(m, param));
    }
    if (result && !(op->attr.eps >= 0))
        return clash(m, op, E_SHAPE, "eps = %g is negative", op->attr.eps);
    return result;
}

/* Quantisation -------------------------------------------------------------------------------- */

/* A static scale or zero point: rank 0 where the scheme has one block, else its grid. */
static bool params_fit(Module *m, const Op *op, const Type *declared, int slot, FormatId fmt)
{
    const Type *param = in_type(op, slot);
    const Scheme *scheme = declared->scheme;
    if (param->scheme || param->fmt != fmt) {
        clash(m, op, E_FORMAT, "the %s is %s, not %s", slot == 1 ? "scale" : "zero point",
              text(m, param), format_info[fmt].name);
        return false;
    }
    if (scheme->block[0] == 0 && scheme->block[1] == 0 && param->rank == 0)
        return true;
    bool fits = param->rank == 2 && dim_is_const(param->dim[0]) && dim_is_const(param->dim[1]);
    Dim rows = dim_const(1);
    for (int i = 0; i + 1 < declared->rank; i++)
        fits = fits && dim_mul(rows, declared->dim[i], &rows);
    Dim cols = type_last(declared);
    if (fits && scheme->block[0] && !dim_is_const(rows))
        fits = false;
    if (fits && scheme->block[1] && !dim_is_const(cols))
        fits = false;
    fits = fits &&
           param->dim[0].add == (scheme->block[0] ? scheme_row_blocks(scheme, rows.add) : 1) &&
           param->dim[1].add == (scheme->block[1] ? scheme_col_blocks(scheme, cols.add) : 1);
    if (!fits)
        clash(m, op, E_SHAPE, "%s does not hold one %s for each block of %s", text(m, param),
              slot == 1 ? "scale" : "zero point", text(m, declared));
    return fits;
}

static const Type *rule_quantize(Module *m, const Op *op, const Type *declared)
{
    need_declared(op, declared);
    const Type *in = need_float(m, op, in_type(op, 0));
    if (!in)
        return NULL;
    if (!declared->scheme)
        return clash(m, op, E_FORMAT, "makes quantised values, not %s", text(m, declared));
    if (!type_same_shape(in, declared) || in->rank == 0)
        return clash(m, op, E_SHAPE, "cannot make %s of %s", text(m, declared), text(m, in));
    const char *problem = scheme_problem(declared->scheme);
    if (problem)
        return clash(m, op, E_SCHEME_FIT, "%s: %s", text(m, declared), problem);
    bool zero = declared->scheme->zero == ZERO_INT;
    if (op->num_in > 1 && op->num_in != 2 + zero)
        return clash(m, op, E_SCHEME_FIT, "%s with given scales takes %s", text(m, declared),
                     zero ? "zero points too" : "no zero points");
    if (op->num_in > 1 && !params_fit(m, op, declared, 1, FMT_F32))
        return NULL;
    if (op->num_in > 2 && !params_fit(m, op, declared, 2, FMT_I32))
        return NULL;
    return declared;
}

static const Type *need_quantised(Module *m, const Op *op)
{
    const Type *in = in_type(op, 0);
    return in->scheme ? in : clash(m, op, E_FORMAT, "takes a quantised value, not %s", text(m, in));
}

static const Type *rule_dequantize(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_quantised(m, op);
    return in ? f32_like(m, in) : NULL;
}

/* One number a row of the operand, shaped for axis 0 or 1 of a matmul's result. */
static const Type *per_row(Module *m, const Op *op, FormatId fmt, bool per_tensor)
{
    const Type *in = in_type(op, 0);
    if (op->attr.axis == 1 && in->rank == 2)
        return type_plain(m, fmt, 1, per_tensor ? (Dim[]){dim_const(1)} : in->dim);
    if (op->attr.axis == 1 && in->rank == 3) /* of groups */
        return per_tensor ? type_plain(m, fmt, 1, (Dim[]){dim_const(1)})
                          : type_plain(m, fmt, 2, in->dim);
    if (op->attr.axis != 0 || in->rank == 0)
        return clash(m, op, E_SHAPE,
                     "axis %lld of %s: an operand of a matmul is axis 0, its "
                     "weight [N, K] or [E, N, K] axis 1",
                     (long long)op->attr.axis, text(m, in));
    Dim dim[LIMIT_RANK];
    for (int i = 0; i < in->rank; i++)
        dim[i] = per_tensor || i + 1 == in->rank ? dim_const(1) : in->dim[i];
    return type_plain(m, fmt, in->rank, dim);
}

static const Type *rule_scales(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_quantised(m, op);
    if (!in)
        return NULL;
    if (type_scale_varies(in))
        return clash(m, op, E_SCALE_PLACE, "the scale of %s varies along its columns", text(m, in));
    return per_row(m, op, FMT_F32, in->scheme->block[0] == 0);
}

static const Type *rule_zeros(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_quantised(m, op);
    if (!in)
        return NULL;
    if (in->scheme->zero == ZERO_NONE)
        return clash(m, op, E_SCHEME_FIT, "%s has no zero points", text(m, in));
    if (type_scale_varies(in))
        return clash(m, op, E_SCALE_PLACE, "the zero point of %s varies along its columns",
                     text(m, in));
    return per_row(m, op, FMT_I32, in->scheme->block[0] == 0);
}

static const Type *rule_code_sum(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_quantised(m, op);
    if (!in)
        return NULL;
    if (!scheme_is_integer(in->scheme))
        return clash(m, op, E_FORMAT, "sums integer codes, not %s", text(m, in));
    return per_row(m, op, FMT_I32, false);
}

static const Type *need_outer(Module *m, const Op *op)
{
    const Type *in = need_quantised(m, op);
    if (in && !in->scheme->outer)
        return clash(m, op, E_SCHEME_FIT, "%s has no outer scale", text(m, in));
    return in;
}

static const Type *rule_outer(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    return need_outer(m, op) ? type_plain(m, FMT_F32, 0, NULL) : NULL;
}

static const Type *rule_inner(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_outer(m, op);
    if (!in)
        return NULL;
    Scheme scheme = *in->scheme;
    scheme.outer = false;
    return type_quantised(m, &scheme, in->rank, in->dim);
}

static const Type *rule_widen(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *in = need_quantised(m, op);
    if (!in)
        return NULL;
    if (in->scheme->scale_fmt != FMT_I8)
        return clash(m, op, E_SCHEME_FIT, "the scales of %s are no whole multiples of one a row",
                     text(m, in));
    return type_quantised(m, &whole_scales_wide, in->rank, in->dim);
}

/* Routing ------------------------------------------------------------------------------------- */

static bool is_i32(const Type *type)
{
    return !type->scheme && type->fmt == FMT_I32;
}

static bool is_ends(const Type *type)
{
    return is_i32(type) && type->rank == 1 && dim_is_const(type->dim[0]);
}

static bool need_matrix(Module *m, const Op *op, int slot, bool integer)
{
    const Type *in = in_type(op, slot);
    if (in->rank == 2 && (integer ? is_i32(in) : is_float(in)))
        return true;
    clash(m, op, E_SHAPE, "operand %d is a matrix of %s, not %s", slot, integer ? "i32" : "floats",
          text(m, in));
    return false;
}

static const Type *rule_topk(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!need_matrix(m, op, 0, false))
        return NULL;
    const Type *in = in_type(op, 0);
    if (!dim_is_const(in->dim[1]) || op->attr.count < 1 || op->attr.count > in->dim[1].add)
        return clash(m, op, E_SHAPE, "the largest %lld of a row of %s", (long long)op->attr.count,
                     text(m, in));
    return type_plain(m, FMT_I32, 2, (Dim[]){in->dim[0], dim_const(op->attr.count)});
}

static const Type *rule_take(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!need_matrix(m, op, 0, false) || !need_matrix(m, op, 1, true))
        return NULL;
    const Type *in = in_type(op, 0), *index = in_type(op, 1);
    if (!dim_equal(in->dim[0], index->dim[0]))
        return clash(m, op, E_SHAPE, "%s and %s have different numbers of rows", text(m, in),
                     text(m, index));
    return type_plain(m, FMT_F32, 2, index->dim);
}

static bool need_groups(Module *m, const Op *op)
{
    if (!need_matrix(m, op, 0, true))
        return false;
    if (op->attr.count >= 1 && op->attr.count <= LIMIT_DIM && dim_is_const(in_type(op, 0)->dim[1]))
        return true;
    clash(m, op, E_SHAPE, "%lld groups of %s", (long long)op->attr.count, text(m, in_type(op, 0)));
    return false;
}

static const Type *rule_group_ends(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    return need_groups(m, op) ? type_plain(m, FMT_I32, 1, (Dim[]){dim_const(op->attr.count)})
                              : NULL;
}

static const Type *rule_group_places(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    return need_groups(m, op) ? in_type(op, 0) : NULL;
}

static const Type *rule_group_sources(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!need_groups(m, op))
        return NULL;
    const Type *in = in_type(op, 0);
    Dim rows;
    if (!dim_mul(in->dim[0], in->dim[1], &rows))
        return clash(m, op, E_SHAPE, "%s has too many choices", text(m, in));
    return type_plain(m, FMT_I32, 2, (Dim[]){rows, dim_const(1)});
}

static const Type *rule_dispatch(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!need_matrix(m, op, 0, false) || !need_matrix(m, op, 1, true))
        return NULL;
    const Type *in = in_type(op, 0), *sources = in_type(op, 1);
    if (!dim_equal(sources->dim[1], dim_const(1)))
        return clash(m, op, E_SHAPE, "the sources are one a row, not %s", text(m, sources));
    return type_plain(m, in->fmt, 2, (Dim[]){sources->dim[0], in->dim[1]});
}

static const Type *rule_combine(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!need_matrix(m, op, 0, false) || !need_matrix(m, op, 1, true) ||
        !need_matrix(m, op, 2, false))
        return NULL;
    const Type *in = in_type(op, 0), *places = in_type(op, 1), *weights = in_type(op, 2);
    if (!type_same_shape(places, weights) || !dim_is_const(places->dim[1]) ||
        places->dim[1].add < 1)
        return clash(m, op, E_SHAPE, "%s by the places %s and weights %s", text(m, in),
                     text(m, places), text(m, weights));
    return type_plain(m, FMT_F32, 2, (Dim[]){places->dim[0], in->dim[1]});
}

/* Of [R, N], or of [E, M, N] for the groups of the ends. */
static bool has_groups(const Type *type, const Type *ends)
{
    return type->rank == 2 || (type->rank == 3 && dim_equal(type->dim[0], ends->dim[0]));
}

static const Type *rule_spread(Module *m, const Op *op, const Type *declared)
{
    const Type *in = in_type(op, 0), *ends = in_type(op, 1);
    need_declared(op, declared);
    if (in->scheme || in->rank != 2 || !is_ends(ends) || !dim_equal(in->dim[0], ends->dim[0]) ||
        !has_groups(declared, ends) || !dim_equal(type_last(declared), in->dim[1]) ||
        declared->scheme || declared->fmt != (in->fmt == FMT_I32 ? FMT_I32 : FMT_F32))
        return clash(m, op, E_SHAPE, "cannot make %s of %s by the ends %s", text(m, declared),
                     text(m, in), text(m, ends));
    return declared;
}

static const Type *rule_mask(Module *m, const Op *op, const Type *declared)
{
    const Type *in = in_type(op, 0), *counts = in_type(op, 1);
    (void)declared;
    if (!(is_float(in) || is_i32(in)) || in->rank != 3 || !is_ends(counts) ||
        !has_groups(in, counts))
        return clash(m, op, E_SHAPE, "needs operands [E, M, N] and i32 [E], not %s and %s",
                     text(m, in), text(m, counts));
    return in;
}

/* Matmul -------------------------------------------------------------------------------------- */

static bool is_integer_code(const Type *type)
{
    return type->scheme && scheme_is_integer(type->scheme);
}

/* The largest magnitude a code can have, unused ones included. */
static int64_t code_magnitude(const Type *type)
{
    const FormatInfo *info = &format_info[type->fmt];
    return info->is_signed ? INT64_C(1) << (info->bits - 1) : (INT64_C(1) << info->bits) - 1;
}

/* The same once zero points are subtracted. */
static int64_t centred_magnitude(const Type *type)
{
    bool wider = type->scheme->zero == ZERO_INT && format_info[type->fmt].is_signed;
    return code_magnitude(type) * (wider ? 2 : 1);
}

/* A sum of all of K, whose size is not known or too large for 32 bits. */
static const Type *sum_too_long(Module *m, const Op *op, int64_t most)
{
    const Type *a = in_type(op, 0), *b = in_type(op, 1);
    return clash(m, op, E_ACCUMULATOR,
                 "K = %s, but an exact 32-bit sum of %s times %s holds at most %lld",
                 dim_text(m, type_last(a)), format_info[a->fmt].name, format_info[b->fmt].name,
                 (long long)most);
}

static const Type *matmul_epilogue(Module *m, const Op *op, int rank, const Dim *dim)
{
    const Type *a = in_type(op, 0), *b = in_type(op, 1);
    const Type *bad = type_scale_varies(a) ? a : type_scale_varies(b) ? b : NULL;
    if (bad)
        return clash(m, op, E_SCALE_PLACE,
                     "the scale of %s varies along K: it cannot wait for the epilogue",
                     text(m, bad));
    if (!is_integer_code(a) || !is_integer_code(b))
        return type_plain(m, FMT_F32, rank, dim);
    Dim k = type_last(a);
    int64_t most = INT32_MAX / (code_magnitude(a) * code_magnitude(b));
    if (!dim_is_const(k) || k.add > most)
        return sum_too_long(m, op, most);
    return type_plain(m, FMT_I32, rank, dim);
}

static const Type *matmul_mainloop(Module *m, const Op *op, int rank, const Dim *dim)
{
    const Type *a = in_type(op, 0), *b = in_type(op, 1);
    int64_t ka = a->scheme ? a->scheme->block[1] : 0, kb = b->scheme ? b->scheme->block[1] : 0;
    int64_t small = ka < kb ? ka : kb, large = ka < kb ? kb : ka;
    if (small && large % small)
        return clash(m, op, E_SCHEME_FIT,
                     "blocks of %lld and %lld columns: neither size divides the other (%s, %s)",
                     (long long)ka, (long long)kb, text(m, a), text(m, b));
    if (is_integer_code(a) && is_integer_code(b)) {
        int64_t block = small ? small : large;
        Dim k = type_last(a);
        if (dim_is_const(k) && (block == 0 || k.add < block))
            block = k.add;
        int64_t most = INT32_MAX / (centred_magnitude(a) * centred_magnitude(b));
        if (block == 0)
            return sum_too_long(m, op, most);
        if (block > most)
            return clash(m, op, E_ACCUMULATOR,
                         "blocks of %lld columns, but an exact 32-bit sum of %s times %s with zero "
                         "points holds at most %lld",
                         (long long)block, format_info[a->fmt].name, format_info[b->fmt].name,
                         (long long)most);
    }
    return type_plain(m, FMT_F32, rank, dim);
}

/* a [R, K] or [E, M, K], b [E, N, K], ends or counts [E]; no block of scales holds rows of two
 * groups. */
static bool group_operands(Module *m, const Op *op)
{
    const Type *a = in_type(op, 0), *b = in_type(op, 1), *ends = in_type(op, 2);
    if (b->rank != 3 || !is_ends(ends) || !dim_equal(ends->dim[0], b->dim[0]) ||
        !has_groups(a, ends)) {
        clash(m, op, E_SHAPE,
              "needs operands [R, K] or [E, M, K], [E, N, K] and i32 [E], not %s, %s and %s",
              text(m, a), text(m, b), text(m, ends));
        return false;
    }
    int64_t rows = b->scheme ? b->scheme->block[0] : 0;
    if (a->scheme && a->scheme->block[0] > 1) { /* a group may end anywhere */
        clash(m, op, E_SCHEME_FIT, "blocks of %lld rows of %s may hold rows of two groups",
              (long long)a->scheme->block[0], text(m, a));
        return false;
    }
    if (rows > 1 && dim_is_const(b->dim[1]) && b->dim[1].add % rows) {
        clash(m, op, E_SCHEME_FIT, "blocks of %lld rows would reach over the %lld of a group of %s",
              (long long)rows, (long long)b->dim[1].add, text(m, b));
        return false;
    }
    return true;
}

static const Type *matmul_operands(Module *m, const Op *op)
{
    const Type *a = in_type(op, 0), *b = in_type(op, 1);
    if (op->num_in == 3 && !group_operands(m, op))
        return NULL;
    if (op->num_in == 2 && (a->rank < 1 || b->rank != 2))
        return clash(m, op, E_SHAPE, "needs operands [.., M, K] and [N, K], not %s and %s",
                     text(m, a), text(m, b));
    if (!dim_equal(type_last(a), type_last(b))) {
        clash(m, op, E_SHAPE, "%s has %s columns, but %s has %s", text(m, a),
              dim_text(m, type_last(a)), text(m, b), dim_text(m, type_last(b)));
        if (dim_equal(type_last(a), b->dim[b->rank - 2]))
            diag_help(m->diag, "weights are [out, in]; this one would fit transposed");
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        if (!in_type(op, i)->scheme && !is_float(in_type(op, i)))
            return clash(m, op, E_FORMAT, "takes floats or quantised values, not %s",
                         text(m, in_type(op, i)));
    }
    return a;
}

static const Type *rule_matmul(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    const Type *a = matmul_operands(m, op);
    if (!a)
        return NULL;
    const Type *b = in_type(op, 1);
    Dim dim[LIMIT_RANK];
    memcpy(dim, a->dim, sizeof dim);
    dim[a->rank - 1] = b->dim[b->rank - 2];
    bool quantised = a->scheme || b->scheme;
    if (quantised != (op->attr.place != PLACE_NONE))
        return clash(m, op, E_SCALE_PLACE, "%s times %s %s", text(m, a), text(m, b),
                     quantised ? "does not say where its scales apply" : "has no scales to place");
    if (op->attr.place == PLACE_EPILOGUE)
        return matmul_epilogue(m, op, a->rank, dim);
    if (op->attr.place == PLACE_MAINLOOP)
        return matmul_mainloop(m, op, a->rank, dim);
    return type_plain(m, FMT_F32, a->rank, dim);
}

/* Kernels ------------------------------------------------------------------------------------- */

static const Type *rule_kernel(Module *m, const Op *op, const Type *declared)
{
    (void)declared;
    if (!op->body || !op->body->last || op->body->last->kind != OP_YIELD)
        return clash(m, op, E_SHAPE, "the body does not end in a yield");
    int arg = 0;
    for_each_op(inner, op->body) {
        if (inner->kind != OP_ARG)
            continue;
        if (arg < op->num_in && inner->out[0].type != in_type(op, arg))
            return clash(m, op, E_SHAPE, "operand %d is %s, but its argument is %s", arg,
                         text(m, in_type(op, arg)), text(m, inner->out[0].type));
        arg++;
    }
    if (arg != op->num_in)
        return clash(m, op, E_SHAPE, "%d operands for %d arguments", op->num_in, arg);
    if (op->body->last->num_in != op->num_out)
        return clash(m, op, E_SHAPE, "%d results, but the body yields %d", op->num_out,
                     op->body->last->num_in);
    return in_type(op->body->last, 0);
}

static RuleFn *const rules[NUM_OPS] = {
#define OP(ID, name, min_in, max_in, flags, type_rule, eval, attrs) [OP_##ID] = rule_##type_rule,
#include "ir/ops.def"
#undef OP
};

const Type *op_infer_type(Module *m, const Op *op, const Type *declared)
{
    const OpInfo *info = &op_info[op->kind];
    if (op->num_in < info->min_in || (info->max_in >= 0 && op->num_in > info->max_in))
        return clash(m, op, E_SHAPE, "takes %d%s operands, not %d", info->min_in,
                     info->max_in < 0              ? " or more"
                     : info->max_in > info->min_in ? " to 3"
                                                   : "",
                     op->num_in);
    return rules[op->kind](m, op, declared);
}
