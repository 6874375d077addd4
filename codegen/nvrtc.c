/* codegen/nvrtc: CUDA C++ to cubins and PTX through NVRTC, which is loaded at run time and needs no
 * GPU. Headers are the device files, embedded in this program; nothing is read from disk. Jobs run
 * on a few threads. Contraction is off and fast-math stays off: the numbers contract. */
#include "codegen/cuda_target.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 16

/* Embedded texts (codegen/meson.build makes them). */
#define DEVICE_FILE(symbol, path)        \
    extern const unsigned char symbol[]; \
    extern const size_t symbol##_size;
#include "codegen/device_files.def"
#undef DEVICE_FILE

typedef struct DeviceFile {
    const char *path;
    const unsigned char *text;
    const size_t *size;
} DeviceFile;
static const DeviceFile device_files[] = {
#define DEVICE_FILE(symbol, path) {path, symbol, &symbol##_size},
#include "codegen/device_files.def"
#undef DEVICE_FILE
};

/* The functions of NVRTC that we call. Program is opaque; results other than 0 are errors. */
typedef struct Nvrtc {
    void *library;
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *text, const char *name, int num_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(void **program);
    int (*compile)(void *program, int num_options, const char *const *options);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *log);
    int (*cubin_size)(void *program, size_t *size);
    int (*cubin)(void *program, char *cubin);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *ptx);
} Nvrtc;

static bool find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void *open_library(void)
{
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib/libnvrtc.so.13",
                                        "/usr/local/cuda-13.0/lib/libnvrtc.so.13",
                                        "/usr/local/cuda-13.0/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const char *given = secure_getenv("SINTER_NVRTC");
    if (given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

static bool load(Nvrtc *n, const char **ret_why)
{
    *n = (Nvrtc){.library = open_library()};
    if (!n->library) {
        *ret_why = "libnvrtc.so.13 (or .12) is not found; install the CUDA toolkit's NVRTC (pip "
                   "package nvidia-cuda-nvrtc, or Debian's libnvrtc) or name it in SINTER_NVRTC";
        return false;
    }
    bool ok = find(n->library, "nvrtcVersion", &n->version) &&
              find(n->library, "nvrtcCreateProgram", &n->create) &&
              find(n->library, "nvrtcDestroyProgram", &n->destroy) &&
              find(n->library, "nvrtcCompileProgram", &n->compile) &&
              find(n->library, "nvrtcGetProgramLogSize", &n->log_size) &&
              find(n->library, "nvrtcGetProgramLog", &n->log) &&
              find(n->library, "nvrtcGetCUBINSize", &n->cubin_size) &&
              find(n->library, "nvrtcGetCUBIN", &n->cubin) &&
              find(n->library, "nvrtcGetPTXSize", &n->ptx_size) &&
              find(n->library, "nvrtcGetPTX", &n->ptx);
    if (!ok)
        *ret_why = "libnvrtc lacks a function that this program calls; NVRTC 12 or 13 is needed";
    return ok;
}

const char *nvrtc_version(Arena *arena, const char **ret_why)
{
    Nvrtc n;
    int major = 0, minor = 0;
    if (!load(&n, ret_why))
        return NULL;
    n.version(&major, &minor);
    dlclose(n.library);
    return arena_printf(arena, "%d.%d", major, minor);
}

/* Jobs ---------------------------------------------------------------------------------------- */

typedef struct Job {
    const CudaSource *source;
    const char *arch;
    int kernel;
    char *image, *log; /* malloc'ed */
    size_t size;
    int result;
} Job;

typedef struct Queue {
    const Nvrtc *nvrtc;
    Job *job;
    int num, next;
    pthread_mutex_t lock;
} Queue;

static void fetch(const Nvrtc *n, void *program, Job *job)
{
    bool is_cubin = strncmp(job->arch, "sm_", 3) == 0;
    if ((is_cubin ? n->cubin_size : n->ptx_size)(program, &job->size) != 0)
        return;
    job->image = malloc(job->size ? job->size : 1);
    if (job->image)
        (is_cubin ? n->cubin : n->ptx)(program, job->image);
}

static void run(const Nvrtc *n, Job *job)
{
    const char *text[COUNT_OF(device_files)], *name[COUNT_OF(device_files)];
    char arch[64];
    void *program = NULL;
    size_t log_size = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", job->arch);
    const char *options[] = {arch, "--std=c++17", "--fmad=false", "-default-device",
                             "--ptxas-options=-v"};
    bool is_cubin = strncmp(job->arch, "sm_", 3) == 0;
    for (size_t i = 0; i < COUNT_OF(device_files); i++) {
        text[i] = (const char *)device_files[i].text;
        name[i] = device_files[i].path;
    }
    job->result = n->create(&program, job->source->text, "kernel.cu", (int)COUNT_OF(device_files),
                            text, name);
    if (job->result)
        return;
    job->result = n->compile(program, (int)COUNT_OF(options) - !is_cubin, options);
    if (n->log_size(program, &log_size) == 0 && log_size > 1) {
        job->log = calloc(1, log_size + 1);
        if (job->log)
            n->log(program, job->log);
    }
    if (job->result == 0)
        fetch(n, program, job);
    n->destroy(&program);
}

static void *work(void *user)
{
    Queue *q = user;
    for (;;) {
        pthread_mutex_lock(&q->lock);
        int i = q->next < q->num ? q->next++ : -1;
        pthread_mutex_unlock(&q->lock);
        if (i < 0)
            return NULL;
        run(q->nvrtc, &q->job[i]);
    }
}

static void run_all(Queue *q, int threads)
{
    pthread_t thread[MAX_THREADS];
    int started = 0;
    for (; started < threads - 1 && started < MAX_THREADS; started++)
        if (pthread_create(&thread[started], NULL, work, q) != 0)
            break;
    work(q);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

/* Bytes that ptxas says it spilled. */
static long spilled(const char *log)
{
    long most = 0;
    for (const char *at = log; at && (at = strstr(at, " bytes spill stores")) != NULL; at++) {
        const char *digits = at;
        while (digits > log && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        long bytes = strtol(digits, NULL, 10);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool collect(Diag *diag, Arena *arena, CudaTarget *t, const CudaCompileOptions *options,
                    Job *job, int num)
{
    DeviceImage *image = ARENA_NEW_ARRAY(arena, DeviceImage, (size_t)num);
    bool ok = true;
    for (int i = 0; i < num; i++) {
        Job *j = &job[i];
        long bytes = j->log ? spilled(j->log) : 0;
        if (j->result != 0 || !j->image) {
            diag_error(diag, (Span){0}, E_KERNEL, "NVRTC cannot compile kernel %s (%s) for %s",
                       j->source->name, cuda_family_name[j->source->family], j->arch);
            diag_note(diag, (Span){0}, "%.2000s", j->log ? j->log : "it says nothing");
            ok = false;
            continue;
        }
        if (bytes && options->fail_on_spill) {
            diag_error(diag, (Span){0}, E_KERNEL, "kernel %s (%s) for %s spills %ld bytes",
                       j->source->name, cuda_family_name[j->source->family], j->arch, bytes);
            ok = false;
        }
        uint8_t *copy = arena_alloc(arena, j->size);
        memcpy(copy, j->image, j->size);
        snprintf(image[i].arch, sizeof image[i].arch, "%s", j->arch);
        image[i].kernel = j->kernel;
        image[i].data = copy;
        image[i].size = j->size;
    }
    t->code.image = image;
    t->code.num_images = num;
    return ok;
}

bool cuda_compile(Diag *diag, Arena *arena, CudaTarget *target, const CudaCompileOptions *options)
{
    Nvrtc nvrtc;
    const char *why = NULL;
    if (!load(&nvrtc, &why)) {
        diag_error(diag, (Span){0}, E_NO_TARGET, "the target 'cuda' needs NVRTC: %s", why);
        return false;
    }
    int num = target->num_sources * options->num_archs;
    Job *job = ARENA_NEW_ARRAY(arena, Job, (size_t)num);
    for (int i = 0; i < num; i++)
        job[i] = (Job){.source = &target->source[i / options->num_archs],
                       .arch = options->arch[i % options->num_archs],
                       .kernel = i / options->num_archs};
    Queue q = {.nvrtc = &nvrtc, .job = job, .num = num, .lock = PTHREAD_MUTEX_INITIALIZER};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    run_all(&q, options->threads ? options->threads : (int)processors);
    bool ok = collect(diag, arena, target, options, job, num);
    for (int i = 0; i < num; i++) {
        free(job[i].image);
        free(job[i].log);
    }
    return ok;
}
