/* ast_lower: a checked tree to IR. The same walk that checked the model now builds it. */
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

static void lower_expect(Module *m, const Item *item)
{
    Expect expect = {.input = item->files.elem[0].text,
                     .output = item->files.elem[1].text,
                     .atol = NAN,
                     .rtol = NAN,
                     .cosine = NAN,
                     .sqnr = NAN,
                     .span = item->span};
    double *const field[] = {[BOUND_ATOL] = &expect.atol,
                             [BOUND_RTOL] = &expect.rtol,
                             [BOUND_COSINE] = &expect.cosine,
                             [BOUND_SQNR] = &expect.sqnr};
    for (int i = 0; i < item->bounds.num; i++)
        *field[item->bounds.elem[i].kind] = item->bounds.elem[i].value;
    ARRAY_PUSH(m->arena, &m->expects, expect);
}

/* Named by another text, too: the same data count once. */
static bool names_again(const Module *m, const char *file, Span span)
{
    for (int i = 0; i < m->calibrate_files.num; i++)
        if (m->calibrate_spans.elem[i].file != span.file &&
            !strcmp(m->calibrate_files.elem[i], file))
            return true;
    return false;
}

static void lower_item(Module *m, const Item *item)
{
    for (int i = 0; i < item->files.num; i++) {
        const char *file = item->files.elem[i].text;
        Span span = item->files.elem[i].span;
        if (item->kind == ITEM_WEIGHTS) {
            ARRAY_PUSH(m->arena, &m->weight_files, file);
            ARRAY_PUSH(m->arena, &m->weight_spans, span);
        } else if (item->kind == ITEM_CALIBRATE && !names_again(m, file, span)) {
            ARRAY_PUSH(m->arena, &m->calibrate_files, file);
            ARRAY_PUSH(m->arena, &m->calibrate_spans, span);
        } else if (item->kind == ITEM_CALIBRATED) {
            m->calibration_file = file;
            m->calibration_span = span;
        }
    }
    if (item->kind == ITEM_EXPECT)
        lower_expect(m, item);
}

/* Calibration data of `auto` serve its candidates' static ranges and quantisers too. */
static void lower_auto(const Sema *s, Module *m)
{
    m->slower = s->slower;
    m->slower_said = s->slower_said;
    m->automatic = auto_lower(s, m);
    if (!m->automatic || !m->automatic->data.text || m->calibrate_files.num)
        return;
    ARRAY_PUSH(m->arena, &m->calibrate_files, m->automatic->data.text);
    ARRAY_PUSH(m->arena, &m->calibrate_spans, m->automatic->data.span);
}

Module *ast_lower(Ast *ast, Arena *arena, Diag *diag)
{
    Sema *s = ast->sema;
    if (!s || !s->model)
        BUG("lowering a text that was not checked");
    Arena *scratch = arena_new();
    Module *m = module_create(arena, diag, s->model->name.text);
    for (int i = 0; i < s->items.num; i++)
        lower_item(m, s->items.elem[i]);
    lower_auto(s, m);
    Walk w = {.s = s, .m = m, .build = true, .arena = scratch, .diag = diag};
    map_init(&w.consts, scratch);
    map_init(&w.uses, scratch);
    walk_model(&w);
    arena_destroy(scratch);
    return diag->num_errors ? NULL : m;
}
