/* The loop: solve on the estimates, run the real quantised model on the data that the text names,
 * correct the error budget by what was measured, and again; then the outcome, or why there is none.
 *
 * The estimate adds up noises; the real model is off by some factor, which hardly depends on the
 * choice. The budget is divided by it: more where the choice missed what is required, less where it
 * left room. Between a factor that missed and one that held the next lies in the middle. */
#include "choose/internal.h"
#include <string.h>

enum { MOST_SOLVES = 14, MOST_RUNS = 7 };
#define NEAR 2 /* times the error budget: an estimate beyond it is not worth a run */

typedef struct Check { /* one file of data that the choice is verified on */
    const char *path;
    DataSet data;
    Tensors want;
    Distance worst;     /* of the output that turned most */
    double noise, turn; /* of the choice at hand, mean over outputs */
} Check;

typedef struct Settle {
    Chooser *ch;
    Choice *c;
    Arena *arena;
    Check *check;
    int num_checks;
    double missed, held; /* corrections: the largest that missed, the least that held */
    ARRAY(ChoicePoint) tried;
    ARRAY(double) ratio; /* measured over estimated, of each tried; */
    ARRAY(bool) good;    /* whether it met what is required */
} Settle;

/* Verifying ----------------------------------------------------------------------------------- */

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
static bool checks_open(Settle *s)
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

static bool check_run(Settle *s, Probe *t, Check *check)
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
    (void)s;
    arena_destroy(arena);
    return ok;
}

static double ratio_of(const Settle *s, const ChoicePoint *point)
{
    double most = 0;
    for (int i = 0; i < s->num_checks; i++) {
        if (point->turn > 0)
            most = fmax(most, s->check[i].turn / point->turn);
        if (point->noise > 0)
            most = fmax(most, s->check[i].noise / point->noise);
    }
    return most;
}

static bool is_good(Settle *s)
{
    bool good = true;
    for (int i = 0; i < s->c->spec->requires.num; i++) {
        const AutoRequire *r = &s->c->spec->requires.elem[i];
        const Check *check = r->on ? check_find(s, r->on) : NULL;
        if (check && r->measure == MEASURE_COSINE)
            good = good && check->worst.cosine >= r->value;
        else if (check && r->measure == MEASURE_SQNR)
            good = good && check->worst.sqnr >= r->value;
    }
    return good;
}

/* The rules bring the calibration data where only `auto` names them. */
static const char *text_calibrate(const Settle *s)
{
    const Module *m = s->ch->m;
    const AutoName *data = &s->c->spec->data;
    bool only = m->calibrate_spans.num == 1 &&
                m->calibrate_spans.elem[0].start == data->span.start &&
                m->calibrate_spans.elem[0].file == data->span.file;
    return only ? data->text : NULL;
}

/* Compiles the choice as the user's compilation will, and runs it on all data. */
static bool point_verify(Settle *s, ChoicePoint *point)
{
    Probe t;
    const char *rules = choice_rules(s->c, s->arena, point->pick, text_calibrate(s));
    bool ok = (probe_lower(&t, &s->ch->lab, rules) && probe_passes(&t, NULL) && probe_plan(&t) &&
               probe_open(&t)) ||
              probe_fail(&t, "verifying a choice");
    for (int i = 0; ok && i < s->num_checks; i++)
        ok = check_run(s, &t, &s->check[i]);
    probe_close(&t);
    if (!ok)
        return false;
    point->verified = true;
    point->measured_cosine = INFINITY;
    point->measured_sqnr = INFINITY;
    for (int i = 0; i < s->num_checks; i++) {
        point->measured_cosine = fmin(point->measured_cosine, s->check[i].worst.cosine);
        point->measured_sqnr = fmin(point->measured_sqnr, s->check[i].worst.sqnr);
    }
    return true;
}

/* The loop ------------------------------------------------------------------------------------- */

static int tried_find(const Settle *s, const ChoicePoint *point)
{
    size_t bytes = (size_t)s->c->num_groups * sizeof *point->pick;
    for (int i = 0; i < s->tried.num; i++)
        if (!memcmp(s->tried.elem[i].pick, point->pick, bytes))
            return i;
    return -1;
}

/* Index of the point among the tried, run if it is new; -1 after an error. */
static int point_try(Settle *s, ChoicePoint *point)
{
    int at = tried_find(s, point);
    if (at >= 0)
        return at;
    chooser_progress(s->ch, fmin(1, (double)s->tried.num / MOST_RUNS), "verifying");
    if (!point_verify(s, point))
        return -1;
    ARRAY_PUSH(s->arena, &s->tried, *point);
    ARRAY_PUSH(s->arena, &s->ratio, ratio_of(s, point));
    ARRAY_PUSH(s->arena, &s->good, is_good(s));
    s->c->rounds++;
    return s->tried.num - 1;
}

/* The next correction, or 0: nothing is to be gained. */
static double next_correction(Settle *s, double at, double ratio, bool good)
{
    if (good)
        s->held = fmin(s->held, at);
    else
        s->missed = fmax(s->missed, at);
    if (s->missed > 0 && isfinite(s->held))
        return s->held / s->missed < 1.01 ? 0 : sqrt(s->held * s->missed);
    if (good)
        return ratio > 0 && ratio < at * 0.99 ? ratio * 0.999 : 0;
    return fmax(ratio * 1.001, at * 1.05);
}

static bool has_error_budget(const Choice *c)
{
    for (int i = 0; i < c->spec->requires.num; i++)
        if (c->spec->requires.elem[i].on)
            return true;
    return false;
}

/* The best choice on the estimates; where nothing is good enough by them, the most exact one may
 * still be on the data. */
static bool solve_for(Settle *s, double correction, ChoicePoint *ret)
{
    Budget budget = budget_of(s->ch, correction);
    if (choice_solve(s->ch, &budget, aim_of(s->c->spec), ret))
        return true;
    budget.turn = budget.noise = INFINITY;
    return !s->tried.num && choice_solve(s->ch, &budget, AIM_NOISE, ret);
}

/* Index of the best point that holds; -1: none, -2 after an error. */
static int settle_loop(Settle *s)
{
    double correction = 1;
    int best = -1;
    for (int i = 0; i < MOST_SOLVES && s->tried.num < MOST_RUNS && correction > 0; i++) {
        ChoicePoint point;
        int at = -1;
        double ratio = 0;
        if (solve_for(s, correction, &point)) {
            at = point_try(s, &point);
            if (at < 0)
                return -2;
            ratio = s->ratio.elem[at];
        } else if (!s->tried.num) {
            return -1;
        }
        bool good = at >= 0 && s->good.elem[at];
        if (good && (best < 0 || s->tried.elem[at].objective < s->tried.elem[best].objective))
            best = at;
        if (at < 0) /* too tight to be solved: as good as held, for the search */
            s->held = fmin(s->held, correction);
        if (!has_error_budget(s->c))
            break;
        correction = next_correction(s, correction, ratio, good || at < 0);
    }
    return best;
}

/* Uniform choices ------------------------------------------------------------------------------ */

static void uniforms_fill(Choice *c)
{
    ChoicePoint *point = ARENA_NEW_ARRAY(c->arena, ChoicePoint, (size_t)c->num_candidates + 1);
    for (int k = 0; k < c->num_candidates; k++) {
        bool whole = true;
        for (int g = 0; g < c->num_groups; g++)
            whole = whole && cell_usable(c, g, k);
        point[k].pick = whole ? pick_uniform(c, c->arena, k) : NULL;
        if (!whole)
            continue;
        point_fill(c, &point[k]);
        int column = strcmp(c->column[k], "keep") ? k : c->float_column;
        point[k].graph_us = c->graph_us + column * c->num_buckets;
        for (int b = 0; b < c->num_buckets; b++)
            point[k].measured_us += c->weight[b] * point[k].graph_us[b];
    }
    c->uniform = point;
}

/* Does the point keep what needs no run, and is its estimate near enough to be worth one? */
static bool point_promises(const Settle *s, const ChoicePoint *point)
{
    const Choice *c = s->c;
    for (int g = 0; g < c->num_groups; g++)
        if (!column_allowed(c, g, point->pick[g]))
            return false;
    for (int i = 0; i < c->spec->requires.num; i++) {
        const AutoRequire *r = &c->spec->requires.elem[i];
        bool kept = true;
        switch (r->measure) {
        case MEASURE_BYTES: kept = point->bytes <= r->value; break;
        case MEASURE_LATENCY: kept = point_latency_at(c, point, &r->at) <= r->value; break;
        case MEASURE_COSINE: kept = !r->on || point->turn < NEAR * turn_of_cosine(r->value); break;
        case MEASURE_SQNR: kept = !r->on || point->noise < NEAR * pow(10, -r->value / 10); break;
        case MEASURE_ERROR: break;
        }
        if (!kept)
            return false;
    }
    return true;
}

/* One candidate everywhere may do better than its estimate says. What is taken is never worse than
 * any of these. False after an error. */
static bool uniforms_try(Settle *s, int *best)
{
    const Choice *c = s->c;
    for (int k = 0; k < c->num_candidates && has_error_budget(c); k++) {
        ChoicePoint point = c->uniform[k];
        if (!point.pick || !point_promises(s, &point) ||
            (*best >= 0 && !(point.objective < s->tried.elem[*best].objective)))
            continue;
        int at = point_try(s, &point);
        if (at < 0)
            return false;
        if (s->good.elem[at])
            *best = at;
    }
    return true;
}

/* Where nothing holds ------------------------------------------------------------------------- */

static const char *point_text(Settle *s, const ChoicePoint *p)
{
    const AutoSpec *spec = s->c->spec;
    Sb sb;
    sb_init(&sb, s->arena);
    if (!p->verified)
        sb_printf(&sb, "cosine %.6f (estimated)", p->cosine);
    else if (isinf(p->measured_sqnr))
        sb_put(&sb, "no error");
    else
        sb_printf(&sb, "cosine %.6f, sqnr %.2f dB", p->measured_cosine, p->measured_sqnr);
    sb_printf(&sb, ", %.0f bytes, %.2f us", p->bytes, p->latency);
    for (int i = 0; i < spec->requires.num; i++) {
        const AutoRequire *r = &spec->requires.elem[i];
        if (r->measure == MEASURE_LATENCY)
            sb_printf(&sb, ", %.2f us at %s = %lld", point_latency_at(s->c, p, &r->at), r->at.sym,
                      (long long)r->at.size);
    }
    return sb.text;
}

static void note_point(Settle *s, Aim aim, const Budget *budget, const char *what)
{
    ChoicePoint p;
    if (!choice_solve(s->ch, budget, aim, &p))
        return;
    if (aim == AIM_NOISE && s->tried.num && tried_find(s, &p) >= 0)
        p = s->tried.elem[tried_find(s, &p)];
    else if (aim == AIM_NOISE && !point_verify(s, &p))
        return;
    diag_note(s->ch->lab.diag, s->c->spec->span, "%s: %s", what, point_text(s, &p));
}

/* A layer that every candidate disturbs too much for `require sqnr` without data. */
static bool note_layers(Settle *s)
{
    const Choice *c = s->c;
    bool any = false;
    for (int g = 0; g < c->num_groups; g++) {
        const ChoiceLayer *worst = NULL;
        double best = -INFINITY;
        bool allowed = false;
        for (int k = 0; k < c->num_candidates; k++) {
            double least = INFINITY;
            const ChoiceLayer *at = NULL;
            bool fits = cell_usable(c, g, k);
            for (int i = 0; i < c->num_layers && fits; i++)
                if (c->layer[i].group == g && c->layer[i].cell[k].sqnr <= least) {
                    least = c->layer[i].cell[k].sqnr;
                    at = &c->layer[i];
                }
            for (int i = 0; i < c->spec->requires.num && at; i++) {
                const AutoRequire *r = &c->spec->requires.elem[i];
                if (!r->on && ((r->measure == MEASURE_SQNR && least < r->value) ||
                               (r->measure == MEASURE_COSINE && at->cell[k].cosine < r->value)))
                    fits = false;
            }
            allowed = allowed || fits;
            if (at && least > best) {
                best = least;
                worst = at;
            }
        }
        if (allowed || !worst || any)
            continue;
        diag_note(s->ch->lab.diag, worst->span, "the best candidate gives '%s' %.2f dB",
                  worst->path, best);
        any = true;
    }
    return any;
}

static bool refuse(Settle *s)
{
    const Choice *c = s->c;
    Budget none = budget_of(s->ch, 1), within = budget_of(s->ch, 1);
    none.turn = none.noise = none.bytes = INFINITY;
    for (int b = 0; b < c->num_buckets; b++)
        none.us[b] = INFINITY;
    within.turn = within.noise = INFINITY;
    diag_error(s->ch->lab.diag, c->spec->span, E_AUTO_BUDGET,
               "no choice of formats meets what 'auto' requires");
    if (!note_layers(s)) {
        note_point(s, AIM_NOISE, &within, "the most exact within the other requirements");
        note_point(s, AIM_NOISE, &none, "the most exact of all");
        note_point(s, AIM_BYTES, &none, "the smallest");
        note_point(s, AIM_LATENCY, &none, "the fastest");
    }
    diag_help(s->ch->lab.diag, "loosen what is missed, or add candidates");
    return false;
}

/* Slower layers -------------------------------------------------------------------------------- */

static double layer_latency(const Choice *c, const ChoiceLayer *l, int column)
{
    double us = 0;
    for (int b = 0; b < c->num_buckets; b++)
        us += c->weight[b] * l->cell[column].us[b];
    return us;
}

static void report_slower(Settle *s)
{
    Choice *c = s->c;
    Diag *diag = s->ch->lab.diag;
    for (int i = 0; i < c->num_layers; i++) {
        const ChoiceLayer *l = &c->layer[i];
        if (l->pinned || !strcmp(c->column[c->chosen.pick[l->group]], "keep"))
            continue;
        int column = c->chosen.pick[l->group];
        double us = layer_latency(c, l, column), plain = layer_latency(c, l, c->float_column);
        if (!(us > plain * 1.01))
            continue;
        c->num_slower++;
        if (c->spec->slower == SLOWER_ERROR)
            diag_error(diag, l->span, E_AUTO_SLOWER,
                       "'%s' takes %.2f us as %s, %.2f us unquantised", l->path, us,
                       c->column[column], plain);
        else if (c->spec->slower == SLOWER_WARN)
            diag_warning(diag, l->span, E_AUTO_SLOWER,
                         "'%s' takes %.2f us as %s, %.2f us unquantised", l->path, us,
                         c->column[column], plain);
    }
}

static bool settle(Settle *s)
{
    Choice *c = s->c;
    if (!checks_open(s))
        return false;
    uniforms_fill(c);
    int best = settle_loop(s);
    if (best == -2 || !uniforms_try(s, &best))
        return false;
    if (best < 0)
        return refuse(s);
    c->chosen = s->tried.elem[best];
    c->correction = s->ratio.elem[best];
    c->rules = choice_rules(c, c->arena, c->chosen.pick, text_calibrate(s));
    report_slower(s);
    return true;
}

bool choice_settle(Chooser *ch)
{
    Settle s = {.ch = ch, .c = ch->c, .arena = arena_new(), .held = INFINITY};
    bool ok = settle(&s);
    arena_destroy(s.arena);
    return ok;
}
