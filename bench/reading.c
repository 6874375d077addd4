/* Memory read as fast as may be. */
#include "bench/reading.h"
#include "base/team.h"
#include "kernels/cpu/cpu.h"
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Which way of reading is fastest depends on the processor and on what else it does: in order; in
 * order by half lines, which asks for them more slowly; in order, while lines further on are
 * fetched from four pages in turn; or from several places at once. */
enum { READ_PLAIN, READ_HALVES, READ_PAGES, READ_STREAMS, NUM_READERS };
const char *const reader_name[] = {"in order", "half lines", "pages in turn", "eight streams"};
int num_readers(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_AVX512)
        return NUM_READERS;
#endif
    return READ_PLAIN + 1;
}

#define READ_STEP 256 /* bytes */
#define STREAMS   8

typedef struct Reading {
    const uint8_t *data;
    int reader;
} Reading;

static atomic_ullong read_sum; /* so that nothing is left out */

static uint64_t read_plain(const uint8_t *data)
{
    uint64_t word[READ_STEP / 8], sum = 0;
    memcpy(word, data, sizeof word);
    for (int i = 0; i < READ_STEP / 8; i++)
        sum += word[i];
    return sum;
}

#if defined(__x86_64__)
#define FETCH_AHEAD ((uintptr_t)4 * 4096)

/* The four lines that take their turn: one of each page of the next four. */
static void fetch_pages(const uint8_t *at)
{
    uintptr_t a = (uintptr_t)at + FETCH_AHEAD;
    const char *from = (const char *)(a & ~(FETCH_AHEAD - 1)) + (a / 4 & 0xfc0);
    for (int i = 0; i < 4; i++)
        _mm_prefetch(from + (ptrdiff_t)i * 4096, _MM_HINT_T0);
}

__attribute__((target("avx512f"))) static uint64_t read_halves(const uint8_t *data, int64_t bytes)
{
    __m256i sum[4] = {0};
    uint64_t part[4];
    for (int64_t i = 0; i + READ_STEP <= bytes; i += READ_STEP)
        for (int v = 0; v < READ_STEP / 32; v++) {
            const __m256i *at = (const void *)(data + i + 32 * v);
            sum[v % 4] = _mm256_add_epi64(sum[v % 4], _mm256_loadu_si256(at));
        }
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    memcpy(part, &sum[0], sizeof part);
    return part[0] + part[1] + part[2] + part[3];
}

__attribute__((target("avx512f"))) static uint64_t read_lines(const uint8_t *data, int64_t bytes,
                                                              int reader)
{
    __m512i sum[4] = {0};
    int64_t part = reader == READ_STREAMS ? bytes / STREAMS / READ_STEP * READ_STEP : bytes;
    int streams = reader == READ_STREAMS ? STREAMS : 1;
    for (int64_t i = 0; i + READ_STEP <= part; i += READ_STEP)
        for (int s = 0; s < streams; s++) {
            const uint8_t *at = data + s * part + i;
            if (reader == READ_PAGES)
                fetch_pages(at);
            for (int v = 0; v < 4; v++)
                sum[v] = _mm512_add_epi64(sum[v], _mm512_loadu_si512(at + 64 * v));
        }
    sum[0] = _mm512_add_epi64(sum[0], sum[1]);
    return (uint64_t)_mm512_reduce_add_epi64(
        _mm512_add_epi64(sum[0], _mm512_add_epi64(sum[2], sum[3])));
}
#endif

static void read_part(void *user, int64_t begin, int64_t end, int thread)
{
    const Reading *r = user;
    uint64_t sum = 0;
    (void)thread;
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_AVX512) {
        sum = r->reader == READ_HALVES ? read_halves(r->data + begin, end - begin)
                                       : read_lines(r->data + begin, end - begin, r->reader);
        atomic_fetch_add(&read_sum, sum);
        return;
    }
#endif
    for (int64_t i = begin; i + READ_STEP <= end; i += READ_STEP)
        sum += read_plain(r->data + i);
    atomic_fetch_add(&read_sum, sum);
}

void read_memory(const void *data, int64_t bytes, int reader, int threads)
{
    Reading r = {data, reader};
    int64_t step = bytes / (8 * (int64_t)threads) / READ_STEP * READ_STEP;
    team_run(threads, bytes, step, read_part, &r);
}
