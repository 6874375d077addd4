/* bind-weights: finds every weight of the text in the weight files and points its constant at the
 * mapped bytes.
 *
 * Needs: types. With no_weights nothing is opened and nothing changes.
 * Leaves: every weight constant has data, bytes and, where it differs, stored_fmt, or a reader; its
 * shape is the declared one, its elements convert to the declared format without overflow, and all
 * are finite unless allow_nan.
 *
 * Before                                        After
 *   weights "m.safetensors"                       the same text; in memory, the constant of w
 *   %x = input "x" : f32[B, 4]                    holds the address, the size and the stored
 *   %w = const weight "fc.weight" : f32[2, 4]     format of the tensor "fc.weight"
 *   %y = matmul %x, %w : f32[B, 2]
 *   output "y" %y
 */
#include "checkpoint/checkpoint.h"
#include "io/io.h"
#include "passes/internal.h"
#include <math.h>
#include <string.h>

/* Opening ------------------------------------------------------------------------------------- */

/* Where the text names the file that an error of opening begins with. */
static Span file_span(const Module *m, int num, const char *const *path, const char *error)
{
    for (int i = 0; i < num && i < m->weight_spans.num; i++)
        if (!strncmp(error, path[i], strlen(path[i])))
            return m->weight_spans.elem[i];
    return m->weight_spans.num ? m->weight_spans.elem[0] : (Span){0};
}

static bool files_open(Module *m, PassContext *ctx)
{
    const PassOptions *options = &ctx->options;
    bool replaced = options->num_weight_files > 0;
    int num = replaced ? options->num_weight_files : m->weight_files.num;
    const char **path = ARENA_NEW_ARRAY(ctx->scratch, const char *, (size_t)num + 1);
    IoError err = {0};

    for (int i = 0; i < num; i++)
        path[i] = replaced ? options->weight_file[i]
                           : path_resolve(ctx->scratch, options->base_dir, m->weight_files.elem[i]);
    m->weights = weights_open(num, path, &err);
    if (m->weights)
        m->checkpoint = checkpoint_open(m->arena, m->weights, num, path, &err);
    if (!m->checkpoint)
        diag_error(m->diag, replaced ? (Span){0} : file_span(m, num, path, err.text), err.id, "%s",
                   err.text);
    return m->checkpoint != NULL;
}

static const Op *first_weight(const Module *m)
{
    for_each_op(op, &m->body)
        if (op->kind == OP_CONST && op->constant->kind == CONST_WEIGHT)
            return op;
    return NULL;
}

/* Checks -------------------------------------------------------------------------------------- */

/* "x.*.w" where the name is "x.w" and the tensor "x.0.w"; NULL: they are not so alike. */
static const char *name_apart(Arena *arena, const char *name, const char *tensor)
{
    for (const char *dot = strchr(tensor, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t len = (size_t)(dot - tensor), digits = strspn(dot + 1, "0123456789");
        const char *rest = dot + 1 + digits;
        if (digits && (*rest == '.' || !*rest) && strncmp(name, tensor, len) == 0 &&
            strcmp(name + len, rest) == 0)
            return arena_printf(arena, "%.*s.*%s", (int)len, tensor, rest);
    }
    return NULL;
}

/* What weight the tensor is, or is a part of, as a text names it. */
static const char *weight_of(const Module *m, const TensorView *view, int *ret_rank)
{
    const Checkpoint *c = m->checkpoint;
    const StoredModule *owner = map_get(&c->owner, view->name);

    *ret_rank = !owner ? view->rank : owner->experts ? 3 : 2;
    return owner ? owner->weight : view->name;
}

void weight_missing(Module *m, const Op *op, const char *name)
{
    const WeightSet *set = m->weights;
    int num = weights_num(set), rank;
    Nearest nearest;

    diag_error(m->diag, op->span, E_WEIGHT_MISSING, "the weight files hold no tensor \"%s\"", name);
    nearest_init(&nearest, name);
    for (int i = 0; i < num; i++) {
        const char *weight = weight_of(m, weights_at(set, i), &rank);
        const char *apart = rank + 1 == op->out[0].type->rank && !strchr(op->constant->name, '*')
                                ? name_apart(m->arena, name, weight)
                                : NULL;
        if (apart) {
            diag_help(m->diag, "\"%s\" stands for \"%s\" and those of the other numbers", apart,
                      weight);
            return;
        }
        nearest_offer(&nearest, weight);
    }
    if (nearest_get(&nearest))
        diag_help(m->diag, "did you mean \"%s\"?", nearest_get(&nearest));
    else if (num)
        diag_help(m->diag, "they hold %d, the first is \"%s\"", num, weights_at(set, 0)->name);
    else
        diag_help(m->diag, "they hold no tensors at all");
}

static bool shape_matches(const Type *type, const TensorView *view)
{
    if (type->rank != view->rank)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (!dim_is_const(type->dim[i]) || type->dim[i].add != view->dim[i])
            return false;
    return true;
}

/* First element that is not finite, or whose magnitude is beyond `most`; num when all are good. */
static uint64_t first_bad(const TensorView *view, double most, bool allow_nan, double *ret_value)
{
    enum { CHUNK = 512 };
    const uint8_t *data = view->data;
    uint64_t width = (uint64_t)format_info[view->fmt].bits / 8;
    double v[CHUNK];

    for (uint64_t at = 0; at < view->elements; at += CHUNK) {
        uint64_t num = view->elements - at < CHUNK ? view->elements - at : CHUNK;
        bool bad = false;
        format_to_f64(view->fmt, data + at * width, v, num);
        for (uint64_t i = 0; i < num; i++)
            bad |= !(fabs(v[i]) <= most);
        for (uint64_t i = 0; bad && i < num; i++) {
            *ret_value = v[i];
            if (isfinite(v[i]) ? fabs(v[i]) > most : !allow_nan)
                return at + i;
        }
    }
    return view->elements;
}

/* The exponent bits of 16- and 32-bit floats say at once whether a value is finite: all set, one
 * more carries into the sign's place. Eight bytes at a time: whole checkpoints pass here. */
static bool all_finite(const TensorView *view)
{
    const uint8_t *data = view->data;
    uint64_t ones =
        view->fmt == FMT_F32 ? UINT64_C(0x0000000100000001) : UINT64_C(0x0001000100010001);
    uint64_t exponent = ones * (view->fmt == FMT_F32    ? 0x7F800000u
                                : view->fmt == FMT_BF16 ? 0x7F80u
                                                        : 0x7C00u);
    uint64_t lowest = ones * (view->fmt == FMT_F32    ? 0x00800000u
                              : view->fmt == FMT_BF16 ? 0x0080u
                                                      : 0x0400u);
    uint64_t bytes = view->elements * (uint64_t)format_info[view->fmt].bits / 8, bad = 0, word;
    uint64_t whole = bytes / 8 * 8;

    for (uint64_t i = 0; i < whole; i += 8) {
        memcpy(&word, data + i, 8);
        bad |= (word & exponent) + lowest;
    }
    word = 0;
    memcpy(&word, data + whole, bytes - whole);
    bad |= (word & exponent) + lowest;
    return !(bad &
             (view->fmt == FMT_F32 ? UINT64_C(0x8000000080000000) : UINT64_C(0x8000800080008000)));
}

static bool values_fit(Module *m, const PassContext *ctx, const Op *op, const TensorView *view)
{
    FormatId to = op->out[0].type->fmt;
    bool narrows = to == FMT_F16 && view->fmt != FMT_F16;
    bool fast = view->fmt == FMT_F32 || view->fmt == FMT_BF16 || view->fmt == FMT_F16;
    double most = to == FMT_F16 ? 65504 : (double)3.40282347e38f, value = 0;

    if (fast && !narrows && all_finite(view))
        return true;
    uint64_t at = first_bad(view, most, ctx->options.allow_nan, &value);
    if (at == view->elements)
        return true;
    if (isfinite(value))
        diag_error(m->diag, op->span, E_WEIGHT_OVERFLOW,
                   "element %llu of \"%s\" is %g, beyond the %g that %s holds",
                   (unsigned long long)at, view->name, value, most, format_info[to].name);
    else
        diag_error(m->diag, op->span, E_WEIGHT_NAN, "element %llu of \"%s\" is %s",
                   (unsigned long long)at, view->name, isnan(value) ? "NaN" : "infinite");
    return false;
}

/* What checkpoints call the scales of a module's codes, behind the module's name or the tensor's.
 */
static const char *const scale_names[] = {
    ".weight_scale_inv",
    ".weight_scale",
    ".weight_scale_2",
    ".weight_global_scale",
    ".scale",
    ".scales",
    ".SCB",
    "_scale_inv",
    "_scale",
    ".absmax",
    "_scales",
    "._weight_scale",
};

static const TensorView *scale_beside(const Module *m, Arena *scratch, const TensorView *view)
{
    size_t len = strlen(view->name), end = len;
    const char *dot = strrchr(view->name, '.');

    if (dot && dot != view->name)
        end = (size_t)(dot - view->name);
    for (size_t i = 0; i < COUNT_OF(scale_names); i++) {
        for (int whole = 0; whole < 2; whole++) {
            const char *name = arena_printf(scratch, "%.*s%s", (int)(whole ? len : end), view->name,
                                            scale_names[i]);
            const TensorView *found = weights_find(m->weights, name);
            if (found && found != view)
                return found;
        }
    }
    return NULL;
}

/* Eight bits or fewer hold codes as often as values: they are values only where nothing else says
 * otherwise. */
static bool is_plain(Module *m, const PassContext *ctx, const Op *op, const TensorView *view)
{
    bool narrow = view->elements && view->bytes / view->elements <= 1;
    const TensorView *scale = narrow ? scale_beside(m, ctx->scratch, view) : NULL;

    if (!scale)
        return true;
    diag_error(m->diag, op->span, E_WEIGHT_CODES,
               "\"%s\" is stored as codes in %s, and \"%s\" holds their scales: as plain %s they "
               "would be wrong",
               view->name, view->dtype, scale->name, format_info[op->out[0].type->fmt].name);
    diag_help(m->diag,
              "name the checkpoint's folder in `weights`, so that its configuration is read, or "
              "export the weight as f32, f16 or bf16");
    return false;
}

bool weight_fits(Module *m, const PassContext *ctx, const Op *op, const Type *type,
                 const TensorView *view)
{
    if (!is_plain(m, ctx, op, view))
        return false;
    if (!shape_matches(type, view)) {
        diag_error(m->diag, op->span, E_WEIGHT_SHAPE, "\"%s\" is %s in the file, but %s here",
                   view->name, dims_text(ctx->scratch, view), type_text(ctx->scratch, type));
        if (view->rank == 2 && type->rank == 2 && dim_is_const(type->dim[0]) &&
            dim_is_const(type->dim[1]) && type->dim[0].add == view->dim[1] &&
            type->dim[1].add == view->dim[0])
            diag_help(m->diag, "weights are [out, in]; this one is stored transposed");
        return false;
    }
    if (view->fmt == FMT_NONE || format_info[view->fmt].bits < 8 ||
        format_info[view->fmt].family == FAMILY_INT) {
        diag_error(m->diag, op->span, E_WEIGHT_DTYPE,
                   "\"%s\" is stored as %s, which does not convert to %s", view->name, view->dtype,
                   format_info[type->fmt].name);
        return false;
    }
    return values_fit(m, ctx, op, view);
}

/* Binding ------------------------------------------------------------------------------------- */

static const StoredModule *hand_find(Module *m, const Op *op)
{
    const Type *type = op->out[0].type;
    IoError err = {0};
    const StoredModule *stored = hand_module(m, op->constant->name, op->constant->parts,
                                             type->dim[0].add, type->dim[1].add, &err);

    if (!stored)
        diag_error(m->diag, op->span, err.id, "%s", err.text);
    return stored;
}

static void view_bind(Module *m, const PassContext *ctx, const Op *op, const TensorView *view)
{
    if (!weight_fits(m, ctx, op, op->out[0].type, view))
        return;
    weights_forget(m->weights, view->elements);
    op->constant->stored_fmt = view->fmt == op->out[0].type->fmt ? FMT_NONE : view->fmt;
    op->constant->data = view->data;
    op->constant->bytes = view->bytes;
}

/* Binds the weight to a plain tensor or several, or returns the module that holds its codes. NULL
 * after reporting, too. */
static const StoredModule *weight_find(Module *m, const PassContext *ctx, const Op *op)
{
    const char *name = op->constant->name;
    const TensorView *view = weights_find(m->weights, name);
    const StoredModule *stored = NULL;

    if (!op->constant->parts)
        stored = checkpoint_find(m->checkpoint, name);
    if (stored)
        return stored;
    if (!view && strchr(name, '*'))
        return stack_find(m, ctx, op);
    if (op->constant->parts)
        return hand_find(m, op);
    if (view)
        view_bind(m, ctx, op, view);
    else
        weight_missing(m, op, name);
    return NULL;
}

/* Doubts --------------------------------------------------------------------------------------- */

typedef struct Doubt {
    const char *text, *name; /* of the first weight */
    Span span;
    int num; /* weights of which it is said */
} Doubt;
typedef struct Doubts {
    ARRAY(Doubt *) in_order;
    Map by_text;
} Doubts;

static void doubts_add(Doubts *d, Arena *scratch, const Op *op, const StoredModule *stored)
{
    for (int i = 0; stored && i < stored->doubts.num; i++) {
        const char *text = stored->doubts.elem[i];
        Doubt *doubt = map_get(&d->by_text, text);
        if (!doubt) {
            doubt = ARENA_NEW(scratch, Doubt);
            *doubt = (Doubt){.text = text, .name = stored->weight, .span = op->span};
            map_put(&d->by_text, text, doubt);
            ARRAY_PUSH(scratch, &d->in_order, doubt);
        }
        doubt->num++;
    }
}

static void doubts_warn(Module *m, const Doubts *d)
{
    for (int i = 0; i < d->in_order.num; i++) {
        const Doubt *doubt = d->in_order.elem[i];
        if (doubt->num > 1)
            diag_warning(m->diag, doubt->span, E_STORED_DOUBT, "\"%s\" and %d more: %s",
                         doubt->name, doubt->num - 1, doubt->text);
        else
            diag_warning(m->diag, doubt->span, E_STORED_DOUBT, "\"%s\": %s", doubt->name,
                         doubt->text);
    }
}

bool pass_bind_weights(Module *m, PassContext *ctx)
{
    const Op *first = first_weight(m);

    if (ctx->options.no_weights || !first)
        return false;
    if (!m->weight_files.num && !ctx->options.num_weight_files) {
        diag_error(m->diag, first->span, E_WEIGHT_MISSING,
                   "\"%s\" is to come from a weight file, but there is none",
                   first->constant->name);
        diag_help(m->diag, "add a line: weights \"model.safetensors\"");
        return false;
    }
    if (!m->checkpoint && !files_open(m, ctx))
        return false;
    Doubts doubts = {0};
    map_init(&doubts.by_text, ctx->scratch);
    for_each_op(op, &m->body) {
        if (op->kind != OP_CONST || op->constant->kind != CONST_WEIGHT || op->constant->data ||
            op->constant->reader)
            continue;
        const StoredModule *stored = weight_find(m, ctx, op);
        if (!stored)
            continue;
        if (!op->constant->parts)
            doubts_add(&doubts, ctx->scratch, op, stored);
        stored_bind(m, ctx, op, stored);
    }
    doubts_warn(m, &doubts);
    return true;
}
