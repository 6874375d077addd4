/* inspect of files of tensors: names, types, shapes, and on request what their values are like. */
#include "report/print.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHOWN = 60 /* bytes of a value of metadata */, PART = 4096 /* values at a time */ };

/* What --stats says of a tensor. mean and deviation leave out NaN and infinities. */
typedef struct Stats {
    uint64_t num, nans, infinities, zeros;
    double min, max, sum, squares; /* the two sums of value - first */
    double first;
} Stats;

/* Reading values ------------------------------------------------------------------------------ */

static uint32_t read_le(const uint8_t *byte, int bytes)
{
    uint32_t ret = 0;
    for (int i = bytes; i-- > 0;)
        ret = ret << 8 | byte[i];
    return ret;
}

/* Values of formats of ours, num from data on. */
static bool read_format(FormatId fmt, const uint8_t *data, uint64_t num, double *ret)
{
    int bits = format_info[fmt].bits;
    for (uint64_t i = 0; i < num; i++)
        switch (fmt) {
        case FMT_F64: memcpy(&ret[i], data + 8 * i, 8); break;
        case FMT_F32: ret[i] = (double)num_float(read_le(data + 4 * i, 4)); break;
        case FMT_I32: ret[i] = (double)(int32_t)read_le(data + 4 * i, 4); break;
        default:
            if (bits > 16)
                return false;
            ret[i] = (double)num_decode(fmt, bits == 16  ? read_le(data + 2 * i, 2)
                                             : bits == 8 ? data[i]
                                                         : data[i / 2] >> (i % 2 * 4) & 15u);
        }
    return true;
}

/* Integers that are no format of ours. */
static bool read_integers(const TensorView *view, const uint8_t *data, uint64_t num, double *ret)
{
    int64_t value[PART];
    TensorView part = *view;
    part.data = data;
    part.elements = num;
    if (!labels_read(&part, "", value, NULL))
        return false;
    for (uint64_t i = 0; i < num; i++)
        ret[i] = (double)value[i];
    return true;
}

/* Values at..at+num of a view, or false when its type is none that we can read. num <= PART, at a
 * multiple of PART, which holds whole blocks of every type. */
static bool read_values(const TensorView *view, uint64_t at, uint64_t num, double *ret)
{
    const uint8_t *data = view->data;
    const GgmlInfo *info = ggml_by_name(view->dtype);
    float block[GGML_MOST];
    if (info && info->group) {
        for (uint64_t i = 0; i < num; i++) {
            uint64_t inside = i % (uint64_t)info->elements;
            if (inside == 0)
                ggml_decode(info,
                            data + (at + i) / (uint64_t)info->elements * (uint64_t)info->bytes,
                            block);
            ret[i] = (double)block[inside];
        }
        return true;
    }
    uint64_t bits = view->elements ? view->bytes * 8 / view->elements : 8;
    data += at * bits / 8;
    return view->fmt != FMT_NONE ? read_format(view->fmt, data, num, ret)
                                 : read_integers(view, data, num, ret);
}

static void add_value(Stats *s, double x)
{
    s->num++;
    s->zeros += x == 0;
    if (isnan(x)) {
        s->nans++;
        return;
    }
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
    if (isinf(x)) {
        s->infinities++;
        return;
    }
    if (s->num == s->nans + s->infinities + 1)
        s->first = x;
    s->sum += x - s->first;
    s->squares += (x - s->first) * (x - s->first);
}

static bool gather(const TensorView *view, Stats *ret)
{
    double value[PART];
    *ret = (Stats){.min = INFINITY, .max = -INFINITY};
    for (uint64_t at = 0; at < view->elements; at += PART) {
        uint64_t num = view->elements - at < PART ? view->elements - at : PART;
        if (!read_values(view, at, num, value))
            return false;
        for (uint64_t i = 0; i < num; i++)
            add_value(ret, value[i]);
    }
    return view->elements > 0 || read_values(view, 0, 0, value);
}

static double mean(const Stats *s)
{
    uint64_t num = s->num - s->nans - s->infinities;
    return num ? s->first + s->sum / (double)num : NAN;
}

static double deviation(const Stats *s)
{
    uint64_t num = s->num - s->nans - s->infinities;
    if (!num)
        return NAN;
    double square = s->squares / (double)num - s->sum / (double)num * (s->sum / (double)num);
    return square > 0 ? sqrt(square) : 0;
}

/* Printing ------------------------------------------------------------------------------------ */

static void put_shape(Sb *sb, const TensorView *view)
{
    sb_putc(sb, '[');
    for (int i = 0; i < view->rank; i++)
        sb_printf(sb, "%s%lld", i ? ", " : "", (long long)view->dim[i]);
    sb_putc(sb, ']');
}

static void put_scalar(Sb *sb, const GgufPair *pair)
{
    int64_t whole;
    double real;
    if (pair->type == GGUF_BOOL)
        sb_put(sb, pair->data[0] ? "true" : "false");
    else if (pair->type == GGUF_U64 && gguf_integer(pair, &whole))
        sb_printf(sb, "%llu", (unsigned long long)whole);
    else if (gguf_integer(pair, &whole))
        sb_printf(sb, "%lld", (long long)whole);
    else if (gguf_real(pair, &real))
        sb_put_f64(sb, real);
}

static void put_metadata(Sb *sb, const TensorFile *file)
{
    GgufPair pair = {0};
    while (gguf_next_pair(file, &pair)) {
        sb_put(sb, "  ");
        sb_put_safe(sb, pair.key, (size_t)pair.key_len);
        sb_put(sb, " = ");
        if (pair.type == GGUF_ARRAY) {
            sb_printf(sb, "%llu of %s", (unsigned long long)pair.num, gguf_type_name(pair.item));
        } else if (pair.type == GGUF_STRING) {
            bool cut = pair.num > MAX_SHOWN;
            sb_putc(sb, '"');
            sb_put_safe(sb, (const char *)pair.data, cut ? MAX_SHOWN : (size_t)pair.num);
            sb_put(sb, cut ? "..\"" : "\"");
        } else {
            put_scalar(sb, &pair);
        }
        sb_putc(sb, '\n');
    }
}

/* Columns of statistics; each is one of Stats' or made of it. */
enum { STAT_MIN, STAT_MAX, STAT_MEAN, STAT_STD, STAT_NAN, STAT_INF, STAT_ZERO, NUM_STATS };
static const char *const stat_name[NUM_STATS] = {"min", "max", "mean", "std",
                                                 "nan", "inf", "zeros"};

static void collect(const Stats *s, double ret[NUM_STATS])
{
    bool has_any = s->num > s->nans;
    ret[STAT_MIN] = has_any ? s->min : NAN;
    ret[STAT_MAX] = has_any ? s->max : NAN;
    ret[STAT_MEAN] = mean(s);
    ret[STAT_STD] = deviation(s);
    ret[STAT_NAN] = (double)s->nans;
    ret[STAT_INF] = (double)s->infinities;
    ret[STAT_ZERO] = (double)s->zeros;
}

static void put_stats(Sb *sb, const TensorView *view)
{
    Stats s;
    double stat[NUM_STATS];
    bool can_read = gather(view, &s);
    collect(&s, stat);
    for (int i = 0; i < NUM_STATS; i++)
        if (!can_read || isnan(stat[i]))
            sb_printf(sb, " %12s", "-");
        else if (i >= STAT_NAN)
            sb_printf(sb, " %12.0f", stat[i]);
        else
            sb_printf(sb, " %12.5g", stat[i]);
}

static const char *safe_name(Arena *arena, const TensorView *view, int *ret_columns)
{
    Sb sb;
    sb_init(&sb, arena);
    *ret_columns = view->name ? sb_put_safe(&sb, view->name, strlen(view->name)) : 0;
    return sb.text;
}

static void put_tensors(Sb *sb, Arena *arena, const TensorFile *file, bool has_stats)
{
    int width = 4, columns;
    for (int i = 0; i < tensorfile_num(file); i++) {
        safe_name(arena, tensorfile_at(file, i), &columns);
        width = columns > width && columns <= MAX_SHOWN ? columns : width;
    }
    sb_printf(sb, "%-*s  %-8s %14s  %-*s", width, "name", "dtype", "bytes", has_stats ? 20 : 0,
              "shape");
    for (int i = 0; has_stats && i < NUM_STATS; i++)
        sb_printf(sb, " %12s", stat_name[i]);
    sb_putc(sb, '\n');
    for (int i = 0; i < tensorfile_num(file); i++) {
        const TensorView *view = tensorfile_at(file, i);
        Sb shape;
        sb_init(&shape, arena);
        put_shape(&shape, view);
        sb_put(sb, safe_name(arena, view, &columns));
        sb_printf(sb, "%*s  %-8s %14llu  ", columns < width ? width - columns : 0, "", view->dtype,
                  (unsigned long long)view->bytes);
        if (has_stats) {
            sb_printf(sb, "%-20s", shape.text);
            put_stats(sb, view);
        } else {
            sb_put(sb, shape.text);
        }
        sb_putc(sb, '\n');
    }
}

static void put_json_tensor(Sb *sb, const TensorView *view, bool has_stats)
{
    Stats s;
    double stat[NUM_STATS];
    sb_putc(sb, '{');
    if (view->name)
        json_text(sb, "name", view->name);
    json_text(sb, "dtype", view->dtype);
    json_key(sb, "shape");
    put_shape(sb, view);
    json_count(sb, "bytes", view->bytes);
    bool can_read = has_stats && gather(view, &s);
    if (can_read)
        collect(&s, stat);
    for (int i = 0; can_read && i < NUM_STATS; i++)
        json_number(sb, stat_name[i], stat[i]);
    sb_putc(sb, '}');
}

static const char *const kind_name[] = {
    [TENSORS_SAFETENSORS] = "safetensors", [TENSORS_NPY] = "npy", [TENSORS_GGUF] = "GGUF"};

static void put_json(Sb *sb, const TensorFile *file, bool has_stats)
{
    sb_putc(sb, '{');
    json_text(sb, "kind", kind_name[tensorfile_kind(file)]);
    json_key(sb, "tensors");
    sb_putc(sb, '[');
    for (int i = 0; i < tensorfile_num(file); i++) {
        sb_put(sb, i ? ",\n " : "\n ");
        put_json_tensor(sb, tensorfile_at(file, i), has_stats);
    }
    sb_put(sb, "]}\n");
}

void tensors_summary(Sb *sb, const TensorFile *file, bool has_stats, bool as_json)
{
    uint64_t bytes = 0;
    if (as_json) {
        put_json(sb, file, has_stats);
        return;
    }
    for (int i = 0; i < tensorfile_num(file); i++)
        bytes += tensorfile_at(file, i)->bytes;
    sb_printf(sb, "%s, tensors %d, %llu bytes\n", kind_name[tensorfile_kind(file)],
              tensorfile_num(file), (unsigned long long)bytes);
    put_metadata(sb, file);
    put_tensors(sb, sb->arena, file, has_stats);
}
