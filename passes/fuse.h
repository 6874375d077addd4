/* passes/fuse: what the files of the fuse pass share. A kernel is grown as a set of ops of the
 * module's block (fuse_grow.c: which op may join, and why not), then moved into a body
 * (fuse_build.c). */
#ifndef SINTER_PASSES_FUSE_H
#define SINTER_PASSES_FUSE_H

#include "passes/internal.h"

enum {
    FUSE_MAX_OPS = 96,  /* steps of one program stay readable and its registers few */
    FUSE_MAX_LIVE = 24, /* of TILE_MAX_REGS, the rest are for loads */
    FUSE_MAX_INPUTS = 48,
    FUSE_MAX_PORTS = 60 /* read and written; a launch has 64 operands */
};

/* Which columns of a matmul's result a value of its epilogue covers. */
typedef enum RegionKind {
    REGION_FULL,     /* all columns, or the whole of a tile kernel */
    REGION_SLICE,    /* `width` columns from `start`: a segment */
    REGION_PARTS,    /* both halves met: gate and up */
    REGION_NARROW,   /* one column (or one number) that broadcasts; never leaves the kernel */
    REGION_PROLOGUE, /* rows of the matmul's first operand, before the main loop */
    REGION_CODES     /* quantised in this kernel: only leaves it */
} RegionKind;
typedef struct Region {
    RegionKind kind;
    int64_t start, width;
} Region;

/* Of each op, by op->mark, which fuse gives once and never changes. */
typedef struct FuseOp {
    uint32_t order;  /* place in the block, renumbered when a kernel is built */
    uint32_t kernel; /* serial of the kernel it joined or was refused by */
    bool refused;
    bool constant; /* a constant expression: never in a body */
    uint32_t seen; /* serial of the search that met it */
    Region region;
} FuseOp;

typedef struct Stop { /* one reason a chain stopped */
    const Op *op;
    const char *text;
    bool cut;
} Stop;

typedef struct Fuse {
    Module *m;
    PassContext *ctx;
    FuseOp *of;
    uint32_t num_of, cap_of;
    uint32_t search; /* serial of the latest search */
    /* the kernel that grows */
    uint32_t kernel; /* its serial, from 1 */
    ARRAY(Op *) body;
    Op *matmul;           /* NULL in a tile kernel */
    const Type *domain;   /* shape of REGION_FULL values */
    const Type *prologue; /* shape of REGION_PROLOGUE values */
    bool parts;           /* gate and up meet: columns come in pairs of halves */
    const Value *ends;    /* of the groups of rows, of a kernel that has such; else NULL */
    bool late;            /* the latest refusal: an operand is made after this kernel */
    uint32_t first;       /* lowest order in the body */
    ARRAY(Stop) stops;
} Fuse;

static inline FuseOp *fuse_of(Fuse *f, const Op *op)
{
    return &f->of[op->mark];
}
static inline bool fuse_has(Fuse *f, const Op *op)
{
    return fuse_of(f, op)->kernel == f->kernel && !fuse_of(f, op)->refused;
}
static inline bool fuse_refused(Fuse *f, const Op *op)
{
    return fuse_of(f, op)->kernel == f->kernel && fuse_of(f, op)->refused;
}

/* fuse.c */
void fuse_register(Fuse *f, Op *op, uint32_t order); /* a new op gets its FuseOp */

/* fuse_rules.c: NULL where the op may take part, else the reason. */
bool op_is_accessor(Fuse *f,
                    const Op *op); /* scales, zeros: part of a tensor, read by their user */
bool op_is_computed(Fuse *f, const Op *op); /* has a kernel of its own if nothing absorbs it */
bool shape_broadcasts(const Type *type, const Type *domain, int64_t cols);
const char *epilogue_refusal(Fuse *f, Op *op, Region *ret);
const char *tile_refusal(Fuse *f, Op *op, Region *ret);
bool prologue_takes(const Op *op);

/* fuse_grow.c */
void fuse_start(Fuse *f, Op *seed);
void fuse_grow_prologue(Fuse *f);
void fuse_grow_forward(Fuse *f);
void fuse_grow_route(Fuse *f);

/* fuse_build.c: moves the body into a kernel op, rewires, renumbers, records the notes. */
Op *fuse_build(Fuse *f, const char *family);

#endif
