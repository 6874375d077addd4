/* bench_checkpoint FOLDER|FILE..: how fast the stored codes of a checkpoint become ours, in bytes
 * of the file a second of one core's time (not of the clock), the best of five, and the largest
 * memory that was resident, the mapped file included. bench/checkpoints.py makes checkpoints of
 * each layout to be read. */
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t stored_bytes(const StoredModule *m)
{
    uint64_t ret = 0;

    for (int i = 0; i < NUM_PARTS; i++)
        ret += m->part[i] ? m->part[i]->bytes : 0;
    return ret;
}

/* Seconds of one reading of all modules; < 0 after an error. */
static double read_all(const Checkpoint *c, uint64_t *ret_bytes, IoError *err)
{
    double seconds = 0;

    *ret_bytes = 0;
    for (int i = 0; i < c->modules.num; i++) {
        const StoredModule *m = c->modules.elem[i];
        QTensor q;
        double start = now();
        if (!stored_read(m, &q, err))
            return -1;
        seconds += now() - start;
        *ret_bytes += stored_bytes(m);
        qtensor_free(&q);
    }
    return seconds;
}

static int bench(const char *path)
{
    IoError err;
    Arena *arena = arena_new();
    double start = now(), best = 1e9;
    WeightSet *weights = weights_open(1, &path, &err);
    Checkpoint *c = weights ? checkpoint_open(arena, weights, 1, &path, &err) : NULL;
    double opened = now() - start;
    uint64_t bytes = 0;
    struct rusage usage;

    for (int i = 0; c && i < 5 && best > 0; i++) {
        double seconds = read_all(c, &bytes, &err);
        best = seconds < best ? seconds : best;
    }
    getrusage(RUSAGE_SELF, &usage);
    if (!c || best < 0)
        fprintf(stderr, "%s\n", err.text);
    else
        printf("%-32s %5d modules, opened in %.3f s, %6.2f GB/s, at most %ld MiB resident\n", path,
               c->modules.num, opened, (double)bytes / best / 1e9, usage.ru_maxrss / 1024);
    weights_close(weights);
    arena_destroy(arena);
    return !c || best < 0;
}

int main(int argc, char **argv)
{
    int bad = argc < 2;

    for (int i = 1; i < argc; i++)
        bad |= bench(argv[i]);
    return bad;
}
