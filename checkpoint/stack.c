/* checkpoint/stack: one weight of several matrices, each stored as a module of its own, as
 * checkpoints store experts: the matrices one below the other. Nothing is rounded, and codes stay
 * what they are. What a whole matrix has once becomes what each of its rows has: a scale, which is
 * repeated, and a second scale, which multiplies the layer's result (stored_outers). Where a second
 * scale could not be kept of some, the scales of all hold it. */
#include "checkpoint/checkpoint.h"

#include <string.h>

/* Settling ------------------------------------------------------------------------------------- */

static const char *scheme_text(Arena *arena, const Scheme *scheme)
{
    Sb sb;

    sb_init(&sb, arena);
    scheme_print(&sb, scheme, false);
    return sb.text;
}

static bool stack_fail(IoError *err, const StoredModule *one, const StoredModule *first,
                       const char *a, const char *b)
{
    return io_fail(err, E_CHECKPOINT_KIND,
                   "\"%.150s\" is stored as %s, but \"%.150s\" as %s: the matrices of one weight "
                   "are stored alike",
                   one->weight, a, first->weight, b);
}

/* The codes of all and their blocks; scales may differ as outer_settle says. */
static bool codes_equal(const Scheme *a, const Scheme *b)
{
    Scheme x = *a, y = *b;

    x.scale_fmt = y.scale_fmt = FMT_F32;
    x.outer = y.outer = false;
    return scheme_equal(&x, &y);
}

static bool scales_equal(const Scheme *a, const Scheme *b)
{
    bool is_wide = a->scale_fmt == FMT_F32 && b->scale_fmt == FMT_F32;

    return is_wide || (a->scale_fmt == b->scale_fmt && a->outer == b->outer);
}

/* A scale and a second one that multiplies it, or their product. */
static bool scales_related(const Scheme *a, const Scheme *b)
{
    return scales_equal(a, b) || (a->outer && !b->outer && b->scale_fmt == FMT_F32) ||
           (b->outer && !a->outer && a->scale_fmt == FMT_F32);
}

static bool alike(Arena *arena, const StoredModule *one, const StoredModule *first, IoError *err)
{
    const char *a = scheme_text(arena, &one->scheme), *b = scheme_text(arena, &first->scheme);

    if (one->rows != first->rows || one->cols != first->cols)
        return io_fail(err, E_WEIGHT_SHAPE,
                       "\"%.150s\" is a [%lld, %lld] weight, but \"%.150s\" [%lld, %lld]: the "
                       "matrices of one weight have one shape",
                       one->weight, (long long)one->rows, (long long)one->cols, first->weight,
                       (long long)first->rows, (long long)first->cols);
    if (!codes_equal(&one->scheme, &first->scheme) || !scales_related(&one->scheme, &first->scheme))
        return stack_fail(err, one, first, a, b);
    if (one->offset != first->offset)
        return stack_fail(err, one, first,
                          one->offset ? "codes with zero points that are floats" : a,
                          first->offset ? "codes with zero points that are floats" : b);
    return true;
}

static const char *act_text(Arena *arena, const StoredAct *act)
{
    Sb sb;

    if (!act->is_quantised)
        return "without one";
    sb_init(&sb, arena);
    sb_printf(&sb, "for %s", act->is_static ? "static " : "");
    scheme_print(&sb, &act->scheme, true);
    return sb.text;
}

static bool act_alike(const StoredAct *a, const StoredAct *b)
{
    if (!a->is_quantised || !b->is_quantised)
        return a->is_quantised == b->is_quantised;
    return a->is_static == b->is_static && scheme_equal(&a->scheme, &b->scheme);
}

/* How two static ranges differ; NULL: they do not. */
static const char *range_differs(Arena *arena, const StoredModule *a, const StoredModule *b)
{
    if (a->act.scale != b->act.scale)
        return arena_printf(arena,
                            "its static activation has the scale %.9g for \"%s\" and %.9g for "
                            "\"%s\", but rows of all are one operand",
                            (double)a->act.scale, a->weight, (double)b->act.scale, b->weight);
    if (a->act.zero != b->act.zero)
        return arena_printf(arena,
                            "its static activation has the zero point %d for \"%s\" and %d for "
                            "\"%s\", but rows of all are one operand",
                            (int)a->act.zero, a->weight, (int)b->act.zero, b->weight);
    return NULL;
}

/* Rows of all matrices are one operand, which has one range. */
static void act_settle(Checkpoint *c, StoredModule *m)
{
    const StoredModule *first = m->each[0], *most = first;

    m->act = first->act;
    for (int64_t e = 1; e < m->experts && !m->act_refused; e++) {
        const StoredModule *one = m->each[e];
        if (!act_alike(&one->act, &first->act))
            m->act_refused = arena_printf(
                c->arena, "\"%s\" is quantised %s activation, but \"%s\" %s", one->weight,
                act_text(c->arena, &one->act), first->weight, act_text(c->arena, &first->act));
        if (one->act.scale > most->act.scale)
            most = one;
    }
    for (int64_t e = 0; e < m->experts && !m->act_refused && m->act.is_static; e++)
        m->act_refused = range_differs(c->arena, m->each[e], most);
    if (!m->act_refused || !act_alike(&most->act, &first->act))
        return;
    m->act.scale = most->act.scale; /* for a remedy */
    m->act.zero = most->act.zero;
}

static void scheme_settle(StoredModule *m)
{
    bool all_equal = true;

    m->scheme = m->each[0]->scheme;
    for (int64_t e = 1; e < m->experts; e++)
        all_equal = all_equal && scales_equal(&m->scheme, &m->each[e]->scheme);
    m->outers = m->scheme.outer && all_equal;
    m->scheme.outer = false;
    if (!all_equal)
        m->scheme.scale_fmt = FMT_F32;
    if (!m->scheme.block[0])
        m->scheme.block[0] = 1;
}

static void doubts_gather(Checkpoint *c, StoredModule *m)
{
    for (int64_t e = 0; e < m->experts; e++)
        for (int i = 0; i < m->each[e]->doubts.num; i++) {
            bool is_new = true;
            for (int k = 0; k < m->doubts.num; k++)
                is_new = is_new && strcmp(m->doubts.elem[k], m->each[e]->doubts.elem[i]) != 0;
            if (is_new)
                ARRAY_PUSH(c->arena, &m->doubts, m->each[e]->doubts.elem[i]);
        }
}

static bool block_fits(const StoredModule *first, IoError *err)
{
    int64_t rows = first->scheme.block[0];

    if (first->scheme.table)
        return module_fail(err, first,
                           "is codes of a codebook, which weights of several matrices cannot have "
                           "yet; export it as f32, f16 or bf16");
    if (rows <= 1 || first->rows % rows == 0)
        return true;
    return module_fail(err, first,
                       "has a scale for each %lld rows, which do not divide its %lld: blocks of "
                       "scales would hold rows of two matrices",
                       (long long)rows, (long long)first->rows);
}

const StoredModule *checkpoint_stack(Checkpoint *c, const char *name, int64_t num,
                                     const StoredModule *const *each, IoError *err)
{
    StoredModule *m = ARENA_NEW(c->arena, StoredModule);
    const StoredModule *first = each[0];

    *m = (StoredModule){.name = name,
                        .weight = name,
                        .reader = first->reader,
                        .layout = first->layout,
                        .said = first->said,
                        .offset = first->offset,
                        .bits = first->bits,
                        .cols = first->cols,
                        .experts = num,
                        .each = each};
    m->rows = first->rows <= LIMIT_DIM / num ? first->rows * num : 0;
    if (!m->rows) {
        io_fail(err, E_LIMIT, "%.200s: has more than %d rows", name, LIMIT_DIM);
        return NULL;
    }
    for (int64_t e = 0; e < num; e++) {
        if (each[e]->refused) {
            module_fail(err, each[e], "%s", each[e]->refused);
            return NULL;
        }
        if (!alike(c->arena, each[e], first, err))
            return NULL;
        m->wide |= each[e]->order || each[e]->row_step || each[e]->part[PART_INPUT_FACTORS];
    }
    if (!block_fits(first, err))
        return NULL;
    scheme_settle(m);
    act_settle(c, m);
    doubts_gather(c, m);
    return m;
}

/* Reading -------------------------------------------------------------------------------------- */

/* The matrix `from` becomes the e-th of q, whose blocks are its own or parts of them. */
static void matrix_put(const StoredModule *m, QTensor *q, int64_t e, const QTensor *from)
{
    QTensor to = qtensor_rows(q, e * from->rows, from->rows);
    int64_t cols = to.col_blocks, height = qtensor_block_rows(from);
    float outer = m->outers ? 1 : from->outer;

    memcpy(to.codes, from->codes, (size_t)from->rows * (size_t)from->row_bytes);
    for (int64_t b = 0; b < to.row_blocks; b++) {
        int64_t source = b * to.scheme.block[0] / height;
        for (int64_t k = 0; k < cols; k++)
            to.scale[b * cols + k] = from->scale[source * cols + k] * outer;
        if (to.zero && from->zero)
            memcpy(to.zero + b * cols, from->zero + source * cols, (size_t)cols * sizeof *to.zero);
    }
}

bool stack_fill(const StoredModule *m, QTensor *q, IoError *err)
{
    for (int64_t e = 0; e < m->experts; e++) {
        QTensor one;
        if (!stored_read(m->each[e], &one, err))
            return false;
        matrix_put(m, q, e, &one);
        qtensor_free(&one);
    }
    return true;
}

bool stack_values(const StoredModule *m, float *ret, IoError *err)
{
    for (int64_t e = 0; e < m->experts; e++)
        if (!stored_values(m->each[e], ret + e * m->each[e]->rows * m->cols, err))
            return false;
    return true;
}

/* One row of them for each block of rows of m's scheme. */
bool stack_offsets(const StoredModule *m, float *ret, IoError *err)
{
    int64_t cols = scheme_col_blocks(&m->scheme, m->cols);

    for (int64_t e = 0; e < m->experts; e++) {
        const StoredModule *one = m->each[e];
        int64_t blocks = scheme_row_blocks(&m->scheme, one->rows);
        int64_t stored = scheme_row_blocks(&one->scheme, one->rows);
        float *at = ret + e * blocks * cols;
        if (!stored_offsets(one, at, err))
            return false;
        for (int64_t b = blocks; b-- > 0;)
            memmove(at + b * cols, at + b * stored / blocks * cols, (size_t)cols * sizeof *at);
    }
    return true;
}

bool stored_outers(const StoredModule *m, float *ret, IoError *err)
{
    for (int64_t e = 0; e < m->experts; e++) {
        QTensor one;
        if (!stored_read(m->each[e], &one, err))
            return false;
        for (int64_t r = 0; r < one.rows; r++)
            *ret++ = one.outer;
        qtensor_free(&one);
    }
    return true;
}
