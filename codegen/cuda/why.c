/* codegen/cuda/why: the parts that a kernel of the IR comes apart into on a GPU, and why. */
#include "codegen/cuda/why.h"
#include "codegen/build.h"
#include "codegen/cuda/choose.h"

#include <string.h>

/* Parts of a kernel ---------------------------------------------------------------------------- */

/* The operations of a kernel that its matmul's first operand needs are marked 1. */
static void mark_prologue(Arena *arena, const Op *kernel, PtrMap *ret)
{
    ptrmap_init(ret, arena);
    for (const Op *op = kernel->body->last; op; op = op->prev) {
        bool feeds = ptrmap_get(ret, op);
        for (int i = 0; i < (op->kind == OP_MATMUL ? 1 : feeds ? op->num_in : 0); i++)
            ptrmap_put(ret, op->in[i].value->def, 1);
    }
}

KernelPart kernel_part(Arena *arena, const Op *kernel, bool before, int left_out)
{
    PtrMap needed;
    Sb sb;
    KernelPart ret = {0};
    int num = 0;
    sb_init(&sb, arena);
    mark_prologue(arena, kernel, &needed);
    for_each_op(op, kernel->body)
        num += op->kind == OP_QUANTIZE && !ptrmap_get(&needed, op);
    for_each_op(op, kernel->body) {
        bool feeds = ptrmap_get(&needed, op);
        bool is_out = op->kind == OP_QUANTIZE && !feeds && num-- <= left_out;
        if (op->kind == OP_ARG || op->kind == OP_YIELD || feeds != before || is_out)
            continue;
        sb_printf(&sb, "%s%s", sb.len ? " " : "", op_info[op->kind].name);
        ret.at = ret.num_ops++ ? ret.at : op->span;
    }
    ret.words = sb.text;
    return ret;
}

/* The place of the last quantisation but `behind` of a kernel. */
Span kernel_quantise_span(const Op *kernel, int behind)
{
    for (const Op *op = kernel->body->last; op; op = op->prev)
        if (op->kind == OP_QUANTIZE && behind-- == 0)
            return op->span;
    return kernel->span;
}

/* Why a dynamic quantisation whose blocks span rows takes launches of its own. */
CudaApartWhy cuda_span_why(Arena *arena, const PlanTensor *t, bool found, Span at)
{
    int64_t rows = t->scheme.block[0];
    const char *of = t->scheme.outer ? "the outer scale is of the whole tensor"
                     : rows == 0     ? "one range is of the whole tensor"
                                 : arena_printf(arena, "a range is of %lld rows", (long long)rows);
    return (CudaApartWhy){
        .text = arena_printf(arena,
                             "%s, whose blocks run in any order: %s quantises, and one before the "
                             "first clears those of all",
                             of,
                             found ? "the product that stores it finds the range, a launch"
                                   : "a launch finds the ranges, another"),
        .remedy = t->scheme.outer ? "a static outer scale, from calibration data, would take one"
                                  : "static ranges, or dynamic ones of a row each, would take one",
        .at = at};
}

/* Columns of each part of a product that its widest tile holds. */
static int64_t tile_cols(int parts)
{
    return CUDA_TILE_COLS / (parts > 1 ? parts : 1);
}

/* The result of a product that a kernel does nothing with but quantise it, a range a row, before
 * its own product; NULL: there is none. */
static const Value *quantised_for(const Op *kernel, const KernelPart *before, const Scheme **ret)
{
    const Op *op = kernel->body->first, *arg;
    int index = 0;
    while (op->kind != OP_QUANTIZE && op->next)
        op = op->next;
    if (before->num_ops != 1 || op->kind != OP_QUANTIZE || op->num_in > 1)
        return NULL;
    *ret = op->out[0].type->scheme;
    arg = op->in[0].value->def;
    for (const Op *at = kernel->body->first; at != arg && at; at = at->next)
        index++;
    if (arg->kind != OP_ARG || (*ret)->block[0] != 1 || (*ret)->outer)
        return NULL;
    const Value *made = kernel->in[index].value;
    for (op = made->def->body ? made->def->body->first : NULL; op; op = op->next)
        if (op->kind == OP_MATMUL)
            return made;
    return NULL;
}

/* What the reason of a prologue begins with, where the schedule says the rest. */
CudaApartWhy cuda_prologue_why(Arena *arena, const Plan *list, const PlanLaunch *l, const Op *op,
                               const KernelPart *before)
{
    CudaApartWhy ret = {.at = before->at};
    const Scheme *scheme;
    int64_t k = list->tensor[l->w].packed ? list->tensor[l->w].pack_spec.k : 0;
    const Value *made = quantised_for(op, before, &scheme);
    if (!made)
        return ret;
    int64_t group = scheme->block[1] && scheme->block[1] < k ? scheme->block[1] : k;
    if (group <= tile_cols(2))
        return ret;
    ret.text = arena_printf(arena,
                            "a group of %lld columns does not lie inside a tile of %lld of what "
                            "makes them",
                            (long long)group, (long long)tile_cols(2));
    ret.remedy = arena_printf(
        arena, "static ranges or groups of at most %lld would%s", (long long)tile_cols(2),
        made->type->fmt == FMT_F32 ? "; a cast to bf16 would halve the bytes between the two" : "");
    return ret;
}

/* Why a copy comes before the product. */
CudaApartWhy cuda_copy_why(Arena *arena, const Plan *list, const PlanLaunch *l, const Op *op)
{
    const PlanTensor *a = &list->tensor[l->a];
    int multiple = 16 * 8 / format_info[a->fmt].bits;
    return (CudaApartWhy){
        .text = arena_printf(arena,
                             "rows of its input, of %lld columns in %s, do not start at multiples "
                             "of 16 bytes, where tensor cores read",
                             (long long)list->tensor[l->w].pack_spec.k, format_info[a->fmt].name),
        .remedy = arena_printf(arena,
                               "a row and a beginning at multiples of %d columns would be read in "
                               "place",
                               multiple),
        .at = op->span};
}

/* Where its last product stands. */
static Span product_span(const Op *kernel)
{
    Span at = kernel->span;
    for (const Op *op = kernel->body ? kernel->body->first : NULL; op; op = op->next)
        if (op->kind == OP_MATMUL)
            at = op->span;
    return at;
}

/* Of a launch that --decode-weights decides about; why it is faster, unless it was asked for. */
static CudaApartWhy ahead_why(Arena *arena, const char *what, const char *faster, const Op *kernel,
                              bool asked)
{
    return (CudaApartWhy){.text = asked ? what : arena_printf(arena, "%s%s", what, faster),
                          .remedy = "--decode-weights=never would do without",
                          .at = product_span(kernel)};
}

CudaApartWhy cuda_decode_why(Arena *arena, const PlanTensor *to, const Op *kernel, bool asked)
{
    const char *what = arena_printf(arena, "the weight is decoded once, to %.0f MB in %s",
                                    (double)to->bytes / 1e6, format_info[to->fmt].name);
    return ahead_why(arena, what, ", which is faster for so many rows than in every tile", kernel,
                     asked);
}

CudaApartWhy cuda_hold_why(Arena *arena, const PlanTensor *from, const Op *kernel, bool asked)
{
    const char *what = arena_printf(
        arena,
        "its input, codes in %s times their scales, is held in bf16, which holds them exactly",
        format_info[from->fmt].name);
    return ahead_why(arena, what,
                     ": for so many rows that is faster than scaling the sums of each block of K",
                     kernel, asked);
}

/* Why a dynamic quantisation of the product's results is a launch of its own. */
CudaApartWhy cuda_group_why(Arena *arena, const Plan *list, const PlanLaunch *l,
                            const CudaApart *apart, Span at)
{
    const PlanTensor *t = &list->tensor[apart->like];
    int64_t cols = tile_cols(list->tensor[l->w].pack_spec.parts);
    int64_t group = t->scheme.block[1];
    PlanLayout layout;
    CudaApartWhy ret = {.at = at};
    if (plan_tensor_layout(t, plan_bucket(list, 0), &layout) && (!group || group > layout.cols))
        group = layout.cols;
    ret.text = arena_printf(arena, "a group of %lld columns does not lie inside a tile of %lld",
                            (long long)group, (long long)cols);
    ret.remedy =
        arena_printf(arena, "static ranges or groups of at most %lld would", (long long)cols);
    return ret;
}

void cuda_say_no_kernel(Diag *diag, Arena *arena, const CudaDraft *d, int launch, int bucket,
                        const Op *kernel, const char *problem, const char *rejected)
{
    Sb size;
    sb_init(&size, arena);
    plan_bucket_print(&size, d->plan, bucket);
    diag_error(diag, product_span(kernel), E_KERNEL, "%s: %s on %s%s%s",
               d->plan->launch[launch].layer, problem, d->options->gpu->name,
               size.len ? " at " : "", size.text);
    for (const char *line = rejected, *end; line && (end = strchr(line, '\n')); line = end + 1)
        diag_note(diag, (Span){0}, "%.*s", (int)(end - line), line);
    if (d->plan->launch[launch].family == LAUNCH_GEMM)
        diag_help(diag, "scales of larger groups take less of a block's shared memory, activations "
                        "of fewer bits too");
}
