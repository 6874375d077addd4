/* repeats FILE BOUND [NAME [DEVICE]]: runs the largest bucket of a compiled file whose rows are
 * independent on the first GPU (DEVICE), for tensors of more elements than 32 bits count. Inputs
 * repeat a block of rows, and so must outputs, bit by bit, as they are for the block alone; those
 * are compared with the CPU's. BOUND: "exact" (the same bits) or the largest normalised mean square
 * error. TAP lines without a plan; exits with 77 without a GPU or where its memory is too small. */
#include "io/io.h"
#include "runtime/device.h"
#include "tests/gpu/sides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ROWS 997 /* divides no power of two: offsets that wrap around meet other rows */
#define SKIP       77

static const char *name;
static int num_failed;

static void report(const char *what, bool ok, const char *why)
{
    printf("%sok - %s %s%s%s\n", ok ? "" : "not ", name, what, *why ? ": " : "", why);
    num_failed += !ok;
}

static bool run(SinterSession *session, const char *what, const Side *in, Side *out)
{
    SinterError err;
    side_poison(out);
    SinterStatus status = sinter_run(session, in->tensor, in->num, out->tensor, out->num, &err);
    if (status)
        report(what, false, err.text);
    return !status;
}

static void repeat(Side *side, const Side *block, int64_t rows)
{
    for (int i = 0; i < side->num; i++) {
        uint64_t row = side->bytes[i] / (uint64_t)rows, left = side->bytes[i];
        uint8_t *at = side->data[i];
        for (uint64_t num; left > 0; at += num, left -= num) {
            num = left < BLOCK_ROWS * row ? left : BLOCK_ROWS * row;
            memcpy(at, block->data[i], (size_t)num);
        }
    }
}

static void check_repeats(const Side *side, const Side *block, int64_t rows)
{
    char why[120] = "";
    for (int i = 0; i < side->num && !*why; i++) {
        uint64_t row = side->bytes[i] / (uint64_t)rows;
        const uint8_t *data = side->data[i], *want = block->data[i];
        for (int64_t m = 0; m < rows && !*why; m++)
            if (memcmp(data + (uint64_t)m * row, want + (uint64_t)(m % BLOCK_ROWS) * row,
                       (size_t)row) != 0)
                snprintf(why, sizeof why, "row %" PRId64 " of output %d is not row %" PRId64, m, i,
                         m % BLOCK_ROWS);
    }
    report("the same bits in every block of rows", !*why, why);
}

static void check(const SinterModel *model, SinterSession *cpu, SinterSession *gpu, double bound)
{
    int64_t block_size[1] = {BLOCK_ROWS};
    int64_t size[1] = {sinter_bucket_size(model, sinter_num_buckets(model) - 1, 0)};
    Side in, want, got, large_in, large_got;
    bool ok = side_make(model, false, block_size, &in);
    ok = side_make(model, true, block_size, &want) && ok;
    ok = side_make(model, true, block_size, &got) && ok;
    ok = side_make(model, false, size, &large_in) && ok;
    ok = side_make(model, true, size, &large_got) && ok;
    if (!ok)
        report("memory", false, "");
    else
        side_fill(&in, 5, ODD_NONE);
    if (ok && run(cpu, "on the CPU", &in, &want) && run(gpu, "block", &in, &got)) {
        char text[120] = "";
        const char *differs = side_difference(&want, &got, text, sizeof text);
        double error = differs ? side_nmse(&want, &got) : 0;
        if (differs)
            snprintf(text, sizeof text, "nmse %.3g, at most %.3g", error, bound);
        report("as on the CPU", error <= bound && (bound > 0 || !differs), text);
        repeat(&large_in, &in, size[0]);
        if (run(gpu, "all rows", &large_in, &large_got))
            check_repeats(&large_got, &got, size[0]);
    }
    side_free(&in);
    side_free(&want);
    side_free(&got);
    side_free(&large_in);
    side_free(&large_got);
}

int main(int argc, char **argv)
{
    SinterError err;
    SinterModel *model;
    SinterSession *cpu = NULL, *gpu = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: repeats FILE exact|BOUND [NAME [DEVICE]]\n");
        return 2;
    }
    name = argc > 3 ? argv[3] : argv[1];
    SinterSessionOptions on_gpu = {.device = argc > 4 ? argv[4] : "cuda:0"};
    if (sinter_open(argv[1], &model, &err)) {
        report("", false, err.text);
        return 1;
    }
    SinterStatus status = sinter_session_create(model, &on_gpu, &gpu, &err);
    if (!status)
        status = sinter_session_create(model, &(SinterSessionOptions){.device = "cpu"}, &cpu, &err);
    bool skip = status == SINTER_ERROR_NO_DEVICE || status == SINTER_ERROR_MEMORY;
    if (skip)
        printf("# skip - %s: %s\n", name, err.text);
    else if (status)
        report("", false, err.text);
    else
        check(model, cpu, gpu, strcmp(argv[2], "exact") ? strtod(argv[2], NULL) : 0);
    sinter_session_destroy(gpu);
    sinter_session_destroy(cpu);
    sinter_close(model);
    return num_failed ? 1 : skip ? SKIP : 0;
}
