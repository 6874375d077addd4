/* Tensors of a file as inputs of a model, and how far results are from each other. */
#include "choose/lab.h"
#include "io/io.h"
#include <math.h>
#include <string.h>

typedef struct Reader {
    const Lab *lab;
    Span span;
    const char *path; /* as the text says it */
    Arena *arena;
    int64_t rows, take; /* of the file; that are kept */
    bool spread;
} Reader;

static bool data_fail(const Reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool data_fail(const Reader *r, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, r->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(r->lab->diag, r->span, E_CALIBRATION_DATA, "%s: %s", r->path, sb.text);
    return false;
}

static const TensorView *input_view(const Reader *r, const TensorFile *file, const SinterPort *port,
                                    int num)
{
    const TensorView *view = NULL;
    if (tensorfile_is_npy(file) && num > 1)
        data_fail(r,
                  "an .npy file feeds one input, but the model has %d; name them in a "
                  ".safetensors file",
                  num);
    else if (!(view = tensorfile_is_npy(file) ? tensorfile_at(file, 0)
                                              : tensorfile_find(file, port->name)))
        data_fail(r, "holds no tensor for input \"%s\"", port->name);
    return view;
}

static bool view_fits(const Reader *r, const TensorView *view, const SinterPort *port)
{
    bool counts = port->dtype == SINTER_I32;
    if (counts ? view->fmt != FMT_I32
               : view->fmt == FMT_NONE || format_info[view->fmt].family != FAMILY_FLOAT)
        return data_fail(r, "input \"%s\" takes %s, not %s", port->name, counts ? "I32" : "floats",
                         tensor_dtype_text(view));
    if (view->rank != port->rank)
        return data_fail(r, "\"%s\" has %d dimensions, but the model declares %d", port->name,
                         view->rank, port->rank);
    for (int i = 0; i < port->rank; i++)
        if (port->dim[i] >= 0 && port->dim[i] != view->dim[i])
            return data_fail(r, "dimension %d of \"%s\" is %lld, but the model declares %lld", i,
                             port->name, (long long)view->dim[i], (long long)port->dim[i]);
    if (!view->elements)
        return data_fail(r, "\"%s\" is empty", port->name);
    return true;
}

static bool all_finite(const Reader *r, const char *name, const float *x, int64_t num, int64_t row)
{
    for (int64_t i = 0; i < num; i++)
        if (!isfinite(x[i]))
            return data_fail(r, "\"%s\" holds %s in row %lld", name,
                             isnan(x[i]) ? "NaN" : "an infinity", (long long)row);
    return true;
}

static bool view_read(const Reader *r, const TensorView *view, const char *name, SinterTensor *ret)
{
    int64_t cols = view->dim[0] ? (int64_t)view->elements / view->dim[0] : 0;
    int64_t take = view->rank ? r->take : 1, rows = view->rank ? r->rows : 1;
    size_t width = (size_t)format_info[view->fmt].bits / 8;
    float *x = arena_alloc(r->arena, (size_t)(take * cols) * sizeof *x + 64);
    *ret = (SinterTensor){.name = name, .dtype = SINTER_F32, .rank = view->rank, .data = x};
    memcpy(ret->dim, view->dim, sizeof(int64_t) * (size_t)view->rank);
    ret->dim[0] = take;
    if (view->fmt == FMT_I32) { /* counts of groups: all of them */
        ret->dtype = SINTER_I32;
        memcpy(x, view->data, view->bytes);
        return true;
    }
    for (int64_t i = 0; i < take; i++) {
        int64_t row = r->spread ? i * rows / take : i;
        format_to_f32(view->fmt, (const char *)view->data + (size_t)(row * cols) * width,
                      x + i * cols, (uint64_t)cols);
        if (!all_finite(r, name, x + i * cols, cols, row))
            return false;
    }
    return true;
}

static bool file_read_inputs(Reader *r, const TensorFile *file, const Probe *t, int64_t most,
                             DataSet *ret)
{
    int num = sinter_num_inputs(t->model);
    const TensorView **view = ARENA_NEW_ARRAY(r->arena, const TensorView *, (size_t)num + 1);
    bool same_rows = true;
    for (int i = 0; i < num; i++) {
        SinterPort port = sinter_input(t->model, i);
        view[i] = input_view(r, file, &port, num);
        if (!view[i] || !view_fits(r, view[i], &port))
            return false;
        same_rows = same_rows && port.rank && port.dim[0] < 0 && view[i]->dim[0] == view[0]->dim[0];
    }
    r->rows = r->take = num && view[0]->rank ? view[0]->dim[0] : 1;
    if (same_rows && most > 0 && most < r->rows)
        r->take = most;
    r->spread = t->target.plan->rows_independent;
    ret->rows = r->take;
    ret->in = (Tensors){num, ARENA_NEW_ARRAY(r->arena, SinterTensor, (size_t)num + 1)};
    for (int i = 0; i < num; i++) {
        if (!same_rows && view[i]->rank)
            r->rows = r->take = view[i]->dim[0];
        const char *name = arena_strdup(r->arena, sinter_input(t->model, i).name);
        if (!view_read(r, view[i], name, &ret->in.tensor[i]))
            return false;
    }
    return true;
}

bool data_read(const Lab *lab, const Probe *model, const char *path, Span span, int64_t most,
               Arena *arena, DataSet *ret)
{
    Reader r = {.lab = lab, .span = span, .path = path, .arena = arena};
    const char *dir = lab->options->passes.base_dir;
    IoError err;
    bool absolute = path[0] == '/' || !dir || !dir[0];
    TensorFile *file =
        tensorfile_open(absolute ? path : arena_printf(arena, "%s/%s", dir, path), &err);
    *ret = (DataSet){.path = path};
    if (!file) {
        diag_error(lab->diag, span, err.id, "%s", err.text);
        return false;
    }
    bool ok = file_read_inputs(&r, file, model, most, ret);
    tensorfile_close(file);
    return ok;
}
