/* The order of the steps; see choose.h. */
#include "choose/internal.h"
#include <time.h>

const char *const time_source_name[] = {[TIME_NONE] = "none",
                                        [TIME_GIVEN] = "given",
                                        [TIME_MEASURED] = "measured",
                                        [TIME_TABLE] = "shipped table",
                                        [TIME_MODEL] = "cost model"};

void chooser_progress(Chooser *ch, double done, const char *what)
{
    const ChooseOptions *o = ch->lab.options;
    if (o->progress)
        o->progress(o->user, (ch->num_stage + done) / ch->stages, what);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool reference_open(Chooser *ch)
{
    Probe *t = &ch->reference;
    if (float_lower(t, &ch->lab) && probe_passes_from(t, "insert-quant") && probe_plan(t) &&
        probe_open(t))
        return true;
    return probe_fail(t, NULL);
}

typedef bool Step(Chooser *ch);

static bool steps_run(Chooser *ch)
{
    static Step *const step[] = {reference_open, errors_measure, times_measure, choice_settle};
    ch->stages = COUNT_OF(step);
    for (size_t i = 0; i < COUNT_OF(step); i++) {
        double start = seconds_now();
        ch->num_stage = (int)i;
        if (!step[i](ch))
            return false;
        ch->c->seconds[i] = seconds_now() - start;
    }
    double start = seconds_now();
    front_find(ch);
    ch->c->seconds[COUNT_OF(step) - 1] += seconds_now() - start;
    chooser_progress(ch, ch->stages - ch->num_stage, "");
    return true;
}

Choice *choose_run(Arena *arena, Diag *diag, const Module *m, const ChooseOptions *options)
{
    Choice *c = ARENA_NEW(arena, Choice);
    *c = (Choice){.arena = arena, .spec = m->automatic};
    Chooser ch = {.lab = {arena, diag, options}, .arena = arena_new(), .c = c, .m = m};
    ch.lab.arena = ch.arena;
    bool ok = layers_find(&ch);
    if (ok && c->num_groups)
        ok = cells_check(&ch) && steps_run(&ch);
    probe_close(&ch.reference);
    arena_destroy(ch.arena);
    return ok ? c : NULL;
}
