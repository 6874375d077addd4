/* endure FILE runs SECONDS [--alone] | FILE faults: a compiled file on the first GPU, for long and
 * after the GPU's own errors. Needs rows that do not depend on each other's number.
 *
 *   runs    every bucket, whole and one row short, again and again: the bits stay those of the
 *           first run. Sessions are made anew every SESSION_RUNS runs, the model every MODEL_RUNS.
 *           The process may not grow by more than GROWTH bytes after its first model; with --alone
 *           (nothing else begins or ends on the GPU between the two looks) nor may its part of the
 *           GPU's memory.
 *   faults  kernels of our own that stop the GPU are put beside a session, each in a process of its
 *           own: the session's next run says so, new sessions of that process say it again, all of
 *           it can be closed, and the next process gives the bits that one before gave.
 *
 * TAP; exits with 77 without a GPU. */
#include "base/base.h"
#include "runtime/cuda.h"
#include "tests/gpu/sides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SKIP = 77,
    MOST_SIZES = 64,
    SESSION_RUNS = 500,
    MODEL_RUNS = 5000,
    GROWTH = 2 << 20,
    SAY_S = 60,
};

typedef struct Sized { /* inputs of one size, and what the first run gave */
    Side in, want;
    bool has_run;
} Sized;

static int num_tests;
static bool failed;

static void report(bool ok, const char *what, const char *why)
{
    printf("%sok %d - %s%s%s\n", ok ? "" : "not ", ++num_tests, what, *why ? ": " : "", why);
    fflush(stdout);
    failed |= !ok;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Models and their sizes ----------------------------------------------------------------------- */

/* Each bucket, and one row less of its first symbol where that is still the same bucket's. */
static int sizes_make(const SinterModel *model, Sized *ret)
{
    int num = 0, symbols = sinter_num_symbols(model);
    for (int b = 0; b < sinter_num_buckets(model) && num + 2 <= MOST_SIZES; b++)
        for (int less = 0; less < 2; less++) {
            int64_t size[16] = {0};
            for (int s = 0; s < symbols && s < 16; s++)
                size[s] = sinter_bucket_size(model, b, s);
            size[0] -= less;
            Sized *z = &ret[num];
            if (less && (!symbols || size[0] < 1))
                continue;
            *z = (Sized){.has_run = false};
            if (!side_make(model, false, size, &z->in) || !side_make(model, true, size, &z->want))
                return -1;
            side_fill(&z->in, (uint64_t)num + 1, ODD_NONE);
            for (int i = 0; i < z->in.num; i++) /* by position: names end with their model */
                z->in.tensor[i].name = NULL;
            for (int i = 0; i < z->want.num; i++)
                z->want.tensor[i].name = NULL;
            num++;
        }
    return num;
}

static void sizes_free(Sized *z, int num)
{
    for (int i = 0; i < num; i++) {
        side_free(&z[i].in);
        side_free(&z[i].want);
    }
}

static bool open_gpu(const char *path, SinterModel **model, SinterSession **session,
                     SinterError *err)
{
    const SinterSessionOptions on_gpu = {.device = "cuda:0"};
    *session = NULL;
    *model = NULL;
    if (!sinter_open(path, model, err) && !sinter_session_create(*model, &on_gpu, session, err))
        return true;
    sinter_close(*model);
    *model = NULL;
    return false;
}

/* One run, whose bits must be the first run's; false after filling `why`. */
static bool run_same(SinterSession *session, Sized *z, Side *got, char *why, size_t size)
{
    SinterError err;
    side_poison(got);
    if (sinter_run(session, z->in.tensor, z->in.num, got->tensor, got->num, &err)) {
        snprintf(why, size, "%s", err.text);
        return false;
    }
    for (int i = 0; i < got->num; i++)
        if (z->has_run && memcmp(got->data[i], z->want.data[i], (size_t)got->bytes[i]) != 0) {
            snprintf(why, size, "output %d has other bits than after the first run", i);
            return false;
        } else if (!z->has_run && got != &z->want) {
            memcpy(z->want.data[i], got->data[i], (size_t)got->bytes[i]);
        }
    z->has_run = true;
    return true;
}

/* Runs ----------------------------------------------------------------------------------------- */

typedef struct Memory {
    int64_t process, gpu; /* bytes taken */
} Memory;

static Memory memory_taken(const Driver *d)
{
    Memory ret = {0, 0};
    long pages = 0, ignored;
    size_t free_bytes = 0, total = 0;
    DrvContext context, popped;
    DrvDevice device;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%ld %ld", &ignored, &pages) != 2)
            pages = 0;
        fclose(f);
    }
    ret.process = pages * sysconf(_SC_PAGESIZE);
    if (!d->cuDeviceGet(&device, 0) && !d->cuDevicePrimaryCtxRetain(&context, device)) {
        if (!d->cuCtxPushCurrent(context)) {
            d->cuMemGetInfo(&free_bytes, &total);
            d->cuCtxPopCurrent(&popped);
        }
        d->cuDevicePrimaryCtxRelease(device);
    }
    ret.gpu = (int64_t)(total - free_bytes);
    return ret;
}

/* MODEL_RUNS runs at most, until `end`; false after filling `why`. */
static bool run_model(const char *path, Sized *z, double end, uint64_t *runs, char *why,
                      size_t size)
{
    SinterModel *model;
    SinterSession *session;
    SinterError err;
    const SinterSessionOptions on_gpu = {.device = "cuda:0"};
    if (!open_gpu(path, &model, &session, &err)) {
        snprintf(why, size, "%s", err.text);
        return false;
    }
    Sized none[MOST_SIZES]; /* whose outputs are written to */
    int num = sizes_make(model, none);
    bool ok = num > 0;
    for (int i = 0; i < MODEL_RUNS && ok && (i < 2 * num || seconds() < end); i++, ++*runs) {
        if (i % SESSION_RUNS == SESSION_RUNS - 1) {
            sinter_session_destroy(session);
            session = NULL;
            ok = !sinter_session_create(model, &on_gpu, &session, &err);
            if (!ok)
                snprintf(why, size, "%s", err.text);
        }
        ok = ok && run_same(session, &z[i % num], &none[i % num].want, why, size);
    }
    sizes_free(none, num);
    sinter_session_destroy(session);
    sinter_close(model);
    return ok;
}

static void check_growth(const char *what, int64_t before, int64_t after, bool judged)
{
    char text[160];
    snprintf(text, sizeof text, "%" PRId64 " KiB after the first model, %" PRId64 " KiB at the end",
             before / 1024, after / 1024);
    if (judged)
        report(after - before <= GROWTH, what, text);
    else
        printf("# %s: %s\n", what, text);
}

/* Each SAY_S seconds: what is known if nothing comes after it. Returns when it last said so. */
static double say_how_far(double begin, double said, uint64_t runs, Memory before, const Driver *d)
{
    double now = seconds();
    if (now < said + SAY_S)
        return said;
    Memory after = memory_taken(d);
    printf("# after %.0f s: %" PRIu64 " runs with the bits of the first; the process has grown by "
           "%" PRId64 " KiB, what is taken of the GPU's memory by %" PRId64 " KiB\n",
           now - begin, runs, (after.process - before.process) / 1024,
           (after.gpu - before.gpu) / 1024);
    fflush(stdout);
    return now;
}

static void check_runs(const char *path, const Driver *d, double limit, bool alone)
{
    SinterModel *model;
    SinterSession *session;
    SinterError err;
    char why[600] = "";
    Sized z[MOST_SIZES];
    uint64_t runs = 0;
    if (!open_gpu(path, &model, &session, &err)) {
        report(false, "opens", err.text);
        return;
    }
    int num = sizes_make(model, z);
    sinter_session_destroy(session);
    sinter_close(model);
    double begin = seconds();
    /* what the driver and the C library take once is taken by the first two */
    bool ok = num > 0 && run_model(path, z, begin, &runs, why, sizeof why) &&
              run_model(path, z, begin, &runs, why, sizeof why);
    Memory before = memory_taken(d);
    double said = begin;
    int models = 2;
    for (; ok && seconds() < begin + limit; models++) {
        ok = run_model(path, z, begin + limit, &runs, why, sizeof why);
        said = ok ? say_how_far(begin, said, runs, before, d) : said;
    }
    Memory after = memory_taken(d);
    sizes_free(z, num);
    if (ok)
        snprintf(why, sizeof why, "%" PRIu64 " runs of %d sizes, %d times opened, in %.0f s", runs,
                 num, models, seconds() - begin);
    report(ok, "every run gives the bits of the first", why);
    check_growth("memory of the process", before.process, after.process, true);
    check_growth("memory of the GPU", before.gpu, after.gpu, alone);
}

/* Faults --------------------------------------------------------------------------------------- */

static const struct Fault {
    const char *name, *text;
} faults[] = {
    {"a kernel that gives up", ".version 6.3\n.target sm_70\n.address_size 64\n"
                               ".visible .entry fault()\n{\n    trap;\n}\n"},
    {"a kernel that writes where nothing is",
     ".version 6.3\n.target sm_70\n.address_size 64\n"
     ".visible .entry fault()\n{\n    .reg .u64 %a;\n    .reg .u32 %v;\n"
     "    mov.u64 %a, 64;\n    mov.u32 %v, 1;\n    st.global.u32 [%a], %v;\n    ret;\n}\n"},
};

/* Launches the kernel in the context that sessions share and waits; false: it did no harm. */
static bool harm(const Driver *d, const struct Fault *fault)
{
    DrvDevice device;
    DrvContext context, popped;
    DrvModule module;
    DrvFunction function;
    bool harmed = false;
    if (d->cuDeviceGet(&device, 0) || d->cuDevicePrimaryCtxRetain(&context, device) ||
        d->cuCtxPushCurrent(context))
        return false;
    if (!d->cuModuleLoadDataEx(&module, fault->text, 0, NULL, NULL) &&
        !d->cuModuleGetFunction(&function, module, "fault")) {
        const CudaLaunch l = {.function = function, .grid = {1, 1}, .block = 1};
        harmed = cuda_launch(d, &l, NULL, false) || d->cuStreamSynchronize(NULL);
    }
    d->cuCtxPopCurrent(&popped);
    d->cuDevicePrimaryCtxRelease(device);
    return harmed;
}

/* What the process of a fault finds, as its exit code; what it says goes to standard output. */
static int suffer(const char *path, const struct Fault *fault)
{
    enum { GOOD, NO_RUN, NO_HARM, NOT_SAID, NOT_SAID_AGAIN };
    SinterModel *model;
    SinterSession *session, *second = NULL;
    SinterError err, again;
    SinterStatus status;
    const SinterSessionOptions on_gpu = {.device = "cuda:0"};
    Sized z[MOST_SIZES];
    char why[600];
    const Driver *d = driver_get(&status, &err);
    if (!d || !open_gpu(path, &model, &session, &err))
        return NO_RUN;
    int num = sizes_make(model, z), code = GOOD;
    if (num < 1 || !run_same(session, &z[0], &z[0].want, why, sizeof why))
        return NO_RUN;
    if (!harm(d, fault))
        return NO_HARM;
    status =
        sinter_run(session, z[0].in.tensor, z[0].in.num, z[0].want.tensor, z[0].want.num, &err);
    printf("# %s\n", err.text);
    if (status != SINTER_ERROR_DEVICE)
        code = NOT_SAID;
    status = sinter_session_create(model, &on_gpu, &second, &again);
    if (!status)
        status = sinter_run(second, z[0].in.tensor, z[0].in.num, z[0].want.tensor, z[0].want.num,
                            &again);
    if (code == GOOD && (status != SINTER_ERROR_DEVICE || !strstr(again.text, "start the program")))
        code = NOT_SAID_AGAIN;
    printf("# %s\n", again.text);
    sinter_session_destroy(second);
    sinter_session_destroy(session);
    sinter_close(model);
    sizes_free(z, num);
    return code;
}

/* FNV-1a over the results of all sizes; 0: they cannot be had. */
static uint64_t digest(const char *path)
{
    SinterModel *model;
    SinterSession *session;
    SinterError err;
    Sized z[MOST_SIZES];
    char why[600];
    uint64_t hash = 0xcbf29ce484222325;
    if (!open_gpu(path, &model, &session, &err)) {
        printf("# %s\n", err.text);
        return 0;
    }
    int num = sizes_make(model, z);
    for (int i = 0; i < num && hash; i++) {
        if (!run_same(session, &z[i], &z[i].want, why, sizeof why)) {
            printf("# %s\n", why);
            hash = 0;
        }
        for (int k = 0; k < z[i].want.num && hash; k++)
            for (uint64_t at = 0; at < z[i].want.bytes[k]; at++)
                hash = (hash ^ ((const uint8_t *)z[i].want.data[k])[at]) * 0x100000001b3;
    }
    sinter_session_destroy(session);
    sinter_close(model);
    sizes_free(z, num);
    return num > 0 ? hash : 0;
}

/* In a process of its own; fault NULL: its digest. The exit code; -1: it ended by a signal. */
static int in_process(const char *path, const struct Fault *fault, uint64_t *ret)
{
    int channel[2], status;
    fflush(stdout);
    if (pipe(channel))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        uint64_t value = fault ? 0 : digest(path);
        int code = fault ? suffer(path, fault) : value ? 0 : 1;
        code = write(channel[1], &value, sizeof value) == sizeof value ? code : -1;
        exit(code);
    }
    close(channel[1]);
    if (read(channel[0], ret, sizeof *ret) != sizeof *ret)
        *ret = 0;
    close(channel[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

static void check_faults(const char *path)
{
    static const char *const found[] = {"the process's errors are clear and all is closed",
                                        "it does not run", "the kernel does no harm",
                                        "the next run does not say what happened",
                                        "a new session does not say it again"};
    char why[200];
    uint64_t before, after, nothing;
    int code = in_process(path, NULL, &before);
    report(code == 0 && before, "runs before", "");
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        code = in_process(path, &faults[i], &nothing);
        if (code < 0 || code >= (int)COUNT_OF(found))
            snprintf(why, sizeof why, "the process was ended by a signal");
        else
            snprintf(why, sizeof why, "%s", found[code]);
        report(code == 0, faults[i].name, why);
        code = in_process(path, NULL, &after);
        report(code == 0 && after == before, "the next process gives the same bits", "");
    }
}

/* The number of GPUs is asked in a process of its own: those that are forked start without one. */
static bool has_gpu(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        SinterStatus why;
        SinterError err;
        int num = 0;
        const Driver *d = driver_get(&why, &err);
        exit(d && !d->cuDeviceGetCount(&num) && num > 0 ? 0 : SKIP);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    bool runs = argc >= 4 && strcmp(argv[2], "runs") == 0;
    if (!runs && !(argc == 3 && strcmp(argv[2], "faults") == 0)) {
        fprintf(stderr, "usage: endure FILE runs SECONDS [--alone] | endure FILE faults\n");
        return 2;
    }
    if (!has_gpu()) {
        printf("1..0 # SKIP no GPU\n");
        return SKIP;
    }
    if (runs) {
        SinterStatus status;
        SinterError err;
        const Driver *d = driver_get(&status, &err);
        if (d)
            check_runs(argv[1], d, strtod(argv[3], NULL),
                       argc > 4 && strcmp(argv[4], "--alone") == 0);
        else
            report(false, "the driver", err.text);
    } else {
        check_faults(argv[1]);
    }
    printf("1..%d\n", num_tests);
    return failed ? 1 : 0;
}
