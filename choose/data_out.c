/* The numbers of a choice as JSON, one line a layer, and its front as a picture. Times stand there
 * in nanoseconds, as whole numbers, so that --times reads back what was chosen by. */
#include "choose/internal.h"
#include <string.h>

static void put_times(Sb *sb, const Choice *c, const char *key, const double *us)
{
    json_key(sb, key);
    sb_putc(sb, '[');
    for (int b = 0; b < c->num_buckets; b++)
        sb_printf(sb, "%s%.0f", b ? ", " : "", fmax(us[b], 0) * 1000);
    sb_putc(sb, ']');
}

static void put_cell(Sb *sb, const Choice *c, const LayerCell *cell, const char *name)
{
    json_next(sb);
    sb_putc(sb, '{');
    json_text(sb, "candidate", name);
    if (cell->why) {
        json_text(sb, "refused", cell->why);
    } else {
        json_number(sb, "sqnr", cell->sqnr); /* an error of nothing has no decibels */
        json_number(sb, "cosine", cell->cosine);
        json_number(sb, "noise", cell->noise);
        json_number(sb, "turn", cell->turn);
        json_count(sb, "bytes", cell->bytes);
        json_text(sb, "source", time_source_name[cell->source]);
        put_times(sb, c, "ns", cell->us);
    }
    sb_putc(sb, '}');
}

static void put_layer(Sb *sb, const Choice *c, const ChoiceLayer *l)
{
    sb_putc(sb, '{');
    json_text(sb, "path", l->path);
    if (l->experts)
        json_count(sb, "experts", (uint64_t)l->experts);
    json_count(sb, "n", (uint64_t)l->n);
    json_count(sb, "k", (uint64_t)l->k);
    json_count(sb, "group", (uint64_t)l->group);
    json_text(sb, "chosen", l->pinned ? "pinned" : c->column[c->chosen.pick[l->group]]);
    json_key(sb, "cells");
    sb_putc(sb, '[');
    if (l->pinned)
        put_cell(sb, c, &l->cell[c->pinned_column], "pinned");
    for (int k = 0; k < c->num_candidates && !l->pinned; k++)
        if (strcmp(c->column[k], "keep") != 0)
            put_cell(sb, c, &l->cell[k], c->column[k]);
    put_cell(sb, c, &l->cell[c->float_column], "keep");
    sb_put(sb, "]}");
}

static void put_point(Sb *sb, const Choice *c, const ChoicePoint *p)
{
    sb_putc(sb, '{');
    json_number(sb, "us", p->latency);
    json_number(sb, "bytes", p->bytes);
    json_number(sb, "noise", p->noise);
    json_number(sb, "cosine", p->cosine);
    if (p->verified) {
        json_number(sb, "measured_cosine", p->measured_cosine);
        json_number(sb, "measured_sqnr", p->measured_sqnr);
    }
    if (p->measured_us > 0) {
        json_number(sb, "measured_us", p->measured_us);
        put_times(sb, c, "graph_ns", p->graph_us);
    }
    json_key(sb, "pick");
    sb_putc(sb, '[');
    for (int g = 0; g < c->num_groups; g++)
        sb_printf(sb, "%s%d", g ? ", " : "", p->pick[g]);
    sb_put(sb, "]}");
}

static void put_buckets(Sb *sb, const Choice *c)
{
    json_key(sb, "buckets");
    sb_putc(sb, '[');
    for (int b = 0; b < c->num_buckets; b++) {
        json_next(sb);
        sb_putc(sb, '{');
        for (int i = 0; i < c->num_syms; i++)
            json_count(sb, c->sym[i]->name, (uint64_t)c->bucket[b * c->num_syms + i]);
        json_number(sb, "weight", c->weight[b]);
        sb_putc(sb, '}');
    }
    sb_putc(sb, ']');
}

static void put_seconds(Sb *sb, const Choice *c)
{
    static const char *const step[] = {"calibrate", "errors", "times", "settle"};
    json_key(sb, "seconds");
    sb_putc(sb, '{');
    for (size_t i = 0; i < COUNT_OF(step); i++)
        json_number(sb, step[i], round(c->seconds[i] * 100) / 100);
    sb_putc(sb, '}');
}

static void put_list(Sb *sb, const Choice *c, const char *key, const ChoicePoint *point, int num)
{
    json_key(sb, key);
    sb_putc(sb, '[');
    for (int i = 0, written = 0; i < num; i++)
        if (point[i].pick) {
            sb_put(sb, written++ ? ",\n    " : "\n    ");
            put_point(sb, c, &point[i]);
        }
    sb_putc(sb, ']');
}

static void put_points(Sb *sb, const Choice *c)
{
    json_key(sb, "chosen");
    put_point(sb, c, &c->chosen);
    json_bool(sb, "proven", c->proven);
    json_number(sb, "gap", c->gap);
    json_number(sb, "measured_over_estimated", c->correction);
    json_key(sb, "noise_scale");
    sb_putc(sb, '[');
    for (int k = 0; k < c->num_candidates; k++) {
        sb_put(sb, k ? ", " : "");
        sb_put_f64(sb, c->noise_scale[k]);
    }
    sb_putc(sb, ']');
    json_count(sb, "runs", (uint64_t)c->rounds);
    put_seconds(sb, c);
    put_list(sb, c, "uniform", c->uniform, c->num_candidates);
    put_list(sb, c, "tried", c->tried, c->num_tried);
    put_list(sb, c, "front", c->front, c->num_front);
}

void choice_json(Sb *sb, const Choice *c)
{
    sb_putc(sb, '{');
    json_texts(sb, "candidates", c->column, c->num_candidates);
    if (c->device)
        json_text(sb, "device", c->device);
    put_buckets(sb, c);
    put_times(sb, c, "fixed_ns", c->fixed_us);
    json_number(sb, "fixed_bytes", c->fixed_bytes);
    json_key(sb, "layers");
    sb_putc(sb, '[');
    for (int i = 0; i < c->num_layers; i++) {
        sb_put(sb, i ? ",\n    " : "\n    ");
        put_layer(sb, c, &c->layer[i]);
    }
    sb_putc(sb, ']');
    if (c->num_groups)
        put_points(sb, c);
    sb_put(sb, "}\n");
}

/* The picture --------------------------------------------------------------------------------- */

enum { WIDTH = 720, HEIGHT = 420, LEFT = 80, RIGHT = 20, TOP = 40, BOTTOM = 60 };

typedef struct Axes {
    double x0, x1, y0, y1; /* microseconds; decades of noise */
} Axes;

static double noise_log(const ChoicePoint *p)
{
    return log10(fmax(p->noise, 1e-12));
}

static void axes_hold(Axes *a, const ChoicePoint *p)
{
    a->x0 = fmin(a->x0, p->latency);
    a->x1 = fmax(a->x1, p->latency);
    if (p->noise <= 0)
        return;
    a->y0 = fmin(a->y0, noise_log(p));
    a->y1 = fmax(a->y1, noise_log(p));
}

static double at_x(const Axes *a, const ChoicePoint *p)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (p->latency - a->x0) / (a->x1 - a->x0);
}

/* Less error is lower; none at all lies on the axis. */
static double at_y(const Axes *a, const ChoicePoint *p)
{
    double y = p->noise > 0 ? noise_log(p) : a->y0;
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - a->y0) / (a->y1 - a->y0);
}

static void svg_dot(Sb *sb, const Axes *a, const ChoicePoint *p, const char *colour,
                    const char *label)
{
    double x = at_x(a, p), y = at_y(a, p);
    bool right = x > WIDTH - 140;
    sb_printf(sb, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x, y, colour);
    sb_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
              x + (right ? -9 : 9), y - 6, right ? "end" : "start", label);
}

static void svg_axes(Sb *sb, const Axes *a)
{
    sb_printf(sb, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n", LEFT, TOP,
              HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i <= 4; i++) {
        double us = a->x0 + (a->x1 - a->x0) * i / 4;
        sb_printf(sb, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*f</text>\n",
                  LEFT + (WIDTH - LEFT - RIGHT) * i / 4.0, HEIGHT - BOTTOM + 18, us < 100 ? 2 : 0,
                  us);
    }
    for (int y = (int)ceil(a->y0); y <= (int)floor(a->y1); y++) {
        double at = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - a->y0) / (a->y1 - a->y0);
        sb_printf(sb, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, at, WIDTH - RIGHT);
        sb_printf(sb, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", LEFT - 8,
                  at + 4, y);
    }
    sb_printf(sb, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">weighted microseconds</text>\n",
              (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16);
    sb_printf(sb, "<text x=\"%d\" y=\"22\">estimated error of the outputs (NMSE)</text>\n", 12);
}

void choice_svg(Sb *sb, const Choice *c)
{
    Axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < c->num_front; i++)
        axes_hold(&a, &c->front[i]);
    for (int k = 0; k < c->num_candidates && c->num_groups; k++)
        if (c->uniform[k].pick)
            axes_hold(&a, &c->uniform[k]);
    if (c->num_groups)
        axes_hold(&a, &c->chosen);
    if (!(a.x1 > a.x0))
        a.x1 = (a.x0 = isfinite(a.x0) ? a.x0 : 0) + 1;
    if (!(a.y1 > a.y0))
        a.y1 = (a.y0 = isfinite(a.y0) ? a.y0 - 0.5 : -6) + 1;
    sb_printf(sb,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
              "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" "
              "height=\"100%%\" fill=\"white\"/>\n",
              WIDTH, HEIGHT);
    svg_axes(sb, &a);
    sb_put(sb, "<polyline fill=\"none\" stroke=\"#2a6fb0\" stroke-width=\"2\" points=\"");
    for (int i = 0; i < c->num_front; i++)
        sb_printf(sb, "%s%.1f,%.1f", i ? " " : "", at_x(&a, &c->front[i]), at_y(&a, &c->front[i]));
    sb_put(sb, "\"/>\n");
    for (int k = 0; k < c->num_candidates && c->num_groups; k++)
        if (c->uniform[k].pick)
            svg_dot(sb, &a, &c->uniform[k], "#999", c->column[k]);
    if (c->num_groups)
        svg_dot(sb, &a, &c->chosen, "#c0392b", "chosen");
    sb_put(sb, "</svg>\n");
}
