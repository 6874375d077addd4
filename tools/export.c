/* Which tensors a checkpoint of this model holds: modules that linear layers quantise, tensors that
 * smoothing and rotation changed, and all others as they are. A constant expression stands for a
 * tensor of the files when only passes have worked on it: what the text itself computes from a
 * weight is no tensor. */
#include "tools/export.h"
#include "passes/calibration.h"
#include <stdlib.h>
#include <string.h>

static int compare_ops(const void *a, const void *b)
{
    const Op *x = *(const Op *const *)a, *y = *(const Op *const *)b;

    return x < y ? -1 : x > y;
}

static void ops_number(Exports *x)
{
    const Work *w = x->work;

    for_each_op(op, &w->module->body)
        x->num_before++;
    x->before = ARENA_NEW_ARRAY(w->arena, const Op *, (size_t)x->num_before + 1);
    int num = 0;
    for_each_op(op, &w->module->body)
        x->before[num++] = op;
    qsort(x->before, (size_t)num, sizeof *x->before, compare_ops);
}

static bool is_new(const Exports *x, const Op *op)
{
    return !bsearch(&op, x->before, (size_t)x->num_before, sizeof *x->before, compare_ops);
}

static void refuse(Exports *x, const Op *op, const char *name, const char *why, const char *help)
{
    diag_error(&x->work->diag, op ? op->span : (Span){0}, E_EXPORT, "%s: %s", name, why);
    if (help)
        diag_help(&x->work->diag, "%s", help);
}

/* The weight of the files that the value was made of, by passes at most; NULL: none. */
static const Op *origin_of(const Exports *x, const Value *value)
{
    const Op *op = value->def, *found = NULL;

    if (op->kind == OP_CONST)
        return op->constant->kind == CONST_WEIGHT ? op : NULL;
    if (op->kind != OP_CAST && op->kind != OP_DEQUANTIZE && !is_new(x, op))
        return NULL;
    for (int i = 0; i < op->num_in && !found; i++)
        found = origin_of(x, op_in(op, i));
    return found;
}

/* .. and whose place it can take. */
static const Op *tensor_of(const Exports *x, const Value *value)
{
    const Op *found = origin_of(x, value);

    return found && type_same_shape(found->out[0].type, value->type) ? found : NULL;
}

/* Modules -------------------------------------------------------------------------------------- */

static bool constant_number(const Op *op, int slot, void *ret, size_t size)
{
    const Op *from = op->num_in > slot ? op_in(op, slot)->def : NULL;

    if (!from || from->kind != OP_CONST || !from->constant->data || from->constant->bytes < size)
        return false;
    memcpy(ret, from->constant->data, size);
    return true;
}

/* The multiplication with a number that takes an activation's static outer scale off, or puts it
 * back (insert_quant). */
static bool is_outer(const Exports *x, const Op *op)
{
    return op->kind == OP_MUL && is_new(x, op) && op_in(op, 1)->def->kind == OP_CONST &&
           is_new(x, op_in(op, 1)->def) && op_in(op, 1)->type->rank == 0;
}

/* How the layer's input is quantised. */
static StoredAct act_of(const Exports *x, const Op *matmul)
{
    const Op *dequantize = op_in(matmul, 0)->def;
    const Op *quantize = dequantize->kind == OP_DEQUANTIZE ? op_in(dequantize, 0)->def : NULL;
    StoredAct act = {0};

    if (!quantize || quantize->kind != OP_QUANTIZE)
        return act;
    act.is_quantised = true;
    act.scheme = *quantize->out[0].type->scheme;
    act.is_static = constant_number(quantize, 1, &act.scale, sizeof act.scale);
    constant_number(quantize, 2, &act.zero, sizeof act.zero);
    const Op *before = op_in(quantize, 0)->def;
    float inverse;
    if (is_outer(x, before) && constant_number(before, 1, &inverse, sizeof inverse)) {
        act.is_static = act.scheme.outer = true;
        act.scale = 1 / inverse;
    }
    return act;
}

static Export *export_add(Exports *x, const char *weight, const char *name, const Scheme *scheme,
                          int64_t rows, int64_t cols)
{
    Export *e = ARENA_NEW(x->work->arena, Export);

    *e = (Export){.weight = weight, .writer = x->writer, .work = x->work};
    e->module.name = name;
    e->module.scheme = *scheme;
    e->module.rows = rows;
    e->module.cols = cols;
    map_put(&x->by_weight, weight, e);
    return e;
}

static bool same_act(const StoredAct *a, const StoredAct *b)
{
    return a->is_quantised == b->is_quantised && a->is_static == b->is_static &&
           (!a->is_quantised || scheme_equal(&a->scheme, &b->scheme)) &&
           (!a->is_static ||
            (!memcmp(&a->scale, &b->scale, sizeof a->scale) && a->zero == b->zero));
}

/* Who chooses the codes; "": nobody in particular. */
static const char *by_name(const Value *codes)
{
    const char *by = codes->def->kind == OP_QUANTIZE ? codes->def->attr.by.name : NULL;

    return by ? by : "";
}

/* Would they be the same codes of the same numbers? */
static bool same_codes(const Value *a, const Value *b)
{
    return !strcmp(by_name(a), by_name(b)) && scheme_equal(a->type->scheme, b->type->scheme);
}

/* How the layer quantises its weight and its input, for errors. */
static const char *layer_text(const Exports *x, const Op *matmul, const Value *codes,
                              const StoredAct *act)
{
    const char *by = by_name(codes);
    Sb sb;

    sb_init(&sb, x->work->arena);
    sb_printf(&sb, "%s to ", matmul->attr.layer ? matmul->attr.layer : "a layer");
    scheme_print(&sb, codes->type->scheme, false);
    if (*by)
        sb_printf(&sb, " by %s", by);
    if (!act->is_quantised)
        return sb.text;
    sb_put(&sb, ", its input to ");
    scheme_print(&sb, &act->scheme, true);
    if (act->is_static)
        sb_printf(&sb, " static %.9g", (double)act->scale);
    return sb.text;
}

/* Are both the same of the same bytes of the files? One may be a matrix alone of what the text
 * reads as several, so that there are two constants of it. */
static bool same_values(const Value *a, const Value *b)
{
    const Op *x = a->def, *y = b->def;

    if (a == b)
        return true;
    if (x->kind != y->kind || x->num_in != y->num_in)
        return false;
    if (x->kind == OP_CONST)
        return x->constant->kind == CONST_WEIGHT && y->constant->kind == CONST_WEIGHT &&
               x->constant->data && x->constant->data == y->constant->data &&
               x->constant->stored_fmt == y->constant->stored_fmt && a->type->fmt == b->type->fmt &&
               type_same_shape(a->type, b->type);
    if (x->kind == OP_QUANTIZE &&
        (x->attr.by.name != y->attr.by.name || !scheme_equal(a->type->scheme, b->type->scheme)))
        return false;
    if (x->kind != OP_QUANTIZE && (x->kind != OP_CAST || a->type->fmt != b->type->fmt))
        return false;
    for (int i = 0; i < x->num_in; i++)
        if (!same_values(op_in(x, i), op_in(y, i)))
            return false;
    return true;
}

/* Do rules ask the same of both? */
static bool same_spec(const QuantSpec *a, const QuantSpec *b)
{
    return a->weight && a->weight == b->weight && a->act == b->act &&
           a->act_static == b->act_static && a->act_known == b->act_known && a->keep == b->keep &&
           !strcmp(a->by ? a->by : "", b->by ? b->by : "") &&
           a->by_args.act_order == b->by_args.act_order && a->by_args.damp == b->by_args.damp;
}

/* Layers that read one weight in the same way are one from here on: its codes, and its input's
 * static range, follow from what all of them see, since they are stored once. */
static void layers_join(Work *w)
{
    ARRAY(Op *) first = {0};

    for_each_op(op, &w->module->body) {
        const Op *same = NULL;
        if (op->kind != OP_MATMUL || !op->attr.layer || !op->attr.quant ||
            !value_is_constant(op_in(op, 1)))
            continue;
        for (int i = 0; i < first.num && !same; i++)
            if (same_values(op_in(first.elem[i], 1), op_in(op, 1)) &&
                same_spec(first.elem[i]->attr.quant, op->attr.quant))
                same = first.elem[i];
        if (!same) {
            ARRAY_PUSH(w->arena, &first, op);
        } else if (strcmp(op->attr.layer, same->attr.layer) != 0) {
            activation_join(w->module, same, op);
            op->attr.layer = same->attr.layer;
        }
    }
}

void exports_begin(Exports *x, Work *w, const CheckpointWriter *writer)
{
    *x = (Exports){.work = w, .writer = writer};
    map_init(&x->by_weight, w->arena);
    map_init(&x->changed, w->arena);
    map_init(&x->apart, w->arena);
    ops_number(x);
    layers_join(w);
}

/* The weight of two layers is stored once. `stored`, or `value`, are what it is for this one; false
 * after reporting. */
static bool export_again(Exports *x, const Op *matmul, const Export *e, const Value *codes,
                         const StoredModule *stored, const Value *value)
{
    StoredAct act = act_of(x, matmul);

    if (same_act(&act, &e->module.act) && stored == e->stored &&
        (stored || same_values(e->value, value)))
        return true;
    if (same_act(&act, &e->module.act) && stored == e->stored && same_codes(codes, e->codes)) {
        refuse(
            x, matmul, e->weight,
            "two layers read this weight, and awq, smoothing or rotation changed its columns for "
            "each by itself",
            "gptq looks at the inputs of both and leaves the columns as they are");
        diag_note(&x->work->diag, e->matmul->span, "the other layer");
        return false;
    }
    const char *one = layer_text(x, e->matmul, e->codes, &e->module.act);
    const char *other = layer_text(x, matmul, codes, &act);
    refuse(x, matmul, e->weight,
           arena_printf(x->work->arena,
                        "two layers read this weight and quantise it differently: %s; %s", one,
                        other),
           "one rule for both makes them one module");
    return false;
}

/* The codes of one matrix alone, which are those that it has among all. */
static const Value *codes_of(Exports *x, const Value *codes, const Op *from, const char *name,
                             int64_t at)
{
    Module *m = x->work->module;
    Op *quantize = codes->def;
    const Type *all = op_out((Op *)from)->type;
    const ConstPart *part = &from->constant->reader->part[at];
    Const constant = {.kind = CONST_WEIGHT,
                      .name = name,
                      .stored_fmt = from->constant->stored_fmt,
                      .data = part->data,
                      .bytes = part->bytes};
    Value *value = build_const(m, &m->body, quantize, type_plain(m, all->fmt, 2, all->dim + 1),
                               &constant, from->span);
    FormatId fmt = op_in(quantize, 0)->type->fmt;
    if (fmt != all->fmt) /* what casts have come between */
        value = build_op(m, &m->body, quantize, OP_CAST, NULL, type_plain(m, fmt, 2, all->dim + 1),
                         1, &value, from->span);
    const Type *type = type_quantised(m, codes->type->scheme, 2, all->dim + 1);
    return build_op(m, &m->body, quantize, OP_QUANTIZE, &quantize->attr, type, 1, &value,
                    quantize->span);
}

/* What the writers have no word for in what is stored already. */
static const char *stored_problem(const StoredModule *m)
{
    if (m->experts)
        return "it holds several experts, and modules that are written hold one matrix each";
    if (m->scheme.table)
        return "its codebook is its own, which no format written here holds";
    if (m->part[PART_INPUT_FACTORS])
        return "its input is multiplied by factors first, which no format written here holds";
    if (m->offset)
        return "its zero points are no integers, which no format written here holds";
    return m->refused;
}

static const char from_plain[] =
    "quantise the checkpoint that it was made of, which stores its experts plain";

/* Experts whose names are the pattern's. */
static ExportApart *apart_of(Exports *x, const Op *matmul, const char *pattern, int64_t num)
{
    Arena *arena = x->work->arena;
    ExportApart *apart = map_get(&x->apart, weight_name_at(arena, pattern, 0));

    if (apart)
        return apart;
    apart = ARENA_NEW(arena, ExportApart);
    *apart = (ExportApart){.matmul = matmul};
    for (int64_t e = 0; e < num; e++)
        map_put(&x->apart, weight_name_at(arena, pattern, e), apart);
    return apart;
}

/* An error of a module: of experts that lie apart the first is for all. */
static void refuse_module(Exports *x, const char *weight, const Op *matmul, const char *name,
                          const char *why, const char *help)
{
    ExportApart *apart = map_get(&x->apart, weight);

    if (apart && apart->is_refused)
        return;
    if (apart)
        apart->is_refused = true;
    refuse(x, matmul || !apart ? matmul : apart->matmul, name, why, help);
}

/* Why matrices that the codes hold are no modules. */
static const char *experts_problem(const Exports *x, const Value *codes, const Op *from,
                                   const char **ret_help)
{
    const ConstReader *reader = from->constant->reader;
    const Scheme *scheme = codes->type->scheme;
    const char *first = weight_name_at(x->work->arena, from->constant->name, 0);
    const StoredModule *stored = checkpoint_find(x->work->module->checkpoint, first);

    *ret_help = "`keep` leaves the layer as it is";
    if (!reader || !strchr(from->constant->name, '*'))
        return "its experts lie in one tensor, and modules hold one matrix each";
    if (codes->def == from)
        return NULL;
    if (reader->read && (!stored || stored_problem(stored)))
        *ret_help = from_plain;
    if (reader->read)
        return "its experts are stored quantised, and are not written under another scheme";
    *ret_help = "scales per channel or group are those of each matrix";
    if (!scheme->block[0])
        return "all its experts share one scale, and each is a module of its own";
    if (scheme->outer)
        return "all its experts share the second scale, and each is a module of its own";
    return NULL;
}

/* The module of one of them; false after reporting. */
static bool export_expert(Exports *x, const Op *matmul, const Value *codes, const Op *from,
                          int64_t at)
{
    const Type *type = codes->type;
    const char *weight = weight_name_at(x->work->arena, from->constant->name, at);
    const Export *known = map_get(&x->by_weight, weight);
    bool is_stored = codes->def == from;
    const StoredModule *stored =
        is_stored ? checkpoint_find(x->work->module->checkpoint, weight) : NULL;
    const char *name = stored ? stored->name : module_name(x->work->arena, weight, ".weight");

    if (is_stored && !stored) {
        refuse(x, matmul, weight, "the text names its codes, and of experts these are not written",
               NULL);
        return false;
    }
    if (!name) {
        refuse(x, matmul, weight, "modules are named by tensors that end with '.weight'",
               "rename the tensors in their file and after 'from', or `keep` their layer as it is");
        return false;
    }
    const Value *value = stored ? NULL : codes_of(x, codes, from, weight, at);
    if (known)
        return export_again(x, matmul, known, codes, stored, value);
    Export *e = export_add(x, weight, name, stored ? &stored->scheme : type->scheme,
                           type->dim[1].add, type->dim[2].add);
    e->matmul = matmul;
    e->module.act = act_of(x, matmul);
    e->codes = codes;
    e->value = value;
    e->stored = stored;
    return true;
}

/* A module for each matrix. */
static void export_experts(Exports *x, const Op *matmul, const Value *codes, const Op *from)
{
    const char *help, *why = experts_problem(x, codes, from, &help);
    ExportApart *apart = apart_of(x, matmul, from->constant->name, codes->type->dim[0].add);

    if (why) {
        refuse(x, matmul, from->constant->name, why, help);
        apart->is_refused = true;
        return;
    }
    for (int64_t e = 0; e < codes->type->dim[0].add; e++)
        if (!export_expert(x, matmul, codes, from, e))
            return;
}

static void export_codes(Exports *x, const Op *matmul, const Value *codes)
{
    const Type *type = codes->type;
    const Op *from =
        codes->def->kind == OP_QUANTIZE ? tensor_of(x, op_in(codes->def, 0)) : codes->def;
    const char *weight = from && from->kind == OP_CONST ? from->constant->name : NULL;
    const StoredModule *stored = NULL;

    if (weight && type->rank == 3 && from->constant->kind == CONST_WEIGHT) {
        export_experts(x, matmul, codes, from);
        return;
    }
    if (!weight || from->constant->kind != CONST_WEIGHT || type->rank != 2) {
        refuse(x, matmul, matmul->attr.layer ? matmul->attr.layer : "a layer",
               "its weight is computed by the text, and is no tensor of the files",
               "`keep` leaves the layer as it is");
        return;
    }
    if (codes->def == from)
        stored = checkpoint_find(x->work->module->checkpoint, weight);
    const Export *known = map_get(&x->by_weight, weight);
    if (known) {
        export_again(x, matmul, known, codes, stored, codes);
        return;
    }
    const char *name = stored ? stored->name : module_name(x->work->arena, weight, ".weight");
    if (!name) {
        refuse(x, matmul, weight, "modules are named by tensors that end with '.weight'",
               "rename the tensor in its file and after 'from', or `keep` its layer as it is");
        return;
    }
    Export *e = export_add(x, weight, name, type->scheme, type->dim[0].add, type->dim[1].add);
    e->matmul = matmul;
    e->module.act = act_of(x, matmul);
    e->codes = codes;
    e->value = stored ? NULL : codes;
    e->stored = stored;
}

static void take_layer(Exports *x, const Op *matmul)
{
    const Value *weight = op_in(matmul, 1);
    const Op *op = weight->def;

    if (op->kind == OP_DEQUANTIZE && value_is_constant(weight)) {
        export_codes(x, matmul, op_in(op, 0));
        return;
    }
    const Op *from = tensor_of(x, weight);
    Arena *arena = x->work->arena;
    const char *name = from ? from->constant->name : "";
    bool is_apart = weight->type->rank == 3 && strchr(name, '*');
    if (is_apart)
        apart_of(x, matmul, name, weight->type->dim[0].add);
    for (int64_t e = 0; e < (is_apart ? weight->type->dim[0].add : 1); e++) {
        const char *one = is_apart ? weight_name_at(arena, name, e) : name;
        const char *module = module_name(arena, one, ".weight");
        if (module && !checkpoint_find(x->work->module->checkpoint, one))
            ARRAY_PUSH(arena, &x->plain, module);
    }
}

/* Tensors that passes changed ------------------------------------------------------------------ */

static void take_operand(Exports *x, const Op *op, int slot)
{
    const Value *value = op_in(op, slot);
    const Op *from = is_new(x, value->def) && value_is_constant(value) ? tensor_of(x, value) : NULL;

    if (!is_new(x, value->def) || !value_is_constant(value))
        return;
    if (!from) {
        refuse(x, op, op->attr.layer ? op->attr.layer : "a layer",
               "smoothing or rotation needs a factor here, for which the files have no tensor",
               "leave `smooth`, `rotate` and awq out of the rules of the layers behind it");
        return;
    }
    const ExportValue *known = map_get(&x->changed, from->constant->name);
    if (known && known->value != value)
        refuse(x, op, from->constant->name,
               "two places read this tensor, and smoothing changed one", NULL);
    if (known)
        return;
    ExportValue *v = ARENA_NEW(x->work->arena, ExportValue);
    *v = (ExportValue){from->constant->name, value, x->work};
    map_put(&x->changed, v->weight, v);
}

static void take_op(Exports *x, const Op *op)
{
    bool layer = op->kind == OP_MATMUL;
    bool quantised = layer && op_in(op, 1)->def->kind == OP_DEQUANTIZE;

    if (op->num_out && value_is_constant(&op->out[0]))
        return;
    if (layer)
        take_layer(x, op);
    if (op->kind == OP_QUANTIZE || is_outer(x, op))
        return;
    for (int i = 0; i < op->num_in; i++)
        if (!(quantised && i == 1))
            take_operand(x, op, i);
}

/* A tensor is stored once: whoever reads it plain, too, would get codes. */
static void check_reads(Exports *x, const Value *value, const char *weight)
{
    for_each_use(use, value) {
        const Op *user = use->user;
        if (user->kind == OP_QUANTIZE ||
            (user->kind == OP_MATMUL && use == &user->in[1] && value->def->kind == OP_DEQUANTIZE))
            continue;
        if (user->kind == OP_CAST || user->kind == OP_DEQUANTIZE || is_new(x, user))
            check_reads(x, &user->out[0], weight);
        else
            refuse(x, user, weight, "it is quantised for one layer and read as it is here",
                   "`keep` for that layer leaves it as it is");
    }
}

/* The tensors that the constant stands for: one or, of experts that lie apart, one of each. */
static void check_tensors(Exports *x, Op *op)
{
    const Value *value = op_out(op);
    const char *name = op->constant->name;
    bool is_apart = op->constant->reader && strchr(name, '*') && value->type->rank;

    for (int64_t e = 0; e < (is_apart ? value->type->dim[0].add : 1); e++) {
        const char *weight = is_apart ? weight_name_at(x->work->arena, name, e) : name;
        if (!map_has(&x->by_weight, weight))
            continue;
        check_reads(x, value, weight);
        return;
    }
}

/* Units ---------------------------------------------------------------------------------------- */

static bool make_module(const FolderUnit *unit, void *const *data, IoError *err)
{
    Export *e = unit->user;
    const char *why = "";
    Tensor t = {0};

    if (e->stored && !stored_read(e->stored, &t.q, err))
        return false;
    if (!e->stored && !eval_constant(e->work->module, e->value, &t, &why))
        return io_fail(err, E_EXPORT, "%s: %s", e->module.name, why);
    e->outer = t.q.outer;
    e->writer->fill(&e->module, &t.q, data);
    e->written = t.q.outer;
    if (e->stored)
        qtensor_free(&t.q);
    else
        tensor_free(&t);
    return true;
}

static bool make_value(const FolderUnit *unit, void *const *data, IoError *err)
{
    const ExportValue *v = unit->user;
    const char *why = "";
    Tensor t = {0};

    if (!eval_constant(v->work->module, v->value, &t, &why))
        return io_fail(err, E_EXPORT, "%s: %s", v->weight, why);
    memcpy(data[0], t.data, (size_t)t.bytes);
    tensor_free(&t);
    return true;
}

static void add_module(Exports *x, Export *e)
{
    const char *help = NULL, *why;
    Arena *arena = x->work->arena;
    FolderUnit unit = {.make = make_module, .user = e};

    if (e->stored)
        e->module.order = e->stored->order;
    why = x->writer->settle(arena, &e->module, &help);
    for (int i = 0; i < x->modules.num && !why && x->writer->differs; i++)
        why = x->writer->differs(arena, &e->module, &x->modules.elem[i]->module);
    if (why)
        refuse_module(x, e->weight, e->matmul, e->module.name, why, help);
    for (int i = 0; i < e->module.num_parts; i++) {
        WritePart *part = &e->module.part[i];
        unit.item[unit.num++] =
            (SafetensorsItem){.name = arena_printf(arena, "%s%s", e->module.name, part->suffix),
                              .dtype = part->dtype,
                              .rank = part->rank,
                              .dim = part->dim};
    }
    ARRAY_PUSH(arena, &x->modules, e);
    ARRAY_PUSH(arena, &x->units, unit);
}

/* Stored quantised, and no rule quantises it again; NULL after reporting. */
static Export *stored_export(Exports *x, const StoredModule *m)
{
    Export *e =
        map_get(&x->by_weight, m->weight); /* what the text makes of its activation counts */
    const char *why = stored_problem(m), *help = "a rule that names a scheme quantises it again";

    if (m->experts)
        help = NULL;
    if (map_has(&x->apart, m->weight))
        help = from_plain;
    if (why) {
        refuse_module(x, m->weight, e ? e->matmul : NULL, m->name, why, help);
        return NULL;
    }
    if (!e) {
        e = export_add(x, m->weight, m->name, &m->scheme, m->rows, m->cols);
        e->module.act = m->act;
    }
    e->stored = m;
    return e;
}

static void add_plain(Exports *x, const TensorView *view)
{
    FolderUnit unit = {.num = 1};
    ExportValue *changed = map_get(&x->changed, view->name);

    unit.item[0] =
        (SafetensorsItem){view->name, view->fmt, view->rank, view->dim, view->data, NULL};
    if (view->fmt == FMT_NONE)
        unit.item[0].dtype = view->dtype;
    if (changed) {
        unit.item[0].fmt = changed->value->type->fmt;
        unit.make = make_value;
        unit.user = changed;
    }
    x->num_changed += changed != NULL;
    x->num_copied += !changed;
    ARRAY_PUSH(x->work->arena, &x->units, unit);
}

static void add_tensor(Exports *x, const Checkpoint *c, const TensorView *view, Map *done)
{
    const StoredModule *owner = map_get(&c->owner, view->name);
    const char *weight = owner ? owner->weight : view->name;
    Export *e = map_get(&x->by_weight, weight);
    const ExportApart *apart = map_get(&x->apart, weight);

    if (!owner && !e) {
        add_plain(x, view);
        return;
    }
    if (map_has(done, weight) || (apart && apart->is_refused))
        return;
    map_put(done, weight, x);
    if (owner && (!e || e->stored))
        e = stored_export(x, owner);
    if (e)
        add_module(x, e);
}

bool exports_collect(Exports *x)
{
    Module *m = x->work->module;
    int errors = x->work->diag.num_errors;
    Map done;

    map_init(&done, x->work->arena);
    for_each_op(op, &m->body)
        take_op(x, op);
    for_each_op(op, &m->body)
        if (op->kind == OP_CONST && op->constant->kind == CONST_WEIGHT)
            check_tensors(x, op);
    for (int i = 0; m->weights && i < weights_num(m->weights); i++)
        add_tensor(x, m->checkpoint, weights_at(m->weights, i), &done);
    if (!x->modules.num && x->work->diag.num_errors == errors)
        diag_error(&x->work->diag, (Span){0}, E_EXPORT, "%s",
                   m->weights ? "no layer is quantised: give --rules, or `quant` lines in the text"
                              : "the text reads no weight files");
    return x->work->diag.num_errors == errors;
}
