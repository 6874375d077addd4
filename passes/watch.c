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
    w->of = ARENA_NEW_ARRAY(arena, WatchLink *, num);
    block_number(&m->body);
}

static bool same_list(const Watch *watch, int num, const Value *const *value)
{
    bool same = watch->num_values == num;

    for (int i = 0; same && i < num; i++)
        same = watch->value[i] == value[i];
    return same;
}

Watch *watches_add(Watches *w, int num, const Value *const *value)
{
    int64_t cols = type_cols(value[0]->type);

    for (const WatchLink *at = w->of[value[0]->def->mark]; at; at = at->next)
        if (same_list(at->watch, num, value))
            return at->watch;
    Watch *watch = ARENA_NEW(w->arena, Watch);
    *watch = (Watch){.num_values = num, .value = value, .cols = cols > 0 ? cols : 1, .stride = 1};
    for (int i = 0; i < num; i++) { /* ops have one result before fuse */
        WatchLink *link = ARENA_NEW(w->arena, WatchLink), **at = &w->of[value[i]->def->mark];
        *link = (WatchLink){watch, *at};
        *at = link;
    }
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

static void watch_add_rows(Watch *watch, const float *x, int64_t rows)
{
    act_stats_observe(&watch->stats, x, rows);
    if (watch->want_moments)
        layer_stats_observe(&watch->moments, x, rows);
    if (watch->want_rows)
        sample_rows(watch, x, rows);
}

static void watch_observe(void *user, const Value *value, const Tensor *tensor)
{
    Watches *w = user;
    const WatchLink *at = value->def->block->owner ? NULL : w->of[value->def->mark];
    uint64_t num, bytes;

    if (!at || w->failed)
        return;
    num = tensor_elements(tensor);
    float *x = checked_mul(num, sizeof *x, &bytes) ? malloc(bytes + 1) : NULL;
    w->failed = !x;
    if (!x)
        return;
    format_to_f32(tensor->fmt, tensor->data, x, num);
    for (; at; at = at->next)
        watch_add_rows(at->watch, x, (int64_t)num / at->watch->cols);
    free(x);
}

/* Of all watches, each once. */
static const Value **watched_values(const Watches *w, int *ret_num)
{
    int sum = 0, num = 0;

    for (int i = 0; i < w->all.num; i++)
        sum += w->all.elem[i]->num_values;
    const Value **value = ARENA_NEW_ARRAY(w->arena, const Value *, (size_t)sum + 1);
    for (int i = 0; i < w->all.num; i++) {
        const Watch *watch = w->all.elem[i];
        for (int k = 0; k < watch->num_values; k++) {
            const WatchLink *last = w->of[watch->value[k]->def->mark];
            if (last->watch == watch) /* that of one of those that see it */
                value[num++] = watch->value[k];
        }
    }
    *ret_num = num;
    return value;
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
    int num;
    const Value **value = watched_values(w, &num);
    ok = ok && calibration_run(m, ctx, num, value, watch_observe, w) && !w->failed;
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
