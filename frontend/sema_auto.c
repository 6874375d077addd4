/* auto { .. }: what the text asks of the choice of formats. Nothing is chosen here: the layers that
 * no rule pins keep the default's format until the choice has been made (choose/). */
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

static const char *const measure_name[] = {[MEASURE_COSINE] = "cosine",
                                           [MEASURE_SQNR] = "sqnr",
                                           [MEASURE_BYTES] = "bytes",
                                           [MEASURE_LATENCY] = "latency",
                                           [MEASURE_ERROR] = "error"};

void auto_add(Sema *s, Item *item)
{
    if (s->automatic) {
        diag_error(s->diag, item->head, E_DUPLICATE, "a second 'auto'");
        diag_note(s->diag, s->automatic->head, "the first is here");
        return;
    }
    s->automatic = item;
    for (int i = 0; i < item->autos.num; i++)
        s->has_calibrate = s->has_calibrate || item->autos.elem[i].kind == AUTO_CALIBRATE;
}

/* Lines ---------------------------------------------------------------------------------------- */

static void line_candidates(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    for (int i = 0; i < line->names.num; i++) {
        Word name = line->names.elem[i];
        for (int k = 0; k < ret->candidates.num; k++)
            if (!strcmp(ret->candidates.elem[k].text, name.text))
                diag_error(s->diag, name.span, E_DUPLICATE, "candidate '%s' is named twice",
                           name.text);
        if (!strcmp(name.text, "keep") || scheme_lookup(s, name))
            ARRAY_PUSH(s->arena, &ret->candidates, ((AutoName){name.text, name.span}));
    }
}

static bool find_measure(Sema *s, Word word, AutoMeasure *ret)
{
    Nearest nearest;
    nearest_init(&nearest, word.text);
    for (size_t i = 0; i < COUNT_OF(measure_name); i++) {
        nearest_offer(&nearest, measure_name[i]);
        if (!strcmp(word.text, measure_name[i])) {
            *ret = (AutoMeasure)i;
            return true;
        }
    }
    diag_error(s->diag, word.span, E_AUTO, "unknown measure '%s'", word.text);
    if (nearest_get(&nearest))
        suggest(s->diag, &nearest);
    else
        diag_help(s->diag, "cosine, sqnr, bytes and latency can be required");
    return false;
}

/* One size of a declared dim. */
static bool find_size(Sema *s, const AutoSize *at, AutoAt *ret)
{
    const Item *item = map_get(&s->globals, at->name.text);
    *ret = (AutoAt){.sym = at->name.text, .weight = at->weight};
    resolve_global(s, at->size);
    if (!eval_int(s, NULL, at->size, &ret->size))
        return false;
    if (!item || item->kind != ITEM_DIM) {
        if (!s->lost)
            diag_error(s->diag, at->name.span, E_UNKNOWN_NAME, "'%s' is no dim", at->name.text);
        return false;
    }
    if (!(at->weight >= 0) || !isfinite(at->weight)) {
        diag_error(s->diag, at->name.span, E_ATTRIBUTE, "a weight of %g", at->weight);
        return false;
    }
    for (int i = 0; i < item->dim->num_sizes; i++)
        if (item->dim->size[i] == ret->size)
            return true;
    if (!item->dim->bad) {
        diag_error(s->diag, at->size->span, E_AUTO, "%s = %lld is not one of its sizes",
                   at->name.text, (long long)ret->size);
        diag_note(s->diag, item->span, "the sizes of '%s'", at->name.text);
    }
    return false;
}

static bool range_fits(Sema *s, const AutoLine *line, const AutoRequire *r)
{
    bool at_least = r->measure == MEASURE_COSINE || r->measure == MEASURE_SQNR;
    if (line->at_least != at_least) {
        diag_error(s->diag, line->span, E_AUTO, "%s is required to be %s, not %s", line->word.text,
                   at_least ? "at least something" : "at most something",
                   at_least ? "at most" : "at least");
        diag_help(s->diag, "write: require %s %s %g", line->word.text,
                  at_least ? ">=" : "<=", line->number);
        return false;
    }
    bool ok = isfinite(r->value);
    if (r->measure == MEASURE_COSINE)
        ok = r->value > 0 && r->value <= 1;
    else if (r->measure != MEASURE_SQNR)
        ok = r->value > 0;
    if (!ok)
        diag_error(s->diag, line->span, E_ATTRIBUTE, "a %s of %g can never be reached",
                   line->word.text, r->value);
    return ok;
}

static void line_require(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    AutoRequire r = {.value = line->number, .on = line->file.text, .span = line->span};
    if (!find_measure(s, line->word, &r.measure) || !range_fits(s, line, &r))
        return;
    bool on_data = r.measure == MEASURE_COSINE || r.measure == MEASURE_SQNR;
    if (r.measure == MEASURE_ERROR) {
        diag_error(s->diag, line->word.span, E_AUTO, "an error can be minimized, not required");
        diag_help(s->diag, "require cosine or sqnr on a file of data");
    } else if (r.on && !on_data) {
        diag_error(s->diag, line->file.span, E_AUTO, "%s does not depend on data", line->word.text);
    } else if (r.measure == MEASURE_LATENCY && !line->at.num) {
        diag_error(s->diag, line->span, E_AUTO, "a latency at which size?");
        diag_help(s->diag, "write: require latency <= %gus at T = 1", line->number);
    } else if (line->at.num && r.measure != MEASURE_LATENCY) {
        diag_error(s->diag, line->span, E_AUTO, "%s does not depend on the size", line->word.text);
    } else if (!line->at.num || find_size(s, &line->at.elem[0], &r.at)) {
        ARRAY_PUSH(s->arena, &ret->requires, r);
    }
}

static void line_minimize(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    if (!find_measure(s, line->word, &ret->minimize))
        return;
    if (ret->minimize == MEASURE_COSINE || ret->minimize == MEASURE_SQNR) {
        diag_error(s->diag, line->word.span, E_AUTO, "a %s is better the larger it is",
                   line->word.text);
        diag_help(s->diag, "write: minimize error");
    } else if (line->at.num && ret->minimize != MEASURE_LATENCY) {
        diag_error(s->diag, line->span, E_AUTO, "%s does not depend on the size", line->word.text);
    }
    double all = 0;
    for (int i = 0; i < line->at.num; i++) {
        AutoAt at;
        if (find_size(s, &line->at.elem[i], &at))
            ARRAY_PUSH(s->arena, &ret->at, at);
        all += line->at.elem[i].weight;
    }
    if (line->at.num && ret->at.num == line->at.num && !(all > 0))
        diag_error(s->diag, line->span, E_ATTRIBUTE, "the weights of the sizes are all zero");
}

static void line_slower(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    if (!strcmp(line->word.text, "error")) {
        ret->slower = SLOWER_ERROR;
    } else if (!strcmp(line->word.text, "warn")) {
        ret->slower = SLOWER_WARN;
    } else {
        diag_error(s->diag, line->word.span, E_AUTO, "'slower %s': it is an error or a warning",
                   line->word.text);
        diag_help(s->diag, "write 'slower error' or 'slower warn'");
    }
}

static void line_calibrate(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    ret->data = (AutoName){line->file.text, line->file.span};
    if (!line->size)
        return;
    resolve_global(s, line->size);
    if (eval_int(s, NULL, line->size, &ret->samples) && ret->samples < 1)
        diag_error(s->diag, line->size->span, E_ATTRIBUTE, "%lld samples", (long long)ret->samples);
}

static void compile_line(Sema *s, const AutoLine *line, AutoSpec *ret)
{
    switch (line->kind) {
    case AUTO_CANDIDATES: line_candidates(s, line, ret); break;
    case AUTO_CALIBRATE: line_calibrate(s, line, ret); break;
    case AUTO_REQUIRE: line_require(s, line, ret); break;
    case AUTO_MINIMIZE: line_minimize(s, line, ret); break;
    case AUTO_COUPLE: ret->couple = true; break;
    case AUTO_SLOWER: line_slower(s, line, ret); break;
    }
}

/* All of it ------------------------------------------------------------------------------------ */

static void once_only(Sema *s, const Item *item)
{
    const AutoLine *first[AUTO_SLOWER + 1] = {NULL};
    for (int i = 0; i < item->autos.num; i++) {
        const AutoLine *line = &item->autos.elem[i];
        if (line->kind == AUTO_REQUIRE)
            continue;
        if (first[line->kind]) {
            diag_error(s->diag, line->span, E_DUPLICATE, "'auto' says this twice");
            diag_note(s->diag, first[line->kind]->span, "first here");
        }
        first[line->kind] = line;
    }
    if (s->lost)
        return;
    const char *missing = !first[AUTO_CANDIDATES]  ? "candidates w8a8, keep"
                          : !first[AUTO_CALIBRATE] ? "calibrate on \"inputs.npy\""
                          : !first[AUTO_MINIMIZE]  ? "minimize latency"
                                                   : NULL;
    if (missing) {
        diag_error(s->diag, item->head, E_INCOMPLETE, "'auto' says too little to choose by");
        diag_help(s->diag, "add: %s", missing);
    }
}

void auto_compile(Sema *s)
{
    const Item *item = s->automatic;
    if (!item)
        return;
    s->auto_spec = ARENA_NEW(s->arena, AutoSpec);
    s->auto_spec->span = item->head;
    once_only(s, item);
    for (int i = 0; i < item->autos.num; i++)
        compile_line(s, &item->autos.elem[i], s->auto_spec);
}

static const char *name_of(Module *m, const char *text)
{
    return text ? intern(m->names, text, strlen(text)) : NULL;
}

const AutoSpec *auto_lower(const Sema *s, Module *m)
{
    if (!s->auto_spec)
        return NULL;
    AutoSpec *ret = ARENA_NEW(m->arena, AutoSpec);
    const AutoSpec *from = s->auto_spec;
    *ret = *from;
    memset(&ret->candidates, 0, sizeof ret->candidates);
    memset(&ret->requires, 0, sizeof ret->requires);
    memset(&ret->at, 0, sizeof ret->at);
    ret->data.text = name_of(m, from->data.text);
    for (int i = 0; i < from->candidates.num; i++) {
        AutoName name = from->candidates.elem[i];
        name.text = name_of(m, name.text);
        ARRAY_PUSH(m->arena, &ret->candidates, name);
    }
    for (int i = 0; i < from->requires.num; i++) {
        AutoRequire r = from->requires.elem[i];
        r.on = name_of(m, r.on);
        r.at.sym = name_of(m, r.at.sym);
        ARRAY_PUSH(m->arena, &ret->requires, r);
    }
    for (int i = 0; i < from->at.num; i++) {
        AutoAt at = from->at.elem[i];
        at.sym = name_of(m, at.sym);
        ARRAY_PUSH(m->arena, &ret->at, at);
    }
    return ret;
}
