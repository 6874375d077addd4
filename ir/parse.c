/* Reads printed IR back: a header, then one op after the other. Every value must be defined before
 * it is used, and every type must be what the op's rule gives, so that a module that was read
 * passes the verifier. */
#include "ir/parse.h"
#include <string.h>

/* Values -------------------------------------------------------------------------------------- */

typedef ARRAY(Value *) Values;
typedef ARRAY(Token) Tokens;

static Token expect_value(Parser *p)
{
    Token t = p->token;
    if (t.kind != TOKEN_VALUE || t.len < 2)
        parse_unexpected(p, "a value, as in %x");
    parse_advance(p);
    return t;
}

static const char *value_name(Parser *p, const Token *t)
{
    return intern(p->m->names, t->text + 1, t->len - 1);
}

static Map *scope_of(Parser *p, const Block *block)
{
    return block->owner ? &p->body_values : &p->values;
}

static Value *use_value(Parser *p, const Block *block)
{
    Token t = expect_value(p);
    const char *name = value_name(p, &t);
    Value *value = map_get(scope_of(p, block), name);
    if (!value && block->owner && map_has(&p->values, name))
        parse_fail(p, t.span, E_IR_SYNTAX, "%%%s is defined outside of this kernel's body", name);
    if (!value)
        parse_fail(p, t.span, E_IR_SYNTAX, "%%%s is not defined above", name);
    return value;
}

static void define_value(Parser *p, const Block *block, const Token *t, Value *value)
{
    const char *name = value_name(p, t);
    if (map_has(scope_of(p, block), name))
        parse_fail(p, t->span, E_IR_SYNTAX, "%%%s is defined twice", name);
    map_put(scope_of(p, block), name, value);
    if (name_is_word(name))
        value->name = name;
    else if (strspn(name, "0123456789") != strlen(name))
        parse_fail(p, t->span, E_IR_SYNTAX, "'%s' is neither a word nor a number", name);
}

/* Constants ----------------------------------------------------------------------------------- */

typedef struct ConstText { /* what stands before the type that says how to read it */
    Tokens number;
    Token hex; /* TOKEN_STRING, or TOKEN_END when decimals were given */
    Span span;
} ConstText;

/* "as i4{sym group 128} scale "s" zero "z"" */
static const ConstParts *parse_parts(Parser *p)
{
    ConstParts *parts = ARENA_NEW(p->m->arena, ConstParts);
    const char *const word[] = {"scale", "zero", "offset", "outer", "table"};
    const char **const part[] = {&parts->scale, &parts->zero, &parts->offset, &parts->outer,
                                 &parts->table};
    *parts = (ConstParts){.scheme = parse_format_scheme(p)};
    for (size_t i = 0; i < COUNT_OF(word); i++)
        if (parse_accept(p, word[i]))
            *part[i] = parse_string(p, "the name of a tensor");
    return parts;
}

static Const *parse_const(Parser *p, ConstText *ret)
{
    Const *c = ARENA_NEW(p->m->arena, Const);
    ret->span = p->token.span;
    if (parse_accept(p, "weight")) {
        c->kind = CONST_WEIGHT;
        c->name = parse_string(p, "the name of a weight");
        if (parse_accept(p, "as"))
            c->parts = parse_parts(p);
    } else if (parse_accept(p, "random")) {
        c->kind = CONST_RANDOM;
        parse_expect(p, "seed");
        c->seed = parse_u64(p, "a seed");
        parse_expect(p, "scale");
        c->scale = parse_f64(p, "a number");
    } else if (!parse_accept(p, "dense")) {
        parse_unexpected(p, "dense, weight or random");
    }
    if (parse_accept(p, "stored"))
        c->stored_fmt = parse_format(p);
    if (c->kind != CONST_DENSE)
        return c;
    if (parse_accept(p, "hex")) {
        ret->hex = p->token;
        if (ret->hex.kind != TOKEN_STRING)
            parse_unexpected(p, "a string of hexadecimal digits");
        parse_advance(p);
        return c;
    }
    parse_expect(p, "[");
    while (!token_is(p, "]")) {
        if (ret->number.num)
            parse_expect(p, ",");
        ARRAY_PUSH(p->arena, &ret->number, p->token);
        parse_advance(p);
    }
    parse_advance(p);
    return c;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void fill_hex(Parser *p, Const *c, const Token *hex)
{
    size_t digits = hex->len - 2;
    uint8_t *data = arena_alloc(p->m->arena, digits / 2 + 1);
    for (size_t i = 0; i < digits; i++) {
        int digit = hex_digit(hex->text[1 + i]);
        if (digit < 0 || digits % 2)
            parse_fail(p, hex->span, E_IR_SYNTAX, "hex data are pairs of 0-9 and a-f");
        data[i / 2] = (uint8_t)(data[i / 2] << 4 | digit);
    }
    c->data = data;
    c->bytes = digits / 2;
}

static int32_t token_i32(Parser *p, const Token *t)
{
    Parser at = *p;
    at.token = *t;
    int64_t value = parse_i64(&at, "an integer");
    if (value < INT32_MIN || value > INT32_MAX)
        parse_fail(p, t->span, E_IR_SYNTAX, "%lld does not fit an i32", (long long)value);
    return (int32_t)value;
}

static void fill_decimals(Parser *p, Const *c, FormatId fmt, const ConstText *text)
{
    if (fmt != FMT_I32 && fmt != FMT_F32 && fmt != FMT_F16 && fmt != FMT_BF16)
        parse_fail(p, text->span, E_IR_SYNTAX, "%s data are written in hex", format_info[fmt].name);
    size_t size = (size_t)format_info[fmt].bits / 8;
    char *data = arena_alloc_array(p->m->arena, (size_t)text->number.num + 1, size);
    for (int i = 0; i < text->number.num; i++) {
        const Token *t = &text->number.elem[i];
        if (fmt == FMT_I32) {
            int32_t value = token_i32(p, t);
            memcpy(data + (size_t)i * size, &value, size);
        } else {
            float value = token_f32(p, t, "a number");
            format_from_f32(fmt, &value, data + (size_t)i * size, 1);
        }
    }
    c->data = data;
    c->bytes = (uint64_t)text->number.num * size;
}

static void fill_const(Parser *p, Op *op, const Type *type, const ConstText *text)
{
    Const *c = op->constant;
    FormatId fmt = c->stored_fmt != FMT_NONE ? c->stored_fmt : type->fmt;
    if (c->kind != CONST_DENSE)
        return;
    if (text->hex.kind == TOKEN_STRING)
        fill_hex(p, c, &text->hex);
    else
        fill_decimals(p, c, fmt, text);
    op_set_type(op, 0, type);
    if (!const_bytes_fit(op))
        parse_fail(p, text->span, E_IR_SYNTAX, "%llu bytes of data for %s",
                   (unsigned long long)c->bytes, type_text(p->arena, type));
}

/* Ops ----------------------------------------------------------------------------------------- */

typedef struct OpText { /* one op as it is read, before it exists */
    OpKind kind;
    Span span; /* of its word */
    Tokens result;
    const char *name; /* of inputs and outputs */
    Const *constant;
    ConstText const_text;
    Values in;
    Attr attr;
    ARRAY(const Type *) type;
} OpText;

static OpKind parse_op_word(Parser *p)
{
    Span span = p->token.span;
    const char *word = parse_word(p, "an operation");
    OpKind kind = op_find(word);
    if (kind != NUM_OPS)
        return kind;
    Nearest nearest;
    nearest_init(&nearest, word);
    for (int i = 0; i < NUM_OPS; i++)
        nearest_offer(&nearest, op_info[i].name);
    const char *best = nearest_get(&nearest);
    parse_fail(p, span, E_IR_SYNTAX, "'%s' is not an operation%s%s", word,
               best ? "; did you mean " : "", best ? best : "");
}

static void parse_head(Parser *p, const Block *block, OpText *t)
{
    while (p->token.kind == TOKEN_VALUE) {
        ARRAY_PUSH(p->arena, &t->result, expect_value(p));
        if (!parse_accept(p, ","))
            break;
    }
    if (t->result.num)
        parse_expect(p, "=");
    t->span = p->token.span;
    t->kind = parse_op_word(p);
    if (t->kind == OP_INPUT || t->kind == OP_OUTPUT)
        t->name = parse_string(p, "a name in quotes");
    if (t->kind == OP_CONST)
        t->constant = parse_const(p, &t->const_text);
    if (op_info[t->kind].max_in != 0 && p->token.kind == TOKEN_VALUE) {
        do {
            ARRAY_PUSH(p->arena, &t->in, use_value(p, block));
        } while (parse_accept(p, ","));
    }
    if (op_info[t->kind].attrs && token_is(p, "{"))
        parse_attrs(p, t->kind, &t->attr);
    if (t->result.num) {
        parse_expect(p, ":");
        do {
            ARRAY_PUSH(p->arena, &t->type, parse_type(p));
        } while (parse_accept(p, ","));
    }
    if (t->type.num != t->result.num)
        parse_fail(p, t->span, E_IR_SYNTAX, "%d results but %d types", t->result.num, t->type.num);
}

static void set_type(Parser *p, Op *op, const OpText *t)
{
    const Type *declared = t->type.num ? t->type.elem[0] : NULL;
    const Type *type = op_infer_type(p->m, op, declared);
    if (!type)
        longjmp(p->failed, 1); /* the rule has reported */
    if (declared && type != declared)
        parse_fail(p, t->span, E_SHAPE, "%s gives %s, not %s", op_info[op->kind].name,
                   type_text(p->arena, type), type_text(p->arena, declared));
    if (declared)
        op_set_type(op, 0, type);
}

static void parse_body(Parser *p, Op *kernel, const OpText *t);

static void check_port(Parser *p, const Op *op)
{
    if (op->kind != OP_INPUT && op->kind != OP_OUTPUT)
        return;
    const char *key = arena_printf(p->arena, "%s %s", op_info[op->kind].name, op->name);
    if (map_has(&p->ports, key))
        parse_fail(p, op->span, E_IR_SYNTAX, "a second %s called '%s'", op_info[op->kind].name,
                   op->name);
    map_put(&p->ports, key, (void *)op);
}

static void parse_op(Parser *p, Block *block)
{
    OpText t = {0};
    parse_head(p, block, &t);
    Module *m = p->m;
    Op *op = t.kind == OP_KERNEL && !block->owner
                 ? kernel_create(m, block, NULL, t.span, t.in.num, t.in.elem, t.result.num)
                 : op_create(m, block, NULL, t.kind, t.span, t.in.num, t.in.elem, t.result.num);
    op->attr = t.attr;
    op->name = t.name;
    op->constant = t.constant;
    const char *problem = op_place_problem(op);
    if (problem)
        parse_fail(p, t.span, E_IR_SYNTAX, "%s %s", op_info[op->kind].name, problem);
    if (op->num_out != op_num_results(op))
        parse_fail(p, t.span, E_IR_SYNTAX, "%s has %d results, not %d", op_info[op->kind].name,
                   op_num_results(op), op->num_out);
    check_port(p, op);
    if (op->kind == OP_KERNEL)
        parse_body(p, op, &t);
    else
        set_type(p, op, &t);
    if (op->kind == OP_CONST)
        fill_const(p, op, op->out[0].type, &t.const_text);
    for (int i = 0; i < op->num_out; i++)
        define_value(p, block, &t.result.elem[i], &op->out[i]);
    if (m->num_ops > LIMIT_OPS)
        parse_fail(p, t.span, E_LIMIT, "more than %d operations", LIMIT_OPS);
}

static void parse_body(Parser *p, Op *kernel, const OpText *t)
{
    map_init(&p->body_values, p->arena);
    parse_expect(p, "{");
    while (!token_is(p, "}")) {
        if (p->token.kind == TOKEN_END)
            parse_unexpected(p, "'}'");
        parse_op(p, kernel->body);
    }
    parse_advance(p);
    if (!kernel_finish(p->m, kernel))
        longjmp(p->failed, 1);
    for (int i = 0; i < kernel->num_out; i++) {
        if (kernel->out[i].type != t->type.elem[i])
            parse_fail(p, t->span, E_SHAPE, "the body yields %s, not %s",
                       type_text(p->arena, kernel->out[i].type),
                       type_text(p->arena, t->type.elem[i]));
    }
}

/* Header -------------------------------------------------------------------------------------- */

static void parse_dim_line(Parser *p)
{
    Span span = p->token.span;
    const char *name = parse_word(p, "the name of a dim");
    int64_t size[LIMIT_BUCKETS];
    int num = 0;
    if (!name_is_word(name) || strchr(name, '.'))
        parse_fail(p, span, E_IR_SYNTAX, "a dim has a name of letters, digits and _");
    if (module_find_sym(p->m, name))
        parse_fail(p, span, E_IR_SYNTAX, "a second dim called '%s'", name);
    parse_expect(p, "in");
    parse_expect(p, "[");
    do {
        if (num == LIMIT_BUCKETS)
            parse_fail(p, p->token.span, E_LIMIT, "more than %d sizes", LIMIT_BUCKETS);
        Span at = p->token.span;
        size[num] = parse_i64(p, "a size");
        if (size[num] < 1 || size[num] > LIMIT_DIM || (num && size[num] <= size[num - 1]))
            parse_fail(p, at, E_IR_SYNTAX, "sizes ascend from 1 to at most %d", LIMIT_DIM);
        num++;
    } while (parse_accept(p, ","));
    parse_expect(p, "]");
    module_add_sym(p->m, name, num, size, span);
}

static void parse_expect_line(Parser *p)
{
    Expect e = {.span = p->token.span};
    e.input = parse_string(p, "a file name");
    parse_expect(p, "->");
    e.output = parse_string(p, "a file name");
    e.atol = e.rtol = e.cosine = e.sqnr = __builtin_nan("");
    for (;;) {
        double *bound = parse_accept(p, "atol")     ? &e.atol
                        : parse_accept(p, "rtol")   ? &e.rtol
                        : parse_accept(p, "cosine") ? &e.cosine
                        : parse_accept(p, "sqnr")   ? &e.sqnr
                                                    : NULL;
        if (!bound)
            break;
        *bound = parse_f64(p, "a bound");
    }
    ARRAY_PUSH(p->m->arena, &p->m->expects, e);
}

static void parse_calibrate_line(Parser *p)
{
    if (parse_accept(p, "from"))
        p->m->calibration_file = parse_string(p, "a file name");
    else
        ARRAY_PUSH(p->m->arena, &p->m->calibrate_files, parse_string(p, "a file name"));
}

static void parse_header(Parser *p)
{
    parse_expect(p, "module");
    p->m->name = parse_string(p, "the module's name in quotes");
    for (;;) {
        if (parse_accept(p, "dim"))
            parse_dim_line(p);
        else if (parse_accept(p, "weights"))
            ARRAY_PUSH(p->m->arena, &p->m->weight_files, parse_string(p, "a file name"));
        else if (parse_accept(p, "calibrate"))
            parse_calibrate_line(p);
        else if (parse_accept(p, "expect"))
            parse_expect_line(p);
        else
            return;
    }
}

Module *module_parse(Arena *arena, Diag *diag, uint32_t source)
{
    const Source *src = &diag->sources.elem[source - 1];
    Parser *p = ARENA_NEW(arena, Parser);
    p->arena = arena;
    p->diag = diag;
    p->source = source;
    p->text = src->text;
    p->len = src->len;
    p->m = module_create(arena, diag, "");
    map_init(&p->values, arena);
    map_init(&p->body_values, arena);
    map_init(&p->ports, arena);
    if (setjmp(p->failed))
        return NULL;
    if (src->len > LIMIT_SOURCE_BYTES)
        parse_fail(p, (Span){source, 0, 0}, E_LIMIT, "a text of %zu bytes; at most %u are read",
                   src->len, LIMIT_SOURCE_BYTES);
    parse_advance(p);
    parse_header(p);
    while (p->token.kind != TOKEN_END)
        parse_op(p, &p->m->body);
    return p->m;
}
