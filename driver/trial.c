/* Running programs on files; see trial.h. */
#include "driver/trial.h"
#include "checkpoint/checkpoint.h"
#include "runtime/program_parts.h"
#include <stdlib.h>
#include <string.h>

FormatId port_format(SinterDtype dtype)
{
    switch (dtype) {
    case SINTER_F32: return FMT_F32;
    case SINTER_F16: return FMT_F16;
    case SINTER_BF16: return FMT_BF16;
    case SINTER_I32: return FMT_I32;
    }
    return FMT_NONE;
}

static bool trial_error(Trial *t, ErrorId id, const char *text)
{
    diag_error(&t->w->diag, t->span, id, "%s", text);
    return false;
}

bool trial_open(Trial *t, Work *w, const char *program, int *ret_exit)
{
    SinterError err;
    int threads;
    *t = (Trial){.w = w};
    *ret_exit = EXIT_USAGE;
    if (!work_threads(w, &threads))
        return false;
    SinterSessionOptions options = {.device = work_device(w), .threads = threads};
    if (!sinter_open(program, &t->model, &err) &&
        !sinter_session_create(t->model, &options, &t->session, &err)) {
        const char *note = sinter_session_note(t->session);
        if (note && !w->cli->json)
            fprintf(stderr,
                    "%s: runs on the processor (--device=cpu does so without this line): %s\n",
                    w->variant.program ? w->variant.program : w->path, note);
        return true;
    }
    *ret_exit = err.status == SINTER_ERROR_NO_DEVICE ? EXIT_DEVICE : EXIT_INPUT;
    return trial_error(t, E_EXPECT, err.text);
}

void trial_close(Trial *t)
{
    sinter_session_destroy(t->session);
    sinter_close(t->model);
}

TensorFile *trial_file(Trial *t, const char *rel)
{
    IoError err;
    char *path = path_beside(source_is_nowhere(t->w->path) ? "" : t->w->path, rel);
    TensorFile *file = path ? tensorfile_open(path, &err) : NULL;
    free(path);
    if (!file)
        trial_error(t, err.id, err.text);
    return file;
}

const TensorView *trial_view(Trial *t, const TensorFile *file, const char *port, int num_ports,
                             const char *file_name)
{
    const TensorView *view = tensorfile_is_npy(file) ? NULL : tensorfile_find(file, port);
    if (!view && tensorfile_num(file) == 1 && num_ports == 1)
        view = tensorfile_at(file, 0);
    if (!view)
        diag_error(&t->w->diag, t->span, E_EXPECT, "'%s' holds no tensor '%s'", file_name, port);
    else if (view->fmt == FMT_NONE || !format_is_plain(view->fmt)) {
        diag_error(&t->w->diag, t->span, E_EXPECT,
                   "'%s' holds %s, which is not a type of inputs and outputs", file_name,
                   tensor_dtype_text(view));
        diag_help(&t->w->diag, "convert it: numpy.save('x.npy', x.astype('<f4'))");
        view = NULL;
    }
    return view;
}

/* Memory of one tensor of these sizes, from the arena; false on overflow. */
static bool allocate(Trial *t, SinterTensor *tensor)
{
    uint64_t num, bytes;
    FormatId fmt = port_format(tensor->dtype);
    if (!checked_elements(tensor->dim, tensor->rank, &num) ||
        !checked_mul(num, (uint64_t)format_info[fmt].bits / 8, &bytes) || bytes > LIMIT_BYTES)
        return trial_error(t, E_EXPECT, "the sizes of the data overflow");
    tensor->data = arena_alloc(t->w->arena, bytes);
    return true;
}

static bool bind_inputs(Trial *t, const TensorFile *file, const char *file_name)
{
    t->num_in = sinter_num_inputs(t->model);
    t->in = ARENA_NEW_ARRAY(t->w->arena, SinterTensor, (size_t)t->num_in);
    for (int i = 0; i < t->num_in; i++) {
        SinterPort port = sinter_input(t->model, i);
        const TensorView *view = trial_view(t, file, port.name, t->num_in, file_name);
        if (!view)
            return false;
        SinterTensor *in = &t->in[i];
        *in = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = view->rank};
        memcpy(in->dim, view->dim, sizeof in->dim);
        if (!allocate(t, in))
            return false;
        if (view->fmt == port_format(port.dtype)) {
            memcpy(in->data, view->data, view->bytes);
            continue;
        }
        if (view->elements > SIZE_MAX / sizeof(float))
            return trial_error(t, E_EXPECT, "the sizes of the data overflow");
        float *f32 = ARENA_NEW_ARRAY(t->w->arena, float, view->elements);
        format_to_f32(view->fmt, view->data, f32, view->elements);
        format_from_f32(port_format(port.dtype), f32, in->data, view->elements);
    }
    return true;
}

/* Once a command, whatever runs on the file. */
static bool check_nan(Trial *t, const char *file_name)
{
    int input;
    uint64_t element;
    if (!inputs_hide_nan(t->model, t->in, t->num_in, &input, &element))
        return true;
    Diag *diag = &t->w->diag;
    bool is_error = !strcmp(cli_get(t->w->cli, OPTION_NAN, "warn"), "error");
    (is_error ? diag_error : diag_warning)(
        diag, t->span, E_HIDDEN_NAN,
        "'%s': element %llu of '%s' is not a number, which layers with a static range take as 0",
        file_name, (unsigned long long)element, t->in[input].name);
    diag_help(diag, "dynamic ranges show it in the results; --nan error refuses it");
    return !is_error;
}

bool trial_run(Trial *t, const TensorFile *input, const char *file_name)
{
    SinterError err;
    if (!bind_inputs(t, input, file_name))
        return false;
    if (!check_nan(t, file_name))
        return false;
    t->num_out = sinter_num_outputs(t->model);
    t->out = ARENA_NEW_ARRAY(t->w->arena, SinterTensor, (size_t)t->num_out);
    for (int i = 0; i < t->num_out; i++) {
        SinterPort port = sinter_output(t->model, i);
        t->out[i] = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = port.rank};
    }
    if (sinter_output_shapes(t->session, t->in, t->num_in, t->out, t->num_out, &err))
        return trial_error(t, E_EXPECT, err.text);
    for (int i = 0; i < t->num_out; i++)
        if (!allocate(t, &t->out[i]))
            return false;
    if (sinter_run(t->session, t->in, t->num_in, t->out, t->num_out, &err))
        return trial_error(t, E_EXPECT, err.text);
    return true;
}

const SinterTensor *trial_output(const Trial *t, const char *name)
{
    for (int i = 0; i < t->num_out; i++)
        if (!strcmp(t->out[i].name, name))
            return &t->out[i];
    return NULL;
}

uint64_t trial_elements(const SinterTensor *tensor)
{
    uint64_t num = 1;
    for (int i = 0; i < tensor->rank; i++)
        num *= (uint64_t)tensor->dim[i]; /* checked when the memory was taken */
    return num;
}

double *trial_values(const SinterTensor *tensor)
{
    uint64_t num = trial_elements(tensor);
    double *value = num < SIZE_MAX / sizeof *value ? malloc(num * sizeof *value + 1) : NULL;
    if (value)
        format_to_f64(port_format(tensor->dtype), tensor->data, value, num);
    return value;
}

const char *trial_shape(const Trial *t, const SinterTensor *tensor)
{
    TensorView view = {.rank = tensor->rank};
    for (int i = 0; i < tensor->rank; i++)
        view.dim[i] = tensor->dim[i];
    return dims_text(t->w->arena, &view);
}
