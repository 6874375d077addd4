/* show, inspect: the model on its way, and what a compiled file holds. */
#include "driver/work.h"
#include "report/graph.h"
#include "report/print.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_FOR_DOT = 250 }; /* beyond, Graphviz takes minutes */

/* Graphviz's layout of a drawing: false when `dot` is not on the path, or fails. */
static bool dot_layout(const Sb *dot, Sb *ret)
{
    char *argv[] = {"dot", "-Tsvg", NULL};
    return filter_through(argv, dot->text, dot->len, ret);
}

static void put_graph(Work *w, Sb *sb, Graph *graph, bool as_svg)
{
    Sb dot;
    graph_collapse(graph);
    sb_init(&dot, w->arena);
    graph_write_dot(&dot, graph);
    if (!as_svg)
        sb_putn(sb, dot.text, dot.len);
    else if (graph->nodes.num > MOST_FOR_DOT || !dot_layout(&dot, sb))
        graph_write_svg(sb, graph);
}

static bool put_ast(Work *w, Sb *sb)
{
    FrontendOptions options;
    if (!work_options(w, &options))
        return false;
    uint32_t source = work_source(w, w->cli->operand.elem[0]);
    Ast *ast = source ? ast_parse(w->arena, &w->diag, source) : NULL;
    if (!ast || !ast_check(ast, &w->diag, &options))
        return false;
    ast_print(sb, ast);
    return true;
}

/* The pipeline up to and with the pass `last`, as a list for passes_run. */
static const char *pipeline_until(Work *w, const char *last)
{
    Sb sb;
    sb_init(&sb, w->arena);
    for (int i = 0; i < num_passes; i++) {
        bool is_last = !strcmp(passes[i].name, last);
        if (passes[i].level <= w->passes.options.opt_level || is_last)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
        if (is_last)
            return sb.text;
    }
    return last; /* work_passes names the nearest */
}

static bool run_until(Work *w, const char *after)
{
    if (after && !strcmp(after, "lower"))
        return true;
    return work_passes(w, after ? pipeline_until(w, after) : NULL);
}

/* PTX of every class, one module a kernel. */
static bool put_ptx(Work *w, Sb *sb)
{
    for (int g = 0; g < w->num_gpus; g++) {
        WorkGpu *gpu = &w->gpu[g];
        const char *arch = gpu->gpu->arch;
        gpu->num_archs = 1;
        if (!strncmp(arch, "sm_", 3))
            gpu->arch[0] = arena_printf(w->arena, "compute_%s", arch + 3);
    }
    if (!work_compile_kernels(w))
        return false;
    for (int g = 0; g < w->num_gpus; g++) {
        const CudaTarget *cuda = &w->gpu[g].cuda;
        for (int i = 0; i < cuda->code.num_images; i++) {
            const DeviceImage *image = &cuda->code.image[i];
            sb_printf(sb, "/* %s %s */\n", cuda->source[image->kernel].name, image->arch);
            sb_putn(sb, (const char *)image->data, strnlen((const char *)image->data, image->size));
        }
    }
    return true;
}

typedef struct Compiled { /* what images took */
    int num, compiled;
    double seconds, most;
} Compiled;

static void put_images(Sb *sb, const CudaTarget *cuda, Compiled *sum)
{
    for (int i = 0; i < cuda->code.num_images; i++) {
        const DeviceImage *image = &cuda->code.image[i];
        const CudaImageAbout *about = &cuda->about[i];
        const CudaSource *source = &cuda->source[image->kernel];
        sb_printf(sb, "%s  %-8s  %-10s  %7llu bytes, %ld spilled, %s", source->name,
                  cuda_family_name[source->family], image->arch, (unsigned long long)image->size,
                  about->said.spilled, about->said.serialised ? "wgmma serialised, " : "");
        if (about->cached)
            sb_put(sb, "cached\n");
        else
            sb_printf(sb, "%.3f s\n", about->seconds);
        sum->num++;
        sum->compiled += !about->cached;
        sum->seconds += about->seconds;
        sum->most = about->seconds > sum->most ? about->seconds : sum->most;
    }
}

/* Every image of every kernel, and what it took. */
static bool put_kernels(Work *w, Sb *sb)
{
    Compiled sum = {0};
    int kernels = 0;
    if (!work_compile_kernels(w))
        return false;
    for (int g = 0; g < w->num_gpus; g++) {
        put_images(sb, &w->gpu[g].cuda, &sum);
        kernels += w->gpu[g].cuda.num_sources;
    }
    sb_printf(sb,
              "%d kernels, %d images, %d compiled: %.3f s of a processor in all, %.3f s at most\n",
              kernels, sum.num, sum.compiled, sum.seconds, sum.most);
    return true;
}

/* Through NVIDIA's disassembler, beside the program or in its usual place. */
static bool disassemble(Work *w, Sb *sb, const DeviceImage *image)
{
    char *given = secure_getenv("SINTER_NVDISASM");
    char *tools[] = {given ? given : "nvdisasm", "/usr/local/cuda/bin/nvdisasm"};
    for (size_t t = 0; t < (given ? 1 : COUNT_OF(tools)); t++) {
        char *argv[] = {tools[t], "--print-code", "/dev/stdin", NULL};
        if (filter_through(argv, image->data, image->size, sb))
            return true;
    }
    diag_error(&w->diag, (Span){0}, E_DISASSEMBLER,
               "--emit=sass needs '%s', which is not found or cannot read %s", tools[0],
               image->arch);
    diag_help(&w->diag, "install it (CUDA toolkit, or pip package nvidia-cuda-nvdisasm), put it on "
                        "the path or name it in SINTER_NVDISASM");
    return false;
}

/* The instructions of every binary that --target names. */
static bool put_sass(Work *w, Sb *sb)
{
    int binaries = 0;
    if (!work_compile_kernels(w))
        return false;
    for (int g = 0; g < w->num_gpus; g++) {
        const CudaTarget *cuda = &w->gpu[g].cuda;
        for (int i = 0; i < cuda->code.num_images; i++) {
            const DeviceImage *image = &cuda->code.image[i];
            if (strncmp(image->arch, "sm_", 3) != 0)
                continue;
            sb_printf(sb, "/* %s %s */\n", cuda->source[image->kernel].name, image->arch);
            binaries++;
            if (!disassemble(w, sb, image))
                return false;
        }
    }
    if (binaries)
        return true;
    diag_error(&w->diag, (Span){0}, E_USAGE, "--emit=sass needs a target with a binary");
    diag_help(&w->diag, "name the GPU's architecture, as in --target=sm_86; 'sinter targets' lists "
                        "them");
    return false;
}

static void put_plans_of(const Work *w, Sb *sb)
{
    if (w->has_cpu)
        plan_print(sb, w->cpu.plan);
    for (int i = 0; i < w->num_gpus; i++)
        plan_print(sb, w->gpu[i].cuda.target.plan);
}

/* The sources of every class. */
static void put_sources(const Work *w, Sb *sb)
{
    for (int g = 0; g < w->num_gpus; g++)
        for (int i = 0; i < w->gpu[g].cuda.num_sources; i++) {
            const CudaSource *source = &w->gpu[g].cuda.source[i];
            sb_printf(sb, "/* %s */\n%s\n", source->name, source->text);
        }
}

/* The plans, or the sources or code of GPUs. */
static bool put_planned(Work *w, Sb *sb, const char *what, const char *after)
{
    if (after) {
        diag_error(&w->diag, (Span){0}, E_USAGE,
                   "--emit=%s needs the whole pipeline: it and --after=%s exclude each other", what,
                   after);
        return false;
    }
    if (!work_plan(w))
        return false;
    if (!strcmp(what, "plan")) {
        put_plans_of(w, sb);
        return true;
    }
    if (!w->num_gpus) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "--emit=%s needs a GPU target", what);
        diag_help(&w->diag, "add --target=sm_90a");
        return false;
    }
    if (!strcmp(what, "ptx"))
        return put_ptx(w, sb);
    if (!strcmp(what, "sass"))
        return put_sass(w, sb);
    if (!strcmp(what, "kernels"))
        return put_kernels(w, sb);
    put_sources(w, sb);
    return true;
}

/* One word of --emit; the module is made once, by the first that needs it. */
static bool emit(Work *w, Sb *sb, const char *what)
{
    const char *after = cli_get(w->cli, OPTION_AFTER, NULL);
    if (!strcmp(what, "ast"))
        return put_ast(w, sb);
    if (!w->module && (!work_lower(w, w->cli->operand.elem[0]) || !run_until(w, after)))
        return false;
    if (!strcmp(what, "ir")) {
        module_print(sb, w->module, false);
        return true;
    }
    if (!strcmp(what, "plan") || !strcmp(what, "cu") || !strcmp(what, "ptx") ||
        !strcmp(what, "sass") || !strcmp(what, "kernels"))
        return put_planned(w, sb, what, after);
    Graph graph;
    graph_build(&graph, w->arena, w->module);
    put_graph(w, sb, &graph, !strcmp(what, "svg"));
    return true;
}

/* One word of --emit for a compiled file, which holds neither the tree nor the IR. */
static bool emit_compiled(Work *w, Sb *sb, const Plan *plan, const char *what)
{
    Graph graph;
    if (!strcmp(what, "plan")) {
        plan_print(sb, plan);
        return true;
    }
    if (strcmp(what, "dot") != 0 && strcmp(what, "svg") != 0) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "'%s' is a compiled file, which holds no %s",
                   w->cli->operand.elem[0], what);
        diag_help(&w->diag, "--emit=svg, dot and plan show what it runs");
        return false;
    }
    graph_build_plan(&graph, w->arena, plan);
    put_graph(w, sb, &graph, !strcmp(what, "svg"));
    return true;
}

/* The plan of the processor where the file has one, else its first. */
static const Section *plan_section(const Artifact *a)
{
    const Section *s = artifact_find(a, SECTION_PLAN, "cpu");
    for (int i = 0; !s && i < a->num_sections; i++)
        if (a->section[i].kind == SECTION_PLAN)
            s = &a->section[i];
    return s;
}

static bool show_compiled(Work *w, Sb *sb, const char *list)
{
    Artifact a;
    IoError err;
    if (!artifact_open(w->cli->operand.elem[0], false, &a, &err)) {
        work_io_error(w, &err);
        return false;
    }
    const Section *s = plan_section(&a);
    Plan *plan = s ? plan_load(&a, s, &err) : NULL;
    if (!s)
        io_fail(&err, E_NO_TARGET, "%s: has no plan", w->cli->operand.elem[0]);
    if (!plan)
        work_io_error(w, &err);
    char *rest = arena_strdup(w->arena, list);
    bool ok = plan != NULL;
    for (char *what; ok && (what = strsep(&rest, ","));)
        ok = emit_compiled(w, sb, plan, what);
    plan_free(plan);
    artifact_close(&a);
    return ok;
}

static bool show_text(Work *w, Sb *sb, const char *list)
{
    char *rest = arena_strdup(w->arena, list);
    bool ok = true;
    for (char *what; ok && (what = strsep(&rest, ","));)
        ok = emit(w, sb, what);
    return ok;
}

int cmd_show(Cli *cli)
{
    Work w;
    Sb sb;
    const char *path = cli->operand.elem[0];
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    sb_init(&sb, w.arena);
    bool is_compiled = strcmp(path, "-") != 0 && file_is_program(path);
    const char *list = cli_get(cli, OPTION_EMIT, is_compiled ? "plan" : "ir");
    if (is_compiled ? show_compiled(&w, &sb, list) : show_text(&w, &sb, list))
        work_put(&w, cli_get(cli, OPTION_OUTPUT_FILE, NULL), sb.text, sb.len);
    return work_end(&w, EXIT_OK);
}

/* inspect ------------------------------------------------------------------------------------- */

static const char *section_name(SectionKind kind)
{
    static const char *const name[] = {
        [SECTION_META] = "meta",       [SECTION_SOURCE] = "source", [SECTION_PLAN] = "plan",
        [SECTION_WEIGHTS] = "weights", [SECTION_CODE] = "code",     [SECTION_REPORT] = "report"};
    return (size_t)kind < COUNT_OF(name) && name[kind] ? name[kind] : "unknown";
}

static void put_sections(Sb *sb, const Artifact *a)
{
    sb_printf(sb, "sections %d, artifact of %llu bytes after a program of %llu\n", a->num_sections,
              (unsigned long long)a->size, (unsigned long long)a->start);
    for (int i = 0; i < a->num_sections; i++) {
        const Section *s = &a->section[i];
        sb_printf(sb, "  %-8s %-20s %12llu bytes at %-10llu %016llx%016llx\n",
                  section_name(s->kind), arena_shown(sb->arena, s->name, strlen(s->name)),
                  (unsigned long long)s->size, (unsigned long long)s->offset,
                  (unsigned long long)s->hash[1], (unsigned long long)s->hash[0]);
    }
}

static void put_meta(Sb *sb, const Artifact *a)
{
    const Section *s = artifact_find(a, SECTION_META, NULL);
    const char *text = s ? (const char *)artifact_data(a, s) : "";
    for (const char *end = text + (s ? s->size : 0); text < end;) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        size_t len = (size_t)((line_end ? line_end : end) - text);
        sb_printf(sb, "%s\n", arena_shown(sb->arena, text, len));
        text += len + (line_end != NULL);
    }
}

static bool put_device(Work *w, Sb *sb, const Artifact *a, const char *target, const Plan *plan)
{
    IoError err;
    const Section *s = artifact_find(a, SECTION_CODE, target);
    if (!s)
        return true;
    DeviceCode *code = device_code_decode(artifact_data(a, s), s->size, plan, &err);
    if (!code) {
        work_io_error(w, &err);
        return false;
    }
    device_summary(sb, plan, code);
    device_code_free(code);
    return true;
}

static bool put_plans(Work *w, Sb *sb, const Artifact *a)
{
    for (int i = 0; i < a->num_sections; i++) {
        const Section *s = &a->section[i];
        IoError err;
        if (s->kind != SECTION_PLAN)
            continue;
        Plan *plan = plan_load(a, s, &err);
        if (!plan) {
            work_io_error(w, &err);
            return false;
        }
        plan_summary(sb, plan);
        bool ok = put_device(w, sb, a, s->name, plan);
        plan_free(plan);
        if (!ok)
            return false;
    }
    return true;
}

/* Does the file begin like one of tensors, or is it called one? */
static bool holds_tensors(const char *path)
{
    static const char *const suffix[] = {".safetensors", ".npy", ".gguf", ".pt", ".bin"};
    MappedFile map;
    size_t len = strlen(path);
    if (!file_map(path, &map, NULL))
        return false;
    bool ret = map.size >= 9 && (!memcmp(map.data, "\x93NUMPY", 6) ||
                                 !memcmp(map.data, "GGUF", 4) || map.data[8] == '{');
    bool is_program = map.size >= 4 && !memcmp(map.data, "\177ELF", 4);
    file_unmap(&map);
    for (size_t i = 0; i < COUNT_OF(suffix); i++) {
        size_t num = strlen(suffix[i]);
        ret |= len >= num && !strcmp(path + len - num, suffix[i]);
    }
    return ret && !is_program;
}

static void inspect_tensors(Work *w, Sb *sb)
{
    IoError err;
    TensorFile *file = tensorfile_open(w->cli->operand.elem[0], &err);
    if (!file) {
        work_io_error(w, &err);
        return;
    }
    tensors_summary(sb, file, cli_has(w->cli, OPTION_STATS), cli_has(w->cli, OPTION_JSON_TENSORS));
    tensorfile_close(file);
    work_put(w, NULL, sb->text, sb->len);
}

int cmd_inspect(Cli *cli)
{
    Work w;
    Sb sb;
    Artifact a;
    IoError err;
    const char *path = cli->operand.elem[0];
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    sb_init(&sb, w.arena);
    if (holds_tensors(path)) {
        inspect_tensors(&w, &sb);
        return work_end(&w, EXIT_OK);
    }
    if (!artifact_open(path, false, &a, &err)) {
        work_io_error(&w, &err);
        return work_end(&w, EXIT_OK);
    }
    put_meta(&sb, &a);
    put_sections(&sb, &a);
    if (put_plans(&w, &sb, &a))
        work_put(&w, NULL, sb.text, sb.len);
    artifact_close(&a);
    return work_end(&w, EXIT_OK);
}
