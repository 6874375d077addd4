/* The team of threads: every item once, no thread twice at the same time, sleep, fork, threads that
 * cannot be started; and the numbers of processors, from folders like those of Linux. */
#include "base/team.h"
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* The linker puts this in the place of pthread_create: it starts so many more threads, then none.
 */
static atomic_int startable = 1 << 20;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (atomic_fetch_sub(&startable, 1) <= 0)
        return EAGAIN;
    return __real_pthread_create(thread, attr, start, arg);
}

#define ITEMS   1000
#define THREADS 4

typedef struct Count {
    atomic_int item[ITEMS];
    atomic_int inside[THREADS];
    atomic_int pieces, largest, twice, together;
} Count;

static void count_items(void *user, int64_t begin, int64_t end, int thread)
{
    Count *c = user;
    atomic_fetch_add(&c->pieces, 1);
    if (thread > c->largest)
        c->largest = thread;
    c->twice += atomic_fetch_add(&c->inside[thread], 1) != 0;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&c->item[i], 1);
    atomic_fetch_sub(&c->inside[thread], 1);
}

static void assert_counted(Count *c, int64_t num)
{
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(c->item[i], i < num);
    assert_int_equal(c->twice, 0);
}

static void every_item_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++)
        for (int64_t num = 0; num <= ITEMS; num += 1 + num / 3) {
            Count c = {.pieces = 0};
            team_run(threads, num, 7, count_items, &c);
            assert_counted(&c, num);
            assert_int_equal(c.pieces, (num + 6) / 7);
            assert_true(c.largest < threads);
        }
}

/* Waits until all threads of the loop are inside it. */
static void meet(void *user, int64_t begin, int64_t end, int thread)
{
    Count *c = user;
    count_items(user, begin, end, thread);
    atomic_fetch_add(&c->together, 1);
    for (int i = 0; i < 2000 && c->together < THREADS; i++)
        usleep(1000);
}

static void threads_work_together(void **state)
{
    Count c = {.pieces = 0};
    (void)state;
    team_run(THREADS, THREADS, 1, meet, &c);
    assert_int_equal(c.together, THREADS);
    assert_counted(&c, THREADS);
}

static void nested(void *user, int64_t begin, int64_t end, int thread)
{
    Count *c = user;
    Count inner = {.pieces = 0};
    team_run(THREADS, ITEMS, 1, count_items, &inner);
    c->twice += inner.largest != 0;
    count_items(user, begin, end, thread);
}

static void loops_inside_loops_stay_on_their_thread(void **state)
{
    Count c = {.pieces = 0};
    (void)state;
    team_run(THREADS, 20, 1, nested, &c);
    assert_counted(&c, 20);
}

static void *run_often(void *arg)
{
    static atomic_int failed;
    (void)arg;
    team_enter();
    for (int i = 0; i < 200; i++) {
        Count c = {.pieces = 0};
        team_run(THREADS, ITEMS, 10, count_items, &c);
        for (int k = 0; k < ITEMS; k++)
            failed += c.item[k] != 1;
        failed += c.twice;
    }
    team_leave();
    return failed ? arg : NULL;
}

static void callers_at_the_same_time(void **state)
{
    pthread_t thread[20]; /* more than the team has slots */
    void *ret;
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_often, &thread), 0);
    for (int i = 0; i < 20; i++) {
        pthread_join(thread[i], &ret);
        assert_null(ret);
    }
}

/* Of two callers each has half: here one thread, so that its own does everything. */
static void callers_divide_the_processors(void **state)
{
    Count c = {.pieces = 0};
    (void)state;
    team_set_threads(3);
    team_enter();
    team_enter();
    team_run(0, ITEMS, 1, count_items, &c);
    assert_int_equal(c.largest, 0);
    team_leave();
    team_leave();
    team_set_threads(0);
    assert_counted(&c, ITEMS);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void idle_threads_sleep(void **state)
{
    Count c = {.pieces = 0};
    (void)state;
    team_run(THREADS, THREADS, 1, meet, &c);
    double begin = cpu_seconds();
    usleep(200000);
    assert_true(cpu_seconds() - begin < 0.02);
}

static void a_forked_child_has_threads_of_its_own(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        Count c = {.pieces = 0};
        alarm(20);
        team_run(THREADS, THREADS, 1, meet, &c);
        team_keep();
        team_release();
        _exit(c.together == THREADS ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void threads_that_cannot_be_started_are_done_without(void **state)
{
    (void)state;
    team_keep();
    team_release(); /* ends those there are */
    startable = 1;
    Count c = {.pieces = 0};
    team_keep();
    team_run(THREADS, ITEMS, 1, count_items, &c);
    team_release();
    assert_counted(&c, ITEMS);
    assert_true(c.largest <= 1);
    startable = 0;
    Count alone = {.pieces = 0};
    team_run(THREADS, ITEMS, 1, count_items, &alone);
    assert_counted(&alone, ITEMS);
    assert_int_equal(alone.largest, 0);
    startable = 1 << 20;
    team_keep();
    team_release();
    threads_work_together(state);
}

static void numbers_of_threads(void **state)
{
    (void)state;
    setenv("OMP_NUM_THREADS", "5,2", 1);
    assert_int_equal(team_threads(), 5);
    setenv("SINTER_THREADS", "3", 1);
    assert_int_equal(team_threads(), 3);
    assert_null(team_ignored());
    team_set_threads(2);
    assert_int_equal(team_threads(), 2);
    team_set_threads(0);
    setenv("SINTER_THREADS", "many", 1);
    assert_string_equal(team_ignored(), "many");
    assert_int_equal(team_threads(), 5);
    setenv("OMP_NUM_THREADS", "-1", 1);
    assert_int_equal(team_threads(), processors_allowed());
    unsetenv("SINTER_THREADS");
    unsetenv("OMP_NUM_THREADS");
}

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0777);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void quotas_of_control_groups(void **state)
{
    char root[] = "/tmp/sinter-team-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(processors_below(root, 8), 8);
    put(root, "proc/self/cgroup", "0::/a/b\n");
    assert_int_equal(processors_below(root, 8), 8);
    put(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(processors_below(root, 8), 8);
    put(root, "sys/fs/cgroup/a/cpu.max", "350000 100000\n");
    assert_int_equal(processors_below(root, 8), 3);
    assert_int_equal(processors_below(root, 2), 2);
    put(root, "sys/fs/cgroup/cpu.max", "50000 100000\n"); /* a container's own group */
    assert_int_equal(processors_below(root, 8), 1);
    put(root, "proc/self/cgroup", "9:memory:/x\n5:cpu,cpuacct:/x\n0::/none\n");
    put(root, "sys/fs/cgroup/cpu.max", "max 100000\n");
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(processors_below(root, 8), 8);
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(processors_below(root, 8), 2);
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "nonsense\n");
    assert_int_equal(processors_below(root, 8), 8);
    assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(threads_work_together),
        cmocka_unit_test(loops_inside_loops_stay_on_their_thread),
        cmocka_unit_test(callers_at_the_same_time),
        cmocka_unit_test(callers_divide_the_processors),
        cmocka_unit_test(idle_threads_sleep),
        cmocka_unit_test(a_forked_child_has_threads_of_its_own),
        cmocka_unit_test(threads_that_cannot_be_started_are_done_without),
        cmocka_unit_test(numbers_of_threads),
        cmocka_unit_test(quotas_of_control_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
