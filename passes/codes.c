/* passes/codes: the codes of weights that need second moments, made when the file is written, one
 * layer at a time, and kept in the cache by the hash of all that they follow from, so that a
 * compile that was interrupted goes on where it stopped. Without a cache they are kept in memory,
 * because every target asks for them anew. */
#include "passes/calibration.h"
#include "passes/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct Codes {
    Moments *moments;
    Arena *arena;
    const QuantEngine *engine;
    bool use_cache;
    Map kept; /* what the cache did not take: key's text to Blob */
} Codes;

typedef struct BlobHead {
    uint64_t codes_bytes, blocks;
    uint32_t has_zero;
    float outer;
} BlobHead;

typedef struct Blob {
    size_t size;
    uint8_t data[];
} Blob;

static uint64_t num_blocks(const QTensor *q)
{
    return (uint64_t)q->row_blocks * (uint64_t)q->col_blocks;
}

static size_t blob_size(const QTensor *q)
{
    return sizeof(BlobHead) + num_blocks(q) * (q->zero ? 8 : 4) + q->codes_bytes;
}

static void blob_fill(const QTensor *q, uint8_t *to)
{
    BlobHead head = {q->codes_bytes, num_blocks(q), q->zero != NULL, q->outer};

    memcpy(to, &head, sizeof head);
    to += sizeof head;
    memcpy(to, q->scale, head.blocks * 4);
    to += head.blocks * 4;
    if (q->zero) {
        memcpy(to, q->zero, head.blocks * 4);
        to += head.blocks * 4;
    }
    memcpy(to, q->codes, q->codes_bytes);
}

/* False: the blob is of another tensor. */
static bool blob_take(QTensor *q, const uint8_t *from, size_t size)
{
    BlobHead head;

    if (size != blob_size(q))
        return false;
    memcpy(&head, from, sizeof head);
    if (head.codes_bytes != q->codes_bytes || head.blocks != num_blocks(q) ||
        head.has_zero != (q->zero != NULL))
        return false;
    from += sizeof head;
    q->outer = head.outer;
    memcpy(q->scale, from, head.blocks * 4);
    from += head.blocks * 4;
    if (q->zero) {
        memcpy(q->zero, from, head.blocks * 4);
        from += head.blocks * 4;
    }
    memcpy(q->codes, from, q->codes_bytes);
    return true;
}

static CacheKey codes_key(const Codes *c, const char *layer, const WeightQuantiser *by,
                          const WeightArgs *args, const QTensor *q, FormatId fmt, const void *src)
{
    CacheKey model = moments_key(c->moments);
    uint64_t bytes = format_row_bytes(fmt, (uint64_t)q->cols) * (uint64_t)q->rows;
    char text[160];
    int len = snprintf(text, sizeof text, "codes 2 %s %d %.17g %d %d %d %d %lld %lld %lld %lld %d",
                       by->name, args->act_order, args->damp, (int)q->scheme.fmt,
                       (int)q->scheme.scale_fmt, (int)q->scheme.zero, q->scheme.outer,
                       (long long)q->scheme.block[0], (long long)q->scheme.block[1],
                       (long long)q->rows, (long long)q->cols, (int)fmt);
    const CachePart part[] = {{text, len > 0 ? (size_t)len : 0},
                              {SINTER_VERSION, strlen(SINTER_VERSION)},
                              {layer, strlen(layer)},
                              {&model, sizeof model},
                              {src, bytes}};
    return cache_key((int)COUNT_OF(part), part);
}

static const char *key_name(const Codes *c, CacheKey key)
{
    return arena_printf(c->arena, "%016llx%016llx", (unsigned long long)key.half[1],
                        (unsigned long long)key.half[0]);
}

static bool codes_find(Codes *c, Cache *cache, CacheKey key, QTensor *q)
{
    const Blob *kept = map_get(&c->kept, key_name(c, key));
    size_t size = 0;

    if (kept)
        return blob_take(q, kept->data, kept->size);
    void *data = cache ? cache_get(cache, key, &size) : NULL;
    bool ok = data && blob_take(q, data, size);
    free(data);
    return ok;
}

static void codes_keep(Codes *c, Cache *cache, CacheKey key, const char *layer, const QTensor *q)
{
    size_t size = blob_size(q);
    uint8_t *data = cache ? malloc(size) : NULL;
    bool written = false;

    if (data) {
        blob_fill(q, data);
        written = cache_put(cache, key, layer, data, size);
        free(data);
    }
    if (written)
        return;
    Blob *blob = arena_alloc(c->arena, sizeof *blob + size);
    blob->size = size;
    blob_fill(q, blob->data);
    map_put(&c->kept, key_name(c, key), blob);
}

static const char *codes_make(Codes *c, Cache *cache, const char *layer, const WeightQuantiser *by,
                              const WeightArgs *args, QTensor *q, FormatId fmt, const void *src)
{
    const char *why = NULL;
    CacheKey key = codes_key(c, layer, by, args, q, fmt, src);

    if (codes_find(c, cache, key, q))
        return NULL;
    const WeightStats *stats = moments_get(c->moments, layer, &why);
    if (!stats)
        return why;
    WeightArgs here = *args;
    here.engine = c->engine;
    why = by->run(q, fmt, src, stats, &here);
    if (!why)
        codes_keep(c, cache, key, layer, q);
    return why;
}

static const char *codes_run(void *user, const char *layer, const WeightQuantiser *by,
                             const WeightArgs *args, QTensor *q, FormatId fmt, const void *src)
{
    Codes *c = user;
    char reason[256];
    Cache *cache = c->use_cache ? cache_open(NULL, true, NULL, reason, sizeof reason) : NULL;
    const char *why = codes_make(c, cache, layer, by, args, q, fmt, src);

    cache_close(cache);
    return why;
}

const CodeMaker *codes_create(Module *m, const PassContext *ctx, Moments *moments)
{
    Codes *c = ARENA_NEW(m->arena, Codes);
    CodeMaker *maker = ARENA_NEW(m->arena, CodeMaker);

    *c = (Codes){.moments = moments,
                 .arena = m->arena,
                 .engine = ctx->options.engine,
                 .use_cache = ctx->options.use_cache};
    map_init(&c->kept, m->arena);
    *maker = (CodeMaker){codes_run, c};
    return maker;
}
