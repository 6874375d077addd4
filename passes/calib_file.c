/* passes/calib_file: the text of a calibration file. One fact a line, so that two files can be
 * compared by eye and by diff; docs/quantisation.md describes it. Numbers are the shortest that
 * read back as themselves. Reading checks every rule and trusts no declared size. */
#include "passes/calibration.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PER_LINE 16 /* bins */

/* Printing ------------------------------------------------------------------------------------- */

static void put_key(Sb *sb, const char *word, const char *name, CacheKey key)
{
    sb_printf(sb, "%s ", word);
    sb_put_json_string(sb, name, strlen(name));
    sb_printf(sb, " %016llx%016llx\n", (unsigned long long)key.half[1],
              (unsigned long long)key.half[0]);
}

static void put_histogram(Sb *sb, const Histogram *h)
{
    sb_put(sb, "range ");
    sb_put_f32(sb, h->lo);
    sb_putc(sb, ' ');
    sb_put_f32(sb, h->hi);
    sb_printf(sb, "\nbins %d %lld\n", h->exponent, (long long)h->first);
    for (int at = 0; at < HISTOGRAM_BINS; at += PER_LINE) {
        int last = PER_LINE;
        while (last > 0 && !h->count[at + last - 1])
            last--;
        if (!last)
            continue;
        sb_printf(sb, "%d:", at);
        for (int i = at; i < at + last; i++)
            sb_printf(sb, " %llu", (unsigned long long)h->count[i]);
        sb_putc(sb, '\n');
    }
}

static void put_record(Sb *sb, const CalibRecord *r)
{
    const ActStats *s = &r->stats;

    sb_putc(sb, '\n');
    for (int i = 0; i < r->layers.num; i++) {
        sb_put(sb, "layer ");
        sb_put_json_string(sb, r->layers.elem[i], strlen(r->layers.elem[i]));
        sb_putc(sb, '\n');
    }
    sb_printf(sb, "rows %lld %lld\n", (long long)s->rows, (long long)s->bad_rows);
    if (s->whole.total)
        put_histogram(sb, &s->whole);
    sb_printf(sb, "columns %lld\n", (long long)s->cols);
    for (int64_t c = 0; c < s->cols; c++) {
        sb_put_f32(sb, s->lo[c]);
        sb_putc(sb, ' ');
        sb_put_f32(sb, s->hi[c]);
        sb_putc(sb, ' ');
        sb_put_f64(sb, s->abs_sum[c]);
        sb_putc(sb, ' ');
        sb_put_f64(sb, s->square_sum[c]);
        sb_putc(sb, '\n');
    }
}

void calibration_print(Sb *sb, const Calibration *c)
{
    sb_put(sb, "sinter calibration 1\n");
    put_key(sb, "model", c->model, c->key);
    for (int i = 0; i < c->data.num; i++)
        put_key(sb, "data", c->data.elem[i].path, c->data.elem[i].key);
    for (int i = 0; i < c->records.num; i++)
        put_record(sb, c->records.elem[i]);
    sb_put(sb, "end\n");
}

/* Reading -------------------------------------------------------------------------------------- */

typedef struct Reader {
    const char *name, *text;
    size_t len, at;
    int line;
    Arena *arena;
    Map layers; /* seen */
    IoError *err;
    bool failed;
} Reader;

static bool fail(Reader *r, const char *what)
{
    if (!r->failed)
        io_fail(r->err, E_CALIBRATION_FILE, "%s:%d: %s", r->name, r->line, what);
    r->failed = true;
    return false;
}

/* Words of a line stand one space apart. */
static bool get_word(Reader *r, const char *word)
{
    size_t len = strlen(word);

    if (r->len - r->at < len || memcmp(r->text + r->at, word, len) != 0)
        return false;
    r->at += len;
    return true;
}

static bool need(Reader *r, const char *word, const char *what)
{
    return get_word(r, word) || fail(r, what);
}

static bool end_line(Reader *r)
{
    if (!need(r, "\n", "the line goes on where it should end"))
        return false;
    r->line++;
    return true;
}

/* The characters up to the next space or the line's end, at most 40; "" at the end. */
static void get_text(Reader *r, char text[41])
{
    size_t num = 0;

    while (r->at < r->len && num < 40 && !strchr(" :\n", r->text[r->at]) && r->text[r->at])
        text[num++] = r->text[r->at++];
    text[num] = 0;
}

static int64_t get_int(Reader *r, int64_t least, int64_t most)
{
    char text[41], *end;

    get_text(r, text);
    long long value = strtoll(text, &end, 10);
    bool digits =
        text[0] == '-' ? text[1] >= '0' && text[1] <= '9' : text[0] >= '0' && text[0] <= '9';
    if (digits && !*end && value >= least && value <= most)
        return value;
    fail(r, "a whole number is missing, or it is out of range");
    return least;
}

static double get_number(Reader *r)
{
    char text[41], *end;

    get_text(r, text);
    double value = strtod(text, &end);
    if (strchr("-.0123456789", text[0]) && text[0] && !*end && isfinite(value) &&
        !strpbrk(text, "xXnNiI"))
        return value;
    fail(r, "a finite number is missing");
    return 0;
}

static float get_f32(Reader *r)
{
    double value = get_number(r);

    if (fabs(value) > (double)3.40282347e38f)
        fail(r, "a number beyond the range of f32");
    return r->failed ? 0 : (float)value;
}

/* A JSON string, in the arena. */
static const char *get_string(Reader *r)
{
    char buf[LIMIT_TOKEN_BYTES];
    Json j;
    const char *end = memchr(r->text + r->at, '\n', r->len - r->at);

    json_init(&j, r->text + r->at, end ? (size_t)(end - (r->text + r->at)) : 0);
    if (!json_string(&j, buf, sizeof buf)) {
        fail(r, "a string in quotes is missing");
        return "";
    }
    r->at += j.pos;
    return arena_strdup(r->arena, buf);
}

static CacheKey get_key(Reader *r)
{
    char text[41], half[17];
    CacheKey key = {{0, 0}};

    if (!need(r, " ", "a hash is missing"))
        return key;
    get_text(r, text);
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) {
        fail(r, "a hash is 32 digits of 0-9 and a-f");
        return key;
    }
    memcpy(half, text, 16);
    half[16] = 0;
    key.half[1] = strtoull(half, NULL, 16);
    key.half[0] = strtoull(text + 16, NULL, 16);
    return key;
}

static bool get_bin_line(Reader *r, Histogram *h, int *least)
{
    int64_t at = get_int(r, *least, HISTOGRAM_BINS - PER_LINE);

    if (r->failed || at % PER_LINE || !need(r, ":", "a line of counts begins with a bin and ':'"))
        return fail(r, "counts begin at a multiple of 16 bins, in rising order");
    for (int i = 0; i < PER_LINE && !r->failed && get_word(r, " "); i++) {
        h->count[at + i] = (uint64_t)get_int(r, 0, INT64_MAX);
        if (!checked_add(h->total, h->count[at + i], &h->total))
            fail(r, "the counts overflow");
    }
    *least = (int)at + PER_LINE;
    return !r->failed && end_line(r);
}

/* Every bin but those that the range reaches is empty, and the ends are not. */
static bool histogram_holds(const Histogram *h)
{
    int first = 0, last = HISTOGRAM_BINS - 1;
    double lo = floor(ldexp(h->lo, -h->exponent)) - (double)h->first;
    double hi = floor(ldexp(h->hi, -h->exponent)) - (double)h->first;

    while (first < last && !h->count[first])
        first++;
    while (last > first && !h->count[last])
        last--;
    return h->lo <= h->hi && h->count[first] && lo == first && hi == last;
}

static bool get_histogram(Reader *r, Histogram *h)
{
    int least = 0;

    h->lo = get_f32(r);
    if (r->failed || !need(r, " ", "a range has two ends"))
        return false;
    h->hi = get_f32(r);
    if (r->failed || !end_line(r) || !need(r, "bins ", "'bins' is missing"))
        return false;
    h->exponent = (int)get_int(r, -200, 128);
    if (r->failed || !need(r, " ", "'bins' takes an exponent and the first bin"))
        return false;
    h->first = get_int(r, -(INT64_C(1) << 50), INT64_C(1) << 50);
    if (r->failed || !end_line(r))
        return false;
    while (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9')
        if (!get_bin_line(r, h, &least))
            return false;
    return histogram_holds(h) || fail(r, "the counts do not fit the range");
}

typedef struct Columns {
    ARRAY(float) lo, hi;
    ARRAY(double) abs_sum, square_sum;
} Columns;

static bool get_column(Reader *r, Columns *c)
{
    float lo = get_f32(r);
    bool ok = !r->failed && need(r, " ", "a column is 'low high sum-of-magnitudes sum-of-squares'");
    float hi = ok ? get_f32(r) : 0;
    ok = ok && !r->failed && need(r, " ", "a column has four numbers");
    double abs_sum = ok ? get_number(r) : 0;
    ok = ok && !r->failed && need(r, " ", "a column has four numbers");
    double square_sum = ok ? get_number(r) : 0;

    if (!ok || r->failed)
        return false;
    if (lo > hi || abs_sum < 0 || square_sum < 0)
        return fail(r, "low above high, or a sum below 0");
    ARRAY_PUSH(r->arena, &c->lo, lo);
    ARRAY_PUSH(r->arena, &c->hi, hi);
    ARRAY_PUSH(r->arena, &c->abs_sum, abs_sum);
    ARRAY_PUSH(r->arena, &c->square_sum, square_sum);
    return end_line(r);
}

static bool columns_fit(Reader *r, const ActStats *s)
{
    float lo = s->lo[0], hi = s->hi[0];
    uint64_t total;

    for (int64_t c = 0; c < s->cols; c++) {
        lo = s->lo[c] < lo ? s->lo[c] : lo;
        hi = s->hi[c] > hi ? s->hi[c] : hi;
    }
    if (!checked_mul((uint64_t)s->rows, (uint64_t)s->cols, &total) || total != s->whole.total)
        return fail(r, "the counts do not add up to rows times columns");
    return (lo == s->whole.lo && hi == s->whole.hi) ||
           fail(r, "the columns' ends are not those of the range");
}

static bool get_layers(Reader *r, CalibRecord *record)
{
    while (get_word(r, "layer ")) {
        const char *layer = get_string(r);
        if (r->failed || !end_line(r))
            return false;
        if (map_has(&r->layers, layer))
            return fail(r, "a layer that an activation above names already");
        map_put(&r->layers, layer, record);
        ARRAY_PUSH(r->arena, &record->layers, layer);
    }
    return record->layers.num || fail(r, "'layer' is missing");
}

static bool get_record(Reader *r, CalibRecord *record)
{
    ActStats *s = &record->stats;
    Columns c = {0};

    if (!end_line(r) || !get_layers(r, record) || !need(r, "rows ", "'rows' is missing"))
        return false;
    s->rows = get_int(r, 0, INT64_MAX);
    if (r->failed || !need(r, " ", "'rows' takes the usable and the unusable ones"))
        return false;
    s->bad_rows = get_int(r, 0, INT64_MAX);
    if (r->failed || !end_line(r) || (get_word(r, "range ") && !get_histogram(r, &s->whole)))
        return false;
    if (!need(r, "columns ", "'columns' is missing"))
        return false;
    s->cols = get_int(r, 1, LIMIT_DIM);
    if (r->failed || !end_line(r))
        return false;
    for (int64_t i = 0; i < s->cols; i++)
        if (!get_column(r, &c))
            return false;
    s->lo = c.lo.elem;
    s->hi = c.hi.elem;
    s->abs_sum = c.abs_sum.elem;
    s->square_sum = c.square_sum.elem;
    return columns_fit(r, s);
}

static bool get_head(Reader *r, Calibration *c)
{
    if (!need(r, "sinter calibration ", "this is no calibration file of sinter") ||
        !need(r, "1", "a version of calibration files that this compiler does not know") ||
        !end_line(r) || !need(r, "model ", "'model' is missing"))
        return false;
    c->model = get_string(r);
    c->key = r->failed ? c->key : get_key(r);
    if (r->failed || !end_line(r))
        return false;
    while (get_word(r, "data ")) {
        CalibData data = {.path = get_string(r)};
        data.key = r->failed ? data.key : get_key(r);
        if (r->failed || !end_line(r))
            return false;
        ARRAY_PUSH(r->arena, &c->data, data);
    }
    return true;
}

bool calibration_parse(Calibration *c, Arena *arena, const char *name, const char *text, size_t len,
                       IoError *err)
{
    Reader r = {.name = name, .text = text, .len = len, .line = 1, .arena = arena, .err = err};

    *c = (Calibration){0};
    map_init(&r.layers, arena);
    if (!get_head(&r, c))
        return false;
    while (!get_word(&r, "end")) {
        CalibRecord *record = ARENA_NEW(arena, CalibRecord);
        if (r.at == r.len)
            return fail(&r, "the file ends before its 'end'");
        if (!get_record(&r, record))
            return false;
        ARRAY_PUSH(arena, &c->records, record);
    }
    return end_line(&r) && (r.at == r.len || fail(&r, "something stands after 'end'"));
}
