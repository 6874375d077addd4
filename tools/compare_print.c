/* eval --against: the comparison as a table and as JSON. */
#include "driver/compare.h"
#include <math.h>
#include <string.h>

void json_distance(Sb *sb, const Distance *d)
{
    json_count(sb, "elements", d->num);
    json_number(sb, "max_abs", d->max_abs);
    json_number(sb, "mean_abs", d->mean_abs);
    json_number(sb, "cosine", d->cosine);
    json_number(sb, "sqnr_db", d->sqnr);
}

static void put_cells(const CompareRow *row, int v)
{
    const Distance *d = &row->d[v];
    printf("  %8.2f  %9.7f  %10.4g  %10.4g", d->sqnr, d->cosine, d->max_abs, d->mean_abs);
    if (isnan(row->clipped[v]))
        printf("  %8s", "-");
    else
        printf("  %7.3f%%", 100 * row->clipped[v]);
}

static void put_table(const Comparison *c)
{
    int width = 8;
    for (int i = 0; i < c->rows.num; i++) {
        int len = (int)strlen(c->rows.elem[i].name);
        width = len > width ? len : width;
    }
    for (int v = 0; v < c->num_variants; v++)
        printf("%c: %s\n", 'a' + v, c->variant[v]);
    if (c->reference)
        printf("against: %s\n", c->reference);
    printf("%-*s", width, "");
    for (int v = 0; v < c->num_variants; v++)
        printf("  %6s %c  %9s  %10s  %10s  %8s", "sqnr", 'a' + v, "cosine", "largest", "mean",
               "clipped");
    printf("\n");
    for (int i = 0; i < c->rows.num; i++) {
        const CompareRow *row = &c->rows.elem[i];
        if (!row->is_layer && !c->reference && (i == 0 || c->rows.elem[i - 1].is_layer))
            printf("outputs\n");
        printf("%-*s", width, row->name);
        for (int v = 0; v < c->num_variants; v++)
            put_cells(row, v);
        printf("\n");
    }
}

static void put_logits(const Comparison *c)
{
    for (int v = 0; v < c->num_variants && c->logits; v++) {
        printf("%c: %s of %lld rows: divergence %.4g nats, same choice %.4f", 'a' + v, c->logits,
               (long long)c->num_rows, c->divergence[v], c->agreement[v]);
        if (c->has_labels)
            printf(", accuracy %.4f (%s %.4f)", c->accuracy[v],
                   c->reference ? "reference" : "float", c->float_accuracy);
        printf("\n");
    }
}

static void variant_json(const Comparison *c, int v, Sb *sb)
{
    sb_put(sb, v ? ", {" : "{");
    json_text(sb, "name", c->variant[v]);
    if (c->logits) {
        json_text(sb, "logits", c->logits);
        json_count(sb, "rows", (uint64_t)c->num_rows);
        json_number(sb, "divergence_nats", c->divergence[v]);
        json_number(sb, "agreement", c->agreement[v]);
    }
    if (c->has_labels) {
        json_number(sb, "accuracy", c->accuracy[v]);
        json_number(sb, c->reference ? "reference_accuracy" : "float_accuracy", c->float_accuracy);
    }
    for (int layers = 1; layers >= 0; layers--) {
        bool first = true;
        json_key(sb, layers ? "layers" : "outputs");
        sb_putc(sb, '[');
        for (int i = 0; i < c->rows.num; i++) {
            const CompareRow *row = &c->rows.elem[i];
            if (row->is_layer != layers)
                continue;
            sb_put(sb, first ? "\n  {" : ",\n  {");
            first = false;
            json_text(sb, "name", row->name);
            json_distance(sb, &row->d[v]);
            if (!isnan(row->clipped[v]))
                json_number(sb, "clipped", row->clipped[v]);
            sb_putc(sb, '}');
        }
        sb_putc(sb, ']');
    }
    sb_putc(sb, '}');
}

void comparison_json(const Comparison *c, Sb *sb)
{
    json_text(sb, "device", c->device);
    json_key(sb, "variants");
    sb_putc(sb, '[');
    for (int v = 0; v < c->num_variants; v++)
        variant_json(c, v, sb);
    sb_putc(sb, ']');
}

int eval_compare(Work *w, const char *path)
{
    Comparison c;
    int exit_code = EXIT_INPUT;
    const char *other = cli_get(w->cli, OPTION_AGAINST, NULL);
    if (!strcmp(other, "float"))
        other = NULL;
    if (!comparison_make(&c, w, path, other, &exit_code))
        return exit_code;
    if (!cli_has(w->cli, OPTION_JSON)) {
        put_table(&c);
        put_logits(&c);
        return EXIT_OK;
    }
    Sb sb;
    sb_init(&sb, w->arena);
    sb_putc(&sb, '{');
    json_text(&sb, "model", w->module ? w->module->name : path);
    json_text(&sb, "reference", c.reference ? c.reference : "float");
    comparison_json(&c, &sb);
    sb_put(&sb, "}\n");
    work_put(w, NULL, sb.text, sb.len);
    return EXIT_OK;
}
