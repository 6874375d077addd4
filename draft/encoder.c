/* Encoders: BERT and MiniLM. Norms stand behind the sums. The sum of the embeddings is an input,
 * and so is the mask, which keeps sentences apart that run at once. */
#include "draft/draft.h"

#include <math.h>
#include <string.h>

typedef struct Encoder {
    Draft *d;
    const char *layer; /* "encoder.layer.{i}." */
    int64_t heads, size, hidden, inner;
    double eps;
} Encoder;

static const char *name(const Encoder *e, const char *rest)
{
    return arena_printf(e->d->arena, "%s%s", e->layer, rest);
}

static const char *linear(Encoder *e, const char *word, const char *out, const char *in,
                          const char *tensor, const char *x)
{
    Draft *d = e->d;
    int64_t rows = *out == 'F' ? e->inner : e->hidden, cols = *in == 'F' ? e->inner : e->hidden;
    draft_param(d, word, arena_printf(d->arena, "%s, %s", out, in), rows, cols,
                name(e, arena_printf(d->arena, "%s.weight", tensor)));
    draft_param(d, arena_printf(d->arena, "%s_bias", word), out, rows, 0,
                name(e, arena_printf(d->arena, "%s.bias", tensor)));
    return arena_printf(d->arena, "linear(%s, %s, %s_bias)", x, word, word);
}

static const char *norm(Encoder *e, const char *word, const char *tensor, const char *x)
{
    Draft *d = e->d;
    draft_param(d, word, "D", e->hidden, 0, name(e, arena_printf(d->arena, "%s.weight", tensor)));
    draft_param(d, arena_printf(d->arena, "%s_bias", word), "D", e->hidden, 0,
                name(e, arena_printf(d->arena, "%s.bias", tensor)));
    return arena_printf(d->arena, "layernorm(%s, %s, %s_bias, eps=%.9g)", x, word, word, e->eps);
}

static void put_head(Encoder *e)
{
    Draft *d = e->d;
    const char *f = d->format;
    draft_line(d,
               "block head (q: %s[T, SIZE], k: %s[T, SIZE], v: %s[T, SIZE], mask: f32[T, T]) -> "
               "%s[T, SIZE] {",
               f, f, f, f);
    draft_line(d, "    scores = matmul(q, transpose(k)) * %.17g  # 1 / sqrt(SIZE)",
               1 / sqrt((double)e->size));
    draft_line(d, "    return matmul(softmax(scores + mask), v)\n}\n");
}

static void put_layer(Encoder *e)
{
    Draft *d = e->d;
    Sb body;
    sb_init(&body, d->arena);
    draft_line(d, "block layer[i] (x: %s[T, D], mask: f32[T, T]) -> %s[T, D] {", d->format,
               d->format);
    sb_printf(&body, "    q = %s\n", linear(e, "query", "D", "D", "attention.self.query", "x"));
    sb_printf(&body, "    k = %s\n", linear(e, "key", "D", "D", "attention.self.key", "x"));
    sb_printf(&body, "    v = %s\n", linear(e, "value", "D", "D", "attention.self.value", "x"));
    sb_put(&body, "    c = head(slice(q, axis=-1, stop=SIZE), slice(k, axis=-1, stop=SIZE), "
                  "slice(v, axis=-1, stop=SIZE), mask)\n");
    if (e->heads > 1)
        sb_put(&body, "    for h in 1 .. HEADS {\n"
                      "        qh = slice(q, axis=-1, start=h * SIZE, stop=h * SIZE + SIZE)\n"
                      "        kh = slice(k, axis=-1, start=h * SIZE, stop=h * SIZE + SIZE)\n"
                      "        vh = slice(v, axis=-1, start=h * SIZE, stop=h * SIZE + SIZE)\n"
                      "        c = concat(c, head(qh, kh, vh, mask), axis=-1)\n    }\n");
    const char *out = linear(e, "out", "D", "D", "attention.output.dense", "c");
    sb_printf(&body, "    a = %s\n",
              norm(e, "attention_norm", "attention.output.LayerNorm",
                   arena_printf(d->arena, "x + %s", out)));
    const char *up = linear(e, "up", "F", "D", "intermediate.dense", "a");
    sb_printf(&body, "    f = %s\n",
              draft_rounded(d, arena_printf(d->arena, "%s(%s)", draft_act(d, "gelu"), up)));
    const char *down = linear(e, "down", "D", "F", "output.dense", "f");
    sb_printf(&body, "    return %s\n",
              norm(e, "norm", "output.LayerNorm", arena_printf(d->arena, "a + %s", down)));
    draft_line(d, "%s}\n", body.text);
}

void draft_encoder(Draft *d)
{
    Encoder e = {
        .d = d, .heads = d->config.heads, .eps = d->config.eps > 0 ? d->config.eps : 1e-12};
    e.layer = arena_printf(d->arena, "%sencoder.layer.{i}.", d->prefix);
    if (strcmp(d->config.type, "bert") != 0) {
        diag_error(d->diag, (Span){0}, E_DRAFT, "%s/config.json: no draft for models of type '%s'",
                   d->folder, d->config.type);
        diag_help(d->diag, "of encoders there is a draft for bert");
        return;
    }
    e.hidden = draft_dim(d, name(&e, "attention.self.query.weight"), 0);
    e.inner = draft_dim(d, name(&e, "intermediate.dense.weight"), 0);
    if (e.heads <= 0 || e.hidden % e.heads != 0) {
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: %lld heads, as config.json says, do not share %lld columns", d->folder,
                   (long long)e.heads, (long long)e.hidden);
        return;
    }
    e.size = e.hidden / e.heads;
    draft_line(d, "#\n# What the language has no words for is an input, for T tokens at once:");
    draft_line(d,
               "#   x     sums of rows of %sembeddings.word_embeddings, position_embeddings and "
               "token_type_embeddings",
               d->prefix);
    draft_line(d, "#   mask  0 where a row's token may look at a column's, -1e9 elsewhere: of "
                  "other sentences, and of padding");
    draft_line(d,
               "# What reads the first token or the mean of y (pooler, classifier) is not here.");
    draft_begin(d);
    draft_line(d, "const D = %lld\nconst F = %lld\nconst LAYERS = %lld", (long long)e.hidden,
               (long long)e.inner, (long long)d->layers);
    draft_line(d, "const HEADS = %lld\nconst SIZE = D / HEADS\ndim T in [16, 64, 256]\n",
               (long long)e.heads);
    put_head(&e);
    put_layer(&e);
    draft_line(d, "model bert (x: %s[T, D], mask: f32[T, T]) -> (y: %s[T, D]) {", d->format,
               d->format);
    e.layer = d->prefix;
    const char *first = norm(&e, "first", "embeddings.LayerNorm", "x");
    draft_line(d, "    y = %s\n    for i in 0 .. LAYERS { y = layer[i](y, mask) }\n}", first);
}
