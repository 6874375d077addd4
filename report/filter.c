/* Other programs as functions from bytes to text. */
#include "report/print.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool write_whole(int fd, const char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t num = write(fd, data + done, size - done);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return false;
        done += (size_t)num;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

static bool spawn_and_wait(char *const argv[], int in, int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions))
        return false;
    if (posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO) == 0 &&
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
        posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

/* Input and output are files in memory, so that neither side waits for the other, and a program
 * that seeks in its input can. */
bool filter_through(char *const argv[], const void *data, size_t size, Sb *ret)
{
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    size_t before = ret->len;
    bool ok = in >= 0 && out >= 0 && write_whole(in, data, size) && spawn_and_wait(argv, in, out);
    if (ok && lseek(out, 0, SEEK_SET) == 0) {
        char buf[4096];
        ssize_t num;
        while ((num = read(out, buf, sizeof buf)) > 0)
            sb_putn(ret, buf, (size_t)num);
    }
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return ok && ret->len > before;
}
