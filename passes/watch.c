/* passes/watch: values of the float model observed while it runs on the calibration data. Memory is
 * that of the statistics and of one batch; the data files are mapped. */
#include "passes/calibration.h"
#include "passes/internal.h"
#include "quant/engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void watches_init(Watches *w, const Module *m, Arena *arena)
{
    size_t num = 1;

    *w = (Watches){.arena = arena};
    for_each_op(op, &m->body)
        num++;
    w->of = ARENA_NEW_ARRAY(arena, Watch *, num);
    block_number(&m->body);
}

Watch *watches_add(Watches *w, const Value *value) /* ops have one result before fuse */
{
    Watch **at = &w->of[value->def->mark];

    if (*at)
        return *at;
    Watch *watch = ARENA_NEW(w->arena, Watch);
    watch->value = value;
    watch->cols = type_cols(value->type) > 0 ? type_cols(value->type) : 1;
    watch->stride = 1;
    *at = watch;
    ARRAY_PUSH(w->arena, &w->all, watch);
    return watch;
}

static bool row_is_finite(const float *x, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++)
        if (!isfinite(x[c]))
            return false;
    return true;
}

/* Rows 0, stride, 2 stride, ..; when there are too many, every second goes and the stride doubles.
 */
static void sample_rows(Watch *watch, const float *x, int64_t rows)
{
    size_t row_bytes = (size_t)watch->cols * sizeof *x;

    for (; watch->next < rows; watch->next += watch->stride) {
        if (!row_is_finite(x + watch->next * watch->cols, watch->cols))
            continue;
        if (watch->num_sample == watch->want_rows) {
            watch->num_sample /= 2;
            for (int64_t i = 1; i < watch->num_sample; i++)
                memcpy(watch->sample + i * watch->cols, watch->sample + 2 * i * watch->cols,
                       row_bytes);
            watch->stride *= 2;
        }
        memcpy(watch->sample + watch->num_sample++ * watch->cols, x + watch->next * watch->cols,
               row_bytes);
    }
    watch->next -= rows;
}

static void watch_observe(void *user, const Value *value, const Tensor *tensor)
{
    Watches *w = user;
    Watch *watch = value->def->block->owner ? NULL : w->of[value->def->mark];
    uint64_t num, bytes;

    if (!watch || w->failed)
        return;
    num = tensor_elements(tensor);
    float *x = checked_mul(num, sizeof *x, &bytes) ? malloc(bytes + 1) : NULL;
    w->failed = !x;
    if (!x)
        return;
    format_to_f32(tensor->fmt, tensor->data, x, num);
    int64_t rows = (int64_t)num / watch->cols;
    act_stats_observe(&watch->stats, x, rows);
    if (watch->want_moments)
        layer_stats_observe(&watch->moments, x, rows);
    if (watch->want_rows)
        sample_rows(watch, x, rows);
    free(x);
}

static bool watch_prepare(Watch *watch)
{
    uint64_t num;

    if (!act_stats_init(&watch->stats, watch->cols) ||
        (watch->want_moments && !watch->moments.memory &&
         !layer_stats_init(&watch->moments, watch->cols, true)))
        return false;
    if (!watch->want_rows)
        return true;
    watch->want_rows += watch->want_rows % 2;
    if (!checked_mul((uint64_t)watch->want_rows, (uint64_t)watch->cols, &num) ||
        num > SIZE_MAX / sizeof *watch->sample)
        return false;
    watch->sample = malloc(num * sizeof *watch->sample);
    return watch->sample != NULL;
}

bool watches_run(Watches *w, Module *m, PassContext *ctx)
{
    int errors = m->diag->num_errors;
    bool ok = true;

    for (int i = 0; i < w->all.num && ok; i++)
        ok = watch_prepare(w->all.elem[i]);
    for (int i = 0; i < w->all.num && ok; i++)
        if (w->all.elem[i]->want_moments)
            layer_stats_use(&w->all.elem[i]->moments, ctx->options.engine);
    const Value **value = ARENA_NEW_ARRAY(w->arena, const Value *, (size_t)w->all.num + 1);
    for (int i = 0; i < w->all.num; i++)
        value[i] = w->all.elem[i]->value;
    ok = ok && calibration_run(m, ctx, w->all.num, value, watch_observe, w) && !w->failed;
    for (int i = 0; i < w->all.num && ok; i++)
        if (w->all.elem[i]->want_moments)
            ok = layer_stats_finish(&w->all.elem[i]->moments);
    const QuantEngine *engine = ctx->options.engine;
    const char *problem = engine ? engine->problem(engine->user) : NULL;
    if (!ok && m->diag->num_errors == errors && problem)
        diag_error(m->diag, (Span){0}, E_NO_DEVICE, "%s", problem);
    if (!ok && m->diag->num_errors == errors)
        diag_error(m->diag, (Span){0}, E_MEMORY, "memory is exhausted by calibration");
    return ok;
}

void watches_free(Watches *w)
{
    for (int i = 0; i < w->all.num; i++) {
        act_stats_free(&w->all.elem[i]->stats);
        layer_stats_free(&w->all.elem[i]->moments);
        free(w->all.elem[i]->sample);
        w->all.elem[i]->sample = NULL;
    }
}
