/* The GGUF reader: for every rule of the format one file that breaks just this rule, refused with
 * the rule's name; and blocks taken apart, bit for bit as the format's own package (gguf/make.py).
 */
#include "io/io.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;

/* One pair and one tensor; what is 0 here is as in a good file. */
typedef struct Case {
    const char *rule; /* NULL: accepted */
    uint64_t version, num_tensors, num_pairs;
    const char *key;
    uint64_t key_len, pair_type, align, item, items;
    const char *name;
    uint64_t name_len, rank, dim[5], type, offset, data;
    uint64_t size; /* cut to so many bytes */
    bool twice, twin;
} Case;

typedef struct Out {
    uint8_t byte[4096];
    size_t len;
} Out;

static void put(Out *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out->byte[out->len++] = (uint8_t)(value >> (8 * i));
}

static void put_text(Out *out, const char *text, uint64_t len)
{
    put(out, len ? len : strlen(text), 8);
    memcpy(out->byte + out->len, text, strlen(text));
    out->len += strlen(text);
}

static void put_pair(Out *out, const Case *c)
{
    uint64_t type = c->pair_type ? c->pair_type : GGUF_U32;
    put_text(out, c->key ? c->key : "general.alignment", c->key_len);
    put(out, type, 4);
    if (type == GGUF_ARRAY) {
        put(out, c->item, 4);
        put(out, c->items, 8);
    }
    put(out, c->align ? c->align : 32, type == GGUF_U64 ? 8 : 4);
}

static void put_entry(Out *out, const Case *c, uint64_t offset)
{
    uint64_t rank = c->rank ? c->rank : 2;
    put_text(out, c->name ? c->name : offset && !c->twin ? "y" : "x", c->name_len);
    put(out, rank, 4);
    for (uint64_t i = 0; i < rank && i < COUNT_OF(c->dim); i++)
        put(out, c->dim[i] ? c->dim[i] : i == 0 ? 32 : 1, 8);
    put(out, c->type ? c->type : 8 /* Q8_0 */, 4);
    put(out, c->offset ? c->offset : offset, 8);
}

static size_t build(const Case *c, Out *out)
{
    bool two = c->twice || c->twin;
    *out = (Out){.byte = "GGUF", .len = 4};
    put(out, c->version ? c->version : 3, 4);
    put(out, c->num_tensors ? c->num_tensors : two ? 2 : 1, 8);
    put(out, c->num_pairs ? c->num_pairs : 1, 8);
    put_pair(out, c);
    if (c->num_pairs == 2)
        put_pair(out, c);
    put_entry(out, c, 0);
    if (two)
        put_entry(out, c, 64);
    while (out->len % 32 != 0)
        put(out, 0, 1);
    for (uint64_t i = 0; i < (c->data ? c->data : two ? 64 + 34 : 34); i++)
        put(out, 0x11, 1);
    return c->size ? c->size : out->len;
}

static const Case cases[] = {
    {.size = 0},
    {NULL, .version = 2},
    {NULL, .twice = true},
    {NULL, .data = 64},
    {NULL, .key = "k"},
    {NULL, .key = "k", .pair_type = GGUF_ARRAY, .item = GGUF_U8, .items = 4},
    {NULL, .dim = {64, 2}, .data = 136},
    {NULL, .rank = 4},
    {NULL, .type = 24 /* I8 */, .dim = {5}, .data = 5},
    {"version 1 is neither", .version = 1},
    {"version 4 is neither", .version = 4},
    {"big-endian", .version = 0x03000000},
    {"more tensors than", .num_tensors = 1000},
    {"more tensors than", .num_tensors = UINT64_MAX},
    {"more keys than", .num_pairs = 4097},
    {"more keys than", .num_pairs = UINT64_MAX},
    {"a key occurs twice", .num_pairs = 2},
    {"a name is empty or longer", .key = "", .key_len = 0, .pair_type = GGUF_U32},
    {"inside of its header", .key_len = UINT64_MAX},
    {"inside of its header", .name_len = 1000},
    {"a name is not UTF-8", .key = "\xff"},
    {"a name is not UTF-8", .name = "\xed\xa0\x80"},
    {"type is unknown", .pair_type = 13},
    {"type is unknown", .pair_type = GGUF_ARRAY, .item = 99},
    {"an array holds arrays", .pair_type = GGUF_ARRAY, .item = GGUF_ARRAY},
    {"size overflows", .pair_type = GGUF_ARRAY, .item = GGUF_U64, .items = UINT64_MAX},
    {"inside of its header", .pair_type = GGUF_ARRAY, .item = GGUF_U8, .items = UINT64_MAX},
    {"inside of its header", .pair_type = GGUF_ARRAY, .item = GGUF_STRING, .items = UINT64_MAX},
    {"is not a u32", .pair_type = GGUF_U64},
    {"a power of two", .align = 3},
    {"a power of two", .align = 1u << 21},
    {"more than 4 dimensions", .rank = 5},
    {"more than 4 dimensions", .rank = UINT32_MAX},
    {"type 4 is unknown or no longer", .type = 4},
    {"type 31 is unknown or no longer", .type = 31},
    {"type 4294967295 is unknown", .type = UINT32_MAX},
    {"whole blocks", .dim = {33}},
    {"whole blocks", .dim = {1, 32}},
    {"exceeds 2147483647", .dim = {UINT64_MAX}},
    {"exceeds 2147483647", .dim = {UINT64_C(1) << 63}},
    {"product of its dimensions", .rank = 4, .dim = {1 << 30, 1 << 30, 1 << 30, 1 << 30}},
    {"beyond the end", .dim = {64}},
    {"beyond the end", .dim = {32, 1 << 30}},
    {"beyond the end", .data = 33},
    {"does not begin where", .offset = 32},
    {"does not begin where", .offset = UINT64_MAX},
    {"its name occurs twice", .twin = true},
    {"bytes follow the last tensor", .data = 65},
    {"inside of its header", .size = 5},
    {"inside of its header", .size = 20},
    {"more tensors than", .size = 30},
    {"inside of its header", .size = 60},
};

static void rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        Out out;
        IoError err = {0};
        size_t size = build(&cases[i], &out);
        uint8_t *exact = malloc(size); /* so that a sanitiser sees reads behind it */
        memcpy(exact, out.byte, size);
        TensorFile *f = tensorfile_parse("t", exact, size, &err);
        if (f && cases[i].rule)
            fail_msg("case %zu accepted, though: %s", i, cases[i].rule);
        if (!f && !cases[i].rule)
            fail_msg("case %zu refused: %s", i, err.text);
        if (!f && (err.id != E_GGUF || !strstr(err.text, cases[i].rule)))
            fail_msg("case %zu refused with '%s' instead of '%s'", i, err.text, cases[i].rule);
        tensorfile_close(f);
        free(exact);
    }
}

static TensorFile *open_beside(const char *name)
{
    char path[1024];
    IoError err = {0};
    snprintf(path, sizeof path, "%s/gguf/%s", folder, name);
    TensorFile *f = tensorfile_open(path, &err);
    if (!f)
        fail_msg("%s", err.text);
    return f;
}

static void blocks(void **state)
{
    (void)state;
    TensorFile *file = open_beside("blocks.gguf"), *expected = open_beside("blocks.safetensors");
    assert_int_equal(tensorfile_num(file), 14);
    for (int i = 0; i < tensorfile_num(file); i++) {
        const TensorView *view = tensorfile_at(file, i);
        const TensorView *want = tensorfile_find(expected, view->name);
        const GgmlInfo *info = ggml_by_name(view->dtype);
        assert_string_equal(view->dtype, view->name);
        assert_int_equal(view->rank, 2);
        assert_int_equal(view->dim[0], 2);
        assert_int_equal(view->elements, want->elements);
        for (uint64_t at = 0; at < view->elements; at += (uint64_t)info->elements) {
            float got[GGML_MOST];
            const uint8_t *block =
                (const uint8_t *)view->data + at / (uint64_t)info->elements * (uint64_t)info->bytes;
            ggml_decode(info, block, got);
            if (memcmp(got, (const float *)want->data + at, sizeof(float) * (size_t)info->elements))
                fail_msg("%s: values from %llu on differ", view->name, (unsigned long long)at);
        }
    }
    tensorfile_close(file);
    tensorfile_close(expected);
}

static bool find_pair(const TensorFile *f, const char *key, GgufPair *ret)
{
    for (*ret = (GgufPair){0}; gguf_next_pair(f, ret);)
        if (ret->key_len == strlen(key) && !memcmp(ret->key, key, ret->key_len))
            return true;
    return false;
}

static void pairs(void **state)
{
    (void)state;
    TensorFile *file = open_beside("blocks.gguf");
    GgufPair pair = {0};
    int64_t value = 0;
    int num = 0;
    while (gguf_next_pair(file, &pair))
        num++;
    assert_int_equal(num, 3);
    assert_true(find_pair(file, "llama.block_count", &pair) && gguf_integer(&pair, &value));
    assert_int_equal(value, 2);
    assert_true(find_pair(file, "tokenizer.ggml.tokens", &pair));
    assert_int_equal(pair.type, GGUF_ARRAY);
    assert_int_equal(pair.item, GGUF_STRING);
    assert_int_equal(pair.num, 2);
    assert_false(gguf_integer(&pair, &value));
    assert_true(find_pair(file, "general.architecture", &pair));
    assert_int_equal(pair.num, 5);
    assert_memory_equal(pair.data, "llama", 5);
    assert_false(find_pair(file, "general", &pair));
    tensorfile_close(file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(blocks),
        cmocka_unit_test(pairs),
    };
    if (argc != 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
