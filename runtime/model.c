/* Opening compiled files: maps, verifies every hash, decodes the plans. Weights stay in the
 * mapping. And what a model can say about itself. */
#include "base/utf8.h"
#include "runtime/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const Device *const devices[] = {&device_cpu, &device_cuda, NULL};

const Plan plan_of_nothing = {.target = ""};

const char *sinter_version(void)
{
    return SINTER_VERSION;
}

const char *sinter_status_name(SinterStatus status)
{
    switch (status) {
    case SINTER_OK: return "ok";
    case SINTER_ERROR_FILE: return "bad file";
    case SINTER_ERROR_ARGUMENT: return "bad argument";
    case SINTER_ERROR_MEMORY: return "out of memory";
    case SINTER_ERROR_NO_DEVICE: return "no such device";
    case SINTER_ERROR_DEVICE: return "device failure";
    case SINTER_ERROR_UNSUPPORTED: return "unsupported";
    }
    return "unknown status";
}

SinterStatus model_fail(SinterError *err, SinterStatus status, const char *fmt, ...)
{
    if (!err)
        return status;
    char text[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err->status = status;
    utf8_show(text, err->text, sizeof err->text); /* callers print what files are called */
    return status;
}

SinterDtype dtype_of_format(FormatId fmt)
{
    switch ((int)fmt) {
    case FMT_F16: return SINTER_F16;
    case FMT_BF16: return SINTER_BF16;
    case FMT_I32: return SINTER_I32;
    default: return SINTER_F32;
    }
}

FormatId format_of_dtype(SinterDtype dtype)
{
    switch ((int)dtype) {
    case SINTER_F32: return FMT_F32;
    case SINTER_F16: return FMT_F16;
    case SINTER_BF16: return FMT_BF16;
    case SINTER_I32: return FMT_I32;
    default: return FMT_NONE;
    }
}

/* Opening -------------------------------------------------------------------------------------- */

static SinterStatus file_status(ErrorId id)
{
    return id == E_MEMORY ? SINTER_ERROR_MEMORY : SINTER_ERROR_FILE;
}

/* "model = mlp", a line of the description. */
static void read_name(SinterModel *model)
{
    static const char key[] = "model = ";
    const Section *s = artifact_find(&model->artifact, SECTION_META, NULL);
    const char *text = s ? (const char *)artifact_data(&model->artifact, s) : "";
    const char *end = text + (s ? s->size : 0);
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (!line_end)
            line_end = end;
        size_t len = (size_t)(line_end - text);
        if (len >= sizeof key - 1 && !memcmp(text, key, sizeof key - 1)) {
            snprintf(model->name, sizeof model->name, "%.*s", (int)(len - (sizeof key - 1)),
                     text + sizeof key - 1);
            return;
        }
        text = line_end + (line_end < end);
    }
}

static bool read_target(SinterModel *model, ModelTarget *t, const Section *plan, IoError *why)
{
    const Section *code = artifact_find(&model->artifact, SECTION_CODE, plan->name);
    t->plan = plan_load(&model->artifact, plan, why);
    if (!t->plan || (model->num_targets && !plans_agree(model_plan(model), t->plan, why)))
        return false;
    if (code)
        t->code =
            device_code_decode(artifact_data(&model->artifact, code), code->size, t->plan, why);
    return !code || t->code;
}

/* Plans of targets that this version does not know are passed over. */
static bool open_target(SinterModel *model, const Section *plan, const char *path, IoError *err)
{
    ModelTarget *t = &model->target[model->num_targets];
    const CodeClass *gpu = code_class_find(plan->name);
    IoError why;
    if (model->num_targets == MOST_TARGETS || (!gpu && strcmp(plan->name, "cpu") != 0))
        return true;
    *t = (ModelTarget){.device = gpu ? &device_cuda : &device_cpu, .gpu = gpu};
    if (!read_target(model, t, plan, &why)) {
        plan_free(t->plan);
        err->id = why.id;
        snprintf(err->text, sizeof err->text, "%.200s: %.300s", path, why.text);
        return false;
    }
    pthread_mutex_init(&t->shared.lock, NULL);
    model->num_targets++;
    return true;
}

/* A program that is its own file is called what it was called, not where the kernel has it. */
#define OWN_FILE "/proc/self/exe"
static SinterStatus open_fail(const char *path, const IoError *why, SinterError *err)
{
    size_t len = strlen(OWN_FILE);
    if (path || strncmp(why->text, OWN_FILE, len) != 0)
        return model_fail(err, file_status(why->id), "%s", why->text);
    return model_fail(err, file_status(why->id), "%.200s%s", program_invocation_name,
                      why->text + len);
}

static SinterStatus open_model(const char *path, bool copy, SinterModel **ret, SinterError *err)
{
    if (!ret)
        return model_fail(err, SINTER_ERROR_ARGUMENT,
                          "there is no place for the model: it is NULL");
    *ret = NULL;
    SinterModel *model = calloc(1, sizeof *model);
    if (!model)
        return model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    model->refs = 1;
    IoError why = {.id = E_NONE};
    const char *file = path ? path : OWN_FILE;
    if (!(copy ? artifact_open_copy(file, &model->artifact, &why)
               : artifact_open(file, false, &model->artifact, &why))) {
        free(model);
        return open_fail(path, &why, err);
    }
    const char *shown = path ? path : "this program";
    const Section *weights = artifact_find(&model->artifact, SECTION_WEIGHTS, NULL);
    model->weights = weights ? artifact_data(&model->artifact, weights) : NULL;
    for (int i = 0; i < model->artifact.num_sections; i++)
        if (model->artifact.section[i].kind == SECTION_PLAN &&
            !open_target(model, &model->artifact.section[i], shown, &why)) {
            sinter_close(model);
            return model_fail(err, file_status(why.id), "%s", why.text);
        }
    if (!model->num_targets) {
        sinter_close(model);
        return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                          "%s holds no code for a device that this version knows", shown);
    }
    read_name(model);
    *ret = model;
    return SINTER_OK;
}

void model_hold(SinterModel *model)
{
    __atomic_add_fetch(&model->refs, 1, __ATOMIC_RELAXED);
}

SinterStatus sinter_open(const char *path, SinterModel **ret, SinterError *err)
{
    return open_model(path, false, ret, err);
}

SinterStatus sinter_open_copy(const char *path, SinterModel **ret, SinterError *err)
{
    return open_model(path, true, ret, err);
}

void sinter_close(SinterModel *model)
{
    if (!model || __atomic_sub_fetch(&model->refs, 1, __ATOMIC_ACQ_REL))
        return;
    for (int i = 0; i < model->num_targets; i++) {
        ModelTarget *t = &model->target[i];
        if (t->device->close)
            t->device->close(t->shared.state);
        pthread_mutex_destroy(&t->shared.lock);
        device_code_free(t->code);
        plan_free(t->plan);
    }
    artifact_close(&model->artifact);
    free(model);
}

ModelTarget *model_target(SinterModel *model, const char *name)
{
    for (int i = 0; i < model->num_targets; i++)
        if (!strcmp(model->target[i].plan->target, name))
            return &model->target[i];
    return NULL;
}

static void add_word(char *buf, size_t size, const char *separator, const char *word)
{
    size_t len = strlen(buf);
    snprintf(buf + len, size - len, "%s%s", len ? separator : "", word);
}

const char *model_holds(const SinterModel *model, char *buf, size_t size)
{
    buf[0] = 0;
    for (int i = 0; i < model->num_targets; i++)
        add_word(buf, size, i + 1 == model->num_targets ? " and " : ", ",
                 model->target[i].plan->target);
    return buf;
}

const char *model_words(const SinterModel *model, const char *more, char *buf, size_t size)
{
    snprintf(buf, size, "--target=%s", more);
    for (int i = 0; i < model->num_targets; i++)
        add_word(buf, size, ",", model->target[i].plan->target);
    return buf;
}

/* Questions ------------------------------------------------------------------------------------ */

const char *sinter_model_name(const SinterModel *model)
{
    return model ? model->name : "";
}

int sinter_num_inputs(const SinterModel *model)
{
    return model_plan(model)->num_inputs;
}

int sinter_num_outputs(const SinterModel *model)
{
    return model_plan(model)->num_outputs;
}

static const PlanPort *port_at(const SinterModel *model, bool is_output, int index)
{
    const Plan *p = model_plan(model);
    if (index < 0 || index >= (is_output ? p->num_outputs : p->num_inputs))
        return NULL;
    return is_output ? &p->output[index] : &p->input[index];
}

static SinterPort port_describe(const SinterModel *model, bool is_output, int index)
{
    const PlanPort *port = port_at(model, is_output, index);
    if (!port)
        return (SinterPort){0};
    const PlanTensor *t = &model_plan(model)->tensor[port->tensor];
    SinterPort ret = {.name = port->name, .dtype = dtype_of_format(t->fmt), .rank = t->rank};
    for (int i = 0; i < t->rank; i++) {
        bool varies = t->dim[i].mul && (t->dim[i].sym[0] >= 0 || t->dim[i].sym[1] >= 0);
        ret.dim[i] = varies ? -1 : t->dim[i].mul + t->dim[i].add;
    }
    return ret;
}

SinterPort sinter_input(const SinterModel *model, int index)
{
    return port_describe(model, false, index);
}

SinterPort sinter_output(const SinterModel *model, int index)
{
    return port_describe(model, true, index);
}

int sinter_num_symbols(const SinterModel *model)
{
    return model_plan(model)->num_syms;
}

const char *sinter_symbol(const SinterModel *model, int index)
{
    const Plan *p = model_plan(model);
    return index >= 0 && index < p->num_syms ? p->sym[index].name : NULL;
}

int sinter_num_buckets(const SinterModel *model)
{
    return model_plan(model)->num_buckets;
}

int64_t sinter_bucket_size(const SinterModel *model, int bucket, int symbol)
{
    const Plan *p = model_plan(model);
    bool ok = bucket >= 0 && bucket < p->num_buckets && symbol >= 0 && symbol < p->num_syms;
    return ok ? plan_bucket(p, bucket)[symbol] : 0;
}

uint64_t sinter_bucket_bytes(const SinterModel *model, int bucket)
{
    const Plan *p = model_plan(model);
    return bucket >= 0 && bucket < p->num_buckets ? p->arena_bytes[bucket] : 0;
}

uint64_t sinter_weight_bytes(const SinterModel *model)
{
    return !model ? 0 : plan_weight_bytes(model_plan(model));
}

static int dim_text(const Plan *p, PlanDim d, char *buf, size_t size)
{
    int len = 0;
    bool any = false;
    buf[0] = 0;
    if (d.mul != 1 && d.mul != 0) {
        len = snprintf(buf, size, "%lld", (long long)d.mul);
        any = true;
    }
    for (int i = 0; d.mul && i < 2; i++)
        if (d.sym[i] >= 0 && (size_t)len < size) {
            len += snprintf(buf + len, size - (size_t)len, "%s%s", any ? "*" : "",
                            p->sym[d.sym[i]].name);
            any = true;
        }
    if ((d.add || !any) && (size_t)len < size)
        len += snprintf(buf + len, size - (size_t)len, any ? "%+lld" : "%lld",
                        (long long)(any ? d.add : d.mul + d.add));
    return len;
}

SinterStatus model_sizes_fail(const Plan *p, const int64_t *size, const char *why, SinterError *err)
{
    for (int i = 0; i < p->num_syms; i++)
        if (size[i] == 0) /* products of no rows or columns: kernels have none such */
            return model_fail(err, SINTER_ERROR_ARGUMENT,
                              "%s is 0, and of an empty batch no output can be computed that holds "
                              "elements; give 1 or more",
                              p->sym[i].name);
    return model_fail(err, SINTER_ERROR_ARGUMENT, "these sizes cannot be run: %s", why);
}

const char *sinter_port_text(const SinterModel *model, int is_output, int index, char *buf,
                             size_t size)
{
    const PlanPort *port = port_at(model, is_output, index);
    if (!buf || !size)
        return buf;
    buf[0] = 0;
    if (!port)
        return buf;
    const Plan *p = model_plan(model);
    const PlanTensor *t = &p->tensor[port->tensor];
    size_t len = (size_t)snprintf(buf, size, "%s[", format_info[t->fmt].name);
    for (int i = 0; i < t->rank && len < size; i++) {
        char dim[64];
        dim_text(p, t->dim[i], dim, sizeof dim);
        len += (size_t)snprintf(buf + len, size - len, "%s%s", i ? ", " : "", dim);
    }
    if (len < size)
        snprintf(buf + len, size - len, "]");
    return buf;
}

SinterStatus sinter_port_shape(const SinterModel *model, int is_output, int index,
                               const int64_t *symbol_size, SinterTensor *ret, SinterError *err)
{
    const PlanPort *port = port_at(model, is_output, index);
    if (!port)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "there is no %s %d",
                          is_output ? "output" : "input", index);
    if (!ret || (!symbol_size && model_plan(model)->num_syms))
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the sizes or the tensor are NULL");
    const PlanTensor *t = &model_plan(model)->tensor[port->tensor];
    ret->name = port->name;
    ret->dtype = dtype_of_format(t->fmt);
    ret->rank = t->rank;
    for (int i = 0; i < t->rank; i++) {
        ret->dim[i] = plan_dim_eval(t->dim[i], symbol_size);
        if (ret->dim[i] < 0 || ret->dim[i] > LIMIT_DIM)
            return model_fail(err, SINTER_ERROR_ARGUMENT,
                              "dimension %d of \"%s\" is out of range for these sizes", i,
                              port->name);
    }
    return SINTER_OK;
}
