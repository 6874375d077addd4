/* See fake_asked.h. */
#include "fake_asked.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int asked_capability(int otherwise)
{
    const char *text = secure_getenv("SINTER_FAKE_CAPABILITY");
    return text ? atoi(text) : otherwise;
}

double asked_launch_ms(double otherwise)
{
    const char *us = secure_getenv("SINTER_FAKE_US");
    return us ? atof(us) / 1e3 : otherwise;
}

void asked_crash(int launches, int nodes)
{
    const char *at = secure_getenv("SINTER_FAKE_CRASH");
    const char *only = secure_getenv("SINTER_FAKE_CRASH_NODES");
    const char *in = secure_getenv("SINTER_FAKE_CRASH_IN");
    const char *gone = secure_getenv("SINTER_FAKE_GONE");
    if (!at || launches < atoi(at) || (only && atoi(only) != nodes) || (in && !secure_getenv(in)))
        return;
    FILE *f = gone ? fopen(gone, "w") : NULL;
    if (f)
        fclose(f);
    raise(SIGKILL);
}

bool asked_gone(void)
{
    const char *gone = secure_getenv("SINTER_FAKE_GONE");
    return gone && access(gone, F_OK) == 0;
}
