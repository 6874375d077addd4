/* A peer of our fp8 products in blocks: DeepGEMM's kernel for sm_90a, whose weight has a scale for
 * each 128 x 128 and whose activation one for each 128 of a row, both f32. Built by deepgemm.sh.
 *
 *   deepgemm [ROUNDS]
 *
 * For each shape: the first launches after a pause of 0.2 s, before power limits the GPU, and those
 * of 50 ms after 100 ms of them (the median of three), us and TFLOP/s, from graphs of one launch
 * for each of several sets of operands. Codes are normal (deviation 100 of 448), scales ready,
 * results bf16. The error is the worst of 12,800 results against double precision, of max(|it|, 1).
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <vector>

#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

#define CHECK(call)                                                         \
    do {                                                                    \
        int code = (int)(call);                                             \
        if (code) {                                                         \
            fprintf(stderr, "%s:%d: error %d\n", __FILE__, __LINE__, code); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static constexpr int kBlockK = 128, kProcessors = 132;
typedef __nv_fp8_e4m3 Code;

static decltype(&cuTensorMapEncodeTiled) encode;

/* rows of `cols` elements, `box_rows` by `box_cols` at a time; swizzle: bytes, 0: none. */
static CUtensorMap map_of(void *data, CUtensorMapDataType type, int bytes, int cols, int rows,
                          int box_cols, int box_rows, int swizzle)
{
    CUtensorMap map;
    const cuuint64_t dim[2] = {(cuuint64_t)cols, (cuuint64_t)rows},
                     stride[1] = {(cuuint64_t)cols * bytes};
    const cuuint32_t box[2] = {(cuuint32_t)(swizzle ? swizzle / bytes : box_cols),
                               (cuuint32_t)box_rows},
                     step[2] = {1, 1};
    const CUtensorMapSwizzle how = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                   : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_NONE;
    CHECK(encode(&map, type, 2, data, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, how,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return map;
}

/* Data ---------------------------------------------------------------------------------------- */

static __device__ float normal(uint64_t i)
{
    i = (i ^ i >> 33) * 0xff51afd7ed558ccdULL;
    i = (i ^ i >> 33) * 0xc4ceb9fe1a85ec53ULL;
    i ^= i >> 33;
    const float u = ((uint32_t)i + 1.0f) * 0x1p-32f, v = (uint32_t)(i >> 32) * 0x1p-32f;
    return sqrtf(-2 * logf(fminf(u, 1.0f))) * cospif(2 * v);
}
static __global__ void fill_codes(Code *to, size_t num, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < num;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = Code(100 * normal(i + seed * 0x9E3779B97F4A7C15ULL));
}
static __global__ void fill_scales(float *to, size_t num, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < num;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = 0.01f + 0.003f * (float)((i * 2654435761u + seed) % 97) / 97;
}
/* x: [m][k], sx: [k / 128][m], w: [n][k], sw: [n / 128][k / 128]. */
static __global__ void find_worst(const Code *x, const float *sx, const Code *w, const float *sw,
                                  const __nv_bfloat16 *y, int m, int n, int k, float *worst)
{
    const int row = blockIdx.x * 7919 % m, col = (blockIdx.x * 104729 + threadIdx.x * 31) % n;
    double sum = 0;
    for (int i = 0; i < k; i++)
        sum += (double)(float)x[(size_t)row * k + i] * (double)(float)w[(size_t)col * k + i] *
               sx[(size_t)(i / kBlockK) * m + row] *
               sw[col / kBlockK * (k / kBlockK) + i / kBlockK];
    const float error = fabs((double)(float)y[(size_t)row * n + col] - sum) / fmax(fabs(sum), 1.0);
    atomicMax((int *)worst, __float_as_int(error)); /* positive floats are ordered as integers */
}

struct Set { /* operands of a launch */
    Code *x, *w;
    float *sx, *sw;
    __nv_bfloat16 *y;
    CUtensorMap map_x, map_w, map_y, map_sx;
};

template <class T> static T *allocate(size_t num)
{
    void *data;
    CHECK(cudaMalloc(&data, num * sizeof(T)));
    return (T *)data;
}
static Set make_set(int m, int n, int k, int bm, int bn, int swizzle, int number)
{
    const size_t blocks = (size_t)k / kBlockK;
    Set s = {allocate<Code>((size_t)m * k), allocate<Code>((size_t)n * k),
             allocate<float>(m * blocks), allocate<float>(n / kBlockK * blocks),
             allocate<__nv_bfloat16>((size_t)m * n)};
    fill_codes<<<1024, 256>>>(s.x, (size_t)m * k, 2 * number);
    fill_codes<<<1024, 256>>>(s.w, (size_t)n * k, 2 * number + 1);
    fill_scales<<<64, 256>>>(s.sx, m * blocks, number);
    fill_scales<<<64, 256>>>(s.sw, n / kBlockK * blocks, number + 7);
    s.map_x = map_of(s.x, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, k, m, kBlockK, bm, 128);
    s.map_w = map_of(s.w, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, k, n, kBlockK, bn, 128);
    s.map_y = map_of(s.y, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, m, bn, bm, swizzle);
    s.map_sx = map_of(s.sx, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, m, (int)blocks, bm, 1, 0);
    return s;
}
static void free_set(const Set &s)
{
    for (void *data : {(void *)s.x, (void *)s.w, (void *)s.sx, (void *)s.sw, (void *)s.y})
        CHECK(cudaFree(data));
}

/* Time ---------------------------------------------------------------------------------------- */

/* us a launch of `times` replays of a graph of `each` launches. */
static double replay(cudaGraphExec_t graph, cudaStream_t stream, int times, size_t each)
{
    cudaEvent_t begin, end;
    float ms;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < times; i++)
        CHECK(cudaGraphLaunch(graph, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return ms * 1e3 / times / (double)each;
}

/* Tiles of BM x BN, STAGES of the ring; clusters of two share the rows of x (OF_X) or of w. */
template <int N, int K, int BM, int BN, int STAGES, bool OF_X>
static void measure(int m, int num_sets)
{
    constexpr int kThreads = 128 + 256, kSwizzle = BN * 2 % 128 == 0 ? 128 : 64;
    const auto kernel =
        &deep_gemm::sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, N, K, 1, BM, BN, kBlockK, 128,
                                            128, kSwizzle, STAGES, 128, 256, 2, OF_X, kProcessors,
                                            deep_gemm::GemmType::Normal, cutlass::bfloat16_t,
                                            deep_gemm::epilogue::transform::EpilogueIdentity>;
    const size_t stage = BM * kBlockK + BN * kBlockK + (BM * 4 + 127) / 128 * 128;
    const size_t of_w = K / kBlockK * 4 * (kBlockK % BN == 0 ? 1 : 2);
    const size_t shared = (BM * BN * 2 + 1023) / 1024 * 1024 + 512 + of_w + STAGES * stage;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    std::vector<Set> set;
    for (int i = 0; i < num_sets; i++)
        set.push_back(make_set(m, N, K, BM, BN, kSwizzle, i));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    const auto launch = [&](const Set &s) {
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {2, 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(kProcessors), config.blockDim = dim3(kThreads);
        config.dynamicSmemBytes = shared, config.stream = stream;
        config.attrs = &cluster, config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, kernel, s.sw, (int *)nullptr, (uint32_t)m, (uint32_t)N,
                                 (uint32_t)K, s.map_x, s.map_w, s.map_y, s.map_sx));
    };
    CHECK(cudaDeviceSynchronize());
    launch(set[0]);
    CHECK(cudaStreamSynchronize(stream));
    float *worst;
    CHECK(cudaMallocManaged(&worst, sizeof *worst));
    *worst = 0;
    find_worst<<<200, 64>>>(set[0].x, set[0].sx, set[0].w, set[0].sw, set[0].y, m, N, K, worst);
    CHECK(cudaDeviceSynchronize());

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (const Set &s : set)
        launch(s);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const int times = (int)(1e5 / (replay(exec, stream, 2, set.size()) * num_sets)) + 1;
    const timespec pause = {0, 200000000};
    nanosleep(&pause, NULL);
    const int few = times / 100 + 1;
    double us[3], burst[20];
    replay(exec, stream, few, set.size());
    for (double &one : burst)
        one = replay(exec, stream, few, set.size());
    std::sort(burst, burst + 20);
    replay(exec, stream, times, set.size());
    for (double &one : us)
        one = replay(exec, stream, times / 2 + 1, set.size());
    std::sort(us, us + 3);
    const double work = 2e-6 * m * N * K;
    printf("%5d x %dx%d, tiles of %dx%d: burst %.1f us, %.0f TFLOP/s; sustained %.1f us, %.0f "
           "TFLOP/s; error %.1e\n",
           m, N, K, BM, BN, burst[10], work / burst[10], us[1], work / us[1], *worst);
    fflush(stdout);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(worst));
    for (const Set &s : set)
        free_set(s);
}

int main(int argc, char **argv)
{
    void *entry;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                           cudaEnableDefault, &found));
    encode = (decltype(encode))entry;
    for (int round = argc > 1 ? atoi(argv[1]) : 1; round > 0; round--) {
        measure<28672, 4096, 256, 128, 3, false>(1024, 4);
        measure<28672, 4096, 256, 128, 3, true>(4096, 3);
        measure<28672, 4096, 128, 192, 4, false>(4096, 3);
        measure<4096, 14336, 256, 128, 3, false>(1024, 6);
        measure<4096, 14336, 256, 128, 3, false>(4096, 3);
    }
}
