/* See fake_asked.h. */
#include "fake_asked.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int asked_capability(int otherwise)
{
    const char *text = secure_getenv("SINTER_FAKE_CAPABILITY");
    return text ? atoi(text) : otherwise;
}

bool asked_times(void)
{
    return secure_getenv("SINTER_FAKE_US") != NULL;
}

double asked_launch_ms(const char *kernel)
{
    const char *us = secure_getenv("SINTER_FAKE_US");
    double ms = us ? atof(us) / 1e3 : 0;
    if (!secure_getenv("SINTER_FAKE_SPREAD"))
        return ms;
    uint32_t hash = 2166136261u;
    for (const char *c = kernel; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return ms * (0.5 + (hash >> 8) % 1000 / 1000.0);
}

double asked_graph_ms(int nodes, double launches_ms)
{
    const char *text = secure_getenv("SINTER_FAKE_GRAPH_US");
    while (text && *text) {
        if (atoi(text) == nodes && strchr(text, ':'))
            return atof(strchr(text, ':') + 1) / 1e3;
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return launches_ms;
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
