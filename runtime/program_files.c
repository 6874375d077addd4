/* Tensors of files: inputs as the model declares them, outputs as their file's ending says. */
#include "runtime/device.h"
#include "runtime/program_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024 /* elements converted at once */

bool bound_init(BoundSet *set, int num)
{
    *set = (BoundSet){.num = num};
    set->bound = calloc((size_t)num + 1, sizeof *set->bound);
    set->tensor = calloc((size_t)num + 1, sizeof *set->tensor);
    return set->bound && set->tensor;
}

void bound_free(BoundSet *set)
{
    for (int i = 0; set->bound && i < set->num; i++) {
        if (set->bound[i].file)
            tensorfile_close(set->bound[i].file);
        free(set->bound[i].memory);
    }
    free(set->bound);
    free(set->tensor);
}

static uint64_t tensor_elements(const SinterTensor *t)
{
    uint64_t num = 1;
    for (int i = 0; i < t->rank; i++)
        num *= (uint64_t)t->dim[i];
    return num;
}

static size_t dtype_bytes(SinterDtype dtype)
{
    return (size_t)format_info[format_of_dtype(dtype)].bits / 8;
}

static int no_memory(const Program *p)
{
    return program_fail(p, PROGRAM_INPUT, "memory is exhausted");
}

/* Names ---------------------------------------------------------------------------------------- */

typedef struct Side {
    const char *word, *option;
    SinterPort (*at)(const SinterModel *model, int index);
    int num;
} Side;

static Side side_of(const Program *p, bool output)
{
    if (output)
        return (Side){"output", "--output", sinter_output, sinter_num_outputs(p->model)};
    return (Side){"input", "--input", sinter_input, sinter_num_inputs(p->model)};
}

/* "NAME=FILE" or "FILE": *ret_index is -1 when no name is given. */
static int split_word(const Program *p, const Side *side, const char *word, int *ret_index,
                      const char **ret_path)
{
    const char *equals = strchr(word, '=');
    *ret_index = -1;
    *ret_path = word;
    if (!equals)
        return PROGRAM_OK;
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    *ret_path = equals + 1;
    Nearest nearest;
    nearest_init(&nearest, name);
    for (int i = 0; i < side->num; i++) {
        const char *port = side->at(p->model, i).name;
        nearest_offer(&nearest, port);
        if (!strcmp(port, name))
            *ret_index = i;
    }
    if (*ret_index >= 0)
        return PROGRAM_OK;
    const char *best = nearest_get(&nearest);
    if (side->num == 0)
        return program_fail(p, PROGRAM_INPUT, "the model has no %ss", side->word);
    return program_fail(p, PROGRAM_INPUT, "the model has no %s \"%s\"; %s \"%s\"", side->word, name,
                        best ? "did you mean" : "it has", best ? best : side->at(p->model, 0).name);
}

static int given_twice(const Program *p, const Side *side, int index)
{
    return program_fail(p, PROGRAM_USAGE, "%s \"%s\" is given twice", side->word,
                        side->at(p->model, index).name);
}

/* Inputs --------------------------------------------------------------------------------------- */

/* One value in the declared format; false: it does not fit. */
static bool convert_value(FormatId to, double value, void *dst)
{
    if (to == FMT_I32) {
        if (value != rint(value) || value < -2147483648.0 || value > 2147483647.0)
            return false;
        int32_t i = (int32_t)value;
        memcpy(dst, &i, sizeof i);
        return true;
    }
    float f = (float)value, back;
    format_from_f32(to, &f, dst, 1);
    format_to_f32(to, dst, &back, 1);
    return isnan(value) || isinf(value) || isfinite(back);
}

static bool is_integer_format(FormatId fmt)
{
    return fmt == FMT_I32 || fmt == FMT_I8 || fmt == FMT_U8;
}

/* Elements of the file in the declared format; integers that floats cannot hold, fractions that
 * integers cannot, and overflows are errors. */
static int convert_input(const Program *p, const TensorView *view, FormatId to, const char *name,
                         void *dst)
{
    size_t from_bytes = (size_t)format_info[view->fmt].bits / 8;
    size_t to_bytes = (size_t)format_info[to].bits / 8;
    double value[CHUNK];
    for (uint64_t at = 0; at < view->elements; at += CHUNK) {
        uint64_t num = view->elements - at < CHUNK ? view->elements - at : CHUNK;
        format_to_f64(view->fmt, (const uint8_t *)view->data + at * from_bytes, value, num);
        for (uint64_t i = 0; i < num; i++) {
            uint8_t *at_dst = (uint8_t *)dst + (at + i) * to_bytes;
            bool ok = convert_value(to, value[i], at_dst);
            if (ok && is_integer_format(view->fmt) && to != FMT_I32) {
                float back;
                format_to_f32(to, at_dst, &back, 1);
                ok = (double)back == value[i];
            }
            if (!ok)
                return program_fail(
                    p, PROGRAM_INPUT, "input \"%s\": element %llu is %.9g, which %s cannot hold",
                    name, (unsigned long long)(at + i), value[i], format_info[to].name);
        }
    }
    return PROGRAM_OK;
}

/* Takes the view's shape; its bytes where they lie if they can be used as they are. */
static int bind_view(const Program *p, int index, const char *path, const TensorView *view,
                     Bound *bound)
{
    SinterPort port = sinter_input(p->model, index);
    FormatId want = format_of_dtype(port.dtype);
    if (view->fmt == FMT_NONE)
        return program_fail(p, PROGRAM_INPUT,
                            "%s: holds %s, which input \"%s\" does not take; convert it: "
                            "numpy.save('x.npy', x.astype('<%s'))",
                            path, tensor_dtype_text(view), port.name,
                            port.dtype == SINTER_I32 ? "i4" : "f4");
    if (view->rank > SINTER_MAX_RANK)
        return program_fail(p, PROGRAM_INPUT, "%s: %d dimensions are more than %d", path,
                            view->rank, SINTER_MAX_RANK);
    bound->tensor = (SinterTensor){.name = port.name, .dtype = port.dtype, .rank = view->rank};
    memcpy(bound->tensor.dim, view->dim, (size_t)view->rank * sizeof view->dim[0]);
    size_t elem = dtype_bytes(port.dtype);
    if (view->fmt == want && (uintptr_t)view->data % elem == 0) {
        bound->tensor.data = (void *)(uintptr_t)view->data;
        return PROGRAM_OK;
    }
    uint64_t bytes;
    if (!checked_mul(view->elements, elem, &bytes))
        return no_memory(p);
    bound->memory = malloc((size_t)bytes + 1);
    if (!bound->memory)
        return no_memory(p);
    bound->tensor.data = bound->memory;
    if (view->fmt == want)
        memcpy(bound->memory, view->data, (size_t)bytes);
    else
        return convert_input(p, view, want, port.name, bound->memory);
    return PROGRAM_OK;
}

static int bind_input(const Program *p, BoundSet *set, const Side *side, int index,
                      const char *path)
{
    IoError err;
    Bound *bound = &set->bound[index];
    const char *name = side->at(p->model, index).name;
    if (bound->file)
        return given_twice(p, side, index);
    bound->file = tensorfile_open(path, &err);
    if (!bound->file)
        return program_fail(p, PROGRAM_INPUT, "%s", err.text);
    const TensorView *view = tensorfile_find(bound->file, name);
    if (!view && tensorfile_num(bound->file) == 1)
        view = tensorfile_at(bound->file, 0);
    if (view)
        return bind_view(p, index, path, view, bound);
    Nearest nearest;
    nearest_init(&nearest, name);
    for (int i = 0; i < tensorfile_num(bound->file); i++)
        nearest_offer(&nearest, tensorfile_at(bound->file, i)->name);
    const char *best = nearest_get(&nearest);
    return program_fail(p, PROGRAM_INPUT, "%s: it holds no tensor \"%s\"%s%s%s", path, name,
                        best ? "; the nearest name is \"" : "", best ? best : "", best ? "\"" : "");
}

int inputs_read(const Program *p, BoundSet *set)
{
    const Side side = side_of(p, false);
    char text[160];
    for (int i = 0; i < p->input.num; i++) {
        int index;
        const char *path;
        int code = split_word(p, &side, p->input.text[i], &index, &path);
        /* a file without a name binds every input: one .npy, or a .safetensors with their names */
        for (int k = index < 0 ? 0 : index; !code && k < (index < 0 ? side.num : index + 1); k++)
            code = bind_input(p, set, &side, k, path);
        if (code)
            return code;
    }
    for (int i = 0; i < set->num; i++) {
        if (!set->bound[i].file)
            return program_fail(p, PROGRAM_USAGE, "input \"%s\", %s, is missing: --input %s=FILE",
                                side.at(p->model, i).name,
                                sinter_port_text(p->model, 0, i, text, sizeof text),
                                side.at(p->model, i).name);
        set->tensor[i] = set->bound[i].tensor;
    }
    return PROGRAM_OK;
}

/* Is an activation stored with a given scale and without a code for NaN? */
static bool hides_nan(const Plan *plan)
{
    for (int i = 0; i < plan->num_tensors; i++) {
        const PlanTensor *t = &plan->tensor[i];
        if (t->is_static && !isnan(format_decode(t->scheme.fmt, format_encode(t->scheme.fmt, NAN))))
            return true;
    }
    return false;
}

bool inputs_hide_nan(const SinterModel *model, const SinterTensor *input, int num, int *ret_input,
                     uint64_t *ret_element)
{
    float value[CHUNK];
    for (int i = 0; i < num && hides_nan(model_plan(model)); i++) {
        FormatId fmt = format_of_dtype(input[i].dtype);
        uint64_t all = tensor_elements(&input[i]);
        for (uint64_t at = 0; at < all && fmt != FMT_I32; at += CHUNK) {
            uint64_t part = all - at < CHUNK ? all - at : CHUNK;
            const uint8_t *from = (const uint8_t *)input[i].data + at * dtype_bytes(input[i].dtype);
            format_to_f32(fmt, from, value, part);
            for (uint64_t k = 0; k < part; k++)
                if (isnan(value[k])) {
                    *ret_input = i;
                    *ret_element = at + k;
                    return true;
                }
        }
    }
    return false;
}

int inputs_check(const Program *p, const BoundSet *set)
{
    static const char what[] = "which layers with a static range take as 0";
    int input;
    uint64_t element;
    if (!inputs_hide_nan(p->model, set->tensor, set->num, &input, &element))
        return PROGRAM_OK;
    const char *name = program_shown(set->tensor[input].name);
    unsigned long long at = element;
    if (p->refuses_nan)
        return program_fail(p, PROGRAM_INPUT, "input \"%s\": element %llu is not a number, %s",
                            name, at, what);
    program_warn(p, "input \"%s\": element %llu is not a number, %s (--nan error refuses it)", name,
                 at, what);
    return PROGRAM_OK;
}

/* Outputs -------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && !strcmp(text + len - end_len, end);
}

int outputs_name(const Program *p, BoundSet *set)
{
    const Side side = side_of(p, true);
    for (int i = 0; i < p->output.num; i++) {
        int index;
        const char *path;
        int code = split_word(p, &side, p->output.text[i], &index, &path);
        if (code)
            return code;
        bool npy = ends_with(path, ".npy");
        if (!npy && !ends_with(path, ".safetensors"))
            return program_fail(p, PROGRAM_USAGE, "%s ends neither in .npy nor in .safetensors",
                                path);
        if (npy && index < 0 && side.num > 1)
            return program_fail(p, PROGRAM_USAGE,
                                "a .npy file holds one tensor, the model has %d outputs: --output "
                                "%s=FILE, or a .safetensors file",
                                side.num, side.at(p->model, 0).name);
        for (int k = index < 0 ? 0 : index; k < (index < 0 ? side.num : index + 1); k++) {
            if (set->bound[k].path)
                return given_twice(p, &side, k);
            set->bound[k].path = path;
            for (int other = 0; npy && other < k; other++)
                if (set->bound[other].path && !strcmp(set->bound[other].path, path))
                    return program_fail(p, PROGRAM_USAGE, "%s would be written twice", path);
        }
    }
    return PROGRAM_OK;
}

int outputs_alloc(const Program *p, const BoundSet *in, BoundSet *out)
{
    SinterError err;
    SinterStatus status =
        sinter_output_shapes(p->session, in->tensor, in->num, out->tensor, out->num, &err);
    if (status)
        return program_fail(p, program_status_code(status), "%s", err.text);
    for (int i = 0; i < out->num; i++) {
        SinterTensor *t = &out->tensor[i];
        uint64_t bytes = dtype_bytes(t->dtype);
        for (int k = 0; k < t->rank; k++)
            if (!checked_mul(bytes, (uint64_t)t->dim[k], &bytes) || bytes > LIMIT_BYTES)
                return no_memory(p);
        out->bound[i].memory = t->data = malloc((size_t)bytes + 1);
        if (!t->data)
            return no_memory(p);
        out->bound[i].tensor = *t;
    }
    return PROGRAM_OK;
}

/* bf16 has no npy dtype: it is written as f32, which holds the same values. */
static int write_npy(const Program *p, const SinterTensor *t, const char *path)
{
    IoError err;
    FormatId fmt = format_of_dtype(t->dtype);
    const void *data = t->data;
    float *wide = NULL;
    if (fmt == FMT_BF16) {
        uint64_t num = tensor_elements(t);
        data = wide = malloc((size_t)num * sizeof *wide + 1);
        if (!wide)
            return no_memory(p);
        format_to_f32(fmt, t->data, wide, num);
        fmt = FMT_F32;
    }
    bool ok = npy_write(path, fmt, t->rank, t->dim, data, &err);
    free(wide);
    return ok ? PROGRAM_OK : program_fail(p, PROGRAM_INPUT, "%s", err.text);
}

/* All outputs that go to the file of output `first`. */
static int write_safetensors(const Program *p, const BoundSet *set, int first)
{
    IoError err;
    const char *path = set->bound[first].path;
    SafetensorsItem *item = calloc((size_t)set->num, sizeof *item);
    int num = 0;
    if (!item)
        return no_memory(p);
    for (int i = first; i < set->num; i++) {
        const SinterTensor *t = &set->tensor[i];
        if (set->bound[i].path && !strcmp(set->bound[i].path, path))
            item[num++] = (SafetensorsItem){
                t->name, format_of_dtype(t->dtype), t->rank, t->dim, t->data, NULL};
    }
    bool ok = safetensors_write(path, num, item, &err);
    free(item);
    return ok ? PROGRAM_OK : program_fail(p, PROGRAM_INPUT, "%s", err.text);
}

int outputs_write(const Program *p, const BoundSet *set)
{
    int code = PROGRAM_OK;
    for (int i = 0; !code && i < set->num; i++) {
        const char *path = set->bound[i].path;
        bool is_written = !path;
        for (int k = 0; !is_written && k < i; k++)
            is_written = set->bound[k].path && !strcmp(set->bound[k].path, path);
        if (is_written)
            continue;
        code = ends_with(path, ".npy") ? write_npy(p, &set->tensor[i], path)
                                       : write_safetensors(p, set, i);
    }
    return code;
}

void outputs_print(const BoundSet *set)
{
    for (int i = 0; i < set->num; i++) {
        const SinterTensor *t = &set->tensor[i];
        FormatId fmt = format_of_dtype(t->dtype);
        uint64_t num = tensor_elements(t);
        double least = INFINITY, most = -INFINITY, sum = 0, value;
        for (uint64_t k = 0; k < num; k++) {
            format_to_f64(fmt, (const uint8_t *)t->data + k * dtype_bytes(t->dtype), &value, 1);
            least = value < least ? value : least;
            most = value > most ? value : most;
            sum += value;
        }
        printf("%s %s[", program_shown(t->name), format_info[fmt].name);
        for (int k = 0; k < t->rank; k++)
            printf("%s%lld", k ? ", " : "", (long long)t->dim[k]);
        if (num)
            printf("] from %.6g to %.6g, mean %.6g\n", least, most, sum / (double)num);
        else
            printf("] empty\n");
    }
}

/* Labels --------------------------------------------------------------------------------------- */

/* The column of a row's largest value, the first of equals; -1: all are NaN, so no label is right.
 */
static int64_t row_largest(const SinterTensor *t, int64_t row, int64_t cols)
{
    FormatId fmt = format_of_dtype(t->dtype);
    int64_t best = -1;
    double most = -INFINITY, value;
    for (int64_t c = 0; c < cols; c++) {
        const uint8_t *at =
            (const uint8_t *)t->data + (uint64_t)(row * cols + c) * dtype_bytes(t->dtype);
        format_to_f64(fmt, at, &value, 1);
        if (value > most || (best < 0 && value == most)) {
            most = value;
            best = c;
        }
    }
    return best;
}

/* The output that labels score: the only one, or the one of this name. */
static const SinterTensor *logits_of(const BoundSet *set)
{
    for (int i = 0; i < set->num; i++)
        if (set->num == 1 || !strcmp(set->tensor[i].name, "logits"))
            return &set->tensor[i];
    return NULL;
}

static int labels_compare(const Program *p, const SinterTensor *t, const TensorView *view)
{
    IoError err;
    int64_t cols = t->rank ? t->dim[t->rank - 1] : 1, right = 0;
    int64_t rows = cols ? (int64_t)tensor_elements(t) / cols : 0;
    uint64_t num = view ? view->elements : 0;
    int64_t *label = calloc((size_t)num + 1, sizeof *label);
    if (!label)
        return no_memory(p);
    bool fits = labels_read(view, p->labels, label, &err) &&
                labels_fit(label, num, p->labels, t->name, rows, cols, &err);
    for (int64_t r = 0; fits && r < rows; r++)
        right += label[r] == row_largest(t, r, cols);
    free(label);
    if (!fits)
        return program_fail(p, PROGRAM_INPUT, "%s", err.text);
    printf("accuracy %.4f (%lld of %lld)\n", rows ? (double)right / (double)rows : 0.0,
           (long long)right, (long long)rows);
    return PROGRAM_OK;
}

int labels_score(const Program *p, const BoundSet *set)
{
    IoError err;
    const SinterTensor *t = logits_of(set);
    if (!t)
        return program_fail(p, PROGRAM_USAGE,
                            "--labels needs a model with one output or one named logits, not %d",
                            set->num);
    TensorFile *file = tensorfile_open(p->labels, &err);
    if (!file)
        return program_fail(p, PROGRAM_INPUT, "%s", err.text);
    int code = labels_compare(p, t, tensorfile_num(file) == 1 ? tensorfile_at(file, 0) : NULL);
    tensorfile_close(file);
    return code;
}
