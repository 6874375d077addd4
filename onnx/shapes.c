/* onnx/shapes: what moves elements or changes their type, and lists of sizes that are computed from
 * shapes. Codes keep their zero point through all of them. */
#include "onnx/import.h"

#include <string.h>

/* The result holds the same elements as x: said by `fmt`, for its codes, and for what these were
 * before they were rounded. */
static void say_moved(Import *im, const Value *x, Value *v, const char *expr, const char *args)
{
    v->type = x->type;
    v->is_codes = x->is_codes;
    v->zero = x->zero;
    if (x->raw && x->raw != x->text)
        v->raw = say(im, v->name, "%s(%s%s)", expr, x->raw, args);
    if (x->codes) {
        Value *codes = ARENA_NEW(im->arena, Value);
        *codes = (Value){.name = v->name, .num_list = -1};
        codes->rank = v->rank;
        memcpy(codes->dim, v->dim, sizeof v->dim);
        say_moved(im, x->codes, codes, expr, args);
        v->codes = codes;
        v->scale = x->scale;
    }
    v->text = say(im, v->name, "%s(%s%s)", expr, x->text, args);
    if (!v->raw && v->is_codes && x->raw == x->text)
        v->raw = v->text;
}

/* Lists of sizes ------------------------------------------------------------------------------- */

/* A list that was computed, or a known one. */
static bool list_of(Import *im, const Value *v, int *ret_num, Size *ret)
{
    int64_t number[LIMIT_RANK];

    if (v->num_list >= 0) {
        *ret_num = v->num_list;
        if (v->num_list)
            memcpy(ret, v->list, (size_t)v->num_list * sizeof *ret);
        return true;
    }
    if (!ints_of(im, im->node, "", v, ret_num, number))
        return false;
    for (int i = 0; i < *ret_num; i++)
        ret[i] = size_of(number[i]);
    return true;
}

static bool list_make(Import *im, Value *v, int num, const Size *list, int rank)
{
    Size *copy = ARENA_NEW_ARRAY(im->arena, Size, (size_t)num + 1);

    if (num)
        memcpy(copy, list, (size_t)num * sizeof *list);
    v->type = ONNX_I64;
    v->rank = rank;
    v->dim[0] = size_of(num);
    v->num_list = num;
    v->list = copy;
    return true;
}

/* Bounds of Shape and Slice: counted from the end when negative, then kept inside. */
static int64_t bound(int64_t at, int64_t size)
{
    at = at < 0 ? at + size : at;
    return at < 0 ? 0 : at > size ? size : at;
}

bool node_shape(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int rank = in[0]->rank;
    int64_t start = bound(attr_int(node, "start", 0), rank);
    int64_t end = bound(attr_int(node, "end", rank), rank);

    return list_make(im, out[0], end > start ? (int)(end - start) : 0, in[0]->dim + start, 1);
}

bool node_gather(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Size picked[LIMIT_RANK];
    int num_at;
    int64_t at[LIMIT_RANK];

    if (in[0]->num_list < 0)
        return refuse(im, "it picks from a tensor; only lists of sizes are read");
    if (axis_of(im, attr_int(node, "axis", 0), in[0]->rank) < 0)
        return false;
    if (in[1]->rank > 1)
        return refuse(im, "it picks a tensor of %d dimensions", in[1]->rank);
    if (!ints_of(im, node, "", in[1], &num_at, at))
        return false;
    for (int i = 0; i < num_at; i++) {
        int k = axis_of(im, at[i], in[0]->num_list);
        if (k < 0)
            return false;
        picked[i] = in[0]->list[k];
    }
    return list_make(im, out[0], num_at, picked, in[1]->rank);
}

/* Reshape and its relatives -------------------------------------------------------------------- */

static bool elements_of(Import *im, const Size *dim, int rank, Size *ret)
{
    *ret = size_of(1);
    for (int i = 0; i < rank; i++)
        if (!size_mul(*ret, dim[i], ret))
            return refuse(im, "%s holds more elements than a size can say",
                          sizes_text(im, dim, rank));
    return true;
}

static bool say_reshape(Import *im, Value *x, Value *v, int rank, const Size *dim)
{
    Size have, want;

    if (!elements_of(im, x->dim, x->rank, &have) || !elements_of(im, dim, rank, &want))
        return false;
    if (!size_equal(have, want))
        return refuse(im, "%s does not become %s", sizes_text(im, x->dim, x->rank),
                      sizes_text(im, dim, rank));
    if (!operand(im, x))
        return false;
    v->rank = rank;
    memcpy(v->dim, dim, (size_t)rank * sizeof *dim);
    if (!x->text)
        return refuse(im, "it reshapes a constant: fold it first");
    say_moved(im, x, v, "reshape", arena_printf(im->arena, ", %s", sizes_text(im, dim, rank)));
    matrices_reshaped(im, x, v);
    return true;
}

/* What is left for -1: equal symbols are struck out, the numbers divide. */
static bool rest_of(Import *im, const Value *x, Size used, Size *ret)
{
    Size all;

    if (!elements_of(im, x->dim, x->rank, &all))
        return false;
    for (int i = 0; i < 2; i++)
        for (int k = 0; used.sym[i] && k < 2; k++)
            if (all.sym[k] == used.sym[i]) {
                all.sym[k] = used.sym[i] = 0;
                break;
            }
    if (used.sym[0] || used.sym[1] || all.n % used.n)
        return refuse(im, "what -1 stands for cannot be found: %s in parts of %lld",
                      sizes_text(im, x->dim, x->rank), (long long)used.n);
    if (!all.sym[0]) {
        all.sym[0] = all.sym[1];
        all.sym[1] = 0;
    }
    *ret = all;
    ret->n = all.n / used.n;
    return true;
}

bool node_reshape(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Size dim[LIMIT_RANK], used = size_of(1);
    int rank, rest = -1;

    if (!list_of(im, in[1], &rank, dim))
        return false;
    for (int i = 0; i < rank; i++) {
        if (dim[i].n == 0 && !attr_int(node, "allowzero", 0)) {
            if (i >= in[0]->rank)
                return refuse(im, "its 0 at %d copies no dimension", i);
            dim[i] = in[0]->dim[i];
        }
        if (dim[i].n == -1 && rest < 0) {
            rest = i;
            continue;
        }
        if (dim[i].n < 1)
            return refuse(im, "a dimension of %lld", (long long)dim[i].n);
        if (!size_mul(used, dim[i], &used))
            return refuse(im, "its sizes are more than a size can say");
    }
    if (rest >= 0 && !rest_of(im, in[0], used, &dim[rest]))
        return false;
    return say_reshape(im, in[0], out[0], rank, dim);
}

bool node_flatten(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int64_t axis = attr_int(node, "axis", 1);
    Size dim[2];

    axis = axis < 0 ? axis + in[0]->rank : axis;
    if (axis < 0 || axis > in[0]->rank)
        return refuse(im, "axis %lld of %d", (long long)axis, in[0]->rank);
    return elements_of(im, in[0]->dim, (int)axis, &dim[0]) &&
           elements_of(im, in[0]->dim + axis, in[0]->rank - (int)axis, &dim[1]) &&
           say_reshape(im, in[0], out[0], 2, dim);
}

static bool squeeze(Import *im, Value *x, Value *v, int num, const int64_t *axes)
{
    bool drop[LIMIT_RANK] = {0};
    Size dim[LIMIT_RANK];
    int rank = 0;

    for (int i = 0; i < num; i++) {
        int axis = axis_of(im, axes[i], x->rank);
        if (axis < 0)
            return false;
        if (!size_equal(x->dim[axis], size_of(1)))
            return refuse(im, "axis %d of %s is not 1", axis, sizes_text(im, x->dim, x->rank));
        drop[axis] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!(drop[i] || (!num && size_equal(x->dim[i], size_of(1)))))
            dim[rank++] = x->dim[i];
    return say_reshape(im, x, v, rank, dim);
}

static bool unsqueeze(Import *im, Value *x, Value *v, int num, const int64_t *axes)
{
    bool added[LIMIT_RANK] = {0};
    Size dim[LIMIT_RANK];
    int rank = x->rank + num, from = 0;

    if (rank > LIMIT_RANK)
        return refuse(im, "%d dimensions, more than %d", rank, LIMIT_RANK);
    for (int i = 0; i < num; i++) {
        int axis = axis_of(im, axes[i], rank);
        if (axis < 0)
            return false;
        if (added[axis])
            return refuse(im, "axis %d twice", axis);
        added[axis] = true;
    }
    for (int i = 0; i < rank; i++)
        dim[i] = added[i] ? size_of(1) : x->dim[from++];
    return say_reshape(im, x, v, rank, dim);
}

bool node_squeeze(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int64_t axes[LIMIT_RANK];
    int num;

    bool adds = node->op[0] == 'U', given = in[1] || attr_find(node, "axes");

    if (!ints_of(im, node, "axes", in[1], &num, axes))
        return false;
    if (!num && adds != given)
        return refuse(im, "it has no axes");
    if (in[0]->num_list >= 0) { /* between a number and a list of one */
        if (num == 1 && axes[0] == 0 && in[0]->num_list == 1 && in[0]->rank == !adds)
            return list_make(im, out[0], 1, in[0]->list, adds);
        return refuse(im, "it changes a list of %d sizes", in[0]->num_list);
    }
    return adds ? unsqueeze(im, in[0], out[0], num, axes) : squeeze(im, in[0], out[0], num, axes);
}

/* Moves ---------------------------------------------------------------------------------------- */

bool node_transpose(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const OnnxAttr *attr = attr_find(node, "perm");
    Value *x = in[0], *v = out[0];
    bool seen[LIMIT_RANK] = {0};
    int64_t perm[LIMIT_RANK];
    Sb sb;

    if (attr && attr->ints.num != x->rank)
        return refuse(im, "perm has %d numbers for %d dimensions", attr->ints.num, x->rank);
    sb_init(&sb, im->arena);
    v->rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        int64_t axis = attr ? attr->ints.elem[i] : x->rank - 1 - i;
        if (axis < 0 || axis >= x->rank || seen[axis])
            return refuse(im, "perm does not name each axis once");
        seen[axis] = true;
        perm[i] = axis;
        v->dim[i] = x->dim[axis];
        sb_printf(&sb, "%s%lld", i ? ", " : "", (long long)axis);
    }
    v->type = x->type;
    if (!x->text && x->rank == 2 && (x->known || x->coded)) {
        bool turns = sb.text[0] == '1';
        v->known = x->known;
        v->coded = x->coded;
        v->is_turned = x->is_turned != turns;
        return true;
    }
    if (!x->text)
        return operand(im, x) && refuse(im, "it turns a constant of %d dimensions", x->rank);
    say_moved(im, x, v, "transpose", arena_printf(im->arena, ", perm=[%s]", sb.text));
    matrices_moved(im, x, v, perm);
    return true;
}

static bool concat_lists(Import *im, const OnnxNode *node, Value **in, Value *v)
{
    Size list[LIMIT_RANK * 2];
    int num = 0, more;

    for (int i = 0; i < node->in.num; i++, num += more) {
        if (!list_of(im, in[i], &more, list + num))
            return false;
        if (num + more > LIMIT_RANK)
            return refuse(im, "a list of more than %d sizes", LIMIT_RANK);
    }
    return list_make(im, v, num, list, 1);
}

/* Parts of equal scale and zero point are joined as codes. */
static bool same_codes(const OnnxNode *node, Value **in)
{
    for (int i = 0; i < node->in.num; i++)
        if (in[i]->is_codes != in[0]->is_codes || in[i]->zero != in[0]->zero)
            return false;
    return true;
}

bool node_concat(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int axis = axis_of(im, attr_int(node, "axis", 0), in[0]->rank);
    Sb sb;

    for (int i = 0; i < node->in.num; i++)
        if (in[i]->num_list >= 0)
            return concat_lists(im, node, in, out[0]);
    if (axis < 0)
        return false;
    if (!same_codes(node, in))
        return refuse(im, "its operands are codes with different zero points");
    sb_init(&sb, im->arena);
    like(out[0], in[0]);
    out[0]->is_codes = in[0]->is_codes;
    out[0]->zero = in[0]->zero;
    for (int i = 0; i < node->in.num; i++) {
        const char *x = operand(im, in[i]);
        if (!x)
            return false;
        bool fits = in[i]->rank == in[0]->rank && in[i]->text;
        for (int k = 0; fits && k < in[0]->rank; k++)
            fits = k == axis ? !in[i]->dim[k].sym[0] : size_equal(in[i]->dim[k], in[0]->dim[k]);
        if (!fits)
            return refuse(im, "'%.60s' is constant, or %s does not join %s along axis %d",
                          in[i]->name, sizes_text(im, in[i]->dim, in[i]->rank),
                          sizes_text(im, in[0]->dim, in[0]->rank), axis);
        if (i)
            out[0]->dim[axis].n += in[i]->dim[axis].n;
        sb_printf(&sb, "%s, ", x);
    }
    out[0]->text = say(im, out[0]->name, "concat(%saxis=%d)", sb.text, axis);
    return true;
}

/* x[start .. stop) along an axis of known size, which bounds were held to. */
static bool say_slice(Import *im, Value *x, Value *v, int axis, int64_t start, int64_t stop)
{
    if (!operand(im, x))
        return false;
    if (!x->text)
        return refuse(im, "it cuts a constant: fold it first");
    if (x->dim[axis].sym[0])
        return refuse(im, "axis %d of %s has no fixed size to cut", axis,
                      sizes_text(im, x->dim, x->rank));
    if (stop <= start)
        return refuse(im, "%lld .. %lld of axis %d, which has %lld", (long long)start,
                      (long long)stop, axis, (long long)x->dim[axis].n);
    const char *name = v->name;
    *v = (Value){.name = name, .num_list = -1, .factor = 1};
    like(v, x);
    v->dim[axis] = size_of(stop - start);
    say_moved(im, x, v, "slice",
              arena_printf(im->arena, ", axis=%d, start=%lld, stop=%lld", axis, (long long)start,
                           (long long)stop));
    return true;
}

bool node_split(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int axis = axis_of(im, attr_int(node, "axis", 0), in[0]->rank), num = node->out.num;
    int64_t sizes[64], start = 0;
    const OnnxAttr *attr = attr_find(node, "split");
    Value *list = in[1];

    if (axis < 0)
        return false;
    int64_t all = in[0]->dim[axis].n, part = (all + num - 1) / num;
    if (list && !known_integers(list))
        return refuse(im, "its sizes '%.60s' are no known integers", list->name);
    uint64_t given = list ? list->known->elements : attr ? (uint64_t)attr->ints.num : 0;
    if ((list || attr) && given != (uint64_t)num)
        return refuse(im, "%llu sizes for %d parts", (unsigned long long)given, num);
    if (!list && !attr && im->opset < 18 && !in[0]->dim[axis].sym[0] && all % num)
        return refuse(im, "%lld elements in %d equal parts", (long long)all, num);
    for (int i = 0; i < num; i++) {
        sizes[i] = list ? onnx_integer(list->known, (uint64_t)i) : attr ? attr->ints.elem[i] : part;
        if (!list && !attr && i == num - 1)
            sizes[i] = all - start;
        if (sizes[i] < 1 || sizes[i] > all - start)
            return refuse(im, "part %d of %lld elements does not fit into %lld", i,
                          (long long)sizes[i], (long long)all);
        if (!say_slice(im, in[0], out[i], axis, start, start + sizes[i]))
            return false;
        start += sizes[i];
    }
    return start == all ||
           refuse(im, "its parts are %lld of %lld elements", (long long)start, (long long)all);
}

bool node_slice(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    int64_t list[4][LIMIT_RANK];
    int num[4] = {0};
    Value so_far = *in[0];

    for (int i = 0; i < 4; i++)
        if (in[i + 1] && !ints_of(im, node, "", in[i + 1], &num[i], list[i]))
            return false;
    bool has_axes = in[3], has_steps = in[4];
    if (num[1] != num[0] || (has_axes && num[2] != num[0]) || (has_steps && num[3] != num[0]))
        return refuse(im, "its lists have %d, %d, %d and %d numbers", num[0], num[1], num[2],
                      num[3]);
    if (so_far.num_list >= 0 && num[0] == 1 && (!has_axes || list[2][0] == 0 || list[2][0] == -1) &&
        (!has_steps || list[3][0] == 1)) {
        int64_t from = bound(list[0][0], so_far.num_list), to = bound(list[1][0], so_far.num_list);
        return list_make(im, out[0], to > from ? (int)(to - from) : 0, so_far.list + from, 1);
    }
    for (int i = 0; i < num[0]; i++) {
        int axis = axis_of(im, has_axes ? list[2][i] : i, in[0]->rank);
        if (axis < 0 || (has_steps && list[3][i] != 1))
            return axis >= 0 && refuse(im, "a step of %lld", (long long)list[3][i]);
        int64_t size = so_far.dim[axis].n;
        if (!say_slice(im, &so_far, out[0], axis, bound(list[0][i], size), bound(list[1][i], size)))
            return false;
        so_far = *out[0];
    }
    if (!num[0])
        node_alias(im, node, in, out);
    return true;
}

bool node_cast(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    OnnxType to = (OnnxType)attr_int(node, "to", 0), from = in[0]->type;
    const Value *x = in[0];

    if (x->num_list >= 0 || (x->dynamic && to == ONNX_F32)) {
        node_alias(im, node, in, out);
        out[0]->type = to;
        return to == ONNX_I64 || to == ONNX_I32 || to == ONNX_F32 ||
               refuse(im, "sizes become %s", onnx_type(to)->name);
    }
    bool sums = from == ONNX_I32 && x->text && to == ONNX_F32;
    bool floats = (from == ONNX_F32 || from == ONNX_F16 || from == ONNX_BF16) &&
                  (to == ONNX_F32 || to == ONNX_F16 || to == ONNX_BF16);
    if (!floats && !sums)
        return refuse(im, "from %s to %s", onnx_type(from)->name, onnx_type(to)->name);
    const char *text = operand(im, in[0]);
    if (!text || to == ONNX_F32 || !x->text) {
        node_alias(im, node, in, out);
        out[0]->type = to;
        if (text && !x->text && to != from)
            return refuse(im, "it casts a constant: fold it first");
        return text != NULL;
    }
    like(out[0], x);
    out[0]->type = to;
    say_value(im, out[0], "%s", text);
    return true;
}
