/* tune: the candidates for a model's products, measured on the GPU at hand, into the table that
 * later compilations choose by. */
#include "driver/gpu_here.h"
#include "driver/work.h"
#include "tune/tune.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_CANDIDATES 32  /* of a product under a bucket, unless the user says otherwise */
#define WORTH_A_TRY     3.0 /* times as long as the fastest, by the cost model */
#define LIMIT_S         5.0 /* of one candidate */
#define START_S         60.0
#define ALIKE           0.1 /* by which a candidate of a tile that has one already seems slower */
#define FEW_OF_FAMILY   3

typedef struct Group { /* a product under a bucket */
    const CudaCandidates *candidates;
} Group;

typedef struct Tune {
    Work w;
    int ordinal;
    TuneGpu gpu;
    const char *arch, *path;
    TimingTable table;
    const char *only; /* "T=16", or NULL */
    double until_us;  /* on the clock of clock_us; 0: no end */
    Map seen;         /* products and rows */
    ARRAY(Group) groups;
    ARRAY(TuneItem) items;
    int most; /* candidates of a product under a bucket */
    TuneCompiler *compiler;
    int num_sources, *source_of; /* [items] */
    int num_done, num_failed;
    bool write_failed, out_of_time;
} Tune;

static bool fail(Tune *t, ErrorId id, const char *why)
{
    diag_error(&t->w.diag, (Span){0}, id, "%s", why);
    return false;
}

/* What to measure ------------------------------------------------------------------------------ */

static bool is_wanted(const Tune *t, const CudaKernel *k)
{
    const char *equals = t->only ? strchr(t->only, '=') : NULL;
    for (int i = 0; equals && i < k->plan->num_syms; i++) {
        const char *name = k->plan->sym[i].name;
        if (strlen(name) == (size_t)(equals - t->only) && !strncmp(name, t->only, strlen(name)))
            return k->size[i] == strtoll(equals + 1, NULL, 10);
    }
    return !equals;
}

/* The next to measure: the fastest by the cost model, but rather one of another tile than the next
 * of a tile that was taken, and rather of a family of which FEW_OF_FAMILY have not been taken: what
 * the model says is least exact between families. NULL: no other is worth it. */
static const CudaCandidate *pick(const CudaCandidates *c, const bool *taken, double *least)
{
    const CudaCandidate *best = NULL;
    double best_us = 0;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        double alike = 1;
        int of_family = 0;
        if (at->reason || taken[i] || (*least > 0 && at->predicted > WORTH_A_TRY * *least))
            continue;
        for (int k = 0; k < c->list.num; k++) {
            const CudaKernel *other = &c->list.elem[k].kernel;
            alike += taken[k] && cuda_same_tile(&at->kernel, other) ? ALIKE : 0;
            of_family += taken[k] && other->family == at->kernel.family;
        }
        alike *= of_family < FEW_OF_FAMILY ? 1 / WORTH_A_TRY : 1;
        if (!best || at->predicted * alike < best_us) {
            best = at;
            best_us = at->predicted * alike;
        }
    }
    if (best && *least <= 0)
        *least = best->predicted;
    return best;
}

static void add_item(Tune *t, const CudaCandidates *c, const CudaCandidate *at)
{
    Sb word;
    sb_init(&word, t->w.arena);
    cuda_candidate_put(&word, &at->kernel);
    TuneItem item = {.kernel = &at->kernel,
                     .problem = c->problem,
                     .candidate = word.text,
                     .rows = c->rows,
                     .predicted = at->predicted,
                     .note = ""};
    if (cli_has(t->w.cli, OPTION_AGAIN) ||
        !timing_table_find(&t->table, item.problem, item.rows, item.candidate))
        ARRAY_PUSH(t->w.arena, &t->items, item);
}

/* CudaPlanOptions.visit */
static void collect(void *user, const CudaCandidates *from)
{
    Tune *t = user;
    const char *key = arena_printf(t->w.arena, "%" PRId64 " %s", from->rows, from->problem);
    if (!is_wanted(t, &from->like) || map_has(&t->seen, key))
        return;
    map_put(&t->seen, key, t);
    CudaCandidates *c = ARENA_NEW(t->w.arena, CudaCandidates);
    *c = *from;
    ARRAY_PUSH(t->w.arena, &t->groups, (Group){c});
    bool *taken = ARENA_NEW_ARRAY(t->w.arena, bool, (size_t)c->list.num + 1);
    double least = 0;
    for (int i = 0; i < t->most; i++) {
        const CudaCandidate *at = pick(c, taken, &least);
        if (!at)
            break;
        taken[at - c->list.elem] = true;
        add_item(t, c, at);
    }
}

/* Compiling ------------------------------------------------------------------------------------ */

static void put_row(Tune *t, const TuneItem *item)
{
    const TimingRow row = {.problem = item->problem,
                           .candidate = item->candidate,
                           .rows = item->rows,
                           .us = item->us > 0 && item->us < 0.01 ? 0.01 : item->us,
                           .note = item->note};
    t->num_failed += item->us < 0;
    if (item->us != 0)
        timing_table_put(&t->table, &row);
}

/* One line of plain text that a table can hold. */
static const char *note_of(Arena *arena, const char *text)
{
    char *note = arena_strndup(arena, text, strcspn(text, "\n"));
    if (strlen(note) > 160)
        note[160] = 0;
    for (char *c = note; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return note;
}

/* Sources of all items, equal ones once. */
static CudaSource *emit_sources(Tune *t)
{
    Map names;
    CudaSource *source = ARENA_NEW_ARRAY(t->w.arena, CudaSource, (size_t)t->items.num + 1);
    map_init(&names, t->w.arena);
    t->source_of = ARENA_NEW_ARRAY(t->w.arena, int, (size_t)t->items.num + 1);
    for (int i = 0; i < t->items.num; i++) {
        TuneItem *item = &t->items.elem[i];
        CudaSource s = {.family = item->kernel->family};
        s.text = cuda_emit_source(t->w.arena, item->kernel, &s.name);
        int known = (int)(uintptr_t)map_get(&names, s.name);
        if (!known) {
            source[t->num_sources++] = s;
            map_put(&names, s.name, (void *)(uintptr_t)t->num_sources);
        }
        t->source_of[i] = (known ? known : t->num_sources) - 1;
        item->entry = s.name;
    }
    return source;
}

static bool start_compiler(Tune *t)
{
    CudaCompileOptions options = {.num_archs = 1,
                                  .arch = &t->arch,
                                  .fail_on_spill = true,
                                  .no_cache = cli_has(t->w.cli, OPTION_NO_CACHE)};
    if (!work_threads(&t->w, &options.threads))
        return false;
    const CudaSource *source = emit_sources(t);
    t->compiler = tune_compile(t->num_sources, source, &options);
    return t->compiler || fail(t, E_MEMORY, "no thread can be started");
}

/* TuneRun.compiled */
static bool wait_for_code(void *user, TuneItem *item)
{
    Tune *t = user;
    size_t size;
    const char *why;
    if (!tune_compiled(t->compiler, t->source_of[item - t->items.elem], &item->image, &size, &why))
        return false;
    item->image_size = size;
    if (!item->image) {
        item->us = -1;
        item->note = arena_strdup(t->w.arena, why);
    }
    return true;
}

/* Measuring ------------------------------------------------------------------------------------ */

static bool write_table(Tune *t)
{
    IoError err;
    if (timing_table_write(&t->table, t->path, &err))
        return true;
    t->write_failed = true;
    work_io_error(&t->w, &err);
    return false;
}

static void show_progress(const Tune *t, const TuneItem *item)
{
    if (!isatty(STDERR_FILENO) || t->w.cli->json)
        return;
    fprintf(stderr, "\r\033[K%3.0f %%  %.60s", 100.0 * t->num_done / t->items.num, item->candidate);
    if (t->num_done == t->items.num)
        fputs("\r\033[K", stderr);
}

/* TuneRun.done: the table is written whenever a product is through. */
static bool note_item(void *user, const TuneItem *item)
{
    Tune *t = user;
    const TuneItem *end = t->items.elem + t->items.num, *next = item + 1;
    TuneItem plain = *item;
    plain.note = note_of(t->w.arena, item->note);
    put_row(t, &plain);
    t->num_done = (int)(next - t->items.elem);
    show_progress(t, item);
    if ((next == end || next->rows != item->rows || strcmp(next->problem, item->problem) != 0) &&
        !write_table(t))
        return false;
    t->out_of_time = t->until_us > 0 && clock_us() > t->until_us && next < end;
    return !t->out_of_time;
}

static bool measure(Tune *t)
{
    const char *why = NULL;
    TuneRun run = {.arena = t->w.arena,
                   .argv = t->w.cli->argv,
                   .arch = t->arch,
                   .ordinal = t->ordinal,
                   .limit_s = LIMIT_S,
                   .start_s = START_S,
                   .num = t->items.num,
                   .item = t->items.elem,
                   .compiled = wait_for_code,
                   .done = note_item,
                   .user = t};
    bool ok = tune_measure(&run, &why);
    if (!tune_compile_end(t->compiler, &t->w.diag))
        return false;
    if (!ok)
        return fail(t, E_NO_DEVICE, why);
    return !t->write_failed && write_table(t);
}

/* Reporting ------------------------------------------------------------------------------------ */

typedef struct Summary {
    int num, num_left;     /* products with times, and without any row */
    double log_sum, worst; /* of what the cost model takes, relative to the fastest */
} Summary;

static const TimingRow *row_of(Tune *t, const CudaCandidates *c, const CudaCandidate *at)
{
    Sb word;
    sb_init(&word, t->w.arena);
    cuda_candidate_put(&word, &at->kernel);
    return timing_table_find(&t->table, c->problem, c->rows, word.text);
}

static void report_group(Tune *t, const CudaCandidates *c, Summary *sum)
{
    const TimingRow *best = NULL, *model = NULL;
    double least = 0;
    int num = 0;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        const TimingRow *row = at->reason ? NULL : row_of(t, c, at);
        num += row != NULL;
        if (!row || row->us < 0)
            continue;
        if (!best || row->us < best->us)
            best = row;
        if (!model || at->predicted < least) {
            model = row;
            least = at->predicted;
        }
    }
    sum->num_left += num == 0;
    if (!num)
        return;
    printf("%s, %" PRId64 " row%s: ", c->problem, c->rows, c->rows == 1 ? "" : "s");
    if (!best) {
        puts("every candidate failed");
        return;
    }
    double ratio = model->us / best->us;
    printf("%.2f us by %s; ", best->us, best->candidate);
    if (model == best)
        printf("so the cost model, %.2f us\n", least);
    else
        printf("%.2f us (%.2fx) by %s, which the cost model takes\n", model->us, ratio,
               model->candidate);
    sum->num++;
    sum->log_sum += log(ratio);
    sum->worst = ratio > sum->worst ? ratio : sum->worst;
}

static void report(Tune *t, double seconds)
{
    Summary sum = {0};
    for (int i = 0; i < t->groups.num; i++)
        report_group(t, t->groups.elem[i].candidates, &sum);
    printf("%d products, %d of %d candidates by %d kernels measured in %.1f s, %d failed%s; %s\n",
           t->groups.num, t->num_done, t->items.num, t->num_sources, seconds, t->num_failed,
           t->out_of_time ? ", out of time" : "", t->path);
    if (sum.num_left)
        printf("nothing was measured of %d of the products\n", sum.num_left);
    if (sum.num)
        printf("what the cost model takes is %.2fx as slow as the fastest in the mean, %.2fx at "
               "worst\n",
               exp(sum.log_sum / sum.num), sum.worst);
}

/* The command ---------------------------------------------------------------------------------- */

/* The table as it is, or a new one. */
static bool open_table(Tune *t, const char *gpu)
{
    IoError err;
    struct stat st;
    t->path = cli_get(t->w.cli, OPTION_OUTPUT_FILE, NULL);
    if (!t->path)
        t->path = timing_own_path(t->w.arena, gpu, true);
    if (!t->path)
        return fail(t, E_TIMING, "neither XDG_DATA_HOME nor HOME says where tables lie; give -o");
    if (stat(t->path, &st) != 0 && errno == ENOENT) {
        timing_table_init(&t->table, t->w.arena, gpu);
        timing_table_renew(&t->table);
        return true;
    }
    if (!timing_table_read(&t->table, t->w.arena, t->path, &err)) {
        work_io_error(&t->w, &err);
        return false;
    }
    if (strcmp(t->table.gpu, gpu) != 0)
        return fail(t, E_TIMING,
                    arena_printf(t->w.arena, "'%s' is of the GPU %s, but cuda:%d is %s", t->path,
                                 t->table.gpu, t->ordinal, gpu));
    timing_table_renew(&t->table);
    return true;
}

static bool look_at_gpu(Tune *t)
{
    const char *why = NULL;
    const TuneRun run = {
        .arena = t->w.arena, .argv = t->w.cli->argv, .ordinal = t->ordinal, .start_s = START_S};
    if (!tune_probe(&run, &t->gpu, &why))
        return fail(t, E_NO_DEVICE, why);
    t->arch = gpu_target(t->w.arena, t->gpu.capability);
    if (!t->arch || strncmp(t->arch, "sm_", 3) != 0)
        return fail(t, E_NO_DEVICE,
                    arena_printf(t->w.arena, "nothing can be compiled for compute capability %d.%d",
                                 t->gpu.capability / 10, t->gpu.capability % 10));
    return open_table(
        t, timing_gpu_name(t->w.arena, t->gpu.capability, t->gpu.processors, t->gpu.memory));
}

static bool tune(Tune *t, const char *text)
{
    double begin = clock_us();
    t->w.cuda_options =
        (CudaPlanOptions){.visit = collect, .user = t, .layout = work_layout(&t->w)};
    if (!look_at_gpu(t) || !work_lower(&t->w, text) || !work_passes(&t->w, NULL) ||
        !work_plan_for(&t->w, t->arch))
        return false;
    if (!t->groups.num)
        return fail(t, E_USAGE,
                    t->only ? "no product has this size"
                            : "this model has no product that a GPU would run");
    if (t->items.num && (!start_compiler(t) || !measure(t)))
        return false;
    report(t, 1e-6 * (clock_us() - begin));
    return true;
}

/* The process that measures ------------------------------------------------------------------- */

typedef struct Served {
    Work w;
    TuneRun run;
} Served;

/* CudaPlanOptions.visit: kernels for the items that name them. */
static void find_kernels(void *user, const CudaCandidates *c)
{
    Served *s = user;
    Sb word;
    sb_init(&word, s->w.arena);
    for (int i = 0; i < s->run.num; i++) {
        TuneItem *item = &s->run.item[i];
        if (item->kernel || item->rows != c->rows || strcmp(item->problem, c->problem) != 0)
            continue;
        for (int k = 0; k < c->list.num && !item->kernel; k++) {
            word.len = 0;
            cuda_candidate_put(&word, &c->list.elem[k].kernel);
            if (!c->list.elem[k].reason && !strcmp(word.text, item->candidate))
                item->kernel = &c->list.elem[k].kernel;
        }
    }
}

/* Plans the model as the user's command did, and measures what it asks for. */
static int serve(Cli *cli, const ChildOrder *order, int ordinal)
{
    Served s;
    if (!work_init(&s.w, cli))
        return EXIT_INPUT;
    s.run = (TuneRun){.arena = s.w.arena, .ordinal = ordinal};
    s.w.cuda_options =
        (CudaPlanOptions){.visit = find_kernels, .user = &s, .layout = work_layout(&s.w)};
    if (order->job >= 0 &&
        (!tune_job_read(s.w.arena, order->job, &s.run) || !work_lower(&s.w, cli->operand.elem[0]) ||
         !work_passes(&s.w, NULL) || !work_plan_for(&s.w, s.run.arch)))
        return work_end(&s.w, EXIT_INPUT);
    for (int i = 0; i < s.run.num; i++)
        if (!s.run.item[i].kernel)
            BUG("no candidate is called %s", s.run.item[i].candidate);
    tune_serve(&s.run, order);
}

int cmd_tune(Cli *cli)
{
    Tune t = {.only = cli_get(cli, OPTION_BUCKET, NULL)};
    const char *device = cli_get(cli, OPTION_DEVICE, "cuda:0");
    const char *seconds = cli_get(cli, OPTION_MAX_SECONDS, "0");
    char *end = NULL;
    ChildOrder order;
    double most = strtod(seconds, &end);
    const char *candidates = cli_get(cli, OPTION_CANDIDATES, NULL);
    t.most = candidates ? atoi(candidates) : MOST_CANDIDATES;
    if (t.most < 1)
        return cli_usage(cli, "--candidates takes a number from 1 on, not '%s'", candidates);
    if (!work_gpu(device, &t.ordinal))
        return cli_usage(cli, "sinter tune measures GPU kernels, on 'cuda:0', not on '%s'", device);
    if (!*seconds || *end || !(most >= 0 && most < 1e9))
        return cli_usage(cli, "--max-seconds takes a number of seconds, not '%s'", seconds);
    if (source_is_stream(cli->operand.elem[0]))
        return cli_usage(cli, "sinter tune reads its model several times: give a file, not '%s'",
                         cli->operand.elem[0]);
    for (int i = 0; i < cli->value[OPTION_RULES].num; i++)
        if (source_is_stream(cli->value[OPTION_RULES].elem[i]))
            return cli_usage(cli,
                             "sinter tune reads its rules several times: give a file, not '%s'",
                             cli->value[OPTION_RULES].elem[i]);
    if (tune_order(&order))
        return serve(cli, &order, t.ordinal);
    if (!work_init(&t.w, cli))
        return EXIT_INPUT;
    t.until_us = most > 0 ? clock_us() + 1e6 * most : 0;
    map_init(&t.seen, t.w.arena);
    bool ok = tune(&t, cli->operand.elem[0]);
    return work_end(&t.w, ok ? EXIT_OK : t.arch ? EXIT_INPUT : EXIT_DEVICE);
}
