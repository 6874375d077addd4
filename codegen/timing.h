/* codegen/timing: tables of measured microseconds, and where a predicted time comes from.
 *
 * A table belongs to one kind of GPU, named by what decides its speed, never by its product name:
 * architecture, processors and memory, "sm_90-132sm-144g" (timing_gpu_name). It is text:
 *
 *     sinter timings 1
 *     gpu sm_90-132sm-144g
 *     kernels gemm_mma 5b0c9e11
 *     kernels stream 3fa9c01d
 *     product w=e4m3 a=e4m3/token n=28672 k=4096 parts=2 out=bf16
 *     16 46.91 stream 16x64 w1 k8 s2
 *     16 failed gemm_mma 32x128 w1x4 s4  # it did not end within 5 s
 *
 * a `kernels` line for each family, with a word for its device code when it was measured (rows of
 * other code are `old`), one `product` line for each problem, below it rows of the activation,
 * microseconds of one launch (or "failed") and the candidate; '#' begins a note. Printed tables are
 * sorted, so that they can be compared line by line. Tables of this project are part of the
 * compiler (codegen/timing/), those that `sinter tune` measured lie in
 * $XDG_DATA_HOME/sinter/timing, else ~/.local/share/.. */
#ifndef SINTER_TIMING_H
#define SINTER_TIMING_H

#include "base/base.h"
#include "io/io.h"

typedef enum TimingSource { /* ascending by trust */
                            TIMING_MODEL,
                            TIMING_LIKE, /* of a like GPU, scaled */
                            TIMING_AKIN, /* of a product with another epilogue, likewise */
                            TIMING_SHIPPED,
                            TIMING_MEASURED,
                            NUM_TIMING_SOURCES
} TimingSource;
extern const char *const timing_source_name[NUM_TIMING_SOURCES]; /* "cost model", .. */

typedef struct TimingRow {
    const char *problem, *candidate;
    int64_t rows;
    double us;        /* negative: the candidate failed; see note */
    const char *note; /* "" when there is none */
    bool old;         /* of other device code than this compiler's */
} TimingRow;

typedef struct TimingCode { /* a family of kernels and the word for its device code */
    const char *family, *word;
    enum { TIMING_CODE_UNKNOWN, TIMING_CODE_OURS, TIMING_CODE_OLD } age;
} TimingCode;

typedef struct TimingRun { /* rows of one problem that stand together */
    const char *problem;
    int first, num;
    const char *unread; /* the text of rows that nobody asked for yet; NULL: they were read */
    size_t unread_len;
} TimingRun;

typedef struct TimingTable {
    Arena *arena;
    const char *gpu;
    ARRAY(TimingCode) code;
    ARRAY(TimingRow) row;
    ARRAY(TimingRun) run;
    Map index;  /* problem, rows and candidate -> index of the row + 1 */
    Map unread; /* problem -> index of its run + 1, of a table that was opened */
    Sb *key;    /* of the row that is looked for */
} TimingTable;

void timing_table_init(TimingTable *t, Arena *arena, const char *gpu);
/* Everything is checked; `name` is for messages. Bounded by LIMIT_TIMING_*. */
bool timing_table_parse(TimingTable *ret, Arena *arena, const char *name, const char *text,
                        size_t len, IoError *err);
bool timing_table_read(TimingTable *ret, Arena *arena, const char *path, IoError *err);
/* Of a table as it is printed, whose text stays: the rows of a problem are read when it is first
 * looked for, as a compilation looks for few of thousands. What is wrong with them is a BUG. */
bool timing_table_open(TimingTable *ret, Arena *arena, const char *name, const char *text,
                       size_t len, IoError *err);
/* Atomic: the old table or the new one, never a part. */
bool timing_table_write(const TimingTable *t, const char *path, IoError *err);
void timing_table_print(Sb *sb, const TimingTable *t);       /* what was read of it */
void timing_table_put(TimingTable *t, const TimingRow *row); /* replaces; texts are copied */
const TimingRow *timing_table_find(TimingTable *t, const char *problem, int64_t rows,
                                   const char *candidate);

/* Narrows [ret[0], ret[1]]: see timings_around. */
void timing_table_around(TimingTable *t, const char *problem, int64_t rows, int64_t ret[2]);
/* See timings_akin. */
const char *timing_table_akin(TimingTable *t, const char *problem, int64_t rows);

/* For new measurements: rows that are old go, the others are of this compiler's device code. */
void timing_table_renew(TimingTable *t);

/* "sm_90-132sm-144g" of a GPU; memory in whole steps, so that what a driver keeps for itself does
 * not count. */
const char *timing_gpu_name(Arena *arena, int capability, int processors, uint64_t memory_bytes);
/* Where the table of a GPU that was measured here lies; NULL: no home folder. make: create the
 * folders above it. */
const char *timing_own_path(Arena *arena, const char *gpu, bool make);
/* The table of this GPU that is part of the compiler; NULL: there is none. */
const char *timing_shipped(const char *gpu, size_t *ret_len);

/* What products take by the fastest library that was measured on this GPU
 * (codegen/timing/library.py); rows are found by the problem of a plain product of 16-bit floats,
 * candidates are names of libraries. False: there is no such table. */
bool timing_library(Arena *arena, const char *gpu, TimingTable *ret);
const char *timing_library_problem(Arena *arena, int64_t n, int64_t k);

/* What a compilation goes by: rows measured here over shipped ones, and these over the shipped ones
 * of a like GPU, which differs in its memory alone ("sm_90-132sm-80g"). */
typedef struct Timings {
    const char *gpu;                   /* NULL: no tables, the cost model decides alone */
    TimingTable *own, *shipped, *like; /* NULL: there is none */
} Timings;
/* which: "none"; a GPU; a file (it holds '/' or '.'); NULL: for the last of the architectures
 * ("sm_90a") that has one, the GPU whose table was measured here, else whose table is shipped. A
 * default table that cannot be read is left out after a warning; false after an error. */
bool timings_open(Timings *ret, Arena *arena, Diag *diag, const char *which, int num_archs,
                  const char *const *arch);
/* The row that counts and its source; NULL: only the cost model knows. */
const TimingRow *timings_find(const Timings *t, const char *problem, int64_t rows,
                              const char *candidate, TimingSource *ret_source);
/* A problem of the tables whose products differ from this one in their epilogue, in how activations
 * are scaled there or in `fast` alone: of these the one with the most rows of this number. NULL:
 * there is none. */
const char *timings_akin(const Timings *t, const char *problem, int64_t rows);
/* The nearest smaller and larger numbers of rows that were measured of a problem, 0 for none of
 * them; false: none was. */
bool timings_around(const Timings *t, const char *problem, int64_t rows, int64_t ret[2]);
/* .. and a like GPU's, whose times are not this one's. */
const TimingRow *timings_find_like(const Timings *t, const char *problem, int64_t rows,
                                   const char *candidate);

#endif
