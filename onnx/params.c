/* onnx/params: constants of the graph as params of the text and tensors of its weight file. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

static OnnxItem *item_new(Import *im, const char *name, FormatId fmt, int rank, const int64_t *dim)
{
    OnnxItem *item = ARENA_NEW(im->arena, OnnxItem);

    item->name = name;
    item->fmt = fmt;
    item->rank = rank;
    if (rank)
        memcpy(item->dim, dim, (size_t)rank * sizeof *dim);
    return item;
}

static Param *param_new(Import *im, const char *key, const char *hint, FormatId fmt, int rank,
                        const int64_t *dim)
{
    Param *p = ARENA_NEW(im->arena, Param);
    Size size[LIMIT_RANK];

    for (int i = 0; i < rank; i++)
        size[i] = size_of(dim[i]);
    p->name = word_new(im, hint);
    p->type = arena_printf(im->arena, "%s%s", format_info[fmt].name, sizes_text(im, size, rank));
    map_put(&im->params, key, p);
    ARRAY_PUSH(im->arena, &im->param_list, p);
    return p;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), more = strlen(end);

    return len > more && !strcmp(text + len - more, end);
}

/* A name that a text's strings and other tensors' names leave free. Of "x", "x.weight" and its
 * scales are taken as well, so that no two modules share parts. */
static const char *free_name(Import *im, const char *name)
{
    Sb sb;
    size_t len = strlen(name);

    if (len > 10 && !strcmp(name + len - 10, "_quantized"))
        len -= 10;
    if (len > 7 && !strncmp(name + len - 7, ".weight", 7))
        len -= 7;
    sb_init(&sb, im->arena);
    for (size_t i = 0; i < len; i++) {
        bool fits = (uint8_t)name[i] >= 0x20 && name[i] != 0x7f && !strchr("\"\\{}", name[i]);
        sb_putc(&sb, fits ? name[i] : '_');
    }
    const char *ret = sb.text;
    for (int i = 2; map_has(&im->item_names, ret); i++)
        ret = arena_printf(im->arena, "%s_%d", sb.text, i);
    map_put(&im->item_names, ret, im);
    return ret;
}

static const char *tensor_param(Import *im, const OnnxTensor *t, bool is_turned)
{
    const OnnxTypeInfo *type = onnx_type(t->type);
    FormatId fmt = type->fmt;
    int64_t dim[LIMIT_RANK];

    if (fmt != FMT_F32 && fmt != FMT_F16 && fmt != FMT_BF16) {
        refuse(im, "the constant '%.100s' is of %s, which an operand cannot be", t->name,
               type->name);
        return NULL;
    }
    const char *key = arena_printf(im->arena, "%p %d", (const void *)t, is_turned);
    Param *p = map_get(&im->params, key);
    if (p)
        return p->name;
    for (int i = 0; i < t->rank; i++)
        dim[i] = t->dim[is_turned ? t->rank - 1 - i : i];
    p = param_new(im, key, t->name, fmt, t->rank, dim);
    const char *name = free_name(im, t->name);
    if (ends_with(t->name, ".weight"))
        name = arena_printf(im->arena, "%s.weight", name);
    p->item[0] = item_new(im, name, fmt, t->rank, dim);
    p->item[0]->from = t;
    p->item[0]->is_turned = is_turned;
    return p->name;
}

const char *floats_param(Import *im, const char *hint, const float *value, int64_t num)
{
    const char *key = arena_printf(im->arena, "%p", (const void *)value);
    Param *p = map_get(&im->params, key);

    if (p)
        return p->name;
    p = param_new(im, key, hint, FMT_F32, 1, &num);
    p->item[0] = item_new(im, free_name(im, hint), FMT_F32, 1, &num);
    p->item[0]->own = value;
    return p->name;
}

const char *operand(Import *im, Value *v)
{
    if (v->dynamic) {
        refuse(im,
               "'%.60s' comes of DynamicQuantizeLinear, which is only read in front of a "
               "MatMulInteger whose sums are then multiplied by its scale",
               v->name);
        return NULL;
    }
    if (v->text)
        return v->text;
    if (v->num_list >= 0) {
        refuse(im, "'%.60s' is a list of sizes, which the language cannot compute with", v->name);
        return NULL;
    }
    const OnnxTensor *t = known_values(im, v);
    if (!t)
        return NULL;
    if (!t->elements || t->type == ONNX_STRING) {
        refuse(im, "'%.60s' %s", v->name, t->elements ? "holds strings" : "is empty");
        return NULL;
    }
    if (t->elements == 1 && is_float(t->type) && isfinite(onnx_real(t, 0)))
        return number_text(im, onnx_real(t, 0));
    return tensor_param(im, t, v->is_turned);
}

const char *float_operand(Import *im, Value *v)
{
    const char *text = operand(im, v);

    if (text && v->is_codes) {
        refuse(im, "its operand is of %s", onnx_type(v->type)->name);
        return NULL;
    }
    return text;
}

const char *weight_param(Import *im, const Value *v, bool is_turned)
{
    return tensor_param(im, v->known, is_turned);
}

/* Codes ---------------------------------------------------------------------------------------- */

static bool has_zeros(const Coded *c)
{
    for (uint64_t i = 0; c->zero && i < c->zero->elements; i++)
        if (onnx_integer(c->zero, i))
            return true;
    return false;
}

/* Scales and zero points as [rows, groups] of the weight [N, K]; when turned, they lie as
 * [groups, rows]. */
static void put_cells(Import *im, Param *p, const Coded *c, const char *name, const int64_t *cells,
                      bool is_turned, bool with_scales)
{
    int64_t rows = cells[0], groups = cells[1];
    int flip = p->item[0]->flip;
    float *scale = ARENA_NEW_ARRAY(im->arena, float, (size_t)(rows * groups));
    int8_t *zero = ARENA_NEW_ARRAY(im->arena, int8_t, (size_t)(rows * groups));
    int rank = p->group[0] == 't' ? 1 : 2;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            uint64_t at = (uint64_t)(is_turned ? g * rows + r : r * groups + g);
            scale[r * groups + g] = with_scales ? coded_scale(c, at) : 1;
            zero[r * groups + g] = (int8_t)(coded_zero(c, at) - flip);
        }
    p->item[1] =
        item_new(im, arena_printf(im->arena, "%s.weight_scale", name), FMT_F32, rank, cells);
    p->item[1]->own = scale;
    if (!has_zeros(c) && !flip)
        return;
    p->item[2] =
        item_new(im, arena_printf(im->arena, "%s.weight_zero_point", name), FMT_I8, rank, cells);
    p->item[2]->own_codes = zero;
    p->group = arena_printf(im->arena, "%s asym", p->group);
}

/* The weight [N, K] of codes, of int8, since that is how compressed-tensors keeps them: those of
 * uint8 and their zero points are moved by 128. */
const char *coded_param(Import *im, const Value *v, bool is_turned, bool with_scales)
{
    const Coded *c = v->coded;
    const OnnxTensor *t = c->codes;
    const char *key = arena_printf(im->arena, "%p %p %d %d", (const void *)t,
                                   (const void *)c->scale, is_turned, with_scales);
    Param *p = map_get(&im->params, key);
    int64_t dim[2] = {t->dim[is_turned], t->dim[!is_turned]}, cells[2] = {1, 1};

    if (p)
        return p->name;
    p = param_new(im, key, t->name, FMT_F32, 2, dim);
    const char *name = free_name(im, t->name);
    p->item[0] = item_new(im, arena_printf(im->arena, "%s.weight", name), FMT_I8, 2, dim);
    p->item[0]->from = t;
    p->item[0]->is_turned = is_turned;
    p->item[0]->flip = t->type == ONNX_U8 ? 128 : 0;
    p->group = "tensor";
    if (c->axis >= 0) {
        cells[0] = dim[0];
        p->group = "channel";
    }
    if (c->block) {
        cells[1] = dim[1] / c->block + (dim[1] % c->block != 0);
        p->group = arena_printf(im->arena, "%lld", (long long)c->block);
    }
    put_cells(im, p, c, name, cells, is_turned, with_scales);
    return p->name;
}

/* Bytes ---------------------------------------------------------------------------------------- */

static void fill_turned(const OnnxItem *item, uint64_t size, uint8_t *to)
{
    const OnnxTensor *t = item->from;
    uint64_t rows = (uint64_t)item->dim[0], cols = (uint64_t)item->dim[1];

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t k = 0; k < cols; k++, to += size)
            memcpy(to, t->data + (k * rows + r) * size, (size_t)size);
}

/* Codes of 4 bits, one a byte. */
static void fill_wide(const OnnxItem *item, uint8_t *to)
{
    uint64_t rows = (uint64_t)item->dim[0], cols = (uint64_t)item->dim[1];

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t k = 0; k < cols; k++)
            *to++ =
                (uint8_t)onnx_integer(item->from, item->is_turned ? k * rows + r : r * cols + k);
}

void onnx_item_fill(const OnnxItem *item, void *ret)
{
    uint64_t size = (uint64_t)format_info[item->fmt].bits / 8, num = 1;
    uint8_t *byte = ret;

    for (int i = 0; i < item->rank; i++)
        num *= (uint64_t)item->dim[i];
    if (item->own)
        memcpy(ret, item->own, (size_t)(num * size));
    else if (item->own_codes)
        memcpy(ret, item->own_codes, (size_t)(num * size));
    else if (onnx_type(item->from->type)->bits == 4)
        fill_wide(item, ret);
    else if (item->is_turned)
        fill_turned(item, size, ret);
    else
        memcpy(ret, item->from->data, (size_t)(num * size));
    for (uint64_t i = 0; item->flip && i < num; i++)
        byte[i] ^= item->flip;
}
