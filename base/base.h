/* base: what every other room may use and that knows nothing of sinter's subject: memory arenas,
 * strings, growing arrays, hash maps, checked arithmetic, source spans and diagnostics.
 *
 * Compiler code (frontend, ir, passes, codegen) allocates from arenas and never frees. Code that
 * also lives in the runtime library uses the functions marked "library-safe": they report failure
 * through their result instead of ending the process. */
#ifndef SINTER_BASE_H
#define SINTER_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#else
#define PRINTF_LIKE(fmt_at, args_at)
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Our own mistake, never the user's: prints where and what to stderr, then exits with 70. */
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
/* The compiler's end when there is no more memory: says so as E_MEMORY, exit code 1. Handlers of
 * exit run, so that no unfinished file stays. */
_Noreturn void memory_exhausted(void);
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* arena.c --------------------------------------------------------------------------------- */

/* A region whose objects die together. Memory comes zeroed and aligned to 16 bytes. */
typedef struct Arena Arena;

Arena *arena_create(void);              /* NULL when memory is exhausted */
Arena *arena_new(void);                 /* for the compiler: never NULL, see memory_exhausted */
void arena_destroy(Arena *arena);       /* accepts NULL */
void arena_reset(Arena *arena);         /* forgets all objects, keeps the memory for reuse */
size_t arena_bytes(const Arena *arena); /* bytes handed out since creation or reset */
/* Where arena_alloc jumps (longjmp value 1) when memory is exhausted; without it,
 * memory_exhausted. */
void arena_on_exhausted(Arena *arena, jmp_buf *handler);
void *arena_alloc(Arena *arena, size_t size);                   /* never NULL */
void *arena_alloc_array(Arena *arena, size_t num, size_t size); /* checks num * size */
void *arena_grow(Arena *arena, void *old, size_t old_size, size_t new_size);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t len);
/* The text without what a terminal would act on (utf8_show). */
char *arena_shown(Arena *arena, const char *text, size_t len);
char *arena_printf(Arena *arena, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define ARENA_NEW(arena, Type)            ((Type *)arena_alloc(arena, sizeof(Type)))
#define ARENA_NEW_ARRAY(arena, Type, num) ((Type *)arena_alloc_array(arena, num, sizeof(Type)))

/* A growing array in an arena: `ARRAY(Op *) ops = {0}; ARRAY_PUSH(arena, &ops, op);` */
#define ARRAY(Type)   \
    struct {          \
        Type *elem;   \
        int num, cap; \
    }
#define ARRAY_PUSH(arena, array, value)                                                 \
    do {                                                                                \
        if ((array)->num == (array)->cap)                                               \
            (array)->elem =                                                             \
                array_grow(arena, (array)->elem, sizeof *(array)->elem, &(array)->cap); \
        (array)->elem[(array)->num++] = (value);                                        \
    } while (0)
void *array_grow(Arena *arena, void *elem, size_t size, int *cap);

/* sb.c ------------------------------------------------------------------------------------ */

/* String builder in an arena. `text` is always terminated. */
typedef struct Sb {
    Arena *arena;
    char *text;
    size_t len, cap;
    int indent; /* spaces that sb_line puts first */
} Sb;

void sb_init(Sb *sb, Arena *arena);
void sb_put(Sb *sb, const char *text);
void sb_putn(Sb *sb, const char *text, size_t len);
void sb_putc(Sb *sb, char c);
void sb_printf(Sb *sb, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sb_vprintf(Sb *sb, const char *fmt, va_list args);
void sb_line(Sb *sb, const char *fmt, ...) PRINTF_LIKE(2, 3); /* indent + text + newline */
/* Shortest decimal text that reads back as exactly this value; "nan", "inf", "-inf" otherwise. */
void sb_put_f32(Sb *sb, float value);
void sb_put_f64(Sb *sb, double value);
void sb_put_json_string(Sb *sb, const char *text, size_t len); /* with the quotes */

/* Text from elsewhere for a terminal: control, deceptive and malformed characters as escapes;
 * returns the columns it takes. In diag_print.c. */
int sb_put_safe(Sb *sb, const char *text, size_t len);

/* hash.c ---------------------------------------------------------------------------------- */

/* Interned strings: equal texts are the same pointer. */
typedef struct Intern Intern;
Intern *intern_create(Arena *arena);
const char *intern(Intern *table, const char *text, size_t len);

/* Map from text to pointer, insertion order kept. Keys are copied. */
typedef struct Map {
    Arena *arena;
    struct MapEntry {
        const char *key;
        void *value;
        uint64_t hash;
    } * entry; /* in the order of insertion */
    int num, cap;
    int *slot;
    int num_slots;
} Map;
void map_init(Map *map, Arena *arena);
void *map_get(const Map *map, const char *key); /* NULL when absent */
bool map_has(const Map *map, const char *key);
void map_put(Map *map, const char *key, void *value); /* replaces */

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed); /* the same everywhere */
/* For tables in memory, never for what is written: its key is another one in every process, so that
 * no input can be made whose names collide. */
uint64_t hash_keyed(const void *data, size_t size);

/* The name nearest to `word` by edit distance, or NULL when none is near enough to suggest. */
typedef struct Nearest {
    const char *word;
    const char *best;
    int best_distance;
} Nearest;
void nearest_init(Nearest *nearest, const char *word);
void nearest_offer(Nearest *nearest, const char *candidate);
const char *nearest_get(const Nearest *nearest);

/* checked.c / inline: library-safe checked arithmetic ---------------------------------------- */

/* Each returns false on overflow and leaves *out unspecified. All sizes go through these. */
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool checked_align(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t sum;
    if (!checked_add(a, align - 1, &sum))
        return false;
    *out = sum - sum % align;
    return true;
}
/* Product of all dims; false on overflow or a negative dim. */
bool checked_elements(const int64_t *dim, int rank, uint64_t *out);

/* outputs.c ------------------------------------------------------------------------------- */

/* Names a file that is going to be written and the option that says so; both are kept. False when
 * it is one that another option (*ret_other) or another name of this option writes already. */
bool outputs_add(const char *option, const char *path, const char **ret_other);
const char *outputs_find(int fd); /* the option that writes this open file, or NULL */

/* limits: the one table of what we accept, shared by every reader (limits.h) */

/* diag.c ---------------------------------------------------------------------------------- */

/* A byte range of a source text. file is an index into Diag's sources; {0} means "no place". */
typedef struct Span {
    uint32_t file; /* 1-based; 0 = none */
    uint32_t start, end;
} Span;

typedef struct SourceMark { /* the place of one character of a text */
    size_t at;
    int line, column;
} SourceMark;
typedef struct Source {
    const char *name; /* as the user wrote it */
    const char *text; /* len bytes and a terminating NUL */
    size_t len;
    const SourceMark
        *mark;     /* of a long text, one each SOURCE_MARK_BYTES: places are looked up from */
    int num_marks; /* the nearest one */
} Source;
#define SOURCE_MARK_BYTES 512

double clock_us(void); /* monotonic */
/* Of two doubles, for qsort. */
int doubles_order(const void *a, const void *b);

/* The registry of errors (errors.def): E_UNKNOWN_NAME and its stable code "E0201". */
typedef enum ErrorId {
#define ERROR_ROW(ID, code, title, explanation) ID,
#include "base/errors.def"
#undef ERROR_ROW
    NUM_ERRORS
} ErrorId;
typedef struct ErrorInfo {
    const char *name, *code, *title, *explanation;
} ErrorInfo;
extern const ErrorInfo error_info[NUM_ERRORS];
const ErrorInfo *error_find(const char *code); /* "E0201" or "e0201"; NULL when unknown */

typedef enum Severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE, SEVERITY_HELP } Severity;

typedef struct DiagMessage {
    Severity severity;
    ErrorId id;
    Span span;
    const char *text;
    struct DiagMessage *child; /* notes and helps that belong to this one, in order */
    struct DiagMessage *next;
} DiagMessage;

typedef struct Diag {
    Arena *arena;
    ARRAY(Source) sources;
    DiagMessage *first, **last, *current; /* current: the one that notes attach to */
    int num_errors, num_warnings;
    int max_errors; /* stored at most; 0 = 20. Further ones are only counted */
} Diag;

void diag_init(Diag *diag, Arena *arena);
uint32_t diag_add_source(Diag *diag, const char *name, const char *text, size_t len);
/* Messages: lower case, no final period, the two facts that disagree. Notes and helps attach to
 * the latest error or warning. */
void diag_error(Diag *diag, Span span, ErrorId id, const char *fmt, ...) PRINTF_LIKE(4, 5);
void diag_warning(Diag *diag, Span span, ErrorId id, const char *fmt, ...) PRINTF_LIKE(4, 5);
void diag_note(Diag *diag, Span span, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_help(Diag *diag, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Print sorted by place: text with caret lines (control and bidi characters escaped) or one JSON
 * object per line. */
void diag_print(const Diag *diag, FILE *out, bool color);
void diag_print_json(const Diag *diag, FILE *out);
/* On to the first character that does not begin before `end`. */
void source_advance(const Source *source, SourceMark *mark, size_t end);
/* 1-based line and column (in characters) of a byte offset. */
void source_position(const Source *source, uint32_t offset, int *ret_line, int *ret_column);
/* "model.sinter:6:5", in the arena; "<no place>" for an empty span. */
const char *span_text(const Diag *diag, Span span);

#endif
