/* ast_check: gathers the items of the text and its rule files, then runs the checks in order. */
#include "frontend/sema.h"
#include <string.h>

void suggest(Diag *diag, const Nearest *nearest)
{
    if (nearest_get(nearest))
        diag_help(diag, "did you mean '%s'?", nearest_get(nearest));
}

bool want_suggestion(const Diag *diag)
{
    int most = diag->max_errors ? diag->max_errors : 20;
    return diag->num_errors <= most;
}

/* Gathering ------------------------------------------------------------------------------------ */

static void duplicate(Sema *s, const Item *item, const Item *first)
{
    diag_error(s->diag, item->name.span, E_DUPLICATE, "'%s' is defined twice", item->name.text);
    diag_note(s->diag, first->name.span, "first here");
}

/* What `auto` came to brings the schemes and constants that it needs, and may stand beside the file
 * that they are from: the same definition in another text, however it is set, says the same thing.
 */
static bool says_again(const Sema *s, const Item *item, const Item *first)
{
    if ((item->kind != ITEM_SCHEME && item->kind != ITEM_CONST) || item->kind != first->kind ||
        item->span.file == first->span.file)
        return false;
    Sb again, before;
    sb_init(&again, s->arena);
    sb_init(&before, s->arena);
    ast_print_item(&again, item);
    ast_print_item(&before, first);
    return again.len == before.len && !memcmp(again.text, before.text, again.len);
}

/* False: the item says again what another has said. */
static bool add_named(Sema *s, Map *map, Item *item)
{
    Item *old = map_get(map, item->name.text);
    if (old && says_again(s, item, old))
        return false;
    if (old) {
        duplicate(s, item, old);
        return true;
    }
    map_put(map, item->name.text, item);
    return true;
}

static void add_body(Sema *s, Item *item)
{
    item->info = ARENA_NEW(s->arena, BodyInfo);
    if (call_find(item->name.text) >= 0)
        diag_error(s->diag, item->name.span, E_NAME_TAKEN, "'%s' is the name of an operation",
                   item->name.text);
    if (item->kind == ITEM_MODEL && s->model) {
        diag_error(s->diag, item->name.span, E_DUPLICATE, "a second model");
        diag_note(s->diag, s->model->name.span, "the first is here");
        return;
    }
    if (item->kind == ITEM_MODEL)
        s->model = item;
    add_named(s, &s->globals, item);
}

static void add_expect(Sema *s, const Item *item)
{
    bool seen[4] = {0};
    for (int i = 0; i < item->bounds.num; i++) {
        const Bound *bound = &item->bounds.elem[i];
        if (seen[bound->kind])
            diag_error(s->diag, bound->span, E_DUPLICATE, "this bound is given twice");
        seen[bound->kind] = true;
        if ((bound->kind == BOUND_ATOL || bound->kind == BOUND_RTOL) && bound->value < 0)
            diag_error(s->diag, bound->span, E_ATTRIBUTE, "a tolerance of %g", bound->value);
        if (bound->kind == BOUND_COSINE && !(bound->value >= -1 && bound->value <= 1))
            diag_error(s->diag, bound->span, E_ATTRIBUTE, "a cosine of %g lies outside -1 .. 1",
                       bound->value);
    }
    if (item->bounds.num == 0) {
        diag_error(s->diag, item->span, E_INCOMPLETE, "no bound says how near the output must be");
        diag_help(s->diag, "add atol, rtol, cosine or sqnr");
    }
}

static void add_version(Sema *s, const Item *item, const Item *first)
{
    if (first) {
        diag_error(s->diag, item->span, E_DUPLICATE, "a second version");
        diag_note(s->diag, first->span, "the first is here");
    } else if (item->value->integer != 1) {
        diag_error(s->diag, item->value->span, E_VERSION,
                   "version %lld of the language, but this compiler knows only version 1",
                   (long long)item->value->integer);
    }
}

static void add_calibrated(Sema *s, const Item *item)
{
    s->has_calibrate = true;
    if (s->calibrated) {
        diag_error(s->diag, item->span, E_DUPLICATE, "a second 'calibrate from'");
        diag_note(s->diag, s->calibrated->span, "first here; a model has one calibration file");
        return;
    }
    s->calibrated = item;
}

static void add_item(Sema *s, Item *item)
{
    switch (item->kind) {
    case ITEM_CONST:
        item->constant = ARENA_NEW(s->arena, ConstInfo);
        if (!add_named(s, &s->globals, item))
            return;
        break;
    case ITEM_DIM:
        item->dim = ARENA_NEW(s->arena, DimInfo);
        add_named(s, &s->globals, item);
        break;
    case ITEM_SCHEME:
        item->scheme = ARENA_NEW(s->arena, SchemeInfo);
        if (!add_named(s, &s->schemes, item))
            return;
        break;
    case ITEM_BLOCK:
    case ITEM_MODEL: add_body(s, item); break;
    case ITEM_CALIBRATE: s->has_calibrate = true; break;
    case ITEM_CALIBRATED: add_calibrated(s, item); break;
    case ITEM_EXPECT: add_expect(s, item); break;
    case ITEM_AUTO: auto_add(s, item); break;
    case ITEM_SHARD:
        diag_error(s->diag, item->span, E_NOT_SUPPORTED, "'shard' is not supported yet");
        break;
    default: break;
    }
    ARRAY_PUSH(s->arena, &s->items, item);
}

static bool belongs_in_rules(ItemKind kind)
{
    return kind == ITEM_BAD || kind == ITEM_VERSION || kind == ITEM_CONST || kind == ITEM_SCHEME ||
           kind == ITEM_QUANT || kind == ITEM_CALIBRATE || kind == ITEM_CALIBRATED ||
           kind == ITEM_AUTO || kind == ITEM_SHARD;
}

static void add_text(Sema *s, const Ast *ast, bool is_rules)
{
    const Item *version = NULL;
    s->lost = s->lost || ast->lost;
    for (int i = 0; i < ast->items.num; i++) {
        Item *item = ast->items.elem[i];
        if (item->kind == ITEM_VERSION) {
            add_version(s, item, version);
            version = item;
        }
        if (is_rules && !belongs_in_rules(item->kind)) {
            diag_error(
                s->diag, item->head, E_WRONG_KIND,
                "a file of rules holds only 'version', 'scheme', 'quant', 'const', 'calibrate' "
                "and 'auto'");
            continue;
        }
        add_item(s, item);
    }
    if (!version && !is_rules && !ast->lost) {
        diag_error(s->diag, (Span){ast->source, 0, 0}, E_VERSION,
                   "the text does not say its version");
        diag_help(s->diag, "begin it with: version 1");
    }
}

static void add_rule_files(Sema *s)
{
    for (int i = 0; s->options && i < s->options->num_rule_files; i++) {
        const char *text = s->options->rule_text ? s->options->rule_text[i] : NULL;
        const char *path = s->options->rule_file[i];
        uint32_t source = text ? diag_add_source(s->diag, path, text, strlen(text))
                               : source_load(s->arena, s->diag, path, s->options->streams);
        if (!source)
            continue;
        Ast *ast = ast_parse_more(s->arena, s->diag, source, s->ast->names);
        if (ast)
            add_text(s, ast, true);
    }
}

/* Checks --------------------------------------------------------------------------------------- */

/* Ahead of the others, for rules that count from the end. Its errors are said by the next. */
static void walk_count(Sema *s)
{
    Arena *scratch = arena_new();
    Diag quiet;
    diag_init(&quiet, scratch);
    quiet.sources = s->diag->sources;
    Walk w = {.s = s, .arena = scratch, .diag = &quiet, .counting = true};
    w.m = module_create(scratch, &quiet, s->model->name.text);
    map_init(&w.consts, scratch);
    map_init(&w.uses, scratch);
    walk_model(&w);
    arena_destroy(scratch);
}

static void walk_all(Sema *s)
{
    if (s->from_end && s->model)
        walk_count(s);
    Arena *scratch = arena_new();
    Walk w = {.s = s, .arena = scratch, .diag = s->diag};
    w.m = module_create(scratch, s->diag, s->model ? s->model->name.text : "");
    map_init(&w.consts, scratch);
    map_init(&w.uses, scratch);
    bool complete = false;
    if (s->model) {
        int before = s->diag->num_errors;
        walk_model(&w);
        complete = !s->model->lost && !w.stopped && before == s->diag->num_errors;
    } else {
        walk_dims(&w);
    }
    for (int i = 0; i < s->items.num; i++) {
        Item *item = s->items.elem[i];
        if (item->kind == ITEM_BLOCK && !item->info->called)
            walk_block_alone(&w, item);
    }
    /* a layer that an error hid may have been the one a rule means */
    if (complete && !s->lost)
        rules_report_unmatched(s);
    arena_destroy(scratch);
}

static void warn_unused(Sema *s)
{
    for (int i = 0; i < s->items.num; i++) {
        const Item *item = s->items.elem[i];
        const char *word = item->kind == ITEM_CONST && !item->constant->used  ? "constant"
                           : item->kind == ITEM_DIM && !item->dim->used       ? "dim"
                           : item->kind == ITEM_SCHEME && !item->scheme->used ? "scheme"
                           : item->kind == ITEM_BLOCK && !item->info->called  ? "block"
                                                                              : NULL;
        if (word)
            diag_warning(s->diag, item->name.span, E_UNUSED, "%s '%s' is never used", word,
                         item->name.text);
    }
}

bool ast_check(Ast *ast, Diag *diag, const FrontendOptions *options)
{
    Sema *s = ARENA_NEW(ast->arena, Sema);
    *s = (Sema){.ast = ast, .arena = ast->arena, .diag = diag, .options = options};
    ast->sema = s;
    map_init(&s->globals, s->arena);
    map_init(&s->schemes, s->arena);
    add_text(s, ast, false);
    add_rule_files(s);
    if (!s->model && !s->lost) {
        diag_error(diag, (Span){ast->source, 0, 0}, E_INCOMPLETE, "the text has no model");
        diag_help(diag, "add: model name (x: f32[..]) -> (y: f32[..]) { .. }");
    }
    consts_eval(s);
    dims_eval(s);
    names_resolve(s);
    schemes_compile(s);
    rules_compile(s);
    auto_compile(s);
    walk_all(s);
    if (!diag->num_errors)
        warn_unused(s);
    return diag->num_errors == 0;
}
