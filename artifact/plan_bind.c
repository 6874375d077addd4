/* Sizes and places of everything a plan touches, for actual sizes of its symbols. After plan_bind
 * succeeds, every address that a launch can compute lies inside the caller's tensors, the arena or
 * the weights. */
#include "artifact/artifact.h"

#include <string.h>

#define PART_ALIGN     64 /* parts of a quantised tensor */
#define CODE_ALIGN     16 /* rows of its codes: what tensor cores read at a time */
#define MAX_VIEW_DEPTH 16

int64_t plan_dim_eval(PlanDim d, const int64_t *size)
{
    int64_t product = d.mul, sum;
    for (int i = 0; i < 2; i++)
        if (d.sym[i] >= 0 && __builtin_mul_overflow(product, size[d.sym[i]], &product))
            return -1;
    if (__builtin_add_overflow(product, d.add, &sum) || sum < 0 || (uint64_t)sum > LIMIT_ELEMENTS)
        return -1;
    return sum;
}

/* Offsets of scales, zero points and the outer scale from `start`; false on overflow. */
static bool params_layout(const Scheme *s, int64_t rows, int64_t cols, uint64_t start,
                          PlanLayout *ret, uint64_t *ret_end)
{
    uint64_t blocks, bytes, at;
    if (!checked_mul((uint64_t)scheme_row_blocks(s, rows), (uint64_t)scheme_col_blocks(s, cols),
                     &blocks) ||
        !checked_mul(blocks, 4, &bytes) || !checked_align(start, PART_ALIGN, &at))
        return false;
    ret->scale_at = at;
    if (!checked_add(at, bytes, &at) || !checked_align(at, PART_ALIGN, &at))
        return false;
    ret->zero_at = at;
    if (s->zero != ZERO_NONE &&
        (!checked_add(at, bytes, &at) || !checked_align(at, PART_ALIGN, &at)))
        return false;
    ret->outer_at = at;
    return checked_add(at, s->outer ? 4 : 0, ret_end);
}

bool plan_tensor_layout(const PlanTensor *t, const int64_t *size, PlanLayout *ret)
{
    *ret = (PlanLayout){.rows = 1, .cols = 1};
    for (int i = 0; i < t->rank; i++) {
        int64_t dim = plan_dim_eval(t->dim[i], size);
        if (dim < 0 || dim > LIMIT_DIM)
            return false;
        if (i == t->rank - 1)
            ret->cols = dim;
        else if (__builtin_mul_overflow(ret->rows, dim, &ret->rows))
            return false;
    }
    uint64_t elements, elem = t->quantised ? 1 : (uint64_t)format_info[t->fmt].bits / 8;
    if (!checked_mul((uint64_t)ret->rows, (uint64_t)ret->cols, &elements) ||
        elements > LIMIT_ELEMENTS)
        return false;
    ret->pitch = ret->cols * (int64_t)elem;
    ret->bytes = elements * elem;
    if (!t->quantised)
        return true;
    ret->pitch = (ret->pitch + CODE_ALIGN - 1) / CODE_ALIGN * CODE_ALIGN;
    ret->bytes = (uint64_t)ret->rows * (uint64_t)ret->pitch;
    uint64_t end;
    bool apart = t->is_static; /* parameters lie in the constant t->params */
    if (!params_layout(&t->scheme, ret->rows, ret->cols, apart ? 0 : ret->bytes, ret, &end))
        return false;
    if (!apart)
        ret->bytes = end;
    return true;
}

typedef struct Binder {
    const Plan *plan;
    int bucket;
    const int64_t *size;
    PlanLayout *layout;
    IoError *err;
} Binder;

static bool bind_storage(const Binder *b, int i)
{
    const PlanTensor *t = &b->plan->tensor[i];
    PlanLayout *at = &b->layout[i];
    uint64_t end;
    at->root = at->params_root = i;
    if (t->packed && t->storage != STORAGE_CONST) /* what is decoded takes what it is packed to */
        at->bytes = t->bytes;
    if (t->storage == STORAGE_CONST && !t->packed && at->bytes > t->bytes)
        return plan_fail(b->err, "constant \"%s\" needs %llu bytes, has %llu", t->name,
                         (unsigned long long)at->bytes, (unsigned long long)t->bytes);
    if (t->storage == STORAGE_ARENA && (!checked_add(t->arena_offset[b->bucket], at->bytes, &end) ||
                                        end > b->plan->arena_bytes[b->bucket]))
        return plan_fail(b->err, "tensor \"%s\" ends behind the arena of %llu bytes", t->name,
                         (unsigned long long)b->plan->arena_bytes[b->bucket]);
    if (!t->quantised || !t->is_static)
        return true;
    /* the parameters' own layout starts at 0 of their constant */
    PlanLayout params;
    if (!params_layout(&t->scheme, at->rows, at->cols, 0, &params, &end) ||
        end > b->plan->tensor[t->params].bytes)
        return plan_fail(b->err, "the static parameters of \"%s\" do not fit their constant",
                         t->name);
    at->params_root = t->params;
    return true;
}

/* A view: columns of the rows of its tensor, or all of its bytes in another shape. */
static bool bind_view(const Binder *b, int i, int depth)
{
    const PlanTensor *t = &b->plan->tensor[i], *of = &b->plan->tensor[t->index];
    if (depth == MAX_VIEW_DEPTH)
        return plan_fail(b->err, "views of \"%s\" nest too deep", t->name);
    if (of->storage == STORAGE_VIEW && !bind_view(b, t->index, depth + 1))
        return false;
    const PlanLayout *to = &b->layout[t->index];
    PlanLayout *at = &b->layout[i];
    int64_t elem = t->quantised ? 1 : format_info[t->fmt].bits / 8;
    plan_tensor_layout(t, b->size, at); /* that of every tensor was found before */
    bool same = t->view_col == 0 && at->cols == to->cols && at->rows == to->rows;
    if (t->quantised && !same)
        return plan_fail(b->err, "a view of the quantised \"%s\" changes its shape", of->name);
    if (same) {
        *at = *to;
        return true;
    }
    at->root = at->params_root = to->root;
    at->at = to->at;
    if (t->view_col == 0 && at->rows * at->cols == to->rows * to->cols &&
        to->pitch == to->cols * elem)
        return true; /* first, since a reshape of no rows looks like columns too */
    if (at->rows == to->rows && t->view_col + at->cols <= to->cols) {
        at->pitch = to->pitch;
        at->at += (uint64_t)(t->view_col * elem);
        at->bytes =
            at->rows && at->cols ? (uint64_t)((at->rows - 1) * at->pitch + at->cols * elem) : 0;
        return true;
    }
    return plan_fail(b->err, "view \"%s\" [%lld, %lld] does not fit \"%s\" [%lld, %lld]", t->name,
                     (long long)at->rows, (long long)at->cols, of->name, (long long)to->rows,
                     (long long)to->cols);
}

/* The scales, zero points or outer scale of a quantised tensor, as a tensor. */
static bool bind_params(const Binder *b, int i)
{
    const PlanTensor *t = &b->plan->tensor[i], *of = &b->plan->tensor[t->index];
    if (of->storage == STORAGE_VIEW && !bind_view(b, t->index, 0))
        return false;
    const PlanLayout *to = &b->layout[t->index];
    PlanLayout *at = &b->layout[i];
    bool outer = t->storage == STORAGE_OUTER;
    int64_t rows = outer ? 1 : scheme_row_blocks(&of->scheme, to->rows);
    int64_t cols = outer ? 1 : scheme_col_blocks(&of->scheme, to->cols);
    if (at->cols != cols)
        return plan_fail(b->err, "\"%s\" has %lld columns, the parameters of \"%s\" %lld", t->name,
                         (long long)at->cols, of->name, (long long)cols);
    at->rows = rows; /* a dim cannot say how many blocks a varying number of rows has */
    at->pitch = cols * 4;
    at->bytes = (uint64_t)(rows * cols) * 4;
    at->root = at->params_root = to->params_root;
    at->at = outer ? to->outer_at : t->storage == STORAGE_ZEROS ? to->zero_at : to->scale_at;
    return true;
}

static bool bind_tensors(const Binder *b)
{
    const Plan *p = b->plan;
    for (int i = 0; i < p->num_tensors; i++) {
        const PlanTensor *t = &p->tensor[i];
        if (!plan_tensor_layout(t, b->size, &b->layout[i]))
            return plan_fail(b->err, "the size of tensor \"%s\" is negative or overflows", t->name);
        if (!storage_is_part(t->storage) && !bind_storage(b, i))
            return false;
    }
    for (int i = 0; i < p->num_tensors; i++) {
        PlanStorage storage = p->tensor[i].storage;
        if (storage == STORAGE_VIEW && !bind_view(b, i, 0))
            return false;
        if (storage > STORAGE_VIEW && !bind_params(b, i))
            return false;
    }
    return true;
}

/* Launches ------------------------------------------------------------------------------------ */

/* Reads of rows x cols through an operand's mapping stay inside its tensor. */
static bool bind_read(const Binder *b, const PlanLaunch *l, const PlanOperand *o, int64_t rows,
                      int64_t cols)
{
    const PlanLayout *at = &b->layout[o->tensor];
    if (o->index) { /* whatever its rows are, one of the tensor's is read */
        const PlanOperand *index = &l->operand[o->index - 1];
        const PlanLayout *of = &b->layout[index->tensor];
        return (rows == 0 || at->rows > 0 || cols == 0) && of->rows == rows && of->cols == 1 &&
                       plan_dim_eval(index->row_div, b->size) == 1 &&
                       plan_dim_eval(index->row_mod, b->size) == 0 &&
                       (cols - 1) * o->col_step < at->cols
                   ? true
                   : plan_fail(b->err, "\"%s\" does not say which rows of \"%s\" are read",
                               b->plan->tensor[index->tensor].name,
                               b->plan->tensor[o->tensor].name);
    }
    if (o->by_group) /* it has a row for each group */
        return cols <= at->cols ||
               plan_fail(b->err, "\"%s\" has %lld columns, not %lld",
                         b->plan->tensor[o->tensor].name, (long long)at->cols, (long long)cols);
    int64_t div = plan_dim_eval(o->row_div, b->size), mod = plan_dim_eval(o->row_mod, b->size);
    if (div < 1 || mod < 0)
        return plan_fail(b->err,
                         "operand \"%s\" has a row divisor of %lld and a row modulus of %lld",
                         b->plan->tensor[o->tensor].name, (long long)div, (long long)mod);
    if (rows == 0 || cols == 0)
        return true;
    int64_t last_row = (rows - 1) / div, last_col = (cols - 1) * o->col_step;
    if (mod && last_row >= mod)
        last_row = mod - 1;
    if (last_row >= at->rows || last_col >= at->cols)
        return plan_fail(b->err, "\"%s\" is [%lld, %lld], but row %lld, column %lld is read",
                         b->plan->tensor[o->tensor].name, (long long)at->rows, (long long)at->cols,
                         (long long)last_row, (long long)last_col);
    return true;
}

/* Writes go to the launch's own rows and columns and to nothing else. */
static bool bind_write(const Binder *b, const PlanOperand *o, int64_t rows, int64_t cols)
{
    const PlanLayout *at = &b->layout[o->tensor];
    if (o->by_group || o->index || at->rows != rows || at->cols != cols ||
        plan_dim_eval(o->row_div, b->size) != 1 || plan_dim_eval(o->row_mod, b->size) != 0 ||
        (o->col_step != 1 && cols != 1))
        return plan_fail(b->err, "\"%s\" is [%lld, %lld], but [%lld, %lld] is written to it",
                         b->plan->tensor[o->tensor].name, (long long)at->rows, (long long)at->cols,
                         (long long)rows, (long long)cols);
    return true;
}

/* A code sum adds up `cols` adjacent codes, whatever the column step. */
static bool bind_sum(const Binder *b, const PlanLaunch *l, const PlanOperand *o, int64_t rows,
                     int64_t cols)
{
    PlanOperand adjacent = *o;
    adjacent.col_step = 1;
    return bind_read(b, l, &adjacent, rows, cols);
}

static bool bind_program(const Binder *b, const PlanLaunch *l, const PlanProgram *p, int64_t rows,
                         int64_t cols)
{
    for (int i = 0; i < p->num_steps; i++) {
        const TileStep *s = &p->step[i];
        if (s->op == TILE_LOAD && !bind_read(b, l, &l->operand[s->tensor], rows, cols))
            return false;
        if (s->op == TILE_CODE_SUM && !bind_sum(b, l, &l->operand[s->tensor2], rows, cols))
            return false;
        if (plan_writes((TileOp)s->op) &&
            !bind_write(b, &l->operand[s->tensor], rows, s->op == TILE_CODE_SUM ? 1 : cols))
            return false;
    }
    return true;
}

double plan_operand_share(const PlanLaunch *l, int operand, const PlanLayout *layout)
{
    const PlanOperand *o = &l->operand[operand];
    int64_t rows = layout[o->tensor].rows;
    if (!o->index || rows < 1)
        return 1;
    return (double)layout[l->operand[o->index - 1].tensor].rows / (double)rows;
}

double plan_operand_bytes(const PlanLaunch *l, int operand, const PlanLayout *layout)
{
    return (double)layout[l->operand[operand].tensor].bytes *
           plan_operand_share(l, operand, layout);
}

CpuPackSpec plan_gemm_spec(const PlanTensor *a, const PlanTensor *w, const PlanLayout *w_layout)
{
    if (w->packed)
        return w->pack_spec;
    return (CpuPackSpec){
        .fmt = w->fmt, .act_fmt = a->fmt, .n = w_layout->rows, .k = w_layout->cols, .parts = 1};
}

int64_t plan_segment_end(const PlanSegment *s, const CpuPackSpec *spec)
{
    return s->n_end == PLAN_LAST_COLUMN ? spec->n / spec->parts : s->n_end;
}

/* Groups that are counted have equally many rows. */
static bool bind_counts(const Binder *b, const PlanLaunch *l, int64_t rows)
{
    int64_t groups = l->grouped && l->counted ? b->layout[l->ends].cols : 1;
    return rows % groups == 0 || plan_fail(b->err, "\"%s\": %lld rows are not those of %lld groups",
                                           l->layer, (long long)rows, (long long)groups);
}

/* Of a product of groups each operand has the product's rows, or one, or one of each group: rows of
 * a group lie together then. */
static bool bind_groups(const Binder *b, const PlanLaunch *l, int64_t rows)
{
    if (!bind_counts(b, l, rows))
        return false;
    for (int i = 0; l->grouped && i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        const PlanLayout *at = &b->layout[o->tensor];
        bool plain =
            plan_dim_eval(o->row_div, b->size) == 1 && plan_dim_eval(o->row_mod, b->size) == 0;
        if (!o->by_group && !o->index && at->rows != 1 && !(plain && at->rows == rows))
            return plan_fail(b->err, "\"%s\": rows of \"%s\" are not those of groups", l->layer,
                             b->plan->tensor[o->tensor].name);
    }
    return true;
}

static bool bind_gemm(const Binder *b, const PlanLaunch *l)
{
    const PlanLayout *a = &b->layout[l->a];
    CpuPackSpec spec =
        plan_gemm_spec(&b->plan->tensor[l->a], &b->plan->tensor[l->w], &b->layout[l->w]);
    if (a->rows == 0) /* the launch does nothing, and a computed weight may be as empty */
        return true;
    if (a->cols != spec.k)
        return plan_fail(b->err, "\"%s\": the activation has %lld columns, the weight %lld",
                         l->layer, (long long)a->cols, (long long)spec.k);
    const char *problem = cpu_pack_problem(&spec);
    if (problem)
        return plan_fail(b->err, "\"%s\": %s", l->layer, problem);
    if (!bind_groups(b, l, a->rows) || !bind_program(b, l, &l->prologue, a->rows, a->cols))
        return false;
    int64_t begin = 0;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanSegment *s = &l->segment[i];
        int64_t end = plan_segment_end(s, &spec);
        if (s->n_begin < begin || end <= s->n_begin || end > spec.n / spec.parts)
            return plan_fail(b->err, "\"%s\": columns %lld to %lld are out of order or range",
                             l->layer, (long long)s->n_begin, (long long)end);
        begin = end;
        if (!bind_program(b, l, &s->epilogue, a->rows, end - s->n_begin))
            return false;
    }
    return true;
}

static bool same_size(const PlanLayout *a, int64_t rows, int64_t cols)
{
    return a->rows == rows && a->cols == cols;
}

/* Sizes of what a step of routing reads and writes agree; routed rows are counted in i32. */
static bool bind_route(const Binder *b, const PlanLaunch *l)
{
    const PlanLayout *at[ROUTE_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < l->num_operands; i++)
        at[i] = &b->layout[l->operand[i].tensor];
    const PlanLayout *x = at[0], *to = at[1];
    int64_t rows = x->rows, choices = 0;
    bool ok = !plan_route_sorts(l->route) ||
              (!__builtin_mul_overflow(rows, x->cols, &choices) && choices <= INT32_MAX);
    switch (l->route) {
    case ROUTE_WEIGH: ok = to->cols <= LIMIT_WEIGHED; /* fall through */
    case ROUTE_CHOOSE:
    case ROUTE_TOPK: ok = ok && to->rows == rows && to->cols >= 1 && to->cols <= x->cols; break;
    case ROUTE_TAKE: ok = to->rows == rows; break;
    case ROUTE_PLACES: ok = ok && same_size(to, rows, x->cols); break;
    case ROUTE_SOURCES: ok = ok && same_size(to, choices, 1); break;
    case ROUTE_CLEAR: ok = rows == 1 && x->cols >= 1 && to->rows % x->cols == 0; break;
    default: ok = ok && same_size(to, 1, l->groups); break;
    }
    if (plan_route_results(l->route) == 2 || l->route == ROUTE_TAKE)
        ok = ok && same_size(at[2], rows, to->cols);
    if (l->route == ROUTE_SORT)
        ok = ok && same_size(at[2], rows, x->cols) && same_size(at[3], choices, 1);
    return ok || plan_fail(b->err, "\"%s\": %s of [%lld, %lld] cannot give [%lld, %lld]", l->layer,
                           route_step_name[l->route], (long long)x->rows, (long long)x->cols,
                           (long long)to->rows, (long long)to->cols);
}

/* The last byte that a strided box of one tensor touches lies inside it. */
static bool bind_box(const Binder *b, const PlanLaunch *l, int tensor, const PlanDim *stride,
                     PlanDim offset)
{
    const PlanTensor *t = &b->plan->tensor[tensor];
    uint64_t last = 0, step, elem = (uint64_t)format_info[t->fmt].bits / 8, end;
    int64_t start = plan_dim_eval(offset, b->size);
    bool ok = start >= 0, empty = false, twice = false;
    for (int i = 0; ok && i < l->move_rank; i++) {
        int64_t dim = plan_dim_eval(l->move_dim[i], b->size);
        int64_t by = plan_dim_eval(stride[i], b->size);
        ok = dim >= 0 && by >= 0;
        empty |= dim == 0;
        ok = ok && (dim <= 1 || (checked_mul((uint64_t)(dim - 1), (uint64_t)by, &step) &&
                                 checked_add(last, step, &last)));
        twice |= tensor == l->dst && dim > 1 && by == 0;
    }
    if (ok && empty)
        return true;
    if (twice)
        return plan_fail(b->err, "\"%s\": elements are written twice", l->layer);
    ok = ok && checked_add(last, (uint64_t)start, &last) && checked_add(last, 1, &last) &&
         checked_mul(last, elem, &end) && end <= b->layout[tensor].bytes;
    return ok || plan_fail(b->err, "\"%s\": a move leaves tensor \"%s\"", l->layer, t->name);
}

bool plan_bind(const Plan *plan, int bucket, const int64_t *size, PlanLayout *layout, IoError *err)
{
    const Binder b = {plan, bucket, size, layout, err};
    for (int i = 0; i < plan->num_syms; i++)
        if (size[i] < 0 || size[i] > plan_bucket(plan, bucket)[i])
            return plan_fail(err, "%s = %lld is not within the bucket's %lld", plan->sym[i].name,
                             (long long)size[i], (long long)plan_bucket(plan, bucket)[i]);
    if (!bind_tensors(&b))
        return false;
    for (int i = 0; i < plan->num_launches; i++) {
        const PlanLaunch *l = &plan->launch[i];
        bool ok;
        if (l->family == LAUNCH_GEMM) {
            ok = bind_gemm(&b, l);
        } else if (l->family == LAUNCH_TILE) {
            const PlanLayout *shape = &layout[l->operand[0].tensor];
            ok = bind_counts(&b, l, shape->rows) &&
                 bind_program(&b, l, &l->program, shape->rows, shape->cols);
        } else if (l->family == LAUNCH_DECODE) {
            ok = true; /* both are as large as they are packed to */
        } else if (l->family == LAUNCH_ROUTE) {
            ok = bind_route(&b, l);
        } else {
            ok = bind_box(&b, l, l->src, l->move_src_stride, l->move_src_offset) &&
                 bind_box(&b, l, l->dst, l->move_dst_stride, l->move_dst_offset);
        }
        if (!ok)
            return false;
    }
    return true;
}
