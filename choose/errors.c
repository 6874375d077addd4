/* How much each candidate disturbs each layer, and what that does to the model's outputs.
 *
 * 1. The float model runs once on the calibration rows and gives what every layer reads (taps) and
 *    what the outputs should be.
 * 2. For each column the model is taken apart: each layer alone, with its own quantisation, its
 *    calibrated ranges and its weight quantiser, reads what the float layer reads. Its output less
 *    the float layer's is the error of the cell.
 * 3. The float model runs once more for each group and column with these errors, and no others,
 *    added to the group's outputs. What that does to the model's outputs is the cell's noise;
 *    errors of different layers are nearly uncorrelated, so noises add up.
 *
 * All of it runs on the kernels of the CPU, on a sample of rows. */
#include "choose/internal.h"
#include <string.h>

#define SAMPLE_ROWS  256          /* where the text says nothing */
#define SAMPLE_BYTES (768u << 20) /* of all that layers read and write */
#define INJECT_FLOPS 1.5e12       /* of all runs with added errors; fewer rows above it */
#define INJECT_ROWS  16           /* but not fewer than these */

typedef struct Layers { /* of one column */
    float **out;        /* [layers] [rows][n] */
} Layers;

typedef struct Errors {
    Chooser *ch;
    Choice *c;
    Arena *arena;
    DataSet data;
    int64_t rows;     /* of every layer's input: leading dimensions flattened */
    float **in;       /* [layers] what the float layer reads */
    int64_t *in_rows; /* [layers] */
    int64_t *groups;  /* [layers] of which counts say how many rows count; 0: no counts do */
    int32_t **ends;   /* [layers] where those groups end, or the counts; NULL: one matrix for all */
    Layers want;      /* of the float layers */
    Tensors out;      /* of the float model, on the rows that are injected */
    Probe inject;
    int64_t inject_rows;
    Tensors inject_in; /* the model's inputs, then each layer's error */
} Errors;

/* Taps ---------------------------------------------------------------------------------------- */

static void strip_quant(Probe *t)
{
    for_each_op(op, &t->module->body)
        if (op->kind == OP_MATMUL)
            op->attr.quant = NULL;
}

bool float_lower(Probe *t, const Lab *lab)
{
    if (!probe_lower(t, lab, NULL))
        return false;
    strip_quant(t);
    return probe_passes(t, "infer-types,bind-weights,fold");
}

/* Outputs for operand `at` of the layers that have it, 0 or 2; tap[layer] is the output's index. */
static void reads_add(Probe *t, const Choice *c, int at, int *tap)
{
    Module *m = t->module;
    Op **op = probe_layers(t, c);
    int num = 0;
    for_each_op(o, &m->body)
        num += o->kind == OP_OUTPUT;
    for (int i = 0; i < c->num_layers; i++) {
        tap[i] = -1;
        if (op[i]->num_in <= at)
            continue;
        Value *value = op_in(op[i], at);
        for (int k = 0; k < i && tap[i] < 0; k++)
            if (op[k]->num_in > at && op_in(op[k], at) == value)
                tap[i] = tap[k];
        if (tap[i] >= 0)
            continue;
        if (at == 2) { /* programs give floats */
            const Type *type = type_plain(m, FMT_F32, value->type->rank, value->type->dim);
            value = build_op(m, &m->body, value->def->next, OP_CAST, NULL, type, 1, &value,
                             op[i]->span);
        }
        build_output(m, arena_printf(t->arena, "%%tap%d.%d", i, at), value, op[i]->span);
        tap[i] = num++;
    }
}

static int32_t *ends_from(Arena *arena, const SinterTensor *t)
{
    int64_t num = tensor_count(t);
    int32_t *ret = ARENA_NEW_ARRAY(arena, int32_t, (size_t)num + 1);
    for (int64_t g = 0; g < num; g++)
        ret[g] = (int32_t)((const float *)t->data)[g];
    return ret;
}

static bool taps_run(Errors *e, Probe *t, float **in, int64_t *rows)
{
    const Choice *c = e->c;
    int *tap = ARENA_NEW_ARRAY(e->arena, int, (size_t)c->num_layers + 1);
    int *ends = ARENA_NEW_ARRAY(e->arena, int, (size_t)c->num_layers + 1);
    Tensors out;
    Op **op = probe_layers(t, c);
    strip_quant(t);
    taps_widen(t->module, e->data.rows);
    for (int i = 0; i < c->num_layers; i++) {
        const Type *x = op_in(op[i], 0)->type;
        e->groups[i] = op[i]->num_in > 2 && x->rank == 3 ? x->dim[0].add : 0;
    }
    reads_add(t, c, 0, tap);
    reads_add(t, c, 2, ends);
    if (!probe_passes_from(t, "insert-quant") || !probe_plan(t) || !probe_open(t))
        return probe_fail(t, "running the float model");
    if (!probe_run(t, &e->data.in, e->arena, &out))
        return false;
    for (int i = 0; i < c->num_layers; i++) {
        in[i] = out.tensor[tap[i]].data;
        rows[i] = tensor_count(&out.tensor[tap[i]]) / c->layer[i].k;
        e->ends[i] = ends[i] >= 0 ? ends_from(e->arena, &out.tensor[ends[i]]) : NULL;
    }
    return true;
}

/* Layers alone -------------------------------------------------------------------------------- */

/* Rows go where they went in the float model. */
static Value *ends_const(Probe *t, Op *op, const int32_t *ends)
{
    const Type *type = op_in(op, 2)->type;
    Const constant = {
        .kind = CONST_DENSE, .data = ends, .bytes = (uint64_t)type->dim[0].add * sizeof *ends};
    return build_const(t->module, &t->module->body, op, type, &constant, op->span);
}

/* The sizes of a layer's rows or results, `cols` wide. Rows of groups that counts speak of stay
 * group by group. Returns how many. */
static int alone_dims(const Errors *e, int layer, int64_t cols, int64_t *ret)
{
    int64_t groups = e->groups[layer], rows = e->in_rows[layer];
    if (groups)
        *ret++ = groups;
    *ret++ = groups ? rows / groups : rows;
    *ret = cols;
    return groups ? 3 : 2;
}

static const Type *alone_type(const Errors *e, Module *m, int layer, FormatId fmt, int64_t cols)
{
    int64_t size[3];
    Dim dim[3];
    int rank = alone_dims(e, layer, cols, size);
    for (int i = 0; i < rank; i++)
        dim[i] = dim_const(size[i]);
    return type_plain(m, fmt, rank, dim);
}

/* Cuts the model into its layers: each reads an input and writes an output of its own. */
static void layers_cut(Probe *t, const Errors *e)
{
    const Choice *c = e->c;
    Module *m = t->module;
    Op **op = probe_layers(t, c);
    m->syms.num = 0;
    for_each_op(o, &m->body)
        if (o->kind == OP_OUTPUT)
            op_remove(o);
    for (int i = 0; i < c->num_layers; i++) {
        FormatId plain = op_in(op[i], 0)->type->fmt, fmt = op_out(op[i])->type->fmt;
        const Type *type = alone_type(e, m, i, plain, c->layer[i].k);
        Value *in = build_input(m, arena_printf(t->arena, "x%d", i), type, op[i]->span);
        op_move_before(in->def, m->body.first);
        op_set_in(op[i], 0, in);
        if (e->ends[i])
            op_set_in(op[i], 2, ends_const(t, op[i], e->ends[i]));
        op_set_type(op[i], 0, alone_type(e, m, i, fmt, c->layer[i].n));
    }
    /* what reads a layer keeps the old shape, so it goes at once, last first */
    for (Op *o = m->body.last, *prev; o; o = prev) {
        bool is_kept = false;
        prev = o->prev;
        for (int i = 0; i < c->num_layers && !is_kept; i++)
            is_kept = op[i] == o;
        if (!is_kept && o->num_out == 1 && !op_out(o)->uses && o->kind != OP_INPUT)
            op_remove(o);
        else if (o->kind == OP_INPUT && !op_out(o)->uses)
            op_remove(o);
    }
    for (int i = 0; i < c->num_layers; i++)
        build_output(m, arena_printf(t->arena, "y%d", i), op_out(op[i]), op[i]->span);
}

static bool layers_run(Errors *e, Probe *t, float *const *in, Arena *arena, Layers *ret)
{
    const Choice *c = e->c;
    Tensors x = {c->num_layers, ARENA_NEW_ARRAY(arena, SinterTensor, (size_t)c->num_layers + 1)};
    Tensors out;
    layers_cut(t, e);
    if (!module_verify(t->module, "taking the model apart"))
        BUG("the model cannot be taken apart");
    if (!probe_passes_from(t, "insert-quant") || !probe_plan(t) || !probe_open(t))
        return probe_fail(t, "running layers alone");
    for (int i = 0; i < c->num_layers; i++) {
        const char *name = arena_printf(arena, "x%d", i);
        x.tensor[i] = (SinterTensor){.name = name, .dtype = SINTER_F32, .data = in[i]};
        x.tensor[i].rank = alone_dims(e, i, c->layer[i].k, x.tensor[i].dim);
    }
    if (!probe_run(t, &x, arena, &out))
        return false;
    ret->out = ARENA_NEW_ARRAY(arena, float *, (size_t)c->num_layers + 1);
    for (int i = 0; i < c->num_layers; i++)
        ret->out[i] = out.tensor[i].data;
    return true;
}

/* Does the candidate change what layers read, by factors folded into what makes it? */
static bool moves_scales(const Probe *t)
{
    for_each_op(op, &t->module->body) {
        const QuantSpec *q = op->kind == OP_MATMUL ? op->attr.quant : NULL;
        const WeightQuantiser *by = q && q->by ? weight_quantiser_find(q->by) : NULL;
        if (q && !q->keep && (q->smooth || q->rotate || (by && by->input_scales)))
            return true;
    }
    return false;
}

static bool probe_calibrated(Probe *t, Errors *e, const char *rules, const char *last)
{
    return (probe_lower(t, &e->ch->lab, rules) && probe_passes_to(t, last)) ||
           probe_fail(t, "calibrating a candidate");
}

/* What the layers of this column read where its factors move scales between operations. */
static bool column_taps(Errors *e, const char *rules, float **in)
{
    Probe t;
    int64_t *rows = ARENA_NEW_ARRAY(e->arena, int64_t, (size_t)e->c->num_layers + 1);
    bool ok = probe_calibrated(&t, e, rules, "smooth") && taps_run(e, &t, in, rows);
    probe_close(&t);
    return ok;
}

static bool column_run(Errors *e, const char *rules, Arena *arena, Layers *ret)
{
    Probe t;
    float **in = e->in;
    bool ok = probe_calibrated(&t, e, rules, "calibrate");
    if (ok && moves_scales(&t)) {
        in = ARENA_NEW_ARRAY(arena, float *, (size_t)e->c->num_layers + 1);
        ok = column_taps(e, rules, in);
    }
    ok = ok && layers_run(e, &t, in, arena, ret);
    probe_close(&t);
    return ok;
}

/* The error that a column adds to the outputs ------------------------------------------------- */

static bool inject_open(Errors *e)
{
    Probe *t = &e->inject;
    const Choice *c = e->c;
    if (!float_lower(t, &e->ch->lab))
        return probe_fail(t, "running the float model");
    Module *m = t->module;
    Op **op = probe_layers(t, c);
    taps_widen(t->module, e->data.rows);
    for (int i = 0; i < c->num_layers; i++) {
        Value *y = op_out(op[i]);
        Value *in = build_input(m, arena_printf(t->arena, "%%error%d", i), y->type, op[i]->span);
        Value *two[2] = {y, in};
        Value *sum = build_op(m, &m->body, op[i]->next, OP_ADD, NULL, NULL, 2, two, op[i]->span);
        value_replace(y, sum);
        op_set_in(sum->def, 0, y);
    }
    for_each_op(o, &m->body) /* inputs stand above what reads them */
        if (o->kind == OP_INPUT && o != m->body.first)
            op_move_before(o, m->body.first);
    if (!module_verify(m, "adding errors"))
        BUG("errors cannot be added");
    if (!probe_passes_from(t, "insert-quant") || !probe_plan(t) || !probe_open(t))
        return probe_fail(t, "running the float model");
    return true;
}

/* Fewer rows where all runs together would take too long. */
static int64_t rows_to_inject(const Errors *e)
{
    double flops = 0;
    for (int i = 0; i < e->c->num_layers; i++)
        flops += 2.0 * (double)e->c->layer[i].n * (double)e->c->layer[i].k * (double)e->in_rows[i] /
                 (double)e->data.rows;
    flops *= (double)e->c->num_groups * (double)(e->c->num_candidates + 1);
    int64_t rows = (int64_t)(INJECT_FLOPS / flops);
    if (rows >= e->data.rows || !e->ch->reference.target.plan->rows_independent)
        return e->data.rows;
    return rows < INJECT_ROWS ? INJECT_ROWS : rows;
}

/* Inputs of the run: named, because their order in the module changed. */
static bool inject_prepare(Errors *e)
{
    const Choice *c = e->c;
    int own = e->data.in.num, num = own + c->num_layers;
    e->inject_rows = rows_to_inject(e);
    e->inject_rows = e->inject_rows > e->data.rows ? e->data.rows : e->inject_rows;
    Tensors own_in = {own, ARENA_NEW_ARRAY(e->arena, SinterTensor, (size_t)own + 1)};
    e->inject_in = (Tensors){num, ARENA_NEW_ARRAY(e->arena, SinterTensor, (size_t)num + 1)};
    for (int i = 0; i < own; i++) {
        own_in.tensor[i] = e->data.in.tensor[i];
        if (e->inject_rows < e->data.rows)
            own_in.tensor[i].dim[0] = e->inject_rows;
        e->inject_in.tensor[i] = own_in.tensor[i];
    }
    for (int i = 0; i < c->num_layers; i++) {
        const char *name = arena_printf(e->arena, "%%error%d", i);
        int64_t all = e->in_rows[i] * c->layer[i].n;
        SinterTensor *t = &e->inject_in.tensor[own + i];
        *t = (SinterTensor){.name = name, .dtype = SINTER_F32};
        t->data = ARENA_NEW_ARRAY(e->arena, float, (size_t)all + 16);
    }
    return inject_open(e) && probe_run(&e->ch->reference, &own_in, e->arena, &e->out);
}

/* The shape of a layer's result for the rows at hand. */
static void error_shapes(Errors *e)
{
    const Choice *c = e->c;
    for (int i = 0; i < c->num_layers; i++) {
        SinterTensor *t = &e->inject_in.tensor[e->data.in.num + i];
        for (int k = 0; k < sinter_num_inputs(e->inject.model); k++) {
            SinterPort port = sinter_input(e->inject.model, k);
            if (strcmp(port.name, t->name))
                continue;
            int64_t fixed = 1;
            int vary = -1;
            t->rank = port.rank;
            for (int d = 0; d < port.rank; d++) {
                t->dim[d] = port.dim[d];
                if (port.dim[d] < 0 && vary < 0)
                    vary = d;
                else if (port.dim[d] < 0)
                    t->dim[d] = e->data.in.tensor[0].dim[d]; /* a second free dimension */
                if (t->dim[d] > 0 && d != vary)
                    fixed *= t->dim[d];
            }
            int64_t rows = e->in_rows[i] * e->inject_rows / e->data.rows;
            if (vary >= 0)
                t->dim[vary] = rows * c->layer[i].n / fixed;
        }
    }
}

static bool inject_group(Errors *e, const Layers *got, int group, int layer, double *noise,
                         double *turn)
{
    const Choice *c = e->c;
    Arena *arena = arena_new();
    Tensors out;
    for (int i = 0; i < c->num_layers; i++) {
        SinterTensor *t = &e->inject_in.tensor[e->data.in.num + i];
        bool in = layer >= 0 ? i == layer : c->layer[i].group == group;
        float *x = t->data;
        int64_t num = tensor_count(t);
        for (int64_t k = 0; in && k < num; k++)
            x[k] = got->out[i][k] - e->want.out[i][k];
    }
    bool ok = probe_run(&e->inject, &e->inject_in, arena, &out);
    *noise = *turn = 0;
    for (int o = 0; ok && o < out.num; o++) {
        Distance d = distance_of_floats(out.tensor[o].data, e->out.tensor[o].data,
                                        (uint64_t)tensor_count(&out.tensor[o]));
        *noise += d.noise / out.num;
        *turn += turn_of_cosine(d.cosine) / out.num;
    }
    for (int i = 0; i < c->num_layers; i++) {
        SinterTensor *t = &e->inject_in.tensor[e->data.in.num + i];
        if (layer >= 0 ? i == layer : c->layer[i].group == group)
            memset(t->data, 0, (size_t)tensor_count(t) * sizeof(float));
    }
    arena_destroy(arena);
    return ok;
}

/* A group's noise belongs to all its layers together; it stands at the first, zero at the rest. */
static bool column_noise(Errors *e, const Layers *got, int column)
{
    Choice *c = e->c;
    bool *done = ARENA_NEW_ARRAY(e->arena, bool, (size_t)c->num_groups + 1);
    for (int i = 0; i < c->num_layers; i++) {
        ChoiceLayer *l = &c->layer[i];
        LayerCell *cell = &l->cell[column];
        bool wanted = l->pinned ? column == c->pinned_column
                                : column < c->num_candidates && !done[l->group] &&
                                      cell_usable(c, l->group, column);
        if (!l->pinned && l->group >= 0 && wanted)
            done[l->group] = true;
        if (wanted &&
            !inject_group(e, got, l->group, l->pinned ? i : -1, &cell->noise, &cell->turn))
            return false;
    }
    return true;
}

static void column_distances(Errors *e, const Layers *got, int column)
{
    const Choice *c = e->c;
    for (int i = 0; i < c->num_layers; i++) {
        LayerCell *cell = &c->layer[i].cell[column];
        Distance d = distance_of_floats(got->out[i], e->want.out[i],
                                        (uint64_t)(e->in_rows[i] * c->layer[i].n));
        cell->sqnr = d.sqnr;
        cell->cosine = d.cosine;
    }
}

static bool column_measure(Errors *e, int column)
{
    Choice *c = e->c;
    Arena *arena = arena_new();
    Layers got;
    const char *rules = column == c->pinned_column
                            ? choice_rules(c, arena, pick_uniform(c, arena, c->float_column), NULL)
                            : choice_rules(c, arena, pick_uniform(c, arena, column), NULL);
    chooser_progress(e->ch, (double)column / c->num_columns, c->column[column]);
    bool ok = column_run(e, rules, arena, &got);
    if (ok)
        column_distances(e, &got, column);
    ok = ok && column_noise(e, &got, column);
    arena_destroy(arena);
    return ok;
}

/* All of it ------------------------------------------------------------------------------------ */

static int64_t sample_rows(const Chooser *ch)
{
    const Choice *c = ch->c;
    double row = 0;
    for (int i = 0; i < c->num_layers; i++)
        row += 4.0 * (double)(c->layer[i].k + 3 * c->layer[i].n);
    int64_t most = (int64_t)(SAMPLE_BYTES / row), want = c->spec->samples;
    want = want ? want : SAMPLE_ROWS;
    most = most < 8 ? 8 : most;
    return want < most ? want : most;
}

static bool any_pinned(const Choice *c)
{
    for (int i = 0; i < c->num_layers; i++)
        if (c->layer[i].pinned)
            return true;
    return false;
}

static bool errors_run(Errors *e)
{
    Choice *c = e->c;
    Probe t;
    size_t num = (size_t)c->num_layers + 1;
    e->in = ARENA_NEW_ARRAY(e->arena, float *, num);
    e->in_rows = ARENA_NEW_ARRAY(e->arena, int64_t, num);
    e->groups = ARENA_NEW_ARRAY(e->arena, int64_t, num);
    e->ends = ARENA_NEW_ARRAY(e->arena, int32_t *, num);
    bool ok = float_lower(&t, &e->ch->lab) ? taps_run(e, &t, e->in, e->in_rows)
                                           : probe_fail(&t, "running the float model");
    probe_close(&t);
    if (!ok)
        return false;
    ok = float_lower(&t, &e->ch->lab) ? layers_run(e, &t, e->in, e->arena, &e->want)
                                      : probe_fail(&t, "running the float model");
    probe_close(&t);
    if (!ok || !inject_prepare(e))
        return false;
    error_shapes(e);
    for (int k = 0; ok && k < c->num_columns; k++) {
        if (k == c->float_column || (k < c->num_candidates && !strcmp(c->column[k], "keep")))
            for (int i = 0; i < c->num_layers; i++) {
                c->layer[i].cell[k].sqnr = INFINITY;
                c->layer[i].cell[k].cosine = 1;
            }
        else if (k != c->pinned_column || any_pinned(c))
            ok = column_measure(e, k);
    }
    return ok;
}

bool errors_measure(Chooser *ch)
{
    const AutoSpec *spec = ch->c->spec;
    if (ch->lab.options->errors)
        return errors_read(ch);
    Errors e = {.ch = ch, .c = ch->c, .arena = arena_new()};
    bool ok = data_read(&ch->lab, &ch->reference, spec->data.text, spec->data.span, sample_rows(ch),
                        e.arena, &e.data) &&
              errors_run(&e);
    probe_close(&e.inject);
    arena_destroy(e.arena);
    return ok;
}
