/* What was chosen and why, for people: one line a layer, then what the choice comes to. */
#include "choose/internal.h"
#include <string.h>

static const LayerCell *chosen_cell(const Choice *c, const ChoiceLayer *l)
{
    return &l->cell[l->pinned ? c->pinned_column : c->chosen.pick[l->group]];
}

static int path_width(const Choice *c)
{
    size_t width = 5;
    for (int i = 0; i < c->num_layers; i++) {
        size_t len = strlen(c->layer[i].path);
        width = len > width ? len : width;
    }
    return width > 40 ? 40 : (int)width;
}

static int column_width(const Choice *c)
{
    size_t width = 6;
    for (int k = 0; k < c->num_columns; k++) {
        size_t len = strlen(c->column[k]);
        width = len > width ? len : width;
    }
    return (int)width;
}

static void bucket_name(Sb *sb, const Choice *c, int b)
{
    for (int i = 0; i < c->num_syms; i++)
        sb_printf(sb, "%s%s=%lld", i ? "," : "", c->sym[i]->name,
                  (long long)c->bucket[b * c->num_syms + i]);
}

/* Only the sizes that count. */
static void put_head(Sb *sb, const Choice *c)
{
    sb_printf(sb, "%-*s  %-*s  %8s  %9s  %10s", path_width(c), "layer", column_width(c), "chosen",
              "sqnr dB", "cosine", "bytes");
    for (int b = 0; b < c->num_buckets; b++) {
        Sb name;
        if (c->weight[b] <= 0)
            continue;
        sb_init(&name, c->arena);
        sb_put(&name, "us ");
        bucket_name(&name, c, b);
        sb_printf(sb, "  %10s  %10s", name.text, "(keep)");
    }
    sb_putc(sb, '\n');
}

static void put_sqnr(Sb *sb, double sqnr)
{
    if (isinf(sqnr))
        sb_printf(sb, "  %8s", "exact");
    else
        sb_printf(sb, "  %8.2f", sqnr);
}

static void put_layer(Sb *sb, const Choice *c, const ChoiceLayer *l)
{
    const LayerCell *cell = chosen_cell(c, l), *plain = &l->cell[c->float_column];
    const char *name = l->pinned ? "pinned" : c->column[c->chosen.pick[l->group]];
    sb_printf(sb, "%-*s  %-*s", path_width(c), l->path, column_width(c), name);
    put_sqnr(sb, cell->sqnr);
    sb_printf(sb, "  %9.6f  %10llu", cell->cosine, (unsigned long long)cell->bytes);
    for (int b = 0; b < c->num_buckets; b++)
        if (c->weight[b] > 0)
            sb_printf(sb, "  %10.2f  %10.2f", cell->us[b], plain->us[b]);
    sb_putc(sb, '\n');
}

static void put_point(Sb *sb, const ChoicePoint *p)
{
    sb_printf(sb, "%10.2f us  %12.0f bytes  estimated cosine %.6f", p->latency, p->bytes,
              p->cosine);
}

static ChoicePoint point_float(const Choice *c)
{
    ChoicePoint p = {.pick = ARENA_NEW_ARRAY(c->arena, int, (size_t)c->num_groups + 1)};
    for (int g = 0; g < c->num_groups; g++)
        p.pick[g] = c->float_column;
    point_fill(c, &p);
    return p;
}

/* "measured", or where sources differ "40 shipped table, 56 cost model". */
static void put_sources(Sb *sb, const Choice *c)
{
    int num[TIME_MODEL + 1] = {0}, all = 0, kinds = 0;
    for (int i = 0; i < c->num_layers; i++)
        for (int k = 0; k <= c->float_column; k++)
            num[c->layer[i].cell[k].why ? TIME_NONE : c->layer[i].cell[k].source]++;
    for (int s = TIME_GIVEN; s <= TIME_MODEL; s++)
        kinds += num[s] > 0;
    for (int s = TIME_GIVEN; s <= TIME_MODEL; s++) {
        if (!num[s])
            continue;
        sb_put(sb, all++ ? ", " : "");
        if (kinds > 1)
            sb_printf(sb, "%d ", num[s]);
        sb_put(sb, time_source_name[s]);
        if (s == TIME_MEASURED && c->device)
            sb_printf(sb, " on %s", c->device);
    }
    if (c->num_kept)
        sb_printf(sb, " (%d of %d by an earlier command)", c->num_kept, c->num_timed);
    if (c->num_held_up)
        sb_printf(sb, " (other processes held up %d of %d)", c->num_held_up, c->num_timed);
}

static void put_summary(Sb *sb, const Choice *c)
{
    const ChoicePoint *p = &c->chosen;
    ChoicePoint plain = point_float(c);
    int width = column_width(c);
    sb_printf(sb, "%-*s ", width, "chosen");
    put_point(sb, p);
    sb_printf(sb, "\n%-*s ", width, "keep");
    put_point(sb, &plain);
    for (int k = 0; k < c->num_candidates; k++) {
        if (!strcmp(c->column[k], "keep"))
            continue;
        sb_printf(sb, "\n%-*s ", width, c->column[k]);
        if (c->uniform[k].pick)
            put_point(sb, &c->uniform[k]);
        else
            sb_put(sb, " cannot be used everywhere");
    }
    sb_printf(
        sb, "\nmeasured: cosine %.6f, sqnr %.2f dB; error %.3f of the estimate after %d run%s\n",
        p->measured_cosine, p->measured_sqnr, c->correction, c->rounds, c->rounds == 1 ? "" : "s");
    if (p->measured_us > 0)
        sb_printf(sb, "as a whole on %s: %.2f us, %+.1f %% of the estimate\n", c->device,
                  p->measured_us, 100 * (p->measured_us / p->latency - 1));
    if (c->proven)
        sb_put(sb, "proven: on these numbers no other choice is better\n");
    else if (p->graph_us)
        sb_printf(sb,
                  "the best that was timed; by sums of layers, which leave out what formats cost "
                  "beside each other, one may be better by %.3f %%\n",
                  c->gap * 100);
    else
        sb_printf(sb, "not proven: a choice better by %.3f %% may exist\n", c->gap * 100);
}

void choice_print(Sb *sb, const Choice *c)
{
    if (!c->num_groups) {
        sb_put(sb, "auto: rules say the format of every layer\n");
        return;
    }
    sb_printf(sb, "auto: %d layer%s in %d group%s, %d candidate%s; times: ", c->num_layers,
              c->num_layers == 1 ? "" : "s", c->num_groups, c->num_groups == 1 ? "" : "s",
              c->num_candidates, c->num_candidates == 1 ? "" : "s");
    put_sources(sb, c);
    sb_putc(sb, '\n');
    put_head(sb, c);
    for (int i = 0; i < c->num_layers; i++)
        put_layer(sb, c, &c->layer[i]);
    put_summary(sb, c);
}
