/* Floats through our conversions and through the host conversions of NVIDIA's headers: --all 2^32
 * of them, or those whose last 8 bits are about the ends and the middle of their range, which are
 * far behind what any of the formats keeps: 100 million. usage: oracle_cuda e4m3|e5m2|e2m1|e8m0
 * [--all]   Ends with 77 (skipped) without the headers. */
#include "base/team.h"
#include "numerics/numerics.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifdef HAVE_CUDA_HEADERS
#include <assert.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

enum { E4M3, E5M2, E2M1, E8M0 };

static unsigned theirs(int format, float x)
{
    switch (format) {
    case E4M3: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    case E5M2: return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    case E2M1: /* their NaN becomes 6; ours is the caller's affair: the block's scale */
        return x != x ? 0 : __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    default: return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundZero);
    }
}

static unsigned ours(int format, float x)
{
    switch (format) {
    case E4M3: return num_to_e4m3(x);
    case E5M2: return num_to_e5m2(x);
    case E2M1: return num_to_e2m1(x);
    default: return num_to_e8m0(x);
    }
}

/* Decoding, by way of f16, where the header has it. */
static int decoding_differs(int format)
{
    int differ = 0;
    for (unsigned c = 0; format <= E2M1 && c < (format == E2M1 ? 16u : 256u); c++) {
        __half_raw half = format == E2M1
                              ? __nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)c, __NV_E2M1)
                              : __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)c,
                                                        format == E4M3 ? __NV_E4M3 : __NV_E5M2);
        float want = num_from_f16(half.x);
        float got = format == E2M1   ? num_from_e2m1(c)
                    : format == E4M3 ? num_from_e4m3(c)
                                     : num_from_e5m2(c);
        differ += want == want ? num_bits(got) != num_bits(want) : got == got;
    }
    return differ;
}

typedef struct Search {
    int format;
    bool all;
    atomic_long differ;
} Search;

static void compare_code(Search *s, unsigned bits)
{
    float x = num_float(bits);
    if (theirs(s->format, x) == ours(s->format, x))
        return;
    if (atomic_fetch_add(&s->differ, 1) < 5)
        fprintf(stderr, "%a: 0x%02x, want 0x%02x\n", (double)x, ours(s->format, x),
                theirs(s->format, x));
}

static void compare_codes(void *user, int64_t begin, int64_t end, int thread)
{
    static const unsigned last[] = {0, 1, 0x7f, 0x80, 0x81, 0xff};
    Search *s = user;
    (void)thread;
    for (int64_t high = begin; high < end; high++)
        for (unsigned i = 0; i < (s->all ? 256 : sizeof last / sizeof *last); i++)
            compare_code(s, (unsigned)high << 8 | (s->all ? i : last[i]));
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"e4m3", "e5m2", "e2m1", "e8m0"};
    int format = 0;
    bool all = argc == 3 && !strcmp(argv[2], "--all");
    while (format < 4 && (argc < 2 || strcmp(argv[1], name[format]) != 0))
        format++;
    if (format == 4)
        return 2;
    long differ = decoding_differs(format);
    Search search = {format, all, differ};
    team_run(0, 1 << 24, 1 << 12, compare_codes, &search);
    printf("%s: %ld of %ld floats differ\n", name[format], (long)search.differ,
           (all ? 256L : 6L) << 24);
    return search.differ != 0;
}
#else
int main(void)
{
    printf("skipped: cuda_fp8.h and cuda_fp4.h are not on this machine\n");
    return 77;
}
#endif
