/* Where no choice meets what is required: why, and the nearest ones. */
#include "choose/settle.h"
#include <string.h>

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
    int at = aim == AIM_NOISE ? point_try(s, &p) : tried_find(s, p.pick);
    if (at >= 0)
        p = s->tried.elem[at].point;
    else if (aim == AIM_NOISE)
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

bool settle_refuse(Settle *s)
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
