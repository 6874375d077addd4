/* See cuda_models.h. */
#include "cuda_models.h"

#include <stdlib.h>
#include <string.h>

static const TestModel *used;

uint8_t pattern_at(uint64_t at)
{
    return (uint8_t)((at * 2654435761u) >> 16);
}

typedef struct Parts { /* of a GPU's plan */
    Plan plan;
    PlanTensor tensor[8];
    uint8_t *weights;
    uint64_t weights_bytes, bias_at;
} Parts;

/* The weight first, then the bias at the very end. */
static bool make_parts(const TestModel *m, uint64_t weights_bytes, Parts *p)
{
    p->plan = m->plan;
    p->plan.target = "cuda";
    memcpy(p->tensor, m->plan.tensor, (size_t)m->plan.num_tensors * sizeof *p->tensor);
    p->plan.tensor = p->tensor;
    uint64_t packed = plan_packed_bytes(&p->plan, &p->tensor[2].pack_spec);
    uint64_t least = (packed + 255) / 256 * 256 + 256;
    p->weights_bytes = weights_bytes > least ? weights_bytes : least;
    p->bias_at = (p->weights_bytes - sizeof m->bias) / 64 * 64;
    p->tensor[2].bytes = packed;
    p->tensor[3].offset = p->bias_at;
    p->weights = malloc((size_t)p->weights_bytes);
    if (!p->weights)
        return false;
    for (uint64_t i = 0; i < p->weights_bytes; i++)
        p->weights[i] = pattern_at(i);
    memcpy(p->weights + p->bias_at, m->bias, sizeof m->bias);
    return true;
}

static bool encode_code(const Plan *plan, Bytes *ret)
{
    static const char *const kernel[] = {"gemm_4", "tile_2", "move_2", "wide_4"};
    static const char cubin[] = "\177ELF made up", ptx[] = ".version 8.0";
    DeviceImage image[2 * COUNT_OF(kernel)];
    DeviceLaunch launch[16];
    for (size_t i = 0; i < COUNT_OF(kernel); i++) {
        image[2 * i] =
            (DeviceImage){"sm_90a", (int32_t)i, (const uint8_t *)cubin, sizeof cubin - 1};
        image[2 * i + 1] =
            (DeviceImage){"compute_80", (int32_t)i, (const uint8_t *)ptx, sizeof ptx - 1};
    }
    for (int i = 0; i < plan->num_launches; i++)
        for (int b = 0; b < plan->num_buckets; b++)
            launch[i * plan->num_buckets + b] =
                (DeviceLaunch){i == 0 && b == plan->num_buckets - 1 ? 3 : i, CUDA_MODEL_GRID,
                               CUDA_MODEL_BLOCK, i == 0 ? CUDA_MODEL_SHARED : 0};
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

bool write_cuda_model(const TestModel *m, const char *path, uint64_t weights_bytes)
{
    static const char meta[] = "model = hand\n";
    Parts parts = {0};
    IoError err = {.text = "cannot be encoded"};
    Bytes cpu = {0}, cuda = {0}, code = {0};
    bool ok = make_parts(m, weights_bytes, &parts) && plan_encode(&m->plan, &cpu) &&
              plan_encode(&parts.plan, &cuda) && encode_code(&parts.plan, &code);
    ArtifactWriter *w = ok ? artifact_create(path, "stub", 4, &err) : NULL;
    if (w && put(w, SECTION_META, "", meta, sizeof meta - 1) &&
        put(w, SECTION_PLAN, "cpu", cpu.data, cpu.size) &&
        put(w, SECTION_WEIGHTS, "cpu", m->weights, m->weights_bytes) &&
        put(w, SECTION_PLAN, "cuda", cuda.data, cuda.size) &&
        put(w, SECTION_CODE, "cuda", code.data, code.size) &&
        put(w, SECTION_WEIGHTS, "cuda", parts.weights, parts.weights_bytes)) {
        ok = artifact_finish(w, &err);
    } else {
        artifact_abandon(w);
        ok = false;
    }
    if (!ok)
        fprintf(stderr, "write_cuda_model: %s\n", err.text);
    bytes_free(&cpu);
    bytes_free(&cuda);
    bytes_free(&code);
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
    if (!strcmp(name, "gemm_4") || !strcmp(name, "wide_4")) {
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
