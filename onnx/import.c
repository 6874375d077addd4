/* onnx/import: the walk over the graph's nodes, which ONNX orders so that values are made before
 * they are read, and what the operations ask of nodes and values. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

static const struct NodeInfo {
    const char *name, *domain;
    int from, to, least, most, outs;
    NodeFn *fn;
} node_info[] = {
#define NODE(name, domain, from, to, least, most, outs, fn) \
    {name, domain, from, to, least, most, outs, node_##fn},
#include "onnx/ops.def"
#undef NODE
};

/* Messages ------------------------------------------------------------------------------------- */

bool refuse(Import *im, const char *fmt, ...)
{
    const OnnxNode *node = im->node;
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!node) {
        diag_error(im->diag, (Span){0}, E_ONNX_NODE, "%s: %s", im->m->path, text);
        return false;
    }
    diag_error(im->diag, (Span){0}, E_ONNX_NODE, "%s: node %d '%.100s' (%.60s of %s, set %lld): %s",
               im->m->path, node->index,
               node->name[0]   ? node->name
               : node->out.num ? node->out.elem[0]
                               : "",
               node->op, node->domain[0] ? node->domain : "ai.onnx",
               (long long)onnx_opset(im->m, node->domain), text);
    return false;
}

void note(Import *im, const char *fmt, ...)
{
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    map_put(&im->notes, text, im);
}

/* Nodes ---------------------------------------------------------------------------------------- */

const OnnxAttr *attr_find(const OnnxNode *node, const char *name)
{
    for (int i = 0; i < node->attrs.num; i++)
        if (!strcmp(node->attrs.elem[i]->name, name))
            return node->attrs.elem[i];
    return NULL;
}

int64_t attr_int(const OnnxNode *node, const char *name, int64_t otherwise)
{
    const OnnxAttr *attr = attr_find(node, name);
    return attr ? attr->integer : otherwise;
}

float attr_real(const OnnxNode *node, const char *name, float otherwise)
{
    const OnnxAttr *attr = attr_find(node, name);
    return attr ? attr->real : otherwise;
}

bool attr_is(const OnnxNode *node, const char *name, const char *text, bool otherwise)
{
    const OnnxAttr *attr = attr_find(node, name);
    if (!attr)
        return otherwise;
    return attr->text.size == strlen(text) && !memcmp(attr->text.data, text, strlen(text));
}

bool known_integers(const Value *v)
{
    return v->known && (v->known->type == ONNX_I64 || v->known->type == ONNX_I32);
}

bool ints_of(Import *im, const OnnxNode *node, const char *name, const Value *v, int *ret_num,
             int64_t *ret)
{
    const OnnxAttr *attr = attr_find(node, name);
    uint64_t num = v && v->known ? v->known->elements : attr ? (uint64_t)attr->ints.num : 0;

    if (v && !known_integers(v))
        return refuse(im, "its operand '%.60s' is not a list of known integers", v->name);
    if (num > LIMIT_RANK)
        return refuse(im, "'%.60s' has %llu numbers, more than dimensions are read", name,
                      (unsigned long long)num);
    *ret_num = (int)num;
    for (uint64_t i = 0; i < num; i++)
        ret[i] = v ? onnx_integer(v->known, i) : attr->ints.elem[i];
    return true;
}

int axis_of(Import *im, int64_t axis, int rank)
{
    if (axis >= -rank && axis < rank)
        return (int)(axis < 0 ? axis + rank : axis);
    refuse(im, "axis %lld of a tensor of %d dimensions", (long long)axis, rank);
    return -1;
}

int uses_of(const Import *im, const char *name)
{
    return (int)(intptr_t)map_get(&im->uses, name);
}

const OnnxNode *reader_of(const Import *im, const char *name)
{
    return uses_of(im, name) == 1 ? map_get(&im->readers, name) : NULL;
}

const OnnxNode *maker_of(const Import *im, const char *name)
{
    return map_get(&im->makers, name);
}

/* Values --------------------------------------------------------------------------------------- */

Value *value_find(const Import *im, const char *name)
{
    return *name ? map_get(&im->values, name) : NULL;
}

static Value *value_new(Import *im, const char *name)
{
    Value *v = ARENA_NEW(im->arena, Value);

    v->name = name;
    v->num_list = -1;
    v->factor = 1;
    if (*name)
        map_put(&im->values, name, v);
    return v;
}

Size size_of(int64_t n)
{
    return (Size){.n = n};
}

bool size_equal(Size a, Size b)
{
    return a.n == b.n && a.sym[0] == b.sym[0] && a.sym[1] == b.sym[1];
}

/* Symbols in ascending order, so that equal sizes are equal. */
bool size_mul(Size a, Size b, Size *ret)
{
    int sym[4] = {a.sym[0], a.sym[1], b.sym[0], b.sym[1]}, num = 0;
    uint64_t n;

    *ret = (Size){0};
    if (!checked_mul((uint64_t)a.n, (uint64_t)b.n, &n) || n > LIMIT_DIM)
        return false;
    ret->n = (int64_t)n;
    for (int i = 0; i < 4; i++) {
        if (!sym[i])
            continue;
        if (num == 2)
            return false;
        ret->sym[num++] = sym[i];
    }
    if (num == 2 && ret->sym[0] > ret->sym[1]) {
        int first = ret->sym[0];
        ret->sym[0] = ret->sym[1];
        ret->sym[1] = first;
    }
    return true;
}

bool is_one(const Value *v)
{
    return v->known && v->known->elements == 1;
}

bool known_number(const Value *v, double *ret)
{
    if (!v || !is_one(v) || !(is_float(v->type) || onnx_type(v->type)->most || known_integers(v)))
        return false;
    *ret = onnx_real(v->known, 0);
    return true;
}

void like(Value *v, const Value *x)
{
    v->type = x->type;
    v->rank = x->rank;
    memcpy(v->dim, x->dim, sizeof v->dim);
}

bool is_float(OnnxType type)
{
    return type == ONNX_F32 || type == ONNX_F16 || type == ONNX_BF16 || type == ONNX_F64;
}

static void value_known(Value *v, const OnnxTensor *t)
{
    v->known = t;
    v->type = t->type;
    v->rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        v->dim[i] = size_of(t->dim[i]);
}

OnnxTensor *tensor_new(Import *im, const char *name, OnnxType type, int rank, const int64_t *dim)
{
    OnnxTensor *t = ARENA_NEW(im->arena, OnnxTensor);

    t->name = name;
    t->type = type;
    t->rank = rank;
    t->elements = 1;
    for (int i = 0; i < rank; i++) {
        t->dim[i] = dim[i];
        t->elements *= (uint64_t)dim[i];
    }
    t->bytes = t->elements * (uint64_t)(onnx_type(type)->bits / 8);
    t->data = arena_alloc(im->arena, (size_t)t->bytes + 8);
    return t;
}

bool node_constant(Import *im, const OnnxNode *node, Value **in, Value **out)
{
    const OnnxAttr *attr = node->attrs.num == 1 ? node->attrs.elem[0] : NULL;
    OnnxTensor *t = attr ? attr->tensor : NULL;
    int64_t num;

    (void)in;
    if (attr && !strcmp(attr->name, "value_float")) {
        t = tensor_new(im, out[0]->name, ONNX_F32, 0, NULL);
        memcpy((void *)(uintptr_t)t->data, &attr->real, 4);
    } else if (attr && !strcmp(attr->name, "value_int")) {
        t = tensor_new(im, out[0]->name, ONNX_I64, 0, NULL);
        memcpy((void *)(uintptr_t)t->data, &attr->integer, 8);
    } else if (attr && !strcmp(attr->name, "value_floats")) {
        num = attr->floats.num;
        t = tensor_new(im, out[0]->name, ONNX_F32, 1, &num);
        if (num)
            memcpy((void *)(uintptr_t)t->data, attr->floats.elem, (size_t)num * 4);
    } else if (attr && !strcmp(attr->name, "value_ints")) {
        num = attr->ints.num;
        t = tensor_new(im, out[0]->name, ONNX_I64, 1, &num);
        if (num)
            memcpy((void *)(uintptr_t)t->data, attr->ints.elem, (size_t)num * 8);
    }
    if (!t)
        return refuse(im, "its value is not a tensor of numbers");
    if (!t->name[0])
        t->name = out[0]->name;
    value_known(out[0], t);
    return true;
}

/* The graph ------------------------------------------------------------------------------------ */

static int symbol_of(Import *im, const char *name)
{
    for (int i = 0; i < im->symbols.num; i++)
        if (!strcmp(im->symbols.elem[i].name, name))
            return i + 1;
    Symbol symbol = {name, word_new(im, name)};
    ARRAY_PUSH(im->arena, &im->symbols, symbol);
    return im->symbols.num;
}

static bool constant_add(Import *im, const OnnxTensor *t)
{
    if (map_has(&im->values, t->name) || !*t->name)
        return refuse(im, "two constants are called '%.100s'", t->name);
    value_known(value_new(im, t->name), t);
    return true;
}

static bool output_add(Import *im, const char *name)
{
    if (map_has(&im->out_words, name))
        return refuse(im, "two outputs are called '%.100s'", name);
    map_put(&im->out_words, name, (void *)(uintptr_t)word_new(im, name));
    return true;
}

static bool input_add(Import *im, const OnnxPort *port, int index)
{
    const OnnxTypeInfo *type = onnx_type(port->type);

    if (value_find(im, port->name) || !*port->name || port->rank < 0)
        return refuse(im, "input %d '%.100s' has no name of its own or no shape", index,
                      port->name);
    Value *v = value_new(im, port->name);
    v->bad = true;
    bool plain = port->type == ONNX_F32 || port->type == ONNX_F16 || port->type == ONNX_BF16;
    if (!plain && !type->most)
        return refuse(im, "input '%.100s' is of %s, which the language has not", port->name,
                      type->name);
    v->type = port->type;
    v->rank = port->rank;
    for (int i = 0; i < port->rank; i++) {
        const char *symbol = port->symbol[i];
        v->dim[i] = size_of(port->dim[i] ? port->dim[i] : 1);
        if (port->dim[i])
            continue;
        if (!symbol || !*symbol)
            symbol = i ? arena_printf(im->arena, "%s_%d", port->name, i) : "B";
        v->dim[i].sym[0] = symbol_of(im, symbol);
    }
    v->text = word_new(im, port->name);
    v->is_codes = !plain;
    v->raw = v->is_codes ? v->text : NULL;
    v->bad = false;
    return true;
}

static const struct NodeInfo *info_of(Import *im, const OnnxNode *node)
{
    int64_t opset = onnx_opset(im->m, node->domain);
    const struct NodeInfo *near = NULL;

    for (size_t i = 0; i < COUNT_OF(node_info); i++) {
        const struct NodeInfo *info = &node_info[i];
        if (strcmp(info->name, node->op) || strcmp(info->domain, node->domain))
            continue;
        near = info;
        if (opset >= info->from && opset <= info->to)
            return info;
    }
    if (near)
        refuse(im, "the operation is read of sets %d to %d", near->from, near->to);
    else
        refuse(im, "this operation is not read");
    return NULL;
}

static bool node_read(Import *im, const OnnxNode *node)
{
    Value *in[64] = {NULL}, *out[64];
    const struct NodeInfo *info;
    bool bad = node->in.num > 64 || node->out.num > 64 || !node->out.num;

    im->node = node;
    for (int i = 0; i < node->in.num && i < 64; i++) /* before there are its own results */
        in[i] = value_find(im, node->in.elem[i]);
    for (int i = 0; i < node->out.num; i++) {
        if (*node->out.elem[i] && value_find(im, node->out.elem[i]))
            return refuse(im, "the value '%.60s' is made twice", node->out.elem[i]);
        Value *v = value_new(im, node->out.elem[i]);
        v->bad = true;
        if (i < 64)
            out[i] = v;
    }
    if (bad)
        return refuse(im, "it has %d operands and %d results", node->in.num, node->out.num);
    if (!(info = info_of(im, node)))
        return false;
    if (node->in.num < info->least || (info->most >= 0 && node->in.num > info->most) ||
        (info->outs >= 0 && node->out.num > info->outs))
        return refuse(im, "it has %d operands and %d results", node->in.num, node->out.num);
    for (int i = 0; i < node->in.num; i++) {
        if (!in[i] && (*node->in.elem[i] || i < info->least || info->most < 0))
            return refuse(im, "nothing before it makes its operand %d, '%.60s'", i,
                          node->in.elem[i]);
        if (in[i] && in[i]->bad)
            return false; /* said where it was made */
    }
    Value *gelu = map_get(&im->gelus, node->out.elem[0]);
    bool ok = true;
    int errors = im->diag->num_errors;
    if (gelu) {
        like(out[0], gelu);
        say_value(im, out[0], "gelu(%s)", gelu->text);
    } else if (!map_has(&im->done, node->out.elem[0])) {
        ok = info->fn(im, node, in, out);
    }
    ok = ok && im->diag->num_errors == errors; /* a number that cannot be said */
    for (int i = 0; i < node->out.num; i++)
        out[i]->bad = !ok;
    return ok;
}

static void count_uses(Import *im)
{
    for (int i = 0; i < im->m->nodes.num; i++)
        for (int k = 0; k < im->m->nodes.elem[i]->in.num; k++) {
            const char *name = im->m->nodes.elem[i]->in.elem[k];
            map_put(&im->uses, name, (void *)(intptr_t)(uses_of(im, name) + 1));
            map_put(&im->readers, name, im->m->nodes.elem[i]);
        }
    for (int i = 0; i < im->m->nodes.num; i++)
        for (int k = 0; k < im->m->nodes.elem[i]->out.num; k++)
            map_put(&im->makers, im->m->nodes.elem[i]->out.elem[k], im->m->nodes.elem[i]);
    for (int i = 0; i < im->m->outputs.num; i++) {
        const char *name = im->m->outputs.elem[i]->name;
        map_put(&im->uses, name, (void *)(intptr_t)(uses_of(im, name) + 1));
    }
}

static bool sets_are_read(Import *im)
{
    im->opset = onnx_opset(im->m, "");
    if (im->opset >= 11 && im->opset <= 21)
        return true;
    diag_error(im->diag, (Span){0}, E_ONNX_NODE,
               "%s: its operations are of set %lld, and sets 11 to 21 are read", im->m->path,
               (long long)im->opset);
    diag_help(im->diag, "convert it: onnx.version_converter.convert_version(model, 17)");
    return false;
}

bool onnx_import(Arena *arena, Diag *diag, const OnnxModel *m, OnnxText *ret)
{
    Import im = {.arena = arena, .diag = diag, .m = m};
    Map *map[] = {&im.values, &im.words,   &im.params,   &im.item_names, &im.schemes,
                  &im.notes,  &im.uses,    &im.done,     &im.readers,    &im.makers,
                  &im.gelus,  &im.decoded, &im.out_words};
    bool ok = true;

    *ret = (OnnxText){0};
    for (size_t i = 0; i < COUNT_OF(map); i++)
        map_init(map[i], arena);
    if (!sets_are_read(&im))
        return false;
    for (int i = 0; i < m->initializers.num; i++)
        ok = constant_add(&im, m->initializers.elem[i]) && ok;
    for (int i = 0; i < m->outputs.num; i++)
        ok = output_add(&im, m->outputs.elem[i]->name) && ok;
    for (int i = 0; i < m->inputs.num; i++)
        ok = input_add(&im, m->inputs.elem[i], i) && ok;
    count_uses(&im);
    for (int i = 0; i < m->nodes.num; i++) {
        ok = node_read(&im, m->nodes.elem[i]) && ok;
    }
    im.node = NULL;
    return ok && text_write(&im, ret);
}
