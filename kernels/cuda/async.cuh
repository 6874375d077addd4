/* What compute capability 9.0 copies and waits with: barriers that count bytes (PTX ISA,
 * "mbarrier"), bulk copies to shared memory with and without a tensor map ("cp.async.bulk",
 * "cp.async.bulk.tensor"), groups of asynchronous products ("wgmma"). Addresses of shared memory
 * are smem_address's. */
#ifndef SINTER_CUDA_ASYNC
#define SINTER_CUDA_ASYNC

#include "kernels/cuda/prelude.cuh"

/* Threads that copy --------------------------------------------------------------------------- */

/* True in one lane of a warp whose lanes are all here. ptxas knows that it is one, which it does
 * not of `lane == 0`, so that what begins copies there needs no loop over the lanes that are
 * active. */
__device__ __forceinline__ bool elect_one()
{
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(elected));
    return elected != 0;
}

/* Barriers ------------------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* Once all are initialised, before anybody else sees them. */
__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* Arrives, and makes the phase wait for so many bytes of copies too. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* .. at the same barrier of a block of the cluster. Orders what the block did alone: whose release
 * spans the cluster waits for all stores to reach L2, and nothing here is stored for the other. */
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t block)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}
/* Arrives once the thread's copies by copy_word are done. */
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* Until the phase of this parity has ended; before the first one ends, parity 1 has. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again_%=;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
/* Has the phase ended? */
__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity)
{
    uint32_t passed;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}
/* THREADS of the block, whole warps, meet at barrier ID (1 to 15). */
template <int ID, int THREADS> __device__ __forceinline__ void meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}

/* All blocks of the cluster meet, without seeing each other's stores; threads that have ended are
 * not waited for. */
__device__ __forceinline__ void meet_cluster()
{
    asm volatile("barrier.cluster.arrive.relaxed;\n"
                 "barrier.cluster.wait;" ::
                     : "memory");
}

/* .. and everybody sees what everybody stored before: each thread waits for its stores to reach
 * L2, which takes longer than to send a few sums (hopper_tiles.cuh). */
__device__ __forceinline__ void meet_cluster_stored()
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}
/* One thread: blocks of the cluster will send so many bytes to this one, or none. */
__device__ __forceinline__ void barrier_init_sent(uint32_t barrier, int bytes)
{
    barrier_init(barrier, 1);
    if (bytes > 0)
        barrier_expect(barrier, bytes);
}
/* .. waits until they are here. */
__device__ __forceinline__ void barrier_wait_sent(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again_%=:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again_%=;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
/* What lies at this address of the shared memory of a block of the cluster. */
__device__ __forceinline__ float load_there(const float *of, int block)
{
    float v;
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.f32 %0, [there];\n"
                 "}"
                 : "=f"(v)
                 : "r"(smem_address(of)), "r"(block)
                 : "memory");
    return v;
}
__device__ __forceinline__ int32_t load_there(const int32_t *of, int block)
{
    int32_t v;
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.s32 %0, [there];\n"
                 "}"
                 : "=r"(v)
                 : "r"(smem_address(of)), "r"(block)
                 : "memory");
    return v;
}
/* Blocks may copy to each other's shared memory once all have initialised their barriers .. */
template <int BLOCKS> __device__ __forceinline__ void cluster_begin()
{
    if (BLOCKS > 1)
        meet_cluster();
    else
        __syncthreads();
}
/* .. and none leaves while another arrives at its barriers. */
template <int BLOCKS> __device__ __forceinline__ void cluster_end()
{
    if (BLOCKS > 1)
        meet_cluster();
}

/* Arrivals of a warp: one lane stands for all whose reads __syncwarp() has ordered before it. The
 * racecheck of compute-sanitizer does not see that order, and reports those reads: for it each lane
 * arrives. */
#ifdef SINTER_RACECHECK
enum { kWarpArrivals = 32 };
#else
enum { kWarpArrivals = 1 };
#endif
/* A lane of a warp for each block: this one, or all of the cluster. */
template <int BLOCKS> __device__ __forceinline__ void cluster_arrive(uint32_t barrier, int lane)
{
    if (BLOCKS > 1 && kWarpArrivals > 1) {
        for (int i = 0; i < BLOCKS; i++)
            barrier_arrive_at(barrier, i);
    } else if (BLOCKS > 1) {
        if (lane < BLOCKS)
            barrier_arrive_at(barrier, lane);
    } else if (kWarpArrivals > 1 || lane == 0) {
        barrier_arrive(barrier);
    }
}

/* Copies to shared memory ---------------------------------------------------------------------- */

__device__ __forceinline__ void map_prefetch(const TensorMap &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/* The box of the map at byte `x` of row `y`; what lies outside comes as zeros, and counts. */
__device__ __forceinline__ void copy_box(uint32_t dst, const TensorMap &map, int x, int y,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
                 "l"(&map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}
/* .. to the same place of the blocks 0 and 1 of the cluster, and counts at the barrier of each. */
__device__ __forceinline__ void copy_box_both(uint32_t dst, const TensorMap &map, int x, int y,
                                              uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst),
                 "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}
/* For bytes that nobody reads again. */
__device__ __forceinline__ uint64_t policy_evict_first()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
/* `bytes`, both addresses: multiples of 16. */
__device__ __forceinline__ void copy_bulk(uint32_t dst, const void *src, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}
/* .. for bytes that others read again. */
__device__ __forceinline__ void copy_bulk_kept(uint32_t dst, const void *src, uint32_t bytes,
                                               uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk_both(uint32_t dst, const void *src, uint32_t bytes,
                                               uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier), "h"((uint16_t)3), "l"(policy)
                 : "memory");
}
/* From shared memory to global: `bytes`, both addresses: multiples of 16. What threads wrote there
 * is seen by the copy after copies_see(); copies of a thread until leaving_commit() are a group,
 * and leaving_read() waits until all its groups have been read, leaving_done() until they are
 * written. */
__device__ __forceinline__ void copies_see()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void copy_bulk_out(void *dst, uint32_t src, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void leaving_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void leaving_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void leaving_done()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void copy_word(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}
/* Products of a warpgroup ---------------------------------------------------------------------- */

/* Registers of a thread from here on, for all warps of a warpgroup. */
template <int NUM> __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(NUM));
}
template <int NUM> __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(NUM));
}
__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Of an operand in shared memory: rows of 128 bytes, whose 16-byte chunk c lies at c ^ row % 8,
 * from a multiple of 1024 bytes on (PTX ISA, "matrix descriptor": K-major, 128-byte swizzle, 1024
 * bytes from 8 rows to the next 8). 32 bytes further along K: add 2; 64 rows: add 512. */
__device__ __forceinline__ uint64_t operand_at(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3FFF) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

#endif
