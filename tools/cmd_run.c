/* run, bench: a text compiled on the spot, or a compiled file, through the same program that every
 * compiled file carries. */
#include "driver/work.h"
#include "io/io.h"
#include "runtime/program.h"
#include <string.h>
#include <unistd.h>

/* The options of this command line that the program takes too, in its spelling. */
static const OptionId passed_on[] = {
    OPTION_INPUT,   OPTION_OUTPUT,  OPTION_LABELS,    OPTION_DEVICE,      OPTION_BUCKET,
    OPTION_TRACE,   OPTION_THREADS, OPTION_NAN,       OPTION_DIAGNOSTICS, OPTION_REPEAT,
    OPTION_SECONDS, OPTION_WARM_UP, OPTION_BENCH_JSON};

/* json: NULL, or the file that results go to. */
static int run_program(Work *w, const char *path, bool bench, const char *json)
{
    ARRAY(char *) argv = {0};
    const char *name = command_info[w->cli->command].name;
    ARRAY_PUSH(w->arena, &argv, arena_printf(w->arena, "sinter %s", name));
    if (bench)
        ARRAY_PUSH(w->arena, &argv, arena_strdup(w->arena, "--bench"));
    if (json)
        ARRAY_PUSH(w->arena, &argv, arena_printf(w->arena, "--json=%s", json));
    for (size_t i = 0; i < COUNT_OF(passed_on); i++)
        for (int k = 0; k < w->cli->value[passed_on[i]].num; k++) {
            ARRAY_PUSH(w->arena, &argv,
                       arena_printf(w->arena, "--%s", option_info[passed_on[i]].name));
            ARRAY_PUSH(w->arena, &argv,
                       arena_strdup(w->arena, w->cli->value[passed_on[i]].elem[k]));
        }
    int argc = argv.num;
    ARRAY_PUSH(w->arena, &argv, NULL);
    return program_main(path, argc, argv.elem);
}

static int compile_and_run(Cli *cli, const char *path, bool bench, const char *json)
{
    Work w;
    int exit_code = EXIT_OK;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    const char *program = work_program(&w, path);
    if (program && !w.diag.num_errors)
        exit_code = run_program(&w, program, bench, json);
    return work_end(&w, exit_code);
}

int cmd_run(Cli *cli)
{
    return compile_and_run(cli, cli->operand.elem[0], false, NULL);
}

/* Two, side by side ---------------------------------------------------------------------------- */

typedef struct BenchSize {
    char took[128];         /* the bucket, and why */
    uint64_t p50, p90, p99; /* ns */
} BenchSize;
typedef ARRAY(BenchSize) BenchSizes;

static bool read_size(Json *j, BenchSize *ret)
{
    char key[32];
    bool first = true, ok = json_object_begin(j);
    *ret = (BenchSize){.took = ""};
    while (ok && json_next_key(j, key, sizeof key, &first)) {
        if (!strcmp(key, "took"))
            ok = json_string(j, ret->took, sizeof ret->took);
        else if (!strcmp(key, "p50_ns"))
            ok = json_u64(j, &ret->p50);
        else if (!strcmp(key, "p90_ns"))
            ok = json_u64(j, &ret->p90);
        else if (!strcmp(key, "p99_ns"))
            ok = json_u64(j, &ret->p99);
        else
            ok = json_skip(j);
    }
    return ok && ret->p50;
}

/* What a program wrote with --json. (By its name it is an output, which nothing else reads.) */
static bool read_sizes(Arena *arena, int fd, BenchSizes *ret)
{
    Json j;
    char key[32];
    bool first = true, first_size = true;
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = arena_alloc(arena, size > 0 ? (size_t)size : 1);
    if (size <= 0 || pread(fd, text, (size_t)size, 0) != size)
        return false;
    json_init(&j, text, (size_t)size);
    bool ok = json_object_begin(&j);
    while (ok && json_next_key(&j, key, sizeof key, &first)) {
        if (strcmp(key, "sizes") != 0) {
            ok = json_skip(&j);
            continue;
        }
        ok = json_array_begin(&j);
        while (ok && json_next_element(&j, &first_size)) {
            BenchSize one;
            ok = read_size(&j, &one);
            ARRAY_PUSH(arena, ret, one);
        }
    }
    return ok;
}

static const BenchSize *size_find(const BenchSizes *sizes, const char *took)
{
    for (int i = 0; i < sizes->num; i++)
        if (!strcmp(sizes->elem[i].took, took))
            return &sizes->elem[i];
    return NULL;
}

static void put_ratio(uint64_t a, uint64_t b)
{
    printf("%12.1f %12.1f %6.2fx", (double)a / 1000, (double)b / 1000, (double)b / (double)a);
}

/* Sizes of the first that the second has too. */
static int put_pair(const Cli *cli, const BenchSizes *a, const BenchSizes *b)
{
    int shared = 0;
    printf("A %s\nB %s\n%-24s %12s %12s %7s %12s %12s %7s\n", cli->operand.elem[0],
           cli->operand.elem[1], "size", "A p50, us", "B p50, us", "B / A", "A p99, us",
           "B p99, us", "B / A");
    for (int i = 0; i < a->num; i++) {
        const BenchSize *of = &a->elem[i], *other = size_find(b, of->took);
        if (!other)
            continue;
        shared++;
        printf("%-24s ", of->took[0] ? of->took : "fixed sizes");
        put_ratio(of->p50, other->p50);
        putchar(' ');
        put_ratio(of->p99, other->p99);
        putchar('\n');
    }
    return shared ? EXIT_OK : cli_usage(cli, "the two have no size in common; --bucket names one");
}

/* Results of the benchmark that never came, though it succeeded. */
static int no_times(Cli *cli, const char *path)
{
    Work w;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    diag_error(&w.diag, (Span){0}, E_TEMPORARY, "the times of '%s' cannot be kept", path);
    return work_end(&w, EXIT_INPUT);
}

static int bench_pair(Cli *cli)
{
    Arena *arena = arena_new();
    BenchSizes sizes[2] = {0};
    char file[2][FILE_UNNAMED];
    int fd[2], code = EXIT_OK;
    for (int i = 0; i < 2; i++) /* both, so that neither takes the other's place */
        fd[i] = file_unnamed(file[i]);
    for (int i = 0; i < 2 && !code; i++) {
        code = fd[i] < 0 ? EXIT_OK : compile_and_run(cli, cli->operand.elem[i], true, file[i]);
        if (!code && (fd[i] < 0 || !read_sizes(arena, fd[i], &sizes[i])))
            code = no_times(cli, cli->operand.elem[i]);
    }
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    if (!code)
        code = put_pair(cli, &sizes[0], &sizes[1]);
    arena_destroy(arena);
    return code;
}

int cmd_bench(Cli *cli)
{
    if (cli->operand.num < 2)
        return compile_and_run(cli, cli->operand.elem[0], true, NULL);
    if (cli_has(cli, OPTION_BENCH_JSON) || cli_has(cli, OPTION_TRACE))
        return cli_usage(cli, "--json and --trace are of one file");
    return bench_pair(cli);
}
