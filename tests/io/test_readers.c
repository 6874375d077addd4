/* The readers of npy, safetensors and weight indexes: for every rule of the formats one file that
 * breaks just this rule, refused with the rule's name, and twins that are accepted. The expected
 * outcomes come from the formats' specifications. */
#include "io/io.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITISED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITISED
#endif
#endif

static void put_le(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Opens bytes in a buffer of exactly their size, so that a sanitiser sees reads behind them. */
static TensorFile *open_bytes(const void *bytes, size_t size, IoError *err)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    *err = (IoError){0};
    TensorFile *f = tensorfile_parse("t", exact, size, err);
    if (!f) {
        free(exact);
        assert_int_not_equal(err->id, E_NONE);
        return NULL;
    }
    for (int i = 0; i < tensorfile_num(f); i++) { /* read every byte of every tensor */
        const TensorView *view = tensorfile_at(f, i);
        volatile uint8_t sum = 0;
        for (uint64_t k = 0; k < view->bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)view->data)[k]);
    }
    tensorfile_close(f);
    free(exact);
    return f; /* only compared with NULL */
}

static void expect_refused(const void *bytes, size_t size, const char *rule)
{
    IoError err;
    if (open_bytes(bytes, size, &err))
        fail_msg("accepted, though: %s", rule);
    if (!strstr(err.text, rule))
        fail_msg("refused with '%s' instead of '%s'", err.text, rule);
}

static void expect_accepted(const void *bytes, size_t size, const char *what)
{
    IoError err;
    if (!open_bytes(bytes, size, &err))
        fail_msg("%s: refused: %s", what, err.text);
}

/* safetensors ---------------------------------------------------------------------------------- */

static size_t make_safetensors(uint8_t *out, const char *header, size_t data)
{
    size_t len = strlen(header);
    put_le(out, len, 8);
    memcpy(out + 8, header, len);
    memset(out + 8 + len, 0x11, data);
    return 8 + len + data;
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

typedef struct Case {
    const char *rule; /* NULL: accepted */
    const char *header;
    size_t data;
} Case;

static const Case safetensors_cases[] = {
    {NULL, "{}", 0},
    {NULL, "{}      ", 0},
    {NULL, "{\"a\":" T("F32", "[2]", 0, 8) "}", 8},
    {NULL, "{\"a\":" T("F32", "[]", 0, 4) "}", 4},
    {NULL, "{\"a\":" T("F32", "[0,5]", 0, 0) "}", 0},
    {NULL, "{\"a\":" T("F32", "[0]", 0, 0) ",\"b\":" T("F32", "[1]", 0, 4) "}", 4},
    {NULL, "{\"b\":" T("U8", "[3]", 4, 7) ",\"a\":" T("F32", "[1]", 0, 4) "}", 7},
    {NULL, "{\"a\":" T("U8", "[3]", 0, 3) ",\"b\":" T("F32", "[1]", 3, 7) "}", 7},
    {NULL, "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T("BF16", "[1,2,3]", 0, 12) "}", 12},
    {NULL, "{\"__metadata__\":{}}", 0},
    {NULL, "{\"a\":" T("F4", "[3,2]", 0, 3) "}", 3},
    {NULL, "{\"a\":" T("F6_E2M3", "[4]", 0, 3) "}", 3},
    {NULL, "{\"a\":" T("I64", "[1]", 0, 8) "}", 8},
    {NULL, "{\"a\":" T("BOOL", "[5]", 0, 5) "}", 5},
    {NULL, "{\"a\":" T("F8_E8M0", "[1,1,1,1,1,1]", 0, 1) "}", 1},
    {NULL, "{\"\\u00e9\\ud83d\\ude00\":" T("U8", "[1]", 0, 1) "}", 1},
    {NULL, "{\"a\":" T("U8", "[0,2147483647,2147483647]", 0, 0) "}", 0},
    {NULL, "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("F32", "[0]", 1, 1) "}", 1},
    {NULL, "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("F32", "[0]", 1, 1) "} ", 1},

    {"does not begin with '{'", " {}", 0},
    {"does not begin with '{'", "", 0},
    {"does not begin with '{'", "[]", 0},
    {"a key in quotes is expected", "{", 0},
    {"text follows the end", "{}x", 0},
    {"text follows the end", "{}{}", 0},
    {"a key in quotes is expected", "{a:1}", 0},
    {"a key in quotes is expected", "{\"a\":" T("U8", "[1]", 0, 1) ",}", 1},
    {"a comma or '}' is expected", "{\"a\":" T("U8", "[1]", 0, 1) "\"b\":" T("U8", "[1]", 1, 2) "}",
     2},
    {"a colon is expected", "{\"a\" 1}", 0},
    {"an object is expected", "{\"a\":1}", 0},
    {"an object is expected", "{\"a\":[]}", 0},
    {"occurs twice", "{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 1, 2) "}", 2},
    {"occurs twice", "{\"a\":" T("U8", "[1]", 0, 1) ",\"\\u0061\":" T("U8", "[1]", 1, 2) "}", 2},
    {"'__metadata__' occurs twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0},
    {"__metadata__ is not a string", "{\"__metadata__\":{\"a\":1}}", 0},
    {"an object is expected", "{\"__metadata__\":\"x\"}", 0},
    {"the dtype is unknown", "{\"a\":" T("F31", "[1]", 0, 4) "}", 4},
    {"the dtype is unknown", "{\"a\":" T("f32", "[1]", 0, 4) "}", 4},
    {"a string is expected", "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"has no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"has no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4},
    {"has no data_offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
    {"has a key other than",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4},
    {"dtype occurs twice",
     "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"shape occurs twice",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"data_offsets occurs twice",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"data_offsets\":[0,4]}}", 4},
    {"an array is expected", "{\"a\":" T("F32", "1", 0, 4) "}", 4},
    {"not negative is expected", "{\"a\":" T("F32", "[-1]", 0, 4) "}", 4},
    {"a whole number is expected", "{\"a\":" T("F32", "[1.0]", 0, 4) "}", 4},
    {"a whole number is expected", "{\"a\":" T("F32", "[1e0]", 0, 4) "}", 4},
    {"not negative is expected", "{\"a\":" T("F32", "[\"1\"]", 0, 4) "}", 4},
    {"leading zeros", "{\"a\":" T("F32", "[01]", 0, 4) "}", 4},
    {"exceeds 64 bits", "{\"a\":" T("F32", "[18446744073709551616]", 0, 4) "}", 4},
    {"exceeds 2147483647", "{\"a\":" T("F32", "[18446744073709551615]", 0, 4) "}", 4},
    {"exceeds 2147483647", "{\"a\":" T("F32", "[4194305,4194305,211106198978564]", 0, 4) "}", 4},
    {"product of the shape is too large",
     "{\"a\":" T("F32", "[2147483647,2147483647,2147483647]", 0, 4) "}", 4},
    {"product of the shape is too large", "{\"a\":" T("F32", "[65536,65536,65536,65536]", 0, 0) "}",
     0},
    {"product of the shape is too large",
     "{\"a\":" T("F32", "[65536,65536,65536,65536,0]", 0, 0) "}", 0},
    {"more dimensions", "{\"a\":" T("U8", "[1,1,1,1,1,1,1]", 0, 1) "}", 1},
    {"do not fill whole bytes", "{\"a\":" T("F4", "[3]", 0, 2) "}", 2},
    {"do not fill whole bytes", "{\"a\":" T("F6_E3M2", "[2]", 0, 2) "}", 2},
    {"fewer than two numbers", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4},
    {"more than two numbers", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}",
     4},
    {"data_offsets are reversed", "{\"a\":" T("F32", "[1]", 4, 0) "}", 4},
    {"beyond the end of the file", "{\"a\":" T("F32", "[2]", 0, 8) "}", 7},
    {"beyond the end of the file", "{\"a\":" T("F32", "[1]", 0, 18446744073709551615) "}", 4},
    {"do not hold as many bytes", "{\"a\":" T("F32", "[2]", 0, 4) "}", 4},
    {"do not hold as many bytes", "{\"a\":" T("F32", "[1]", 0, 8) "}", 8},
    {"a hole after", "{\"a\":" T("F32", "[1]", 4, 8) "}", 8},
    {"a hole after", "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}", 3},
    {"an overlap before", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}", 3},
    {"an overlap before", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2},
    {"the file goes on", "{\"a\":" T("U8", "[2]", 0, 2) "}", 3},
    {"the file goes on", "{}", 1},
    {"is not UTF-8", "{\"\xff\":" T("U8", "[1]", 0, 1) "}", 1},
    {"is not UTF-8", "{\"\xed\xa0\x80\":" T("U8", "[1]", 0, 1) "}", 1},
    {"control character", "{\"a\nb\":" T("U8", "[1]", 0, 1) "}", 1},
    {"holds NUL", "{\"a\\u0000\":" T("U8", "[1]", 0, 1) "}", 1},
    {"surrogate pair", "{\"\\ud83d\":" T("U8", "[1]", 0, 1) "}", 1},
    {"surrogate pair", "{\"\\udc00\":" T("U8", "[1]", 0, 1) "}", 1},
    {"hexadecimal", "{\"\\u00g0\":" T("U8", "[1]", 0, 1) "}", 1},
    {"an unknown escape", "{\"\\x\":" T("U8", "[1]", 0, 1) "}", 1},
    {"a string is not closed", "{\"a", 0},
    {"a string is not closed", "{\"a\\", 0},
    {"a comma or ']' is expected", "{\"a\":{\"shape\":[1", 0},
    {"an array is expected", "{\"a\":{\"data_offsets\":1}}", 0},
    {"not negative is expected", "{\"a\":{\"data_offsets\":[0,\"4\"]}}", 4},
    {"a comma or ']' is expected", "{\"a\":{\"data_offsets\":[0", 4},
    {"a comma or '}' is expected", "{\"a\":{\"dtype\":\"F32\"", 0},
    {"a comma or '}' is expected", "{\"__metadata__\":{\"a\":\"b\"", 0},
    {"an unknown escape", "{\"__metadata__\":{\"a\":\"\\q\"}}", 0},
    {"product of the shape is too large", "{\"a\":" T("F32", "[65536,65536,65536]", 0, 4) "}", 4},
};

static void safetensors_rules(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    for (size_t i = 0; i < COUNT_OF(safetensors_cases); i++) {
        const Case *c = &safetensors_cases[i];
        size_t size = make_safetensors(bytes, c->header, c->data);
        if (c->rule)
            expect_refused(bytes, size, c->rule);
        else
            expect_accepted(bytes, size, c->header);
    }
}

static void safetensors_header_length(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    for (size_t size = 0; size < 8; size++)
        expect_refused(bytes, size, size ? "too few for a header length" : "is empty");
    static const struct {
        uint64_t len;
        const char *rule;
    } cases[] = {
        {100000001, "exceeds the limit"},
        {UINT64_C(1) << 32, "exceeds the limit"},
        {UINT64_C(1) << 63, "exceeds the limit"},
        {UINT64_MAX, "exceeds the limit"},
        {UINT64_MAX - 7, "exceeds the limit"},
        {100000000, "exceeds the file"},
        {3, "exceeds the file"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        put_le(bytes, cases[i].len, 8);
        memcpy(bytes + 8, "{}", 2);
        expect_refused(bytes, 10, cases[i].rule);
    }
    put_le(bytes, 2, 8);
    expect_accepted(bytes, 10, "empty");
}

/* Any byte before or behind a valid file makes it another file: it must not stay valid. */
static void safetensors_prefix_and_suffix(void **state)
{
    (void)state;
    uint8_t good[256], bytes[512];
    size_t size = make_safetensors(good, "{\"a\":" T("F32", "[2]", 0, 8) "}", 8);
    uint32_t random = 1;
    for (int i = 0; i < 10000; i++) {
        size_t before = 0, behind = 0;
        random = random * 1664525u + 1013904223u;
        *(i % 2 ? &before : &behind) = 1 + (random >> 16) % 64;
        for (size_t k = 0; k < before + behind; k++) {
            random = random * 1664525u + 1013904223u;
            bytes[k < before ? k : k + size] = (uint8_t)(random >> 24);
        }
        memcpy(bytes + before, good, size);
        IoError err;
        assert_null(open_bytes(bytes, before + size + behind, &err));
    }
}

/* Cut anywhere, a file is refused and nothing behind the cut is read. */
static void safetensors_truncated(void **state)
{
    (void)state;
    uint8_t bytes[256];
    IoError err;
    size_t size = make_safetensors(bytes, "{\"a\":" T("F32", "[2]", 0, 8) "}", 8);
    for (size_t cut = 0; cut < size; cut++)
        assert_null(open_bytes(bytes, cut, &err));
    expect_accepted(bytes, size, "whole");
}

static void safetensors_views(void **state)
{
    (void)state;
    uint8_t bytes[512];
    IoError err;
    size_t size = make_safetensors(bytes,
                                   "{\"odd\":" T("U8", "[3]", 0, 3) ",\"w\":" T(
                                       "BF16", "[2,1]", 3, 7) ",\"q\":" T("F4", "[2]", 7, 8) "}",
                                   8);
    TensorFile *f = tensorfile_parse("t", bytes, size, &err);
    assert_non_null(f);
    assert_int_equal(tensorfile_num(f), 3);
    assert_false(tensorfile_is_npy(f));
    const TensorView *w = tensorfile_find(f, "w");
    assert_non_null(w);
    assert_int_equal(w->fmt, FMT_BF16);
    assert_string_equal(w->dtype, "BF16");
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->dim[0], 2);
    assert_int_equal(w->dim[1], 1);
    assert_int_equal(w->bytes, 4);
    assert_int_equal((uintptr_t)w->data % 2, 0);
    assert_memory_equal(w->data, "\x11\x11\x11\x11", 4);
    assert_int_equal(tensorfile_find(f, "q")->fmt, FMT_E2M1);
    assert_int_equal(tensorfile_find(f, "q")->elements, 2);
    assert_null(tensorfile_find(f, "x"));
    tensorfile_close(f);
}

/* A header of 100,000 tensors is read in time and memory that follow its size. */
static void safetensors_many_tensors(void **state)
{
    (void)state;
    const int num = 100000;
    size_t cap = 20u << 20, len = 8;
    char *bytes = malloc(cap);
    for (int i = 0; i < num; i++)
        len += (size_t)snprintf(bytes + len, cap - len,
                                "%s\"model.layers.%d.self_attn.q_proj.weight.part%d\":{\"dtype\":"
                                "\"BF16\",\"shape\":[1,1],\"data_offsets\":[%d,%d]}",
                                i ? "," : "{", i, i, 2 * i, 2 * i + 2);
    len += (size_t)snprintf(bytes + len, cap - len, "}");
    put_le((uint8_t *)bytes, len - 8, 8);
    memset(bytes + len, 0, 2 * (size_t)num);
    struct timespec from, to;
    IoError err = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    TensorFile *f = tensorfile_parse("t", bytes, len + 2 * (size_t)num, &err);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    if (!f)
        fail_msg("%s", err.text);
    assert_int_equal(tensorfile_num(f), num);
    assert_non_null(tensorfile_find(f, "model.layers.99999.self_attn.q_proj.weight.part99999"));
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    print_message("# %d tensors, %zu header bytes: %.1f ms\n", num, len, ms);
    assert_true(ms < 2000); /* a guard against quadratic time, not a benchmark */
    tensorfile_close(f);
    free(bytes);
}

/* npy ------------------------------------------------------------------------------------------ */

static size_t make_npy(uint8_t *out, int major, int minor, const char *header, size_t data)
{
    size_t len = strlen(header), at = major == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)major;
    out[7] = (uint8_t)minor;
    put_le(out + 8, len, major == 1 ? 2 : 4);
    memcpy(out + at, header, len);
    memset(out + at + len, 0x22, data);
    return at + len + data;
}

#define N(descr, order, shape) \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static const Case npy_cases[] = {
    {NULL, N("<f4", "False", "(2, 3)"), 24},
    {NULL, N("<f4", "False", "(2, 3)") "       \n", 24},
    {NULL, N("<f4", "False", "(2, 3,)"), 24},
    {NULL, N("<f4", "False", "()"), 4},
    {NULL, N("<f4", "False", "(0,)"), 0},
    {NULL, N("<f2", "False", "(3,)"), 6},
    {NULL, N("<f8", "False", "(1,)"), 8},
    {NULL, N("<i4", "False", "(1,)"), 4},
    {NULL, N("<i8", "False", "(1,)"), 8},
    {NULL, N("|i1", "False", "(3,)"), 3},
    {NULL, N("|u1", "False", "(3,)"), 3},
    {NULL, N("|b1", "False", "(3,)"), 3},
    {NULL, "{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}", 4},

    {"Python objects", N("|O", "False", "(1,)"), 8},
    {"Python objects", N("O", "False", "(1,)"), 8},
    {"structured", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4},
    {"big-endian", N(">f4", "False", "(1,)"), 4},
    {"raw bytes", N("|V2", "False", "(1,)"), 2},
    {"not a number type", N("<U4", "False", "(1,)"), 16},
    {"not a number type", N("|S4", "False", "(1,)"), 4},
    {"not a number type", N("=f4", "False", "(1,)"), 4},
    {"not a number type", N("|f4", "False", "(1,)"), 4},
    {"not a number type", N("<f16", "False", "(1,)"), 16},
    {"not a number type", N("", "False", "(1,)"), 4},
    {"not a number type", N("<M8[ns]", "False", "(1,)"), 8},
    {"too long or holds an escape", N("<f4aaaaaaaaaaaaaaaaaaaaaa", "False", "(1,)"), 4},
    {"too long or holds an escape", N("\\x3cf4", "False", "(1,)"), 4},
    {"Fortran order", N("<f4", "True", "(2, 3)"), 24},
    {"neither True nor False", N("<f4", "1", "(2, 3)"), 24},
    {"neither True nor False", N("<f4", "false", "(2, 3)"), 24},
    {"not in parentheses", N("<f4", "False", "[2, 3]"), 24},
    {"not in parentheses", N("<f4", "False", "6"), 24},
    {"needs a comma", N("<f4", "False", "(6)"), 24},
    {"not negative", N("<f4", "False", "(-1,)"), 4},
    {"not negative", N("<f4", "False", "(,)"), 4},
    {"not negative", N("<f4", "False", "(1,,2)"), 8},
    {"a comma or ')'", N("<f4", "False", "(2L, 3L)"), 24},
    {"a comma or ')'", N("<f4", "False", "(2 3)"), 24},
    {"a comma or ')'", N("<f4", "False", "(0x2, 3)"), 24},
    {"leading zeros", N("<f4", "False", "(02, 3)"), 24},
    {"exceeds 2147483647", N("<f4", "False", "(2147483648,)"), 4},
    {"exceeds 2147483647", N("<f4", "False", "(18446744073709551617,)"), 4},
    {"is too large", N("<f8", "False", "(65536, 65536, 65536)"), 8},
    {"need 34359738368 bytes, but 0 follow", N("<f8", "False", "(65536, 65536)"), 0},
    {"more dimensions", N("<f4", "False", "(1, 1, 1, 1, 1, 1, 1)"), 4},
    {"but 23 follow", N("<f4", "False", "(2, 3)"), 23},
    {"but 25 follow", N("<f4", "False", "(2, 3)"), 25},
    {"is missing", "{'descr': '<f4', 'fortran_order': False, }", 4},
    {"is missing", "{'descr': '<f4', 'shape': (1,), }", 4},
    {"is missing", "{'fortran_order': False, 'shape': (1,), }", 4},
    {"is missing", "{}", 4},
    {"occurs twice", "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
     4},
    {"a key other than", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4},
    {"'{' is expected", "('descr', '<f4')", 4},
    {"'{' is expected", "", 4},
    {"a comma or '}'", "{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }", 4},
    {"a colon", "{'descr' '<f4', 'fortran_order': False, 'shape': (1,), }", 4},
    {"in quotes is expected", "{'descr': <f4, 'fortran_order': False, 'shape': (1,), }", 4},
    {"in quotes is expected", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), ", 4},
    {"a string is not closed", "{'descr", 4},
    {"text follows", N("<f4", "False", "(1,)") "\n\n", 4},
    {"text follows", N("<f4", "False", "(1,)") "x", 4},
    {"in quotes is expected", "{__import__('os').remove('x'): 1}", 4},
    {"neither True nor False", "{'fortran_order': Tru", 4},
    {"neither True nor False", "{'fortran_order': Fals", 4},
    {"not negative", N("<f4", "False", "(:,)"), 4},
    {"a comma or ')'", N("<f4", "False", "(0:,)"), 4},
    {"a comma or ')'", N("<f4", "False", "(1:,)"), 4},
    {"a comma or ')'", "{'descr': '<f4', 'fortran_order': False, 'shape': (0", 4},
    {"a comma or ')'", "{'descr': '<f4', 'fortran_order': False, 'shape': (12", 4},
    {"is too large", N("<f4", "False", "(2147483647, 2147483647, 2147483647)"), 4},
};

static void npy_rules(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    for (size_t i = 0; i < COUNT_OF(npy_cases); i++)
        for (int major = 1; major <= 3; major++) {
            const Case *c = &npy_cases[i];
            size_t size = make_npy(bytes, major, 0, c->header, c->data);
            if (c->rule)
                expect_refused(bytes, size, c->rule);
            else
                expect_accepted(bytes, size, c->header);
        }
}

static void npy_versions_and_lengths(void **state)
{
    (void)state;
    uint8_t bytes[20000];
    const char *good = N("<f4", "False", "(1,)");
    static const int bad[][2] = {{0, 0}, {4, 0}, {1, 1}, {2, 1}, {255, 255}};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        expect_refused(bytes, make_npy(bytes, bad[i][0], bad[i][1], good, 4), "is none of 1.0");
    size_t size = make_npy(bytes, 2, 0, good, 4);
    put_le(bytes + 8, 10001, 4);
    expect_refused(bytes, size, "exceeds the limit");
    put_le(bytes + 8, UINT32_MAX, 4);
    expect_refused(bytes, size, "exceeds the limit");
    put_le(bytes + 8, 1000, 4);
    expect_refused(bytes, size, "exceeds the file");
    for (size_t cut = 6; cut < 12; cut++)
        expect_refused(bytes, cut, "too few for a header");
    make_npy(bytes, 1, 0, good, 4);
    for (size_t cut = 6; cut < 10; cut++)
        expect_refused(bytes, cut, "too few for a header");
    size = make_npy(bytes, 1, 0, good, 4);
    bytes[10 + strlen("{'descr': '<")] = '\0';
    expect_refused(bytes, size, "too long or holds an escape");
    char header[10001];
    memset(header, ' ', sizeof header);
    memcpy(header, good, strlen(good));
    header[10000] = '\0';
    expect_accepted(bytes, make_npy(bytes, 1, 0, header, 4), "the longest header");
}

/* Other files ---------------------------------------------------------------------------------- */

static void other_files_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *rule;
    } cases[] = {
        {"PK\x03\x04\x14\x00\x00\x00\x08\x08\x00\x00", 12, "zip archive"},
        {"\x80\x02}q\x00(X\x01\x00\x00\x00", 10, "a Python pickle"},
        {"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00", 11, "a Python pickle"},
        {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file"},
        {"GGUF\x03\x00\x00\x00\x00", 9, "the file ends inside of its header"},
        {"version https://git-lfs.github.com/spec/v1", 42, "a Git LFS pointer"},
        {"{\"weight_map\": {}}", 18, "is JSON"},
        {"1.5,2\r\n3,4\n", 11, "is text (CSV?)"},
        {"hello, world", 12, "is text"},
        {"hello, world\1", 13, "exceeds the limit"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_refused(cases[i].bytes, cases[i].size, cases[i].rule);
    IoError err;
    open_bytes("PK\x03\x04\x14\x00\x00\x00\x08\x08\x00\x00", 12, &err);
    assert_int_equal(err.id, E_FILE_KIND);
    assert_non_null(strstr(err.text, "save_file"));
    /* a header of 640 bytes begins like a pickle of protocol 2 */
    uint8_t bytes[700];
    memset(bytes, ' ', sizeof bytes);
    put_le(bytes, 640, 8);
    memcpy(bytes + 8, "{}", 2);
    expect_accepted(bytes, 648, "a header of 640 bytes");
}

/* Types without a format of ours are named as numpy and safetensors do. */
static void types_are_named(void **state)
{
    static const struct {
        const char *dtype, *text;
    } cases[] = {
        {"<i8", "64-bit integers (int64)"},
        {"I64", "64-bit integers (int64)"},
        {"|b1", "true and false (bool)"},
        {"C128", "complex numbers (complex128)"},
        {"F6_E2M3", "F6_E2M3"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const TensorView view = {.dtype = cases[i].dtype};
        assert_string_equal(tensor_dtype_text(&view), cases[i].text);
    }
}

/* Labels: whole numbers of any type, of which each is a column. */
static void labels_are_whole_numbers(void **state)
{
    static const double good[] = {0, 2147483647, -3}, half[] = {0.5}, wide[] = {2147483648.0};
    static const float nan[] = {__builtin_nanf("")}, one[] = {1};
    static const uint8_t bytes[] = {7, 200};
    static const struct {
        TensorView view;
        const char *rule; /* NULL: read */
        int64_t last;
    } cases[] = {
        {{.fmt = FMT_F64, .dtype = "F64", .elements = 3, .data = good}, NULL, -3},
        {{.fmt = FMT_F32, .dtype = "<f4", .elements = 1, .data = one}, NULL, 1},
        {{.fmt = FMT_U8, .dtype = "|u1", .elements = 2, .data = bytes}, NULL, 200},
        {{.fmt = FMT_I8, .dtype = "I8", .elements = 2, .data = bytes}, NULL, -56},
        {{.fmt = FMT_F64, .dtype = "F64", .elements = 1, .data = half}, "is 0.5, which is no", 0},
        {{.fmt = FMT_F64, .dtype = "F64", .elements = 1, .data = wide}, "is no whole number", 0},
        {{.fmt = FMT_F32, .dtype = "F32", .elements = 1, .data = nan}, "is nan, which is no", 0},
        {{.fmt = FMT_F16, .dtype = "F16", .elements = 1, .data = bytes}, "this is F16", 0},
    };
    (void)state;
    int64_t label[3];
    IoError err;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(labels_read(&cases[i].view, "l", label, &err), !cases[i].rule);
        if (cases[i].rule)
            assert_non_null(strstr(err.text, cases[i].rule));
        else
            assert_int_equal(label[cases[i].view.elements - 1], cases[i].last);
    }
    assert_false(labels_read(NULL, "l", label, &err));
    assert_non_null(strstr(err.text, "a set of tensors"));
    const int64_t fit[] = {0, 2}, below[] = {-1}, above[] = {3};
    assert_true(labels_fit(fit, 2, "l", "y", 2, 3, &err));
    assert_false(labels_fit(fit, 2, "l", "y", 1, 3, &err));
    assert_false(labels_fit(below, 1, "l", "y", 1, 3, &err));
    assert_false(labels_fit(above, 1, "l", "y", 1, 3, &err));
}

/* Sizes that are only declared must not be allocated: everything again with little memory. */
static void readers_need_little_memory(void **state)
{
    struct rlimit old, low = {UINT64_C(256) << 20, UINT64_C(256) << 20};
#ifdef IS_SANITISED
    return; /* the shadow memory alone is larger */
#endif
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    safetensors_rules(state);
    safetensors_header_length(state);
    npy_rules(state);
    npy_versions_and_lengths(state);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_rules),
        cmocka_unit_test(safetensors_header_length),
        cmocka_unit_test(safetensors_prefix_and_suffix),
        cmocka_unit_test(safetensors_truncated),
        cmocka_unit_test(safetensors_views),
        cmocka_unit_test(safetensors_many_tensors),
        cmocka_unit_test(npy_rules),
        cmocka_unit_test(npy_versions_and_lengths),
        cmocka_unit_test(other_files_are_told_apart),
        cmocka_unit_test(types_are_named),
        cmocka_unit_test(labels_are_whole_numbers),
        cmocka_unit_test(readers_need_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
