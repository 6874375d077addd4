/* Models compiled and run in passing. The file that runs is made by the same code as the user's,
 * in a temporary folder, and loses its name as soon as it is open. */
#include "choose/lab.h"
#include "io/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Texts --------------------------------------------------------------------------------------- */

/* The user's options with one more file of rules, the last. */
static FrontendOptions options_with(Arena *arena, const ChooseOptions *o, const char *rules)
{
    FrontendOptions ret = o->frontend;
    size_t num = (size_t)ret.num_rule_files;
    const char **file = ARENA_NEW_ARRAY(arena, const char *, num + 1);
    const char **text = ARENA_NEW_ARRAY(arena, const char *, num + 1);
    for (size_t i = 0; i < num; i++) {
        file[i] = o->frontend.rule_file[i];
        text[i] = o->frontend.rule_text ? o->frontend.rule_text[i] : NULL;
    }
    if (rules) {
        file[num] = "<auto>";
        text[num] = rules;
        ret.num_rule_files++;
    }
    ret.rule_file = file;
    ret.rule_text = text;
    return ret;
}

bool probe_lower(Probe *t, const Lab *lab, const char *rules)
{
    *t = (Probe){.lab = lab, .arena = arena_new(), .file = -1};
    diag_init(&t->diag, t->arena);
    const ChooseOptions *o = lab->options;
    FrontendOptions options = options_with(t->arena, o, rules);
    uint32_t source = diag_add_source(&t->diag, o->name, o->text, o->len);
    Ast *ast = ast_parse(t->arena, &t->diag, source);
    if (ast && ast_check(ast, &t->diag, &options))
        t->module = ast_lower(ast, t->arena, &t->diag);
    PassOptions quiet = o->passes;
    quiet.trace = NULL;
    quiet.progress = NULL;
    quiet.print_after = NULL;
    quiet.time_passes = quiet.check_eval = false;
    pass_context_init(&t->passes, t->arena, &quiet);
    return t->module && !t->diag.num_errors;
}

bool probe_passes(Probe *t, const char *list)
{
    return passes_run(t->module, &t->passes, list) && !t->diag.num_errors;
}

bool probe_passes_to(Probe *t, const char *last)
{
    Sb sb;
    sb_init(&sb, t->arena);
    for (int i = 0; i < num_passes; i++) {
        if (passes[i].level <= t->passes.options.opt_level)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
        if (!strcmp(passes[i].name, last))
            break;
    }
    return probe_passes(t, sb.text);
}

bool probe_passes_from(Probe *t, const char *first)
{
    Sb sb;
    bool on = false;
    sb_init(&sb, t->arena);
    for (int i = 0; i < num_passes; i++) {
        on = on || !strcmp(passes[i].name, first);
        if (on && passes[i].level <= t->passes.options.opt_level)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
    }
    return probe_passes(t, sb.text);
}

bool probe_plan(Probe *t)
{
    bool ok = t->lab->options->device ? codegen_list(t->module, t->arena, &t->target)
                                      : codegen_plan(t->module, t->arena, &t->target);
    return ok && !t->diag.num_errors;
}

bool probe_plan_gpu(Probe *t)
{
    const ChooseOptions *o = t->lab->options;
    const CudaPlanOptions options = {.gpu = o->gpu,
                                     .timings = o->timings,
                                     .invariant = o->passes.invariant,
                                     .copies = o->copies,
                                     .decode = o->decode,
                                     .layout = o->layout};
    return cuda_plan(t->module, t->arena, &t->target, &options, &t->cuda) && !t->diag.num_errors;
}

bool probe_compile_gpu(Probe *t)
{
    const ChooseOptions *o = t->lab->options;
    const CudaCompileOptions options = {.num_archs = o->device->num_archs,
                                        .arch = o->device->arch,
                                        .threads = o->threads,
                                        .no_cache = !o->passes.use_cache};
    return cuda_compile(&t->diag, t->arena, &t->cuda, &options) && !t->diag.num_errors;
}

int probe_file(Probe *t)
{
    static const char stub[1];
    char file[FILE_UNNAMED];
    int fd = t->file >= 0 ? t->file : file_unnamed(file);
    WriteOptions options = {.stub = stub, .source_name = "", .source_text = "", .report = ""};
    const WriteTarget cpu = {.target = &t->target}, gpu = {&t->cuda.target, &t->cuda.code};
    if (t->file >= 0)
        return t->file;
    if (fd < 0) {
        diag_error(&t->diag, (Span){0}, E_TEMPORARY, "no file can be made in '%s': %s",
                   temporary_folder(), strerror(errno));
        return -1;
    }
    if (codegen_write(t->module, 1, t->lab->options->device ? &gpu : &cpu, file, &options) &&
        !t->diag.num_errors)
        return t->file = fd;
    close(fd);
    return -1;
}

static ErrorId error_of(SinterStatus status, bool on_device)
{
    switch (status) {
    case SINTER_ERROR_MEMORY: return on_device ? E_NO_DEVICE : E_MEMORY; /* others may hold it */
    case SINTER_ERROR_NO_DEVICE:
    case SINTER_ERROR_DEVICE: return E_NO_DEVICE;
    default: return E_TEMPORARY;
    }
}

static bool open_file(Probe *t, int fd)
{
    char file[FILE_UNNAMED];
    SinterError err;
    const ChooseOptions *o = t->lab->options;
    SinterSessionOptions session = {.device = o->device ? o->device->name : "cpu",
                                    .threads = o->threads};
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
    if (!sinter_open(file, &t->model, &err) &&
        !sinter_session_create(t->model, &session, &t->session, &err))
        return true;
    diag_error(&t->diag, (Span){0}, error_of(err.status, o->device != NULL), "%s", err.text);
    return false;
}

bool probe_open(Probe *t)
{
    if (t->lab->options->device && (!probe_plan_gpu(t) || !probe_compile_gpu(t)))
        return false;
    int fd = probe_file(t);
    return fd >= 0 && open_file(t, fd);
}

void probe_leave(Probe *t)
{
    sinter_session_destroy(t->session);
    sinter_close(t->model);
    t->session = NULL;
    t->model = NULL;
}

/* A candidate that fails because the system does is no worse: the choice would be another. */
static void system_failed(const Probe *t)
{
    static const ErrorId of_system[] = {E_READ, E_FILE_OPEN, E_FILE_WRITE, E_TEMPORARY};
    for (const DiagMessage *m = t->diag.first; m; m = m->next) {
        if (m->severity != SEVERITY_ERROR)
            continue;
        if (m->id == E_MEMORY)
            memory_exhausted();
        for (size_t i = 0; i < COUNT_OF(of_system); i++)
            if (m->id == of_system[i] && !t->lab->diag->num_errors)
                diag_error(t->lab->diag, (Span){0}, m->id, "%s", m->text);
    }
}

void probe_close(Probe *t)
{
    if (!t->arena)
        return;
    system_failed(t);
    probe_leave(t);
    if (t->file >= 0)
        close(t->file);
    if (t->module && t->module->weights)
        weights_close(t->module->weights);
    arena_destroy(t->arena);
    t->arena = NULL;
}

const char *probe_problem(const Probe *t)
{
    for (const DiagMessage *m = t->diag.first; m; m = m->next)
        if (m->severity == SEVERITY_ERROR)
            return m->text;
    return "";
}

/* The place is kept where it lies in the user's text, the first of both registries. */
bool probe_fail(const Probe *t, const char *doing)
{
    for (const DiagMessage *m = t->diag.first; m; m = m->next) {
        if (m->severity != SEVERITY_ERROR)
            continue;
        diag_error(t->lab->diag, m->span.file == 1 ? m->span : (Span){0}, m->id, "%s%s%s", m->text,
                   doing ? "; while " : "", doing ? doing : "");
        for (const DiagMessage *c = m->child; c; c = c->next)
            if (c->severity == SEVERITY_HELP)
                diag_help(t->lab->diag, "%s", c->text);
    }
    return false;
}

/* Running ------------------------------------------------------------------------------------- */

int64_t tensor_count(const SinterTensor *t)
{
    int64_t num = 1;
    for (int i = 0; i < t->rank; i++)
        num *= t->dim[i];
    return num;
}

static FormatId port_format(SinterDtype dtype)
{
    switch ((int)dtype) {
    case SINTER_F16: return FMT_F16;
    case SINTER_BF16: return FMT_BF16;
    case SINTER_I32: return FMT_I32;
    default: return FMT_F32;
    }
}

static bool run_fail(Probe *t, const SinterError *err)
{
    ErrorId id = error_of(err->status, t->lab->options->device != NULL);
    if (id == E_MEMORY)
        memory_exhausted();
    diag_error(&t->diag, (Span){0}, id == E_NO_DEVICE ? id : E_CALIBRATION_DATA, "%s", err->text);
    return probe_fail(t, "running the model to choose formats");
}

static SinterPort input_named(const SinterModel *model, const char *name)
{
    int num = sinter_num_inputs(model), i = 0;
    while (i + 1 < num && strcmp(sinter_input(model, i).name, name) != 0)
        i++;
    return sinter_input(model, i);
}

static Tensors converted(Probe *t, const Tensors *in, Arena *scratch)
{
    Tensors ret = {in->num, ARENA_NEW_ARRAY(scratch, SinterTensor, (size_t)in->num + 1)};
    for (int i = 0; i < in->num; i++) {
        SinterPort port = input_named(t->model, in->tensor[i].name);
        FormatId fmt = port_format(port.dtype);
        int64_t num = tensor_count(&in->tensor[i]);
        ret.tensor[i] = in->tensor[i];
        if (in->tensor[i].dtype == port.dtype)
            continue;
        ret.tensor[i].dtype = port.dtype;
        ret.tensor[i].data = arena_alloc(scratch, (size_t)num * 4 + 64);
        format_from_f32(fmt, in->tensor[i].data, ret.tensor[i].data, (uint64_t)num);
    }
    return ret;
}

bool probe_run(Probe *t, const Tensors *in, Arena *arena, Tensors *ret)
{
    SinterError err;
    Arena *scratch = arena_new();
    Tensors ready = converted(t, in, scratch);
    ret->num = sinter_num_outputs(t->model);
    ret->tensor = ARENA_NEW_ARRAY(arena, SinterTensor, (size_t)ret->num + 1);
    bool ok =
        !sinter_output_shapes(t->session, ready.tensor, ready.num, ret->tensor, ret->num, &err);
    for (int i = 0; ok && i < ret->num; i++)
        ret->tensor[i].data = arena_alloc(arena, (size_t)tensor_count(&ret->tensor[i]) * 4 + 64);
    ok = ok && !sinter_run(t->session, ready.tensor, ready.num, ret->tensor, ret->num, &err);
    for (int i = 0; ok && i < ret->num; i++) {
        SinterTensor *out = &ret->tensor[i];
        int64_t num = tensor_count(out);
        FormatId fmt = port_format(out->dtype);
        if (fmt != FMT_F32) {
            float *x = arena_alloc(arena, (size_t)num * 4 + 64);
            format_to_f32(fmt, out->data, x, (uint64_t)num);
            out->data = x;
            out->dtype = SINTER_F32;
        }
    }
    arena_destroy(scratch);
    return ok || run_fail(t, &err);
}
