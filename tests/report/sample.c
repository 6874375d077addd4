/* sample html|json: a made-up report with every section, written to standard output. Times are part
 * of it, so the bytes are always the same. Names hold what markup is made of: none of it may become
 * markup. */
#include "driver/stub.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

const unsigned char sinter_stub[] = {0}; /* nothing is compiled here */
const size_t sinter_stub_size = 0;

#define HOSTILE "</title><script>alert(\"1\")</script>&amp;'\x01\xff\xe2\x80\xae"

static double *times(const Report *r, double a, double b)
{
    double *us = ARENA_NEW_ARRAY(r->arena, double, 2);
    us[0] = a;
    us[1] = b;
    return us;
}

static void add_node(Report *r, NodeKind kind, const char *name, const char *title, int from,
                     int also_from)
{
    GraphNode node = {.kind = kind, .name = name, .title = title};
    node.first_edge = r->graph.edges.num;
    for (int i = 0; i < 2; i++) {
        GraphEdge edge = {.from = i ? also_from : from, .to = r->graph.nodes.num};
        if (edge.from < 0)
            continue;
        ARRAY_PUSH(r->arena, &r->graph.edges, edge);
        node.num_edges++;
    }
    ARRAY_PUSH(r->arena, &r->graph.nodes, node);
}

static void add_kernel(Report *r, int node, const char *layer, double a, double b)
{
    ReportKernel kernel = {.layer = layer,
                           .family = "gemm",
                           .place = "a<b>.sinter:3:9",
                           .absorbed = "quantize matmul mul add",
                           .act = "i8 sym per token",
                           .weight = "i8 sym per channel",
                           .n = 64,
                           .k = 32,
                           .bytes = 2304,
                           .node = node,
                           .us = times(r, a, b)};
    ARRAY_PUSH(r->arena, &r->node[node].kernels, r->kernels.num);
    ARRAY_PUSH(r->arena, &r->kernels, kernel);
}

static void add_layer(Report *r, const char *name, int kernel, const char *why)
{
    ReportLayer layer = {
        .name = name, .scheme = "w8<a8>", .by = "rtn", .why = why, .n = 64, .k = 32};
    ARRAY_PUSH(r->arena, &layer.kernels, kernel);
    ARRAY_PUSH(r->arena, &r->node[r->kernels.elem[kernel].node].layers, r->layers.num);
    ARRAY_PUSH(r->arena, &r->layers, layer);
}

/* x -> up -> down -> y, and past both from x to y. */
static void add_graph(Report *r)
{
    r->graph = (Graph){.arena = r->arena, .name = r->model};
    add_node(r, NODE_INPUT, "x", "input x", -1, -1);
    add_node(r, NODE_KERNEL, NULL, "gemm (up|" HOSTILE ")", 0, -1);
    add_node(r, NODE_KERNEL, NULL, "gemm down", 1, 0);
    add_node(r, NODE_OP, NULL, "reshape", 2, -1);
    add_node(r, NODE_OUTPUT, "y", "output y", 3, 0);
    r->node = ARENA_NEW_ARRAY(r->arena, ReportNode, (size_t)r->graph.nodes.num);
    add_kernel(r, 1, "(up|" HOSTILE ")", 12.5, 1250);
    add_kernel(r, 2, "down", 2.25, NAN);
    add_layer(r, "up", 0, "w8<a8>, by the rule at \"r\".rules:2:9");
    add_layer(r, HOSTILE, 0, "as declared: no rule speaks of its format");
    add_layer(r, "down", 1, "keep, said at the layer, a<b>.sinter:4:9");
    for (int i = 0; i < 3; i++) /* the first two share a kernel */
        r->layers.elem[i].bytes = i < 2 ? 1152 : 2304;
}

static void add_error(Report *r, Comparison *c, const char *name, bool is_layer, double sqnr)
{
    CompareRow row = {.name = name,
                      .is_layer = is_layer,
                      .d = {{.num = 640,
                             .max_abs = 0.0625,
                             .mean_abs = 0.001953125,
                             .cosine = 0.99990234375,
                             .sqnr = sqnr}},
                      .clipped = {is_layer ? 0.0078125 : NAN, NAN}};
    ARRAY_PUSH(r->arena, &c->rows, row);
}

static void add_errors(Report *r)
{
    Comparison *c = ARENA_NEW(r->arena, Comparison);
    *c = (Comparison){.num_variants = 1,
                      .variant = {"r&d.rules"},
                      .logits = "y",
                      .divergence = {0.00048828125},
                      .agreement = {0.984375},
                      .has_labels = true,
                      .accuracy = {0.96875},
                      .float_accuracy = 0.984375,
                      .num_rows = 64,
                      .device = "cpu"};
    add_error(r, c, "up", true, 41.25);
    add_error(r, c, HOSTILE, true, INFINITY);
    add_error(r, c, "down", true, 12.5);
    add_error(r, c, "y", false, 24.75);
    r->errors = c;
    r->inputs = "x<&>.npy";
}

/* One layer, two candidates and keep. */
static void add_choice(Report *r)
{
    static const char *column[] = {"w8a8", "w4a8", "keep", "pinned"};
    static const LayerCell cell[] = {
        {.sqnr = 41.25, .cosine = 0.9999, .noise = 1e-4, .bytes = 2304, .source = TIME_MEASURED},
        {.why = "<group 32> does not fit"},
        {.sqnr = INFINITY, .cosine = 1, .bytes = 8192, .source = TIME_TABLE},
        {.why = "nothing pins it"}};
    static int pick[] = {0}, pick_float[] = {2};
    static ChoicePoint front[2], uniform[2]; /* w4a8 cannot be used everywhere */
    static double scale[] = {1.25, 1};
    static double weight[] = {0.5, 0.5};
    static int64_t bucket[] = {1, 64};
    ChoiceLayer *layer = ARENA_NEW(r->arena, ChoiceLayer);
    *layer = (ChoiceLayer){.path = "up", .n = 64, .k = 32};
    layer->cell = ARENA_NEW_ARRAY(r->arena, LayerCell, 4);
    memcpy(layer->cell, cell, sizeof cell);
    for (int i = 0; i < 4; i++)
        layer->cell[i].us = times(r, 12.5 + i, 1250 + 100 * i);
    AutoSpec *spec = ARENA_NEW(r->arena, AutoSpec);
    spec->minimize = MEASURE_LATENCY;
    AutoRequire require = {.measure = MEASURE_COSINE, .value = 0.999, .on = "held<out>.npy"};
    ARRAY_PUSH(r->arena, &spec->requires, require);
    front[0] = (ChoicePoint){
        .pick = pick, .latency = 631.25, .bytes = 4608, .noise = 1e-4, .cosine = 0.99995};
    front[1] = (ChoicePoint){.pick = pick_float, .latency = 733.25, .bytes = 16384, .cosine = 1};
    uniform[0] = front[0];
    static const Sym sym = {.name = "B"};
    static const Sym *const syms[] = {&sym};
    Choice *c = ARENA_NEW(r->arena, Choice);
    *c = (Choice){.arena = r->arena,
                  .spec = spec,
                  .num_candidates = 2,
                  .num_columns = 4,
                  .column = column,
                  .float_column = 2,
                  .pinned_column = 3,
                  .num_buckets = 2,
                  .num_syms = 1,
                  .sym = syms,
                  .bucket = bucket,
                  .weight = weight,
                  .num_layers = 1,
                  .num_groups = 1,
                  .layer = layer,
                  .fixed_us = times(r, 0, 0),
                  .proven = true,
                  .rounds = 1,
                  .correction = 1.0625,
                  .chosen = front[0],
                  .num_front = 2,
                  .front = front,
                  .noise_scale = scale,
                  .num_tried = 1,
                  .tried = uniform,
                  .uniform = uniform,
                  .standing = "quant {\n    up : w8a8\n}\n"};
    c->chosen.verified = true;
    c->chosen.measured_cosine = 0.9998779296875;
    c->chosen.measured_sqnr = 38.5;
    r->choice = c;
}

static void add_rest(Report *r)
{
    ReportBucket small = {"B = 1", 0, 1024, 15.5}, large = {"B = 64", 1, 65536, 1300};
    ReportStop stop = {0, "a<b>.sinter:4:9", "another <matmul> begins here"};
    ReportWarning warning = {"E0564", "a<b>.sinter:3:9", "up saw 8 rows\n& 64 are wanted"};
    ReportPick pick = {.launch = 0,
                       .layer = "(up|" HOSTILE ")",
                       .absorbed = "quantize matmul mul add",
                       .buckets = "B = 1; B = 64",
                       .text = "stream 8 rows x 64 columns",
                       .source = "model",
                       .rejected = "mma 64x64: 5.0 us\nany: 9.0 us > 3.5 us",
                       .us = 3.5,
                       .roofline = 0.625,
                       .apart = "a group of 96 columns does not lie inside a <tile> of 64",
                       .apart_place = "a<b>.sinter:4:9",
                       .remedy = "groups of at most 64 would"};
    ReportFusion fusion = {"cpu", "B = 1", {2, 12, 9, 4096, 3072}};
    ReportSection section = {"weights", "cpu", "0123456789abcdef0123456789abcdef", 4608};
    StaticRange range = {"down", -1.5, 2.25, 0.0009765625, 512, "percentile 99.9"};
    const char *port = "input x: f32[B, 32]";
    ARRAY_PUSH(r->arena, &r->buckets, small);
    ARRAY_PUSH(r->arena, &r->buckets, large);
    ARRAY_PUSH(r->arena, &r->stops, stop);
    ARRAY_PUSH(r->arena, &r->warnings, warning);
    ARRAY_PUSH(r->arena, &r->picks, pick);
    ARRAY_PUSH(r->arena, &r->fusion, fusion);
    ARRAY_PUSH(r->arena, &r->sections, section);
    ARRAY_PUSH(r->arena, &r->ranges, range);
    ARRAY_PUSH(r->arena, &r->ports, port);
}

int main(int argc, char **argv)
{
    Report r = {.arena = arena_create(),
                .model = "m<i>&" HOSTILE,
                .source = "a<b>.sinter",
                .target = "cpu",
                .device = "cpu",
                .weight_bytes = 4608,
                .shown = 1};
    Sb sb;
    if (argc != 2 || !r.arena)
        return 2;
    add_rest(&r);
    add_graph(&r);
    add_errors(&r);
    add_choice(&r);
    sb_init(&sb, r.arena);
    if (!strcmp(argv[1], "json"))
        report_json(&sb, &r);
    else
        report_page(&sb, &r);
    fwrite(sb.text, 1, sb.len, stdout);
    arena_destroy(r.arena);
    return 0;
}
