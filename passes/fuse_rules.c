/* passes/fuse_rules: which op may join which kernel. Every refusal is a sentence with numbers,
 * because it is printed to the user.
 *
 * A matmul's epilogue works on tiles of so many columns as the targets hold (TargetLimits), so
 * whatever needs a whole row cannot be in it. A tile kernel sees whole rows. */
#include "kernels/cpu/cpu.h"
#include "passes/fuse.h"

bool op_is_accessor(Fuse *f, const Op *op)
{
    return (op->kind == OP_SCALES || op->kind == OP_ZEROS) && !fuse_of(f, op)->constant;
}

bool op_is_computed(Fuse *f, const Op *op)
{
    const unsigned work = OPF_POINTWISE | OPF_ROWWISE | OPF_MOVE | OPF_ROUTE;

    if (op->num_out != 1 || op_is_accessor(f, op) || fuse_of(f, op)->constant)
        return false;
    return op_info[op->kind].flags & work || op->kind == OP_MATMUL || op->kind == OP_QUANTIZE ||
           op->kind == OP_CODE_SUM;
}

static bool is_one(Dim d)
{
    return dim_is_const(d) && d.add == 1;
}

/* Rows of the operand are found as (row / div) % mod of the domain's row, so the dimensions that
 * the operand repeats must be the outermost or the innermost ones. */
static bool rows_broadcast(const Type *type, const Type *domain)
{
    int shift = domain->rank - type->rank, phase = 0;

    for (int i = 0; i + 1 < domain->rank; i++) {
        if (is_one(domain->dim[i]))
            continue;
        bool full = i >= shift && dim_equal(type->dim[i - shift], domain->dim[i]);
        if (!full && i >= shift && !is_one(type->dim[i - shift]))
            return false;
        if (phase == 0 && full)
            phase = 1;
        else if (phase == 1 && !full)
            phase = 2;
        else if (phase == 2 && full)
            return false;
    }
    return true;
}

bool shape_broadcasts(const Type *type, const Type *domain, int64_t cols)
{
    Dim last = type_last(type);

    if (type->rank > domain->rank)
        return false;
    if (!is_one(last) &&
        !(cols >= 0 ? dim_is_const(last) && last.add == cols : dim_equal(last, type_last(domain))))
        return false;
    return rows_broadcast(type, domain);
}

static bool rows_equal(const Type *a, const Type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i + 1 < a->rank; i++)
        if (!dim_equal(a->dim[i], b->dim[i]))
            return false;
    return true;
}

static const char *say(Fuse *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
static const char *say(Fuse *f, const char *fmt, ...)
{
    Sb sb;
    va_list args;

    sb_init(&sb, f->ctx->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    return sb.text;
}

/* What no kernel does beside its own work: it meets other rows than those at hand. */
static const char *route_refusal(Fuse *f, const Op *op)
{
    const char *does = "";

    switch (op->kind) {
    case OP_TOPK: does = "chooses columns of rows"; break;
    case OP_TAKE: does = "picks columns of rows"; break;
    case OP_GROUP_ENDS: does = "counts the rows of all groups"; break;
    case OP_GROUP_PLACES:
    case OP_GROUP_SOURCES: does = "sorts all rows by their groups"; break;
    case OP_MASK: does = "clears rows that do not count"; break;
    default: break;
    }
    return say(f, "%s %s: a launch of its own", op_info[op->kind].name, does);
}

/* Epilogue ------------------------------------------------------------------------------------ */

static bool reads_other_rows(const Op *op)
{
    return op->kind == OP_DISPATCH || op->kind == OP_COMBINE;
}

static Region region_join(Fuse *f, Region a, Region b, const char **ret_why)
{
    int64_t cols = type_cols(f->domain);

    if (a.kind == REGION_NARROW)
        return b;
    if (b.kind == REGION_NARROW || (a.kind == b.kind && a.start == b.start && a.width == b.width))
        return a;
    if (a.kind == REGION_FULL || b.kind == REGION_FULL) {
        *ret_why = "some columns and all columns of one matmul do not share a tile";
        return a;
    }
    bool halves_a = a.kind == REGION_PARTS || a.start == 0 || a.start == a.width;
    bool halves_b = b.kind == REGION_PARTS || b.start == 0 || b.start == b.width;
    if (a.width == b.width && cols == 2 * a.width && halves_a && halves_b)
        return (Region){REGION_PARTS, 0, a.width};
    *ret_why = say(f,
                   "%s combines columns %lld..%lld and %lld..%lld of one matmul of %lld columns; "
                   "only its two halves share a tile",
                   "the operation", (long long)a.start, (long long)(a.start + a.width),
                   (long long)b.start, (long long)(b.start + b.width), (long long)cols);
    return a;
}

/* Where two halves meet, every value over all columns must stay inside: only halves are stored. */
static bool full_values_stay(Fuse *f)
{
    for (int i = 0; i < f->body.num; i++) {
        Op *op = f->body.elem[i];
        if (fuse_of(f, op)->region.kind != REGION_FULL)
            continue;
        for_each_use(use, op_out(op))
            if (!fuse_has(f, use->user))
                return false;
    }
    return true;
}

static const char *epilogue_pointwise(Fuse *f, Op *op, Region *ret)
{
    Region region = {REGION_NARROW, 0, 0};
    const char *why = NULL;

    for (int i = 0; i < op->num_in && !why; i++) {
        const Op *def = op_in(op, i)->def;
        if (!fuse_has(f, def))
            continue;
        Region in = fuse_of(f, def)->region;
        if (in.kind == REGION_PROLOGUE || in.kind == REGION_CODES)
            return say(f, "%s reads a value that this kernel makes before its main loop",
                       op_info[op->kind].name);
        region = region_join(f, region, in, &why);
    }
    if (why)
        return why;
    if (region.kind == REGION_PARTS && !f->parts) {
        if (!full_values_stay(f))
            return "gate and up meet here, but a value over the columns of both is needed "
                   "elsewhere";
        f->parts = true;
    }
    int64_t cols = region.kind == REGION_FULL ? type_cols(f->domain) : region.width;
    const Type *type = op_out(op)->type;
    if (region.kind == REGION_FULL && f->parts)
        return "gate and up meet in this kernel, and this works on the columns of both";
    if (region.kind != REGION_NARROW &&
        (!rows_equal(type, f->domain) ||
         !(cols >= 0 ? type_cols(type) == cols : dim_equal(type_last(type), type_last(f->domain)))))
        return say(f, "%s broadcasts the tile to %s", op_info[op->kind].name,
                   type_text(f->ctx->arena, type));
    *ret = region;
    return NULL;
}

/* Was the value made from whole rows of the tile? Then all of its columns must be there. */
static bool needs_all_columns(Fuse *f, Op *op)
{
    ARRAY(Op *) stack = {0};

    f->search++;
    ARRAY_PUSH(f->ctx->scratch, &stack, op);
    while (stack.num) {
        Op *top = stack.elem[--stack.num];
        FuseOp *of = fuse_of(f, top);
        if (!fuse_has(f, top) || of->region.kind == REGION_PROLOGUE || of->seen == f->search)
            continue;
        if (op_info[top->kind].flags & OPF_ROWWISE)
            return true;
        of->seen = f->search;
        for (int i = 0; i < top->num_in; i++)
            ARRAY_PUSH(f->ctx->scratch, &stack, op_in(top, i)->def);
    }
    return false;
}

static const char *epilogue_slice(Fuse *f, Op *op, Region *ret)
{
    Region in = fuse_of(f, op_in(op, 0)->def)->region;
    const Attr *attr = &op->attr;

    if (in.kind != REGION_FULL || attr->axis != op_in(op, 0)->type->rank - 1)
        return say(f, "slice along axis %lld moves elements between tiles", (long long)attr->axis);
    if (needs_all_columns(f, op_in(op, 0)->def))
        return "slice cuts rows that an operation before it needs whole";
    *ret = (Region){REGION_SLICE, attr->start, attr->stop - attr->start};
    return NULL;
}

/* All columns of the product, so all of any value over it, lie in one tile of every target. */
static bool rows_in_tile(const Fuse *f)
{
    int64_t cols = type_cols(op_out(f->matmul)->type);

    return cols >= 0 && cols <= TILE_ROW_COLS;
}

/* cols < 0: they vary with the batch. */
static const char *rows_needed(Fuse *f, const char *what, int64_t cols)
{
    if (cols < 0)
        return say(f, "%s needs whole rows of a product whose columns vary; a tile holds %d", what,
                   TILE_ROW_COLS);
    return say(f, "%s needs whole rows of a product of %lld columns; a tile holds %d", what,
               (long long)cols, TILE_ROW_COLS);
}

static const char *epilogue_quantize(Fuse *f, Op *op, Region *ret)
{
    const Scheme *scheme = op_out(op)->type->scheme;
    Region in = fuse_of(f, op_in(op, 0)->def)->region;
    int64_t group = scheme->block[1];
    int64_t cols = type_cols(op_out(f->matmul)->type);

    if (in.kind == REGION_NARROW || in.kind == REGION_PROLOGUE)
        return "quantize of a value that is not a tile";
    *ret = (Region){REGION_CODES, in.start, in.width};
    if (op->num_in > 1)
        return op_in(op, 1)->type->rank == 0
                   ? NULL
                   : "static scales that vary over the tensor are read by whole rows";
    if (scheme->outer)
        return "quantize with an outer scale needs the whole tensor first";
    if (scheme->block[0] != 1)
        return scheme->block[0] == 0
                   ? "dynamic quantize per tensor needs the whole tensor first"
                   : say(f, "dynamic quantize in blocks of %lld rows needs all of them first",
                         (long long)scheme->block[0]);
    if (rows_in_tile(f))
        return NULL;
    if (group == 0)
        return rows_needed(f, "dynamic quantize per token", cols);
    int64_t tile = f->ctx->options.limits ? f->ctx->options.limits->tile_cols : CPU_TILE_COLS;
    if (tile % group)
        return say(f, "dynamic quantize in groups of %lld columns; the tile holds %lld",
                   (long long)group, (long long)tile);
    return NULL;
}

static const char *epilogue_rowwise(Fuse *f, Op *op, Region *ret)
{
    const Value *in = op_in(op, 0);
    Region region = fuse_of(f, in->def)->region;

    if (!fuse_has(f, in->def) || region.kind == REGION_NARROW || region.kind == REGION_PROLOGUE)
        return say(f, "%s reads other rows than this kernel makes", op_info[op->kind].name);
    if (!rows_in_tile(f))
        return rows_needed(f, op_info[op->kind].name, type_cols(op_out(f->matmul)->type));
    *ret = region;
    return NULL;
}

const char *epilogue_refusal(Fuse *f, Op *op, Region *ret)
{
    const char *name = op_info[op->kind].name;
    unsigned flags = op_info[op->kind].flags;

    if (op->kind == OP_QUANTIZE)
        return epilogue_quantize(f, op, ret);
    if (op->kind == OP_SLICE)
        return epilogue_slice(f, op, ret);
    if (op->kind == OP_DEQUANTIZE)
        return "dequantize reads codes, which this kernel only stores";
    if (reads_other_rows(op))
        return say(f, "%s reads rows of several tiles", name);
    if (flags & OPF_POINTWISE)
        return epilogue_pointwise(f, op, ret);
    if (flags & OPF_ROWWISE || op->kind == OP_CODE_SUM)
        return epilogue_rowwise(f, op, ret);
    if (flags & OPF_MOVE)
        return say(f, "%s moves elements between tiles", name);
    if (flags & OPF_ROUTE)
        return route_refusal(f, op);
    if (flags & OPF_VIEW)
        return say(f, "%s changes the shape", name);
    if (op->kind == OP_MATMUL)
        return "another matmul begins here";
    if (op->kind == OP_KERNEL)
        return say(f, "the kernel of %s goes on with it", layer_name(op));
    return "";
}

/* Tile kernels and prologues ------------------------------------------------------------------- */

const char *tile_refusal(Fuse *f, Op *op, Region *ret)
{
    const char *name = op_info[op->kind].name;
    unsigned flags = op_info[op->kind].flags;
    const Type *type = op_out(op)->type;

    for (int i = 0; i < op->num_in; i++) {
        const Op *def = op_in(op, i)->def;
        if (fuse_has(f, def) && fuse_of(f, def)->region.kind == REGION_CODES &&
            op->kind != OP_CODE_SUM)
            return say(f, "%s reads codes, which this kernel only stores", name);
        if (fuse_has(f, def) && reads_other_rows(op))
            return say(f, "%s reads other rows than its own", name);
    }
    *ret = (Region){op->kind == OP_QUANTIZE ? REGION_CODES : REGION_FULL, 0, 0};
    if (op->kind == OP_CODE_SUM) {
        ret->kind = REGION_CODES;
        return NULL;
    }
    if (op->kind == OP_MATMUL)
        return "";
    if (flags & OPF_MOVE)
        return say(f, "%s moves elements", name);
    if (flags & OPF_ROUTE)
        return route_refusal(f, op);
    if (flags & OPF_VIEW)
        return say(f, "%s changes the shape", name);
    if (!(flags & (OPF_POINTWISE | OPF_ROWWISE)) && op->kind != OP_QUANTIZE)
        return "";
    if (!type_same_shape(type, f->domain))
        return say(f, "%s makes %s of rows of %s", name, type_text(f->ctx->arena, type),
                   type_text(f->ctx->arena, f->domain));
    return NULL;
}

bool prologue_takes(const Op *op)
{
    return op->kind == OP_QUANTIZE || op_info[op->kind].flags & (OPF_POINTWISE | OPF_ROWWISE);
}
