/* Diagnostics: showing messages, for people (the line and a caret) and for programs (JSON lines).
 *
 * Nothing of a source text or a name reaches a terminal raw: control characters, bytes that are not
 * UTF-8 and characters that reorder or hide text are written as escapes. */
#include "base/base.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ECHO       200                    /* columns of a source line that are shown */
#define MAX_ECHO_BYTES ((size_t)4 * MAX_ECHO) /* of which some may take no column */
#define LEFT_OF_AT     60                     /* of which before the caret when the line is cut */
#define TAB_COLUMNS    4

static const char *const severity_name[] = {"error", "warning", "note", "help"};
static const char *const severity_color[] = {"\033[1;31m", "\033[1;35m", "\033[1;36m",
                                             "\033[1;32m"};

/* Writes the character at text in its safe form; returns its bytes, adds its columns. */
static size_t put_safe(Sb *sb, const char *text, size_t len, int *columns)
{
    char shown[UTF8_SHOWN];
    if (text[0] == '\t') {
        sb_printf(sb, "%*s", TAB_COLUMNS, "");
        *columns += TAB_COLUMNS;
        return 1;
    }
    size_t size = utf8_shown(text, len, shown);
    uint32_t c;
    if (memcmp(shown, text, size) == 0 && utf8_next(text, len, &c))
        *columns += utf8_width(c);
    else
        *columns += (int)strlen(shown);
    sb_put(sb, shown);
    return size;
}

int sb_put_safe(Sb *sb, const char *text, size_t len)
{
    int columns = 0;
    for (size_t i = 0, plain = 0; i < len; plain = 0) {
        while (plain < len - i && text[i + plain] >= ' ' && text[i + plain] < 0x7f)
            plain++;
        sb_putn(sb, text + i, plain);
        columns += (int)plain;
        i += plain;
        if (i < len)
            i += put_safe(sb, text + i, len - i, &columns);
    }
    return columns;
}

static void put_safe_text(Sb *sb, const char *text)
{
    sb_put_safe(sb, text, strlen(text));
}

static const Source *span_source(const Diag *diag, Span span)
{
    if (span.file == 0 || span.file > (uint32_t)diag->sources.num)
        return NULL;
    return &diag->sources.elem[span.file - 1];
}

void source_advance(const Source *source, SourceMark *mark, size_t end)
{
    while (mark->at < end) {
        uint32_t c;
        int size = utf8_next(source->text + mark->at, source->len - mark->at, &c);
        bool is_end = source->text[mark->at] == '\n';
        mark->at += size ? (size_t)size : 1;
        mark->line += is_end;
        mark->column = is_end ? 1 : mark->column + 1;
    }
}

void source_position(const Source *source, uint32_t offset, int *ret_line, int *ret_column)
{
    size_t end = offset < source->len ? offset : source->len, nearest = end / SOURCE_MARK_BYTES;
    SourceMark mark = {.line = 1, .column = 1};
    if (nearest && source->num_marks) {
        nearest = nearest < (size_t)source->num_marks ? nearest : (size_t)source->num_marks - 1;
        while (nearest && source->mark[nearest].at > end)
            nearest--;
        mark = source->mark[nearest];
    }
    source_advance(source, &mark, end);
    *ret_line = mark.line;
    *ret_column = mark.column;
}

static void put_place(Sb *sb, const Diag *diag, Span span)
{
    const Source *source = span_source(diag, span);
    int line, column;
    source_position(source, span.start, &line, &column);
    put_safe_text(sb, source->name);
    sb_printf(sb, ":%d:%d", line, column);
}

const char *span_text(const Diag *diag, Span span)
{
    if (!span_source(diag, span))
        return "<no place>";
    Sb sb;
    sb_init(&sb, diag->arena);
    put_place(&sb, diag, span);
    return sb.text;
}

/* Columns that text[from, to) takes when shown; what is beyond an echo is not counted. */
static int columns_of(Sb *scratch, const char *text, size_t from, size_t to)
{
    int columns = 0;
    scratch->len = 0;
    while (from < to && columns <= MAX_ECHO)
        from += put_safe(scratch, text + from, to - from, &columns);
    return columns;
}

/* The source line of a span and a caret line below it. */
static void put_excerpt(Sb *sb, const Diag *diag, Span span, const char *color)
{
    const Source *source = span_source(diag, span);
    Sb scratch;
    size_t at = span.start < source->len ? span.start : source->len;
    int line, column;
    sb_init(&scratch, diag->arena);
    source_position(source, (uint32_t)at, &line, &column);
    const char *before_it = memrchr(source->text, '\n', at);
    const char *behind_it = memchr(source->text + at, '\n', source->len - at);
    size_t begin = before_it ? (size_t)(before_it - source->text) + 1 : 0;
    size_t end = behind_it ? (size_t)(behind_it - source->text) : source->len;
    if (end > at && end > begin && source->text[end - 1] == '\r')
        end--;

    const char *lead = "", *trail = "";
    bool is_long =
        end - begin > MAX_ECHO_BYTES || columns_of(&scratch, source->text, begin, end) > MAX_ECHO;
    if (is_long && at - begin > LEFT_OF_AT) {
        begin = at - LEFT_OF_AT;
        while (begin < at && ((uint8_t)source->text[begin] & 0xc0) == 0x80)
            begin++;
        lead = "...";
    }
    sb_printf(sb, "%5d | %s", line, lead);
    size_t i = begin;
    int columns = 0;
    while (i < end && columns < MAX_ECHO && i - begin < MAX_ECHO_BYTES)
        i += put_safe(sb, source->text + i, end - i, &columns);
    if (i < end)
        trail = "...";
    sb_printf(sb, "%s\n      | %*s", trail, (int)strlen(lead), "");

    size_t stop = span.end < i ? span.end : i;
    int before = columns_of(&scratch, source->text, begin, at < i ? at : i);
    int width = stop > at ? columns_of(&scratch, source->text, at, stop) : 1;
    sb_printf(sb, "%*s%s^", before, "", color);
    for (int n = 1; n < width; n++)
        sb_putc(sb, '~');
    sb_put(sb, *color ? "\033[0m\n" : "\n");
}

static void put_message(Sb *sb, const Diag *diag, const DiagMessage *message, bool color)
{
    const char *on = color ? severity_color[message->severity] : "";
    const char *bold = color ? "\033[1m" : "", *off = color ? "\033[0m" : "";
    bool has_place = span_source(diag, message->span) != NULL;
    bool is_child = message->severity >= SEVERITY_NOTE;
    sb_put(sb, bold);
    if (has_place) {
        put_place(sb, diag, message->span);
        sb_put(sb, ": ");
    } else if (is_child) {
        sb_put(sb, "      = ");
    } else {
        sb_put(sb, "sinter: ");
    }
    sb_printf(sb, "%s%s%s", off, on, severity_name[message->severity]);
    if (message->id != E_NONE)
        sb_printf(sb, "[%s]", error_info[message->id].code);
    sb_printf(sb, "%s: ", off);
    put_safe_text(sb, message->text);
    sb_putc(sb, '\n');
    if (has_place)
        put_excerpt(sb, diag, message->span, on);
    for (const DiagMessage *child = message->child; child; child = child->next)
        put_message(sb, diag, child, color);
}

typedef struct Ordered {
    const DiagMessage *message;
    int order;
} Ordered;

static int compare_place(const void *a, const void *b)
{
    const Ordered *x = a, *y = b;
    Span s = x->message->span, t = y->message->span;
    if (s.file != t.file)
        return s.file < t.file ? -1 : 1;
    if (s.start != t.start)
        return s.start < t.start ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* The stored messages by place; those without one come first. */
static Ordered *sorted_messages(const Diag *diag, int *ret_num)
{
    int num = 0;
    for (const DiagMessage *message = diag->first; message; message = message->next)
        num++;
    Ordered *ret = ARENA_NEW_ARRAY(diag->arena, Ordered, (size_t)num);
    num = 0;
    for (const DiagMessage *message = diag->first; message; message = message->next) {
        ret[num] = (Ordered){message, num};
        num++;
    }
    qsort(ret, (size_t)num, sizeof *ret, compare_place);
    *ret_num = num;
    return ret;
}

static int num_untold(const Diag *diag, Severity severity)
{
    int told = 0;
    for (const DiagMessage *message = diag->first; message; message = message->next)
        told += message->severity == severity;
    return (severity == SEVERITY_ERROR ? diag->num_errors : diag->num_warnings) - told;
}

void diag_print(const Diag *diag, FILE *out, bool color)
{
    Sb sb;
    int num;
    Ordered *ordered = sorted_messages(diag, &num);
    sb_init(&sb, diag->arena);
    for (int i = 0; i < num; i++)
        put_message(&sb, diag, ordered[i].message, color);
    for (Severity severity = SEVERITY_ERROR; severity <= SEVERITY_WARNING; severity++) {
        int untold = num_untold(diag, severity);
        if (untold > 0)
            sb_printf(&sb, "and %d more %s%s\n", untold, severity_name[severity],
                      untold == 1 ? "" : "s");
    }
    fwrite(sb.text, 1, sb.len, out);
}

static void put_json_message(Sb *sb, const Diag *diag, const DiagMessage *message)
{
    const Source *source = span_source(diag, message->span);
    sb_printf(sb, "{\"severity\":\"%s\"", severity_name[message->severity]);
    if (message->id != E_NONE)
        sb_printf(sb, ",\"code\":\"%s\"", error_info[message->id].code);
    sb_put(sb, ",\"message\":");
    sb_put_json_string(sb, message->text, strlen(message->text));
    if (source) {
        int line, column, end_line, end_column;
        source_position(source, message->span.start, &line, &column);
        source_position(source, message->span.end, &end_line, &end_column);
        sb_put(sb, ",\"file\":");
        sb_put_json_string(sb, source->name, strlen(source->name));
        sb_printf(sb, ",\"line\":%d,\"column\":%d,\"end_line\":%d,\"end_column\":%d", line, column,
                  end_line, end_column);
    }
    if (message->child) {
        sb_put(sb, ",\"children\":[");
        for (const DiagMessage *child = message->child; child; child = child->next) {
            put_json_message(sb, diag, child);
            sb_put(sb, child->next ? "," : "]");
        }
    }
    sb_putc(sb, '}');
}

void diag_print_json(const Diag *diag, FILE *out)
{
    Sb sb;
    int num;
    Ordered *ordered = sorted_messages(diag, &num);
    sb_init(&sb, diag->arena);
    for (int i = 0; i < num; i++) {
        put_json_message(&sb, diag, ordered[i].message);
        sb_putc(&sb, '\n');
    }
    for (Severity severity = SEVERITY_ERROR; severity <= SEVERITY_WARNING; severity++) {
        int untold = num_untold(diag, severity);
        if (untold > 0)
            sb_printf(&sb, "{\"severity\":\"%s\",\"message\":\"and %d more\",\"more\":%d}\n",
                      severity_name[severity], untold, untold);
    }
    fwrite(sb.text, 1, sb.len, out);
}
