/* passes/fuse_grow: grows one kernel from its seed: backwards into the matmul's first operand, then
 * forwards through users in program order, and sideways into producers that only this kernel needs.
 * The set stays convex: no operand from outside depends on a value of the kernel. */
#include "passes/fuse.h"

static void body_add(Fuse *f, Op *op, Region region)
{
    FuseOp *of = fuse_of(f, op);

    of->kernel = f->kernel;
    of->refused = false;
    of->region = region;
    if (of->order < f->first)
        f->first = of->order;
    ARRAY_PUSH(f->ctx->scratch, &f->body, op);
}

/* Forgets what was added after the body had `num` ops. */
static void body_undo(Fuse *f, int num)
{
    while (f->body.num > num)
        fuse_of(f, f->body.elem[--f->body.num])->kernel = 0;
    f->first = UINT32_MAX;
    for (int i = 0; i < num; i++) {
        uint32_t order = fuse_of(f, f->body.elem[i])->order;
        f->first = order < f->first ? order : f->first;
    }
}

void fuse_start(Fuse *f, Op *seed)
{
    f->kernel++;
    f->body.num = 0;
    f->stops.num = 0;
    f->parts = false;
    f->first = UINT32_MAX;
    f->matmul = seed->kind == OP_MATMUL ? seed : NULL;
    f->domain = op_out(seed)->type;
    f->prologue = f->matmul ? op_in(seed, 0)->type : NULL;
    f->ends = seed->kind == OP_SPREAD          ? op_in(seed, 1)
              : f->matmul && seed->num_in == 3 ? op_in(seed, 2)
                                               : NULL;
    body_add(f, seed, (Region){seed->kind == OP_QUANTIZE ? REGION_CODES : REGION_FULL, 0, 0});
}

/* Does an op outside the body need a value of the body? Ops before the body's first cannot. */
static bool depends_on_body(Fuse *f, Op *op)
{
    ARRAY(Op *) stack = {0};

    f->search++;
    ARRAY_PUSH(f->ctx->scratch, &stack, op);
    while (stack.num) {
        Op *top = stack.elem[--stack.num];
        FuseOp *of = fuse_of(f, top);
        if (fuse_has(f, top))
            return true;
        if (of->order < f->first || of->seen == f->search)
            continue;
        of->seen = f->search;
        for (int i = 0; i < top->num_in; i++)
            ARRAY_PUSH(f->ctx->scratch, &stack, op_in(top, i)->def);
    }
    return false;
}

static bool uses_inside(Fuse *f, const Value *value)
{
    for_each_use(use, value)
        if (!fuse_has(f, use->user))
            return false;
    return true;
}

/* Sideways ------------------------------------------------------------------------------------- */

static const char *operands_join(Fuse *f, Op *op, Region region, const Type *domain, int64_t cols);

/* The columns that an op of this region works on. */
static int64_t region_cols(Region region, const Type *domain)
{
    if (region.kind == REGION_SLICE || region.kind == REGION_PARTS ||
        (region.kind == REGION_CODES && region.width))
        return region.width;
    return type_cols(domain);
}

/* Is the value needed before the main loop? What the epilogue absorbs is made after it. */
static bool read_before_loop(Fuse *f, const Value *value)
{
    for_each_use(use, value)
        if (use->user == f->matmul || fuse_of(f, use->user)->region.kind == REGION_PROLOGUE)
            return true;
    return false;
}

/* Absorbs the producer of an operand where only this kernel needs it. */
static bool producer_joins(Fuse *f, Value *value, Region region, const Type *domain, int64_t cols)
{
    Op *op = value->def;
    int num = f->body.num;
    bool narrow = dim_is_const(type_last(value->type)) && type_last(value->type).add == 1;

    if (op->block != &f->m->body || !uses_inside(f, value) || fuse_refused(f, op))
        return false;
    if (op_is_accessor(f, op)) {
        body_add(f, op, (Region){REGION_NARROW, 0, 0});
        return true;
    }
    if (op->kind == OP_CODE_SUM && fuse_has(f, op_in(op, 0)->def)) {
        body_add(f, op, (Region){REGION_NARROW, 0, 0});
        return true;
    }
    if (!op_is_computed(f, op) || !(op_info[op->kind].flags & OPF_POINTWISE) ||
        num >= FUSE_MAX_OPS || read_before_loop(f, value))
        return false;
    body_add(f, op, narrow ? (Region){REGION_NARROW, 0, 0} : region);
    if (!operands_join(f, op, region, domain, cols))
        return true;
    body_undo(f, num);
    return false;
}

/* Rows of a table by the groups that the kernel knows. A tile kernel knows those of the first one.
 */
static const char *spread_joins(Fuse *f, const Op *op, int64_t cols)
{
    const Value *table = op_in(op, 0), *ends = op_in(op, 1);

    if (cols >= 0 ? type_cols(table->type) != cols
                  : !dim_equal(type_last(table->type), type_last(f->domain)))
        return "spread has other columns than the tile";
    if (fuse_has(f, table->def) || depends_on_body(f, table->def) || depends_on_body(f, ends->def))
        return "spread also needs what runs after this kernel";
    if (f->ends ? f->ends != ends : f->matmul != NULL)
        return "spread is by a route that the rows of this kernel do not have";
    f->ends = ends;
    return NULL;
}

/* Rows that an index names lie in memory. */
static const char *rows_join(Fuse *f, const Op *op)
{
    if (f->matmul)
        return arena_printf(f->ctx->arena, "%s is read by rows, not by tiles of a product",
                            op_info[op->kind].name);
    for (int i = 0; i < op->num_in; i++)
        if (fuse_has(f, op_in(op, i)->def) || depends_on_body(f, op_in(op, i)->def))
            return arena_printf(f->ctx->arena, "%s needs what runs after this kernel",
                                op_info[op->kind].name);
    return NULL;
}

/* Every operand of an op that just joined is inside, absorbed, or can be read from outside; else
 * the reason. */
static const char *operands_join(Fuse *f, Op *op, Region region, const Type *domain, int64_t cols)
{
    Arena *arena = f->ctx->arena;

    if (op->kind == OP_SPREAD)
        return spread_joins(f, op, cols);
    if (op->kind == OP_DISPATCH || op->kind == OP_COMBINE)
        return rows_join(f, op);
    for (int i = 0; i < op->num_in; i++) {
        Value *in = op_in(op, i);
        if (fuse_has(f, in->def))
            continue;
        if (!shape_broadcasts(in->type, domain, cols))
            return arena_printf(arena, "%s repeats rows of %s in a way that tiles of %s cannot",
                                op_info[op->kind].name, type_text(arena, in->type),
                                type_text(arena, domain));
        if (!fuse_of(f, in->def)->constant && !producer_joins(f, in, region, domain, cols) &&
            depends_on_body(f, in->def)) {
            f->late = true;
            return arena_printf(arena, "%s also needs %s, which runs after this kernel",
                                op_info[op->kind].name, op_info[in->def->kind].name);
        }
    }
    return NULL;
}

/* Backwards ------------------------------------------------------------------------------------ */

static bool is_part(const Op *op)
{
    return op->kind == OP_SCALES || op->kind == OP_ZEROS || op->kind == OP_CODE_SUM;
}

/* A quantised first operand may also be read by its own parts: they belong to this kernel. */
static int other_users(Fuse *f, const Value *value)
{
    int num = 0;

    for_each_use(use, value)
        num += !fuse_has(f, use->user) && !is_part(use->user);
    return num;
}

static bool prologue_absorbs(Fuse *f, Value *value)
{
    Op *op = value->def;

    if (fuse_has(f, op) || op->block != &f->m->body || !op_is_computed(f, op) ||
        value == op_in(f->matmul, 1) /* it is read from memory */ || !prologue_takes(op) ||
        !type_same_shape(value->type, f->prologue) || other_users(f, value) ||
        f->body.num >= FUSE_MAX_OPS)
        return false;
    for (int i = 0; i < op->num_in && op->kind != OP_DISPATCH;
         i++) /* which reads rows by an index */
        if (!shape_broadcasts(op_in(op, i)->type, f->prologue, type_cols(f->prologue)))
            return false;
    body_add(f, op, (Region){REGION_PROLOGUE, 0, 0});
    return true;
}

void fuse_grow_prologue(Fuse *f)
{
    Value *a = op_in(f->matmul, 0);
    bool grew = !fuse_of(f, a->def)->constant && prologue_absorbs(f, a);

    while (grew) { /* a value used twice joins once both its users have */
        grew = false;
        for (int i = 1; i < f->body.num; i++) {
            Op *op = f->body.elem[i];
            for (int j = 0; j < op->num_in && op->kind != OP_DISPATCH; j++)
                if (!fuse_of(f, op_in(op, j)->def)->constant)
                    grew |= prologue_absorbs(f, op_in(op, j));
        }
    }
    if (!fuse_has(f, a->def) && op_is_computed(f, a->def) && prologue_takes(a->def)) {
        const char *name = op_info[a->def->kind].name;
        const char *why =
            a == op_in(f->matmul, 1)
                ? arena_printf(f->ctx->arena, "%s is both operands of this matmul", name)
                : arena_printf(f->ctx->arena,
                               "%s is read by %d others, so it is not in this matmul's kernel",
                               name, other_users(f, a));
        Stop stop = {a->def, why, false};
        ARRAY_PUSH(f->ctx->scratch, &f->stops, stop);
    }
}

/* Forwards ------------------------------------------------------------------------------------- */

/* Values of the body that are alive at once, in program order. */
static int body_live(Fuse *f)
{
    int most = 0;

    for (int i = 0; i < f->body.num; i++) {
        uint32_t at = fuse_of(f, f->body.elem[i])->order;
        int live = 0;
        for (int j = 0; j < f->body.num; j++) {
            Op *op = f->body.elem[j];
            uint32_t last = 0;
            if (fuse_of(f, op)->order > at)
                continue;
            for_each_use(use, op_out(op)) {
                uint32_t order = fuse_has(f, use->user) ? fuse_of(f, use->user)->order : 0;
                last = order > last ? order : last;
            }
            live += last > at || op == f->body.elem[i];
        }
        most = live > most ? live : most;
    }
    return most;
}

/* Of each choice but the first a combine reads the rows, their index and the weight once more. */
static int more_read(const Op *op)
{
    int64_t num = op->kind == OP_COMBINE ? type_last(op_in(op, 1)->type).add : 1;
    return 3 * (int)(num < FUSE_MAX_INPUTS ? num - 1 : FUSE_MAX_INPUTS);
}

static int body_inputs(Fuse *f)
{
    int num = 0;

    for (int i = 0; i < f->body.num; i++)
        num += more_read(f->body.elem[i]);
    for (int i = 0; i < f->body.num; i++)
        for (int j = 0; j < f->body.elem[i]->num_in; j++)
            num += !fuse_has(f, op_in(f->body.elem[i], j)->def);
    return num;
}

/* Values of the body that are read outside of it. Each may be written as a whole too, beside its
 * columns. */
static int body_outputs(Fuse *f)
{
    int num = 0;

    for (int i = 0; i < f->body.num; i++) {
        bool leaves = false;
        for_each_use(use, op_out(f->body.elem[i]))
            leaves = leaves || !fuse_has(f, use->user);
        num += leaves;
    }
    return num;
}

static const char *too_big(Fuse *f)
{
    if (f->body.num > FUSE_MAX_OPS)
        return arena_printf(f->ctx->arena, "the kernel already has %d operations", FUSE_MAX_OPS);
    if (f->body.num > FUSE_MAX_LIVE && body_live(f) > FUSE_MAX_LIVE)
        return arena_printf(f->ctx->arena, "more than %d values would be alive at once",
                            FUSE_MAX_LIVE);
    if (body_inputs(f) > FUSE_MAX_INPUTS)
        return arena_printf(f->ctx->arena, "the kernel already reads %d tensors", FUSE_MAX_INPUTS);
    if (body_inputs(f) + 2 * body_outputs(f) > FUSE_MAX_PORTS)
        return arena_printf(f->ctx->arena, "the kernel already reads and writes %d tensors",
                            FUSE_MAX_PORTS);
    return NULL;
}

static const char *try_add(Fuse *f, Op *op)
{
    Region region;
    int num = f->body.num;
    bool parts = f->parts;
    const char *why;

    f->late = false;
    why = f->matmul ? epilogue_refusal(f, op, &region) : tile_refusal(f, op, &region);
    if (!why) {
        int64_t cols = region_cols(region, f->domain);
        body_add(f, op, region);
        why = operands_join(f, op, region, f->domain, cols);
        if (!why)
            why = too_big(f);
    }
    if (why) {
        body_undo(f, num);
        f->parts = parts;
    }
    return why;
}

static bool is_candidate(Fuse *f, const Op *from, const Op *user)
{
    const FuseOp *of = fuse_of(f, user);
    RegionKind kind = fuse_of(f, from)->region.kind;

    if (of->kernel == f->kernel || user->kind == OP_OUTPUT || op_is_accessor(f, user))
        return false;
    if (kind == REGION_CODES)
        return user->kind == OP_CODE_SUM && from->kind == OP_QUANTIZE;
    return kind != REGION_PROLOGUE;
}

static Op *next_candidate(Fuse *f)
{
    Op *best = NULL;

    for (int i = 0; i < f->body.num; i++) {
        Op *op = f->body.elem[i];
        for_each_use(use, op_out(op))
            if (is_candidate(f, op, use->user) &&
                (!best || fuse_of(f, use->user)->order < fuse_of(f, best)->order))
                best = use->user;
    }
    return best;
}

static void stop_add(Fuse *f, const Op *op, const char *why)
{
    bool pointwise = op_info[op->kind].flags & OPF_POINTWISE || op->kind == OP_KERNEL;
    Stop stop = {op, why, pointwise && !f->late};

    if (*why)
        ARRAY_PUSH(f->ctx->scratch, &f->stops, stop);
}

void fuse_grow_forward(Fuse *f)
{
    Op *op;

    while ((op = next_candidate(f)) && f->body.num < FUSE_MAX_OPS) {
        const char *why = try_add(f, op);
        if (!why)
            continue;
        fuse_of(f, op)->kernel = f->kernel;
        fuse_of(f, op)->refused = true;
        stop_add(f, op, why);
    }
    if (op) { /* the rest begins another kernel */
        f->late = false;
        stop_add(f, op,
                 arena_printf(f->ctx->arena, "the kernel already has %d operations", f->body.num));
    }
}

/* Routing ------------------------------------------------------------------------------------- */

static bool leaves(Fuse *f, const Op *op)
{
    for_each_use(use, op_out((Op *)op))
        if (!fuse_has(f, use->user))
            return true;
    return false;
}

/* The op of this kind that reads `value` as its first operand and is in no kernel; NULL: none. */
static Op *reader_of(Fuse *f, const Value *value, OpKind kind, int64_t count)
{
    for_each_use(use, value)
        if (use->user->kind == kind && use == &use->user->in[0] &&
            use->user->block == &f->m->body && use->user->attr.count == count &&
            !fuse_has(f, use->user))
            return use->user;
    return NULL;
}

/* The softmax of what is taken, where nothing else reads that and one launch weighs so many. */
static Op *softmax_of(const Fuse *f, const Op *take, int64_t count)
{
    const Value *taken = op_out((Op *)take);
    if (value_num_uses(taken) != 1 || count > LIMIT_WEIGHED)
        return NULL;
    for_each_use(use, taken)
        if (use->user->kind == OP_SOFTMAX && use->user->block == &f->m->body)
            return use->user;
    return NULL;
}

/* One launch chooses, takes what it chose and weighs by the softmax of that, one finds all that the
 * order of groups says. */
void fuse_grow_route(Fuse *f)
{
    static const OpKind sorts[] = {OP_GROUP_ENDS, OP_GROUP_PLACES, OP_GROUP_SOURCES};
    Op *seed = f->body.elem[0], *join[3] = {NULL}, *weighed = NULL;
    const Value *x = op_in(seed, 0);
    int num = 0;
    if (seed->kind == OP_TOPK) {
        for_each_use(use, op_out(seed))
            if (use->user->kind == OP_TAKE && op_in(use->user, 0) == x && !num)
                join[num++] = use->user;
        Op *softmax = num ? softmax_of(f, join[0], seed->attr.count) : NULL;
        if (softmax) {
            weighed = join[0]; /* which nothing reads outside */
            join[num++] = softmax;
        }
    } else if (seed->kind != OP_TAKE) {
        for (int i = 0; i < 3; i++)
            if (sorts[i] != seed->kind && (join[num] = reader_of(f, x, sorts[i], seed->attr.count)))
                num++;
        num = num == 2 ? 2 : 0;
    }
    for (int i = 0; i < num; i++)
        body_add(f, join[i], (Region){REGION_FULL, 0, 0});
    bool all_leave = true;
    for (int i = 0; i < f->body.num; i++)
        all_leave = all_leave && (leaves(f, f->body.elem[i]) || f->body.elem[i] == weighed);
    if (!all_leave)
        body_undo(f, 1);
}
