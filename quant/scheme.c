/* Schemes: how a quantised tensor stores its numbers; their words, names and limits. */
#include "base/limits.h"
#include "quant/quant.h"
#include <string.h>

bool scheme_equal(const Scheme *a, const Scheme *b)
{
    return a->fmt == b->fmt && a->scale_fmt == b->scale_fmt && a->zero == b->zero &&
           a->table == b->table && a->outer == b->outer && a->fast == b->fast &&
           a->block[0] == b->block[0] && a->block[1] == b->block[1];
}

const char *scheme_table_text(const Scheme *scheme)
{
    static const char *const text[NUM_TABLE_KINDS] = {[TABLE_NONE] = "",
                                                      [TABLE_TENSOR] = "",
                                                      [TABLE_ROW] = " by row",
                                                      [TABLE_BLOCK] = " by block"};
    return text[scheme->table];
}

void scheme_print(Sb *sb, const Scheme *scheme, bool is_act)
{
    const FormatInfo *info = &format_info[scheme->fmt];
    sb_put(sb, info->name);
    if (scheme->table)
        sb_printf(sb, " codebook%s", scheme_table_text(scheme));
    else if (info->family == FAMILY_INT)
        sb_put(sb, scheme->zero == ZERO_INT ? " asym" : " sym");
    int64_t rows = scheme->block[0], cols = scheme->block[1];
    if (rows == 0 && cols == 0)
        sb_put(sb, " per tensor");
    else if (rows == 1 && cols == 0)
        sb_put(sb, is_act ? " per token" : " per channel");
    else if (rows == 1)
        sb_printf(sb, "%s group %lld", is_act ? " per token" : "", (long long)cols);
    else
        sb_printf(sb, " block %lldx%lld", (long long)rows, (long long)cols);
    if (scheme->scale_fmt != FMT_F32)
        sb_printf(sb, " scale %s", format_info[scheme->scale_fmt].name);
    if (scheme->outer)
        sb_put(sb, " outer");
    if (scheme->fast)
        sb_put(sb, " fast");
}

bool scheme_find(const char *name, Scheme *ret)
{
    static const struct {
        const char *name;
        Scheme scheme;
    } named[] = {
        {"mxfp8", {.fmt = FMT_E4M3, .scale_fmt = FMT_E8M0, .block = {1, 32}}},
        {"mxfp4", {.fmt = FMT_E2M1, .scale_fmt = FMT_E8M0, .block = {1, 32}}},
        {"nvfp4", {.fmt = FMT_E2M1, .scale_fmt = FMT_E4M3, .outer = true, .block = {1, 16}}},
    };
    for (size_t i = 0; i < COUNT_OF(named); i++) {
        if (strcmp(named[i].name, name) == 0) {
            *ret = named[i].scheme;
            return true;
        }
    }
    return false;
}

static int64_t blocks_along(int64_t block, int64_t num)
{
    if (block == 0)
        return 1;
    return num / block + (num % block != 0);
}

int64_t scheme_row_blocks(const Scheme *scheme, int64_t rows)
{
    return blocks_along(scheme->block[0], rows);
}

int64_t scheme_col_blocks(const Scheme *scheme, int64_t cols)
{
    return blocks_along(scheme->block[1], cols);
}

bool scheme_varies_along_cols(const Scheme *scheme, int64_t cols)
{
    return scheme_col_blocks(scheme, cols) > 1;
}

static const char *scale_problem(const Scheme *scheme)
{
    const FormatInfo *info = &format_info[scheme->fmt];
    switch (scheme->scale_fmt) {
    case FMT_F32:
    case FMT_F16:
    case FMT_BF16: break;
    case FMT_E4M3: break;
    case FMT_E8M0:
        if (scheme->zero != ZERO_NONE)
            return "e8m0 scales are powers of two for symmetric formats; an asymmetric range needs "
                   "f32, f16 or bf16";
        if (info->family == FAMILY_CODEBOOK || scheme->table)
            return "e8m0 scales are for integers and minifloats; a codebook needs f32, f16 or bf16";
        break;
    case FMT_I8:
        if ((scheme->fmt != FMT_I4 && scheme->fmt != FMT_U4) || scheme->table ||
            scheme->block[0] != 1)
            return "i8 scales are whole multiples of a row's own, of groups of i4 and u4; others "
                   "need f32, f16 or bf16";
        break;
    default: return "a scale is f32, f16, bf16, e8m0, e4m3 or i8";
    }
    if (scheme->outer && (scheme->scale_fmt != FMT_E4M3 || scheme->zero != ZERO_NONE))
        return "an outer scale goes with symmetric blocks whose scales are e4m3";
    return NULL;
}

static const char *fast_problem(const Scheme *scheme)
{
    if (scheme->fmt != FMT_E4M3 && scheme->fmt != FMT_E5M2)
        return "'fast' is about sums of 8-bit floats, e4m3 and e5m2: those of integers are exact, "
               "those of others are f32";
    if (scheme->block[1] || scheme->outer)
        return "'fast' leaves sums in the tensor cores, and scales of blocks take them out; it "
               "goes with 'per token' and 'per tensor'";
    return NULL;
}

static const char *table_problem(const Scheme *scheme)
{
    const FormatInfo *info = &format_info[scheme->fmt];
    if (info->family != FAMILY_INT || info->is_signed)
        return "codes of a codebook are places in its table: u1 to u8";
    if (scheme->zero != ZERO_NONE || scheme->outer)
        return "the values of a codebook have neither a zero point nor an outer scale";
    return NULL;
}

const char *scheme_problem(const Scheme *scheme)
{
    const FormatInfo *info = &format_info[scheme->fmt];
    if (info->family == FAMILY_FLOAT || scheme->fmt == FMT_NONE)
        return "a scheme needs a quantised element format; f32, f16 and bf16 are stored as they "
               "are";
    if (scheme->fmt == FMT_I32)
        return "i32 is for accumulators; integers of 1 to 8 bits quantise";
    if (scheme->fmt == FMT_E8M0)
        return "e8m0 is a format of scales, not of elements";
    if (scheme->zero != ZERO_NONE && info->family != FAMILY_INT)
        return "only integer formats have a zero point; this one is symmetric";
    if (scheme->table && table_problem(scheme))
        return table_problem(scheme);
    if (scheme->zero == ZERO_NONE && !scheme->table && info->family == FAMILY_INT &&
        !info->is_signed)
        return "an unsigned format has no negative codes; it needs asym";
    if (scheme->zero != ZERO_NONE && info->is_signed && format_code_min(scheme->fmt) == info->qmin)
        return "the codes of this format are -1 and 1, and perhaps 0: it is symmetric";
    for (int i = 0; i < 2; i++)
        if (scheme->block[i] < 0 || scheme->block[i] > LIMIT_DIM)
            return "a block is 1 to 2147483647 elements, or 0 for all";
    return scheme->fast && fast_problem(scheme) ? fast_problem(scheme) : scale_problem(scheme);
}
