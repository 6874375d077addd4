/* The JSON reader against RFC 8259: texts that are values, and texts that are none, each with what
 * the reader says of it. */
#include "io/io.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Case {
    const char *text;
    const char *error; /* NULL: a value */
} Case;

static const Case values[] = {
    {"0", NULL},
    {"-0", NULL},
    {" \t\r\n1 \t\r\n", NULL},
    {"23456789", NULL},
    {"-1.25", NULL},
    {"3e2", NULL},
    {"4E+20", NULL},
    {"5e-7", NULL},
    {"6.0E1", NULL},
    {"7", NULL},
    {"8", NULL},
    {"9", NULL},
    {"0.5", NULL},
    {"true", NULL},
    {"false", NULL},
    {"null", NULL},
    {"\"\"", NULL},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", NULL},
    {"\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"", NULL},
    {"[]", NULL},
    {"[1,[2,{\"a\":[]}],\"x\"]", NULL},
    {"{}", NULL},
    {"{\"a\":{\"b\":null},\"c\":-1}", NULL},
    {"", "a value is expected"},
    {"  ", "a value is expected"},
    {"tru", "a value is expected"},
    {"nul", "a value is expected"},
    {"True", "a value is expected"},
    {"NaN", "a value is expected"},
    {"+1", "a value is expected"},
    {".5", "a value is expected"},
    {"'a'", "a value is expected"},
    {"-", "a number lacks its digits"},
    {"-a", "a number lacks its digits"},
    {"-:", "a number lacks its digits"},
    {"1.", "a number lacks its digits"},
    {"1.e1", "a number lacks its digits"},
    {"1e", "a number lacks its digits"},
    {"1e+", "a number lacks its digits"},
    {"1E-x", "a number lacks its digits"},
    {"01", "a number has leading zeros"},
    {"-00", "a number has leading zeros"},
    {"0x1", "text follows the end"},
    {"1:", "text follows the end"},
    {"[1", "a comma or ']' is expected"},
    {"[1 2]", "a comma or ']' is expected"},
    {"[1,]", "a value is expected"},
    {"[,1]", "a value is expected"},
    {"{\"a\" 1}", "a colon is expected after a key"},
    {"{\"a\":1 \"b\":2}", "a comma or '}' is expected"},
    {"{1:2}", "a string is expected"},
    {"{\"a\":}", "a value is expected"},
    {"{\"a\":tru}", "a value is expected"},
    {"\"a", "a string is not closed"},
    {"\"\\", "a string is not closed"},
    {"\"\\u00", "an escape is cut off"},
    {"\"\\u00:0\"", "\\u needs four hexadecimal digits"},
    {"\"\\u00G0\"", "\\u needs four hexadecimal digits"},
    {"\"\\u00g0\"", "\\u needs four hexadecimal digits"},
    {"\"\\u00`0\"", "\\u needs four hexadecimal digits"},
    {"\"\\u00/0\"", "\\u needs four hexadecimal digits"},
    {"\"\\uffff\"", NULL},
    {"\"\\udc00\"", "half of a surrogate pair"},
    {"\"\\ud800", "half of a surrogate pair"},
    {"\"\\ud800abcdef\"", "half of a surrogate pair"},
    {"\"\\ud800\\nabcdef\"", "half of a surrogate pair"},
    {"\"\\ud800\\u00zz\"", "\\u needs four hexadecimal digits"},
    {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
    {"\"\\ud800\\ue000\"", "half of a surrogate pair"},
    {"\"\\u0000\"", "a string holds NUL"},
    {"\"\\q\"", "an unknown escape"},
    {"\"a\x1f\"", "a string holds a control character"},
    {"\"\x80\"", "a string is not UTF-8"},
    {"\"\xc3\"", "a string is not UTF-8"},
};

/* In memory of just its size, so that a sanitiser sees a read beyond it. */
static char *exactly(const char *text, size_t len)
{
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    return copy;
}

static void texts_are_values_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        size_t len = strlen(values[i].text);
        char *text = exactly(values[i].text, len);
        Json j;
        json_init(&j, text, len);
        bool ok = json_skip(&j) && json_end(&j);
        if (ok != !values[i].error)
            fail_msg("%s: %s", values[i].text, ok ? "accepted" : j.error);
        if (!ok)
            assert_string_equal(j.error, values[i].error);
        free(text);
    }
}

static void a_backslash_before_nul_is_no_escape(void **state)
{
    (void)state;
    Json j;
    json_init(&j, "\"\\\0\"", 4);
    assert_false(json_skip(&j));
    assert_string_equal(j.error, "an unknown escape");
}

static void strings_are_decoded(void **state)
{
    (void)state;
    char buf[64];
    Json j;
    const char *text = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"";
    json_init(&j, text, strlen(text));
    assert_true(json_string(&j, buf, sizeof buf) && json_end(&j));
    assert_string_equal(buf, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    json_init(&j, "\"abcd\"", 6);
    assert_false(json_string(&j, buf, 4));
    assert_string_equal(j.error, "a string is too long");
}

static void whole_numbers_are_exact(void **state)
{
    static const struct {
        const char *text, *error;
        uint64_t value;
    } cases[] = {
        {"0", NULL, 0},
        {"18446744073709551615", NULL, UINT64_MAX},
        {"7 ", NULL, 7},
        {"7,", NULL, 7},
        {"18446744073709551616", "a number exceeds 64 bits", 0},
        {"99999999999999999999", "a number exceeds 64 bits", 0},
        {"184467440737095516150", "a number exceeds 64 bits", 0},
        {"00", "a number has leading zeros", 0},
        {"1.5", "a whole number is expected", 0},
        {"1e5", "a whole number is expected", 0},
        {"1E5", "a whole number is expected", 0},
        {"-1", "a whole number that is not negative is expected", 0},
        {":", "a whole number that is not negative is expected", 0},
        {"", "a whole number that is not negative is expected", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 1;
        Json j;
        json_init(&j, cases[i].text, strlen(cases[i].text));
        assert_int_equal(json_u64(&j, &value), !cases[i].error);
        if (cases[i].error)
            assert_string_equal(j.error, cases[i].error);
        else
            assert_int_equal(value, cases[i].value);
    }
    uint64_t value;
    Json j;
    json_init(&j, "7\0", 2); /* a NUL is no part of a number */
    assert_true(json_u64(&j, &value));
    assert_false(json_end(&j));
}

static void any_number_is_read_exactly(void **state)
{
    static const struct {
        const char *text;
        double value;
        const char *error;
    } cases[] = {{" 0.1", 0.1, NULL},
                 {"-2.5e-3", -0.0025, NULL},
                 {"1E400", INFINITY, NULL},
                 {"17", 17, NULL},
                 {"4.9406564584124654e-324", 4.9406564584124654e-324, NULL},
                 {"null", 0, "a number is expected"},
                 {"\"1\"", 0, "a number is expected"},
                 {"", 0, "a number is expected"},
                 {"1.", 0, "a number lacks its digits"},
                 {"01", 0, "a number has leading zeros"},
                 {"0.0000000000000000000000000000000000000000000000000000000000000001", 0,
                  "a number has too many digits"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        double value = 0;
        Json j;
        json_init(&j, cases[i].text, strlen(cases[i].text));
        assert_int_equal(json_f64(&j, &value), !cases[i].error);
        if (cases[i].error)
            assert_string_equal(j.error, cases[i].error);
        else
            assert_true(value == cases[i].value && json_end(&j));
    }
    double value = 0;
    Json j;
    json_init(&j, "1e51", 3); /* what lies behind is no part of it */
    assert_true(json_f64(&j, &value) && value == 1e5);
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[2 * LIMIT_NESTING + 4];
    for (int depth = LIMIT_NESTING; depth <= LIMIT_NESTING + 1; depth++)
        for (int kind = 0; kind < 2; kind++) {
            Json j;
            memset(text, '[', (size_t)depth);
            memset(text + depth, ']', (size_t)depth);
            if (kind) /* the innermost is an object */
                text[depth - 1] = '{', text[depth] = '}';
            json_init(&j, text, 2 * (size_t)depth);
            assert_int_equal(json_skip(&j), depth == LIMIT_NESTING);
            if (depth > LIMIT_NESTING)
                assert_string_equal(j.error, "values are nested too deeply");
        }
}

/* The first problem is the one that is told, whatever is asked for afterwards. */
static void after_an_error_nothing_is_read(void **state)
{
    (void)state;
    char buf[8];
    uint64_t value;
    bool first = true;
    Json j;
    json_init(&j, "]1", 2);
    assert_false(json_skip(&j));
    assert_false(json_skip(&j) || json_end(&j) || json_u64(&j, &value) ||
                 json_string(&j, buf, sizeof buf) || json_object_begin(&j) ||
                 json_next_key(&j, buf, sizeof buf, &first) || json_next_element(&j, &first) ||
                 json_at_string(&j));
    assert_int_equal(json_peek(&j), '\0');
    assert_string_equal(j.error, "a value is expected");
    assert_int_equal(j.pos, 0);
}

static void what_comes_next_can_be_asked(void **state)
{
    (void)state;
    Json j;
    json_init(&j, " [", 2);
    assert_int_equal(json_peek(&j), '[');
    assert_false(json_at_string(&j));
    json_init(&j, "\"", 1);
    assert_true(json_at_string(&j));
    json_init(&j, " ", 1);
    assert_int_equal(json_peek(&j), '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_values_or_refused),
        cmocka_unit_test(a_backslash_before_nul_is_no_escape),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(any_number_is_read_exactly),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(after_an_error_nothing_is_read),
        cmocka_unit_test(what_comes_next_can_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
