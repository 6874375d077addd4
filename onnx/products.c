/* onnx/products: Gemm, MatMul and their integer forms. A weight becomes a param [N, K] of `linear`,
 * turned where the model has it as [K, N]. Products of codes are summed as integers:
 *
 *   acc = linear(code - zero of x, code - zero of w), scheme `static 1 zero z`
 *
 * which is exact, and the factor scale(x) * scale(w) is multiplied where the result is read, in one
 * step: ONNX Runtime's kernels compute so, too. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

void say_scaled(Import *im, Value *v)
{
    if (v->factors) {
        const char *by = floats_param(im, "scales", v->factors, v->dim[v->rank - 1].n);
        v->text = say(im, v->name, "%s * %s", v->acc, by);
    } else if (v->factor != 1) {
        v->text = say(im, v->name, "%s * %s", v->acc, number_text(im, (double)v->factor));
    } else {
        v->text = v->acc;
    }
}

/* Shapes --------------------------------------------------------------------------------------- */

/* [.., K] by [N, K]: [.., N]. */
static bool fits(Import *im, const Value *a, const Value *b, bool is_turned, Value *ret)
{
    Size k = b->rank == 2 ? b->dim[!is_turned] : size_of(0);

    if (a->rank < 1 || b->rank != 2 || !size_equal(a->dim[a->rank - 1], k))
        return refuse(im, "%s by %s, where the language has products [.., K] by [%s]",
                      sizes_text(im, a->dim, a->rank), sizes_text(im, b->dim, b->rank),
                      is_turned ? "K, N" : "N, K");
    like(ret, a);
    ret->dim[a->rank - 1] = b->dim[is_turned];
    return b->dim[is_turned].n || refuse(im, "its weight '%.60s' is empty", b->name);
}

static bool bias_fits(Import *im, const Value *bias, const Value *ret)
{
    bool fits = bias->rank <= ret->rank;

    for (int i = 1; fits && i <= bias->rank; i++) {
        Size dim = bias->dim[bias->rank - i];
        fits = size_equal(dim, size_of(1)) || size_equal(dim, ret->dim[ret->rank - i]);
    }
    return fits ||
           refuse(im, "a bias of %s for results of %s", sizes_text(im, bias->dim, bias->rank),
                  sizes_text(im, ret->dim, ret->rank));
}

/* Integers ------------------------------------------------------------------------------------- */

static const char *scheme_word(Import *im, const char *line, const char *hint)
{
    const char *name = map_get(&im->schemes, line);

    if (!name) {
        name = word_new(im, hint);
        map_put(&im->schemes, line, (void *)(uintptr_t)name);
    }
    return name;
}

/* The scheme that takes codes less their zero point as they are. */
static const char *code_scheme(Import *im, const Value *codes)
{
    const OnnxTypeInfo *type = onnx_type(codes->type);

    if (type->bits != 8) {
        refuse(im, "products of %s are not read, only of int8 and uint8", type->name);
        return NULL;
    }
    const char *fmt = format_info[type->fmt].name;
    return scheme_word(im,
                       arena_printf(im->arena, "act %s asym per tensor static 1 zero %lld", fmt,
                                    (long long)codes->zero),
                       arena_printf(im->arena, "codes_%s", fmt));
}

/* The largest sum that a row of the weight can come to: |codes of x| times the row's codes. */
static double largest_sum(const Coded *c, const Value *codes, bool is_turned)
{
    const OnnxTypeInfo *type = onnx_type(codes->type);
    double most =
        fmax(fabs((double)(type->least - codes->zero)), fabs((double)(type->most - codes->zero)));
    uint64_t rows = (uint64_t)c->codes->dim[is_turned], cols = (uint64_t)c->codes->dim[!is_turned];
    double worst = 0;

    for (uint64_t r = 0; r < rows; r++) {
        int64_t sum = 0;
        int64_t zero = coded_zero(c, r);
        for (uint64_t k = 0; k < cols; k++) {
            int64_t code = onnx_integer(c->codes, is_turned ? k * rows + r : r * cols + k) - zero;
            sum += code < 0 ? -code : code;
        }
        worst = fmax(worst, (double)sum * most);
    }
    return worst;
}

/* A bias of integers in units of the factor, which is added to the sums. */
static bool is_integer_bias(const Value *bias, float scale_a, const Coded *w, int64_t rows)
{
    const Coded *c = bias->coded;

    if (!c || c->codes->type != ONNX_I32 || bias->rank != 1 || bias->dim[0].n != rows)
        return false;
    for (uint64_t i = 0; i < (uint64_t)rows; i++) {
        if (coded_scale(c, i) != scale_a * coded_scale(w, i) || coded_zero(c, i))
            return false;
    }
    return true;
}

static const char *bias_param(Import *im, const Value *bias, double *largest)
{
    const OnnxTensor *t = bias->coded->codes;
    float *value = ARENA_NEW_ARRAY(im->arena, float, (size_t)t->elements + 1);

    *largest = 0;
    for (uint64_t i = 0; i < t->elements; i++) {
        value[i] = (float)onnx_integer(t, i);
        *largest = fmax(*largest, fabs((double)onnx_integer(t, i)));
    }
    return floats_param(im, t->name, value, (int64_t)t->elements);
}

static bool factors_of(Import *im, float scale_a, const Coded *c, int64_t rows, Value *ret)
{
    if (c->scale->elements == 1) {
        ret->factor = scale_a * (float)onnx_real(c->scale, 0);
        return true;
    }
    float *factor = ARENA_NEW_ARRAY(im->arena, float, (size_t)rows);
    for (int64_t i = 0; i < rows; i++)
        factor[i] = scale_a * (float)onnx_real(c->scale, (uint64_t)i);
    ret->factors = factor;
    return true;
}

/* Codes by a constant of codes. */
static bool integer_product(Import *im, const Value *a, const Value *b, bool is_turned, Value *bias,
                            Value *ret)
{
    const Value *codes = a->codes;
    const Coded *c = b->coded;
    const char *scheme = code_scheme(im, codes), *add = "";
    int64_t rows = c->codes->dim[is_turned];
    double largest = 0;

    if (!scheme)
        return false;
    bool is_integer = bias && is_integer_bias(bias, a->scale, c, rows);
    if (is_integer) {
        const char *name = bias_param(im, bias, &largest);
        add = arena_printf(im->arena, ", %s", name);
        if (largest + largest_sum(c, codes, is_turned) >= 16777216)
            note(im,
                 "Sums of '%s' may pass 2^24, where adding an integer bias in f32 can round a "
                 "sum by one part in 2^24.",
                 c->codes->name);
    }
    ret->acc = say(im, "sums", "linear(%s, %s%s) @ %s", codes->raw ? codes->raw : codes->text,
                   coded_param(im, b, is_turned, false), add, scheme);
    factors_of(im, a->scale, c, rows, ret);
    say_scaled(im, ret);
    im->num_integer++;
    if (!bias || is_integer)
        return true;
    const char *float_bias = operand(im, bias);
    if (!float_bias)
        return false;
    ret->acc = NULL;
    ret->text = say(im, ret->name, "%s + %s", ret->text, float_bias);
    return true;
}

/* Codes of this scale by codes, both computed. Sums of f32 are exact below 2^24. */
static bool computed_codes(Import *im, const Value *a, const Value *b, Value *ret)
{
    const OnnxTypeInfo *ta = onnx_type(a->codes->type), *tb = onnx_type(b->codes->type);
    double most = (double)(ta->most - ta->least) * (double)(tb->most - tb->least);
    Size k = a->dim[a->rank - 1];

    if (k.sym[0] || (double)k.n * most >= 16777216)
        note(im,
             "Products of two computed operands over K = %s are summed in f32, and may round "
             "where ONNX Runtime sums integers.",
             size_text(im, k));
    ret->acc = say(im, "sums", "matmul(%s, %s)", a->codes->text, b->codes->text);
    ret->factor = a->scale * b->scale;
    say_scaled(im, ret);
    return true;
}

/* The product ---------------------------------------------------------------------------------- */

static bool check_coded(Import *im, const Value *b, bool is_turned)
{
    const Coded *c = b->coded;
    int along = is_turned ? 1 : 0; /* the axis of N */

    if (onnx_type(c->codes->type)->bits > 8)
        return refuse(im, "its weight '%.60s' is of %s", b->name, onnx_type(c->codes->type)->name);
    if (c->block && c->axis == along)
        return refuse(im, "its weight '%.60s' has blocks across rows", b->name);
    if (!c->block && c->axis >= 0 && c->axis != along)
        return refuse(im, "its weight '%.60s' has scales along K", b->name);
    return true;
}

static bool linear(Import *im, Value *a, const Value *b, bool is_turned, Value *bias, Value *ret)
{
    const char *x = operand(im, a), *w, *add = bias ? operand(im, bias) : "";
    bool is_param = bias && bias->known && bias->rank == 1 && bias->known->elements > 1;

    w = b->coded ? coded_param(im, b, is_turned, true) : weight_param(im, b, is_turned);
    if (!x || !w || !add)
        return false;
    if (!a->text)
        return refuse(im, "both operands are constants: fold them first");
    if (is_param)
        say_value(im, ret, "linear(%s, %s, %s)", x, w, add);
    else
        say_value(im, ret, "linear(%s, %s)%s%s", x, w, bias ? " + " : "", add);
    return true;
}

bool product(Import *im, Value *a, Value *b, bool is_turned, Value *bias, Value *ret)
{
    Value seen = *b;

    if (!fits(im, a, b, is_turned, ret))
        return false;
    if (bias && !bias_fits(im, bias, ret))
        return false;
    is_turned = is_turned != b->is_turned;
    im->num_layers += b->known || b->coded;
    if (b->coded) {
        if (!check_coded(im, b, is_turned))
            return false;
        if (a->codes && !b->coded->block)
            return integer_product(im, a, b, is_turned, bias, ret);
        return linear(im, a, b, is_turned, bias, ret);
    }
    if (b->known && is_float(b->known->type))
        return linear(im, a, &seen, is_turned, bias, ret);
    if (a->codes && b->codes && is_turned && !bias)
        return computed_codes(im, a, b, ret);
    const char *x = operand(im, a), *y = operand(im, b), *add = bias ? operand(im, bias) : "";
    if (!x || !y || !add)
        return false;
    if (!is_turned)
        y = arena_printf(im->arena, "transpose(%s)", y);
    say_value(im, ret, "matmul(%s, %s)%s%s", x, y, bias ? " + " : "", add);
    return true;
}

/* Nodes ---------------------------------------------------------------------------------------- */

bool node_matmul(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    bool are_floats = is_float(in[0]->type) && in[0]->type == in[1]->type;
    bool is_coded = in[0]->coded || in[1]->coded;

    (void)node;
    if (in[0]->rank >= 2 && in[1]->rank > 2 && are_floats && !is_coded)
        return matrices_product(im, in[0], in[1], out[0]);
    return product(im, in[0], in[1], true, NULL, out[0]);
}

/* C of Gemm as what is added: [N], or what broadcasts. */
static Value *flat_bias(Import *im, Value *c)
{
    if (!c || !c->known || c->rank != 2 || !size_equal(c->dim[0], size_of(1)))
        return c;
    Value *ret = ARENA_NEW(im->arena, Value);
    OnnxTensor *t = ARENA_NEW(im->arena, OnnxTensor);
    *t = *c->known;
    t->rank = 1;
    t->dim[0] = t->dim[1];
    *ret = *c;
    ret->known = t;
    ret->rank = 1;
    ret->dim[0] = c->dim[1];
    return ret;
}

bool node_gemm(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Value *a = in[0], *c = in[2], turned = {.name = ""};
    float alpha = attr_real(node, "alpha", 1), beta = attr_real(node, "beta", 1);
    bool is_plain = alpha == 1 && (!c || beta == 1);

    if (a->rank != 2)
        return refuse(im, "its A has %d dimensions", a->rank);
    if (attr_int(node, "transA", 0)) {
        if (!operand(im, a) || !a->text)
            return refuse(im, "transA of a constant");
        like(&turned, a);
        turned.num_list = -1;
        turned.dim[0] = a->dim[1];
        turned.dim[1] = a->dim[0];
        turned.text = say(im, a->name, "transpose(%s)", a->text);
        a = &turned;
    }
    if (!product(im, a, in[1], !attr_int(node, "transB", 0), is_plain ? flat_bias(im, c) : NULL,
                 out[0]))
        return false;
    if (is_plain)
        return true;
    const char *add = c ? operand(im, c) : "";
    if (!add || (c && !bias_fits(im, c, out[0])))
        return false;
    out[0]->acc = NULL;
    if (c)
        say_value(im, out[0], "%s * %s + %s * %s", number_text(im, (double)alpha), out[0]->text,
                  number_text(im, (double)beta), add);
    else
        say_value(im, out[0], "%s * %s", number_text(im, (double)alpha), out[0]->text);
    return true;
}

/* A number that the graph does not hold. */
static Value *one(Import *im)
{
    Value *v = ARENA_NEW(im->arena, Value);
    OnnxTensor *t = tensor_new(im, "one", ONNX_F32, 0, NULL);
    const float value = 1;

    memcpy((void *)(uintptr_t)t->data, &value, sizeof value);
    v->name = "";
    v->num_list = -1;
    v->type = ONNX_F32;
    v->known = t;
    return v;
}

static Value scratch(void)
{
    return (Value){.name = "part", .num_list = -1, .factor = 1};
}

bool node_matmul_integer(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Value a = scratch(), b = scratch(), *unit = one(im);
    Value *zero_a = in[2], *zero_b = in[3];

    (void)node;
    if (zero_b && zero_b->rank > 1)
        return refuse(im, "zero points of %d dimensions", zero_b->rank);
    if (!dequantize(im, in[1], unit, zero_b, 1, 0, &b))
        return false;
    if (in[0]->dynamic)
        return dynamic_product(im, in[0], zero_a, &b, out[0]);
    if (!dequantize(im, in[0], unit, zero_a, 1, 0, &a) || !product(im, &a, &b, true, NULL, out[0]))
        return false;
    out[0]->type = ONNX_I32;
    out[0]->acc = NULL;
    return true;
}

bool node_qlinear_matmul(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Value a = scratch(), b = scratch(), y = scratch();

    (void)node;
    if (in[4]->rank > 1)
        return refuse(im, "scales of %d dimensions", in[4]->rank);
    return dequantize(im, in[0], in[1], in[2], 1, 0, &a) &&
           dequantize(im, in[3], in[4], in[5], 1, 0, &b) && product(im, &a, &b, true, NULL, &y) &&
           quantize(im, &y, in[6], in[7], in[7]->type, out[0]);
}

/* C: integers in units of a_scale * b_scale. */
bool node_qgemm(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Value a = scratch(), b = scratch(), c = scratch(), y = scratch(), *bias = in[6];
    bool is_turned = !attr_int(node, "transB", 0), has_y = in[7];
    Coded coded = {.axis = -1};

    if (attr_real(node, "alpha", 1) != 1 || attr_int(node, "transA", 0))
        return refuse(im, "alpha %g or a transposed A", (double)attr_real(node, "alpha", 1));
    if (in[0]->rank != 2)
        return refuse(im, "its A has %d dimensions", in[0]->rank);
    if (has_y && !in[8])
        return refuse(im, "its results have a scale and no zero point");
    if (!dequantize(im, in[0], in[1], in[2], 1, 0, &a) ||
        !dequantize(im, in[3], in[4], in[5], is_turned, 0, &b))
        return false;
    if (!a.codes || !b.coded)
        return refuse(im, "its A is a constant, or its B is not");
    if (bias) {
        bias = flat_bias(im, bias);
        if (!bias->known || bias->type != ONNX_I32)
            return refuse(im, "its C is no constant of int32");
        OnnxTensor *scale =
            tensor_new(im, "scale", ONNX_F32, b.coded->scale->rank, b.coded->scale->dim);
        for (uint64_t i = 0; i < scale->elements; i++) {
            float value = a.scale * (float)onnx_real(b.coded->scale, i);
            memcpy((uint8_t *)(uintptr_t)scale->data + i * 4, &value, sizeof value);
        }
        like(&c, bias);
        coded.codes = bias->known;
        coded.scale = scale;
        c.coded = &coded;
    }
    if (!product(im, &a, &b, is_turned, bias ? &c : NULL, has_y ? &y : out[0]))
        return false;
    return !has_y || quantize(im, &y, in[7], in[8], in[8]->type, out[0]);
}
