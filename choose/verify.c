/* Choices run as they will be: compiled from their rules, on the data that the text names, and on a
 * device timed as a whole. */
#include "choose/settle.h"
#include <string.h>

static Check *check_find(Settle *s, const char *path)
{
    for (int i = 0; i < s->num_checks; i++)
        if (!strcmp(s->check[i].path, path))
            return &s->check[i];
    return NULL;
}

static bool check_add(Settle *s, const char *path, Span span, int64_t most)
{
    Check *check = &s->check[s->num_checks];
    if (check_find(s, path))
        return true;
    *check = (Check){.path = path};
    s->num_checks++;
    return data_read(&s->ch->lab, &s->ch->reference, path, span, most, s->arena, &check->data) &&
           probe_run(&s->ch->reference, &check->data.in, s->arena, &check->want);
}

/* The files that requirements name; without any, the calibration data, for information. */
bool checks_open(Settle *s)
{
    const AutoSpec *spec = s->c->spec;
    s->check = ARENA_NEW_ARRAY(s->arena, Check, (size_t)spec->requires.num + 1);
    for (int i = 0; i < spec->requires.num; i++) {
        const AutoRequire *r = &spec->requires.elem[i];
        if (r->on && !check_add(s, r->on, r->span, 0))
            return false;
    }
    return s->num_checks ||
           check_add(s, spec->data.text, spec->data.span, spec->samples ? spec->samples : 256);
}

static bool check_run(Probe *t, Check *check)
{
    Tensors out;
    Arena *arena = arena_new();
    bool ok = probe_run(t, &check->data.in, arena, &out);
    check->noise = check->turn = 0;
    for (int i = 0; ok && i < out.num; i++) {
        Distance d = distance_of_floats(out.tensor[i].data, check->want.tensor[i].data,
                                        (uint64_t)tensor_count(&out.tensor[i]));
        check->noise += d.noise / out.num;
        check->turn += turn_of_cosine(d.cosine) / out.num;
        if (!i || d.noise > check->worst.noise)
            check->worst = d;
    }
    arena_destroy(arena);
    return ok;
}

static bool is_exact(Settle *s)
{
    bool exact = true;
    for (int i = 0; i < s->c->spec->requires.num; i++) {
        const AutoRequire *r = &s->c->spec->requires.elem[i];
        const Check *check = r->on ? check_find(s, r->on) : NULL;
        if (check && r->measure == MEASURE_COSINE)
            exact = exact && check->worst.cosine >= r->value;
        else if (check && r->measure == MEASURE_SQNR)
            exact = exact && check->worst.sqnr >= r->value;
    }
    return exact;
}

bool has_error_budget(const Choice *c)
{
    for (int i = 0; i < c->spec->requires.num; i++)
        if (c->spec->requires.elem[i].on)
            return true;
    return false;
}

const char *text_calibrate(const Settle *s)
{
    const Module *m = s->ch->m;
    const AutoName *data = &s->c->spec->data;
    bool only = m->calibrate_spans.num == 1 &&
                m->calibrate_spans.elem[0].start == data->span.start &&
                m->calibrate_spans.elem[0].file == data->span.file;
    return only ? data->text : NULL;
}

static void point_distances(const Settle *s, ChoicePoint *point)
{
    point->verified = true;
    point->measured_cosine = INFINITY;
    point->measured_sqnr = INFINITY;
    for (int i = 0; i < s->num_checks; i++) {
        point->measured_cosine = fmin(point->measured_cosine, s->check[i].worst.cosine);
        point->measured_sqnr = fmin(point->measured_sqnr, s->check[i].worst.sqnr);
    }
}

/* The times of a uniform choice are known already. A choice that cannot be timed has none. */
static bool point_time(Settle *s, Probe *t, ChoicePoint *point)
{
    const char *why = NULL;
    Choice *c = s->c;
    double *us =
        ARENA_NEW_ARRAY(s->arena, double, (size_t)c->num_layers *(size_t)c->num_buckets + 1);
    probe_leave(t);
    switch (gpu_times_whole(s->ch, t, point, us, &why)) {
    case CLOCK_FINE: search_learn(s, point->pick, us); return true;
    case CLOCK_GPU: return false;
    case CLOCK_FILE: break;
    }
    diag_warning(s->ch->lab.diag, c->spec->span, E_AUTO_TIMING,
                 "a choice is left out, since it cannot be timed as a whole on %s: %s",
                 s->ch->lab.options->device->name, why);
    return true;
}

/* Compiles the choice as the user's compilation will, runs it on all data, and times the same
 * file. */
static bool point_run(Settle *s, ChoicePoint *point, bool *ret_exact)
{
    Probe t;
    const char *rules = choice_rules(s->c, s->arena, point->pick, text_calibrate(s));
    bool ok = (probe_lower(&t, &s->ch->lab, rules) && probe_passes(&t, NULL) && probe_plan(&t) &&
               probe_open(&t)) ||
              probe_fail(&t, "verifying a choice");
    for (int i = 0; ok && i < s->num_checks; i++)
        ok = check_run(&t, &s->check[i]);
    if (ok)
        point_distances(s, point);
    *ret_exact = ok && is_exact(s);
    if (*ret_exact && s->is_timed && !point->graph_us)
        ok = point_time(s, &t, point);
    probe_close(&t);
    return ok;
}

/* Times stand in the data as whole nanoseconds, so that is how they are compared. */
static bool in_time(const Settle *s, const ChoicePoint *point, const AutoRequire *r)
{
    return round(1e3 * point_latency_at(s->c, point, &r->at)) <= round(1e3 * r->value);
}

bool point_fits(const Settle *s, const ChoicePoint *point)
{
    const Choice *c = s->c;
    for (int g = 0; g < c->num_groups; g++)
        if (!column_allowed(c, g, point->pick[g]))
            return false;
    for (int i = 0; i < c->spec->requires.num; i++) {
        const AutoRequire *r = &c->spec->requires.elem[i];
        if ((r->measure == MEASURE_BYTES && !(point->bytes <= r->value)) ||
            (r->measure == MEASURE_LATENCY && !in_time(s, point, r)))
            return false;
    }
    return true;
}

double point_cost(const Choice *c, const ChoicePoint *point)
{
    return point->graph_us && aim_of(c->spec) == AIM_LATENCY ? point->measured_us
                                                             : point->objective;
}

int tried_find(const Settle *s, const int *pick)
{
    size_t bytes = (size_t)s->c->num_groups * sizeof *pick;
    for (int i = 0; i < s->tried.num; i++)
        if (!memcmp(s->tried.elem[i].point.pick, pick, bytes))
            return i;
    return -1;
}

int point_try(Settle *s, const ChoicePoint *point)
{
    Tried t = {.point = *point};
    int at = tried_find(s, point->pick);
    if (at >= 0)
        return at;
    chooser_progress(s->ch, 1 - 1 / (1 + 0.1 * s->tried.num), "verifying");
    if (!point_run(s, &t.point, &t.exact))
        return -1;
    t.good = t.exact && point_fits(s, &t.point) && (!s->is_timed || t.point.graph_us);
    for (int i = 0; i < s->num_checks; i++) {
        if (point->turn > 0)
            t.turn_ratio = fmax(t.turn_ratio, s->check[i].turn / point->turn);
        if (point->noise > 0)
            t.noise_ratio = fmax(t.noise_ratio, s->check[i].noise / point->noise);
    }
    ARRAY_PUSH(s->arena, &s->tried, t);
    s->c->rounds++;
    return s->tried.num - 1;
}
