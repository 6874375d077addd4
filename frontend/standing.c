/* rules_standing: from files of rules and the outcome of `auto`, one file of rules that needs none
 * of them: everything that they say but `auto`, and of schemes and constants those that something
 * still names. */
#include "frontend/ast.h"
#include <ctype.h>
#include <string.h>

/* A part of a text. */
typedef struct Piece {
    const char *text, *name; /* name: of a scheme or constant, kept when another piece has it */
    size_t len;
    bool kept, printed;
} Piece;

typedef ARRAY(Piece) PieceList;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool has_word(const Piece *piece, const char *word)
{
    size_t num = strlen(word);
    for (size_t i = 0; i + num <= piece->len; i++)
        if (!memcmp(piece->text + i, word, num) && (i == 0 || !is_word(piece->text[i - 1])) &&
            (i + num == piece->len || !is_word(piece->text[i + num])))
            return true;
    return false;
}

static bool is_named(const PieceList *list, const char *name)
{
    for (int i = 0; i < list->num; i++)
        if (list->elem[i].kept && has_word(&list->elem[i], name))
            return true;
    return false;
}

static void add_items(PieceList *list, Arena *arena, Diag *diag, uint32_t source)
{
    const char *text = diag->sources.elem[source - 1].text;
    const Ast *ast = ast_parse(arena, diag, source);
    for (int i = 0; ast && i < ast->items.num; i++) {
        const Item *item = ast->items.elem[i];
        bool is_defined = item->kind == ITEM_SCHEME || item->kind == ITEM_CONST;
        if (item->kind == ITEM_AUTO || item->kind == ITEM_VERSION)
            continue;
        Piece piece = {.text = text + item->span.start,
                       .len = item->span.end - item->span.start,
                       .name = is_defined ? item->name.text : NULL,
                       .kept = !is_defined,
                       .printed = true};
        ARRAY_PUSH(arena, list, piece);
    }
}

/* A piece that is kept may name one that was not so far. */
static void keep_named(PieceList *list)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < list->num; i++) {
            Piece *piece = &list->elem[i];
            if (piece->kept || !is_named(list, piece->name))
                continue;
            piece->kept = more = true;
        }
    }
}

const char *rules_standing(Arena *arena, Diag *diag, int num_rule_files, const char *outcome)
{
    PieceList list = {0};
    Sb sb;
    const Source *text = &diag->sources.elem[0];
    Piece whole[] = {{.text = text->text, .len = text->len, .kept = true},
                     {.text = outcome, .len = strlen(outcome), .kept = true, .printed = true}};
    ARRAY_PUSH(arena, &list, whole[0]);
    for (int i = 0; i < num_rule_files; i++)
        add_items(&list, arena, diag, (uint32_t)i + 2);
    ARRAY_PUSH(arena, &list, whole[1]);
    keep_named(&list);
    sb_init(&sb, arena);
    for (int i = 0; i < list.num; i++)
        if (list.elem[i].kept && list.elem[i].printed) {
            sb_putn(&sb, list.elem[i].text, list.elem[i].len);
            sb_putc(&sb, '\n');
        }
    const char *formatted =
        source_format(arena, diag, diag_add_source(diag, "<auto>", sb.text, sb.len));
    return formatted ? formatted : sb.text;
}
