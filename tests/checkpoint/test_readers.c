/* The readers against what the formats' own packages dequantise (make.py): every weight of every
 * checkpoint here, or of the folders that the arguments name, bit for bit in the format in which
 * its package gives it. */
#include "checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef FOLDER
#define FOLDER "."
#endif

typedef struct Opened {
    Arena *arena;
    WeightSet *weights, *expected;
    Checkpoint *c;
} Opened;

static void open_folder(const char *name, Opened *o)
{
    char path[1024];
    const char *one = path, *root = *name == '/' ? "" : FOLDER "/";
    IoError err = {0};

    o->arena = arena_create();
    snprintf(path, sizeof path, "%s%s", root, name);
    o->weights = weights_open(1, &one, &err);
    o->c = o->weights ? checkpoint_open(o->arena, o->weights, 1, &one, &err) : NULL;
    if (!o->c)
        fail_msg("%s: %s", name, err.text);
    snprintf(path, sizeof path, "%s%s/expected.safetensors", root, name);
    o->expected = weights_open(1, &one, &err);
    if (!o->expected)
        fail_msg("%s: %s", name, err.text);
}

static void close_folder(Opened *o)
{
    weights_close(o->expected);
    weights_close(o->weights);
    arena_destroy(o->arena);
}

static void check_module(const char *folder, const Checkpoint *c, const TensorView *want)
{
    IoError err = {0};
    size_t width = (size_t)(want->bytes / want->elements);
    const StoredModule *m = checkpoint_find(c, want->name);
    float *values = calloc((size_t)want->elements, sizeof *values);
    uint8_t *have = calloc((size_t)want->elements, width);

    if (!m)
        fail_msg("%s: there is no module %s", folder, want->name);
    assert_int_equal(m->rows * m->cols, (int64_t)want->elements);
    if (!stored_values(m, values, &err))
        fail_msg("%s: %s", folder, err.text);
    format_from_f32(want->fmt, values, have, want->elements);
    for (uint64_t i = 0; i < want->elements; i++)
        if (memcmp(have + i * width, (const uint8_t *)want->data + i * width, width)) {
            float other;
            format_to_f32(want->fmt, (const uint8_t *)want->data + i * width, &other, 1);
            if (other == 0 && values[i] == 0) /* our fp4 has a negative zero, theirs two zeros */
                continue;
            fail_msg("%s: %s: element %llu is %.9g, but its package gives %.9g", folder, want->name,
                     (unsigned long long)i, (double)values[i], (double)other);
        }
    free(values);
    free(have);
}

static void folder_matches(void **state)
{
    const char *folder = *state;
    Opened o;

    open_folder(folder, &o);
    int num = 0; /* of those that are read */
    for (int i = 0; i < o.c->modules.num; i++)
        num += !o.c->modules.elem[i]->refused;
    assert_int_equal(num, weights_num(o.expected));
    for (int i = 0; i < weights_num(o.expected); i++)
        check_module(folder, o.c, weights_at(o.expected, i));
    close_folder(&o);
}

static const char *const folders[] = {
    "ao-float8",      "ao-int4",       "ao-int8",
    "ao-intx",        "ao-micro",      "ao-micro-swizzled",
    "awq-gemm",       "awq-gemv",      "awq-gemv-fast",
    "bnb-fp4",        "bnb-int8",      "bnb-nf4",
    "bnb-nf4-nested", "ct-fp8",        "ct-fp8-block",
    "ct-fp8-static",  "ct-mxfp4",      "ct-mxfp8",
    "ct-nvfp4",       "ct-nvfp4-act",  "ct-w3a16",
    "ct-w4a16",       "ct-w4a16-asym", "ct-w4a16-channel",
    "ct-w8a16",       "ct-w8a8",       "ct-w8a8-static",
    "fbgemm-fp8",     "fp8-block",     "fp8-tensor",
    "gguf",           "gpt-oss",       "gptq-2",
    "gptq-3",         "gptq-4-asym",   "gptq-4-mislabelled",
    "gptq-4-order",   "gptq-4-sym",    "gptq-4-v2",
    "gptq-8",         "gptq-8-asym",   "hqq-1",
    "hqq-2",          "hqq-3",         "hqq-3-columns",
    "hqq-4",          "hqq-4-columns", "hqq-8",
    "modelopt-fp8",   "modelopt-int4", "modelopt-nvfp4",
};

int main(int argc, char **argv)
{
    size_t num = argc > 1 ? (size_t)argc - 1 : COUNT_OF(folders);
    struct CMUnitTest *test = calloc(num, sizeof *test);

    assert_non_null(test);
    for (size_t i = 0; i < num; i++) {
        const char *name = argc > 1 ? argv[i + 1] : folders[i];
        test[i] = (struct CMUnitTest){name, folder_matches, NULL, NULL, (void *)(uintptr_t)name};
    }
    int ret = _cmocka_run_group_tests("readers", test, num, NULL, NULL);
    free(test);
    return ret;
}
