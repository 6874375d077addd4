/* Dims, lists of uses, names, clones, the verifier's refusals, and what the evaluator promises
 * beside the numbers that tests/ir/eval checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/ir.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Arena *arena;
static Diag diag;
static const Span nowhere = {0};

static int setup(void **state)
{
    (void)state;
    arena = arena_create();
    diag_init(&diag, arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static Module *parse(const char *text)
{
    Module *m = module_parse(arena, &diag, diag_add_source(&diag, "t.ir", text, strlen(text)));
    if (!m)
        diag_print(&diag, stderr, false);
    assert_non_null(m);
    assert_true(module_verify(m, "parse"));
    return m;
}

static const char *print(const Module *m)
{
    Sb sb;
    sb_init(&sb, arena);
    module_print(&sb, m, false);
    return sb.text;
}

static Module *empty_module(void)
{
    return module_create(arena, &diag, "m");
}

static Value *input(Module *m, const char *name, int64_t rows, int64_t cols)
{
    Dim dim[2] = {dim_const(rows), dim_const(cols)};
    return build_input(m, name, type_plain(m, FMT_F32, 2, dim), nowhere);
}

static Value *unary(Module *m, OpKind kind, Value *in)
{
    return build_op(m, &m->body, NULL, kind, NULL, NULL, 1, &in, nowhere);
}

/* Dims ---------------------------------------------------------------------------------------- */

static const char *dim_text(Dim d)
{
    Sb sb;
    sb_init(&sb, arena);
    dim_print(&sb, d);
    return sb.text;
}

static void test_dims(void **state)
{
    (void)state;
    Module *m = empty_module();
    int64_t one = 1, size[2] = {5, 7}, value;
    Dim b = dim_sym(module_add_sym(m, "B", 1, &one, nowhere));
    Dim t = dim_sym(module_add_sym(m, "T", 1, &one, nowhere));
    Dim d, e;
    assert_true(dim_mul(t, b, &d));
    assert_true(dim_mul(b, t, &e));
    assert_true(dim_equal(d, e));
    assert_string_equal(dim_text(d), "B*T");
    assert_true(dim_mul(d, dim_const(4), &d));
    assert_true(dim_add(d, dim_const(-3), &d));
    assert_string_equal(dim_text(d), "4*B*T - 3");
    assert_true(dim_eval(d, size, &value));
    assert_int_equal(value, 137);
    assert_false(dim_mul(d, b, &e)); /* three symbols */
    assert_false(dim_add(b, t, &e)); /* two kinds of product */
    assert_true(dim_add(b, b, &d));
    assert_string_equal(dim_text(d), "2*B");
    assert_true(dim_mul(b, dim_const(-1), &e));
    assert_true(dim_add(d, e, &d));
    assert_true(dim_add(d, e, &d));
    assert_true(dim_is_const(d) && d.add == 0 && !d.sym[0]); /* 2B - B - B */
    assert_false(dim_eval(dim_const(-1), size, &value));
    assert_false(dim_eval(dim_const(INT64_C(1) << 31), size, &value));
    assert_true(dim_mul(b, dim_const(INT64_MAX), &d));
    assert_false(dim_eval(d, size, &value));
    assert_false(dim_mul(d, dim_const(2), &d));
}

static void test_types_are_interned(void **state)
{
    (void)state;
    Module *m = empty_module();
    const Type *first[200];
    for (int i = 0; i < 200; i++) {
        Dim dim[1] = {dim_const(i)};
        first[i] = type_plain(m, FMT_F32, 1, dim);
    }
    for (int i = 0; i < 200; i++) {
        Dim dim[1] = {dim_const(i)};
        assert_ptr_equal(first[i], type_plain(m, FMT_F32, 1, dim));
    }
    Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .block = {1, 0}}, same = scheme;
    Dim dim[2] = {dim_const(2), dim_const(3)};
    assert_ptr_equal(type_quantised(m, &scheme, 2, dim), type_quantised(m, &same, 2, dim));
    same.block[0] = 0;
    assert_ptr_not_equal(type_quantised(m, &scheme, 2, dim), type_quantised(m, &same, 2, dim));
}

/* Ops ----------------------------------------------------------------------------------------- */

static void test_uses(void **state)
{
    (void)state;
    Module *m = empty_module();
    Value *x = input(m, "x", 2, 3), *y = input(m, "y", 2, 3);
    Value *both[2] = {x, x};
    Value *sum = build_op(m, &m->body, NULL, OP_ADD, NULL, NULL, 2, both, nowhere);
    assert_int_equal(value_num_uses(x), 2);
    op_set_in(sum->def, 1, y);
    assert_int_equal(value_num_uses(x), 1);
    assert_int_equal(value_num_uses(y), 1);
    Attr attr = {.axis = 0};
    Value *parts[2] = {sum, y};
    Value *cat = build_op(m, &m->body, NULL, OP_CONCAT, &attr, NULL, 2, parts, nowhere);
    assert_int_equal(value_num_uses(sum), 1);
    assert_int_equal(value_num_uses(y), 2);
    build_output(m, "z", cat, nowhere);
    assert_true(module_verify(m, "test"));
    value_replace(y, x);
    assert_int_equal(value_num_uses(y), 0);
    assert_int_equal(value_num_uses(x), 3);
    op_remove(y->def);
    assert_true(module_verify(m, "test"));
}

static void test_names_are_unique(void **state)
{
    (void)state;
    Module *m = empty_module();
    Value *x = input(m, "x", 2, 3);
    Value *a = unary(m, OP_RELU, x), *b = unary(m, OP_RELU, a), *c = unary(m, OP_RELU, b);
    a->name = "x"; /* three of one name, one of the name a suffix would give */
    b->name = "x.1";
    c->name = "x";
    unary(m, OP_RELU, c)->name = "not a word";
    const char *text = print(m);
    assert_non_null(strstr(text, "%x.1 = relu %x "));
    assert_non_null(strstr(text, "%x.1.1 = relu %x.1 "));
    assert_non_null(strstr(text, "%x.2 = relu %x.1.1 "));
    assert_non_null(strstr(text, "%0 = relu %x.2 "));
    assert_string_equal(text, print(parse(text)));
}

/* Printed, a control character is six bytes; 4000 of them are a name that is not too long. */
static void test_names_read_back(void **state)
{
    (void)state;
    static const char *const part[] = {"\x13", "a", "\"", "\xe2\x80\xae", "\xf3\xa0\x81\x81"};
    for (size_t i = 0; i < COUNT_OF(part); i++) {
        Sb text, name, again;
        sb_init(&name, arena);
        while (name.len < 4000)
            sb_put(&name, part[i]);
        sb_init(&text, arena);
        sb_put(&text, "module ");
        sb_put_json_string(&text, name.text, name.len);
        sb_put(&text, "\n");
        Module *m = module_parse(arena, &diag, diag_add_source(&diag, "t", text.text, text.len));
        assert_non_null(m);
        assert_string_equal(m->name, name.text);
        sb_init(&again, arena);
        module_print(&again, m, false);
        m = module_parse(arena, &diag, diag_add_source(&diag, "u", again.text, again.len));
        assert_non_null(m);
        assert_string_equal(m->name, name.text);
    }
}

static void test_spans_print(void **state)
{
    (void)state;
    Module *m = parse("module \"m\"\n%x = input \"x\" : f32[2]\n  output \"y\" %x\n");
    Sb sb;
    sb_init(&sb, arena);
    module_print(&sb, m, true);
    assert_non_null(strstr(sb.text, "output \"y\" %x  ; t.ir:3:3\n"));
    assert_string_equal(print(parse(sb.text)), print(m)); /* places are comments */
}

static void test_clone(void **state)
{
    (void)state;
    Module *m = parse("module \"m\"\ndim B in [1, 4]\nweights \"w\"\ncalibrate \"c\"\n"
                      "expect \"a\" -> \"b\" atol 1\n"
                      "%x = input \"x\" : f32[B, 4]\n%w = const dense [1, 2, 3, 4] : f32[1, 4]\n"
                      "%y = matmul %x, %w {layer = \"l\", quant = {weight i4{sym group 2} by "
                      "gptq(damp = 0.5), act i8{sym per row}}} : f32[B, 1]\n"
                      "%k = kernel %y : f32[B, 1] {\n%0 = arg : f32[B, 1]\n%1 = relu %0 : f32[B, 1]"
                      "\nyield %1\n}\noutput \"y\" %k\n");
    Arena *other = arena_create();
    Module *copy = module_clone(other, m);
    assert_true(module_verify(copy, "clone"));
    assert_string_equal(print(copy), print(m));
    assert_ptr_not_equal(copy->body.first->out[0].type, m->body.first->out[0].type);
    arena_destroy(other);
    assert_true(module_verify(m, "clone"));
}

/* Verifier: each of these breaks one invariant. */
static void refuse_at(const Module *m, int line)
{
    fflush(stderr); /* its report is for people */
    int saved = dup(2), nul = open("/dev/null", O_WRONLY);
    assert_true(saved >= 0 && nul >= 0);
    dup2(nul, 2);
    bool ok = module_verify(m, "test");
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(nul);
    if (ok)
        fail_msg("line %d: the verifier accepts it", line);
}
#define refuse(m) refuse_at(m, __LINE__)

static void test_verifier(void **state)
{
    (void)state;
    Module *m = empty_module(), *other = empty_module();
    Value *x = input(m, "x", 2, 3);
    Value *a = unary(m, OP_RELU, x), *b = unary(m, OP_RELU, a);
    assert_true(module_verify(m, "test"));
    op_move_before(b->def, a->def); /* used before it is defined */
    refuse(m);
    op_move_before(a->def, b->def);
    assert_true(module_verify(m, "test"));

    const Type *good = a->type;
    Dim dim[2] = {dim_const(2), dim_const(4)};
    a->type = type_plain(m, FMT_F32, 2, dim); /* not what the rule gives */
    refuse(m);
    a->type = type_plain(other, FMT_F32, 2, good->dim); /* another module's */
    refuse(m);
    a->type = NULL;
    refuse(m);
    a->type = good;

    Use *uses = a->uses; /* not in the list of uses */
    a->uses = NULL;
    refuse(m);
    a->uses = uses;
    x->def->name = NULL;
    refuse(m);
    x->def->name = "x";
    assert_true(module_verify(m, "test"));
    input(m, "x", 1, 1); /* a second one */
    refuse(m);
    Block *body = &m->body;
    op_remove(body->last);
    a->def->block = &other->body;
    refuse(m);
    a->def->block = body;
    assert_true(module_verify(m, "test"));
    Const c = {.kind = CONST_DENSE, .data = "1234567", .bytes = 8};
    build_const(m, body, NULL, good, &c, nowhere); /* 8 bytes for 24 */
    refuse(m);
}

/* Evaluator ----------------------------------------------------------------------------------- */

static Tensor f32_tensor(float *data, int64_t rows, int64_t cols)
{
    return (Tensor){.fmt = FMT_F32,
                    .rank = 2,
                    .dim = {rows, cols},
                    .data = data,
                    .bytes = (uint64_t)(rows * cols) * sizeof *data};
}

static const char mlp[] = "module \"m\"\n"
                          "dim B in [1, 8]\n"
                          "%x = input \"x\" : bf16[B, 8]\n"
                          "%w = const random seed 3 scale 1 : f32[6, 8]\n"
                          "%b = const random seed 4 scale 1 : f32[6]\n"
                          "%xq = quantize %x : i8{asym per row}[B, 8]\n"
                          "%wq = quantize %w : i4{sym group 4}[6, 8]\n"
                          "%0 = matmul %xq, %wq {scales = mainloop} : f32[B, 6]\n"
                          "%s = scales %xq {axis = 0} : f32[B, 1]\n"
                          "%t = mul %0, %s : f32[B, 6]\n"
                          "%1 = add %t, %b : f32[B, 6]\n"
                          "%2 = gelu %1 : f32[B, 6]\n"
                          "%3 = softmax %2 : f32[B, 6]\n"
                          "%4 = cast %3 : bf16[B, 6]\n"
                          "output \"y\" %4\n";

/* A row's result is the same whatever the other rows hold: NaN, zeros or nothing. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    Module *m = parse(mlp);
    float rows[3 * 8];
    for (int i = 0; i < 24; i++)
        rows[i] = (float)(i * 7 % 11) - 4.5f;
    int64_t one = 1, three = 3;
    uint16_t alone[6];
    Eval *e = eval_create(m, EVAL_CONTRACT, &one);
    Tensor t = f32_tensor(rows + 8, 1, 8);
    assert_true(eval_bind(e, "x", &t));
    assert_true(eval_run(e, NULL, NULL, NULL));
    memcpy(alone, eval_output(e, "y")->data, sizeof alone);
    eval_destroy(e);

    rows[3] = NAN;
    memset(rows + 16, 0, 8 * sizeof *rows);
    e = eval_create(m, EVAL_CONTRACT, &three);
    t = f32_tensor(rows, 3, 8);
    for (int run = 0; run < 2; run++) { /* twice: an evaluation leaves nothing behind */
        assert_true(eval_bind(e, "x", &t));
        assert_true(eval_run(e, NULL, NULL, NULL));
        const uint16_t *y = eval_output(e, "y")->data;
        assert_memory_equal(y + 6, alone, sizeof alone);
        for (int i = 0; i < 6; i++) {
            assert_true(isnan(num_from_bf16(y[i])));
            assert_false(isnan(num_from_bf16(y[12 + i])));
        }
    }
    eval_destroy(e);
}

static void test_no_rows(void **state)
{
    (void)state;
    Module *m = parse(mlp);
    int64_t none = 0;
    for (int mode = 0; mode < 2; mode++) {
        Eval *e = eval_create(m, mode ? EVAL_F64 : EVAL_CONTRACT, &none);
        float nothing;
        Tensor t = f32_tensor(&nothing, 0, 8);
        assert_true(eval_bind(e, "x", &t));
        assert_true(eval_run(e, NULL, NULL, NULL));
        assert_int_equal(eval_output(e, "y")->dim[0], 0);
        eval_destroy(e);
    }
}

static void test_bind(void **state)
{
    (void)state;
    Module *m = parse(mlp);
    int64_t two = 2;
    float data[16];
    for (int i = 0; i < 16; i++)
        data[i] = 1 + (float)i / 1024;
    Eval *e = eval_create(m, EVAL_CONTRACT, &two);
    const char *why = NULL;
    assert_false(eval_run(e, NULL, NULL, &why));
    assert_string_equal(why, "input x: nothing is bound to it");
    Tensor t = f32_tensor(data, 3, 8);
    assert_false(eval_bind(e, "x", &t)); /* three rows where B = 2 */
    t = f32_tensor(data, 2, 8);
    assert_false(eval_bind(e, "z", &t));
    assert_true(eval_bind(e, "x", &t));
    assert_true(eval_run(e, NULL, NULL, &why));
    eval_destroy(e);
}

typedef struct Seen {
    int num;
    const Value *value[64];
    bool bf16_was_rounded;
} Seen;

static void observe(void *user, const Value *value, const Tensor *tensor)
{
    Seen *seen = user;
    seen->value[seen->num++] = value;
    assert_true(tensor->data || tensor->q.codes);
    if (value->def->kind == OP_INPUT) {
        float back;
        format_to_f32(tensor->fmt, tensor->data, &back, 1);
        seen->bf16_was_rounded = back == 1.0f;
    }
}

static void test_observer(void **state)
{
    (void)state;
    Module *m = parse(mlp);
    int64_t one = 1;
    float data[8] = {1.001f};
    Seen seen = {0};
    Eval *e = eval_create(m, EVAL_CONTRACT, &one);
    Tensor t = f32_tensor(data, 1, 8);
    assert_true(eval_bind(e, "x", &t));
    assert_true(eval_run(e, observe, &seen, NULL));
    eval_destroy(e);
    int index = 0;
    for_each_op(op, &m->body) {
        if (op->num_out)
            assert_ptr_equal(seen.value[index++], &op->out[0]);
    }
    assert_int_equal(index, seen.num);
    assert_true(seen.bf16_was_rounded);
}

static void test_constants(void **state)
{
    (void)state;
    Module *m = parse("module \"m\"\n%x = input \"x\" : f32[4]\n%w = const weight \"fc\" : f16[4]\n"
                      "%c = const dense [1, 2, 3, -4] : f32[4]\n%r = relu %c : f32[4]\n"
                      "%s = add %r, %w : f32[4]\n%t = add %r, %x : f32[4]\n"
                      "%d = mul %r, %r : f32[4]\noutput \"y\" %t\n");
    Value *value[16];
    int num = 0;
    for_each_op(op, &m->body) {
        if (op->num_out)
            value[num++] = &op->out[0];
    }
    const bool constant[] = {false, true, true, true, true, false, true};
    for (int i = 0; i < num; i++)
        assert_int_equal(value_is_constant(value[i]), constant[i]);
    Tensor t;
    const char *why = NULL;
    assert_true(eval_constant(m, value[6], &t, &why));
    assert_memory_equal(t.data, ((float[4]){1, 4, 9, 0}), 16);
    tensor_free(&t);
    assert_true(eval_constant(m, value[2], &t, &why)); /* its own copy */
    assert_ptr_not_equal(t.data, value[2]->def->constant->data);
    tensor_free(&t);
    assert_false(eval_constant(m, value[4], &t, &why));
    assert_string_equal(why, "const: weight 'fc' is not bound to a file");
    assert_false(eval_constant(m, value[5], &t, &why));
    assert_non_null(strstr(why, "depends on an input"));

    Const *c = value[1]->def->constant; /* as bind-weights leaves it */
    float stored[4] = {1, -2, 65504, 65520};
    c->data = stored;
    c->bytes = sizeof stored;
    c->stored_fmt = FMT_F32;
    assert_false(eval_constant(m, value[4], &t, &why));
    assert_string_equal(why, "const: an element of 'fc' is too large for f16");
    stored[3] = INFINITY; /* not made by the conversion */
    assert_true(eval_constant(m, value[4], &t, &why));
    assert_memory_equal(t.data, ((float[4]){2, 0, 65507, INFINITY}), 16);
    tensor_free(&t);
}

/* Shared and deep expressions cost what they hold, not what their tree would. */
static void test_deep_constants(void **state)
{
    (void)state;
    Module *m = empty_module();
    Value *x = build_const_f32(m, &m->body, NULL, 1e-30f, nowhere);
    for (int i = 0; i < 20000; i++) {
        Value *both[2] = {x, x};
        x = build_op(m, &m->body, NULL, i < 100 ? OP_ADD : OP_MUL, NULL, NULL, 2, both, nowhere);
    }
    assert_true(value_is_constant(x));
    Tensor t;
    const char *why;
    assert_true(eval_constant(m, x, &t, &why));
    assert_true(*(float *)t.data == 0 || isinf(*(float *)t.data));
    tensor_free(&t);
}

static void test_uncalibrated(void **state)
{
    (void)state;
    Module *m =
        parse("module \"m\"\n%c = const dense [1] : f32[1]\n%q = quantize %c {mode = static, "
              "range = minmax, layer = \"fc1\"} : i8{sym per tensor}[1]\n"
              "%y = dequantize %q : f32[1]\noutput \"y\" %y\n");
    const char *why = NULL;
    Tensor t;
    assert_false(eval_constant(m, op_in(m->body.last, 0), &t, &why));
    assert_string_equal(why, "quantize of layer fc1: its static range has not been calibrated");
}

/* What no topk and no group_ends gives, an IR may hold all the same. */
static void test_wrong_routes(void **state)
{
    (void)state;
    const struct {
        const char *op, *why;
    } wrong[] = {
        {"take %x, %less : f32[2, 2]", "take: column -1 of 3"},
        {"take %x, %more : f32[2, 2]", "take: column 3 of 3"},
        {"group_ends %less {count = 3} : i32[3]", "group_ends: group -1 of 3"},
        {"group_places %more {count = 3} : i32[2, 2]", "group_places: group 3 of 3"},
        {"group_sources %less {count = 3} : i32[4, 1]", "group_sources: group -1 of 3"},
        {"group_sources %more {count = 3} : i32[4, 1]", "group_sources: group 3 of 3"},
        {"dispatch %x, %none : f32[3, 3]", "dispatch: place -1 of 2"},
        {"dispatch %x, %beyond : f32[3, 3]", "dispatch: place 2 of 2"},
        {"combine %h, %far, %w : f32[2, 3]", "combine: place 4 of 4"},
        {"combine %h, %less, %w : f32[2, 3]", "combine: place -1 of 4"},
        {"spread %x, %back : f32[4, 3]", "spread: group 1 ends at 2, behind 3 of 4 rows"},
        {"spread %x, %long : f32[4, 3]", "spread: group 1 ends at 5, behind 0 of 4 rows"},
        {"matmul %h, %m, %short : f32[4, 1]", "matmul: 3 of 4 rows are in groups"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        const char *text = arena_printf(
            arena,
            "module \"m\"\n%%x = const dense [1, 2, 3, 4, 5, 6] : f32[2, 3]\n"
            "%%h = const dense [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] : f32[4, 3]\n"
            "%%w = const dense [1, 2, 3, 4] : f32[2, 2]\n"
            "%%m = const dense [1, 2, 3, 4, 5, 6] : f32[2, 1, 3]\n"
            "%%less = const dense [0, -1, 2, 1] : i32[2, 2]\n"
            "%%more = const dense [0, 1, 3, 1] : i32[2, 2]\n"
            "%%far = const dense [0, 1, 4, 1] : i32[2, 2]\n"
            "%%none = const dense [0, -1, 1] : i32[3, 1]\n"
            "%%beyond = const dense [0, 1, 2] : i32[3, 1]\n"
            "%%back = const dense [3, 2] : i32[2]\n%%long = const dense [0, 5] : i32[2]\n"
            "%%short = const dense [0, 3] : i32[2]\n%%y = %s\noutput \"y\" %%y\n",
            wrong[i].op);
        Module *m = parse(text);
        const char *why = NULL;
        Tensor t;
        assert_false(eval_constant(m, op_in(m->body.last, 0), &t, &why));
        assert_string_equal(why, wrong[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dims, setup, teardown),
        cmocka_unit_test_setup_teardown(test_types_are_interned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_are_unique, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spans_print, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verifier, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows_are_independent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_observer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_constants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep_constants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uncalibrated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_routes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
