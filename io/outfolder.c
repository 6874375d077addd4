/* A folder of outputs that is there whole or not at all: its files are made in a temporary folder,
 * which takes the final name when they are complete. Beside it, where there is no such folder; in
 * it, where it is there and empty: such a folder may be the current one, or where a disk is
 * mounted, so it stays, and the files move up when all are complete. */
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct OutFolder {
    char *path, *temp;
    int slot;
    bool is_inside; /* temp lies in path */
};

static void outfolder_free(OutFolder *f)
{
    free(f->path);
    free(f->temp);
    free(f);
}

bool folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    int num = 0;
    while (dir && num < 3 && readdir(dir))
        num++;
    if (dir)
        closedir(dir);
    return dir && num < 3; /* itself and its parent */
}

/* Makes the temporary folder, which signals know before it is there. */
static bool create_temp(OutFolder *f)
{
    static unsigned counter;
    size_t size = strlen(f->path) + 64;
    f->temp = malloc(size);
    for (int tries = 0; f->temp && tries < 100; tries++) {
        snprintf(f->temp, size, "%s%s.%ld-%u.tmp", f->path, f->is_inside ? "/" : "", (long)getpid(),
                 __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
        f->slot = pending_add(f->temp, true);
        if (mkdir(f->temp, 0777) == 0)
            return true;
        pending_remove(f->slot);
        if (errno != EEXIST)
            break;
    }
    return false;
}

OutFolder *outfolder_create(const char *path, IoError *err)
{
    OutFolder *f = calloc(1, sizeof *f);
    size_t len = strlen(path);
    struct stat st;
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (f)
        *f = (OutFolder){.path = strndup(path, len), .slot = -1};
    if (!f || !f->path) {
        free(f);
        io_fail(err, E_MEMORY, "%s: memory is exhausted", path);
        return NULL;
    }
    f->is_inside = lstat(f->path, &st) == 0;
    if (f->is_inside && !folder_is_empty(f->path))
        io_fail(err, E_FILE_WRITE, "%s: is not an empty folder; name one that is not there", path);
    else if (!create_temp(f))
        io_fail(err, E_FILE_WRITE, "%s: cannot be made: %s", path, strerror(errno));
    else
        return f;
    outfolder_free(f);
    return NULL;
}

const char *outfolder_path(const OutFolder *f)
{
    return f->temp;
}

/* All entries of one folder into another; `last` only, or all but that. */
static bool move_up(int from, int to, const char *last, bool is_last)
{
    if (is_last)
        return renameat(from, last, to, last) == 0;
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool ok = dir != NULL;
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, last) != 0)
            ok = renameat(from, name, to, name) == 0;
    }
    int why = errno;
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    errno = why;
    return ok;
}

/* No signal may come between the first file and the last. */
static bool move_all(const OutFolder *f, const char *last)
{
    sigset_t all, before;
    int from = open(f->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int to = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = from >= 0 && to >= 0;
    int why = errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (ok) {
        ok = move_up(from, to, last, false) && move_up(from, to, last, true);
        why = errno;
    }
    if (ok)
        rmdir(f->temp);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return ok;
}

bool outfolder_finish(OutFolder *f, const char *last, IoError *err)
{
    bool ok = f->is_inside ? move_all(f, last) : rename(f->temp, f->path) == 0;
    if (!ok)
        io_fail(err, E_FILE_WRITE, "%s: cannot be written: %s", f->path, strerror(errno));
    outfolder_abandon(f);
    return ok;
}

void outfolder_abandon(OutFolder *f)
{
    if (!f)
        return;
    folder_remove(f->temp); /* which has its final name where it is complete */
    pending_remove(f->slot);
    outfolder_free(f);
}
