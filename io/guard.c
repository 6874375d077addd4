/* A mapped file that somebody else cuts short raises SIGBUS where its missing bytes are read. A
 * program that is the whole process turns that into an error with the file's name; a library must
 * not catch signals, so it only maps. */
#include "base/utf8.h"
#include "io/io.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_GUARDED 256 /* files beyond it end the process without their name */

static struct {
    volatile uintptr_t begin, end; /* 0: free */
    char path[256];
} guarded[MAX_GUARDED];
static bool is_on;
static const char *program;

/* Only calls that a handler may make. */
static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void cut_short(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (int i = 0; i < MAX_GUARDED; i++) {
        if (at < guarded[i].begin || at >= guarded[i].end)
            continue;
        say(program);
        say(": error[");
        say(error_info[E_FILE_OPEN].code);
        say("]: ");
        say(guarded[i].path);
        say(": was cut short while it was read\n");
        outfiles_remove();
        _exit(1);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void files_guard(const char *name)
{
    struct sigaction action = {.sa_sigaction = cut_short, .sa_flags = SA_SIGINFO | SA_NODEFER};
    program = name;
    is_on = sigaction(SIGBUS, &action, NULL) == 0;
    /* a file that grows beyond what the user allows is an error of its write */
    signal(SIGXFSZ, SIG_IGN);
}

void guard_add(const char *path, const void *data, uint64_t size)
{
    for (int i = 0; is_on && i < MAX_GUARDED; i++) {
        uintptr_t none = 0;
        if (!__atomic_compare_exchange_n(&guarded[i].begin, &none, (uintptr_t)data, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        utf8_show(path, guarded[i].path, sizeof guarded[i].path);
        guarded[i].end = (uintptr_t)data + size;
        return;
    }
}

void guard_remove(const void *data)
{
    for (int i = 0; is_on && i < MAX_GUARDED; i++)
        if (guarded[i].begin == (uintptr_t)data) {
            guarded[i].end = 0;
            __atomic_store_n(&guarded[i].begin, 0, __ATOMIC_RELEASE);
            return;
        }
}
