/* codegen/cuda/candidates: what families list their candidates with. */
#include "codegen/cuda/family.h"

const CudaFamilyRow *const cuda_family[NUM_CUDA_FAMILIES] = {
#define CUDA_FAMILY(ID, name) &cuda_##name,
#include "codegen/cuda/families.def"
#undef CUDA_FAMILY
};
const char *const cuda_family_name[NUM_CUDA_FAMILIES] = {
#define CUDA_FAMILY(ID, name) #name,
#include "codegen/cuda/families.def"
#undef CUDA_FAMILY
};

/* Blocks that have a part of a tile each: of groups of rows there may be more tiles than places. */
static bool shares_tiles(const CudaKernel *k)
{
    return cuda_family[k->family]->geometry(k).workspace > 0 ||
           (k->family == CUDA_HOPPER && k->hopper.gather > 1) ||
           (k->family == CUDA_MIXED && (k->mixed.gather > 1 || k->mixed.rest));
}

void cuda_candidate_valid(CudaCandidates *c, const CudaKernel *k)
{
    if (k->groups && shares_tiles(k)) {
        cuda_candidate_reject(c, k, "blocks that share a tile are not for groups of rows");
        return;
    }
    CudaCandidate candidate = {.kernel = *k};
    ARRAY_PUSH(c->arena, &c->list, candidate);
    c->num_valid++;
}

void cuda_candidate_reject(CudaCandidates *c, const CudaKernel *k, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, c->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    CudaCandidate candidate = {.kernel = *k, .reason = sb.text};
    ARRAY_PUSH(c->arena, &c->list, candidate);
}

/* That two blocks cannot have: what the hardware keeps beside the most for one, and barriers. */
#define BLOCK_BYTES 1536

/* Those of a cluster are of one group of processors, which are pairs: 8 of 14 to 18 where a GPU has
 * 132, five of them at least of 16 or more, where four clusters of four run. */
int64_t cuda_most_clusters(const CudaKernel *k, int blocks)
{
    int processors = k->gpu->processors, groups = processors * 2 / 33;
    if (blocks == 2)
        return processors / 2;
    return groups * (14 / blocks) + (blocks == 4 ? groups / 2 : 0);
}

bool cuda_always(const CudaKernel *k)
{
    (void)k;
    return true;
}

int64_t cuda_half_room(int64_t room)
{
    return room / 2 - BLOCK_BYTES;
}

int64_t cuda_half_bytes(const CudaKernel *k, int64_t bytes, int64_t tiles)
{
    int64_t most = cuda_smem(k->gpu) / 2 + BLOCK_BYTES;
    return bytes < most && tiles <= k->gpu->processors ? most : bytes;
}

void cuda_candidate_put(Sb *sb, const CudaKernel *k)
{
    sb_printf(sb, "%s ", cuda_family_name[k->family]);
    cuda_family[k->family]->put_numbers(sb, k);
}

/* Epilogues ------------------------------------------------------------------------------------ */

int64_t cuda_epilogue_group(const CudaKernel *k)
{
    int64_t most = 0;
    for (int i = 0; i < k->launch->num_segments; i++) {
        int64_t group = cuda_program_group(k, &k->launch->segment[i].epilogue);
        most = group > most ? group : most;
    }
    return most;
}

bool cuda_epilogue_fits(const CudaKernel *k, int64_t part_cols)
{
    if (part_cols * k->spec.parts >= k->packed.rows)
        return true;
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        int64_t group = cuda_program_group(k, &s->epilogue);
        if (cuda_program_needs_row(k, &s->epilogue) ||
            (group && (part_cols % group || s->n_begin % group)))
            return false;
    }
    return true;
}

bool cuda_is_chunked(const CudaKernel *k)
{
    return k->packed.exact && k->packed.home != CUDA_HOME_I8 &&
           (!k->packed.block_k || k->packed.block_k > 256);
}
