/* onnx/quantised: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
 *
 * ONNX has code = saturate(round(x / scale) + zero), with ties to even and a division; our schemes
 * multiply by the scale's reciprocal. So the division is written out, and what a scheme or
 * `round` sees is x / scale: codes come out alike to the bit. A value of codes is code - zero. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

/* Constants ------------------------------------------------------------------------------------ */

/* Which of the scales and zero points belongs to code i. */
static uint64_t cell_of(const Coded *c, uint64_t i)
{
    const OnnxTensor *t = c->codes;
    uint64_t below = 1, size, cells;

    if (c->axis < 0)
        return 0;
    for (int k = c->axis + 1; k < t->rank; k++)
        below *= (uint64_t)t->dim[k];
    size = (uint64_t)t->dim[c->axis];
    if (!c->block)
        return i / below % size;
    cells = (size + (uint64_t)c->block - 1) / (uint64_t)c->block;
    return (i / below / size * cells + i / below % size / (uint64_t)c->block) * below + i % below;
}

float coded_scale(const Coded *c, uint64_t cell)
{
    return (float)onnx_real(c->scale, c->scale->elements == 1 ? 0 : cell);
}

int64_t coded_zero(const Coded *c, uint64_t cell)
{
    return c->zero ? onnx_integer(c->zero, c->zero->elements == 1 ? 0 : cell) : 0;
}

const OnnxTensor *known_values(Import *im, const Value *v)
{
    const Coded *c = v->coded;

    if (!c)
        return v->known;
    OnnxTensor *t = map_get(&im->decoded, v->name);
    if (t)
        return t;
    t = tensor_new(im, v->name, ONNX_F32, c->codes->rank, c->codes->dim);
    for (uint64_t i = 0; i < t->elements; i++) {
        uint64_t cell = cell_of(c, i);
        float value =
            (float)(onnx_integer(c->codes, i) - coded_zero(c, cell)) * coded_scale(c, cell);
        memcpy((uint8_t *)(uintptr_t)t->data + i * 4, &value, sizeof value);
    }
    map_put(&im->decoded, v->name, t);
    return t;
}

/* Scales and zero points must be as many as the axis, or the blocks, or one. */
static bool coded_fits(Import *im, const Coded *c)
{
    const OnnxTensor *t = c->codes;
    uint64_t want = 1, scales = c->scale->elements, zeros = c->zero ? c->zero->elements : 1;

    if (c->axis >= 0) {
        want = (uint64_t)t->dim[c->axis];
        if (c->block && want)
            want = t->elements / want * ((want - 1) / (uint64_t)c->block + 1);
    }
    if (!want || (scales != want && scales != 1) || (zeros != want && zeros != 1))
        return refuse(im, "%llu scales and %llu zero points, where %llu are needed",
                      (unsigned long long)scales, (unsigned long long)(c->zero ? zeros : 0),
                      (unsigned long long)want);
    for (uint64_t i = 0; i < scales; i++) {
        double scale = onnx_real(c->scale, i);
        if (!(scale > 0) || !isfinite(scale))
            return refuse(im, "a scale of %g", scale);
    }
    return true;
}

static bool dequantize_known(Import *im, const Value *x, const Value *scale, const Value *zero,
                             int64_t axis, int64_t block, Value *ret)
{
    Coded *c = ARENA_NEW(im->arena, Coded);

    *c = (Coded){.codes = x->known, .scale = scale->known, .zero = zero ? zero->known : NULL};
    if (!onnx_type(x->type)->most && x->type != ONNX_I32)
        return refuse(im, "codes of %s", onnx_type(x->type)->name);
    c->axis = -1;
    c->block = scale->known->elements == 1 ? 0 : block;
    bool per_axis = scale->known->elements > 1 || (c->zero && c->zero->elements > 1);
    if (block < 0 || (per_axis && (c->axis = axis_of(im, axis, x->rank)) < 0))
        return block < 0 && refuse(im, "blocks of %lld", (long long)block);
    if (!coded_fits(im, c))
        return false;
    ret->coded = c;
    ret->is_turned = x->is_turned;
    if (x->is_turned)
        return refuse(im, "its codes were transposed before: fold the transposition");
    return true;
}

bool dequantize(Import *im, Value *x, const Value *scale, const Value *zero, int64_t axis,
                int64_t block, Value *ret)
{
    double s, z = 0;

    if (!scale->known || (zero && !zero->known))
        return refuse(im, "its scale or zero point is computed");
    if (!is_float(scale->type) || (zero && zero->type != x->type))
        return refuse(im, "scales of %s, zero points of %s for codes of %s",
                      onnx_type(scale->type)->name, zero ? onnx_type(zero->type)->name : "nothing",
                      onnx_type(x->type)->name);
    ret->type = scale->type;
    ret->rank = x->rank;
    memcpy(ret->dim, x->dim, sizeof ret->dim);
    if (x->known)
        return dequantize_known(im, x, scale, zero, axis, block, ret);
    if (!operand(im, x))
        return false;
    if (!x->is_codes)
        return refuse(im, "'%.60s' is of %s, no quantised value", x->name,
                      onnx_type(x->type)->name);
    if (!known_number(scale, &s) || (zero && !known_number(zero, &z)))
        return refuse(im, "a computed value with a scale for each channel or block");
    if (!(s > 0) || !isfinite(s))
        return refuse(im, "a scale of %g", s);
    Value *codes = ARENA_NEW(im->arena, Value);
    *codes = *x;
    if ((int64_t)z != x->zero) { /* another zero point than they were made with */
        codes->text = say(im, ret->name, "%s + %s", x->text, number_text(im, (double)x->zero - z));
        codes->raw = NULL;
        codes->zero = (int64_t)z;
    }
    ret->codes = codes;
    ret->scale = (float)s;
    if (s == 1)
        ret->text = codes->text;
    else
        say_value(im, ret, "%s * %s", codes->text, number_text(im, (double)(float)s));
    return true;
}

bool node_dequantize(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    return dequantize(im, in[0], in[1], in[2], attr_int(node, "axis", 1),
                      attr_int(node, "block_size", 0), out[0]);
}

/* Quantising ----------------------------------------------------------------------------------- */

/* A constant that the graph quantises itself. */
static bool quantize_known(Import *im, const Value *x, const Coded *cell, OnnxType type, Value *ret)
{
    const OnnxTypeInfo *info = onnx_type(type);
    const OnnxTensor *t = x->known;
    Coded c = *cell;
    OnnxTensor *codes = tensor_new(im, t->name, type, t->rank, t->dim);

    if (info->bits != 8 || x->is_turned || !is_float(t->type))
        return refuse(im, "a constant of %s becomes %s", onnx_type(t->type)->name, info->name);
    c.codes = codes;
    if (!coded_fits(im, &c))
        return false;
    for (uint64_t i = 0; i < t->elements; i++) {
        uint64_t at = cell_of(&c, i);
        int64_t zero = coded_zero(&c, at);
        float code = num_round((float)onnx_real(t, i) / coded_scale(&c, at));
        if (code != code)
            return refuse(im, "the constant '%.60s' holds NaN", t->name);
        code = num_min(num_max(code, (float)(info->least - zero)), (float)(info->most - zero));
        ((uint8_t *)(uintptr_t)codes->data)[i] = (uint8_t)((int64_t)code + zero);
    }
    ret->known = codes;
    return true;
}

/* Rounds and clips what was said as raw. */
static void say_rounded(Import *im, Value *v)
{
    const OnnxTypeInfo *info = onnx_type(v->type);

    v->text = say(im, v->name, "max(min(round(%s), %s), %s)", v->raw,
                  number_text(im, (double)(info->most - v->zero)),
                  number_text(im, (double)(info->least - v->zero)));
}

/* Sums of integers times factor / scale, as one factor. */
static void say_requantized(Import *im, const Value *x, float scale, Value *ret)
{
    Value sums = {.name = "scaled", .acc = x->acc, .factor = x->factor / scale};

    like(&sums, x);
    if (x->factors) {
        int64_t num = x->dim[x->rank - 1].n;
        float *factor = ARENA_NEW_ARRAY(im->arena, float, (size_t)num);
        for (int64_t i = 0; i < num; i++)
            factor[i] = x->factors[i] / scale;
        sums.factors = factor;
    }
    say_scaled(im, &sums);
    ret->raw = sums.text;
}

bool quantize(Import *im, Value *x, const Value *scale, const Value *zero, OnnxType type,
              Value *ret)
{
    double s, z = 0;

    if (!known_number(scale, &s) || (zero && !known_number(zero, &z)))
        return refuse(im, "a computed value with a scale for each channel or block");
    if (!(s > 0) || !isfinite(s))
        return refuse(im, "a scale of %g", s);
    if (!onnx_type(type)->most || onnx_type(type)->bits < 8)
        return refuse(im, "codes of %s", onnx_type(type)->name);
    if (!operand(im, x))
        return false;
    if (x->is_codes || !x->text || !is_float(x->type))
        return refuse(im, "'%.60s' is of %s", x->name, onnx_type(x->type)->name);
    ret->type = type;
    ret->rank = x->rank;
    memcpy(ret->dim, x->dim, sizeof ret->dim);
    ret->is_codes = true;
    ret->zero = (int64_t)z;
    if (x->acc)
        say_requantized(im, x, (float)s, ret);
    else
        ret->raw = s == 1 ? x->text
                          : say(im, "steps", "%s / %s", x->text, number_text(im, (double)(float)s));
    say_rounded(im, ret);
    return true;
}

bool node_quantize(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    Value *zero = in[2], *x = in[0];
    int64_t stated = attr_int(node, "output_dtype", 0), block = attr_int(node, "block_size", 0);
    OnnxType type = zero ? zero->type : stated ? (OnnxType)stated : ONNX_U8;

    if (!in[1]->known || (zero && !zero->known) || !is_float(in[1]->type))
        return refuse(im, "its scale or zero point is computed");
    if (!x->known)
        return quantize(im, x, in[1], zero, type, out[0]);
    Coded c = {.scale = in[1]->known, .zero = zero ? zero->known : NULL, .axis = -1};
    if (block < 0)
        return refuse(im, "blocks of %lld", (long long)block);
    if (c.scale->elements > 1 && (c.axis = axis_of(im, attr_int(node, "axis", 1), x->rank)) < 0)
        return false;
    c.block = c.scale->elements > 1 ? block : 0;
    like(out[0], x);
    out[0]->type = type;
    return quantize_known(im, x, &c, type, out[0]);
}

/* Dynamic -------------------------------------------------------------------------------------- */

bool node_dynamic(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    if (!operand(im, in[0]))
        return false;
    if (!in[0]->text || !is_float(in[0]->type))
        return refuse(im, "'%.60s' is of %s, or a constant", in[0]->name,
                      onnx_type(in[0]->type)->name);
    for (int i = 0; i < node->out.num; i++) {
        out[i]->dynamic = in[0];
        out[i]->part = i == 0 ? DYNAMIC_CODES : i == 1 ? DYNAMIC_SCALE : DYNAMIC_ZERO;
        out[i]->type = i == 1 ? ONNX_F32 : ONNX_U8;
        out[i]->factor = 1;
    }
    out[0]->rank = in[0]->rank;
    memcpy(out[0]->dim, in[0]->dim, sizeof out[0]->dim);
    return true;
}

/* MatMulInteger of dynamic codes: the language's scheme multiplies by the scale that it found, so
 * the result waits for the node that does. */
bool dynamic_product(Import *im, Value *codes, const Value *zero, Value *b, Value *ret)
{
    static const char line[] = "act u8 asym per tensor dynamic";
    const Value *x = codes->dynamic;

    if (codes->part != DYNAMIC_CODES || !zero || zero->part != DYNAMIC_ZERO || zero->dynamic != x)
        return refuse(im, "its codes and its zero point are not of one DynamicQuantizeLinear");
    if (!b->coded || x->rank < 1 || b->rank != 2 || !b->dim[1].n ||
        !size_equal(x->dim[x->rank - 1], b->dim[0]))
        return refuse(im, "%s by %s, or no constant weight", sizes_text(im, x->dim, x->rank),
                      sizes_text(im, b->dim, b->rank));
    const char *scheme = map_get(&im->schemes, line);
    if (!scheme) {
        scheme = word_new(im, "dynamic_u8");
        map_put(&im->schemes, line, (void *)(uintptr_t)scheme);
    }
    note(im,
         "Dynamic codes are round(x * (1 / scale)), where ONNX has round(x / scale): a few in a "
         "million differ by one.");
    like(ret, x);
    ret->type = ONNX_I32;
    ret->dim[x->rank - 1] = b->dim[1];
    ret->dynamic = x;
    ret->part = DYNAMIC_SUMS;
    ret->factor = 1;
    ret->acc =
        say(im, "sums", "linear(%s, %s) @ %s", x->text, coded_param(im, b, true, false), scheme);
    im->num_integer++;
    im->num_layers++;
    return true;
}

/* y_scale times the weight's scale. */
static bool scale_scaled(Import *im, const Value *scale, const Value *by, Value *ret)
{
    const OnnxTensor *t = by->known;

    if (!t || !is_float(t->type) || t->rank > 1 || !t->elements)
        return refuse(im,
                      "the dynamic scale is multiplied by '%.60s', no constant of one dimension",
                      by->name);
    float *factor = ARENA_NEW_ARRAY(im->arena, float, (size_t)t->elements);
    for (uint64_t i = 0; i < t->elements; i++)
        factor[i] = scale->factor * (float)onnx_real(t, i);
    if (scale->factors)
        return refuse(im, "the dynamic scale is multiplied by vectors twice");
    const char *name = ret->name;
    *ret = *scale;
    ret->name = name;
    ret->factor = factor[0];
    ret->factors = t->elements > 1 ? factor : NULL;
    ret->rank = t->rank;
    ret->dim[0] = size_of(t->rank ? t->dim[0] : 1);
    return true;
}

bool dynamic_scaled(Import *im, Value **in, Value *ret)
{
    int at = in[0]->dynamic && in[0]->part == DYNAMIC_SUMS ? 0 : 1;
    const Value *sums = in[at], *scale = in[!at];

    if (sums->dynamic && sums->part == DYNAMIC_SCALE && !scale->dynamic)
        return scale_scaled(im, sums, scale, ret);
    if (scale->dynamic && scale->part == DYNAMIC_SCALE && !sums->dynamic)
        return scale_scaled(im, scale, sums, ret);
    if (sums->part != DYNAMIC_SUMS || scale->part != DYNAMIC_SCALE ||
        sums->dynamic != scale->dynamic)
        return refuse(im, "a product of dynamic values that are not sums and their scale");
    if (scale->factors && !size_equal(scale->dim[0], sums->dim[sums->rank - 1]))
        return refuse(im, "%lld scales for sums of %s", (long long)scale->dim[0].n,
                      sizes_text(im, sums->dim, sums->rank));
    like(ret, sums);
    ret->type = ONNX_F32;
    Value made = *ret;
    made.acc = sums->acc;
    made.factor = scale->factor;
    made.factors = scale->factors;
    say_scaled(im, &made);
    ret->text = made.text;
    return true;
}
