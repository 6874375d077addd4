/* checkpoint/write_gptq: GPTQ as gptq.c reads it. Symmetric weights store their zero points less
 * one, as every reader of v1 expects; asymmetric ones as they are (v2), because v1 has no 0. */
#include "checkpoint/write.h"

#include <string.h>

enum { CODES, ZEROS, SCALES, GROUPS };

static int64_t group_size(const WriteModule *m)
{
    return m->scheme.block[1] && m->scheme.block[1] < m->cols ? m->scheme.block[1] : m->cols;
}

static bool is_whole(const WriteModule *m)
{
    return group_size(m) == m->cols;
}

/* One size of groups, or -1 for one group of all columns, is said for both: a module that is one
 * group is so under every size that its columns do not exceed. */
static bool groups_fit(const WriteModule *a, const WriteModule *b)
{
    if (is_whole(a) && is_whole(b))
        return true;
    if (is_whole(a) || is_whole(b))
        return is_whole(a) ? a->cols <= group_size(b) : b->cols <= group_size(a);
    return group_size(a) == group_size(b);
}

/* One configuration speaks of all modules. */
static const char *differs(Arena *arena, const WriteModule *m, const WriteModule *other)
{
    const Scheme *a = &m->scheme, *b = &other->scheme;
    const char *what = NULL;

    if (format_info[a->fmt].bits != format_info[b->fmt].bits)
        what = "bits";
    else if ((a->zero == ZERO_NONE) != (b->zero == ZERO_NONE))
        what = "symmetry";
    else if (!groups_fit(m, other))
        what = "groups";
    return what ? arena_printf(arena,
                               "gptq has one scheme for all modules, but its %s are not "
                               "those of %s",
                               what, other->name)
                : NULL;
}

static const char *scheme_refusal(Arena *arena, const WriteModule *m, const char **ret_help)
{
    const FormatInfo *info = &format_info[m->scheme.fmt];

    *ret_help = NULL;
    if (info->family != FAMILY_INT ||
        (info->bits != 2 && info->bits != 3 && info->bits != 4 && info->bits != 8)) {
        *ret_help = "compressed-tensors holds more formats";
        return arena_printf(arena, "gptq holds integers of 2, 3, 4 and 8 bits, not %s", info->name);
    }
    if (m->scheme.scale_fmt != FMT_F16) {
        *ret_help = "say `scale f16` in the scheme";
        return arena_printf(arena, "gptq stores scales as f16, and the scheme has %s",
                            format_info[m->scheme.scale_fmt].name);
    }
    if (m->act.is_quantised) {
        *ret_help = "leave out the `act` line, or write compressed-tensors";
        return "gptq has no word for the activation, which is quantised too";
    }
    return NULL;
}

static const char *settle(Arena *arena, WriteModule *m, const char **ret_help)
{
    int64_t bits = format_info[m->scheme.fmt].bits, groups = blocks_of(m->cols, group_size(m));
    const char *why = scheme_refusal(arena, m, ret_help);

    if (why)
        return why;
    if (m->rows * bits % 32 || m->cols * bits % 32)
        return arena_printf(arena,
                            "gptq packs words of 32 bits, which [%lld, %lld] codes of %lld "
                            "bits do not fill",
                            (long long)m->rows, (long long)m->cols, (long long)bits);
    m->format = "gptq";
    write_part(m, ".qweight", "I32", 2, m->cols * bits / 32, m->rows);
    write_part(m, ".qzeros", "I32", 2, groups, m->rows * bits / 32);
    write_part(m, ".scales", "F16", 2, groups, m->rows);
    write_part(m, ".g_idx", "I32", 1, m->cols, 0);
    return NULL;
}

static void fill(const WriteModule *m, QTensor *q, void *const *data)
{
    int bits = format_info[m->scheme.fmt].bits;
    uint32_t *codes = data[CODES], *zeros = data[ZEROS], mask = (1u << bits) - 1;
    uint32_t less = m->scheme.zero == ZERO_NONE;
    int64_t groups = m->part[SCALES].dim[0], words = m->part[ZEROS].dim[1];
    uint16_t *scales = data[SCALES];

    for (int64_t n = 0; n < m->rows; n++) {
        for (int64_t at = 0; at < m->cols; at++)
            stream_put(codes + n, m->rows, (uint64_t)(written_column(m, at) * bits), bits,
                       written_code(m, q, n, at));
        for (int64_t g = 0; g < groups; g++) {
            float scale = written_scale(q, n, g);
            stream_put(zeros + g * words, 1, (uint64_t)(n * bits), bits,
                       (written_zero(m, q, n, g) - less) & mask);
            format_from_f32(FMT_F16, &scale, &scales[g * m->rows + n], 1);
        }
    }
    write_order(m, data[GROUPS]);
}

/* A name as an expression that matches it alone. */
static void put_expression(Sb *sb, const char *name)
{
    sb_put(sb, "\"-:^");
    for (const char *c = name; *c; c++)
        if (*c == '.')
            sb_put(sb, "\\\\.");
        else
            sb_putc(sb, *c);
    sb_put(sb, "$\": {}");
}

static void config(Sb *sb, int num, const WriteModule *const *module, int num_plain,
                   const char *const *plain)
{
    const WriteModule *m = module[0];
    bool ordered = false, sym = m->scheme.zero == ZERO_NONE;
    int64_t size = -1;

    for (int i = 0; i < num; i++) {
        ordered |= module[i]->order != NULL;
        size = is_whole(module[i]) ? size : group_size(module[i]);
    }
    sb_printf(sb, "{\"quant_method\": \"gptq\", \"bits\": %d, \"group_size\": %lld,",
              format_info[m->scheme.fmt].bits, (long long)size);
    sb_printf(sb, " \"desc_act\": %s, \"sym\": %s, \"checkpoint_format\": \"%s\",",
              ordered ? "true" : "false", sym ? "true" : "false", sym ? "gptq" : "gptq_v2");
    sb_put(sb, " \"pack_dtype\": \"int32\", \"lm_head\": false");
    for (int i = 0; i < num_plain; i++) {
        sb_put(sb, i ? ", " : ", \"dynamic\": {");
        put_expression(sb, plain[i]);
    }
    sb_put(sb, num_plain ? "}}" : "}");
}

const CheckpointWriter writer_gptq = {
    .name = "gptq",
    .settle = settle,
    .differs = differs,
    .fill = fill,
    .config = config,
};
