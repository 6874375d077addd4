/* base: arenas, strings, maps, nearest names, checked sizes, UTF-8 and diagnostics. */
#include "base/base.h"
#include "base/utf8.h"

#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static Arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_create();
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static bool is_zero(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i])
            return false;
    return true;
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        char *last = NULL;
        for (size_t size = 0; size < 300000; size = size * 2 + 7) {
            char *at = arena_alloc(arena, size);
            assert_true((uintptr_t)at % 16 == 0);
            assert_true(is_zero(at, size));
            assert_ptr_not_equal(at, last);
            memset(at, 0xa5, size);
            last = at;
        }
        arena_reset(arena);
        assert_int_equal(arena_bytes(arena), 0);
    }
}

static void arena_grows_in_place_or_copies(void **state)
{
    (void)state;
    char *a = arena_alloc(arena, 16);
    memcpy(a, "0123456789abcdef", 16);
    char *b = arena_grow(arena, a, 16, 64);
    assert_ptr_equal(a, b);
    assert_true(is_zero(b + 16, 48));
    arena_alloc(arena, 1);
    char *c = arena_grow(arena, b, 64, 4096);
    assert_ptr_not_equal(b, c);
    assert_memory_equal(c, "0123456789abcdef", 16);
    assert_true(is_zero(c + 64, 4096 - 64));
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* What was not given out may not be read: the byte behind an object, and all of it after a reset.
 */
static void arena_poisons_what_it_keeps(void **state)
{
    (void)state;
    arena_reset(arena);
    for (size_t size = 0; size < 70; size++) {
        char *at = arena_alloc(arena, size);
        assert_true(size == 0 || !__asan_region_is_poisoned(at, size));
        assert_true(__asan_address_is_poisoned(at + size));
        char *grown = arena_grow(arena, at, size, size + 5);
        assert_ptr_equal(grown, at);
        assert_false(__asan_region_is_poisoned(at, size + 5));
        assert_true(__asan_address_is_poisoned(at + size + 5));
    }
    char *at = arena_alloc(arena, 8);
    arena_reset(arena);
    assert_true(__asan_address_is_poisoned(at));
}
#endif

static void arena_reports_exhaustion(void **state)
{
    (void)state;
    jmp_buf exhausted;
    volatile int times = 0;
    arena_on_exhausted(arena, &exhausted);
    if (setjmp(exhausted))
        times++;
    if (times == 0)
        arena_alloc(arena, SIZE_MAX);
    if (times == 1)
        arena_alloc(arena, SIZE_MAX / 2);
    if (times == 2)
        arena_alloc_array(arena, SIZE_MAX / 2 + 2, 2);
    assert_int_equal(times, 3);
}

static void arrays_keep_what_is_pushed(void **state)
{
    (void)state;
    ARRAY(int) numbers = {0};
    for (int i = 0; i < 10000; i++)
        ARRAY_PUSH(arena, &numbers, i * 3);
    assert_int_equal(numbers.num, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(numbers.elem[i], i * 3);
}

static const char *f32_text(float value)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_put_f32(&sb, value);
    return sb.text;
}

static const char *f64_text(double value)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_put_f64(&sb, value);
    return sb.text;
}

static void numbers_print_shortest(void **state)
{
    (void)state;
    assert_string_equal(f32_text(0.1f), "0.1");
    assert_string_equal(f32_text(100), "100");
    assert_string_equal(f32_text(784), "784");
    assert_string_equal(f32_text(-0.0f), "-0");
    assert_string_equal(f32_text(1e-5f), "1e-05");
    assert_string_equal(f32_text(1e30f), "1e+30");
    assert_string_equal(f32_text(16777216), "16777216");
    assert_string_equal(f32_text(NAN), "nan");
    assert_string_equal(f32_text(-INFINITY), "-inf");
    assert_string_equal(f64_text(0.1), "0.1");
    assert_string_equal(f64_text(1.0 / 3), "0.3333333333333333");
    assert_string_equal(f64_text(9007199254740993.0), "9007199254740992");
}

static void numbers_read_back(void **state)
{
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float value;
        memcpy(&value, &bits, 4);
        if (isnan(value) || isinf(value))
            continue;
        float back = strtof(f32_text(value), NULL);
        assert_memory_equal(&back, &value, 4);
        if (i % 1000 == 0)
            arena_reset(arena);
    }
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    static const char text[] = "a\"\\\n\t\x1b\xe2\x80\xae\xff\xc3\xa9";
    Sb sb;
    sb_init(&sb, arena);
    sb_put_json_string(&sb, text, sizeof text - 1);
    assert_string_equal(sb.text, "\"a\\\"\\\\\\n\\u0009\\u001b\\u202e\\ufffd\xc3\xa9\"");
}

/* Beyond the basic plane an escape is a pair; U+E0041 is a tag, which nothing shows. */
static void json_escapes_of_far_characters_are_pairs(void **state)
{
    (void)state;
    Sb sb;
    sb_init(&sb, arena);
    sb_put_json_string(&sb, "\xf3\xa0\x81\x81", 4);
    assert_string_equal(sb.text, "\"\\udb40\\udc41\"");
}

static void lines_are_indented(void **state)
{
    (void)state;
    Sb sb;
    sb_init(&sb, arena);
    sb.indent = 2;
    sb_line(&sb, "a%d", 1);
    sb_line(&sb, "%0200d", 0);
    assert_int_equal(sb.len, 5 + 203);
    assert_memory_equal(sb.text, "  a1\n  000", 10);
}

static void interned_texts_are_equal_pointers(void **state)
{
    (void)state;
    Intern *table = intern_create(arena);
    const char *gate = intern(table, "gate.weight", 4);
    for (int i = 0; i < 1000; i++) {
        const char *name = arena_printf(arena, "name%d", i);
        assert_string_equal(intern(table, name, strlen(name)), name);
    }
    assert_string_equal(gate, "gate");
    assert_ptr_equal(intern(table, "gate", 4), gate);
    assert_ptr_not_equal(intern(table, "gat", 3), gate);
    assert_ptr_not_equal(intern(table, "", 0), gate);
}

static void maps_keep_insertion_order(void **state)
{
    (void)state;
    Map map;
    map_init(&map, arena);
    assert_null(map_get(&map, "x"));
    for (int i = 0; i < 5000; i++)
        map_put(&map, arena_printf(arena, "k%d", i), arena_printf(arena, "v%d", i));
    map_put(&map, "k7", NULL);
    assert_int_equal(map.num, 5000);
    assert_true(map_has(&map, "k7"));
    assert_null(map_get(&map, "k7"));
    for (int i = 0; i < 5000; i++)
        assert_string_equal(map.entry[i].key, arena_printf(arena, "k%d", i));
    assert_string_equal(map_get(&map, "k4999"), "v4999");
    assert_false(map_has(&map, "k5000"));
}

static const char *nearest(const char *word, const char *a, const char *b)
{
    Nearest n;
    nearest_init(&n, word);
    nearest_offer(&n, a);
    nearest_offer(&n, b);
    return nearest_get(&n);
}

/* Keys that share a slot when they are hashed without a key: with one they are spread. */
static void tables_cannot_be_flooded(void **state)
{
    (void)state;
    enum { NUM = 500, SLOTS = 1 << 10 };
    static int times[SLOTS];
    int num = 0, most = 0;
    for (uint64_t i = 0; num < NUM; i++)
        if (hash_bytes(&i, sizeof i, 0) % SLOTS == 7) {
            int here = ++times[hash_keyed(&i, sizeof i) % SLOTS];
            most = here > most ? here : most;
            num++;
        }
    assert_true(most < 12);
    assert_int_equal(hash_keyed("abc", 3), hash_keyed("abc", 3));
    assert_true(hash_keyed("abc", 3) != hash_keyed("abd", 3));
}

static void nearest_names(void **state)
{
    (void)state;
    assert_string_equal(nearest("lienar", "matmul", "linear"), "linear");
    assert_string_equal(nearest("w3", "w1", "weights"), "w1");
    assert_string_equal(nearest("rmsnom", "rmsnorm", "layernorm"), "rmsnorm");
    assert_string_equal(nearest("fc1.wieght", "fc2.weight", "fc1.weight"), "fc1.weight");
    assert_null(nearest("banana", "linear", "relu"));
    assert_null(nearest("x", "y", "q"));
}

static void checked_sizes(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(checked_elements((int64_t[]){3, 0, 5}, 3, &n));
    assert_int_equal(n, 0);
    assert_true(checked_elements(NULL, 0, &n));
    assert_int_equal(n, 1);
    assert_false(checked_elements((int64_t[]){2, -1}, 2, &n));
    assert_false(checked_elements((int64_t[]){4194305, 4194305, 211106198978564}, 3, &n));
    assert_false(checked_elements((int64_t[]){INT64_MAX, 4, 0}, 3, &n));
    assert_true(checked_elements((int64_t[]){INT64_MAX, 2}, 2, &n));
    assert_true(n == UINT64_MAX - 1);
    assert_true(checked_align(UINT64_MAX - 63, 64, &n));
    assert_true(n == UINT64_MAX - 63);
    assert_false(checked_align(UINT64_MAX - 62, 64, &n));
    assert_false(checked_add(UINT64_MAX, 1, &n));
    assert_false(checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &n));
    assert_true(checked_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &n));
}

static void utf8_rejects_what_is_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_valid;
    } cases[] = {
        {"", true},
        {"\xc3\xa9", true},
        {"\xed\x9f\xbf", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xc0\x80", false},
        {"\xc1\xbf", false},
        {"\xe0\x9f\xbf", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xed\xa0\x80", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"\x80", false},
        {"\xe2\x82", false},
        {"\xe2\x28\xa1", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(utf8_valid(cases[i].text, strlen(cases[i].text)), cases[i].is_valid);
}

/* Diagnostics --------------------------------------------------------------------------------- */

static const char *printed(const Diag *diag, bool json, bool color)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (json)
        diag_print_json(diag, out);
    else
        diag_print(diag, out, color);
    fclose(out);
    char *ret = arena_strndup(arena, text, size);
    free(text);
    return ret;
}

static Span span_of(uint32_t file, const char *text, const char *word)
{
    uint32_t at = (uint32_t)(strstr(text, word) - text);
    return (Span){file, at, at + (uint32_t)strlen(word)};
}

static void carets_stand_under_their_words(void **state)
{
    (void)state;
    static const char text[] = "version 1\nh = relu(w3)\nw1 = 2\n";
    Diag diag;
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "m.sinter", text, strlen(text));
    diag_warning(&diag, span_of(file, text, "w1"), E_SYNTAX, "w1 is unused");
    diag_error(&diag, span_of(file, text, "w3"), E_SYNTAX, "unknown name '%s'", "w3");
    diag_note(&diag, span_of(file, text, "w1"), "names near it");
    diag_help(&diag, "did you mean 'w1'");
    diag_error(&diag, (Span){0}, E_SYNTAX, "no place");
    assert_string_equal(printed(&diag, false, false),
                        "sinter: error[E0101]: no place\n"
                        "m.sinter:2:10: error[E0101]: unknown name 'w3'\n"
                        "    2 | h = relu(w3)\n"
                        "      |          ^~\n"
                        "m.sinter:3:1: note: names near it\n"
                        "    3 | w1 = 2\n"
                        "      | ^~\n"
                        "      = help: did you mean 'w1'\n"
                        "m.sinter:3:1: warning[E0101]: w1 is unused\n"
                        "    3 | w1 = 2\n"
                        "      | ^~\n");
    assert_string_equal(span_text(&diag, span_of(file, text, "w3")), "m.sinter:2:10");
    assert_string_equal(span_text(&diag, (Span){0}), "<no place>");
    assert_string_equal(span_text(&diag, (Span){9, 0, 0}), "<no place>");
    assert_non_null(strstr(printed(&diag, false, true), "\033[1;31merror"));
}

static void json_lines(void **state)
{
    (void)state;
    static const char text[] = "a\nb\xc3\xa9 w3\n";
    Diag diag;
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "m\"s", text, strlen(text));
    diag_error(&diag, span_of(file, text, "w3"), E_SYNTAX, "unknown");
    diag_help(&diag, "remedy");
    diag_warning(&diag, (Span){0}, E_NONE, "plain");
    assert_string_equal(
        printed(&diag, true, false),
        "{\"severity\":\"warning\",\"message\":\"plain\"}\n"
        "{\"severity\":\"error\",\"code\":\"E0101\",\"message\":\"unknown\",\"file\":\"m\\\"s\","
        "\"line\":2,\"column\":4,\"end_line\":2,\"end_column\":6,"
        "\"children\":[{\"severity\":\"help\",\"message\":\"remedy\"}]}\n");
}

static void echoed_text_is_safe(void **state)
{
    (void)state;
    static const char text[] = "\tx \x1b[31m \xe2\x80\xae \xff \xe4\xb8\xad w3";
    Diag diag;
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "m", text, strlen(text));
    diag_error(&diag, span_of(file, text, "w3"), E_SYNTAX, "bad '\x1b]0;x\x07'");
    assert_string_equal(printed(&diag, false, false),
                        "m:1:16: error[E0101]: bad '\\x1b]0;x\\x07'\n"
                        "    1 |     x \\x1b[31m \\u{202e} \\xff \xe4\xb8\xad w3\n"
                        "      |                                 ^~\n");
}

static void long_lines_are_cut_around_the_caret(void **state)
{
    (void)state;
    char *text = arena_alloc(arena, 5001);
    memset(text, 'a', 5000);
    memcpy(text + 3000, "HERE", 4);
    Diag diag;
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "m", text, 5000);
    diag_error(&diag, (Span){file, 3000, 3004}, E_SYNTAX, "x");
    char *shown = arena_strdup(arena, printed(&diag, false, false));
    char *rest, *line = strtok_r(shown, "\n", &rest);
    line = strtok_r(NULL, "\n", &rest);
    char *caret = strtok_r(NULL, "\n", &rest);
    assert_true(strlen(line) < 220);
    assert_ptr_equal(strstr(line, "HERE") - line + caret, strchr(caret, '^'));
    assert_string_equal(strchr(caret, '^'), "^~~~");
}

/* Places in a long text are those that counting from its beginning gives. */
static void places_of_long_texts(void **state)
{
    (void)state;
    static const char *const part[] = {"a",         "\n", "\xc3\xa9", "\xff", "\xf0\x9f\x98\x80",
                                       "long line "};
    Sb sb;
    Diag diag;
    sb_init(&sb, arena);
    for (uint32_t i = 0, state_of = 1; sb.len < 20000; i++) {
        state_of = state_of * 1103515245 + 12345;
        sb_put(&sb, part[i > 900 ? (state_of >> 16) % 6 : 5]); /* a line of 9000 bytes first */
    }
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "long", sb.text, sb.len);
    const Source *source = &diag.sources.elem[file - 1];
    assert_true(source->num_marks > 3);
    for (size_t offset = 0; offset <= sb.len; offset += 1 + offset % 7) {
        int line = 1, column = 1, got_line, got_column;
        for (size_t i = 0; i < offset;) {
            uint8_t c = (uint8_t)sb.text[i];
            line += c == '\n';
            column = c == '\n' ? 1 : column + 1;
            i += c == 0xc3 ? 2 : c == 0xf0 ? 4 : 1;
        }
        source_position(source, (uint32_t)offset, &got_line, &got_column);
        assert_int_equal(got_line, line);
        assert_int_equal(got_column, column);
    }
}

static void spans_at_the_edges(void **state)
{
    (void)state;
    static const char text[] = "ab\r\ncd";
    Diag diag;
    diag_init(&diag, arena);
    uint32_t file = diag_add_source(&diag, "m", text, strlen(text));
    diag_error(&diag, (Span){file, 6, 6}, E_SYNTAX, "end");
    diag_error(&diag, (Span){file, 4000000000u, 4000000001u}, E_SYNTAX, "beyond");
    diag_error(&diag, (Span){file, 1, 6}, E_SYNTAX, "several lines");
    assert_string_equal(printed(&diag, false, false), "m:1:2: error[E0101]: several lines\n"
                                                      "    1 | ab\n"
                                                      "      |  ^\n"
                                                      "m:2:3: error[E0101]: end\n"
                                                      "    2 | cd\n"
                                                      "      |   ^\n"
                                                      "m:2:3: error[E0101]: beyond\n"
                                                      "    2 | cd\n"
                                                      "      |   ^\n");
}

static void errors_beyond_the_limit_are_counted(void **state)
{
    (void)state;
    Diag diag;
    diag_init(&diag, arena);
    for (int i = 0; i < 25; i++) {
        diag_error(&diag, (Span){0}, E_SYNTAX, "error %d", i);
        diag_help(&diag, "help %d", i);
    }
    const char *shown = printed(&diag, false, false);
    assert_int_equal(diag.num_errors, 25);
    assert_non_null(strstr(shown, "help 19\nand 5 more errors\n"));
    assert_null(strstr(shown, "help 20"));
    assert_non_null(strstr(printed(&diag, true, false), "\"more\":5"));
}

static void error_codes_are_unique_and_explained(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_ERRORS; i++) {
        const ErrorInfo *info = &error_info[i];
        assert_int_equal(strlen(info->code), 5);
        assert_int_equal(info->code[0], 'E');
        assert_true(strlen(info->title) > 0);
        assert_true(strlen(info->explanation) > (i == E_NONE ? 0u : 30u));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(info->code, error_info[k].code);
    }
    assert_ptr_equal(error_find("e0101"), &error_info[E_SYNTAX]);
    assert_null(error_find("E9999"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(arena_gives_zeroed_aligned_memory),
#if defined(__SANITIZE_ADDRESS__)
        TEST(arena_poisons_what_it_keeps),
#endif
        TEST(arena_grows_in_place_or_copies),
        TEST(arena_reports_exhaustion),
        TEST(arrays_keep_what_is_pushed),
        TEST(numbers_print_shortest),
        TEST(numbers_read_back),
        TEST(json_strings_are_escaped),
        TEST(json_escapes_of_far_characters_are_pairs),
        TEST(lines_are_indented),
        TEST(interned_texts_are_equal_pointers),
        TEST(maps_keep_insertion_order),
        TEST(tables_cannot_be_flooded),
        TEST(nearest_names),
        TEST(checked_sizes),
        TEST(utf8_rejects_what_is_malformed),
        TEST(carets_stand_under_their_words),
        TEST(json_lines),
        TEST(echoed_text_is_safe),
        TEST(long_lines_are_cut_around_the_caret),
        TEST(places_of_long_texts),
        TEST(spans_at_the_edges),
        TEST(errors_beyond_the_limit_are_counted),
        TEST(error_codes_are_unique_and_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
