/* Processes that measure for `sinter tune`. A child is told the items one by one through a socket
 * and reports each. When it dies, reports an error (after which its GPU state is in doubt) or is
 * silent for too long, it is killed, the candidate at hand is rejected, and another one takes its
 * place. */
#include "base/child.h"
#include "tune/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDER        "SINTER_TUNE_ORDER" /* variable of the environment: TuneOrder */
#define FINAL_ROUNDS 3
#define NEAR_BEST    1.1 /* times as long as a product's fastest: may be as fast */

typedef struct Task { /* to the child */
    int item;
    TuneTime best; /* of the product's fastest so far; 0: none */
} Task;

typedef struct Report { /* from it */
    int item;           /* -1: the process is ready */
    TuneTime time;
    char text[TUNE_TEXT];
    TuneGpu gpu;
} Report;

/* The child ------------------------------------------------------------------------------------ */

_Noreturn void tune_serve(const TuneRun *run, const ChildOrder *order)
{
    Report report = {.item = -1};
    Task task;
    TuneSession *s = tune_open(run->ordinal, &report.gpu, report.text);
    report.time.us = s ? 0 : -1;
    bool ok = child_send(order->socket, &report, sizeof report) && s;
    while (ok && child_wait(order->socket, &task, sizeof task)) {
        void *image = tune_job_image(order->job, task.item);
        TuneItem item = run->item[task.item];
        item.image = image;
        report.item = task.item;
        snprintf(report.text, sizeof report.text, "its code cannot be read");
        report.time = (TuneTime){.us = -1};
        if (image)
            report.time = tune_time(s, &item, task.best, report.text);
        ok = child_send(order->socket, &report, sizeof report) && report.time.us >= 0;
        free(image);
    }
    _exit(0); /* no handlers of the parent's */
}

bool tune_order(ChildOrder *ret)
{
    return child_order(ORDER, ret);
}

/* The parent ----------------------------------------------------------------------------------- */

static void serve_here(void *user, const ChildOrder *order)
{
    tune_serve(user, order);
}

static Heard receive(const Child *c, double limit_s, Report *ret)
{
    Heard heard = child_hear(c, limit_s, ret, sizeof *ret);
    ret->text[TUNE_TEXT - 1] = 0;
    return heard;
}

/* A child that can use the GPU. */
static bool start_ready(const TuneRun *run, int job, Child *c, Report *report, const char **ret_why)
{
    TuneRun here = *run; /* which a child that goes on in this program reads */
    const ChildStart how = {ORDER, run->argv, job, serve_here, &here};
    if (!child_start(run->arena, &how, c)) {
        *ret_why = arena_printf(run->arena, "no process can be started: %s", strerror(errno));
        return false;
    }
    Heard heard = receive(c, run->start_s, report);
    if (heard != HEARD) {
        *ret_why = arena_printf(run->arena, "the GPU does not start: %s",
                                child_end_silent(run->arena, c, heard, run->start_s));
        return false;
    }
    if (report->time.us < 0) {
        *ret_why = arena_strdup(run->arena, report->text);
        child_end(c);
        return false;
    }
    return true;
}

bool tune_probe(const TuneRun *run, TuneGpu *ret, const char **ret_why)
{
    Child c;
    Report report;
    if (!start_ready(run, -1, &c, &report, ret_why))
        return false;
    *ret = report.gpu;
    child_end(&c);
    return true;
}

static bool same_product(const TuneItem *a, const TuneItem *b)
{
    return a->rows == b->rows && !strcmp(a->problem, b->problem);
}

/* The first item of the product of item `at`. */
static int first_of_product(const TuneRun *run, int at)
{
    while (at > 0 && same_product(&run->item[at - 1], &run->item[at]))
        at--;
    return at;
}

/* .. and one past the last. */
static int end_of_product(const TuneRun *run, int at)
{
    int end = at + 1;
    while (end < run->num && same_product(&run->item[end], &run->item[at]))
        end++;
    return end;
}

/* The fastest so far of the product of item `at`. */
static TuneTime best_so_far(const TuneRun *run, int at)
{
    TuneTime best = {0};
    int end = end_of_product(run, at);
    for (int i = first_of_product(run, at); i < end; i++)
        if (run->item[i].us > 0 && (best.us <= 0 || run->item[i].us < best.us))
            best = (TuneTime){run->item[i].us, run->item[i].sustained};
    return best;
}

/* Has the child, which is ready, measure an item that has an image. It lives on if that went well.
 */
static void measure_one(TuneRun *run, int job, Child *c, int at)
{
    TuneItem *item = &run->item[at];
    Task task = {at, best_so_far(run, at)};
    Report report = {0};
    bool told = tune_job_put_image(run, job, at) && child_send(c->socket, &task, sizeof task);
    Heard heard = told ? receive(c, run->limit_s, &report) : child_deaf();
    if (heard == HEARD && report.item != at)
        BUG("a child measured item %d instead of %d", report.item, at);
    bool alive = heard == HEARD && report.time.us >= 0;
    item->us = alive ? report.time.us : -1;
    item->sustained = report.time.sustained;
    item->note = alive && report.time.us > 0 ? ""
                 : heard == HEARD            ? arena_strdup(run->arena, report.text)
                                             : child_end_silent(run->arena, c, heard, run->limit_s);
    if (!alive && c->pid)
        child_end(c);
}

/* With a child, if there is none. */
static bool measure_in_child(TuneRun *run, int job, Child *c, int at, const char **ret_why)
{
    Report report;
    if (!c->pid && !start_ready(run, job, c, &report, ret_why))
        return false;
    measure_one(run, job, c, at);
    return true;
}

static double median_of(double *us, int num)
{
    qsort(us, (size_t)num, sizeof *us, doubles_order);
    return us[num / 2];
}

/* Where power limits a GPU, its clocks wander by more than what candidates differ by: the fastest
 * of a product, items [first, end), are measured in turn, and each has the median. Those but the
 * last, of which nothing has been reported, are reported anew. */
static bool measure_finals(TuneRun *run, int job, Child *c, int first, int end,
                           const char **ret_why)
{
    TuneTime best = best_so_far(run, first);
    double(*us)[FINAL_ROUNDS] = arena_alloc_array(run->arena, (size_t)(end - first), sizeof *us);
    int finals = 0;
    for (int i = first; i < end; i++) {
        const TuneItem *item = &run->item[i];
        bool is_final =
            item->image && item->sustained && item->us > 0 && item->us <= NEAR_BEST * best.us;
        us[i - first][0] = is_final ? item->us : 0;
        finals += is_final;
    }
    for (int round = 1; round < FINAL_ROUNDS && finals > 1; round++)
        for (int i = first; i < end; i++) {
            if (us[i - first][0] <= 0 || run->item[i].us < 0)
                continue;
            if (!measure_in_child(run, job, c, i, ret_why))
                return false;
            us[i - first][round] = run->item[i].us;
        }
    for (int i = first; i < end && finals > 1; i++) {
        TuneItem *item = &run->item[i];
        if (us[i - first][0] > 0 && item->us > 0)
            item->us = median_of(us[i - first], FINAL_ROUNDS);
        if (us[i - first][0] > 0 && i < end - 1 && run->done)
            run->done(run->user, item);
    }
    return true;
}

static bool measure_all(TuneRun *run, int job, Child *c, const char **ret_why)
{
    for (int at = 0; at < run->num; at++) {
        TuneItem *item = &run->item[at];
        if (run->compiled && !run->compiled(run->user, item))
            return true;
        bool is_measured = item->image || item->us != 0;
        if (item->image && !measure_in_child(run, job, c, at, ret_why))
            return false;
        if (end_of_product(run, at) == at + 1 &&
            !measure_finals(run, job, c, first_of_product(run, at), at + 1, ret_why))
            return false;
        if (is_measured && run->done && !run->done(run->user, item))
            return true;
    }
    return true;
}

bool tune_measure(TuneRun *run, const char **ret_why)
{
    Child c = {0};
    int job = tune_job_write(run);
    if (job < 0) {
        *ret_why =
            arena_printf(run->arena, "no process can be told what to measure: %s", strerror(errno));
        return false;
    }
    bool ok = measure_all(run, job, &c, ret_why);
    if (c.pid)
        child_end(&c);
    close(job);
    return ok;
}
