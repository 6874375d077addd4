/* ir: straight-line SSA over tensors. One struct for values, one for ops, every op a row of
 * ops.def. Quantise and dequantise are ordinary ops; a fused kernel is an op whose body holds the
 * same ops, so the evaluator gives meaning to every stage and any pass can be checked numerically.
 * The printed form parses back to itself. Every op carries its source span to the end. */
#ifndef SINTER_IR_H
#define SINTER_IR_H

#include "base/base.h"
#include "base/limits.h"
#include "quant/quant.h"

typedef struct Value Value;
typedef struct Op Op;
typedef struct Use Use;
typedef struct Block Block;
typedef struct Module Module;

/* Types ---------------------------------------------------------------------------------------- */

/* A declared dimension symbol. Its sizes, ascending, are the buckets. */
typedef struct Sym {
    const char *name;
    int index; /* in module->syms */
    int num_sizes;
    const int64_t *size;
    Span span;
} Sym;

/* mul * sym[0] * sym[1] + add, absent symbols count as 1; a constant has mul = 0 and no symbols.
 * Canonical: sym[0] is set before sym[1], sym[0]->index <= sym[1]->index. */
typedef struct Dim {
    int64_t mul, add;
    const Sym *sym[2];
} Dim;

typedef struct Type { /* interned per module: compare with == */
    FormatId fmt;
    const Scheme *scheme; /* non-NULL: quantised, fmt == scheme->fmt. Interned */
    int rank;
    Dim dim[LIMIT_RANK];
} Type;

/* type.c */
static inline Dim dim_const(int64_t n)
{
    return (Dim){.add = n};
}
static inline Dim dim_sym(const Sym *sym)
{
    return (Dim){.mul = 1, .sym = {sym}};
}
static inline bool dim_is_const(Dim d)
{
    return d.mul == 0;
}
bool dim_equal(Dim a, Dim b);
/* size[i] is the size of module symbol i. False on overflow or a size outside 0..LIMIT_DIM. */
bool dim_eval(Dim d, const int64_t *size, int64_t *ret);
/* Sums and products where the form can hold them; false where it cannot. */
bool dim_add(Dim a, Dim b, Dim *ret);
bool dim_mul(Dim a, Dim b, Dim *ret);
void dim_print(Sb *sb, Dim d); /* "4*B", "B + 1", "784" */
const Scheme *scheme_intern(Module *m, const Scheme *scheme);
const Type *type_plain(Module *m, FormatId fmt, int rank, const Dim *dim);
const Type *type_quantised(Module *m, const Scheme *scheme, int rank, const Dim *dim);
/* "f32[B, 784]", "i8{sym per row}[512, 784]", "e2m1{group 16 scale e4m3 outer}[8, 64]". Rows are
 * channels of a weight and tokens of an activation. */
void type_print(Sb *sb, const Type *type);
const char *type_text(Arena *arena, const Type *type);
static inline Dim type_last(const Type *type)
{
    return type->rank ? type->dim[type->rank - 1] : dim_const(1);
}
bool type_same_shape(const Type *a, const Type *b);
/* Rows of a quantised type have several scales along K, or may have. */
bool type_scale_varies(const Type *type);

/* Attributes ---------------------------------------------------------------------------------- */

typedef enum ScalePlace { PLACE_NONE, PLACE_EPILOGUE, PLACE_MAINLOOP } ScalePlace;
typedef enum QuantMode { MODE_NONE, MODE_DYNAMIC, MODE_STATIC, MODE_WEIGHT } QuantMode;

/* What the text asks of one linear layer; resolved by the frontend, obeyed by insert-quant. */
typedef struct QuantSpec {
    bool keep;            /* stays as it is */
    bool fused;           /* an error unless one kernel results */
    bool invariant;       /* a row has the same bits in every batch */
    const Scheme *weight; /* NULL: weight stays plain */
    const Scheme *act;    /* NULL: activation stays plain, rounded to act_fmt */
    FormatId act_fmt;     /* plain activation format; FMT_NONE: as the input */
    const char *by;       /* weight quantiser, NULL: rtn */
    WeightArgs by_args;
    bool act_static;
    const char *calibrator; /* static: "minmax", "percentile", "mse" or "kl" */
    double calibrator_arg;
    bool smooth, smooth_auto; /* auto: alpha is searched */
    double smooth_alpha;
    bool rotate;    /* by a Hadamard matrix */
    bool stored;    /* the weight's codes are the checkpoint's: it is quantised already */
    bool act_known; /* static: the scale and the zero point are given */
    float act_scale;
    int32_t act_zero;
    Span weight_span, act_span; /* where each was said */
    const char *scheme_name;    /* as written, for messages */
    bool pinned; /* a rule or the text at the layer says the format: `auto` leaves it alone */
    Span said;   /* the rule that settled the format, {0}: words at the layer */
} QuantSpec;

/* An output that a tool added to watch a layer: passes restore its scale, and move others as if it
 * were not there. */
typedef enum Tap { TAP_NONE, TAP_RESULT, TAP_OPERAND } Tap;

/* auto { .. }: which formats to choose from and what is asked of the choice. */
typedef enum AutoMeasure {
    MEASURE_COSINE,
    MEASURE_SQNR,    /* dB */
    MEASURE_BYTES,   /* of all weights as stored */
    MEASURE_LATENCY, /* microseconds */
    MEASURE_ERROR    /* normalised mean square error of the outputs */
} AutoMeasure;
typedef struct AutoAt { /* T = 1 : 0.7 */
    const char *sym;
    int64_t size;
    double weight;
} AutoAt;
typedef struct AutoRequire {
    AutoMeasure measure; /* cosine, sqnr: at least; bytes, latency: at most */
    double value;
    const char *on; /* cosine, sqnr: data for the model's outputs; NULL: each layer by itself */
    AutoAt at;      /* latency */
    Span span;
} AutoRequire;
typedef struct AutoName {
    const char *text;
    Span span;
} AutoName;
typedef enum AutoSlower { SLOWER_SILENT, SLOWER_WARN, SLOWER_ERROR } AutoSlower;
typedef struct AutoSpec {
    Span span;
    ARRAY(AutoName) candidates; /* schemes, or "keep" */
    AutoName data;              /* of calibration */
    int64_t samples;            /* rows of it that are looked at, 0: as many as are useful */
    ARRAY(AutoRequire) requires;
    AutoMeasure minimize;
    ARRAY(AutoAt) at; /* latency: weights; empty: every bucket alike */
    bool couple;
    AutoSlower slower;
} AutoSpec;

typedef struct Attr {
    double eps;
    int64_t axis, start, stop;
    int64_t count; /* topk: how many of each row; group_ends, group_places: groups */
    int num_perm;
    int perm[LIMIT_RANK];
    ScalePlace place;
    QuantMode mode;
    struct {
        const char *name; /* NULL: rtn */
        WeightArgs args;
    } by;
    struct { /* static quantise, before calibrate: how; after: the range */
        const char *calibrator;
        double arg;
        bool known;
        float lo, hi;
    } range;
    const char *layer; /* path of the linear layer, "ffn[3].gate" */
    const char *family;
    const QuantSpec *quant;
    Tap tap; /* outputs; never printed */
} Attr;

typedef enum AttrBit {
#define ATTR(ID, name, kind, field) ATTR_INDEX_##ID,
#include "ir/attrs.def"
#undef ATTR
    NUM_ATTRS
} AttrBit;
#define ATTR(ID, name, kind, field) ATTR_##ID = 1 << ATTR_INDEX_##ID,
enum {
#include "ir/attrs.def"
};
#undef ATTR

/* Ops and values ------------------------------------------------------------------------------- */

typedef enum OpKind {
#define OP(ID, name, min_in, max_in, flags, type_rule, eval, attrs) OP_##ID,
#include "ir/ops.def"
#undef OP
    NUM_OPS
} OpKind;

enum {
    OPF_PURE = 1,      /* no effect but its result */
    OPF_POINTWISE = 2, /* result element depends on the operands' same (broadcast) element */
    OPF_ROWWISE = 4,   /* needs whole rows of its first operand */
    OPF_VIEW = 8,      /* same bytes, other shape */
    OPF_MOVE = 16,     /* rearranges elements */
    OPF_BODY = 32,
    OPF_ROUTE = 64 /* decides which rows go where, or moves them there */
};

typedef struct OpInfo {
    const char *name;
    int min_in, max_in;
    unsigned flags, attrs;
} OpInfo;
extern const OpInfo op_info[NUM_OPS];
OpKind op_find(const char *name); /* NUM_OPS when unknown */

struct Use { /* one operand slot; linked into its value's list of uses */
    Value *value;
    Op *user;
    Use *next, **link;
};

struct Value {
    Op *def;
    int index; /* which result of def */
    const Type *type;
    const char *name; /* hint for printing, or NULL */
    Use *uses;
};

/* Where a constant's elements come from. */
typedef enum ConstKind {
    CONST_DENSE,  /* data, row-major in the type's format */
    CONST_WEIGHT, /* tensor `name` of the weight files; data is NULL until bind-weights maps it */
    CONST_RANDOM  /* reproducible test data, nearly normal, times scale: docs/ir.md */
} ConstKind;
typedef struct ConstPart {
    const void *data; /* maps the weight file; never owned */
    uint64_t bytes;
} ConstPart;
/* What reads a weight that lies in several parts. */
typedef struct ConstReader {
    /* Of a weight that a checkpoint stores quantised, in a layout of its own: the constant has a
     * quantised type, or is plain f32 where no scheme of ours holds it. Fills q, or dst. NULL, or a
     * sentence. Without it the parts are the constant's elements, one part behind the other. */
    const char *(*read)(const struct ConstReader *r, QTensor *q, float *dst);
    const void *stored;
    int num_parts; /* the bytes it reads */
    const ConstPart *part;
} ConstReader;
/* How the text says that a weight is stored quantised: the constant's name is that of its codes,
 * these are tensors of the weight files too, or NULL. */
typedef struct ConstParts {
    const Scheme *scheme;
    const char *scale, *zero, *offset, *outer, *table;
} ConstParts;
typedef struct Const {
    ConstKind kind;
    const char *name;    /* CONST_WEIGHT */
    FormatId stored_fmt; /* of data, when it differs from the type (converted on use) */
    const void *data;    /* maps the weight file; never owned */
    uint64_t bytes;
    const ConstReader *reader; /* CONST_WEIGHT: instead of data */
    const ConstParts *parts;   /* CONST_WEIGHT: stored quantised; NULL: the checkpoint may say so */
    uint64_t seed;
    double scale;
} Const;

struct Op {
    OpKind kind;
    Span span;
    Block *block;
    Op *prev, *next;
    int num_in, num_out;
    Use *in;
    Value *out;
    Attr attr;
    Const *constant;  /* OP_CONST */
    Block *body;      /* OP_KERNEL: ARG ops in operand order, ops, one YIELD */
    const char *name; /* INPUT, OUTPUT: as declared */
    uint32_t mark;    /* scratch for passes */
};

struct Block {
    Op *first, *last;
    Op *owner; /* kernel op, NULL for the module's body */
};

/* What a model text says beside its graph; passes read it. */
typedef struct Expect { /* expect "x.npy" -> "y.npy" atol .. cosine .. */
    const char *input, *output;
    double atol, rtol, cosine, sqnr; /* NaN = not given */
    Span span;
} Expect;

/* How weights get their codes where that takes second moments of the layer's input, which are large
 * and made when they are needed. */
typedef struct CodeMaker {
    /* Runs `by` on the weight src of the layer. NULL, or a sentence. */
    const char *(*run)(void *user, const char *layer, const WeightQuantiser *by,
                       const WeightArgs *args, QTensor *q, FormatId fmt, const void *src);
    void *user;
} CodeMaker;

/* Layers that one product computes, in the order of the rows of its weight. */
typedef struct LayerNames {
    int num;
    const char *const *name;
} LayerNames;

struct Module {
    Arena *arena;
    Diag *diag;
    const char *name;
    Block body;
    ARRAY(const Sym *) syms;
    ARRAY(const char *) weight_files; /* as written, resolved against the text's folder */
    ARRAY(const char *) calibrate_files;
    ARRAY(Span) weight_spans; /* where these names stand; empty when the text is printed IR */
    ARRAY(Span) calibrate_spans;
    ARRAY(Expect) expects;
    const AutoSpec *automatic; /* of the text; settled before the passes run, never printed */
    AutoSlower slower;         /* of `quant`: what layers that are slower than unquantised are */
    bool slower_said;          /* .. which the text says; else they are warnings */
    struct TypeTable *types;   /* interning; private to type.c */
    Intern *names;
    void *weights;                /* WeightSet of io, opened by bind-weights; NULL before */
    void *checkpoint;             /* Checkpoint over these, which says what is stored quantised */
    const char *calibration_file; /* calibrate from ".."; NULL: none */
    Span calibration_span;
    Map *joined;       /* name of a product of several layers to LayerNames; NULL: there is none */
    Map *activations;  /* layer to ActStats of its input (quant/calib.h); NULL: none yet */
    Map *weight_stats; /* layer to WeightStats: what `by` of quantize ops needs, found by their
                          `layer`; NULL before calibrate */
    const CodeMaker *code_maker; /* for quantisers that need second moments; NULL before */
    int num_ops;                 /* created so far, removed ones too; at most LIMIT_OPS */
};

/* build.c. Past LIMIT_OPS ops, op_create reports once to m->diag and goes on. */
Module *module_create(Arena *arena, Diag *diag, const char *name);
/* Of the product with this name: itself, unless several were joined to it. */
LayerNames module_layers(const Module *m, const char *const *name);
void module_join_layers(Module *m, const char *name, const LayerNames *layers);
const Sym *module_add_sym(Module *m, const char *name, int num_sizes, const int64_t *size,
                          Span span);
const Sym *module_find_sym(const Module *m, const char *name);
/* Inserts before `before` (NULL: at the end of block). Results have no types yet: op_set_type, or
 * use build_op, which applies the type rule. */
Op *op_create(Module *m, Block *block, Op *before, OpKind kind, Span span, int num_in,
              Value *const *in, int num_out);
void op_set_type(Op *op, int index, const Type *type);
/* A kernel with an empty body, num_out results without types; kernel_finish gives it the types of
 * its YIELD's operands and checks its arguments. */
Op *kernel_create(Module *m, Block *block, Op *before, Span span, int num_in, Value *const *in,
                  int num_out);
bool kernel_finish(Module *m, Op *kernel);
void op_set_in(Op *op, int slot, Value *value);
void op_remove(Op *op); /* its results must have no uses */
void op_move_before(Op *op, Op *before);
void value_replace(Value *old, Value *by); /* all uses */
int value_num_uses(const Value *value);
static inline Value *op_in(const Op *op, int slot)
{
    return op->in[slot].value;
}
static inline Value *op_out(Op *op)
{
    return &op->out[0];
}
/* What says which rows are of which group: of a product of groups, SPREAD and MASK; else NULL. */
static inline Value *op_ends(const Op *op)
{
    return op->kind == OP_MATMUL                          ? (op->num_in == 3 ? op_in(op, 2) : NULL)
           : op->kind == OP_SPREAD || op->kind == OP_MASK ? op_in(op, 1)
                                                          : NULL;
}
/* Its groups lie equally far apart, and the ends are counts of rows. */
static inline bool op_is_counted(const Op *op)
{
    return op_ends(op) && op->out[0].type->rank == 3;
}
#define for_each_op(op, block) \
    for (Op *op = (block)->first, *op##_next; op && (op##_next = op->next, 1); op = op##_next)
#define for_each_use(use, value)                                                    \
    for (Use *use = (value)->uses, *use##_next; use && (use##_next = use->next, 1); \
         use = use##_next)

/* Builders that create the op, apply its type rule (reporting a clash to m->diag at span) and
 * return its result; NULL after an error. */
Value *build_input(Module *m, const char *name, const Type *type, Span span);
void build_output(Module *m, const char *name, Value *value, Span span);
Value *build_const(Module *m, Block *b, Op *before, const Type *type, const Const *c, Span span);
Value *build_const_f32(Module *m, Block *b, Op *before, float value, Span span); /* rank 0 */
Value *build_op(Module *m, Block *b, Op *before, OpKind kind, const Attr *attr,
                const Type *declared, int num_in, Value *const *in, Span span);

/* A copy of everything but the weights behind constants; spans and diag are shared. */
Module *module_clone(Arena *arena, const Module *m);

/* rules.c: applies the op's row; declared: for ops whose result type is said (input, const, arg,
 * cast, reshape, quantize). Returns NULL after reporting what disagrees; for ops without a result,
 * the type of operand 0. */
const Type *op_infer_type(Module *m, const Op *op, const Type *declared);

/* print.c, parse.c: print(parse(text)) == text for every printed module. Values print as %name
 * where they have one (with a suffix when it is taken), else %number. */
void module_print(Sb *sb, const Module *m, bool with_spans);
void op_print(Sb *sb, const Op *op); /* one line; names as module_print gives them */
void attr_print(Sb *sb, unsigned attrs, const Attr *attr); /* "{axis = 1, layer = \"w1\"}" or "" */
Module *module_parse(Arena *arena, Diag *diag, uint32_t source); /* NULL after errors */

/* verify.c: every invariant of this page. Reports to stderr with the op and returns false. */
bool module_verify(const Module *m, const char *after);

/* eval.c: the meaning of every op ------------------------------------------------------------- */

typedef enum EvalMode {
    EVAL_CONTRACT, /* f32 steps as numerics.h says; float dot products in f64, rounded to f32;
                      integers exact: what kernels must equal (integers) or approach (floats) */
    EVAL_F64       /* every float step in f64, the reference for error bounds: codes and scales are
                      those of the contract, casts to f16 and bf16 round, casts to f32 do not */
} EvalMode;

typedef struct Tensor {
    FormatId fmt; /* plain; F64 in EVAL_F64. Quantised: q.codes is set */
    int rank;
    int64_t dim[LIMIT_RANK];
    void *data;
    uint64_t bytes;
    bool owned;
    QTensor q;
} Tensor;
void tensor_free(Tensor *t);
int64_t tensor_rows(const Tensor *t);
uint64_t tensor_elements(const Tensor *t);

typedef struct Eval Eval;
Eval *eval_create(const Module *m, EvalMode mode, const int64_t *sym_size);
void eval_destroy(Eval *e);
/* Converts to the declared format; false when there is no such input of this shape. Bound values
 * stay for all runs until they are bound anew. */
bool eval_bind(Eval *e, const char *input, const Tensor *value);
/* Runs the whole body. False: a sentence in *ret_why (memory, unbound weight). `observe` (may be
 * NULL) is called with every value as it is made, for calibration; values are freed after their
 * last use. */
typedef void (*EvalObserver)(void *user, const Value *value, const Tensor *tensor);
bool eval_run(Eval *e, EvalObserver observe, void *user, const char **ret_why);
const Tensor *eval_output(const Eval *e, const char *output);
/* One constant expression (its operands are constants, recursively). The caller frees *ret. Weights
 * convert from their stored format; one that overflows the declared format is an error. */
bool eval_constant(const Module *m, const Value *value, Tensor *ret, const char **ret_why);
/* Several distinct ones; what they share is evaluated once. */
bool eval_constants(const Module *m, int num, const Value *const *value, Tensor *ret,
                    const char **ret_why);
bool value_is_constant(const Value *value);

#endif
