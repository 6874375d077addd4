/* codegen/rows: may a batch be cut into chunks of rows, each computed alone, with the same results?
 *
 * Yes when the first symbol leads every value that depends on an input and occurs nowhere else in
 * its type: then each row of a value depends on the same row of the inputs only, as long as no
 * scale is shared by rows. Rows that a route sends to groups and brings back do, too, though which
 * places they have there hangs on all of them: what stands between is computed for each by itself.
 */
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

/* What each value is of, by its number: a constant, rows, or what belongs to a route, which its
 * index names. */
enum { OF_NOTHING, OF_ROWS, OF_ROUTES };
typedef enum RoutePart {
    ROUTED_ROWS,
    ROUTE_ENDS_OF,
    ROUTE_PLACES_OF,
    ROUTE_SOURCES_OF,
    ROUTE_PARTS
} RoutePart;

typedef struct Rows {
    Builder *b;
    PtrMap of;
    ARRAY(const Value *) routes;
    const Op *kernel; /* NULL: the op is of the module's block */
} Rows;

/* The value of the module's block that an argument stands for. */
static const Value *outside(const Rows *r, const Value *value)
{
    return value->def->kind == OP_ARG ? op_in(r->kernel, (int)value->def->mark) : value;
}

static int of_value(Rows *r, const Value *value)
{
    const Value *own = outside(r, value);
    bool is_top = own->def->block == &r->b->m->body;
    return is_top && build_is_constant(r->b, own) ? OF_NOTHING : ptrmap_get(&r->of, own);
}

/* The number of a part of the route by this index. */
static int of_route(Rows *r, const Value *index, RoutePart part)
{
    int at = 0;
    index = outside(r, index);
    while (at < r->routes.num && r->routes.elem[at] != index)
        at++;
    if (at == r->routes.num)
        ARRAY_PUSH(r->b->arena, &r->routes, index);
    return OF_ROUTES + at * ROUTE_PARTS + (int)part;
}

static bool is_part(int of, RoutePart part)
{
    return of >= OF_ROUTES && (of - OF_ROUTES) % ROUTE_PARTS == (int)part;
}

/* Both are of one route, these parts. */
static bool same_route(int a, RoutePart of_a, int b, RoutePart of_b)
{
    return is_part(a, of_a) && is_part(b, of_b) && a - (int)of_a == b - (int)of_b;
}

/* What the operands that are no constants are all of; -1: of several. */
static int of_operands(Rows *r, const Op *op, int num)
{
    int ret = OF_NOTHING;
    for (int i = 0; i < num; i++) {
        int of = of_value(r, op_in(op, i));
        if (of && ret && of != ret)
            return -1;
        ret = of ? of : ret;
    }
    return ret == OF_ROWS || is_part(ret, ROUTED_ROWS) ? ret : -1;
}

/* What the op's result is of; -1: its rows hang on others. */
static int of_result(Rows *r, const Op *op)
{
    int first = op->num_in ? of_value(r, op_in(op, 0)) : OF_NOTHING;
    int second = op->num_in > 1 ? of_value(r, op_in(op, 1)) : OF_NOTHING;
    switch (op->kind) {
    case OP_GROUP_ENDS: return of_route(r, op_in(op, 0), ROUTE_ENDS_OF);
    case OP_GROUP_PLACES: return of_route(r, op_in(op, 0), ROUTE_PLACES_OF);
    case OP_GROUP_SOURCES: return of_route(r, op_in(op, 0), ROUTE_SOURCES_OF);
    case OP_DISPATCH:
        return first == OF_ROWS && is_part(second, ROUTE_SOURCES_OF)
                   ? second - ROUTE_SOURCES_OF + ROUTED_ROWS
                   : -1;
    case OP_COMBINE:
        return same_route(first, ROUTED_ROWS, second, ROUTE_PLACES_OF) &&
                       of_value(r, op_in(op, 2)) == OF_ROWS
                   ? OF_ROWS
                   : -1;
    case OP_SPREAD:
        return first == OF_NOTHING && is_part(second, ROUTE_ENDS_OF)
                   ? second - ROUTE_ENDS_OF + ROUTED_ROWS
                   : -1;
    case OP_MATMUL:
        if (op->num_in == 3)
            return second == OF_NOTHING &&
                           same_route(first, ROUTED_ROWS, of_value(r, op_in(op, 2)), ROUTE_ENDS_OF)
                       ? first
                       : -1;
        break;
    default: break;
    }
    return shares_scales(op) ? -1 : of_operands(r, op, op->num_in);
}

/* So many times the batch's rows, and nothing else of the batch. */
static bool type_is_routed(const Builder *b, const Type *type)
{
    Dim rows = type->rank ? type->dim[0] : dim_const(1), one = rows;
    one.mul = 1;
    if (type->rank < 2 || rows.mul < 1 || !is_batch(b, one))
        return false;
    for (int i = 1; i < type->rank; i++)
        if (has_batch(b, type->dim[i]))
            return false;
    return true;
}

static bool op_keeps_rows(Rows *r, const Op *op)
{
    if (op->kind == OP_ARG || op->kind == OP_YIELD || op->kind == OP_OUTPUT)
        return true;
    int of = op->kind == OP_INPUT ? OF_ROWS : of_result(r, op);
    const Type *type = op->out[0].type;
    if (of < 0 || (of == OF_ROWS && !type_is_rows(r->b, type) && !is_shared_part(op)) ||
        (is_part(of, ROUTED_ROWS) && !type_is_routed(r->b, type) && !is_shared_part(op)))
        return false;
    ptrmap_put(&r->of, &op->out[0], of);
    return true;
}

static bool kernel_keeps_rows(Rows *r, const Op *kernel)
{
    r->kernel = kernel;
    for (const Op *op = kernel->body->first; op; op = op->next)
        if (!op_keeps_rows(r, op))
            return false;
    for (int i = 0; i < kernel->num_out; i++)
        ptrmap_put(&r->of, &kernel->out[i], of_value(r, op_in(kernel->body->last, i)));
    r->kernel = NULL;
    return true;
}

bool rows_independent(Builder *b)
{
    Rows r = {.b = b};
    ptrmap_init(&r.of, b->arena);
    if (b->m->syms.num == 0)
        return false;
    for_each_op(op, &b->m->body) {
        if (op->kind == OP_OUTPUT || op->kind == OP_INPUT) {
            const Value *value = op->kind == OP_INPUT ? &op->out[0] : op_in(op, 0);
            bool routed = op->kind == OP_OUTPUT && of_value(&r, value) >= OF_ROUTES;
            if (!type_is_rows(b, value->type) || routed)
                return false;
        }
        if (op->num_out && build_is_constant(b, &op->out[0]))
            continue;
        if (op->body ? !kernel_keeps_rows(&r, op) : !op_keeps_rows(&r, op))
            return false;
    }
    return true;
}
