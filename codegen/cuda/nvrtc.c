/* codegen/cuda/nvrtc: CUDA C++ to cubins and PTX, kept in a cache. A few threads each wait for the
 * process that compiles a kernel. */
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/family.h"
#include "io/cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* wgmma instructions that ptxas has left out of a binary. Where CUDA 13.0 does that, one of 64x8x16
 * without operands stands in their place ("HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT"), which no
 * source asks for; nothing is said of it. (Of 4,465 kernels two had such ones: sums of one
 * instruction each, two halves of a tile of the right operand.) */
static long dropped(const char *image, size_t size)
{
    static const char low[8] = {(char)0xF0, 0x79, (char)0xFF, 0x3F},
                      high[4] = {(char)0xFF, 0, 0, 0x0C};
    long num = 0;
    if (size < 4 || memcmp(image, "\177ELF", 4) != 0)
        return 0;
    for (size_t at = 0; at + 16 <= size; at += 8)
        num += !memcmp(image + at, low, sizeof low) && !memcmp(image + at + 8, high, sizeof high);
    return num;
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
    CachePart part[6 + NUM_NVRTC_OPTIONS] = {text_part("image apart, counted " SINTER_VERSION),
                                             text_part(version),
                                             {&headers, sizeof headers},
                                             text_part(job->arch),
                                             text_part(job->source->name),
                                             text_part(job->source->text)};
    for (int i = 0; i < NUM_NVRTC_OPTIONS; i++)
        part[6 + i] = text_part(nvrtc_options[i]);
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
    int len = snprintf(c.path, sizeof c.path, "%s", nvrtc_path(n));
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
static const char *image_problem(const Job *j, const CudaCompileOptions *options, char *text,
                                 size_t size)
{
    bool fail_on_spill = options->fail_on_spill;
    if (j->result != 0 || !j->image)
        snprintf(text, size, "NVRTC cannot compile it: %s", j->log ? j->log : "it says nothing");
    else if (j->about.said.dropped && !options->keep_broken)
        snprintf(text, size, "ptxas leaves out %ld of its products", j->about.said.dropped);
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
    const char *problem = image_problem(j, q->options, text, sizeof text);
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

static void compile(Queue *q, Job *job)
{
    NvrtcJob one = {.text = job->source->text, .arch = job->arch};
    nvrtc_run_apart(q->nvrtc, &one);
    job->image = one.image;
    job->log = one.log;
    job->size = one.size;
    job->result = one.result;
    job->about.seconds = one.seconds;
    if (one.log)
        job->about.said = said_of(one.log);
    if (one.image)
        job->about.said.dropped = dropped(one.image, one.size);
    if (q->cache)
        keep(q->cache, job);
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
        if (!q->job[i].image) /* the cache has none */
            compile(q, &q->job[i]);
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
        const char *problem = image_problem(j, options, text, sizeof text);
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
    if (!nvrtc_load(&nvrtc, &why)) {
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
