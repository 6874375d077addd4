/* Fuzz target: the reader of tables of timings. What it accepts prints, and reads back to the same
 * text. */
#include "codegen/timing.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    IoError err;
    TimingTable first, second;
    Arena *arena = arena_create();
    if (timing_table_parse(&first, arena, "fuzz", (const char *)data, size, &err)) {
        Sb one, two;
        sb_init(&one, arena);
        sb_init(&two, arena);
        timing_table_print(&one, &first);
        if (!timing_table_parse(&second, arena, "again", one.text, one.len, &err))
            abort();
        timing_table_print(&two, &second);
        if (strcmp(one.text, two.text) != 0)
            abort();
    }
    arena_destroy(arena);
    return 0;
}
