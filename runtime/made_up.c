/* Made-up data; see made_up.h. */
#include "runtime/made_up.h"

#include "quant/quant.h"

#include <stdlib.h>

#define CHUNK 1024

/* Number i of a sequence that looks random (splitmix64). */
static uint64_t random_at(uint64_t i)
{
    uint64_t z = 1 + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float value_at(uint64_t i)
{
    uint64_t r = random_at(i);
    float ret = 0;
    for (int k = 0; k < 4; k++)
        ret += (float)(r >> (16 * k) & 0xffff) / 131072.0f - 0.25f;
    return ret;
}

void made_up_fill(FormatId fmt, void *data, uint64_t from, uint64_t num)
{
    size_t bytes = (size_t)format_info[fmt].bits / 8;
    float value[CHUNK];
    for (uint64_t i = from; fmt == FMT_I32 && i < from + num; i++)
        ((int32_t *)data)[i] = INT32_MAX;
    for (uint64_t at = from, part; fmt != FMT_I32 && at < from + num; at += part) {
        part = from + num - at < CHUNK ? from + num - at : CHUNK;
        for (uint64_t i = 0; i < part; i++)
            value[i] = value_at(at + i);
        format_from_f32(fmt, value, (uint8_t *)data + at * bytes, part);
    }
}

void *made_up(FormatId fmt, uint64_t num)
{
    void *ret = malloc((size_t)num * (size_t)format_info[fmt].bits / 8 + 1);
    if (ret)
        made_up_fill(fmt, ret, 0, num);
    return ret;
}
