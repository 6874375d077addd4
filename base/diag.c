/* Diagnostics: collecting messages. diag_print.c shows them. */
#include "base/base.h"

#include <strings.h>

const ErrorInfo error_info[NUM_ERRORS] = {
#define ERROR_ROW(ID, code, title, explanation) [ID] = {#ID, code, title, explanation},
#include "base/errors.def"
#undef ERROR_ROW
};

const ErrorInfo *error_find(const char *code)
{
    for (int i = E_NONE + 1; i < NUM_ERRORS; i++)
        if (strcasecmp(error_info[i].code, code) == 0)
            return &error_info[i];
    return NULL;
}

void diag_init(Diag *diag, Arena *arena)
{
    *diag = (Diag){.arena = arena};
    diag->last = &diag->first;
}

/* Every kernel of a model says its place: counting from the beginning each time takes too long. */
static void add_marks(Arena *arena, Source *source)
{
    size_t num = source->len / SOURCE_MARK_BYTES + 1;
    if (num < 2 || num > INT32_MAX)
        return;
    SourceMark *mark = ARENA_NEW_ARRAY(arena, SourceMark, num), at = {.line = 1, .column = 1};
    for (size_t i = 0; i < num; i++) {
        source_advance(source, &at, i * SOURCE_MARK_BYTES);
        mark[i] = at;
    }
    source->mark = mark;
    source->num_marks = (int)num;
}

uint32_t diag_add_source(Diag *diag, const char *name, const char *text, size_t len)
{
    Source source = {.name = arena_strdup(diag->arena, name), .text = text, .len = len};
    add_marks(diag->arena, &source);
    ARRAY_PUSH(diag->arena, &diag->sources, source);
    return (uint32_t)diag->sources.num;
}

static DiagMessage *message_create(Diag *diag, Severity severity, Span span, ErrorId id,
                                   const char *fmt, va_list args)
{
    Sb sb;
    DiagMessage *message = ARENA_NEW(diag->arena, DiagMessage);
    sb_init(&sb, diag->arena);
    sb_vprintf(&sb, fmt, args);
    *message = (DiagMessage){.severity = severity, .id = id, .span = span, .text = sb.text};
    return message;
}

static void add_top(Diag *diag, int *num, Severity severity, Span span, ErrorId id, const char *fmt,
                    va_list args)
{
    int max = diag->max_errors ? diag->max_errors : 20;
    diag->current = NULL; /* notes of a message that is only counted go nowhere */
    if ((*num)++ >= max)
        return;
    DiagMessage *message = message_create(diag, severity, span, id, fmt, args);
    *diag->last = message;
    diag->last = &message->next;
    diag->current = message;
}

void diag_error(Diag *diag, Span span, ErrorId id, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_top(diag, &diag->num_errors, SEVERITY_ERROR, span, id, fmt, args);
    va_end(args);
}

void diag_warning(Diag *diag, Span span, ErrorId id, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_top(diag, &diag->num_warnings, SEVERITY_WARNING, span, id, fmt, args);
    va_end(args);
}

static void add_child(Diag *diag, Severity severity, Span span, const char *fmt, va_list args)
{
    if (!diag->current)
        return;
    DiagMessage **at = &diag->current->child;
    while (*at)
        at = &(*at)->next;
    *at = message_create(diag, severity, span, E_NONE, fmt, args);
}

void diag_note(Diag *diag, Span span, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_child(diag, SEVERITY_NOTE, span, fmt, args);
    va_end(args);
}

void diag_help(Diag *diag, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_child(diag, SEVERITY_HELP, (Span){0}, fmt, args);
    va_end(args);
}
