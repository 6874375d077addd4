/* NVRTC's library, and one text compiled by it; see nvrtc.h. Headers are the device files, embedded
 * in this program; nothing is read from disk. Contraction is off and fast-math stays off: the
 * numbers contract. */
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/target.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Never closed: NVRTC keeps memory that only it can free, and does not. */
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

bool nvrtc_load(Nvrtc *n, const char **ret_why)
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

const char *nvrtc_path(const Nvrtc *n)
{
    void *symbol;
    Dl_info info;
    memcpy(&symbol, &n->version, sizeof symbol);
    return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "";
}

const char *nvrtc_find(Arena *arena, const char **ret_path, const char **ret_why)
{
    Nvrtc n;
    int major = 0, minor = 0;
    if (!nvrtc_load(&n, ret_why))
        return NULL;
    n.version(&major, &minor);
    *ret_path = arena_strdup(arena, nvrtc_path(&n));
    return arena_printf(arena, "%d.%d", major, minor);
}

static void fetch(const Nvrtc *n, void *program, NvrtcJob *job)
{
    bool is_cubin = strncmp(job->arch, "sm_", 3) == 0;
    if ((is_cubin ? n->cubin_size : n->ptx_size)(program, &job->size) != 0)
        return;
    job->image = malloc(job->size ? job->size : 1);
    if (!job->image || (is_cubin ? n->cubin : n->ptx)(program, job->image) == 0)
        return;
    free(job->image);
    job->image = NULL;
}

/* The first ones are for PTX too. */
const char *const nvrtc_options[NUM_NVRTC_OPTIONS] = {"--std=c++17", "--fmad=false",
                                                      "-default-device", "--ptxas-options=-v"};

static double thread_s(void) /* of a processor */
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : 0;
}

void nvrtc_run(const Nvrtc *n, NvrtcJob *job)
{
    double begin = thread_s();
    const char *text[NUM_CUDA_DEVICE_FILES], *name[NUM_CUDA_DEVICE_FILES];
    const char *options[1 + NUM_NVRTC_OPTIONS];
    char arch[64];
    void *program = NULL;
    size_t log_size = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", job->arch);
    options[0] = arch;
    memcpy(options + 1, nvrtc_options, sizeof nvrtc_options);
    bool is_cubin = strncmp(job->arch, "sm_", 3) == 0;
    for (int i = 0; i < NUM_CUDA_DEVICE_FILES; i++) {
        text[i] = (const char *)cuda_device_files[i].text;
        name[i] = cuda_device_files[i].path;
    }
    job->result = n->create(&program, job->text, "kernel.cu", NUM_CUDA_DEVICE_FILES, text, name);
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
    job->seconds = thread_s() - begin;
}
