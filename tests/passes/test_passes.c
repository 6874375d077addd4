/* What check-eval finds and lets pass, the runner of passes and what it prints, and taps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Arena *arena;
static Diag diag;

static int setup(void **state)
{
    (void)state;
    arena = arena_create();
    diag_init(&diag, arena);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static Module *parse(const char *text)
{
    const char *all = arena_printf(arena, "module \"m\"\ndim T in [1, 2]\n%s", text);
    Module *m = module_parse(arena, &diag, diag_add_source(&diag, "t.ir", all, strlen(all)));
    if (!m)
        diag_print(&diag, stderr, false);
    assert_non_null(m);
    return m;
}

/* Check-eval ----------------------------------------------------------------------------------- */

#define OUT(name, format, dims, values) \
    "%c = const dense " values " : " format dims "\noutput \"" name "\" %c\n"
#define F32(values) OUT("y", "f32", "[2]", values)
/* Six roundings to bf16, each of what is multiplied by a number before and by another behind. */
#define ROUND(from, to, scale, back)                    \
    "%" to "0 = const dense [" scale "] : f32[1]\n"     \
    "%" to "1 = mul %" from ", %" to "0 : f32[8, 64]\n" \
    "%" to "2 = cast %" to "1 : bf16[8, 64]\n"          \
    "%" to "3 = cast %" to "2 : f32[8, 64]\n"           \
    "%" to "4 = const dense [" back "] : f32[1]\n"      \
    "%" to " = mul %" to "3, %" to "4 : f32[8, 64]\n"
#define X "%x = input \"x\" : f32[8, 64]\n"
#define Y "output \"y\" %y\n"
#define ROUNDED                                                                     \
    X ROUND("x", "a", "1", "1") ROUND("a", "b", "1", "1") ROUND("b", "c", "1", "1") \
        ROUND("c", "d", "1", "1") ROUND("d", "e", "1", "1") ROUND("e", "y", "1", "1") Y
#define SCALED(last)                                                            \
    X ROUND("x", "a", "0.7", "1.4285714") ROUND("a", "b", "0.9", "1.1111111")   \
        ROUND("b", "c", "1.3", "0.7692308") ROUND("c", "d", "0.6", "1.6666666") \
            ROUND("d", "e", "1.7", "0.5882353") ROUND("e", "y", "1.1", last) Y
#define NAN_0 "hex \"0000c07f0000803f\"" /* NaN and 1 */
#define NAN_1 "hex \"0100c07f0000803f\"" /* another NaN and 1 */

static const struct {
    const char *before, *after, *why; /* begins what is said; NULL: they count as equal */
    EvalCheck check;
} pair[] = {
    {F32("[1, 2]"), F32("[1, 2]"), NULL, CHECK_EXACT},
    {F32("[1, 2]"), F32("[1, 3]"), "element 1 of output \"y\" was 2 and is 3", CHECK_EXACT},
    {F32(NAN_0), F32(NAN_1), NULL, CHECK_EXACT},
    {F32(NAN_0), F32("[2, 1]"), "element 0 of output \"y\" was nan and is 2", CHECK_EXACT},
    {F32("[2, 1]"), F32(NAN_0), "element 0 of output \"y\" was 2 and is nan", CHECK_EXACT},
    {F32("[0, 1]"), F32("[-0, 1]"), "element 0 of output \"y\" was 0 and is -0", CHECK_EXACT},
    {F32("[1, 2]"), F32("[1, 2.00001]"), NULL, CHECK_CLOSE},
    {F32("[1, 2]"), F32("[1, 2.001]"), "output \"y\" moved by a normalised error", CHECK_CLOSE},
    {F32("[1, 2]"), F32("[1, 2.001]"), NULL, CHECK_LOOSE},
    {F32("[1, 2]"), F32("[1, 2.1]"), "output \"y\" moved by a normalised error", CHECK_LOOSE},
    {ROUNDED, SCALED("0.9090909"), NULL, CHECK_LOOSE},
    {ROUNDED, SCALED("0.9090909"), "output \"y\" moved by a normalised error", CHECK_CLOSE},
    {ROUNDED, SCALED("0.93"), "output \"y\" moved by a normalised error", CHECK_LOOSE},
    {F32("[0, 0]"), F32("[0, 0]"), NULL, CHECK_CLOSE},
    {F32("[0, 0]"), F32("[0, 1]"), "output \"y\" moved by a normalised error of inf", CHECK_CLOSE},
    {F32(NAN_0), F32(NAN_1), NULL, CHECK_CLOSE},
    {F32(NAN_0), F32("[1, 1]"), "element 0 of output \"y\" was nan and is 1", CHECK_CLOSE},
    {F32("[inf, 1]"), F32("[inf, 1]"), NULL, CHECK_CLOSE},
    {F32("[inf, 1]"), F32("[1, 1]"), "element 0 of output \"y\" was inf and is 1", CHECK_CLOSE},
    {F32("[inf, 1]"), F32("[-inf, 1]"), "element 0 of output \"y\" was inf and is -inf",
     CHECK_CLOSE},
    {F32("[1, 1]"), F32("[inf, 1]"), "output \"y\" moved by a normalised error", CHECK_CLOSE},
    {OUT("y", "bf16", "[2]", "[1, 2]"), OUT("y", "bf16", "[2]", "[1, 2.015625]"),
     "output \"y\" moved by a normalised error", CHECK_CLOSE},
    {OUT("y", "bf16", "[2]", "[1, 512]"), OUT("y", "bf16", "[2]", "[1.0078125, 512]"), NULL,
     CHECK_CLOSE},
    {F32("[1, 2]"), OUT("z", "f32", "[2]", "[1, 2]"), "output \"y\" changed its type", CHECK_EXACT},
    {F32("[1, 2]"), OUT("y", "f16", "[2]", "[1, 2]"), "output \"y\" changed its type", CHECK_EXACT},
    {F32("[1, 2]"), OUT("y", "f32", "[1]", "[1]"), "output \"y\" changed its type", CHECK_CLOSE},
    {F32("[1, 2]"), "%x = input \"x\" : f32[2]\n", "the number of outputs changed", CHECK_EXACT},
    {OUT("y", "f32", "[0]", "[]"), OUT("y", "f32", "[0]", "[]"), NULL, CHECK_EXACT},
    {OUT("y", "f32", "[0]", "[]"), OUT("y", "f32", "[0]", "[]"), NULL, CHECK_CLOSE},
};

static EvalRecord *record(const char *text, EvalCheck check)
{
    const char *why;
    EvalRecord *r = eval_record(parse(text), check, arena, &why);
    if (!r)
        print_error("%s: %s\n", text, why);
    assert_non_null(r);
    return r;
}

static void test_compare(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pair); i++) {
        EvalRecord *a = record(pair[i].before, pair[i].check);
        EvalRecord *b = record(pair[i].after, pair[i].check);
        const char *why = eval_record_compare(a, b, pair[i].check, arena);
        if (!pair[i].why != !why || (why && strncmp(why, pair[i].why, strlen(pair[i].why)) != 0))
            fail_msg("row %zu says '%s'", i, why ? why : "nothing");
        eval_record_free(a);
        eval_record_free(b);
    }
}

/* What cannot be evaluated is not compared, and the reason is kept. */
static const struct {
    const char *text, *why;
} unchecked[] = {
    {"%x = input \"x\" : i32[T]\noutput \"y\" %x\n", "an input cannot be bound"},
    {"%x = input \"x\" : f32[T - 3]\noutput \"y\" %x\n", "an input cannot be bound"},
    {"%x = input \"x\" : f32[T, 4]\n%q = quantize %x : i8{sym per row}[T, 4]\noutput \"y\" %q\n",
     "an output cannot be read"},
    {"%w = const weight \"w\" : f32[2]\noutput \"y\" %w\n", "weight 'w'"},
};

static void test_unchecked(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(unchecked); i++) {
        const char *why = NULL;
        assert_null(eval_record(parse(unchecked[i].text), CHECK_EXACT, arena, &why));
        if (!strstr(why, unchecked[i].why))
            fail_msg("row %zu says '%s'", i, why);
    }
}

/* The runner ----------------------------------------------------------------------------------- */

static const char module_text[] = "%x = input \"x\" : f32[T, 4]\n"
                                  "%u = relu %x : f32[T, 4]\n"
                                  "%1 = relu %x : f32[T, 4]\n"
                                  "output \"y\" %1\n";
static const char unbound_text[] = "%w = const weight \"w\" : f32[2]\n"
                                   "%u = relu %w : f32[2]\n"
                                   "output \"y\" %w\n";

static const struct {
    const char *text, *list, *print_after;
    bool times, trace, check, ok;
    const char *said, *not_said; /* in the trace or as an error */
} run[] = {
    {module_text, "dce", NULL, false, true, false, true, "", "dce"},
    {module_text, "dce", "dce", false, true, false, true, "# after dce\nmodule", "%u"},
    {module_text, "dce", "fold", false, true, false, true, "", "# after"},
    {module_text, "fold,,dce", "all", false, true, false, true, "# after fold\nmodule", "dcee"},
    {module_text, "dce", "all", true, true, false, true, "# dce  ", "error"},
    {module_text, "dce", "all", true, false, false, true, "", "dce"},
    {module_text, ",", NULL, true, true, true, true, "", "dce"},
    {module_text, "dec", NULL, false, true, false, false, "did you mean 'dce'?", "# after"},
    {module_text, "qqqqqqqqqqqqqqqqqq", NULL, false, true, false, false, "there is no pass 'qqq",
     "did you mean"},
    {unbound_text, "dce", NULL, false, true, true, true, "# dce: no check-eval before: ", "error"},
    {unbound_text, "dce", NULL, false, false, true, true, "", "check-eval"},
};

static void test_runner(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(run); i++) {
        char *traced = NULL;
        size_t len;
        FILE *trace = open_memstream(&traced, &len);
        PassOptions options = {.opt_level = 1,
                               .check_eval = run[i].check,
                               .time_passes = run[i].times,
                               .print_after = run[i].print_after,
                               .trace = run[i].trace ? trace : NULL};
        PassContext ctx;
        assert_non_null(trace);
        diag_init(&diag, arena);
        Module *m = parse(run[i].text);
        pass_context_init(&ctx, arena, &options);
        bool ok = passes_run(m, &ctx, run[i].list);
        diag_print(&diag, trace, false);
        assert_int_equal(fclose(trace), 0);
        if (ok != run[i].ok || !strstr(traced, run[i].said) || strstr(traced, run[i].not_said))
            fail_msg("row %zu: %s and says\n%s", i, ok ? "passes" : "fails", traced);
        free(traced);
    }
}

/* Taps ----------------------------------------------------------------------------------------- */

#define STATIC "quant = {weight i8{sym per row}, act i8{"
static const char layers[] =
    "%x = input \"x\" : f32[T, 4]\n"
    "%w = const random seed 1 scale 1 : f32[4, 4]\n"
    "%b = const random seed 2 scale 1 : f32[4]\n"
    "%p = matmul %x, %w {layer = \"plain\"} : f32[T, 4]\n"
    "%pb = add %p, %b : f32[T, 4]\n"
    "%q = matmul %x, %w {layer = \"twice\"} : f32[T, 4]\n"
    "%qb = add %q, %b : f32[T, 4]\n"
    "%qc = add %q, %b : f32[T, 4]\n"
    "%r = matmul %x, %w {layer = \"twice\"} : f32[T, 4]\n"
    "%s = matmul %x, %w {layer = \"behind\"} : f32[T, 4]\n"
    "%sb = add %b, %s : f32[T, 4]\n"
    "%t = matmul %x, %w {layer = \"residual\"} : f32[T, 4]\n"
    "%tb = add %t, %x : f32[T, 4]\n"
    "%v = matmul %x, %w {layer = \"matrix\"} : f32[T, 4]\n"
    "%vb = sub %v, %b : f32[T, 4]\n"
    "%k = matmul %x, %w : f32[T, 4]\n"
    "%d = matmul %x, %w {range = minmax [1, 3], layer = \"symmetric\", " STATIC
    "sym per tensor} static}} : f32[T, 4]\n"
    "%e = matmul %x, %w {range = minmax [-3, -1], layer = \"asymmetric\", " STATIC
    "asym per tensor} static}} : f32[T, 4]\n"
    "%f = matmul %x, %w {layer = \"given\", " STATIC
    "sym per tensor} static scale 0.5 zero 0}} : f32[T, 4]\n"
    "%g = matmul %x, %w {layer = \"dynamic\", " STATIC "sym per row}}} : f32[T, 4]\n"
    "%h = matmul %x, %w {layer = \"unknown\", " STATIC "sym per tensor} static}} : f32[T, 4]\n"
    "%i = matmul %x, %w {range = minmax [-4, 1], layer = \"below\", " STATIC
    "sym per tensor} static}} : f32[T, 4]\n"
    "output \"y\" %pb\n";

static const struct {
    const char *name, *value; /* of the tap */
    float lo, hi;             /* 0 and 0: it has no range */
} tap[] = {
    {"plain", "pb", 0, 0},
    {"twice", "q", 0, 0},
    {"behind", "s", 0, 0},
    {"residual", "t", 0, 0},
    {"matrix", "v", 0, 0},
    {"symmetric", "d", 0, 0},
    {"symmetric input", "x", -3, 3},
    {"asymmetric", "e", 0, 0},
    {"asymmetric input", "x", -3, 0},
    {"given", "f", 0, 0},
    {"dynamic", "g", 0, 0},
    {"unknown", "h", 0, 0},
    {"unknown input", "x", 0, 0},
    {"below", "i", 0, 0},
    {"below input", "x", -4, 4},
};

static void test_taps(void **state)
{
    (void)state;
    Module *m = parse(layers);
    const Op *last = m->body.last;
    size_t i = 0;
    taps_add(m);
    taps_take_ranges(m);
    for (const Op *op = last->next; op; op = op->next, i++) {
        assert_true(i < COUNT_OF(tap));
        assert_int_equal(op->kind, OP_OUTPUT);
        assert_string_equal(op->name, tap[i].name);
        assert_string_equal(op->in[0].value->name, tap[i].value);
        assert_true(op->attr.range.lo == tap[i].lo && op->attr.range.hi == tap[i].hi);
    }
    assert_int_equal(i, COUNT_OF(tap));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_compare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unchecked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_runner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taps, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
