/* sema: what the checks find out about a text, and the walk that expands it. Private to frontend/.
 *
 * Checking has two halves. The first looks at the text once: names become slots, constants and dims
 * get values, schemes and rules are compiled. The second expands blocks and loops and gives every
 * operation its type (walk.c). ast_check walks without building; ast_lower walks again and builds
 * the IR, so that both see the same model. An error inside a loop is reported once. */
#ifndef SINTER_FRONTEND_SEMA_H
#define SINTER_FRONTEND_SEMA_H

#include "frontend/ast.h"
#include "frontend/source.h"

typedef enum EvalState { STATE_NEW, STATE_BUSY, STATE_DONE, STATE_BAD } EvalState;

typedef struct ConstInfo {
    EvalState state;
    int64_t value;
    bool used;
} ConstInfo;

typedef struct DimInfo {
    int num_sizes;
    int64_t *size;
    bool used, bad;
    const Sym *sym; /* of the module that the current walk fills */
} DimInfo;

/* One scheme: what it says about each operand. spec holds the fields that are set. */
typedef struct SchemeInfo {
    bool used, bad;
    bool has_weight, has_act;
    QuantSpec spec;
    Scheme weight, act;
    bool weight_else, act_else; /* one scale a row where the group does not divide K */
} SchemeInfo;

typedef enum SlotKind { SLOT_INPUT, SLOT_PARAM, SLOT_VALUE, SLOT_RESULT, SLOT_INDEX } SlotKind;

typedef struct SlotInfo {
    SlotKind kind;
    Word name; /* where it was defined */
    bool used, bad;
    int scope;       /* that defined it */
    int assigned_in; /* scope of the latest assignment, -1: none yet */
    Span assigned;
} SlotInfo;

typedef struct BodyInfo {
    ARRAY(SlotInfo) slots;
    int index_slot;   /* -1: the block has no index */
    int first_result; /* slot of the first named result */
    bool named_results;
    bool returns;
    bool called;
    struct Val *frame;           /* slots while it is walked: a body never calls itself */
    ARRAY(const Expr *) callees; /* calls of blocks */
    EvalState calls;             /* of the search for circles */
    int height;                  /* calls below each other */
} BodyInfo;

/* Half open; below 0: from the end. */
typedef struct IndexSpan {
    int64_t lo, hi;
    bool to_end; /* hi says nothing */
} IndexSpan;

typedef struct SegmentInfo {
    const Segment *segment;
    IndexSpan *span; /* of segment->listed */
} SegmentInfo;

typedef struct RuleInfo {
    const Rule *rule;
    SegmentInfo *segment;
    int num_segments;
    const SchemeInfo *scheme;
    const char *scheme_name;
    bool keep, fused, invariant, smooth, smooth_auto, rotate;
    double smooth_alpha;
    bool matched, bad;
} RuleInfo;

typedef ARRAY(int) IntList;

/* One step of a layer's path: ffn[3]. */
typedef struct Step {
    const char *name; /* interned */
    bool has_index;
    int64_t index;
} Step;

typedef struct Sema {
    Ast *ast;
    Arena *arena;
    Diag *diag;
    const FrontendOptions *options;
    ItemList items; /* of the model's text and the rule files, in order */
    Map globals;    /* consts, dims, blocks, model by name -> Item */
    Map schemes;    /* by name -> Item */
    Item *model, *automatic;
    AutoSlower slower; /* of `quant`, where slower_said */
    bool slower_said;
    Span slower_span;
    AutoSpec *auto_spec; /* what it says; NULL: there is none */
    bool lost;           /* items were lost to syntax errors: unknown names may not be mistakes */
    bool has_calibrate;
    const Item *calibrated; /* calibrate from */
    int depth;              /* of evaluation */
    ARRAY(RuleInfo) rules;
    IntList default_rules, any_rules; /* any: the first segment is no fixed name */
    Map rules_by_name;                /* "ffn" or "ffn[3]" -> IntList */
    bool from_end;       /* some rule counts so, and index_ends is filled before rules match */
    Map index_ends;      /* path of a block, without its index -> int64_t, behind the last one */
    ARRAY(Span) no_data; /* static ranges without data, reported */
    ARRAY(const char *) paths; /* of layers, for the nearest to a rule that matches nothing */
} Sema;

/* What a slot or an expression holds while the model is walked. */
typedef enum ValKind { VAL_NONE, VAL_BAD, VAL_TENSOR, VAL_ROUTE, VAL_NUMBER, VAL_INT } ValKind;
typedef struct Val {
    ValKind kind;
    FormatId fmt;                 /* TENSOR: of the model's values; type->fmt is how it is stored */
    bool is_const;                /* TENSOR: depends on params alone */
    const Type *type;             /* TENSOR */
    Value *value;                 /* TENSOR, when building */
    const struct Route *route;    /* ROUTE */
    const struct RowOrder *order; /* TENSOR: of its rows, where dispatch made them; NULL: did not */
    int64_t id;                   /* TENSOR: equal for what is one value; 0: of none */
    double number;                /* NUMBER, INT */
    int64_t integer;              /* INT */
    Span origin;                  /* where its shape was decided */
    const char *label;            /* TENSOR: the name it goes by in a layer's path, or NULL */
} Val;

/* What topk gives: which rows go to which groups. */
typedef struct Route {
    Val of;             /* the numbers that choose */
    int64_t choices;    /* of a row */
    Val index, weights; /* of each row's choices */
    Val ends, places, sources;
    Dim rows, routed; /* of what is dispatched, and of what that makes */
    Dim groups;
} Route;

/* Rows stand group by group, as dispatch brought them. */
typedef struct RowOrder {
    const Route *route; /* NULL: nobody knows, for instance behind a concat of rows */
    Span dispatched;
} RowOrder;
extern const RowOrder unknown_order;

typedef struct Walk {
    Sema *s;
    Module *m; /* types live here; ops too when building */
    bool build;
    bool counting; /* only how many a block has, for rules that count from the end */
    bool stopped;  /* a limit was passed */
    bool in_model; /* false: a block that nothing calls, checked by itself */
    Arena *arena;
    Diag *diag;
    int depth;
    int64_t steps, num_ops;
    Step path[LIMIT_NESTING + 2];
    int num_path;
    int64_t k;  /* columns of the weight of the layer whose rules are looked for */
    Map consts; /* tensor name -> Value, when building */
    Map uses;   /* path of a layer -> LayerUses, likewise */
} Walk;

typedef struct Frame { /* one body being walked */
    const Item *item;
    Val *slot;
    Val *ret; /* results of a block that returns */
} Frame;

/* Names of operations (calls.c) */
typedef enum CallKind {
    CALL_LINEAR,
    CALL_GROUPED_LINEAR,
    CALL_MATMUL,
    CALL_UNARY, /* elementwise */
    CALL_BINARY,
    CALL_RMSNORM,
    CALL_LAYERNORM,
    CALL_SOFTMAX,
    CALL_CONCAT,
    CALL_SPLIT,
    CALL_RESHAPE,
    CALL_TRANSPOSE,
    CALL_SLICE,
    CALL_CAST,
    CALL_TOPK,
    CALL_DISPATCH,
    CALL_COMBINE
} CallKind;
#define MAX_CALL_ARGS 5
typedef struct CallInfo {
    const char *name;
    CallKind kind;
    OpKind op;
    int min_args;
    bool variadic; /* any number of positional arguments; the others by name */
    const char *arg[MAX_CALL_ARGS];
    const char *describe; /* "linear(x, w, b?)" */
} CallInfo;
extern const CallInfo call_info[];
extern const int num_calls;
int call_find(const char *name); /* -1 when unknown */
/* Arguments in the order of info->arg; absent ones NULL. Positional ones of a variadic call stay in
 * call->args. Reports what does not fit. */
bool call_bind(Sema *s, const Expr *call, const CallInfo *info, Expr *ret[MAX_CALL_ARGS]);

/* sema.c */
/* True the first time: an error in a loop is said once. */
bool first_report(Expr *expr);
void suggest(Diag *diag, const Nearest *nearest);
bool want_suggestion(const Diag *diag); /* few errors so far: looking for a nearest name pays */

/* sema_number.c. frame: NULL outside bodies. */
void consts_eval(Sema *s);
void dims_eval(Sema *s);
bool eval_int(Sema *s, const Frame *frame, Expr *expr, int64_t *ret);
bool eval_dim(Sema *s, const Frame *frame, Expr *expr, Dim *ret);

/* sema_names.c */
void names_resolve(Sema *s);
void resolve_global(Sema *s, Expr *expr); /* an integer expression outside bodies */

/* sema_scheme.c */
void schemes_compile(Sema *s);
/* Of a param whose codes the text names: stmt->stored, or errors. */
void scheme_of_param(Sema *s, Stmt *stmt);
Item *scheme_lookup(Sema *s, Word name); /* reports an unknown one */

/* sema_rules.c */
void rules_compile(Sema *s);
/* What rules and the inline scheme (may be NULL) say about the layer w->path; NULL: nothing. */
const QuantSpec *rules_apply(Walk *w, const Item *inline_scheme, int64_t k);
void rules_report_unmatched(Sema *s);
/* In a walk that counts: a block with an index was met, which is the last step of the path. */
void rules_count_index(Walk *w);
const char *walk_path_text(Walk *w); /* "ffn[3].gate" */

/* sema_auto.c */
void auto_add(Sema *s, Item *item);
void auto_compile(Sema *s);
/* The same with names of the module. */
const AutoSpec *auto_lower(const Sema *s, Module *m);

/* walk.c */
void walk_dims(Walk *w); /* gives dims their symbols; walk_model does */
void walk_model(Walk *w);
void walk_block_alone(Walk *w, Item *block);
Val walk_expr(Walk *w, Frame *frame, Expr *expr);
bool walk_step(Walk *w, Span span); /* counts; false once a limit is passed */

/* walk_ops.c: give operations their types and, when building, emit them. num_want: how many results
 * the statement takes (split). */
bool walk_split(Walk *w, Frame *frame, Expr *call, int num_want, Val *ret);
Val walk_call(Walk *w, Frame *frame, Expr *call, const Item *scheme);
Val walk_binary(Walk *w, Expr *expr, OpKind kind, const Val *a, const Val *b);
/* walk_linear.c */
Val walk_linear(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme);
Val walk_grouped_linear(Walk *w, Frame *frame, Expr *call, Expr *const *arg, const Item *scheme);
Val walk_matmul(Walk *w, Frame *frame, Expr *call, Expr *const *arg);
/* walk_route.c */
Val walk_topk(Walk *w, Frame *frame, Expr *call, Expr *const *arg);
Val walk_dispatch(Walk *w, Frame *frame, Expr *call, Expr *const *arg);
Val walk_combine(Walk *w, Frame *frame, Expr *call, Expr *const *arg);
/* The argument route=, which the call must have (arg: NULL, it has none); reports otherwise. */
bool walk_route_arg(Walk *w, Frame *frame, Expr *call, Expr *arg, Val *ret);
/* The argument rows=: how many rows of each group count, a tensor i32 [E]; reports otherwise. */
bool walk_counts_arg(Walk *w, Frame *frame, Expr *arg, Val *ret);
/* Does x [E, M, K] have the groups that rows= counts? Reports otherwise. */
bool counted_rows_fit(Walk *w, Expr *call, const Val *x, const Val *counts);
/* Says that a tensor of counts stands where numbers are needed. */
void report_counts(Walk *w, Span span, const Val *counts);
/* Does x, of two dimensions, have the rows that dispatch made by the route? Reports otherwise. */
bool route_rows_fit(Walk *w, Expr *call, const Val *x, const Val *route);
/* Of the result of an operation, whose operands agree. */
const RowOrder *order_of_result(OpKind kind, const Attr *attr, const Type *type, int num_in,
                                const Val *in);
/* Operands that something joins row by row stand in one order; reports otherwise. what: "x" */
typedef struct RowsArg {
    const Val *val;
    const char *what;
} RowsArg;
bool orders_agree(Walk *w, Expr *at, RowsArg a, RowsArg b);
/* The same of operands that broadcast to the type. */
bool broadcast_orders_agree(Walk *w, Expr *at, const Type *type, RowsArg a, RowsArg b);
/* Says that a route stands where a tensor is needed; name: NULL when it has none. */
void report_route(Walk *w, Span span, const char *name, const Val *route);
/* walk_emit.c */
Val val_bad(void);
Val walk_emit(Walk *w, OpKind kind, const Attr *attr, const Type *type, int num_in, const Val *in,
              Span span);
Val walk_cast(Walk *w, Val in, FormatId fmt, Span span); /* nothing when stored so already */
Val walk_number(Walk *w, double number, Span span);      /* a rank 0 constant */
/* NULL after reporting at `at` that such a tensor is too large. */
const Type *walk_type(Walk *w, Expr *at, FormatId fmt, int rank, const Dim *dim);
const Type *walk_type_expr(Walk *w, const Frame *frame, TypeExpr *type, bool is_param);
/* An operand of arithmetic: no route, no counts. */
Val walk_operand(Walk *w, Frame *frame, Expr *expr);
/* An operand that must be a tensor; reports otherwise. */
bool walk_tensor(Walk *w, Frame *frame, Expr *expr, Val *ret);
/* .. or counts of rows, for an input of a block. */
bool walk_input(Walk *w, Frame *frame, Expr *expr, Val *ret);
bool walk_axis(Walk *w, Frame *frame, Expr *expr, const Val *x, int64_t *ret); /* NULL: last */
/* "'x' is f32[B, 784]", with its place */
void note_type(Walk *w, const Val *val, const char *what);

#endif
