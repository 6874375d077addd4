/* Feed-forward layers of experts, as Mixtral, Qwen, OLMoE and gpt-oss have them: a router, the
 * experts that it chooses, and perhaps one that all rows go to. */
#include "draft/decoder.h"

#include <string.h>

const ExpertNames experts_mixtral = {.router = "block_sparse_moe.gate",
                                     .gate = "block_sparse_moe.experts.*.w1.weight",
                                     .up = "block_sparse_moe.experts.*.w3.weight",
                                     .down = "block_sparse_moe.experts.*.w2.weight",
                                     .normalised = true};
const ExpertNames experts_named = {.router = "mlp.gate",
                                   .gate = "mlp.experts.*.gate_proj.weight",
                                   .up = "mlp.experts.*.up_proj.weight",
                                   .down = "mlp.experts.*.down_proj.weight"};
/* Gates and ups lie in one, in turn. Plain ones are stored [in, out]. */
const ExpertNames experts_gpt_oss = {
    .router = "mlp.router", .down = "mlp.experts.down_proj", .normalised = true};
static const char both[] = "mlp.experts.gate_up_proj",
                  shared[] = "mlp.shared_expert.up_proj.weight";

static bool is_gpt_oss(const Decoder *e)
{
    return !e->family->experts->gate;
}

/* Experts in one tensor: are they a module that is stored quantised, [experts, out, in]? */
static bool is_stored(const Decoder *e)
{
    const char *name = arena_printf(e->d->arena, "%slayers.0.%s", e->d->prefix, both);
    return checkpoint_find(e->d->stored, name) != NULL;
}

static bool fail(Draft *d, const char *what)
{
    diag_error(d->diag, (Span){0}, E_DRAFT, "%s: %s", d->folder, what);
    return false;
}

/* Layers without experts among those with them would be blocks of their own. */
static bool all_have_experts(Decoder *e)
{
    Draft *d = e->d;
    const char *router = arena_printf(d->arena, "%s.weight", e->family->experts->router);
    for (int64_t i = 0; i < d->layers; i++)
        if (!draft_find(d, decoder_name(e, router), i))
            return fail(d, arena_printf(d->arena,
                                        "layer %lld has no experts (there is no '%s'), and others "
                                        "have; drafts say models whose layers are alike",
                                        (long long)i, router));
    return true;
}

/* The numbers of config.json, which the router's rows confirm: they may be any. */
static bool numbers_fit(Decoder *e)
{
    Draft *d = e->d;
    const DraftConfig *c = &d->config;
    if (!c->experts)
        return fail(d, "config.json does not say how many experts there are (num_experts or "
                       "num_local_experts)");
    if (!c->chosen)
        return fail(d, "config.json does not say how many experts each token goes to "
                       "(num_experts_per_tok)");
    if (c->experts < 2 || c->chosen < 1 || c->chosen > c->experts)
        return fail(d,
                    arena_printf(d->arena, "config.json says that %lld of %lld experts are chosen",
                                 (long long)c->chosen, (long long)c->experts));
    const char *router = arena_printf(d->arena, "%s.weight", e->family->experts->router);
    int64_t rows = draft_dim(d, decoder_name(e, router), 0);
    if (rows && rows != c->experts)
        return fail(d,
                    arena_printf(d->arena,
                                 "config.json says %lld experts, but the router '%s' has %lld "
                                 "rows, one for each",
                                 (long long)c->experts,
                                 draft_find(d, decoder_name(e, router), 0)->name, (long long)rows));
    return rows > 0;
}

bool experts_measure(Decoder *e)
{
    Draft *d = e->d;
    const DraftConfig *c = &d->config;
    const ExpertNames *names = e->family->experts;
    if (c->clip > 0)
        return fail(d, "projections are bounded (clip_qkv), which drafts do not say yet");
    if (!all_have_experts(e) || !numbers_fit(e))
        return false;
    if (!is_gpt_oss(e))
        e->inner = draft_dim(d, decoder_name(e, names->gate), 0);
    else
        e->inner = draft_half(d, decoder_name(e, both), is_stored(e) ? 1 : 2);
    return e->inner > 0;
}

void experts_put_sizes(Decoder *e)
{
    Draft *d = e->d;
    draft_line(d, "const EXPERTS = %lld\nconst CHOSEN = %lld  # of them for each token",
               (long long)d->config.experts, (long long)d->config.chosen);
    if (!is_gpt_oss(e) && draft_has(d, decoder_name(e, shared)))
        draft_line(d, "const SHARED = %lld  # rows of the expert that all tokens go to",
                   (long long)draft_dim(d, decoder_name(e, shared), 0));
}

static void put_route(Decoder *e, Sb *body, const char *in)
{
    Draft *d = e->d;
    const ExpertNames *names = e->family->experts;
    sb_printf(
        body, "    l = %s\n",
        decoder_linear(e, "router", "EXPERTS, D", d->config.experts, e->hidden, names->router, in));
    sb_printf(body, "    r = topk(l, CHOSEN%s)\n    t = dispatch(%s, route=r)\n",
              names->normalised || d->config.normalised ? "" : ", weights=softmax(l)", in);
}

static const char *grouped(Decoder *e, const char *word, const char *dims, int64_t rows,
                           int64_t cols, const char *tensor, const char *x)
{
    draft_param_experts(e->d, word, dims, rows, cols, decoder_name(e, tensor));
    return arena_printf(e->d->arena, "grouped_linear(%s, %s, route=r)", x, word);
}

static void put_apart(Decoder *e, Sb *body)
{
    Draft *d = e->d;
    const ExpertNames *names = e->family->experts;
    const char *act = draft_act(d, e->family->act);
    const char *gate = grouped(e, "gate", "EXPERTS, F, D", e->inner, e->hidden, names->gate, "t");
    const char *up = grouped(e, "up", "EXPERTS, F, D", e->inner, e->hidden, names->up, "t");
    sb_printf(body, "    h = %s\n",
              draft_rounded(d, arena_printf(d->arena, "%s(%s) * %s", act, gate, up)));
    sb_printf(body, "    f = combine(%s, route=r)\n",
              grouped(e, "down", "EXPERTS, D, F", e->hidden, e->inner, names->down, "h"));
}

/* An expert that all rows go to, weighed by a number of its own. */
static void put_shared(Decoder *e, Sb *body, const char *in)
{
    Draft *d = e->d;
    const char *act = draft_act(d, e->family->act);
    int64_t rows = draft_dim(d, decoder_name(e, shared), 0);
    const char *gate = decoder_linear(e, "shared_gate", "SHARED, D", rows, e->hidden,
                                      "mlp.shared_expert.gate_proj", in);
    const char *up = decoder_linear(e, "shared_up", "SHARED, D", rows, e->hidden,
                                    "mlp.shared_expert.up_proj", in);
    sb_printf(body, "    s = %s\n",
              draft_rounded(d, arena_printf(d->arena, "%s(%s) * %s", act, gate, up)));
    const char *down = decoder_linear(e, "shared_down", "D, SHARED", e->hidden, rows,
                                      "mlp.shared_expert.down_proj", "s");
    const char *share =
        decoder_linear(e, "shared_router", "1, D", 1, e->hidden, "mlp.shared_expert_gate", in);
    sb_printf(body, "    g = f + sigmoid(%s) * %s\n", share, down);
}

static void put_weight(Decoder *e, const char *word, const char *rows, const char *cols, int64_t n,
                       int64_t k, const char *tensor)
{
    Draft *d = e->d;
    const char *dims = is_stored(e) ? arena_printf(d->arena, "EXPERTS, %s, %s", rows, cols)
                                    : arena_printf(d->arena, "EXPERTS, %s, %s", cols, rows);
    draft_param_experts(d, word, dims, is_stored(e) ? n : k, is_stored(e) ? k : n,
                        decoder_name(e, tensor));
    draft_param_experts(d, arena_printf(d->arena, "%s_bias", word),
                        arena_printf(d->arena, "EXPERTS, %s", rows), n, 0,
                        decoder_name(e, arena_printf(d->arena, "%s_bias", tensor)));
}

/* Gates in even rows, ups in odd ones, both bounded. */
static void put_in_turn(Decoder *e, Sb *body)
{
    Draft *d = e->d;
    double bound = d->config.bound > 0 ? d->config.bound : 7;
    put_weight(e, "gate_up", "2 * F", "D", 2 * e->inner, e->hidden, both);
    put_weight(e, "down", "D", "F", e->hidden, e->inner, e->family->experts->down);
    const char *pairs = is_stored(e) ? "gate_up" : "transpose(gate_up, perm=[0, 2, 1])";
    sb_printf(body,
              "    pairs = reshape(%s, [EXPERTS, F, 2, D])  # gates in even rows, ups in odd ones\n"
              "    gate = reshape(slice(pairs, axis=2, stop=1), [EXPERTS, F, D])\n"
              "    up = reshape(slice(pairs, axis=2, start=1), [EXPERTS, F, D])\n"
              "    biases = reshape(gate_up_bias, [EXPERTS, F, 2])\n"
              "    gate_bias = reshape(slice(biases, axis=2, stop=1), [EXPERTS, F])\n"
              "    up_bias = reshape(slice(biases, axis=2, start=1), [EXPERTS, F])\n",
              pairs);
    if (!is_stored(e))
        sb_put(body, "    down_turned = transpose(down, perm=[0, 2, 1])\n");
    sb_printf(body,
              "    g = min(grouped_linear(t, gate, gate_bias, route=r), %.9g)\n"
              "    u = min(max(grouped_linear(t, up, up_bias, route=r), %.9g), %.9g)\n",
              bound, -bound, bound);
    sb_printf(body, "    h = %s\n", draft_rounded(d, "(u + 1.0) * g * sigmoid(1.702 * g)"));
    sb_printf(body, "    f = combine(grouped_linear(h, %s, down_bias, route=r), route=r)\n",
              is_stored(e) ? "down" : "down_turned");
}

const char *experts_put(Decoder *e, Sb *body, const char *in)
{
    put_route(e, body, in);
    if (is_gpt_oss(e)) {
        put_in_turn(e, body);
        return "f";
    }
    put_apart(e, body);
    if (!draft_has(e->d, decoder_name(e, shared)))
        return "f";
    put_shared(e, body, in);
    return "g";
}

void experts_put_rules(Decoder *e)
{
    if (is_gpt_oss(e) && is_stored(e))
        draft_line(e->d, "\n# Under the scheme that they are stored in, views of a weight have its "
                         "values, exactly.\n"
                         "scheme stored { weight mxfp4 }\n"
                         "quant { layer[*].(gate|up) : stored }");
}
