/* How long each launch takes, and whole runs, in every bucket, on made-up data: times do not depend
 * on values. A whole run counts as its median does, a launch as its shortest time: what disturbs a
 * launch (a processor taken away, a GPU that waits for its host) only adds to it. */
#include "report/report.h"
#include "runtime/program_parts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_US 3e4
#define RUNS_US 2e5 /* of one bucket, traced and untraced each */

enum { LEAST_RUNS = 5, MOST_RUNS = 101 };

typedef struct Timer {
    Report *r;
    Work *w;
    Program program;
    BoundSet in, out;
    int num_times; /* launches of one run */
    int *launch;   /* [num_times] of the plan */
    double *us;    /* [num_times][MOST_RUNS] */
    double total[MOST_RUNS];
} Timer;

static double median(double *x, int num)
{
    qsort(x, (size_t)num, sizeof *x, doubles_order);
    return num % 2 ? x[num / 2] : (x[num / 2 - 1] + x[num / 2]) / 2;
}

/* As JSON has them, so that the page says the same. */
static double whole_ns(double us)
{
    return round(us * 1000) / 1000;
}

static bool run_once(Timer *t, double *ret_us)
{
    SinterError err;
    double begin = clock_us();
    SinterStatus status =
        sinter_run(t->program.session, t->in.tensor, t->in.num, t->out.tensor, t->out.num, &err);
    *ret_us = clock_us() - begin;
    if (status)
        diag_error(&t->w->diag, (Span){0}, E_EXPECT, "%s", err.text);
    return status == SINTER_OK;
}

/* Runs until the first of time and number is used up; trace: keeps the times of each launch. */
static int run_many(Timer *t, bool trace, double most_us)
{
    double us, begin = clock_us();
    int num = 0;
    while (num < MOST_RUNS && (num < LEAST_RUNS || clock_us() - begin < most_us)) {
        if (!run_once(t, &us))
            return -1;
        t->total[num] = us;
        for (int i = 0; trace && i < t->num_times; i++)
            t->us[i * MOST_RUNS + num] = sinter_launch_time(t->program.session, i).duration_us;
        num++;
    }
    return num;
}

/* Is the launch part of a bucket? On the CPU all are. */
static bool launch_runs(const Timer *t, int launch, int bucket)
{
    const DeviceCode *code = &t->w->gpu[0].cuda.code;
    if (strncmp(t->r->device, "cuda", 4) != 0)
        return true;
    return code->launch[launch * code->num_buckets + t->r->buckets.elem[bucket].plan].kernel >= 0;
}

static bool same_launch(const ReportKernel *kernel, const SinterLaunchTime *time)
{
    return !strcmp(kernel->layer, time->layer) && !strcmp(kernel->family, time->family) &&
           !strcmp(kernel->absorbed, time->absorbed);
}

/* Launches run in the plan's order, some buckets without some of them. */
static bool find_launches(Timer *t, int bucket)
{
    const Report *r = t->r;
    int at = 0;
    t->num_times = sinter_num_launch_times(t->program.session);
    t->launch = ARENA_NEW_ARRAY(r->arena, int, (size_t)t->num_times + 1);
    t->us = ARENA_NEW_ARRAY(r->arena, double, (size_t)t->num_times *MOST_RUNS + 1);
    for (int i = 0; i < t->num_times; i++, at++) {
        SinterLaunchTime time = sinter_launch_time(t->program.session, i);
        while (at < r->kernels.num && !launch_runs(t, at, bucket))
            at++;
        if (at == r->kernels.num || !same_launch(&r->kernels.elem[at], &time))
            return false;
        t->launch[i] = at;
    }
    return true;
}

static bool time_bound(Timer *t, int bucket)
{
    double us;
    int num;
    sinter_session_trace(t->program.session, 0);
    if (run_many(t, false, WARM_US) < 0 || (num = run_many(t, false, RUNS_US)) < 0)
        return false;
    t->r->buckets.elem[bucket].run_us = whole_ns(median(t->total, num));
    sinter_session_trace(t->program.session, 1);
    if (!run_once(t, &us))
        return false;
    if (!find_launches(t, bucket))
        BUG("the runtime launched what the plan does not hold");
    num = run_many(t, true, RUNS_US);
    for (int i = 0; i < t->num_times && num > 0; i++) {
        const double *time = t->us + i * MOST_RUNS;
        double least = time[0];
        for (int k = 1; k < num; k++)
            least = time[k] < least ? time[k] : least;
        t->r->kernels.elem[t->launch[i]].us[bucket] = whole_ns(least);
    }
    return num > 0;
}

static bool time_bucket(Timer *t, int bucket)
{
    const Program *p = &t->program;
    int num_syms = sinter_num_symbols(p->model);
    int64_t *size = ARENA_NEW_ARRAY(t->r->arena, int64_t, (size_t)num_syms + 1);
    for (int s = 0; s < num_syms; s++)
        size[s] = sinter_bucket_size(p->model, t->r->buckets.elem[bucket].plan, s);
    bool ok = bound_init(&t->in, sinter_num_inputs(p->model));
    ok = bound_init(&t->out, sinter_num_outputs(p->model)) && ok;
    ok = ok && !side_make_up(p, false, size, &t->in) && !side_make_up(p, true, size, &t->out) &&
         time_bound(t, bucket);
    bound_free(&t->in);
    bound_free(&t->out);
    return ok;
}

bool report_times(Report *r, Work *w, const char *program, int *ret_exit)
{
    Trial trial;
    Timer t = {.r = r, .w = w};
    bool ok = trial_open(&trial, w, program, ret_exit);
    if (ok) {
        t.program =
            (Program){.name = "sinter report", .model = trial.model, .session = trial.session};
        r->device = arena_strdup(r->arena, sinter_session_device(trial.session));
        *ret_exit = EXIT_INPUT;
    }
    ProgressFn *progress = work_progress(w);
    for (int b = 0; b < r->buckets.num && ok; b++) {
        if (progress)
            progress(w, (double)b / r->buckets.num, "timing");
        ok = time_bucket(&t, b);
    }
    if (progress)
        progress(w, 1, "");
    trial_close(&trial);
    return ok;
}
