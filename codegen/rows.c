/* codegen/rows: may a batch be cut into chunks of rows, each computed alone, with the same results?
 *
 * Yes when the first symbol leads every value that depends on an input and occurs nowhere else in
 * its type: then each row of a value depends on the same row of the inputs only, as long as no
 * scale is shared by rows and no row is sent to where others are. */
#include "codegen/build.h"

static bool is_batch(const Builder *b, Dim d)
{
    return d.mul == 1 && d.add == 0 && d.sym[0] && !d.sym[1] && d.sym[0] == b->m->syms.elem[0];
}

static bool has_batch(const Builder *b, Dim d)
{
    const Sym *batch = b->m->syms.elem[0];
    return d.mul != 0 && (d.sym[0] == batch || d.sym[1] == batch);
}

/* Rank 1 is one row of columns. */
static bool type_is_rows(const Builder *b, const Type *type)
{
    if (type->rank < 2 || !is_batch(b, type->dim[0]))
        return false;
    for (int i = 1; i < type->rank; i++)
        if (has_batch(b, type->dim[i]))
            return false;
    return true;
}

/* One scale for rows that are computed apart would differ. */
static bool shares_scales(const Op *op)
{
    const Scheme *scheme = op->out[0].type->scheme;
    return op->kind == OP_QUANTIZE && op->num_in == 1 && (scheme->block[0] != 1 || scheme->outer);
}

/* Parts of a quantised tensor that are the same for all rows. */
static bool is_shared_part(const Op *op)
{
    return (op->kind == OP_SCALES || op->kind == OP_ZEROS) &&
           op_in(op, 0)->type->scheme->block[0] != 1;
}

/* Their results hang on the rows of the whole batch, though their shapes may be of rows. */
static bool mixes_rows(const Op *op)
{
    return op->kind == OP_GROUP_ENDS || op->kind == OP_GROUP_PLACES ||
           op->kind == OP_GROUP_SOURCES || op->kind == OP_DISPATCH || op->kind == OP_COMBINE;
}

static bool op_keeps_rows(Builder *b, const Op *op)
{
    if (op->kind == OP_ARG || op->kind == OP_YIELD || op->kind == OP_OUTPUT)
        return true;
    if (shares_scales(op) || mixes_rows(op))
        return false;
    for (int i = 0; i < op->num_out; i++)
        if (!type_is_rows(b, op->out[i].type) && !is_shared_part(op))
            return false;
    return true;
}

bool rows_independent(Builder *b)
{
    if (b->m->syms.num == 0)
        return false;
    for_each_op(op, &b->m->body) {
        if (op->kind == OP_OUTPUT || op->kind == OP_INPUT) {
            const Value *value = op->kind == OP_INPUT ? &op->out[0] : op_in(op, 0);
            if (!type_is_rows(b, value->type))
                return false;
        }
        if (op->num_out && build_is_constant(b, &op->out[0]))
            continue;
        if (!op_keeps_rows(b, op))
            return false;
        for (Op *inner = op->body ? op->body->first : NULL; inner; inner = inner->next) {
            bool has_rows = inner->kind == OP_ARG || op_keeps_rows(b, inner);
            if (!has_rows)
                return false;
        }
    }
    return true;
}
