/* Processes that measure for `sinter tune`. A child works through the candidates and reports each
 * through a pipe. When it dies, reports an error (after which its GPU state is in
 * doubt) or is silent for too long, it is killed, the candidate at hand is rejected, and another
 * one goes on behind it. */
#include "tools/tune.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ORDER "SINTER_TUNE_ORDER" /* variable of the environment: TuneOrder */

typedef struct Report { /* less than PIPE_BUF: arrives whole */
    int item;           /* -1: the process is ready */
    double us;
    char text[TUNE_TEXT];
    TuneGpu gpu;
} Report;

typedef struct Child {
    pid_t pid;
    int pipe;
} Child;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The child ------------------------------------------------------------------------------------ */

static bool send(int pipe, const Report *report)
{
    return write(pipe, report, sizeof *report) == (ssize_t)sizeof *report;
}

static bool same_product(const TuneItem *a, const TuneItem *b)
{
    return a->rows == b->rows && !strcmp(a->problem, b->problem);
}

/* The fastest so far of the product of item `at`. */
static double best_so_far(const TuneRun *run, const double *us, int at)
{
    double best = 0;
    for (int i = at - 1; i >= 0 && same_product(&run->item[i], &run->item[at]); i--)
        if (us[i] > 0 && (best <= 0 || us[i] < best))
            best = us[i];
    return best;
}

_Noreturn void tune_serve(const TuneRun *run, const TuneOrder *order)
{
    Report report = {.item = -1};
    TuneSession *s = tune_open(run->ordinal, &report.gpu, report.text);
    double *us = calloc((size_t)run->num + 1, sizeof *us);
    report.us = s && us ? 0 : -1;
    bool ok = send(order->pipe, &report) && s && us;
    for (int i = 0; ok && i < order->first; i++)
        us[i] = run->item[i].us;
    for (int i = order->first; ok && i < run->num; i++) {
        if (!run->item[i].image)
            continue;
        report.item = i;
        us[i] = report.us = tune_time(s, &run->item[i], best_so_far(run, us, i), report.text);
        ok = send(order->pipe, &report) && report.us >= 0;
    }
    _exit(0); /* no handlers of the parent's */
}

bool tune_order(TuneOrder *ret)
{
    const char *text = secure_getenv(ORDER);
    return text && sscanf(text, "%d,%d,%d", &ret->pipe, &ret->job, &ret->first) == 3;
}

/* The parent ----------------------------------------------------------------------------------- */

/* In the child: this program anew, with the words of the user's command. */
static _Noreturn void start_anew(const TuneRun *run, const TuneOrder *order)
{
    char text[64];
    snprintf(text, sizeof text, "%d,%d,%d", order->pipe, order->job, order->first);
    if (setenv(ORDER, text, 1) == 0)
        execv("/proc/self/exe", run->argv);
    _exit(127);
}

static bool start(const TuneRun *run, TuneOrder order, Child *ret)
{
    int end[2];
    if (pipe(end) != 0)
        return false;
    fflush(NULL); /* or the child would hold the same text */
    *ret = (Child){.pid = fork(), .pipe = end[0]};
    if (ret->pid == 0) {
        close(end[0]);
        signal(SIGPIPE, SIG_IGN);
        order.pipe = end[1];
        if (run->argv)
            start_anew(run, &order);
        tune_serve(run, &order);
    }
    close(end[1]);
    if (ret->pid < 0)
        close(end[0]);
    return ret->pid > 0;
}

/* Ends it, whatever it does; its status. */
static int end(Child *c)
{
    int status = 0;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(c->pipe);
    return status;
}

typedef enum Heard { HEARD, SILENT, DEAD } Heard;

static Heard receive(const Child *c, double limit_s, Report *ret)
{
    size_t got = 0;
    double until = now_s() + limit_s;
    while (got < sizeof *ret) {
        struct pollfd p = {.fd = c->pipe, .events = POLLIN};
        double left = until - now_s();
        int ready = left > 0 ? poll(&p, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return SILENT;
        ssize_t num = read(c->pipe, (char *)ret + got, sizeof *ret - got);
        if (num <= 0 && errno != EINTR)
            return DEAD;
        got += num > 0 ? (size_t)num : 0;
    }
    ret->text[TUNE_TEXT - 1] = 0;
    return HEARD;
}

/* Why there was no report; ends the process. */
static const char *end_silent(Arena *arena, Child *c, Heard heard, double limit_s)
{
    if (heard == DEAD) { /* its pipe closed: it dies by itself */
        int status = 0;
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
        close(c->pipe);
        return WIFSIGNALED(status)
                   ? arena_printf(arena, "its process died of signal %d", WTERMSIG(status))
                   : arena_printf(arena, "its process ended with code %d", WEXITSTATUS(status));
    }
    end(c);
    return arena_printf(arena, "it did not end within %g s", limit_s);
}

/* A child that can use the GPU. */
static bool start_ready(const TuneRun *run, TuneOrder order, Child *c, Report *report,
                        const char **ret_why)
{
    if (!start(run, order, c)) {
        *ret_why = arena_printf(run->arena, "no process can be started: %s", strerror(errno));
        return false;
    }
    Heard heard = receive(c, run->start_s, report);
    if (heard != HEARD) {
        *ret_why = arena_printf(run->arena, "the GPU does not start: %s",
                                end_silent(run->arena, c, heard, run->start_s));
        return false;
    }
    if (report->us < 0) {
        *ret_why = arena_strdup(run->arena, report->text);
        end(c);
        return false;
    }
    return true;
}

bool tune_probe(const TuneRun *run, TuneGpu *ret, const char **ret_why)
{
    Child c;
    Report report;
    if (!start_ready(run, (TuneOrder){.job = -1}, &c, &report, ret_why))
        return false;
    *ret = report.gpu;
    end(&c);
    return true;
}

static int next_item(const TuneRun *run, int at)
{
    while (at < run->num && !run->item[at].image)
        at++;
    return at;
}

/* The items from *at on until one fails; *at: behind it. False: the caller wants no more. */
static bool measure_until_failure(TuneRun *run, Child *c, int *at)
{
    bool more = true, alive = true;
    while (alive && more && *at < run->num) {
        TuneItem *item = &run->item[*at];
        Report report = {0};
        Heard heard = receive(c, run->limit_s, &report);
        if (heard == HEARD && report.item != *at)
            BUG("a child measured item %d instead of %d", report.item, *at);
        alive = heard == HEARD && report.us >= 0;
        item->us = alive ? report.us : -1;
        item->note = alive && report.us > 0 ? ""
                     : heard == HEARD       ? arena_strdup(run->arena, report.text)
                                            : end_silent(run->arena, c, heard, run->limit_s);
        if (!alive && heard == HEARD)
            end(c);
        more = !run->done || run->done(run->user, item);
        *at = next_item(run, *at + 1);
    }
    if (alive)
        end(c);
    return more;
}

static bool measure_all(TuneRun *run, int job, const char **ret_why)
{
    Report report;
    Child c;
    int at = next_item(run, 0);
    while (at < run->num) {
        TuneOrder order = {.job = job, .first = at};
        if (!start_ready(run, order, &c, &report, ret_why))
            return false;
        if (!measure_until_failure(run, &c, &at))
            return true;
        if (job >= 0 && !tune_job_note(run, job))
            return false;
    }
    return true;
}

bool tune_measure(TuneRun *run, const char **ret_why)
{
    int job = run->argv ? tune_job_write(run) : -1;
    *ret_why =
        arena_printf(run->arena, "no process can be told what to measure: %s", strerror(errno));
    bool ok = (!run->argv || job >= 0) && measure_all(run, job, ret_why);
    if (job >= 0)
        close(job);
    return ok;
}
