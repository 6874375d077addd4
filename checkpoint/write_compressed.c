/* checkpoint/write_compressed: compressed-tensors as compressed.c reads it, each module under the
 * format that its scheme needs. Packed codes are a dense stream of bits.
 *
 * The global scale of nvfp4 divides there and multiplies here. Where the reciprocal would round,
 * the scale moves to the nearest one whose reciprocal gives the same for every scale of a block,
 * some units of its last place away: then all who read the file compute the same weights. */
#include "checkpoint/groups.h"
#include "checkpoint/write.h"

#include <math.h>
#include <string.h>

static bool is_shape(const Scheme *s, int64_t rows, int64_t cols)
{
    return s->block[0] == rows && s->block[1] == cols;
}

/* Scales that the family has as powers of two: those of mxfp4 and mxfp8. */
static bool is_mx(const Scheme *s)
{
    return (s->fmt == FMT_E2M1 || s->fmt == FMT_E4M3) && s->scale_fmt == FMT_E8M0 &&
           is_shape(s, 1, 32);
}

/* The family's name of the layout; NULL: it has none. */
static const char *format_of(const WriteModule *m)
{
    const Scheme *s = &m->scheme;
    const FormatInfo *info = &format_info[s->fmt];
    bool by_block = s->block[0] > 1 || (s->block[0] == 0 && s->block[1] != 0);

    if (s->fmt == FMT_E2M1 && s->outer && is_shape(s, 1, 16))
        return "nvfp4-pack-quantized";
    if (is_mx(s))
        return s->fmt == FMT_E2M1 ? "mxfp4-pack-quantized" : "mxfp8-quantized";
    if (s->fmt == FMT_E4M3 && !s->outer && (s->block[0] > 0 || s->block[1] == 0))
        return "float-quantized";
    if (info->family != FAMILY_INT || s->fmt == FMT_BINARY || by_block)
        return NULL;
    bool plain = info->bits == 8 && (m->act.is_quantised || is_shape(s, 0, 0));
    return plain ? "int-quantized" : "pack-quantized";
}

static const char *scheme_words(Arena *arena, const Scheme *scheme, bool is_act)
{
    Sb sb;

    sb_init(&sb, arena);
    scheme_print(&sb, scheme, is_act);
    return sb.text;
}

static const char *act_refusal(Arena *arena, const StoredAct *act, const char **ret_help)
{
    const Scheme *s = &act->scheme;
    bool is_int = format_info[s->fmt].family == FAMILY_INT && format_info[s->fmt].bits >= 4;
    bool known = is_int || s->fmt == FMT_E4M3 || s->fmt == FMT_E2M1;

    if (!act->is_quantised || (act->is_static && s->outer && is_shape(s, 1, 16)))
        return NULL;
    if (s->outer) {
        *ret_help = "say `act nvfp4 static`, or leave it plain, which `act f16` does";
        return "compressed-tensors takes the activation's second scale from the checkpoint, and "
               "here it follows from the data";
    }
    *ret_help = "per tensor, per token and per token group can be said";
    if (!known || s->block[0] > 1 || (act->is_static && !is_shape(s, 0, 0)))
        return arena_printf(arena, "compressed-tensors has no word for the activation %s",
                            scheme_words(arena, s, true));
    *ret_help = "scales of e8m0 are those of `mxfp8` and `mxfp4`; take f32, f16 or bf16";
    if (!act->is_static && s->scale_fmt == FMT_E8M0 && !is_mx(s))
        return arena_printf(arena,
                            "compressed-tensors has no word for the scales of the activation %s",
                            scheme_words(arena, s, true));
    *ret_help = NULL;
    return NULL;
}

static const char *scale_dtype(const WriteModule *m)
{
    switch (m->scheme.scale_fmt) {
    case FMT_F16: return "F16";
    case FMT_BF16: return "BF16";
    case FMT_E4M3: return m->scheme.outer ? "F8_E4M3" : "F32";
    case FMT_E8M0: return is_mx(&m->scheme) ? "U8" : "F32";
    default: return "F32";
    }
}

static void add_scales(WriteModule *m, const char *suffix, const char *dtype)
{
    const int64_t *block = m->scheme.block;

    if (is_shape(&m->scheme, 0, 0))
        write_part(m, suffix, dtype, 1, 1, 0);
    else
        write_part(m, suffix, dtype, 2, blocks_of(m->rows, block[0]),
                   block[1] ? blocks_of(m->cols, block[1]) : 1);
}

static void add_packed(WriteModule *m)
{
    int64_t bits = format_info[m->scheme.fmt].bits;

    write_part(m, ".weight_packed", "I32", 2, m->rows, blocks_of(m->cols * bits, 32));
    write_part(m, ".weight_shape", "I64", 1, 2, 0);
    add_scales(m, ".weight_scale", scale_dtype(m));
    if (m->scheme.zero == ZERO_NONE)
        return;
    if (is_shape(&m->scheme, 0, 0)) /* only those of channels and groups are packed */
        write_part(m, ".weight_zero_point", "I8", 1, 1, 0);
    else
        write_part(m, ".weight_zero_point", "I32", 2, blocks_of(m->rows * bits, 32),
                   m->scheme.block[1] ? blocks_of(m->cols, m->scheme.block[1]) : 1);
}

static void add_parts(WriteModule *m)
{
    bool is_int = format_info[m->scheme.fmt].family == FAMILY_INT;

    m->num_parts = 0;
    if (!strcmp(m->format, "pack-quantized")) {
        add_packed(m);
    } else if (format_info[m->scheme.fmt].bits == 4) {
        write_part(m, ".weight_packed", "U8", 2, m->rows, m->cols / 2);
        add_scales(m, ".weight_scale", scale_dtype(m));
        if (m->scheme.outer)
            write_part(m, ".weight_global_scale", "F32", 1, 1, 0);
    } else {
        write_part(m, ".weight", is_int ? "I8" : "F8_E4M3", 2, m->rows, m->cols);
        add_scales(m, ".weight_scale", scale_dtype(m));
        if (m->scheme.zero != ZERO_NONE)
            add_scales(m, ".weight_zero_point", "I8");
    }
    if (m->act.is_static)
        write_part(m, m->act.scheme.outer ? ".input_global_scale" : ".input_scale", "F32", 1, 1, 0);
    if (m->act.is_static && m->act.scheme.zero != ZERO_NONE)
        write_part(m, ".input_zero_point", "I8", 1, 1, 0);
}

static const char *settle(Arena *arena, WriteModule *m, const char **ret_help)
{
    int64_t group = m->scheme.block[1];

    *ret_help = NULL;
    if (m->scheme.block[0] == 1 && group >= m->cols)
        m->scheme.block[1] = group = 0;
    if (m->act.scheme.block[1] > m->cols && m->act.scheme.scale_fmt != FMT_E8M0)
        m->act.scheme.block[1] = 0;
    m->format = format_of(m);
    if (!m->format)
        return arena_printf(arena, "compressed-tensors has no layout for %s",
                            scheme_words(arena, &m->scheme, false));
    if (group && m->scheme.block[0] == 1 && m->cols % group) {
        *ret_help = "take a size that does, or `per channel`";
        return arena_printf(arena,
                            "compressed-tensors needs groups that fill a row, and %lld does "
                            "not divide %lld columns",
                            (long long)group, (long long)m->cols);
    }
    if (m->order) {
        *ret_help = "--format=gptq does";
        return "compressed-tensors no longer holds groups that follow the order of activations";
    }
    add_parts(m);
    return act_refusal(arena, &m->act, ret_help);
}

/* Content -------------------------------------------------------------------------------------- */

static void fill_packed(const WriteModule *m, const QTensor *q, uint32_t *word)
{
    int bits = format_info[m->scheme.fmt].bits;
    int64_t words = m->part[0].dim[1];

    for (int64_t n = 0; n < m->rows; n++)
        for (int64_t at = 0; at < m->cols; at++)
            stream_put(word + n * words, 1, (uint64_t)(at * bits), bits, written_code(m, q, n, at));
}

static void fill_plain(const WriteModule *m, const QTensor *q, uint8_t *byte)
{
    uint8_t flip = m->scheme.fmt == FMT_U8 ? 0x80 : 0;

    for (uint64_t i = 0; i < q->codes_bytes; i++)
        byte[i] = q->codes[i] ^ flip;
}

/* Zero points, packed down their columns or a byte each. */
static void fill_zeros(const WriteModule *m, const WritePart *part, const QTensor *q, void *data)
{
    int bits = format_info[m->scheme.fmt].bits;
    bool packed = !strcmp(part->dtype, "I32");

    for (int64_t r = 0; r < q->row_blocks; r++) {
        for (int64_t g = 0; g < q->col_blocks; g++) {
            int64_t row = m->scheme.block[0] ? r * m->scheme.block[0] : 0;
            uint32_t zero = written_zero(m, q, row, g);
            if (packed)
                stream_put((uint32_t *)data + g, q->col_blocks, (uint64_t)(r * bits), bits, zero);
            else
                ((int8_t *)data)[r * q->col_blocks + g] = (int8_t)(zero - (1u << (bits - 1)));
        }
    }
}

static void fill_scales(const WritePart *part, const QTensor *q, void *data)
{
    static const struct {
        const char *dtype;
        FormatId fmt;
    } formats[] = {{"F32", FMT_F32},
                   {"F16", FMT_F16},
                   {"BF16", FMT_BF16},
                   {"F8_E4M3", FMT_E4M3},
                   {"U8", FMT_E8M0}};

    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (!strcmp(formats[i].dtype, part->dtype))
            format_from_f32(formats[i].fmt, q->scale, data,
                            (uint64_t)(q->row_blocks * q->col_blocks));
}

/* The divisor nearest to 1 / outer that does. */
static float divisor_near(float outer)
{
    float up = 1 / outer, down = up;

    if (!(outer > 0) || !isfinite(up)) /* of a weight that is all zeros */
        return 1;
    while (!reciprocal_is_exact(up) && !reciprocal_is_exact(down)) {
        up = nextafterf(up, INFINITY);
        down = nextafterf(down, 0);
    }
    return reciprocal_is_exact(up) ? up : down;
}

static void fill_part(const WriteModule *m, const WritePart *part, QTensor *q, void *data)
{
    if (!strcmp(part->suffix, ".weight_scale")) {
        fill_scales(part, q, data);
    } else if (!strcmp(part->suffix, ".weight_zero_point")) {
        fill_zeros(m, part, q, data);
    } else if (!strcmp(part->suffix, ".weight_shape")) {
        ((int64_t *)data)[0] = m->rows;
        ((int64_t *)data)[1] = m->cols;
    } else if (!strcmp(part->suffix, ".weight_global_scale")) {
        *(float *)data = divisor_near(q->outer);
        q->outer = 1 / *(float *)data;
    } else if (!strcmp(part->suffix, ".input_scale")) {
        *(float *)data = m->act.scale;
    } else if (!strcmp(part->suffix, ".input_global_scale")) {
        *(float *)data = 1 / m->act.scale;
    } else if (!strcmp(part->suffix, ".input_zero_point")) {
        const FormatInfo *info = &format_info[m->act.scheme.fmt];
        *(int8_t *)data = (int8_t)(m->act.zero - (info->is_signed ? 0 : 1 << (info->bits - 1)));
    } else if (!strcmp(part->dtype, "I32")) {
        fill_packed(m, q, data);
    } else {
        fill_plain(m, q, data);
    }
}

static void fill(const WriteModule *m, QTensor *q, void *const *data)
{
    for (int i = 0; i < m->num_parts; i++)
        fill_part(m, &m->part[i], q, data[i]);
}

/* Configuration -------------------------------------------------------------------------------- */

static const char *strategy_of(const Scheme *s, bool is_act)
{
    if (is_shape(s, 0, 0))
        return "tensor";
    if (s->outer)
        return "tensor_group";
    if (s->block[0] > 1)
        return "block";
    return s->block[1] ? "group" : is_act ? "token" : "channel";
}

/* To what scales are rounded that follow from the data, and that they are powers of two; NULL:
 * nothing is said, which means f32, but of floats of 4 bits in groups of 32, which are mxfp4. */
static const char *dtype_said(const Scheme *s, bool is_act, bool is_static)
{
    bool like_mx = s->fmt == FMT_E2M1 && is_shape(s, 1, 32);

    if (is_mx(s))
        return scale_dtype_word(FMT_E8M0);
    if (!is_act || is_static || s->outer || (s->scale_fmt == FMT_F32 && !like_mx))
        return NULL;
    return scale_dtype_word(s->scale_fmt);
}

static void put_args(Sb *sb, const Scheme *s, bool is_act, const char *dynamic)
{
    const char *dtype = dtype_said(s, is_act, !strcmp(dynamic, "false"));
    const FormatInfo *info = &format_info[s->fmt];

    sb_printf(sb, "{\"num_bits\": %d, \"type\": \"%s\", \"symmetric\": %s, \"strategy\": \"%s\"",
              info->bits, info->family == FAMILY_INT ? "int" : "float",
              s->zero == ZERO_NONE ? "true" : "false", strategy_of(s, is_act));
    if (s->block[0] > 1)
        sb_printf(sb, ", \"block_structure\": [%lld, %lld]", (long long)s->block[0],
                  (long long)s->block[1]);
    else if (s->block[1])
        sb_printf(sb, ", \"group_size\": %lld", (long long)s->block[1]);
    if (dtype)
        sb_printf(sb, ", \"scale_dtype\": \"torch.%s\"", dtype);
    sb_printf(sb, ", \"dynamic\": %s}", dynamic);
}

/* All of a group but its targets: modules with the same text are one group. */
static const char *group_text(Arena *arena, const WriteModule *m, bool mixed)
{
    Sb sb;

    sb_init(&sb, arena);
    if (mixed)
        sb_printf(&sb, "\"format\": \"%s\", ", m->format);
    sb_put(&sb, "\"weights\": ");
    put_args(&sb, &m->scheme, false, "false");
    sb_put(&sb, ", \"input_activations\": ");
    if (m->act.is_quantised)
        put_args(&sb, &m->act.scheme, true,
                 m->act.scheme.outer ? "\"local\""
                 : m->act.is_static  ? "false"
                                     : "true");
    else
        sb_put(&sb, "null");
    sb_put(&sb, ", \"output_activations\": null");
    return sb.text;
}

static void put_names(Sb *sb, const char *name, bool *first)
{
    sb_put(sb, *first ? "" : ", ");
    sb_put_json_string(sb, name, strlen(name));
    *first = false;
}

static void put_groups(Sb *sb, int num, const WriteModule *const *module, bool mixed)
{
    Arena *arena = arena_new();
    const char **text = ARENA_NEW_ARRAY(arena, const char *, (size_t)num + 1);
    Map seen;
    int groups = 0;

    map_init(&seen, arena);
    for (int i = 0; i < num; i++)
        text[i] = group_text(arena, module[i], mixed);
    for (int i = 0; i < num; i++) {
        bool first = true;
        if (map_has(&seen, text[i]))
            continue;
        map_put(&seen, text[i], text);
        sb_printf(sb, "%s\"group_%d\": {\"targets\": [", groups ? ", " : "", groups);
        for (int k = i; k < num; k++)
            if (!strcmp(text[k], text[i]))
                put_names(sb, module[k]->name, &first);
        sb_printf(sb, "], %s}", text[i]);
        groups++;
    }
    arena_destroy(arena);
}

static void config(Sb *sb, int num, const WriteModule *const *module, int num_plain,
                   const char *const *plain)
{
    bool mixed = false, first = true;

    for (int i = 1; i < num; i++)
        mixed |= strcmp(module[i]->format, module[0]->format) != 0;
    sb_printf(sb, "{\"quant_method\": \"compressed-tensors\", \"format\": \"%s\",",
              mixed ? "mixed-precision" : module[0]->format);
    sb_put(sb, " \"quantization_status\": \"compressed\", \"config_groups\": {");
    put_groups(sb, num, module, mixed);
    sb_put(sb, "}, \"ignore\": [");
    for (int i = 0; i < num_plain; i++)
        put_names(sb, plain[i], &first);
    sb_put(sb, "]}");
}

const CheckpointWriter writer_compressed = {
    .name = "compressed-tensors",
    .settle = settle,
    .fill = fill,
    .config = config,
};
