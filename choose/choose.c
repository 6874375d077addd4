/* The order of the steps; see choose.h. */
#include "choose/internal.h"

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

static bool reference_open(Chooser *ch)
{
    Probe *t = &ch->reference;
    if (float_lower(t, &ch->lab) && probe_passes_from(t, "insert-quant") && probe_plan(t) &&
        probe_open(t))
        return true;
    return probe_fail(t, NULL);
}

typedef bool Step(Chooser *ch);
enum { STEPS = 4 };

/* On a device candidates are timed first: a kernel that fails does so in a process of its own, and
 * this one does not hold the GPU meanwhile. */
static bool steps_run(Chooser *ch)
{
    static Step *const step[STEPS] = {reference_open, errors_measure, times_measure, choice_settle};
    static const int here[STEPS] = {0, 1, 2, 3}, on_device[STEPS] = {2, 0, 1, 3};
    const int *order = ch->lab.options->device ? on_device : here;
    ch->stages = STEPS;
    for (int i = 0; i < STEPS; i++) {
        double start = clock_us();
        ch->num_stage = i;
        if (!step[order[i]](ch))
            return false;
        ch->c->seconds[order[i]] = 1e-6 * (clock_us() - start);
    }
    double start = clock_us();
    front_find(ch);
    ch->c->seconds[STEPS - 1] += 1e-6 * (clock_us() - start);
    chooser_progress(ch, ch->stages - ch->num_stage, "");
    return true;
}

Choice *choose_run(Arena *arena, Diag *diag, const Module *m, const ChooseOptions *options)
{
    Choice *c = ARENA_NEW(arena, Choice);
    const ChooseDevice *device = options->device;
    *c = (Choice){.arena = arena, .spec = m->automatic};
    if (device)
        c->device = arena_printf(arena, "%s (%s)", device->name, device->gpu.name);
    Chooser ch = {.lab = {arena, diag, options}, .arena = arena_new(), .c = c, .m = m};
    ch.lab.arena = ch.arena;
    bool ok = layers_find(&ch);
    if (ok && c->num_groups)
        ok = cells_check(&ch) && steps_run(&ch);
    probe_close(&ch.reference);
    arena_destroy(ch.arena);
    return ok ? c : NULL;
}
