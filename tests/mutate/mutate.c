/* mutate FIRST NUM [FILE]...: mutants of the plans of compiled files, or of the plans made by hand
 * where no file is given. Each is made from its number alone, so that `mutate N 1 FILE` repeats it;
 * a fault ends the process after saying that number. TAP, one line a plan. */
#include "models.h"
#include "plans.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile uint64_t at_work;

static void say_which(int signal_number)
{
    char text[64];
    int len = snprintf(text, sizeof text, "# signal %d in mutant %llu\n", signal_number,
                       (unsigned long long)at_work);
    if (write(STDOUT_FILENO, text, (size_t)len) < 0)
        _exit(3);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

typedef struct Tally {
    uint64_t verdict[NUM_VERDICTS];
    bool holds;
} Tally;

/* Two mutants of one plan that agree have the same ports. */
static bool mutate_pair(const Plan *mutant, const uint8_t *weights, uint64_t weights_bytes,
                        const Plan *base, Arena *arena, Choices *c)
{
    IoError err;
    Bytes b;
    (void)weights;
    Plan *other = plan_thaw(base, arena);
    plan_mutate(other, c);
    if (!plan_check(mutant, weights_bytes, &err) || !plan_encode(other, &b))
        return true;
    Plan *read = plan_decode(b.data, b.size, weights_bytes, &err);
    bool ok = !read || agreement_holds(mutant, read);
    plan_free(read);
    bytes_free(&b);
    return ok;
}

static void mutate_plan(const Plan *base, const uint8_t *weights, uint64_t weights_bytes,
                        uint64_t first, uint64_t num, Tally *tally)
{
    Arena *arena = arena_create();
    for (uint64_t i = first; i < first + num; i++) {
        Choices c = {.state = i * UINT64_C(0x9e3779b97f4a7c15)};
        at_work = i;
        arena_reset(arena);
        Plan *mutant = plan_thaw(base, arena);
        plan_mutate(mutant, &c);
        tally->verdict[mutant_run(mutant, weights, weights_bytes, &c)]++;
        if (i % 16 == 0 && !mutate_pair(mutant, weights, weights_bytes, base, arena, &c)) {
            printf("# mutant %llu agrees with one of other ports\n", (unsigned long long)i);
            tally->holds = false;
        }
    }
    arena_destroy(arena);
}

/* Where none of many mutants runs, the plan itself does not. */
static bool report(int test, const char *name, const Tally *t)
{
    bool ran = t->verdict[MUTANT_RAN] + t->verdict[MUTANT_TOO_LARGE] > 0 ||
               t->verdict[MUTANT_REFUSED] < 100;
    printf("%s %d - %s: %llu refused, %llu too large to run, %llu run\n",
           t->holds && ran ? "ok" : "not ok", test, name,
           (unsigned long long)t->verdict[MUTANT_REFUSED],
           (unsigned long long)t->verdict[MUTANT_TOO_LARGE],
           (unsigned long long)t->verdict[MUTANT_RAN]);
    fflush(stdout);
    return t->holds && ran;
}

static bool mutate_file(int test, const char *path, uint64_t first, uint64_t num)
{
    Artifact a;
    IoError err;
    Tally tally = {.holds = true};
    if (!artifact_open(path, false, &a, &err)) {
        printf("not ok %d - %s: %s\n", test, path, err.text);
        return false;
    }
    const Section *s = artifact_find(&a, SECTION_PLAN, "cpu");
    const Section *w = artifact_find(&a, SECTION_WEIGHTS, NULL);
    Plan *plan = s ? plan_load(&a, s, &err) : NULL;
    if (plan)
        mutate_plan(plan, w ? artifact_data(&a, w) : NULL, w ? w->size : 0, first, num, &tally);
    const char *slash = strrchr(path, '/');
    bool ok = plan && report(test, slash ? slash + 1 : path, &tally);
    if (!plan)
        printf("not ok %d - %s: %s\n", test, path, err.text);
    plan_free(plan);
    artifact_close(&a);
    return ok;
}

static bool mutate_models(uint64_t first, uint64_t num)
{
    static const char *const name[] = {"float", "int8", "routed", "grouped"};
    TestModel m[COUNT_OF(name)];
    bool ok = true;
    model_float(&m[0]);
    model_int8(&m[1]);
    model_routed(&m[2]);
    model_grouped(&m[3]);
    for (int i = 0; i < (int)COUNT_OF(name); i++) {
        Tally tally = {.holds = true};
        mutate_plan(&m[i].plan, m[i].weights, m[i].weights_bytes, first, num, &tally);
        ok = report(i + 1, name[i], &tally) && ok;
        model_free(&m[i]);
    }
    printf("1..%d\n", (int)COUNT_OF(name));
    return ok;
}

int main(int argc, char **argv)
{
    static const int fault[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    if (argc < 3)
        return 2;
    for (size_t i = 0; i < COUNT_OF(fault); i++)
        signal(fault[i], say_which);
    uint64_t first = strtoull(argv[1], NULL, 10), num = strtoull(argv[2], NULL, 10);
    if (argc == 3)
        return !mutate_models(first, num);
    bool ok = true;
    for (int i = 3; i < argc; i++)
        ok = mutate_file(i - 2, argv[i], first, num) && ok;
    printf("1..%d\n", argc - 3);
    return !ok;
}
