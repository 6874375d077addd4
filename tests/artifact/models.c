/* Models made by hand; see models.h. */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_BUCKETS 3

static const int64_t sizes[NUM_BUCKETS] = {1, 4, 16};
static const PlanSym syms[] = {{"B", NUM_BUCKETS, sizes}};

#define DIM_B     \
    {             \
        1, 0,     \
        {         \
            0, -1 \
        }         \
    }
#define FIXED(n)   \
    {              \
        0, n,      \
        {          \
            -1, -1 \
        }          \
    }
#define PLAIN   .row_div = FIXED(1), .row_mod = FIXED(0), .col_step = 1
#define REPEAT  .row_div = FIXED(1), .row_mod = FIXED(1), .col_step = 1
#define COLUMN  .row_div = FIXED(1), .row_mod = FIXED(0), .col_step = 0
#define NO_STEP .tensor2 = TILE_NO_TENSOR

/* What all plans here share, and what this one has. */
#define PLAN(...)                                                                       \
    (Plan)                                                                              \
    {                                                                                   \
        .target = "cpu", .num_syms = 1, .num_buckets = NUM_BUCKETS, .sym = syms,        \
        .bucket_size = sizes, .arena_bytes = arena_bytes, .tensor = tensor,             \
        .num_tensors = COUNT_OF(tensor), .input = input, .num_inputs = COUNT_OF(input), \
        .output = output, .num_outputs = COUNT_OF(output), __VA_ARGS__                  \
    }

static void fill_numbers(TestModel *m)
{
    for (int n = 0; n < MODEL_N; n++) {
        m->bias[n] = (float)(n - 5);
        for (int k = 0; k < MODEL_K; k++)
            m->w[n][k] = (float)((n * 3 + k * 5) % 11 - 5);
    }
}

/* Room for packed weights of the spec, then the bias. */
#define WEIGHTS_ROOM ((size_t)1 << 17)

static void alloc_weights(TestModel *m, uint64_t packed, uint64_t *ret_bias_at)
{
    *ret_bias_at = (packed + 63) / 64 * 64;
    m->weights_bytes = *ret_bias_at + 64 * ((sizeof m->bias + 63) / 64) + 64;
    m->weights = aligned_alloc(64, WEIGHTS_ROOM); /* also for the packing of another target */
    memset(m->weights, 0, WEIGHTS_ROOM);
    memcpy(m->weights + *ret_bias_at, m->bias, sizeof m->bias);
}

void model_free(TestModel *m)
{
    free(m->weights);
}

void model_expect(const TestModel *m, float factor, bool relu, const float *x, int64_t rows,
                  float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int n = 0; n < MODEL_N; n++) {
            double sum = 0;
            for (int k = 0; k < MODEL_K; k++)
                sum += (double)x[r * MODEL_K + k] * (double)m->w[n][k];
            sum = relu ? sum + (double)m->bias[n] : sum * (double)factor + (double)m->bias[n];
            if (relu)
                sum = (sum > 0 ? sum : 0) * (double)factor;
            y[r * MODEL_N + n] = (float)sum;
        }
}

void model_float(TestModel *m)
{
    static const uint64_t h_at[NUM_BUCKETS] = {0, 0, 0};
    static const uint64_t arena_bytes[NUM_BUCKETS] = {64, 256, 1024};
    static PlanTensor tensor[6];
    static const PlanOperand gemm_operand[] = {{1, PLAIN}, {3, REPEAT}};
    static const PlanOperand tile_operand[] = {{4, PLAIN}, {1, PLAIN}};
    static const TileStep epilogue[] = {
        {.op = TILE_ACC, .fmt = FMT_F32, .dst = 0, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_LOAD, .dst = 1, .tensor = 1, NO_STEP},
        {.op = TILE_ADD, .dst = 2, .src = {0, 1}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_RELU, .dst = 3, .src = {2}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_STORE, .src = {3}, .tensor = 0, NO_STEP},
    };
    static const TileStep twice[] = {
        {.op = TILE_LOAD, .dst = 0, .tensor = 1, NO_STEP},
        {.op = TILE_CONST, .dst = 1, .imm = 2.0f, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_MUL, .dst = 2, .src = {0, 1}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_STORE, .src = {2}, .tensor = 0, NO_STEP},
    };
    static const PlanSegment segment[] = {{0, MODEL_N, {epilogue, COUNT_OF(epilogue)}}};
    static const PlanPort input[] = {{"x", 0}}, output[] = {{"y", 4}, {"z", 5}};
    static const PlanLaunch launch[] = {
        {.family = LAUNCH_GEMM,
         .layer = "fc",
         .place = "m.sinter:3:9",
         .absorbed = "matmul add relu",
         .num_operands = COUNT_OF(gemm_operand),
         .operand = gemm_operand,
         .a = 0,
         .w = 2,
         .num_segments = 1,
         .segment = segment},
        {.family = LAUNCH_TILE,
         .layer = "twice",
         .place = "m.sinter:4:9",
         .absorbed = "mul",
         .num_operands = COUNT_OF(tile_operand),
         .operand = tile_operand,
         .program = {twice, COUNT_OF(twice)}},
        {.family = LAUNCH_MOVE,
         .layer = "swap",
         .place = "m.sinter:5:9",
         .absorbed = "transpose",
         .src = 4,
         .dst = 5,
         .move_rank = 3,
         .move_dim = {DIM_B, FIXED(2), FIXED(8)},
         .move_src_stride = {FIXED(16), FIXED(1), FIXED(2)},
         .move_dst_stride = {FIXED(16), FIXED(8), FIXED(1)},
         .move_src_offset = FIXED(0),
         .move_dst_offset = FIXED(0)},
    };
    const CpuPackSpec spec = {
        .fmt = FMT_F32, .act_fmt = FMT_F32, .n = MODEL_N, .k = MODEL_K, .parts = 1};
    uint64_t bias_at, packed = cpu_pack_bytes(&spec);
    memset(m, 0, sizeof *m);
    fill_numbers(m);
    alloc_weights(m, packed, &bias_at);
    cpu_pack(&spec, m->w, sizeof m->w[0], NULL, NULL, NULL, m->weights);
    const PlanTensor t[] = {
        {"x", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_K)}, .storage = STORAGE_INPUT},
        {"h", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_ARENA,
         .arena_offset = h_at},
        {"w", FMT_F32, .rank = 2, .dim = {FIXED(MODEL_N), FIXED(MODEL_K)}, .bytes = packed,
         .packed = true, .pack_spec = spec},
        {"b", FMT_F32, .rank = 1, .dim = {FIXED(MODEL_N)}, .offset = bias_at,
         .bytes = sizeof m->bias},
        {"y", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_OUTPUT},
        {"z", FMT_F32, .rank = 3, .dim = {DIM_B, FIXED(2), FIXED(8)}, .storage = STORAGE_OUTPUT,
         .index = 1},
    };
    memcpy(tensor, t, sizeof t);
    m->plan = PLAN(.rows_independent = true, .launch = launch, .num_launches = COUNT_OF(launch));
}

enum { INT8_LAUNCHES = 2 };

static const PlanLaunch *int8_launches(void)
{
    static const PlanOperand tile_operand[] = {{0, PLAIN}, {1, PLAIN}};
    static const PlanOperand operand[] = {{5, PLAIN}, {6, COLUMN}, {4, REPEAT}, {3, REPEAT}};
    static const TileStep quantise[] = {
        {.op = TILE_LOAD, .dst = 0, .tensor = 0, NO_STEP},
        {.op = TILE_QUANTIZE, .src = {0}, .tensor = 1, NO_STEP},
    };
    static const TileStep epilogue[] = {
        {.op = TILE_ACC, .fmt = FMT_I32, .dst = 0, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_I32_TO_F32, .dst = 1, .src = {0}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_LOAD, .dst = 2, .tensor = 1, NO_STEP},
        {.op = TILE_MUL, .dst = 3, .src = {1, 2}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_LOAD, .dst = 4, .tensor = 2, NO_STEP},
        {.op = TILE_MUL, .dst = 5, .src = {3, 4}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_LOAD, .dst = 6, .tensor = 3, NO_STEP},
        {.op = TILE_ADD, .dst = 7, .src = {5, 6}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_STORE, .src = {7}, .tensor = 0, NO_STEP},
    };
    static const PlanSegment segment[] = {{0, MODEL_N, {epilogue, COUNT_OF(epilogue)}}};
    static const PlanLaunch launch[] = {
        {.family = LAUNCH_TILE,
         .layer = "fc",
         .place = "m.sinter:3:9",
         .absorbed = "quantize",
         .num_operands = COUNT_OF(tile_operand),
         .operand = tile_operand,
         .whole_rows = true,
         .program = {quantise, COUNT_OF(quantise)}},
        {.family = LAUNCH_GEMM,
         .layer = "fc",
         .place = "m.sinter:3:9",
         .absorbed = "matmul scales add",
         .num_operands = COUNT_OF(operand),
         .operand = operand,
         .a = 1,
         .w = 2,
         .num_segments = 1,
         .segment = segment},
    };
    _Static_assert(COUNT_OF(launch) == INT8_LAUNCHES, "all are counted");
    return launch;
}

void model_int8(TestModel *m)
{
    static const uint64_t q_at[NUM_BUCKETS] = {0, 0, 0};
    static const uint64_t arena_bytes[NUM_BUCKETS] = {128, 128, 320};
    static PlanTensor tensor[7];
    static const PlanPort input[] = {{"x", 0}}, output[] = {{"y", 5}};
    const Scheme token = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}};
    const CpuPackSpec spec = {.fmt = FMT_I8,
                              .act_fmt = FMT_I8,
                              .n = MODEL_N,
                              .k = MODEL_K,
                              .parts = 1,
                              .block_rows = 1,
                              .scale_fmt = FMT_F32};
    uint64_t bias_at, packed = cpu_pack_bytes(&spec);
    memset(m, 0, sizeof *m);
    fill_numbers(m);
    alloc_weights(m, packed, &bias_at);
    int8_t codes[MODEL_N][MODEL_K];
    float half[MODEL_N];
    for (int n = 0; n < MODEL_N; n++) {
        half[n] = 0.5f;
        for (int k = 0; k < MODEL_K; k++)
            codes[n][k] = (int8_t)m->w[n][k];
    }
    cpu_pack(&spec, codes, MODEL_K, half, NULL, NULL, m->weights);
    memcpy(m->weights + bias_at + 64, half, sizeof half);
    const PlanTensor t[] = {
        {"x", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_K)}, .storage = STORAGE_INPUT},
        {"xq", FMT_I8, .quantised = true, .scheme = token, .rank = 2,
         .dim = {DIM_B, FIXED(MODEL_K)}, .storage = STORAGE_ARENA, .arena_offset = q_at},
        {"w", FMT_I8, .quantised = true, .scheme = token, .rank = 2,
         .dim = {FIXED(MODEL_N), FIXED(MODEL_K)}, .bytes = packed, .packed = true,
         .pack_spec = spec},
        {"b", FMT_F32, .rank = 1, .dim = {FIXED(MODEL_N)}, .offset = bias_at,
         .bytes = sizeof m->bias},
        {"sw", FMT_F32, .rank = 1, .dim = {FIXED(MODEL_N)}, .offset = bias_at + 64,
         .bytes = sizeof half},
        {"y", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_OUTPUT},
        {"sx", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_SCALES, .index = 1},
    };
    memcpy(tensor, t, sizeof t);
    m->plan =
        PLAN(.rows_independent = true, .launch = int8_launches(), .num_launches = INT8_LAUNCHES);
}

/* Routing, in model_grouped and model_routed: two choices of each row. */
#define ROUTED    \
    {             \
        2, 0,     \
        {         \
            0, -1 \
        }         \
    }
static const TileStep moves[] = {
    {.op = TILE_LOAD, .dst = 0, .tensor = 2, NO_STEP},
    {.op = TILE_STORE, .src = {0}, .tensor = 0, NO_STEP},
};
static const TileStep sums[] = {
    {.op = TILE_LOAD, .dst = 0, .tensor = 2, NO_STEP},
    {.op = TILE_LOAD, .dst = 1, .tensor = 3, NO_STEP},
    {.op = TILE_MUL, .dst = 2, .src = {1, 0}, .tensor = TILE_NO_TENSOR, NO_STEP},
    {.op = TILE_LOAD, .dst = 0, .tensor = 5, NO_STEP},
    {.op = TILE_LOAD, .dst = 1, .tensor = 6, NO_STEP},
    {.op = TILE_MUL, .dst = 3, .src = {1, 0}, .tensor = TILE_NO_TENSOR, NO_STEP},
    {.op = TILE_ADD, .dst = 2, .src = {2, 3}, .tensor = TILE_NO_TENSOR, NO_STEP},
    {.op = TILE_STORE, .src = {2}, .tensor = 0, NO_STEP},
};

/* Where the tensors of model_grouped lie in its arena, of the largest bucket. */
enum {
    INDEX_AT = 0,
    TAKEN_AT = 128,
    ENDS_AT = 256,
    PLACES_AT = 320,
    ROWS_AT = 448,
    SUMS_AT = 1472,
    FACTORED_AT = 3520,
    SOURCES_AT = 5568,
    GROUPED_BYTES = 5696
};

static const PlanLaunch *grouped_launches(void)
{
    static const PlanOperand choose[] = {{1, PLAIN}, {2, PLAIN}, {3, PLAIN}},
                             sources[] = {{2, PLAIN}, {13, PLAIN}},
                             ends[] = {{2, PLAIN}, {4, PLAIN}}, places[] = {{2, PLAIN}, {5, PLAIN}},
                             dispatch[] = {{6, PLAIN}, {13, PLAIN}, {0, PLAIN, .index = 2}},
                             product[] = {{8, PLAIN}, {9, PLAIN, .by_group = true}},
                             scale[] = {{11, PLAIN}, {8, PLAIN}, {10, PLAIN, .by_group = true}},
                             combine[] = {{12, PLAIN},  {14, PLAIN}, {11, PLAIN, .index = 2},
                                          {16, COLUMN}, {15, PLAIN}, {11, PLAIN, .index = 5},
                                          {17, COLUMN}};
    static const TileStep epilogue[] = {
        {.op = TILE_ACC, .fmt = FMT_F32, .dst = 0, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_LOAD, .dst = 1, .tensor = 1, NO_STEP},
        {.op = TILE_ADD, .dst = 2, .src = {0, 1}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_RELU, .dst = 3, .src = {2}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_STORE, .src = {3}, .tensor = 0, NO_STEP},
    };
    static const TileStep factors[] = {
        {.op = TILE_LOAD, .dst = 0, .tensor = 1, NO_STEP},
        {.op = TILE_LOAD, .dst = 1, .tensor = 2, NO_STEP},
        {.op = TILE_MUL, .dst = 2, .src = {0, 1}, .tensor = TILE_NO_TENSOR, NO_STEP},
        {.op = TILE_STORE, .src = {2}, .tensor = 0, NO_STEP},
    };
    static const PlanSegment segment[] = {{0, MODEL_N, {epilogue, COUNT_OF(epilogue)}}};
#define ROUTE(step, ...)                                                                    \
    {                                                                                       \
        .family = LAUNCH_ROUTE, .layer = "r", .place = "m.sinter:3:9", .absorbed = "route", \
        .num_operands = COUNT_OF(step), .operand = (step), __VA_ARGS__                      \
    }
    static const PlanLaunch launch[] = {
        ROUTE(choose, .route = ROUTE_CHOOSE),
        ROUTE(sources, .route = ROUTE_SOURCES, .groups = MODEL_E),
        ROUTE(ends, .route = ROUTE_ENDS, .groups = MODEL_E),
        ROUTE(places, .route = ROUTE_PLACES, .groups = MODEL_E),
        {.family = LAUNCH_TILE,
         .layer = "rows",
         .place = "m.sinter:3:20",
         .absorbed = "dispatch",
         .num_operands = COUNT_OF(dispatch),
         .operand = dispatch,
         .program = {moves, COUNT_OF(moves)}},
        {.family = LAUNCH_GEMM,
         .layer = "experts",
         .place = "m.sinter:4:9",
         .absorbed = "matmul add relu",
         .num_operands = COUNT_OF(product),
         .operand = product,
         .grouped = true,
         .ends = 4,
         .a = 6,
         .w = 7,
         .num_segments = 1,
         .segment = segment},
        {.family = LAUNCH_TILE,
         .layer = "factors",
         .place = "m.sinter:5:9",
         .absorbed = "mul",
         .num_operands = COUNT_OF(scale),
         .operand = scale,
         .grouped = true,
         .ends = 4,
         .program = {factors, COUNT_OF(factors)}},
        {.family = LAUNCH_TILE,
         .layer = "y",
         .place = "m.sinter:6:9",
         .absorbed = "combine",
         .num_operands = COUNT_OF(combine),
         .operand = combine,
         .program = {sums, COUNT_OF(sums)}},
    };
#undef ROUTE
    _Static_assert(COUNT_OF(launch) == GROUPED_LAUNCHES, "models.h");
    return launch;
}

/* Weights of all groups, then a row of biases for each, then one of factors. */
static uint64_t pack_groups(TestModel *m, const CpuPackSpec *spec)
{
    uint64_t each = (cpu_pack_bytes(spec) + 127) / 128 * 128, at = MODEL_E * each;
    m->weights_bytes = at + 2 * MODEL_E * sizeof m->bias;
    m->weights = aligned_alloc(64, WEIGHTS_ROOM);
    memset(m->weights, 0, WEIGHTS_ROOM);
    for (int g = 0; g < MODEL_E; g++) {
        float w[MODEL_N][MODEL_K], factor[MODEL_N];
        for (int n = 0; n < MODEL_N; n++) {
            factor[n] = 1 / (float)(g + 1);
            for (int k = 0; k < MODEL_K; k++)
                w[n][k] = m->w[n][k] * (float)(g + 1);
        }
        cpu_pack(spec, w, sizeof w[0], NULL, NULL, NULL, m->weights + (uint64_t)g * each);
        memcpy(m->weights + at + (size_t)g * sizeof m->bias, m->bias, sizeof m->bias);
        memcpy(m->weights + at + (size_t)(MODEL_E + g) * sizeof m->bias, factor, sizeof factor);
    }
    return at;
}

void model_grouped(TestModel *m)
{
    static const uint64_t at[][NUM_BUCKETS] = {
        {INDEX_AT, INDEX_AT, INDEX_AT},
        {TAKEN_AT, TAKEN_AT, TAKEN_AT},
        {ENDS_AT, ENDS_AT, ENDS_AT},
        {PLACES_AT, PLACES_AT, PLACES_AT},
        {ROWS_AT, ROWS_AT, ROWS_AT},
        {SUMS_AT, SUMS_AT, SUMS_AT},
        {FACTORED_AT, FACTORED_AT, FACTORED_AT},
        {SOURCES_AT, SOURCES_AT, SOURCES_AT},
    };
    static const uint64_t arena_bytes[NUM_BUCKETS] = {GROUPED_BYTES, GROUPED_BYTES, GROUPED_BYTES};
    static const PlanPort input[] = {{"x", 0}, {"s", 1}}, output[] = {{"y", 12}};
    static PlanTensor tensor[GROUPED_TENSORS];
    const CpuPackSpec spec = {
        .fmt = FMT_F32, .act_fmt = FMT_F32, .n = MODEL_N, .k = MODEL_K, .parts = 1};
    memset(m, 0, sizeof *m);
    fill_numbers(m);
    const uint64_t tables = pack_groups(m, &spec), table_bytes = MODEL_E * sizeof m->bias;
#define MADE(step) .storage = STORAGE_ARENA, .arena_offset = at[step]
    const PlanTensor t[] = {
        {"x", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_K)}, .storage = STORAGE_INPUT},
        {"s", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_E)}, .storage = STORAGE_INPUT,
         .index = 1},
        {"index", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(2)}, MADE(0)},
        {"taken", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(2)}, MADE(1)},
        {"ends", FMT_I32, .rank = 1, .dim = {FIXED(MODEL_E)}, MADE(2)},
        {"places", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(2)}, MADE(3)},
        {"rows", FMT_F32, .rank = 2, .dim = {ROUTED, FIXED(MODEL_K)}, MADE(4)},
        {"w", FMT_F32, .rank = 3, .dim = {FIXED(MODEL_E), FIXED(MODEL_N), FIXED(MODEL_K)},
         .bytes = tables, .packed = true, .pack_spec = spec, .groups = MODEL_E},
        {"sums", FMT_F32, .rank = 2, .dim = {ROUTED, FIXED(MODEL_N)}, MADE(5)},
        {"biases", FMT_F32, .rank = 2, .dim = {FIXED(MODEL_E), FIXED(MODEL_N)}, .offset = tables,
         .bytes = table_bytes},
        {"factors", FMT_F32, .rank = 2, .dim = {FIXED(MODEL_E), FIXED(MODEL_N)},
         .offset = tables + table_bytes, .bytes = table_bytes},
        {"factored", FMT_F32, .rank = 2, .dim = {ROUTED, FIXED(MODEL_N)}, MADE(6)},
        {"y", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_OUTPUT},
        {"sources", FMT_I32, .rank = 2, .dim = {ROUTED, FIXED(1)}, MADE(7)},
        {"place0", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 5},
        {"place1", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 5, .view_col = 1},
        {"taken0", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 3},
        {"taken1", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 3, .view_col = 1},
    };
#undef MADE
    memcpy(tensor, t, sizeof t);
    m->plan = PLAN(.launch = grouped_launches(), .num_launches = GROUPED_LAUNCHES);
}

enum { ROUTED_STEPS = ROUTE_CLEAR, ROUTED_LAUNCHES = ROUTED_STEPS + 2 };

static const PlanLaunch *routed_launches(void)
{
    static const PlanOperand operand[] = {
        {1, PLAIN},
        {3, PLAIN}, /* topk */
        {1, PLAIN},
        {3, PLAIN},
        {4, PLAIN}, /* take */
        {3, PLAIN},
        {6, PLAIN}, /* ends */
        {3, PLAIN},
        {5, PLAIN}, /* places */
        {3, PLAIN},
        {7, PLAIN}, /* sources */
        {1, PLAIN},
        {3, PLAIN},
        {4, PLAIN}, /* choose */
        {3, PLAIN},
        {6, PLAIN},
        {5, PLAIN},
        {7, PLAIN}, /* sort */
        {1, PLAIN},
        {3, PLAIN},
        {4, PLAIN}, /* weigh */
        {8, PLAIN},
        {7, PLAIN},
        {0, PLAIN, .index = 2}, /* dispatch */
        {2, PLAIN},
        {9, PLAIN},
        {8, PLAIN, .index = 2},
        {11, COLUMN}, /* combine */
        {10, PLAIN},
        {8, PLAIN, .index = 5},
        {12, COLUMN},
    };
    static const int first[] = {0, 2, 5, 7, 9, 11, 14, 18, 21, 24, 31};
    static PlanLaunch launch[ROUTED_LAUNCHES];
    for (int i = 0; i < (int)COUNT_OF(launch); i++) {
        bool sends = i == ROUTED_STEPS, is_tile = i >= ROUTED_STEPS;
        const char *name = sends ? "dispatch" : is_tile ? "combine" : route_step_name[i];
        launch[i] = (PlanLaunch){.family = is_tile ? LAUNCH_TILE : LAUNCH_ROUTE,
                                 .layer = name,
                                 .place = "m.sinter:3:9",
                                 .absorbed = name,
                                 .num_operands = first[i + 1] - first[i],
                                 .operand = operand + first[i]};
        if (is_tile)
            launch[i].program =
                sends ? (PlanProgram){moves, COUNT_OF(moves)} : (PlanProgram){sums, COUNT_OF(sums)};
        else
            launch[i].route = (RouteStep)i;
        launch[i].groups = !is_tile && plan_route_sorts((RouteStep)i) ? MODEL_E : 0;
    }
    return launch;
}

void model_routed(TestModel *m)
{
    static const uint64_t at[][NUM_BUCKETS] = {
        {0}, {128, 128, 128}, {256, 256, 256}, {384, 384, 384}, {448, 448, 448}, {576, 576, 576}};
    static const uint64_t arena_bytes[NUM_BUCKETS] = {704, 1088, 2624};
    static PlanTensor tensor[13];
    static const PlanPort input[] = {{"x", 0}, {"logits", 1}}, output[] = {{"y", 2}};
    const PlanTensor t[] = {
        {"x", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_INPUT},
        {"logits", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_E)}, .storage = STORAGE_INPUT,
         .index = 1},
        {"y", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(MODEL_N)}, .storage = STORAGE_OUTPUT},
        {"index", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(2)}, .storage = STORAGE_ARENA,
         .arena_offset = at[0]},
        {"weights", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(2)}, .storage = STORAGE_ARENA,
         .arena_offset = at[1]},
        {"places", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(2)}, .storage = STORAGE_ARENA,
         .arena_offset = at[2]},
        {"ends", FMT_I32, .rank = 1, .dim = {FIXED(MODEL_E)}, .storage = STORAGE_ARENA,
         .arena_offset = at[3]},
        {"sources", FMT_I32, .rank = 2, .dim = {ROUTED, FIXED(1)}, .storage = STORAGE_ARENA,
         .arena_offset = at[4]},
        {"sent", FMT_F32, .rank = 2, .dim = {ROUTED, FIXED(MODEL_N)}, .storage = STORAGE_ARENA,
         .arena_offset = at[5]},
        {"place0", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 5},
        {"place1", FMT_I32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 5, .view_col = 1},
        {"weight0", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 4},
        {"weight1", FMT_F32, .rank = 2, .dim = {DIM_B, FIXED(1)}, .storage = STORAGE_VIEW,
         .index = 4, .view_col = 1},
    };
    uint64_t bias_at;
    memset(m, 0, sizeof *m);
    alloc_weights(m, 0, &bias_at);
    memcpy(tensor, t, sizeof t);
    m->plan = PLAN(.launch = routed_launches(), .num_launches = ROUTED_LAUNCHES);
}

static bool put_section(ArtifactWriter *w, SectionKind kind, const char *name, const void *data,
                        uint64_t size)
{
    return artifact_section_begin(w, kind, name) && artifact_write(w, data, size) &&
           artifact_section_end(w);
}

static bool put_plan(ArtifactWriter *w, const TestModel *m, const char *target)
{
    Bytes plan;
    bool ok =
        plan_encode(&m->plan, &plan) && put_section(w, SECTION_PLAN, target, plan.data, plan.size);
    bytes_free(&plan);
    return ok;
}

bool model_write_both(const TestModel *cpu, const TestModel *cuda, const char *path,
                      const void *stub, size_t stub_size)
{
    static const char meta[] = "model = hand\n", source[] = "version 1\n";
    const TestModel *weights = cuda && cuda->weights_bytes > cpu->weights_bytes ? cuda : cpu;
    IoError err = {.text = "it cannot be encoded"};
    ArtifactWriter *w = artifact_create(path, stub, stub_size, &err);
    bool ok = w && put_section(w, SECTION_META, "", meta, sizeof meta - 1) &&
              put_section(w, SECTION_SOURCE, "m.sinter", source, sizeof source - 1) &&
              put_plan(w, cpu, "cpu") && (!cuda || put_plan(w, cuda, "portable")) &&
              put_section(w, SECTION_WEIGHTS, "", weights->weights, weights->weights_bytes);
    if (ok)
        ok = artifact_finish(w, &err);
    else
        artifact_abandon(w);
    if (!ok)
        fprintf(stderr, "model_write: %s\n", err.text);
    return ok;
}

bool model_write(const TestModel *m, const char *path, const void *stub, size_t stub_size)
{
    return model_write_both(m, NULL, path, stub, stub_size);
}
