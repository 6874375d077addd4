/* codegen/gemm: kernels with one matmul. What the first operand needs becomes the prologue; what
 * the kernel yields of the product becomes epilogues, one for each range of columns that the yields
 * cut the product into. Two equal halves that meet in an operation are the parts of one tile. */
#include "codegen/build.h"

#include <stdlib.h>

/* What one op of the body has to do with the product. */
typedef struct Columns {
    int64_t base[2]; /* columns of the product that its column 0 depends on */
    int num_bases;   /* 0: none; 3: more than two */
    bool is_whole;   /* a step on the way needs all of its columns at once */
} Columns;

typedef struct Yield {
    const Value *value;
    int tensor, codes;
    Columns columns;
    int64_t begin, cols; /* of one part */
    bool is_done;
} Yield;

typedef struct Gemm {
    Builder *b;
    Op *kernel, *matmul;
    Dim n;             /* columns of the product */
    int64_t part_cols; /* 0: one part */
    int a, w;
    Columns *columns; /* of the body's ops, by their mark */
    PtrMap inside;
    ARRAY(Yield) yields;
    ARRAY(Store) before; /* the prologue's */
} Gemm;

/* Columns ------------------------------------------------------------------------------------- */

static void add_base(Columns *c, int64_t base)
{
    for (int i = 0; i < c->num_bases && i < 2; i++)
        if (c->base[i] == base)
            return;
    if (c->num_bases < 2)
        c->base[c->num_bases] = base;
    c->num_bases += c->num_bases < 3;
}

static const Columns *columns_of(const Gemm *g, const Value *value)
{
    static const Columns none;
    return value->def->kind == OP_ARG ? &none : &g->columns[value->def->mark];
}

static void find_columns(Gemm *g, const Op *op, Columns *c)
{
    if (op == g->matmul) {
        add_base(c, 0);
        return;
    }
    for (int i = 0; i < op->num_in; i++) {
        const Columns *in = columns_of(g, op_in(op, i));
        for (int k = 0; k < in->num_bases && k < 2; k++)
            add_base(c, in->base[k] + (op->kind == OP_SLICE ? op->attr.start : 0));
        if (in->num_bases > 2)
            c->num_bases = 3;
        c->is_whole |= in->is_whole;
        if (op->kind == OP_SLICE && in->is_whole)
            BUG("a kernel cuts rows that it needs whole");
    }
    bool needs_all =
        op_info[op->kind].flags & OPF_ROWWISE || op->kind == OP_QUANTIZE || op->kind == OP_CODE_SUM;
    c->is_whole |= needs_all && c->num_bases;
}

/* Marks of ARGs are their index already; those of the other ops count on. */
static void mark_body(Gemm *g)
{
    uint32_t num = 0;
    for_each_op(op, g->kernel->body)
        num++;
    g->columns = ARENA_NEW_ARRAY(g->b->arena, Columns, num);
    num = 0;
    for_each_op(op, g->kernel->body) {
        if (op->kind != OP_ARG) {
            op->mark = num;
            find_columns(g, op, &g->columns[num]);
        }
        num++;
    }
}

/* A code sum covers its codes' columns. */
static Dim width_of(const Value *value)
{
    const Op *op = value->def;
    return type_last(op->kind == OP_CODE_SUM ? op_in(op, 0)->type : value->type);
}

static bool place_yield(const Gemm *g, Yield *y)
{
    const Columns *c = &y->columns;
    Dim cols = width_of(y->value);
    int64_t part = g->part_cols ? g->part_cols : g->n.add;
    Span span = y->value->def->span;
    if (!dim_is_const(g->n)) /* all columns or none */
        return dim_equal(cols, g->n) ||
               build_fail(g->b, span, "columns of a product with a varying number of them");
    y->cols = cols.add;
    y->begin = c->base[0] % part;
    if (c->num_bases == 2 && c->base[1] % part != y->begin)
        return build_fail(g->b, span, "columns %lld and %lld of one product do not share a tile",
                          (long long)c->base[0], (long long)c->base[1]);
    if (!dim_is_const(cols) || y->begin + y->cols > part)
        return build_fail(g->b, span, "columns %lld to %lld do not lie in one part of the product",
                          (long long)c->base[0], (long long)(c->base[0] + y->cols));
    return true;
}

static bool place_yields(Gemm *g)
{
    for (int i = 0; i < g->yields.num; i++) {
        Yield *y = &g->yields.elem[i];
        y->columns = *columns_of(g, y->value);
        if (y->columns.num_bases > 2)
            return build_fail(g->b, y->value->def->span,
                              "more than two ranges of columns of one product meet here");
        if (y->columns.num_bases == 2)
            g->part_cols = g->n.add / 2;
    }
    for (int i = 0; i < g->yields.num; i++)
        if (!place_yield(g, &g->yields.elem[i]))
            return false;
    return true;
}

/* Operands ------------------------------------------------------------------------------------ */

/* Columns that share the whole number which their codes of 4 bits were multiplied by; no lane of a
 * GPU and no unit of a CPU has two of them among eight neighbours. */
static int64_t factor_cols(const Value *weight)
{
    if (weight->def->kind != OP_WIDEN)
        return 0;
    int64_t cols = op_in(weight->def, 0)->type->scheme->block[1];
    return cols % 8 ? 0 : cols;
}

static CpuPackSpec pack_spec(const Gemm *g)
{
    const Type *a = op_in(g->matmul, 0)->type, *w = op_in(g->matmul, 1)->type;
    CpuPackSpec spec = {.fmt = w->fmt,
                        .act_fmt = a->fmt,
                        .n = w->dim[w->rank - 2].add,
                        .k = type_last(w).add,
                        .parts = g->part_cols ? 2 : 1,
                        .mainloop = g->matmul->attr.place == PLACE_MAINLOOP};
    if (type_scale_varies(a))
        spec.act_block_cols = a->scheme->block[1];
    spec.act_zero = a->scheme && a->scheme->zero != ZERO_NONE;
    if (w->scheme) {
        spec.has_zero = w->scheme->zero != ZERO_NONE;
        spec.block_rows = w->scheme->block[0];
        spec.block_cols = w->scheme->block[1];
        spec.scale_fmt = w->scheme->scale_fmt == FMT_I8 ? FMT_F32 : w->scheme->scale_fmt;
        spec.table = w->scheme->table;
        spec.factor_cols = factor_cols(build_outer(g->b, op_in(g->matmul, 1)));
    }
    return spec;
}

/* Of rows, which have weights of their own; 0: all have one. */
static int64_t groups_of(const Gemm *g)
{
    return g->matmul->num_in == 3 ? op_in(g->matmul, 1)->type->dim[0].add : 0;
}

static bool find_weight(Gemm *g)
{
    Builder *b = g->b;
    const Value *value = op_in(g->matmul, 1);
    Span span = g->matmul->span;
    if (value->def->kind != OP_ARG)
        return build_fail(b, span, "the weight of a linear layer is computed in its own kernel");
    const Value *outer = build_outer(b, value);
    if (build_is_constant(b, outer)) {
        CpuPackSpec spec = pack_spec(g);
        g->w = tensor_packed(b, outer, &spec, groups_of(g), span);
        return g->w >= 0;
    }
    if (groups_of(g))
        return build_fail(b, span, "the weights of groups of rows are computed");
    if (value->type->scheme || op_in(g->matmul, 0)->type->scheme)
        return build_fail(b, span,
                          "a product whose second operand %s is computed cannot be quantised",
                          type_text(b->arena, value->type));
    if (g->part_cols)
        return build_fail(b, span, "halves of a product whose second operand is computed meet");
    g->w = tensor_get(b, outer, span);
    return g->w >= 0;
}

static void store_before(Gemm *g, const Value *value, int tensor, int codes)
{
    Store store = {value, 0, tensor, codes};
    ARRAY_PUSH(g->b->arena, &g->before, store);
    ptrmap_put(&g->inside, value, tensor + 1);
}

/* A yield's tensor, where the kernel also uses it inside. */
static int yielded_tensor(const Gemm *g, const Value *value)
{
    const Op *yield = g->kernel->body->last;
    for (int i = 0; i < yield->num_in; i++)
        if (op_in(yield, i) == value)
            return tensor_result(g->b, &g->kernel->out[i],
                                 value->def->kind == OP_QUANTIZE ? value->def : NULL);
    return -1;
}

static int before_tensor(Gemm *g, const Value *value)
{
    int tensor = yielded_tensor(g, value);
    return tensor >= 0 ? tensor : tensor_inside(g->b, g->kernel->attr.layer, value);
}

/* The first operand and the code sums of it, filled by the prologue where the kernel makes them. */
static bool find_activation(Gemm *g)
{
    Builder *b = g->b;
    const Value *a = op_in(g->matmul, 0);
    if (a->def->kind == OP_ARG) {
        g->a = tensor_get(b, build_outer(b, a), g->matmul->span);
        return g->a >= 0;
    }
    g->a = before_tensor(g, a);
    store_before(g, a, g->a, -1);
    for_each_op(op, g->kernel->body)
        if (op->kind == OP_CODE_SUM && op_in(op, 0) == a)
            store_before(g, &op->out[0], before_tensor(g, &op->out[0]), g->a);
    return !b->failed;
}

/* Other yields that the product does not take part in are stored by the prologue too. */
static void find_yields(Gemm *g)
{
    const Op *yield = g->kernel->body->last;
    for (int i = 0; i < yield->num_in; i++) {
        const Value *value = op_in(yield, i);
        const Op *def = value->def;
        if (ptrmap_get(&g->inside, value))
            continue;
        int tensor = tensor_result(g->b, &g->kernel->out[i], def->kind == OP_QUANTIZE ? def : NULL);
        if (columns_of(g, value)->num_bases) {
            Yield y = {.value = value, .tensor = tensor, .codes = -1};
            ARRAY_PUSH(g->b->arena, &g->yields, y);
        } else {
            int codes = def->kind == OP_CODE_SUM ? ptrmap_get(&g->inside, op_in(def, 0)) - 1 : -1;
            store_before(g, value, tensor, codes);
        }
    }
    for (int i = 0; i < g->yields.num; i++) { /* code sums of codes stored by the epilogue */
        Yield *y = &g->yields.elem[i];
        for (int k = 0; y->value->def->kind == OP_CODE_SUM && k < g->yields.num; k++)
            if (g->yields.elem[k].value == op_in(y->value->def, 0))
                y->codes = g->yields.elem[k].tensor;
        if (y->value->def->kind == OP_CODE_SUM && y->codes < 0)
            build_fail(g->b, y->value->def->span, "the codes of a code sum are not stored");
    }
}

/* Segments ------------------------------------------------------------------------------------ */

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The columns at which the chosen yields cut the product, ascending. */
static int find_cuts(const Gemm *g, const bool *chosen, int64_t *cut)
{
    int num = 0, kept = 0;
    for (int i = 0; i < g->yields.num; i++) {
        const Yield *y = &g->yields.elem[i];
        if (!chosen[i])
            continue;
        cut[num++] = y->begin;
        cut[num++] = y->begin + y->cols;
    }
    qsort(cut, (size_t)num, sizeof *cut, compare_i64);
    for (int i = 0; i < num; i++)
        if (kept == 0 || cut[i] != cut[kept - 1])
            cut[kept++] = cut[i];
    return kept;
}

/* Yields that one launch can store: none that must be whole is cut by another. */
static void choose_yields(Gemm *g, bool *chosen, int64_t *cut)
{
    for (int i = 0; i < g->yields.num; i++) {
        if (g->yields.elem[i].is_done)
            continue;
        chosen[i] = true;
        int num = find_cuts(g, chosen, cut);
        for (int k = 0; k <= i && chosen[i]; k++) {
            const Yield *y = &g->yields.elem[k];
            for (int c = 0; chosen[k] && y->columns.is_whole && c < num; c++)
                if (cut[c] > y->begin && cut[c] < y->begin + y->cols)
                    chosen[i] = false;
        }
    }
}

/* All yields, over all columns of a product with a varying number of them. */
static bool build_varying(Gemm *g, Operands *operands, PlanSegment *ret)
{
    Builder *b = g->b;
    Store *store = ARENA_NEW_ARRAY(b->arena, Store, (size_t)g->yields.num);
    for (int i = 0; i < g->yields.num; i++) {
        const Yield *y = &g->yields.elem[i];
        store[i] = (Store){y->value, 0, y->tensor, y->codes};
    }
    *ret = (PlanSegment){.n_begin = 0, .n_end = PLAN_LAST_COLUMN};
    ProgramSpec spec = {.domain = g->matmul->out[0].type,
                        .cols = g->n,
                        .matmul = g->matmul,
                        .num_stores = g->yields.num,
                        .store = store,
                        .inside = &g->inside};
    return program_build(b, operands, &spec, &ret->epilogue);
}

static bool build_segment(Gemm *g, const bool *chosen, int64_t begin, int64_t end,
                          Operands *operands, PlanSegment *ret)
{
    Builder *b = g->b;
    ARRAY(Store) stores = {0};
    for (int i = 0; i < g->yields.num; i++) {
        const Yield *y = &g->yields.elem[i];
        if (!chosen[i] || begin < y->begin || end > y->begin + y->cols)
            continue;
        int64_t off = begin - y->begin;
        bool narrow = y->value->def->kind == OP_CODE_SUM;
        int tensor = narrow ? y->tensor : tensor_columns(b, y->tensor, off, end - begin);
        Store store = {y->value, off, tensor, y->codes};
        ARRAY_PUSH(b->arena, &stores, store);
    }
    *ret = (PlanSegment){.n_begin = begin, .n_end = end};
    ProgramSpec spec = {.domain = g->matmul->out[0].type,
                        .cols = dim_const(end - begin),
                        .matmul = g->matmul,
                        .part_cols = g->part_cols,
                        .num_stores = stores.num,
                        .store = stores.elem,
                        .inside = &g->inside};
    return stores.num == 0 || program_build(b, operands, &spec, &ret->epilogue);
}

static bool build_prologue(Gemm *g, Operands *operands, PlanProgram *ret)
{
    const Type *type = op_in(g->matmul, 0)->type;
    PtrMap nothing;
    ptrmap_init(&nothing, g->b->arena); /* what the prologue stores it must compute */
    ProgramSpec spec = {.domain = type,
                        .cols = type_last(type),
                        .num_stores = g->before.num,
                        .store = g->before.elem,
                        .inside = &nothing};
    return g->before.num == 0 || program_build(g->b, operands, &spec, ret);
}

/* As many yields as one launch can store; returns the number of segments, 0 after an error. */
static int build_segments(Gemm *g, Operands *operands, PlanSegment **ret)
{
    Builder *b = g->b;
    size_t num = (size_t)g->yields.num;
    bool *chosen = ARENA_NEW_ARRAY(b->arena, bool, num + 1);
    int64_t *cut = ARENA_NEW_ARRAY(b->arena, int64_t, 2 * num + 1);
    PlanSegment *segment = *ret = ARENA_NEW_ARRAY(b->arena, PlanSegment, 2 * num + 1);
    if (!dim_is_const(g->n)) {
        for (int i = 0; i < g->yields.num; i++)
            g->yields.elem[i].is_done = true;
        return build_varying(g, operands, segment);
    }
    choose_yields(g, chosen, cut);
    int num_cuts = find_cuts(g, chosen, cut), num_segments = 0;
    for (int i = 0; i + 1 < num_cuts; i++) {
        if (!build_segment(g, chosen, cut[i], cut[i + 1], operands, &segment[num_segments]))
            return 0;
        num_segments += segment[num_segments].epilogue.num_steps > 0;
    }
    for (int i = 0; i < g->yields.num; i++)
        g->yields.elem[i].is_done |= chosen[i];
    return num_segments;
}

static bool build_launch(Gemm *g, bool is_first)
{
    Builder *b = g->b;
    Operands operands = {0};
    PlanProgram prologue = {0};
    PlanSegment *segment;
    if (is_first && !build_prologue(g, &operands, &prologue))
        return false;
    int num_segments = build_segments(g, &operands, &segment);
    if (b->failed)
        return false;
    PlanLaunch *l = launch_add(b, g->kernel, LAUNCH_GEMM);
    l->num_operands = operands.list.num;
    l->operand = operands.list.elem;
    launch_group(b, g->kernel, l);
    l->a = g->a;
    l->w = g->w;
    l->prologue = prologue;
    l->num_segments = num_segments;
    l->segment = segment;
    return true;
}

static bool all_done(const Gemm *g)
{
    for (int i = 0; i < g->yields.num; i++)
        if (!g->yields.elem[i].is_done)
            return false;
    return true;
}

void build_gemm(Builder *b, Op *kernel, Op *matmul)
{
    Gemm g = {.b = b, .kernel = kernel, .matmul = matmul};
    const Type *w = op_in(matmul, 1)->type;
    g.n = w->dim[w->rank - 2];
    ptrmap_init(&g.inside, b->arena);
    mark_body(&g);
    if (!find_activation(&g))
        return;
    find_yields(&g);
    if (b->failed || !place_yields(&g) || !find_weight(&g))
        return;
    bool is_first = true;
    while (is_first || !all_done(&g)) {
        if (!build_launch(&g, is_first))
            return;
        is_first = false;
    }
}
