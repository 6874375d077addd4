/* device cases FIRST NUM | sample NUM [KIND] | random FIRST NUM | files PATH..: models on the GPU,
 * held against the CPU launch by launch (rig.h), then run as users do, by sessions.
 *
 *   cases   texts of single kernels (cases.h): the checker of kernels
 *   sample  NUM of each kind of these cases; of KIND alone (cases.h), if given
 *   random  random models (tests/random), most of them small; some are compiled without fusion too
 *   files   model texts and modules (.ir); of a folder, all modules but goldens
 *
 * --jobs=N        so many processes share the models (1)
 * --compilers=N   so many more only compile, ahead of those: a GPU serves few processes best (0)
 * --here          no processes of its own, for tools that watch this one
 * --part=I/N      only every Nth model, from the Ith on
 * --all           cases: all of the matrix
 * --seconds=S     start no model after S seconds; the summary says how many there were
 * --sizes=N       cases: sizes of each bucket beside its own (68)
 * --wish=WORDS    products take candidates whose text has these words, where there are any
 * --decode        launches decode weights wherever they can, not only in some of the cases
 * --hold          .. and hold activations in bf16 wherever they can
 * --layout=NAME   weights lie in this layout ("fragments") where they can, not only in some cases;
 *                 models without such a weight are left out
 * --having=A,B    only models whose text has one of these words ("nf4,mxfp4")
 * --invariant     every product has one order of sums for all sizes, as with sinter's option
 * --count         no GPU and no NVRTC: only count what would run
 * --dry           the CPU stands for the GPU
 * --spoil         with --dry: every comparison is done again with a byte that differs, which it
 *                 must find
 * --apart         every tensor in an allocation of its own, for compute-sanitizer; no sessions
 * --bench         times of the launches at the largest size of each bucket
 * --verbose       a line for every model
 * --racecheck     kernels in which every lane arrives at barriers, for that tool
 * --keep          keep the folder of each model and say where it is
 *
 * A failing model is named by its number: `device cases 17 1 --verbose` runs it alone. At the end:
 * what was covered (cover.h), kernels and shapes as "12/600", a digest of all results of sessions
 * (the same models give the same digest), and the numbers of models that failed. Exits with 77
 * without a GPU. */
#include "tests/gpu/cases.h"
#include "tests/gpu/check.h"
#include "tests/random/generate.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S       60 /* for one model */
#define LOST          3  /* exit codes: the GPU is lost; there is none */
#define SKIP          77
#define MAX_JOBS      64
#define MAX_FILES     4096
#define MAX_READY     65536
#define MOST_NAMED    32 /* failed models that the last lines repeat */
#define GRACE_S       4  /* for models that were compiled in time */
#define LARGE_EVERY   50 /* of the random models is a large one, with dozens of kernels */
#define UNFUSED_EVERY 20
#define LEAST_SHAPES  200

typedef enum Mode { MODE_CASES, MODE_RANDOM, MODE_FILES } Mode;

typedef struct Options {
    CheckOptions check;
    bool keep, all, here, decode, hold, invariant, racecheck;
    int part, parts, jobs, compilers, sizes;
    double seconds;
    const char *wish, *having;
    const CudaLayout *layout;
} Options;
static Options options = {.parts = 1, .jobs = 1, .sizes = 68};

typedef struct Work { /* numbers first + part, first + part + parts, .. below end */
    Mode mode;
    uint64_t first, end;
    double begin;
    const char *temporary;
    char **file;            /* by number */
    const uint64_t *picked; /* by number; NULL: the numbers themselves */
} Work;

/* Shared by all processes. */
typedef struct Board {
    uint64_t next, left;         /* models taken so far; not started for want of time */
    uint64_t num_ready, num_run; /* models in ready, and how many of these were taken */
    uint64_t compilers;          /* that have not ended */
    uint64_t num_failed, failed[MOST_NAMED];
    uint32_t ready[MAX_READY]; /* numbers + 1 of compiled models; 0: not yet written */
    struct Slot {
        Totals totals;
        uint64_t at; /* the model at hand */
    } slot[MAX_JOBS];
} Board;
static Board *board;

/* Models --------------------------------------------------------------------------------------- */

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

static bool make_model(Arena *arena, Mode mode, uint64_t number, const char *dir, Case *ret)
{
    Generated g;
    if (mode == MODE_CASES)
        return case_make(arena, number, dir, ret);
    bool large = number % LARGE_EVERY == 0;
    if (!(large ? generate : generate_small)(arena, number, dir, &g))
        return false;
    *ret = (Case){.text_path = g.text_path, .what = large ? "large random model" : "random model"};
    return true;
}

/* One model, whose kernels are compiled or which is checked. */
static bool run_job(CheckJob job, bool compile, Totals *totals)
{
    if (options.wish)
        job.wish = options.wish;
    if (options.hold || options.decode)
        job.decode = options.hold ? CUDA_DECODE_HELD : CUDA_DECODE_ALWAYS;
    if (options.layout)
        job.layout = options.layout;
    job.only = options.layout != NULL;
    job.invariant = options.invariant;
    job.racecheck = options.racecheck;
    if (!compile)
        return check_model(&job, &options.check, totals);
    check_compile(&job, &options.check, totals);
    return true;
}

/* The model's text has one of the words, if any are asked for. */
static bool is_wanted(Arena *arena, const char *path)
{
    IoError err;
    uint64_t size;
    char *text = options.having ? file_read(path, LIMIT_SOURCE_BYTES, &size, &err) : NULL;
    bool ret = !text;
    for (const char *at = options.having; text && at && !ret;) {
        size_t len = strcspn(at, ",");
        ret = len && strstr(text, arena_strndup(arena, at, len)) != NULL;
        at = at[len] ? at + len + 1 : NULL;
    }
    free(text);
    return ret;
}

static bool run_generated(Mode mode, uint64_t number, const char *dir, bool compile, Totals *totals)
{
    Arena *arena = arena_create();
    Case c;
    bool ok = false;
    mkdir(dir, 0777);
    if (!make_model(arena, mode, number, dir, &c)) {
        totals->failed++;
    } else if (!is_wanted(arena, c.text_path)) {
        ok = true;
    } else {
        const CheckJob job = {.path = c.text_path,
                              .dir = dir,
                              .what = c.what,
                              .number = number,
                              .more = mode == MODE_CASES ? options.sizes : 1,
                              .family = c.family,
                              .wish = c.wish,
                              .decode = c.decode,
                              .layout = c.layout,
                              .unfused = mode == MODE_RANDOM && number % UNFUSED_EVERY == 1};
        ok = run_job(job, compile, totals);
    }
    if (options.keep)
        printf("# %s\n", dir);
    else
        remove_files(dir);
    arena_destroy(arena);
    return ok;
}

static uint64_t number_of(const Work *w, uint64_t number)
{
    return w->picked ? w->picked[number] : number;
}

static void note_failed(const Work *w, uint64_t number)
{
    uint64_t turn = __atomic_fetch_add(&board->num_failed, 1, __ATOMIC_RELAXED);
    if (turn < MOST_NAMED)
        board->failed[turn] = number_of(w, number);
}

static bool run_number(const Work *w, uint64_t number, bool compile, Totals *totals)
{
    char dir[500];
    uint64_t at = number_of(w, number);
    snprintf(dir, sizeof dir, "%s/%s%" PRIu64, w->temporary, compile ? "c" : "", at);
    if (w->mode != MODE_FILES)
        return run_generated(w->mode, at, dir, compile, totals);
    const char *path = w->file[number];
    const CheckJob job = {.path = path,
                          .dir = w->temporary,
                          .what = path,
                          .number = number,
                          .more = 3,
                          .unfused = true};
    return run_job(job, compile, totals);
}

/* All modules of a folder but those that other passes gave (NAME.out.ir). */
static uint64_t find_files(const char *path, char **file, uint64_t num)
{
    struct dirent **entry = NULL;
    int found = scandir(path, &entry, NULL, alphasort);
    if (found < 0 && num < MAX_FILES)
        file[num++] = strdup(path);
    for (int i = 0; i < found; i++) {
        const char *name = entry[i]->d_name;
        size_t len = strlen(name), room = strlen(path) + len + 2;
        if (len > 3 && !strcmp(name + len - 3, ".ir") && !strstr(name, ".out.ir") &&
            num < MAX_FILES) {
            file[num] = malloc(room);
            snprintf(file[num++], room, "%s/%s", path, name);
        }
        free(entry[i]);
    }
    free(entry);
    return num;
}

/* Processes ------------------------------------------------------------------------------------ */

/* The next model that none has taken; false: there is none, or no time. */
static bool next_number(const Work *w, uint64_t *ret)
{
    for (;;) {
        uint64_t turn = __atomic_fetch_add(&board->next, 1, __ATOMIC_RELAXED);
        *ret = w->first + (uint64_t)options.part + turn * (uint64_t)options.parts;
        if (*ret >= w->end)
            return false;
        if (options.seconds <= 0 || check_seconds() - w->begin <= options.seconds)
            return true;
        __atomic_fetch_add(&board->left, 1, __ATOMIC_RELAXED);
    }
}

/* The next compiled one; false: all that will be compiled were taken, or there is no time left. */
static bool next_ready(const Work *w, uint64_t *ret)
{
    for (;;) {
        uint64_t turn = __atomic_fetch_add(&board->num_run, 1, __ATOMIC_RELAXED);
        uint32_t number = 0;
        while (turn < MAX_READY && !number) {
            bool more = __atomic_load_n(&board->compilers, __ATOMIC_ACQUIRE) > 0;
            number = __atomic_load_n(&board->ready[turn], __ATOMIC_ACQUIRE);
            if (!number && !more)
                return false;
            if (!number)
                usleep(1000);
        }
        if (!number)
            return false;
        *ret = number - 1;
        if (options.seconds <= 0 || check_seconds() - w->begin <= options.seconds + GRACE_S)
            return true;
        __atomic_fetch_add(&board->left, 1, __ATOMIC_RELAXED);
    }
}

/* The work of a process that compiles. */
static void compile_all(const Work *w, struct Slot *slot)
{
    while (next_number(w, &slot->at)) {
        alarm(LIMIT_S);
        run_number(w, slot->at, true, &slot->totals);
        alarm(0);
        uint64_t turn = __atomic_fetch_add(&board->num_ready, 1, __ATOMIC_RELAXED);
        if (turn < MAX_READY)
            __atomic_store_n(&board->ready[turn], (uint32_t)slot->at + 1, __ATOMIC_RELEASE);
    }
    __atomic_fetch_sub(&board->compilers, 1, __ATOMIC_RELEASE);
}

/* The work of one that checks. */
static void check_all(const Work *w, struct Slot *slot)
{
    while (options.compilers ? next_ready(w, &slot->at) : next_number(w, &slot->at)) {
        alarm(LIMIT_S);
        bool ok = run_number(w, slot->at, false, &slot->totals);
        alarm(0);
        if (!ok)
            note_failed(w, slot->at);
        if (!ok && !options.check.rig.dry && !options.check.count && rig_lost()) {
            puts("# the GPU is lost to this process");
            fflush(stdout);
            _exit(LOST);
        }
    }
}

/* In a process of its own: the driver does not survive a fork. */
static bool has_gpu(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        bool ok = rig_probe();
        fflush(stdout);
        _exit(ok ? 0 : SKIP);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* Process i: those behind the first options.jobs compile. */
static pid_t start(const Work *w, int i)
{
    fflush(stdout);
    pid_t child = fork();
    if (child)
        return child;
    (i < options.jobs ? check_all : compile_all)(w, &board->slot[i]);
    fflush(stdout);
    _exit(0);
}

/* A kernel may cost a process its GPU, or never end: another process goes on behind that model. */
static void run_all(const Work *w)
{
    pid_t child[MAX_JOBS], ended;
    int status, running = 0, num = options.jobs + options.compilers;
    if (options.here) {
        check_all(w, &board->slot[0]);
        return;
    }
    board->compilers = (uint64_t)options.compilers;
    for (int i = num - 1; i >= 0; i--)
        running += (child[i] = start(w, i)) > 0;
    while (running > 0 && (ended = wait(&status)) > 0) {
        int i = 0;
        while (i < num && child[i] != ended)
            i++;
        if (i == num)
            continue;
        running--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        if (WIFSIGNALED(status)) {
            printf("not ok - %" PRIu64 " ends by signal %d%s\n", number_of(w, board->slot[i].at),
                   WTERMSIG(status), i < options.jobs ? "" : ", compiling");
            board->slot[i].totals.failed++;
            note_failed(w, board->slot[i].at);
        }
        running += (child[i] = start(w, i)) > 0;
    }
}

static bool print_totals(double seconds)
{
    Totals *sum = &board->slot[0].totals;
    for (int i = 1; i < options.jobs + options.compilers; i++)
        totals_merge(sum, &board->slot[i].totals);
    cover_print(&sum->cover, LEAST_SHAPES);
    printf("# %d models, %d failed, %d runs launch by launch, %d runs by sessions, %d unfused, "
           "%d spoilt, %d sizes refused, %" PRIu64
           " models left out; float products to %.3g of the bound\n",
           sum->models, sum->failed, sum->runs, sum->sessions, sum->unfused, sum->spoilt,
           sum->refused, board->left, sum->worst);
    printf(
        "# %.1f s by %d processes and %d that only compiled: %.0f s compiled %d kernels (%d more "
        "were kept), %.0f s ran launches, %.0f s sessions\n",
        seconds, options.jobs, options.compilers, sum->compile_s, sum->kernels - sum->cached,
        sum->cached, sum->check_s, sum->session_s);
    printf("# digest %016" PRIx64 "\n", sum->digest);
    for (uint64_t i = 0; i < board->num_failed && i < MOST_NAMED; i++)
        printf("%s%" PRIu64, i ? ", " : "# failed: ", board->failed[i]);
    if (board->num_failed)
        puts(board->num_failed > MOST_NAMED ? " and more" : "");
    return sum->failed == 0;
}

/* Command line --------------------------------------------------------------------------------- */

static bool parse_option(const char *word)
{
    Options *o = &options;
    CheckOptions *c = &o->check;
    const struct {
        const char *name;
        bool *flag;
    } flag[] = {{"--count", &c->count},
                {"--dry", &c->rig.dry},
                {"--apart", &c->rig.apart},
                {"--bench", &c->rig.bench},
                {"--verbose", &c->verbose},
                {"--keep", &o->keep},
                {"--all", &o->all},
                {"--spoil", &c->spoil},
                {"--here", &o->here},
                {"--decode", &o->decode},
                {"--hold", &o->hold},
                {"--invariant", &o->invariant},
                {"--racecheck", &o->racecheck}};
    for (size_t i = 0; i < COUNT_OF(flag); i++)
        if (!strcmp(word, flag[i].name))
            return *flag[i].flag = true;
    if (!strncmp(word, "--wish=", 7))
        return *(o->wish = word + 7);
    if (!strncmp(word, "--having=", 9))
        return *(o->having = word + 9);
    if (!strncmp(word, "--layout=", 9)) {
        static CudaLayout layout;
        o->layout = &layout;
        return cuda_layout_find(word + 9, &layout);
    }
    if (!strncmp(word, "--seconds=", 10))
        return (o->seconds = strtod(word + 10, NULL)) > 0;
    if (sscanf(word, "--jobs=%d", &o->jobs) == 1)
        return o->jobs > 0 && o->jobs <= MAX_JOBS;
    if (sscanf(word, "--compilers=%d", &o->compilers) == 1) {
        c->compiled = o->compilers > 0;
        return o->compilers >= 0 && o->compilers < MAX_JOBS;
    }
    if (sscanf(word, "--sizes=%d", &o->sizes) == 1)
        return o->sizes >= 0 && o->sizes <= 72;
    return sscanf(word, "--part=%d/%d", &o->part, &o->parts) == 2 && o->parts > 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: device cases FIRST NUM | cases --all | sample NUM [KIND] | "
                    "random FIRST NUM | files PATH.. [OPTION..] (see device.c)\n");
    return 2;
}

static bool find_work(Work *w, char *const *word, int num)
{
    static char *file[MAX_FILES];
    static uint64_t picked[MAX_FILES];
    if (num > 1 && !strcmp(word[0], "files")) {
        w->mode = MODE_FILES;
        w->file = file;
        for (int i = 1; i < num; i++)
            w->end = find_files(word[i], file, w->end);
    } else if (num && !strcmp(word[0], "cases") && options.all) {
        w->end = cases_num();
    } else if ((num == 2 || num == 3) && !strcmp(word[0], "sample")) {
        w->picked = picked;
        const char *only = num == 3 ? word[2] : NULL;
        w->end = cases_pick(strtoull(word[1], NULL, 10), only, MAX_FILES, picked);
    } else if (num == 3 && (!strcmp(word[0], "cases") || !strcmp(word[0], "random"))) {
        w->mode = word[0][0] == 'c' ? MODE_CASES : MODE_RANDOM;
        w->first = strtoull(word[1], NULL, 10);
        w->end = w->first + strtoull(word[2], NULL, 10);
    }
    return w->end > w->first;
}

int main(int argc, char **argv)
{
    static char buffer[1 << 16]; /* what a process prints about a model stays together */
    char temporary[] = "/tmp/sinter-device-XXXXXX";
    static char *word[MAX_FILES + 1];
    int num = 0;
    Work w = {.begin = check_seconds(), .temporary = temporary};
    nvrtc_serve(argv);
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' ? !parse_option(argv[i]) : num == (int)COUNT_OF(word))
            return usage();
        else if (argv[i][0] != '-')
            word[num++] = argv[i];
    if (!find_work(&w, word, num) || options.jobs + options.compilers > MAX_JOBS)
        return usage();
    if (!options.check.rig.dry && !options.check.count && !options.here && !has_gpu())
        return SKIP;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || !mkdtemp(temporary))
        return 2;
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    run_all(&w);
    rmdir(temporary);
    return !print_totals(check_seconds() - w.begin);
}
