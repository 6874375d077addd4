/* Times or errors of an earlier choice, from the JSON that it wrote: for each layer, by path, and
 * candidate the nanoseconds of every bucket, or what the candidate disturbs. What else the file
 * holds is not looked at. */
#include "choose/internal.h"
#include "io/io.h"
#include <stdlib.h>
#include <string.h>

typedef struct Given {
    Chooser *ch;
    Choice *c;
    const char *path;
    bool of_errors; /* and not of times */
    Json j;
    Map layers; /* path -> the first layer of that path */
    bool *seen; /* [layers][columns] */
} Given;

static bool given_fail(Given *g, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool given_fail(Given *g, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, g->ch->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(g->ch->lab.diag, (Span){0}, E_AUTO_TIMING, "%s: %s", g->path, sb.text);
    return false;
}

/* [1200, 56000]: one number a bucket. */
static bool read_times(Given *g, double *us)
{
    bool first = true;
    int num = 0;
    uint64_t ns;
    if (!json_array_begin(&g->j))
        return false;
    while (json_next_element(&g->j, &first)) {
        if (!json_u64(&g->j, &ns))
            return false;
        if (num < g->c->num_buckets)
            us[num] = (double)ns / 1000;
        num++;
    }
    if (g->j.error)
        return false;
    return num == g->c->num_buckets ||
           given_fail(g, "%d times, but the model has %d sizes", num, g->c->num_buckets);
}

static int column_find(const Choice *c, const ChoiceLayer *layer, const char *name)
{
    if (layer->pinned && !strcmp(c->column[c->pinned_column], name))
        return c->pinned_column;
    for (int k = c->float_column; k >= 0; k--) /* keep is the same wherever it stands */
        if (!strcmp(c->column[k], name))
            return k;
    return -1;
}

/* null: infinity */
static bool read_error(Given *g, double *ret)
{
    if (json_peek(&g->j) != 'n')
        return json_f64(&g->j, ret);
    *ret = INFINITY;
    return json_skip(&g->j);
}

/* What a cell holds of what is wanted: ret_num counts its keys. */
static bool read_key(Given *g, const char *key, LayerCell *cell, int *ret_num)
{
    static const char *const name[] = {"sqnr", "cosine", "noise", "turn"};
    double *const error[] = {&cell->sqnr, &cell->cosine, &cell->noise, &cell->turn};
    for (size_t i = 0; i < COUNT_OF(name) && g->of_errors; i++)
        if (!strcmp(key, name[i])) {
            (*ret_num)++;
            return read_error(g, error[i]);
        }
    if (g->of_errors || strcmp(key, "ns") != 0)
        return json_skip(&g->j);
    (*ret_num)++;
    return read_times(g, cell->us);
}

static void cell_take(const Given *g, LayerCell *to, const LayerCell *from)
{
    if (g->of_errors) {
        to->sqnr = from->sqnr;
        to->cosine = from->cosine;
        to->noise = from->noise;
        to->turn = from->turn;
        return;
    }
    memcpy(to->us, from->us, (size_t)g->c->num_buckets * sizeof *to->us);
    to->source = TIME_GIVEN;
}

/* {"candidate": "w8a8", "ns": [..], ..} */
static bool read_cell(Given *g, int layer)
{
    char key[64], name[256] = "";
    bool first = true;
    LayerCell cell = {.us = ARENA_NEW_ARRAY(g->ch->arena, double, (size_t)g->c->num_buckets + 1)};
    int num = 0;
    if (!json_object_begin(&g->j))
        return false;
    while (json_next_key(&g->j, key, sizeof key, &first))
        if (!(!strcmp(key, "candidate") ? json_string(&g->j, name, sizeof name)
                                        : read_key(g, key, &cell, &num)))
            return false;
    int column = layer >= 0 ? column_find(g->c, &g->c->layer[layer], name) : -1;
    if (g->j.error || column < 0 || num < (g->of_errors ? 4 : 1))
        return !g->j.error;
    cell_take(g, &g->c->layer[layer].cell[column], &cell);
    g->seen[layer * g->c->num_columns + column] = true;
    return true;
}

/* {"path": "ffn[3].gate", "cells": [..], ..}; path comes first */
static bool read_layer(Given *g)
{
    char key[64], path[1024] = "";
    bool first = true;
    int layer = -1;
    if (!json_object_begin(&g->j))
        return false;
    while (json_next_key(&g->j, key, sizeof key, &first)) {
        if (!strcmp(key, "path")) {
            if (!json_string(&g->j, path, sizeof path))
                return false;
            const int *at = map_get(&g->layers, path);
            layer = at ? *at : -1;
        } else if (!strcmp(key, "cells")) {
            bool first_cell = true;
            if (!json_array_begin(&g->j))
                return false;
            while (json_next_element(&g->j, &first_cell))
                if (!read_cell(g, layer))
                    return false;
        } else if (!json_skip(&g->j)) {
            return false;
        }
    }
    return !g->j.error;
}

static bool read_all(Given *g)
{
    char key[64];
    bool first = true;
    if (!json_object_begin(&g->j))
        return false;
    while (json_next_key(&g->j, key, sizeof key, &first)) {
        bool ok = true, first_layer = true;
        if (!strcmp(key, "fixed_ns") && !g->of_errors) {
            ok = read_times(g, g->c->fixed_us);
        } else if (!strcmp(key, "layers")) {
            ok = json_array_begin(&g->j);
            while (ok && json_next_element(&g->j, &first_layer))
                ok = read_layer(g);
        } else {
            ok = json_skip(&g->j);
        }
        if (!ok || g->j.error)
            return false;
    }
    return !g->j.error;
}

/* Must the file say it? A pinned layer is the same under every candidate. */
static bool is_needed(const Given *g, const ChoiceLayer *layer, int column)
{
    const Choice *c = g->c;
    if (layer->pinned)
        return column == (g->of_errors ? c->pinned_column : c->float_column);
    return column == c->float_column || (column < c->float_column && !layer->cell[column].why &&
                                         strcmp(c->column[column], "keep") != 0);
}

static bool all_given(Given *g)
{
    const Choice *c = g->c;
    for (int i = 0; i < c->num_layers; i++) {
        const int *at = map_get(&g->layers, c->layer[i].path);
        for (int k = 0; k < c->num_columns && *at == i; k++)
            if (is_needed(g, &c->layer[i], k) && !g->seen[i * c->num_columns + k])
                return given_fail(g, "no %s for layer '%s' under '%s'",
                                  g->of_errors ? "error" : "time", c->layer[i].path, c->column[k]);
    }
    return true;
}

static bool given_read(Chooser *ch, const char *path, bool of_errors)
{
    Choice *c = ch->c;
    Given g = {.ch = ch, .c = c, .path = path, .of_errors = of_errors};
    IoError err;
    uint64_t size;
    char *text = file_read(g.path, LIMIT_SOURCE_BYTES, &size, &err);
    if (!text) {
        diag_error(ch->lab.diag, (Span){0}, err.id, "%s", err.text);
        return false;
    }
    map_init(&g.layers, ch->arena);
    for (int i = 0; i < c->num_layers; i++)
        if (!map_has(&g.layers, c->layer[i].path)) {
            int *at = ARENA_NEW(ch->arena, int);
            *at = i;
            map_put(&g.layers, c->layer[i].path, at);
        }
    g.seen = ARENA_NEW_ARRAY(ch->arena, bool, (size_t)c->num_layers *(size_t)c->num_columns + 1);
    json_init(&g.j, text, size);
    int errors = ch->lab.diag->num_errors;
    bool ok = read_all(&g);
    if (!ok && ch->lab.diag->num_errors == errors)
        given_fail(&g, "%s", g.j.error ? g.j.error : "not the JSON of a choice");
    ok = ok && all_given(&g);
    free(text);
    return ok;
}

bool times_read(Chooser *ch)
{
    return given_read(ch, ch->lab.options->times, false);
}

bool errors_read(Chooser *ch)
{
    const Choice *c = ch->c;
    for (int i = 0; i < c->num_layers; i++)
        for (int k = 0; k < c->num_candidates; k++)
            if (!strcmp(c->column[k], "keep")) {
                c->layer[i].cell[k].sqnr = INFINITY;
                c->layer[i].cell[k].cosine = 1;
            }
    return given_read(ch, ch->lab.options->errors, true);
}
