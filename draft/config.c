/* config.json: the keys that matter, wherever they stand: models with several parts keep those of
 * the language model in "text_config". */
#include "draft/draft.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 20, MAX_TEXT = 200 };

typedef enum Kind { TEXT, WHOLE, REAL, YES } Kind;
static const struct Key {
    const char *name;
    Kind kind;
    size_t at;
} keys[] = {
    {"model_type", TEXT, offsetof(DraftConfig, type)},
    {"hidden_act", TEXT, offsetof(DraftConfig, act)},
    {"hidden_activation", TEXT, offsetof(DraftConfig, act)},
    {"activation", TEXT, offsetof(DraftConfig, act)},
    {"hidden_size", WHOLE, offsetof(DraftConfig, hidden)},
    {"intermediate_size", WHOLE, offsetof(DraftConfig, inner)},
    {"num_hidden_layers", WHOLE, offsetof(DraftConfig, layers)},
    {"num_attention_heads", WHOLE, offsetof(DraftConfig, heads)},
    {"num_key_value_heads", WHOLE, offsetof(DraftConfig, keys)},
    {"head_dim", WHOLE, offsetof(DraftConfig, size)},
    {"num_experts", WHOLE, offsetof(DraftConfig, experts)},
    {"num_local_experts", WHOLE, offsetof(DraftConfig, experts)},
    {"num_experts_per_tok", WHOLE, offsetof(DraftConfig, chosen)},
    {"norm_topk_prob", YES, offsetof(DraftConfig, normalised)},
    {"swiglu_limit", REAL, offsetof(DraftConfig, bound)},
    {"clip_qkv", REAL, offsetof(DraftConfig, clip)},
    {"sliding_window", WHOLE, offsetof(DraftConfig, window)},
    {"sliding_window_pattern", WHOLE, offsetof(DraftConfig, pattern)},
    {"rms_norm_eps", REAL, offsetof(DraftConfig, eps)},
    {"layer_norm_eps", REAL, offsetof(DraftConfig, eps)},
    {"rope_theta", REAL, offsetof(DraftConfig, theta)},
    {"rope_local_base_freq", REAL, offsetof(DraftConfig, local_theta)},
    {"partial_rotary_factor", REAL, offsetof(DraftConfig, partial)},
    {"query_pre_attn_scalar", REAL, offsetof(DraftConfig, scalar)},
    {"attn_logit_softcapping", REAL, offsetof(DraftConfig, soft_scores)},
    {"final_logit_softcapping", REAL, offsetof(DraftConfig, soft_logits)},
};

typedef struct Reader {
    Arena *arena;
    Json json;
    DraftConfig *config;
} Reader;

/* The text of the next value, whatever it is. */
static const char *raw_value(Reader *r)
{
    size_t start = r->json.pos;
    if (!json_skip(&r->json))
        return "";
    while (start < r->json.pos && strchr(" \t\r\n", r->json.text[start]))
        start++;
    return arena_strndup(r->arena, r->json.text + start, r->json.pos - start);
}

static void read_value(Reader *r, const struct Key *key)
{
    char text[MAX_TEXT];
    char *at = (char *)r->config + key->at;
    if (key->kind == TEXT) {
        if (json_at_string(&r->json) && json_string(&r->json, text, sizeof text))
            *(const char **)(void *)at = arena_strdup(r->arena, text);
        else
            raw_value(r);
        return;
    }
    const char *raw = raw_value(r);
    double value = strtod(raw, NULL); /* of null, 0: as if the key were not there */
    if (key->kind == YES)
        *(bool *)(void *)at = strcmp(raw, "true") == 0;
    else if (key->kind == REAL)
        *(double *)(void *)at = value;
    else if (value >= 0 && value <= LIMIT_DIM)
        *(int64_t *)(void *)at = (int64_t)value;
}

static void read_layer_types(Reader *r)
{
    char text[MAX_TEXT];
    bool first = true;
    if (r->json.text[r->json.pos] == 'n') { /* null */
        json_skip(&r->json);
        return;
    }
    if (!json_array_begin(&r->json))
        return;
    while (json_next_element(&r->json, &first))
        if (json_string(&r->json, text, sizeof text))
            ARRAY_PUSH(r->arena, &r->config->layer_types,
                       (const char *)arena_strdup(r->arena, text));
}

static void read_object(Reader *r, const char *outer);

static void read_member(Reader *r, const char *outer, const char *name)
{
    while (r->json.pos < r->json.len && strchr(" \t\r\n", r->json.text[r->json.pos]))
        r->json.pos++;
    bool is_object = r->json.pos < r->json.len && r->json.text[r->json.pos] == '{';
    if (strcmp(name, "layer_types") == 0) {
        read_layer_types(r);
        return;
    }
    if (is_object && strcmp(name, "rope_scaling") == 0) {
        r->config->rope = raw_value(r);
        return;
    }
    if (is_object &&
        (strcmp(name, "text_config") == 0 || strcmp(name, "quantization_config") == 0 ||
         strcmp(name, "rope_parameters") == 0)) {
        read_object(r, name);
        return;
    }
    if (strcmp(outer, "quantization_config") == 0) {
        const char *raw = raw_value(r);
        if (strcmp(name, "quant_method") == 0)
            r->config->quantised = raw;
        return;
    }
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strcmp(keys[i].name, name) == 0) {
            read_value(r, &keys[i]);
            return;
        }
    json_skip(&r->json);
}

static void read_object(Reader *r, const char *outer)
{
    char name[MAX_TEXT];
    bool first = true;
    if (!json_object_begin(&r->json))
        return;
    while (json_next_key(&r->json, name, sizeof name, &first))
        read_member(r, outer, name);
}

bool draft_config(Arena *arena, Diag *diag, const char *folder, DraftConfig *ret)
{
    IoError err;
    uint64_t size;
    *ret = (DraftConfig){0};
    const char *path = arena_printf(arena, "%s/config.json", folder);
    char *text = file_read(path, MAX_CONFIG, &size, &err);
    if (!text)
        return true;
    Reader r = {.arena = arena, .config = ret};
    json_init(&r.json, text, (size_t)size);
    read_object(&r, "");
    bool ok = json_end(&r.json);
    if (!ok)
        diag_error(diag, (Span){0}, E_DRAFT, "%s: byte %zu: %s", path, r.json.pos, r.json.error);
    free(text);
    return ok;
}
