/* The float model on a device, for calibration; see calibrate_on.h. */
#include "driver/calibrate_on.h"
#include "codegen/cuda/target.h"
#include "driver/gpu_here.h"
#include "driver/trial.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Runs {
    const CalibrateOn *on;
    Arena *arena; /* of these runs */
    Module *m;
    int num;
    const Value *const *value;
    SinterModel *model;
    SinterSession *session;
    SinterError err; /* of the latest run */
} Runs;

static bool is_cpu(const CalibrateOn *on)
{
    return !strcmp(on->device, "cpu");
}

/* Compiling ------------------------------------------------------------------------------------ */

/* A copy whose layers are not quantised, with an output more for each value. */
static Module *copy_with_outputs(const Runs *r)
{
    Module *m = module_clone(r->arena, r->m);
    const Op *from = r->m->body.first;
    const Op *last = m->body.last;
    for (Op *op = m->body.first; op; op = op->next, from = from->next) {
        if (op->kind == OP_MATMUL)
            op->attr.quant = NULL;
        for (int i = 0; i < r->num; i++)
            if (r->value[i]->def == from)
                build_output(m, arena_printf(r->arena, "%%seen%d", i), op_out(op), op->span);
        if (op == last)
            break;
    }
    return m;
}

/* The passes behind calibration. */
static bool lower(const Runs *r, Module *m)
{
    PassContext ctx;
    const PassOptions options = {.opt_level = 1,
                                 .limits = is_cpu(r->on) ? &limits_cpu : &limits_gpus};
    Sb sb;
    bool on = false;
    sb_init(&sb, r->arena);
    for (int i = 0; i < num_passes; i++) {
        on = on || !strcmp(passes[i].name, "insert-quant");
        if (on && passes[i].level <= options.opt_level)
            sb_printf(&sb, "%s%s", sb.len ? "," : "", passes[i].name);
    }
    pass_context_init(&ctx, r->arena, &options);
    return passes_run(m, &ctx, sb.text);
}

/* What the device's plan is written from. */
typedef struct Compiled {
    CodegenTarget list, cpu;
    CudaTarget cuda;
} Compiled;

static bool compile_cuda(const Runs *r, Module *m, Compiled *c)
{
    const char *why = NULL;
    int capability = gpu_here(r->arena, r->on->ordinal, &why);
    const char *word = capability ? gpu_target(r->arena, capability) : NULL;
    if (!word) {
        diag_error(m->diag, (Span){0}, E_NO_DEVICE, "%s: %s", r->on->device,
                   why ? why : "nothing can be compiled for it");
        return false;
    }
    const CodeClass *gpu = cuda_class_of(word);
    const CudaPlanOptions plan = {.gpu = gpu};
    const CudaCompileOptions options = {.num_archs = 1,
                                        .arch = &gpu->arch,
                                        .threads = r->on->threads,
                                        .no_cache = !r->on->use_cache};
    return cuda_plan(m, r->arena, &c->list, &plan, &c->cuda) &&
           cuda_compile(m->diag, r->arena, &c->cuda, &options);
}

static bool compile(const Runs *r, Module *m, Compiled *c, WriteTarget *ret)
{
    bool cpu = is_cpu(r->on);
    *ret = cpu ? (WriteTarget){.target = &c->cpu} : (WriteTarget){&c->cuda.target, &c->cuda.code};
    return lower(r, m) && codegen_list(m, r->arena, &c->list) &&
           (cpu ? codegen_cpu(m, r->arena, &c->list, &c->cpu) : compile_cuda(r, m, c)) &&
           !m->diag->num_errors;
}

static bool open_session(Runs *r, const char *file)
{
    const SinterSessionOptions session = {.device = r->on->device, .threads = r->on->threads};
    if (!sinter_open(file, &r->model, &r->err) &&
        !sinter_session_create(r->model, &session, &r->session, &r->err))
        return true;
    diag_error(r->m->diag, (Span){0}, E_NO_DEVICE, "%s", r->err.text);
    return false;
}

static bool open_model(Runs *r, Module *m, const WriteTarget *target)
{
    static const char stub[1];
    char file[FILE_UNNAMED];
    const WriteOptions options = {.stub = stub, .source_name = "", .source_text = "", .report = ""};
    int fd = file_unnamed(file);
    if (fd < 0) {
        diag_error(m->diag, (Span){0}, E_TEMPORARY, "no file can be made in '%s': %s",
                   temporary_folder(), strerror(errno));
        return false;
    }
    bool ok = codegen_write(m, 1, target, file, &options) && !m->diag->num_errors &&
              open_session(r, file);
    close(fd);
    return ok;
}

static void end(void *state)
{
    Runs *r = state;
    sinter_session_destroy(r->session);
    sinter_close(r->model);
    arena_destroy(r->arena);
    free(r);
}

/* CalibrationEngine.begin */
static void *begin(void *user, Module *m, int num, const Value *const *value)
{
    Runs *r = calloc(1, sizeof *r);
    if (!r)
        memory_exhausted();
    *r = (Runs){.on = user, .arena = arena_new(), .m = m, .num = num, .value = value};
    Compiled compiled;
    WriteTarget target;
    Module *copy = copy_with_outputs(r);
    if (compile(r, copy, &compiled, &target) && open_model(r, copy, &target))
        return r;
    end(r);
    return NULL;
}

/* Running -------------------------------------------------------------------------------------- */

/* As the port is declared; NULL: it is not among the inputs. */
static const Tensor *find_input(int num, const char *const *name, const Tensor *in,
                                const char *port)
{
    for (int i = 0; i < num; i++)
        if (!strcmp(name[i], port))
            return &in[i];
    return NULL;
}

static bool bind_inputs(Runs *r, Arena *arena, int num, const char *const *name, const Tensor *in,
                        SinterTensor *to)
{
    for (int i = 0; i < sinter_num_inputs(r->model); i++) {
        SinterPort port = sinter_input(r->model, i);
        const Tensor *from = find_input(num, name, in, port.name);
        if (!from)
            return false;
        to[i] = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = from->rank};
        memcpy(to[i].dim, from->dim, (size_t)from->rank * sizeof *from->dim);
        uint64_t all = trial_elements(&to[i]);
        float *x = arena_alloc(arena, all * sizeof *x + 64);
        to[i].data = arena_alloc(arena, all * sizeof *x + 64);
        format_to_f32(from->fmt, from->data, x, all);
        format_from_f32(port_format(port.dtype), x, to[i].data, all);
    }
    return true;
}

static void give(const Runs *r, const SinterTensor *out, EvalObserver observe, void *observer)
{
    int at;
    if (sscanf(out->name, "%%seen%d", &at) != 1)
        return;
    Tensor t = {.fmt = port_format(out->dtype), .rank = out->rank, .data = out->data};
    memcpy(t.dim, out->dim, (size_t)out->rank * sizeof *out->dim);
    t.bytes = trial_elements(out) * (uint64_t)(format_info[t.fmt].bits / 8);
    observe(observer, r->value[at], &t);
}

/* CalibrationEngine.run */
static bool run(void *runs, int num, const char *const *name, const Tensor *in,
                EvalObserver observe, void *observer, const char **ret_why)
{
    Runs *r = runs;
    Arena *arena = arena_new();
    int num_in = sinter_num_inputs(r->model), num_out = sinter_num_outputs(r->model);
    SinterTensor *x = ARENA_NEW_ARRAY(arena, SinterTensor, (size_t)num_in + 1);
    SinterTensor *y = ARENA_NEW_ARRAY(arena, SinterTensor, (size_t)num_out + 1);
    snprintf(r->err.text, sizeof r->err.text, "an input has no data");
    bool ok = bind_inputs(r, arena, num, name, in, x) &&
              !sinter_output_shapes(r->session, x, num_in, y, num_out, &r->err);
    for (int i = 0; i < num_out && ok; i++)
        y[i].data = arena_alloc(arena, trial_elements(&y[i]) * 4 + 64);
    ok = ok && !sinter_run(r->session, x, num_in, y, num_out, &r->err);
    for (int i = 0; i < num_out && ok; i++)
        give(r, &y[i], observe, observer);
    arena_destroy(arena);
    *ret_why = r->err.text;
    return ok;
}

const CalibrationEngine *calibrate_on(Arena *arena, const CalibrateOn *options)
{
    CalibrateOn *on = ARENA_NEW(arena, CalibrateOn);
    *on = *options;
    on->engine = (CalibrationEngine){.user = on, .begin = begin, .run = run, .end = end};
    return &on->engine;
}
