/* The side that has files timed; see clock.h. */
#include "choose/clock.h"
#include "choose/clock_talk.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define START_S 120.0 /* of a process: the driver, and the weights on their way */
#define TIME_S  60.0  /* of one bucket */

bool clock_order(ChildOrder *ret)
{
    return child_order(CLOCK_ORDER, ret);
}

/* Starts a process over a file (-1: none) and waits until it is ready. */
static bool start(Clock *c, int file, ClockReport *report, const char **ret_why)
{
    const ChildStart how = {.variable = CLOCK_ORDER, .argv = c->argv, .job = file};
    const ClockTask task = {.ordinal = c->ordinal, .bucket = -1};
    if (!child_start(c->arena, &how, &c->child)) {
        *ret_why = arena_printf(c->arena, "no process can be started: %s", strerror(errno));
        return false;
    }
    Heard heard = child_send(c->child.socket, &task, sizeof task)
                      ? child_hear(&c->child, START_S, report, sizeof *report)
                      : child_deaf();
    report->text[sizeof report->text - 1] = 0;
    if (heard != HEARD) {
        *ret_why = child_end_silent(c->arena, &c->child, heard, START_S);
        return false;
    }
    if (report->text[0]) {
        *ret_why = arena_strdup(c->arena, report->text);
        clock_close(c);
        return false;
    }
    return true;
}

ClockFault clock_look(Clock *c, ClockGpu *ret, const char **ret_why)
{
    ClockReport report;
    if (!start(c, -1, &report, ret_why))
        return CLOCK_GPU;
    if (ret)
        *ret = report.gpu;
    clock_close(c);
    return CLOCK_FINE;
}

/* A file that failed is at fault where the GPU serves others still. */
static ClockFault fault(Clock *c, const char **ret_why)
{
    const char *lost = NULL;
    clock_close(c);
    if (clock_look(c, NULL, &lost) == CLOCK_FINE)
        return CLOCK_FILE;
    *ret_why = lost;
    return CLOCK_GPU;
}

ClockFault clock_open(Clock *c, int file, const char **ret_why)
{
    ClockReport report;
    return start(c, file, &report, ret_why) ? CLOCK_FINE : fault(c, ret_why);
}

ClockFault clock_time(Clock *c, int bucket, int num, double *ret_launch, double *ret_graph,
                      const char **ret_why)
{
    ClockReport report = {.num = 0};
    const ClockTask task = {.ordinal = c->ordinal, .bucket = bucket};
    Heard heard = child_send(c->child.socket, &task, sizeof task)
                      ? child_hear(&c->child, TIME_S, &report, sizeof report)
                      : child_deaf();
    report.text[sizeof report.text - 1] = 0;
    if (heard == HEARD && report.text[0]) {
        *ret_why = arena_strdup(c->arena, report.text);
        return fault(c, ret_why);
    }
    if (heard == HEARD && report.num != num)
        BUG("%d launches are planned, and %d run", num, report.num);
    if (heard == HEARD)
        heard = child_hear(&c->child, TIME_S, ret_launch, (size_t)num * sizeof *ret_launch);
    if (heard != HEARD) {
        *ret_why = child_end_silent(c->arena, &c->child, heard, TIME_S);
        return fault(c, ret_why);
    }
    *ret_graph = report.graph_us;
    clock_share(num, ret_launch, report.graph_us);
    return CLOCK_FINE;
}

void clock_close(Clock *c)
{
    if (c->child.pid)
        child_end(&c->child);
}

#define LEAST_LEFT 0.1 /* of a launch */

void clock_share(int num, double *launch, double graph)
{
    double all = 0, left = 0;
    for (int i = 0; i < num; i++)
        all += launch[i];
    double each = num && all > graph ? (all - graph) / num : 0;
    for (int i = 0; i < num; i++) {
        double least = LEAST_LEFT * launch[i];
        launch[i] = launch[i] - each > least ? launch[i] - each : least;
        left += launch[i];
    }
    for (int i = 0; i < num; i++)
        launch[i] = left > 0 ? launch[i] * graph / left : graph / num;
}
