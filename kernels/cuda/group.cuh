/* Launches of groups of rows: routed rows lie group by group, and each group has a weight of its
 * own. ends: i32, the row behind the last one of each group, ascending; whatever they hold, nothing
 * outside the rows is touched.
 *
 * Blocks of hopper and mixed go from group to group (hopper_tiles.cuh). Else the grid's second
 * dimension is the group. Its blocks see parameters as if its rows were all of them, so that the
 * loops of the families know nothing of groups; blocks of a group without rows end at once. */
#ifndef SINTER_CUDA_GROUP
#define SINTER_CUDA_GROUP

#include "kernels/cuda/prelude.cuh"

struct GroupRows {
    int first;
    int64_t num;
};

/* Of `m` rows those of a group. COUNTED > 0: so many groups have equally many rows, and `ends`
 * counts those that are computed, the first of each. */
template <int COUNTED>
__device__ __forceinline__ GroupRows group_rows(const int32_t *ends, int group, int64_t m)
{
    if constexpr (COUNTED > 0) {
        const int each = (int)(m / COUNTED), num = ends[group];
        return {group * each, num < 0 ? 0 : num < each ? num : each};
    }
    int first = group ? ends[group - 1] : 0, end = ends[group];
    const int last = (int)m;
    first = first < 0 ? 0 : first > last ? last : first;
    end = end < first ? first : end > last ? last : end;
    return {first, end - first};
}

/* The group of a row: the first whose end is behind it, or the last one. */
__device__ __forceinline__ int group_of(const int32_t *ends, int groups, int64_t row)
{
    int low = 0, high = groups - 1;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (ends[mid] > row)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* The row that an index names: an earlier launch of ours wrote it. */
__device__ __forceinline__ int64_t row_by(const char *index)
{
    return *(const int32_t *)index;
}

/* An operand from so many bytes, and scales, on. */
__device__ __forceinline__ Operand group_operand(const Operand &of, int64_t bytes, int64_t scales)
{
    return {(char *)of.data + bytes, of.scale + scales, of.zero + scales, of.outer};
}

#endif
