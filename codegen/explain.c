/* codegen/explain: what became of the model, for people: each launch with the operations that it
 * absorbed and its weight, and why each chain of operations stopped. */
#include "codegen/codegen.h"

#include <string.h>

const char *fusion_stop(const FusionNote *note)
{
    static const char *const families[] = {"gemm:", "tile:", "move:", "route:"};
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (strncmp(note->text, families[i], strlen(families[i])) == 0)
            return NULL;
    return note->text;
}

/* Several operations at one place may stop for one reason. */
static bool is_told(const PassContext *ctx, int first, int index, const char *why)
{
    const FusionNote *note = &ctx->fusion_notes.elem[index];
    for (int i = first; i < index; i++) {
        const FusionNote *other = &ctx->fusion_notes.elem[i];
        const char *text = fusion_stop(other);
        if (text && !strcmp(text, why) && other->span.file == note->span.file &&
            other->span.start == note->span.start && other->span.end == note->span.end)
            return true;
    }
    return false;
}

/* Notes of a kernel lie together, and kernels mostly come in the order of their notes: the search
 * begins where the last one ended. */
void explain_stops(Sb *sb, const Module *m, const PassContext *ctx, const Op *kernel, int *ret_at)
{
    const FusionNote *note = ctx->fusion_notes.elem;
    int num = ctx->fusion_notes.num, first = num ? *ret_at % num : 0;
    for (int left = num; left > 0 && note[first].kernel != kernel; left--)
        first = (first + 1) % num;
    int at = first;
    for (; at < num && note[at].kernel == kernel; at++) {
        const char *why = fusion_stop(&note[at]);
        if (!why || is_told(ctx, first, at, why))
            continue;
        sb_printf(sb, "    stopped");
        if (note[at].span.file)
            sb_printf(sb, " at %s", span_text(m->diag, note[at].span));
        sb_printf(sb, ": %s\n", why);
    }
    *ret_at = at;
}

void plan_format_print(Sb *sb, const PlanTensor *t, bool is_act)
{
    if (t->quantised)
        scheme_print(sb, &t->scheme, is_act);
    else
        sb_put(sb, format_info[t->fmt].name);
}

/* What becomes of codes that fill neither a nibble nor a byte. */
static void put_narrow(Sb *sb, FormatId fmt)
{
    sb_printf(sb, ", codes in a stream of %d bit%s: slower than %s", format_info[fmt].bits,
              format_info[fmt].bits == 1 ? "" : "s", format_info[num_holder((int)fmt)].name);
}

/* How the codes of a codebook are looked up. */
static void put_codebook(Sb *sb, const CpuPackSpec *spec)
{
    bool one = spec->table == TABLE_TENSOR && format_held_bits(spec->fmt) == 4;
    sb_put(sb, one ? ", codes looked up as those of nf4"
                   : ", codes looked up one by one: slower than nf4");
}

static void put_launch(Sb *sb, const Plan *plan, int index)
{
    const PlanLaunch *l = &plan->launch[index];
    sb_printf(sb, "%3d  %-4s  %s", index, launch_family_name[l->family], l->layer);
    if (l->place[0])
        sb_printf(sb, "  (%s)", l->place);
    sb_printf(sb, "\n    %s\n", l->absorbed);
    if (l->family != LAUNCH_GEMM)
        return;
    const PlanTensor *a = &plan->tensor[l->a], *w = &plan->tensor[l->w];
    sb_put(sb, "    activation ");
    plan_format_print(sb, a, true);
    sb_put(sb, ", weight ");
    plan_format_print(sb, w, false);
    if (w->packed && w->groups)
        sb_printf(sb, " [%lld, ", (long long)w->groups);
    if (w->packed)
        sb_printf(sb, "%s%lld, %lld], %llu bytes packed%s", w->groups ? "" : " [",
                  (long long)w->pack_spec.n, (long long)w->pack_spec.k,
                  (unsigned long long)w->bytes,
                  w->pack_spec.mainloop ? ", scales in the main loop" : "");
    if (w->packed && plan_is_factored(plan, &w->pack_spec))
        sb_put(sb, ", held as u4, whole scales");
    if (w->packed && format_is_narrow(w->fmt))
        put_narrow(sb, w->fmt);
    if (w->packed && w->pack_spec.table)
        put_codebook(sb, &w->pack_spec);
    if (l->num_segments > 1)
        sb_printf(sb, ", %d ranges of columns", l->num_segments);
    sb_putc(sb, '\n');
}

/* Weights whose codes are a checkpoint's own. */
static void put_stored(Sb *sb, const Module *m)
{
    for_each_op(op, &m->body) {
        if (op->kind != OP_CONST || !op->constant->reader || !op->out[0].type->scheme)
            continue;
        sb_printf(sb, "stored  %s  ", op->constant->name);
        scheme_print(sb, op->out[0].type->scheme, false);
        sb_putc(sb, '\n');
    }
}

void codegen_explain(Sb *sb, const Module *m, const PassContext *ctx, const CodegenTarget *target)
{
    const Plan *plan = target->plan;
    sb_printf(sb, "%d kernel%s for %s, ", plan->num_launches, plan->num_launches == 1 ? "" : "s",
              plan->target);
    plan_put_weight_bytes(sb, plan);
    sb_putc(sb, '\n');
    for (int b = 0; b < plan->num_buckets; b++) {
        sb_put(sb, "bucket");
        for (int i = 0; i < plan->num_syms; i++)
            sb_printf(sb, " %s = %lld", plan->sym[i].name, (long long)plan_bucket(plan, b)[i]);
        sb_printf(sb, "%s%llu bytes of activations\n", plan->num_syms ? ": " : " ",
                  (unsigned long long)plan->arena_bytes[b]);
    }
    for (int i = 0, at = 0; i < plan->num_launches; i++) {
        put_launch(sb, plan, i);
        const Op *kernel = target->launch_kernels.elem[i];
        bool is_last = i + 1 == plan->num_launches || target->launch_kernels.elem[i + 1] != kernel;
        if (is_last)
            explain_stops(sb, m, ctx, kernel, &at);
    }
    for (int b = 0; b < plan->num_buckets; b++) {
        FusionShare c = codegen_fusion_share(target, sb->arena, b);
        sb_printf(sb, "fusion on %s%s", plan->target, plan->num_syms ? ", " : "");
        plan_bucket_print(sb, plan, b);
        sb_put(sb, ": ");
        fusion_share_print(sb, &c);
        sb_putc(sb, '\n');
    }
    put_stored(sb, m);
}
