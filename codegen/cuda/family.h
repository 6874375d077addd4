/* codegen/cuda/family: a family of kernels is a row of functions over its own numbers. What stands
 * elsewhere asks the row and knows no family by name. */
#ifndef SINTER_CODEGEN_CUDA_FAMILY_H
#define SINTER_CODEGEN_CUDA_FAMILY_H

#include "codegen/cuda/choose.h"

typedef struct CudaTile { /* of a product, that a block computes at once */
    int rows, cols;       /* columns of all parts */
} CudaTile;

#define CUDA_MOST_SLOWNESS 6
typedef struct CudaFamilyRow {
    const char *serves;  /* the only class that has it; NULL: all have */
    LaunchFamily launch; /* what it runs */
    uint64_t seed;       /* of the hashes that name its kernels: no two families share one */
    int slowness;        /* of NVRTC: kernels of high numbers are begun first */
    int min_blocks; /* of __launch_bounds__: left alone, ptxas spills to fit in more; 0: none */
    int (*min_blocks_of)(const CudaKernel *k); /* .. of this kernel; NULL: min_blocks */

    /* Products. */
    unsigned layouts; /* of weights that it reads: bits 1 << CudaLayout */
    bool aligned;     /* rows of the activation start at multiples of 16 bytes */
    bool makes_rows;  /* has candidates for INPUT_LOCAL */
    bool (*takes)(const CudaPackSpec *spec); /* NULL: every weight in a layout that it reads */
    void (*candidates)(CudaCandidates *c);
    CudaTile (*tile)(const CudaKernel *k);
    void (*put_numbers)(Sb *sb, const CudaKernel *k); /* as tables of timings have them */
    /* What decides, beside the operands, in which order an element's products are added up; false:
     * its place in the batch does, too. NULL: nothing does. */
    bool (*put_order)(Sb *sb, const CudaKernel *k);
    /* The family whose words of order these are: this one, where NULL. */
    CudaFamily (*adds_as)(const CudaKernel *k);
    /* Turns a candidate into one that takes in the prologue of `inside` as INPUT_SHARED; false: it
     * cannot, or would make so many rows that launches apart are faster, unless there is to be one.
     * NULL: none can. */
    bool (*share)(CudaKernel *k, const PlanLaunch *inside, int64_t smem, bool one);
    /* The epilogue's loads may move up to where its sums are whole, past stores of other columns: a
     * thread reads what it writes before it writes it. NULL: they may not. */
    bool (*loads_freely)(const CudaKernel *k);
    /* Results go to a row's place in shared memory, as far as cuda_program_leaves says. NULL: they
     * do not. */
    bool (*leaves)(const CudaKernel *k);
    /* Other launches: sets the numbers; *ret_problem: why there is no kernel. NULL: it has none. */
    void (*shape)(CudaKernel *k, const char **ret_problem);

    CudaGeometry (*geometry)(const CudaKernel *k); /* all but `grid` */
    /* Microseconds without the launch, and without what a product reads and writes beside its
     * weight. */
    double (*predict)(const CudaKernel *k, const CudaGeometry *g);
    void (*put_config)(Sb *sb, const CudaKernel *k);   /* constants of struct Cfg */
    void (*put_prologue)(Sb *sb, const CudaKernel *k); /* where the input is not given */
    void (*put_parts)(Sb *sb, const CudaKernel *k);    /* other types; NULL: there are none */
    /* The epilogue over sums in the registers in which they were added up; false: it gets staged
     * rows. NULL: it always does. */
    bool (*put_held)(Sb *sb, const CudaKernel *k);
    bool looks_ahead; /* its kernels learn how the next launch begins (ahead.cuh) */
    /* Parts of K in which blocks begin at once; NULL: one. */
    int (*begins)(const CudaKernel *k);
    bool fetches; /* what an epilogue loads is brought near while its tile is multiplied */
    /* Its warps take several staged rows at once, where columns do not meet; NULL: never. */
    bool (*many_rows)(const CudaKernel *k);
    const char *instruction; /* that multiplies, without the format: "wgmma"; NULL: none does */
    const char *call[2]; /* the function of the device file, with a given input or with another */
    void (*describe)(Sb *sb, const CudaKernel *k); /* numbers for people; NULL: there are none */
} CudaFamilyRow;
extern const CudaFamilyRow *const cuda_family[NUM_CUDA_FAMILIES];
#define CUDA_FAMILY(ID, name) extern const CudaFamilyRow cuda_##name;
#include "codegen/cuda/families.def"
#undef CUDA_FAMILY

/* source.c: parts of a text. */
/* fmt for 0 to num - 1, with commas between them. */
void cuda_put_list(Sb *sb, const char *fmt, int num);
/* A row's put_order where sums of blocks of K may be promoted, and those of equal parts of K are
 * added up after each other. */
void cuda_put_parts(Sb *sb, bool promotes, int parts);
/* A row's put_order where blocks share out the units of K of all tiles: those that share them
 * evenly cut each one alike; else where K is cut depends on the tile. With several rows of tiles it
 * depends on how many rows there are (false): fewer of the size's own have fewer tiles, which as
 * many blocks share. */
bool cuda_put_shares(Sb *sb, const CudaKernel *k, int64_t shares, int64_t tiles, int64_t units);
void cuda_put_int(Sb *sb, const char *name, int64_t value);
void cuda_put_bool(Sb *sb, const char *name, bool value);
void cuda_put_format(Sb *sb, const char *name, FormatId fmt);
void cuda_put_home(Sb *sb, const CudaKernel *k); /* of the weight: kHome */
/* What all products share: operands, shapes; then schemes; then the records of the weight. */
void cuda_put_product(Sb *sb, const CudaKernel *k);
void cuda_put_schemes(Sb *sb, const CudaKernel *k);
void cuda_put_records(Sb *sb, const CudaKernel *k);
/* Of blocks that go from group to group of rows (hopper_tiles.cuh). */
void cuda_put_groups(Sb *sb, const CudaKernel *k);
void cuda_put_scale_format(Sb *sb, const CudaKernel *k); /* of the weight, in the main loop */
/* A prologue that all threads of a block run on row after row: the type S of a row, and the words
 * of static shared memory that it needs. */
void cuda_put_row_type(Sb *sb, const CudaKernel *k);
int64_t cuda_prologue_scratch(const CudaKernel *k);
/* Bytes of static shared memory that a product's staged epilogues take, of all its warps. */
int64_t cuda_epilogue_scratch(const CudaKernel *k);

/* candidates.c: a family fills a copy of c->like and hands it over, or gives the reason why not. */
void cuda_candidate_valid(CudaCandidates *c, const CudaKernel *k);
void cuda_candidate_reject(CudaCandidates *c, const CudaKernel *k, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Integers in 16-bit floats whose blocks' sums exceed what f32 holds exactly. */
bool cuda_is_chunked(const CudaKernel *k);
bool cuda_always(const CudaKernel *k); /* true, of any */
/* Clusters of so many blocks, one to a processor, that run at once. */
#define CUDA_MOST_GATHERED 4
int64_t cuda_most_clusters(const CudaKernel *k, int blocks);
/* Of blocks that are small enough for two to share a processor: dynamic shared memory that each may
 * have at most, of `room` for one alone; and what one is launched with that needs `bytes`. Where
 * each of its tiles can have a processor, two would share one at times (30 or 43 us on an H200). */
int64_t cuda_half_room(int64_t room);
int64_t cuda_half_bytes(const CudaKernel *k, int64_t bytes, int64_t tiles);
/* fragments.c: columns that one call of such an epilogue gets of each part, of which a tile has
 * `part`; 0: it needs whole rows, or parts that four lanes do not hold. */
int cuda_fragment_columns(const CudaKernel *k, int64_t part);
/* Every run of `part` columns lies in one segment, wholly. */
bool cuda_in_segments(const CudaKernel *k, int64_t part);
/* One past a segment's last column of a part. */
int64_t cuda_segment_end(const CudaKernel *k, const PlanSegment *s);
/* held(), which takes `run` columns of each part; columns 0: there is none. place: where its
 * results go ("0": to memory). */
void cuda_put_fragments(Sb *sb, const CudaKernel *k, int columns, int64_t run, const char *place);
/* half(), the same for half a run of 32 columns of each part. */
void cuda_put_half_run(Sb *sb, const CudaKernel *k);
/* The widest dynamic group of the epilogue, 0 if it has none. */
int64_t cuda_epilogue_group(const CudaKernel *k);

/* Parts of K in which the blocks begin that share out tiles evenly, or have one of a cluster's. */
static inline int cuda_parts_begun(int64_t shares, int64_t tiles, int gather)
{
    return gather > 1 ? gather : shares && shares % tiles == 0 ? (int)(shares / tiles) : 1;
}

/* cost.c */
#define CUDA_BANDWIDTH 4.1e6 /* bytes a microsecond from memory, read once */
#define CUDA_L2_RATE   7.0e6 /* .. that all processors together get from L2 */
#define CUDA_ALONE     0.6   /* of its rate that a processor reaches with one block */
double cuda_tensor_bytes(const CudaKernel *k, int tensor);
double cuda_operand_bytes(const CudaKernel *k);
double cuda_weight_bytes(const CudaKernel *k);
/* Of reading `bytes`, in equal parts for `tiles` that as many blocks as there are take in turn, at
 * `all` bytes a microsecond and `each` of a block at most. */
double cuda_waves_us(double bytes, double tiles, double blocks, double each, double all);
double cuda_pass_us(double bytes);   /* of a kernel that does nothing else */
double cuda_stores_us(double bytes); /* .. and stores most of them */

/* Bits of a code of an activation as it is stored: a byte at least. */
int cuda_act_bits(FormatId fmt);
const char *cuda_multiplied_by(const CudaKernel *k); /* ", mma.sync s8" */
bool cuda_emulates(const CudaKernel *k); /* fma of f32 stand for its family's instruction */

static inline int64_t cuda_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
