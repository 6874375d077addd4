/* Sessions: matches the caller's tensors with the model's ports, reads the sizes of symbols off
 * them, chooses the bucket, cuts batches that no bucket holds, and hands each piece to the device.
 */
#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>

struct SinterSession {
    int refs;           /* atomic: one of who created it, one of each tensor over its memory */
    SinterModel *model; /* held */
    const Device *device;
    int ordinal;
    char device_name[24]; /* "cuda:0" */
    SinterError note;     /* why it is not the GPU that the file holds a plan for */
    void *state;
    Trace trace;
    void **address;              /* of inputs, then outputs, of the piece at hand */
    int64_t *stride;             /* likewise: bytes of one row of the batch */
    const SinterTensor **tensor; /* likewise: the caller's tensor of each port */
    SinterLastRun last;
};

/* Devices -------------------------------------------------------------------------------------- */

/* "cuda:1" is target "cuda", ordinal 1. False: not such a name. */
static bool device_parse(const char *name, char *target, size_t size, int *ret_ordinal)
{
    size_t len = strcspn(name, ":");
    char *end = NULL;
    if (len == 0 || len >= size)
        return false;
    memcpy(target, name, len);
    target[len] = 0;
    *ret_ordinal = 0;
    if (!name[len])
        return true;
    long ordinal = strtol(name + len + 1, &end, 10);
    *ret_ordinal = (int)ordinal;
    return name[len + 1] >= '0' && name[len + 1] <= '9' && !*end && ordinal < 1024;
}

static const Device *find_device(const char *name)
{
    for (int i = 0; devices[i]; i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    return NULL;
}

static SinterStatus open_device(SinterSession *s, const char *name,
                                const SinterSessionOptions *options, SinterError *err)
{
    char word[16];
    int ordinal;
    if (!device_parse(name, word, sizeof word, &ordinal))
        return model_fail(err, SINTER_ERROR_ARGUMENT,
                          "\"%s\" does not name a device; devices are \"cpu\" and \"cuda:0\"",
                          name);
    const Device *device = find_device(word);
    if (!device)
        return model_fail(err, SINTER_ERROR_NO_DEVICE,
                          "there is no device \"%s\"; devices are \"cpu\" and \"cuda:0\"", name);
    SinterStatus status;
    ModelTarget *t = device->choose(s->model, ordinal, &status, err);
    if (!t)
        return status;
    const DeviceOpen open = {.plan = t->plan,
                             .weights = s->model->weights,
                             .code = t->code,
                             .gpu = t->gpu,
                             .shared = &t->shared,
                             .ordinal = ordinal,
                             .threads = options->threads,
                             .prepare = options->prepare != 0};
    status = device->create(&open, &s->state, err);
    if (status)
        return status;
    s->device = device;
    s->ordinal = ordinal;
    if (device == &device_cpu)
        snprintf(s->device_name, sizeof s->device_name, "%s", word);
    else
        snprintf(s->device_name, sizeof s->device_name, "%s:%d", word, ordinal);
    return SINTER_OK;
}

static bool holds_gpu(const SinterModel *model)
{
    bool any = false;
    for (int i = 0; i < model->num_targets; i++)
        any = any || model->target[i].gpu;
    return any;
}

/* The first GPU where the file holds a plan for it and there is one, else the processor. */
static SinterStatus open_any_device(SinterSession *s, const SinterSessionOptions *options,
                                    SinterError *err)
{
    char words[96];
    SinterError why = {0};
    if (!holds_gpu(s->model))
        return open_device(s, device_cpu.name, options, err);
    SinterStatus status = open_device(s, device_cuda.name, options, &why);
    bool absent = status == SINTER_ERROR_NO_DEVICE || status == SINTER_ERROR_UNSUPPORTED;
    if (absent && model_target(s->model, device_cpu.name)) {
        s->note = why;
        return open_device(s, device_cpu.name, options, err);
    }
    if (absent)
        return model_fail(err, status, "%s; to run on the processor, compile the model with %s",
                          why.text, model_words(s->model, device_cpu.name, words, sizeof words));
    if (status)
        *err = why;
    return status;
}

SinterStatus sinter_session_create(SinterModel *model, const SinterSessionOptions *options,
                                   SinterSession **ret, SinterError *err)
{
    static const SinterSessionOptions defaults = {0};
    SinterError unread;
    err = err ? err : &unread;
    if (ret)
        *ret = NULL;
    if (!model || !ret)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the %s is NULL",
                          model ? "place for the session" : "model");
    if (!options)
        options = &defaults;
    const Plan *p = model_plan(model);
    size_t ports = (size_t)p->num_inputs + (size_t)p->num_outputs + 1;
    SinterSession *s = calloc(1, sizeof *s);
    if (s) {
        s->refs = 1;
        s->model = model;
        model_hold(model);
        s->address = calloc(ports, sizeof *s->address);
        s->stride = calloc(ports, sizeof *s->stride);
        s->tensor = calloc(ports, sizeof *s->tensor);
    }
    SinterStatus status = SINTER_OK;
    if (!s || !s->address || !s->stride || !s->tensor)
        status = model_fail(err, SINTER_ERROR_MEMORY, "memory is exhausted");
    else if (options->threads < 0 || options->threads > 1024)
        status = model_fail(err, SINTER_ERROR_ARGUMENT, "%d threads", options->threads);
    else
        status = options->device ? open_device(s, options->device, options, err)
                                 : open_any_device(s, options, err);
    if (status)
        sinter_session_destroy(s);
    else
        *ret = s;
    return status;
}

void session_hold(SinterSession *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
}

SessionDevice session_device(const SinterSession *s)
{
    return (SessionDevice){s->model, s->device, s->state, s->ordinal};
}

void sinter_session_destroy(SinterSession *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
        return;
    if (s->device)
        s->device->destroy(s->state);
    sinter_close(s->model);
    free(s->trace.time);
    free(s->address);
    free(s->stride);
    free(s->tensor);
    free(s);
}

/* Ports ---------------------------------------------------------------------------------------- */

typedef struct Ports { /* one side of the model */
    const Plan *plan;
    const PlanPort *port;
    int num;
    bool is_output;
    const char *word; /* "input" */
} Ports;

static Ports ports_of(const Plan *p, bool is_output)
{
    if (is_output)
        return (Ports){p, p->output, p->num_outputs, true, "output"};
    return (Ports){p, p->input, p->num_inputs, false, "input"};
}

/* Most callers give ports in the model's order, so `likely` is looked at first. */
static int port_find(const Ports *ports, const char *name, int likely)
{
    if (likely < ports->num && !strcmp(ports->port[likely].name, name))
        return likely;
    for (int i = 0; i < ports->num; i++)
        if (!strcmp(ports->port[i].name, name))
            return i;
    return -1;
}

/* Fills of[port] with the caller's tensor of each port. */
static SinterStatus match_ports(const Ports *ports, const SinterTensor *tensor, int num,
                                const SinterTensor **of, SinterError *err)
{
    if (num != ports->num)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the model has %d %s%s, got %d", ports->num,
                          ports->word, ports->num == 1 ? "" : "s", num);
    if (num && !tensor)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the %ss are NULL", ports->word);
    for (int i = 0; i < num; i++)
        of[i] = NULL;
    for (int i = 0; i < num; i++) {
        int at = tensor[i].name ? port_find(ports, tensor[i].name, i) : i;
        if (at < 0) {
            Nearest nearest;
            nearest_init(&nearest, tensor[i].name);
            for (int k = 0; k < ports->num; k++)
                nearest_offer(&nearest, ports->port[k].name);
            const char *best = nearest_get(&nearest);
            return model_fail(err, SINTER_ERROR_ARGUMENT,
                              "the model has no %s \"%s\"; it has \"%s\"", ports->word,
                              tensor[i].name, best ? best : ports->port[0].name);
        }
        if (of[at])
            return model_fail(err, SINTER_ERROR_ARGUMENT, "%s \"%s\" is given twice", ports->word,
                              ports->port[at].name);
        of[at] = &tensor[i];
    }
    return SINTER_OK;
}

static void shape_text(const SinterTensor *t, char *buf, size_t size)
{
    size_t len = (size_t)snprintf(buf, size, "%s[", format_info[format_of_dtype(t->dtype)].name);
    for (int i = 0; i < t->rank && i < SINTER_MAX_RANK && len < size; i++)
        len +=
            (size_t)snprintf(buf + len, size - len, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    if (len < size)
        snprintf(buf + len, size - len, "]");
}

static SinterStatus shape_fail(const SinterModel *model, const Ports *ports, int at,
                               const SinterTensor *got, SinterError *err)
{
    char want[160], have[160];
    shape_text(got, have, sizeof have);
    return model_fail(err, SINTER_ERROR_ARGUMENT, "%s \"%s\" is %s, got %s", ports->word,
                      ports->port[at].name,
                      sinter_port_text(model, ports->is_output, at, want, sizeof want), have);
}

/* The symbol that stands alone in d, or -1. */
static int sole_symbol(PlanDim d)
{
    if (d.mul <= 0 || (d.sym[0] >= 0 && d.sym[1] >= 0))
        return -1;
    return d.sym[0] >= 0 ? d.sym[0] : d.sym[1];
}

/* Sizes of all symbols from the shapes of the inputs; symbols that no tensor uses are 1. */
static SinterStatus infer_sizes(const SinterModel *model, const SinterTensor *const *of,
                                int64_t *size, SinterError *err)
{
    const Plan *p = model_plan(model);
    const Ports ports = ports_of(p, false);
    const char *from[LIMIT_SYMS] = {NULL};
    for (int i = 0; i < p->num_syms; i++)
        size[i] = 1;
    for (int i = 0; i < p->num_inputs; i++) {
        const PlanTensor *t = &p->tensor[p->input[i].tensor];
        if (of[i]->rank != t->rank || format_of_dtype(of[i]->dtype) != t->fmt)
            return shape_fail(model, &ports, i, of[i], err);
        for (int k = 0; k < t->rank; k++) {
            int sym = sole_symbol(t->dim[k]);
            int64_t got;
            if (of[i]->dim[k] < 0 || of[i]->dim[k] > LIMIT_DIM ||
                __builtin_sub_overflow(of[i]->dim[k], t->dim[k].add, &got))
                return shape_fail(model, &ports, i, of[i], err);
            bool fixed = t->dim[k].mul == 0;
            if (sym < 0 && (!fixed || got == 0))
                continue; /* products of symbols are checked when all are known */
            if (sym < 0 || got < 0 || got % t->dim[k].mul)
                return shape_fail(model, &ports, i, of[i], err);
            got /= t->dim[k].mul;
            if (from[sym] && size[sym] != got)
                return model_fail(err, SINTER_ERROR_ARGUMENT,
                                  "%s is %lld in input \"%s\", but %lld in input \"%s\"",
                                  p->sym[sym].name, (long long)size[sym], from[sym], (long long)got,
                                  p->input[i].name);
            size[sym] = got;
            from[sym] = p->input[i].name;
        }
    }
    return SINTER_OK;
}

/* Every tensor has the declared type for these sizes. */
static SinterStatus check_shapes(const SinterModel *model, const Ports *ports,
                                 const SinterTensor *const *of, const int64_t *size,
                                 SinterError *err)
{
    for (int i = 0; i < ports->num; i++) {
        SinterTensor want;
        SinterStatus status = sinter_port_shape(model, ports->is_output, i, size, &want, err);
        if (status)
            return status;
        bool same = of[i]->rank == want.rank && of[i]->dtype == want.dtype;
        for (int k = 0; same && k < want.rank; k++)
            same = of[i]->dim[k] == want.dim[k];
        if (same)
            continue;
        char want_text[160], got_text[160];
        shape_text(&want, want_text, sizeof want_text);
        shape_text(of[i], got_text, sizeof got_text);
        return model_fail(err, SINTER_ERROR_ARGUMENT, "%s \"%s\" is %s for these inputs, got %s",
                          ports->word, ports->port[i].name, want_text, got_text);
    }
    return SINTER_OK;
}

static uint64_t tensor_bytes(const SinterTensor *t)
{
    uint64_t elements = 1;
    for (int i = 0; i < t->rank; i++)
        elements *= (uint64_t)t->dim[i];
    return elements * (uint64_t)format_info[format_of_dtype(t->dtype)].bits / 8;
}

/* Shapes, addresses and inputs against inputs and outputs. */
static SinterStatus check_memory(const Plan *p, const SinterTensor *const *of, SinterError *err)
{
    int num = p->num_inputs + p->num_outputs;
    for (int i = 0; i < num; i++) {
        const char *name = i < p->num_inputs ? p->input[i].name : p->output[i - p->num_inputs].name;
        uintptr_t begin = (uintptr_t)of[i]->data;
        uint64_t bytes = tensor_bytes(of[i]);
        uintptr_t align = (uintptr_t)format_info[format_of_dtype(of[i]->dtype)].bits / 8;
        if (bytes && (!begin || begin % align))
            return model_fail(err, SINTER_ERROR_ARGUMENT, "the address of \"%s\" is %s", name,
                              begin ? "not aligned to its elements" : "NULL");
        for (int k = p->num_inputs; k < num; k++) {
            uintptr_t other = (uintptr_t)of[k]->data;
            if (k != i && bytes && begin < other + tensor_bytes(of[k]) && other < begin + bytes)
                return model_fail(err, SINTER_ERROR_ARGUMENT,
                                  "output \"%s\" overlaps the memory of \"%s\"",
                                  p->output[k - p->num_inputs].name, name);
        }
    }
    return SINTER_OK;
}

/* Buckets -------------------------------------------------------------------------------------- */

static double bucket_volume(const Plan *p, int bucket)
{
    double volume = 1;
    for (int i = 0; i < p->num_syms; i++)
        volume *= (double)plan_bucket(p, bucket)[i];
    return volume;
}

/* The smallest bucket that holds these sizes, or -1: that whose sizes multiply to the least. skip:
 * a symbol that need not fit, or -1; then the smallest of those in which it is largest. */
static int bucket_find(const Plan *p, const int64_t *size, int skip)
{
    int best = -1;
    for (int b = 0; b < p->num_buckets; b++) {
        const int64_t *have = plan_bucket(p, b);
        bool fits = true;
        for (int i = 0; i < p->num_syms; i++)
            fits = fits && (i == skip || size[i] <= have[i]);
        if (!fits)
            continue;
        int64_t larger = best < 0 ? 1 : skip < 0 ? 0 : have[skip] - plan_bucket(p, best)[skip];
        if (larger > 0 || (larger == 0 && bucket_volume(p, b) < bucket_volume(p, best)))
            best = b;
    }
    return best;
}

static bool dim_has_batch(PlanDim d)
{
    return d.mul != 0 && (d.sym[0] == 0 || d.sym[1] == 0);
}

/* Rows of symbol 0: it leads the shape alone, and occurs nowhere else in it. */
static bool tensor_is_rows(const PlanTensor *t)
{
    if (t->rank < 2 || !dim_has_batch(t->dim[0]) || t->dim[0].mul != 1 || t->dim[0].add != 0 ||
        (t->dim[0].sym[0] >= 0 && t->dim[0].sym[1] >= 0))
        return false;
    for (int i = 1; i < t->rank; i++)
        if (dim_has_batch(t->dim[i]))
            return false;
    return true;
}

/* Why batches are not cut along symbol `sym`. */
static const char *uncut_reason(const SinterModel *model, int sym, char *buf, size_t size)
{
    const Plan *p = model_plan(model);
    char type[160];
    if (sym > 0)
        return "only the first dimension symbol is";
    for (int i = 0; i < p->num_inputs + p->num_outputs; i++) {
        bool is_output = i >= p->num_inputs;
        int at = is_output ? i - p->num_inputs : i;
        const PlanPort *port = is_output ? &p->output[at] : &p->input[at];
        if (tensor_is_rows(&p->tensor[port->tensor]))
            continue;
        snprintf(buf, size, "%s \"%s\", %s, is not %s rows", is_output ? "output" : "input",
                 port->name, sinter_port_text(model, is_output, at, type, sizeof type),
                 p->sym[0].name);
        return buf;
    }
    return "its rows depend on each other";
}

static SinterStatus batch_fail(const SinterModel *model, const int64_t *size, SinterError *err)
{
    const Plan *p = model_plan(model);
    char buf[320];
    for (int i = 0; i < p->num_syms; i++) {
        int64_t largest = 0;
        for (int b = 0; b < p->num_buckets; b++)
            if (plan_bucket(p, b)[i] > largest)
                largest = plan_bucket(p, b)[i];
        if (size[i] <= largest || (i == 0 && p->rows_independent))
            continue;
        return model_fail(err, SINTER_ERROR_ARGUMENT,
                          "%s = %lld exceeds the largest compiled size, %lld, and the model cannot "
                          "be cut along %s "
                          "(%s); declare a larger size in `dim %s in [..]` and compile again",
                          p->sym[i].name, (long long)size[i], (long long)largest, p->sym[i].name,
                          uncut_reason(model, i, buf, sizeof buf), p->sym[i].name);
    }
    return model_fail(err, SINTER_ERROR_ARGUMENT, "no compiled combination of sizes holds these");
}

/* Bytes of one row of the batch of each port, when batches can be cut. */
static void set_strides(SinterSession *s, int64_t rows)
{
    const Plan *p = model_plan(s->model);
    for (int i = 0; i < p->num_inputs + p->num_outputs; i++)
        s->stride[i] = (int64_t)(tensor_bytes(s->tensor[i]) / (uint64_t)rows);
}

typedef struct RunOptions {
    bool is_async;
    void *stream;
} RunOptions;

static SinterStatus run_pieces(SinterSession *s, int64_t *size, RunOptions options,
                               SinterError *err)
{
    const Plan *p = model_plan(s->model);
    int num = p->num_inputs + p->num_outputs;
    int bucket = bucket_find(p, size, -1);
    DeviceRun run = {.bucket = bucket,
                     .size = size,
                     .input = s->address,
                     .output = s->address + p->num_inputs,
                     .trace = &s->trace,
                     .is_async = options.is_async,
                     .stream = options.stream};
    for (int i = 0; i < num; i++)
        s->address[i] = s->tensor[i]->data;
    s->last = (SinterLastRun){bucket, 1, p->num_syms ? size[0] : 0};
    if (bucket >= 0)
        return s->device->run(s->state, &run, err);
    int largest = p->rows_independent ? bucket_find(p, size, 0) : -1;
    if (largest < 0)
        return batch_fail(s->model, size, err);
    int64_t rows = size[0], step = plan_bucket(p, largest)[0];
    s->last.bucket = largest;
    s->last.pieces = (int)((rows + step - 1) / step);
    set_strides(s, rows);
    SinterStatus status = SINTER_OK;
    for (int64_t at = 0; !status && at < rows; at += step) {
        size[0] = rows - at < step ? rows - at : step;
        run.bucket = bucket_find(p, size, -1);
        for (int i = 0; i < num; i++)
            s->address[i] = (uint8_t *)s->tensor[i]->data + at * s->stride[i];
        status = s->device->run(s->state, &run, err);
    }
    return status;
}

/* Running -------------------------------------------------------------------------------------- */

static SinterStatus no_session(SinterError *err)
{
    return model_fail(err, SINTER_ERROR_ARGUMENT, "the session is NULL");
}

/* The tensors of all ports, and the sizes that the inputs' shapes give. */
static SinterStatus match_tensors(SinterSession *s, const SinterTensor *inputs, int num_inputs,
                                  const SinterTensor *outputs, int num_outputs, int64_t *size,
                                  SinterError *err)
{
    const Plan *p = model_plan(s->model);
    const Ports in = ports_of(p, false), out = ports_of(p, true);
    SinterStatus status = match_ports(&in, inputs, num_inputs, s->tensor, err);
    if (!status)
        status = match_ports(&out, outputs, num_outputs, s->tensor + p->num_inputs, err);
    if (!status)
        status = infer_sizes(s->model, s->tensor, size, err);
    return status ? status : check_shapes(s->model, &in, s->tensor, size, err);
}

SinterStatus sinter_output_shapes(SinterSession *s, const SinterTensor *inputs, int num_inputs,
                                  SinterTensor *outputs, int num_outputs, SinterError *err)
{
    if (!s)
        return no_session(err);
    const Ports out = ports_of(model_plan(s->model), true);
    int64_t size[LIMIT_SYMS];
    SinterStatus status = match_tensors(s, inputs, num_inputs, outputs, num_outputs, size, err);
    for (int i = 0; !status && i < num_outputs; i++) {
        int at = outputs[i].name ? port_find(&out, outputs[i].name, i) : i;
        status = sinter_port_shape(s->model, 1, at, size, &outputs[i], err);
    }
    return status;
}

static SinterStatus run_tensors(SinterSession *s, const SinterTensor *inputs, int num_inputs,
                                const SinterTensor *outputs, int num_outputs, RunOptions options,
                                SinterError *err)
{
    if (!s)
        return no_session(err);
    const Plan *p = model_plan(s->model);
    const Ports out = ports_of(p, true);
    int64_t size[LIMIT_SYMS];
    s->trace.num = 0;
    SinterStatus status = match_tensors(s, inputs, num_inputs, outputs, num_outputs, size, err);
    if (!status)
        status = check_shapes(s->model, &out, s->tensor + p->num_inputs, size, err);
    if (!status)
        status = check_memory(p, s->tensor, err);
    if (status)
        return status;
    uint64_t output_bytes = 0;
    for (int i = 0; i < p->num_outputs; i++)
        output_bytes += tensor_bytes(s->tensor[p->num_inputs + i]);
    if (output_bytes == 0)
        return SINTER_OK; /* an empty batch */
    s->trace.start_us = clock_us();
    return run_pieces(s, size, options, err);
}

SinterStatus sinter_run(SinterSession *s, const SinterTensor *inputs, int num_inputs,
                        const SinterTensor *outputs, int num_outputs, SinterError *err)
{
    return run_tensors(s, inputs, num_inputs, outputs, num_outputs, (RunOptions){false, NULL}, err);
}

SinterStatus sinter_run_async(SinterSession *s, const SinterTensor *inputs, int num_inputs,
                              const SinterTensor *outputs, int num_outputs, void *stream,
                              SinterError *err)
{
    return run_tensors(s, inputs, num_inputs, outputs, num_outputs, (RunOptions){true, stream},
                       err);
}

SinterStatus sinter_wait(SinterSession *s, SinterError *err)
{
    return s->device->wait ? s->device->wait(s->state, err) : SINTER_OK;
}

/* Devices' memory ------------------------------------------------------------------------------ */

const char *sinter_session_device(const SinterSession *s)
{
    return s ? s->device_name : "";
}

const char *sinter_session_note(const SinterSession *s)
{
    return s && s->note.status ? s->note.text : NULL;
}

SinterStatus sinter_port_memory(const SinterSession *s, int is_output, int index,
                                void **ret_address, uint64_t *ret_bytes, SinterError *err)
{
    if (!s)
        return no_session(err);
    if (!ret_address || !ret_bytes)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "the place for the address is NULL");
    const Plan *p = model_plan(s->model);
    int num = is_output ? p->num_outputs : p->num_inputs;
    *ret_address = NULL;
    *ret_bytes = 0;
    if (index < 0 || index >= num)
        return model_fail(err, SINTER_ERROR_ARGUMENT, "there is no %s %d",
                          is_output ? "output" : "input", index);
    if (!s->device->port)
        return model_fail(err, SINTER_ERROR_UNSUPPORTED,
                          "sessions on %s work in the caller's memory and have none for ports",
                          s->device_name);
    s->device->port(s->state, is_output != 0, index, ret_address, ret_bytes);
    return SINTER_OK;
}

/* Traces --------------------------------------------------------------------------------------- */

void sinter_session_trace(SinterSession *s, int enable)
{
    if (!s)
        return;
    s->trace.on = enable != 0;
    s->trace.num = 0;
}

SinterLastRun sinter_last_run(const SinterSession *s)
{
    return s ? s->last : (SinterLastRun){0};
}

int sinter_num_launch_times(const SinterSession *s)
{
    return s ? s->trace.num : 0;
}

SinterLaunchTime sinter_launch_time(const SinterSession *s, int index)
{
    return s && index >= 0 && index < s->trace.num ? s->trace.time[index] : (SinterLaunchTime){0};
}

uint64_t sinter_session_bytes(const SinterSession *s)
{
    return s ? s->device->bytes(s->state) : 0;
}
