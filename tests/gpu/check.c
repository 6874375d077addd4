/* Checking one model; see check.h. */
#include "tests/gpu/check.h"
#include "tests/gpu/sides.h"
#include "tests/random/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_SYMS  8
#define NUM_SIZES 80

typedef struct Check {
    const CheckJob *job;
    const CheckOptions *options;
    Totals *totals;
    uint64_t state; /* of random numbers */
} Check;

double check_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void totals_merge(Totals *t, const Totals *other)
{
    t->models += other->models;
    t->failed += other->failed;
    t->runs += other->runs;
    t->sessions += other->sessions;
    t->refused += other->refused;
    t->spoilt += other->spoilt;
    t->unfused += other->unfused;
    t->kernels += other->kernels;
    t->cached += other->cached;
    t->compile_s += other->compile_s;
    t->check_s += other->check_s;
    t->session_s += other->session_s;
    t->worst = other->worst > t->worst ? other->worst : t->worst;
    t->digest += other->digest;
    cover_merge(&t->cover, &other->cover);
}

/* Sizes ---------------------------------------------------------------------------------------- */

typedef struct Sizes {
    int64_t size[NUM_SIZES][MAX_SYMS];
    int num;
} Sizes;

static bool add_size(Sizes *s, const int64_t *size, int num_syms)
{
    size_t bytes = (size_t)num_syms * sizeof *size;
    for (int i = 0; i < s->num; i++)
        if (!memcmp(s->size[i], size, bytes))
            return false;
    memcpy(s->size[s->num++], size, bytes);
    return true;
}

/* The bucket's own sizes and `more` smaller ones. */
static void draw_sizes(const Plan *p, int bucket, int more, uint64_t *state, Sizes *ret)
{
    *ret = (Sizes){.num = 0};
    const int64_t none[MAX_SYMS] = {0}, *full = p->num_syms ? plan_bucket(p, bucket) : none;
    add_size(ret, full, p->num_syms);
    for (int tries = 0; tries < 4 * more && ret->num <= more && p->num_syms; tries++) {
        int64_t size[MAX_SYMS];
        for (int i = 0; i < p->num_syms; i++)
            size[i] = 1 + (int64_t)(random_next(state) >> 8) % full[i];
        if (more >= full[0] && p->num_syms == 1) /* all of them */
            size[0] = full[0] - 1 - tries > 0 ? full[0] - 1 - tries : 1;
        add_size(ret, size, p->num_syms);
    }
}

/* Launch by launch ----------------------------------------------------------------------------- */

static void print_sizes(const Plan *p, const int64_t *size)
{
    for (int i = 0; i < p->num_syms; i++)
        printf(" %s=%" PRId64, p->sym[i].name, size[i]);
}

static Odd draw_odd(uint64_t *state, int64_t rows)
{
    Odd odd = (Odd)(random_next(state) % (3 * NUM_ODD));
    return odd >= NUM_ODD || rows < 4 ? ODD_NONE : odd;
}

/* The last row of odd inputs, which bounds leave out, stands anywhere in tensors of routed rows. */
static bool moves_rows(const Plan *p)
{
    for (int i = 0; i < p->num_launches; i++)
        if (p->launch[i].family == LAUNCH_ROUTE)
            return true;
    return false;
}

/* A test of the test: one byte that differs must be found. */
static bool check_spoilt(const Check *c, Rig *r, int bucket, const int64_t *size, const Side *in,
                         uint64_t seed)
{
    rig_spoil(r, seed);
    bool same = rig_check(r, bucket, size, in->data, false), spoilt = rig_spoil(r, 0);
    c->totals->spoilt += spoilt;
    if (same && spoilt)
        printf("# a spoilt byte was not found\n");
    return !same || !spoilt;
}

static bool check_size(const Check *c, const Built *b, Rig *r, int bucket, const int64_t *size,
                       uint64_t seed)
{
    Side in;
    uint64_t state = seed;
    const Plan *p = b->cuda.target.plan;
    Odd odd = draw_odd(&state, p->num_syms ? size[0] : 1);
    odd = odd >= ODD_LARGE && moves_rows(p) ? ODD_NONE : odd;
    bool ok = side_make(b->file, false, size, &in);
    if (ok) {
        side_fill(&in, state, odd);
        ok = rig_check(r, bucket, size, in.data, odd >= ODD_LARGE);
        if (ok && c->options->spoil && odd <= ODD_ZEROS)
            ok = check_spoilt(c, r, bucket, size, &in, random_next(&state));
    }
    side_free(&in);
    return ok;
}

/* The smallest size that fails too: what a person wants to look at. */
static void reduce(const Check *c, const Built *b, Rig *r, int bucket, const int64_t *size,
                   uint64_t seed)
{
    int64_t less[MAX_SYMS] = {1};
    const Plan *p = b->cuda.target.plan;
    for (int i = 0; i < p->num_syms; i++)
        less[i] = size[i];
    for (less[0] = 1; p->num_syms && less[0] < size[0]; less[0] += less[0] < 16 ? 1 : less[0] / 2)
        if (rig_takes(r, bucket, less) && !check_size(c, b, r, bucket, less, seed)) {
            printf("# it fails from size %" PRId64 " on, bucket %d\n", less[0], bucket);
            return;
        }
}

static bool check_launches(Check *c, const Built *b, Rig *r, int more)
{
    const Plan *p = b->cuda.target.plan;
    Totals *totals = c->totals;
    Sizes sizes;
    for (int bucket = 0; bucket < p->num_buckets; bucket++) {
        bool is_first = true;
        draw_sizes(p, bucket, more, &c->state, &sizes);
        for (int i = 0; i < sizes.num; i++) {
            const int64_t *size = sizes.size[i];
            uint64_t seed = random_next(&c->state);
            if (!rig_takes(r, bucket, size)) {
                totals->refused++;
                continue;
            }
            cover_add(&totals->cover, b, bucket, is_first);
            is_first = false;
            totals->runs++;
            bool ok = check_size(c, b, r, bucket, size, seed);
            totals->worst = rig_worst(r) > totals->worst ? rig_worst(r) : totals->worst;
            if (ok)
                continue;
            printf("# at");
            print_sizes(p, size);
            printf(", bucket %d\n", bucket);
            reduce(c, b, r, bucket, size, seed);
            return false;
        }
    }
    return true;
}

/* Sessions ------------------------------------------------------------------------------------- */

/* Bytes of one row of the batch, by port. */
static uint64_t row_bytes(const Side *side, int port, int64_t rows)
{
    return rows ? side->bytes[port] / (uint64_t)rows : 0;
}

static int bucket_for(const Plan *p, const int64_t *size)
{
    for (int b = 0; b < p->num_buckets; b++) {
        bool fits = true;
        for (int i = 0; i < p->num_syms; i++)
            fits = fits && size[i] <= plan_bucket(p, b)[i];
        if (fits)
            return b;
    }
    return -1;
}

/* A piece whose rows a session fills up to its bucket's: blocks that share out K do so by the
 * number of rows, so the bits are those of the whole bucket. */
static bool chain_padded(const Built *b, Rig *r, int bucket, void *const *from, void *const *to,
                         int64_t rows)
{
    const int64_t *size = plan_bucket(b->cuda.target.plan, bucket);
    Side in, out;
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &out) && ok;
    for (int i = 0; ok && i < in.num; i++)
        memcpy(in.data[i], from[i], (size_t)((uint64_t)rows * row_bytes(&in, i, size[0])));
    ok = ok && rig_chain(r, bucket, size, in.data, out.data);
    for (int i = 0; ok && i < out.num; i++)
        memcpy(to[i], out.data[i], (size_t)((uint64_t)rows * row_bytes(&out, i, size[0])));
    side_free(&in);
    side_free(&out);
    return ok;
}

/* What a session must give: the chain of the launches, piece by piece as batches are cut. */
static bool chain_pieces(const Built *b, Rig *r, const int64_t *size, const Side *in, Side *out)
{
    const Plan *p = b->cuda.target.plan;
    int64_t rows = p->num_syms ? size[0] : 1, largest = rows, piece[MAX_SYMS] = {0};
    if (p->num_syms)
        largest = plan_bucket(p, p->num_buckets - 1)[0];
    for (int64_t at = 0; at < rows;) {
        void *from[SIDE_PORTS], *to[SIDE_PORTS];
        int64_t num = rows - at < largest ? rows - at : largest;
        for (int i = 1; i < p->num_syms; i++)
            piece[i] = size[i];
        piece[0] = num;
        for (int i = 0; i < in->num; i++)
            from[i] = (char *)in->data[i] + (uint64_t)at * row_bytes(in, i, rows);
        for (int i = 0; i < out->num; i++)
            to[i] = (char *)out->data[i] + (uint64_t)at * row_bytes(out, i, rows);
        int bucket = bucket_for(p, piece);
        bool is_padded = p->rows_independent && num < plan_bucket(p, bucket)[0];
        if (!(is_padded ? chain_padded(b, r, bucket, from, to, num)
                        : rig_chain(r, bucket, piece, from, to)))
            return false;
        at += num;
    }
    return true;
}

static bool run_session(const Built *b, SinterSession *session, const Side *in, Side *out)
{
    SinterError err;
    side_poison(out);
    if (!sinter_run(session, in->tensor, in->num, out->tensor, out->num, &err))
        return true;
    printf("# %s: %s\n", sinter_model_name(b->file), err.text);
    return false;
}

static uint64_t digest(const Side *side)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (int i = 0; i < side->num; i++)
        for (uint64_t k = 0; k < side->bytes[i]; k++)
            hash = (hash ^ ((const uint8_t *)side->data[i])[k]) * UINT64_C(0x100000001B3);
    return hash;
}

static bool check_session(Check *c, const Built *b, Rig *r, SinterSession *session,
                          const int64_t *size)
{
    Side in, want, got;
    char text[200];
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &want) && ok;
    ok = side_make(b->file, true, size, &got) && ok;
    const char *differ = NULL;
    if (ok) {
        side_fill(&in, random_next(&c->state), ODD_NONE);
        ok = chain_pieces(b, r, size, &in, &want) && run_session(b, session, &in, &got);
        differ = ok ? side_difference(&want, &got, text, sizeof text) : NULL;
    }
    if (differ)
        printf("# a session gives other bits than its launches: %s\n", differ);
    c->totals->digest += digest(&got);
    c->totals->sessions++;
    side_free(&in);
    side_free(&want);
    side_free(&got);
    return ok && !differ;
}

/* All rows of the batch become copies of one; that row's results keep their bits. */
static bool check_rows(Check *c, const Built *b, SinterSession *session)
{
    Side in, want, got;
    const Plan *p = b->cuda.target.plan;
    if (!p->rows_independent || !p->num_syms)
        return true;
    const int64_t *size = plan_bucket(p, p->num_buckets - 1);
    int64_t rows = size[0], kept = (int64_t)(random_next(&c->state) >> 8) % rows;
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &want) && ok;
    ok = side_make(b->file, true, size, &got) && ok;
    side_fill(&in, random_next(&c->state), ODD_NONE);
    ok = ok && run_session(b, session, &in, &want);
    for (int i = 0; i < in.num && ok; i++) {
        uint64_t each = row_bytes(&in, i, rows);
        char *data = in.data[i];
        for (int64_t row = 0; row < rows; row++)
            if (row != kept)
                memcpy(data + (uint64_t)row * each, data + (uint64_t)kept * each, (size_t)each);
    }
    ok = ok && run_session(b, session, &in, &got);
    for (int i = 0; i < got.num && ok; i++) {
        uint64_t each = row_bytes(&got, i, rows), at = (uint64_t)kept * each;
        if (memcmp((char *)got.data[i] + at, (char *)want.data[i] + at, (size_t)each) != 0) {
            printf("# row %" PRId64 " of %" PRId64 " depends on the others\n", kept, rows);
            ok = false;
        }
    }
    side_free(&in);
    side_free(&want);
    side_free(&got);
    return ok;
}

/* Every bucket, one size below each, and beyond the largest, where batches are cut. */
static bool check_sessions(Check *c, const Built *b, Rig *r)
{
    const Plan *p = b->cuda.target.plan;
    SinterSession *session = NULL;
    SinterError err;
    const char *device = c->options->rig.dry ? "cpu" : "cuda:0";
    if (sinter_session_create(b->file, &(SinterSessionOptions){.device = device, .threads = 1},
                              &session, &err)) {
        printf("# %s\n", err.text);
        return false;
    }
    bool ok = true;
    Sizes sizes = {.num = 0};
    for (int bucket = 0; bucket < p->num_buckets && ok; bucket++) {
        draw_sizes(p, bucket, 1, &c->state, &sizes);
        bool last = bucket + 1 == p->num_buckets;
        if (last && p->rows_independent && p->num_syms == 1)
            add_size(&sizes, (int64_t[]){2 * sizes.size[0][0] + 3}, 1);
        for (int i = 0; i < sizes.num && ok; i++) {
            int at = bucket_for(p, sizes.size[i]);
            if (at >= 0 && !rig_takes(r, at, sizes.size[i]))
                continue;
            ok = check_session(c, b, r, session, sizes.size[i]);
            if (!ok) {
                printf("# at");
                print_sizes(p, sizes.size[i]);
                puts("");
            }
        }
    }
    ok = ok && check_rows(c, b, session);
    sinter_session_destroy(session);
    return ok;
}

/* Models --------------------------------------------------------------------------------------- */

/* The same inputs for both: the same bits. */
static bool compare_chains(Check *c, const Built *b, Rig *fused, Rig *unfused)
{
    char text[200];
    Side in, want, got;
    const Plan *p = b->cuda.target.plan;
    const int64_t none[MAX_SYMS] = {0};
    const int64_t *size = p->num_syms ? plan_bucket(p, p->num_buckets - 1) : none;
    bool ok = side_make(b->file, false, size, &in);
    ok = side_make(b->file, true, size, &want) && ok;
    ok = side_make(b->file, true, size, &got) && ok;
    side_fill(&in, random_next(&c->state), ODD_NONE);
    ok = ok && rig_chain(fused, p->num_buckets - 1, size, in.data, got.data) &&
         rig_chain(unfused, p->num_buckets - 1, size, in.data, want.data);
    const char *differ = ok ? side_difference(&want, &got, text, sizeof text) : NULL;
    if (differ)
        printf("# fused and unfused differ: %s\n", differ);
    side_free(&in);
    side_free(&want);
    side_free(&got);
    return ok && !differ;
}

static BuildOptions build_options(const CheckJob *job, int level)
{
    return (BuildOptions){.path = job->path,
                          .dir = job->dir,
                          .level = level,
                          .family = job->family,
                          .wish = job->wish,
                          .decode = job->decode,
                          .layout = job->layout,
                          .invariant = job->invariant,
                          .racecheck = job->racecheck};
}

/* None of its weights lies in the layout that alone is asked for. */
static bool is_left_out(const CheckJob *job)
{
    Built b;
    const BuildOptions build = build_options(job, 1);
    bool found = !job->only || !built_make(&b, &build);
    for (int i = 0; !found && i < b.cuda.target.plan->num_tensors; i++) {
        const PlanTensor *t = &b.cuda.target.plan->tensor[i];
        found = t->packed && t->pack_spec.layout == *job->layout;
    }
    if (job->only)
        built_free(&b);
    return !found;
}

static bool make(const Check *c, Built *b, int level)
{
    double begin = check_seconds();
    BuildOptions build = build_options(c->job, level);
    build.code = !c->options->rig.dry && !c->options->count;
    bool ok = built_make(b, &build);
    if (!c->options->compiled) {
        c->totals->kernels += b->cuda.num_sources;
        c->totals->cached += b->cuda.num_cached;
        c->totals->compile_s += check_seconds() - begin;
    }
    return ok;
}

void check_compile(const CheckJob *job, const CheckOptions *options, Totals *totals)
{
    Built b;
    CheckOptions first = *options;
    first.compiled = false;
    Check c = {job, &first, totals, 0};
    if (is_left_out(job))
        return;
    make(&c, &b, 1); /* what is wrong with it check_model will say */
    built_free(&b);
    if (job->unfused) {
        make(&c, &b, 0);
        built_free(&b);
    }
}

/* Exact models: the same bits without fusion. The others' launches are checked one by one. */
static bool check_unfused(Check *c, const Built *b, Rig *r)
{
    Built unfused;
    Rig *other = NULL;
    bool ok = make(c, &unfused, 0) && (other = rig_open(&unfused, &c->options->rig)) != NULL &&
              check_launches(c, &unfused, other, 0) &&
              (!rig_is_exact(r) || compare_chains(c, b, r, other));
    c->totals->unfused++;
    rig_close(other);
    built_free(&unfused);
    return ok;
}

/* What would run. */
static void count_model(Check *c, const Built *b)
{
    Sizes sizes;
    for (int bucket = 0; bucket < b->cuda.target.plan->num_buckets; bucket++) {
        draw_sizes(b->cuda.target.plan, bucket, c->job->more, &c->state, &sizes);
        for (int i = 0; i < sizes.num; i++)
            cover_add(&c->totals->cover, b, bucket, i == 0);
        c->totals->runs += sizes.num;
    }
}

static bool run_model(Check *c, const Built *b)
{
    double begin = check_seconds(), between;
    Rig *r = rig_open(b, &c->options->rig);
    bool ok = r && check_launches(c, b, r, c->job->more);
    c->totals->check_s += (between = check_seconds()) - begin;
    ok = ok && (c->options->rig.apart || check_sessions(c, b, r));
    c->totals->session_s += check_seconds() - between;
    ok = ok && (!c->job->unfused || check_unfused(c, b, r));
    rig_close(r);
    return ok;
}

bool check_model(const CheckJob *job, const CheckOptions *options, Totals *totals)
{
    Built b;
    Check c = {job, options, totals, job->number * UINT64_C(0x9E3779B97F4A7C15) + 1};
    if (is_left_out(job))
        return true;
    bool ok = make(&c, &b, 1);
    if (ok && options->count)
        count_model(&c, &b);
    else if (ok)
        ok = run_model(&c, &b);
    totals->models++;
    totals->failed += !ok;
    if (!ok || options->verbose)
        printf("%sok - %" PRIu64 " %s\n", ok ? "" : "not ", job->number, job->what);
    fflush(stdout);
    built_free(&b);
    return ok;
}
