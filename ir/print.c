/* The printed form of a module: one op a line, bodies indented. docs/ir.md has the grammar; parse.c
 * reads it back. Attributes are printed from attrs.def: has_<kind> says whether, put_<kind> how. */
#include "ir/internal.h"
#include <math.h>
#include <string.h>

#define DENSE_DECIMALS 64 /* constants of more elements print as hex */

static void put_string(Sb *sb, const char *text)
{
    sb_put_json_string(sb, text, strlen(text));
}

/* Attributes ---------------------------------------------------------------------------------- */

static void put_by_args(Sb *sb, const char *name, const WeightArgs *args)
{
    sb_put(sb, name);
    if (!args->act_order && args->damp == 0)
        return;
    sb_put(sb, args->act_order ? "(order = act" : "(");
    if (args->damp != 0) {
        sb_put(sb, args->act_order ? ", damp = " : "damp = ");
        sb_put_f64(sb, args->damp);
    }
    sb_putc(sb, ')');
}

static void put_I64(Sb *sb, const Attr *attr, int64_t value)
{
    (void)attr;
    sb_printf(sb, "%lld", (long long)value);
}
static void put_F64(Sb *sb, const Attr *attr, double value)
{
    (void)attr;
    sb_put_f64(sb, value);
}
static void put_INTS(Sb *sb, const Attr *attr, const int *value)
{
    sb_putc(sb, '[');
    for (int i = 0; i < attr->num_perm; i++)
        sb_printf(sb, "%s%d", i ? ", " : "", value[i]);
    sb_putc(sb, ']');
}
static void put_NAME(Sb *sb, const Attr *attr, const char *value)
{
    (void)attr;
    put_string(sb, value);
}

const char *const place_name[NUM_PLACES] = {"none", "epilogue", "mainloop"};
const char *const mode_name[NUM_MODES] = {"none", "dynamic", "static", "weight"};

static void put_PLACE(Sb *sb, const Attr *attr, ScalePlace value)
{
    (void)attr;
    sb_put(sb, place_name[value]);
}
static void put_MODE(Sb *sb, const Attr *attr, QuantMode value)
{
    (void)attr;
    sb_put(sb, mode_name[value]);
}
#define put_BY(sb, attr, value) put_by_args(sb, (value).name, &(value).args)

static void put_calibrator(Sb *sb, const char *name, double arg)
{
    sb_put(sb, name);
    if (arg != 0) {
        sb_putc(sb, ' ');
        sb_put_f64(sb, arg);
    }
}

#define put_RANGE(sb, attr, value) put_range(sb, attr)
static void put_range(Sb *sb, const Attr *attr)
{
    if (attr->range.calibrator)
        put_calibrator(sb, attr->range.calibrator, attr->range.arg);
    if (!attr->range.known)
        return;
    sb_put(sb, attr->range.calibrator ? " [" : "[");
    sb_put_f32(sb, attr->range.lo);
    sb_put(sb, ", ");
    sb_put_f32(sb, attr->range.hi);
    sb_putc(sb, ']');
}

static void put_item(Sb *sb, bool *first, const char *text)
{
    sb_put(sb, *first ? "" : ", ");
    sb_put(sb, text);
    *first = false;
}

static void put_quant_act(Sb *sb, bool *first, const QuantSpec *quant)
{
    if (quant->act || quant->act_fmt != FMT_NONE || quant->act_static || quant->calibrator)
        put_item(sb, first, "act");
    if (quant->act) {
        sb_putc(sb, ' ');
        scheme_put(sb, quant->act, "token");
    }
    if (quant->act_fmt != FMT_NONE)
        sb_printf(sb, " %s", format_info[quant->act_fmt].name);
    if (quant->act_static)
        sb_put(sb, " static");
    if (quant->act_known) {
        sb_put(sb, " scale ");
        sb_put_f32(sb, quant->act_scale);
        sb_printf(sb, " zero %d", (int)quant->act_zero);
    }
    if (quant->calibrator) {
        sb_putc(sb, ' ');
        put_calibrator(sb, quant->calibrator, quant->calibrator_arg);
    }
}

static void put_QUANT(Sb *sb, const Attr *attr, const QuantSpec *quant)
{
    (void)attr;
    bool first = true;
    sb_putc(sb, '{');
    if (quant->keep)
        put_item(sb, &first, "keep");
    if (quant->stored)
        put_item(sb, &first, "stored");
    if (quant->weight || quant->by)
        put_item(sb, &first, "weight");
    if (quant->weight) {
        sb_putc(sb, ' ');
        scheme_put(sb, quant->weight, "channel");
    }
    if (quant->by) {
        sb_put(sb, " by ");
        put_by_args(sb, quant->by, &quant->by_args);
    }
    put_quant_act(sb, &first, quant);
    if (quant->smooth) {
        put_item(sb, &first, "smooth ");
        if (quant->smooth_auto)
            sb_put(sb, "auto");
        else
            sb_put_f64(sb, quant->smooth_alpha);
    }
    if (quant->rotate)
        put_item(sb, &first, "rotate hadamard");
    if (quant->fused)
        put_item(sb, &first, "fused");
    if (quant->invariant)
        put_item(sb, &first, "invariant");
    if (quant->scheme_name) {
        put_item(sb, &first, "scheme ");
        put_string(sb, quant->scheme_name);
    }
    sb_putc(sb, '}');
}

/* Numbers and axes always print: without them the op cannot be understood. */
#define has_I64(attr, value)   true
#define has_F64(attr, value)   true
#define has_INTS(attr, value)  true
#define has_NAME(attr, value)  ((value) != NULL)
#define has_PLACE(attr, value) ((value) != PLACE_NONE)
#define has_MODE(attr, value)  ((value) != MODE_NONE)
#define has_BY(attr, value)    ((value).name != NULL)
#define has_RANGE(attr, value) ((value).calibrator != NULL || (value).known)
#define has_QUANT(attr, value) ((value) != NULL)

void attr_print(Sb *sb, unsigned attrs, const Attr *attr)
{
    bool first = true;
#define ATTR(ID, name, kind, field)                             \
    if ((attrs & ATTR_##ID) && has_##kind(attr, attr->field)) { \
        sb_put(sb, first ? "{" : ", ");                         \
        sb_put(sb, name " = ");                                 \
        put_##kind(sb, attr, attr->field);                      \
        first = false;                                          \
    }
#include "ir/attrs.def"
#undef ATTR
    if (!first)
        sb_putc(sb, '}');
}

/* Constants ----------------------------------------------------------------------------------- */

static void put_element(Sb *sb, FormatId fmt, const void *data, uint64_t index)
{
    if (fmt == FMT_I32) {
        int32_t value;
        memcpy(&value, (const char *)data + index * sizeof value, sizeof value);
        sb_printf(sb, "%d", (int)value);
        return;
    }
    float value;
    uint64_t size = (uint64_t)format_info[fmt].bits / 8;
    format_to_f32(fmt, (const char *)data + index * size, &value, 1);
    sb_put_f32(sb, value);
}

/* Decimals hold everything but the bits of a NaN. */
static bool decimals_hold(FormatId fmt, const void *data, uint64_t num)
{
    if (num > DENSE_DECIMALS)
        return false;
    if (fmt == FMT_I32)
        return true;
    if (fmt != FMT_F32 && fmt != FMT_F16 && fmt != FMT_BF16)
        return false;
    float value[DENSE_DECIMALS];
    format_to_f32(fmt, data, value, num);
    for (uint64_t i = 0; i < num; i++) {
        if (isnan(value[i]))
            return false;
    }
    return true;
}

static void put_dense(Sb *sb, const Const *c, FormatId fmt)
{
    uint64_t num = c->bytes * 8 / (uint64_t)format_info[fmt].bits;
    if (decimals_hold(fmt, c->data, num)) {
        sb_put(sb, " [");
        for (uint64_t i = 0; i < num; i++) {
            sb_put(sb, i ? ", " : "");
            put_element(sb, fmt, c->data, i);
        }
        sb_putc(sb, ']');
        return;
    }
    sb_put(sb, " hex \"");
    for (uint64_t i = 0; i < c->bytes; i++) {
        unsigned byte = ((const uint8_t *)c->data)[i];
        sb_putc(sb, "0123456789abcdef"[byte >> 4]);
        sb_putc(sb, "0123456789abcdef"[byte & 15]);
    }
    sb_putc(sb, '"');
}

static void put_parts(Sb *sb, const ConstParts *parts)
{
    const struct {
        const char *word, *name;
    } part[] = {{"scale", parts->scale},
                {"zero", parts->zero},
                {"offset", parts->offset},
                {"outer", parts->outer},
                {"table", parts->table}};
    sb_put(sb, " as ");
    scheme_put(sb, parts->scheme, "channel");
    for (size_t i = 0; i < COUNT_OF(part); i++) {
        if (!part[i].name)
            continue;
        sb_printf(sb, " %s ", part[i].word);
        put_string(sb, part[i].name);
    }
}

static void put_const(Sb *sb, const Op *op)
{
    const Const *c = op->constant;
    FormatId fmt = c->stored_fmt != FMT_NONE ? c->stored_fmt : op->out[0].type->fmt;
    switch (c->kind) {
    case CONST_DENSE: sb_put(sb, " dense"); break;
    case CONST_WEIGHT:
        sb_put(sb, " weight ");
        put_string(sb, c->name);
        if (c->parts)
            put_parts(sb, c->parts);
        break;
    case CONST_RANDOM:
        sb_printf(sb, " random seed %llu scale ", (unsigned long long)c->seed);
        sb_put_f64(sb, c->scale);
        break;
    }
    if (c->stored_fmt != FMT_NONE)
        sb_printf(sb, " stored %s", format_info[c->stored_fmt].name);
    if (c->kind == CONST_DENSE)
        put_dense(sb, c, fmt);
}

/* Ops ----------------------------------------------------------------------------------------- */

typedef struct Printer {
    Sb *sb;
    const ValueNames *names;
    const Diag *diag; /* non-NULL: print places */
} Printer;

static void put_head(const Printer *p, const Op *op)
{
    Sb *sb = p->sb;
    for (int i = 0; i < op->num_out; i++)
        sb_printf(sb, "%s%%%s", i ? ", " : "", names_get(p->names, &op->out[i]));
    sb_printf(sb, "%s%s", op->num_out ? " = " : "", op_info[op->kind].name);
    if (op->name) {
        sb_putc(sb, ' ');
        put_string(sb, op->name);
    }
    if (op->kind == OP_CONST && op->constant)
        put_const(sb, op);
    for (int i = 0; i < op->num_in; i++)
        sb_printf(sb, "%s %%%s", i ? "," : "", names_get(p->names, op->in[i].value));
    Sb attrs;
    sb_init(&attrs, sb->arena);
    attr_print(&attrs, op_info[op->kind].attrs, &op->attr);
    if (attrs.len)
        sb_printf(sb, " %s", attrs.text);
    for (int i = 0; i < op->num_out; i++) {
        sb_put(sb, i ? ", " : " : ");
        if (op->out[i].type)
            type_print(sb, op->out[i].type);
        else
            sb_put(sb, "?");
    }
}

static void put_block(const Printer *p, const Block *block);

static void put_op(const Printer *p, const Op *op)
{
    Sb *sb = p->sb;
    for (int i = 0; i < sb->indent; i++)
        sb_putc(sb, ' ');
    put_head(p, op);
    if (op->body)
        sb_put(sb, " {");
    if (p->diag && op->span.file)
        sb_printf(sb, "  ; %s", span_text(p->diag, op->span));
    sb_putc(sb, '\n');
    if (op->body) {
        put_block(p, op->body);
        sb_line(sb, "}");
    }
}

static void put_block(const Printer *p, const Block *block)
{
    p->sb->indent += 4;
    for_each_op(op, block)
        put_op(p, op);
    p->sb->indent -= 4;
}

void op_print(Sb *sb, const Op *op)
{
    const Block *root = op->block;
    while (root && root->owner)
        root = root->owner->block;
    Block alone = {.first = (Op *)op, .last = (Op *)op};
    Printer p = {sb, names_create(sb->arena, root ? root : &alone), NULL};
    put_head(&p, op);
}

/* Module -------------------------------------------------------------------------------------- */

static void put_files(Sb *sb, const char *word, int num, const char *const *file)
{
    for (int i = 0; i < num; i++) {
        sb_printf(sb, "%s ", word);
        put_string(sb, file[i]);
        sb_putc(sb, '\n');
    }
}

static void put_bound(Sb *sb, const char *word, double value)
{
    if (isnan(value))
        return;
    sb_printf(sb, " %s ", word);
    sb_put_f64(sb, value);
}

static void put_expect(Sb *sb, const Expect *expect)
{
    sb_put(sb, "expect ");
    put_string(sb, expect->input);
    sb_put(sb, " -> ");
    put_string(sb, expect->output);
    put_bound(sb, "atol", expect->atol);
    put_bound(sb, "rtol", expect->rtol);
    put_bound(sb, "cosine", expect->cosine);
    put_bound(sb, "sqnr", expect->sqnr);
    sb_putc(sb, '\n');
}

void module_print(Sb *sb, const Module *m, bool with_spans)
{
    sb_put(sb, "module ");
    put_string(sb, m->name);
    sb_putc(sb, '\n');
    for (int i = 0; i < m->syms.num; i++) {
        const Sym *sym = m->syms.elem[i];
        sb_printf(sb, "dim %s in [", sym->name);
        for (int j = 0; j < sym->num_sizes; j++)
            sb_printf(sb, "%s%lld", j ? ", " : "", (long long)sym->size[j]);
        sb_put(sb, "]\n");
    }
    put_files(sb, "weights", m->weight_files.num, m->weight_files.elem);
    put_files(sb, "calibrate", m->calibrate_files.num, m->calibrate_files.elem);
    if (m->calibration_file)
        put_files(sb, "calibrate from", 1, &m->calibration_file);
    for (int i = 0; i < m->expects.num; i++)
        put_expect(sb, &m->expects.elem[i]);
    sb_putc(sb, '\n');
    Printer p = {sb, names_create(sb->arena, &m->body), with_spans ? m->diag : NULL};
    for_each_op(op, &m->body)
        put_op(&p, op);
}
