/* Codes of e2m1 beside one row with AVX2, in whole numbers: codes are half of such, and most blocks
 * of activations are multiples of a power of two, so few that f32 would not round a sum of their
 * products. Sums of integers are the same then, for half as many operations. */
#include "kernels/cpu/avx2_impl.h"

/* Two signed digits of base 256 hold so much, and f32 adds up so much: twice a code is at most 12.
 * In the products it has CODE_OFFSET added, so that it is not negative. */
#define MOST_DIGITS 32639
#define MOST_SUM    ((1 << 24) / 12)
#define CODE_OFFSET 12
#define LARGE       0x1p60f /* no sum overflows, nor is a product too small for f32 */
#define SMALL       0x1p-60f

static float most_of(__m256 x)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

static int32_t sum_of(__m256i x)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

/* The least power of two of which digits hold the largest magnitude; 0: that is not a number, or
 * too large or small. */
static float unit_of(const float *x, int64_t units)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i large = _mm256_set1_epi32((int32_t)num_bits(LARGE));
    __m256i most = _mm256_setzero_si256();
    for (int64_t u = 0; u < units; u++) /* the bits of what is not finite are above all others' */
        most = _mm256_max_epi32(most, _mm256_and_si256(load_i32(x + 8 * u), magnitude));
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(most, large)))
        return 0;
    float m = most_of(_mm256_castsi256_ps(most));
    if (m < SMALL)
        return m == 0 ? 1 : 0;
    float unit = num_float(num_bits(m) & NUM_INF_BITS) * 0x1p-14f;
    return m > unit * MOST_DIGITS ? 2 * unit : unit;
}

/* The digits of a unit: the lower of even k, the upper of even k, then those of odd k. */
static void store_digits(__m256i whole, int8_t *dst)
{
    const __m256i order =
        _mm256_setr_epi8(0, 8, -1, -1, 1, 9, -1, -1, 4, 12, -1, -1, 5, 13, -1, -1, /* k 0 to 3 */
                         -1, -1, 0, 8, -1, -1, 1, 9, -1, -1, 4, 12, -1, -1, 5, 13);
    __m256i upper = _mm256_add_epi32(whole, _mm256_set1_epi32(128)); /* the lower one is signed */
    __m256i both = _mm256_blendv_epi8(whole, upper, _mm256_set1_epi16((int16_t)0xff00));
    both = _mm256_shuffle_epi8(both, order);
    _mm_storeu_si128((__m128i *)dst,
                     _mm_or_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}

FixedBlock cpu_fix_avx2(const float *x, int64_t units, int8_t *dst)
{
    const float unit = unit_of(x, units);
    __m256i sum = _mm256_setzero_si256(), size = sum, differs = sum;
    for (int64_t u = 0; u < units && unit != 0; u++) {
        __m256 all = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * u), _mm256_set1_ps(1 / unit));
        __m256i whole = _mm256_cvtps_epi32(all);
        __m256 other = _mm256_cmp_ps(all, _mm256_cvtepi32_ps(whole), _CMP_NEQ_UQ);
        differs = _mm256_or_si256(differs, _mm256_castps_si256(other));
        sum = _mm256_add_epi32(sum, whole);
        size = _mm256_add_epi32(size, _mm256_abs_epi32(whole));
        store_digits(whole, dst + FIXED_BYTES * u);
    }
    bool is_exact = _mm256_testz_si256(differs, differs) && sum_of(size) <= MOST_SUM;
    return (FixedBlock){is_exact ? unit : 0, CODE_OFFSET * sum_of(sum)};
}

/* Twice the values of codes, and CODE_OFFSET. */
INLINE __m256i offset_codes(void)
{
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

INLINE __m256i four_digits(const int8_t *digits, int at)
{
    int32_t word;
    memcpy(&word, digits + 4 * at, 4);
    return _mm256_set1_epi32(word);
}

/* One or two units: more would not fit the 16 bits of pairs. */
INLINE void fixed_units(int units, const uint8_t *w, const int8_t *digits, __m256i *sum)
{
    const __m256i low = _mm256_set1_epi8(15), code = offset_codes();
    const __m256i ones = _mm256_set1_epi16(1), upper = _mm256_set1_epi16(256);
    __m256i x[2][4];
    for_each(u, units)
        for_each(i, 4)
            x[u][i] = four_digits(digits + FIXED_BYTES * u, i);
#pragma GCC unroll 2
    for (int v = 0; v < PANEL_COLS / COLS; v++) {
        __m256i part[2];
        for_each(u, units) {
            __m256i both = load_i32(w + 4 * PANEL_COLS * u + 32 * v);
            __m256i even = _mm256_shuffle_epi8(code, _mm256_and_si256(both, low));
            __m256i odd =
                _mm256_shuffle_epi8(code, _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
            for_each(i, 2) {
                __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(even, x[u][i]),
                                                 _mm256_maddubs_epi16(odd, x[u][2 + i]));
                part[i] = u ? _mm256_add_epi16(part[i], pairs) : pairs;
            }
        }
        __m256i all =
            _mm256_add_epi32(_mm256_madd_epi16(part[0], ones), _mm256_madd_epi16(part[1], upper));
        sum[v] = _mm256_add_epi32(sum[v], all);
    }
}

void cpu_fixed_sums_avx2(const uint8_t *w, const int8_t *digits, int64_t units, FixedBlock block,
                         CpuFetch fetch, __m256 *acc)
{
    __m256i sum[PANEL_COLS / COLS];
    for_each(v, PANEL_COLS / COLS)
        sum[v] = _mm256_set1_epi32(-block.less);
    for (; units > 1; units -= 2, w += 8 * PANEL_COLS, digits += 2 * FIXED_BYTES) {
        fetch_ahead(fetch, w, 4);
        fetch_ahead(fetch, w + 4 * PANEL_COLS, 4);
        fixed_units(2, w, digits, sum);
    }
    if (units) {
        fetch_ahead(fetch, w, 4);
        fixed_units(1, w, digits, sum);
    }
    const __m256 unit = _mm256_set1_ps(block.unit / 2);
    for_each(v, PANEL_COLS / COLS)
        acc[v] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[v]), unit);
}
