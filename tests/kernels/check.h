/* Harness of the kernel checks: every family against a reference in f64 or int64 written here,
 * under every instruction set of the machine, with guarded buffers. TAP on stdout.
 *
 * usage: check_kernels [--full] [--seed=N] [--only=TEXT] */
#ifndef SINTER_TESTS_KERNELS_CHECK_H
#define SINTER_TESTS_KERNELS_CHECK_H

#include "kernels/cpu/cpu.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Random numbers: the same everywhere for one seed. */
typedef struct Rng {
    uint64_t state;
} Rng;
uint64_t rng_next(Rng *rng);
int64_t rng_range(Rng *rng, int64_t lo, int64_t hi); /* both included */
double rng_real(Rng *rng, double lo, double hi);
double rng_normal(Rng *rng);
#define RNG_PICK(rng, array) \
    ((array)[rng_range(rng, 0, (int64_t)(sizeof(array) / sizeof *(array)) - 1)])

/* Memory that ends (up to alignment to 64) at an unreadable page; guard_free fails the case when
 * bytes before or after were written. Freshly filled with 0xA5. */
void *guard_alloc(uint64_t size);
void guard_free(void *memory);

/* The reading of formats, independent of the code under test: exact value of a code, or of an
 * element of at most 16 bits. */
double ref_decode(FormatId fmt, uint32_t code);
int ref_bits(FormatId fmt);
bool ref_is_int(FormatId fmt);
bool ref_is_nibble(FormatId fmt);
const char *ref_name(FormatId fmt);
uint32_t ref_random_code(Rng *rng, FormatId fmt);            /* finite values only */
float ref_random_element(Rng *rng, FormatId fmt, void *dst); /* plain formats; returns the value */
double ref_element(FormatId fmt, const void *src);           /* plain formats */

/* Reports one fact of the running case; the first that fails is printed. */
void check_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool check_failed(void);
/* Results that must have the same bits under every instruction set. */
void check_same(const void *data, uint64_t size);

typedef struct CheckOptions {
    bool full;
    uint64_t seed;
} CheckOptions;
/* One test point: `run` on each instruction set of the machine. */
typedef void CheckFn(Rng *rng, const CheckOptions *options);
void check_all_isas(const char *name, CheckFn *run);

void check_gemm(void); /* each runs its test points */
void check_tile(void);
void check_quantise(void);
void check_move(void);
void check_route(void);

#endif
