/* codegen/cuda/move: transposes and copies (kernels/cuda/move.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>

static CudaGeometry geometry(const CudaKernel *k)
{
    int64_t num = 1;
    for (int i = 0; i < k->launch->move_rank; i++)
        num *= plan_dim_eval(k->launch->move_dim[i], k->size);
    num = cuda_ceil_div(num, 1024);
    return (CudaGeometry){.blocks = num < 65536 ? num : 65536, .block = 256};
}

static double predict(const CudaKernel *k, const CudaGeometry *g)
{
    (void)g;
    return cuda_pass_us(cuda_tensor_bytes(k, k->launch->src) +
                        cuda_tensor_bytes(k, k->launch->dst));
}

static void put_dims(Sb *sb, const char *name, const PlanDim *dim, int rank, const int64_t *size)
{
    sb_printf(sb, "    static __device__ __forceinline__ int64_t %s(int d) { return ", name);
    for (int i = 0; i + 1 < rank; i++)
        sb_printf(sb, "d == %d ? %" PRId64 "LL : ", i, plan_dim_eval(dim[i], size));
    sb_printf(sb, "%" PRId64 "LL; }\n", rank ? plan_dim_eval(dim[rank - 1], size) : 1);
}

static void put_config(Sb *sb, const CudaKernel *k)
{
    const PlanLaunch *l = k->launch;
    cuda_put_int(sb, "kRank", l->move_rank);
    cuda_put_bool(sb, "kVaries", k->varies);
    cuda_put_int(sb, "kElementBytes", format_info[k->plan->tensor[l->dst].fmt].bits / 8);
    sb_line(sb, "static constexpr int64_t kSrcAt = %" PRId64 ", kDstAt = %" PRId64 ";",
            plan_dim_eval(l->move_src_offset, k->size), plan_dim_eval(l->move_dst_offset, k->size));
    put_dims(sb, "dim", l->move_dim, l->move_rank, k->size);
    put_dims(sb, "src", l->move_src_stride, l->move_rank, k->size);
    put_dims(sb, "dst", l->move_dst_stride, l->move_rank, k->size);
}

const CudaFamilyRow cuda_move = {
    .launch = LAUNCH_MOVE,
    .seed = 5,
    .slowness = 1,
    .geometry = geometry,
    .predict = predict,
    .put_config = put_config,
    .call = {"move_box<Cfg>"},
};
