/* base/child: this program started once more as a process that may crash, hang or be killed without
 * harm to the first. Both sides talk through a socket in plain structs, because they are the same
 * program. */
#ifndef SINTER_CHILD_H
#define SINTER_CHILD_H

#include "base/base.h"
#include <sys/types.h>

typedef struct Child {
    pid_t pid; /* 0: there is none */
    int socket;
} Child;

/* What a process was started for: the socket, and a file that it inherited (-1: none). */
typedef struct ChildOrder {
    int socket, job;
} ChildOrder;

/* DEAD: it closed its end. FAILED: the words do not pass, for errno; it may wait for them. */
typedef enum Heard { HEARD, SILENT, DEAD, FAILED } Heard;

/* Starts the program with the words `argv`, which finds its order by child_order(variable) before
 * it does anything else; argv NULL: goes on here in `serve`. False: errno says why. */
typedef struct ChildStart {
    const char *variable; /* of the environment */
    char *const *argv;
    int job;
    void (*serve)(void *user, const ChildOrder *order);
    void *user;
} ChildStart;
bool child_start(Arena *arena, const ChildStart *how, Child *ret);
bool child_order(const char *variable,
                 ChildOrder *ret); /* false: none, this is the user's command */

bool child_send(int to, const void *data, size_t size); /* either way */
/* Waits; false: the other side is gone. */
bool child_wait(int from, void *ret, size_t size);
/* Waits so long for what a child sends. */
Heard child_hear(const Child *c, double limit_s, void *ret, size_t size);
Heard child_deaf(void); /* after a child_send that failed: why */

int child_end(Child *c); /* whatever it does; its status */
/* Ends a child that was not heard; why, in words. */
const char *child_end_silent(Arena *arena, Child *c, Heard heard, double limit_s);

#endif
