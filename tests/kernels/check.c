/* The harness of the kernel tests: seeded points, guarded buffers, comparisons, TAP; see check.h.
 */
#include "check.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static CheckOptions options = {.seed = 1};
static const char *only;
static int num_points, num_failed;
static char failure[512];
static uint64_t digest;

uint64_t rng_next(Rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

int64_t rng_range(Rng *rng, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng_next(rng) % (uint64_t)(hi - lo + 1));
}

double rng_real(Rng *rng, double lo, double hi)
{
    return lo + (hi - lo) * ((double)(rng_next(rng) >> 11) * 0x1p-53);
}

double rng_normal(Rng *rng)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rng_real(rng, 0, 1);
    return sum;
}

/* Guarded memory ------------------------------------------------------------------------------- */

typedef struct Guard {
    uint64_t size, mapped;
    char *base;
} Guard;

static uint64_t page_round(uint64_t size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

void *guard_alloc(uint64_t size)
{
    uint64_t padded = (size + 63) & ~(uint64_t)63, body = page_round(padded + 256);
    uint64_t page = page_round(1);
    char *base =
        mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + body, page, PROT_NONE)) {
        perror("guard_alloc");
        exit(1);
    }
    char *memory = base + body - padded;
    memset(memory - 192, 0x5a, 192 + padded);
    memset(memory, 0xa5, size);
    Guard guard = {size, body + page, base};
    memcpy(memory - 256, &guard, sizeof guard);
    return memory;
}

void guard_free(void *memory)
{
    Guard guard;
    if (!memory)
        return;
    unsigned char *at = memory;
    memcpy(&guard, at - 256, sizeof guard);
    uint64_t padded = (guard.size + 63) & ~(uint64_t)63;
    for (int i = 1; i <= 192; i++)
        if (at[-i] != 0x5a)
            check_fail("byte %d before a buffer of %llu was written", -i,
                       (unsigned long long)guard.size);
    for (uint64_t i = guard.size; i < padded; i++)
        if (at[i] != 0x5a)
            check_fail("byte %llu of a buffer of %llu was written", (unsigned long long)i,
                       (unsigned long long)guard.size);
    munmap(guard.base, guard.mapped);
}

/* Formats -------------------------------------------------------------------------------------- */

static double minifloat(uint32_t code, int exp_bits, int man_bits, int bias, bool ieee)
{
    int sign = (int)(code >> (exp_bits + man_bits)) & 1;
    int exp = (int)(code >> man_bits) & ((1 << exp_bits) - 1);
    int man = (int)code & ((1 << man_bits) - 1);
    double value = exp ? ldexp(1.0 + man * pow(2, -man_bits), exp - bias)
                       : ldexp(man * pow(2, -man_bits), 1 - bias);
    if (ieee && exp == (1 << exp_bits) - 1)
        value = man ? NAN : INFINITY;
    return sign ? -value : value;
}

/* The tables of the QLoRA paper's code (NF4) and of bitsandbytes' FP4. */
static const double nf4[16] = {-1.0,
                               -0.6961928009986877,
                               -0.5250730514526367,
                               -0.39491748809814453,
                               -0.28444138169288635,
                               -0.18477343022823334,
                               -0.09105003625154495,
                               0.0,
                               0.07958029955625534,
                               0.16093020141124725,
                               0.24611230194568634,
                               0.33791524171829224,
                               0.44070982933044434,
                               0.5626170039176941,
                               0.7229568362236023,
                               1.0};
static const double fp4[8] = {
    0, 0.005208333333333333, 0.6666666666666666, 1, 1.0 / 3.0, 0.5, 1.0 / 6.0, 0.25};

/* Integers that fill neither a nibble nor a byte, and are held by one; all their codes. */
static const struct {
    const char *name;
    int held, lo, hi, step;
} narrow[NUM_FORMATS] = {
    [FMT_I2] = {"i2", 4, -2, 1, 1},         [FMT_I3] = {"i3", 4, -4, 3, 1},
    [FMT_I5] = {"i5", 8, -16, 15, 1},       [FMT_I6] = {"i6", 8, -32, 31, 1},
    [FMT_I7] = {"i7", 8, -64, 63, 1},       [FMT_U1] = {"u1", 4, 0, 1, 1},
    [FMT_U2] = {"u2", 4, 0, 3, 1},          [FMT_U3] = {"u3", 4, 0, 7, 1},
    [FMT_U5] = {"u5", 8, 0, 31, 1},         [FMT_U6] = {"u6", 8, 0, 63, 1},
    [FMT_U7] = {"u7", 8, 0, 127, 1},        [FMT_TERNARY] = {"ternary", 4, -1, 1, 1},
    [FMT_BINARY] = {"binary", 4, -1, 1, 2},
};

static double decode_slowly(FormatId fmt, uint32_t code)
{
    if (narrow[fmt].name) {
        int half = 1 << (narrow[fmt].held - 1), value = (int)code & (2 * half - 1);
        return narrow[fmt].lo < 0 && value >= half ? value - 2 * half : value;
    }
    switch (fmt) {
    case FMT_I8: return (int8_t)code;
    case FMT_U8: return code & 255;
    case FMT_I4: return (code & 15) > 7 ? (double)(code & 15) - 16 : (double)(code & 15);
    case FMT_U4: return code & 15;
    case FMT_E4M3: return (code & 127) == 127 ? NAN : minifloat(code, 4, 3, 7, false);
    case FMT_E5M2: return minifloat(code, 5, 2, 15, true);
    case FMT_E2M1: return minifloat(code & 15, 2, 1, 1, false);
    case FMT_NF4: return (float)nf4[code & 15];
    case FMT_FP4: return (float)(code & 8 ? -fp4[code & 7] : fp4[code & 7]);
    case FMT_F16: return minifloat(code, 5, 10, 15, true);
    case FMT_BF16: return minifloat(code, 8, 7, 127, true);
    default: return NAN;
    }
}

double ref_decode(FormatId fmt, uint32_t code)
{
    static double *table[NUM_FORMATS];
    uint32_t num = 1u << ref_bits(fmt) % 32;
    if (!table[fmt]) {
        table[fmt] = malloc(num * sizeof *table[fmt]);
        for (uint32_t i = 0; i < num; i++)
            table[fmt][i] = decode_slowly(fmt, i);
    }
    return table[fmt][code & (num - 1)];
}

int ref_bits(FormatId fmt)
{
    static const int bits[NUM_FORMATS] = {
        [FMT_F64] = 64, [FMT_F32] = 32, [FMT_F16] = 16, [FMT_BF16] = 16, [FMT_I32] = 32,
        [FMT_I8] = 8,   [FMT_U8] = 8,   [FMT_I4] = 4,   [FMT_U4] = 4,    [FMT_E4M3] = 8,
        [FMT_E5M2] = 8, [FMT_E2M1] = 4, [FMT_NF4] = 4,  [FMT_FP4] = 4};
    return narrow[fmt].name ? narrow[fmt].held : bits[fmt];
}

bool ref_is_int(FormatId fmt)
{
    return fmt == FMT_I8 || fmt == FMT_U8 || fmt == FMT_I4 || fmt == FMT_U4 || narrow[fmt].name;
}

bool ref_is_nibble(FormatId fmt)
{
    return ref_bits(fmt) == 4;
}

const char *ref_name(FormatId fmt)
{
    static const char *const name[NUM_FORMATS] = {
        [FMT_NONE] = "none", [FMT_F64] = "f64",   [FMT_F32] = "f32",   [FMT_F16] = "f16",
        [FMT_BF16] = "bf16", [FMT_I32] = "i32",   [FMT_I8] = "i8",     [FMT_U8] = "u8",
        [FMT_I4] = "i4",     [FMT_U4] = "u4",     [FMT_E4M3] = "e4m3", [FMT_E5M2] = "e5m2",
        [FMT_E2M1] = "e2m1", [FMT_E8M0] = "e8m0", [FMT_NF4] = "nf4",   [FMT_FP4] = "fp4"};
    return narrow[fmt].name ? narrow[fmt].name : name[fmt];
}

uint32_t ref_random_code(Rng *rng, FormatId fmt)
{
    uint32_t mask = (uint32_t)((1ull << ref_bits(fmt)) - 1), code;
    if (narrow[fmt].name) {
        int num = (narrow[fmt].hi - narrow[fmt].lo) / narrow[fmt].step;
        return (uint32_t)(narrow[fmt].lo + narrow[fmt].step * rng_range(rng, 0, num)) & mask;
    }
    do
        code = (uint32_t)rng_next(rng) & mask;
    while (!isfinite(ref_decode(fmt, code)));
    return code;
}

float ref_random_element(Rng *rng, FormatId fmt, void *dst)
{
    float value = (float)rng_normal(rng);
    if (fmt == FMT_F32) {
        memcpy(dst, &value, 4);
        return value;
    }
    /* a random pattern of moderate exponent */
    uint32_t code;
    do
        code = (uint32_t)rng_next(rng) & 0xffff;
    while (!isfinite(ref_decode(fmt, code)) || fabs(ref_decode(fmt, code)) > 16);
    uint16_t half = (uint16_t)code;
    memcpy(dst, &half, 2);
    return (float)ref_decode(fmt, code);
}

double ref_element(FormatId fmt, const void *src)
{
    uint16_t half;
    float single;
    if (fmt == FMT_F32) {
        memcpy(&single, src, 4);
        return single;
    }
    memcpy(&half, src, 2);
    return ref_decode(fmt, half);
}

/* Points --------------------------------------------------------------------------------------- */

void check_fail(const char *fmt, ...)
{
    va_list args;
    if (failure[0])
        return;
    va_start(args, fmt);
    vsnprintf(failure, sizeof failure, fmt, args);
    va_end(args);
}

void check_same(const void *data, uint64_t size)
{
    const unsigned char *at = data;
    for (uint64_t i = 0; i < size; i++)
        digest = (digest ^ at[i]) * 0x100000001b3;
}

bool check_failed(void)
{
    return failure[0] != 0;
}

void check_all_isas(const char *name, CheckFn *run)
{
    if (only && !strstr(name, only))
        return;
    uint64_t portable_digest = 0;
    for (int isa = 0; isa < NUM_CPU_ISAS; isa++) {
        if (!cpu_isa_present((CpuIsa)isa)) {
            printf("ok %d - %s %s # SKIP not on this processor or not built\n", ++num_points, name,
                   cpu_isa_name((CpuIsa)isa));
            continue;
        }
        cpu_isa_limit((CpuIsa)isa);
        Rng rng = {options.seed};
        failure[0] = 0;
        clock_t start = clock();
        digest = 0;
        run(&rng, &options);
        if (isa == 0)
            portable_digest = digest;
        else if (digest != portable_digest)
            check_fail("other bits than the portable kernels");
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        num_points++;
        num_failed += check_failed();
        printf("%s %d - %s %s # %.0f ms\n", check_failed() ? "not ok" : "ok", num_points, name,
               cpu_isa_name((CpuIsa)isa), 1e3 * seconds);
        if (check_failed())
            printf("# %s\n", failure);
        fflush(stdout);
    }
    cpu_isa_limit(NUM_CPU_ISAS - 1);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--full"))
            options.full = true;
        else if (!strncmp(argv[i], "--seed=", 7))
            options.seed = strtoull(argv[i] + 7, NULL, 0);
        else if (!strncmp(argv[i], "--only=", 7))
            only = argv[i] + 7;
        else
            return fprintf(stderr, "usage: %s [--full] [--seed=N] [--only=TEXT]\n", argv[0]), 2;
    }
    check_gemm();
    check_tile();
    check_quantise();
    check_move();
    check_route();
    printf("1..%d\n", num_points);
    return num_failed != 0;
}
