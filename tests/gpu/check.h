/* One model on two devices: launch by launch (rig.h), by sessions, and without fusion. */
#ifndef SINTER_TESTS_GPU_CHECK_H
#define SINTER_TESTS_GPU_CHECK_H

#include "tests/gpu/cover.h"
#include "tests/gpu/rig.h"

typedef struct CheckOptions {
    RigOptions rig;
    bool count;    /* no GPU and no NVRTC: only count what would run */
    bool verbose;  /* a line for every model */
    bool compiled; /* check_compile ran before */
    bool spoil;    /* when dry: do every comparison again with a byte that differs */
} CheckOptions;

typedef struct Totals { /* of one process; all zero at first */
    int models, failed, runs, sessions, refused, spoilt, unfused;
    int kernels, cached; /* compiled; those of them that lay in the cache */
    double compile_s, check_s, session_s;
    double worst;    /* largest share of a bound that a float product came to */
    uint64_t digest; /* of all that sessions gave, whatever the order of models */
    Cover cover;
} Totals;

typedef struct CheckJob {
    const char *path, *dir, *what;
    uint64_t number;          /* seed of sizes and inputs */
    int more;                 /* sizes of each bucket beside its own */
    const CudaFamily *family; /* that products take where they can; NULL: the fastest */
    const char *wish;         /* .. and words of its candidate; NULL: any (CudaPlanOptions) */
    CudaDecode decode;        /* weights, by launches of their own */
    const CudaLayout *layout; /* of weights, where they can lie so; NULL: the fastest */
    bool invariant;           /* one order of sums for all sizes */
    bool unfused;             /* compile it without fusion too */
    bool racecheck;           /* kernels for that tool (BuildOptions) */
    bool only;                /* leave it out if none of its weights lies in that layout */
} CheckJob;

/* False after printing what differs, and the model's number as "not ok". */
bool check_model(const CheckJob *job, const CheckOptions *options, Totals *totals);
/* Compiles the kernels of a model, which the cache then has. No GPU is needed. */
void check_compile(const CheckJob *job, const CheckOptions *options, Totals *totals);
void totals_merge(Totals *t, const Totals *other);
double check_seconds(void); /* of a clock */

#endif
