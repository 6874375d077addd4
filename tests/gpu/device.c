/* device cases FIRST NUM | random FIRST NUM | files PATH..: models on the GPU, held against the CPU
 * launch by launch (rig.h), then run as users do, by sessions.
 *
 *   cases   texts of single kernels (cases.h): the checker of kernels
 *   random  random models (tests/random), most of them small; some are compiled without fusion too
 *   files   model texts and modules (.ir); of a folder, all modules but goldens
 *
 * --part=I/N      only every Nth model, from the Ith on: for several processes
 * --all           cases: all of the matrix
 * --seconds=S     start no model after S seconds; the summary says how many there were
 * --count         no GPU and no NVRTC: only count what would run
 * --dry           the CPU stands for the GPU
 * --spoil         with --dry: every comparison is done again with a byte that differs, which it
 * must find
 * --apart         every tensor in an allocation of its own, for compute-sanitizer; no sessions
 * --bench         times of the launches at the largest size of each bucket
 * --verbose       a line for every model
 * --keep          keep the folder of each model and say where it is
 *
 * A failing model is named by its number: `device cases 17 1 --verbose` runs it alone. Lines
 * "# cover FAMILY A W NUM" at the end: shapes that ran of each family and pair of formats. */
#include "tests/gpu/cases.h"
#include "tests/gpu/rig.h"
#include "tests/gpu/sides.h"
#include "tests/random/generate.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SYMS      8
#define NUM_SIZES     32
#define LIMIT_S       60 /* for one model */
#define LOST          3  /* exit code */
#define LARGE_EVERY   20 /* of the random models is a large one, with dozens of kernels */
#define UNFUSED_EVERY 8

typedef struct Options {
    RigOptions rig;
    bool count, verbose, keep, all, spoil;
    int part, parts;
    double seconds;
} Options;
static Options options = {.parts = 1};

typedef struct Totals {
    int models, failed, runs, sessions, refused, spoilt, unfused;
    uint64_t left;
    double worst;
    uint64_t cover[NUM_CUDA_FAMILIES][NUM_FORMATS][NUM_FORMATS];
    uint64_t at; /* the model at hand */
} Totals;
static Totals *totals; /* shared with the processes that do the work */

/* Coverage ------------------------------------------------------------------------------------- */

static void count_tile(const Plan *p, const PlanLaunch *l)
{
    int before = -1;
    for (int i = 0; i < l->program.num_steps; i++) {
        const TileStep *s = &l->program.step[i];
        if (s->op != TILE_QUANTIZE || s->tensor == before)
            continue;
        totals->cover[CUDA_TILE][p->tensor[l->operand[s->tensor].tensor].fmt][0]++;
        before = s->tensor;
    }
    if (before < 0)
        totals->cover[CUDA_TILE][p->tensor[l->operand[0].tensor].fmt][0]++;
}

static void count_shape(const Built *b, int bucket)
{
    const Plan *p = b->cuda.target.plan;
    for (int i = 0; i < p->num_launches; i++) {
        const PlanLaunch *l = &p->launch[i];
        int kernel = b->cuda.code.launch[i * p->num_buckets + bucket].kernel;
        if (kernel < 0)
            continue;
        CudaFamily family = b->cuda.source[kernel].family;
        if (l->family == LAUNCH_GEMM)
            totals->cover[family][p->tensor[l->a].fmt][p->tensor[l->w].fmt]++;
        else if (l->family == LAUNCH_MOVE)
            totals->cover[family][p->tensor[l->dst].fmt][0]++;
        else
            count_tile(p, l);
    }
}

static void print_cover(void)
{
    for (int f = 0; f < NUM_CUDA_FAMILIES; f++)
        for (int a = 0; a < NUM_FORMATS; a++)
            for (int w = 0; w < NUM_FORMATS; w++)
                if (totals->cover[f][a][w])
                    printf("# cover %s %s %s %" PRIu64 "\n", cuda_family_name[f],
                           format_info[a].name, f <= CUDA_GEMM_ANY ? format_info[w].name : "-",
                           totals->cover[f][a][w]);
}

/* Sizes ---------------------------------------------------------------------------------------- */

typedef struct Sizes {
    int64_t size[NUM_SIZES][MAX_SYMS];
    int num;
} Sizes;

static bool add_size(Sizes *s, const int64_t *size, int num_syms)
{
    size_t bytes = (size_t)num_syms * sizeof *size;
    for (int i = 0; i < s->num; i++)
        if (!memcmp(s->size[i], size, bytes))
            return false;
    memcpy(s->size[s->num++], size, bytes);
    return true;
}

/* The bucket's own sizes and `more` smaller ones. */
static void draw_sizes(const Plan *p, int bucket, int more, uint64_t *state, Sizes *ret)
{
    *ret = (Sizes){.num = 0};
    const int64_t none[MAX_SYMS] = {0}, *full = p->num_syms ? plan_bucket(p, bucket) : none;
    add_size(ret, full, p->num_syms);
    for (int tries = 0; tries < 4 * more && ret->num <= more && p->num_syms; tries++) {
        int64_t size[MAX_SYMS];
        for (int i = 0; i < p->num_syms; i++)
            size[i] = 1 + (int64_t)(random_next(state) >> 8) % full[i];
        if (more >= full[0] && p->num_syms == 1) /* all of them */
            size[0] = full[0] - 1 - tries > 0 ? full[0] - 1 - tries : 1;
        add_size(ret, size, p->num_syms);
    }
}

/* Launch by launch ----------------------------------------------------------------------------- */

static void print_sizes(const Plan *p, const int64_t *size)
{
    for (int i = 0; i < p->num_syms; i++)
        printf(" %s=%" PRId64, p->sym[i].name, size[i]);
}

static Odd draw_odd(uint64_t *state, int64_t rows)
{
    Odd odd = (Odd)(random_next(state) % (3 * NUM_ODD));
    return odd >= NUM_ODD || rows < 4 ? ODD_NONE : odd;
}

/* A test of the test: one byte that differs must be found. */
static bool check_spoilt(Rig *r, int bucket, const int64_t *size, const Side *in, uint64_t seed)
{
    rig_spoil(r, seed);
    bool same = rig_check(r, bucket, size, in->data, false), spoilt = rig_spoil(r, 0);
    totals->spoilt += spoilt;
    if (same && spoilt)
        printf("# a spoilt byte was not found\n");
    return !same || !spoilt;
}

static bool check_size(const Built *b, Rig *r, int bucket, const int64_t *size, uint64_t seed)
{
    Side in;
    uint64_t state = seed;
    const Plan *p = b->cuda.target.plan;
    Odd odd = draw_odd(&state, p->num_syms ? size[0] : 1);
    bool ok = side_make(b->file, false, size, &in);
    if (ok) {
        side_fill(&in, state, odd);
        ok = rig_check(r, bucket, size, in.data, odd >= ODD_LARGE);
        if (ok && options.spoil && odd <= ODD_ZEROS)
            ok = check_spoilt(r, bucket, size, &in, random_next(&state));
    }
    side_free(&in);
    return ok;
}

/* The smallest size that fails too: what a person wants to look at. */
static void reduce(const Built *b, Rig *r, int bucket, const int64_t *size, uint64_t seed)
{
    int64_t less[MAX_SYMS] = {1};
    const Plan *p = b->cuda.target.plan;
    for (int i = 0; i < p->num_syms; i++)
        less[i] = size[i];
    for (less[0] = 1; p->num_syms && less[0] < size[0]; less[0] += less[0] < 16 ? 1 : less[0] / 2)
        if (rig_takes(r, bucket, less) && !check_size(b, r, bucket, less, seed)) {
            printf("# it fails from size %" PRId64 " on, bucket %d\n", less[0], bucket);
            return;
        }
}

static bool check_launches(const Built *b, Rig *r, int more, uint64_t *state)
{
    const Plan *p = b->cuda.target.plan;
    Sizes sizes;
    for (int bucket = 0; bucket < p->num_buckets; bucket++) {
        draw_sizes(p, bucket, more, state, &sizes);
        for (int i = 0; i < sizes.num; i++) {
            const int64_t *size = sizes.size[i];
            uint64_t seed = random_next(state);
            if (!rig_takes(r, bucket, size)) {
                totals->refused++;
                continue;
            }
            count_shape(b, bucket);
            totals->runs++;
            bool ok = check_size(b, r, bucket, size, seed);
            totals->worst = rig_worst(r) > totals->worst ? rig_worst(r) : totals->worst;
            if (ok)
                continue;
            printf("# at");
            print_sizes(p, size);
            printf(", bucket %d\n", bucket);
            reduce(b, r, bucket, size, seed);
            return false;
        }
    }
    return true;
}

/* Sessions ------------------------------------------------------------------------------------- */

/* Bytes of one row of the batch, by port. */
static uint64_t row_bytes(const Side *side, int port, int64_t rows)
{
    return rows ? side->bytes[port] / (uint64_t)rows : 0;
}

static int bucket_for(const Plan *p, const int64_t *size)
{
    for (int b = 0; b < p->num_buckets; b++) {
        bool fits = true;
        for (int i = 0; i < p->num_syms; i++)
            fits = fits && size[i] <= plan_bucket(p, b)[i];
        if (fits)
            return b;
    }
    return -1;
}

/* What a session must give: the chain of the launches, piece by piece as batches are cut. */
static bool chain_pieces(const Built *b, Rig *r, const int64_t *size, const Side *in, Side *out)
{
    const Plan *p = b->cuda.target.plan;
    int64_t rows = p->num_syms ? size[0] : 1, largest = rows, piece[MAX_SYMS] = {0};
    if (p->num_syms)
        largest = plan_bucket(p, p->num_buckets - 1)[0];
    for (int64_t at = 0; at < rows;) {
        void *from[SIDE_PORTS], *to[SIDE_PORTS];
        int64_t num = rows - at < largest ? rows - at : largest;
        for (int i = 1; i < p->num_syms; i++)
            piece[i] = size[i];
        piece[0] = num;
        for (int i = 0; i < in->num; i++)
            from[i] = (char *)in->data[i] + (uint64_t)at * row_bytes(in, i, rows);
        for (int i = 0; i < out->num; i++)
            to[i] = (char *)out->data[i] + (uint64_t)at * row_bytes(out, i, rows);
        if (!rig_chain(r, bucket_for(p, piece), piece, from, to))
            return false;
        at += num;
    }
    return true;
}

static bool run_session(const Built *b, SinterSession *session, const Side *in, Side *out)
{
    SinterError err;
    side_poison(out);
    if (!sinter_run(session, in->tensor, in->num, out->tensor, out->num, &err))
        return true;
    printf("# %s: %s\n", sinter_model_name(b->file), err.text);
    return false;
}

static bool check_session(const Built *b, Rig *r, SinterSession *session, const int64_t *size,
                          uint64_t seed)
{
    Side in, want, got;
    char text[200];
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &want) && ok;
    ok = side_make(b->file, true, size, &got) && ok;
    const char *differ = NULL;
    if (ok) {
        side_fill(&in, seed, ODD_NONE);
        ok = chain_pieces(b, r, size, &in, &want) && run_session(b, session, &in, &got);
        differ = ok ? side_difference(&want, &got, text, sizeof text) : NULL;
    }
    if (differ)
        printf("# a session gives other bits than its launches: %s\n", differ);
    side_free(&in);
    side_free(&want);
    side_free(&got);
    totals->sessions++;
    return ok && !differ;
}

/* Every bucket, one size below each, and beyond the largest, where batches are cut. */
static bool check_sessions(const Built *b, Rig *r, uint64_t *state)
{
    const Plan *p = b->cuda.target.plan;
    SinterSession *session = NULL;
    SinterError err;
    const char *device = options.rig.dry ? "cpu" : "cuda:0";
    if (sinter_session_create(b->file, &(SinterSessionOptions){.device = device, .threads = 1},
                              &session, &err)) {
        printf("# %s\n", err.text);
        return false;
    }
    bool ok = true;
    Sizes sizes = {.num = 0};
    for (int bucket = 0; bucket < p->num_buckets && ok; bucket++) {
        draw_sizes(p, bucket, 1, state, &sizes);
        bool last = bucket + 1 == p->num_buckets;
        if (last && p->rows_independent && p->num_syms == 1)
            add_size(&sizes, (int64_t[]){2 * sizes.size[0][0] + 3}, 1);
        for (int i = 0; i < sizes.num && ok; i++) {
            int at = bucket_for(p, sizes.size[i]);
            if (at >= 0 && !rig_takes(r, at, sizes.size[i]))
                continue;
            ok = check_session(b, r, session, sizes.size[i], random_next(state));
            if (!ok) {
                printf("# at");
                print_sizes(p, sizes.size[i]);
                puts("");
            }
        }
    }
    sinter_session_destroy(session);
    return ok;
}

/* Models --------------------------------------------------------------------------------------- */

/* Exact models: the same bits without fusion. The others' launches are checked one by one. */
static bool check_unfused(const Built *b, Rig *r, const char *path, const char *dir,
                          uint64_t *state)
{
    Built unfused;
    char text[200];
    Rig *other = NULL;
    Side in, want, got;
    const Plan *p = b->cuda.target.plan;
    const int64_t none[MAX_SYMS] = {0};
    const int64_t *size = p->num_syms ? plan_bucket(p, p->num_buckets - 1) : none;
    const BuildOptions build = {.path = path, .dir = dir, .code = !options.rig.dry};
    bool ok = built_make(&unfused, &build) && (other = rig_open(&unfused, &options.rig)) != NULL &&
              check_launches(&unfused, other, 0, state);
    if (ok && rig_is_exact(r)) {
        ok = side_make(b->file, false, size, &in);
        ok = side_make(b->file, true, size, &want) && ok;
        ok = side_make(b->file, true, size, &got) && ok;
        side_fill(&in, random_next(state), ODD_NONE);
        ok = ok && rig_chain(r, p->num_buckets - 1, size, in.data, got.data) &&
             rig_chain(other, p->num_buckets - 1, size, in.data, want.data);
        const char *differ = ok ? side_difference(&want, &got, text, sizeof text) : NULL;
        if (differ)
            printf("# fused and unfused differ: %s\n", differ);
        ok = ok && !differ;
        side_free(&in);
        side_free(&want);
        side_free(&got);
    }
    totals->unfused++;
    rig_close(other);
    built_free(&unfused);
    return ok;
}

typedef struct Job { /* one model */
    const char *path, *dir, *what;
    uint64_t number;
    int more; /* sizes of each bucket */
    bool unfused;
} Job;

static bool check_model(const Job *job)
{
    Built b;
    Rig *r = NULL;
    uint64_t state = job->number * UINT64_C(0x9E3779B97F4A7C15) + 1;
    const BuildOptions build = {
        .path = job->path, .dir = job->dir, .level = 1, .code = !options.rig.dry && !options.count};
    bool ok = built_make(&b, &build);
    if (ok && options.count) {
        Sizes sizes;
        for (int bucket = 0; bucket < b.cuda.target.plan->num_buckets; bucket++) {
            draw_sizes(b.cuda.target.plan, bucket, job->more, &state, &sizes);
            for (int i = 0; i < sizes.num; i++)
                count_shape(&b, bucket);
            totals->runs += sizes.num;
        }
        totals->sessions += b.cuda.num_sources; /* kernels, in this mode */
    } else if (ok) {
        r = rig_open(&b, &options.rig);
        ok = r && check_launches(&b, r, job->more, &state) &&
             (options.rig.apart || check_sessions(&b, r, &state)) &&
             (!job->unfused || check_unfused(&b, r, job->path, job->dir, &state));
    }
    totals->models++;
    totals->failed += !ok;
    if (!ok || options.verbose)
        printf("%sok - %" PRIu64 " %s\n", ok ? "" : "not ", job->number, job->what);
    fflush(stdout);
    rig_close(r);
    built_free(&b);
    return ok;
}

static void remove_files(const char *dir)
{
    static const char *const name[] = {"model.sinter", "w.safetensors", "calib.safetensors"};
    char path[600];
    for (size_t i = 0; i < COUNT_OF(name); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
    }
    rmdir(dir);
}

static bool make_model(Arena *arena, bool cases, uint64_t number, const char *dir, Case *ret)
{
    Generated g;
    if (cases)
        return case_make(arena, number, dir, ret);
    bool large = number % LARGE_EVERY == 0;
    if (!(large ? generate : generate_small)(arena, number, dir, &g))
        return false;
    *ret = (Case){g.text_path, large ? "large random model" : "random model"};
    return true;
}

static bool run_generated(bool cases, uint64_t number, const char *temporary)
{
    Arena *arena = arena_create();
    Case c;
    bool ok = false;
    const char *dir = arena_printf(arena, "%s/%" PRIu64, temporary, number);
    mkdir(dir, 0777);
    if (make_model(arena, cases, number, dir, &c)) {
        const Job job = {.path = c.text_path,
                         .dir = dir,
                         .what = c.what,
                         .number = number,
                         .more = cases ? 19 : 1,
                         .unfused = !cases && number % UNFUSED_EVERY == 0};
        ok = check_model(&job);
    } else {
        totals->failed++;
    }
    if (options.keep)
        printf("# %s\n", dir);
    else
        remove_files(dir);
    arena_destroy(arena);
    return ok;
}

static void run_file(const char *path, const char *temporary, uint64_t number)
{
    const Job job = {
        .path = path, .dir = temporary, .what = path, .number = number, .more = 3, .unfused = true};
    check_model(&job);
}

/* All modules of a folder but those that other passes gave (NAME.out.ir). */
static void run_path(const char *path, const char *temporary, uint64_t *number)
{
    struct dirent **entry = NULL;
    int num = scandir(path, &entry, NULL, alphasort);
    if (num < 0 && (*number)++ % (uint64_t)options.parts == (uint64_t)options.part)
        run_file(path, temporary, *number);
    for (int i = 0; i < num; i++) {
        const char *name = entry[i]->d_name;
        size_t len = strlen(name);
        size_t room = strlen(path) + len + 2;
        char *full = malloc(room);
        snprintf(full, room, "%s/%s", path, name);
        if (len > 3 && !strcmp(name + len - 3, ".ir") && !strstr(name, ".out.ir") &&
            (*number)++ % (uint64_t)options.parts == (uint64_t)options.part)
            run_file(full, temporary, *number);
        free(full);
        free(entry[i]);
    }
    free(entry);
}

/* Command line --------------------------------------------------------------------------------- */

static bool parse_option(const char *word)
{
    Options *o = &options;
    const struct {
        const char *name;
        bool *flag;
    } flag[] = {{"--count", &o->count},     {"--dry", &o->rig.dry},     {"--apart", &o->rig.apart},
                {"--bench", &o->rig.bench}, {"--verbose", &o->verbose}, {"--keep", &o->keep},
                {"--all", &o->all},         {"--spoil", &o->spoil}};
    for (size_t i = 0; i < COUNT_OF(flag); i++)
        if (!strcmp(word, flag[i].name))
            return *flag[i].flag = true;
    if (!strncmp(word, "--seconds=", 10))
        return (o->seconds = strtod(word + 10, NULL)) > 0;
    return sscanf(word, "--part=%d/%d", &o->part, &o->parts) == 2 && o->parts > 0;
}

typedef struct Work { /* a range of numbers */
    bool cases;
    uint64_t first, num;
    double begin;
    const char *temporary;
} Work;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The matrix in an order that samples all of it where time does not reach to the end. */
static uint64_t shuffled(uint64_t number)
{
    return options.all ? number * UINT64_C(1000003) % cases_num() : number;
}

/* The work of one process, from totals->at on. */
static void work(const Work *w)
{
    for (; totals->at < w->first + w->num; totals->at += (uint64_t)options.parts) {
        if (options.seconds > 0 && seconds() - w->begin > options.seconds) {
            totals->left++;
            continue;
        }
        alarm(LIMIT_S);
        bool ok = run_generated(w->cases, shuffled(totals->at), w->temporary);
        alarm(0);
        if (!ok && !options.rig.dry && !options.count && rig_lost()) {
            puts("# the GPU is lost to this process");
            fflush(stdout);
            _exit(LOST);
        }
    }
}

/* A kernel may cost a process its GPU, or never end: another process goes on behind that model. */
static void run_numbers(const Work *w)
{
    totals->at = w->first + (uint64_t)options.part;
    while (totals->at < w->first + w->num) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            work(w);
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return;
        if (WIFSIGNALED(status)) {
            printf("not ok - %" PRIu64 " ends by signal %d\n", shuffled(totals->at),
                   WTERMSIG(status));
            totals->failed++;
        }
        totals->at += (uint64_t)options.parts;
    }
}

int main(int argc, char **argv)
{
    const char *word[64];
    int num = 0;
    uint64_t number = 0;
    bool ok = true;
    for (int i = 1; i < argc && ok; i++)
        if (argv[i][0] == '-')
            ok = parse_option(argv[i]);
        else if (num < (int)COUNT_OF(word))
            word[num++] = argv[i];
    bool cases = num && !strcmp(word[0], "cases"), random = num && !strcmp(word[0], "random");
    bool files = num > 1 && !strcmp(word[0], "files");
    if (!ok || !(files || ((cases || random) && (num == 3 || (cases && options.all))))) {
        fprintf(stderr, "usage: device cases FIRST NUM | cases --all | random FIRST NUM | "
                        "files PATH.. [OPTION..] (see device.c)\n");
        return 2;
    }
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char temporary[] = "/tmp/sinter-device-XXXXXX";
    if (totals == MAP_FAILED || !mkdtemp(temporary))
        return 2;
    for (int i = 1; i < num && files; i++)
        run_path(word[i], temporary, &number);
    if (cases || random)
        run_numbers(&(Work){.cases = cases,
                            .first = options.all ? 0 : strtoull(word[1], NULL, 10),
                            .num = options.all ? cases_num() : strtoull(word[2], NULL, 10),
                            .begin = seconds(),
                            .temporary = temporary});
    rmdir(temporary);
    print_cover();
    printf("# %d models, %d failed, %d runs launch by launch, %d runs by sessions, %d unfused, "
           "%d spoilt, %d sizes refused, %" PRIu64
           " models left out; float products to %.3g of the bound\n",
           totals->models, totals->failed, totals->runs, totals->sessions, totals->unfused,
           totals->spoilt, totals->refused, totals->left, totals->worst);
    return totals->failed > 0;
}
