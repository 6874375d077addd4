/* Unfinished files and folders that have names, for signals and exit to remove. */
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Paths lie here, not with their owners, so that the handler touches no memory that could be freed
 * under it. What is beyond the table is not removed by signals, only by its owner; no caller has
 * more than a few. */
#define MAX_PENDING 64
static struct {
    volatile sig_atomic_t is_used;
    bool is_folder;
    char path[PATH_MAX];
} pending[MAX_PENDING];
static const int handled_signal[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT,  SIGPIPE, SIGALRM,
                                     SIGXCPU, SIGXFSZ, SIGBUS, SIGSEGV,  SIGABRT, SIGUSR1,
                                     SIGUSR2, SIGFPE,  SIGILL, SIGVTALRM};
static struct sigaction old_action[COUNT_OF(handled_signal)];
static volatile sig_atomic_t num_pending;

/* Only calls that a handler may make: opendir allocates. */
static void files_unlink(int fd)
{
    _Alignas(struct dirent64) char part[4096];
    for (long got; (got = syscall(SYS_getdents64, fd, part, sizeof part)) > 0;)
        for (long at = 0; at < got;) {
            const struct dirent64 *entry = (const void *)(part + at);
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                unlinkat(fd, entry->d_name, 0);
            at += entry->d_reclen;
        }
}

void folder_remove(const char *path)
{
    /* a thread that is not stopped yet may put another file there: then once more */
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return;
        files_unlink(fd);
        close(fd);
        if (rmdir(path) == 0 || (errno != ENOTEMPTY && errno != EEXIST))
            return;
    }
}

void outfiles_remove(void)
{
    for (int i = 0; i < MAX_PENDING; i++) {
        if (!pending[i].is_used)
            continue;
        if (pending[i].is_folder)
            folder_remove(pending[i].path);
        else
            unlink(pending[i].path);
    }
}

static void remove_pending(int signal_number)
{
    int saved = errno;
    outfiles_remove();
    errno = saved;
    raise(signal_number); /* delivered with the default action once this handler returns */
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = remove_pending, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < COUNT_OF(handled_signal); i++) {
        /* A program that ignores or handles a signal keeps its way. */
        if (sigaction(handled_signal[i], NULL, &old_action[i]) == 0 &&
            old_action[i].sa_handler == SIG_DFL)
            sigaction(handled_signal[i], &action, NULL);
    }
}

static void release_signals(void)
{
    struct sigaction now;
    for (size_t i = 0; i < COUNT_OF(handled_signal); i++)
        if (sigaction(handled_signal[i], NULL, &now) == 0 && now.sa_handler == remove_pending)
            sigaction(handled_signal[i], &old_action[i], NULL);
}

int pending_add(const char *path, bool is_folder)
{
    size_t len = strlen(path);
    for (int i = 0; i < MAX_PENDING && len < sizeof pending[i].path; i++) {
        if (pending[i].is_used)
            continue;
        memcpy(pending[i].path, path, len + 1);
        pending[i].is_folder = is_folder;
        pending[i].is_used = 1;
        if (num_pending++ == 0) {
            static bool is_registered; /* exit, where memory is exhausted, leaves nothing either */
            catch_signals();
            if (!is_registered)
                is_registered = atexit(outfiles_remove) == 0;
        }
        return i;
    }
    return -1;
}

void pending_remove(int slot)
{
    if (slot < 0)
        return;
    pending[slot].is_used = 0;
    if (--num_pending == 0)
        release_signals();
}
