/* Dimensions, and types interned per module so that equal types are one pointer. */
#include "ir/internal.h"
#include <string.h>

/* Dims ---------------------------------------------------------------------------------------- */

bool dim_equal(Dim a, Dim b)
{
    return a.mul == b.mul && a.add == b.add && a.sym[0] == b.sym[0] && a.sym[1] == b.sym[1];
}

bool dim_eval(Dim d, const int64_t *size, int64_t *ret)
{
    int64_t value = d.mul;
    for (int i = 0; i < 2; i++) {
        if (d.sym[i] && __builtin_mul_overflow(value, size[d.sym[i]->index], &value))
            return false;
    }
    if (__builtin_add_overflow(value, d.add, &value) || value < 0 || value > LIMIT_DIM)
        return false;
    *ret = value;
    return true;
}

static Dim dim_canonical(Dim d)
{
    if (d.mul == 0)
        return dim_const(d.add);
    if (!d.sym[0] || (d.sym[1] && d.sym[1]->index < d.sym[0]->index)) {
        const Sym *first = d.sym[1];
        d.sym[1] = d.sym[0];
        d.sym[0] = first;
    }
    if (!d.sym[0]) {
        d.add += d.mul;
        d.mul = 0;
    }
    return d;
}

bool dim_add(Dim a, Dim b, Dim *ret)
{
    bool same = a.sym[0] == b.sym[0] && a.sym[1] == b.sym[1];
    if (!same && !dim_is_const(a) && !dim_is_const(b))
        return false;
    Dim sum = dim_is_const(a) ? b : a;
    if (__builtin_add_overflow(a.mul, b.mul, &sum.mul) ||
        __builtin_add_overflow(a.add, b.add, &sum.add))
        return false;
    *ret = dim_canonical(sum);
    return true;
}

bool dim_mul(Dim a, Dim b, Dim *ret)
{
    if (dim_is_const(a)) {
        Dim swap = a;
        a = b;
        b = swap;
    }
    Dim product = a;
    if (dim_is_const(b)) {
        if (__builtin_mul_overflow(a.mul, b.add, &product.mul) ||
            __builtin_mul_overflow(a.add, b.add, &product.add))
            return false;
    } else {
        if (a.add || b.add || a.sym[1] || b.sym[1] ||
            __builtin_mul_overflow(a.mul, b.mul, &product.mul))
            return false;
        product.sym[1] = b.sym[0];
    }
    *ret = dim_canonical(product);
    return true;
}

void dim_print(Sb *sb, Dim d)
{
    if (dim_is_const(d)) {
        sb_printf(sb, "%lld", (long long)d.add);
        return;
    }
    if (d.mul != 1)
        sb_printf(sb, "%lld*", (long long)d.mul);
    sb_put(sb, d.sym[0]->name);
    if (d.sym[1])
        sb_printf(sb, "*%s", d.sym[1]->name);
    if (d.add > 0)
        sb_printf(sb, " + %lld", (long long)d.add);
    else if (d.add < 0)
        sb_printf(sb, " - %llu", 0 - (unsigned long long)d.add);
}

/* Interning ----------------------------------------------------------------------------------- */

struct TypeTable {
    Type **slot; /* open addressing, a power of two */
    size_t cap, num;
    ARRAY(const Scheme *) schemes; /* few: searched in order */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t type_hash(const Type *type)
{
    uint64_t hash = mix((uint64_t)type->fmt * 8 + (uint64_t)type->rank, (uintptr_t)type->scheme);
    for (int i = 0; i < type->rank; i++) {
        const Dim *d = &type->dim[i];
        hash = mix(mix(hash, (uint64_t)d->mul), (uint64_t)d->add);
        for (int j = 0; j < 2; j++)
            hash = mix(hash, d->sym[j] ? (uint64_t)d->sym[j]->index + 1 : 0);
    }
    return hash;
}

static bool type_same(const Type *a, const Type *b)
{
    if (a->fmt != b->fmt || a->scheme != b->scheme || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++) {
        if (!dim_equal(a->dim[i], b->dim[i]))
            return false;
    }
    return true;
}

static Type **type_slot(Type **slot, size_t cap, const Type *type)
{
    size_t at = type_hash(type) & (cap - 1);
    while (slot[at] && !type_same(slot[at], type))
        at = (at + 1) & (cap - 1);
    return &slot[at];
}

static void table_grow(Module *m, struct TypeTable *table)
{
    size_t cap = table->cap ? table->cap * 2 : 64;
    Type **slot = ARENA_NEW_ARRAY(m->arena, Type *, cap);
    for (size_t i = 0; i < table->cap; i++) {
        if (table->slot[i])
            *type_slot(slot, cap, table->slot[i]) = table->slot[i];
    }
    table->slot = slot;
    table->cap = cap;
}

static struct TypeTable *module_types(Module *m)
{
    if (!m->types)
        m->types = ARENA_NEW(m->arena, struct TypeTable);
    return m->types;
}

static const Type *type_intern(Module *m, const Type *type)
{
    struct TypeTable *table = module_types(m);
    if (table->num * 2 >= table->cap)
        table_grow(m, table);
    Type **slot = type_slot(table->slot, table->cap, type);
    if (!*slot) {
        *slot = ARENA_NEW(m->arena, Type);
        **slot = *type;
        table->num++;
    }
    return *slot;
}

const Scheme *scheme_intern(Module *m, const Scheme *scheme)
{
    struct TypeTable *table = module_types(m);
    for (int i = 0; i < table->schemes.num; i++) {
        if (scheme_equal(table->schemes.elem[i], scheme))
            return table->schemes.elem[i];
    }
    Scheme *copy = ARENA_NEW(m->arena, Scheme);
    *copy = *scheme;
    ARRAY_PUSH(m->arena, &table->schemes, copy);
    return copy;
}

static const Type *type_make(Module *m, FormatId fmt, const Scheme *scheme, int rank,
                             const Dim *dim)
{
    if (rank < 0 || rank > LIMIT_RANK)
        BUG("a type of rank %d", rank);
    Type type = {.fmt = fmt, .scheme = scheme, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.dim[i] = dim_canonical(dim[i]);
    return type_intern(m, &type);
}

const Type *type_plain(Module *m, FormatId fmt, int rank, const Dim *dim)
{
    return type_make(m, fmt, NULL, rank, dim);
}

const Type *type_quantised(Module *m, const Scheme *scheme, int rank, const Dim *dim)
{
    const Scheme *interned = scheme_intern(m, scheme);
    return type_make(m, interned->fmt, interned, rank, dim);
}

const Type *type_make_same(Module *m, const Type *type)
{
    return type_make(m, type->fmt, type->scheme, type->rank, type->dim);
}

bool type_same_shape(const Type *a, const Type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (!dim_equal(a->dim[i], b->dim[i]))
            return false;
    return true;
}

bool type_scale_varies(const Type *type)
{
    if (!type->scheme || type->scheme->block[1] == 0)
        return false;
    Dim cols = type_last(type);
    return !dim_is_const(cols) || scheme_varies_along_cols(type->scheme, cols.add);
}

/* Printing ------------------------------------------------------------------------------------ */

void scheme_put(Sb *sb, const Scheme *scheme, const char *row)
{
    const char *gap = "";
    sb_printf(sb, "%s{", format_info[scheme->fmt].name);
    if (scheme->table) {
        sb_printf(sb, "codebook%s", scheme_table_text(scheme));
        gap = " ";
    } else if (scheme->zero == ZERO_INT || format_info[scheme->fmt].family == FAMILY_INT) {
        sb_put(sb, scheme->zero == ZERO_INT ? "asym" : "sym");
        gap = " ";
    }
    sb_put(sb, gap);
    if (scheme->block[0] == 0 && scheme->block[1] == 0)
        sb_put(sb, "per tensor");
    else if (scheme->block[0] == 1 && scheme->block[1] == 0)
        sb_printf(sb, "per %s", row);
    else if (scheme->block[0] == 1)
        sb_printf(sb, "group %lld", (long long)scheme->block[1]);
    else
        sb_printf(sb, "block %lldx%lld", (long long)scheme->block[0], (long long)scheme->block[1]);
    if (scheme->scale_fmt != FMT_F32)
        sb_printf(sb, " scale %s", format_info[scheme->scale_fmt].name);
    sb_printf(sb, "%s%s}", scheme->outer ? " outer" : "", scheme->fast ? " fast" : "");
}

void type_print(Sb *sb, const Type *type)
{
    if (type->scheme)
        scheme_put(sb, type->scheme, "row");
    else
        sb_put(sb, format_info[type->fmt].name);
    sb_putc(sb, '[');
    for (int i = 0; i < type->rank; i++) {
        sb_put(sb, i ? ", " : "");
        dim_print(sb, type->dim[i]);
    }
    sb_putc(sb, ']');
}

const char *type_text(Arena *arena, const Type *type)
{
    Sb sb;
    sb_init(&sb, arena);
    type_print(&sb, type);
    return sb.text;
}
