/* Processes that measure for `sinter tune`. A child is told the items one by one through a socket
 * and reports each. When it dies, reports an error (after which its GPU state is in doubt) or is
 * silent for too long, it is killed, the candidate at hand is rejected, and another one takes its
 * place. */
#include "tune/tune.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ORDER "SINTER_TUNE_ORDER" /* variable of the environment: TuneOrder */

typedef struct Task { /* to the child */
    int item;
    double best; /* microseconds of the product's fastest so far; 0: none */
} Task;

typedef struct Report { /* from it */
    int item;           /* -1: the process is ready */
    double us;
    char text[TUNE_TEXT];
    TuneGpu gpu;
} Report;

typedef struct Child {
    pid_t pid; /* 0: there is none */
    int socket;
} Child;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool transmit(int to, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t num = send(to, (const char *)data + done, size - done, MSG_NOSIGNAL);
        if (num <= 0 && errno != EINTR)
            return false;
        done += num > 0 ? (size_t)num : 0;
    }
    return true;
}

/* The child ------------------------------------------------------------------------------------ */

static bool next_task(int from, Task *ret)
{
    ssize_t num;
    do
        num = recv(from, ret, sizeof *ret, MSG_WAITALL);
    while (num < 0 && errno == EINTR);
    return num == (ssize_t)sizeof *ret;
}

_Noreturn void tune_serve(const TuneRun *run, const TuneOrder *order)
{
    Report report = {.item = -1};
    Task task;
    TuneSession *s = tune_open(run->ordinal, &report.gpu, report.text);
    report.us = s ? 0 : -1;
    bool ok = transmit(order->socket, &report, sizeof report) && s;
    while (ok && next_task(order->socket, &task)) {
        void *image = tune_job_image(order->job, task.item);
        TuneItem item = run->item[task.item];
        item.image = image;
        report.item = task.item;
        snprintf(report.text, sizeof report.text, "its code cannot be read");
        report.us = image ? tune_time(s, &item, task.best, report.text) : -1;
        ok = transmit(order->socket, &report, sizeof report) && report.us >= 0;
        free(image);
    }
    _exit(0); /* no handlers of the parent's */
}

bool tune_order(TuneOrder *ret)
{
    const char *text = secure_getenv(ORDER);
    return text && sscanf(text, "%d,%d", &ret->socket, &ret->job) == 2;
}

/* The parent ----------------------------------------------------------------------------------- */

/* The environment with the order. Made before the fork: other threads may hold locks then, and
 * nothing is allocated between it and the start of the program. */
static char **environment(Arena *arena, const TuneOrder *order)
{
    size_t num = 0, kept = 0;
    while (environ[num])
        num++;
    char **ret = ARENA_NEW_ARRAY(arena, char *, num + 2);
    for (size_t i = 0; i < num; i++)
        if (strncmp(environ[i], ORDER "=", sizeof ORDER) != 0)
            ret[kept++] = environ[i];
    ret[kept] = arena_printf(arena, ORDER "=%d,%d", order->socket, order->job);
    return ret;
}

static bool start(const TuneRun *run, int job, Child *ret)
{
    int end[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, end) != 0)
        return false;
    TuneOrder order = {.socket = end[1], .job = job};
    char **env = run->argv ? environment(run->arena, &order) : NULL;
    fflush(NULL); /* or the child would hold the same text */
    *ret = (Child){.pid = fork(), .socket = end[0]};
    if (ret->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever ends the parent, and whatever the GPU does */
        close(end[0]);
        if (!run->argv)
            tune_serve(run, &order);
        execve("/proc/self/exe", run->argv, env);
        _exit(127);
    }
    int why = errno;
    close(end[1]);
    if (ret->pid < 0) { /* kill takes -1 for every process of the user */
        close(end[0]);
        ret->pid = 0;
        errno = why;
    }
    return ret->pid > 0;
}

/* Ends it, whatever it does; its status. */
static int end(Child *c)
{
    int status = 0;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(c->socket);
    c->pid = 0;
    return status;
}

/* DEAD: it closed its end. FAILED: the words do not pass, for errno; it may wait for them. */
typedef enum Heard { HEARD, SILENT, DEAD, FAILED } Heard;

static Heard failed_or_dead(void)
{
    return errno == EPIPE || errno == ECONNRESET ? DEAD : FAILED;
}

static Heard receive(const Child *c, double limit_s, Report *ret)
{
    size_t got = 0;
    double until = now_s() + limit_s;
    while (got < sizeof *ret) {
        struct pollfd p = {.fd = c->socket, .events = POLLIN};
        double left = until - now_s();
        int ready = left > 0 ? poll(&p, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return SILENT;
        ssize_t num = read(c->socket, (char *)ret + got, sizeof *ret - got);
        if (num == 0)
            return DEAD;
        if (num < 0 && errno != EINTR)
            return failed_or_dead();
        got += num > 0 ? (size_t)num : 0;
    }
    ret->text[TUNE_TEXT - 1] = 0;
    return HEARD;
}

/* Why there was no report; ends the process. */
static const char *end_silent(Arena *arena, Child *c, Heard heard, double limit_s)
{
    if (heard == DEAD) { /* its end is closed: it dies by itself */
        int status = 0;
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
        close(c->socket);
        c->pid = 0;
        return WIFSIGNALED(status)
                   ? arena_printf(arena, "its process died of signal %d", WTERMSIG(status))
                   : arena_printf(arena, "its process ended with code %d", WEXITSTATUS(status));
    }
    int why = errno;
    end(c);
    return heard == FAILED ? arena_printf(arena, "it cannot be talked to: %s", strerror(why))
                           : arena_printf(arena, "it did not end within %g s", limit_s);
}

/* A child that can use the GPU. */
static bool start_ready(const TuneRun *run, int job, Child *c, Report *report, const char **ret_why)
{
    if (!start(run, job, c)) {
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
    if (!start_ready(run, -1, &c, &report, ret_why))
        return false;
    *ret = report.gpu;
    end(&c);
    return true;
}

static bool same_product(const TuneItem *a, const TuneItem *b)
{
    return a->rows == b->rows && !strcmp(a->problem, b->problem);
}

/* The fastest so far of the product of item `at`. */
static double best_so_far(const TuneRun *run, int at)
{
    double best = 0;
    for (int i = at - 1; i >= 0 && same_product(&run->item[i], &run->item[at]); i--)
        if (run->item[i].us > 0 && (best <= 0 || run->item[i].us < best))
            best = run->item[i].us;
    return best;
}

/* Has the child, which is ready, measure an item that has an image. It lives on if that went well.
 */
static void measure_one(TuneRun *run, int job, Child *c, int at)
{
    TuneItem *item = &run->item[at];
    Task task = {at, best_so_far(run, at)};
    Report report = {0};
    bool told = tune_job_put_image(run, job, at) && transmit(c->socket, &task, sizeof task);
    Heard heard = told ? receive(c, run->limit_s, &report) : failed_or_dead();
    if (heard == HEARD && report.item != at)
        BUG("a child measured item %d instead of %d", report.item, at);
    bool alive = heard == HEARD && report.us >= 0;
    item->us = alive ? report.us : -1;
    item->note = alive && report.us > 0 ? ""
                 : heard == HEARD       ? arena_strdup(run->arena, report.text)
                                        : end_silent(run->arena, c, heard, run->limit_s);
    if (!alive && c->pid)
        end(c);
}

static bool measure_all(TuneRun *run, int job, Child *c, const char **ret_why)
{
    Report report;
    for (int at = 0; at < run->num; at++) {
        TuneItem *item = &run->item[at];
        if (run->compiled && !run->compiled(run->user, item))
            return true;
        if (!item->image && item->us == 0)
            continue;
        if (item->image && !c->pid && !start_ready(run, job, c, &report, ret_why))
            return false;
        if (item->image)
            measure_one(run, job, c, at);
        if (run->done && !run->done(run->user, item))
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
        end(&c);
    close(job);
    return ok;
}
