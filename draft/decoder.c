/* Decoders: Llama and its relatives (Mistral, Qwen 2 and 3), Gemma 1 to 3, Phi 2 and 3, gpt-oss.
 * One text says them all; which norms, biases and fused weights there are is seen from the tensors,
 * the rest from a row of the table of families. Layers of experts are in experts.c.
 *
 * Positions (cosines and sines) and masks are inputs: the language has no tables of positions. So
 * is the first hidden state: it cannot look up embeddings. Keys and values are not kept between
 * runs. */
#include "draft/decoder.h"

#include <math.h>
#include <string.h>

static const Family families[] = {
    {"llama", "silu", .partial = 1},
    {"mistral", "silu", .partial = 1},
    {"qwen2", "silu", .partial = 1},
    {"qwen3", "silu", .partial = 1},
    {"gemma", "gelu_tanh", .adds_one = true, .scales = true, .partial = 1},
    {"gemma2", "gelu_tanh", .adds_one = true, .scales = true, .has_window = true, .partial = 1},
    {"gemma3", "gelu_tanh", .adds_one = true, .scales = true, .has_window = true, .partial = 1},
    {"gemma3_text", "gelu_tanh", .adds_one = true, .scales = true, .has_window = true,
     .partial = 1},
    {"phi", "gelu_new", .is_phi = true, .partial = 0.5},
    {"phi3", "silu", .partial = 1},
    {"mixtral", "silu", .partial = 1, .experts = &experts_mixtral},
    {"qwen2_moe", "silu", .partial = 1, .experts = &experts_named},
    {"qwen3_moe", "silu", .partial = 1, .experts = &experts_named},
    {"olmoe", "silu", .partial = 1, .experts = &experts_named},
    {"gpt_oss", "silu", .partial = 1, .experts = &experts_gpt_oss},
};

const char *decoder_name(const Decoder *e, const char *rest)
{
    return arena_printf(e->d->arena, "%s%s", e->layer, rest);
}

static const Family *find_family(const char *type)
{
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

static double eps(const Decoder *e)
{
    return e->d->config.eps > 0 ? e->d->config.eps : 1e-6;
}

static bool has_sinks(const Decoder *e)
{
    return draft_has(e->d, decoder_name(e, "self_attn.sinks"));
}

/* Norms of q and k: of each head, or of all heads at once? */
static bool has_norms(const Decoder *e)
{
    return draft_has(e->d, decoder_name(e, "self_attn.q_norm.weight"));
}

static bool norms_all_heads(const Decoder *e)
{
    const TensorView *view = draft_find(e->d, decoder_name(e, "self_attn.q_norm.weight"), 0);
    return view && view->rank == 1 && e->heads > 1 && view->dim[0] == e->heads * e->size;
}

/* Sizes, from config.json where tensors do not say them. */
static bool measure(Decoder *e)
{
    Draft *d = e->d;
    const DraftConfig *c = &d->config;
    bool is_fused = draft_has(d, decoder_name(e, "self_attn.qkv_proj.weight"));
    const char *q =
        decoder_name(e, is_fused ? "self_attn.qkv_proj.weight" : "self_attn.q_proj.weight");
    e->heads = c->heads;
    e->keys = c->keys ? c->keys : c->heads;
    e->hidden = draft_dim(d, q, 1);
    int64_t rows = e->hidden ? draft_dim(d, q, 0) : 0;
    int64_t shares = is_fused ? e->heads + 2 * e->keys : e->heads;
    if (!rows)
        return false;
    if (e->heads <= 0 || e->keys <= 0 || e->heads % e->keys != 0 || rows % shares != 0) {
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: %lld heads and %lld of keys, as config.json says, do not share the %lld "
                   "rows of '%s'",
                   d->folder, (long long)e->heads, (long long)e->keys, (long long)rows, q);
        return false;
    }
    e->size = rows / shares;
    double partial = c->partial > 0 ? c->partial : e->family->partial;
    e->turned = (int64_t)((double)e->size * partial);
    if (e->turned < 2 || e->turned % 2 != 0 || e->turned > e->size) {
        diag_error(d->diag, (Span){0}, E_DRAFT,
                   "%s: %g of a head of %lld columns cannot be rotated", d->folder, partial,
                   (long long)e->size);
        return false;
    }
    if (e->family->experts)
        return experts_measure(e);
    if (draft_has(d, decoder_name(e, "mlp.gate_up_proj.weight")))
        e->inner = draft_half(d, decoder_name(e, "mlp.gate_up_proj.weight"), 0);
    else
        e->inner = draft_dim(
            d, decoder_name(e, e->family->is_phi ? "mlp.fc1.weight" : "mlp.up_proj.weight"), 0);
    return e->inner > 0;
}

static void put_head(Decoder *e)
{
    Draft *d = e->d;
    const DraftConfig *c = &d->config;
    const char *f = d->format;
    bool all = e->turned == e->size;
    double scale = 1 / sqrt(c->scalar > 0 ? c->scalar : (double)e->size);
    draft_line(
        d,
        "block rotated (x: %s[T, SIZE], cos: f32[T, TURNED], sin: f32[T, TURNED]) -> %s[T, SIZE] {",
        f, f);
    draft_line(d, "    a = slice(x, axis=-1, stop=TURNED / 2)\n    b = slice(x, axis=-1, "
                  "start=TURNED / 2, stop=TURNED)");
    draft_line(d, "    turned = %s * cos + concat(-b, a, axis=-1) * sin",
               all ? "x" : "slice(x, axis=-1, stop=TURNED)");
    if (all)
        draft_line(d, "    return turned\n}\n");
    else
        draft_line(d, "    return concat(turned, slice(x, axis=-1, start=TURNED), axis=-1)\n}\n");
    draft_line(d,
               "block head (q: %s[T, SIZE], k: %s[T, SIZE], v: %s[T, SIZE], mask: f32[T, T]%s) -> "
               "%s[T, SIZE] {",
               f, f, f, has_sinks(e) ? ", sink: f32[1], nothing: f32[1, SIZE]" : "", f);
    draft_line(d, "    scores = matmul(q, transpose(k)) * %.17g  # 1 / sqrt(%g)", scale,
               c->scalar > 0 ? c->scalar : (double)e->size);
    if (has_sinks(e))
        draft_line(d, "    column = slice(q, axis=-1, stop=1) * 0.0 + sink  # a token that says "
                      "nothing\n"
                      "    shares = softmax(concat(scores + mask, column, axis=-1))\n"
                      "    return matmul(shares, concat(v, nothing, axis=0))\n}\n");
    else if (c->soft_scores > 0)
        draft_line(d,
                   "    soft = tanh(scores / %.9g) * %.9g\n    return matmul(softmax(soft + mask), "
                   "v)\n}\n",
                   c->soft_scores, c->soft_scores);
    else
        draft_line(d, "    return matmul(softmax(scores + mask), v)\n}\n");
}

/* A loop's first round comes before it: the language has no tensors without columns. */
static void put_group(Decoder *e)
{
    Draft *d = e->d;
    const char *f = d->format, *q = "q", *k = "k";
    bool has_own = has_norms(e) && !norms_all_heads(e);
    const char *more = has_own        ? arena_printf(d->arena, ", qn: %s[SIZE], kn: %s[SIZE]", f, f)
                       : has_sinks(e) ? ", sinks: f32[GROUP], nothing: f32[1, SIZE]"
                                      : "";
    draft_line(d, "# the heads that share keys and values");
    draft_line(d,
               "block group (q: %s[T, GROUP * SIZE], k: %s[T, SIZE], v: %s[T, SIZE]%s, cos: f32[T, "
               "TURNED], sin: f32[T, TURNED], mask: f32[T, T]) -> %s[T, GROUP * SIZE] {",
               f, f, f, more, f);
    const char *plus = e->family->adds_one ? " + 1.0" : "";
    if (has_own)
        k = arena_printf(d->arena, "rmsnorm(k, kn%s, eps=%.9g)", plus, eps(e));
    draft_line(d, "    turned = rotated(%s, cos, sin)", k);
    for (int round = 0; round < (e->heads / e->keys > 1 ? 2 : 1); round++) {
        q = round ? "slice(q, axis=-1, start=h * SIZE, stop=h * SIZE + SIZE)"
                  : "slice(q, axis=-1, stop=SIZE)";
        if (has_own)
            q = arena_printf(d->arena, "rmsnorm(%s, qn%s, eps=%.9g)", q, plus, eps(e));
        const char *sink = !has_sinks(e) ? ""
                           : round       ? ", slice(sinks, axis=-1, start=h, stop=h + 1), nothing"
                                         : ", slice(sinks, axis=-1, stop=1), nothing";
        if (round)
            draft_line(d,
                       "    for h in 1 .. GROUP {\n        c = concat(c, head(rotated(%s, cos, "
                       "sin), turned, v, mask%s), axis=-1)\n    }",
                       q, sink);
        else
            draft_line(d, "    c = head(rotated(%s, cos, sin), turned, v, mask%s)", q, sink);
    }
    draft_line(d, "    return c\n}\n");
}

/* Parameters of a linear layer, and its call. */
const char *decoder_linear(Decoder *e, const char *word, const char *dims, int64_t rows,
                           int64_t cols, const char *tensor, const char *x)
{
    Draft *d = e->d;
    const char *rest = strchr(dims, ',');
    draft_param(d, word, dims, rows, cols,
                decoder_name(e, arena_printf(d->arena, "%s.weight", tensor)));
    const char *bias = decoder_name(e, arena_printf(d->arena, "%s.bias", tensor));
    if (!draft_param_maybe(d, arena_printf(d->arena, "%s_bias", word),
                           arena_strndup(d->arena, dims, (size_t)(rest - dims)), rows, 0, bias))
        return arena_printf(d->arena, "linear(%s, %s)", x, word);
    return arena_printf(d->arena, "linear(%s, %s, %s_bias)", x, word, word);
}

static const char *norm(Decoder *e, const char *word, const char *tensor, const char *x)
{
    Draft *d = e->d;
    draft_param(d, word, "D", e->hidden, 0,
                decoder_name(e, arena_printf(d->arena, "%s.weight", tensor)));
    if (!e->family->is_phi)
        return arena_printf(d->arena, "rmsnorm(%s, %s%s, eps=%.9g)", x, word,
                            e->family->adds_one ? " + 1.0" : "", eps(e));
    draft_param(d, arena_printf(d->arena, "%s_bias", word), "D", e->hidden, 0,
                decoder_name(e, arena_printf(d->arena, "%s.bias", tensor)));
    return arena_printf(d->arena, "layernorm(%s, %s, %s_bias, eps=%.9g)", x, word, word, eps(e));
}

/* One call of `group` for keys g: "start" and "stop" of slices of q, k and v. */
static const char *group_call(Decoder *e, bool is_first, const char *norms)
{
    if (has_sinks(e))
        norms = is_first
                    ? ", slice(sinks, axis=-1, stop=GROUP), nothing"
                    : ", slice(sinks, axis=-1, start=g * GROUP, stop=(g + 1) * GROUP), nothing";
    const char *slice =
        is_first ? "group(slice(q, axis=-1, stop=GROUP * SIZE), slice(k, axis=-1, stop=SIZE), "
                   "slice(v, axis=-1, stop=SIZE)%s, cos, sin, mask)"
                 : "group(slice(q, axis=-1, start=g * GROUP * SIZE, stop=(g + 1) * GROUP * SIZE), "
                   "slice(k, axis=-1, start=g * SIZE, stop=(g + 1) * SIZE), slice(v, axis=-1, "
                   "start=g * SIZE, stop=(g + 1) * SIZE)%s, cos, sin, mask)";
    Sb sb;
    sb_init(&sb, e->d->arena);
    const char *at = strstr(slice, "%s");
    sb_putn(&sb, slice, (size_t)(at - slice));
    sb_put(&sb, norms);
    sb_put(&sb, at + 2);
    return sb.text;
}

/* q or k, behind its norm where that is of all heads at once. */
static const char *normed(Decoder *e, const char *word, const char *dims, int64_t rows,
                          const char *value)
{
    Draft *d = e->d;
    if (!norms_all_heads(e))
        return value;
    draft_param(d, word, dims, rows, 0,
                decoder_name(e, arena_printf(d->arena, "self_attn.%s.weight", word)));
    return arena_printf(d->arena, "rmsnorm(%s, %s, eps=%.9g)", value, word, eps(e));
}

/* Statements are gathered while parameters are written, which come first. */
static void put_attention(Decoder *e, Sb *body)
{
    Draft *d = e->d;
    int64_t q_rows = e->heads * e->size, k_rows = e->keys * e->size;
    const char *q = "HEADS * SIZE, D", *k = "KEYS * SIZE, D", *norms = "";
    sb_printf(body, "    n = %s\n", norm(e, "norm", "input_layernorm", "x"));
    if (draft_has(d, decoder_name(e, "self_attn.qkv_proj.weight"))) {
        sb_printf(body, "    qkv = %s\n",
                  decoder_linear(e, "qkv_proj", "(HEADS + 2 * KEYS) * SIZE, D", q_rows + 2 * k_rows,
                                 e->hidden, "self_attn.qkv_proj", "n"));
        sb_put(body, "    q = slice(qkv, axis=-1, stop=HEADS * SIZE)\n"
                     "    k = slice(qkv, axis=-1, start=HEADS * SIZE, stop=(HEADS + KEYS) * SIZE)\n"
                     "    v = slice(qkv, axis=-1, start=(HEADS + KEYS) * SIZE)\n");
    } else {
        const char *row =
            decoder_linear(e, "q_proj", q, q_rows, e->hidden, "self_attn.q_proj", "n");
        sb_printf(body, "    q = %s\n", normed(e, "q_norm", "HEADS * SIZE", q_rows, row));
        row = decoder_linear(e, "k_proj", k, k_rows, e->hidden, "self_attn.k_proj", "n");
        sb_printf(body, "    k = %s\n", normed(e, "k_norm", "KEYS * SIZE", k_rows, row));
        sb_printf(body, "    v = %s\n",
                  decoder_linear(e, "v_proj", k, k_rows, e->hidden, "self_attn.v_proj", "n"));
    }
    if (has_norms(e) && !norms_all_heads(e)) {
        draft_param(d, "q_norm", "SIZE", e->size, 0, decoder_name(e, "self_attn.q_norm.weight"));
        draft_param(d, "k_norm", "SIZE", e->size, 0, decoder_name(e, "self_attn.k_norm.weight"));
        norms = ", q_norm, k_norm";
    }
    if (has_sinks(e)) {
        draft_param(d, "sinks", "HEADS", e->heads, 0, decoder_name(e, "self_attn.sinks"));
        sb_put(body, "    nothing = reshape(slice(norm, axis=-1, stop=SIZE), [1, SIZE]) * 0.0\n");
    }
    sb_printf(body, "    c = %s\n", group_call(e, true, norms));
    if (e->keys > 1)
        sb_printf(body, "    for g in 1 .. KEYS {\n        c = concat(c, %s, axis=-1)\n    }\n",
                  group_call(e, false, norms));
    sb_printf(body, "    o = %s\n",
              decoder_linear(e, "o_proj", "D, HEADS * SIZE", e->hidden, q_rows,
                             e->family->is_phi ? "self_attn.dense" : "self_attn.o_proj", "c"));
}

static void put_inner(Decoder *e, Sb *body, const char *value)
{
    sb_printf(body, "    h = %s\n", draft_rounded(e->d, value));
}

/* The name of its result. */
static const char *put_feed_forward(Decoder *e, Sb *body, const char *in)
{
    Draft *d = e->d;
    const char *act = draft_act(d, e->family->act);
    if (e->family->experts)
        return experts_put(e, body, in);
    if (e->family->is_phi) {
        const char *up = decoder_linear(e, "fc1", "F, D", e->inner, e->hidden, "mlp.fc1", in);
        put_inner(e, body, arena_printf(d->arena, "%s(%s)", act, up));
        sb_printf(body, "    f = %s\n",
                  decoder_linear(e, "fc2", "D, F", e->hidden, e->inner, "mlp.fc2", "h"));
        return "f";
    }
    if (draft_has(d, decoder_name(e, "mlp.gate_up_proj.weight"))) {
        sb_printf(body, "    both = %s\n",
                  decoder_linear(e, "gate_up", "2 * F, D", 2 * e->inner, e->hidden,
                                 "mlp.gate_up_proj", in));
        put_inner(e, body,
                  arena_printf(d->arena,
                               "%s(slice(both, axis=-1, stop=F)) * slice(both, axis=-1, start=F)",
                               act));
    } else {
        const char *gate =
            decoder_linear(e, "gate", "F, D", e->inner, e->hidden, "mlp.gate_proj", in);
        const char *up = decoder_linear(e, "up", "F, D", e->inner, e->hidden, "mlp.up_proj", in);
        put_inner(e, body, arena_printf(d->arena, "%s(%s) * %s", act, gate, up));
    }
    sb_printf(body, "    f = %s\n",
              decoder_linear(e, "down", "D, F", e->hidden, e->inner, "mlp.down_proj", "h"));
    return "f";
}

static void put_layer(Decoder *e)
{
    Draft *d = e->d;
    Sb body;
    bool has_sandwich = draft_has(d, decoder_name(e, "pre_feedforward_layernorm.weight"));
    sb_init(&body, d->arena);
    draft_line(d,
               "block layer[i] (x: %s[T, D], cos: f32[T, TURNED], sin: f32[T, TURNED], mask: "
               "f32[T, T]) -> %s[T, D] {",
               d->format, d->format);
    put_attention(e, &body);
    if (e->family->is_phi) {
        put_feed_forward(e, &body, "n");
        sb_put(&body, "    return x + o + f\n");
    } else if (has_sandwich) {
        sb_printf(&body, "    a = x + %s\n",
                  norm(e, "attention_norm", "post_attention_layernorm", "o"));
        sb_printf(&body, "    m = %s\n", norm(e, "before_norm", "pre_feedforward_layernorm", "a"));
        put_feed_forward(e, &body, "m");
        sb_printf(&body, "    return a + %s\n",
                  norm(e, "after_norm", "post_feedforward_layernorm", "f"));
    } else {
        sb_put(&body, "    a = x + o\n");
        sb_printf(&body, "    m = %s\n", norm(e, "ffn_norm", "post_attention_layernorm", "a"));
        const char *f = put_feed_forward(e, &body, "m");
        sb_printf(&body, "    return a + %s\n", f);
    }
    draft_line(d, "%s}\n", body.text);
}

/* Does layer i look at near tokens only? */
static bool is_near(const Decoder *e, int64_t i)
{
    const DraftConfig *c = &e->d->config;
    if (i < c->layer_types.num)
        return strcmp(c->layer_types.elem[i], "sliding_attention") == 0;
    if (!e->family->has_window)
        return false;
    return strcmp(e->family->type, "gemma2") == 0 ? i % 2 == 0
                                                  : (i + 1) % (c->pattern ? c->pattern : 6) != 0;
}

static void put_calls(Decoder *e)
{
    Draft *d = e->d;
    if (!e->has_near) {
        draft_line(d, "    h = x");
        draft_line(d, "    for i in 0 .. LAYERS { h = layer[i](h, cos, sin, mask) }");
        return;
    }
    for (int64_t i = 0; i < d->layers; i++) {
        const char *x = i == 0 ? "x" : arena_printf(d->arena, "h%lld", (long long)(i - 1));
        const char *positions = is_near(e, i) && e->has_local ? "near_cos, near_sin" : "cos, sin";
        draft_line(d, "    h%lld = layer[%lld](%s, %s, %s)", (long long)i, (long long)i, x,
                   positions, is_near(e, i) ? "near" : "mask");
    }
    draft_line(d, "    h = h%lld", (long long)(d->layers - 1));
}

/* The norm behind the last layer and the projection to the vocabulary, which may be the embeddings.
 */
static void put_model(Decoder *e)
{
    Draft *d = e->d;
    const char *head = NULL, *tied = arena_printf(d->arena, "%sembed_tokens.weight", d->prefix);
    if (draft_has(d, "lm_head.weight"))
        head = "lm_head.weight";
    else if (draft_has(d, "language_model.lm_head.weight"))
        head = "language_model.lm_head.weight";
    else if (draft_has(d, tied))
        head = tied;
    int64_t words = head ? draft_dim(d, head, 0) : 0;
    draft_line(d,
               "model %s (x: %s[T, D], cos: f32[T, TURNED], sin: f32[T, TURNED], mask: f32[T, "
               "T]%s%s) -> (y: %s[T, D]%s) {",
               e->family->type, d->format, e->has_near ? ", near: f32[T, T]" : "",
               e->has_local ? ", near_cos: f32[T, TURNED], near_sin: f32[T, TURNED]" : "",
               d->format,
               head ? arena_printf(d->arena, ", logits: f32[T, %lld]", (long long)words) : "");
    const char *last = e->family->is_phi ? "final_layernorm" : "norm";
    e->layer = d->prefix;
    const char *y = norm(e, "last", last, "h"), *logits = NULL;
    if (head) {
        draft_param(d, "words", arena_printf(d->arena, "%lld, D", (long long)words), words,
                    e->hidden, head);
        bool biased =
            draft_param_maybe(d, "words_bias", arena_printf(d->arena, "%lld", (long long)words),
                              words, 0, "lm_head.bias");
        logits = biased ? "linear(y, words, words_bias)" : "linear(y, words)";
        if (d->config.soft_logits > 0)
            logits = arena_printf(d->arena, "tanh(%s / %.9g) * %.9g", logits, d->config.soft_logits,
                                  d->config.soft_logits);
    }
    put_calls(e);
    draft_line(d, "    y = %s%s%s\n}", y, logits ? "\n    logits = " : "", logits ? logits : "");
}

static void put_head_comment(Decoder *e)
{
    Draft *d = e->d;
    const DraftConfig *c = &d->config;
    double theta = c->theta > 0 ? c->theta : 10000;
    draft_line(d, "#\n# What the language has no words for is an input, for T tokens at once:");
    draft_line(d, "#   x     rows of %sembed_tokens.weight%s", d->prefix,
               e->family->scales ? arena_printf(d->arena, " times sqrt(%lld)", (long long)e->hidden)
                                 : "");
    draft_line(
        d, "#   cos, sin  of p * %.9g^(-2 (j mod %lld) / %lld), p the token's place, j the column",
        theta, (long long)e->turned / 2, (long long)e->turned);
    if (c->local_theta > 0)
        draft_line(d, "#   near_cos, near_sin  the same with %.9g", c->local_theta);
    if (c->rope)
        draft_line(d, "#         but scaled: see rope_scaling in config.json");
    draft_line(d, "#   mask  0 where a row's token may look at a column's, -1e9 elsewhere (above "
                  "the diagonal)");
    if (c->window > 0)
        draft_line(d, "#   %s  -1e9 for tokens %lld places away and more, too",
                   e->has_near ? "near" : "    ", (long long)c->window);
    draft_line(d, "# Keys and values are not kept from one run to the next.");
}

static void put_sizes(Decoder *e)
{
    Draft *d = e->d;
    draft_line(d, "const D = %lld\nconst F = %lld", (long long)e->hidden, (long long)e->inner);
    if (!e->has_near)
        draft_line(d, "const LAYERS = %lld", (long long)d->layers);
    draft_line(d,
               "const HEADS = %lld\nconst KEYS = %lld  # heads of keys and values\nconst GROUP = "
               "HEADS / KEYS",
               (long long)e->heads, (long long)e->keys);
    draft_line(d,
               "const SIZE = %lld  # of a head\nconst TURNED = %lld  # of its columns are rotated",
               (long long)e->size, (long long)e->turned);
    if (e->family->experts)
        experts_put_sizes(e);
    draft_line(d, "dim T in [16, 64, 256]\n");
}

bool draft_knows_experts(const char *type)
{
    const Family *family = type ? find_family(type) : NULL;
    return family && family->experts;
}

void draft_decoder(Draft *d)
{
    Decoder e = {.d = d, .family = find_family(d->config.type)};
    e.layer = arena_printf(d->arena, "%slayers.{i}.", d->prefix);
    if (!e.family) {
        diag_error(d->diag, (Span){0}, E_DRAFT, "%s/config.json: no draft for models of type '%s'",
                   d->folder, d->config.type);
        diag_help(d->diag,
                  "there are drafts for llama, mistral, qwen2, qwen3, gemma, gemma2, "
                  "gemma3, phi, phi3, mixtral, qwen2_moe, qwen3_moe, olmoe, gpt_oss, bert, "
                  "and linear layers one behind the other");
        return;
    }
    if (!measure(&e))
        return;
    for (int64_t i = 0; i < d->layers; i++)
        e.has_near |= is_near(&e, i);
    e.has_local = e.has_near && d->config.local_theta > 0;
    put_head_comment(&e);
    draft_begin(d);
    put_sizes(&e);
    put_head(&e);
    put_group(&e);
    put_layer(&e);
    put_model(&e);
    if (e.family->experts)
        experts_put_rules(&e);
}
