/* codegen/cuda/route: which groups rows go to (kernels/cuda/route.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>

#define THREADS     128
#define MOST_HELD   16    /* values of a lane that topk keeps in registers */
#define FEW_CHOICES 2048  /* which a small block sorts */
#define CLUSTER     8     /* blocks that sort more, where GPUs have clusters */
#define FEW_EACH    4     /* choices of a thread, so that blocks of a cluster stay small */
#define MOST_EACH   8     /* .. that it holds in registers */
#define COUNTERS    10240 /* i32 in shared memory, of all warps of a block that sorts */
#define MOST_BLOCKS 65536

static const char *const step_word[NUM_ROUTE_STEPS] = {
    "ROUTE_TOPK",   "ROUTE_TAKE", "ROUTE_ENDS",  "ROUTE_PLACES", "ROUTE_SOURCES",
    "ROUTE_CHOOSE", "ROUTE_SORT", "ROUTE_WEIGH", "ROUTE_CLEAR"};

static const PlanLayout *layout_of(const CudaKernel *k, int operand)
{
    return &k->layout[k->launch->operand[operand].tensor];
}

static FormatId format_of(const CudaKernel *k, int operand)
{
    return k->plan->tensor[k->launch->operand[operand].tensor].fmt;
}

static bool sorts(const CudaKernel *k)
{
    return plan_route_sorts(k->launch->route);
}

static int64_t num_choices(const CudaKernel *k)
{
    return layout_of(k, 0)->rows * layout_of(k, 0)->cols;
}

static int sort_blocks(const CudaKernel *k)
{
    return num_choices(k) > FEW_CHOICES && k->gpu->from >= 90 ? CLUSTER : 1;
}

static int sort_threads(const CudaKernel *k)
{
    int64_t num = num_choices(k);
    int threads = 256;
    if (sort_blocks(k) == 1)
        return num <= FEW_CHOICES ? 256 : 1024;
    while (threads < 1024 && num > (int64_t)FEW_EACH * CLUSTER * threads)
        threads *= 2;
    return threads;
}

/* Choices that a thread holds; 0: it reads them again. */
static int64_t sort_held(const CudaKernel *k)
{
    int64_t threads = sort_blocks(k) * sort_threads(k),
            each = cuda_ceil_div(num_choices(k), threads);
    bool has_room = sort_blocks(k) > 1 || num_choices(k) <= FEW_CHOICES;
    return k->varies || !has_room || each > MOST_EACH ? 0 : each < 1 ? 1 : each;
}

static int64_t band(const CudaKernel *k)
{
    int64_t threads = sort_threads(k), most = COUNTERS / (threads / 32);
    most = most < threads ? most : threads;
    return k->launch->groups < most ? k->launch->groups : most;
}

/* A row and where it goes, of each choice of a block that finds sources. */
static int64_t staged_bytes(const CudaKernel *k)
{
    RouteStep step = k->launch->route;
    return step == ROUTE_SORT || step == ROUTE_SOURCES ? sort_held(k) * sort_threads(k) * 8 : 0;
}

static CudaGeometry geometry(const CudaKernel *k)
{
    const PlanLayout *in = layout_of(k, 0), *to = layout_of(k, k->launch->num_operands - 1);
    int64_t blocks = 1;
    switch (k->launch->route) {
    case ROUTE_WEIGH:
    case ROUTE_CHOOSE:
    case ROUTE_TOPK: blocks = cuda_ceil_div(in->rows, THREADS / 32); break;
    case ROUTE_CLEAR: blocks = cuda_ceil_div(to->rows, THREADS / 32); break;
    case ROUTE_TAKE: blocks = cuda_ceil_div(to->rows * to->cols, THREADS); break;
    default: break;
    }
    if (sorts(k))
        return (CudaGeometry){.blocks = sort_blocks(k),
                              .cluster = sort_blocks(k),
                              .block = sort_threads(k),
                              .smem = staged_bytes(k)};
    return (CudaGeometry){.blocks = blocks < 1             ? 1
                                    : blocks < MOST_BLOCKS ? blocks
                                                           : MOST_BLOCKS,
                          .block = THREADS};
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    (void)g;
    return cuda_pass_us(cuda_operand_bytes(k));
}

static void put_numbers(Sb *sb, const CudaKernel *k, const char *name, bool pitch)
{
    int num = k->launch->num_operands;
    sb_printf(sb, "    static __device__ __forceinline__ int64_t %s(int i) { return ", name);
    for (int i = 0; i < num; i++) {
        const PlanLayout *at = layout_of(k, i);
        if (i + 1 < num)
            sb_printf(sb, "i == %d ? ", i);
        sb_printf(sb, "%" PRId64 "LL%s", pitch ? at->pitch : at->cols, i + 1 < num ? " : " : "");
    }
    sb_line(sb, "; }");
}

static void put_sort(Sb *sb, const CudaKernel *k)
{
    bool flat = !k->varies;
    int places = k->launch->route == ROUTE_SORT ? 2 : 1;
    flat = flat && layout_of(k, 0)->pitch == 4 * layout_of(k, 0)->cols;
    if (k->launch->route != ROUTE_ENDS && k->launch->route != ROUTE_SOURCES)
        flat = flat && layout_of(k, places)->pitch == 4 * layout_of(k, places)->cols;
    cuda_put_int(sb, "kGroups", k->launch->groups);
    cuda_put_int(sb, "kBand", band(k));
    cuda_put_int(sb, "kBlocks", sort_blocks(k));
    cuda_put_int(sb, "kHeld", sort_held(k));
    cuda_put_bool(sb, "kFlat", flat);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    FormatId fmt = format_of(k, 0);
    sb_line(sb, "static constexpr int kStep = %s;", step_word[k->launch->route]);
    cuda_put_bool(sb, "kVaries", k->varies);
    cuda_put_int(sb, "kThreads", cuda_geometry(k).block);
    if (sorts(k))
        put_sort(sb, k);
    else if (k->launch->route == ROUTE_CLEAR)
        cuda_put_int(sb, "kBytes", format_info[format_of(k, 1)].bits / 8);
    else
        cuda_put_format(sb, "kFormat", fmt);
    if (plan_route_chooses(k->launch->route)) {
        int64_t held = cuda_ceil_div(layout_of(k, 0)->cols, 32);
        cuda_put_int(sb, "kHeld", k->varies || held > MOST_HELD ? 0 : held);
    }
    put_numbers(sb, k, "cols", false);
    put_numbers(sb, k, "pitch", true);
}

static void describe(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, " %s", route_step_name[k->launch->route]);
    if (k->launch->groups)
        sb_printf(sb, " of %" PRId64 " groups", k->launch->groups);
    if (sorts(k) && sort_blocks(k) > 1)
        sb_printf(sb, ", a cluster of %d", sort_blocks(k));
}

const CudaFamilyRow cuda_route = {
    .launch = LAUNCH_ROUTE,
    .seed = 9,
    .slowness = 1,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"route<Cfg>"},
    .describe = describe,
};
