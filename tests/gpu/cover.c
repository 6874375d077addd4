/* Coverage of the checker; see cover.h. */
#include "tests/gpu/cover.h"

#include "codegen/cuda/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const step_name[NUM_TILE_OPS] = {
    [TILE_ROUND] = "cast",
    [TILE_RMSNORM] = "rmsnorm",
    [TILE_LAYERNORM] = "layernorm",
    [TILE_SOFTMAX] = "softmax",
    [TILE_STORE] = "store",
    [TILE_QUANTIZE] = "quantise",
    [TILE_CODE_SUM] = "sum of codes",
#define ELEMENTWISE(ID, name, arity, f32_expr, f64_expr) [TILE_##ID] = (name),
#include "numerics/elementwise.def"
#undef ELEMENTWISE
};

static const char *const scheme_name[NUM_COVER_SCHEMES] = {
    [COVER_PLAIN] = "plain",
    [COVER_TENSOR] = "tensor",
    [COVER_ROW] = "row",
    [COVER_GROUP] = "group",
    [COVER_BLOCK] = "block",
    [COVER_STATIC] = "static",
    [COVER_MX] = "mx",
    [COVER_NVFP4] = "nvfp4",
    [COVER_ASYM + COVER_TENSOR] = "tensor+zero",
    [COVER_ASYM + COVER_ROW] = "row+zero",
    [COVER_ASYM + COVER_GROUP] = "group+zero",
    [COVER_ASYM + COVER_BLOCK] = "block+zero",
    [COVER_ASYM + COVER_STATIC] = "static+zero",
};

/* What a product's source has where it goes this way. */
static const struct {
    const char *text, *name;
} way[NUM_COVER_WAYS] = {
    {"row_see<", "ranges of results"}, {"void half(", "halves of runs"},
    {"kGather = 2;", "K over two"},    {"kGather = 3;", "K over three"},
    {"kGather = 4;", "K over four"},
};

/* Counting ------------------------------------------------------------------------------------- */

static void count(Count *c, bool is_first)
{
    c->kernels += is_first;
    c->shapes++;
}

static int scheme_kind(const PlanTensor *t)
{
    const Scheme *s = &t->scheme;
    int kind = COVER_TENSOR;
    if (!t->quantised)
        return COVER_PLAIN;
    if (s->scale_fmt == FMT_E8M0)
        return COVER_MX;
    if (s->outer)
        return COVER_NVFP4;
    if (t->is_static)
        kind = COVER_STATIC;
    else if (s->block[0] > 1)
        kind = COVER_BLOCK;
    else if (s->block[1] > 0)
        kind = COVER_GROUP;
    else if (s->block[0] == 1)
        kind = COVER_ROW;
    return kind + (s->zero != ZERO_NONE ? COVER_ASYM : 0);
}

/* Each kind of step once, however often it occurs. */
static void mark_steps(const PlanProgram *p, bool *has)
{
    for (int i = 0; i < p->num_steps; i++)
        has[p->step[i].op] = true;
}

/* Row programs count for each format that they quantise to, else for that of operand 0. */
static void count_tile(Cover *c, const Plan *p, const PlanLaunch *l, bool is_first)
{
    bool done[NUM_FORMATS] = {false}, any = false;
    for (int i = 0; i < l->program.num_steps; i++) {
        const TileStep *s = &l->program.step[i];
        if (s->op != TILE_QUANTIZE)
            continue;
        FormatId fmt = p->tensor[l->operand[s->tensor].tensor].fmt;
        if (!done[fmt])
            count(&c->formats[CUDA_TILE][fmt][0], is_first);
        done[fmt] = any = true;
    }
    if (!any)
        count(&c->formats[CUDA_TILE][p->tensor[l->operand[0].tensor].fmt][0], is_first);
}

void cover_add(Cover *c, const Built *b, int bucket, bool is_first)
{
    const Plan *p = b->cuda.target.plan;
    for (int i = 0; i < p->num_launches; i++) {
        const PlanLaunch *l = &p->launch[i];
        int kernel = b->cuda.code.launch[i * p->num_buckets + bucket].kernel;
        if (kernel < 0)
            continue;
        bool has[NUM_TILE_OPS] = {false};
        CudaFamily family = b->cuda.source[kernel].family;
        if (l->family == LAUNCH_GEMM) {
            const PlanTensor *x = &p->tensor[l->a], *w = &p->tensor[l->w];
            count(&c->formats[family][x->fmt][w->fmt], is_first);
            count(&c->schemes[family][scheme_kind(x)][scheme_kind(w)], is_first);
            if (l->grouped)
                count(&c->grouped[family][x->fmt][w->fmt], is_first);
            if (w->packed)
                count(&c->layouts[family][w->pack_spec.layout], is_first);
            for (int j = 0; j < NUM_COVER_WAYS; j++)
                if (strstr(b->cuda.source[kernel].text, way[j].text))
                    count(&c->ways[family][j], is_first);
            for (int k = 0; k < l->num_segments; k++)
                mark_steps(&l->segment[k].epilogue, has);
        } else if (l->family == LAUNCH_DECODE) {
            count(&c->formats[family][p->tensor[l->dst].fmt][p->tensor[l->src].fmt], is_first);
            count(&c->layouts[family][p->tensor[l->src].pack_spec.layout], is_first);
        } else if (l->family == LAUNCH_ROUTE) {
            for (int k = 1; k <= plan_route_results(l->route); k++) {
                int to = l->operand[l->num_operands - k].tensor;
                count(&c->formats[family][p->tensor[to].fmt][0], is_first);
            }
        } else if (l->family == LAUNCH_MOVE) {
            count(&c->formats[family][p->tensor[l->dst].fmt][0], is_first);
        } else {
            count_tile(c, p, l, is_first);
            if (l->grouped)
                count(&c->grouped[family][0][0], is_first);
            mark_steps(&l->program, has);
        }
        for (int op = 0; op < NUM_TILE_OPS; op++)
            if (has[op] && step_name[op])
                count(&c->steps[family][op], is_first);
    }
}

void cover_merge(Cover *c, const Cover *other)
{
    Count *to = (Count *)(void *)c;
    const Count *from = (const Count *)(const void *)other;
    for (size_t i = 0; i < sizeof *c / sizeof *to; i++) {
        to[i].kernels += from[i].kernels;
        to[i].shapes += from[i].shapes;
    }
}

/* Printing: kernels/shapes --------------------------------------------------------------------- */

static void print_count(const char *name, Count n)
{
    if (n.kernels)
        printf(" %s %" PRIu32 "/%" PRIu32, name, n.kernels, n.shapes);
}

static bool any(const Count *row, int num)
{
    for (int i = 0; i < num; i++)
        if (row[i].kernels)
            return true;
    return false;
}

static void print_products(const Cover *c, CudaFamily f)
{
    for (int a = 0; a < NUM_FORMATS; a++) {
        if (!any(c->formats[f][a], NUM_FORMATS))
            continue;
        printf("# cover %s %s x", cuda_family_name[f], format_info[a].name);
        for (int w = 0; w < NUM_FORMATS; w++)
            print_count(format_info[w].name, c->formats[f][a][w]);
        puts("");
    }
    for (int a = 0; a < NUM_COVER_SCHEMES; a++) {
        if (!any(c->schemes[f][a], NUM_COVER_SCHEMES))
            continue;
        printf("# cover %s, %s x", cuda_family_name[f], scheme_name[a]);
        for (int w = 0; w < NUM_COVER_SCHEMES; w++)
            print_count(scheme_name[w], c->schemes[f][a][w]);
        puts("");
    }
}

static void print_layouts(const Cover *c, CudaFamily f)
{
    if (!any(c->layouts[f], NUM_CUDA_PACKED))
        return;
    printf("# cover %s of", cuda_family_name[f]);
    for (int l = 0; l < NUM_CUDA_PACKED; l++)
        print_count(cuda_layout[l].name, c->layouts[f][l]);
    puts("");
}

/* what: behind the family's name. */
static void print_sum(const Count of[NUM_FORMATS][NUM_FORMATS], CudaFamily f, const char *what,
                      uint32_t least)
{
    Count sum = {0, 0};
    int pairs = 0, enough = 0;
    for (int a = 0; a < NUM_FORMATS; a++)
        for (int w = 0; w < NUM_FORMATS; w++) {
            Count n = of[a][w];
            sum.kernels += n.kernels;
            sum.shapes += n.shapes;
            pairs += n.kernels > 0;
            enough += n.shapes >= least && n.kernels;
        }
    if (!pairs)
        return;
    printf("# cover %s%s: %" PRIu32 " kernels, %" PRIu32 " shapes; %d of %d %s have %" PRIu32
           " shapes or more\n",
           cuda_family_name[f], what, sum.kernels, sum.shapes, enough, pairs,
           cuda_family[f]->candidates ? "pairs of formats" : "formats", least);
}

void cover_print(const Cover *c, uint32_t least)
{
    for (int f = 0; f < NUM_CUDA_FAMILIES; f++) {
        if (cuda_family[f]->candidates) {
            print_products(c, (CudaFamily)f);
        } else if (any(&c->formats[f][0][0], NUM_FORMATS * NUM_FORMATS)) {
            printf("# cover %s to", cuda_family_name[f]);
            for (int a = 0; a < NUM_FORMATS; a++)
                print_count(format_info[a].name, c->formats[f][a][0]);
            puts("");
        }
        if (any(c->steps[f], NUM_TILE_OPS)) {
            printf("# cover %s with", cuda_family_name[f]);
            for (int op = 0; op < NUM_TILE_OPS; op++)
                if (step_name[op])
                    print_count(step_name[op], c->steps[f][op]);
            for (int j = 0; j < NUM_COVER_WAYS; j++)
                print_count(way[j].name, c->ways[f][j]);
            puts("");
        }
        print_layouts(c, (CudaFamily)f);
        print_sum(c->formats[f], (CudaFamily)f, "", least);
        print_sum(c->grouped[f], (CudaFamily)f, ", groups of rows", least);
    }
}
