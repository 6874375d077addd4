/* Schemes: the words of each line become a Scheme or a plain format, and what is said about how
 * ranges and codes are chosen. */
#include "frontend/sema.h"
#include <string.h>

typedef struct LineState { /* of one `weight` or `act` line */
    Sema *s;
    const SchemeLine *line;
    Scheme scheme;
    bool plain; /* f32 f16 bf16 */
    bool named; /* mxfp8 .. */
    const SchemeWord *symmetry, *granularity, *group, *scale, *range, *by, *fast;
    bool bad;
} LineState;

static void complain(LineState *l, Span span, const char *text)
{
    diag_error(l->s->diag, span, E_SCHEME_WORDS, "%s", text);
    l->bad = true;
}

/* What other tools call our formats. */
static const struct {
    const char *theirs, *ours;
} other_names[] = {
    {"int8", "i8"},
    {"s8", "i8"},
    {"uint8", "u8"},
    {"int4", "i4"},
    {"s4", "i4"},
    {"uint4", "u4"},
    {"fp8", "e4m3"},
    {"float8", "e4m3"},
    {"f8", "e4m3"},
    {"fp8_e4m3", "e4m3"},
    {"e4m3fn", "e4m3"},
    {"fp8_e5m2", "e5m2"},
    {"float8_e4m3fn", "e4m3"},
    {"float8_e5m2", "e5m2"},
    {"f4", "e2m1"},
    {"float4", "e2m1"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"fp32", "f32"},
    {"float32", "f32"},
    {"float", "f32"},
    {"mx8", "mxfp8"},
    {"mx4", "mxfp4"},
};

static void suggest_format(Sema *s, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(other_names); i++)
        if (!strcmp(name, other_names[i].theirs)) {
            const char *ours = other_names[i].ours;
            diag_help(s->diag,
                      !strcmp(ours, "e4m3") ? "it is called '%s' here; 'e5m2' has more range"
                                            : "it is called '%s' here",
                      ours);
            return;
        }
    static const char *const named[] = {"mxfp8", "mxfp4", "nvfp4"};
    Nearest nearest;
    nearest_init(&nearest, name);
    for (int i = 1; i < NUM_FORMATS; i++)
        nearest_offer(&nearest, format_info[i].name);
    for (size_t i = 0; i < COUNT_OF(named); i++)
        nearest_offer(&nearest, named[i]);
    suggest(s->diag, &nearest);
}

static void line_format(LineState *l)
{
    Word fmt = l->line->fmt;
    if (scheme_find(fmt.text, &l->scheme)) {
        l->named = true;
        return;
    }
    l->scheme.fmt = format_find(fmt.text);
    l->scheme.scale_fmt = FMT_F32;
    if (l->scheme.fmt == FMT_NONE) {
        diag_error(l->s->diag, fmt.span, E_UNKNOWN_FORMAT, "unknown format '%s'", fmt.text);
        suggest_format(l->s, fmt.text);
        l->bad = true;
        return;
    }
    FormatId id = l->scheme.fmt;
    l->plain = id == FMT_F32 || id == FMT_F16 || id == FMT_BF16;
    if (l->plain && !l->line->is_act) {
        complain(l, fmt.span, "a weight in a plain format is not quantised");
        diag_help(l->s->diag, "leave the line out: without it a weight stays as declared");
    }
}

/* Each kind of word once. */
static void once(LineState *l, const SchemeWord **seen, const SchemeWord *word)
{
    if (*seen) {
        const char *text = (*seen)->kind == word->kind ? "this is said twice"
                                                       : "this contradicts what was said before";
        complain(l, word->span, text);
        diag_note(l->s->diag, (*seen)->span, "first here");
        return;
    }
    *seen = word;
}

static void line_word(LineState *l, const SchemeWord *word)
{
    switch (word->kind) {
    case SW_SYM:
    case SW_ASYM:
    case SW_CODEBOOK: once(l, &l->symmetry, word); break;
    case SW_PER_TENSOR:
    case SW_PER_CHANNEL:
    case SW_PER_TOKEN:
    case SW_BLOCK: once(l, &l->granularity, word); break;
    case SW_GROUP: once(l, &l->group, word); break;
    case SW_SCALE: once(l, &l->scale, word); break;
    case SW_STATIC:
    case SW_DYNAMIC: once(l, &l->range, word); break;
    case SW_BY: once(l, &l->by, word); break;
    case SW_FAST: once(l, &l->fast, word); break;
    }
}

static void line_symmetry(LineState *l)
{
    if (!l->symmetry)
        return;
    l->scheme.zero = l->symmetry->kind == SW_ASYM ? ZERO_INT : ZERO_NONE;
    l->scheme.table = l->symmetry->kind == SW_CODEBOOK ? TABLE_TENSOR : TABLE_NONE;
}

static int64_t line_group(LineState *l)
{
    int64_t size = 0;
    const Word * or = &l->group->name;
    if (or->text && strcmp(or->text, "or") != 0)
        complain(l, or->span, "a group is followed by 'or channel', 'or token' or other words");
    else if (or->text && (l->group->instead == SW_PER_TOKEN) != l->line->is_act)
        complain(l, l->group->span,
                 l->line->is_act ? "activations have tokens: write 'or token'"
                                 : "weights have channels: write 'or channel'");
    resolve_global(l->s, l->group->value);
    if (!eval_int(l->s, NULL, l->group->value, &size)) {
        l->bad = true;
    } else if (size < 1 || size > LIMIT_DIM) {
        diag_error(l->s->diag, l->group->span, E_SCHEME_FIT, "a group of %lld elements",
                   (long long)size);
        diag_help(l->s->diag, "a group has 1 to %d elements", LIMIT_DIM);
        l->bad = true;
    }
    return size;
}

static void line_block(LineState *l, const SchemeWord *word)
{
    l->scheme.block[0] = word->rows;
    l->scheme.block[1] = word->cols;
    if (word->rows < 1 || word->cols < 1 || word->rows > LIMIT_DIM || word->cols > LIMIT_DIM) {
        diag_error(l->s->diag, word->span, E_SCHEME_FIT, "a block of %lld rows and %lld columns",
                   (long long)word->rows, (long long)word->cols);
        diag_help(l->s->diag, "both are 1 to %d", LIMIT_DIM);
        l->bad = true;
    } else if (l->line->is_act && word->rows > 1) {
        complain(l, word->span,
                 "blocks of an activation have one row: tokens do not share a scale");
        diag_help(l->s->diag, "write 'per token group %lld'", (long long)word->cols);
    }
}

static void line_granularity(LineState *l)
{
    const SchemeWord *word = l->granularity;
    bool is_act = l->line->is_act;
    bool is_static = l->range && l->range->kind == SW_STATIC;
    l->scheme.block[0] = is_act && is_static && !l->group && !word ? 0 : 1;
    l->scheme.block[1] = 0;
    if (word && word->kind == SW_PER_TENSOR)
        l->scheme.block[0] = 0;
    if (word && word->kind == SW_PER_CHANNEL && is_act)
        complain(l, word->span, "activations have tokens: write 'per token'");
    if (word && word->kind == SW_PER_TOKEN && !is_act)
        complain(l, word->span, "weights have channels: write 'per channel'");
    if (word && word->kind == SW_BLOCK)
        line_block(l, word);
    if (!l->group)
        return;
    if (word && (word->kind == SW_PER_TENSOR || word->kind == SW_BLOCK)) {
        complain(l, l->group->span, "groups lie inside one channel or token");
        diag_note(l->s->diag, word->span, "but this says otherwise");
        return;
    }
    l->scheme.block[1] = line_group(l);
}

static void line_scale(LineState *l)
{
    if (!l->scale)
        return;
    l->scheme.scale_fmt = format_find(l->scale->name.text);
    if (l->scheme.scale_fmt != FMT_NONE)
        return;
    diag_error(l->s->diag, l->scale->name.span, E_UNKNOWN_FORMAT, "unknown format '%s'",
               l->scale->name.text);
    suggest_format(l->s, l->scale->name.text);
    l->bad = true;
}

/* static SCALE [zero N]: the range is given. */
static void line_given(LineState *l, SchemeInfo *info, const SchemeWord *word)
{
    const FormatInfo *fmt = &format_info[l->scheme.fmt];
    int64_t least = fmt->is_signed ? -(INT64_C(1) << (fmt->bits - 1)) : 0;
    int64_t most = (INT64_C(1) << (fmt->is_signed ? fmt->bits - 1 : fmt->bits)) - 1;
    float scale = (float)word->value->real;

    if (word->has_zero && strcmp(word->name.text, "zero"))
        complain(l, word->name.span, "a scale is followed by 'zero' and a number, or by nothing");
    else if (!(scale > 0 && scale <= 3.40282347e38f))
        complain(l, word->value->span, "a scale is an f32 above 0: 1.5e-45 to 3.4e38");
    else if (word->has_zero && l->scheme.zero == ZERO_NONE)
        complain(l, word->name.span, "a symmetric scheme has no zero point");
    else if (word->has_zero && (word->rows < least || word->rows > most))
        complain(l, word->name.span, "the zero point is no code of the format");
    info->spec.act_known = true;
    info->spec.act_scale = scale;
    info->spec.act_zero = (int32_t)word->rows;
}

/* static [calibrator [argument]] */
static void line_range(LineState *l, SchemeInfo *info)
{
    const SchemeWord *word = l->range;
    if (!word)
        return;
    if (!l->line->is_act) {
        complain(l, word->span,
                 "static and dynamic are for activations; a weight's range is known");
        return;
    }
    if (word->kind == SW_DYNAMIC)
        return;
    if (l->named && !l->scheme.outer) {
        complain(l, word->span, "the scales of a named scheme come from each tensor as it runs");
        diag_note(l->s->diag, l->line->fmt.span, "'%s' has groups of %lld columns",
                  l->line->fmt.text, (long long)l->scheme.block[1]);
        diag_help(l->s->diag, "leave '%s' out, or write 'e4m3 per tensor static'", "static");
        return;
    }
    if (!l->scheme.outer && (l->scheme.block[0] != 0 || l->scheme.block[1] != 0))
        complain(l, word->span, "a static range is one for the whole tensor: write 'per tensor'");
    const Calibrator *calibrator = calibrator_find(word->name.text ? word->name.text : "minmax");
    info->spec.act_static = true;
    if (word->has_zero || (word->value && !word->name.text)) {
        line_given(l, info, word);
        return;
    }
    if (!calibrator) {
        Nearest nearest;
        nearest_init(&nearest, word->name.text);
        for (int i = 0; calibrators[i]; i++)
            nearest_offer(&nearest, calibrators[i]->name);
        diag_error(l->s->diag, word->name.span, E_UNKNOWN_CALIBRATOR, "unknown calibrator '%s'",
                   word->name.text);
        suggest(l->s->diag, &nearest);
        l->bad = true;
        return;
    }
    info->spec.calibrator = calibrator->name;
    if (l->scheme.outer && strcmp(calibrator->name, "minmax") != 0 &&
        strcmp(calibrator->name, "percentile") != 0) {
        complain(l, word->name.span, "an outer scale reaches to an end of the data");
        diag_help(l->s->diag, "write 'static', or 'static percentile 99.9'");
        return;
    }
    if (calibrator->has_arg != (word->value != NULL)) {
        complain(l, word->span,
                 calibrator->has_arg ? "this calibrator needs a number"
                                     : "this calibrator takes no number");
        return;
    }
    if (!word->value)
        return;
    info->spec.calibrator_arg = word->value->real;
    if (!(word->value->real >= calibrator->arg_min && word->value->real <= calibrator->arg_max)) {
        diag_error(l->s->diag, word->value->span, E_SCHEME_WORDS, "%s %g lies outside %g .. %g",
                   calibrator->name, word->value->real, calibrator->arg_min, calibrator->arg_max);
        l->bad = true;
    }
}

static bool by_arg(const Arg *arg, WeightArgs *args)
{
    if (!arg->name.text)
        return false;
    const Expr *value = arg->value;
    if (strcmp(arg->name.text, "order") == 0 && value->kind == EXPR_NAME &&
        (!strcmp(value->name.text, "act") || !strcmp(value->name.text, "none"))) {
        args->act_order = strcmp(value->name.text, "act") == 0;
        return true;
    }
    if (strcmp(arg->name.text, "damp") == 0 && value->kind == EXPR_REAL && value->real > 0 &&
        value->real < 1) {
        args->damp = value->real;
        return true;
    }
    return false;
}

static void line_fast(LineState *l)
{
    if (!l->fast)
        return;
    if (!l->line->is_act)
        complain(l, l->fast->span,
                 "'fast' is a word of the act line: it is about sums of products");
    else if (l->plain)
        complain(l, l->fast->span, "sums of 16- and 32-bit floats are f32");
    l->scheme.fast = true;
}

static void line_by(LineState *l, SchemeInfo *info)
{
    const SchemeWord *word = l->by;
    if (!word)
        return;
    if (l->line->is_act) {
        complain(l, word->span, "'by' says how the codes of a weight are chosen");
        return;
    }
    const WeightQuantiser *quantiser = weight_quantiser_find(word->name.text);
    if (!quantiser) {
        Nearest nearest;
        nearest_init(&nearest, word->name.text);
        for (int i = 0; weight_quantisers[i]; i++)
            nearest_offer(&nearest, weight_quantisers[i]->name);
        diag_error(l->s->diag, word->name.span, E_UNKNOWN_QUANTISER,
                   "unknown weight quantiser '%s'", word->name.text);
        suggest(l->s->diag, &nearest);
        l->bad = true;
        return;
    }
    info->spec.by = quantiser->name;
    for (int i = 0; i < word->args.num; i++) {
        const Arg *arg = &word->args.elem[i];
        bool takes = false;
        for (int k = 0; quantiser->arg_names[k]; k++)
            takes = takes || (arg->name.text && !strcmp(quantiser->arg_names[k], arg->name.text));
        if (takes && by_arg(arg, &info->spec.by_args))
            continue;
        diag_error(l->s->diag, arg->name.text ? arg->name.span : arg->value->span, E_ARGUMENTS,
                   takes ? "%s: not a value for this argument" : "%s does not take this argument",
                   quantiser->name);
        if (quantiser->arg_names[0])
            diag_help(l->s->diag, "order=act or order=none, damp=0.01 (between 0 and 1)");
        l->bad = true;
    }
}

static void line_check_extra(LineState *l)
{
    const SchemeWord *extra[] = {l->symmetry, l->granularity, l->group, l->scale};
    for (size_t i = 0; i < COUNT_OF(extra); i++) {
        if (!extra[i])
            continue;
        complain(l, extra[i]->span,
                 l->plain ? "a plain format is not quantised: it has no such word"
                          : "this named scheme says so itself");
        diag_note(l->s->diag, l->line->fmt.span, "%s is said here", l->line->fmt.text);
    }
    if (l->plain && l->range)
        complain(l, l->range->span, "a plain format has no range");
}

static void compile_line(Sema *s, SchemeInfo *info, const SchemeLine *line)
{
    LineState l = {.s = s, .line = line};
    line_format(&l);
    for (int i = 0; i < line->words.num; i++)
        line_word(&l, &line->words.elem[i]);
    if (l.plain || l.named) {
        line_check_extra(&l);
    } else {
        line_symmetry(&l);
        line_granularity(&l);
        line_scale(&l);
    }
    if (!l.plain)
        line_range(&l, info);
    line_by(&l, info);
    line_fast(&l);
    const char *problem = l.bad || l.plain ? NULL : scheme_problem(&l.scheme);
    if (!problem && line->is_act && format_info[l.scheme.fmt].family == FAMILY_CODEBOOK)
        problem = "a codebook is for weights; activations take integers and minifloats";
    if (!problem && line->is_act && format_is_narrow(l.scheme.fmt))
        problem = "this format is for weights; activations take integers of 4 and 8 bits";
    if (!problem && line->is_act && l.scheme.scale_fmt == FMT_I8)
        problem = "i8 scales are for weights; those of activations are f32, f16, bf16 or e4m3";
    if (problem) {
        diag_error(s->diag, line->span, E_SCHEME_FIT, "%s", problem);
        l.bad = true;
    }
    info->bad = info->bad || l.bad;
    if (line->is_act) {
        info->act = l.scheme;
        info->spec.act = l.plain ? NULL : &info->act;
        info->spec.act_fmt = l.plain ? l.scheme.fmt : FMT_NONE;
        info->spec.act_span = line->span;
        info->act_else = l.group && l.group->name.text;
    } else {
        info->weight_else = l.group && l.group->name.text;
        info->weight = l.scheme;
        info->spec.weight = &info->weight;
        info->spec.weight_span = line->span;
    }
}

/* Only a file's tensors have a codebook. */
static void refuse_codebook(Sema *s, SchemeInfo *info, const SchemeLine *line)
{
    for (int i = 0; i < line->words.num; i++)
        if (line->words.elem[i].kind == SW_CODEBOOK) {
            diag_error(s->diag, line->words.elem[i].span, E_SCHEME_WORDS,
                       "a codebook comes with stored codes: no rule chooses its values");
            diag_help(s->diag, "'nf4' and 'fp4' are codebooks whose values are fixed");
            info->bad = true;
        }
}

static void compile_scheme(Sema *s, Item *item)
{
    SchemeInfo *info = item->scheme;
    info->spec.scheme_name = item->name.text;
    Span first[2] = {{0}, {0}};
    for (int i = 0; i < item->lines.num; i++) {
        const SchemeLine *line = &item->lines.elem[i];
        bool *seen = line->is_act ? &info->has_act : &info->has_weight;
        if (*seen) {
            diag_error(s->diag, line->span, E_SCHEME_WORDS, "a second '%s' line in one scheme",
                       line->is_act ? "act" : "weight");
            diag_note(s->diag, first[line->is_act], "first here");
            info->bad = true;
            continue;
        }
        *seen = true;
        first[line->is_act] = line->span;
        compile_line(s, info, line);
        refuse_codebook(s, info, line);
    }
    if (item->lines.num == 0 && !s->diag->num_errors) {
        diag_error(s->diag, item->span, E_INCOMPLETE, "scheme '%s' says nothing", item->name.text);
        diag_help(s->diag, "a scheme has a 'weight' line, an 'act' line or both");
    }
}

static void complain_param(Sema *s, Stmt *stmt, Span span, ErrorId id, const char *text)
{
    diag_error(s->diag, span, id, "%s", text);
    stmt->has_bad = true;
}

/* Each role once; what is needed is there. */
static void check_roles(Sema *s, Stmt *stmt)
{
    static const char *const role[] = {"codes", "scale", "zero", "offset", "outer", "table"};
    enum { TABLE = 5 };
    const Part *seen[COUNT_OF(role)] = {NULL};
    for (int i = 0; i < stmt->from.parts.num; i++) {
        const Part *part = &stmt->from.parts.elem[i];
        size_t k = 0;
        while (k < COUNT_OF(role) && strcmp(role[k], part->role.text) != 0)
            k++;
        if (k == COUNT_OF(role)) {
            diag_error(s->diag, part->role.span, E_UNKNOWN_NAME, "'%s' is no part of a weight",
                       part->role.text);
            diag_help(s->diag, "parts are codes, scale, zero, offset, outer and table");
            stmt->has_bad = true;
        } else if (seen[k]) {
            complain_param(s, stmt, part->role.span, E_SCHEME_WORDS, "this is said twice");
            diag_note(s->diag, seen[k]->role.span, "first here");
        } else {
            seen[k] = part;
        }
    }
    for (size_t k = 0; k < 2 && !stmt->has_bad; k++)
        if (!seen[k])
            complain_param(s, stmt, stmt->span, E_INCOMPLETE,
                           k ? "a weight that is stored quantised names the tensor of its scales"
                             : "a weight that is stored quantised names the tensor of its codes");
    if (stmt->has_bad || !seen[TABLE] == !stmt->stored->weight.table)
        return;
    complain_param(s, stmt, seen[TABLE] ? seen[TABLE]->role.span : stmt->decl.span, E_SCHEME_WORDS,
                   seen[TABLE] ? "a table says what the codes of a codebook stand for, but the "
                                 "scheme has none"
                               : "the scheme is a codebook's, but names no table of its values");
    diag_help(s->diag,
              seen[TABLE] ? "write 'codebook' in place of 'sym' or 'asym'" : "add: table \"NAME\"");
}

/* Has each group's matrix tensors of its own? */
static bool codes_are_apart(const Stmt *stmt)
{
    for (int i = 0; i < stmt->from.parts.num; i++)
        if (!strcmp(stmt->from.parts.elem[i].role.text, "codes"))
            return strchr(stmt->from.parts.elem[i].tensor.text, '*') != NULL;
    return false;
}

void scheme_of_param(Sema *s, Stmt *stmt)
{
    SchemeInfo *info = ARENA_NEW(s->arena, SchemeInfo);
    const SchemeLine line = {
        .fmt = stmt->decl.type.fmt, .words = stmt->words, .span = stmt->decl.span};
    *info = (SchemeInfo){.has_weight = true};
    compile_line(s, info, &line);
    for (int i = 0; i < stmt->words.num; i++)
        if (stmt->words.elem[i].kind == SW_BY)
            complain_param(s, stmt, stmt->words.elem[i].span, E_SCHEME_WORDS,
                           "the codes are stored: nothing chooses them");
    stmt->stored = info;
    check_roles(s, stmt);
    if (stmt->decl.type.dims.num != (codes_are_apart(stmt) ? 3 : 2))
        complain_param(s, stmt, stmt->decl.type.span, E_SHAPE,
                       codes_are_apart(stmt)
                           ? "a weight whose codes lie apart, as the `*` says, is [groups, out, in]"
                           : "a weight that is stored quantised is [out, in]");
    stmt->has_bad = stmt->has_bad || info->bad;
}

void schemes_compile(Sema *s)
{
    for (int i = 0; i < s->items.num; i++) {
        if (s->items.elem[i]->kind == ITEM_SCHEME)
            compile_scheme(s, s->items.elem[i]);
    }
}

Item *scheme_lookup(Sema *s, Word name)
{
    Item *item = map_get(&s->schemes, name.text);
    if (item) {
        item->scheme->used = true;
        return item;
    }
    if (s->lost)
        return NULL;
    diag_error(s->diag, name.span, E_UNKNOWN_NAME, "unknown scheme '%s'", name.text);
    if (!want_suggestion(s->diag))
        return NULL;
    Nearest nearest;
    nearest_init(&nearest, name.text);
    for (int i = 0; i < s->schemes.num; i++)
        nearest_offer(&nearest, s->schemes.entry[i].key);
    suggest(s->diag, &nearest);
    return NULL;
}
