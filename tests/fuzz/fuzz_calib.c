/* Fuzz target: the reader of calibration files. What it accepts prints to a text that reads back to
 * the same text, and every calibrator finds finite ranges in it. */
#include "passes/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const CalibRecord *r)
{
    const Scheme scheme = {.fmt = FMT_I8, .scale_fmt = FMT_F32, .zero = ZERO_INT};
    float lo, hi;
    for (int i = 0; i < 2; i++) { /* the others take long */
        calibrators[i]->range(&r->stats.whole, calibrators[i]->arg_max, &scheme, &lo, &hi);
        if (!isfinite(lo) || !isfinite(hi) || lo > hi)
            abort();
    }
    if (act_stats_dead(&r->stats) > r->stats.cols)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_create();
    Calibration c, again;
    IoError err = {0};
    char *text = arena_strndup(arena, (const char *)data, size);
    memcpy(text, data, size); /* zero bytes too */
    if (calibration_parse(&c, arena, "fuzz", text, size, &err)) {
        Sb first, second;
        sb_init(&first, arena);
        sb_init(&second, arena);
        calibration_print(&first, &c);
        if (!calibration_parse(&again, arena, "again", first.text, first.len, &err))
            abort();
        calibration_print(&second, &again);
        if (first.len != second.len || memcmp(first.text, second.text, first.len) != 0)
            abort();
        for (int i = 0; i < c.records.num; i++)
            check_record(c.records.elem[i]);
    } else if (!err.text[0]) {
        abort();
    }
    arena_destroy(arena);
    return 0;
}
