/* The parts of random texts; see parts.h. */
#include "tests/random/parts.h"

#include <math.h>
#include <string.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double random_normal(uint64_t *state) /* near enough: a sum of uniform numbers */
{
    double sum = -3;
    for (int i = 0; i < 6; i++)
        sum += (double)(random_next(state) >> 11) * 0x1p-53;
    return sum * 1.4142135623730951;
}

/* Pairs of schemes ----------------------------------------------------------------------------- */

typedef struct Element {
    const char *words; /* format and symmetry */
    bool symmetric, codebook;
} Element;
static const Element elements[] = {
    {"i8 sym", true, false},   {"i8 asym", false, false}, {"u8 asym", false, false},
    {"i4 sym", true, false},   {"i4 asym", false, false}, {"u4 asym", false, false},
    {"e4m3", true, false},     {"e5m2", true, false},     {"e2m1", true, false},
    {"nf4", true, true},       {"fp4", true, true},       {"i2 asym", false, false},
    {"i3 sym", true, false},   {"u3 asym", false, false}, {"i5 asym", false, false},
    {"u6 asym", false, false}, {"ternary", true, false},  {"binary", true, false},
};
static const char *const named[] = {"mxfp8", "mxfp4", "nvfp4"};
static const char *const plain[] = {"f32", "f16", "bf16", ""};
_Static_assert(NUM_ELEMENTS == COUNT_OF(elements) && NUM_NAMED == COUNT_OF(named) &&
                   NUM_PLAIN == COUNT_OF(plain),
               "the tables of parts.h");

int generate_num_pairs(void)
{
    return NUM_WEIGHTS * NUM_ACTS;
}

/* Text ----------------------------------------------------------------------------------------- */

void gen_init(Gen *g, Arena *arena, uint64_t seed)
{
    *g = (Gen){.arena = arena, .state = seed};
    Sb *const sbs[] = {&g->schemes, &g->rules, &g->params, &g->body, &g->blocks, &g->inputs};
    for (size_t i = 0; i < COUNT_OF(sbs); i++)
        sb_init(sbs[i], arena);
}

int draw(Gen *g, int below)
{
    return (int)((random_next(&g->state) >> 16) % (uint64_t)below);
}

void swap_state(Gen *g, uint64_t *state)
{
    uint64_t own = g->state;
    g->state = *state;
    *state = own;
}

bool chance(Gen *g, int percent)
{
    return draw(g, 100) < percent;
}

int draw_cols(Gen *g)
{
    static const int cols[] = {1,  2,  3,  5,  7,  8,  12, 16, 17, 24,
                               31, 32, 33, 40, 48, 64, 65, 96, 128};
    return cols[draw(g, COUNT_OF(cols))];
}

GenValue *value_add(Gen *g, Shape shape)
{
    GenValue *v = &g->value[g->num_values++];
    *v = (GenValue){.shape = shape};
    snprintf(v->name, sizeof v->name, "v%d", g->num_names++);
    return v;
}

bool can_grow(const Gen *g)
{
    return g->num_values + 8 < MAX_VALUES && g->num_params + 16 < MAX_PARAMS;
}

/* A value with at least this many columns, one that nothing uses yet if there is one; -1: none. */
int value_pick(Gen *g, int min_cols)
{
    int best = -1, start = draw(g, g->num_values);
    for (int i = 0; i < g->num_values; i++) {
        int at = (start + i) % g->num_values;
        if (g->value[at].shape.cols < min_cols)
            continue;
        if (best < 0 || (g->value[best].used && !g->value[at].used && chance(g, 80)))
            best = at;
    }
    return best;
}

/* The name of a value, for an expression that uses it. */
const char *use(Gen *g, int value)
{
    g->value[value].used = true;
    return g->value[value].name;
}

const char *format_name(Gen *g)
{
    static const char *const name[] = {"f32", "f16", "bf16"};
    return chance(g, 70) ? g->fmt : name[draw(g, 3)];
}

void param_data(Gen *g, const char *tensor, int rank, int64_t rows, int64_t cols)
{
    static const FormatId stored[] = {FMT_F32, FMT_BF16, FMT_F16};
    GenParam *p = &g->param[g->num_params++];
    *p = (GenParam){.rank = rank, .dim = {rows, cols}, .stored = stored[draw(g, 3)]};
    snprintf(p->tensor, sizeof p->tensor, "%s", tensor);
}

void param_codes(Gen *g, const char *tensor, int64_t rows, int64_t cols, int codes)
{
    param_data(g, tensor, 2, rows, cols);
    g->param[g->num_params - 1].stored = FMT_U8;
    g->param[g->num_params - 1].codes = codes;
}

void param_scales(Gen *g, const char *tensor, int64_t rows, int64_t cols)
{
    param_data(g, tensor, 2, rows, cols);
    g->param[g->num_params - 1].stored = FMT_F32;
}

void param_tables(Gen *g, const char *tensor, int rank, int64_t rows, int64_t cols, int64_t each)
{
    param_data(g, tensor, rank, rows, cols);
    GenParam *p = &g->param[g->num_params - 1];
    p->stored = FMT_F32;
    p->is_table = true;
    p->dim[rank - 1] = each;
}

void param_groups(Gen *g, const char *tensor, int64_t groups, int64_t rows, int64_t cols)
{
    param_data(g, tensor, 3, groups, rows);
    g->param[g->num_params - 1].dim[2] = cols;
}

/* Declares a param of the model and gives it data; its name in a buffer of the arena. */
const char *param_add(Gen *g, int64_t rows, int64_t cols)
{
    const char *name = arena_printf(g->arena, "p%d", g->num_names++);
    const char *tensor = arena_printf(g->arena, "t.%s", name);
    if (rows)
        sb_printf(&g->params, "    param %s: %s[%d, %d] from \"%s\"\n", name, format_name(g),
                  (int)rows, (int)cols, tensor);
    else
        sb_printf(&g->params, "    param %s: %s[%d] from \"%s\"\n", name, format_name(g), (int)cols,
                  tensor);
    param_data(g, tensor, rows ? 2 : 1, rows ? rows : cols, rows ? cols : 0);
    return name;
}

const char *param_add_groups(Gen *g, int64_t groups, int64_t rows, int64_t cols)
{
    const char *name = arena_printf(g->arena, "p%d", g->num_names++);
    const char *tensor = arena_printf(g->arena, "t.%s", name);
    sb_printf(&g->params, "    param %s: %s[%d, %d, %d] from \"%s\"\n", name, format_name(g),
              (int)groups, (int)rows, (int)cols, tensor);
    param_groups(g, tensor, groups, rows, cols);
    return name;
}

/* Schemes -------------------------------------------------------------------------------------- */

static int draw_group(Gen *g, int cols, bool alone)
{
    static const int odd[] = {3, 5, 6, 12, 20};
    if (g->group)
        return g->group;
    int size = odd[draw(g, COUNT_OF(odd))];
    if (alone && chance(g, 25) && size <= cols)
        return size;
    int most = 0;
    while (2 << most <= cols && most < 6)
        most++;
    return 1 << draw(g, most + 1);
}

static void put_scale(Gen *g, const Element *e, bool may_be_whole)
{
    static const char *const scale[] = {"f16", "bf16", "e4m3", "e8m0"};
    int which = draw(g, 8);
    if (which < 3 || (which == 3 && e->symmetric && !e->codebook))
        sb_printf(&g->schemes, " scale %s", scale[which]);
    if (which > 5 && may_be_whole && strstr(e->words, "4 "))
        sb_put(&g->schemes, " scale i8");
}

bool grain_has_groups(int index)
{
    int grain = index % NUM_GRAINS;
    if (index >= NUM_ELEMENTS * NUM_GRAINS)
        return index != NUM_WEIGHTS - 1;
    return grain == GRAIN_GROUP || grain == GRAIN_BLOCK;
}

void put_weight(Gen *g, int index, int cols, bool alone)
{
    if (index == NUM_WEIGHTS - 1)
        return;
    if (index == WHOLE_SCALES) {
        sb_printf(&g->schemes, "weight %s group %d scale i8",
                  g->num_schemes % 2 ? "u4 asym" : "i4 sym", draw_group(g, cols, alone));
        return;
    }
    sb_put(&g->schemes, "weight ");
    if (index >= NUM_ELEMENTS * NUM_GRAINS) {
        sb_put(&g->schemes, named[index - NUM_ELEMENTS * NUM_GRAINS]);
        return;
    }
    const Element *e = &elements[index / NUM_GRAINS];
    int rows; /* drawn apart: compilers differ in the order of arguments */
    sb_put(&g->schemes, e->words);
    switch (index % NUM_GRAINS) {
    case GRAIN_TENSOR: sb_put(&g->schemes, " per tensor"); break;
    case GRAIN_ROW: sb_put(&g->schemes, " per channel"); break;
    case GRAIN_GROUP: sb_printf(&g->schemes, " group %d", draw_group(g, cols, alone)); break;
    default:
        rows = g->rows ? g->rows : 1 + draw(g, 9);
        sb_printf(&g->schemes, " block %dx%d", rows, draw_group(g, cols, alone));
    }
    put_scale(g, e, index % NUM_GRAINS == GRAIN_GROUP);
}

void put_act(Gen *g, int index, int cols, bool alone)
{
    static const char *const range[] = {"static", "static minmax", "static percentile 99.5"};
    int first_named = NUM_ACT_ELEMENTS * NUM_GRAINS;
    int first_plain = first_named + (int)COUNT_OF(named);
    if (index >= first_plain) {
        const char *fmt = plain[index - first_plain];
        if (*fmt)
            sb_printf(&g->schemes, "act %s", fmt);
        return;
    }
    sb_put(&g->schemes, "act ");
    if (index >= first_named) {
        sb_put(&g->schemes, named[index - first_named]);
        return;
    }
    const Element *e = &elements[index / NUM_GRAINS];
    sb_put(&g->schemes, e->words);
    switch (index % NUM_GRAINS) {
    case GRAIN_TENSOR: sb_put(&g->schemes, " per tensor"); break;
    case GRAIN_ROW: sb_put(&g->schemes, " per token"); break;
    case GRAIN_GROUP: sb_printf(&g->schemes, " group %d", draw_group(g, cols, alone)); break;
    default:
        if (g->may_static)
            sb_printf(&g->schemes, " per tensor %s", range[draw(g, 3)]);
        else
            sb_put(&g->schemes, " per tensor dynamic");
        g->has_static = g->has_static || g->may_static;
    }
    put_scale(g, e, false);
}

/* The scheme of the next pair for a layer with at least this K; its name. */
const char *scheme_next(Gen *g, int cols)
{
    uint64_t pair = g->pair++ % (uint64_t)generate_num_pairs();
    int weight = (int)(pair / NUM_ACTS), act = (int)(pair % NUM_ACTS);
    bool act_groups = act < NUM_ACT_ELEMENTS * NUM_GRAINS
                          ? act % NUM_GRAINS == GRAIN_GROUP
                          : act < NUM_ACT_ELEMENTS * NUM_GRAINS + (int)COUNT_OF(named);
    const char *name = arena_printf(g->arena, "s%d", g->num_schemes++);
    if (weight == NUM_WEIGHTS - 1 && act == NUM_ACTS - 1)
        act--; /* a scheme says something */
    sb_printf(&g->schemes, "scheme %s { ", name);
    put_weight(g, weight, cols, !act_groups);
    sb_put(&g->schemes, weight == NUM_WEIGHTS - 1 ? " " : "; ");
    put_act(g, act, cols, !grain_has_groups(weight));
    sb_put(&g->schemes, " }\n");
    g->pairs_used++;
    return name;
}

/* Files ---------------------------------------------------------------------------------------- */

/* Plain, with zero rows, with columns that stick out, huge, small, all one number, or with rows
 * next to the smallest f32. */
static void fill(Gen *g, float *data, int64_t rows, int64_t cols)
{
    int flavour = draw(g, 12);
    double scale = 1 / sqrt((double)cols);
    for (int64_t r = 0; r < rows; r++) {
        bool zero = flavour == 0 && draw(g, 3) == 0;
        for (int64_t c = 0; c < cols; c++) {
            double v = random_normal(&g->state) * scale;
            if (flavour == 1 && c % 7 == 3)
                v *= 20;
            v = flavour == 2 ? v * 50 : flavour == 3 ? v * 1e-4 : flavour == 4 ? scale : v;
            data[r * cols + c] = zero ? 0 : (float)v;
        }
    }
}

bool write_weights(Gen *g, const char *path)
{
    SafetensorsItem *item = ARENA_NEW_ARRAY(g->arena, SafetensorsItem, (size_t)g->num_params);
    for (int i = 0; i < g->num_params; i++) {
        const GenParam *p = &g->param[i];
        int64_t cols = p->rank > 1 ? p->dim[p->rank - 1] : 1;
        int64_t num = p->dim[0] * cols * (p->rank == 3 ? p->dim[1] : 1);
        float *data = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        void *stored = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        if (p->is_table)
            for (int64_t k = 0; k < num; k++)
                data[k] = (float)random_normal(&g->state);
        else if (p->rank > 1)
            fill(g, data, num / cols, cols);
        else
            for (int64_t k = 0; k < num; k++)
                data[k] = (float)(1 + 0.2 * random_normal(&g->state));
        for (int64_t k = 0; p->has_wide && k < num; k++)
            data[k] *= k / cols % 5 == 2 ? 0x1p17f : 1;
        for (int64_t k = 0; p->has_tiny && k < num; k++)
            data[k] *= k / cols % 3 == 1 ? 0x1p-119f : 1;
        for (int64_t k = 0; p->codes && k < num; k++)
            ((uint8_t *)stored)[k] = (uint8_t)draw(g, p->codes);
        if (!p->codes)
            format_from_f32(p->stored, data, stored, (uint64_t)num);
        item[i] = (SafetensorsItem){p->tensor, p->stored, p->rank, p->dim, stored, NULL};
    }
    IoError err;
    bool ok = safetensors_write(path, g->num_params, item, &err);
    if (!ok)
        printf("# %s\n", err.text);
    return ok;
}

bool write_calibration(Gen *g, const char *path)
{
    static const char *const name[] = {"x0", "x1", "x2"};
    SafetensorsItem item[3];
    int64_t dim[3][3];
    for (int i = 0; i < g->num_inputs; i++) {
        int rank = 0;
        int64_t num = 1;
        if (!g->input[i].sym) { /* counts */
            int32_t *count = ARENA_NEW_ARRAY(g->arena, int32_t, (size_t)g->input[i].cols);
            for (int k = 0; k < g->input[i].cols; k++)
                count[k] = k % 8;
            dim[i][0] = g->input[i].cols;
            item[i] = (SafetensorsItem){name[i], FMT_I32, 1, dim[i], count, NULL};
            continue;
        }
        if (g->input[i].groups)
            dim[i][rank++] = g->input[i].groups;
        dim[i][rank++] = 6;
        if (g->input[i].mid)
            dim[i][rank++] = g->input[i].mid;
        dim[i][rank++] = g->input[i].cols;
        for (int k = 0; k < rank; k++)
            num *= dim[i][k];
        float *data = ARENA_NEW_ARRAY(g->arena, float, (size_t)num);
        for (int64_t k = 0; k < num; k++)
            data[k] = (float)(2 * random_normal(&g->state));
        item[i] = (SafetensorsItem){name[i], FMT_F32, rank, dim[i], data, NULL};
    }
    IoError err;
    bool ok = safetensors_write(path, g->num_inputs, item, &err);
    if (!ok)
        printf("# %s\n", err.text);
    return ok;
}

void put_shape(Sb *sb, const char *fmt, Shape shape)
{
    sb_printf(sb, "%s[", shape.sym ? fmt : "i32");
    if (shape.groups)
        sb_printf(sb, "%d, ", shape.groups);
    if (shape.sym)
        sb_printf(sb, "%c, ", shape.sym);
    if (shape.mid)
        sb_printf(sb, "%d, ", shape.mid);
    sb_printf(sb, "%d]", shape.cols);
}
