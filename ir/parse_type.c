/* Types and attributes of printed IR. */
#include "ir/parse.h"
#include <stdlib.h>
#include <string.h>

FormatId parse_format(Parser *p)
{
    Span span = p->token.span;
    const char *word = parse_word(p, "an element format");
    FormatId fmt = format_find(word);
    if (fmt != FMT_NONE)
        return fmt;
    Nearest nearest;
    nearest_init(&nearest, word);
    for (int i = FMT_NONE + 1; i < NUM_FORMATS; i++)
        nearest_offer(&nearest, format_info[i].name);
    const char *best = nearest_get(&nearest);
    parse_fail(p, span, E_IR_SYNTAX, "'%s' is not an element format%s%s", word,
               best ? "; did you mean " : "", best ? best : "");
}

/* Schemes ------------------------------------------------------------------------------------- */

static int64_t block_size(Parser *p, const char *text, const char **end)
{
    char *stop;
    unsigned long long value =
        *text >= '0' && *text <= '9' ? strtoull(text, &stop, 10) : (stop = (char *)text, 0ull);
    if (stop == text || value > LIMIT_DIM)
        parse_fail(p, p->token.span, E_IR_SYNTAX, "a block is ROWSxCOLUMNS, each 0 to %d",
                   LIMIT_DIM);
    *end = stop;
    return (int64_t)value;
}

/* 128x64 */
static void parse_block(Parser *p, Scheme *scheme)
{
    char buf[32];
    const char *end;
    if (p->token.kind != TOKEN_NUMBER || p->token.len >= sizeof buf)
        parse_unexpected(p, "a block, ROWSxCOLUMNS");
    memcpy(buf, p->token.text, p->token.len);
    buf[p->token.len] = 0;
    scheme->block[0] = block_size(p, buf, &end);
    scheme->block[1] = *end == 'x' ? block_size(p, end + 1, &end) : -1;
    if (scheme->block[1] < 0 || *end)
        parse_unexpected(p, "a block, ROWSxCOLUMNS");
    parse_advance(p);
}

static void parse_grid(Parser *p, Scheme *scheme)
{
    if (parse_accept(p, "group")) {
        Span span = p->token.span;
        scheme->block[0] = 1;
        scheme->block[1] = parse_i64(p, "a group size");
        if (scheme->block[1] < 1 || scheme->block[1] > LIMIT_DIM)
            parse_fail(p, span, E_IR_SYNTAX, "a group has 1 to %d columns", LIMIT_DIM);
    } else if (parse_accept(p, "block")) {
        parse_block(p, scheme);
    } else {
        parse_expect(p, "per");
        scheme->block[0] = !token_is(p, "tensor");
        if (!parse_accept(p, "tensor") && !parse_accept(p, "channel") && !parse_accept(p, "token"))
            parse_expect(p, "row");
    }
}

/* "by row", "by block" or nothing */
static TableKind parse_table_kind(Parser *p)
{
    if (!parse_accept(p, "by"))
        return TABLE_TENSOR;
    if (parse_accept(p, "row"))
        return TABLE_ROW;
    parse_expect(p, "block");
    return TABLE_BLOCK;
}

/* What follows the format: "{sym per row scale f16 outer}". */
static const Scheme *parse_scheme(Parser *p, FormatId fmt, Span span)
{
    Scheme scheme = {.fmt = fmt, .scale_fmt = FMT_F32};
    parse_expect(p, "{");
    if (parse_accept(p, "codebook"))
        scheme.table = parse_table_kind(p);
    else if (parse_accept(p, "asym"))
        scheme.zero = ZERO_INT;
    else
        parse_accept(p, "sym");
    parse_grid(p, &scheme);
    if (parse_accept(p, "scale"))
        scheme.scale_fmt = parse_format(p);
    scheme.outer = parse_accept(p, "outer");
    scheme.fast = parse_accept(p, "fast");
    parse_expect(p, "}");
    const char *problem = scheme_problem(&scheme);
    if (problem)
        parse_fail(p, span, E_SCHEME_FIT, "%s", problem);
    return scheme_intern(p->m, &scheme);
}

const Scheme *parse_format_scheme(Parser *p)
{
    Span span = p->token.span;
    FormatId fmt = parse_format(p);
    return parse_scheme(p, fmt, span);
}

/* Types --------------------------------------------------------------------------------------- */

static Dim parse_sym(Parser *p)
{
    Span span = p->token.span;
    const char *name = parse_word(p, "a dim");
    const Sym *sym = module_find_sym(p->m, name);
    if (!sym)
        parse_fail(p, span, E_IR_SYNTAX, "no dim is called '%s'", name);
    return dim_sym(sym);
}

/* INT | [INT *] SYM [* SYM] [+ INT | - INT] */
static Dim parse_dim(Parser *p)
{
    Span span = p->token.span;
    Dim dim = dim_const(1);
    bool fits = true;
    if (p->token.kind == TOKEN_NUMBER) {
        dim = dim_const(parse_i64(p, "a size"));
        if (dim.add < 0 || (dim.add > LIMIT_DIM && !token_is(p, "*")))
            parse_fail(p, span, E_IR_SYNTAX, "a dimension of %lld; it is 0 to %d",
                       (long long)dim.add, LIMIT_DIM);
        if (!parse_accept(p, "*"))
            return dim;
    }
    fits = dim_mul(dim, parse_sym(p), &dim);
    if (fits && parse_accept(p, "*"))
        fits = dim_mul(dim, parse_sym(p), &dim);
    bool minus = token_is(p, "-");
    if (fits && (minus || token_is(p, "+"))) {
        parse_advance(p);
        Span sign = p->token.span;
        int64_t more = parse_i64(p, "a number");
        if (more < 0)
            parse_fail(p, sign, E_IR_SYNTAX, "expected a number without a sign here");
        fits = dim_add(dim, dim_const(minus ? -more : more), &dim);
    }
    if (!fits)
        parse_fail(p, span, E_IR_SYNTAX, "this dimension is too large or too involved");
    return dim;
}

static void check_elements(Parser *p, Span span, int rank, const Dim *dim)
{
    uint64_t num = 1;
    for (int i = 0; i < rank; i++) {
        if (dim_is_const(dim[i]) && !checked_mul(num, (uint64_t)dim[i].add, &num))
            num = UINT64_MAX;
        if (num > LIMIT_ELEMENTS)
            parse_fail(p, span, E_LIMIT, "a tensor of more than 2^40 elements");
    }
}

const Type *parse_type(Parser *p)
{
    Span span = p->token.span;
    FormatId fmt = parse_format(p);
    const Scheme *scheme = token_is(p, "{") ? parse_scheme(p, fmt, span) : NULL;
    if (!scheme && (!format_is_plain(fmt) || fmt == FMT_F64))
        parse_fail(p, span, E_IR_SYNTAX, "%s needs a scheme, as in %s{per tensor}",
                   format_info[fmt].name, format_info[fmt].name);
    Dim dim[LIMIT_RANK];
    int rank = 0;
    parse_expect(p, "[");
    while (!token_is(p, "]")) {
        if (rank)
            parse_expect(p, ",");
        if (rank == LIMIT_RANK)
            parse_fail(p, p->token.span, E_LIMIT, "more than %d dimensions", LIMIT_RANK);
        dim[rank++] = parse_dim(p);
    }
    parse_advance(p);
    check_elements(p, span, rank, dim);
    return scheme ? type_quantised(p->m, scheme, rank, dim) : type_plain(p->m, fmt, rank, dim);
}

/* Attributes ---------------------------------------------------------------------------------- */

static void get_I64(Parser *p, Attr *attr, int64_t *ret)
{
    (void)attr;
    *ret = parse_i64(p, "an integer");
}

static void get_F64(Parser *p, Attr *attr, double *ret)
{
    (void)attr;
    *ret = parse_f64(p, "a number");
}

static void get_INTS(Parser *p, Attr *attr, int (*ret)[LIMIT_RANK])
{
    parse_expect(p, "[");
    while (!token_is(p, "]")) {
        if (attr->num_perm)
            parse_expect(p, ",");
        if (attr->num_perm == LIMIT_RANK)
            parse_fail(p, p->token.span, E_LIMIT, "more than %d axes", LIMIT_RANK);
        Span span = p->token.span;
        int64_t axis = parse_i64(p, "an axis");
        if (axis < 0 || axis >= LIMIT_RANK)
            parse_fail(p, span, E_LIMIT, "an axis is 0 to %d", LIMIT_RANK - 1);
        (*ret)[attr->num_perm++] = (int)axis;
    }
    parse_advance(p);
}

static void get_NAME(Parser *p, Attr *attr, const char **ret)
{
    (void)attr;
    *ret = parse_string(p, "a string");
}

static int get_enum(Parser *p, const char *const *names, int num)
{
    for (int i = 0; i < num; i++) {
        if (parse_accept(p, names[i]))
            return i;
    }
    Sb sb;
    sb_init(&sb, p->arena);
    for (int i = 0; i < num; i++)
        sb_printf(&sb, "%s%s", i == 0 ? "" : i + 1 < num ? ", " : " or ", names[i]);
    parse_unexpected(p, sb.text);
}

static void get_PLACE(Parser *p, Attr *attr, ScalePlace *ret)
{
    (void)attr;
    *ret = (ScalePlace)get_enum(p, place_name, NUM_PLACES);
}

static void get_MODE(Parser *p, Attr *attr, QuantMode *ret)
{
    (void)attr;
    *ret = (QuantMode)get_enum(p, mode_name, NUM_MODES);
}

/* gptq(order = act, damp = 0.01) */
static const char *get_by_args(Parser *p, WeightArgs *args)
{
    const char *name = parse_word(p, "a weight quantiser");
    if (!parse_accept(p, "("))
        return name;
    do {
        if (parse_accept(p, "order")) {
            parse_expect(p, "=");
            parse_expect(p, "act");
            args->act_order = true;
        } else {
            parse_expect(p, "damp");
            parse_expect(p, "=");
            args->damp = parse_f64(p, "a number");
        }
    } while (parse_accept(p, ","));
    parse_expect(p, ")");
    return name;
}

#define get_BY(p, attr, ret) ((ret)->name = get_by_args(p, &(ret)->args))

static void get_calibrator(Parser *p, const char **ret_name, double *ret_arg)
{
    *ret_name = parse_word(p, "a calibrator");
    if (p->token.kind == TOKEN_NUMBER)
        *ret_arg = parse_f64(p, "a number");
}

#define get_RANGE(p, attr, ret) get_range(p, attr)
static void get_range(Parser *p, Attr *attr)
{
    if (p->token.kind == TOKEN_WORD)
        get_calibrator(p, &attr->range.calibrator, &attr->range.arg);
    else if (!token_is(p, "["))
        parse_unexpected(p, "a calibrator or '['");
    if (!parse_accept(p, "["))
        return;
    attr->range.known = true;
    attr->range.lo = parse_f32(p, "the low end of the range");
    parse_expect(p, ",");
    attr->range.hi = parse_f32(p, "the high end of the range");
    parse_expect(p, "]");
}

static bool item_ends(const Parser *p)
{
    return token_is(p, ",") || token_is(p, "}");
}

static void get_quant_act(Parser *p, QuantSpec *quant)
{
    while (!item_ends(p)) {
        Span span = p->token.span;
        if (parse_accept(p, "static")) {
            quant->act_static = true;
        } else if (parse_accept(p, "scale")) {
            quant->act_known = true;
            quant->act_scale = (float)parse_f64(p, "a scale");
            parse_expect(p, "zero");
            quant->act_zero = (int32_t)parse_i64(p, "a zero point");
        } else if (p->token.kind == TOKEN_WORD) {
            char buf[16] = {0};
            if (p->token.len < sizeof buf)
                memcpy(buf, p->token.text, p->token.len);
            if (format_find(buf) == FMT_NONE) {
                get_calibrator(p, &quant->calibrator, &quant->calibrator_arg);
                continue;
            }
            FormatId fmt = parse_format(p);
            if (token_is(p, "{"))
                quant->act = parse_scheme(p, fmt, span);
            else if (fmt == FMT_F32 || fmt == FMT_F16 || fmt == FMT_BF16)
                quant->act_fmt = fmt;
            else
                parse_fail(p, span, E_IR_SYNTAX, "an activation of %s needs its scheme: act %s{..}",
                           format_info[fmt].name, format_info[fmt].name);
        } else {
            parse_unexpected(p, "an activation's scheme");
        }
    }
}

static void get_quant_item(Parser *p, QuantSpec *quant)
{
    if (parse_accept(p, "keep")) {
        quant->keep = true;
    } else if (parse_accept(p, "fused")) {
        quant->fused = true;
    } else if (parse_accept(p, "invariant")) {
        quant->invariant = true;
    } else if (parse_accept(p, "stored")) {
        quant->stored = true;
    } else if (parse_accept(p, "weight")) {
        Span span = p->token.span;
        if (!token_is(p, "by") && !item_ends(p)) {
            FormatId fmt = parse_format(p);
            quant->weight = parse_scheme(p, fmt, span);
        }
        if (parse_accept(p, "by"))
            quant->by = get_by_args(p, &quant->by_args);
    } else if (parse_accept(p, "act")) {
        get_quant_act(p, quant);
    } else if (parse_accept(p, "smooth")) {
        quant->smooth = true;
        quant->smooth_auto = parse_accept(p, "auto");
        if (!quant->smooth_auto)
            quant->smooth_alpha = parse_f64(p, "a number");
    } else if (parse_accept(p, "rotate")) {
        parse_expect(p, "hadamard");
        quant->rotate = true;
    } else {
        parse_expect(p, "scheme");
        quant->scheme_name = parse_string(p, "the name of a scheme");
    }
}

static void get_QUANT(Parser *p, Attr *attr, const QuantSpec **ret)
{
    (void)attr;
    QuantSpec *quant = ARENA_NEW(p->m->arena, QuantSpec);
    parse_expect(p, "{");
    if (!token_is(p, "}")) {
        do {
            get_quant_item(p, quant);
        } while (parse_accept(p, ","));
    }
    parse_expect(p, "}");
    *ret = quant;
}

typedef enum AttrRow {
#define ATTR(ID, name, kind, field) ROW_##ID,
#include "ir/attrs.def"
#undef ATTR
    ROW_UNKNOWN
} AttrRow;

static const char *const attr_name[] = {
#define ATTR(ID, name, kind, field) name,
#include "ir/attrs.def"
#undef ATTR
};

static AttrRow find_attr(Parser *p, OpKind kind, const char *name, Span span)
{
    for (int row = 0; row < ROW_UNKNOWN; row++) {
        if (strcmp(attr_name[row], name) == 0 && (op_info[kind].attrs & 1u << row))
            return (AttrRow)row;
    }
    parse_fail(p, span, E_IR_SYNTAX, "%s has no attribute '%s'", op_info[kind].name, name);
}

void parse_attrs(Parser *p, OpKind kind, Attr *attr)
{
    unsigned seen = 0;
    parse_expect(p, "{");
    do {
        Span span = p->token.span;
        const char *name = parse_word(p, "an attribute");
        AttrRow row = find_attr(p, kind, name, span);
        if (seen & 1u << row)
            parse_fail(p, span, E_IR_SYNTAX, "attribute '%s' is given twice", name);
        seen |= 1u << row;
        parse_expect(p, "=");
        switch (row) {
#define ATTR(ID, text, type, field)        \
    case ROW_##ID:                         \
        get_##type(p, attr, &attr->field); \
        break;
#include "ir/attrs.def"
#undef ATTR
        case ROW_UNKNOWN: break;
        }
    } while (parse_accept(p, ","));
    parse_expect(p, "}");
}
