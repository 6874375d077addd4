/* codegen/cuda/device_hash: the code of a kernel family as one word, so that timings of other code
 * are known as such. */
#include "codegen/cuda/target.h"

#include <inttypes.h>
#include <string.h>

#define DEVICE_FILE(symbol, path)        \
    extern const unsigned char symbol[]; \
    extern const size_t symbol##_size;
#include "codegen/cuda/device_files.def"
#undef DEVICE_FILE

const CudaDeviceFile cuda_device_files[NUM_CUDA_DEVICE_FILES] = {
#define DEVICE_FILE(symbol, path) {path, symbol, &symbol##_size},
#include "codegen/cuda/device_files.def"
#undef DEVICE_FILE
};

static int find_file(const char *path, size_t len)
{
    for (int i = 0; i < NUM_CUDA_DEVICE_FILES; i++)
        if (strlen(cuda_device_files[i].path) == len &&
            !memcmp(cuda_device_files[i].path, path, len))
            return i;
    return -1;
}

/* Past a comment, else `at`. */
static const char *skip_comment(const char *at, const char *end)
{
    bool line = end - at > 1 && at[0] == '/' && at[1] == '/';
    if (!line && !(end - at > 1 && at[0] == '/' && at[1] == '*'))
        return at;
    for (at += 2; at < end; at++)
        if (line ? *at == '\n' : at[-1] == '*' && at[0] == '/')
            return at + 1;
    return end;
}

/* Past a text in quotes, else `at`. */
static const char *skip_quoted(const char *at, const char *end)
{
    char quote = *at;
    if (quote != '"' && quote != '\'')
        return at;
    for (at++; at < end && *at != quote; at++)
        at += *at == '\\';
    return at < end ? at + 1 : end;
}

/* Neither blank nor what a comment or a text in quotes begins with. */
static bool is_plain(char c)
{
    return c != ' ' && c != '\t' && c != '\n' && c != '/' && c != '"' && c != '\'';
}

/* Text without comments and blanks, but with what stands in quotes as it is. There is room for that
 * of all files. */
typedef struct Code {
    char *text;
    size_t len;
} Code;

static void put_code(Code *c, const char *at, const char *end)
{
    while (at < end) {
        const char *next = skip_comment(at, end);
        if (next == at) {
            next = skip_quoted(at, end);
            while (next < end && is_plain(*next))
                next++;
            next += next == at && *at == '/';
            memcpy(c->text + c->len, at, (size_t)(next - at));
            c->len += (size_t)(next - at);
            next += next == at; /* a blank */
        }
        at = next;
    }
}

/* The file that the line includes; -1: none. */
static int included(const char *line, const char *stop)
{
    static const char word[] = "#include \"";
    if ((size_t)(stop - line) <= sizeof word || memcmp(line, word, sizeof word - 1) != 0)
        return -1;
    const char *path = line + sizeof word - 1;
    const char *quote = memchr(path, '"', (size_t)(stop - path));
    return quote ? find_file(path, (size_t)(quote - path)) : -1;
}

void cuda_included(const char *text, size_t len, bool used[NUM_CUDA_DEVICE_FILES])
{
    for (const char *line = text, *end = text + len; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        int file = included(line, stop);
        if (file >= 0 && !used[file]) {
            used[file] = true;
            cuda_included((const char *)cuda_device_files[file].text, *cuda_device_files[file].size,
                          used);
        }
        line = stop + 1;
    }
}

/* A file and, where it names them first, those that it includes; each once. */
static void put_file(Code *c, int file, bool *done)
{
    const char *at = (const char *)cuda_device_files[file].text;
    const char *end = at + *cuda_device_files[file].size;
    if (done[file])
        return;
    done[file] = true;
    for (const char *line = at; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        int other = included(line, stop);
        if (other >= 0)
            put_file(c, other, done);
        line = stop + 1;
    }
    put_code(c, at, end);
}

const char *cuda_family_code(Arena *arena, const char *family)
{
    static const char shared[] = "kernels/cuda/row.cuh"; /* programs of rows call it */
    bool done[NUM_CUDA_DEVICE_FILES] = {false};
    const char *path = arena_printf(arena, "kernels/cuda/%s.cuh", family);
    int file = find_file(path, strlen(path));
    Code code = {0};
    size_t room = 0;
    if (file < 0)
        return NULL;
    for (int i = 0; i < NUM_CUDA_DEVICE_FILES; i++)
        room += *cuda_device_files[i].size;
    code.text = arena_alloc(arena, room);
    put_file(&code, file, done);
    put_file(&code, find_file(shared, sizeof shared - 1), done);
    return arena_printf(arena, "%08" PRIx32, (uint32_t)hash_bytes(code.text, code.len, 0));
}
