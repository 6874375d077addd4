/* checkpoint/parts: what the readers share: modules and their tensors, checks of sizes, grids of
 * scales, streams of bits. */
#include "checkpoint/checkpoint.h"
#include "numerics/fields.h"
#include "quant/versions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Messages ------------------------------------------------------------------------------------- */

bool stored_fail(IoError *err, const TensorView *view, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return io_fail(err, E_CHECKPOINT, "%.200s: %s", view->name, text);
}

bool module_fail(IoError *err, const StoredModule *m, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return io_fail(err, m->refused ? E_CHECKPOINT_KIND : E_CHECKPOINT, "%.200s: %s", m->name, text);
}

static const char *text_of(Arena *arena, const char *fmt, va_list args)
{
    Sb sb;
    sb_init(&sb, arena);
    sb_vprintf(&sb, fmt, args);
    return sb.text;
}

void stored_note(Checkpoint *c, StoredModule *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ARRAY_PUSH(c->arena, &m->notes, text_of(c->arena, fmt, args));
    va_end(args);
}

void stored_doubt(Checkpoint *c, StoredModule *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ARRAY_PUSH(c->arena, &m->doubts, text_of(c->arena, fmt, args));
    va_end(args);
}

const char *dims_text(Arena *arena, const TensorView *view)
{
    Sb sb;

    sb_init(&sb, arena);
    sb_putc(&sb, '[');
    for (int i = 0; i < view->rank; i++)
        sb_printf(&sb, "%s%lld", i ? ", " : "", (long long)view->dim[i]);
    sb_putc(&sb, ']');
    return sb.text;
}

/* Modules -------------------------------------------------------------------------------------- */

const char *config_name(const Checkpoint *c)
{
    const char *slash = strrchr(c->config.file, '/');

    return slash ? slash + 1 : c->config.file;
}

StoredModule *stored_add(Checkpoint *c, const char *name, const char *layout)
{
    StoredModule *m = ARENA_NEW(c->arena, StoredModule);

    *m = (StoredModule){.name = name,
                        .weight = arena_printf(c->arena, "%s.weight", name),
                        .reader = c->reader,
                        .layout = layout,
                        .said = "the tensors' names",
                        .scheme = {.scale_fmt = FMT_F32}};
    if (c->config.file)
        m->said = config_name(c);
    ARRAY_PUSH(c->arena, &c->modules, m);
    map_put(&c->by_weight, m->weight, m);
    map_put(&c->by_weight, m->name, m);
    return m;
}

const TensorView *stored_part(Checkpoint *c, StoredModule *m, StoredPart part, const char *suffix)
{
    const TensorView *view =
        weights_find(c->weights, arena_printf(c->arena, "%s%s", m->name, suffix));

    if (view) {
        m->part[part] = view;
        map_put(&c->owner, view->name, m);
    }
    return view;
}

const char *module_name(Arena *arena, const char *tensor, const char *suffix)
{
    size_t len = strlen(tensor), end = strlen(suffix);

    if (len <= end || strcmp(tensor + len - end, suffix))
        return NULL;
    return arena_strndup(arena, tensor, len - end);
}

bool modules_named(Checkpoint *c, const char *suffix, ModuleAdd *add, IoError *err)
{
    for (int i = 0; i < weights_num(c->weights); i++) {
        const TensorView *view = weights_at(c->weights, i);
        const char *name = module_name(c->arena, view->name, suffix);
        if (name && !add(c, view, name, err))
            return false;
    }
    return true;
}

bool tensors_end_with(const Checkpoint *c, const char *suffix)
{
    size_t end = strlen(suffix);

    for (int i = 0; i < weights_num(c->weights); i++) {
        const char *name = weights_at(c->weights, i)->name;
        size_t len = strlen(name);
        if (len > end && !strcmp(name + len - end, suffix))
            return true;
    }
    return false;
}

/* Checks --------------------------------------------------------------------------------------- */

static bool word_among(const char *word, const char *words)
{
    size_t len = strlen(word);

    for (const char *at = words; (at = strstr(at, word)); at += len)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

bool view_is(IoError *err, const TensorView *view, const char *dtypes, int rank, const int64_t *dim)
{
    char have[160] = "[", want[160] = "[";
    bool same = rank == view->rank;

    if (!word_among(view->dtype, dtypes))
        return stored_fail(err, view, "is stored as %s, but %s is needed", view->dtype, dtypes);
    for (int i = 0; i < rank && i < view->rank; i++)
        same = same && dim[i] == view->dim[i];
    if (same)
        return true;
    for (int i = 0; i < view->rank; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%lld", i ? ", " : "",
                 (long long)view->dim[i]);
    for (int i = 0; i < rank; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%lld", i ? ", " : "",
                 (long long)dim[i]);
    return stored_fail(err, view,
                       "is %s], but the other tensors of the module and its scheme need %s]", have,
                       want);
}

/* Scales --------------------------------------------------------------------------------------- */

bool scales_finite(const TensorView *view, const QTensor *q, IoError *err)
{
    uint64_t num = (uint64_t)q->row_blocks * (uint64_t)q->col_blocks;

    if (floats_finite(q->scale, num))
        return true;
    for (uint64_t i = 0; i < num; i++)
        if (!isfinite(q->scale[i]))
            return stored_fail(err, view, "scale %llu is not a finite number",
                               (unsigned long long)i);
    return true;
}

bool scales_read(const TensorView *view, bool by_columns, QTensor *q, IoError *err)
{
    uint64_t num = (uint64_t)q->row_blocks * (uint64_t)q->col_blocks;

    if (view->elements != num)
        return stored_fail(err, view, "holds %llu scales, but the scheme needs %llu",
                           (unsigned long long)view->elements, (unsigned long long)num);
    FormatId fmt =
        view->fmt == FMT_U8 ? FMT_E8M0 : view->fmt; /* how e8m0 is stored without a name */
    if (!by_columns || q->col_blocks == 1 || q->row_blocks == 1) {
        format_to_f32(fmt, view->data, q->scale, num);
        return scales_finite(view, q, err);
    }
    float *turned = calloc((size_t)num, sizeof *turned);
    if (!turned)
        return io_fail(err, E_MEMORY, "%s: memory is exhausted", view->name);
    format_to_f32(fmt, view->data, turned, num);
    for (int64_t r = 0; r < q->row_blocks; r++)
        for (int64_t c = 0; c < q->col_blocks; c++)
            q->scale[r * q->col_blocks + c] = turned[c * q->row_blocks + r];
    free(turned);
    return scales_finite(view, q, err);
}

bool codes_read(const StoredModule *m, QTensor *q, IoError *err)
{
    memcpy(q->codes, m->part[PART_CODES]->data, q->codes_bytes);
    return scales_read(m->part[PART_SCALE], false, q, err);
}

/* Codes ---------------------------------------------------------------------------------------- */

/* Sixty-four words of thirty-two rows at a time, through a copy: rows that lie a power of two apart
 * would throw each other out of the cache. */
#define TURN  32
#define WIDE  64
#define AHEAD 16 /* words between what is fetched and what is turned */

/* Four words, in what every processor of ours has as one register. */
typedef uint32_t Four __attribute__((vector_size(16)));

static Four four_at(const uint32_t *word)
{
    Four ret;

    memcpy(&ret, word, sizeof ret);
    return ret;
}

/* Word i of row j becomes word j of row i. */
static void turn_4x4(const uint32_t *src, int64_t stride, uint32_t flip, uint32_t *dst, int pitch)
{
    Four a = four_at(src), b = four_at(src + stride), c = four_at(src + 2 * stride);
    Four d = four_at(src + 3 * stride), row[4];
    Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    Four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);

    row[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    row[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    row[2] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    row[3] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) {
        row[i] ^= flip;
        memcpy(dst + i * pitch, &row[i], sizeof row[i]);
    }
}

/* Four words of the rows; with fewer, and for the rows that are left over, one by one. */
static void turn_four(const uint32_t *src, int64_t stride, int words, int rows, uint32_t flip,
                      uint32_t *dst, int pitch)
{
    int whole = words < 4 ? 0 : rows & ~3;

    for (int r = 0; r < whole; r += 4)
        turn_4x4(src + r, stride, flip, dst + r * pitch, pitch);
    for (int r = whole; r < rows; r++)
        for (int w = 0; w < words && w < 4; w++)
            dst[r * pitch + w] = src[w * stride + r] ^ flip;
}

static void ask_next(const uint32_t *src, int64_t stride, int rows, int64_t left)
{
    for (int i = 0; i < 4 && AHEAD + i < left; i++)
        lines_ask(src + (AHEAD + i) * stride, (uint64_t)rows * 4);
}

static void turn_tile(const uint32_t *src, int64_t stride, int words, int rows, int64_t left,
                      uint32_t flip, uint8_t *dst, uint64_t pitch)
{
    uint32_t tile[TURN][WIDE];
    int asked = 0;

    for (int w = 0; w < words; w += 4) {
        ask_next(src + w * stride, stride, rows, left - w);
        for (int end = rows * (w + 4) / words; asked < end && asked < rows; asked++)
            lines_ask_written(dst + (uint64_t)asked * pitch, (uint64_t)words * 4);
        turn_four(src + w * stride, stride, words - w, rows, flip, &tile[0][w], WIDE);
    }
    for (int r = 0; r < rows; r++)
        memcpy(dst + (uint64_t)r * pitch, tile[r], (size_t)words * 4);
}

void words_turn_near(const uint32_t *src, int64_t stride, int words, int rows, int64_t left,
                     uint32_t *dst, int pitch)
{
    for (int w = 0; w < words; w += 4) {
        ask_next(src + w * stride, stride, rows, left - w);
        turn_four(src + w * stride, stride, words - w, rows, 0, dst + w, pitch);
    }
}

void words_turn(const uint32_t *src, int64_t stride, int64_t words, int64_t rows, uint32_t flip,
                uint8_t *dst, uint64_t pitch)
{
    for (int64_t r = 0; r < rows; r += TURN) {
        int num_rows = rows - r < TURN ? (int)(rows - r) : TURN;
        for (int64_t w = 0; w < words; w += WIDE) {
            int num_words = words - w < WIDE ? (int)(words - w) : WIDE;
            turn_tile(src + w * stride + r, stride, num_words, num_rows, words - w, flip,
                      dst + (uint64_t)r * pitch + 4 * (uint64_t)w, pitch);
        }
    }
}

void qtensor_put(QTensor *q, int64_t row, int64_t col, uint32_t code)
{
    uint8_t *codes = q->codes + (uint64_t)row * q->row_bytes;

    if (format_held_bits(q->scheme.fmt) == 4)
        codes[col / 2] = (uint8_t)(codes[col / 2] | (code & 15u) << (col % 2 * 4));
    else
        codes[col] = (uint8_t)code;
}

NUM_FN void stream_row_body(const uint32_t *word, int bits, uint32_t less, uint8_t *dst,
                            int64_t num)
{
    int lane = bits <= 4 ? 4 : 8;
    uint32_t sign = 1u << (lane - 1);
    FieldsMap map = {.add = less ? sign - less : 0, .flip = less ? sign : 0};
    int64_t whole = num / 8 * 8;

    fields_open(bits, &map, (const uint8_t *)word, (uint64_t)whole, dst);
    for (int64_t k = whole; k < num; k++) {
        uint32_t code = stream_code(word, 1, (uint64_t)(k * bits), bits) - less;
        if (lane == 8)
            dst[k] = (uint8_t)code;
        else
            dst[k / 2] = (uint8_t)((k % 2 ? dst[k / 2] : 0) | (code & 15u) << (k % 2 * 4));
    }
}
LOOP_VERSIONS(stream_row,
              (const uint32_t *word, int bits, uint32_t less, uint8_t *dst, int64_t num),
              (word, bits, less, dst, num))

/* Pairs of codes are what a vector's elements hold, low bits first: what lies above is masked away,
 * and what is beside it when elements become bytes. */
typedef uint16_t Twos __attribute__((vector_size(64)));
typedef uint8_t TwosBytes __attribute__((vector_size(32)));
typedef uint64_t Eights __attribute__((vector_size(64)));
typedef uint8_t EightsBytes __attribute__((vector_size(8)));

NUM_FN void nibbles_of_bytes_body(const uint8_t *byte, int shift, uint32_t mask, uint8_t *dst,
                                  int64_t num)
{
    int64_t k = 0;

    for (; k + 64 <= num; k += 64) {
        Twos two;
        memcpy(&two, byte + k, sizeof two);
        two = two >> shift & (uint16_t)(mask * 0x0101);
        TwosBytes out = __builtin_convertvector(two | two >> 4, TwosBytes);
        memcpy(dst + k / 2, &out, sizeof out);
    }
    for (; k < num; k += 2) {
        uint32_t high = k + 1 < num ? byte[k + 1] >> shift & mask : 0;
        dst[k / 2] = (uint8_t)((byte[k] >> shift & mask) | high << 4);
    }
}
LOOP_VERSIONS(nibbles_of_bytes,
              (const uint8_t *byte, int shift, uint32_t mask, uint8_t *dst, int64_t num),
              (byte, shift, mask, dst, num))

NUM_FN void nibbles_of_words_body(const uint32_t *word, int shift, uint8_t *dst, int64_t num)
{
    int64_t k = 0;

    for (; k + 16 <= num; k += 16) {
        Eights two;
        memcpy(&two, word + k, sizeof two);
        two = two >> shift & UINT64_C(0x0000000700000007);
        EightsBytes out = __builtin_convertvector(two | two >> 28, EightsBytes);
        memcpy(dst + k / 2, &out, sizeof out);
    }
    for (; k < num; k += 2) {
        uint32_t high = k + 1 < num ? word[k + 1] >> shift & 7 : 0;
        dst[k / 2] = (uint8_t)((word[k] >> shift & 7) | high << 4);
    }
}
LOOP_VERSIONS(nibbles_of_words, (const uint32_t *word, int shift, uint8_t *dst, int64_t num),
              (word, shift, dst, num))

/* Codebooks ------------------------------------------------------------------------------------ */

bool table_settle(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *view = m->part[PART_TABLE];
    const int64_t codes = INT64_C(1) << format_info[m->scheme.fmt].bits;
    const int64_t grid[3] = {scheme_row_blocks(&m->scheme, m->rows),
                             scheme_col_blocks(&m->scheme, m->cols), codes};
    static const TableKind kind[] = {TABLE_NONE, TABLE_TENSOR, TABLE_ROW, TABLE_BLOCK};
    static const char *const whose[] = {"", "", ", one for each row", ", one for each scale"};
    int rank = view->rank > 0 && view->rank < 4 ? view->rank : 1;
    const int64_t matrix[2] = {m->rows, codes};

    if (!view_is(err, view, "F32 F16 BF16", rank, rank == 1 ? &codes : rank == 2 ? matrix : grid))
        return false;
    m->scheme.zero = ZERO_NONE;
    m->scheme.table = kind[rank];
    stored_note(c, m, "its codes are places in a table of %lld values, \"%s\"%s", (long long)codes,
                view->name, whose[rank]);
    return true;
}

bool table_read(const StoredModule *m, QTensor *q, IoError *err)
{
    const TensorView *view = m->part[PART_TABLE];

    if (!m->scheme.table)
        return true;
    format_to_f32(view->fmt, view->data, q->table, view->elements);
    return floats_finite(q->table, view->elements) ||
           stored_fail(err, view, "holds a value that is not a finite number");
}

/* Factors of the input ------------------------------------------------------------------------- */

bool input_factors_settle(Checkpoint *c, StoredModule *m, IoError *err)
{
    const TensorView *view = m->part[PART_INPUT_FACTORS];

    if (!view)
        return true;
    if (!view_is_float(view) || view->elements != (uint64_t)m->cols)
        return stored_fail(err, view, "is %s of %s, not a float for each of %lld columns",
                           dims_text(c->arena, view), view->dtype, (long long)m->cols);
    stored_note(c, m, "its input is multiplied by \"%s\" first", view->name);
    return true;
}

/* Order of columns ----------------------------------------------------------------------------- */

static bool order_is_trivial(const int32_t *group, int64_t cols, int64_t size)
{
    for (int64_t k = 0; k < cols; k++)
        if (group[k] != k / size)
            return false;
    return true;
}

bool order_settle(Checkpoint *c, StoredModule *m, int64_t groups, IoError *err)
{
    const TensorView *view = m->part[PART_ORDER];
    int64_t size = m->scheme.block[1] ? m->scheme.block[1] : m->cols, at = 0;
    const int32_t *group = view->data;

    if (!view_is(err, view, "I32", 1, &m->cols))
        return false;
    for (int64_t k = 0; k < m->cols; k++)
        if (group[k] < 0 || group[k] >= groups)
            return stored_fail(err, view, "column %lld belongs to group %d, but there are %lld",
                               (long long)k, group[k], (long long)groups);
    if (order_is_trivial(group, m->cols, size))
        return true;
    int32_t *order = ARENA_NEW_ARRAY(c->arena, int32_t, (size_t)m->cols);
    int64_t *next = ARENA_NEW_ARRAY(c->arena, int64_t, (size_t)groups + 1);
    for (int64_t k = 0; k < m->cols; k++)
        next[group[k] + 1]++;
    for (int64_t g = 0; g < groups; g++) {
        int64_t want = m->cols - at < size ? m->cols - at : size;
        if (next[g + 1] != want)
            return stored_fail(err, view, "group %lld has %lld columns, but a group is %lld",
                               (long long)g, (long long)next[g + 1], (long long)want);
        at += want;
        next[g + 1] += next[g];
    }
    for (int64_t k = 0; k < m->cols; k++)
        order[next[group[k]]++] = (int32_t)k;
    m->order = order;
    stored_note(c, m, "columns are grouped by activation order");
    return true;
}
