/* Preloaded into a process: makes its n-th call of one kind fail, once or from then on, and marks
 * that it did. SINTER_FAULT is KIND:N:ERRNO[:ever], SINTER_FAULT_MARK a file that is made when it
 * happens. Kinds: alloc, thread, stdio (opening a stream), and the names of system calls. Short
 * counts: ERRNO 0 makes reads and writes of more than one byte move one. What libc does inside of
 * itself is not seen, but for allocations. */
/* both names of each call are defined here, so the C library may not make them one */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char kind[16];
static long at;
static int number;
static bool ever;
static long calls;
static bool ready;

__attribute__((constructor)) static void read_wish(void)
{
    const char *wish = getenv("SINTER_FAULT");
    char word[8] = "";
    if (wish && sscanf(wish, "%15[^:]:%ld:%d:%7s", kind, &at, &number, word) >= 3)
        ready = true;
    ever = strcmp(word, "ever") == 0;
}

static bool fails(const char *what)
{
    if (!ready || strcmp(kind, what) != 0)
        return false;
    long now = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (now < at || (now > at && !ever))
        return false;
    const char *mark = getenv("SINTER_FAULT_MARK");
    int fd = mark ? (int)syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT, 0600) : -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = number;
    return true;
}

/* Memory: glibc's own names, since dlsym itself allocates. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    return fails("alloc") ? NULL : __libc_malloc(size);
}

void *calloc(size_t num, size_t size)
{
    return fails("alloc") ? NULL : __libc_calloc(num, size);
}

void *realloc(void *old, size_t size)
{
    return fails("alloc") ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails("alloc") ? NULL : __libc_memalign(align, size);
}

/* Files. */
static int open_at(const char *path, int flags, mode_t mode)
{
    if (fails((flags & O_TMPFILE) == O_TMPFILE ? "tmpfile" : "open"))
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return open_at(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return open_at(path, flags, mode);
}

static size_t shortened(const char *what, size_t size, bool *ret_fails)
{
    *ret_fails = fails(what);
    if (!*ret_fails || number)
        return size;
    *ret_fails = false;
    return size > 1 ? 1 : size;
}

ssize_t read(int fd, void *data, size_t size)
{
    bool fail;
    size = shortened("read", size, &fail);
    return fail ? -1 : syscall(SYS_read, fd, data, size);
}

ssize_t write(int fd, const void *data, size_t size)
{
    bool fail;
    size = shortened("write", size, &fail);
    return fail ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    bool fail;
    size = shortened("write", size, &fail);
    return fail ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite(fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    bool fail;
    size = shortened("read", size, &fail);
    return fail ? -1 : syscall(SYS_pread64, fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset)
{
    return pread(fd, data, size, offset);
}

void *mmap(void *where, size_t size, int protect, int flags, int fd, off_t offset)
{
    if (fails("mmap"))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, where, size, protect, flags, fd, offset);
}

void *mmap64(void *where, size_t size, int protect, int flags, int fd, off_t offset)
{
    return mmap(where, size, protect, flags, fd, offset);
}

int fsync(int fd)
{
    return fails("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
    if (fails("close")) {
        syscall(SYS_close, fd);
        errno = number;
        return -1;
    }
    return (int)syscall(SYS_close, fd);
}

int rename(const char *from, const char *to)
{
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return fails("link") ? -1 : (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return fails("memfd") ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir") ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

/* These have no name of glibc's own under which the real one can be called. */
static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

int openat(int at_fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return fails("open") ? -1 : (int)syscall(SYS_openat, at_fd, path, flags, mode);
}

int openat64(int at_fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return fails("open") ? -1 : (int)syscall(SYS_openat, at_fd, path, flags, mode);
}

pid_t fork(void)
{
    pid_t (*fork_real)(void) = NULL;
    *(void **)&fork_real = real("fork");
    return fails("fork") ? -1 : fork_real();
}

/* A process may only end one that it knows: -1 would be every process of the user. */
int kill(pid_t pid, int signal_number)
{
    if (pid <= 0)
        abort();
    return (int)syscall(SYS_kill, pid, signal_number);
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*open_real)(const char *, const char *) = NULL;
    *(void **)&open_real = real("fopen");
    return fails("stdio") ? NULL : open_real(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    int (*create_real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
    *(void **)&create_real = real("pthread_create");
    return fails("thread") ? number : create_real(ret, attr, run, arg);
}
