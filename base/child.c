/* Processes that may fail; see child.h. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

bool child_send(int to, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t num = send(to, (const char *)data + done, size - done, MSG_NOSIGNAL);
        if (num <= 0 && errno != EINTR)
            return false;
        done += num > 0 ? (size_t)num : 0;
    }
    return true;
}

bool child_wait(int from, void *ret, size_t size)
{
    ssize_t num;
    do
        num = recv(from, ret, size, MSG_WAITALL);
    while (num < 0 && errno == EINTR);
    return num == (ssize_t)size;
}

bool child_order(const char *variable, ChildOrder *ret)
{
    const char *text = secure_getenv(variable);
    return text && sscanf(text, "%d,%d", &ret->socket, &ret->job) == 2;
}

/* The environment with the order. Made before the fork: other threads may hold locks then, and
 * nothing is allocated between it and the start of the program. */
static char **environment(Arena *arena, const char *variable, const ChildOrder *order)
{
    size_t num = 0, kept = 0, len = strlen(variable);
    while (environ[num])
        num++;
    char **ret = ARENA_NEW_ARRAY(arena, char *, num + 2);
    for (size_t i = 0; i < num; i++)
        if (strncmp(environ[i], variable, len) != 0 || environ[i][len] != '=')
            ret[kept++] = environ[i];
    ret[kept] = arena_printf(arena, "%s=%d,%d", variable, order->socket, order->job);
    return ret;
}

bool child_start(Arena *arena, const ChildStart *how, Child *ret)
{
    int end[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) != 0)
        return false;
    ChildOrder order = {.socket = end[1], .job = how->job};
    char **env = how->argv ? environment(arena, how->variable, &order) : NULL;
    fflush(NULL); /* or the child would hold the same text */
    *ret = (Child){.pid = fork(), .socket = end[0]};
    if (ret->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever ends the parent, and whatever the GPU does */
        close(end[0]);
        if (!how->argv) {
            how->serve(how->user, &order);
            _exit(0);
        }
        fcntl(end[1], F_SETFD, 0); /* inherited */
        if (how->job >= 0)
            fcntl(how->job, F_SETFD, 0);
        execve("/proc/self/exe", how->argv, env);
        _exit(127);
    }
    int why = errno;
    close(end[1]);
    if (ret->pid < 0) { /* kill takes -1 for every process of the user */
        close(end[0]);
        ret->pid = 0;
        errno = why;
    }
    return ret->pid > 0;
}

int child_end(Child *c)
{
    int status = 0;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(c->socket);
    c->pid = 0;
    return status;
}

Heard child_deaf(void)
{
    return errno == EPIPE || errno == ECONNRESET ? DEAD : FAILED;
}

Heard child_hear(const Child *c, double limit_s, void *ret, size_t size)
{
    size_t got = 0;
    double until = 1e-6 * clock_us() + limit_s;
    while (got < size) {
        struct pollfd p = {.fd = c->socket, .events = POLLIN};
        double left = until - 1e-6 * clock_us();
        int ready = left > 0 ? poll(&p, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return SILENT;
        ssize_t num = read(c->socket, (char *)ret + got, size - got);
        if (num == 0)
            return DEAD;
        if (num < 0 && errno != EINTR)
            return child_deaf();
        got += num > 0 ? (size_t)num : 0;
    }
    return HEARD;
}

const char *child_end_silent(Arena *arena, Child *c, Heard heard, double limit_s)
{
    if (heard == DEAD) { /* its end is closed: it dies by itself */
        int status = 0;
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
        close(c->socket);
        c->pid = 0;
        return WIFSIGNALED(status)
                   ? arena_printf(arena, "its process died of signal %d", WTERMSIG(status))
                   : arena_printf(arena, "its process ended with code %d", WEXITSTATUS(status));
    }
    int why = errno;
    child_end(c);
    return heard == FAILED ? arena_printf(arena, "it cannot be talked to: %s", strerror(why))
                           : arena_printf(arena, "it did not end within %g s", limit_s);
}
