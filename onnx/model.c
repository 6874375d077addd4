/* onnx/model: ModelProto and what it holds, down to attributes. Fields that say nothing about the
 * graph's results are skipped; those that change them and are not read (functions, sparse weights,
 * graphs inside of nodes) are refused where they stand. */
#include "onnx/onnx.h"

#include <string.h>

enum { MAX_NODES = 1 << 20 };

/* Attributes ----------------------------------------------------------------------------------- */

enum { ATTR_FLOAT = 2, ATTR_INT = 3, ATTR_STRING = 4, ATTR_TENSOR = 5, ATTR_GRAPH = 6 };
enum { ATTR_FLOATS = 7, ATTR_INTS = 8, ATTR_TYPE = 20, ATTR_REF = 21 };

static bool read_floats(OnnxModel *m, Wire *w, const WireField *f, OnnxAttr *attr)
{
    if (f->kind != WIRE_BYTES) {
        ARRAY_PUSH(m->arena, &attr->floats, num_float((unsigned)f->value));
        return true;
    }
    if (f->bytes.size % 4)
        return wire_fail(w, "a list of floats of %llu bytes", (unsigned long long)f->bytes.size);
    for (uint64_t i = 0; i < f->bytes.size; i += 4) {
        float value;
        memcpy(&value, f->bytes.data + i, sizeof value);
        ARRAY_PUSH(m->arena, &attr->floats, value);
    }
    return true;
}

static bool read_ints(OnnxModel *m, Wire *w, const WireField *f, OnnxAttr *attr)
{
    uint64_t value = f->value;

    if (f->kind != WIRE_BYTES) {
        ARRAY_PUSH(m->arena, &attr->ints, (int64_t)value);
        return true;
    }
    Wire in = wire_inside(w, f, "list of integers");
    while (in.at < in.end && wire_varint(&in, &value))
        ARRAY_PUSH(m->arena, &attr->ints, (int64_t)value);
    w->failed = in.failed;
    return !in.failed;
}

static OnnxAttr *read_attr(OnnxModel *m, Wire *w)
{
    OnnxAttr *attr = ARENA_NEW(m->arena, OnnxAttr);
    WireField f;

    attr->name = "";
    while (wire_next(w, &f)) {
        switch (f.number) {
        case 1: attr->name = wire_text(w, m->arena, &f); break;
        case ATTR_FLOAT: attr->real = num_float((unsigned)f.value); break;
        case ATTR_INT: attr->integer = (int64_t)f.value; break;
        case ATTR_STRING: attr->text = f.bytes; break;
        case ATTR_TENSOR: {
            Wire in = wire_inside(w, &f, "tensor");
            attr->tensor = in.failed ? NULL : onnx_tensor_read(m, &in);
            w->failed = in.failed;
            break;
        }
        case ATTR_FLOATS: read_floats(m, w, &f, attr); break;
        case ATTR_INTS: read_ints(m, w, &f, attr); break;
        case ATTR_TYPE: attr->type = (int)(f.value & 63); break;
        case ATTR_GRAPH: wire_fail(w, "a graph inside of a node, which is not read"); break;
        case ATTR_REF: wire_fail(w, "an attribute of a function, which is not read"); break;
        default: break;
        }
    }
    return w->failed ? NULL : attr;
}

/* Nodes ---------------------------------------------------------------------------------------- */

static bool read_node(OnnxModel *m, Wire *w)
{
    OnnxNode *node = ARENA_NEW(m->arena, OnnxNode);
    WireField f;

    node->name = node->op = node->domain = "";
    node->at = (uint64_t)(w->at - w->base);
    node->index = m->nodes.num;
    while (wire_next(w, &f)) {
        switch (f.number) {
        case 1: ARRAY_PUSH(m->arena, &node->in, wire_text(w, m->arena, &f)); break;
        case 2: ARRAY_PUSH(m->arena, &node->out, wire_text(w, m->arena, &f)); break;
        case 3: node->name = wire_text(w, m->arena, &f); break;
        case 4: node->op = wire_text(w, m->arena, &f); break;
        case 5: {
            Wire in = wire_inside(w, &f, "attribute");
            OnnxAttr *attr = in.failed ? NULL : read_attr(m, &in);
            w->failed = in.failed;
            if (attr)
                ARRAY_PUSH(m->arena, &node->attrs, attr);
            break;
        }
        case 7: node->domain = wire_text(w, m->arena, &f); break;
        default: break;
        }
    }
    if (!strcmp(node->domain, "ai.onnx"))
        node->domain = "";
    if (!w->failed && m->nodes.num == MAX_NODES)
        return wire_fail(w, "more than %d nodes", MAX_NODES);
    ARRAY_PUSH(m->arena, &m->nodes, node);
    return !w->failed;
}

/* Inputs and outputs --------------------------------------------------------------------------- */

static bool read_dim(OnnxModel *m, Wire *w, OnnxPort *port)
{
    WireField f;

    if (port->rank == LIMIT_RANK)
        return wire_fail(w, "'%.100s' has more than %d dimensions", port->name, LIMIT_RANK);
    int at = port->rank++;
    while (wire_next(w, &f)) {
        if (f.number == 1 && f.value <= LIMIT_DIM)
            port->dim[at] = (int64_t)f.value;
        else if (f.number == 1)
            wire_fail(w, "'%.100s' has a dimension of %lld", port->name, (long long)f.value);
        else if (f.number == 2)
            port->symbol[at] = wire_text(w, m->arena, &f);
    }
    return !w->failed;
}

/* A message that holds one of number `number`: TypeProto, its Tensor, its TensorShapeProto. */
static bool read_type(OnnxModel *m, Wire *w, OnnxPort *port, int depth)
{
    static const char *const what[] = {"type", "tensor's type", "shape", "dimension"};
    WireField f;

    while (wire_next(w, &f)) {
        if (depth == 1 && f.number == 1 && f.kind == WIRE_VARINT) {
            port->type = (OnnxType)(f.value & 63);
            continue;
        }
        if (f.number != (depth == 1 ? 2u : 1u))
            continue;
        Wire in = wire_inside(w, &f, what[depth + 1]);
        if (depth == 1)
            port->rank = 0;
        if (!in.failed && depth == 2)
            read_dim(m, &in, port);
        else if (!in.failed)
            read_type(m, &in, port, depth + 1);
        w->failed = in.failed;
    }
    return !w->failed;
}

static OnnxPort *read_port(OnnxModel *m, Wire *w)
{
    OnnxPort *port = ARENA_NEW(m->arena, OnnxPort);
    WireField f;

    port->name = "";
    port->rank = -1;
    while (wire_next(w, &f)) {
        if (f.number == 1)
            port->name = wire_text(w, m->arena, &f);
        if (f.number != 2)
            continue;
        Wire in = wire_inside(w, &f, "type");
        if (!in.failed)
            read_type(m, &in, port, 0);
        w->failed = in.failed;
    }
    return w->failed ? NULL : port;
}

/* Graph and model ------------------------------------------------------------------------------ */

static bool read_graph_field(OnnxModel *m, Wire *w, const WireField *f)
{
    static const char *const what[] = {
        [1] = "node", [5] = "tensor", [11] = "input", [12] = "output"};
    OnnxTensor *tensor;
    OnnxPort *port;

    if (f->number == 2)
        m->graph = wire_text(w, m->arena, f);
    if (f->number == 15)
        return wire_fail(w, "a sparse tensor, which is not read");
    if (f->number > 12 || !what[f->number])
        return true;
    Wire in = wire_inside(w, f, what[f->number]);
    if (!in.failed && f->number == 1)
        read_node(m, &in);
    else if (!in.failed && f->number == 5 && (tensor = onnx_tensor_read(m, &in)))
        ARRAY_PUSH(m->arena, &m->initializers, tensor);
    else if (!in.failed && f->number == 11 && (port = read_port(m, &in)))
        ARRAY_PUSH(m->arena, &m->inputs, port);
    else if (!in.failed && (port = read_port(m, &in)))
        ARRAY_PUSH(m->arena, &m->outputs, port);
    w->failed = in.failed;
    return !w->failed;
}

static bool read_opset(OnnxModel *m, Wire *w)
{
    OnnxOpset opset = {.domain = ""};
    WireField f;

    while (wire_next(w, &f)) {
        if (f.number == 1)
            opset.domain = wire_text(w, m->arena, &f);
        if (f.number == 2)
            opset.version = (int64_t)f.value;
    }
    if (!strcmp(opset.domain, "ai.onnx"))
        opset.domain = "";
    ARRAY_PUSH(m->arena, &m->opsets, opset);
    return !w->failed;
}

static bool read_model(OnnxModel *m, Wire *w)
{
    WireField f;
    int graphs = 0;

    while (wire_next(w, &f)) {
        if (f.number == 25) {
            wire_fail(w, "functions, which are not read: inline them (onnx.inliner)");
        } else if (f.number == 8) {
            Wire in = wire_inside(w, &f, "set of operations");
            w->failed = in.failed || !read_opset(m, &in);
        } else if (f.number == 7) {
            Wire in = wire_inside(w, &f, "graph");
            WireField g;
            graphs++;
            while (wire_next(&in, &g))
                read_graph_field(m, &in, &g);
            w->failed = in.failed;
        }
    }
    if (!w->failed && (graphs != 1 || !m->opsets.num))
        return wire_fail(w, "%d graphs and %d sets of operations: this is no ONNX model", graphs,
                         m->opsets.num);
    return !w->failed;
}

/* Weights were inputs, too, until version 4 of the format. */
static void drop_known_inputs(OnnxModel *m)
{
    Map known;
    int num = 0;

    map_init(&known, m->arena);
    for (int i = 0; i < m->initializers.num; i++)
        map_put(&known, m->initializers.elem[i]->name, m);
    for (int i = 0; i < m->inputs.num; i++)
        if (!map_has(&known, m->inputs.elem[i]->name))
            m->inputs.elem[num++] = m->inputs.elem[i];
    m->inputs.num = num;
}

static bool parse(OnnxModel *m, const void *data, uint64_t size, IoError *err)
{
    const uint8_t *base = data;
    Wire w = {.file = m->path, .what = "model", .base = base, .at = base, .err = err};

    w.end = base + size;
    map_init(&m->external_by_path, m->arena);
    m->graph = "";
    if (!read_model(m, &w))
        return false;
    drop_known_inputs(m);
    return true;
}

OnnxModel *onnx_parse(Arena *arena, const char *path, const void *data, uint64_t size, IoError *err)
{
    OnnxModel *m = ARENA_NEW(arena, OnnxModel);

    m->arena = arena;
    m->path = path;
    return parse(m, data, size, err) ? m : NULL;
}

OnnxModel *onnx_open(Arena *arena, const char *path, IoError *err)
{
    OnnxModel *m = ARENA_NEW(arena, OnnxModel);

    m->arena = arena;
    m->path = path;
    if (!file_map(path, &m->file, err))
        return NULL;
    if (parse(m, m->file.data, m->file.size, err))
        return m;
    onnx_close(m);
    return NULL;
}

void onnx_close(OnnxModel *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->external.num; i++)
        file_unmap(&m->external.elem[i]);
    if (m->file.data)
        file_unmap(&m->file);
}

int64_t onnx_opset(const OnnxModel *m, const char *domain)
{
    for (int i = 0; i < m->opsets.num; i++)
        if (!strcmp(m->opsets.elem[i].domain, domain))
            return m->opsets.elem[i].version;
    return 0;
}
