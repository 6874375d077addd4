/* The team of team.h. A loop lies in a slot, which is never freed; its state says in one word
 * whether it is open and how many helpers came, so that joining is one compare-and-swap, and a
 * helper with an old view of a slot finds it changed. Callers close their slot when all items are
 * taken and wait for the helpers inside it, no others. */
#include "base/team.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NUM_SLOTS   16    /* loops at the same time; further ones get no help */
#define SPIN_NS     20000 /* longer than one thread's work between two launches */
#define SPIN_PAUSES 16    /* between looks at the clock */
#define STACK_BYTES ((size_t)2 << 20)

/* State of a slot: helpers that came, helpers inside, helpers wanted, and two flags. */
#define INSIDE_ONE    (1u << 10)
#define WANT_ONE      (1u << 20)
#define FIELD         1023u
#define SLEEPS        (1u << 30) /* the caller, until the last helper has left */
#define OPEN          (1u << 31)
#define CAME(state)   ((state)&FIELD)
#define INSIDE(state) ((state) / INSIDE_ONE & FIELD)
#define WANT(state)   ((state) / WANT_ONE & FIELD)

typedef struct Slot {
    _Alignas(64) atomic_uint state;
    atomic_bool taken;
    TeamFn *fn;
    void *user;
    int64_t num, step;
    _Alignas(64) atomic_llong next;
} Slot;

static Slot slots[NUM_SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows, up to `full` */
static pthread_t thread_of[TEAM_MAX];
static int keepers;
static atomic_int num_threads;
static atomic_bool full; /* a thread could not be started */
static atomic_bool ending;
static atomic_uint epoch; /* changes when a loop opens */
static atomic_int sleeping, spinning, callers;
static atomic_int limit, chosen; /* of threads; 0: not known, not chosen */
static _Thread_local bool is_inside;

static void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int num)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, num, NULL, NULL, 0);
}

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Until the bits of `mask` in the word differ from `value`; false: they still did not. */
static bool spin_while(atomic_uint *word, unsigned mask, unsigned value)
{
    for (int64_t end = clock_ns() + SPIN_NS; clock_ns() < end;)
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if ((atomic_load(word) & mask) != value)
                return true;
            relax();
        }
    return false;
}

/* Loops ---------------------------------------------------------------------------------------- */

static void take_items(Slot *s, int thread)
{
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&s->next, s->step, memory_order_relaxed);
        if (begin >= s->num)
            return;
        s->fn(s->user, begin, s->num - begin < s->step ? s->num : begin + s->step, thread);
    }
}

/* Threads that spin come by themselves. Whoever is woken wakes two more, so that the caller begins
 * its own work soon, and a machine without a free processor wakes few. */
static void wake_helpers(int num)
{
    int asleep = atomic_load(&sleeping);
    num -= atomic_load(&spinning);
    num = num < asleep ? num : asleep;
    if (num > 0)
        futex_wake(&epoch, num < 2 ? num : 2);
}

/* The open loop with the fewest helpers; NULL: none wants any. */
static Slot *find_slot(unsigned *ret_state)
{
    Slot *best = NULL;
    for (int i = 0; i < NUM_SLOTS; i++) {
        unsigned state = atomic_load(&slots[i].state);
        bool wants = (state & OPEN) && CAME(state) < WANT(state);
        if (wants && (!best || INSIDE(state) < INSIDE(*ret_state))) {
            best = &slots[i];
            *ret_state = state;
        }
    }
    return best;
}

static bool help(bool was_asleep)
{
    unsigned state = 0;
    Slot *s;
    do {
        s = find_slot(&state);
        if (!s)
            return false;
    } while (!atomic_compare_exchange_strong(&s->state, &state, state + INSIDE_ONE + 1));
    if (was_asleep)
        wake_helpers((int)WANT(state) - (int)CAME(state) - 1);
    take_items(s, (int)CAME(state) + 1);
    state = atomic_fetch_sub(&s->state, INSIDE_ONE);
    if (INSIDE(state) == 1 && (state & SLEEPS))
        futex_wake(&s->state, 1);
    return true;
}

static void *thread_main(void *arg)
{
    (void)arg;
    is_inside = true;
    bool was_asleep = false;
    while (!atomic_load(&ending)) {
        unsigned seen = atomic_load(&epoch);
        while (help(was_asleep))
            was_asleep = false;
        atomic_fetch_add(&spinning, 1);
        bool changed = spin_while(&epoch, ~0u, seen);
        atomic_fetch_sub(&spinning, 1);
        was_asleep = false;
        if (changed)
            continue;
        atomic_fetch_add(&sleeping, 1);
        futex_wait(&epoch, seen);
        atomic_fetch_sub(&sleeping, 1);
        was_asleep = true;
    }
    return NULL;
}

/* Threads -------------------------------------------------------------------------------------- */

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Only the thread that called fork is here: no helper, no other caller. */
static void fork_child(void)
{
    for (int i = 0; i < NUM_SLOTS; i++) {
        atomic_store(&slots[i].state, 0);
        atomic_store(&slots[i].taken, false);
    }
    atomic_store(&num_threads, 0);
    atomic_store(&full, false);
    atomic_store(&sleeping, 0);
    atomic_store(&spinning, 0);
    atomic_store(&callers, 0);
    pthread_mutex_init(&lock, NULL);
}

static void fork_handlers(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* The host's signals are its own threads' business. */
static bool thread_start(pthread_t *ret)
{
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr))
        return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(ret, &attr, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return !failed;
}

static void threads_grow(int num)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fork_handlers);
    pthread_mutex_lock(&lock);
    for (int i = atomic_load(&num_threads); i < num && !atomic_load(&full); i++) {
        if (thread_start(&thread_of[i]))
            atomic_store(&num_threads, i + 1);
        else
            atomic_store(&full, true);
    }
    pthread_mutex_unlock(&lock);
}

void team_keep(void)
{
    atomic_store(&limit, team_threads());
    pthread_mutex_lock(&lock);
    keepers++;
    pthread_mutex_unlock(&lock);
}

void team_release(void)
{
    pthread_mutex_lock(&lock);
    if (--keepers == 0) {
        atomic_store(&ending, true);
        atomic_fetch_add(&epoch, 1);
        futex_wake(&epoch, TEAM_MAX);
        for (int i = 0; i < atomic_load(&num_threads); i++)
            pthread_join(thread_of[i], NULL);
        atomic_store(&num_threads, 0);
        atomic_store(&full, false);
        atomic_store(&ending, false);
    }
    pthread_mutex_unlock(&lock);
}

void team_enter(void)
{
    atomic_fetch_add(&callers, 1);
}

void team_leave(void)
{
    atomic_fetch_sub(&callers, 1);
}

/* team_run ------------------------------------------------------------------------------------- */

static int known_limit(void)
{
    int num = atomic_load_explicit(&limit, memory_order_relaxed);
    if (!num) {
        num = team_threads();
        atomic_store(&limit, num);
    }
    return num;
}

/* Each caller's part of the processors, less itself. Who asks for more threads than there are
 * processors gets them while alone. */
static int num_helpers(int threads, int64_t pieces)
{
    int all = known_limit(), num = callers > 1 ? callers : 1;
    threads = threads > 0 ? threads : all;
    threads = threads < TEAM_MAX ? threads : TEAM_MAX;
    int part = (threads > all ? threads : all) / num;
    part = part < threads ? part : threads;
    return (pieces < part ? (int)pieces : part) - 1;
}

static Slot *slot_take(void)
{
    for (int i = 0; i < NUM_SLOTS; i++) {
        bool taken = false;
        if (!atomic_load_explicit(&slots[i].taken, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&slots[i].taken, &taken, true))
            return &slots[i];
    }
    return NULL;
}

static void slot_open(Slot *s, int helpers)
{
    atomic_store_explicit(&s->next, 0, memory_order_relaxed);
    atomic_store(&s->state, OPEN | (unsigned)helpers * WANT_ONE);
    atomic_fetch_add(&epoch, 1);
    wake_helpers(helpers);
}

static void slot_close(Slot *s)
{
    atomic_fetch_and(&s->state, ~OPEN);
    unsigned inside = INSIDE_ONE * FIELD;
    for (unsigned state; (state = atomic_load(&s->state) & inside) != 0;) {
        if (spin_while(&s->state, inside, state))
            continue;
        state = atomic_fetch_or(&s->state, SLEEPS) | SLEEPS;
        if (state & inside)
            futex_wait(&s->state, state);
    }
    atomic_store(&s->state, 0);
    atomic_store(&s->taken, false);
}

void team_run(int threads, int64_t num, int64_t step, TeamFn *fn, void *user)
{
    step = step > 1 ? step : 1;
    int helpers = threads == 1 || is_inside || num <= step
                      ? 0
                      : num_helpers(threads, num / step + (num % step != 0));
    if (helpers > atomic_load_explicit(&num_threads, memory_order_relaxed) && !atomic_load(&full))
        threads_grow(helpers);
    Slot *s = helpers > 0 ? slot_take() : NULL;
    if (!s) {
        for (int64_t i = 0; i < num; i += step)
            fn(user, i, num - i < step ? num : i + step, 0);
        return;
    }
    s->fn = fn;
    s->user = user;
    s->num = num;
    s->step = step;
    is_inside = true;
    slot_open(s, helpers);
    take_items(s, 0);
    slot_close(s);
    is_inside = false;
}

/* Numbers -------------------------------------------------------------------------------------- */

/* "8" or "8,4"; 0: not set, or no number of threads. */
static int threads_named(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long num = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || (*end && *end != ',') || num < 1)
        return 0;
    return num < TEAM_MAX ? (int)num : TEAM_MAX;
}

int team_threads(void)
{
    int num = atomic_load(&chosen);
    num = num > 0 ? num : threads_named("SINTER_THREADS");
    num = num > 0 ? num : threads_named("OMP_NUM_THREADS");
    return num > 0 ? num : processors_allowed();
}

const char *team_ignored(void)
{
    const char *text = getenv("SINTER_THREADS");
    return text && *text && !threads_named("SINTER_THREADS") ? text : NULL;
}

void team_set_threads(int threads)
{
    atomic_store(&chosen, threads > 0 ? threads : 0);
    atomic_store(&limit, 0);
}
