/* The one table of what every reader and the language accept. All are checked before anything of
 * that size is allocated. */
#ifndef SINTER_LIMITS_H
#define SINTER_LIMITS_H

#define LIMIT_SOURCE_BYTES       (16u << 20) /* a model text */
#define LIMIT_TOKEN_BYTES        4096u
#define LIMIT_NESTING            64
#define LIMIT_OPS                1000000 /* operations of a lowered model */
#define LIMIT_RANK               6
#define LIMIT_DIM                2147483647 /* one dimension */
#define LIMIT_ELEMENTS           (UINT64_C(1) << 40)
#define LIMIT_BYTES              (UINT64_C(1) << 44)
#define LIMIT_SYMS               8 /* dims of one compiled model */
#define LIMIT_BUCKETS            64
#define LIMIT_CHOICES            16 /* of a row, which a kernel sums up */
#define LIMIT_WEIGHED            32 /* .. which one launch takes the softmax of: a warp's lanes */
#define LIMIT_SAFETENSORS_HEADER 100000000u
#define LIMIT_TENSORS            1000000u /* in one file */
#define LIMIT_NPY_HEADER         10000u
#define LIMIT_OUTPUTS            256         /* files that one command writes */
#define LIMIT_TIMING_BYTES       (16u << 20) /* a table of timings */
#define LIMIT_TIMING_LINE        1000
#define LIMIT_TIMING_ROWS        200000
#define LIMIT_TIMING_FAMILIES    64
#define LIMIT_CALIBRATION_BYTES  (UINT64_C(1) << 30)
#define LIMIT_CALIBRATION_ROWS   (1 << 18) /* of one file of data; of longer ones, these are run */

#endif
