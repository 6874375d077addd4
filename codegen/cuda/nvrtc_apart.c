/* One kernel compiled in a process of its own; see nvrtc.h. NVRTC's passes go through tables that
 * are kept by address: with other addresses it now and then writes other PTX for the same text. So
 * each text meets the same ones, whatever was compiled before, however many threads there are and
 * wherever the system puts things: a new process takes all places from which the system would
 * choose at random, loads NVRTC below them, and compiles on a new thread, whose heap is then empty
 * and whose stack lies at the same place. */
#include "base/child.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/target.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define ORDER        "SINTER_KERNEL_ORDER" /* variable of the environment */
#define STACK        ((size_t)16 << 20)    /* bytes of the compiling thread's */
#define MAIN_STACK   ((uintptr_t)32 << 20) /* to which the first thread's may grow */
#define UNKNOWN      (-1)                  /* a result that is none of NVRTC's */
#define MOST_ADDRESS 128                   /* bytes of a line of /proc/self/maps that we read */

typedef struct Task { /* to the child; the text follows */
    char arch[32];
    size_t size;
} Task;

typedef struct Report { /* from it; log and image follow */
    int result;
    double seconds;
    size_t log_size, size;
} Report;

static bool serves; /* this program goes through nvrtc_serve */

/* The child ------------------------------------------------------------------------------------ */

/* Where the system places what is mapped lies above 13/16 of the addresses on every processor that
 * has 2^46 or more, and programs with their heaps below. 0: it is not known. */
static uintptr_t lowest_place(uintptr_t stack)
{
    uintptr_t all = (uintptr_t)1 << 46;
    while (all && all <= stack)
        all <<= 1;
    return stack >> 45 ? all / 16 * 13 : 0;
}

static void take(uintptr_t from, uintptr_t to)
{
    void *at;
    memcpy(&at, &from, sizeof at);
    mmap(at, to - from, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

/* Takes every hole up to the stack, so that the system's next choice is below lowest_place. */
static void take_places(void)
{
    char line[MOST_ADDRESS];
    uintptr_t stack = (uintptr_t)line, at = lowest_place(stack), begin, end;
    FILE *maps = at ? fopen("/proc/self/maps", "re") : NULL;
    while (maps && at < stack && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2 || end <= at)
            continue; /* the rest of a long line, or below */
        uintptr_t until = begin <= stack && stack < end ? begin - MAIN_STACK : begin;
        if (at < until)
            take(at, until);
        at = end;
    }
    if (maps)
        fclose(maps);
}

/* Without a limit the system places what is mapped in another way; it reads the limit when a
 * program begins. */
static void limit_stack(char *const *argv)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
        return;
    limit.rlim_cur = STACK;
    if (setrlimit(RLIMIT_STACK, &limit) == 0)
        execv("/proc/self/exe", argv);
}

/* NVRTC asks for the folder and for the time, and the lengths of both move what it allocates. */
static void leave_folder(const Nvrtc *n)
{
    if (nvrtc_path(n)[0] == '/' && chdir("/") == 0) /* else it would not find its other files */
        setenv("PWD", "/", 1);
    setenv("TZ", "UTC0", 1);
}

typedef struct Compile {
    const Nvrtc *nvrtc;
    NvrtcJob *job;
} Compile;

static void *compile(void *user)
{
    Compile *c = user;
    nvrtc_run(c->nvrtc, c->job);
    return NULL;
}

/* On a thread of its own: its arena is new. */
static bool compile_aside(const Nvrtc *n, NvrtcJob *job)
{
    Compile c = {n, job};
    pthread_attr_t attr;
    pthread_t thread;
    mallopt(M_ARENA_MAX, 8); /* an environment may ask for one */
    if (pthread_attr_init(&attr) != 0)
        return false;
    bool ok = pthread_attr_setstacksize(&attr, STACK) == 0 &&
              pthread_create(&thread, &attr, compile, &c) == 0 && pthread_join(thread, NULL) == 0;
    pthread_attr_destroy(&attr);
    return ok;
}

static void answer(int to, const NvrtcJob *job)
{
    const Report report = {.result = job->result,
                           .seconds = job->seconds,
                           .log_size = job->log ? strlen(job->log) : 0,
                           .size = job->image ? job->size : 0};
    if (child_send(to, &report, sizeof report) && child_send(to, job->log, report.log_size))
        child_send(to, job->image, report.size);
}

static void serve(int socket)
{
    Task task;
    Nvrtc nvrtc;
    const char *why = "no thread can be started";
    char *text = NULL;
    if (!child_wait(socket, &task, sizeof task) || !(text = calloc(1, task.size + 1)) ||
        !child_wait(socket, text, task.size))
        return;
    NvrtcJob job = {.text = text, .arch = task.arch};
    take_places();
    if (nvrtc_load(&nvrtc, &why)) {
        leave_folder(&nvrtc);
        if (compile_aside(&nvrtc, &job))
            why = NULL;
    }
    if (why) {
        job.result = UNKNOWN;
        job.log = strdup(why);
    }
    answer(socket, &job);
}

void nvrtc_serve(char *const *argv)
{
    ChildOrder order;
    serves = true;
    if (!child_order(ORDER, &order))
        return;
    limit_stack(argv);
    serve(order.socket);
    _exit(0);
}

/* The parent ----------------------------------------------------------------------------------- */

static char *receive(const Child *c, size_t size)
{
    char *ret = calloc(1, size + 1);
    if (ret && child_wait(c->socket, ret, size))
        return ret;
    free(ret);
    return NULL;
}

static bool ask(const Child *c, NvrtcJob *job)
{
    Task task = {.size = strlen(job->text)};
    Report report;
    snprintf(task.arch, sizeof task.arch, "%s", job->arch);
    if (!child_send(c->socket, &task, sizeof task) ||
        !child_send(c->socket, job->text, task.size) ||
        !child_wait(c->socket, &report, sizeof report))
        return false;
    job->result = report.result;
    job->seconds = report.seconds;
    job->size = report.size;
    if (report.log_size && !(job->log = receive(c, report.log_size)))
        return false;
    return !report.size || (job->image = receive(c, report.size)) != NULL;
}

void nvrtc_run_apart(const Nvrtc *n, NvrtcJob *job)
{
    static char *const argv[] = {"sinter", "compiles a kernel", NULL};
    const ChildStart how = {.variable = ORDER, .argv = argv, .job = -1};
    Child child;
    const char *why = NULL;
    if (!serves) {
        nvrtc_run(n, job);
        return;
    }
    Arena *arena = arena_new();
    if (!child_start(arena, &how, &child))
        why = arena_printf(arena, "no process can be started: %s", strerror(errno));
    else if (!ask(&child, job))
        why = child_end_silent(arena, &child, DEAD, 0);
    else
        child_end(&child);
    if (why) {
        free(job->image);
        free(job->log);
        job->image = NULL;
        job->log = strdup(why);
        job->result = UNKNOWN;
    }
    arena_destroy(arena);
}
