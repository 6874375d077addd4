/* What `auto` came to: the reason of each layer's format, the front, and every candidate. */
#include "report/report.h"
#include "report/table.h"
#include <math.h>

static double weighted_us(const Choice *c, const double *us)
{
    double sum = 0;
    for (int b = 0; b < c->num_buckets; b++)
        sum += c->weight[b] * us[b];
    return sum;
}

static const ChoiceLayer *find_layer(const Choice *c, const char *path)
{
    for (int i = 0; i < c->num_layers; i++)
        if (!strcmp(c->layer[i].path, path))
            return &c->layer[i];
    return NULL;
}

/* The fastest candidate that would be faster than the one taken; -1: none. */
static int faster_column(const Choice *c, const ChoiceLayer *l, int taken)
{
    int best = -1;
    double best_us = weighted_us(c, l->cell[taken].us);
    for (int k = 0; k <= c->float_column; k++) {
        if (l->cell[k].why || k == taken || weighted_us(c, l->cell[k].us) >= best_us)
            continue;
        best = k;
        best_us = weighted_us(c, l->cell[k].us);
    }
    return best;
}

const char *report_choice_reason(const Report *r, const char *layer)
{
    const Choice *c = r->choice;
    const ChoiceLayer *l = c ? find_layer(c, layer) : NULL;
    if (!l || l->pinned)
        return NULL;
    int taken = c->chosen.pick[l->group], faster = faster_column(c, l, taken);
    const LayerCell *cell = &l->cell[taken], *plain = &l->cell[c->float_column];
    Sb sb;
    sb_init(&sb, r->arena);
    sb_printf(&sb, "auto chose %s: %.2f us, unquantised %.2f; ", c->column[taken],
              weighted_us(c, cell->us), weighted_us(c, plain->us));
    if (cell->noise > 0)
        sb_printf(&sb, "adds %.2g to the outputs' error", cell->noise);
    else
        sb_put(&sb, "adds no error");
    if (faster >= 0)
        sb_printf(&sb, "; %s, the fastest (%.2f us), would add %.2g and take %llu bytes, not %llu",
                  c->column[faster], weighted_us(c, l->cell[faster].us), l->cell[faster].noise,
                  (unsigned long long)l->cell[faster].bytes, (unsigned long long)cell->bytes);
    else
        sb_put(&sb, "; no candidate is faster");
    return sb.text;
}

/* What was asked ------------------------------------------------------------------------------- */

static void put_at(Sb *sb, const AutoAt *at, bool weight)
{
    if (!at->sym)
        return;
    sb_printf(sb, " at %s = %lld", at->sym, (long long)at->size);
    if (weight)
        sb_printf(sb, " : %g", at->weight);
}

static void put_require(Sb *sb, const AutoRequire *require)
{
    switch (require->measure) {
    case MEASURE_COSINE: sb_printf(sb, "cosine >= %.9g", require->value); break;
    case MEASURE_SQNR: sb_printf(sb, "sqnr >= %.9g dB", require->value); break;
    case MEASURE_BYTES: sb_printf(sb, "bytes <= %.9g", require->value); break;
    case MEASURE_LATENCY: sb_printf(sb, "latency <= %.9g us", require->value); break;
    case MEASURE_ERROR: break;
    }
    if (require->on)
        sb_printf(sb, " on %s", require->on);
    put_at(sb, &require->at, false);
}

static const char *asked_text(Arena *arena, const AutoSpec *spec)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_printf(&sb, "Asked: least %s",
              spec->minimize == MEASURE_LATENCY ? "latency"
              : spec->minimize == MEASURE_BYTES ? "bytes"
                                                : "error");
    for (int i = 0; i < spec->at.num; i++) {
        sb_put(&sb, i ? "," : "");
        put_at(&sb, &spec->at.elem[i], true);
    }
    for (int i = 0; i < spec->requires.num; i++) {
        sb_put(&sb, i ? ", " : " with ");
        put_require(&sb, &spec->requires.elem[i]);
    }
    sb_putc(&sb, '.');
    return sb.text;
}

static const char *settled_text(Arena *arena, const Choice *c)
{
    const ChoicePoint *p = &c->chosen;
    Sb sb;
    sb_init(&sb, arena);
    sb_printf(&sb, "Taken: %.2f us, %.0f bytes, estimated cosine %.6f", p->latency, p->bytes,
              p->cosine);
    if (p->verified)
        sb_printf(&sb, "; measured: cosine %.6f, SQNR %.2f dB, error %.3f of the estimate",
                  p->measured_cosine, p->measured_sqnr, c->correction);
    if (c->proven)
        sb_put(&sb, ". On these numbers no other choice is better.");
    else if (p->graph_us)
        sb_printf(&sb,
                  ". Of the choices that were timed it is the best; by sums of layers, which leave "
                  "out what formats cost beside each other, one may be better by %.3f %%.",
                  c->gap * 100);
    else
        sb_printf(&sb, ". A choice better by %.3f %% may exist.", c->gap * 100);
    return sb.text;
}

/* Tables --------------------------------------------------------------------------------------- */

static void put_point(Sb *sb, const char *name, const ChoicePoint *p)
{
    row_begin(sb, NULL);
    cell_text(sb, name);
    cell_real(sb, 2, p->latency);
    cell_real(sb, 0, p->bytes);
    cell_short(sb, p->noise);
    cell_real(sb, 6, p->cosine);
    row_end(sb);
}

static void put_points(Sb *sb, Report *r, const Choice *c)
{
    table_begin(sb, "choice|#weighted us|#bytes|#estimated error (NMSE)|#estimated cosine");
    put_point(sb, "taken", &c->chosen);
    for (int k = 0; k < c->num_candidates; k++)
        if (c->uniform[k].pick)
            put_point(sb, arena_printf(r->arena, "%s everywhere", c->column[k]), &c->uniform[k]);
    for (int i = 0; i < c->num_front; i++)
        put_point(sb, arena_printf(r->arena, "front %d", i + 1), &c->front[i]);
    table_end(sb);
}

static void put_cell(Sb *sb, const Choice *c, const ChoiceLayer *l, int column, bool taken)
{
    const LayerCell *cell = &l->cell[column];
    row_begin(sb, NULL);
    cell_text(sb, l->path);
    cell_text(sb, c->column[column]);
    cell_text(sb, taken ? "taken" : "");
    cell_real(sb, 2, cell->why || isinf(cell->sqnr) ? NAN : cell->sqnr);
    cell_short(sb, cell->why ? NAN : cell->noise);
    cell_count(sb, cell->why ? 0 : cell->bytes);
    cell_real(sb, 2, cell->why ? NAN : weighted_us(c, cell->us));
    cell_text(sb, cell->why ? cell->why : time_source_name[cell->source]);
    row_end(sb);
}

static void put_cells(Sb *sb, const Choice *c)
{
    table_begin(sb, "layer|candidate||#SQNR, dB|#adds to error|#bytes|#weighted us|times from, or "
                    "why it cannot be used");
    for (int i = 0; i < c->num_layers; i++) {
        const ChoiceLayer *l = &c->layer[i];
        int taken = l->pinned ? c->pinned_column : c->chosen.pick[l->group];
        if (l->pinned)
            put_cell(sb, c, l, c->pinned_column, true);
        for (int k = 0; k < c->num_candidates && !l->pinned; k++)
            if (strcmp(c->column[k], "keep") != 0)
                put_cell(sb, c, l, k, k == taken);
        put_cell(sb, c, l, c->float_column, !l->pinned && !strcmp(c->column[taken], "keep"));
    }
    table_end(sb);
}

void report_choice(Sb *sb, Report *r)
{
    const Choice *c = r->choice;
    heading(sb, "Choice of formats");
    if (!c->num_groups) {
        paragraph(sb, "Rules say the format of every layer; auto had nothing to choose.");
        return;
    }
    paragraph(sb, asked_text(r->arena, c->spec));
    paragraph(sb, settled_text(r->arena, c));
    sb_put(sb, "<div class=\"graph\">\n");
    choice_svg(sb, c);
    sb_put(sb, "</div>\n");
    put_points(sb, r, c);
    heading(sb, "Candidates of each layer");
    put_cells(sb, c);
    heading(sb, "Rules that say the same");
    sb_put(sb, "<pre>");
    markup_put(sb, c->standing ? c->standing : "");
    sb_put(sb, "</pre>\n");
}
