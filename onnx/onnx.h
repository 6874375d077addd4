/* onnx: models of ONNX, read in place and rewritten as texts. Two layers: the file (wire.c,
 * model.c, tensor.c), whose every length, count and size is checked before it is used; and the
 * graph (import.c and what it calls), node after node to a statement each. What the language cannot
 * say exactly is refused by the node's name.
 *
 * The wire format of protocol buffers is read by our own reader: a model is mapped and its weights
 * stay where they lie, where protobuf-c would copy all of them and need its schema compiled in. */
#ifndef SINTER_ONNX_H
#define SINTER_ONNX_H

#include "base/base.h"
#include "io/io.h"

/* wire.c --------------------------------------------------------------------------------------- */

typedef struct OnnxBytes {
    const uint8_t *data;
    uint64_t size;
} OnnxBytes;

/* One field of a message. */
typedef struct WireField {
    uint32_t number;
    enum { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 5 } kind;
    uint64_t value;  /* of a varint or a fixed one */
    OnnxBytes bytes; /* of bytes, strings, messages, packed numbers */
} WireField;
/* A walk over the fields of a message. */
typedef struct Wire {
    const char *file, *what; /* for messages: "node" */
    const uint8_t *base;     /* of the file */
    const uint8_t *at, *end;
    IoError *err;
    bool failed;
} Wire;
bool wire_next(Wire *w, WireField *ret); /* false at the end, or after an error: w->failed */
Wire wire_inside(const Wire *w, const WireField *field, const char *what);
bool wire_fail(Wire *w, const char *fmt, ...) PRINTF_LIKE(2, 3); /* returns false */
bool wire_varint(Wire *w, uint64_t *ret);
/* A string that must be UTF-8 without NUL; "" after an error. */
const char *wire_text(Wire *w, Arena *arena, const WireField *field);

/* model.c -------------------------------------------------------------------------------------- */

/* Types of elements, by ONNX's numbers: ONNX_F32 = 1. */
typedef enum OnnxType {
    ONNX_NO_TYPE,
#define ONNX_TYPE(ID, number, name, bits, fmt, least, most) ONNX_##ID = number,
#include "onnx/types.def"
#undef ONNX_TYPE
} OnnxType;
typedef struct OnnxTypeInfo {
    const char *name;
    int bits;
    FormatId fmt;    /* FMT_NONE: not one of ours */
    int least, most; /* of integers that codes are stored as; 0, 0: no codes */
} OnnxTypeInfo;
const OnnxTypeInfo *onnx_type(OnnxType type); /* never NULL: "unknown" */

typedef struct OnnxTensor {
    const char *name;
    OnnxType type;
    int rank;
    int64_t dim[LIMIT_RANK];
    uint64_t elements, bytes;
    const uint8_t *data; /* little-endian, not aligned */
} OnnxTensor;

typedef struct OnnxAttr {
    const char *name;
    int type; /* ONNX's: 1 float, 2 int, 3 string, 4 tensor, 6 floats, 7 ints */
    float real;
    int64_t integer;
    OnnxBytes text;
    OnnxTensor *tensor;
    ARRAY(int64_t) ints;
    ARRAY(float) floats;
} OnnxAttr;

typedef struct OnnxNode {
    const char *name, *op, *domain; /* "" for a name that is not given and ONNX's own domain */
    ARRAY(const char *) in;         /* "": left out */
    ARRAY(const char *) out;
    ARRAY(OnnxAttr *) attrs;
    uint64_t at; /* byte of the file */
    int index;
} OnnxNode;

/* An input or output of the graph. */
typedef struct OnnxPort {
    const char *name;
    OnnxType type;
    int rank;                       /* -1: not given */
    int64_t dim[LIMIT_RANK];        /* 0: .. */
    const char *symbol[LIMIT_RANK]; /* .. by this name; NULL: without one */
} OnnxPort;

typedef struct OnnxOpset {
    const char *domain;
    int64_t version;
} OnnxOpset;

typedef struct OnnxModel {
    Arena *arena;
    const char *path, *graph;
    MappedFile file;
    ARRAY(MappedFile) external;
    Map external_by_path; /* to indices + 1 */
    ARRAY(OnnxOpset) opsets;
    ARRAY(OnnxNode *) nodes;
    ARRAY(OnnxTensor *) initializers;
    ARRAY(OnnxPort *) inputs; /* those that are initializers too are left out */
    ARRAY(OnnxPort *) outputs;
} OnnxModel;

/* NULL after filling err (E_ONNX and others). The arena holds everything but the mappings. */
OnnxModel *onnx_open(Arena *arena, const char *path, IoError *err);
/* The same over bytes that outlive the result, without external data. */
OnnxModel *onnx_parse(Arena *arena, const char *path, const void *data, uint64_t size,
                      IoError *err);
void onnx_close(OnnxModel *m);                              /* accepts NULL */
int64_t onnx_opset(const OnnxModel *m, const char *domain); /* 0: not imported */

/* tensor.c: TensorProto. External data are mapped; `m` keeps the mapping. */
OnnxTensor *onnx_tensor_read(OnnxModel *m, Wire *w);
/* Elements, as they are: of integers up to 64 bits. */
int64_t onnx_integer(const OnnxTensor *t, uint64_t i);
double onnx_real(const OnnxTensor *t, uint64_t i); /* of those, of f32, f64, f16 and bf16 */

/* import.c ------------------------------------------------------------------------------------- */

/* What a model becomes. */
typedef struct OnnxItem { /* a tensor of the weight file */
    const char *name;
    FormatId fmt;
    int rank;
    int64_t dim[LIMIT_RANK];
    const OnnxTensor *from;
    bool is_turned;   /* [K, N] of the model to [N, K] */
    uint8_t flip;     /* codes xor this: u8 to i8 */
    const float *own; /* values that the model does not hold as they are */
    const int8_t *own_codes;
} OnnxItem;
typedef struct OnnxText {
    const char *text;
    ARRAY(OnnxItem *) items;
    const char *config; /* config.json, which says how weights are stored quantised; or NULL */
    int num_layers, num_integer; /* linear layers; those whose products are of integers */
} OnnxText;
/* Refusals are in diag (E_ONNX_NODE), all of them; false then. */
bool onnx_import(Arena *arena, Diag *diag, const OnnxModel *m, OnnxText *ret);
/* The item's bytes, by the item's size and format. */
void onnx_item_fill(const OnnxItem *item, void *ret);

#endif
