/* ast: what the parser builds and the checks annotate. Private to frontend/.
 *
 * Names are interned: equal names are equal pointers. Lists are growing arrays in the arena. */
#ifndef SINTER_FRONTEND_AST_H
#define SINTER_FRONTEND_AST_H

#include "base/base.h"
#include "base/limits.h"
#include "frontend/frontend.h"

#define LIMIT_EXPR_DEPTH 1000

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Item Item;

typedef struct Word { /* one occurrence of a name or a string; text NULL: absent */
    const char *text;
    Span span;
} Word;
typedef ARRAY(Word) WordList;

/* Expressions ---------------------------------------------------------------------------------- */

typedef struct Arg {
    Word name; /* absent: positional */
    Expr *value;
} Arg;
typedef ARRAY(Arg) ArgList;
typedef ARRAY(Expr *) ExprList;

typedef enum ExprKind {
    EXPR_BAD, /* after a syntax error */
    EXPR_NAME,
    EXPR_INT,
    EXPR_REAL,
    EXPR_NEG,    /* lhs */
    EXPR_BINARY, /* lhs op rhs */
    EXPR_AT,     /* lhs @ name */
    EXPR_CALL,   /* name [index] (args) */
    EXPR_LIST    /* [list] */
} ExprKind;

typedef enum RefKind { /* what a name stands for; set by the checks */
                       REF_NONE,
                       REF_BAD, /* reported already */
                       REF_SLOT,
                       REF_CONST,
                       REF_DIM,
                       REF_INDEX, /* a loop's or a block's index: an integer slot */
                       REF_BLOCK,
                       REF_OP
} RefKind;

struct Expr {
    ExprKind kind;
    int depth; /* of the tree below, at most LIMIT_EXPR_DEPTH */
    Span span;
    Word name;
    char op;       /* + - * / */
    bool reported; /* an error about this node was printed: say it once, not once an iteration */
    int64_t integer;
    double real;
    Expr *lhs, *rhs;
    Expr *index;
    ArgList args;
    ExprList list;
    RefKind ref;
    int slot;   /* REF_SLOT, REF_INDEX: in the body; REF_OP: in the table of calls */
    Item *item; /* REF_CONST, REF_DIM, REF_BLOCK; EXPR_AT: the scheme */
};

/* Types and statements ------------------------------------------------------------------------ */

typedef struct TypeExpr {
    Word fmt;
    ExprList dims;
    Span span;
} TypeExpr;

typedef struct Decl {
    Word name; /* absent in a block's unnamed result */
    TypeExpr type;
    Span span;
} Decl;
typedef ARRAY(Decl) DeclList;
typedef ARRAY(Stmt *) StmtList;

typedef struct SchemeWord SchemeWord;
typedef ARRAY(SchemeWord) SchemeWordList;

/* from codes "…" scale "…" */
typedef struct Part {
    Word role, tensor;
} Part;
typedef ARRAY(Part) PartList;
typedef struct From {
    Word tensor;    /* from "…"; absent: the parts say it, or nothing does */
    PartList parts; /* of a weight that is stored quantised */
} From;

typedef enum StmtKind { STMT_BAD, STMT_PARAM, STMT_ASSIGN, STMT_RETURN, STMT_FOR } StmtKind;

struct Stmt {
    StmtKind kind;
    Span span;
    Decl decl;                 /* PARAM */
    From from;                 /* PARAM: patterns of tensors' names, may be absent */
    SchemeWordList words;      /* PARAM: how its codes are scaled */
    struct SchemeInfo *stored; /* PARAM: what these words come to; NULL: it is plain */
    Word module;               /* PARAM: from module "…" */
    WordList targets;          /* ASSIGN; FOR: the index */
    ExprList values;           /* ASSIGN (one), RETURN, FOR (first, end) */
    StmtList body;             /* FOR */
    int *slot;                 /* of targets or of the param; set by the checks */
    bool has_bad;              /* PARAM: the declaration was cut off by a syntax error */
    bool reported;
};

/* Schemes and rules ---------------------------------------------------------------------------- */

typedef enum SchemeWordKind {
    SW_SYM,
    SW_ASYM,
    SW_CODEBOOK,
    SW_PER_TENSOR,
    SW_PER_CHANNEL,
    SW_PER_TOKEN,
    SW_GROUP,
    SW_BLOCK,
    SW_SCALE,
    SW_STATIC,
    SW_DYNAMIC,
    SW_BY,
    SW_FAST
} SchemeWordKind;

struct SchemeWord {
    SchemeWordKind kind;
    Span span;
    Word name;              /* SCALE: format; STATIC: calibrator or absent; BY: quantiser */
    Expr *value;            /* GROUP: size; STATIC: argument or NULL */
    int64_t rows, cols;     /* BLOCK */
    SchemeWordKind instead; /* GROUP with a `name`, which is "or": PER_CHANNEL or PER_TOKEN */
    bool has_zero;          /* STATIC with a scale: `rows` is the zero point, `name` its word */
    ArgList args;           /* BY */
};

typedef struct SchemeLine {
    bool is_act;
    Word fmt;
    SchemeWordList words;
    Span span;
} SchemeLine;
typedef ARRAY(SchemeLine) SchemeLineList;

typedef enum IndexKind { INDEX_NONE, INDEX_ANY, INDEX_LISTED } IndexKind;

typedef struct IndexRange {
    Expr *lo, *hi; /* hi NULL: lo alone, or with is_open all from it on */
    bool is_open;
} IndexRange;
typedef ARRAY(IndexRange) IndexList;

typedef struct Segment {
    WordList names; /* a `*` in one stands for any letters; empty: any */
    IndexKind index;
    IndexList listed;
    Span span;
} Segment;
typedef ARRAY(Segment) SegmentList;

typedef enum ActionKind {
    ACTION_SCHEME,
    ACTION_KEEP,
    ACTION_SMOOTH,
    ACTION_ROTATE,
    ACTION_FUSED,
    ACTION_INVARIANT
} ActionKind;
typedef struct Action {
    ActionKind kind;
    Word name;
    double value;
    Span span;
} Action;
typedef ARRAY(Action) ActionList;

typedef struct Rule {
    SegmentList path; /* empty: default */
    Span path_span;
    ActionList actions;
    Word slower; /* "error" of "slower error", which is no rule for layers; text NULL: a rule */
    Span span;
} Rule;
typedef ARRAY(Rule) RuleList;

/* auto { .. } ---------------------------------------------------------------------------------- */

typedef enum AutoLineKind {
    AUTO_CANDIDATES, /* names */
    AUTO_CALIBRATE,  /* file, size: samples or NULL */
    AUTO_REQUIRE,    /* names[0]: measure, at_least, number, file or at[0] */
    AUTO_MINIMIZE,   /* names[0]: measure, at */
    AUTO_COUPLE,
    AUTO_SLOWER /* names[0] */
} AutoLineKind;
typedef struct AutoSize { /* T = 1 : 0.7 */
    Word name;
    Expr *size;
    double weight;
} AutoSize;
typedef ARRAY(AutoSize) AutoSizeList;
typedef struct AutoLine {
    AutoLineKind kind;
    Span span;
    WordList names;
    Word word; /* the measure, or what to do */
    Word file;
    Expr *size;
    double number;
    bool at_least;
    AutoSizeList at;
} AutoLine;
typedef ARRAY(AutoLine) AutoLineList;

/* Top level ------------------------------------------------------------------------------------ */

typedef enum BoundKind { BOUND_ATOL, BOUND_RTOL, BOUND_COSINE, BOUND_SQNR } BoundKind;
typedef struct Bound {
    BoundKind kind;
    double value;
    Span span;
} Bound;
typedef ARRAY(Bound) BoundList;

typedef enum ItemKind {
    ITEM_BAD,
    ITEM_VERSION,    /* value */
    ITEM_WEIGHTS,    /* files */
    ITEM_CALIBRATE,  /* files */
    ITEM_CALIBRATED, /* from files[0] */
    ITEM_CONST,      /* name = value */
    ITEM_DIM,        /* name in [list] */
    ITEM_SCHEME,     /* name { lines } */
    ITEM_BLOCK,      /* name[index] (inputs) -> results { body } */
    ITEM_MODEL,
    ITEM_EXPECT, /* files[0] -> files[1] bounds */
    ITEM_QUANT,  /* { rules } */
    ITEM_AUTO,
    ITEM_SHARD
} ItemKind;

struct Item {
    ItemKind kind;
    Span span; /* of the whole; head: of the line that introduces it */
    Span head;
    Word name;
    WordList files;
    Expr *value;
    ExprList list;
    SchemeLineList lines;
    Word index;
    DeclList inputs, results;
    StmtList body;
    bool lost; /* statements of the body were lost to syntax errors */
    RuleList rules;
    BoundList bounds;
    AutoLineList autos;
    struct ConstInfo *constant; /* what the checks found, by kind */
    struct DimInfo *dim;
    struct SchemeInfo *scheme;
    struct BodyInfo *info;
};
typedef ARRAY(Item *) ItemList;

struct Ast {
    Arena *arena;
    Intern *names;
    uint32_t source;
    ItemList items;
    bool lost;         /* items were lost to syntax errors */
    struct Sema *sema; /* what ast_check found */
};

/* parse.c: the parser's state, handed to every action. */
typedef struct Parse {
    Arena *arena;
    Diag *diag;
    Ast *ast;
    uint32_t file;
    struct Lexer *lexer;
    bool failed; /* the parser ran out of stack */
} Parse;

const char *parse_text(const Parse *p);
/* Notes and helps for a syntax error from what the scanner knows: brackets left open. */
void parse_explain(Parse *p, bool at_end, Span at);
void parse_skip_block(Parse *p); /* leave out the braces of an item that was not understood */

/* Gives up on the text after an error was reported: back in ast_parse, with what there is. */
_Noreturn void parse_abandon(Parse *p);

/* ast.c: builders; the grammar's actions call nothing else ------------------------------------- */

Span span_join(Span a, Span b);

Word ast_word(Parse *p, const char *text, Span span); /* interned */
Expr *ast_name(Parse *p, Word name);
Expr *ast_int(Parse *p, Span span, int64_t value);
Expr *ast_real(Parse *p, Span span, double value);
Expr *ast_bad(Parse *p, Span span);
Expr *ast_neg(Parse *p, Span span, Expr *operand);
Expr *ast_binary(Parse *p, Span span, char op, Expr *lhs, Expr *rhs);
Expr *ast_at(Parse *p, Span span, Expr *operand, Word scheme);
Expr *ast_call(Parse *p, Span span, Word name, Expr *index, ArgList args);
Expr *ast_list(Parse *p, Span span, ExprList list);
ExprList ast_exprs_add(Parse *p, ExprList list, Expr *expr);
Arg ast_arg(Word name, Expr *value);
ArgList ast_args_add(Parse *p, ArgList list, Arg arg);
WordList ast_words_add(Parse *p, WordList list, Word word);

Decl ast_decl(Span span, Word name, TypeExpr type);
DeclList ast_decls_add(Parse *p, DeclList list, Decl decl);
Stmt *ast_param(Parse *p, Span span, Decl decl, SchemeWordList words, From from, Word module);
PartList ast_parts_add(Parse *p, PartList list, Word role, Word tensor);
Stmt *ast_bad_param(Parse *p, Span span, Word name);
Stmt *ast_assign(Parse *p, Span span, WordList targets, Expr *value);
Stmt *ast_return(Parse *p, Span span, ExprList values);
Stmt *ast_for(Parse *p, Span span, Word index, Expr *first, Expr *end, StmtList body);
Stmt *ast_bad_for(Parse *p, Span span, StmtList body);
Stmt *ast_bad_stmt(Parse *p, Span span);
StmtList ast_stmts_add(Parse *p, StmtList list, Stmt *stmt);

SchemeWord ast_scheme_word(SchemeWordKind kind, Span span);
SchemeWord ast_scheme_value(SchemeWordKind kind, Span span, Word name, Expr *value);
SchemeWord ast_scheme_zero(Span span, Word name, Expr *scale, int64_t zero);
/* A group, or where it does not divide K what `instead` says. */
SchemeWord ast_scheme_else(Span span, Expr *size, Word word, SchemeWordKind instead);
SchemeWord ast_scheme_per(Parse *p, Span span, Word name); /* reports a word that does not exist */
SchemeWord ast_scheme_block(Span span, int64_t rows, int64_t cols);
SchemeWord ast_scheme_by(Span span, Word name, ArgList args);
SchemeWordList ast_scheme_words_add(Parse *p, SchemeWordList list, SchemeWord word);
SchemeLine ast_scheme_line(Span span, bool is_act, Word fmt, SchemeWordList words);
SchemeLineList ast_scheme_lines_add(Parse *p, SchemeLineList list, SchemeLine line);

Segment ast_segment(Span span, WordList names);
Segment ast_segment_index(Span span, Segment segment, IndexKind kind, IndexList listed);
IndexList ast_indices_add(Parse *p, IndexList list, IndexRange range);
/* Two parts of a name with `*`, which must not stand apart. */
Word ast_glued(Parse *p, Word left, Word right);
SegmentList ast_path_add(Parse *p, SegmentList list, Segment segment);
Action ast_action(ActionKind kind, Span span, Word name, double value);
ActionList ast_actions_add(Parse *p, ActionList list, Action action);
Rule ast_rule(Span span, Span path_span, SegmentList path, ActionList actions);
Rule ast_slower(Span span, Word word);
RuleList ast_rules_add(Parse *p, RuleList list, Rule rule);
BoundList ast_bounds_add(Parse *p, BoundList list, BoundKind kind, Span span, double value);

Item *ast_item(Parse *p, ItemKind kind, Span span, Word name);
Item *ast_files(Parse *p, ItemKind kind, Span span, WordList files);
Item *ast_version(Parse *p, Span span, Expr *value);
Item *ast_const(Parse *p, Span span, Word name, Expr *value);
Item *ast_dim(Parse *p, Span span, Word name, ExprList sizes);
Item *ast_scheme(Parse *p, Span span, Word name, SchemeLineList lines);
Item *ast_body(Parse *p, ItemKind kind, Span span, Span head, Word name, Word index,
               DeclList inputs, DeclList results, StmtList body);
Item *ast_expect(Parse *p, Span span, Word input, Word output, BoundList bounds);
Item *ast_quant(Parse *p, Span span, RuleList rules);
Item *ast_auto(Parse *p, Span span, Span head, AutoLineList lines);
/* Lines are put together from parts, which are lines themselves. */
AutoLine ast_auto_none(void);
AutoLine ast_auto_word(Word word);
AutoLine ast_auto_value(Expr *size, double number, bool at_least);
AutoLine ast_auto_line(AutoLineKind kind, Span span, AutoLine parts);
AutoLine ast_auto_file(AutoLineKind kind, Span span, Word file, AutoLine parts);
AutoLine ast_auto_require(Span span, AutoLine measure, bool at_least, double number, Word file);
void ast_auto_name(Parse *p, AutoLine *line, Word name);
void ast_auto_at(Parse *p, AutoLine *line, Word name, Expr *size, double weight);
void ast_auto_at_add(Parse *p, AutoLine *line, const AutoLine *more);
AutoLineList ast_auto_lines_add(Parse *p, AutoLineList list, AutoLine line);
void ast_add(Parse *p, Item *item);
void ast_print_item(Sb *sb, const Item *item);
void ast_lost(Parse *p); /* an item was skipped: unknown names may be our fault */

#endif
