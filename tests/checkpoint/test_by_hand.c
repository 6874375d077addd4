/* Weights that a text describes, of tensors that may not fit: schemes, codes, scales, zero points,
 * offsets and second scales of many types and shapes, mixed at random. What is accepted can be read
 * or says why it cannot. */
#include "checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS      6
#define COLS      20
#define MOST      400
#define ROUNDS    200000
#define ITEM_SIZE 4096

typedef struct Tensors {
    SafetensorsItem item[MOST];
    char name[MOST][24];
    int64_t dim[MOST][2];
    int num;
} Tensors;

static Tensors tensors;
static uint32_t state = 1;

static uint32_t choose(uint32_t num)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % num;
}

/* Kinds of content, of any type: zeros, ones as floats, small integers, all bits. */
static const void *content(int kind, const char *dtype)
{
    static uint8_t data[4][ITEM_SIZE];
    bool wide = !strcmp(dtype, "F32");
    for (int i = 0; i < ITEM_SIZE; i++) {
        data[1][i] = (uint8_t)(wide    ? (i % 4 == 3   ? 0x3f
                                          : i % 4 == 2 ? 0x80
                                                       : 0)
                               : i % 2 ? 0x3f
                                       : 0x80);
        data[2][i] = (uint8_t)(i * 7 % 3);
        data[3][i] = 0xff;
    }
    uint8_t *copy = malloc(ITEM_SIZE);
    memcpy(copy, data[kind], ITEM_SIZE);
    return copy;
}

static void add(const char *dtype, int rank, int64_t rows, int64_t cols)
{
    for (int kind = 0; kind < 4 && tensors.num < MOST; kind++) {
        int i = tensors.num++;
        snprintf(tensors.name[i], sizeof tensors.name[i], "t%d", i);
        tensors.dim[i][0] = rows, tensors.dim[i][1] = cols;
        tensors.item[i] = (SafetensorsItem){.name = tensors.name[i],
                                            .rank = rank,
                                            .dim = tensors.dim[i],
                                            .data = content(kind, dtype),
                                            .dtype = dtype};
    }
}

static void add_tensors(void)
{
    static const char *const scales[] = {"F32", "BF16", "U8", "I32", "F8_E4M3"};
    static const int64_t shape[][2] = {{ROWS, 1}, {ROWS, 5}, {1, 1}, {3, 5}, {ROWS, 0}};
    add("I8", 2, ROWS, COLS);
    add("U8", 2, ROWS, COLS);
    add("F8_E4M3", 2, ROWS, COLS);
    add("F4", 2, ROWS, COLS);
    add("U8", 2, ROWS, COLS / 2);
    add("I8", 2, ROWS, COLS / 2);
    add("U8", 2, COLS, ROWS);
    for (int bits = 1; bits <= 8; bits++)
        add(bits % 2 ? "I32" : "U32", 2, ROWS, (COLS * bits + 31) / 32);
    for (size_t d = 0; d < COUNT_OF(scales); d++)
        for (size_t s = 0; s < COUNT_OF(shape); s++)
            add(scales[d], s == 2 ? 0 : shape[s][1] ? 2 : 1, shape[s][0], shape[s][1]);
}

static Scheme any_scheme(void)
{
    static const FormatId fmt[] = {FMT_BINARY, FMT_TERNARY, FMT_I4,   FMT_U4, FMT_I8,
                                   FMT_U8,     FMT_E4M3,    FMT_E2M1, FMT_NF4};
    static const FormatId scale[] = {FMT_F32, FMT_BF16, FMT_E8M0, FMT_E4M3};
    static const int64_t block[][2] = {{1, 0}, {1, 4}, {0, 0}, {2, 4}};
    for (;;) {
        uint32_t b = choose(COUNT_OF(block));
        Scheme s = {.fmt = fmt[choose(COUNT_OF(fmt))],
                    .scale_fmt = scale[choose(COUNT_OF(scale))],
                    .zero = choose(2) ? ZERO_INT : ZERO_NONE,
                    .outer = choose(3) == 0,
                    .block = {block[b][0], block[b][1]}};
        if (!scheme_problem(&s))
            return s;
    }
}

/* A tensor of this shape as a rule, else any or one that is not there. */
static const char *any_tensor(int64_t rows, int64_t cols)
{
    if (!choose(200))
        return "t";
    uint32_t i = choose((uint32_t)tensors.num);
    for (int tries = choose(8) ? 200 : 0; tries; tries--) {
        const int64_t *dim = tensors.dim[i];
        if (dim[0] == rows && dim[1] == cols)
            break;
        i = choose((uint32_t)tensors.num);
    }
    return tensors.name[i];
}

static StoredHand any_hand(const Scheme *s)
{
    int bits = format_info[s->fmt].bits;
    int64_t rows = scheme_row_blocks(s, ROWS), cols = scheme_col_blocks(s, COLS);
    const int64_t widths[] = {COLS, COLS / 2, (COLS * bits + 31) / 32};
    bool asym = s->zero != ZERO_NONE, offset = choose(asym ? 3 : 12) == 0;
    return (StoredHand){.scheme = s,
                        .codes = any_tensor(ROWS, widths[choose(3)]),
                        .scale = any_tensor(rows, cols),
                        .zero = choose(12) && asym != offset ? any_tensor(rows, cols) : NULL,
                        .offset = offset ? any_tensor(rows, cols) : NULL,
                        .outer = s->outer == (choose(12) != 0) ? any_tensor(1, 1) : NULL};
}

/* 0: refused by what it is, 1: by what its bytes are, 2: read. */
static int mix(Checkpoint *c)
{
    IoError err = {0};
    Scheme scheme = any_scheme();
    StoredHand hand = any_hand(&scheme);
    const StoredModule *m = checkpoint_by_hand(c, &hand, ROWS, choose(20) ? COLS : COLS - 1, &err);
    if (!m) {
        assert_int_not_equal(err.id, E_NONE);
        return 0;
    }
    float *values = malloc(ROWS * COLS * sizeof *values);
    bool ok = stored_values(m, values, &err);
    free(values);
    assert_true(ok || err.id != E_NONE);
    return ok ? 2 : 1;
}

static WeightSet *weights_of(int num, const SafetensorsItem *item)
{
    char path[] = "/tmp/sinter-by-hand-XXXXXX.safetensors";
    const char *one = path;
    IoError err = {0};
    int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    close(fd);
    if (!safetensors_write(path, num, item, &err))
        fail_msg("%s", err.text);
    WeightSet *weights = weights_open(1, &one, &err);
    unlink(path);
    assert_non_null(weights);
    return weights;
}

/* Floats beside scales, one for each block of two rows and two columns, or for all. */
static void blocks_of_rows_have_one_offset(void **unused)
{
    static const int64_t whole[] = {4, 4}, half[] = {2, 2};
    static const float scale[] = {1, 2, 4, 8}, zero[] = {0.5f, 1, 1.5f, 2};
    uint8_t code[16];
    (void)unused;
    for (int i = 0; i < 16; i++)
        code[i] = (uint8_t)(i * 7 % 16);
    const SafetensorsItem item[] = {{"q", FMT_U8, 2, whole, code, NULL},
                                    {"s", FMT_F32, 2, half, scale, NULL},
                                    {"z", FMT_F32, 2, half, zero, NULL},
                                    {"s1", FMT_F32, 0, NULL, scale + 3, NULL},
                                    {"z1", FMT_F32, 0, NULL, zero + 1, NULL}};
    WeightSet *weights = weights_of(COUNT_OF(item), item);
    for (int kind = 0; kind < 4; kind++) {
        bool all = kind % 2, added = kind / 2;
        Arena *arena = arena_create();
        IoError err = {0};
        float value[16];
        const Scheme scheme = {.fmt = FMT_U4,
                               .scale_fmt = FMT_F32,
                               .zero = ZERO_INT,
                               .block = {all ? 0 : 2, all ? 0 : 2}};
        const char *floats = all ? "z1" : "z";
        const StoredHand hand = {
            &scheme, "q", all ? "s1" : "s", added ? NULL : floats, added ? floats : NULL,
            NULL,    NULL};
        Checkpoint *c = checkpoint_open(arena, weights, 0, NULL, &err);
        const StoredModule *m = c ? checkpoint_by_hand(c, &hand, 4, 4, &err) : NULL;
        if (!m || !stored_values(m, value, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < 16; i++) {
            int at = all ? -1 : i / 8 * 2 + i % 4 / 2;
            float s = all ? scale[3] : scale[at], z = all ? zero[1] : zero[at];
            float want = added ? code[i] * s + z : (code[i] - z) * s;
            assert_true(value[i] == want);
        }
        arena_destroy(arena);
    }
    weights_close(weights);
}

static void mixtures_are_read_or_refused(void **unused)
{
    IoError err = {0};
    int num[3] = {0};
    (void)unused;
    add_tensors();
    WeightSet *weights = weights_of(tensors.num, tensors.item);
    for (int i = 0; i < ROUNDS; i += 1000) {
        Arena *arena = arena_create();
        Checkpoint *c = checkpoint_open(arena, weights, 0, NULL, &err);
        if (!c)
            fail_msg("%s", err.text);
        for (int k = 0; k < 1000; k++)
            num[mix(c)]++;
        arena_destroy(arena);
    }
    print_message("# %d of other types or shapes, %d of other bytes, %d read\n", num[0], num[1],
                  num[2]);
    assert_true(num[1] > 0 && num[2] > 0);
    weights_close(weights);
    for (int i = 0; i < tensors.num; i++)
        free((void *)(uintptr_t)tensors.item[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_of_rows_have_one_offset),
                                       cmocka_unit_test(mixtures_are_read_or_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
