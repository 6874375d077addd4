/* Every code of every format and the values around every rounding boundary, against ml_dtypes. */
#include "quant/quant.h"
#include "tests/quant/check.h"
#include "tests/quant/vectors_formats.h"
#include <stdlib.h>
#include <string.h>

static void check_decode(FormatId fmt, const uint32_t *want, int num)
{
    for (int c = 0; c < num; c++) {
        uint32_t got = plain_bits(format_decode(fmt, (uint32_t)c));
        if (got != want[c])
            fail_msg("%s code 0x%02x: 0x%08x, want 0x%08x", format_info[fmt].name, (unsigned)c, got,
                     want[c]);
    }
}

static void check_encode(FormatId fmt, const uint32_t *from, const uint8_t *code, int num)
{
    for (int i = 0; i < num; i++) {
        uint32_t got = format_encode(fmt, num_float(from[i]));
        if (got != code[i])
            fail_msg("%s of %a: code 0x%02x, want 0x%02x", format_info[fmt].name,
                     (double)num_float(from[i]), got, code[i]);
    }
}

#define FORMAT_TEST(ID, fn)                                                     \
    static void fn(void **state)                                                \
    {                                                                           \
        (void)state;                                                            \
        check_decode(FMT_##ID, value_##ID, (int)COUNT_OF(value_##ID));          \
        check_encode(FMT_##ID, from_##ID, code_##ID, (int)COUNT_OF(code_##ID)); \
    }
FORMAT_TEST(E4M3, e4m3_matches_reference)
FORMAT_TEST(E5M2, e5m2_matches_reference)
FORMAT_TEST(E2M1, e2m1_matches_reference)
FORMAT_TEST(NF4, nf4_matches_reference)
FORMAT_TEST(FP4, fp4_matches_reference)

static void e8m0_matches_reference(void **state)
{
    (void)state;
    check_decode(FMT_E8M0, value_E8M0, 256);
    for (uint32_t c = 0; c < 255; c++) { /* each power of two and all up to the next round to it */
        float power = format_decode(FMT_E8M0, c);
        assert_int_equal(format_encode(FMT_E8M0, power), c);
        assert_int_equal(format_encode(FMT_E8M0, -power), c);
        assert_int_equal(format_encode(FMT_E8M0, nextafterf(power * 2, 0)), c);
    }
    assert_int_equal(format_encode(FMT_E8M0, 0), 0);
    assert_int_equal(format_encode(FMT_E8M0, INFINITY), 254);
    assert_int_equal(format_encode(FMT_E8M0, NAN), 255);
}

/* The same values as the generator: midpoints of neighbours, and what lies beside them. */
static void check_16(FormatId fmt, uint64_t want_values, uint64_t want_rounded, int want_num)
{
    static float value[65536], x[3 * 32768 + 4];
    static uint16_t code[65536], back[3 * 32768 + 4];
    for (int i = 0; i < 65536; i++)
        code[i] = (uint16_t)i;
    format_to_f32(fmt, code, value, 65536);
    uint64_t hash = FNV_START;
    int num = 0;
    for (int i = 0; i < 65536; i++) {
        uint32_t bits = plain_bits(value[i]);
        hash = fnv_add(hash, &bits, sizeof bits);
        num += i < 32768 && isfinite(value[i]);
    }
    assert_true(hash == want_values);
    for (int i = 0; i + 1 < num; i++) {
        float mid = (float)(((double)value[i] + value[i + 1]) / 2);
        x[i] = mid;
        x[num - 1 + i] = nextafterf(mid, INFINITY);
        x[2 * (num - 1) + i] = nextafterf(mid, 0);
    }
    int total = 3 * (num - 1);
    const float more[] = {65519.996f, 65520, NUM_MAX_FINITE, INFINITY};
    memcpy(x + total, more, sizeof more);
    total += 4;
    assert_int_equal(total, want_num);
    format_from_f32(fmt, x, back, (uint64_t)total);
    assert_true(fnv_add(FNV_START, back, (size_t)total * 2) == want_rounded);
    format_from_f32(fmt, value, back, 65536);
    for (int i = 0; i < 65536; i++)
        if (value[i] == value[i])
            assert_int_equal(back[i], i);
        else
            assert_true(isnan(format_decode(fmt, back[i])));
}

static void f16_matches_reference(void **state)
{
    (void)state;
    check_16(FMT_F16, hash_F16, rounded_F16, rounded_num_F16);
}

static void bf16_matches_reference(void **state)
{
    (void)state;
    check_16(FMT_BF16, hash_BF16, rounded_BF16, rounded_num_BF16);
}

static void integers_decode_and_encode(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 256; c++) {
        assert_true(format_decode(FMT_I8, c) == (float)(int8_t)c);
        assert_true(format_decode(FMT_U8, c) == (float)c);
        assert_true(format_decode(FMT_I4, c & 15) == (float)((int)(c & 15) - ((c & 8) ? 16 : 0)));
        assert_true(format_decode(FMT_U4, c & 15) == (float)(c & 15));
    }
    const struct {
        FormatId fmt;
        float x;
        int code;
    } want[] = {
        {FMT_I8, 0.5f, 0},         {FMT_I8, 1.5f, 2},          {FMT_I8, 2.5f, 2},
        {FMT_I8, -0.5f, 0},        {FMT_I8, -1.5f, 0xfe},      {FMT_I8, 126.5f, 126},
        {FMT_I8, 300, 127},        {FMT_I8, -300, 0x81},       {FMT_I8, INFINITY, 127},
        {FMT_I8, -INFINITY, 0x81}, {FMT_I8, NAN, 0},           {FMT_U8, -3, 0},
        {FMT_U8, 254.5f, 254},     {FMT_U8, 1e30f, 255},       {FMT_I4, 9, 7},
        {FMT_I4, -9, 9},           {FMT_I4, 3.5f, 4},          {FMT_U4, 15.5f, 15},
        {FMT_I32, 2.5f, 2},        {FMT_I32, 3e9f, INT32_MAX}, {FMT_I32, NAN, 0},
    };
    for (size_t i = 0; i < COUNT_OF(want); i++)
        assert_int_equal(format_encode(want[i].fmt, want[i].x), want[i].code);
}

/* The vector loops and the single step agree on every kind of float, at every alignment. */
static void arrays_equal_single_steps(void **state)
{
    (void)state;
    enum { NUM = 5003 };
    static float x[NUM], wide[NUM];
    static union {
        uint8_t u8[NUM];
        uint16_t u16[NUM];
    } code;
    for (int i = 0; i < NUM; i++) {
        uint32_t bits = (uint32_t)splitmix(7, (uint64_t)i);
        x[i] = i % 3 ? num_float((bits & 0x807fffffu) | ((bits >> 7) % 36 + 108) << 23)
                     : num_float(bits);
    }
    const FormatId fmts[] = {FMT_F16, FMT_BF16, FMT_E4M3, FMT_E5M2, FMT_E8M0, FMT_I8, FMT_U8};
    for (size_t f = 0; f < COUNT_OF(fmts); f++) {
        bool is_byte = format_info[fmts[f]].bits == 8;
        format_from_f32(fmts[f], x, &code, NUM);
        format_to_f32(fmts[f], &code, wide, NUM);
        for (int i = 0; i < NUM; i++) {
            uint32_t got = is_byte ? code.u8[i] : code.u16[i];
            assert_int_equal(got, format_encode(fmts[f], x[i]));
            assert_int_equal(plain_bits(wide[i]), plain_bits(format_decode(fmts[f], got)));
        }
    }
}

static void names_and_sizes(void **state)
{
    (void)state;
    assert_int_equal(format_find("e4m3"), FMT_E4M3);
    assert_int_equal(format_find("bf16"), FMT_BF16);
    assert_int_equal(format_find("e4m4"), FMT_NONE);
    assert_int_equal(format_find("none"), FMT_NONE);
    for (int i = FMT_NONE + 1; i < NUM_FORMATS; i++)
        assert_int_equal(format_find(format_info[i].name), i);
    assert_int_equal(format_row_bytes(FMT_I4, 5), 3);
    assert_int_equal(format_row_bytes(FMT_I4, 6), 3);
    assert_int_equal(format_row_bytes(FMT_BF16, 5), 10);
    assert_int_equal(format_row_bytes(FMT_E4M3, 5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_matches_reference),
        cmocka_unit_test(e5m2_matches_reference),
        cmocka_unit_test(e2m1_matches_reference),
        cmocka_unit_test(nf4_matches_reference),
        cmocka_unit_test(fp4_matches_reference),
        cmocka_unit_test(e8m0_matches_reference),
        cmocka_unit_test(f16_matches_reference),
        cmocka_unit_test(bf16_matches_reference),
        cmocka_unit_test(integers_decode_and_encode),
        cmocka_unit_test(arrays_equal_single_steps),
        cmocka_unit_test(names_and_sizes),
    };
    return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
