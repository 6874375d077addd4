/* codegen/cuda/choose: which family and tile runs a launch under one bucket. */
#include "codegen/cuda/family.h"

#include <string.h>

#define FEW_ROWS      4     /* up to here a product takes its prologue in .. */
#define MANY_ROWS     16    /* .. where a rule says that it is to be one launch */
#define LOCAL_A_COLS  32768 /* longest row that a prologue inside a product makes */
#define LOCAL_A_BYTES 17408 /* of all its rows: more leave little for weights on their way, .. */
#define LOCAL_A_MOST  34816 /* .. unless it was measured to be faster */
#define ROW_LAUNCH_US 0.7   /* more than a kernel of one row takes itself, between two products */
#define SHARED_A_US   1.5   /* longer than with its input at hand, for each of them */
#define SHARED_A_90   18    /* .. where a launch of rows begins before the one ahead of it ends */
#define SCRATCH_BYTES 1024  /* of epilogues, of the static shared memory that is set aside */
#define TABLE_BYTES   640   /* .. and of where groups of rows begin (hopper_tiles.cuh) */
#define SLOWER_SHOWN  3     /* candidates that `explain` shows beside the fastest */

/* Row programs and moves have one family each, which knows its numbers. */
static void shape(CudaKernel *k, const char **ret_problem)
{
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++)
        if (cuda_family[i]->launch == k->launch->family)
            k->family = (CudaFamily)i;
    if (cuda_family[k->family]->shape)
        cuda_family[k->family]->shape(k, ret_problem);
}

/* What choices need while they are made; who visits candidates may keep them. */
static Arena *scratch_of(const CudaDraft *d)
{
    return d->options->visit ? d->arena : d->scratch;
}

/* Products ------------------------------------------------------------------------------------ */

/* A weight that another kernel computes lies in plain rows. */
static void rows_of_weight(CudaKernel *k)
{
    const PlanTensor *a = &k->plan->tensor[k->launch->a], *w = &k->plan->tensor[k->launch->w];
    const PlanLayout *l = &k->layout[k->launch->w];
    k->spec = (CudaPackSpec){.fmt = (FormatId)num_holder((int)w->fmt),
                             .act_fmt = a->fmt,
                             .n = l->rows,
                             .k = l->cols,
                             .parts = 1};
    k->packed = (CudaPacked){.layout = CUDA_ROWS, .home = CUDA_HOME_F32, .rows = l->rows};
}

static bool reads_aligned(const CudaKernel *k) /* rows of a start at multiples of 16 bytes */
{
    return k->layout[k->launch->a].pitch % 16 == 0 && k->layout[k->launch->a].at % 16 == 0;
}

/* The formats and layout of w. False: too large. */
static bool look_at_weight(CudaKernel *k)
{
    const PlanTensor *w = &k->plan->tensor[k->launch->w];
    if (!w->packed) {
        rows_of_weight(k);
        return true;
    }
    const PlanTensor *a = &k->plan->tensor[k->launch->a];
    k->spec = plan_cuda_spec(&w->pack_spec);
    if (!cuda_pack_plan(&k->spec, &k->packed))
        return false;
    if (a->quantised)
        cuda_pack_fold(&k->spec, a->scheme.scale_fmt, &k->packed);
    return true;
}

bool cuda_epilogue_runs(CudaKernel *k)
{
    if (!look_at_weight(k))
        return true; /* what is wrong is said later */
    for (int columns = 64; columns <= CUDA_TILE_COLS; columns *= 2)
        if (cuda_epilogue_fits(k, columns / k->spec.parts))
            return true;
    return false;
}

bool cuda_family_serves(CudaFamily family, const CodeClass *gpu)
{
    const char *only = cuda_family[family]->serves;
    return !only || !strcmp(only, gpu->name);
}

/* The family multiplies such weights, for this GPU. */
static bool multiplies(const CudaKernel *k, CudaFamily family)
{
    const CudaFamilyRow *row = cuda_family[family];
    return row->candidates && cuda_family_serves(family, k->gpu) &&
           (!row->takes || row->takes(&k->spec));
}

static const char *lies_as(Arena *arena, const CudaKernel *k)
{
    return k->packed.layout == CUDA_ROWS
               ? "is computed"
               : arena_printf(arena, "lies as %s", cuda_layout[k->packed.layout].name);
}

/* Why such a family has no candidates; NULL: it has. */
static const char *family_problem(Arena *arena, const CudaKernel *k, const CudaFamilyRow *family)
{
    if (!(family->layouts >> k->packed.layout & 1))
        return arena_printf(arena, "the weight %s", lies_as(arena, k));
    if (k->input == INPUT_LOCAL)
        return family->makes_rows ? NULL : "its input is made inside";
    if (family->aligned && !reads_aligned(k))
        return "rows of the activation do not start at multiples of 16 bytes";
    return NULL;
}

static void enumerate(CudaCandidates *c)
{
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++)
        if (multiplies(&c->like, (CudaFamily)i) &&
            !family_problem(c->arena, &c->like, cuda_family[i]))
            cuda_family[i]->candidates(c);
}

/* Leaves only one family, where it has a valid candidate. */
static void keep_family(CudaCandidates *c, CudaFamily family)
{
    int num = 0;
    for (int i = 0; i < c->list.num; i++)
        num += !c->list.elem[i].reason && c->list.elem[i].kernel.family == family;
    for (int i = 0; i < c->list.num && num; i++)
        if (!c->list.elem[i].reason && c->list.elem[i].kernel.family != family)
            c->list.elem[i].reason = "another family is asked for";
    c->num_valid = num ? num : c->num_valid;
}

/* Does the candidate's text have this word? */
static bool has_word(Arena *arena, const CudaKernel *k, const char *word, size_t len)
{
    Sb sb;
    sb_init(&sb, arena);
    cuda_candidate_put(&sb, k);
    for (const char *at = sb.text; *at; at += strspn(at, " ")) {
        size_t own = strcspn(at, " ");
        if (own == len && !memcmp(at, word, len))
            return true;
        at += own;
    }
    return false;
}

/* Leaves only candidates whose text has the word, where any valid one has. */
static void keep_word(CudaCandidates *c, const char *word, size_t len)
{
    int num = 0;
    bool *has = ARENA_NEW_ARRAY(c->arena, bool, (size_t)c->list.num + 1);
    for (int i = 0; i < c->list.num; i++) {
        has[i] = !c->list.elem[i].reason && has_word(c->arena, &c->list.elem[i].kernel, word, len);
        num += has[i];
    }
    for (int i = 0; i < c->list.num && num; i++)
        if (!c->list.elem[i].reason && !has[i])
            c->list.elem[i].reason = "another candidate is asked for";
    c->num_valid = num ? num : c->num_valid;
}

/* Family and order of sums of a candidate: "gemm_mma in 2 parts of K, by 128"; NULL: a row's place
 * decides, too. */
static const char *order_of(Arena *arena, const CudaKernel *k)
{
    const CudaFamilyRow *row = cuda_family[k->family];
    Sb sb;
    sb_init(&sb, arena);
    sb_put(&sb, cuda_family_name[row->adds_as ? row->adds_as(k) : k->family]);
    if (format_info[k->spec.fmt].family == FAMILY_CODEBOOK)
        sb_printf(&sb, " of codes in %d", cuda_codebook_pieces(k));
    if (row->put_order && !row->put_order(&sb, k))
        return NULL;
    return sb.text;
}

/* Leaves only candidates that add up in one order. */
static void keep_order(CudaCandidates *c, const char *order)
{
    int best = cuda_candidates_best(c);
    const char *reason = arena_printf(c->arena, "its sums have another order than %s", order);
    c->free_us = best < 0 ? 0 : c->list.elem[best].us;
    for (int i = 0; i < c->list.num; i++) {
        CudaCandidate *at = &c->list.elem[i];
        const char *own = at->reason ? NULL : order_of(c->arena, &at->kernel);
        if (at->reason || (own && !strcmp(own, order)))
            continue;
        at->reason = reason;
        c->num_valid--;
    }
}

void cuda_candidates(CudaCandidates *c, Arena *arena, const CudaKernel *k,
                     const CudaPlanOptions *options)
{
    int64_t table = (k->groups + 1) * 8 + 4 * cuda_counted(k),
            more = table > TABLE_BYTES ? table - TABLE_BYTES : 0;
    *c = (CudaCandidates){.arena = arena,
                          .like = *k,
                          .problem = cuda_problem(arena, k),
                          .rows = cuda_rows(k),
                          .budget = cuda_smem(k->gpu) - more};
    enumerate(c);
    if (options->family)
        keep_family(c, *options->family);
    for (const char *at = options->wish; at && *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        keep_word(c, at, len);
        at += len;
    }
    cuda_look_up(c, options);
    if (k->order && !options->visit) /* what is measured decides which order is next */
        keep_order(c, k->order);
}

int64_t cuda_room(const CudaCandidates *c, const CudaKernel *k)
{
    int64_t scratch = cuda_epilogue_scratch(k);
    return c->budget - (scratch > SCRATCH_BYTES ? scratch - SCRATCH_BYTES : 0);
}

bool cuda_same_tile(const CudaKernel *a, const CudaKernel *b)
{
    CudaTile x = cuda_family[a->family]->tile(a), y = cuda_family[b->family]->tile(b);
    return a->family == b->family && x.rows == y.rows && x.cols == y.cols;
}

/* Before every one that was only predicted stand those that were measured. */
static bool is_faster(const CudaCandidate *a, const CudaCandidate *b)
{
    bool a_known = a->source != TIMING_MODEL, b_known = b->source != TIMING_MODEL;
    if (a_known != b_known)
        return a_known;
    return a->us < b->us || (a->us == b->us && a < b); /* elements of one list */
}

/* The fastest valid candidate after `than`; -1: none. */
static int next_best(const CudaCandidates *c, const CudaCandidate *than)
{
    int best = -1;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        if (!at->reason && (!than || is_faster(than, at)) &&
            (best < 0 || is_faster(at, &c->list.elem[best])))
            best = i;
    }
    return best;
}

int cuda_candidates_best(const CudaCandidates *c)
{
    return next_best(c, NULL);
}

/* Families of records that no candidate of the list is of, in one line. */
static void say_absent(const CudaKernel *k)
{
    const char *said = NULL;
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++) {
        const char *problem = family_problem(k->rejected->arena, k, cuda_family[i]);
        if (!(cuda_family[i]->layouts >> CUDA_RECORDS & 1) || !multiplies(k, (CudaFamily)i) ||
            !problem)
            continue;
        sb_printf(k->rejected, "%s%s", said ? ", " : "not ", cuda_family_name[i]);
        said = problem;
    }
    if (said)
        sb_printf(k->rejected, ": %s\n", said);
}

static bool same_reason(const CudaCandidate *a, const CudaCandidate *b)
{
    return b->reason && a->kernel.family == b->kernel.family && !strcmp(a->reason, b->reason);
}

/* One line for all of a family that the same keeps from running, where its first one stands. */
static void say_rejected(const CudaCandidates *c, int first)
{
    const CudaCandidate *list = c->list.elem;
    Sb *sb = c->like.rejected;
    for (int i = 0; i < first; i++)
        if (same_reason(&list[first], &list[i]))
            return;
    sb_put(sb, "not ");
    cuda_candidate_put(sb, &list[first].kernel);
    for (int i = first + 1; i < c->list.num; i++)
        if (same_reason(&list[first], &list[i])) {
            sb_put(sb, ", ");
            cuda_family[list[i].kernel.family]->put_numbers(sb, &list[i].kernel);
        }
    sb_printf(sb, ": %s\n", list[first].reason);
}

/* What was not taken: the next fastest, then what cannot run. */
static void say_others(const CudaCandidates *c, int chosen)
{
    Sb *sb = c->like.rejected;
    say_absent(&c->like);
    int at = chosen;
    for (int i = 0; i < SLOWER_SHOWN && at >= 0; i++) {
        at = next_best(c, &c->list.elem[at]);
        if (at < 0)
            break;
        sb_put(sb, "not ");
        cuda_candidate_put(sb, &c->list.elem[at].kernel);
        sb_printf(sb, ": %.1f us%s\n", c->list.elem[at].us,
                  c->list.elem[at].source == c->list.elem[chosen].source ? "" : " [cost model]");
    }
    for (int i = 0; i < c->list.num; i++)
        if (c->list.elem[i].reason)
            say_rejected(c, i);
}

/* Of the candidate that the model alone would take: of the one that was measured to be the fastest
 * it may predict more. */
static double least_predicted(const CudaCandidates *c, int at)
{
    double ret = c->list.elem[at].predicted;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *other = &c->list.elem[i];
        if (!other->reason && !other->failed && other->predicted < ret)
            ret = other->predicted;
    }
    return ret;
}

static void take(const CudaCandidates *c, int at, const CudaPlanOptions *options, CudaChoice *ret)
{
    const CudaCandidate *best = &c->list.elem[at];
    say_others(c, at);
    ret->us = best->us;
    ret->source = best->source;
    ret->old = best->old;
    ret->predicted = least_predicted(c, at);
    ret->order = c->like.order;
    ret->free_us = c->free_us;
    if (options->visit && !c->like.groups) /* whose times are those of their rows' routes */
        options->visit(options->user, c);
}

static void choose_gemm(const CudaDraft *d, CudaKernel *k, CudaChoice *ret,
                        const char **ret_problem)
{
    CudaCandidates c;
    if (!look_at_weight(k)) {
        *ret_problem = "the packed weight is too large";
        return;
    }
    cuda_candidates(&c, scratch_of(d), k, d->options);
    int best = cuda_candidates_best(&c);
    if (best < 0) {
        say_others(&c, best);
        *ret_problem = "no tile can run this product";
        return;
    }
    take(&c, best, d->options, ret);
    *k = c.list.elem[best].kernel;
}

/* Schedules ------------------------------------------------------------------------------------ */

static CudaKernel kernel_of(const CudaDraft *d, int launch, int bucket, Sb *rejected)
{
    const PlanLaunch *l = &d->plan->launch[launch];
    CudaKernel ret = {
        .gpu = d->options->gpu,
        .plan = d->plan,
        .launch = l,
        .layout = d->layout + bucket * d->plan->num_tensors,
        .size = plan_bucket(d->plan, bucket),
        .varies = plan_launch_varies(d->plan, l),
        .groups = l->family == LAUNCH_GEMM && l->grouped ? d->plan->tensor[l->ends].dim[0].add : 0,
        .span = d->role[launch].span,
        .span_operand = d->role[launch].span_operand,
        .ranged = d->role[launch].ranged,
        .invariant = d->role[launch].invariant,
        .order = d->role[launch].order,
        .rejected = rejected};
    if (ret.span == SPAN_GIVEN && !cuda_program_spans(&ret, &l->program))
        ret.span = SPAN_NONE; /* there is one row */
    return ret;
}

/* A product finds the range that this row kernel is to have. */
static bool range_is_found(const CudaDraft *d, int row, int bucket)
{
    int words = d->plan->launch[row].operand[d->role[row].span_operand].tensor;
    bool ret = false;
    for (int i = 0; i < row && !ret; i++) {
        const CudaRanged *ranged = d->role[i].ranged;
        if (!ranged || d->plan->launch[i].operand[ranged->ranges].tensor != words)
            continue;
        CudaKernel k = kernel_of(d, i, bucket, NULL);
        ret = cuda_finds_range(&k);
    }
    return ret;
}

/* There are ranges to find, by a launch of their own, or to clear under the bucket. */
static bool has_ranges(const CudaDraft *d, int launch, int bucket)
{
    bool ret = false;
    CudaKernel k = kernel_of(d, launch, bucket, NULL);
    if (k.span != SPAN_CLEAR)
        return cuda_program_spans(&k, &k.launch->program) && !range_is_found(d, launch, bucket);
    for (int i = 0; i < d->plan->num_launches && !ret; i++) {
        if (d->role[i].span != SPAN_GATHER)
            continue;
        CudaKernel other = kernel_of(d, i, bucket, NULL);
        ret = cuda_program_spans(&other, &other.launch->program);
    }
    return ret;
}

/* The prologue finds ranges of several rows, before it quantises any. */
static bool chain_spans(const CudaDraft *d, const CudaChain *chain, int bucket)
{
    return kernel_of(d, chain->row, bucket, NULL).span != SPAN_NONE;
}

/* A rule says that the chain is one launch: any that runs is better than two. */
static bool is_one(const CudaDraft *d, const CudaChain *chain)
{
    return d->role[chain->fused].fused;
}

static const char *no_room(Arena *arena, const PlanLayout *a)
{
    bool one = a->rows == 1;
    return arena_printf(arena,
                        "%lld row%s of %lld columns leave%s a block of the product too little "
                        "shared memory",
                        (long long)a->rows, one ? "" : "s", (long long)a->cols, one ? "s" : "");
}

/* Why a block has no room for the rows that the prologue makes, up to so many and of so many bytes,
 * or no way to make them; NULL: it has both, and *ret is what takes the least then. */
static const char *local_problem(const CudaDraft *d, const CudaChain *chain, int bucket, int most,
                                 int64_t bytes, CudaCandidate *ret)
{
    CudaCandidates c;
    CudaKernel k = kernel_of(d, chain->fused, bucket, NULL);
    const PlanLayout *a = &k.layout[k.launch->a];
    k.input = INPUT_LOCAL;
    if (chain_spans(d, chain, bucket))
        return "its ranges are of all rows";
    if (a->rows > most)
        return arena_printf(scratch_of(d),
                            "each block of the product would make all %lld rows again, which it "
                            "does for %d at most",
                            (long long)a->rows, most);
    if (a->cols > LOCAL_A_COLS || a->rows * a->pitch > bytes)
        return no_room(scratch_of(d), a);
    if (!k.plan->tensor[k.launch->w].packed || !look_at_weight(&k) || a->pitch % 16)
        return "the product's operands do not lie as tensor cores read them";
    cuda_candidates(&c, scratch_of(d), &k, d->options);
    int best = cuda_candidates_best(&c);
    if (best >= 0) {
        *ret = c.list.elem[best];
        return NULL;
    }
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++)
        if (multiplies(&k, (CudaFamily)i) && !family_problem(c.arena, &k, cuda_family[i]))
            return arena_printf(c.arena, "no tile leaves room for %lld rows that each block makes",
                                (long long)a->rows);
    return arena_printf(c.arena,
                        "no kernel whose blocks make their rows themselves reads a weight that %s",
                        lies_as(c.arena, &k));
}

/* What the row kernel and the product take apart; 0: the product was not measured. (Behind several
 * rows the next product's weight is on its way: 8B layers at two take 0.8 to 1.6 us more than their
 * products, bench/results/h200-layers.txt.) */
static double measured_apart(const CudaDraft *d, const CudaChain *chain, int bucket)
{
    CudaCandidates c;
    const char *problem = NULL;
    CudaKernel row = kernel_of(d, chain->row, bucket, NULL);
    CudaKernel product = kernel_of(d, chain->product, bucket, NULL);
    shape(&row, &problem);
    if (problem || !look_at_weight(&product))
        return 0;
    cuda_candidates(&c, scratch_of(d), &product, d->options);
    int best = cuda_candidates_best(&c);
    if (best < 0 || c.list.elem[best].source == TIMING_MODEL)
        return 0;
    double more = product.layout[product.launch->a].rows == 1 ? ROW_LAUNCH_US : 0;
    return c.list.elem[best].us + cuda_cost(&row) + more;
}

/* Why each block had better not make all of few rows; NULL: it had. What was measured stands before
 * what is predicted, unless that is scaled by what was, as where those measured have another order
 * of sums; where nothing was, few bytes of them are what is faster. */
static const char *inside_problem(const CudaDraft *d, const CudaChain *chain, int bucket)
{
    CudaCandidate inside;
    const char *problem = local_problem(d, chain, bucket, FEW_ROWS, LOCAL_A_MOST, &inside);
    if (problem)
        return problem;
    const PlanLayout *a = &inside.kernel.layout[inside.kernel.launch->a];
    double apart = is_one(d, chain) ? 0 : measured_apart(d, chain, bucket);
    if (apart <= 0)
        return a->rows * a->pitch > LOCAL_A_BYTES ? no_room(scratch_of(d), a) : NULL;
    if (inside.source == TIMING_MODEL && !inside.scaled)
        return "what blocks that each make the rows would take is only predicted, and the launches "
               "apart were measured";
    if (inside.us <= apart)
        return NULL;
    return arena_printf(scratch_of(d),
                        "blocks that each make the row%s would take %.1f us, the launches apart "
                        "take %.1f",
                        a->rows == 1 ? "" : "s", inside.us, apart);
}

/* Turns the candidate into one that takes the prologue of `inside` in; false: it cannot. */
static bool takes_in(const CudaCandidates *c, const CudaCandidate *at, const PlanLaunch *inside,
                     bool one, CudaKernel *ret, double *ret_us)
{
    *ret = at->kernel;
    const CudaFamilyRow *family = cuda_family[ret->family];
    if (!family->share || !family->share(ret, inside, cuda_smem(ret->gpu), one))
        return false;
    int64_t grid = cuda_geometry(ret).grid;
    int64_t makers = grid < ret->gpu->processors ? grid : ret->gpu->processors;
    double each = ret->gpu->from >= 90 && !one ? SHARED_A_90 : SHARED_A_US;
    *ret_us = at->us + each * (double)((c->rows + makers - 1) / makers);
    return true;
}

static const char *none_takes_in(const CudaCandidates *c)
{
    bool is_read = false;
    for (int i = 0; i < c->list.num; i++)
        is_read = is_read ||
                  (!c->list.elem[i].reason && cuda_family[c->list.elem[i].kernel.family]->share);
    if (is_read)
        return arena_printf(c->arena, "no tile leaves room for %lld rows that blocks make together",
                            (long long)c->rows);
    return arena_printf(c->arena,
                        "no kernel whose blocks make rows together reads a weight that %s",
                        lies_as(c->arena, &c->like));
}

/* Of the product's candidates the fastest that can take the prologue in; -1: none can. */
static int best_of_one(const CudaCandidates *c, const PlanLaunch *inside, CudaKernel *ret,
                       double *ret_us, const char **ret_why)
{
    int best = -1;
    for (int at = next_best(c, NULL); at >= 0; at = next_best(c, &c->list.elem[at])) {
        const CudaCandidate *own = &c->list.elem[at];
        CudaKernel k;
        double us;
        bool is_predicted =
            best >= 0 && own->source == TIMING_MODEL && c->list.elem[best].source != TIMING_MODEL;
        if (is_predicted || !takes_in(c, own, inside, true, &k, &us) ||
            (best >= 0 && us >= *ret_us))
            continue;
        best = at;
        *ret = k;
        *ret_us = us;
    }
    *ret_why = none_takes_in(c);
    return best;
}

/* .. -1: none is faster than the row kernel and then the product alone, *ret_why says so. */
static int best_with_prologue(const CudaCandidates *c, const CudaKernel *row,
                              const PlanLaunch *inside, CudaKernel *ret, double *ret_us,
                              const char **ret_why)
{
    int first = next_best(c, NULL);
    double apart = first < 0 ? 0 : c->list.elem[first].us + cuda_cost(row);
    for (int at = first; at >= 0; at = next_best(c, &c->list.elem[at])) {
        if (c->list.elem[at].source == TIMING_MODEL && c->list.elem[first].source != TIMING_MODEL) {
            *ret_why = "what blocks that make the rows together would take is only predicted, "
                       "and the launches apart were measured";
            return -1;
        }
        if (!takes_in(c, &c->list.elem[at], inside, false, ret, ret_us))
            continue;
        if (*ret_us < apart)
            return at;
        *ret_why = arena_printf(c->arena,
                                "blocks that make the rows together would take %.1f us, the "
                                "launches apart take %.1f",
                                *ret_us, apart);
        return -1;
    }
    *ret_why = none_takes_in(c);
    return -1;
}

/* The candidate of the product whose blocks run the prologue together; -1: there is none, or the
 * launches are faster apart and may be. */
static int best_shared(const CudaDraft *d, const CudaChain *chain, int bucket, Sb *rejected,
                       CudaCandidates *c, CudaKernel *ret, double *ret_us, const char **ret_why)
{
    const char *problem = NULL;
    CudaKernel row = kernel_of(d, chain->row, bucket, NULL);
    CudaKernel product = kernel_of(d, chain->product, bucket, rejected);
    const PlanLaunch *fused = &d->plan->launch[chain->fused];
    product.varies = plan_launch_varies(d->plan, fused);
    shape(&row, &problem);
    if (chain_spans(d, chain, bucket))
        problem = "its ranges are of all rows";
    *ret_why = problem ? problem : "the packed weight is too large";
    if (problem || !look_at_weight(&product))
        return -1;
    cuda_candidates(c, scratch_of(d), &product, d->options);
    return is_one(d, chain) ? best_of_one(c, fused, ret, ret_us, ret_why)
                            : best_with_prologue(c, &row, fused, ret, ret_us, ret_why);
}

/* Orders --------------------------------------------------------------------------------------- */

typedef struct Order { /* what candidates of one order take */
    const char *text;
    int buckets; /* that have one, the last of them: */
    int bucket;
    double ratio; /* summed over buckets, to the fastest of any order */
} Order;
typedef ARRAY(Order) Orders;

static Order *order_at(Arena *arena, Orders *orders, const char *text)
{
    for (int i = 0; i < orders->num; i++)
        if (!strcmp(orders->elem[i].text, text))
            return &orders->elem[i];
    Order fresh = {.text = arena_strdup(arena, text), .bucket = -1};
    ARRAY_PUSH(arena, orders, fresh);
    return &orders->elem[orders->num - 1];
}

/* Orders that the bucket has not had yet: the fastest of each comes first. arena: of the orders,
 * which outlive candidates. */
static void orders_add(Arena *arena, const CudaCandidates *c, int bucket, Orders *orders)
{
    int best = cuda_candidates_best(c);
    for (int at = best; at >= 0; at = next_best(c, &c->list.elem[at])) {
        const char *text = order_of(c->arena, &c->list.elem[at].kernel);
        Order *order = text ? order_at(arena, orders, text) : NULL;
        if (!order || order->bucket == bucket)
            continue;
        order->bucket = bucket;
        order->buckets++;
        order->ratio += c->list.elem[at].us / c->list.elem[best].us;
    }
}

/* With this order the product of a chain takes its prologue in under all buckets. */
static bool is_one_in(const CudaDraft *d, const CudaChain *chain, const char *order)
{
    CudaDraft trial = *d;
    bool ret = true, runs;
    Arena *arena = arena_new();
    CudaRole *role = ARENA_NEW_ARRAY(arena, CudaRole, (size_t)d->plan->num_launches);
    memcpy(role, d->role, (size_t)d->plan->num_launches * sizeof *role);
    role[chain->product].order = role[chain->fused].order = order;
    trial.role = role;
    for (int b = 0; b < d->plan->num_buckets && ret; b++)
        ret = cuda_schedule(&trial, chain->fused, b, &runs) != SCHEDULE_APART;
    arena_destroy(arena);
    return ret;
}

/* The one of all buckets that costs least and was not `left` out; NULL: there is none. */
static const Order *cheapest_order(const Orders *orders, int buckets, const bool *left)
{
    const Order *best = NULL;
    for (int i = 0; i < orders->num; i++) {
        const Order *order = &orders->elem[i];
        if (order->buckets == buckets && !left[i] && (!best || order->ratio < best->ratio))
            best = order;
    }
    return best;
}

/* A product that takes its prologue in has other kernels than one of its own: those come first. */
const char *cuda_choose_order(const CudaDraft *d, int launch)
{
    const CudaChain *chain = d->role[launch].chain;
    Orders orders = {0};
    int buckets = d->plan->num_buckets;
    arena_reset(d->scratch);
    for (int b = 0; b < buckets; b++) {
        bool runs, fused = chain && cuda_schedule(d, chain->fused, b, &runs) == SCHEDULE_FUSED;
        for (int apart = !fused; apart < 2; apart++) {
            CudaCandidates c;
            CudaKernel k = kernel_of(d, apart ? launch : chain->fused, b, NULL);
            k.input = apart ? k.input : INPUT_LOCAL;
            if (!look_at_weight(&k))
                return NULL;
            cuda_candidates(&c, scratch_of(d), &k, d->options);
            orders_add(d->arena, &c, b, &orders);
        }
    }
    bool *left = ARENA_NEW_ARRAY(d->arena, bool, (size_t)orders.num + 1);
    memset(left, 0, (size_t)orders.num);
    const Order *best = cheapest_order(&orders, buckets, left), *one = best;
    while (one && chain && is_one(d, chain) && !is_one_in(d, chain, one->text)) {
        left[one - orders.elem] = true;
        one = cheapest_order(&orders, buckets, left);
    }
    return one ? one->text : best ? best->text : NULL;
}

/* Schedules' choice ---------------------------------------------------------------------------- */

CudaSchedule cuda_schedule(const CudaDraft *d, int launch, int bucket, bool *ret_runs)
{
    const CudaChain *chain = d->role[launch].chain;
    CudaSchedule ret = SCHEDULE_APART;
    CudaCandidate inside;
    CudaCandidates c;
    CudaKernel k;
    double us;
    const char *why;
    arena_reset(d->scratch);
    *ret_runs = !d->role[launch].under || d->role[launch].under[bucket];
    if (!*ret_runs)
        return ret;
    if (chain && !inside_problem(d, chain, bucket))
        ret = SCHEDULE_FUSED;
    else if (chain && best_shared(d, chain, bucket, NULL, &c, &k, &us, &why) >= 0)
        ret = SCHEDULE_SHARED;
    else if (chain && is_one(d, chain) &&
             !local_problem(d, chain, bucket, MANY_ROWS, INT64_MAX, &inside))
        ret = SCHEDULE_FUSED;
    *ret_runs = !chain || (launch == chain->fused) == (ret != SCHEDULE_APART);
    CudaSpan span = d->role[launch].span;
    if (span == SPAN_CLEAR || span == SPAN_GATHER)
        *ret_runs = *ret_runs && has_ranges(d, launch, bucket);
    return ret;
}

CudaApartWhy cuda_prologue_apart(const CudaDraft *d, int launch, int bucket)
{
    const CudaChain *chain = d->role[launch].chain;
    CudaApartWhy ret = d->role[launch].apart;
    if (chain_spans(d, chain, bucket))
        return range_is_found(d, chain->row, bucket) ? chain->found : d->role[chain->ranges].apart;
    CudaCandidates c;
    CudaKernel k;
    double us;
    arena_reset(d->scratch);
    CudaCandidate inside;
    const char *together = "",
               *local = is_one(d, chain)
                            ? local_problem(d, chain, bucket, MANY_ROWS, INT64_MAX, &inside)
                            : inside_problem(d, chain, bucket);
    best_shared(d, chain, bucket, NULL, &c, &k, &us, &together);
    ret.text = arena_printf(d->arena, "%s%s%s; %s", ret.text ? ret.text : "", ret.text ? "; " : "",
                            local, together);
    return ret;
}

/* The format that the units multiply, " of f16"; "" where the instruction says it. */
static const char *multiplied(const CudaDraft *d, const CudaKernel *k)
{
    static const char *const home[] = {[CUDA_HOME_I8] = " of s8",
                                       [CUDA_HOME_F16] = " of f16",
                                       [CUDA_HOME_BF16] = " of bf16",
                                       [CUDA_HOME_F32] = ""};
    if (k->packed.layout == CUDA_PANELS && k->packed.home == CUDA_HOME_F32)
        return arena_printf(d->arena, " of %s", format_info[k->spec.act_fmt].name);
    return home[k->packed.home];
}

/* Who measures gets the candidates of the schedule that was not chosen, too. */
static void visit_other(const CudaDraft *d, int launch, int bucket, CudaSchedule schedule)
{
    CudaCandidates c;
    CudaCandidate inside;
    const CudaChain *chain = d->role[launch].chain;
    if (!d->options->visit || !chain || launch == chain->row ||
        (schedule == SCHEDULE_APART &&
         local_problem(d, chain, bucket, FEW_ROWS, LOCAL_A_MOST, &inside)))
        return;
    CudaKernel k =
        kernel_of(d, schedule == SCHEDULE_APART ? chain->fused : chain->product, bucket, NULL);
    k.input = schedule == SCHEDULE_APART ? INPUT_LOCAL : INPUT_GIVEN;
    if (!look_at_weight(&k))
        return;
    cuda_candidates(&c, scratch_of(d), &k, d->options);
    d->options->visit(d->options->user, &c);
}

void cuda_choose(const CudaDraft *d, int launch, int bucket, CudaSchedule schedule, CudaKernel *k,
                 CudaChoice *ret, const char **ret_problem)
{
    CudaCandidates c;
    Sb rejected;
    double us;
    const char *why;
    arena_reset(d->scratch);
    sb_init(&rejected, d->arena);
    *k = kernel_of(d, launch, bucket, &rejected);
    if (schedule == SCHEDULE_SHARED) {
        take(&c, best_shared(d, d->role[launch].chain, bucket, &rejected, &c, k, &us, &why),
             d->options, ret);
        ret->us = us;
    } else if (k->launch->family == LAUNCH_GEMM) {
        k->input = schedule == SCHEDULE_FUSED ? INPUT_LOCAL : INPUT_GIVEN;
        choose_gemm(d, k, ret, ret_problem);
        if (!*ret_problem)
            visit_other(d, launch, bucket, schedule);
    } else {
        shape(k, ret_problem);
        ret->us = ret->predicted = *ret_problem ? 0 : cuda_cost(k);
    }
    ret->rejected = rejected.text;
    if (!*ret_problem && cuda_family[k->family]->instruction)
        ret->by =
            arena_printf(d->arena, "%s by %s%s", cuda_family_name[k->family],
                         cuda_emulates(k) ? "fma of f32" : cuda_family[k->family]->instruction,
                         cuda_emulates(k) ? "" : multiplied(d, k));
    if (!*ret_problem)
        ret->floor_us = cuda_floor_us(k, &ret->bound);
    k->rejected = NULL;
}
