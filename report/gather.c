/* What the compiler knows of a model, into one place; see report.h. Names of files stand without
 * their folders, so that a report says the same wherever its model lies. */
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "mlp.sinter:12:9", or "". */
static const char *place_text(const Work *w, Arena *arena, Span span)
{
    int line, column;
    if (!span.file || span.file > (uint32_t)w->diag.sources.num)
        return "";
    const Source *source = &w->diag.sources.elem[span.file - 1];
    source_position(source, span.start, &line, &column);
    return arena_printf(arena, "%s:%d:%d", base_name(source->name), line, column);
}

/* Layers --------------------------------------------------------------------------------------- */

static const char *format_reason(const Work *w, Arena *arena, const Op *matmul)
{
    const QuantSpec *spec = matmul->attr.quant;
    bool plain = !spec || (!spec->weight && !spec->act && spec->act_fmt == FMT_NONE);
    if (plain && !(spec && spec->keep))
        return "as declared: no rule speaks of its format";
    const char *what = spec->keep ? "keep" : spec->scheme_name ? spec->scheme_name : "its scheme";
    if (!spec->said.file)
        return arena_printf(arena, "%s, said at the layer, %s", what,
                            place_text(w, arena, matmul->span));
    return arena_printf(arena, "%s, by the rule at %s", what, place_text(w, arena, spec->said));
}

void report_layers(Work *w, void *report)
{
    Report *r = report;
    map_init(&r->layer_index, r->arena);
    for_each_op(op, &w->module->body) {
        const QuantSpec *spec = op->attr.quant;
        if (op->kind != OP_MATMUL || !op->attr.layer || map_has(&r->layer_index, op->attr.layer))
            continue;
        const Type *weight = op_in(op, 1)->type;
        ReportLayer layer = {
            .name = op->attr.layer,
            .scheme = spec ? spec->scheme_name : NULL,
            .by = !spec || !spec->weight ? NULL
                  : spec->by             ? spec->by
                                         : "rtn",
            .why = format_reason(w, r->arena, op),
            .experts = weight->rank == 3 ? weight->dim[0].add : 0,
            .n = weight->dim[weight->rank - 2].add,
            .k = weight->dim[weight->rank - 1].add,
        };
        ARRAY_PUSH(r->arena, &r->layers, layer);
        map_put(&r->layer_index, layer.name, (void *)(uintptr_t)r->layers.num);
    }
    ranges_collect(r->arena, w->module, &r->ranges);
}

/* The layer of this name is computed by a kernel, whose weight it shares by its rows: *rows come
 * before it. */
static void use_add(Report *r, const char *name, int kernel, int64_t *rows)
{
    int index = (int)(uintptr_t)map_get(&r->layer_index, name) - 1;
    if (index < 0)
        return;
    const ReportKernel *of = &r->kernels.elem[kernel];
    ReportNode *node = &r->node[of->node];
    ReportLayer *layer = &r->layers.elem[index];
    double each = of->n ? (double)of->bytes / (double)of->n : 0;
    if (!layer->kernels.num)
        layer->bytes = (uint64_t)llround(each * (double)(*rows + layer->n)) -
                       (uint64_t)llround(each * (double)*rows);
    *rows += layer->n;
    ARRAY_PUSH(r->arena, &layer->kernels, kernel);
    if (!node->layers.num || node->layers.elem[node->layers.num - 1] < index)
        ARRAY_PUSH(r->arena, &node->layers, index);
}

/* Kernels -------------------------------------------------------------------------------------- */

static const char *format_text(Arena *arena, const PlanTensor *t, bool is_act)
{
    Sb sb;
    sb_init(&sb, arena);
    plan_format_print(&sb, t, is_act);
    if (t->is_static)
        sb_put(&sb, " static");
    return sb.text;
}

static double *new_times(const Report *r)
{
    double *us = ARENA_NEW_ARRAY(r->arena, double, (size_t)r->buckets.num + 1);
    for (int b = 0; b < r->buckets.num; b++)
        us[b] = NAN;
    return us;
}

static void add_kernel(Report *r, const Module *m, const CodegenTarget *target, int index)
{
    const Plan *plan = target->plan;
    const PlanLaunch *l = &plan->launch[index];
    const char *slash = strrchr(l->place, '/');
    ReportKernel kernel = {.layer = l->layer,
                           .family = launch_family_name[l->family],
                           .place = slash ? slash + 1 : l->place,
                           .absorbed = l->absorbed,
                           .node = (int)target->launch_kernels.elem[index]->mark,
                           .us = new_times(r)};
    if (l->family == LAUNCH_GEMM) {
        const PlanTensor *a = &plan->tensor[l->a];
        const PlanTensor *w = &plan->tensor[plan_stored_weight(plan, l->w)];
        kernel.act = format_text(r->arena, a, true);
        kernel.weight = format_text(r->arena, w, false);
        kernel.n = w->packed ? w->pack_spec.n : 0;
        kernel.k = w->packed ? w->pack_spec.k : 0;
        kernel.bytes = w->packed ? w->bytes : 0;
    }
    ARRAY_PUSH(r->arena, &r->kernels, kernel);
    ARRAY_PUSH(r->arena, &r->node[kernel.node].kernels, index);
    LayerNames layers = module_layers(m, &l->layer);
    int64_t rows = 0;
    for (int i = 0; i < layers.num && l->family == LAUNCH_GEMM; i++)
        use_add(r, layers.name[i], index, &rows);
}

static void add_stops(Report *r, Work *w, const CodegenTarget *target)
{
    for (int i = 0; i < target->plan->num_launches; i++) {
        const Op *kernel = target->launch_kernels.elem[i];
        bool is_last =
            i + 1 == target->plan->num_launches || target->launch_kernels.elem[i + 1] != kernel;
        for (int k = 0; k < w->passes.fusion_notes.num && is_last; k++) {
            const FusionNote *note = &w->passes.fusion_notes.elem[k];
            const char *why = note->kernel == kernel ? fusion_stop(note) : NULL;
            ReportStop stop = {i, place_text(w, r->arena, note->span), why};
            if (why)
                ARRAY_PUSH(r->arena, &r->stops, stop);
        }
    }
}

static const char *bucket_name(Arena *arena, const Plan *plan, int bucket)
{
    Sb sb;
    sb_init(&sb, arena);
    for (int i = 0; i < plan->num_syms; i++)
        sb_printf(&sb, "%s%s = %lld", i ? ", " : "", plan->sym[i].name,
                  (long long)plan_bucket(plan, bucket)[i]);
    return plan->num_syms ? sb.text : "fixed sizes";
}

/* Does the bucket have all sizes that --bucket names? */
static bool bucket_wanted(const Work *w, const Plan *plan, int bucket)
{
    const Cli *cli = w->cli;
    for (int i = 0; i < cli->value[OPTION_BUCKET].num; i++) {
        const char *name = cli->value[OPTION_BUCKET].elem[i]; /* "B=16" */
        size_t len = strcspn(name, "=");
        bool found = false;
        for (int s = 0; s < plan->num_syms; s++)
            found = found ||
                    (strlen(plan->sym[s].name) == len && !strncmp(plan->sym[s].name, name, len) &&
                     plan_bucket(plan, bucket)[s] == strtoll(name + len + 1, NULL, 10));
        if (!found)
            return false;
    }
    return true;
}

static bool add_buckets(Report *r, Work *w, const Plan *plan)
{
    for (int b = 0; b < plan->num_buckets; b++) {
        ReportBucket bucket = {bucket_name(r->arena, plan, b), b, plan->arena_bytes[b], NAN};
        if (bucket_wanted(w, plan, b))
            ARRAY_PUSH(r->arena, &r->buckets, bucket);
    }
    r->shown = r->buckets.num - 1;
    if (r->buckets.num)
        return true;
    diag_error(&w->diag, (Span){0}, E_USAGE, "the model has no bucket of --bucket %s",
               cli_get(w->cli, OPTION_BUCKET, ""));
    for (int b = 0; b < plan->num_buckets; b++)
        diag_note(&w->diag, (Span){0}, "there is %s", bucket_name(w->arena, plan, b));
    return false;
}

/* The rest ------------------------------------------------------------------------------------- */

static bool same_pick(const CudaChoice *a, const CudaChoice *b)
{
    return a->text && b->text && !strcmp(a->text, b->text) && !strcmp(a->rejected, b->rejected) &&
           !strcmp(a->apart.text ? a->apart.text : "", b->apart.text ? b->apart.text : "") &&
           !(a->us < b->us || a->us > b->us) && a->source == b->source;
}

static ReportPick make_pick(const Report *r, const Work *w, const CudaTarget *t, int launch,
                            const CudaChoice *choice)
{
    const PlanLaunch *l = &t->target.plan->launch[launch];
    return (ReportPick){.launch = launch,
                        .layer = l->layer,
                        .absorbed = l->absorbed,
                        .text = choice->text,
                        .source = timing_source_name[choice->source],
                        .rejected = choice->rejected,
                        .us = choice->us,
                        .roofline = cuda_roofline_holds(t->gpu, choice->source)
                                        ? choice->floor_us / choice->us
                                        : NAN,
                        .apart = choice->apart.text,
                        .apart_place = place_text(w, r->arena, choice->apart.at),
                        .remedy = choice->apart.remedy};
}

static void add_fusion(Report *r, const Work *w)
{
    for (int i = -1; i < w->num_gpus; i++) {
        const CudaTarget *cuda = i < 0 ? NULL : &w->gpu[i].cuda;
        const CodegenTarget *target = cuda ? &cuda->target : &w->cpu;
        for (int b = 0; (cuda || w->has_cpu) && b < target->plan->num_buckets; b++) {
            ReportFusion fusion = {target->plan->target, bucket_name(r->arena, target->plan, b),
                                   cuda ? cuda_fusion_share(cuda, r->arena, b)
                                        : codegen_fusion_share(target, r->arena, b)};
            ARRAY_PUSH(r->arena, &r->fusion, fusion);
        }
    }
}

static void add_picks(Report *r, const Work *w, const CudaTarget *t)
{
    const Plan *plan = t->target.plan;
    for (int i = 0; i < plan->num_launches; i++)
        for (int b = 0; b < plan->num_buckets; b++) {
            const CudaChoice *choice = &t->choice[i * plan->num_buckets + b];
            if (!choice->text)
                continue;
            const char *buckets = bucket_name(r->arena, plan, b);
            for (; b + 1 < plan->num_buckets && same_pick(choice, choice + 1); choice++, b++)
                buckets =
                    arena_printf(r->arena, "%s; %s", buckets, bucket_name(r->arena, plan, b + 1));
            ReportPick pick = make_pick(r, w, t, i, choice);
            pick.buckets = buckets;
            ARRAY_PUSH(r->arena, &r->picks, pick);
        }
}

/* Each with what belongs to it, a line each. */
void report_warnings(Report *r, const Work *w)
{
    for (const DiagMessage *m = w->diag.first; m; m = m->next) {
        Sb sb;
        if (m->severity != SEVERITY_WARNING)
            continue;
        sb_init(&sb, r->arena);
        sb_put(&sb, m->text);
        for (const DiagMessage *child = m->child; child; child = child->next)
            sb_printf(&sb, "\n%s", child->text);
        ReportWarning warning = {error_info[m->id].code, place_text(w, r->arena, m->span), sb.text};
        ARRAY_PUSH(r->arena, &r->warnings, warning);
    }
}

/* What makes the file this model and no other: its texts, plans, weights and code. */
static bool add_sections(Report *r, Work *w, const char *program)
{
    static const char *const kind[] = {[SECTION_SOURCE] = "source",
                                       [SECTION_PLAN] = "plan",
                                       [SECTION_WEIGHTS] = "weights",
                                       [SECTION_CODE] = "code"};
    Artifact a;
    IoError err;
    if (!artifact_open(program, false, &a, &err)) {
        work_io_error(w, &err);
        return false;
    }
    for (int i = 0; i < a.num_sections; i++) {
        const Section *s = &a.section[i];
        if ((size_t)s->kind >= COUNT_OF(kind) || !kind[s->kind])
            continue;
        ReportSection section = {kind[s->kind], arena_strdup(r->arena, s->name),
                                 arena_printf(r->arena, "%016llx%016llx",
                                              (unsigned long long)s->hash[1],
                                              (unsigned long long)s->hash[0]),
                                 s->size};
        ARRAY_PUSH(r->arena, &r->sections, section);
    }
    artifact_close(&a);
    return true;
}

static void add_ports(Report *r, const Module *m)
{
    for_each_op(op, &m->body) {
        if (op->kind != OP_INPUT && op->kind != OP_OUTPUT)
            continue;
        const Type *type = op->kind == OP_INPUT ? op_out(op)->type : op_in(op, 0)->type;
        const char *text = arena_printf(r->arena, "%s %s: %s", op_info[op->kind].name, op->name,
                                        type_text(r->arena, type));
        ARRAY_PUSH(r->arena, &r->ports, text);
    }
}

bool report_gather(Report *r, Work *w, const char *program)
{
    bool on_gpu = w->num_gpus && work_on_gpu(w);
    const CodegenTarget *target = on_gpu ? &w->gpu[0].cuda.target : &w->cpu;
    r->model = w->module->name;
    r->source = base_name(w->path);
    r->target = target->plan->target;
    r->weight_bytes = plan_weight_bytes(target->plan);
    if (!add_buckets(r, w, target->plan) || !add_sections(r, w, program))
        return false;
    add_ports(r, w->module);
    graph_build(&r->graph, r->arena, w->module); /* numbers the ops */
    r->node = ARENA_NEW_ARRAY(r->arena, ReportNode, (size_t)r->graph.nodes.num + 1);
    for (int i = 0; i < target->plan->num_launches; i++)
        add_kernel(r, w->module, target, i);
    add_stops(r, w, target);
    for (int i = 0; i < w->num_gpus; i++)
        add_picks(r, w, &w->gpu[i].cuda);
    add_fusion(r, w);
    return true;
}

/* Looking things up ---------------------------------------------------------------------------- */

const CompareRow *report_errors(const Report *r, const char *name)
{
    for (int i = 0; r->errors && i < r->errors->rows.num; i++)
        if (!strcmp(r->errors->rows.elem[i].name, name))
            return &r->errors->rows.elem[i];
    return NULL;
}

double report_us(const Report *r, int num, const int *kernel, int bucket)
{
    double sum = NAN;
    for (int i = 0; i < (kernel ? num : r->kernels.num); i++) {
        double us = r->kernels.elem[kernel ? kernel[i] : i].us[bucket];
        if (!isnan(us))
            sum = (isnan(sum) ? 0 : sum) + us;
    }
    return sum;
}
