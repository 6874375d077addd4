/* Tensor files: one interface over npy, safetensors and GGUF, told apart by content. */
#include "io/tensors.h"

#include <stdlib.h>
#include <string.h>

/* Files that people hand over by mistake. Sizes of safetensors headers can begin with the same
 * bytes, so these are asked only when the file cannot be safetensors. */
static const char *known_kind(const TensorFile *f)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *what;
    } kinds[] = {
        {"PK\x03\x04", 4, "a zip archive (a PyTorch checkpoint or .npz)"},
        {"\x80\x02", 2, "a Python pickle"},
        {"\x80\x03", 2, "a Python pickle"},
        {"\x80\x04", 2, "a Python pickle"},
        {"\x80\x05", 2, "a Python pickle"},
        {"\x89HDF\r\n", 6, "an HDF5 file"},
        {"\x7f"
         "ELF",
         4, "a program"},
        {"version http", 12, "a Git LFS pointer (run `git lfs pull` to get the file)"},
    };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (f->size >= kinds[i].len && memcmp(f->data, kinds[i].magic, kinds[i].len) == 0)
            return kinds[i].what;
    return NULL;
}

/* CSV, JSON, notes: nothing but lines of printable characters. */
static bool is_text(const TensorFile *f)
{
    uint64_t num = f->size < 4096 ? f->size : 4096;
    for (uint64_t i = 0; i < num; i++) {
        uint8_t c = f->data[i];
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f || c >= 0xf8)
            return false;
    }
    return num > 0;
}

/* A file that holds no tensors at all. */
static bool refuse_text(const TensorFile *f, IoError *err)
{
    const char *what = "is text (CSV?), neither .safetensors nor .npy; convert it: "
                       "numpy.save('x.npy', numpy.loadtxt(path, delimiter=',', dtype='<f4'))";
    if (f->size == 0)
        what = "is empty, neither .safetensors nor .npy; was it written in full?";
    else if (f->data[0] == '{')
        what = "is JSON, neither .safetensors nor .npy; only weights may be named by an index";
    return io_fail(err, E_FILE_KIND, "%s: %s", f->name, what);
}

static bool looks_like_safetensors(const TensorFile *f)
{
    if (f->size < 9 || f->data[8] != '{')
        return false;
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | f->data[i];
    return len <= LIMIT_SAFETENSORS_HEADER && len <= f->size - 8;
}

static bool parse(TensorFile *f, IoError *err)
{
    if (f->size >= 6 && memcmp(f->data, "\x93NUMPY", 6) == 0)
        return npy_parse(f, err);
    if (f->size >= 4 && memcmp(f->data, "GGUF", 4) == 0) /* too long for a header of safetensors */
        return gguf_parse(f, err);
    const char *kind = looks_like_safetensors(f) ? NULL : known_kind(f);
    if (!kind && (f->size == 0 || is_text(f))) /* as is every length that is printable */
        return refuse_text(f, err);
    if (!kind)
        return safetensors_parse(f, err);
    size_t len = strlen(f->name);
    if (strstr(kind, "zip") && len > 4 && !strcmp(f->name + len - 4, ".npz"))
        return io_fail(err, E_FILE_KIND,
                       "%s: is an archive of arrays (.npz), which is not read; convert it: "
                       "safetensors.numpy.save_file(dict(numpy.load(path)), 'm.safetensors')",
                       f->name);
    if (strstr(kind, "pickle") || strstr(kind, "zip"))
        return io_fail(err, E_FILE_KIND,
                       "%s: is %s, which can run code when read; convert it where you trust it: "
                       "safetensors.torch.save_file(torch.load(path, weights_only=True), "
                       "'m.safetensors')",
                       f->name, kind);
    return io_fail(err, E_FILE_KIND, "%s: is %s, none of .safetensors, .npy and .gguf", f->name,
                   kind);
}

static size_t alignment(const TensorView *view)
{
    uint64_t bytes = view->elements ? view->bytes / view->elements : 1;
    return bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
}

/* Headers of old writers end anywhere, so a tensor may start at an odd byte. Those few are copied:
 * nobody behind this interface has to care. */
static bool align_views(TensorFile *f, IoError *err)
{
    for (uint32_t i = 0; i < f->num; i++) {
        TensorView *view = &f->view[i];
        if ((uintptr_t)view->data % alignment(view) == 0)
            continue;
        void *copy = malloc(view->bytes ? (size_t)view->bytes : 1);
        void **copies = realloc(f->copies, (f->num_copies + 1) * sizeof *copies);
        if (copies)
            f->copies = copies;
        if (!copy || !copies) {
            free(copy);
            return io_fail(err, E_MEMORY, "%s: memory is exhausted", f->name);
        }
        memcpy(copy, view->data, (size_t)view->bytes);
        f->copies[f->num_copies++] = copy;
        view->data = copy;
    }
    return true;
}

static TensorFile *parse_or_close(TensorFile *f, IoError *err)
{
    if (parse(f, err) && align_views(f, err))
        return f;
    tensorfile_close(f);
    return NULL;
}

static TensorFile *create(const char *name, IoError *err)
{
    TensorFile *f = calloc(1, sizeof *f);
    char *copy = strdup(name);
    if (!f || !copy) {
        free(f);
        free(copy);
        io_fail(err, E_MEMORY, "%s: memory is exhausted", name);
        return NULL;
    }
    f->name = copy;
    f->map.fd = -1;
    return f;
}

TensorFile *tensorfile_parse(const char *name, const void *data, uint64_t size, IoError *err)
{
    TensorFile *f = create(name, err);
    if (!f)
        return NULL;
    f->data = data;
    f->size = size;
    return parse_or_close(f, err);
}

TensorFile *tensorfile_open(const char *path, IoError *err)
{
    TensorFile *f = create(path, err);
    if (!f)
        return NULL;
    if (!file_map(path, &f->map, err)) {
        tensorfile_close(f);
        return NULL;
    }
    f->data = f->map.data;
    f->size = f->map.size;
    return parse_or_close(f, err);
}

void tensorfile_close(TensorFile *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->num_copies; i++)
        free(f->copies[i]);
    free(f->copies);
    names_free(&f->names);
    free(f->view);
    free(f->text);
    file_unmap(&f->map);
    free((void *)(uintptr_t)f->name);
    free(f);
}

int tensorfile_num(const TensorFile *f)
{
    return (int)f->num;
}

const TensorView *tensorfile_at(const TensorFile *f, int index)
{
    return &f->view[index];
}

const TensorView *tensorfile_find(const TensorFile *f, const char *name)
{
    return names_find(&f->names, name);
}

const char *tensor_dtype_text(const TensorView *view)
{
    static const struct {
        const char *npy, *safetensors, *text;
    } names[] = {
        {"<i8", "I64", "64-bit integers (int64)"},
        {"<u8", "U64", "64-bit integers (uint64)"},
        {"<i4", "I32", "32-bit integers (int32)"},
        {"<u4", "U32", "32-bit integers (uint32)"},
        {"<i2", "I16", "16-bit integers (int16)"},
        {"<u2", "U16", "16-bit integers (uint16)"},
        {"|b1", "BOOL", "true and false (bool)"},
        {"<c8", "C64", "complex numbers (complex64)"},
        {"<c16", "C128", "complex numbers (complex128)"},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(view->dtype, names[i].npy) || !strcmp(view->dtype, names[i].safetensors))
            return names[i].text;
    return view->dtype;
}

bool tensorfile_is_npy(const TensorFile *f)
{
    return f->kind == TENSORS_NPY;
}

TensorsKind tensorfile_kind(const TensorFile *f)
{
    return f->kind;
}
