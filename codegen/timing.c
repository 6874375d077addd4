/* codegen/timing: see timing.h. */
#include "codegen/timing.h"
#include "codegen/cuda/family.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADER    "sinter timings 1"
#define MOST_US   1e9 /* of one launch */
#define LONG_NAME 64  /* of a GPU */

const char *const timing_source_name[NUM_TIMING_SOURCES] = {
    [TIMING_MODEL] = "cost model",          [TIMING_LIKE] = "like GPU's table",
    [TIMING_AKIN] = "like product's times", [TIMING_SHIPPED] = "shipped table",
    [TIMING_MEASURED] = "measured",
};

/* Tables --------------------------------------------------------------------------------------- */

static void init(TimingTable *t, Arena *arena)
{
    *t = (TimingTable){.arena = arena, .key = ARENA_NEW(arena, Sb)};
    map_init(&t->index, arena);
    map_init(&t->unread, arena);
    sb_init(t->key, arena);
}

void timing_table_init(TimingTable *t, Arena *arena, const char *gpu)
{
    init(t, arena);
    t->gpu = arena_strdup(arena, gpu);
}

/* Valid until the next one: a compilation looks for many. */
static const char *row_key(const TimingTable *t, const char *problem, int64_t rows,
                           const char *candidate)
{
    char digit[20], *at = digit + sizeof digit;
    t->key->len = 0;
    for (uint64_t left = (uint64_t)rows; left || at == digit + sizeof digit; left /= 10)
        *--at = (char)('0' + left % 10);
    sb_putn(t->key, at, (size_t)(digit + sizeof digit - at));
    sb_putc(t->key, ' ');
    sb_put(t->key, candidate);
    sb_putc(t->key, '\n');
    sb_put(t->key, problem);
    return t->key->text;
}

static void read_run(TimingTable *t, TimingRun *run);

/* Rows of this problem that nobody asked for yet are read. */
static void read_problem(TimingTable *t, const char *problem)
{
    size_t at = (uintptr_t)map_get(&t->unread, problem);
    if (at && t->run.elem[at - 1].unread)
        read_run(t, &t->run.elem[at - 1]);
}

static int find_row(const TimingTable *t, const char *problem, int64_t rows, const char *candidate)
{
    return (int)(uintptr_t)map_get(&t->index, row_key(t, problem, rows, candidate)) - 1;
}

/* A row that the table does not hold, and whose texts live as long; its key is t->key. */
static void add_row(TimingTable *t, const TimingRow *row)
{
    ARRAY_PUSH(t->arena, &t->row, *row);
    map_put(&t->index, t->key->text, (void *)(uintptr_t)t->row.num);
}

/* .. at the end of the table. */
static void append_row(TimingTable *t, const TimingRow *row)
{
    const TimingRun *last = t->run.num ? &t->run.elem[t->run.num - 1] : NULL;
    const TimingRun fresh = {.problem = row->problem, .first = t->row.num};
    if (!last || (last->problem != row->problem && strcmp(last->problem, row->problem) != 0))
        ARRAY_PUSH(t->arena, &t->run, fresh);
    t->run.elem[t->run.num - 1].num++;
    add_row(t, row);
}

const TimingRow *timing_table_find(TimingTable *t, const char *problem, int64_t rows,
                                   const char *candidate)
{
    read_problem(t, problem);
    int at = find_row(t, problem, rows, candidate);
    return at < 0 ? NULL : &t->row.elem[at];
}

void timing_table_put(TimingTable *t, const TimingRow *row)
{
    TimingRow copy = {.problem = arena_strdup(t->arena, row->problem),
                      .candidate = arena_strdup(t->arena, row->candidate),
                      .rows = row->rows,
                      .us = row->us,
                      .note = arena_strdup(t->arena, row->note),
                      .old = row->old};
    read_problem(t, row->problem);
    int at = find_row(t, row->problem, row->rows, row->candidate);
    if (at >= 0)
        t->row.elem[at] = copy;
    else
        append_row(t, &copy);
}

/* Akin problems -------------------------------------------------------------------------------- */

/* Of a word of a problem (codegen/cuda/problem.c): its length without what the epilogue sees to; 0:
 * the epilogue's own begin here. */
static size_t main_loop_part(const char *word)
{
    static const char *const ends[] = {"/fast", "/1x0", "/0x0"};
    size_t len = strcspn(word, " ");
    if (!*word || !strncmp(word, "reads=", 6))
        return 0;
    for (size_t i = 0; i < COUNT_OF(ends) && !strncmp(word, "a=", 2); i++) {
        size_t num = strlen(ends[i]);
        if (len > num && !memcmp(word + len - num, ends[i], num))
            len -= num;
    }
    return len;
}

static bool are_akin(const char *a, const char *b)
{
    size_t same = strcspn(a, " ") + 1; /* the weight's word; most differ there */
    if (strncmp(a, b, same) != 0)
        return false;
    for (;;) {
        size_t len = main_loop_part(a);
        if (len != main_loop_part(b) || memcmp(a, b, len) != 0)
            return false;
        if (!len)
            return true;
        a += strcspn(a, " ") + strspn(a + strcspn(a, " "), " ");
        b += strcspn(b, " ") + strspn(b + strcspn(b, " "), " ");
    }
}

const char *timing_table_akin(TimingTable *t, const char *problem, int64_t rows)
{
    const char *ret = NULL;
    int most = 0;
    for (int i = 0; i < t->run.num; i++) {
        TimingRun *run = &t->run.elem[i];
        int num = 0;
        if (!are_akin(run->problem, problem) || !strcmp(run->problem, problem))
            continue;
        if (run->unread)
            read_run(t, run);
        for (int k = run->first; k < run->first + run->num; k++)
            num += t->row.elem[k].rows == rows && t->row.elem[k].us > 0;
        if (num > most) {
            most = num;
            ret = run->problem;
        }
    }
    return ret;
}

void timing_table_around(TimingTable *t, const char *problem, int64_t rows, int64_t ret[2])
{
    read_problem(t, problem);
    for (int i = 0; i < t->run.num; i++) {
        const TimingRun *run = &t->run.elem[i];
        if (strcmp(run->problem, problem) != 0)
            continue;
        for (int k = run->first; k < run->first + run->num; k++) {
            int64_t size = t->row.elem[k].us > 0 ? t->row.elem[k].rows : rows;
            if (size < rows && size > ret[0])
                ret[0] = size;
            if (size > rows && (!ret[1] || size < ret[1]))
                ret[1] = size;
        }
    }
}

/* Device code ---------------------------------------------------------------------------------- */

/* The word that the table has for a candidate's family; NULL: it says nothing. */
static TimingCode *find_code(const TimingTable *t, const char *candidate)
{
    size_t len = strcspn(candidate, " ");
    for (int i = 0; i < t->code.num; i++)
        if (strlen(t->code.elem[i].family) == len &&
            !memcmp(t->code.elem[i].family, candidate, len))
            return &t->code.elem[i];
    return NULL;
}

static bool is_old(Arena *arena, TimingCode *code)
{
    if (code->age == TIMING_CODE_UNKNOWN) {
        const char *now = cuda_family_code(arena, code->family);
        code->age = now && !strcmp(now, code->word) ? TIMING_CODE_OURS : TIMING_CODE_OLD;
    }
    return code->age == TIMING_CODE_OLD;
}

static void mark_old(TimingTable *t, int first, int num)
{
    for (int i = first; i < first + num; i++) {
        TimingCode *code = find_code(t, t->row.elem[i].candidate);
        t->row.elem[i].old |= code && is_old(t->arena, code);
    }
}

void timing_table_renew(TimingTable *t)
{
    TimingTable fresh;
    timing_table_init(&fresh, t->arena, t->gpu);
    for (int i = 0; i < t->row.num; i++)
        if (!t->row.elem[i].old)
            timing_table_put(&fresh, &t->row.elem[i]);
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++) {
        TimingCode code = {cuda_family_name[i], cuda_family_code(t->arena, cuda_family_name[i]),
                           TIMING_CODE_OURS};
        if (cuda_family[i]->candidates && code.word)
            ARRAY_PUSH(t->arena, &fresh.code, code);
    }
    *t = fresh;
}

/* Printing ------------------------------------------------------------------------------------- */

static int by_family(const void *a, const void *b)
{
    return strcmp(((const TimingCode *)a)->family, ((const TimingCode *)b)->family);
}

static int by_text(const void *a, const void *b)
{
    const TimingRow *x = *(const TimingRow *const *)a, *y = *(const TimingRow *const *)b;
    int order = strcmp(x->problem, y->problem);
    if (order == 0 && x->rows != y->rows)
        order = x->rows < y->rows ? -1 : 1;
    return order ? order : strcmp(x->candidate, y->candidate);
}

void timing_table_print(Sb *sb, const TimingTable *t)
{
    const TimingRow **row = ARENA_NEW_ARRAY(sb->arena, const TimingRow *, (size_t)t->row.num + 1);
    const char *problem = "";
    for (int i = 0; i < t->row.num; i++)
        row[i] = &t->row.elem[i];
    qsort(row, (size_t)t->row.num, sizeof *row, by_text);
    TimingCode *code = ARENA_NEW_ARRAY(sb->arena, TimingCode, (size_t)t->code.num + 1);
    for (int i = 0; i < t->code.num; i++)
        code[i] = t->code.elem[i];
    qsort(code, (size_t)t->code.num, sizeof *code, by_family);
    sb_printf(sb, HEADER "\ngpu %s\n", t->gpu);
    for (int i = 0; i < t->code.num; i++)
        sb_printf(sb, "kernels %s %s\n", code[i].family, code[i].word);
    for (int i = 0; i < t->row.num; i++) {
        if (strcmp(problem, row[i]->problem) != 0)
            sb_printf(sb, "\nproduct %s\n", row[i]->problem);
        problem = row[i]->problem;
        sb_printf(sb, "%" PRId64 " ", row[i]->rows);
        if (row[i]->us < 0)
            sb_put(sb, "failed");
        else
            sb_printf(sb, "%.2f", row[i]->us);
        sb_printf(sb, " %s%s%s\n", row[i]->candidate, row[i]->note[0] ? "  # " : "", row[i]->note);
    }
}

bool timing_table_write(const TimingTable *t, const char *path, IoError *err)
{
    Sb sb;
    sb_init(&sb, t->arena);
    timing_table_print(&sb, t);
    OutFile *out = outfile_create(path, 0644, err);
    if (!out)
        return false;
    outfile_write(out, sb.text, sb.len);
    return outfile_finish(out, err);
}

/* Reading -------------------------------------------------------------------------------------- */

typedef struct Reader {
    TimingTable *table;
    const char *name;
    int line;
    const char *problem;
    TimingRun *run; /* the one that is read; NULL: rows make runs */
    IoError *err;
} Reader;

static bool fail(const Reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool fail(const Reader *r, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return io_fail(r->err, E_TIMING, "%s:%d: %s", r->name, r->line, text);
}

/* The next word of a line that is one's own: terminated and stepped over; NULL at its end. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " ");
    if (!*word)
        return NULL;
    *at = word + strcspn(word, " ");
    if (**at)
        *(*at)++ = 0;
    return word;
}

/* Without blanks at both ends. */
static char *trim(char *text)
{
    text += strspn(text, " ");
    for (size_t len = strlen(text); len && text[len - 1] == ' '; len--)
        text[len - 1] = 0;
    return text;
}

static bool is_gpu(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < LONG_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static bool read_us(const Reader *r, const char *word, double *ret)
{
    char *end;
    *ret = -1;
    if (!strcmp(word, "failed"))
        return true;
    *ret = strtod(word, &end);
    *ret = round(*ret * 100) / 100; /* as it is printed */
    if (strspn(word, "0123456789.") == strlen(word) && !*end && *ret > 0 && *ret < MOST_US)
        return true;
    return fail(r, "'%.40s' is neither 'failed' nor microseconds from 0.01 to 1e9", word);
}

static bool read_row(const Reader *r, char *line)
{
    TimingRow row = {.problem = r->problem, .note = ""};
    char *note = strchr(line, '#'), *end = NULL, *rows, *us;
    if (note) {
        *note++ = 0;
        row.note = trim(note);
    }
    rows = next_word(&line);
    us = next_word(&line);
    row.candidate = trim(line);
    if (!rows || !us || !row.candidate[0])
        return fail(r, "a row holds rows, microseconds and a candidate");
    if (strlen(row.candidate) + strlen(row.note) > LIMIT_TIMING_LINE - 100)
        return fail(r, "a candidate and its note are longer than %d bytes",
                    LIMIT_TIMING_LINE - 100);
    if (!r->problem)
        return fail(r, "a row stands before the first 'product'");
    errno = 0;
    row.rows = strtoll(rows, &end, 10);
    if (*rows < '0' || *rows > '9' || *end || errno || row.rows < 1 || row.rows > LIMIT_DIM)
        return fail(r, "'%.40s' is no number of rows", rows);
    if (!read_us(r, us, &row.us))
        return false;
    if (find_row(r->table, row.problem, row.rows, row.candidate) >= 0)
        return fail(r, "'%.80s' with %" PRId64 " rows stands here twice", row.candidate, row.rows);
    if (r->table->row.num >= LIMIT_TIMING_ROWS)
        return fail(r, "a table holds at most %d rows", LIMIT_TIMING_ROWS);
    row.candidate = arena_strdup(r->table->arena, row.candidate);
    row.note = row.note[0] ? arena_strdup(r->table->arena, row.note) : "";
    if (r->run) { /* under the key that was looked for */
        add_row(r->table, &row);
        r->run->num++;
    } else {
        append_row(r->table, &row);
    }
    return true;
}

static bool read_code(const Reader *r, char *line)
{
    const char *family = next_word(&line), *word = next_word(&line);
    if (!family || !word || strspn(word, "0123456789abcdef") != strlen(word) || next_word(&line))
        return fail(r, "'kernels' takes a family and a word of hexadecimal digits");
    if (find_code(r->table, family))
        return fail(r, "the kernels '%.40s' stand here twice", family);
    if (r->table->code.num >= LIMIT_TIMING_FAMILIES)
        return fail(r, "a table names at most %d families", LIMIT_TIMING_FAMILIES);
    TimingCode code = {arena_strdup(r->table->arena, family), arena_strdup(r->table->arena, word),
                       TIMING_CODE_UNKNOWN};
    ARRAY_PUSH(r->table->arena, &r->table->code, code);
    return true;
}

static bool read_line(Reader *r, char *line)
{
    static const char product[] = "product ", gpu[] = "gpu ", kernels[] = "kernels ";
    for (const char *c = line; *c; c++)
        if (*c < ' ' || *c > '~')
            return fail(r, "byte 0x%02x; a table is ASCII text", (unsigned char)*c);
    if (r->line == 1)
        return strcmp(line, HEADER) == 0 || fail(r, "a table begins with '" HEADER "'");
    if (!line[strspn(line, " ")] || line[0] == '#')
        return true;
    if (!strncmp(line, gpu, sizeof gpu - 1) && !r->table->gpu) {
        char *name = trim(line + sizeof gpu - 1);
        r->table->gpu = arena_strdup(r->table->arena, name);
        return is_gpu(name) || fail(r, "'%.40s' names no GPU", name);
    }
    if (!r->table->gpu)
        return fail(r, "'gpu' and its name come first");
    if (!strncmp(line, kernels, sizeof kernels - 1))
        return read_code(r, line + sizeof kernels - 1);
    if (strncmp(line, product, sizeof product - 1) != 0)
        return read_row(r, line);
    r->problem = arena_strdup(r->table->arena, trim(line + sizeof product - 1));
    return r->problem[0] || fail(r, "a product has no description");
}

static bool read_lines(Reader *r, const char *text, size_t len)
{
    char line[LIMIT_TIMING_LINE + 1];
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t num = end ? (size_t)(end - text) - at : len - at;
        r->line++;
        if (num > LIMIT_TIMING_LINE)
            return fail(r, "a line is longer than %d bytes", LIMIT_TIMING_LINE);
        if (memchr(text + at, 0, num))
            return fail(r, "byte 0x00; a table is ASCII text");
        memcpy(line, text + at, num);
        line[num] = 0;
        if (!read_line(r, line))
            return false;
        at += num + 1;
    }
    r->line += r->line == 0;
    return true;
}

bool timing_table_parse(TimingTable *ret, Arena *arena, const char *name, const char *text,
                        size_t len, IoError *err)
{
    Reader r = {.table = ret, .name = name, .err = err};
    init(ret, arena);
    if (!read_lines(&r, text, len))
        return false;
    mark_old(ret, 0, ret->row.num);
    return ret->gpu || fail(&r, "the table names no GPU");
}

/* The next line that names a problem; NULL: there is none. */
static const char *next_product(const char *at, const char *end)
{
    static const char word[] = "\nproduct ";
    const char *ret = memmem(at, (size_t)(end - at), word, sizeof word - 1);
    return ret ? ret + 1 : NULL;
}

bool timing_table_open(TimingTable *ret, Arena *arena, const char *name, const char *text,
                       size_t len, IoError *err)
{
    const char *end = text + len, *product = next_product(text, end);
    if (!timing_table_parse(ret, arena, name, text, product ? (size_t)(product - text) : len, err))
        return false;
    for (const char *next; product; product = next) {
        const char *rows = memchr(product, '\n', (size_t)(end - product));
        rows = rows ? rows : end;
        next = next_product(rows, end);
        product += strlen("product ");
        TimingRun run = {.problem = arena_strndup(arena, product, (size_t)(rows - product)),
                         .unread = rows,
                         .unread_len = (size_t)((next ? next : end) - rows)};
        ARRAY_PUSH(arena, &ret->run, run);
        map_put(&ret->unread, run.problem, (void *)(uintptr_t)ret->run.num);
    }
    return true;
}

static void read_run(TimingTable *t, TimingRun *run)
{
    IoError err;
    Reader r = {.table = t, .name = t->gpu, .problem = run->problem, .run = run, .err = &err};
    const char *text = run->unread;
    run->first = t->row.num;
    run->unread = NULL;
    r.line = 1; /* the first holds a header */
    if (!read_lines(&r, text, run->unread_len))
        BUG("%s, below %s", err.text, run->problem);
    mark_old(t, run->first, run->num);
}

bool timing_table_read(TimingTable *ret, Arena *arena, const char *path, IoError *err)
{
    uint64_t size;
    char *text = file_read(path, LIMIT_TIMING_BYTES, &size, err);
    bool ok = text && timing_table_parse(ret, arena, path, text, size, err);
    free(text);
    return ok;
}
