/* Threads that share loops. One team serves the whole process: whoever calls team_run works itself,
 * and idle threads of the team help. Threads start when first needed, wait by spinning for some
 * microseconds, then sleep. Nobody waits for a thread that has not begun: a helper that comes late
 * finds the loop finished, so a busy machine costs help, not time.
 *
 * Callers at the same time divide the processors: none gets more helpers than its part. A thread
 * that cannot be started is done without. After fork the child starts threads of its own. */
#ifndef SINTER_TEAM_H
#define SINTER_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#define TEAM_MAX 1023 /* threads of one loop */

/* Items of so many elements each that are worth waking a thread for. */
#define TEAM_STEP(elements) (TEAM_ELEMENTS / ((elements) + 1) + 1)
#define TEAM_ELEMENTS       16384

/* Items [begin, end) of a loop; no two calls at the same time have the same `thread`, which is
 * below the number of threads that team_run was given. */
typedef void TeamFn(void *user, int64_t begin, int64_t end, int thread);

/* Calls fn for all of [0, num), at most `step` items a call, on up to `threads` threads (0:
 * team_threads()). A loop inside a loop runs on the thread that meets it. */
void team_run(int threads, int64_t num, int64_t step, TeamFn *fn, void *user);

/* A library keeps the team while it has work for it; the last one to let go ends the threads. */
void team_keep(void);
void team_release(void);
/* Between these a thread counts as a caller that needs a processor, also between two loops. */
void team_enter(void);
void team_leave(void);

/* How many threads work where nothing else is said: what team_set_threads says, else
 * SINTER_THREADS, else the first number of OMP_NUM_THREADS, else processors_allowed. */
int team_threads(void);
/* What SINTER_THREADS holds where that is no number of threads, which team_threads passes over;
 * else NULL. For programs, which say so. */
const char *team_ignored(void);
void team_set_threads(int threads); /* 0: as if never called */

/* Processors that this thread may use, by affinity and by the quota of its control groups, rounded
 * down; at least 1. */
int processors_allowed(void);
/* The same with files below `root` for those below "/", and an affinity of `most`. */
int processors_below(const char *root, int most);

#endif
