/* A weight whose matrices lie apart, as checkpoints store experts: the part of bind-weights that
 * makes them one. A `*` in a name that no tensor has stands for 0, 1, .. up to the size of the
 * first dimension. Nothing is copied before the constant is evaluated.
 *
 * Before                                          After
 *   %w = const weight "x.*.w" : bf16[8, 4, 6]     the same text; in memory, the constant of w holds
 *                                                 the addresses of the tensors "x.0.w" to "x.7.w"
 */
#include "checkpoint/checkpoint.h"
#include "passes/internal.h"
#include <string.h>

typedef struct Stack {
    Module *m;
    const PassContext *ctx;
    const Op *op;
    int64_t num;
    const Type *each; /* of one of them */
} Stack;

const char *weight_name_at(Arena *arena, const char *pattern, int64_t at)
{
    const char *star = pattern ? strchr(pattern, '*') : NULL;

    if (!star)
        return pattern;
    return arena_printf(arena, "%.*s%lld%s", (int)(star - pattern), pattern, (long long)at,
                        star + 1);
}

static const char *name_at(const Stack *s, const char *pattern, int64_t at)
{
    return weight_name_at(s->m->arena, pattern, at);
}

static void say_stack(const Stack *s)
{
    const char *name = s->op->constant->name;

    diag_help(s->m->diag, "\"%s\" stands for \"%s\" to \"%s\", each %s", name, name_at(s, name, 0),
              name_at(s, name, s->num - 1), type_text(s->m->arena, s->each));
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number that stands for the pattern's `*` in the name; -1: the name is none of those. */
static int64_t number_in(const char *pattern, const char *name)
{
    size_t len = strcspn(pattern, "*");
    const char *digit = name + len;
    int64_t num = 0;

    if (strncmp(name, pattern, len) != 0 || (digit[0] == '0' && is_digit(digit[1])))
        return -1;
    for (; is_digit(*digit); digit++)
        num = num < LIMIT_DIM ? num * 10 + (*digit - '0') : num;
    return digit > name + len && strcmp(digit, pattern + len + 1) == 0 ? num : -1;
}

static void take_more(const Stack *s, const char *pattern, const char *name, int64_t *least,
                      const char **ret)
{
    int64_t num = number_in(pattern, name);

    if (num < s->num || (*ret && num >= *least))
        return;
    *least = num;
    *ret = name;
}

/* Is there one more than the param has room for, perhaps behind a gap? */
static bool has_more(const Stack *s, const char *pattern)
{
    const Checkpoint *c = s->m->checkpoint;
    const char *more = NULL;
    int64_t least = 0;

    for (int i = 0; i < weights_num(s->m->weights); i++)
        take_more(s, pattern, weights_at(s->m->weights, i)->name, &least, &more);
    for (int i = 0; i < c->modules.num; i++) {
        take_more(s, pattern, c->modules.elem[i]->weight, &least, &more);
        take_more(s, pattern, c->modules.elem[i]->name, &least, &more);
    }
    if (!more)
        return false;
    diag_error(s->m->diag, s->op->span, E_WEIGHT_SHAPE,
               "the weight files hold \"%s\", too, but %s here has room for %lld", more,
               type_text(s->m->arena, s->op->out[0].type), (long long)s->num);
    diag_help(s->m->diag, "the first dimension is how many tensors \"%s\" stands for, from 0 on",
              pattern);
    return true;
}

/* Are all there? Asked before memory is taken for so many as the text says. */
static bool all_found(const Stack *s)
{
    const char *pattern = s->op->constant->name;

    for (int64_t i = 0; i < s->num; i++) {
        const char *name = name_at(s, pattern, i);
        if (weights_find(s->m->weights, name) || checkpoint_find(s->m->checkpoint, name))
            continue;
        if (i) /* the nearest name would be that of another one */
            diag_error(s->m->diag, s->op->span, E_WEIGHT_MISSING,
                       "the weight files hold no tensor \"%s\"", name);
        else
            weight_missing(s->m, s->op, name);
        say_stack(s);
        return false;
    }
    return true;
}

/* One matrix is values, another codes. */
static void not_alike(const Stack *s, const char *plain, const char *codes)
{
    diag_error(s->m->diag, s->op->span, E_CHECKPOINT_KIND,
               "\"%s\" is stored as %s, but \"%s\" as codes: the matrices of one weight are stored "
               "alike",
               plain, weights_find(s->m->weights, plain)->dtype, codes);
}

/* Plain tensors ------------------------------------------------------------------------------- */

static bool is_same_format(const Stack *s, const TensorView *view, const TensorView *first)
{
    if (view->fmt == first->fmt)
        return true;
    diag_error(s->m->diag, s->op->span, E_WEIGHT_DTYPE,
               "\"%s\" is stored as %s, but \"%s\" as %s: the matrices of one weight are stored "
               "alike",
               view->name, view->dtype, first->name, first->dtype);
    return false;
}

static void stack_bind(const Stack *s)
{
    Module *m = s->m;
    Const *c = s->op->constant;
    ConstReader *reader = ARENA_NEW(m->arena, ConstReader);
    ConstPart *part = ARENA_NEW_ARRAY(m->arena, ConstPart, (size_t)s->num);
    const TensorView *first = NULL;

    for (int64_t i = 0; i < s->num; i++) {
        const char *name = name_at(s, c->name, i);
        const TensorView *view = weights_find(m->weights, name);
        bool is_codes = checkpoint_find(m->checkpoint, name) != NULL; /* perhaps under that name */
        first = i ? first : view;
        if (is_codes)
            not_alike(s, first->name, name);
        if (is_codes || !is_same_format(s, view, first) ||
            !weight_fits(m, s->ctx, s->op, s->each, view)) {
            say_stack(s);
            return;
        }
        weights_forget(m->weights, view->elements);
        part[i] = (ConstPart){view->data, view->bytes};
    }
    *reader = (ConstReader){.num_parts = (int)s->num, .part = part};
    c->stored_fmt = first->fmt == s->each->fmt ? FMT_NONE : first->fmt;
    c->reader = reader;
}

/* Stored quantised ---------------------------------------------------------------------------- */

static const StoredModule *hand_at(const Stack *s, int64_t at)
{
    const Const *c = s->op->constant;
    const ConstParts *all = c->parts;
    const ConstParts parts = {.scheme = all->scheme,
                              .scale = name_at(s, all->scale, at),
                              .zero = name_at(s, all->zero, at),
                              .offset = name_at(s, all->offset, at),
                              .outer = name_at(s, all->outer, at),
                              .table = name_at(s, all->table, at)};
    IoError err = {0};
    const StoredModule *stored = hand_module(s->m, name_at(s, c->name, at), &parts,
                                             s->each->dim[0].add, s->each->dim[1].add, &err);

    if (!stored)
        diag_error(s->m->diag, s->op->span, err.id, "%s", err.text);
    return stored;
}

/* The module, or what is wrong. */
static const StoredModule *module_at(const Stack *s, int64_t at)
{
    const char *name = name_at(s, s->op->constant->name, at);

    if (s->op->constant->parts)
        return hand_at(s, at);
    const StoredModule *stored = checkpoint_find(s->m->checkpoint, name);
    if (!stored)
        not_alike(s, name, name_at(s, s->op->constant->name, 0));
    return stored;
}

static const StoredModule *modules_find(const Stack *s)
{
    const char *name = s->op->constant->name;
    const StoredModule **each = ARENA_NEW_ARRAY(s->m->arena, const StoredModule *, (size_t)s->num);
    IoError err = {0};

    for (int64_t i = 0; i < s->num; i++) {
        each[i] = module_at(s, i);
        if (each[i])
            continue;
        say_stack(s);
        return NULL;
    }
    const StoredModule *stored = checkpoint_stack(s->m->checkpoint, name, s->num, each, &err);
    if (!stored)
        diag_error(s->m->diag, s->op->span, err.id, "%s", err.text);
    return stored;
}

/* Does each name stand for one of each matrix? */
static bool names_fit(const Stack *s)
{
    const Const *c = s->op->constant;
    const ConstParts *parts = c->parts;
    const char *const word[] = {"scale", "zero", "offset", "outer", "table"};

    if (strchr(strchr(c->name, '*') + 1, '*')) {
        diag_error(s->m->diag, s->op->span, E_WEIGHT_MISSING,
                   "the weight files hold no tensor \"%s\", whose name has more than one `*`",
                   c->name);
        diag_help(s->m->diag, "one `*` stands for 0, 1, .. up to the size of the first dimension");
        return false;
    }
    for (size_t i = 0; parts && i < COUNT_OF(word); i++) {
        const char *const name[] = {parts->scale, parts->zero, parts->offset, parts->outer,
                                    parts->table};
        if (!name[i] || strchr(name[i], '*'))
            continue;
        diag_error(s->m->diag, s->op->span, E_CHECKPOINT_KIND,
                   "codes \"%s\" are a tensor for each of %lld matrices, but %s \"%s\" is one",
                   c->name, (long long)s->num, word[i], name[i]);
        diag_help(s->m->diag, "a `*` in its name stands for the same numbers");
        return false;
    }
    return true;
}

const StoredModule *stack_find(Module *m, const PassContext *ctx, const Op *op)
{
    const Type *type = op->out[0].type;
    const Const *c = op->constant;
    Stack s = {.m = m, .ctx = ctx, .op = op};

    if (type->rank < (c->parts ? 3 : 1) || type->dim[0].add < 1) {
        weight_missing(m, op, c->name);
        diag_help(m->diag, "a `*` stands for 0, 1, .. up to the size of the first dimension");
        return NULL;
    }
    s.num = type->dim[0].add;
    s.each = type_plain(m, type->scheme ? FMT_F32 : type->fmt, type->rank - 1, type->dim + 1);
    if (!names_fit(&s) || !all_found(&s) || has_more(&s, c->name))
        return NULL;
    if (c->parts || checkpoint_find(m->checkpoint, name_at(&s, c->name, 0)))
        return modules_find(&s);
    stack_bind(&s);
    return NULL;
}

/* Joining ------------------------------------------------------------------------------------- */

static const ConstReader *parts_join(Module *m, int num, Value *const *in)
{
    const Const *first = in[0]->def->constant;
    int experts = first->reader->num_parts;
    ConstReader *reader = ARENA_NEW(m->arena, ConstReader);
    ConstPart *part = ARENA_NEW_ARRAY(m->arena, ConstPart, (size_t)experts * (size_t)num);

    for (int i = 0; i < num; i++) {
        const Const *c = in[i]->def->constant;
        if (c->reader->read || c->reader->num_parts != experts ||
            c->stored_fmt != first->stored_fmt)
            return NULL;
        for (int e = 0; e < experts; e++)
            part[e * num + i] = c->reader->part[e];
    }
    *reader = (ConstReader){.num_parts = experts * num, .part = part};
    return reader;
}

Value *stacks_join(Module *m, Op *at, int num, Value *const *in)
{
    const Type *type = in[0]->type;
    Dim dim[LIMIT_RANK];
    Sb name;

    sb_init(&name, m->arena);
    memcpy(dim, type->dim, sizeof dim);
    for (int i = 0; i < num; i++) {
        const Op *op = in[i]->def;
        const Type *one = in[i]->type;
        if (op->kind != OP_CONST || !op->constant->reader || one->rank != 3 ||
            one->fmt != type->fmt || one->scheme != type->scheme)
            return NULL;
        sb_printf(&name, "%s%s", i ? ", " : "", op->constant->name);
        dim[1].add += i ? one->dim[1].add : 0;
    }
    const Const *first = in[0]->def->constant;
    Const constant = {.kind = CONST_WEIGHT, .name = name.text, .stored_fmt = first->stored_fmt};
    constant.reader = first->reader->read ? stored_join(m, num, in) : parts_join(m, num, in);
    if (!constant.reader)
        return NULL;
    type =
        type->scheme ? type_quantised(m, type->scheme, 3, dim) : type_plain(m, type->fmt, 3, dim);
    return build_const(m, at->block, at, type, &constant, at->span);
}
