/* codegen/cuda/nvrtc: CUDA C++ to cubins and PTX through NVRTC, which is loaded at run time and
 * needs no GPU. Headers are the device files, embedded in this program; nothing is read from disk.
 * Jobs run on a few threads. Contraction is off and fast-math stays off: the numbers contract. */
#include "codegen/cuda/family.h"
#include "io/cache.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 16
#define STATIC_SMEM 2048 /* bytes of shared memory for a kernel's scratch and counters */
#define LOG_SHOWN   2048 /* bytes of the compiler's log */

const CudaArch cuda_archs[NUM_CUDA_ARCHS] = {
    {"sm_75", "turing", "T4, RTX 20"},     {"sm_80", "portable", "A100, A30"},
    {"sm_86", "portable", "RTX 30, A10"},  {"sm_89", "portable", "RTX 40, L4, L40"},
    {"sm_90", "portable", "H100, H200"},   {"sm_90a", "sm_90a", "H100, H200"},
    {"sm_100", "portable", "B200, GB200"}, {"sm_103", "portable", "B300, GB300"},
    {"sm_120", "portable", "RTX 50"},
};

const CodeClass *cuda_class_of(const char *word)
{
    const CodeClass *ret = code_class_find(word);
    for (int i = 0; i < NUM_CUDA_ARCHS && !ret; i++)
        if (!strcmp(word, cuda_archs[i].name))
            ret = code_class_find(cuda_archs[i].gpu);
    for (int i = 0; i < NUM_CODE_CLASSES && !ret; i++)
        if (!strcmp(word, code_classes[i].arch))
            ret = &code_classes[i];
    return ret;
}

int64_t cuda_smem(const CodeClass *gpu)
{
    return 1024 * (int64_t)gpu->smem - STATIC_SMEM;
}

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

static const char *library_path(const Nvrtc *n)
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
    if (!load(&n, ret_why))
        return NULL;
    n.version(&major, &minor);
    *ret_path = arena_strdup(arena, library_path(&n));
    return arena_printf(arena, "%d.%d", major, minor);
}

/* Jobs ---------------------------------------------------------------------------------------- */

typedef struct Job {
    const CudaSource *source;
    const char *arch;
    int kernel;
    char *image, *log; /* malloc'ed */
    size_t size;
    CudaImageAbout about;
    int result;
    CacheKey key;
} Job;

typedef struct Queue {
    const Nvrtc *nvrtc;
    Cache *cache; /* NULL: none */
    Job *job;
    int *order; /* in which jobs are begun */
    int num, next, num_kept /* images from the cache */;
    const CudaCompileOptions *options;
    pthread_mutex_t lock;
} Queue;

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

/* What a log says of a kernel. A remark names the reason, "(C7514) .. wgmma.mma_async instructions
 * are serialized due to ..": each product is then waited for. */
static CudaImageSaid said_of(const char *log)
{
    return (CudaImageSaid){.spilled = spilled(log),
                           .serialised = strstr(log, "instructions are serialized") != NULL};
}

static void fetch(const Nvrtc *n, void *program, Job *job)
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

/* Beside the architecture. The first ones are for PTX too. */
static const char *const common_options[] = {"--std=c++17", "--fmad=false", "-default-device",
                                             "--ptxas-options=-v"};

static void run(const Nvrtc *n, Job *job)
{
    const char *text[NUM_CUDA_DEVICE_FILES], *name[NUM_CUDA_DEVICE_FILES];
    const char *options[1 + COUNT_OF(common_options)];
    char arch[64];
    void *program = NULL;
    size_t log_size = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", job->arch);
    options[0] = arch;
    memcpy(options + 1, common_options, sizeof common_options);
    bool is_cubin = strncmp(job->arch, "sm_", 3) == 0;
    for (int i = 0; i < NUM_CUDA_DEVICE_FILES; i++) {
        text[i] = (const char *)cuda_device_files[i].text;
        name[i] = cuda_device_files[i].path;
    }
    job->result =
        n->create(&program, job->source->text, "kernel.cu", NUM_CUDA_DEVICE_FILES, text, name);
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
    if (job->log)
        job->about.said = said_of(job->log);
}

/* The cache ------------------------------------------------------------------------------------ */

/* What is kept of a job: what ptxas said of it, then its image. */
static void keep(Cache *cache, const Job *job)
{
    char about[64];
    if (job->result != 0 || !job->image)
        return;
    size_t size = sizeof job->about.said + job->size;
    char *data = malloc(size);
    if (!data)
        return;
    memcpy(data, &job->about.said, sizeof job->about.said);
    memcpy(data + sizeof job->about.said, job->image, job->size);
    snprintf(about, sizeof about, "%s %s %s", job->arch, cuda_family_name[job->source->family],
             job->source->name);
    cache_put(cache, job->key, about, data, size);
    free(data);
}

static void get_kept(Cache *cache, Job *job)
{
    size_t size = 0;
    char *data = cache_get(cache, job->key, &size);
    if (data && size >= sizeof job->about.said) {
        memcpy(&job->about.said, data, sizeof job->about.said);
        job->size = size - sizeof job->about.said;
        memmove(data, data + sizeof job->about.said, job->size);
        job->image = data;
        job->about.cached = true;
        return;
    }
    free(data);
}

static CachePart text_part(const char *text)
{
    return (CachePart){text, strlen(text)};
}

/* Of the device files that a source includes: an edit of others leaves its images valid. */
static CacheKey key_of_headers(const char *source)
{
    CachePart part[2 * NUM_CUDA_DEVICE_FILES];
    bool used[NUM_CUDA_DEVICE_FILES] = {false};
    int num = 0;
    cuda_included(source, strlen(source), used);
    for (int i = 0; i < NUM_CUDA_DEVICE_FILES; i++) {
        if (!used[i])
            continue;
        part[num++] = text_part(cuda_device_files[i].path);
        part[num++] = (CachePart){cuda_device_files[i].text, *cuda_device_files[i].size};
    }
    return cache_key(num, part);
}

/* Everything that an image depends on. */
static CacheKey key_of_job(const Job *job, const char *version)
{
    CacheKey headers = key_of_headers(job->source->text);
    CachePart part[6 + COUNT_OF(common_options)] = {
        text_part("image " SINTER_VERSION), text_part(version),
        {&headers, sizeof headers},         text_part(job->arch),
        text_part(job->source->name),       text_part(job->source->text)};
    for (size_t i = 0; i < COUNT_OF(common_options); i++)
        part[6 + i] = text_part(common_options[i]);
    return cache_key((int)COUNT_OF(part), part);
}

/* Which library was loaded the last time, so that its version is known without loading it: valid
 * while the file is the same. */
typedef struct Compiler {
    uint64_t device, inode, size, seconds, nanoseconds;
    char version[16], path[1024];
} Compiler;

static CacheKey key_of_compiler(void)
{
    const char *given = secure_getenv("SINTER_NVRTC"), *path = secure_getenv("LD_LIBRARY_PATH");
    const CachePart part[] = {text_part("compiler"), text_part(given ? given : ""),
                              text_part(path ? path : "")};
    return cache_key(3, part);
}

static bool look_at_compiler(Compiler *c)
{
    struct stat st;
    if (stat(c->path, &st) != 0)
        return false;
    c->device = (uint64_t)st.st_dev;
    c->inode = (uint64_t)st.st_ino;
    c->size = (uint64_t)st.st_size;
    c->seconds = (uint64_t)st.st_mtim.tv_sec;
    c->nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
    return true;
}

/* False: not known without loading. */
static bool known_compiler(Cache *cache, Compiler *ret)
{
    size_t size = 0;
    Compiler *kept = cache_get(cache, key_of_compiler(), &size), now;
    bool ok = kept && size == sizeof *kept;
    if (ok) {
        now = *kept;
        ok = look_at_compiler(&now) && memcmp(&now, kept, sizeof now) == 0;
        *ret = *kept;
    }
    free(kept);
    return ok;
}

static void keep_compiler(Cache *cache, const Nvrtc *n, const char *version)
{
    Compiler c;
    memset(&c, 0, sizeof c);
    int len = snprintf(c.path, sizeof c.path, "%s", library_path(n));
    snprintf(c.version, sizeof c.version, "%s", version);
    if (len < (int)sizeof c.path && c.path[0] == '/' && look_at_compiler(&c))
        cache_put(cache, key_of_compiler(), "compiler", &c, sizeof c);
}

/* Images that are kept for this version of the compiler; true when none is missing. */
static bool get_all(Queue *q, const char *version)
{
    for (int i = 0; i < q->num; i++) {
        q->job[i].key = key_of_job(&q->job[i], version);
        get_kept(q->cache, &q->job[i]);
        q->num_kept += q->job[i].image != NULL;
    }
    return q->num_kept == q->num;
}

/* Threads -------------------------------------------------------------------------------------- */

/* Why an image is missing or refused; NULL: it is there. */
static const char *image_problem(const Job *j, bool fail_on_spill, char *text, size_t size)
{
    if (j->result != 0 || !j->image)
        snprintf(text, size, "NVRTC cannot compile it: %s", j->log ? j->log : "it says nothing");
    else if (j->about.said.spilled && fail_on_spill)
        snprintf(text, size, "it spills %ld bytes", j->about.said.spilled);
    else if (j->about.said.serialised && fail_on_spill)
        snprintf(text, size, "ptxas serialises its products");
    else
        return NULL;
    return text;
}

/* Tells the caller about image `i`; those who ask for it compile in order, so what is wanted first
 * comes first. */
static void announce(Queue *q, int i)
{
    char text[LOG_SHOWN];
    const Job *j = &q->job[i];
    if (!q->options->ready)
        return;
    const char *problem = image_problem(j, q->options->fail_on_spill, text, sizeof text);
    pthread_mutex_lock(&q->lock);
    if (!q->options->ready(q->options->user, i, problem ? NULL : j->image, j->size, problem))
        q->next = q->num;
    pthread_mutex_unlock(&q->lock);
}

static bool announce_all(Queue *q)
{
    for (int i = 0; i < q->num; i++)
        announce(q, i);
    return true;
}

static double thread_s(void) /* of a processor */
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : 0;
}

static void *work(void *user)
{
    Queue *q = user;
    for (;;) {
        pthread_mutex_lock(&q->lock);
        int i = q->next < q->num ? q->order[q->next++] : -1;
        pthread_mutex_unlock(&q->lock);
        if (i < 0)
            return NULL;
        if (!q->job[i].image) { /* the cache has none */
            double begin = thread_s();
            run(q->nvrtc, &q->job[i]);
            q->job[i].about.seconds = thread_s() - begin;
            if (q->cache)
                keep(q->cache, &q->job[i]);
        }
        announce(q, i);
    }
}

/* What takes long is begun first, so that no thread is left with it at the end; what a caller waits
 * for comes in the caller's order. */
static void put_in_order(Queue *q, Arena *arena)
{
    int num = 0;
    q->order = ARENA_NEW_ARRAY(arena, int, (size_t)q->num + 1);
    for (int slowness = q->options->ready ? 0 : CUDA_MOST_SLOWNESS; slowness >= 0; slowness--)
        for (int i = 0; i < q->num; i++)
            if (q->options->ready || cuda_family[q->job[i].source->family]->slowness == slowness)
                q->order[num++] = i;
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

static void report_problem(Diag *diag, const Job *j, const char *problem)
{
    if (j->result == 0 && j->image) {
        diag_error(diag, (Span){0}, E_KERNEL, "kernel %s (%s) for %s: %s", j->source->name,
                   cuda_family_name[j->source->family], j->arch, problem);
        return;
    }
    diag_error(diag, (Span){0}, E_KERNEL, "NVRTC cannot compile kernel %s (%s) for %s",
               j->source->name, cuda_family_name[j->source->family], j->arch);
    diag_note(diag, (Span){0}, "%.2000s", j->log ? j->log : "it says nothing");
}

static bool collect(Diag *diag, Arena *arena, CudaTarget *t, const CudaCompileOptions *options,
                    Job *job, int num)
{
    DeviceImage *image = ARENA_NEW_ARRAY(arena, DeviceImage, (size_t)num);
    CudaImageAbout *about = ARENA_NEW_ARRAY(arena, CudaImageAbout, (size_t)num);
    bool ok = true;
    for (int i = 0; i < num; i++) {
        Job *j = &job[i];
        about[i] = j->about;
        char text[LOG_SHOWN];
        const char *problem = image_problem(j, options->fail_on_spill, text, sizeof text);
        snprintf(image[i].arch, sizeof image[i].arch, "%s", j->arch);
        image[i].kernel = j->kernel;
        if (options->problem) {
            options->problem[i] = problem ? arena_strdup(arena, problem) : NULL;
        } else if (problem) {
            report_problem(diag, j, problem);
            ok = false;
        }
        if (problem)
            continue;
        uint8_t *copy = arena_alloc(arena, j->size + 1); /* a zero byte ends what drivers read */
        memcpy(copy, j->image, j->size);
        image[i].data = copy;
        image[i].size = j->size;
    }
    t->about = about;
    t->code.image = image;
    t->code.num_images = num;
    return ok;
}

static Cache *open_cache(Diag *diag, const CudaCompileOptions *options)
{
    char why[512];
    if (options->no_cache)
        return NULL;
    Cache *cache = cache_open(NULL, true, NULL, why, sizeof why);
    if (!cache) {
        diag_warning(diag, (Span){0}, E_CACHE, "%s", why);
        diag_help(diag, "kernels are compiled anew each time; --no-cache does not ask");
    }
    return cache;
}

/* Loads NVRTC and compiles what the cache does not hold. */
static bool compile_rest(Diag *diag, Queue *q, bool known, int threads)
{
    Nvrtc nvrtc;
    const char *why = NULL;
    char version[16];
    int major = 0, minor = 0;
    if (!load(&nvrtc, &why)) {
        diag_error(diag, (Span){0}, E_NO_TARGET, "a plan for GPUs needs NVRTC: %s", why);
        return false;
    }
    q->nvrtc = &nvrtc;
    nvrtc.version(&major, &minor);
    snprintf(version, sizeof version, "%d.%d", major, minor);
    if (q->cache && !known) {
        keep_compiler(q->cache, &nvrtc, version);
        if (get_all(q, version))
            return announce_all(q);
    }
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    run_all(q, threads ? threads : (int)processors);
    return true;
}

bool cuda_compile(Diag *diag, Arena *arena, CudaTarget *target, const CudaCompileOptions *options)
{
    Compiler compiler;
    int num = target->num_sources * options->num_archs;
    Job *job = ARENA_NEW_ARRAY(arena, Job, (size_t)num);
    for (int i = 0; i < num; i++)
        job[i] = (Job){.source = &target->source[i / options->num_archs],
                       .arch = options->arch[i % options->num_archs],
                       .kernel = i / options->num_archs};
    Queue q = {.job = job, .num = num, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    q.cache = open_cache(diag, options);
    put_in_order(&q, arena);
    bool known = q.cache && known_compiler(q.cache, &compiler);
    bool ok = known && get_all(&q, compiler.version) && announce_all(&q);
    ok = (ok || compile_rest(diag, &q, known, options->threads)) &&
         collect(diag, arena, target, options, job, num);
    target->num_cached = q.num_kept;
    for (int i = 0; i < num; i++) {
        free(job[i].image);
        free(job[i].log);
    }
    cache_close(q.cache);
    return ok;
}
