/* onnx/import: what the files that turn nodes into statements share. Every value of the graph is
 * known (a constant), a list of sizes, or has a name in the text. Statements are written freely;
 * those that no output needs are left out at the end, so a value may have several forms. */
#ifndef SINTER_ONNX_IMPORT_H
#define SINTER_ONNX_IMPORT_H

#include "onnx/onnx.h"
#include "quant/quant.h"

/* n times up to two dims of the text, by their index + 1. */
typedef struct Size {
    int64_t n;
    int sym[2];
} Size;

/* A constant that was quantised: (codes - zero) * scale. */
typedef struct Coded {
    const OnnxTensor *codes, *scale, *zero; /* zero: NULL: all 0 */
    int axis;                               /* along which scales lie; -1: one scale */
    int64_t block; /* elements of that axis that share a scale; 0: one each */
} Coded;

typedef struct Value Value;
struct Value {
    const char *name;
    OnnxType type;
    int rank;
    Size dim[LIMIT_RANK];
    const char *text;        /* its name in the text; NULL: none */
    const OnnxTensor *known; /* a constant */
    bool is_turned;          /* known or coded, rank 2, and its axes changed places */
    const Coded *coded;
    int num_list; /* >= 0: a list of sizes */
    const Size *list;
    /* Codes: text is code - zero, an integer. raw: the same before it was rounded and clipped. */
    bool is_codes;
    int64_t zero;
    const char *raw;
    const Value *codes; /* of a value that was made of codes: text is codes * scale */
    float scale;
    /* Products of integers: text is acc * factor, or acc * factors, one a column. */
    const char *acc;
    float factor;
    const float *factors;
    /* Made by DynamicQuantizeLinear of this value: codes, the scale times factor(s), the zero
     * point, or products of the codes, which acc is once they are multiplied by the scale. */
    const Value *dynamic;
    enum { DYNAMIC_CODES, DYNAMIC_SCALE, DYNAMIC_ZERO, DYNAMIC_SUMS } part;
    /* Several matrices, of the last two axes: each by itself, beside the text for all. NULL: only
     * that (matrices.c). */
    const char *const *each;
    int num_each;
    const Value *cut; /* [.., M, H * N] that a reshape made [.., M, H, N] */
    const char *side; /* of [.., M, H, N]: [M, H * N] */
    bool bad;         /* a refusal was said already */
};

typedef struct Statement {
    const char *name, *expr;
} Statement;
typedef struct Param {
    const char *name, *type;
    OnnxItem *item[3]; /* codes, scales, zero points; or one */
    const char *group; /* of config.json: "tensor", "channel asym", "32"; NULL: plain */
} Param;

typedef struct Symbol {
    const char *name, *word; /* in the graph, in the text */
} Symbol;

typedef struct Import {
    Arena *arena;
    Diag *diag;
    const OnnxModel *m;
    int64_t opset;
    const OnnxNode *node; /* the one that is being read */
    Map values;           /* by ONNX's name */
    Map words;            /* taken in the text */
    Map params;           /* by what they are made of, to Param */
    Map item_names;
    Map schemes;         /* lines, to names */
    Map notes;           /* comments at the head of the text */
    Map uses;            /* of ONNX's names, to numbers of readers */
    Map readers, makers; /* the last node that reads, the one that makes a value */
    Map out_words;       /* the text's words for the graph's outputs */
    Map done;            /* results of nodes that a pattern took */
    Map gelus;           /* the result of a pattern's last node, to the operand */
    Map decoded;         /* constants that were quantised, to their values */
    ARRAY(Symbol) symbols;
    ARRAY(Statement) statements;
    ARRAY(Param *) param_list;
    int num_layers, num_integer;
    int num_forms; /* of single matrices (matrices.c) */
} Import;

typedef bool NodeFn(Import *im, const OnnxNode *node, Value **in, Value **out);

/* import.c: E_ONNX_NODE with the node's name, operation, domain and set. Returns false. */
bool refuse(Import *im, const char *fmt, ...) PRINTF_LIKE(2, 3);
void note(Import *im, const char *fmt, ...) PRINTF_LIKE(2, 3);
const OnnxAttr *attr_find(const OnnxNode *node, const char *name);
int64_t attr_int(const OnnxNode *node, const char *name, int64_t otherwise);
float attr_real(const OnnxNode *node, const char *name, float otherwise);
bool attr_is(const OnnxNode *node, const char *name, const char *text, bool otherwise);
bool known_integers(const Value *v);
/* The list of integers: an attribute, or a known operand. false after a refusal. */
bool ints_of(Import *im, const OnnxNode *node, const char *name, const Value *v, int *ret_num,
             int64_t *ret);
int axis_of(Import *im, int64_t axis, int rank); /* -1 after a refusal */
int uses_of(const Import *im, const char *name);
const OnnxNode *reader_of(const Import *im, const char *name); /* NULL: none or several */
const OnnxNode *maker_of(const Import *im, const char *name);
Value *value_find(const Import *im, const char *name);

/* text.c: words of the text; params.c: its params */
const char *word_new(Import *im, const char *hint); /* a name of the text's own that is free */
/* A statement; its name. */
const char *say(Import *im, const char *hint, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* .. of the value, rounded to its type where that is f16 or bf16 */
void say_value(Import *im, Value *v, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* In parentheses when negative; a refusal when it is infinite or NaN. */
const char *number_text(Import *im, double value);
const char *size_text(Import *im, Size size);
const char *sizes_text(Import *im, const Size *dim, int rank); /* "[B, 16]" */
/* The value as an operand: its name, a number, a param of a constant. NULL after a refusal. */
const char *operand(Import *im, Value *v);
/* .. of floats, or of sums of integers: codes lack their zero point. */
const char *float_operand(Import *im, Value *v);
/* A known tensor [K, N] or [N, K] as a weight of linear, [N, K]. */
const char *weight_param(Import *im, const Value *v, bool is_turned);
/* Floats that the model does not hold. */
const char *floats_param(Import *im, const char *hint, const float *value, int64_t num);
const char *coded_param(Import *im, const Value *v, bool is_turned, bool with_scales);
bool text_write(Import *im, OnnxText *ret);

/* values */
Size size_of(int64_t n);
bool size_equal(Size a, Size b);
bool size_mul(Size a, Size b, Size *ret);
bool is_one(const Value *v); /* known, and of one element */
bool known_number(const Value *v, double *ret);
void like(Value *v, const Value *x); /* type and shape */
bool is_float(OnnxType type);
OnnxTensor *tensor_new(Import *im, const char *name, OnnxType type, int rank, const int64_t *dim);
const OnnxTensor *known_values(Import *im, const Value *v); /* of coded ones, dequantised */

/* matrices.c: the forms by matrices of v, whose text is said, */
void matrices_moved(Import *im, const Value *x, Value *v, const int64_t *perm); /* transpose */
void matrices_reshaped(Import *im, const Value *x, Value *v);
void matrices_unary(Import *im, const Value *x, Value *v, const char *word);
void matrices_binary(Import *im, Value *a, Value *b, Value *v, char sign);
/* [.., M, K] by [.., K, N], of floats */
bool matrices_product(Import *im, Value *a, Value *b, Value *ret);

/* products.c, quantised.c */
float coded_scale(const Coded *c, uint64_t cell);
int64_t coded_zero(const Coded *c, uint64_t cell);
bool product(Import *im, Value *a, Value *b, bool is_turned, Value *bias, Value *ret);
/* text = acc times its factors */
void say_scaled(Import *im, Value *v);
bool dynamic_product(Import *im, Value *codes, const Value *zero, Value *b, Value *ret);
bool dynamic_scaled(Import *im, Value **in, Value *ret);
bool dequantize(Import *im, Value *x, const Value *scale, const Value *zero, int64_t axis,
                int64_t block, Value *ret);
bool quantize(Import *im, Value *x, const Value *scale, const Value *zero, OnnxType type,
              Value *ret);

NodeFn node_alias, node_unary, node_binary, node_variadic, node_clip, node_leaky, node_prelu,
    node_hard, node_gelu, node_erf, node_softmax, node_layernorm, node_rmsnorm, node_constant,
    node_cast, node_shape, node_gather, node_reshape, node_flatten, node_squeeze, node_transpose,
    node_concat, node_split, node_slice, node_gemm, node_matmul, node_matmul_integer,
    node_qlinear_matmul, node_qgemm, node_quantize, node_dequantize, node_dynamic;

#endif
