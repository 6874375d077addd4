/* passes/calib_data: runs the model on the calibration files in batches, for the passes that want
 * to know what values its layers see. */
#include "io/io.h"
#include "passes/internal.h"
#include <stdlib.h>

enum { BATCH_MOST = 256 }; /* rows at once, unless the smallest bucket is larger */

typedef struct Feed { /* one input of the model and the tensor that feeds it */
    const Op *input;
    const TensorView *view;
} Feed;

typedef struct Batches {
    Module *m;
    const char *path;
    ARRAY(Feed) feeds;
    int64_t *size; /* of each symbol, for the whole file */
    bool *known;
    const Sym *rows;                 /* the symbol along which batches are cut; NULL: all at once */
    const CalibrationEngine *engine; /* NULL: the evaluator */
    void *runs;                      /* of the engine */
    EvalObserver observe;
    void *user;
} Batches;

static bool fail(const Batches *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool fail(const Batches *b, const char *fmt, ...)
{
    Sb sb;
    va_list args;

    sb_init(&sb, b->m->arena);
    sb_printf(&sb, "%s: ", b->path);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    diag_error(b->m->diag, (Span){0}, E_CALIBRATION_DATA, "%s", sb.text);
    return false;
}

static bool feeds_find(Batches *b, const TensorFile *file, Arena *scratch)
{
    for_each_op(op, &b->m->body) {
        if (op->kind != OP_INPUT)
            continue;
        Feed feed = {op, NULL};
        if (tensorfile_is_npy(file))
            feed.view = b->feeds.num ? NULL : tensorfile_at(file, 0);
        else
            feed.view = tensorfile_find(file, op->name);
        if (!feed.view && tensorfile_is_npy(file))
            return fail(b, "an .npy file feeds one input, but the model has more; name them in "
                           "a .safetensors file");
        if (!feed.view)
            return fail(b, "holds no tensor for input \"%s\"", op->name);
        FormatId fmt = feed.view->fmt;
        bool counts = op->out[0].type->fmt == FMT_I32;
        if (counts ? fmt != FMT_I32 : fmt == FMT_NONE || format_info[fmt].family != FAMILY_FLOAT)
            return fail(b, "input \"%s\" takes %s, not %s", op->name, counts ? "I32" : "floats",
                        feed.view->dtype);
        ARRAY_PUSH(scratch, &b->feeds, feed);
    }
    return true;
}

/* What the file's dimension says of the declared one's symbol. */
static bool dim_solve(Batches *b, const Feed *feed, int axis)
{
    Dim d = feed->input->out[0].type->dim[axis];
    int64_t n = feed->view->dim[axis], size;

    if (dim_is_const(d) ? d.add == n : d.sym[1] == NULL && (n - d.add) % d.mul == 0) {
        if (dim_is_const(d))
            return true;
        size = (n - d.add) / d.mul;
        int at = d.sym[0]->index;
        if (size >= 1 && (!b->known[at] || b->size[at] == size)) {
            b->known[at] = true;
            b->size[at] = size;
            return true;
        }
    }
    if (n == 0)
        return fail(b, "\"%s\" has no rows: dimension %d is 0, and ranges need at least one",
                    feed->input->name, axis);
    Sb sb;
    sb_init(&sb, b->m->arena);
    dim_print(&sb, d);
    return fail(b, "dimension %d of \"%s\" is %lld, but the model declares %s", axis,
                feed->input->name, (long long)n, sb.text);
}

static bool sizes_solve(Batches *b)
{
    for (int i = 0; i < b->feeds.num; i++) {
        const Feed *feed = &b->feeds.elem[i];
        const Type *type = feed->input->out[0].type;
        if (type->rank != feed->view->rank)
            return fail(b, "\"%s\" has %d dimensions, but the model declares %d", feed->input->name,
                        feed->view->rank, type->rank);
        for (int axis = 0; axis < type->rank; axis++)
            if (!dim_solve(b, feed, axis))
                return false;
    }
    return true;
}

/* Batches can be cut along the leading symbol that all inputs share, where it stands nowhere else
 * in their shapes. */
static const Sym *rows_symbol(const Batches *b)
{
    const Sym *rows = NULL;

    for (int i = 0; i < b->feeds.num; i++) {
        const Type *type = b->feeds.elem[i].input->out[0].type;
        Dim first = type->rank ? type->dim[0] : dim_const(1);
        if (first.mul != 1 || first.add != 0 || first.sym[1] || (rows && first.sym[0] != rows))
            return NULL;
        rows = first.sym[0];
        for (int axis = 1; axis < type->rank; axis++)
            if (type->dim[axis].sym[0] == rows || type->dim[axis].sym[1] == rows)
                return NULL;
    }
    return rows;
}

/* The largest bucket of reasonable size: what the model runs with, too. */
static int64_t batch_rows(const Sym *rows)
{
    int64_t best = rows->num_sizes ? rows->size[0] : BATCH_MOST;

    for (int i = 0; i < rows->num_sizes; i++)
        if (rows->size[i] <= BATCH_MOST)
            best = rows->size[i];
    return best;
}

/* The rows of a feed from `start` on; false: they overflow. */
static bool batch_of(const Batches *b, const Feed *feed, const int64_t *size, int64_t start,
                     Tensor *ret)
{
    const TensorView *view = feed->view;
    uint64_t elements;

    *ret = (Tensor){.fmt = view->fmt, .rank = view->rank};
    for (int axis = 0; axis < view->rank; axis++)
        ret->dim[axis] = view->dim[axis];
    if (b->rows)
        ret->dim[0] = size[b->rows->index];
    if (!checked_elements(ret->dim, ret->rank, &elements))
        return false;
    ret->bytes = elements * (uint64_t)(format_info[view->fmt].bits / 8);
    uint64_t row = view->rank && view->dim[0] ? view->bytes / (uint64_t)view->dim[0] : 0;
    ret->data = (uint8_t *)(uintptr_t)view->data + (uint64_t)start * row;
    return true;
}

static bool batch_eval(const Batches *b, const int64_t *size, const Tensor *in,
                       const char **ret_why)
{
    Eval *e = eval_create(b->m, EVAL_CONTRACT, size);
    bool ok = e != NULL;

    for (int i = 0; ok && i < b->feeds.num; i++)
        ok = eval_bind(e, b->feeds.elem[i].input->name, &in[i]);
    ok = ok && eval_run(e, b->observe, b->user, ret_why);
    if (e)
        eval_destroy(e);
    return ok;
}

static bool batch_run(const Batches *b, const int64_t *size, int64_t start)
{
    const char *why = "memory is exhausted";
    size_t num = (size_t)b->feeds.num + 1;
    Tensor *in = calloc(num, sizeof *in);
    const char **name = calloc(num, sizeof *name);
    bool ok = in && name;

    for (int i = 0; ok && i < b->feeds.num; i++) {
        name[i] = b->feeds.elem[i].input->name;
        ok = batch_of(b, &b->feeds.elem[i], size, start, &in[i]);
    }
    if (ok)
        ok = b->runs ? b->engine->run(b->runs, b->feeds.num, name, in, b->observe, b->user, &why)
                     : batch_eval(b, size, in, &why);
    if (!ok)
        fail(b, "the model does not run on these data: %s", why);
    free(in);
    free(name);
    return ok;
}

/* All rows; of more than anyone needs, batches evenly over the file. */
static bool batches_run(Batches *b, PassContext *ctx)
{
    int64_t all = b->size[b->rows->index], batch = batch_rows(b->rows);
    int64_t num = (all + batch - 1) / batch, step = batch;

    if (all > LIMIT_CALIBRATION_ROWS) {
        num = LIMIT_CALIBRATION_ROWS / batch > 0 ? LIMIT_CALIBRATION_ROWS / batch : 1;
        step = all / num;
    }
    for (int64_t i = 0; i < num; i++) {
        int64_t start = i * step;
        if (ctx->options.progress)
            ctx->options.progress(ctx->options.progress_user, (double)i / (double)num, b->path);
        b->size[b->rows->index] = all - start < batch ? all - start : batch;
        if (!batch_run(b, b->size, start))
            return false;
    }
    return true;
}

static bool file_run(Batches *b, PassContext *ctx, const TensorFile *file)
{
    size_t syms = (size_t)b->m->syms.num + 1;

    b->size = ARENA_NEW_ARRAY(ctx->scratch, int64_t, syms);
    b->known = ARENA_NEW_ARRAY(ctx->scratch, bool, syms);
    if (!feeds_find(b, file, ctx->scratch) || !sizes_solve(b))
        return false;
    for (int i = 0; i < b->m->syms.num; i++)
        if (!b->known[i])
            b->size[i] = b->m->syms.elem[i]->num_sizes ? b->m->syms.elem[i]->size[0] : 1;
    b->rows = rows_symbol(b);
    if (!b->rows)
        return batch_run(b, b->size, 0);
    return batches_run(b, ctx);
}

static bool files_run(Module *m, PassContext *ctx, const Batches *like)
{
    for (int i = 0; i < m->calibrate_files.num; i++) {
        IoError err = {0};
        Batches b = *like;
        b.path = m->calibrate_files.elem[i];
        const char *path = path_resolve(ctx->scratch, ctx->options.base_dir, b.path);
        TensorFile *file = tensorfile_open(path, &err);
        if (!file) {
            Span span = i < m->calibrate_spans.num ? m->calibrate_spans.elem[i] : (Span){0};
            diag_error(m->diag, span, err.id, "%s", err.text);
            return false;
        }
        bool ok = file_run(&b, ctx, file);
        tensorfile_close(file);
        if (!ok)
            return false;
    }
    return true;
}

bool calibration_run(Module *m, PassContext *ctx, int num, const Value *const *value,
                     EvalObserver observe, void *user)
{
    const CalibrationEngine *engine = ctx->options.calibration;
    Batches b = {.m = m, .engine = engine, .observe = observe, .user = user};

    if (engine && m->calibrate_files.num) {
        b.runs = engine->begin(engine->user, m, num, value);
        if (!b.runs)
            return false;
    }
    bool ok = files_run(m, ctx, &b);
    if (b.runs)
        engine->end(b.runs);
    return ok;
}

void calibration_missing(Module *m, Span span, const char *layer, const char *what)
{
    diag_error(m->diag, span, E_NEEDS_CALIBRATION,
               "%s: %s looks at what the layer sees, but there are no calibration data", layer,
               what);
    if (m->calibration_file)
        diag_help(m->diag,
                  "%s holds ranges and columns of the model as it is written; for this, name the "
                  "data too: calibrate \"inputs.npy\"",
                  m->calibration_file);
    else
        diag_help(m->diag, "add a line: calibrate \"inputs.npy\"");
}
