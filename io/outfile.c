/* Atomic output: bytes go to a file that has no name until it is complete, and then replaces what
 * is there in one rename.
 *
 * Whatever happens before that (an error, abandon, any signal, an end by the system), nothing is
 * left and a file that existed stays as it was; what replaces it has its permissions and, if that
 * may be, its owner. Where a file system has no files without a name, a
 * temporary one lies beside the final name; it goes too, but for what cannot be caught (SIGKILL).
 * The first failure is kept and told by finish. /dev/stdout and /dev/null are written as they are,
 * at the end; no other device or pipe is. */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 << 10)
#define TEMP_SUFFIX  64 /* bytes at most that a temporary name is longer */

struct OutFile {
    char *path, *temp;
    int fd, slot;
    int error_number; /* of the first failure; 0 = none */
    bool is_unnamed;  /* temp is only room for a name */
    bool is_stream;   /* temp is NULL and fd a spool for standard output */
    uint64_t size;    /* bytes written by the caller; goes on after a failure */
    uint64_t flushed; /* bytes that reached the file */
    size_t used;      /* of buffer */
    uint8_t *buffer;
};

/* Standard output by name: a stream that cannot be replaced, and often not be written twice. */
static bool is_stdout(const char *path)
{
    return !strcmp(path, "/dev/stdout") || !strcmp(path, "/dev/fd/1") ||
           !strcmp(path, "/proc/self/fd/1");
}

/* A file of our own that has no name (file_unnamed). */
#define OPEN_FILES "/proc/self/fd/"
static bool is_open_file(const char *path)
{
    struct stat st;
    return !strncmp(path, OPEN_FILES, sizeof OPEN_FILES - 1) && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode) && st.st_nlink == 0;
}

const char *temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

/* A file without a name for what goes to a stream: its parts are not written in order. */
static int open_spool(void)
{
    int fd = open(temporary_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    bool has_none = fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
    return has_none ? memfd_create("sinter", MFD_CLOEXEC) : fd;
}

/* True: the output replaces no file. f->fd is -1 when the stream cannot be opened. */
static bool open_stream(OutFile *f, const char *path)
{
    f->is_stream = is_stdout(path);
    if (f->is_stream) {
        f->fd = open_spool();
        if (f->fd < 0) /* what cannot lie in a folder lies in memory */
            f->fd = memfd_create("sinter", MFD_CLOEXEC);
    } else if (is_open_file(path)) {
        f->fd = open(path, O_RDWR | O_CLOEXEC | O_TRUNC);
    } else if (!strcmp(path, "/dev/null")) {
        f->fd = open(path, O_RDWR | O_CLOEXEC);
    } else {
        return false;
    }
    return true;
}

int file_unnamed(char ret_path[FILE_UNNAMED])
{
    int fd = open_spool();
    if (fd >= 0)
        snprintf(ret_path, FILE_UNNAMED, OPEN_FILES "%d", fd);
    return fd;
}

/* What was spooled, to standard output. */
static void copy_stream(OutFile *f)
{
    char part[1 << 16];
    for (off_t at = 0; !f->error_number;) {
        ssize_t got = pread(f->fd, part, sizeof part, at);
        if (got < 0 && errno != EINTR)
            f->error_number = errno;
        if (got == 0)
            return;
        at += got > 0 ? got : 0;
        for (ssize_t put = 0, step; put < got && !f->error_number; put += step > 0 ? step : 0) {
            step = write(STDOUT_FILENO, part + put, (size_t)(got - put));
            if (step < 0 && errno != EINTR)
                f->error_number = errno;
        }
    }
}

static void outfile_free(OutFile *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->temp);
    free(f->buffer);
    free(f);
}

/* Where the bytes finally go: the file behind a link, never a device or a folder. *ret_old is what
 * is there: zeros where nothing is. */
static char *resolve_path(const char *path, struct stat *ret_old, IoError *err)
{
    struct stat st;
    *ret_old = (struct stat){0};
    if (lstat(path, &st) != 0) {
        if (errno != ENOENT) {
            io_fail(err, E_FILE_WRITE, "%s: cannot be written: %s", path, strerror(errno));
            return NULL;
        }
        return strdup(path);
    }
    if (stat(path, &st) != 0) {
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: is a link to nothing", path);
        return NULL;
    }
    if (!S_ISREG(st.st_mode)) {
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: is %s, not a regular file", path,
                S_ISDIR(st.st_mode) ? "a folder" : "a pipe or a device");
        return NULL;
    }
    *ret_old = st;
    char *real = realpath(path, NULL);
    if (!real && errno != ENOMEM)
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: %s", path, strerror(errno));
    return real;
}

static void name_temp(OutFile *f)
{
    static unsigned counter;
    snprintf(f->temp, strlen(f->path) + TEMP_SUFFIX, "%s.%ld-%u.tmp", f->path, (long)getpid(),
             __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
}

/* A file without a name in the folder of the final one; false where there are none, or none that
 * could be named later. */
static bool create_unnamed(OutFile *f, unsigned mode)
{
    char path[FILE_UNNAMED];
    memcpy(f->temp, f->path, strlen(f->path) + 1);
    char *slash = strrchr(f->temp, '/');
    if (slash)
        slash[slash == f->temp] = 0;
    f->fd = open(slash ? f->temp : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t)mode);
    if (f->fd < 0)
        return false;
    snprintf(path, sizeof path, OPEN_FILES "%d", f->fd);
    f->is_unnamed = access(path, F_OK) == 0;
    if (!f->is_unnamed)
        close(f->fd);
    return f->is_unnamed;
}

/* Gives the complete file its name. What replaces a file is named beside it first, since links do
 * not replace; no signal may come between. */
static bool put_in_place(OutFile *f)
{
    char path[FILE_UNNAMED];
    sigset_t all, before;
    snprintf(path, sizeof path, OPEN_FILES "%d", f->fd);
    if (linkat(AT_FDCWD, path, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW) == 0)
        return true;
    if (errno != EEXIST)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = false;
    for (int tries = 0; !ok && tries < 100 && (tries == 0 || errno == EEXIST); tries++) {
        name_temp(f);
        ok = linkat(AT_FDCWD, path, AT_FDCWD, f->temp, AT_SYMLINK_FOLLOW) == 0;
    }
    if (ok && rename(f->temp, f->path) != 0) {
        int why = errno;
        unlink(f->temp);
        errno = why;
        ok = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* Creates the temporary file, without a name or under one that is not taken. */
static bool create_temp(OutFile *f, unsigned mode)
{
    f->temp = malloc(strlen(f->path) + TEMP_SUFFIX);
    if (!f->temp) {
        errno = ENOMEM;
        return false;
    }
    if (create_unnamed(f, mode))
        return true;
    for (int tries = 0; tries < 100; tries++) {
        name_temp(f);
        f->fd = open(f->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
        if (f->fd >= 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/* Gives the new file the permissions and the owner of the one that it replaces. Execution, where
 * the new one is a program (`mode`), goes to whoever may read it, so that one written over a file
 * of data runs. Only root can give files away: else it is ours, with the group if that may be set;
 * if it may not, what the old group could do is no right of the new one. */
static bool keep_owner(const OutFile *f, const struct stat *old, unsigned mode)
{
    mode_t kept = old->st_mode & 0777; /* set-user-id stays with what was trusted with it */
    struct stat st;
    if (mode & 0111)
        kept |= (kept & 0444) >> 2;
    if (fstat(f->fd, &st) != 0)
        return false;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
        fchown(f->fd, old->st_uid, old->st_gid) != 0 && st.st_gid != old->st_gid &&
        fchown(f->fd, (uid_t)-1, old->st_gid) != 0)
        kept = (kept & ~(mode_t)0070) | (kept & 0007) << 3;
    return fchmod(f->fd, kept) == 0;
}

/* The bytes of what replaces a file are nobody else's until its permissions are known. */
static bool open_output(OutFile *f, const char *path, const struct stat *old, unsigned mode)
{
    bool replaces = old->st_nlink > 0;
    if (open_stream(f, path))
        return f->fd >= 0;
    return create_temp(f, replaces ? 0600 : mode) && (!replaces || keep_owner(f, old, mode));
}

OutFile *outfile_create(const char *path, unsigned mode, IoError *err)
{
    struct stat old = {0};
    bool is_special = is_stdout(path) || is_open_file(path) || !strcmp(path, "/dev/null");
    char *resolved = is_special ? strdup(path) : resolve_path(path, &old, err);
    if (!resolved) {
        if (errno == ENOMEM)
            io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        return NULL;
    }
    OutFile *f = calloc(1, sizeof *f);
    if (!f) {
        free(resolved);
        io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        return NULL;
    }
    *f = (OutFile){.path = resolved, .fd = -1, .slot = -1, .buffer = malloc(BUFFER_BYTES)};
    if (!f->buffer) {
        outfile_free(f);
        io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        return NULL;
    }
    if (!open_output(f, path, &old, mode)) {
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: %s", path, strerror(errno));
        if (f->fd >= 0 && f->temp && !f->is_unnamed)
            unlink(f->temp);
        outfile_free(f);
        return NULL;
    }
    f->slot = f->temp && !f->is_unnamed ? pending_add(f->temp, false) : -1;
    return f;
}

static bool write_at(OutFile *f, const uint8_t *data, uint64_t size, uint64_t offset)
{
    while (size > 0 && !f->error_number) {
        size_t step = size > (1u << 30) ? (1u << 30) : (size_t)size;
        ssize_t put = pwrite(f->fd, data, step, (off_t)offset);
        if (put < 0 && errno != EINTR)
            f->error_number = errno;
        if (put <= 0)
            continue;
        data += put;
        offset += (uint64_t)put;
        size -= (uint64_t)put;
    }
    return f->error_number == 0;
}

static bool outfile_flush(OutFile *f)
{
    if (!write_at(f, f->buffer, f->used, f->flushed))
        return false;
    f->flushed += f->used;
    f->used = 0;
    return true;
}

bool outfile_write(OutFile *f, const void *data, uint64_t size)
{
    f->size += size;
    if (f->error_number)
        return false;
    if (size > BUFFER_BYTES - f->used && !outfile_flush(f))
        return false;
    if (size > BUFFER_BYTES) {
        if (!write_at(f, data, size, f->flushed))
            return false;
        f->flushed += size;
        return true;
    }
    if (size > 0)
        memcpy(f->buffer + f->used, data, (size_t)size);
    f->used += (size_t)size;
    return true;
}

uint64_t outfile_offset(const OutFile *f)
{
    return f->size;
}

bool outfile_align(OutFile *f, uint64_t align)
{
    static const uint8_t zeros[4096];
    uint64_t rest = outfile_offset(f) % align;
    uint64_t num = rest ? align - rest : 0;
    for (uint64_t step; num > 0; num -= step) {
        step = num > sizeof zeros ? sizeof zeros : num;
        outfile_write(f, zeros, step);
    }
    return f->error_number == 0;
}

bool outfile_reserve(OutFile *f, uint64_t size)
{
    f->size += size;
    if (f->error_number || !outfile_flush(f))
        return false;
    f->flushed += size;
    if (ftruncate(f->fd, (off_t)f->flushed) != 0)
        f->error_number = errno;
    return f->error_number == 0;
}

bool outfile_patch(OutFile *f, uint64_t offset, const void *data, uint64_t size)
{
    if (offset > outfile_offset(f) || size > outfile_offset(f) - offset)
        BUG("a patch of bytes %llu to %llu lies outside the %llu bytes written",
            (unsigned long long)offset, (unsigned long long)(offset + size),
            (unsigned long long)outfile_offset(f));
    return outfile_flush(f) && write_at(f, data, size, offset);
}

bool outfile_finish(OutFile *f, IoError *err)
{
    outfile_flush(f);
    if (f->is_stream)
        copy_stream(f);
    if (f->is_unnamed && !f->error_number && !put_in_place(f))
        f->error_number = errno;
    /* close reports what network file systems held back */
    if (close(f->fd) != 0 && !f->error_number)
        f->error_number = errno;
    f->fd = -1;
    if (!f->error_number && f->temp && !f->is_unnamed && rename(f->temp, f->path) != 0)
        f->error_number = errno;
    if (!f->error_number) {
        pending_remove(f->slot);
        outfile_free(f);
        return true;
    }
    if (is_open_file(f->path)) /* whose path in this process says nothing to anybody */
        io_fail(err, E_TEMPORARY, "a temporary file in '%s' cannot be written: %s",
                temporary_folder(), strerror(f->error_number));
    else
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: %s", f->path, strerror(f->error_number));
    outfile_abandon(f);
    return false;
}

void outfile_abandon(OutFile *f)
{
    if (!f)
        return;
    if (f->temp && !f->is_unnamed)
        unlink(f->temp);
    pending_remove(f->slot);
    outfile_free(f);
}
