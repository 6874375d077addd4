/* checkpoint/groups: which group of a compressed-tensors configuration a module belongs to. A
 * target is a module's name, a class of modules, or "re:" and a regular expression of Python that
 * must match from the name's start; names go before expressions, these before classes. */
#include "checkpoint/groups.h"

#include "base/limits.h"

#include <regex.h>
#include <string.h>

/* POSIX's extended expressions hold those that configurations use, but for \d and \w. */
static const char *translated(Arena *arena, const char *python)
{
    static const struct {
        char escape;
        const char *posix;
    } classes[] = {{'d', "[0-9]"}, {'w', "[[:alnum:]_]"}, {'s', "[[:space:]]"}};
    Sb sb;

    sb_init(&sb, arena);
    for (const char *at = python; *at; at++) {
        bool found = false;
        for (size_t i = 0; at[0] == '\\' && i < COUNT_OF(classes); i++) {
            if (at[1] != classes[i].escape)
                continue;
            sb_put(&sb, classes[i].posix);
            found = true;
        }
        if (at[0] == '(' && at[1] == '?' && at[2] == ':') { /* a group that is not kept */
            sb_putc(&sb, '(');
            at += 2;
        } else if (found) {
            at++;
        } else {
            sb_putc(&sb, *at);
            if (at[0] == '\\' && at[1])
                sb_putc(&sb, *++at);
        }
    }
    return sb.text;
}

bool name_matches(Checkpoint *c, const char *python, const char *name, bool *ret, IoError *err)
{
    regex_t compiled;
    regmatch_t match;

    if (regcomp(&compiled, translated(c->arena, python), REG_EXTENDED) != 0)
        return io_fail(err, E_CHECKPOINT_KIND, "%s: the expression '%.200s' is not understood",
                       c->config.file, python);
    *ret = regexec(&compiled, name, 1, &match, 0) == 0 && match.rm_so == 0;
    regfree(&compiled);
    return true;
}

/* 3: its name, 2: an expression, 1: its class, 0: not at all. */
static bool target_rank(Checkpoint *c, const char *target, const char *name, int *ret, IoError *err)
{
    bool matches = false;

    *ret = 0;
    if (!strcmp(target, name)) {
        *ret = 3;
    } else if (!strncmp(target, "re:", 3)) {
        if (!name_matches(c, target + 3, name, &matches, err))
            return false;
        *ret = matches ? 2 : 0;
    } else if (!strcmp(target, "Linear")) {
        *ret = 1;
    }
    return true;
}

/* The best rank of the strings under `path`, an array. */
static bool best_rank(Checkpoint *c, const char *path, const char *name, int *best, IoError *err)
{
    const ConfigValue *list = config_find(&c->config, path);

    *best = 0;
    for (int i = 0; list && i < list->num; i++) {
        const ConfigValue *target =
            config_find(&c->config, arena_printf(c->arena, "%s/%d", path, i));
        int rank = 0;
        if (target && target->kind == CONFIG_STRING &&
            !target_rank(c, target->text, name, &rank, err))
            return false;
        *best = rank > *best ? rank : *best;
    }
    return true;
}

bool group_of(Checkpoint *c, const char *name, const char **ret, IoError *err)
{
    const char *all = arena_printf(c->arena, "%sconfig_groups", c->config.prefix);
    size_t len = strlen(all);
    int best = 0, ignored;

    *ret = NULL;
    if (!best_rank(c, arena_printf(c->arena, "%signore", c->config.prefix), name, &ignored, err))
        return false;
    if (ignored > 1)
        return io_fail(err, E_CHECKPOINT,
                       "%s: 'ignore' names %.200s, but the module is stored quantised",
                       c->config.file, name);
    for (int i = 0; i < c->config.values.num; i++) {
        const ConfigValue *value = &c->config.values.elem[i];
        int rank;
        if (strncmp(value->path, all, len) || value->path[len] != '/' ||
            strchr(value->path + len + 1, '/') || value->kind != CONFIG_OBJECT)
            continue;
        if (!best_rank(c, arena_printf(c->arena, "%s/targets", value->path), name, &rank, err))
            return false;
        if (rank > best) {
            best = rank;
            *ret = value->path + strlen(c->config.prefix);
        }
    }
    return *ret || io_fail(err, E_CHECKPOINT,
                           "%s: no target of config_groups is %.200s, but the module is stored "
                           "quantised",
                           c->config.file, name);
}

/* Arguments ------------------------------------------------------------------------------------ */

static const struct {
    const char *word;
    FormatId fmt;
} scale_dtypes[] = {{"float32", FMT_F32},   {"float16", FMT_F16},
                    {"bfloat16", FMT_BF16}, {"float8_e4m3fn", FMT_E4M3},
                    {"uint8", FMT_E8M0},    {"float8_e8m0fnu", FMT_E8M0}};

FormatId scale_dtype_find(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(scale_dtypes); i++)
        if (!strcmp(scale_dtypes[i].word, word))
            return scale_dtypes[i].fmt;
    return FMT_NONE;
}

const char *scale_dtype_word(FormatId fmt)
{
    for (size_t i = 0; i < COUNT_OF(scale_dtypes); i++)
        if (scale_dtypes[i].fmt == fmt)
            return scale_dtypes[i].word;
    return NULL;
}

static const char *key_of(Arena *arena, const char *group, const char *part, const char *key)
{
    return arena_printf(arena, "%s/%s/%s", group, part, key);
}

/* 0 when nothing is said; what is beyond any size, or no whole number, is LIMIT_DIM. */
static int64_t number_of(const Config *config, const char *key)
{
    int64_t number = 0;

    if (config_int(config, key, &number) || !number)
        return number;
    return LIMIT_DIM;
}

static const char *dtype_word(const char *said)
{
    return said && !strncmp(said, "torch.", 6) ? said + 6 : said;
}

bool args_read(Checkpoint *c, const char *group, const char *part, QuantArgs *ret)
{
    const Config *config = &c->config;
    const ConfigValue *value =
        config_find(config, arena_printf(c->arena, "%s%s/%s", config->prefix, group, part));

    *ret = (QuantArgs){.symmetric = true};
    if (!value || value->kind != CONFIG_OBJECT)
        return false;
    ret->bits = number_of(config, key_of(c->arena, group, part, "num_bits"));
    ret->group = number_of(config, key_of(c->arena, group, part, "group_size"));
    ret->block[0] = number_of(config, key_of(c->arena, group, part, "block_structure/0"));
    ret->block[1] = number_of(config, key_of(c->arena, group, part, "block_structure/1"));
    ret->symmetric = config_bool(config, key_of(c->arena, group, part, "symmetric"), true);
    ret->dynamic = config_bool(config, key_of(c->arena, group, part, "dynamic"), false);
    ret->type = config_text(config, key_of(c->arena, group, part, "type"));
    ret->strategy = config_text(config, key_of(c->arena, group, part, "strategy"));
    ret->scale_dtype =
        dtype_word(config_text(config, key_of(c->arena, group, part, "scale_dtype")));
    ret->partly = config_text(config, key_of(c->arena, group, part, "dynamic"));
    if (!ret->type)
        ret->type = "int";
    if (!ret->strategy)
        ret->strategy = ret->group > 0 ? "group" : ret->group == -1 ? "channel" : "tensor";
    return true;
}
