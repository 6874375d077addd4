/* The numbers of a choice as JSON, one line a layer, and its front as a picture. Times stand there
 * in nanoseconds, as whole numbers, so that --times reads back what was chosen by. */
#include "choose/internal.h"
#include <string.h>

static void put_number(Sb *sb, double x)
{
    if (isfinite(x))
        sb_put_f64(sb, x);
    else
        sb_put(sb, "null"); /* an error of nothing has no decibels */
}

static void put_text(Sb *sb, const char *text)
{
    sb_put_json_string(sb, text, strlen(text));
}

static void put_times(Sb *sb, const Choice *c, const double *us)
{
    sb_putc(sb, '[');
    for (int b = 0; b < c->num_buckets; b++)
        sb_printf(sb, "%s%.0f", b ? ", " : "", fmax(us[b], 0) * 1000);
    sb_putc(sb, ']');
}

static void put_cell(Sb *sb, const Choice *c, const LayerCell *cell, const char *name)
{
    sb_put(sb, "{\"candidate\": ");
    put_text(sb, name);
    if (cell->why) {
        sb_put(sb, ", \"refused\": ");
        put_text(sb, cell->why);
        sb_putc(sb, '}');
        return;
    }
    sb_put(sb, ", \"sqnr\": ");
    put_number(sb, cell->sqnr);
    sb_put(sb, ", \"cosine\": ");
    put_number(sb, cell->cosine);
    sb_put(sb, ", \"noise\": ");
    put_number(sb, cell->noise);
    sb_printf(sb, ", \"bytes\": %llu, \"source\": ", (unsigned long long)cell->bytes);
    put_text(sb, time_source_name[cell->source]);
    sb_put(sb, ", \"ns\": ");
    put_times(sb, c, cell->us);
    sb_putc(sb, '}');
}

static void put_layer(Sb *sb, const Choice *c, const ChoiceLayer *l)
{
    sb_put(sb, "{\"path\": ");
    put_text(sb, l->path);
    sb_printf(sb, ", \"n\": %lld, \"k\": %lld, \"group\": %d, \"chosen\": ", (long long)l->n,
              (long long)l->k, l->group);
    put_text(sb, l->pinned ? "pinned" : c->column[c->chosen.pick[l->group]]);
    sb_put(sb, ", \"cells\": [");
    if (l->pinned)
        put_cell(sb, c, &l->cell[c->pinned_column], "pinned");
    for (int k = 0, num = 0; k < c->num_candidates && !l->pinned; k++)
        if (strcmp(c->column[k], "keep") != 0) {
            sb_put(sb, num++ ? ", " : "");
            put_cell(sb, c, &l->cell[k], c->column[k]);
        }
    sb_put(sb, l->pinned || c->num_candidates > 1 || strcmp(c->column[0], "keep") ? ", " : "");
    put_cell(sb, c, &l->cell[c->float_column], "keep");
    sb_put(sb, "]}");
}

static void put_point(Sb *sb, const Choice *c, const ChoicePoint *p)
{
    sb_put(sb, "{\"us\": ");
    put_number(sb, p->latency);
    sb_put(sb, ", \"bytes\": ");
    put_number(sb, p->bytes);
    sb_put(sb, ", \"noise\": ");
    put_number(sb, p->noise);
    sb_put(sb, ", \"cosine\": ");
    put_number(sb, p->cosine);
    if (p->verified) {
        sb_put(sb, ", \"measured_cosine\": ");
        put_number(sb, p->measured_cosine);
        sb_put(sb, ", \"measured_sqnr\": ");
        put_number(sb, p->measured_sqnr);
    }
    sb_put(sb, ", \"pick\": [");
    for (int g = 0; g < c->num_groups; g++)
        sb_printf(sb, "%s%d", g ? ", " : "", p->pick[g]);
    sb_put(sb, "]}");
}

static void put_buckets(Sb *sb, const Choice *c)
{
    sb_put(sb, "  \"buckets\": [");
    for (int b = 0; b < c->num_buckets; b++) {
        sb_printf(sb, "%s{", b ? ", " : "");
        for (int i = 0; i < c->num_syms; i++) {
            put_text(sb, c->sym[i]->name);
            sb_printf(sb, ": %lld, ", (long long)c->bucket[b * c->num_syms + i]);
        }
        sb_put(sb, "\"weight\": ");
        put_number(sb, c->weight[b]);
        sb_putc(sb, '}');
    }
    sb_put(sb, "],\n");
}

static void put_seconds(Sb *sb, const Choice *c)
{
    static const char *const step[] = {"calibrate", "errors", "times", "settle"};
    sb_put(sb, "  \"seconds\": {");
    for (size_t i = 0; i < COUNT_OF(step); i++)
        sb_printf(sb, "%s\"%s\": %.2f", i ? ", " : "", step[i], c->seconds[i]);
    sb_put(sb, "},\n");
}

static void put_points(Sb *sb, const Choice *c)
{
    sb_put(sb, "  \"chosen\": ");
    put_point(sb, c, &c->chosen);
    sb_printf(sb, ",\n  \"proven\": %s, \"gap\": ", c->proven ? "true" : "false");
    put_number(sb, c->gap);
    sb_put(sb, ", \"measured_over_estimated\": ");
    put_number(sb, c->correction);
    sb_printf(sb, ", \"runs\": %d,\n", c->rounds);
    put_seconds(sb, c);
    sb_put(sb, "  \"uniform\": [");
    for (int k = 0, num = 0; k < c->num_candidates; k++)
        if (c->uniform[k].pick) {
            sb_put(sb, num++ ? ",\n    " : "\n    ");
            put_point(sb, c, &c->uniform[k]);
        }
    sb_put(sb, "\n  ],\n  \"front\": [");
    for (int i = 0; i < c->num_front; i++) {
        sb_put(sb, i ? ",\n    " : "\n    ");
        put_point(sb, c, &c->front[i]);
    }
    sb_put(sb, "\n  ]\n");
}

void choice_json(Sb *sb, const Choice *c)
{
    sb_put(sb, "{\n  \"candidates\": [");
    for (int k = 0; k < c->num_candidates; k++) {
        sb_put(sb, k ? ", " : "");
        put_text(sb, c->column[k]);
    }
    sb_put(sb, "],\n");
    put_buckets(sb, c);
    sb_put(sb, "  \"fixed_ns\": ");
    put_times(sb, c, c->fixed_us);
    sb_put(sb, ", \"fixed_bytes\": ");
    put_number(sb, c->fixed_bytes);
    sb_put(sb, ",\n  \"layers\": [");
    for (int i = 0; i < c->num_layers; i++) {
        sb_put(sb, i ? ",\n    " : "\n    ");
        put_layer(sb, c, &c->layer[i]);
    }
    sb_put(sb, "\n  ]");
    if (c->num_groups) {
        sb_put(sb, ",\n");
        put_points(sb, c);
    } else {
        sb_putc(sb, '\n');
    }
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
