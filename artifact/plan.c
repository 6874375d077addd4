/* Launch plans as bytes: one description of each struct, walked in both directions, so that writing
 * and reading cannot drift apart. Little-endian, fields in the order of artifact.h, counts before
 * arrays. Reading bounds every count by the bytes that are left before it allocates; what the
 * numbers mean is checked in plan_check.c. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

#define PLAN_MAGIC   0x4e4c5053u /* "SPLN" */
#define PLAN_VERSION 1u

const char *const launch_family_name[NUM_LAUNCH_FAMILIES] = {"gemm", "tile", "move", "decode",
                                                             "route"};
const char *const route_step_name[NUM_ROUTE_STEPS] = {
    "topk", "take", "ends", "places", "sources", "choose", "sort", "weigh", "clear"};

/* A walk over a plan: out != NULL writes, otherwise reads [pos, end). Walkers assign the fields
 * that they code, so elements of arrays are copied before they are walked; arrays of the plan
 * itself are never written to while writing. */
typedef struct Coder {
    Bytes *out;
    const uint8_t *pos, *end;
    Arena *arena;
    const char *problem; /* first one */
} Coder;

void bytes_put(Bytes *b, const void *data, size_t size)
{
    if (b->failed)
        return;
    if (size > b->cap - b->size) {
        size_t cap = b->cap ? b->cap : 4096;
        while (cap - b->size < size)
            cap *= 2;
        uint8_t *grown = realloc(b->data, cap);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->data = grown;
        b->cap = cap;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

void bytes_free(Bytes *bytes)
{
    free(bytes->data);
    *bytes = (Bytes){0};
}

static void code_problem(Coder *c, const char *problem)
{
    if (!c->problem)
        c->problem = problem;
    c->pos = c->end;
}

/* The lowest `size` bytes of *v. */
static void code_int(Coder *c, uint64_t *v, int size)
{
    if (c->out) {
        uint8_t le[8];
        for (int i = 0; i < size; i++)
            le[i] = (uint8_t)(*v >> (8 * i));
        bytes_put(c->out, le, (size_t)size);
        return;
    }
    *v = 0;
    if (c->end - c->pos < size) {
        code_problem(c, "it ends too early");
        return;
    }
    for (int i = 0; i < size; i++)
        *v |= (uint64_t)*c->pos++ << (8 * i);
}

static void code_u64(Coder *c, uint64_t *v)
{
    code_int(c, v, 8);
}

static void code_i64(Coder *c, int64_t *v)
{
    uint64_t u = (uint64_t)*v;
    code_int(c, &u, 8);
    if (!c->out)
        *v = (int64_t)u;
}

static void code_i32(Coder *c, int32_t *v)
{
    uint64_t u = (uint32_t)*v;
    code_int(c, &u, 4);
    if (!c->out)
        *v = (int32_t)(uint32_t)u;
}

/* 0 <= *v < limit */
static int code_small(Coder *c, int v, int limit)
{
    uint64_t u = (uint64_t)(unsigned)v;
    code_int(c, &u, 1);
    if (u >= (uint64_t)limit) {
        code_problem(c, "a small number is out of range");
        return 0;
    }
    return (int)u;
}

static void code_bool(Coder *c, bool *v)
{
    *v = code_small(c, *v, 2) != 0;
}

static void code_format(Coder *c, FormatId *v)
{
    *v = (FormatId)code_small(c, (int)*v, NUM_FORMATS);
}

static void code_text(Coder *c, const char **text)
{
    uint64_t len = c->out && *text ? strlen(*text) : 0;
    code_int(c, &len, 4);
    if (c->out) {
        bytes_put(c->out, *text ? *text : "", (size_t)len);
        return;
    }
    if (len > (uint64_t)(c->end - c->pos) || memchr(c->pos, 0, (size_t)len)) {
        code_problem(c, "a text is too long or holds a NUL");
        len = 0;
    }
    *text = arena_strndup(c->arena, (const char *)c->pos, (size_t)len);
    c->pos += len;
}

/* Codes the number of an array's elements, each at least min_bytes long, and returns the array:
 * `have` when writing, new memory when reading. */
static void *code_array(Coder *c, const void *have, int *num, size_t elem, uint64_t min_bytes)
{
    uint64_t n = (uint64_t)(unsigned)*num;
    code_int(c, &n, 4);
    if (c->out)
        return (void *)(uintptr_t)have;
    if (n > (uint64_t)(c->end - c->pos) / min_bytes || n > INT32_MAX) {
        code_problem(c, "an array is longer than what is left");
        n = 0;
    }
    *num = (int)n;
    return n ? arena_alloc_array(c->arena, (size_t)n, elem) : NULL;
}

static void code_dim(Coder *c, PlanDim *d)
{
    code_i64(c, &d->mul);
    code_i64(c, &d->add);
    code_i32(c, &d->sym[0]);
    code_i32(c, &d->sym[1]);
}

static void code_scheme(Coder *c, Scheme *s)
{
    code_format(c, &s->fmt);
    code_format(c, &s->scale_fmt);
    s->zero = (ZeroKind)code_small(c, (int)s->zero, ZERO_INT + 1);
    code_bool(c, &s->outer);
    s->table = (TableKind)code_small(c, (int)s->table, NUM_TABLE_KINDS);
    code_bool(c, &s->fast);
    code_i64(c, &s->block[0]);
    code_i64(c, &s->block[1]);
}

static void code_pack_spec(Coder *c, CpuPackSpec *s)
{
    code_format(c, &s->fmt);
    code_format(c, &s->act_fmt);
    code_i64(c, &s->n);
    code_i64(c, &s->k);
    s->parts = code_small(c, s->parts, 3);
    code_bool(c, &s->mainloop);
    code_bool(c, &s->has_zero);
    code_bool(c, &s->act_zero);
    code_i64(c, &s->block_rows);
    code_i64(c, &s->block_cols);
    code_i64(c, &s->act_block_cols);
    code_format(c, &s->scale_fmt);
    code_i64(c, &s->factor_cols);
    s->table = (TableKind)code_small(c, (int)s->table, NUM_TABLE_KINDS);
    s->layout = (uint8_t)code_small(c, s->layout, NUM_CUDA_PACKED);
}

static void code_sym(Coder *c, PlanSym *s)
{
    code_text(c, &s->name);
    int64_t *size = code_array(c, s->size, &s->num_sizes, sizeof(int64_t), 8);
    for (int i = 0; i < s->num_sizes; i++)
        code_i64(c, &size[i]);
    s->size = size;
}

static void code_tensor(Coder *c, PlanTensor *t, int num_buckets)
{
    code_text(c, &t->name);
    code_format(c, &t->fmt);
    code_bool(c, &t->quantised);
    code_bool(c, &t->is_static);
    if (t->quantised)
        code_scheme(c, &t->scheme);
    t->rank = code_small(c, t->rank, LIMIT_RANK + 1);
    for (int i = 0; i < t->rank; i++)
        code_dim(c, &t->dim[i]);
    t->storage = (PlanStorage)code_small(c, (int)t->storage, STORAGE_OUTER + 1);
    code_i32(c, &t->index);
    code_u64(c, &t->offset);
    code_u64(c, &t->bytes);
    if (t->storage == STORAGE_ARENA) {
        int num = num_buckets;
        uint64_t *at = code_array(c, t->arena_offset, &num, sizeof(uint64_t), 8);
        if (num != num_buckets)
            code_problem(c, "a tensor lacks an offset for some bucket");
        for (int i = 0; i < num; i++)
            code_u64(c, &at[i]);
        t->arena_offset = at;
    }
    code_i64(c, &t->view_col);
    code_bool(c, &t->packed);
    if (t->packed) {
        code_pack_spec(c, &t->pack_spec);
        code_i64(c, &t->groups);
    }
    code_i32(c, &t->params);
}

static void code_operand(Coder *c, PlanOperand *o)
{
    code_i32(c, &o->tensor);
    code_dim(c, &o->row_div);
    code_dim(c, &o->row_mod);
    o->col_step = code_small(c, o->col_step, 2);
    code_bool(c, &o->by_group);
    code_i32(c, &o->index);
}

static void code_step(Coder *c, TileStep *s)
{
    uint64_t v[9] = {s->op,     s->fmt,  s->dst,    s->src[0], s->src[1],
                     s->src[2], s->part, s->tensor, s->tensor2};
    static const int size[9] = {2, 1, 1, 1, 1, 1, 1, 2, 2};
    for (int i = 0; i < 9; i++)
        code_int(c, &v[i], size[i]);
    uint32_t bits;
    memcpy(&bits, &s->imm, sizeof bits);
    uint64_t imm = bits;
    code_int(c, &imm, 4);
    if (c->out)
        return;
    bits = (uint32_t)imm;
    *s = (TileStep){.op = (uint16_t)v[0],
                    .fmt = (uint8_t)v[1],
                    .dst = (uint8_t)v[2],
                    .src = {(uint8_t)v[3], (uint8_t)v[4], (uint8_t)v[5]},
                    .part = (uint8_t)v[6],
                    .tensor = (uint16_t)v[7],
                    .tensor2 = (uint16_t)v[8]};
    memcpy(&s->imm, &bits, sizeof bits);
}

static void code_program(Coder *c, PlanProgram *p)
{
    TileStep *step = code_array(c, p->step, &p->num_steps, sizeof(TileStep), 16);
    for (int i = 0; i < p->num_steps; i++)
        code_step(c, &step[i]);
    p->step = step;
}

static void code_gemm(Coder *c, PlanLaunch *l)
{
    code_i32(c, &l->a);
    code_i32(c, &l->w);
    code_program(c, &l->prologue);
    PlanSegment *segment = code_array(c, l->segment, &l->num_segments, sizeof *segment, 20);
    for (int i = 0; i < l->num_segments; i++) {
        PlanSegment s = segment[i];
        code_i64(c, &s.n_begin);
        code_i64(c, &s.n_end);
        code_program(c, &s.epilogue);
        if (!c->out)
            segment[i] = s;
    }
    l->segment = segment;
}

static void code_move(Coder *c, PlanLaunch *l)
{
    code_i32(c, &l->src);
    code_i32(c, &l->dst);
    l->move_rank = code_small(c, l->move_rank, LIMIT_RANK + 1);
    for (int i = 0; i < l->move_rank; i++) {
        code_dim(c, &l->move_dim[i]);
        code_dim(c, &l->move_src_stride[i]);
        code_dim(c, &l->move_dst_stride[i]);
    }
    code_dim(c, &l->move_src_offset);
    code_dim(c, &l->move_dst_offset);
}

static void code_route(Coder *c, PlanLaunch *l)
{
    l->route = (RouteStep)code_small(c, (int)l->route, NUM_ROUTE_STEPS);
    code_i64(c, &l->groups);
}

static void code_launch(Coder *c, PlanLaunch *l)
{
    l->family = (LaunchFamily)code_small(c, (int)l->family, NUM_LAUNCH_FAMILIES);
    code_text(c, &l->layer);
    code_text(c, &l->place);
    code_text(c, &l->absorbed);
    PlanOperand *operand = code_array(c, l->operand, &l->num_operands, sizeof *operand, 58);
    for (int i = 0; i < l->num_operands; i++) {
        PlanOperand o = operand[i];
        code_operand(c, &o);
        if (!c->out)
            operand[i] = o;
    }
    l->operand = operand;
    if (l->family == LAUNCH_GEMM || l->family == LAUNCH_TILE)
        code_bool(c, &l->grouped);
    if (l->grouped) {
        code_bool(c, &l->counted);
        code_bool(c, &l->skips);
        code_i32(c, &l->ends);
    }
    if (l->family == LAUNCH_GEMM) {
        code_gemm(c, l);
    } else if (l->family == LAUNCH_TILE) {
        code_bool(c, &l->whole_rows);
        code_program(c, &l->program);
    } else if (l->family == LAUNCH_DECODE) {
        code_i32(c, &l->src);
        code_i32(c, &l->dst);
    } else if (l->family == LAUNCH_ROUTE) {
        code_route(c, l);
    } else {
        code_move(c, l);
    }
}

static void code_ports(Coder *c, const PlanPort **ports, int *num)
{
    PlanPort *port = code_array(c, *ports, num, sizeof *port, 8);
    for (int i = 0; i < *num; i++) {
        PlanPort p = port[i];
        code_text(c, &p.name);
        code_i32(c, &p.tensor);
        if (!c->out)
            port[i] = p;
    }
    *ports = port;
}

static void code_buckets(Coder *c, Plan *p)
{
    PlanSym *sym = code_array(c, p->sym, &p->num_syms, sizeof *sym, 8);
    for (int i = 0; i < p->num_syms; i++) {
        PlanSym s = sym[i];
        code_sym(c, &s);
        if (!c->out)
            sym[i] = s;
    }
    p->sym = sym;
    uint64_t *arena_bytes = code_array(c, p->arena_bytes, &p->num_buckets, sizeof(uint64_t), 8);
    for (int i = 0; i < p->num_buckets; i++)
        code_u64(c, &arena_bytes[i]);
    p->arena_bytes = arena_bytes;
    uint64_t product = 0;
    if (!checked_mul((uint64_t)p->num_buckets, (uint64_t)p->num_syms, &product) ||
        product > INT32_MAX)
        code_problem(c, "there are too many buckets");
    int num = c->problem ? 0 : (int)product;
    int64_t *size = code_array(c, p->bucket_size, &num, sizeof(int64_t), 8);
    if ((uint64_t)num != product)
        code_problem(c, "the buckets' sizes do not match their number");
    for (int i = 0; i < num; i++)
        code_i64(c, &size[i]);
    p->bucket_size = size;
}

static void code_plan(Coder *c, Plan *p)
{
    uint64_t magic = PLAN_MAGIC, version = PLAN_VERSION;
    code_int(c, &magic, 4);
    code_int(c, &version, 4);
    if (magic != PLAN_MAGIC || version != PLAN_VERSION)
        code_problem(c, "its magic or version is unknown");
    code_text(c, &p->target);
    code_buckets(c, p);
    code_bool(c, &p->rows_independent);
    PlanTensor *tensor = code_array(c, p->tensor, &p->num_tensors, sizeof *tensor, 40);
    for (int i = 0; i < p->num_tensors; i++) {
        PlanTensor t = tensor[i];
        code_tensor(c, &t, p->num_buckets);
        if (!c->out)
            tensor[i] = t;
    }
    p->tensor = tensor;
    PlanLaunch *launch = code_array(c, p->launch, &p->num_launches, sizeof *launch, 25);
    for (int i = 0; i < p->num_launches; i++) {
        PlanLaunch l = launch[i];
        code_launch(c, &l);
        if (!c->out)
            launch[i] = l;
    }
    p->launch = launch;
    code_ports(c, &p->input, &p->num_inputs);
    code_ports(c, &p->output, &p->num_outputs);
    if (!c->out && !c->problem && c->pos != c->end)
        code_problem(c, "bytes follow its end");
}

bool plan_encode(const Plan *plan, Bytes *ret)
{
    *ret = (Bytes){0};
    Coder c = {.out = ret};
    Plan copy = *plan;
    code_plan(&c, &copy);
    if (ret->failed || c.problem) {
        bytes_free(ret);
        return false;
    }
    return true;
}

typedef struct PlanBox { /* plan first: plan_free casts back */
    Plan plan;
    Arena *arena;
} PlanBox;

static Plan *decode_in(Arena *arena, const uint8_t *data, size_t size, IoError *err)
{
    PlanBox *box = ARENA_NEW(arena, PlanBox);
    box->arena = arena;
    Coder c = {.pos = data, .end = data + size, .arena = arena};
    code_plan(&c, &box->plan);
    if (!c.problem)
        return &box->plan;
    err->id = E_PLAN;
    snprintf(err->text, sizeof err->text, "the launch plan cannot be read: %s", c.problem);
    return NULL;
}

Plan *plan_decode(const uint8_t *data, size_t size, uint64_t weights_bytes, IoError *err)
{
    Arena *volatile arena = arena_create();
    jmp_buf exhausted;
    if (!arena || setjmp(exhausted)) {
        arena_destroy(arena);
        *err =
            (IoError){.id = E_MEMORY, .text = "memory is exhausted while reading the launch plan"};
        return NULL;
    }
    arena_on_exhausted(arena, &exhausted);
    Plan *plan = decode_in(arena, data, size, err);
    if (plan && !plan_check(plan, weights_bytes, err))
        plan = NULL;
    if (!plan)
        arena_destroy(arena);
    else
        arena_on_exhausted(arena, NULL);
    return plan;
}

void plan_free(Plan *plan)
{
    if (plan)
        arena_destroy(((PlanBox *)plan)->arena);
}
