/* passes/activations: statistics of what layers see, kept in the module by layer; see
 * calibration.h. */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

enum {
    FEW_ROWS = 64, /* fewer say little about a range */
    DEAD_PART = 2  /* a layer with this part of its columns dead is worth a warning */
};

const ActStats *activation_of(const Module *m, const Op *matmul)
{
    return m->activations && matmul->attr.layer ? map_get(m->activations, matmul->attr.layer)
                                                : NULL;
}

bool activation_has_histogram(const Module *m, const Op *matmul)
{
    const ActStats *stats = activation_of(m, matmul);

    return stats && (stats->whole.total || !stats->rows);
}

static void *copied(Arena *arena, const void *from, size_t num, size_t size)
{
    void *to = arena_alloc_array(arena, num, size);

    memcpy(to, from, num * size);
    return to;
}

static const ActStats *stats_keep(Arena *arena, const ActStats *from)
{
    ActStats *to = ARENA_NEW(arena, ActStats);
    size_t cols = (size_t)from->cols;

    *to = *from;
    to->lo = copied(arena, from->lo, cols, sizeof *to->lo);
    to->hi = copied(arena, from->hi, cols, sizeof *to->hi);
    to->abs_sum = copied(arena, from->abs_sum, cols, sizeof *to->abs_sum);
    to->square_sum = copied(arena, from->square_sum, cols, sizeof *to->square_sum);
    return to;
}

void activation_rescale(Module *m, const Op *matmul, const float *by)
{
    const ActStats *old = activation_of(m, matmul);

    if (!old)
        return;
    ActStats *stats = (ActStats *)(uintptr_t)stats_keep(m->arena, old);
    memset(&stats->whole, 0, sizeof stats->whole);
    for (int64_t c = 0; c < stats->cols; c++) {
        stats->lo[c] /= by[c];
        stats->hi[c] /= by[c];
        stats->abs_sum[c] /= by[c];
        stats->square_sum[c] /= (double)by[c] * by[c];
        stats->whole.lo = c == 0 || stats->lo[c] < stats->whole.lo ? stats->lo[c] : stats->whole.lo;
        stats->whole.hi = c == 0 || stats->hi[c] > stats->whole.hi ? stats->hi[c] : stats->whole.hi;
    }
    map_put(m->activations, matmul->attr.layer, stats);
}

void activation_join(Module *m, const Op *matmul, const Op *other)
{
    const ActStats *a = activation_of(m, matmul), *b = activation_of(m, other);

    if (!a || !b || a == b || a->cols != b->cols)
        return;
    ActStats *sum = (ActStats *)(uintptr_t)stats_keep(m->arena, a);
    const Histogram *seen = &b->whole;
    sum->rows += b->rows;
    sum->bad_rows += b->bad_rows;
    for (int64_t c = 0; c < sum->cols; c++) {
        sum->lo[c] = b->lo[c] < sum->lo[c] ? b->lo[c] : sum->lo[c];
        sum->hi[c] = b->hi[c] > sum->hi[c] ? b->hi[c] : sum->hi[c];
        sum->abs_sum[c] += b->abs_sum[c];
        sum->square_sum[c] += b->square_sum[c];
    }
    float lo = seen->lo < sum->whole.lo ? seen->lo : sum->whole.lo;
    float hi = seen->hi > sum->whole.hi ? seen->hi : sum->whole.hi;
    sum->whole = (Histogram){.lo = lo, .hi = hi};
    map_put(m->activations, matmul->attr.layer, sum);
}

const WeightStats *activation_weight_stats(Module *m, const ActStats *stats)
{
    size_t cols = (size_t)stats->cols;
    WeightStats *ret = ARENA_NEW(m->arena, WeightStats);
    float *mean_abs = ARENA_NEW_ARRAY(m->arena, float, cols);
    double *mean_square = ARENA_NEW_ARRAY(m->arena, double, cols);
    double rows = stats->rows ? (double)stats->rows : 1;

    for (size_t c = 0; c < cols; c++) {
        mean_abs[c] = (float)(stats->abs_sum[c] / rows);
        mean_square[c] = stats->square_sum[c] / rows;
    }
    *ret = (WeightStats){.cols = stats->cols,
                         .samples = stats->rows,
                         .mean_abs = mean_abs,
                         .mean_square = mean_square};
    return ret;
}

/* Warnings ------------------------------------------------------------------------------------- */

typedef struct Doubts { /* of each kind the worst layer */
    const Op *empty, *bad, *dead, *few;
    const ActStats *empty_stats, *bad_stats, *dead_stats, *few_stats;
    int num_empty, num_bad, num_dead;
} Doubts;

static void doubts_add(Doubts *d, const Op *matmul, const ActStats *s)
{
    if (s->rows == 0) {
        d->num_empty++;
        if (!d->empty)
            d->empty = matmul, d->empty_stats = s;
        return;
    }
    if (!d->few || s->rows < d->few_stats->rows)
        d->few = matmul, d->few_stats = s;
    if (s->bad_rows) {
        d->num_bad++;
        if (!d->bad || s->bad_rows > d->bad_stats->bad_rows)
            d->bad = matmul, d->bad_stats = s;
    }
    int64_t dead = act_stats_dead(s);
    if (dead * DEAD_PART >= s->cols) {
        d->num_dead++;
        if (!d->dead || act_stats_dead(d->dead_stats) < dead)
            d->dead = matmul, d->dead_stats = s;
    }
}

static void doubts_warn(Module *m, const Doubts *d)
{
    if (d->empty) {
        diag_warning(m->diag, d->empty->span, E_CALIBRATION_DOUBT,
                     "%s saw no usable row of the calibration data (%lld rows held NaN or "
                     "infinity)%s",
                     layer_name(d->empty), (long long)d->empty_stats->bad_rows,
                     d->num_empty > 1 ? ", nor did other layers" : "");
    } else if (d->bad) {
        diag_warning(m->diag, d->bad->span, E_CALIBRATION_DOUBT,
                     "%lld of %lld rows that %s sees hold NaN or infinity and were left out",
                     (long long)d->bad_stats->bad_rows,
                     (long long)(d->bad_stats->bad_rows + d->bad_stats->rows), layer_name(d->bad));
        diag_help(m->diag, "clean the data: numpy.isfinite(x).all(axis=-1) tells the rows");
    }
    if (d->few && d->few_stats->rows < FEW_ROWS) {
        diag_warning(m->diag, d->few->span, E_CALIBRATION_DOUBT,
                     "%s saw %lld rows of calibration data; %d or more are wanted",
                     layer_name(d->few), (long long)d->few_stats->rows, FEW_ROWS);
    }
    if (d->dead) {
        diag_warning(m->diag, d->dead->span, E_CALIBRATION_DOUBT,
                     "%lld of the %lld columns that %s sees were 0 in all %lld rows%s",
                     (long long)act_stats_dead(d->dead_stats), (long long)d->dead_stats->cols,
                     layer_name(d->dead), (long long)d->dead_stats->rows,
                     d->num_dead > 1 ? "; other layers have such columns too" : "");
        diag_help(m->diag, "the data may not be typical; such columns are rounded to nearest and "
                           "never smoothed");
    }
}

/* Collecting ----------------------------------------------------------------------------------- */

void layer_inputs_init(Map *inputs, const Module *m, Arena *arena)
{
    map_init(inputs, arena);
    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op->attr.layer)
            continue;
        const Value *value = op_in(op, 0);
        LayerInputs *in = map_get(inputs, op->attr.layer);
        if (!in) {
            in = ARENA_NEW(arena, LayerInputs);
            *in = (LayerInputs){0};
            map_put(inputs, op->attr.layer, in);
        }
        bool fits =
            !in->values.num || type_cols(in->values.elem[0]->type) == type_cols(value->type);
        for (int i = 0; fits && i < in->values.num; i++)
            fits = in->values.elem[i] != value;
        if (fits)
            ARRAY_PUSH(arena, &in->values, value);
    }
}

/* One watch for each list of inputs, which layers may share. ret: layer to Watch. */
static void watches_fill(Watches *w, Module *m, LayerFilter *wants, void *user, Map *ret)
{
    Map inputs;

    map_init(ret, w->arena);
    layer_inputs_init(&inputs, m, w->arena);
    for_each_op(op, &m->body) {
        if (op->kind != OP_MATMUL || !op->attr.layer || map_has(ret, op->attr.layer) ||
            activation_has_histogram(m, op) || !wants(op, user))
            continue;
        const LayerInputs *in = map_get(&inputs, op->attr.layer);
        map_put(ret, op->attr.layer, watches_add(w, in->values.num, in->values.elem));
    }
}

bool activations_collect(Module *m, PassContext *ctx, LayerFilter *wants, void *user)
{
    Watches w;
    Doubts doubts = {0};
    Map of;   /* layer to Watch */
    Map kept; /* by watch: layers that read one value share its statistics */
    bool first = !m->activations;

    if (!m->calibrate_files.num || ctx->options.no_weights)
        return true;
    watches_init(&w, m, ctx->scratch);
    watches_fill(&w, m, wants, user, &of);
    if (!w.all.num)
        return true;
    bool ok = watches_run(&w, m, ctx);
    if (ok && first) {
        m->activations = ARENA_NEW(m->arena, Map);
        map_init(m->activations, m->arena);
    }
    map_init(&kept, ctx->scratch);
    for_each_op(op, &m->body) {
        bool is_layer = ok && op->kind == OP_MATMUL && op->attr.layer;
        const Watch *watch = is_layer ? map_get(&of, op->attr.layer) : NULL;
        if (!watch || activation_has_histogram(m, op))
            continue;
        const char *key = arena_printf(ctx->scratch, "%p", (const void *)watch);
        if (!map_has(&kept, key)) {
            map_put(&kept, key, (void *)(uintptr_t)stats_keep(m->arena, &watch->stats));
            doubts_add(&doubts, op, &watch->stats);
        }
        map_put(m->activations, op->attr.layer, map_get(&kept, key));
    }
    if (first) /* what is collected again was doubted before */
        doubts_warn(m, &doubts);
    watches_free(&w);
    return ok;
}
