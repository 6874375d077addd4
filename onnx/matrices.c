/* onnx/matrices: values of several matrices, [.., rows, cols], as the heads of an attention are.
 * The text's matmul has one matrix on its right, so each has a product of its own. Values keep a
 * second form for these, `each`: what is cut out of columns is a slice that costs nothing, and what
 * is done to all of them is done to each, so that none is put beside the others in memory before
 * something needs that. */
#include "onnx/import.h"

#include <string.h>

#define MOST_MATRICES 1024      /* of a value */
#define MOST_FORMS    (1 << 17) /* of all values together: small files may ask for many */

/* Each by itself ------------------------------------------------------------------------------- */

/* All sizes in front of the last `kept` are 1. */
static bool leads_with_ones(const Value *v, int kept)
{
    for (int i = 0; i < v->rank - kept; i++)
        if (!size_equal(v->dim[i], size_of(1)))
            return false;
    return true;
}

/* NULL: there are enough, and v keeps its text alone. */
static const char **each_new(Import *im, Value *v, int num)
{
    if (im->num_forms > MOST_FORMS - num)
        return NULL;
    const char **ret = ARENA_NEW_ARRAY(im->arena, const char *, (size_t)num);
    im->num_forms += num;
    v->each = ret;
    v->num_each = num;
    return ret;
}

/* v: heads [.., H, M, N] of what reshape cut [.., M, H * N] into, or each turned. */
static void cut_heads(Import *im, const Value *x, Value *v, bool turned)
{
    const Value *whole = x->cut;
    Size heads = x->dim[x->rank - 2], cols = x->dim[x->rank - 1];
    const char *rows = whole->text;

    if (heads.sym[0] || cols.sym[0] || heads.n > MOST_MATRICES)
        return;
    if (whole->rank > 2)
        rows = say(im, whole->name, "reshape(%s, %s)", rows,
                   sizes_text(im, whole->dim + whole->rank - 2, 2));
    const char **each = each_new(im, v, (int)heads.n);
    for (int64_t h = 0; each && h < heads.n; h++) {
        each[h] = say(im, v->name, "slice(%s, axis=-1, start=%lld, stop=%lld)", rows,
                      (long long)(h * cols.n), (long long)((h + 1) * cols.n));
        if (turned)
            each[h] = say(im, v->name, "transpose(%s)", each[h]);
    }
}

/* The columns of all, side by side. */
static const char *side_by_side(Import *im, const Value *x)
{
    Sb all;

    sb_init(&all, im->arena);
    for (int i = 0; i < x->num_each; i++)
        sb_printf(&all, "%s%s", i ? ", " : "", x->each[i]);
    return x->num_each == 1 ? x->each[0] : say(im, x->name, "concat(%s, axis=-1)", all.text);
}

/* perm is that of all axes but the last three, which take these places. */
static bool permutes(const int64_t *perm, int rank, int a, int b, int c)
{
    for (int i = 0; i < rank - 3; i++)
        if (perm[i] != i)
            return false;
    return rank >= 3 && perm[rank - 3] == rank - 3 + a && perm[rank - 2] == rank - 3 + b &&
           perm[rank - 1] == rank - 3 + c;
}

static void each_word(Import *im, const Value *x, Value *v, const char *word)
{
    const char **each = each_new(im, v, x->num_each);

    for (int i = 0; each && i < x->num_each; i++)
        each[i] = say(im, v->name, "%s(%s)", word, x->each[i]);
}

void matrices_moved(Import *im, const Value *x, Value *v, const int64_t *perm)
{
    if (x->type != ONNX_F32 || x->rank < 3)
        return;
    bool is_cut = x->cut && leads_with_ones(x, 3);
    if (is_cut && permutes(perm, x->rank, 1, 0, 2)) {
        cut_heads(im, x, v, false);
    } else if (is_cut && permutes(perm, x->rank, 1, 2, 0)) {
        cut_heads(im, x, v, true);
    } else if (x->each && permutes(perm, x->rank, 0, 2, 1)) {
        each_word(im, x, v, "transpose");
    } else if (x->each && leads_with_ones(x, 3) && permutes(perm, x->rank, 1, 0, 2)) {
        v->side = side_by_side(im, x);
    }
}

void matrices_reshaped(Import *im, const Value *x, Value *v)
{
    Size wide;
    int rank = v->rank;

    /* [.., M, H * N] to [.., M, H, N] */
    if (x->type == ONNX_F32 && x->text && x->rank >= 2 && rank == x->rank + 1 &&
        !memcmp(x->dim, v->dim, (size_t)(x->rank - 1) * sizeof *x->dim) && leads_with_ones(x, 2))
        v->cut = x;
    /* .. and back */
    if (!x->side || rank < 2 || !leads_with_ones(v, 2) ||
        !size_mul(x->dim[x->rank - 2], x->dim[x->rank - 1], &wide) ||
        !size_equal(wide, v->dim[rank - 1]))
        return;
    v->text = x->side;
    if (rank > 2)
        v->text = say(im, v->name, "reshape(%s, %s)", x->side, sizes_text(im, v->dim, rank));
}

void matrices_unary(Import *im, const Value *x, Value *v, const char *word)
{
    if (x->each && v->type == ONNX_F32)
        each_word(im, x, v, word);
}

/* What stands beside matrix i of the other operand: its own, or what all meet. NULL: neither. */
static const char *beside(Import *im, Value *v, const Value *ret, int i)
{
    if (v->each)
        return v->num_each == ret->num_each ? v->each[i] : NULL;
    if (!leads_with_ones(v, 2))
        return NULL;
    const char *text = operand(im, v);
    if (v->rank <= 2 || !v->text)
        return is_one(v) || v->rank <= 2 ? text : NULL;
    return arena_printf(im->arena, "reshape(%s, %s)", text,
                        sizes_text(im, v->dim + v->rank - 2, 2));
}

void matrices_binary(Import *im, Value *a, Value *b, Value *v, char sign)
{
    const Value *x = a->each ? a : b;
    bool same = x->each && x->rank == v->rank && v->type == ONNX_F32;

    if (!same || memcmp(x->dim, v->dim, (size_t)x->rank * sizeof *x->dim) != 0)
        return;
    const char **each = each_new(im, v, x->num_each);
    for (int i = 0; each && i < x->num_each; i++) {
        const char *left = beside(im, a, v, i), *right = beside(im, b, v, i);
        if (!left || !right) {
            v->each = NULL;
            return;
        }
        each[i] = say(im, v->name, "%s %c %s", left, sign, right);
    }
}

/* Products ------------------------------------------------------------------------------------- */

/* Of the axes in front of v's last two, number i from the last on. */
static Size leading(const Value *v, int i)
{
    return i + 2 < v->rank ? v->dim[v->rank - 3 - i] : size_of(1);
}

/* The shape of the result, and its number of matrices. All of a meet a single one of b at once. */
static bool batch_fits(Import *im, const Value *a, const Value *b, Value *ret, int64_t *ret_num)
{
    bool at_once = leads_with_ones(b, 2);

    *ret_num = 1;
    like(ret, a->rank > b->rank ? a : b);
    ret->type = a->type;
    for (int i = 0; i + 2 < ret->rank; i++) {
        Size x = leading(a, i), y = leading(b, i), one = size_of(1);
        Size size = size_equal(x, one) ? y : x;
        if (!size_equal(size, y) && !size_equal(y, one))
            return refuse(im, "%s by %s: sizes differ", sizes_text(im, a->dim, a->rank),
                          sizes_text(im, b->dim, b->rank));
        ret->dim[ret->rank - 3 - i] = size;
        if (size.n < 1)
            return refuse(im, "%s by %s: nothing is multiplied", sizes_text(im, a->dim, a->rank),
                          sizes_text(im, b->dim, b->rank));
        if (at_once)
            continue;
        if (size.sym[0] || *ret_num > MOST_MATRICES / size.n)
            return refuse(im,
                          "%s by %s: the text has a product for each matrix, so that their number "
                          "must be fixed (export the model with it) and at most %d",
                          sizes_text(im, a->dim, a->rank), sizes_text(im, b->dim, b->rank),
                          MOST_MATRICES);
        *ret_num *= size.n;
    }
    ret->dim[ret->rank - 2] = a->dim[a->rank - 2];
    ret->dim[ret->rank - 1] = b->dim[b->rank - 1];
    if (!size_equal(a->dim[a->rank - 1], b->dim[b->rank - 2]))
        return refuse(im, "%s by %s: sizes differ", sizes_text(im, a->dim, a->rank),
                      sizes_text(im, b->dim, b->rank));
    return b->dim[b->rank - 1].n || refuse(im, "its weight '%.60s' is empty", b->name);
}

/* Number `at` of v's matrices among those of the result, [rows, cols]. */
static const char *matrix_text(Import *im, const Value *v, const char *text, const Value *ret,
                               int64_t at)
{
    int64_t index = 0, step = 1;
    const char *matrix = sizes_text(im, v->dim + v->rank - 2, 2);

    for (int i = 0; i + 2 < v->rank; i++) {
        int64_t size = leading(v, i).n;
        index += size > 1 ? at % leading(ret, i).n * step : 0;
        step *= size;
        at /= leading(ret, i).n;
    }
    if (v->each)
        return v->each[index];
    if (step == 1)
        return v->rank == 2 ? text : arena_printf(im->arena, "reshape(%s, %s)", text, matrix);
    return arena_printf(im->arena, "reshape(slice(%s, axis=0, start=%lld, stop=%lld), %s)", text,
                        (long long)index, (long long)index + 1, matrix);
}

/* The value as one row of matrices. */
static const char *matrices_text(Import *im, Value *v)
{
    const char *text = operand(im, v);
    Size dim[3] = {size_of(1), v->dim[v->rank - 2], v->dim[v->rank - 1]};

    for (int i = 0; i + 2 < v->rank; i++)
        dim[0].n *= leading(v, i).n;
    if (!text || v->rank <= 3 || dim[0].n == 1)
        return text;
    return say(im, v->name, "reshape(%s, %s)", text, sizes_text(im, dim, 3));
}

bool matrices_product(Import *im, Value *a, Value *b, Value *ret)
{
    int64_t num;

    if (!batch_fits(im, a, b, ret, &num))
        return false;
    bool at_once = leads_with_ones(b, 2);
    const char *x = at_once ? operand(im, a) : matrices_text(im, a), *y = matrices_text(im, b);
    if (!x || !y)
        return false;
    if (at_once && a->rank >= b->rank) {
        say_value(im, ret, "matmul(%s, %s)", x, matrix_text(im, b, y, ret, 0));
        return true;
    }
    if (at_once) {
        say_value(im, ret, "reshape(matmul(%s, %s), %s)", x, matrix_text(im, b, y, ret, 0),
                  sizes_text(im, ret->dim, ret->rank));
        return true;
    }
    Size dim[3] = {size_of(1), ret->dim[ret->rank - 2], ret->dim[ret->rank - 1]};
    const char *shape = sizes_text(im, dim, 3);
    Sb all;
    sb_init(&all, im->arena);
    const char **each = each_new(im, ret, (int)num);
    if (!each)
        return refuse(im, "the model has more than %d matrices in products and steps between",
                      MOST_FORMS);
    if (ret->type != ONNX_F32)
        ret->each = NULL; /* all are rounded together */
    for (int64_t i = 0; i < num; i++) {
        const char *name = say(im, ret->name, "matmul(%s, %s)", matrix_text(im, a, x, ret, i),
                               matrix_text(im, b, y, ret, i));
        each[i] = name;
        sb_printf(&all, "%sreshape(%s, %s)", i ? ", " : "", name, shape);
    }
    const char *rows = num > 1 ? arena_printf(im->arena, "concat(%s, axis=0)", all.text) : all.text;
    say_value(im, ret, "reshape(%s, %s)", rows, sizes_text(im, ret->dim, ret->rank));
    return true;
}
