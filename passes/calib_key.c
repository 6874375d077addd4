/* passes/calib_key: hashes by which results of calibration know their model and their data. */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <string.h>

/* Casts between plain floats come and go with the formats that rules ask for: looked through. */
static const Value *uncast(const Value *value)
{
    while (value->def->kind == OP_CAST)
        value = op_in(value->def, 0);
    return value;
}

/* One line an op: what it does, to what, of which shape. */
static void put_op(Sb *sb, const Op *op)
{
    unsigned attrs = op_info[op->kind].attrs & ~(unsigned)(ATTR_QUANT | ATTR_RANGE);

    sb_printf(sb, "%u %s", op->mark, op_info[op->kind].name);
    for (int i = 0; i < op->num_in; i++) {
        const Value *in = uncast(op_in(op, i));
        sb_printf(sb, " %u.%d", in->def->mark, in->index);
    }
    attr_print(sb, attrs, &op->attr);
    for (int i = 0; i < op->num_out; i++) {
        const Type *type = op->out[i].type;
        for (int d = 0; d < type->rank; d++) {
            sb_putc(sb, d ? ',' : ' ');
            dim_print(sb, type->dim[d]);
        }
    }
    if (op->name)
        sb_printf(sb, " \"%s\"", op->name);
    if (op->constant)
        sb_printf(sb, " %d %llu %.17g %s", (int)op->constant->kind,
                  (unsigned long long)op->constant->seed, op->constant->scale,
                  op->constant->name ? op->constant->name : "");
    sb_putc(sb, '\n');
}

/* Ops are numbered without the casts, so that those do not show. */
static void number_uncast(const Module *m)
{
    uint32_t at = 0;

    for_each_op(op, &m->body)
        op->mark = op->kind == OP_CAST ? 0 : ++at;
}

/* The bytes that the op holds, behind what they are. Returns how many parts. */
static int data_parts(const Op *op, CachePart *ret)
{
    const Const *c = op->constant;
    const ConstReader *reader = c ? c->reader : NULL;
    int64_t dim[LIMIT_RANK] = {0};
    uint64_t elements;
    int num = 0;

    if (c && (c->data || (reader && !reader->read))) {
        const Type *type = op->out[0].type; /* an op without a constant may have no result */
        FormatId fmt = c->stored_fmt ? c->stored_fmt : type->fmt;
        ret[num++] = (CachePart){format_info[fmt].name, strlen(format_info[fmt].name)};
        for (int d = 0; d < type->rank; d++)
            dim[d] = type->dim[d].add;
        if (c->data && checked_elements(dim, type->rank, &elements))
            ret[num++] = (CachePart){c->data, elements * (uint64_t)format_info[fmt].bits / 8};
    }
    for (int i = 0; reader && i < reader->num_parts; i++)
        ret[num++] = (CachePart){reader->part[i].data, reader->part[i].bytes};
    return num;
}

CacheKey calibration_model_key(Module *m, Arena *scratch)
{
    CacheKey key = {{0, 0}};
    Sb sb;

    number_uncast(m);
    for_each_op(op, &m->body) {
        if (op->kind == OP_CAST)
            continue;
        sb_init(&sb, scratch);
        put_op(&sb, op);
        const ConstReader *reader = op->constant ? op->constant->reader : NULL;
        CachePart *part =
            ARENA_NEW_ARRAY(scratch, CachePart, 4 + (reader ? (size_t)reader->num_parts : 0));
        int num = 0;
        part[num++] = (CachePart){&key, sizeof key};
        part[num++] = (CachePart){sb.text, sb.len};
        num += data_parts(op, part + num);
        key = cache_key(num, part);
    }
    return key;
}

bool calibration_data_key(Module *m, const PassContext *ctx, int file, CacheKey *ret)
{
    const char *name = m->calibrate_files.elem[file];
    Span span = file < m->calibrate_spans.num ? m->calibrate_spans.elem[file] : (Span){0};
    MappedFile mapped;
    IoError err = {0};

    if (!file_map(path_resolve(ctx->scratch, ctx->options.base_dir, name), &mapped, &err)) {
        diag_error(m->diag, span, err.id, "%s", err.text);
        return false;
    }
    const CachePart part = {mapped.data, mapped.size};
    *ret = cache_key(1, &part);
    file_unmap(&mapped);
    return true;
}
