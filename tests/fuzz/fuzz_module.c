/* Fuzz target: what modules mean. An input is a printed module; it changes as a module, by
 * operands, kinds, types and attributes, so that most inputs are valid. With all passes and with as
 * few as there can be it gives the same numbers, and one in sixteen is also compiled to files and
 * run. */
#include "draws.h"
#include "tests/mutate/modules.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* libFuzzer's own */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    Choices c = {.state = seed};
    Diag diag;
    Sb sb;
    if (!choose(&c, 16))
        return LLVMFuzzerMutate(data, size, most);
    Arena *arena = arena_new();
    char *text = arena_alloc(arena, size + 1);
    memcpy(text, data, size);
    diag_init(&diag, arena);
    Module *m = module_parse(arena, &diag, diag_add_source(&diag, "mutant", text, size));
    size_t ret = 0;
    if (m) {
        module_mutate(m, &c);
        sb_init(&sb, arena);
        module_print(&sb, m, false);
        ret = sb.len <= most ? sb.len : 0;
        if (ret)
            memcpy(data, sb.text, ret);
    }
    arena_destroy(arena);
    return ret ? ret : LLVMFuzzerMutate(data, size, most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ModuleVerdict verdict;
    Arena *arena = arena_new();
    char *text = arena_alloc(arena, size + 1);
    memcpy(text, data, size);
    bool run = XXH3_64bits(data, size) % 16 == 0;
    const char *why = module_check(arena, text, size, run ? fuzz_folder() : NULL, &verdict);
    if (why) {
        fprintf(stderr, "%s\n", why);
        abort();
    }
    arena_destroy(arena);
    return 0;
}
