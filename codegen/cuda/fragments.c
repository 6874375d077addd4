/* Epilogues over sums as fragments of instructions have them: of two rows of the tile eight apart,
 * four lanes hold eight neighbours each of every 32 columns of each part. They stay in the
 * registers in which they were added up, or lie in shared memory as if they did (staged.cuh). */
#include "codegen/cuda/family.h"

#include <inttypes.h>

int64_t cuda_segment_end(const CudaKernel *k, const PlanSegment *s)
{
    return s->n_end == PLAN_LAST_COLUMN ? k->spec.n / k->spec.parts : s->n_end;
}

int cuda_fragment_columns(const CudaKernel *k, int64_t part)
{
    const PlanLaunch *l = k->launch;
    int64_t columns = 32;
    for (int i = 0; i < l->num_segments; i++) {
        int64_t group = cuda_program_group(k, &l->segment[i].epilogue);
        columns = group > columns ? group : columns;
    }
    if (columns % 32 || part % columns || columns > 128)
        return 0;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanSegment *s = &l->segment[i];
        int64_t group = cuda_program_group(k, &s->epilogue);
        bool open = s->n_end == PLAN_LAST_COLUMN;
        int64_t end = cuda_segment_end(k, s);
        if (s->n_begin % columns || end % 8 || (!open && end % columns) ||
            (group && columns % group) || cuda_program_needs_row(k, &s->epilogue) ||
            cuda_program_sums_codes(&s->epilogue))
            return 0;
    }
    return (int)columns;
}

bool cuda_in_segments(const CudaKernel *k, int64_t part)
{
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        if (s->n_begin % part || cuda_segment_end(k, s) % part)
            return false;
    }
    return true;
}

static void put_segment(Sb *sb, const CudaKernel *k, int i, int64_t columns, int64_t run,
                        const char *place)
{
    const PlanSegment *s = &k->launch->segment[i];
    int64_t begin = s->n_begin, end = cuda_segment_end(k, s);
    sb_line(sb, "    if (n0 >= %" PRId64 " && n0 < %" PRId64 ")", begin, end);
    sb_line(sb, "#pragma unroll");
    sb_line(sb, "        for (int i = 0; i < 2 * kRun / kCols; i++) {");
    sb_line(sb, "            const bool lower = i %% 2;");
    if (!cuda_program_loads(&s->epilogue)) { /* nothing to wait for: row by row */
        sb_line(sb, "            if (__all_sync(0xFFFFFFFFu, lower ? absent8 : absent))");
        sb_line(sb, "                continue;");
    }
    sb_line(sb, "            const int c = n0 + i / 2 * kCols - %" PRId64 ";", begin);
    sb_line(sb,
            "            const Row<RowShape<4, 8, %" PRId64 ", %s>> row = {lane, c, %s%" PRId64
            "%s, (int32_t *)%s,",
            columns / 4, (end - begin) % run ? "EDGE_RUNS" : "EDGE_NONE",
            run == columns ? "c + kCols < " : "", end - begin,
            run == columns ? arena_printf(sb->arena, " ? c + kCols : %" PRId64, end - begin) : "",
            place);
    sb_line(sb, "                lower ? absent8 : absent};");
    sb_line(
        sb,
        "            segment%d(p, a, row, lower ? m8 : m, acc.further(i / 2 * kCols, lower)%s);", i,
        CUDA_TOLD(k));
    sb_line(sb, "        }");
}

/* Rows are told by 32 bits: addresses of 64 that are multiplied take registers. */
static void put_rows(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "    const int first = (int)row, last = (int)rows - 1;");
    sb_line(sb, "    const bool absent = first > last, absent8 = first + 8 > last;");
    sb_line(sb, "    const int64_t m = (uint32_t)(absent ? last : first);");
    sb_line(sb, "    const int64_t m8 = (uint32_t)(absent8 ? last : first + 8);");
    if (cuda_finds_range(k))
        sb_line(sb, "    Told told = {};");
}

void cuda_put_fragments(Sb *sb, const CudaKernel *k, int columns, int64_t run, const char *place)
{
    sb_line(sb, "static constexpr bool kHeld = %s;", columns ? "true" : "false");
    if (!columns)
        return;
    cuda_put_int(sb, "kCols", columns);
    cuda_put_int(sb, "kRun", run);
    sb_line(sb, "template <class Sums> static __device__ __forceinline__ void held(");
    sb_line(sb,
            "    const Params &p, const Operand &a, const Sums &acc, int64_t row, int64_t rows, "
            "int n0,");
    sb_line(sb, "    int lane, char *place)");
    sb_line(sb, "{");
    put_rows(sb, k);
    for (int i = 0; i < k->launch->num_segments; i++)
        put_segment(sb, k, i, columns, run, place);
    cuda_emit_tell(sb, k);
    sb_line(sb, "}");
}

/* Half a run of 32 columns, as eight lanes would have all of it, of which four are here. */
void cuda_put_half_run(Sb *sb, const CudaKernel *k)
{
    sb_line(sb, "template <class Sums> static __device__ __forceinline__ void half(");
    sb_line(sb,
            "    const Params &p, const Operand &a, const Sums &acc, int64_t row, int64_t rows, "
            "int n0,");
    sb_line(sb, "    int fours)");
    sb_line(sb, "{");
    put_rows(sb, k);
    for (int i = 0; i < k->launch->num_segments; i++) {
        const PlanSegment *s = &k->launch->segment[i];
        int64_t begin = s->n_begin, end = cuda_segment_end(k, s);
        sb_line(sb, "    if (n0 >= %" PRId64 " && n0 < %" PRId64 ")", begin, end);
        sb_line(sb, "#pragma unroll");
        sb_line(sb, "        for (int lower = 0; lower < 2; lower++) {");
        sb_line(sb,
                "            const Row<RowShape<8, 4, 4, %s>> row = {fours, n0 - %" PRId64
                ", %" PRId64 ", NULL,",
                (end - begin) % 32 ? "EDGE_RUNS" : "EDGE_NONE", begin, end - begin);
        sb_line(sb, "                lower ? absent8 : absent};");
        sb_line(sb, "            segment%d(p, a, row, lower ? m8 : m, acc.further(0, lower)%s);", i,
                CUDA_TOLD(k));
        sb_line(sb, "        }");
    }
    cuda_emit_tell(sb, k);
    sb_line(sb, "}");
}
