/* How long each layer takes under each candidate, and how many bytes its weight has. For each
 * column the whole model is compiled with that candidate everywhere, so that what fuses with a
 * layer is in its kernel; the time of each kernel goes to the layer whose product it computes,
 * kernels without a product (norms, quantisers) to the next product, which reads what they make. On
 * the CPU the model runs and its kernels are timed, as on a GPU that is asked for (times_gpu.c);
 * the plan of another GPU brings its own times. Layers of one shape in blocks of one form have one
 * time.
 */
#include "choose/internal.h"
#include "runtime/device.h"
#include "runtime/made_up.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 3, MOST_RUNS = 60 };
#define MOST_US 200000.0  /* of all calm runs of one bucket */
#define WAIT_US 2000000.0 /* of all runs of one bucket */
#define CALM    0.02      /* of a run, waiting for cores */

typedef ARRAY(int) LayerIds; /* numbers of choice.layer */

typedef struct Times {
    Chooser *ch;
    Choice *c;
    int column;
    Probe t;
    const CodegenTarget *target; /* that is timed */
    LayerIds *layers;            /* [launches] that a product computes */
    double *us;                  /* [launches][buckets] */
} Times;

/* Owners -------------------------------------------------------------------------------------- */

static bool is_product(const Times *t, int launch)
{
    const PlanLaunch *l = &t->target->plan->launch[launch];
    return l->family == LAUNCH_GEMM && l->layer;
}

static void source_note(Times *t, int launch, TimeSource source)
{
    for (int i = 0; i < t->layers[launch].num; i++) {
        LayerCell *cell = &t->c->layer[t->layers[launch].elem[i]].cell[t->column];
        if (cell->source < source)
            cell->source = source;
    }
}

static void owners_find(Times *t)
{
    const Plan *plan = t->target->plan;
    Map index;
    map_init(&index, t->t.arena);
    for (int k = 0; k < t->c->num_layers; k++)
        map_put(&index, t->c->layer[k].path, (void *)(uintptr_t)(k + 1));
    t->layers = ARENA_NEW_ARRAY(t->t.arena, LayerIds, (size_t)plan->num_launches + 1);
    for (int i = 0; i < plan->num_launches; i++) {
        LayerNames of = module_layers(t->t.module, &plan->launch[i].layer);
        for (int k = 0; k < of.num && is_product(t, i); k++) {
            uintptr_t known = (uintptr_t)map_get(&index, of.name[k]);
            if (known)
                ARRAY_PUSH(t->t.arena, &t->layers[i], (int)known - 1);
        }
    }
}

/* The launch of a product at or after this one. */
static int product_of(const Times *t, int launch)
{
    while (launch < t->target->plan->num_launches && !is_product(t, launch))
        launch++;
    return launch;
}

/* The layers of the product that a launch belongs to, which share it by their rows of the weight:
 * `width` in all. NULL: it belongs to none. */
static const LayerIds *layers_of(const Times *t, int launch, double *ret_width)
{
    int product = product_of(t, launch);
    if (product >= t->target->plan->num_launches || !t->layers[product].num)
        return NULL;
    const LayerIds *of = &t->layers[product];
    *ret_width = 0;
    for (int i = 0; i < of->num; i++)
        *ret_width += (double)t->c->layer[of->elem[i]].n;
    return of;
}

static void launch_share(Times *t, int launch, int bucket, double us, double bytes)
{
    Choice *c = t->c;
    double width;
    const LayerIds *of = layers_of(t, launch, &width);
    if (!of) {
        if (t->column == c->float_column && bucket >= 0)
            c->fixed_us[bucket] += us;
        return;
    }
    for (int i = 0; i < of->num; i++) {
        const ChoiceLayer *layer = &c->layer[of->elem[i]];
        double share = (double)layer->n / width;
        if (bucket >= 0)
            layer->cell[t->column].us[bucket] += us * share;
        layer->cell[t->column].bytes += (uint64_t)(bytes * share + 0.5);
    }
}

void layer_times(Chooser *ch, const Probe *probe, const double *us, double *ret)
{
    Times t = {.ch = ch, .c = ch->c, .t = *probe, .target = &probe->cuda.target};
    int nb = ch->c->num_buckets;
    memset(ret, 0, (size_t)ch->c->num_layers * (size_t)nb * sizeof *ret);
    owners_find(&t);
    for (int i = 0; i < t.target->plan->num_launches; i++) {
        double width;
        const LayerIds *of = layers_of(&t, i, &width);
        for (int k = 0; of && k < of->num; k++)
            for (int b = 0; b < nb; b++)
                ret[of->elem[k] * nb + b] +=
                    us[i * nb + b] * (double)ch->c->layer[of->elem[k]].n / width;
    }
}

static void bytes_share(Times *t)
{
    const Plan *plan = t->target->plan;
    bool *seen = ARENA_NEW_ARRAY(t->t.arena, bool, (size_t)plan->num_tensors + 1);
    double all = 0;
    for (int i = 0; i < plan->num_launches; i++) {
        const PlanLaunch *l = &plan->launch[i];
        if (!is_product(t, i) || l->w < 0 || !plan->tensor[l->w].packed)
            continue;
        int32_t w = plan_stored_weight(plan, l->w);
        if (seen[w])
            continue;
        seen[w] = true;
        launch_share(t, i, -1, 0, (double)plan->tensor[w].bytes);
        all += (double)plan->tensor[w].bytes;
    }
    if (t->column == t->c->float_column)
        t->c->fixed_bytes = (double)plan_weight_bytes(plan) - all;
}

/* Measuring ----------------------------------------------------------------------------------- */

static bool inputs_make(Times *t, int bucket, Arena *arena, Tensors *in)
{
    SinterModel *model = t->t.model;
    const int64_t *size = t->c->bucket + (int64_t)bucket * t->c->num_syms;
    SinterError err;
    in->num = sinter_num_inputs(model);
    in->tensor = ARENA_NEW_ARRAY(arena, SinterTensor, (size_t)in->num + 1);
    for (int i = 0; i < in->num; i++) {
        SinterTensor *x = &in->tensor[i];
        if (sinter_port_shape(model, 0, i, size, x, &err))
            return false;
        x->data = made_up(format_of_dtype(x->dtype), (uint64_t)tensor_count(x));
        if (!x->data)
            return false;
    }
    return true;
}

static void inputs_free(const Tensors *in)
{
    for (int i = 0; i < in->num; i++)
        free(in->tensor[i].data);
}

/* How long threads of this process had work but no core, in microseconds; 0 where the system does
 * not tell. */
static double us_held_up(void)
{
    double ns = 0;
    DIR *dir = opendir("/proc/self/task");
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        char path[300];
        unsigned long long ran, held;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%llu %llu", &ran, &held) == 2)
            ns += (double)held;
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return ns / 1000;
}

/* The least time of each launch: whatever else the machine does only adds to it. Runs that other
 * processes held up do not count, but only so much time is spent waiting for better ones. */
static bool bucket_measure(Times *t, int bucket)
{
    int num = t->target->plan->num_launches, nb = t->c->num_buckets, runs = 0, calm = 0;
    Arena *arena = arena_new(), *out_arena = arena_new();
    Tensors in = {0}, out;
    double *us = t->us + bucket, spent = 0, start = clock_us();
    bool ok = inputs_make(t, bucket, arena, &in) && probe_run(&t->t, &in, out_arena, &out);
    sinter_session_trace(t->t.session, 1);
    while (ok && calm < MOST_RUNS &&
           (runs < LEAST_RUNS ||
            ((calm < LEAST_RUNS || spent < MOST_US) && clock_us() - start < WAIT_US))) {
        double all = 0, held = us_held_up();
        arena_reset(out_arena);
        ok = probe_run(&t->t, &in, out_arena, &out) && sinter_num_launch_times(t->t.session) == num;
        for (int i = 0; ok && i < num; i++) {
            double took = sinter_launch_time(t->t.session, i).duration_us;
            us[i * nb] = runs ? fmin(us[i * nb], took) : took;
            all += took;
        }
        runs++;
        if (us_held_up() - held < all * CALM) {
            calm++;
            spent += all;
        }
    }
    t->c->num_timed++;
    t->c->num_held_up += calm < LEAST_RUNS;
    sinter_session_trace(t->t.session, 0);
    inputs_free(&in);
    arena_destroy(arena);
    arena_destroy(out_arena);
    return ok;
}

bool bucket_counts(const Choice *c, int bucket)
{
    for (int i = 0; i < c->spec->requires.num; i++)
        if (c->spec->requires.elem[i].measure == MEASURE_LATENCY &&
            bucket_is(c, bucket, &c->spec->requires.elem[i].at))
            return true;
    return c->weight[bucket] > 0;
}

static bool measure(Times *t)
{
    if (!probe_open(&t->t))
        return probe_fail(&t->t, "timing a candidate");
    for (int b = 0; b < t->c->num_buckets; b++)
        if (bucket_counts(t->c, b) && !bucket_measure(t, b))
            return false;
    return true;
}

/* Predicting ---------------------------------------------------------------------------------- */

static bool predict_cpu(Times *t)
{
    const Plan *plan = t->target->plan;
    PlanLayout *layout = ARENA_NEW_ARRAY(t->t.arena, PlanLayout, (size_t)plan->num_tensors + 1);
    for (int b = 0; b < t->c->num_buckets; b++) {
        IoError err;
        if (!plan_bind(plan, b, plan_bucket(plan, b), layout, &err)) {
            diag_error(t->ch->lab.diag, (Span){0}, err.id, "%s", err.text);
            return false;
        }
        for (int i = 0; i < plan->num_launches; i++)
            t->us[(size_t)i * (size_t)t->c->num_buckets + (size_t)b] =
                cpu_launch_us(plan, &plan->launch[i], layout);
    }
    return true;
}

/* Times come with the plan. A layer's source is the least trusted of its products. */
static void predict_cuda(Times *t)
{
    static const TimeSource source[NUM_TIMING_SOURCES] = {[TIMING_MODEL] = TIME_MODEL,
                                                          [TIMING_LIKE] = TIME_TABLE,
                                                          [TIMING_AKIN] = TIME_TABLE,
                                                          [TIMING_SHIPPED] = TIME_TABLE,
                                                          [TIMING_MEASURED] = TIME_MEASURED};
    const Plan *plan = t->target->plan;
    int nb = t->c->num_buckets;
    for (int i = 0; i < plan->num_launches; i++)
        for (int b = 0; b < nb; b++) {
            const CudaChoice *choice = &t->t.cuda.choice[i * nb + b];
            t->us[i * nb + b] = choice->text ? choice->us : 0;
            if (choice->text && is_product(t, i))
                source_note(t, i, source[choice->source]);
        }
}

/* All of it ------------------------------------------------------------------------------------ */

static bool column_plan(Times *t)
{
    const Choice *c = t->c;
    Chooser *ch = t->ch;
    const char *rules = choice_rules(c, ch->arena, pick_uniform(c, ch->arena, t->column), NULL);
    if (!probe_lower(&t->t, &ch->lab, rules) || !probe_prepare_fast(&t->t, true) ||
        !probe_plan(&t->t) || (ch->lab.options->gpu && !probe_plan_gpu(&t->t)))
        return probe_fail(&t->t, "timing a candidate");
    t->target = ch->lab.options->gpu ? &t->t.cuda.target : &t->t.target;
    return true;
}

static TimeSource source_of(const Chooser *ch)
{
    if (ch->lab.options->times)
        return TIME_GIVEN;
    if (ch->lab.options->device && !ch->lab.options->no_measure)
        return TIME_MEASURED;
    return ch->lab.options->gpu || ch->lab.options->no_measure ? TIME_MODEL : TIME_MEASURED;
}

/* A candidate whose kernels fail on the device is left out. False after an error. */
static bool measure_gpu(Times *t, bool *ret_left_out)
{
    const char *why = NULL;
    Choice *c = t->c;
    double *graph = c->graph_us + t->column * c->num_buckets;
    ClockFault fault = gpu_times(t->ch, &t->t, t->us, graph, &why);
    *ret_left_out = fault == CLOCK_FILE;
    if (fault != CLOCK_FILE)
        return fault == CLOCK_FINE;
    if (t->column == c->float_column) {
        diag_error(t->ch->lab.diag, (Span){0}, E_AUTO_TIMING,
                   "the model without quantisation cannot be timed on %s: %s",
                   t->ch->lab.options->device->name, why);
        return false;
    }
    diag_warning(t->ch->lab.diag, c->spec->candidates.elem[t->column].span, E_AUTO_CANDIDATE,
                 "'%s' cannot be used: timing it on %s failed: %s", c->column[t->column],
                 t->ch->lab.options->device->name, why);
    for (int i = 0; i < c->num_layers; i++)
        if (!c->layer[i].pinned)
            c->layer[i].cell[t->column].why = arena_strdup(c->arena, why);
    return true;
}

static bool column_time(Times *t)
{
    Choice *c = t->c;
    if (!column_plan(t))
        return false;
    TimeSource source = source_of(t->ch);
    int num = t->target->plan->num_launches;
    t->us = ARENA_NEW_ARRAY(t->t.arena, double, (size_t)num *(size_t)c->num_buckets + 1);
    owners_find(t);
    bytes_share(t);
    if (source == TIME_GIVEN)
        return true;
    bool left_out = false;
    if (source == TIME_MEASURED) {
        if (t->ch->lab.options->device ? !measure_gpu(t, &left_out) : !measure(t))
            return false;
        if (left_out)
            return true;
    } else if (t->ch->lab.options->gpu) {
        predict_cuda(t);
    } else if (!predict_cpu(t)) {
        return false;
    }
    for (int i = 0; i < num; i++)
        for (int b = 0; b < c->num_buckets; b++)
            launch_share(t, i, b, t->us[(size_t)i * (size_t)c->num_buckets + (size_t)b], 0);
    bool predicted =
        t->ch->lab.options->gpu && source != TIME_MEASURED; /* each layer has its own */
    for (int i = 0; i < c->num_layers && !predicted; i++)
        c->layer[i].cell[t->column].source = source;
    return true;
}

bool layers_alike(const Choice *c, int i, int k)
{
    const ChoiceLayer *a = &c->layer[i], *b = &c->layer[k];
    const char *x = strrchr(a->path, '.'), *y = strrchr(b->path, '.');
    return a->experts == b->experts && a->n == b->n && a->k == b->k && a->pinned == b->pinned &&
           !strcmp(x ? x : a->path, y ? y : b->path);
}

/* The median: what else the machine did only adds to a time. Of a GPU's, which sum to a graph's,
 * the mean: it keeps the sum. */
static double level_of(const Choice *c, double *us, int num)
{
    double sum = 0;
    for (int i = 0; i < num; i++)
        sum += us[i];
    qsort(us, (size_t)num, sizeof *us, doubles_order);
    return c->device ? sum / num : us[num / 2];
}

/* One time for all layers that are alike. */
static void forms_level(Choice *c, int column)
{
    bool *done = ARENA_NEW_ARRAY(c->arena, bool, (size_t)c->num_layers + 1);
    double *us = ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_layers + 1);
    for (int i = 0; i < c->num_layers; i++) {
        if (done[i])
            continue;
        for (int b = 0; b < c->num_buckets; b++) {
            int num = 0;
            for (int k = i; k < c->num_layers; k++)
                if (layers_alike(c, i, k) && !c->layer[k].cell[column].why)
                    us[num++] = c->layer[k].cell[column].us[b];
            double level = num ? level_of(c, us, num) : 0;
            for (int k = i; k < c->num_layers && num; k++)
                if (layers_alike(c, i, k)) {
                    c->layer[k].cell[column].us[b] = level;
                    done[k] = true;
                }
        }
    }
}

static void times_copy(const Choice *c, int layer, int from, int to)
{
    LayerCell *a = &c->layer[layer].cell[from], *b = &c->layer[layer].cell[to];
    b->bytes = a->bytes;
    b->source = a->source;
    memcpy(b->us, a->us, (size_t)c->num_buckets * sizeof *b->us);
}

bool times_measure(Chooser *ch)
{
    Choice *c = ch->c;
    c->graph_us =
        ARENA_NEW_ARRAY(c->arena, double, (size_t)c->num_columns *(size_t)c->num_buckets + 1);
    for (int k = 0; k <= c->float_column; k++) {
        if (k < c->float_column && !strcmp(c->column[k], "keep"))
            continue;
        Times t = {.ch = ch, .c = c, .column = k};
        chooser_progress(ch, (double)k / c->num_columns, c->column[k]);
        bool ok = column_time(&t);
        probe_close(&t.t);
        if (!ok)
            return false;
        if (source_of(ch) == TIME_MEASURED)
            forms_level(c, k);
    }
    if (ch->lab.options->times ? !times_read(ch) : !groups_check(ch))
        return false;
    for (int i = 0; i < c->num_layers; i++) { /* a pinned layer is the same in every column */
        times_copy(c, i, c->float_column, c->pinned_column);
        for (int k = 0; k < c->num_candidates; k++)
            if (!strcmp(c->column[k], "keep"))
                times_copy(c, i, c->float_column, k);
    }
    return true;
}
