/* Counting pairs of schemes; see coverage.h. */
#include "tests/random/coverage.h"

/* What is for weights alone comes last. */
static const struct {
    FormatId fmt;
    ZeroKind zero;
} elements[COVERAGE_ELEMENTS] = {
    {FMT_I8, ZERO_NONE},      {FMT_I8, ZERO_INT},      {FMT_U8, ZERO_INT},    {FMT_I4, ZERO_NONE},
    {FMT_I4, ZERO_INT},       {FMT_U4, ZERO_INT},      {FMT_E4M3, ZERO_NONE}, {FMT_E5M2, ZERO_NONE},
    {FMT_E2M1, ZERO_NONE},    {FMT_NF4, ZERO_NONE},    {FMT_FP4, ZERO_NONE},  {FMT_I2, ZERO_INT},
    {FMT_I3, ZERO_NONE},      {FMT_U3, ZERO_INT},      {FMT_I5, ZERO_INT},    {FMT_U6, ZERO_INT},
    {FMT_TERNARY, ZERO_NONE}, {FMT_BINARY, ZERO_NONE},
};
static const char *const named[COVERAGE_NAMED] = {"mxfp8", "mxfp4", "nvfp4"};
static const FormatId plain[] = {FMT_F32, FMT_F16, FMT_BF16};

static int named_index(const Scheme *s)
{
    Scheme of;
    for (int i = 0; i < COVERAGE_NAMED; i++)
        if (scheme_find(named[i], &of) && scheme_equal(&of, s))
            return i;
    return -1;
}

/* The place of a scheme among `num` elements, then the named ones; -1: none. */
static int scheme_index(const Scheme *s, int num, bool is_static)
{
    int name = named_index(s), grain = 0;
    if (name >= 0)
        return num * COVERAGE_GRAINS + name;
    if (is_static || s->block[0] > 1 || (s->block[0] == 0 && s->block[1] > 0))
        grain = 3;
    else if (s->block[0] == 1)
        grain = s->block[1] ? 2 : 1;
    for (int i = 0; i < num; i++)
        if (elements[i].fmt == s->fmt && elements[i].zero == s->zero)
            return i * COVERAGE_GRAINS + grain;
    return -1;
}

/* What a kernel's argument stands for. */
static const Value *outer_value(const Value *value)
{
    const Op *op = value->def;
    int index = 0;
    if (op->kind != OP_ARG)
        return value;
    for (const Op *before = op->prev; before; before = before->prev)
        index += before->kind == OP_ARG;
    return op_in(op->block->owner, index);
}

/* The op that makes a value of the module, inside its kernel. */
static const Op *maker(const Value *value)
{
    const Op *op = value->def;
    return op->body ? op_in(op->body->last, value->index)->def : op;
}

static void add_product(Coverage *c, const Op *product)
{
    const Value *a = outer_value(op_in(product, 0)), *w = outer_value(op_in(product, 1));
    int num_acts = COVERAGE_ACT_ELEMENTS, row = COVERAGE_WEIGHTS - 1, col = -1;
    if (!value_is_constant(w))
        return;
    if (w->type->scheme)
        row = scheme_index(w->type->scheme, COVERAGE_ELEMENTS, false);
    if (a->type->scheme) {
        const Op *op = maker(a);
        col = scheme_index(a->type->scheme, num_acts,
                           op->kind == OP_QUANTIZE &&
                               (op->num_in > 1 || op->attr.mode == MODE_STATIC));
    }
    for (int i = 0; i < (int)COUNT_OF(plain); i++)
        if (!a->type->scheme && a->type->fmt == plain[i])
            col = num_acts * COVERAGE_GRAINS + COVERAGE_NAMED + i;
    if (row >= 0 && col >= 0)
        c->count[row][col]++;
}

static void add_block(Coverage *c, const Block *block)
{
    for_each_op(op, block) {
        if (op->body)
            add_block(c, op->body);
        if (op->kind == OP_MATMUL)
            add_product(c, op);
    }
}

void coverage_add(Coverage *c, const Module *m)
{
    add_block(c, &m->body);
}

static void print_name(int index, int num, bool is_act)
{
    static const char *const weight_grain[] = {"channel", "group", "block"};
    static const char *const act_grain[] = {"token", "group", "static"};
    int first_plain = num * COVERAGE_GRAINS + COVERAGE_NAMED;
    char text[40];
    if (index < num * COVERAGE_GRAINS) {
        int e = index / COVERAGE_GRAINS, grain = index % COVERAGE_GRAINS;
        const char *const *word = is_act ? act_grain : weight_grain;
        snprintf(text, sizeof text, "%s%s %s", format_info[elements[e].fmt].name,
                 elements[e].zero != ZERO_NONE ? " asym" : "",
                 grain == 0 ? "tensor" : word[grain - 1]);
    } else if (index < first_plain) {
        snprintf(text, sizeof text, "%s", named[index - num * COVERAGE_GRAINS]);
    } else {
        snprintf(text, sizeof text, "%s",
                 is_act ? format_info[plain[index - first_plain]].name : "plain");
    }
    printf(is_act ? "%s" : "%-15s", text);
}

int coverage_print(const Coverage *c)
{
    int missing = 0;
    printf("# products, a line a weight; activations from left to right:\n#   ");
    for (int col = 0; col < COVERAGE_ACTS; col++) {
        print_name(col, COVERAGE_ACT_ELEMENTS, true);
        printf(col + 1 == COVERAGE_ACTS ? "\n" : col % 8 == 7 ? ",\n#   " : ", ");
    }
    for (int row = 0; row < COVERAGE_WEIGHTS; row++) {
        printf("# ");
        print_name(row, COVERAGE_ELEMENTS, false);
        for (int col = 0; col < COVERAGE_ACTS; col++) {
            printf(" %3d", c->count[row][col]);
            missing += c->count[row][col] == 0;
        }
        printf("\n");
    }
    return missing;
}
