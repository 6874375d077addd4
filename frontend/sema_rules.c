/* Rules: patterns are compiled once; each layer asks for the rules that match its path. The last
 * match wins, field by field: `default` first, then rules in order, then the scheme at the layer.
 */
#include "frontend/sema.h"
#include <fnmatch.h>
#include <string.h>

/* Compiling ------------------------------------------------------------------------------------ */

static bool compile_range(Sema *s, const Segment *segment, const IndexRange *range, IndexSpan *ret)
{
    resolve_global(s, range->lo);
    if (range->hi)
        resolve_global(s, range->hi);
    if (!eval_int(s, NULL, range->lo, &ret->lo))
        return false;
    s->from_end = s->from_end || ret->lo < 0;
    /* behind index -1 there is no 0; no list is as long as the largest number */
    ret->to_end = range->is_open || (!range->hi && ret->lo == -1);
    ret->hi = ret->lo < INT64_MAX ? ret->lo + 1 : ret->lo;
    if (!range->hi)
        return true;
    if (!eval_int(s, NULL, range->hi, &ret->hi))
        return false;
    s->from_end = s->from_end || ret->hi < 0;
    if ((ret->lo < 0) == (ret->hi < 0) && ret->lo >= ret->hi) {
        diag_error(s->diag, segment->span, E_ATTRIBUTE,
                   "the range %lld .. %lld is empty (its end is not part of it)",
                   (long long)ret->lo, (long long)ret->hi);
        return false;
    }
    return true;
}

static bool compile_segment(Sema *s, const Segment *segment, SegmentInfo *info)
{
    bool ok = true;
    info->segment = segment;
    info->span = ARENA_NEW_ARRAY(s->arena, IndexSpan, (size_t)segment->listed.num + 1);
    for (int i = 0; i < segment->listed.num; i++)
        ok = compile_range(s, segment, &segment->listed.elem[i], &info->span[i]) && ok;
    return ok;
}

static void compile_action(Sema *s, RuleInfo *info, const Action *action)
{
    bool twice = false;
    switch (action->kind) {
    case ACTION_SCHEME: {
        twice = info->scheme || info->keep;
        Item *scheme = scheme_lookup(s, action->name);
        info->bad = info->bad || !scheme || scheme->scheme->bad;
        info->scheme = scheme ? scheme->scheme : NULL;
        info->scheme_name = action->name.text;
        break;
    }
    case ACTION_KEEP:
        twice = info->scheme || info->keep;
        info->keep = true;
        break;
    case ACTION_FUSED:
        twice = info->fused;
        info->fused = true;
        break;
    case ACTION_INVARIANT:
        twice = info->invariant;
        info->invariant = true;
        break;
    case ACTION_SMOOTH:
        twice = info->smooth;
        info->smooth = true;
        info->smooth_auto = action->name.text != NULL;
        info->smooth_alpha = action->value;
        if (!(action->value >= 0 && action->value <= 1))
            diag_error(s->diag, action->span, E_ATTRIBUTE, "smooth %g lies outside 0 .. 1",
                       action->value);
        break;
    case ACTION_ROTATE:
        twice = info->rotate;
        info->rotate = true;
        if (strcmp(action->name.text, "hadamard") != 0)
            diag_error(s->diag, action->name.span, E_ATTRIBUTE,
                       "unknown rotation '%s': there is 'hadamard'", action->name.text);
        break;
    }
    if (twice)
        diag_error(s->diag, action->span, E_SCHEME_WORDS,
                   "one rule says this twice, or two things that exclude each other");
}

static void list_add(Sema *s, const char *key, int rule)
{
    IntList *list = map_get(&s->rules_by_name, key);
    if (!list) {
        list = ARENA_NEW(s->arena, IntList);
        map_put(&s->rules_by_name, key, list);
    }
    ARRAY_PUSH(s->arena, list, rule);
}

static const char *indexed_key(Arena *arena, const char *name, int64_t index)
{
    return arena_printf(arena, "%s[%lld]", name, (long long)index);
}

static bool has_star(const Segment *segment)
{
    bool any = segment->names.num == 0;
    for (int i = 0; i < segment->names.num; i++)
        any = any || strchr(segment->names.elem[i].text, '*');
    return any;
}

/* What is done about layers that are slower than unquantised is said once, or in the same word. */
static void compile_slower(Sema *s, const Rule *rule)
{
    static const char *const word[] = {
        [SLOWER_SILENT] = "off", [SLOWER_WARN] = "warn", [SLOWER_ERROR] = "error"};
    for (size_t i = 0; i < COUNT_OF(word); i++) {
        if (strcmp(rule->slower.text, word[i]) != 0)
            continue;
        if (s->slower_said && s->slower != (AutoSlower)i) {
            diag_error(s->diag, rule->span, E_DUPLICATE, "'slower %s' contradicts 'slower %s'",
                       word[i], word[s->slower]);
            diag_note(s->diag, s->slower_span, "which stands here");
            return;
        }
        s->slower = (AutoSlower)i;
        s->slower_said = true;
        s->slower_span = rule->span;
        return;
    }
    diag_error(s->diag, rule->slower.span, E_ATTRIBUTE,
               "'slower %s': it is an error, a warning, or not looked for", rule->slower.text);
    diag_help(s->diag, "write 'slower error', 'slower warn' or 'slower off'");
}

static void compile_rule(Sema *s, const Rule *rule)
{
    if (rule->slower.text) {
        compile_slower(s, rule);
        return;
    }
    RuleInfo info = {.rule = rule, .num_segments = rule->path.num};
    info.segment = ARENA_NEW_ARRAY(s->arena, SegmentInfo, (size_t)rule->path.num);
    for (int i = 0; i < rule->path.num; i++) {
        if (!compile_segment(s, &rule->path.elem[i], &info.segment[i]))
            info.bad = true;
    }
    for (int i = 0; i < rule->actions.num; i++)
        compile_action(s, &info, &rule->actions.elem[i]);
    int index = s->rules.num;
    ARRAY_PUSH(s->arena, &s->rules, info);
    if (rule->path.num == 0) {
        ARRAY_PUSH(s->arena, &s->default_rules, index);
        return;
    }
    const Segment *first = &rule->path.elem[0];
    const IndexRange *listed = first->listed.elem;
    bool one = first->listed.num == 1 && !listed->hi && !listed->is_open;
    bool any = has_star(first);
    if (any)
        ARRAY_PUSH(s->arena, &s->any_rules, index);
    for (int i = 0; i < first->names.num && !any; i++) {
        const char *name = first->names.elem[i].text;
        int64_t at = one ? info.segment[0].span[0].lo : -1;
        list_add(s, at >= 0 ? indexed_key(s->arena, name, at) : name, index);
    }
}

void rules_compile(Sema *s)
{
    map_init(&s->rules_by_name, s->arena);
    map_init(&s->index_ends, s->arena);
    for (int i = 0; i < s->items.num; i++) {
        const Item *item = s->items.elem[i];
        for (int k = 0; k < item->rules.num; k++)
            compile_rule(s, &item->rules.elem[k]);
    }
}

/* Matching ------------------------------------------------------------------------------------- */

/* The path down to a step without its index: blocks of one name are counted for each outer one. */
static const char *index_key(Walk *w, int num)
{
    Sb sb;
    sb_init(&sb, w->s->arena);
    for (int i = 0; i < num; i++) {
        sb_printf(&sb, "%s%s", i ? "." : "", w->path[i].name);
        if (w->path[i].has_index && i + 1 < num)
            sb_printf(&sb, "[%lld]", (long long)w->path[i].index);
    }
    return sb.text;
}

void rules_count_index(Walk *w)
{
    Sema *s = w->s;
    const char *key = index_key(w, w->num_path);
    int64_t *end = map_get(&s->index_ends, key);
    if (!end) {
        end = ARENA_NEW(s->arena, int64_t);
        map_put(&s->index_ends, key, end);
    }
    int64_t index = w->path[w->num_path - 1].index;
    if (index >= *end && index < INT64_MAX)
        *end = index + 1;
}

/* Without brackets a name means a step without an index, a name with '*' any: each for itself. */
static bool name_matches(const Segment *segment, const Step *step)
{
    bool plain = !step->has_index || segment->index != INDEX_NONE, is = segment->names.num == 0;
    for (int i = 0; i < segment->names.num && !is; i++) {
        const char *pattern = segment->names.elem[i].text;
        is = strchr(pattern, '*') ? !fnmatch(pattern, step->name, 0)
                                  : plain && pattern == step->name;
    }
    return is;
}

/* Of the step at `at` of the walk's path. */
static bool index_matches(const SegmentInfo *info, Walk *w, int at)
{
    int64_t index = w->path[at].index, end = 0;
    if (w->s->from_end) {
        const int64_t *known = map_get(&w->s->index_ends, index_key(w, at + 1));
        end = known ? *known : 0;
    }
    for (int i = 0; i < info->segment->listed.num; i++) {
        const IndexSpan *span = &info->span[i];
        int64_t lo = span->lo < 0 ? span->lo + end : span->lo;
        int64_t hi = span->hi < 0 ? span->hi + end : span->hi;
        if (index >= lo && (span->to_end || index < hi))
            return true;
    }
    return false;
}

static bool step_matches(const SegmentInfo *info, Walk *w, int at)
{
    const Segment *segment = info->segment;
    const Step *step = &w->path[at];
    if (!name_matches(segment, step))
        return false;
    switch (segment->index) {
    case INDEX_NONE: return true;
    case INDEX_ANY: return step->has_index;
    case INDEX_LISTED: return step->has_index && index_matches(info, w, at);
    }
    return false;
}

static bool rule_matches(const RuleInfo *rule, Walk *w)
{
    if (rule->num_segments != w->num_path)
        return false;
    for (int i = 0; i < rule->num_segments; i++) {
        if (!step_matches(&rule->segment[i], w, i))
            return false;
    }
    return true;
}

/* The scheme of a layer with K = k. */
static const Scheme *fitting(Arena *arena, const Scheme *scheme, bool or_row, int64_t k)
{
    if (!or_row || !scheme->block[1] || k % scheme->block[1] == 0)
        return scheme;
    Scheme *ret = ARENA_NEW(arena, Scheme);
    *ret = *scheme;
    ret->block[1] = 0;
    return ret;
}

static void apply_scheme(Walk *w, QuantSpec *spec, const SchemeInfo *scheme)
{
    const QuantSpec *from = &scheme->spec;
    spec->keep = false;
    spec->pinned = true;
    spec->scheme_name = from->scheme_name;
    if (scheme->has_weight) {
        spec->weight = fitting(w->arena, from->weight, scheme->weight_else, w->k);
        spec->by = from->by;
        spec->by_args = from->by_args;
        spec->weight_span = from->weight_span;
    }
    if (scheme->has_act) {
        spec->act = fitting(w->arena, from->act, scheme->act_else, w->k);
        spec->act_fmt = from->act_fmt;
        spec->act_static = from->act_static;
        spec->act_known = from->act_known;
        spec->act_scale = from->act_scale;
        spec->act_zero = from->act_zero;
        spec->calibrator = from->calibrator;
        spec->calibrator_arg = from->calibrator_arg;
        spec->act_span = from->act_span;
    }
}

static void apply_rule(Walk *w, QuantSpec *spec, RuleInfo *rule)
{
    rule->matched = true;
    if (rule->keep)
        *spec = (QuantSpec){.keep = true,
                            .pinned = true,
                            .fused = spec->fused,
                            .invariant = spec->invariant,
                            .smooth = spec->smooth,
                            .smooth_auto = spec->smooth_auto,
                            .rotate = spec->rotate,
                            .smooth_alpha = spec->smooth_alpha};
    if (rule->scheme)
        apply_scheme(w, spec, rule->scheme);
    if (rule->keep || rule->scheme)
        spec->said = rule->rule->span;
    if (rule->fused)
        spec->fused = true;
    if (rule->invariant)
        spec->invariant = true;
    if (rule->rotate)
        spec->rotate = true;
    if (rule->smooth) {
        spec->smooth = true;
        spec->smooth_auto = rule->smooth_auto;
        spec->smooth_alpha = rule->smooth_alpha;
    }
}

/* The three lists that can match hold rules in order; merged, so do all. */
static void apply_matching(Walk *w, QuantSpec *spec)
{
    static const IntList none;
    Sema *s = w->s;
    const Step *first = &w->path[0];
    const IntList *list[3] = {&s->any_rules, map_get(&s->rules_by_name, first->name), NULL};
    if (first->has_index && s->rules_by_name.num) {
        char key[300];
        int len = snprintf(key, sizeof key, "%s[%lld]", first->name, (long long)first->index);
        const char *text =
            len < (int)sizeof key ? key : indexed_key(w->arena, first->name, first->index);
        list[2] = map_get(&s->rules_by_name, text);
    }
    int at[3] = {0, 0, 0};
    for (;;) {
        int next = -1;
        for (int i = 0; i < 3; i++) {
            const IntList *l = list[i] ? list[i] : &none;
            if (at[i] < l->num && (next < 0 || l->elem[at[i]] < next))
                next = l->elem[at[i]];
        }
        if (next < 0)
            return;
        for (int i = 0; i < 3; i++)
            at[i] += list[i] && at[i] < list[i]->num && list[i]->elem[at[i]] == next;
        if (rule_matches(&s->rules.elem[next], w))
            apply_rule(w, spec, &s->rules.elem[next]);
    }
}

const QuantSpec *rules_apply(Walk *w, const Item *inline_scheme, int64_t k)
{
    Sema *s = w->s;
    w->k = k;
    QuantSpec spec = {0};
    if (w->counting)
        return NULL;
    for (int i = 0; i < s->default_rules.num; i++)
        apply_rule(w, &spec, &s->rules.elem[s->default_rules.elem[i]]);
    spec.pinned = false; /* `auto` stands above the default */
    if (s->rules.num && w->in_model)
        apply_matching(w, &spec);
    if (inline_scheme) {
        apply_scheme(w, &spec, inline_scheme->scheme);
        spec.said = (Span){0};
    }
    if (s->options && s->options->unquantised)
        return NULL;
    if (!spec.keep && !spec.weight && !spec.act && spec.act_fmt == FMT_NONE && !spec.fused &&
        !spec.invariant && !spec.smooth && !spec.rotate)
        return NULL;
    QuantSpec *ret = ARENA_NEW(w->m->arena, QuantSpec);
    *ret = spec;
    if (spec.weight)
        ret->weight = scheme_intern(w->m, spec.weight);
    if (spec.act)
        ret->act = scheme_intern(w->m, spec.act);
    return ret;
}

const char *walk_path_text(Walk *w)
{
    Sb sb;
    sb_init(&sb, w->m->arena);
    for (int i = 0; i < w->num_path; i++) {
        sb_printf(&sb, "%s%s", i ? "." : "", w->path[i].name);
        if (w->path[i].has_index)
            sb_printf(&sb, "[%lld]", (long long)w->path[i].index);
    }
    return sb.text;
}

/* Rules without a layer ----------------------------------------------------------------------- */

static const char *source_slice(Sema *s, Span span)
{
    const char *text = s->diag->sources.elem[span.file - 1].text;
    uint32_t len = span.end - span.start;
    return arena_strndup(s->arena, text + span.start, len > 80 ? 80 : len);
}

void rules_report_unmatched(Sema *s)
{
    for (int i = 0; i < s->rules.num; i++) {
        const RuleInfo *info = &s->rules.elem[i];
        if (info->matched || info->bad)
            continue;
        const char *pattern = source_slice(s, info->rule->path_span);
        diag_error(s->diag, info->rule->path_span, E_RULE_UNMATCHED, "no layer matches '%s'",
                   pattern);
        if (!want_suggestion(s->diag))
            continue;
        Nearest nearest;
        nearest_init(&nearest, pattern);
        for (int k = 0; k < s->paths.num && k < 4096; k++)
            nearest_offer(&nearest, s->paths.elem[k]);
        if (nearest_get(&nearest))
            diag_help(s->diag, "the nearest path is '%s'", nearest_get(&nearest));
        else if (s->paths.num)
            diag_help(s->diag, "the first layer's path is '%s'", s->paths.elem[0]);
        else
            diag_help(s->diag, "the model has no linear layers");
    }
}
