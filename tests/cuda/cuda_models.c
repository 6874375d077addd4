/* See cuda_models.h. */
#include "cuda_models.h"

#include <stdlib.h>
#include <string.h>

static const TestModel *used;

uint8_t pattern_at(uint64_t at)
{
    return (uint8_t)((at * 2654435761u) >> 16);
}

typedef struct Parts {
    Plan gpu, cpu;
    PlanTensor gpu_tensor[8], cpu_tensor[8];
    uint8_t *weights; /* the GPU's, then the CPU's */
    uint64_t gpu_bytes, bytes;
} Parts;

/* What fills the space between the weight and the bias, for the GPU to read all of it. */
static void add_filler(Plan *p, PlanTensor *tensor, uint64_t at, uint64_t end)
{
    tensor[p->num_tensors++] =
        (PlanTensor){.name = "filler",
                     .fmt = FMT_F32,
                     .rank = 1,
                     .dim = {{.add = (int64_t)(end - at) / 4, .sym = {-1, -1}}},
                     .storage = STORAGE_CONST,
                     .index = -1,
                     .offset = at,
                     .bytes = end - at,
                     .params = -1};
}

/* The weight first, then the bias at the very end. */
static void make_gpu(const TestModel *m, uint64_t weights_bytes, Parts *p)
{
    p->gpu = m->plan;
    p->gpu.target = "portable";
    memcpy(p->gpu_tensor, m->plan.tensor, (size_t)m->plan.num_tensors * sizeof *p->gpu_tensor);
    p->gpu.tensor = p->gpu_tensor;
    uint64_t packed = plan_packed_bytes(&p->gpu, &p->gpu_tensor[2].pack_spec);
    uint64_t filler_at = (packed + 255) / 256 * 256, least = filler_at + 256;
    p->gpu_bytes = weights_bytes > least ? weights_bytes : least;
    uint64_t bias_at = (p->gpu_bytes - sizeof m->bias) / 64 * 64;
    p->gpu_tensor[2].offset = 0;
    p->gpu_tensor[2].bytes = packed;
    p->gpu_tensor[3].offset = bias_at;
    add_filler(&p->gpu, p->gpu_tensor, filler_at, bias_at);
}

static bool make_parts(const TestModel *m, uint64_t weights_bytes, Parts *p)
{
    make_gpu(m, weights_bytes, p);
    uint64_t cpu_at = (p->gpu_bytes + 4095) / 4096 * 4096;
    p->cpu = m->plan;
    memcpy(p->cpu_tensor, m->plan.tensor, (size_t)m->plan.num_tensors * sizeof *p->cpu_tensor);
    p->cpu.tensor = p->cpu_tensor;
    for (int i = 0; i < m->plan.num_tensors; i++)
        if (p->cpu_tensor[i].storage == STORAGE_CONST)
            p->cpu_tensor[i].offset += cpu_at;
    p->bytes = cpu_at + m->weights_bytes;
    p->weights = malloc((size_t)p->bytes);
    if (!p->weights)
        return false;
    for (uint64_t i = 0; i < cpu_at; i++)
        p->weights[i] = pattern_at(i);
    memcpy(p->weights + p->gpu_tensor[3].offset, m->bias, sizeof m->bias);
    memcpy(p->weights + cpu_at, m->weights, (size_t)m->weights_bytes);
    return true;
}

/* The product by clusters of two, a through a tensor map, at most one block for each processor; it
 * has L2 fetch what the next product reads first, which is itself in the next run. */
static void map_product(DeviceLaunch *l, bool of_scales)
{
    l->kernel = 4;
    l->cluster = 2;
    l->grid = 400;
    l->per_processor = 1;
    l->num_maps = 1;
    l->looks_ahead = 1;
    l->first = (DeviceRuns){.stride = 64, .runs = 2, .bytes = 32};
    l->map[0] = (DeviceMap){.operand = 2,
                            .element_bytes = 4,
                            .box_rows = 2,
                            .box_bytes = 32,
                            .swizzle = 32,
                            .scales = of_scales};
}

static bool encode_code(const Plan *plan, int holds, Bytes *ret)
{
    static const char *const kernel[] = {"gemm_4", "tile_2", "move_2", "wide_4", "mapped_4"};
    static const char cubin[] = "\177ELF made up", ptx[] = ".version 8.0";
    bool binary = !strcmp(plan->target, "sm_90a");
    DeviceImage image[COUNT_OF(kernel)];
    DeviceLaunch launch[16];
    for (size_t i = 0; i < COUNT_OF(kernel); i++)
        image[i] =
            binary ? (DeviceImage){"sm_90a", (int32_t)i, (const uint8_t *)cubin, sizeof cubin - 1}
                   : (DeviceImage){"compute_80", (int32_t)i, (const uint8_t *)ptx, sizeof ptx - 1};
    for (int i = 0; i < plan->num_launches; i++)
        for (int b = 0; b < plan->num_buckets; b++)
            launch[i * plan->num_buckets + b] =
                (DeviceLaunch){.kernel = i == 0 && b == plan->num_buckets - 1 ? 3 : i,
                               .grid = CUDA_MODEL_GRID,
                               .block = CUDA_MODEL_BLOCK,
                               .smem = i == 0 ? CUDA_MODEL_SHARED : 0};
    for (int b = 0; b < plan->num_buckets && holds & WITH_MAPS; b++) {
        map_product(&launch[b], holds & OF_SCALES);
        launch[plan->num_buckets + b].per_processor = b > 0; /* of what follows it */
    }
    const DeviceCode code = {.num_kernels = COUNT_OF(kernel),
                             .num_images = COUNT_OF(image),
                             .num_launches = plan->num_launches,
                             .num_buckets = plan->num_buckets,
                             .kernel = kernel,
                             .launch = launch,
                             .image = image};
    return device_code_encode(&code, ret);
}

static bool put(ArtifactWriter *w, SectionKind kind, const char *name, const void *data,
                uint64_t size)
{
    return artifact_section_begin(w, kind, name) && artifact_write(w, data, size) &&
           artifact_section_end(w);
}

static bool put_plan(ArtifactWriter *w, const Plan *plan, const char *target, int holds)
{
    Plan named = *plan;
    Bytes bytes = {0}, code = {0};
    named.target = target;
    bool ok = plan_encode(&named, &bytes) && put(w, SECTION_PLAN, target, bytes.data, bytes.size) &&
              (!strcmp(target, "cpu") || (encode_code(&named, holds, &code) &&
                                          put(w, SECTION_CODE, target, code.data, code.size)));
    bytes_free(&bytes);
    bytes_free(&code);
    return ok;
}

bool write_cuda_model(const TestModel *m, const char *path, uint64_t weights_bytes, int holds)
{
    static const char meta[] = "model = hand\n";
    Parts parts = {0};
    IoError err = {.text = "cannot be encoded"};
    bool ok = make_parts(m, weights_bytes, &parts);
    ArtifactWriter *w = ok ? artifact_create(path, "stub", 4, &err) : NULL;
    if (w && put(w, SECTION_META, "", meta, sizeof meta - 1) &&
        (!(holds & HOLDS_CPU) || put_plan(w, &parts.cpu, "cpu", 0)) &&
        (!(holds & HOLDS_SM_90A) || put_plan(w, &parts.gpu, "sm_90a", holds)) &&
        (!(holds & HOLDS_PORTABLE) || put_plan(w, &parts.gpu, "portable", 0)) &&
        put(w, SECTION_WEIGHTS, "", parts.weights, parts.bytes)) {
        ok = artifact_finish(w, &err);
    } else {
        artifact_abandon(w);
        ok = false;
    }
    if (!ok)
        fprintf(stderr, "write_cuda_model: %s\n", err.text);
    free(parts.weights);
    return ok;
}

/* Kernels -------------------------------------------------------------------------------------- */

void use_model(const TestModel *m)
{
    used = m;
}

static void run_gemm(const FakeParams *p)
{
    float *h = p->operand[0].data;
    const float *bias = p->operand[1].data, *a = p->operand[2].data;
    for (int64_t r = 0; r < p->count; r++)
        for (int n = 0; n < MODEL_N; n++) {
            float sum = 0;
            for (int k = 0; k < MODEL_K; k++)
                sum += a[r * MODEL_K + k] * used->w[n][k];
            sum += bias[n];
            h[r * MODEL_N + n] = sum > 0 ? sum : 0;
        }
}

void run_model_kernel(const char *name, const FakeParams *p)
{
    if (!strcmp(name, "gemm_4") || !strcmp(name, "wide_4") || !strcmp(name, "mapped_4")) {
        run_gemm(p);
        return;
    }
    bool is_move = !strcmp(name, "move_2");
    const float *from = p->operand[is_move ? 0 : 1].data;
    float *to = p->operand[is_move ? 1 : 0].data;
    int64_t rows = is_move ? p->count / MODEL_N : p->count;
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < MODEL_N; i++) {
            int at = is_move ? i % 8 * 2 + i / 8 : i;
            to[r * MODEL_N + i] = from[r * MODEL_N + at] * (is_move ? 1.0f : 2.0f);
        }
}
