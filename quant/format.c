/* The table of element formats and conversions of single codes and of plain arrays. */
#include "quant/loops.h"
#include "quant/quant.h"
#include <math.h>
#include <string.h>

const FormatInfo format_info[NUM_FORMATS] = {
    [FMT_NONE] = {.name = "none"},
#define FORMAT(ID, name, bits, family, is_signed, exp_bits, man_bits, bias, qmin, qmax) \
    [FMT_##ID] = {FMT_##ID, name, bits, FAMILY_##family, is_signed, exp_bits, man_bits, \
                  bias,     qmin, qmax},
#include "numerics/formats.def"
#undef FORMAT
};

FormatId format_find(const char *name)
{
    for (int i = FMT_NONE + 1; i < NUM_FORMATS; i++)
        if (strcmp(format_info[i].name, name) == 0)
            return format_info[i].id;
    return FMT_NONE;
}

FormatId format_of_bits(int bits, bool is_signed)
{
    FormatId best = FMT_NONE;
    for (int i = FMT_NONE + 1; i < NUM_FORMATS; i++) {
        const FormatInfo *info = &format_info[i];
        bool is_whole = info->qmax - format_code_min(info->id) + 1 == ldexp(1, info->bits);
        if (info->family == FAMILY_INT && info->is_signed == is_signed && info->bits >= bits &&
            is_whole && (!best || info->bits < format_info[best].bits))
            best = info->id;
    }
    return best;
}

int format_code_min(FormatId fmt)
{
    const FormatInfo *info = &format_info[fmt];
    if (fmt == FMT_TERNARY || fmt == FMT_BINARY) /* all codes are used */
        return (int)info->qmin;
    return info->is_signed ? (int)info->qmin - 1 : 0;
}

int format_code_max(FormatId fmt)
{
    return (int)format_info[fmt].qmax;
}

uint64_t format_row_bytes(FormatId fmt, uint64_t cols)
{
    uint64_t bits = (uint64_t)format_held_bits(fmt);
    return bits >= 8 ? cols * (bits / 8) : cols / 2 + cols % 2;
}

float format_decode(FormatId fmt, uint32_t code)
{
    if (fmt == FMT_F32)
        return num_float(code);
    if (fmt == FMT_I32)
        return (float)(int32_t)code;
    return num_decode((int)fmt, code);
}

uint32_t format_encode(FormatId fmt, float value)
{
    const FormatInfo *info = &format_info[fmt];
    if (fmt == FMT_F32)
        return num_bits(value);
    if (fmt == FMT_I32) {
        int32_t code;
        loop_from_f32(FMT_I32, &value, &code, 1);
        return (uint32_t)code;
    }
    if (info->family == FAMILY_INT) {
        int code = num_int_code((int)fmt, value, 0, (int)info->qmin, (int)info->qmax);
        return (uint32_t)code & ((1u << format_held_bits(fmt)) - 1);
    }
    return num_encode((int)fmt, value);
}

void format_to_f32(FormatId fmt, const void *src, float *dst, uint64_t num)
{
    loop_to_f32((int)fmt, src, dst, (int64_t)num);
}

void format_from_f32(FormatId fmt, const float *src, void *dst, uint64_t num)
{
    loop_from_f32((int)fmt, src, dst, (int64_t)num);
}

void format_to_f64(FormatId fmt, const void *src, double *dst, uint64_t num)
{
    if (fmt == FMT_F64) {
        memcpy(dst, src, num * sizeof *dst);
        return;
    }
    if (fmt == FMT_I32) { /* f32 could not hold them all */
        const int32_t *from = src;
        for (uint64_t i = 0; i < num; i++)
            dst[i] = from[i];
        return;
    }
    float part[256];
    uint64_t bytes = format_row_bytes(fmt, 1);
    for (uint64_t at = 0; at < num; at += COUNT_OF(part)) {
        uint64_t len = num - at < COUNT_OF(part) ? num - at : COUNT_OF(part);
        loop_to_f32((int)fmt, (const char *)src + at * bytes, part, (int64_t)len);
        for (uint64_t i = 0; i < len; i++)
            dst[at + i] = part[i];
    }
}
