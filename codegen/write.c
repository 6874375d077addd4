/* codegen/write: the compiled file. Constants are evaluated, packed and written in the order of the
 * plan, a group at a time, so memory stays bounded by the largest group. Same inputs, same bytes.
 */
#include "codegen/codegen.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GROUP (2 * PLAN_MAX_OPERANDS) /* values of one group */

typedef struct Writer {
    Module *m;
    const WriteTarget *target; /* [num_targets] */
    int num_targets;
    Placement placement;
    const WriteOptions *options;
    ArtifactWriter *out;
    const Value *value[MAX_GROUP]; /* of the group at hand */
    Tensor tensor[MAX_GROUP];
    int num;
} Writer;

static const PlanTensor *tensor_of(const PlacedConst *c)
{
    return &c->target->plan->tensor[c->what->tensor];
}

static bool write_fail(Writer *w, const PlacedConst *c, const char *why)
{
    diag_error(w->m->diag, c->what->value->def->span, E_KERNEL, "constant '%s': %s",
               tensor_of(c)->name, why);
    return false;
}

/* Evaluating ----------------------------------------------------------------------------------- */

static const Tensor *group_find(const Writer *w, const Value *value)
{
    for (int i = 0; i < w->num; i++)
        if (w->value[i] == value)
            return &w->tensor[i];
    return NULL;
}

static void group_add(Writer *w, const Value *value)
{
    if (value && !group_find(w, value) && w->num < MAX_GROUP)
        w->value[w->num++] = value;
}

static void group_free(Writer *w)
{
    for (int i = 0; i < w->num; i++) {
        weights_forget(w->m->weights, tensor_elements(&w->tensor[i]));
        tensor_free(&w->tensor[i]);
    }
    w->num = 0;
}

/* The constants from `first` on that belong together, as many as there is room for their values;
 * returns the index behind the last. */
static int group_begin(Writer *w, int first)
{
    const PlacedConst *c = w->placement.consts.elem;
    int end = first;
    w->num = 0;
    memset(w->tensor, 0, sizeof w->tensor);
    for (; end < w->placement.consts.num && w->num + 2 <= MAX_GROUP; end++) {
        if (c[end].what->group != c[first].what->group)
            break;
        group_add(w, c[end].what->value);
        group_add(w, c[end].what->zero);
    }
    return end;
}

static bool group_evaluate(Writer *w, int first)
{
    const char *why = "";
    return eval_constants(w->m, w->num, w->value, w->tensor, &why) ||
           write_fail(w, &w->placement.consts.elem[first], why);
}

/* Writing -------------------------------------------------------------------------------------- */

/* The values of codes that are numbers, less the zero point, in the tables that rows of bits have.
 */
static float *tables_of(const CudaPackSpec *spec, const Tensor *t)
{
    int64_t entries = spec->table == TABLE_BLOCK ? t->q.row_blocks * t->q.col_blocks : 1;
    int codes = 1 << format_info[spec->fmt].bits;
    float *ret = calloc((size_t)entries, (size_t)codes * sizeof *ret);
    if (!ret)
        memory_exhausted();
    for (int64_t i = 0; i < entries; i++)
        for (int c = 0; c < codes; c++)
            ret[i * codes + c] = num_decode((int)spec->fmt, (unsigned)c) -
                                 (spec->table == TABLE_BLOCK ? (float)t->q.zero[i] : 0);
    return ret;
}

static void pack_for_cuda(const CpuPackSpec *spec, const Tensor *t, uint64_t bytes, void *packed)
{
    CudaPackSpec cuda = plan_cuda_spec(spec);
    CudaParams params = {t->q.scale, t->q.zero, t->q.table};
    memset(packed, 0, (size_t)bytes);
    float *own = cuda.table && !spec->table ? tables_of(&cuda, t) : NULL;
    params.table = own ? own : params.table;
    if (t->q.codes)
        cuda_pack(&cuda, t->q.codes, (int64_t)t->q.row_bytes, &params, packed);
    else
        cuda_pack(&cuda, t->data, spec->k * format_info[t->fmt].bits / 8, &(CudaParams){0}, packed);
    free(own);
}

static void pack(const Plan *plan, const CpuPackSpec *spec, const Tensor *t, uint64_t bytes,
                 void *packed)
{
    if (plan_is_cuda(plan))
        pack_for_cuda(spec, t, bytes, packed);
    else if (t->q.codes)
        cpu_pack(spec, t->q.codes, (int64_t)t->q.row_bytes, t->q.scale, t->q.zero, t->q.table,
                 packed);
    else
        cpu_pack(spec, t->data, spec->k * format_info[t->fmt].bits / 8, NULL, NULL, NULL, packed);
}

static void pack_factored(const Plan *plan, const CpuPackSpec *spec, const Tensor *t,
                          uint64_t bytes, void *packed)
{
    Tensor narrow = *t;
    if (!qtensor_narrow(&t->q, spec->factor_cols, &narrow.q))
        memory_exhausted();
    pack(plan, spec, &narrow, bytes, packed);
    qtensor_free(&narrow.q);
}

/* The rows that are one group's weight, as a matrix of their own, which borrows the data. */
static Tensor group_of(const Tensor *t, const CpuPackSpec *spec, int64_t group)
{
    Tensor ret = *t;
    int64_t first = group * spec->n;
    ret.owned = false;
    ret.rank = 2;
    ret.dim[0] = spec->n;
    ret.dim[1] = spec->k;
    if (t->q.codes)
        ret.q = qtensor_rows(&t->q, first, spec->n);
    else
        ret.data = (uint8_t *)t->data + first * spec->k * format_info[t->fmt].bits / 8;
    return ret;
}

static bool write_packed(Writer *w, const PlacedConst *c, const Tensor *t)
{
    const PlanTensor *p = tensor_of(c);
    const CpuPackSpec *spec = &p->pack_spec;
    uint64_t size, groups = p->groups ? (uint64_t)p->groups : 1, bytes = p->bytes / groups;
    void *packed =
        checked_align(p->bytes, 64, &size) ? aligned_alloc(64, (size_t)(size ? size : 64)) : NULL;
    if (!packed)
        memory_exhausted();
    if (p->groups) /* what lies between them */
        memset(packed, 0, (size_t)p->bytes);
    for (uint64_t g = 0; g < groups; g++) {
        const Tensor one = p->groups ? group_of(t, spec, (int64_t)g) : *t;
        (plan_is_factored(c->target->plan, spec) ? pack_factored : pack)(
            c->target->plan, spec, &one, bytes, (uint8_t *)packed + g * bytes);
    }
    bool ok = artifact_write(w->out, packed, p->bytes);
    free(packed);
    return ok;
}

/* The layout of plan_tensor_layout: scales, then zero points, each from a multiple of 64 on. One
 * number stands for all blocks. */
static bool write_params(Writer *w, const PlacedConst *c)
{
    const Plan *plan = c->target->plan;
    const PlanTensor *of = &plan->tensor[c->what->params_of], *p = tensor_of(c);
    const Tensor *scale = group_find(w, c->what->value);
    const Tensor *zero = c->what->zero ? group_find(w, c->what->zero) : NULL;
    PlanLayout layout;
    uint8_t *bytes = calloc(1, (size_t)p->bytes);
    if (!bytes || !plan_tensor_layout(of, plan->bucket_size, &layout))
        memory_exhausted();
    uint64_t blocks = (uint64_t)(scheme_row_blocks(&of->scheme, layout.rows) *
                                 scheme_col_blocks(&of->scheme, layout.cols));
    uint64_t num = tensor_elements(scale);
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t from = num == blocks ? i : 0;
        memcpy(bytes + layout.scale_at + 4 * i, (const float *)scale->data + from, 4);
        if (zero)
            memcpy(bytes + layout.zero_at + 4 * i, (const int32_t *)zero->data + from, 4);
    }
    bool ok = artifact_write(w->out, bytes, p->bytes);
    free(bytes);
    return ok;
}

static bool write_const(Writer *w, const PlacedConst *c)
{
    const PlanTensor *p = tensor_of(c);
    artifact_align(w->out, w->placement.align);
    if (artifact_offset(w->out) != c->offset)
        BUG("constant '%s' is written at %llu, planned at %llu", p->name,
            (unsigned long long)artifact_offset(w->out), (unsigned long long)c->offset);
    if (c->what->params_of >= 0)
        return write_params(w, c);
    const Tensor *t = group_find(w, c->what->value);
    if (p->packed)
        return write_packed(w, c, t);
    if (t->fmt != p->fmt || t->bytes != p->bytes)
        BUG("constant '%s' is %s of %llu bytes, planned %s of %llu", p->name,
            format_info[t->fmt].name, (unsigned long long)t->bytes, format_info[p->fmt].name,
            (unsigned long long)p->bytes);
    return artifact_write(w->out, t->data, t->bytes);
}

static void progress(const Writer *w, double done, const char *what)
{
    if (w->options->progress)
        w->options->progress(w->options->user, done, what);
}

static bool write_weights(Writer *w)
{
    const PlacedConst *c = w->placement.consts.elem;
    bool ok = true;
    artifact_section_begin(w->out, SECTION_WEIGHTS, "");
    for (int i = 0, end; ok && i < w->placement.consts.num; i = end) {
        end = group_begin(w, i);
        progress(w, (double)c[i].offset / (double)w->placement.bytes, tensor_of(&c[i])->name);
        ok = group_evaluate(w, i);
        for (int k = i; ok && k < end; k++)
            ok = write_const(w, &c[k]);
        group_free(w);
    }
    artifact_section_end(w->out);
    return ok;
}

static void write_section(Writer *w, SectionKind kind, const char *name, const void *data,
                          uint64_t size)
{
    artifact_section_begin(w->out, kind, name);
    artifact_write(w->out, data, size);
    artifact_section_end(w->out);
}

static bool write_bytes(Writer *w, SectionKind kind, const char *name, bool ok, Bytes *bytes)
{
    if (ok)
        write_section(w, kind, name, bytes->data, bytes->size);
    else
        diag_error(w->m->diag, (Span){0}, E_MEMORY, "memory is exhausted while writing the plan");
    bytes_free(bytes);
    return ok;
}

/* The plan of a target, and its code where it has some. */
static bool write_target(Writer *w, const WriteTarget *t)
{
    Bytes bytes = {0};
    const Plan *plan = t->target->plan;
    bool ok = plan_encode(plan, &bytes);
    if (!write_bytes(w, SECTION_PLAN, plan->target, ok, &bytes) || !t->code)
        return ok;
    ok = device_code_encode(t->code, &bytes);
    return write_bytes(w, SECTION_CODE, plan->target, ok, &bytes);
}

static bool write_sections(Writer *w)
{
    const WriteOptions *o = w->options;
    Sb meta;
    sb_init(&meta, w->m->arena);
    sb_printf(&meta, "model = %s\ncompiler = sinter %s\ntarget = ", w->m->name ? w->m->name : "",
              SINTER_VERSION);
    for (int i = 0; i < w->num_targets; i++)
        sb_printf(&meta, "%s%s", i ? "," : "", w->target[i].target->plan->target);
    sb_putc(&meta, '\n');
    write_section(w, SECTION_META, "", meta.text, meta.len);
    if (o->source_text) { /* of a long name the beginning */
        char name[sizeof((Section *)0)->name] = "";
        snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1,
                 o->source_name ? o->source_name : "");
        write_section(w, SECTION_SOURCE, name, o->source_text, o->source_len);
    }
    for (int i = 0; i < w->num_targets; i++)
        if (!write_target(w, &w->target[i]))
            return false;
    if (!write_weights(w))
        return false;
    if (o->report)
        write_section(w, SECTION_REPORT, "", o->report, strlen(o->report));
    return true;
}

static bool place(Writer *w)
{
    CodegenTarget **target =
        ARENA_NEW_ARRAY(w->m->arena, CodegenTarget *, (size_t)w->num_targets + 1);
    for (int i = 0; i < w->num_targets; i++)
        target[i] = w->target[i].target;
    return codegen_place(w->m, w->m->arena, w->num_targets, target, &w->placement);
}

bool codegen_write(Module *m, int num, const WriteTarget *target, const char *path,
                   const WriteOptions *options)
{
    IoError err;
    Writer *w = calloc(1, sizeof *w);
    ArtifactWriter *out = artifact_create(path, options->stub, options->stub_size, &err);
    if (!w || !out) {
        if (out)
            err = (IoError){.id = E_MEMORY, .text = "memory is exhausted"};
        artifact_abandon(out);
        free(w);
        diag_error(m->diag, (Span){0}, err.id, "%s", err.text);
        return false;
    }
    *w = (Writer){.m = m, .target = target, .num_targets = num, .options = options, .out = out};
    int num_errors = m->diag->num_errors;
    bool ok = place(w) && write_sections(w);
    if (m->diag->num_errors > num_errors) {
        artifact_abandon(out);
    } else if (!artifact_finish(out, &err)) { /* knows why a write failed */
        diag_error(m->diag, (Span){0}, err.id, "%s", err.text);
        ok = false;
    }
    progress(w, 1, "");
    free(w);
    return ok;
}
