/* onnx/text: names, numbers, statements and params of the text, and the text itself. Statements are
 * collected as they come; only what an output needs is printed. */
#include "onnx/import.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Words ---------------------------------------------------------------------------------------- */

/* Words of the language that would read badly, or not at all, as names. */
static const char *const reserved[] = {
    "version", "weights", "const", "dim",    "calibrate", "scheme",  "block",    "model",
    "expect",  "quant",   "auto",  "shard",  "param",     "from",    "for",      "in",
    "return",  "default", "round", "linear", "matmul",    "relu",    "gelu",     "gelu_tanh",
    "silu",    "sigmoid", "tanh",  "concat", "layernorm", "split",   "softmax",  "rmsnorm",
    "reshape", "slice",   "cast",  "min",    "transpose", "max",     "f32",      "f16",
    "bf16",    "topk",    "keep",  "fused",  "invariant", "combine", "dispatch", "grouped_linear",
};

/* Letters, digits and underscores of the end of a name. */
static const char *as_word(Import *im, const char *hint)
{
    size_t len = strlen(hint);
    Sb sb;

    sb_init(&sb, im->arena);
    for (const char *c = len > 40 ? hint + len - 40 : hint; *c; c++) {
        bool fits = (uint8_t)*c < 0x80 && isalnum((unsigned char)*c);
        if (fits)
            sb_putc(&sb, *c);
        else if (sb.len && sb.text[sb.len - 1] != '_')
            sb_putc(&sb, '_');
    }
    while (sb.len && sb.text[sb.len - 1] == '_')
        sb.text[--sb.len] = 0;
    const char *word = sb.len ? sb.text : "v";
    return isdigit((unsigned char)*word) ? arena_printf(im->arena, "v%s", word) : word;
}

const char *word_new(Import *im, const char *hint)
{
    const char *word = as_word(im, hint), *ret = word;
    bool taken = map_has(&im->words, word);

    for (size_t i = 0; i < COUNT_OF(reserved); i++)
        taken = taken || !strcmp(reserved[i], word);
    if (taken) {
        intptr_t last = (intptr_t)map_get(&im->words, word); /* number that this word took */
        last = last ? last : 1;
        do
            ret = arena_printf(im->arena, "%s_%d", word, (int)++last);
        while (map_has(&im->words, ret));
        map_put(&im->words, word, (void *)last);
    }
    map_put(&im->words, ret, (void *)1);
    return ret;
}

const char *number_text(Import *im, double value)
{
    Sb sb;

    sb_init(&sb, im->arena);
    if (!isfinite((float)value))
        refuse(im, "it computes with %g, which the language cannot say", value);
    sb_put(&sb, value < 0 ? "(" : "");
    if ((double)(float)value == value)
        sb_put_f32(&sb, (float)value);
    else
        sb_put_f64(&sb, value);
    sb_put(&sb, value < 0 ? ")" : "");
    return sb.text;
}

const char *size_text(Import *im, Size size)
{
    Sb sb;

    sb_init(&sb, im->arena);
    if (size.n != 1 || !size.sym[0])
        sb_printf(&sb, "%lld", (long long)size.n);
    for (int i = 0; i < 2; i++)
        if (size.sym[i])
            sb_printf(&sb, "%s%s", sb.len ? "*" : "", im->symbols.elem[size.sym[i] - 1].word);
    return sb.text;
}

const char *sizes_text(Import *im, const Size *dim, int rank)
{
    Sb sb;

    sb_init(&sb, im->arena);
    sb_putc(&sb, '[');
    for (int i = 0; i < rank; i++)
        sb_printf(&sb, "%s%s", i ? ", " : "", size_text(im, dim[i]));
    sb_putc(&sb, ']');
    return sb.text;
}

/* Statements ----------------------------------------------------------------------------------- */

static const char *say_text(Import *im, const char *hint, const char *expr)
{
    Statement s = {word_new(im, hint), expr};

    ARRAY_PUSH(im->arena, &im->statements, s);
    return s.name;
}

const char *say(Import *im, const char *hint, const char *fmt, ...)
{
    Sb sb;
    va_list args;

    sb_init(&sb, im->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    return say_text(im, hint, sb.text);
}

void say_value(Import *im, Value *v, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    const char *cast = v->type == ONNX_F16 ? "f16" : v->type == ONNX_BF16 ? "bf16" : NULL;

    sb_init(&sb, im->arena);
    sb_put(&sb, cast ? "cast(" : "");
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    if (cast)
        sb_printf(&sb, ", %s)", cast);
    v->text = say_text(im, v->name, sb.text);
}

/* The text ------------------------------------------------------------------------------------- */

/* Counts the words of an expression as needed. */
static void need(Import *im, Map *needed, const char *expr)
{
    while (*expr) {
        const char *start = expr;
        while (isalnum((unsigned char)*expr) || *expr == '_')
            expr++;
        if (expr == start) {
            expr++;
            continue;
        }
        const char *word = arena_strndup(im->arena, start, (size_t)(expr - start));
        intptr_t num = (intptr_t)map_get(needed, word);
        map_put(needed, word, (void *)(num + 1));
    }
}

static bool output_say(Import *im, const OnnxPort *port, Sb *head, Map *needed)
{
    Value *v = value_find(im, port->name);

    if (!v)
        return refuse(im, "output '%.100s': no node makes it", port->name);
    const char *text = operand(im, v);
    if (!text || !v->text)
        return text && refuse(im, "output '%.100s' is a constant", port->name);
    FormatId fmt = v->type == ONNX_F16 ? FMT_F16 : v->type == ONNX_BF16 ? FMT_BF16 : FMT_F32;
    if (v->is_codes && v->zero)
        text = arena_printf(im->arena, "%s + %s", text, number_text(im, (double)v->zero));
    if (v->is_codes || v->type == ONNX_I32)
        note(im, "Integers of the model go in and out as f32.");
    Statement s = {map_get(&im->out_words, port->name), text};
    ARRAY_PUSH(im->arena, &im->statements, s);
    need(im, needed, s.name);
    sb_printf(head, "%s%s: %s%s", head->len ? ", " : "", s.name, format_info[fmt].name,
              sizes_text(im, v->dim, v->rank));
    return true;
}

/* An output that only renames a statement that nothing else reads takes its place. */
static void join_outputs(Import *im, const Map *needed)
{
    int first = im->statements.num - im->m->outputs.num;
    Map at;

    map_init(&at, im->arena);
    for (int i = 0; i < first; i++)
        map_put(&at, im->statements.elem[i].name, &im->statements.elem[i]);
    for (int i = first; i < im->statements.num; i++) {
        Statement *s = &im->statements.elem[i], *made = map_get(&at, s->expr);
        if (!made || (intptr_t)map_get(needed, made->name) != 1)
            continue;
        s->expr = made->expr;
        made->expr = NULL;
    }
}

/* An element of a param that is no finite number, which no text would be compiled with. */
static bool item_is_finite(Import *im, const OnnxItem *item)
{
    const OnnxTensor *t = item->from;
    uint64_t num = 1;

    if (!item->own && (!t || !is_float(t->type)))
        return true;
    for (int i = 0; i < item->rank; i++)
        num *= (uint64_t)item->dim[i];
    for (uint64_t i = 0; i < num; i++) {
        double value = item->own ? (double)item->own[i] : onnx_real(t, i);
        if (!isfinite(value))
            return refuse(im, "element %llu of the constant '%.100s' is %g, no finite number",
                          (unsigned long long)i, t ? t->name : item->name, value);
    }
    return true;
}

static bool params_are_finite(Import *im, const Map *needed)
{
    bool ok = true;

    for (int i = 0; i < im->param_list.num; i++) {
        const Param *p = im->param_list.elem[i];
        for (int k = 0; k < 3 && map_has(needed, p->name); k++)
            ok = (!p->item[k] || item_is_finite(im, p->item[k])) && ok;
    }
    return ok;
}

/* The language has no inputs that no output depends on. */
static bool inputs_are_read(Import *im, const Map *needed)
{
    bool ok = true;

    for (int i = 0; i < im->m->inputs.num; i++) {
        const char *name = im->m->inputs.elem[i]->name;
        if (map_has(needed, value_find(im, name)->text))
            continue;
        ok = refuse(im, "no output is computed from input '%.100s'", name);
        diag_help(im->diag, "remove it from the graph's inputs, or write the text by hand");
    }
    return ok;
}

static void put_params(Import *im, Sb *sb, const Map *needed, OnnxText *ret)
{
    for (int i = 0; i < im->param_list.num; i++) {
        const Param *p = im->param_list.elem[i];
        if (!map_has(needed, p->name))
            continue;
        sb_printf(sb, "    param %s: %s from \"%s\"\n", p->name, p->type, p->item[0]->name);
        for (int k = 0; k < 3; k++)
            if (p->item[k])
                ARRAY_PUSH(im->arena, &ret->items, p->item[k]);
    }
}

/* A group's weights as compressed-tensors says them. */
static void put_weights(Sb *sb, const char *key)
{
    bool by_number = isdigit((unsigned char)*key);
    const char *asym = strchr(key, ' ');
    int len = (int)(asym ? (size_t)(asym - key) : strlen(key));

    sb_printf(sb,
              "      \"weights\": {\"num_bits\": 8, \"type\": \"int\", \"symmetric\": %s, "
              "\"strategy\": \"%.*s\", \"group_size\": %.*s},\n",
              asym ? "false" : "true", by_number ? 5 : len, by_number ? "group" : key,
              by_number ? len : 4, by_number ? key : "null");
}

/* config.json of compressed-tensors: a group for each granularity, its modules by name. */
static const char *config_text(Import *im, const Map *needed)
{
    Map group;
    Sb sb;

    map_init(&group, im->arena);
    for (int i = 0; i < im->param_list.num; i++) {
        const Param *p = im->param_list.elem[i];
        if (!p->group || !map_has(needed, p->name))
            continue;
        Sb *names = map_get(&group, p->group);
        if (!names) {
            names = ARENA_NEW(im->arena, Sb);
            sb_init(names, im->arena);
            map_put(&group, p->group, names);
        }
        sb_put(names, names->len ? ", " : "");
        sb_put_json_string(names, p->item[0]->name, strlen(p->item[0]->name) - strlen(".weight"));
    }
    if (!group.num)
        return NULL;
    sb_init(&sb, im->arena);
    sb_put(&sb, "{\"quantization_config\": {\n  \"quant_method\": \"compressed-tensors\",\n"
                "  \"format\": \"int-quantized\",\n  \"config_groups\": {");
    for (int i = 0; i < group.num; i++) {
        const char *key = group.entry[i].key;
        sb_printf(&sb, "%s\n    \"group_%d\": {\n      \"targets\": [%s],\n", i ? "," : "", i,
                  ((const Sb *)group.entry[i].value)->text);
        put_weights(&sb, key);
        sb_put(&sb, "      \"input_activations\": null}");
    }
    sb_put(&sb, "\n  }\n}}\n");
    return sb.text;
}

static void put_head(Import *im, Sb *sb, const Map *needed, bool has_weights)
{
    const char *name = strrchr(im->m->path, '/');

    name = name ? name + 1 : im->m->path;
    sb_put(sb, "# Imported from ");
    sb_put_safe(sb, name, strlen(name));
    sb_printf(sb, ", operations of set %lld.\n", (long long)im->opset);
    for (int i = 0; i < im->notes.num; i++)
        sb_printf(sb, "# %s\n", im->notes.entry[i].key);
    sb_put(sb, "version 1\n");
    if (has_weights)
        sb_put(sb, "weights \"model.safetensors\"\n");
    for (int i = 0; i < im->symbols.num; i++)
        sb_printf(sb, "dim %s in [1, 16, 256]\n", im->symbols.elem[i].word);
    for (int i = 0; i < im->schemes.num; i++)
        if (map_has(needed, im->schemes.entry[i].value))
            sb_printf(sb, "scheme %s { %s }\n", (const char *)im->schemes.entry[i].value,
                      im->schemes.entry[i].key);
}

static void put_model(Import *im, Sb *sb, const Map *needed, const char *params,
                      const char *results)
{
    sb_printf(sb, "\nmodel %s (", word_new(im, *im->m->graph ? im->m->graph : "graph"));
    for (int i = 0; i < im->m->inputs.num; i++) {
        const Value *v = value_find(im, im->m->inputs.elem[i]->name);
        FormatId fmt = v->is_codes ? FMT_F32 : onnx_type(v->type)->fmt;
        sb_printf(sb, "%s%s: %s%s", i ? ", " : "", v->text, format_info[fmt].name,
                  sizes_text(im, v->dim, v->rank));
    }
    sb_printf(sb, ") -> (%s) {\n%s", results, params);
    for (int i = 0; i < im->statements.num; i++) {
        const Statement *s = &im->statements.elem[i];
        if (s->expr && map_has(needed, s->name))
            sb_printf(sb, "    %s = %s\n", s->name, s->expr);
    }
    sb_put(sb, "}\n");
}

bool text_write(Import *im, OnnxText *ret)
{
    Map needed;
    Sb sb, results, params;
    bool ok = im->m->outputs.num > 0 || refuse(im, "the graph has no outputs");

    map_init(&needed, im->arena);
    sb_init(&results, im->arena);
    sb_init(&params, im->arena);
    sb_init(&sb, im->arena);
    for (int i = 0; i < im->m->outputs.num; i++)
        ok = output_say(im, im->m->outputs.elem[i], &results, &needed) && ok;
    if (!ok)
        return false;
    for (int i = im->statements.num - 1; i >= 0; i--)
        if (map_has(&needed, im->statements.elem[i].name))
            need(im, &needed, im->statements.elem[i].expr);
    if (!inputs_are_read(im, &needed) || !params_are_finite(im, &needed))
        return false;
    join_outputs(im, &needed);
    put_params(im, &params, &needed, ret);
    put_head(im, &sb, &needed, ret->items.num > 0);
    put_model(im, &sb, &needed, params.text, results.text);
    ret->text = sb.text;
    ret->config = config_text(im, &needed);
    ret->num_layers = im->num_layers;
    ret->num_integer = im->num_integer;
    return true;
}
