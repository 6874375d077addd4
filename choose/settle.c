/* The loop: run every candidate alone, solve on the estimates, run the real quantised model on the
 * data that the text names, correct the error budget by what was measured, and again; then the
 * outcome, or why there is none.
 *
 * The estimate adds up noises; the real model is off by some factor, which hardly depends on the
 * choice but on the candidates in it. So each candidate's noises are multiplied by what it measured
 * over its estimate at every layer. What is left is a factor by which the budget is divided: more
 * where the choice missed what is required, less where it left room. Between a factor that missed
 * and one that held the next lies in the middle. */
#include "choose/settle.h"
#include <string.h>

enum { MOST_SOLVES = 14, MOST_RUNS = 7 };

/* Uniform choices ------------------------------------------------------------------------------ */

static void uniform_fill(Settle *s, int column)
{
    Choice *c = s->c;
    ChoicePoint *point = &c->uniform[column];
    int timed = strcmp(c->column[column], "keep") ? column : c->float_column;
    *point = (ChoicePoint){.pick = NULL};
    for (int g = 0; g < c->num_groups; g++)
        if (!cell_usable(c, g, column))
            return;
    point->pick = pick_uniform(c, c->arena, column);
    point_fill(c, point);
    if (!s->is_timed)
        return;
    point->graph_us = c->graph_us + timed * c->num_buckets;
    for (int b = 0; b < c->num_buckets; b++)
        point->measured_us += c->weight[b] * point->graph_us[b];
}

static void uniforms_fill(Settle *s)
{
    s->c->uniform = ARENA_NEW_ARRAY(s->c->arena, ChoicePoint, (size_t)s->c->num_candidates + 1);
    for (int k = 0; k < s->c->num_candidates; k++)
        uniform_fill(s, k);
}

static bool allowed_everywhere(const Choice *c, int column)
{
    for (int g = 0; g < c->num_groups; g++)
        if (!column_allowed(c, g, column))
            return false;
    return true;
}

static double scale_of(double ratio)
{
    return ratio > 0 && isfinite(ratio) ? ratio : 1;
}

/* Candidates that were not run alone are taken to be like the others. */
static void scales_level(Choice *c, const bool *known)
{
    double noise = 0, turn = 0;
    int num = 0;
    for (int k = 0; k < c->num_candidates; k++)
        if (known[k]) {
            noise += c->noise_scale[k];
            turn += c->turn_scale[k];
            num++;
        }
    for (int k = 0; k < c->num_candidates && num; k++)
        if (!known[k]) {
            c->noise_scale[k] = noise / num;
            c->turn_scale[k] = turn / num;
        }
}

/* One candidate everywhere: what it really does tells how far its estimates are off, and it may
 * meet what they say is out of reach. False after an error. */
static bool uniforms_run(Settle *s)
{
    Choice *c = s->c;
    bool *known = ARENA_NEW_ARRAY(s->arena, bool, (size_t)c->num_candidates + 1);
    for (int k = 0; k < c->num_candidates; k++) {
        if (!c->uniform[k].pick || !allowed_everywhere(c, k))
            continue;
        int at = point_try(s, &c->uniform[k]);
        if (at < 0)
            return false;
        known[k] = c->uniform[k].noise > 0;
        c->noise_scale[k] = scale_of(s->tried.elem[at].noise_ratio);
        c->turn_scale[k] = scale_of(s->tried.elem[at].turn_ratio);
    }
    scales_level(c, known);
    for (int k = 0; k < c->num_candidates; k++) {
        int at = c->uniform[k].pick ? tried_find(s, c->uniform[k].pick) : -1;
        if (at >= 0) {
            Tried *t = &s->tried.elem[at];
            point_fill(c, &t->point);
            t->noise_ratio = t->noise_ratio / c->noise_scale[k];
            t->turn_ratio = t->turn_ratio / c->turn_scale[k];
            c->uniform[k] = t->point;
        }
    }
    return true;
}

/* The loop ------------------------------------------------------------------------------------- */

void settle_note(const Settle *s, int at, int *best)
{
    const Tried *t = s->tried.elem;
    if (t[at].good &&
        (*best < 0 || point_cost(s->c, &t[at].point) < point_cost(s->c, &t[*best].point)))
        *best = at;
}

/* The next correction, or 0: nothing is to be gained. */
static double next_correction(Settle *s, double at, double ratio, bool held)
{
    if (held)
        s->held = fmin(s->held, at);
    else
        s->missed = fmax(s->missed, at);
    if (s->missed > 0 && isfinite(s->held))
        return s->held / s->missed < 1.01 ? 0 : sqrt(s->held * s->missed);
    if (held)
        return ratio > 0 && ratio < at * 0.99 ? ratio * 0.999 : 0;
    return fmax(ratio * 1.001, at * 1.05);
}

/* The best choice on the estimates; where nothing is good enough by them, the most exact one may
 * still be on the data. */
static bool solve_for(Settle *s, double correction, bool first, ChoicePoint *ret)
{
    Budget budget = budget_of(s->ch, correction);
    if (choice_solve(s->ch, &budget, aim_of(s->c->spec), ret))
        return true;
    budget.turn = budget.noise = INFINITY;
    return first && choice_solve(s->ch, &budget, AIM_NOISE, ret);
}

/* False after an error. */
static bool settle_loop(Settle *s, int *best)
{
    double correction = 1;
    int before = s->tried.num;
    for (int i = 0; i < MOST_SOLVES && s->tried.num - before < MOST_RUNS && correction > 0; i++) {
        ChoicePoint point;
        bool solved = solve_for(s, correction, !i, &point);
        int at = solved ? point_try(s, &point) : -1;
        if (solved && at < 0)
            return false;
        if (solved) {
            settle_note(s, at, best);
            if (!(s->tried.elem[at].correction > 0))
                s->tried.elem[at].correction = correction;
        }
        if (!has_error_budget(s->c))
            break;
        /* too tight to be solved: as good as held, for the search */
        correction = next_correction(s, correction, solved ? ratio_of(&s->tried.elem[at]) : 0,
                                     !solved || s->tried.elem[at].exact);
    }
    return true;
}

/* What is taken is never worse than one candidate everywhere. False after an error. */
static bool uniforms_note(Settle *s, int *best)
{
    const Choice *c = s->c;
    for (int k = 0; k < c->num_candidates; k++) {
        const ChoicePoint *point = &c->uniform[k];
        if (!point->pick || !point_fits(s, point) ||
            (*best >= 0 && !(point_cost(c, point) < point_cost(c, &s->tried.elem[*best].point))))
            continue;
        int at = point_try(s, point);
        if (at < 0)
            return false;
        settle_note(s, at, best);
    }
    return true;
}

/* How far the best on these numbers is from what was chosen, with the correction at which that was
 * found. */
static void prove(Settle *s, const Tried *chosen)
{
    Choice *c = s->c;
    ChoicePoint best;
    double correction = chosen->correction > 0 ? chosen->correction : scale_of(ratio_of(chosen));
    Budget budget = budget_of(s->ch, correction);
    if (!choice_solve(s->ch, &budget, aim_of(c->spec), &best)) {
        c->proven = false; /* by the numbers nothing holds; what was measured does */
        c->gap = 0;
        return;
    }
    double gap = chosen->point.objective > 0 ? 1 - best.objective / chosen->point.objective : 0;
    c->proven = c->proven && gap < 1e-9;
    c->gap = fmax(c->gap, gap);
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
    int best = -1;
    if (!checks_open(s))
        return false;
    if (s->is_timed) /* a process of its own times choices, and finds the device free */
        probe_close(&s->ch->reference);
    uniforms_fill(s);
    if ((has_error_budget(c) && !uniforms_run(s)) || !settle_loop(s, &best) ||
        !uniforms_note(s, &best) || (s->is_timed && !search_run(s, &best)))
        return false;
    if (best < 0)
        return settle_refuse(s);
    const Tried *chosen = &s->tried.elem[best];
    c->chosen = chosen->point;
    c->correction = ratio_of(chosen);
    c->rules = choice_rules(c, c->arena, c->chosen.pick, text_calibrate(s));
    prove(s, chosen);
    report_slower(s);
    return true;
}

static void tried_keep(const Settle *s)
{
    Choice *c = s->c;
    c->tried = ARENA_NEW_ARRAY(c->arena, ChoicePoint, (size_t)s->tried.num + 1);
    for (int i = 0; i < s->tried.num; i++)
        c->tried[c->num_tried++] = s->tried.elem[i].point;
}

bool choice_settle(Chooser *ch)
{
    const ChooseOptions *o = ch->lab.options;
    Settle s = {.ch = ch, .c = ch->c, .arena = arena_new(), .held = INFINITY};
    s.is_timed = o->device && !o->no_measure && !o->times;
    bool ok = settle(&s);
    tried_keep(&s);
    arena_destroy(s.arena);
    return ok;
}
