/* Weights packed as panels: random matrices, and for every element and scale the place where
 * kernels/cuda/pack.h says that it lies; everything else is zero. TAP. usage: check_panels [NUM] */
#include "kernels/cuda/pack.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static int64_t draw(int64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(state >> 33) % below;
}

/* The packed row of row `row` of part `part`: of each 32, row 8t + 2i + j is packed row 8i + 2t +
 * j; runs of 32 rows of the parts alternate. */
static int64_t packed_row(int64_t row, int64_t part, int parts)
{
    int64_t in = row % 32, t = in / 8, i = in % 8 / 2, j = in % 2;
    return (row / 32 * parts + part) * 32 + 8 * i + 2 * t + j;
}

static int64_t byte_at(int64_t rows, int64_t row, int64_t byte)
{
    int64_t unit = byte / 128, chunk = byte % 128 / 16;
    return unit * rows * 128 + row / 8 * 1024 + row % 8 * 128 + (chunk ^ row % 8) * 16 + byte % 16;
}

typedef struct Case {
    CudaPackSpec spec;
    CudaPacked packed;
    uint8_t *src, *dst;
    float *scale;
    int64_t pitch, blocks;
} Case;

/* How many places hold something else than they should. The bytes that were looked at are cleared,
 * so that what is left must be zero. */
static int wrong_codes(Case *c)
{
    int wrong = 0;
    int64_t each = c->spec.n / c->spec.parts;
    for (int64_t n = 0; n < c->spec.n; n++)
        for (int64_t b = 0; b < c->pitch; b++) {
            int64_t row = packed_row(n % each, n / each, c->spec.parts);
            uint8_t *at = c->dst + byte_at(c->packed.rows, row, b);
            wrong += *at != c->src[n * c->pitch + b];
            *at = 0;
        }
    int64_t end = c->packed.scale_at ? c->packed.scale_at : (int64_t)c->packed.bytes;
    for (int64_t i = 0; i < end; i++)
        wrong += c->dst[i] != 0;
    return wrong;
}

static int wrong_scales(const Case *c)
{
    int wrong = 0;
    bool uniform = c->spec.block_rows != 1;
    int64_t each = c->spec.n / c->spec.parts;
    for (int64_t n = 0; n < c->spec.n && c->packed.scale_at; n++)
        for (int64_t b = 0; b < c->blocks; b++) {
            int64_t part = n / each, row = n % each;
            int64_t place = packed_row(row, part, c->spec.parts), run = place / 32 * 32;
            int64_t at = uniform ? b * (c->packed.rows / 8) + place / 8
                                 : b * c->packed.rows + run + row % 32;
            int64_t block = c->spec.block_rows ? n / c->spec.block_rows : 0;
            float s;
            memcpy(&s, c->dst + c->packed.scale_at + 4 * at, 4);
            wrong += s != c->scale[block * c->blocks + b];
        }
    return wrong;
}

static void fill(Case *c)
{
    static const FormatId formats[] = {FMT_E4M3, FMT_E5M2, FMT_I8, FMT_U8, FMT_BF16, FMT_F16};
    FormatId fmt = formats[draw(COUNT_OF(formats))];
    int parts = 1 + (int)draw(2), bytes = format_info[fmt].bits / 8;
    bool blocks = bytes == 1 && draw(2), by_row = draw(2);
    int64_t each = blocks && !by_row ? 128 * (1 + draw(3)) : 1 + draw(200);
    c->spec = (CudaPackSpec){.fmt = fmt,
                             .act_fmt = fmt,
                             .n = each * parts,
                             .k = 1 + draw(700),
                             .parts = parts,
                             .mainloop = blocks,
                             .block_rows = by_row ? 1 : 128,
                             .block_cols = blocks ? 128 : 0,
                             .layout = CUDA_PANELS};
    if (!cuda_pack_plan(&c->spec, &c->packed))
        abort();
    c->pitch = c->spec.k * bytes;
    c->blocks = blocks && c->spec.k > 128 ? (c->spec.k + 127) / 128 : 1;
    c->src = malloc((size_t)(c->spec.n * c->pitch));
    c->dst = calloc(1, (size_t)c->packed.bytes);
    c->scale = malloc((size_t)(c->spec.n * c->blocks) * sizeof(float));
    if (!c->src || !c->dst || !c->scale)
        abort();
    for (int64_t i = 0; i < c->spec.n * c->pitch; i++)
        c->src[i] = (uint8_t)draw(256);
    for (int64_t i = 0; i < c->spec.n * c->blocks; i++)
        c->scale[i] = (float)(1 + draw(1000));
    cuda_pack(&c->spec, c->src, c->pitch, &(CudaParams){.scale = c->scale}, c->dst);
}

int main(int argc, char **argv)
{
    int num = argc > 1 ? atoi(argv[1]) : 200, failed = 0;
    for (int i = 0; i < num; i++) {
        Case c;
        fill(&c);
        int scales = wrong_scales(&c), codes = wrong_codes(&c);
        if (codes || scales)
            printf("# %s %lld x %lld, %d parts: %d codes and %d scales are elsewhere\n",
                   format_info[c.spec.fmt].name, (long long)c.spec.n, (long long)c.spec.k,
                   c.spec.parts, codes, scales);
        failed += codes || scales;
        free(c.src);
        free(c.dst);
        free(c.scale);
    }
    printf("1..1\n%s 1 - %d matrices lie as panels where they should\n", failed ? "not ok" : "ok",
           num);
    return failed > 0;
}
