/* Shared steps of the commands; see work.h. */
#include "driver/work.h"
#include "base/team.h"
#include "driver/calibrate_on.h"
#include "driver/gpu_here.h"
#include "driver/quantise_gpu.h"
#include "driver/stub.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool work_init(Work *w, Cli *cli)
{
    *w = (Work){.cli = cli, .arena = arena_new()};
    diag_init(&w->diag, w->arena);
    if (!cli->streams) {
        cli->streams = ARENA_NEW(cli->arena, TextStreams);
        *cli->streams = (TextStreams){.arena = cli->arena};
    }
    return true;
}

/* What the first error says of the whole. */
static int exit_of_errors(const Work *w)
{
    const DiagMessage *message = w->diag.first;
    while (message && message->severity != SEVERITY_ERROR)
        message = message->next;
    if (w->is_slower)
        return EXIT_SLOWER;
    switch (message ? message->id : E_NONE) {
    case E_USAGE: return EXIT_USAGE;
    case E_CHECK_EVAL: return EXIT_MISMATCH;
    case E_NO_DEVICE: return EXIT_DEVICE;
    default: return EXIT_INPUT;
    }
}

int work_end(Work *w, int exit_code)
{
    fflush(stdout);
    if (w->cli->json)
        diag_print_json(&w->diag, stderr);
    else
        diag_print(&w->diag, stderr, w->cli->color);
    if (w->diag.num_errors && exit_code == EXIT_OK)
        exit_code = exit_of_errors(w);
    if (w->module && w->module->weights)
        weights_close(w->module->weights);
    arena_destroy(w->arena);
    return exit_code;
}

void work_io_error(Work *w, const IoError *err)
{
    diag_error(&w->diag, (Span){0}, err->id, "%s", err->text);
}

const char *work_folder(Work *w, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || source_is_nowhere(path))
        return "";
    return slash == path ? "/" : arena_strndup(w->arena, path, (size_t)(slash - path));
}

uint32_t work_source(Work *w, const char *path)
{
    return source_load(w->arena, &w->diag, path, w->cli->streams);
}

const char *work_canonical(Work *w, const char *name, const char *text)
{
    FrontendOptions options = {0};
    uint32_t source = diag_add_source(&w->diag, name, text, strlen(text));
    const char *ret = source_format(w->arena, &w->diag, source);
    Ast *ast = ret ? ast_parse(w->arena, &w->diag, source) : NULL;
    return ast && ast_check(ast, &w->diag, &options) ? ret : NULL;
}

bool work_threads(Work *w, int *ret)
{
    char *end;
    const char *text = cli_get(w->cli, OPTION_THREADS, "0");
    long num = strtol(text, &end, 10);
    if (!*text || *end || num < 0 || num > TEAM_MAX + 1) {
        diag_error(&w->diag, (Span){0}, E_USAGE,
                   "--threads takes a number from 0 (all) to %d, not '%s'", TEAM_MAX + 1, text);
        return false;
    }
    *ret = (int)num;
    if (num)
        team_set_threads((int)num);
    return true;
}

int work_copies(const Work *w)
{
    return cli_get(w->cli, OPTION_COPIES, "1")[0] - '0';
}

CudaDecode work_decode(const Work *w)
{
    static const char *const word[] = {[CUDA_DECODE_BY_TIME] = "auto",
                                       [CUDA_DECODE_NEVER] = "never",
                                       [CUDA_DECODE_ALWAYS] = "always",
                                       [CUDA_DECODE_HELD] = "held",
                                       [CUDA_DECODE_ALONE] = "held-alone"};
    const char *how = cli_get(w->cli, OPTION_DECODE, "auto");
    for (size_t i = 0; i < COUNT_OF(word); i++)
        if (!strcmp(how, word[i]))
            return (CudaDecode)i;
    return CUDA_DECODE_BY_TIME;
}

const CudaLayout *work_layout(const Work *w)
{
    CudaLayout *ret = ARENA_NEW(w->arena, CudaLayout);
    return cuda_layout_find(cli_get(w->cli, OPTION_LAYOUT, "auto"), ret) ? ret : NULL;
}

/* The variant's own rules behind those of all files. */
static void add_rules(Work *w, FrontendOptions *ret)
{
    int num = ret->num_rule_files;
    const char **file = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    const char **text = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        file[i] = ret->rule_file[i];
        text[i] = NULL;
    }
    file[num] = "<slower>";
    text[num] = w->variant.extra;
    ret->num_rule_files++;
    ret->rule_file = file;
    ret->rule_text = text;
}

bool work_options(Work *w, FrontendOptions *ret)
{
    const Cli *cli = w->cli;
    int num = cli->value[OPTION_DEFINE].num;
    const char **name = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    int64_t *value = ARENA_NEW_ARRAY(w->arena, int64_t, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        const char *pair = cli->value[OPTION_DEFINE].elem[i];
        const char *equals = strchr(pair, '=');
        errno = 0;
        name[i] = arena_strndup(w->arena, pair, (size_t)(equals - pair));
        value[i] = strtoll(equals + 1, NULL, 10);
        if (errno) {
            diag_error(&w->diag, (Span){0}, E_USAGE, "the value of -D %s does not fit 64 bits",
                       pair);
            return false;
        }
    }
    *ret = (FrontendOptions){.num_defines = num,
                             .define_name = name,
                             .define_value = value,
                             .num_rule_files = cli->value[OPTION_RULES].num,
                             .rule_file = cli->value[OPTION_RULES].elem,
                             .unquantised = w->variant.unquantised,
                             .streams = cli->streams};
    if (w->variant.rules) {
        ret->num_rule_files = 1;
        ret->rule_file = &w->variant.rules;
    }
    if (w->variant.extra)
        add_rules(w, ret);
    return true;
}

/* One line that rewrites itself. */
static void progress_line(void *user, double done, const char *what)
{
    (void)user;
    fprintf(stderr, "\r\033[K%3.0f %%  %.60s", done * 100, what);
    if (done >= 1)
        fputs("\r\033[K", stderr);
}

/* One object a line, for programs that show it their own way. */
static void progress_json(void *user, double done, const char *what)
{
    const Work *w = user;
    Sb sb;
    sb_init(&sb, w->arena);
    sb_printf(&sb, "{\"progress\":%.4f,\"what\":", done);
    sb_put_json_string(&sb, what, strlen(what));
    sb_put(&sb, "}\n");
    fputs(sb.text, stderr);
}

ProgressFn *work_progress(const Work *w)
{
    const char *how = cli_get(w->cli, OPTION_PROGRESS, "auto");
    if (!strcmp(how, "json"))
        return progress_json;
    return !strcmp(how, "auto") && isatty(STDERR_FILENO) && !w->cli->json ? progress_line : NULL;
}

bool work_gpu(const char *name, int *ret)
{
    char *end = NULL;
    *ret = 0;
    if (!strcmp(name, "cuda"))
        return true;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    long ordinal = strtol(name + 5, &end, 10);
    *ret = (int)ordinal;
    return !*end && ordinal < 1024;
}

const char *work_device(const Work *w)
{
    return cli_get(w->cli, OPTION_DEVICE, NULL);
}

bool work_on_gpu(const Work *w)
{
    const char *why, *device = work_device(w);
    if (device)
        return strcmp(device, "cpu") != 0;
    return strcmp(cli_get(w->cli, OPTION_TARGET, "cpu"), "cpu") != 0 && gpu_here(w->arena, 0, &why);
}

/* --quantise-on */
static bool find_engine(Work *w, const QuantEngine **ret)
{
    const char *name = cli_get(w->cli, OPTION_QUANTISE_ON, "cpu");
    int ordinal;
    *ret = NULL;
    if (!strcmp(name, "cpu"))
        return true;
    if (!work_gpu(name, &ordinal)) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "--quantise-on takes cpu or cuda:N, not '%s'",
                   name);
        return false;
    }
    *ret = quantise_gpu_open(w->arena, &w->diag, ordinal, !cli_has(w->cli, OPTION_NO_CACHE));
    return *ret != NULL;
}

/* --device, of the commands whose calibration runs there. NULL: in the evaluator. */
static bool find_calibration(Work *w, const CalibrationEngine **ret)
{
    const char *name = work_device(w);
    CommandId command = w->cli->command;
    CalibrateOn on = {.device = name, .use_cache = !cli_has(w->cli, OPTION_NO_CACHE)};
    bool there =
        command == COMMAND_CALIBRATE || command == COMMAND_CHOOSE || command == COMMAND_COMPILE;
    *ret = NULL;
    if (!there || !name)
        return true;
    if (strcmp(name, "cpu") != 0 && !work_gpu(name, &on.ordinal)) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "--device takes cpu or cuda:N, not '%s'", name);
        return false;
    }
    bool ok = work_threads(w, &on.threads);
    *ret = calibrate_on(w->arena, &on);
    return ok;
}

/* What the text names is not written over, whether this command reads it or not. */
static bool names_are_kept(Work *w, const char *folder)
{
    const Module *m = w->module;
    int num = m->weight_files.num + m->calibrate_files.num;
    for (int i = 0; i < num; i++) {
        int at = i - m->weight_files.num;
        const char *name = at < 0 ? m->weight_files.elem[i] : m->calibrate_files.elem[at];
        Span span = at < 0 ? (i < m->weight_spans.num ? m->weight_spans.elem[i] : (Span){0})
                    : at < m->calibrate_spans.num ? m->calibrate_spans.elem[at]
                                                  : (Span){0};
        const char *path =
            name[0] == '/' || !folder[0] ? name : arena_printf(w->arena, "%s/%s", folder, name);
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        const char *option = fd < 0 ? NULL : outputs_find(fd);
        if (option)
            diag_error(&w->diag, span, E_OVERWRITE,
                       "%s: is named here, and %s would overwrite it; give that another name", name,
                       option);
        if (fd >= 0)
            close(fd);
        if (option)
            return false;
    }
    return true;
}

static bool prepare_passes(Work *w, const char *path)
{
    const Cli *cli = w->cli;
    const char *folder = work_folder(w, path);
    bool silent = w->variant.only_planned;
    if (!work_targets(w) || !names_are_kept(w, folder))
        return false;
    PassOptions options = {
        .opt_level = cli_get(cli, OPTION_OPT_LEVEL, "1")[0] - '0',
        .base_dir = folder,
        .invariant = cli_has(cli, OPTION_INVARIANT),
        .no_weights = cli_has(cli, OPTION_NO_WEIGHTS) || cli->command == COMMAND_TUNE || silent,
        .num_weight_files = cli->value[OPTION_WEIGHTS].num,
        .trace = stderr,
        .print_after = silent ? NULL : cli_get(cli, OPTION_PRINT_AFTER, NULL),
        .time_passes = !silent && cli_has(cli, OPTION_TIME_PASSES),
        .check_eval = !silent && cli_has(cli, OPTION_CHECK_EVAL),
        .use_cache = !cli_has(cli, OPTION_NO_CACHE),
        .limits = !w->has_cpu   ? &limits_gpus
                  : w->num_gpus ? &limits_all
                                : &limits_cpu,
        .progress = silent ? NULL : work_progress(w),
        .progress_user = w,
    };
    if (!silent && (!find_engine(w, &options.engine) || !find_calibration(w, &options.calibration)))
        return false;
    const char **file =
        ARENA_NEW_ARRAY(w->arena, const char *, (size_t)options.num_weight_files + 1);
    for (int i = 0; i < options.num_weight_files; i++) {
        /* absolute, because the text's own are relative to the text and these are not */
        char *full = realpath(cli->value[OPTION_WEIGHTS].elem[i], NULL);
        if (!full && errno == ENOMEM)
            memory_exhausted();
        file[i] = full ? arena_strdup(w->arena, full) : cli->value[OPTION_WEIGHTS].elem[i];
        free(full);
    }
    options.weight_file = file;
    pass_context_init(&w->passes, w->arena, &options);
    return true;
}

static bool check_pass_name(Work *w, const char *name, const char *extra)
{
    Nearest nearest;
    if (!name || pass_find(name) || (extra && !strcmp(name, extra)))
        return true;
    nearest_init(&nearest, name);
    for (int i = 0; i < num_passes; i++)
        nearest_offer(&nearest, passes[i].name);
    diag_error(&w->diag, (Span){0}, E_USAGE, "unknown pass '%s'", name);
    if (nearest_get(&nearest))
        diag_help(&w->diag, "did you mean '%s'?", nearest_get(&nearest));
    return false;
}

bool work_lower(Work *w, const char *path)
{
    FrontendOptions options;
    int threads;
    w->path = path;
    if (!work_options(w, &options) || !work_threads(w, &threads) ||
        !check_pass_name(w, cli_get(w->cli, OPTION_PRINT_AFTER, NULL), "all"))
        return false;
    if (file_is_program(path)) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "'%s' is a compiled file, not a model text", path);
        diag_help(&w->diag, "'sinter inspect %s' shows what it holds", path);
        return false;
    }
    w->module = frontend_compile(w->arena, &w->diag, path, &options);
    if (!w->module || w->diag.num_errors)
        return false;
    return prepare_passes(w, path) && work_auto(w, &options);
}

bool work_load_ir(Work *w, const char *path)
{
    w->path = path;
    if (!check_pass_name(w, cli_get(w->cli, OPTION_PRINT_AFTER, NULL), "all"))
        return false;
    uint32_t source = work_source(w, path);
    if (!source)
        return false;
    w->module = module_parse(w->arena, &w->diag, source);
    if (!w->module || w->diag.num_errors)
        return false;
    return prepare_passes(w, path);
}

bool work_passes(Work *w, const char *list)
{
    char *rest = list ? arena_strdup(w->arena, list) : NULL;
    for (char *name; rest && (name = strsep(&rest, ","));)
        if (!check_pass_name(w, name, NULL))
            return false;
    return passes_run(w->module, &w->passes, list) && !w->diag.num_errors;
}

bool work_passes_part(Work *w, const char *middle, const char *until, bool after)
{
    bool seen = false;
    Sb sb;
    sb_init(&sb, w->arena);
    for (int i = 0; i < num_passes; i++) {
        if (passes[i].level == 0 && seen == after)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
        seen = seen || !strcmp(passes[i].name, middle);
        if (!strcmp(passes[i].name, until))
            break;
    }
    return work_passes(w, sb.text);
}

bool work_bytes(Work *w, OptionId option, uint64_t least, uint64_t *ret)
{
    const char *text = cli_get(w->cli, option, NULL);
    char *end = NULL;
    if (!text)
        return true;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && *ret >= least)
        return true;
    diag_error(&w->diag, (Span){0}, E_USAGE, "--%s takes a number of bytes, not '%s'",
               option_info[option].name, text);
    return false;
}

/* The class, and its images: its own first. */
static WorkGpu *add_gpu(Work *w, const CodeClass *gpu)
{
    int at = 0;
    while (at < w->num_gpus && w->gpu[at].gpu < gpu) /* rows of one table */
        at++;
    if (at < w->num_gpus && w->gpu[at].gpu == gpu)
        return &w->gpu[at];
    memmove(&w->gpu[at + 1], &w->gpu[at], (size_t)(w->num_gpus - at) * sizeof *w->gpu);
    w->num_gpus++;
    w->gpu[at] = (WorkGpu){.gpu = gpu, .num_archs = 1, .arch = {gpu->arch}};
    return &w->gpu[at];
}

/* "portable", or "sm_86": the same with a binary beside the class's own code. */
static bool add_target(Work *w, const char *name)
{
    const CodeClass *gpu = cuda_class_of(name);
    if (!strcmp(name, "cpu")) {
        w->has_cpu = true;
        return true;
    }
    if (!gpu || !strncmp(name, "compute_", 8)) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "'%s' is no target", name);
        diag_help(&w->diag, "'sinter targets' lists them");
        return false;
    }
    WorkGpu *of = add_gpu(w, gpu);
    bool known = !strcmp(name, gpu->name);
    for (int i = 0; i < of->num_archs; i++)
        known = known || !strcmp(name, of->arch[i]);
    if (!known)
        of->arch[of->num_archs++] = name;
    return true;
}

/* The word for the GPU of this machine, NULL after an error. */
static const char *native_target(Work *w, const char *asked, int ordinal)
{
    const char *why = NULL, *ret = NULL;
    int capability = gpu_here(w->arena, ordinal, &why);
    if (capability)
        ret = gpu_target(w->arena, capability);
    if (ret)
        return ret;
    if (capability)
        why = arena_printf(w->arena, "nothing can be compiled for compute capability %d.%d",
                           capability / 10, capability % 10);
    diag_error(&w->diag, (Span){0}, E_NO_DEVICE, "%s means the GPU of this machine: %s", asked,
               why);
    diag_help(&w->diag, "GPUs of other machines have names: --target=sm_90a; 'sinter targets' "
                        "lists them");
    return NULL;
}

/* --target: exactly what the file holds. Without it, the GPU's plan where --device names one. */
bool work_targets(Work *w)
{
    const char *device = work_device(w);
    int ordinal = 0;
    if (w->has_cpu || w->num_gpus || w->cli->command == COMMAND_TUNE) /* which asks its GPU later */
        return true;
    w->has_cpu = w->variant.cpu_only || w->variant.cpu_too;
    if (w->variant.cpu_only)
        return true;
    bool on_gpu = device && work_gpu(device, &ordinal);
    const char *list = cli_get(w->cli, OPTION_TARGET, on_gpu ? "native" : "cpu");
    char *rest = arena_strdup(w->arena, list);
    for (const char *name; (name = strsep(&rest, ","));) {
        if (!strcmp(name, "native") || !strcmp(name, "cuda")) {
            bool named = cli_has(w->cli, OPTION_TARGET);
            name = native_target(w,
                                 arena_printf(w->arena, "--%s=%s", named ? "target" : "device",
                                              named ? name : device),
                                 ordinal);
        }
        if (!name || !add_target(w, name))
            return false;
    }
    return true;
}

bool work_plan_gpu(Work *w, WorkGpu *gpu)
{
    const char *which = cli_get(w->cli, OPTION_TIMING, NULL);
    CudaPlanOptions options = w->cuda_options;
    Timings timings;
    if (!timings_open(&timings, w->arena, &w->diag, which, gpu->num_archs, gpu->arch))
        return false;
    options.gpu = gpu->gpu;
    options.timings = &timings;
    options.avoided = gpu->avoided.elem;
    options.num_avoided = gpu->avoided.num;
    options.invariant = w->passes.options.invariant;
    options.copies = work_copies(w);
    options.decode = work_decode(w);
    options.layout = work_layout(w);
    return cuda_plan(w->module, w->arena, &w->list, &options, &gpu->cuda);
}

bool work_plan(Work *w)
{
    bool ok = work_targets(w) && codegen_list(w->module, w->arena, &w->list) &&
              (!w->has_cpu || codegen_cpu(w->module, w->arena, &w->list, &w->cpu));
    for (int i = 0; i < w->num_gpus && ok; i++) {
        ok = work_plan_gpu(w, &w->gpu[i]);
        if (ok)
            cuda_check_fused(w->module, &w->gpu[i].cuda);
    }
    return ok && !w->diag.num_errors;
}

/* All errors so far are of layers that are not one kernel. */
static bool is_only_unfused(const Work *w)
{
    for (const DiagMessage *message = w->diag.first; message; message = message->next)
        if (message->severity == SEVERITY_ERROR && message->id != E_NOT_FUSED)
            return false;
    return w->diag.num_errors > 0;
}

static bool plan_after(Work *w, bool passed)
{
    if (passed || is_only_unfused(w))
        return work_plan(w) && passed;
    return false;
}

bool work_passes_and_plan(Work *w)
{
    return plan_after(w, work_passes(w, NULL));
}

bool work_plan_for(Work *w, const char *arch)
{
    WorkGpu *gpu = add_gpu(w, cuda_class_of(arch));
    gpu->arch[0] = arch;
    w->cuda_options.gpu = gpu->gpu;
    w->cuda_options.invariant = w->passes.options.invariant;
    return codegen_list(w->module, w->arena, &w->list) &&
           cuda_plan(w->module, w->arena, &w->list, &w->cuda_options, &gpu->cuda) &&
           !w->diag.num_errors;
}

void work_explain(Work *w, Sb *sb)
{
    if (w->has_cpu)
        codegen_explain(sb, w->module, &w->passes, &w->cpu);
    for (int i = 0; i < w->num_gpus; i++)
        cuda_explain(sb, w->module, &w->passes, &w->gpu[i].cuda);
}

/* Writing ------------------------------------------------------------------------------------- */

bool work_write(Work *w, const char *out_path)
{
    Sb report;
    WriteTarget target[1 + NUM_CODE_CLASSES];
    int num = 0;
    if (w->has_cpu)
        target[num++] = (WriteTarget){.target = &w->cpu};
    for (int i = 0; i < w->num_gpus; i++)
        target[num++] = (WriteTarget){&w->gpu[i].cuda.target, &w->gpu[i].cuda.code};
    sb_init(&report, w->arena);
    work_explain(w, &report);
    const Source *source = &w->diag.sources.elem[0];
    WriteOptions options = {
        .stub = sinter_stub,
        .stub_size = sinter_stub_size,
        .source_name = source->name,
        .source_text = source->text,
        .source_len = source->len,
        .report = report.text,
        .progress = work_progress(w),
        .user = w,
    };
    return codegen_write(w->module, num, target, out_path, &options) && !w->diag.num_errors;
}

/* The pipeline from the pass after `first` (NULL: the beginning) to `last` (NULL: the end). */
static const char *pipeline_part(Work *w, const char *first, const char *last)
{
    Sb sb;
    sb_init(&sb, w->arena);
    bool inside = !first;
    for (int i = 0; i < num_passes; i++) {
        if (inside && passes[i].level <= w->passes.options.opt_level)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
        if (last && !strcmp(passes[i].name, last))
            break;
        inside = inside || (first && !strcmp(passes[i].name, first));
    }
    return sb.text;
}

/* The pipeline, over a model whose layers are watched or looked at on the way. */
static bool run_pipeline(Work *w)
{
    if (!w->variant.tapped && !w->calibrated)
        return work_passes(w, NULL);
    if (w->variant.tapped) {
        taps_add(w->module);
        taps_widen(w->module, w->variant.rows);
    }
    if (!work_passes(w, pipeline_part(w, NULL, "calibrate")))
        return false;
    if (w->variant.tapped)
        taps_take_ranges(w->module);
    if (w->calibrated)
        w->calibrated(w, w->user);
    return work_passes(w, pipeline_part(w, "calibrate", NULL));
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* While the file is made its texts go by their names alone, so that the same model gives the same
 * bytes from every folder. */
bool work_compile(Work *w, const char *path, const char *out_path)
{
    if (!work_lower(w, path))
        return false;
    bool passed = run_pipeline(w);
    int num = w->diag.sources.num;
    const char **name = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    for (int i = 0; i < num; i++) {
        name[i] = w->diag.sources.elem[i].name;
        w->diag.sources.elem[i].name = base_name(name[i]);
    }
    bool ok = plan_after(w, passed) && work_slower(w) && work_compile_kernels(w) &&
              work_write(w, out_path);
    for (int i = 0; i < num; i++)
        w->diag.sources.elem[i].name = name[i];
    return ok;
}

bool file_is_program(const char *path)
{
    char magic[4] = "";
    int fd = source_is_stream(path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is = read(fd, magic, sizeof magic) == sizeof magic && !memcmp(magic, "\177ELF", 4);
    close(fd);
    return is;
}

/* Whether this command line has a text, too, which its options may be meant for. */
static bool has_text(const Cli *cli)
{
    const char *other = cli_get(cli, OPTION_AGAINST, NULL);
    bool ret = other && !file_is_program(other);
    for (int i = 0; i < cli->operand.num; i++)
        ret = ret || !file_is_program(cli->operand.elem[i]);
    return ret;
}

/* Nothing that compiling would have heeded passes in silence. */
static bool refuse_late(Work *w, const char *path)
{
    static const OptionId late[] = {
        OPTION_DEFINE, OPTION_OPT_LEVEL,   OPTION_RULES,         OPTION_WEIGHTS, /* of any file */
        OPTION_TARGET, OPTION_INVARIANT,   OPTION_CHECK_EVAL,    OPTION_PRINT_AFTER,
        OPTION_TIMING, OPTION_TIME_PASSES, OPTION_FAIL_ON_SPILL, OPTION_COPIES,
        OPTION_DECODE, OPTION_LAYOUT,      OPTION_QUANTISE_ON,   OPTION_NO_MEASURE,
        OPTION_TIMES,  OPTION_ERRORS};
    size_t num = has_text(w->cli) ? 4 : COUNT_OF(late);
    for (size_t i = 0; i < num; i++) {
        const OptionInfo *option = &option_info[late[i]];
        if (!cli_has(w->cli, late[i]))
            continue;
        diag_error(&w->diag, (Span){0}, E_USAGE, "'%s' is already compiled: %s%s comes too late",
                   path, option->name[0] ? "--" : "-",
                   option->name[0] ? option->name : (char[]){option->letter, 0});
        diag_help(&w->diag, "give it where the text is compiled");
        return false;
    }
    return true;
}

const char *work_program(Work *w, const char *path)
{
    if (file_is_program(path))
        return refuse_late(w, path) ? path : NULL;
    char *file = arena_alloc(w->arena, FILE_UNNAMED);
    if (file_unnamed(file) < 0) { /* stays open as long as the process */
        diag_error(&w->diag, (Span){0}, E_TEMPORARY, "no file can be made in '%s': %s",
                   temporary_folder(), strerror(errno));
        return NULL;
    }
    return work_compile(w, path, file) ? file : NULL;
}

bool work_put(Work *w, const char *path, const char *text, size_t len)
{
    if (!path || !strcmp(path, "-")) {
        fwrite(text, 1, len, stdout); /* main checks standard output once, at the end */
        return true;
    }
    IoError err;
    OutFile *out = outfile_create(path, 0666, &err);
    bool ok = out != NULL;
    if (out) {
        outfile_write(out, text, len);
        ok = outfile_finish(out, &err);
    }
    if (!ok)
        work_io_error(w, &err);
    return ok;
}
