/* Fuzz target: launch plans. What decodes must be printable, encode to the same bytes, and bind any
 * sizes within its buckets or refuse them. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHTS_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void bind_all(const Plan *plan)
{
    IoError err;
    PlanLayout *layout = calloc((size_t)plan->num_tensors + 1, sizeof *layout);
    int64_t sizes[8];
    for (int b = 0; layout && b < plan->num_buckets; b++)
        for (int part = 0; part < 3; part++) {
            for (int s = 0; s < plan->num_syms; s++)
                sizes[s] = plan_bucket(plan, b)[s] * part / 2;
            plan_bind(plan, b, sizes, layout, &err);
        }
    free(layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    IoError err;
    Plan *plan = plan_decode(data, size, WEIGHTS_BYTES, &err);
    if (!plan)
        return 0;
    Bytes again;
    if (!plan_encode(plan, &again) || again.size != size || memcmp(again.data, data, size))
        abort();
    bytes_free(&again);
    Arena *arena = arena_create();
    Sb sb;
    sb_init(&sb, arena);
    plan_print(&sb, plan);
    arena_destroy(arena);
    bind_all(plan);
    plan_free(plan);
    return 0;
}
