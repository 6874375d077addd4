/* codegen/cuda/layout: how each weight lies in the file, where there is a choice: the layout with
 * which all of its launches take the least time, in the geometric mean of buckets, each with what
 * may be done about the weight before (below). Where a file may hold
 * further copies, a bucket takes the one with which it is faster by more than a little; likewise
 * where a launch of its own decodes the weight, and where another holds the activation. */
#include "codegen/cuda/family.h"

#include <math.h>
#include <string.h>

#define COPY_GAIN   0.05 /* of a bucket's time that another copy has to save */
#define PANELS_GAIN 0.04 /* by which records have to be faster than panels, for each size */
#define DECODE_ROWS 257  /* fewer take less time than decoding */
#define HELD_ROWS   64   /* .. where activations are held beside that */
#define ALONE_ROWS  5    /* .. or alone; up to here a product makes its rows itself */
#define POWER_ROWS  2048 /* of so many rows power bounds products of 8-bit floats, .. */
#define POWER_GAIN  -0.1 /* .. which decoding may cost there, by tables */

typedef struct LayoutTime { /* of all launches of a weight, under one bucket or all */
    double us, predicted;
    bool measured, runs;
} LayoutTime;

/* The launch is a product with the weight, or the row kernel before one. */
static bool is_about(const CudaDraft *d, int launch, int weight)
{
    const CudaChain *chain = d->role[launch].chain;
    const PlanLaunch *l = &d->plan->launch[chain ? chain->product : launch];
    return l->family == LAUNCH_GEMM && l->w == weight;
}

static void add_launch(const CudaDraft *d, int launch, int bucket, LayoutTime *ret)
{
    const char *problem = NULL;
    CudaChoice choice = {0};
    CudaKernel k;
    bool runs;
    CudaSchedule schedule = cuda_schedule(d, launch, bucket, &runs);
    if (!runs)
        return;
    cuda_choose(d, launch, bucket, schedule, &k, &choice, &problem);
    ret->runs = ret->runs && !problem;
    if (problem)
        return;
    ret->us += choice.us;
    ret->predicted += choice.predicted;
    if (k.launch->family == LAUNCH_GEMM)
        ret->measured = ret->measured && choice.source != TIMING_MODEL;
}

static LayoutTime time_under(const CudaDraft *all, int weight, int bucket, bool visit)
{
    CudaPlanOptions options = *all->options;
    CudaDraft d = *all;
    LayoutTime ret = {.measured = true, .runs = true};
    d.options = &options;
    if (!visit) {
        options.visit = NULL;
        d.arena = d.scratch; /* what is chosen is forgotten, but for its time */
    }
    for (int i = 0; i < d.plan->num_launches; i++)
        if (is_about(&d, i, weight))
            add_launch(&d, i, bucket, &ret);
    return ret;
}

/* Sizes count alike, by ratios: the sum is one of logarithms. */
static void add_bucket(LayoutTime *sum, const LayoutTime *time)
{
    sum->us += time->us > 0 ? log(time->us) : 0;
    sum->predicted += time->predicted > 0 ? log(time->predicted) : 0;
    sum->measured = sum->measured && time->measured;
    sum->runs = sum->runs && time->runs;
}

/* ret: [buckets]. Returns what they come to. */
static LayoutTime time_of(const CudaDraft *d, int weight, bool visit, LayoutTime *ret)
{
    LayoutTime sum = {.measured = true, .runs = true};
    for (int bucket = 0; bucket < d->plan->num_buckets; bucket++) {
        LayoutTime *time = &ret[bucket];
        *time = time_under(d, weight, bucket, visit);
        add_bucket(&sum, time);
    }
    return sum;
}

/* A measured time and a prediction do not compare. */
static bool is_faster(const LayoutTime *a, const LayoutTime *b)
{
    if (!a->runs || !b->runs)
        return a->runs;
    return a->measured && b->measured ? a->us < b->us : a->predicted < b->predicted;
}

/* Behind a row's launch blocks of panels begin sooner than behind others of their own, as they are
 * measured: at 8 and 16 rows an H200's layer in fp8 takes 1 and 3 us less in panels than in
 * records, whose products alone are 2 % faster and 3 % slower. */
static bool are_nearly_as_fast(const LayoutTime *panels, const LayoutTime *records, int buckets)
{
    return panels->runs && records->runs && panels->measured && records->measured &&
           panels->us < records->us + PANELS_GAIN * buckets;
}

/* The share of b's time that a does without. */
static double gain(const LayoutTime *a, const LayoutTime *b)
{
    if (!a->runs || !b->runs)
        return a->runs ? 1 : 0;
    return a->measured && b->measured ? 1 - a->us / b->us : 1 - a->predicted / b->predicted;
}

/* Rows of bits give the CPU's results: f32 holds the sums of integers exactly, and scales are those
 * of blocks of K. */
static bool is_held_in_bits(const CpuPackSpec *weight)
{
    FormatId act = weight->act_fmt;
    bool exact =
        format_info[act].family == FAMILY_INT && format_info[weight->fmt].family == FAMILY_INT;
    int64_t block = weight->act_block_cols && weight->act_block_cols < weight->block_cols
                        ? weight->act_block_cols
                        : weight->block_cols;
    double most = 2.0 * (num_qmax((int)act) + 1) * 2.0 * (num_qmax((int)weight->fmt) + 1);
    return !exact || (weight->mainloop && block && most * (double)block < 1 << 24);
}

/* Families of all classes read fragments and panels, but only those of one gain by them. */
static bool gains(const CudaFamilyRow *family, CudaLayout layout)
{
    return (layout != CUDA_FRAGMENTS && layout != CUDA_PANELS) || family->serves;
}

/* The layout holds the weight, and a family of the class multiplies it as it lies. */
static bool is_read(const CodeClass *gpu, const CpuPackSpec *weight, CudaLayout layout)
{
    CpuPackSpec laid = *weight;
    CudaPacked packed;
    laid.layout = (uint8_t)layout;
    CudaPackSpec spec = plan_cuda_spec(&laid);
    if (!cuda_pack_plan(&spec, &packed) ||
        (layout == CUDA_BITS && !weight->table && !is_held_in_bits(weight)))
        return false;
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++) {
        const CudaFamilyRow *family = cuda_family[i];
        if ((family->layouts >> layout & 1) && gains(family, layout) &&
            cuda_family_serves((CudaFamily)i, gpu) && (!family->takes || family->takes(&spec)))
            return true;
    }
    return false;
}

/* Codes that are numbers lie in rows of bits, which are slow, only where no other layout runs. */
static bool is_last(const CpuPackSpec *weight, int layout)
{
    return layout == CUDA_BITS && !weight->table;
}

static int64_t rows_of(const CudaDraft *d, int weight, int bucket)
{
    int64_t most = 0;
    for (int i = 0; i < d->plan->num_launches; i++) {
        const PlanLaunch *l = &d->plan->launch[i];
        if (l->family != LAUNCH_GEMM || l->w != weight)
            continue;
        int64_t rows = d->layout[bucket * d->plan->num_tensors + l->a].rows;
        most = rows > most ? rows : most;
    }
    return most;
}

/* Time of the launches of a draft of held activations under a bucket. */
static LayoutTime time_trial(const CudaDraft *all, int bucket, double decode_us)
{
    CudaPlanOptions options = *all->options;
    CudaDraft d = *all;
    LayoutTime ret = {.us = decode_us, .predicted = decode_us, .measured = true, .runs = true};
    d.options = &options;
    if (!options.visit)
        d.arena = d.scratch;
    for (int i = 0; i < d.plan->num_launches; i++)
        add_launch(&d, i, bucket, &ret);
    return ret;
}

/* Times of the products of a weight, in records or fragments, that hold their activations in this
 * form, of buckets of so many rows that it may be faster; false: they do not. ret: [buckets]. */
static bool time_form(const CudaDraft *d, int index, int form, bool visit, bool asked,
                      LayoutTime *ret)
{
    PlanTensor as;
    CudaDraft trial;
    CudaPlanOptions options = *d->options;
    CudaDecode how = options.decode;
    int64_t least = form == CUDA_HELD ? HELD_ROWS : ALONE_ROWS;
    for (int b = 0; b < d->plan->num_buckets; b++)
        ret[b] = (LayoutTime){.runs = false};
    if (!asked || !cuda_held(d, index, form, &as))
        return false;
    Arena *arena = visit ? d->arena : arena_new();
    bool ok = cuda_held_draft(d, index, &as, arena, &trial);
    double us = form == CUDA_HELD ? cuda_decode_us(&d->plan->tensor[index], &as) : 0;
    options.visit = visit ? options.visit : NULL;
    trial.options = &options;
    for (int b = 0; b < d->plan->num_buckets && ok; b++)
        if (how != CUDA_DECODE_BY_TIME || rows_of(d, index, b) >= least)
            ret[b] = time_trial(&trial, b, us);
    if (!visit)
        arena_destroy(arena);
    return ok;
}

/* Activations are to be held wherever that is possible. */
static bool is_held_asked(const CudaDraft *d)
{
    return d->options->decode == CUDA_DECODE_HELD || d->options->decode == CUDA_DECODE_ALONE;
}

/* .. in both forms. time: [forms][buckets]. */
static bool time_held(const CudaDraft *d, int index, bool visit, LayoutTime *time)
{
    CudaDecode how = d->options->decode;
    int buckets = d->plan->num_buckets;
    if (how == CUDA_DECODE_NEVER || (d->options->family && how == CUDA_DECODE_BY_TIME))
        return false;
    bool ret = false;
    for (int form = CUDA_HELD; form <= CUDA_HELD_ALONE; form++) {
        bool asked = form == CUDA_HELD ? how != CUDA_DECODE_ALONE
                                       : how == CUDA_DECODE_ALONE || how == CUDA_DECODE_BY_TIME;
        ret = time_form(d, index, form, visit, asked, time + form * buckets) || ret;
    }
    return ret;
}

/* What part of a bucket's time a decoded weight has to save. Where power bounds both, products of
 * 8-bit floats that hold 4 bits take 2 to 9 % less in a layer than tables say beside those that
 * decode in each tile (of i4: bench/results/h200-layers.txt). */
static double decode_gain(const CudaDraft *d, const PlanTensor *weight, int index, int bucket)
{
    const FormatInfo *act = &format_info[weight->pack_spec.act_fmt];
    bool bytes = act->bits == 8 && act->family == FAMILY_MINIFLOAT;
    return bytes && rows_of(d, index, bucket) >= POWER_ROWS ? POWER_GAIN : COPY_GAIN;
}

/* What launches take that read the weight as it lies, or that hold their activations or follow a
 * launch that decodes it, where that is faster. time: [forms][buckets]. */
static LayoutTime time_of_fastest(const CudaDraft *d, const PlanTensor *weight, int index,
                                  const LayoutTime *time, bool holds, bool decodes)
{
    LayoutTime sum = {.measured = true, .runs = true};
    int buckets = d->plan->num_buckets, own = weight->pack_spec.layout;
    for (int b = 0; b < buckets; b++) {
        const LayoutTime *best = &time[own * buckets + b];
        for (int form = CUDA_DECODED; form < NUM_CUDA_FORMS; form++) {
            const LayoutTime *at = &time[form * buckets + b];
            double least = form == CUDA_DECODED ? decode_gain(d, weight, index, b) : COPY_GAIN;
            if ((cuda_holds(form) ? holds : decodes) && gain(at, best) >= least)
                best = at;
        }
        add_bucket(&sum, best);
    }
    return sum;
}

/* Times of the launches of a weight with the one that decodes it before them, of buckets of so many
 * rows that it may be faster. */
static void time_decoded(const CudaDraft *d, PlanTensor *weight, int index,
                         const PlanTensor *decoded, bool visit, LayoutTime *ret)
{
    PlanTensor own = *weight;
    double us = cuda_decode_us(&own, decoded);
    int64_t least = d->options->decode == CUDA_DECODE_BY_TIME ? DECODE_ROWS : 0;
    *weight = *decoded;
    for (int b = 0; b < d->plan->num_buckets; b++) {
        ret[b] = (LayoutTime){.runs = false};
        if (rows_of(d, index, b) < least)
            continue;
        ret[b] = time_under(d, index, b, visit);
        ret[b].us += us;
        ret[b].predicted += us;
    }
    *weight = own;
}

/* A launch may decode the weight as it lies. */
static bool may_decode(const CudaDraft *d, const PlanTensor *weight, int index, PlanTensor *decoded)
{
    CudaDecode how = d->options->decode;
    return how != CUDA_DECODE_NEVER && !(d->options->family && how == CUDA_DECODE_BY_TIME) &&
           cuda_in_records((CudaLayout)weight->pack_spec.layout) && cuda_decoded(d, index, decoded);
}

static bool is_known(const CudaDraft *d, const LayoutTime *time) /* of some size */
{
    bool ret = false;
    for (int b = 0; b < d->plan->num_buckets; b++)
        ret = ret || (time[b].runs && time[b].measured);
    return ret;
}

/* A family that is asked for decides, where it runs; else time does. time: [forms][buckets]. */
static CudaLayout choose(const CudaDraft *d, PlanTensor *weight, int index, unsigned possible,
                         LayoutTime *time)
{
    LayoutTime least = {.runs = false};
    int best = CUDA_RECORDS, buckets = d->plan->num_buckets;
    PlanTensor decoded;
    for (int i = 0; i < NUM_CUDA_PACKED; i++) {
        bool asked = d->options->family && cuda_family[*d->options->family]->layouts >> i & 1;
        if (!(possible >> i & 1) || (is_last(&weight->pack_spec, i) && least.runs && !asked))
            continue;
        weight->pack_spec.layout = (uint8_t)i;
        LayoutTime sum = time_of(d, index, false, time + i * buckets);
        bool holds = cuda_in_records((CudaLayout)i) && time_held(d, index, false, time);
        bool decodes = may_decode(d, weight, index, &decoded);
        if (holds && is_held_asked(d))
            return (CudaLayout)i;
        if (decodes)
            time_decoded(d, weight, index, &decoded, false, time + CUDA_DECODED * buckets);
        if (holds || decodes)
            sum = time_of_fastest(d, weight, index, time, holds, decodes);
        /* the same kernels read both: where records were measured, predictions move nothing */
        bool doubts = i == CUDA_FRAGMENTS && best == CUDA_RECORDS && least.runs &&
                      is_known(d, time + best * buckets) && !is_known(d, time + i * buckets);
        bool nearly =
            i == CUDA_PANELS && best == CUDA_RECORDS && are_nearly_as_fast(&sum, &least, buckets);
        if ((!d->options->family || asked) && !doubts && (nearly || is_faster(&sum, &least))) {
            best = i;
            least = sum;
        }
    }
    return (CudaLayout)best;
}

/* How many layouts of a weight the plan may have. Sums in one order for all sizes are those of one
 * family. */
static int copies_of(const CudaDraft *d, int weight)
{
    int ret = d->options->family || !d->options->copies ? 1 : d->options->copies;
    for (int i = 0; i < d->plan->num_launches; i++)
        if (is_about(d, i, weight) && d->role[i].invariant)
            ret = 1;
    return ret;
}

/* The buckets that are faster with a copy of this layout than with those that are there take it;
 * returns by how much, summed. `take` false: returns it alone. ret: [buckets]. */
static double take_copy(const CudaDraft *d, const LayoutTime *time, int layout, bool take,
                        uint8_t *ret)
{
    int buckets = d->plan->num_buckets;
    double sum = 0;
    for (int b = 0; b < buckets; b++) {
        double saved = gain(&time[layout * buckets + b], &time[ret[b] * buckets + b]);
        if (saved < COPY_GAIN)
            continue;
        sum += saved;
        if (take)
            ret[b] = (uint8_t)layout;
    }
    return sum;
}

/* Further copies, those that save most first. */
static void choose_copies(const CudaDraft *d, const LayoutTime *time, unsigned possible, int copies,
                          uint8_t *ret)
{
    unsigned left = possible & ~(1u << ret[0]);
    for (; copies > 1 && left; copies--) {
        int best = -1;
        double most = 0;
        for (int l = 0; l < NUM_CUDA_PACKED; l++) {
            double saved = left >> l & 1 ? take_copy(d, time, l, false, ret) : 0;
            best = saved > most ? l : best;
            most = saved > most ? saved : most;
        }
        if (best < 0)
            return;
        take_copy(d, time, best, true, ret);
        left &= ~(1u << best);
    }
}

/* The form in which the activation of a bucket is held, which has `ret` else. */
static int held_form(const CudaDraft *d, const LayoutTime *time, int bucket, int ret)
{
    int buckets = d->plan->num_buckets;
    const LayoutTime *held = &time[CUDA_HELD * buckets + bucket];
    const LayoutTime *alone = &time[CUDA_HELD_ALONE * buckets + bucket];
    if (d->options->decode == CUDA_DECODE_ALWAYS)
        return ret != CUDA_DECODED && held->runs ? CUDA_HELD : ret;
    int form = is_faster(alone, held) ? CUDA_HELD_ALONE : CUDA_HELD;
    const LayoutTime *best = form == CUDA_HELD ? held : alone;
    return (is_held_asked(d) && best->runs) ||
                   gain(best, &time[ret * buckets + bucket]) >= COPY_GAIN
               ? form
               : ret;
}

/* .. or which activations are held for. */
static void choose_held(const CudaDraft *d, const PlanTensor *weight, int index, bool known,
                        LayoutTime *time, uint8_t *ret)
{
    int buckets = d->plan->num_buckets;
    if (!cuda_in_records((CudaLayout)weight->pack_spec.layout) ||
        !time_held(d, index, d->options->visit != NULL, time) || d->options->visit)
        return;
    if (!known)
        time_of(d, index, false, time + weight->pack_spec.layout * buckets);
    for (int b = 0; b < buckets; b++)
        ret[b] = (uint8_t)held_form(d, time, b, ret[b]);
}

/* The buckets that are faster with their weight decoded before. known: `time` has what launches
 * take that read it as it lies. */
static void choose_decoded(const CudaDraft *d, PlanTensor *weight, int index, bool known,
                           LayoutTime *time, uint8_t *ret)
{
    PlanTensor decoded;
    int buckets = d->plan->num_buckets;
    CudaLayout layout = (CudaLayout)weight->pack_spec.layout;
    LayoutTime *after = time + CUDA_DECODED * buckets, *own = time + (int)layout * buckets;
    bool always = d->options->decode != CUDA_DECODE_BY_TIME;
    if (!may_decode(d, weight, index, &decoded))
        return;
    time_decoded(d, weight, index, &decoded, d->options->visit != NULL, after);
    if (d->options->visit) /* which gets all candidates, those of the other choice later */
        return;
    if (!known)
        time_of(d, index, false, own);
    for (int b = 0; b < buckets; b++)
        if (ret[b] == (int)layout &&
            (always ? after[b].runs : gain(&after[b], &own[b]) >= decode_gain(d, weight, index, b)))
            ret[b] = CUDA_DECODED;
}

/* Layouts that hold the weight and that a family reads: bits 1 << CudaLayout. Layers that are to be
 * one launch, or to have one order of sums that no two families have in fragments, choose among all
 * families that read records. */
static unsigned possible_layouts(const CudaDraft *d, const PlanTensor *weight, int index)
{
    unsigned ret = 0;
    for (int l = 0; weight->packed && l < NUM_CUDA_PACKED; l++)
        ret |= (unsigned)is_read(d->options->gpu, &weight->pack_spec, (CudaLayout)l) << l;
    for (int i = 0; i < d->plan->num_launches; i++)
        if (is_about(d, i, index) &&
            (d->role[i].fused ||
             (d->role[i].invariant && format_info[weight->pack_spec.act_fmt].bits != 16)))
            ret &= ~(1u << CUDA_FRAGMENTS);
    return ret;
}

/* A layout is asked for, and the weight can lie so. */
static bool is_asked(const CudaDraft *d, PlanTensor *weight, int index, unsigned possible,
                     LayoutTime *time)
{
    const CudaLayout *layout = d->options->layout;
    if (!layout || !(possible >> *layout & 1))
        return false;
    weight->pack_spec.layout = (uint8_t)*layout;
    return time_of(d, index, false, time + (int)*layout * d->plan->num_buckets).runs;
}

/* Sets the layout of a weight of which several are possible. own: [buckets]. */
static void choose_among(const CudaDraft *d, PlanTensor *weight, int index, unsigned possible,
                         LayoutTime *time, uint8_t *own)
{
    int buckets = d->plan->num_buckets;
    bool asked = is_asked(d, weight, index, possible, time);
    CudaLayout best = asked ? *d->options->layout : choose(d, weight, index, possible, time);
    if (asked)
        possible = 1u << best;
    if (is_last(&weight->pack_spec, CUDA_BITS) && best != CUDA_BITS)
        possible &= ~(1u << CUDA_BITS);
    memset(own, best, (size_t)buckets);
    choose_copies(d, time, possible, copies_of(d, index), own);
    if (!memchr(own, best, (size_t)buckets))
        best = (CudaLayout)own[0]; /* no bucket has use for it */
    for (int l = 0; d->options->visit && l < NUM_CUDA_PACKED; l++) {
        weight->pack_spec.layout = (uint8_t)l; /* the best one's are visited later */
        if (l != (int)best && possible >> l & 1)
            time_of(d, index, true, time + CUDA_DECODED * buckets);
    }
    weight->pack_spec.layout = (uint8_t)best;
}

const uint8_t *cuda_choose_layouts(const CudaDraft *d, PlanTensor *tensor)
{
    int buckets = d->plan->num_buckets;
    size_t num = (size_t)(d->plan->num_tensors * buckets);
    size_t num_times = (size_t)(NUM_CUDA_FORMS * buckets);
    uint8_t *ret = ARENA_NEW_ARRAY(d->arena, uint8_t, num);
    LayoutTime *time = ARENA_NEW_ARRAY(d->arena, LayoutTime, num_times);
    for (int i = 0; i < d->plan->num_tensors; i++) {
        unsigned possible = possible_layouts(d, &tensor[i], i);
        uint8_t *own = ret + i * buckets;
        bool known = possible & (possible - 1); /* how long it takes */
        memset(own, tensor[i].pack_spec.layout, (size_t)buckets);
        if (known)
            choose_among(d, &tensor[i], i, possible, time, own);
        if (tensor[i].packed) {
            choose_decoded(d, &tensor[i], i, known, time, own);
            choose_held(d, &tensor[i], i, known, time, own);
        }
    }
    return ret;
}
