/* Files: mapped reading of regular files, bounded whole reads, and paths. outfile.c writes. */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool io_fail(IoError *err, ErrorId id, const char *fmt, ...)
{
    if (!err)
        return false;
    va_list args;
    va_start(args, fmt);
    err->id = id;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    for (char *c = err->text; *c; c++)
        if ((uint8_t)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return false;
}

/* An open regular file, or -1. O_NONBLOCK: opening a FIFO must not wait for its writer. */
static int open_regular(const char *path, uint64_t *ret_size, IoError *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        io_fail(err, E_FILE_OPEN, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) != 0) {
        io_fail(err, E_FILE_OPEN, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        io_fail(err, E_FILE_OPEN, "%s: is %s, not a regular file", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a pipe or a device");
    } else if (outputs_find(fd)) {
        io_fail(err, E_OVERWRITE, "%s: is read, and %s would overwrite it; give that another name",
                path, outputs_find(fd));
    } else {
        *ret_size = (uint64_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

bool file_map(const char *path, MappedFile *ret, IoError *err)
{
    uint64_t size;
    *ret = (MappedFile){.data = (const uint8_t *)"", .fd = -1};
    int fd = open_regular(path, &size, err);
    if (fd < 0)
        return false;
    if (size > SIZE_MAX || size > LIMIT_BYTES) {
        close(fd);
        return io_fail(err, E_FILE_OPEN, "%s: %llu bytes are more than can be mapped", path,
                       (unsigned long long)size);
    }
    if (size > 0) {
        void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            int why = errno;
            close(fd);
            return io_fail(err, E_FILE_OPEN, "%s: cannot be mapped: %s", path, strerror(why));
        }
        ret->data = data;
        guard_add(path, data, size);
    }
    ret->size = size;
    ret->fd = fd;
    return true;
}

/* False: an error, or the file is shorter than it was. */
static bool read_exactly(int fd, uint8_t *data, uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        uint64_t left = size - at;
        ssize_t got = pread(fd, data + at, left < (1u << 30) ? (size_t)left : 1u << 30, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? ENODATA : errno;
            return false;
        }
        at += (uint64_t)got;
    }
    return true;
}

bool file_copy(const char *path, MappedFile *ret, IoError *err)
{
    uint64_t size;
    *ret = (MappedFile){.data = (const uint8_t *)"", .fd = -1};
    int fd = open_regular(path, &size, err);
    if (fd < 0)
        return false;
    void *data = MAP_FAILED;
    bool fits = size <= SIZE_MAX && size <= LIMIT_BYTES;
    if (size && fits)
        data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool ok = !size || (data != MAP_FAILED && read_exactly(fd, data, size));
    if (!ok && data == MAP_FAILED)
        io_fail(err, E_MEMORY, "%s: no memory for its %llu bytes", path, (unsigned long long)size);
    else if (!ok)
        io_fail(err, E_FILE_OPEN, "%s: %s", path, strerror(errno));
    close(fd);
    if (!ok && data != MAP_FAILED)
        munmap(data, (size_t)size);
    if (ok && size) {
        mprotect(data, (size_t)size, PROT_READ);
        ret->data = data;
        ret->size = size;
    }
    return ok;
}

void file_forget(const MappedFile *file)
{
    if (file->fd >= 0)
        (void)madvise((void *)(uintptr_t)file->data, (size_t)file->size, MADV_DONTNEED);
}

void file_unmap(MappedFile *file)
{
    guard_remove(file->data);
    if (file->size > 0)
        munmap((void *)(uintptr_t)file->data, (size_t)file->size);
    if (file->fd >= 0)
        close(file->fd);
    *file = (MappedFile){.data = (const uint8_t *)"", .fd = -1};
}

/* Reads to the end of fd. The buffer grows with what was read, never with what a size declares. */
static char *read_all(int fd, const char *name, uint64_t max, uint64_t *ret_size, IoError *err)
{
    size_t cap = 1 << 16, len = 0;
    char *text = malloc(cap);
    while (text) {
        ssize_t got = read(fd, text + len, cap - len - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            io_fail(err, E_FILE_OPEN, "%s: %s", name, strerror(errno));
            break;
        }
        if (got == 0) {
            text[len] = '\0';
            *ret_size = len;
            return text;
        }
        len += (size_t)got;
        if (len > max) {
            io_fail(err, E_FILE_OPEN, "%s: is larger than the limit of %llu bytes", name,
                    (unsigned long long)max);
            break;
        }
        if (len + 1 == cap) {
            char *more = realloc(text, cap * 2);
            if (!more) {
                io_fail(err, E_MEMORY, "%s: memory is exhausted", name);
                break;
            }
            text = more;
            cap *= 2;
        }
    }
    if (!text)
        io_fail(err, E_MEMORY, "%s: memory is exhausted", name);
    free(text);
    return NULL;
}

char *file_read(const char *path, uint64_t max, uint64_t *ret_size, IoError *err)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "<stdin>", max, ret_size, err);
    uint64_t size;
    int fd = open_regular(path, &size, err);
    if (fd < 0)
        return NULL;
    char *text = read_all(fd, path, max, ret_size, err);
    close(fd);
    return text;
}

char *path_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

char *path_beside(const char *base, const char *rel)
{
    const char *slash = strrchr(base, '/');
    size_t dir = rel[0] == '/' || !slash ? 0 : (size_t)(slash - base) + 1;
    size_t len = strlen(rel);
    char *ret = malloc(dir + len + 1);
    if (!ret)
        return NULL;
    memcpy(ret, base, dir);
    memcpy(ret + dir, rel, len + 1);
    return ret;
}
