/* codegen/cuda/lookup: what the candidates of a product take: as tables of timings say, of it or of
 * one that differs from it alike, or as the cost model does. */
#include "codegen/cuda/family.h"

#include <math.h>
#include <string.h>

static const char *candidate_text(const CudaCandidates *c, const CudaCandidate *at)
{
    Sb word;
    sb_init(&word, c->arena);
    cuda_candidate_put(&word, &at->kernel);
    return word.text;
}

static const TimingRow *measured(const CudaCandidates *c, const CudaCandidate *at,
                                 const Timings *timings, TimingSource *ret)
{
    return timings_find(timings, c->problem, c->rows, at->text, ret);
}

/* Times that are not this product's on this GPU, but differ from them alike. */
typedef struct Alike {
    TimingSource source;
    const char *problem;
} Alike;

/* NULL: that was not measured, or failed. */
static const TimingRow *measured_alike(const CudaCandidates *c, const CudaCandidate *at,
                                       const Timings *timings, const Alike *from)
{
    TimingSource source;
    const TimingRow *row = from->source == TIMING_LIKE
                               ? timings_find_like(timings, from->problem, c->rows, at->text)
                               : timings_find(timings, from->problem, c->rows, at->text, &source);
    return row && row->us > 0 ? row : NULL;
}

/* How many times as long this product takes here: with the candidate that is the fastest there of
 * those that were measured both here and there. */
static double times_of_alike(const CudaCandidates *c, const Timings *timings, const Alike *from)
{
    double least = 0, ret = 1;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        const TimingRow *row = at->reason || at->failed || at->source == TIMING_MODEL
                                   ? NULL
                                   : measured_alike(c, at, timings, from);
        if (row && (least == 0 || row->us < least)) {
            least = row->us;
            ret = at->us / row->us;
        }
    }
    return ret;
}

/* Candidates that were measured there alone. */
static void look_up_alike(CudaCandidates *c, const Timings *timings, const Alike *from)
{
    double times = times_of_alike(c, timings, from);
    for (int i = 0; i < c->list.num; i++) {
        CudaCandidate *at = &c->list.elem[i];
        const TimingRow *row = at->reason || at->failed || at->source != TIMING_MODEL
                                   ? NULL
                                   : measured_alike(c, at, timings, from);
        if (!row)
            continue;
        at->source = from->source;
        at->us = row->us * times;
        at->old = row->old;
    }
}

/* Of candidates of the same tile that were measured, the one that the model thinks nearest; NULL:
 * there is none. */
static const CudaCandidate *nearest_measured(const CudaCandidates *c, const CudaCandidate *to)
{
    const CudaCandidate *ret = NULL;
    double least = 0;
    for (int i = 0; i < c->list.num; i++) {
        const CudaCandidate *at = &c->list.elem[i];
        if (at->reason || at->failed || at->source == TIMING_MODEL ||
            !cuda_same_tile(&at->kernel, &to->kernel))
            continue;
        double apart = fabs(log(at->predicted / to->predicted));
        if (!ret || apart < least) {
            ret = at;
            least = apart;
        }
    }
    return ret;
}

/* The model errs by tiles rather than in what candidates of one tile differ: those that were not
 * measured err as those that were, or the two could not be compared. */
static void scale_predictions(CudaCandidates *c)
{
    for (int i = 0; i < c->list.num; i++) {
        CudaCandidate *at = &c->list.elem[i];
        const CudaCandidate *like =
            at->reason || at->source != TIMING_MODEL ? NULL : nearest_measured(c, at);
        at->scaled = like != NULL;
        if (like)
            at->us = at->predicted * (like->us / like->predicted);
    }
}

static bool is_known(const CudaCandidates *c) /* anything that was measured counts */
{
    for (int i = 0; i < c->list.num; i++)
        if (c->list.elem[i].source != TIMING_MODEL)
            return true;
    return false;
}

static const char *avoided(const CudaCandidates *c, const CudaCandidate *at,
                           const CudaPlanOptions *options)
{
    for (int i = 0; i < options->num_avoided; i++) {
        const CudaAvoided *of = &options->avoided[i];
        if (!strcmp(of->problem, c->problem) && !strcmp(of->candidate, at->text))
            return of->why;
    }
    return NULL;
}

/* What failed does not run, unless everything did; nor, of the rest, what is avoided, unless all
 * is. */
static void leave_out_failed(CudaCandidates *c)
{
    int failed = 0, avoided = 0;
    for (int i = 0; i < c->list.num; i++)
        failed += c->list.elem[i].failed != NULL;
    for (int i = 0; i < c->list.num && failed < c->num_valid; i++)
        if (c->list.elem[i].failed)
            c->list.elem[i].reason = arena_printf(c->arena, "it failed when it was measured: %s",
                                                  c->list.elem[i].failed);
    int left = failed < c->num_valid ? c->num_valid - failed : c->num_valid;
    for (int i = 0; i < c->list.num; i++)
        avoided += !c->list.elem[i].reason && c->list.elem[i].avoided;
    for (int i = 0; i < c->list.num && avoided < left; i++)
        if (!c->list.elem[i].reason)
            c->list.elem[i].reason = c->list.elem[i].avoided;
}

/* Measured times where a table has them, also those of older device code: they are closer than a
 * prediction. What failed when it was measured cannot run, unless everything failed or the code is
 * another one now. */
void cuda_look_up(CudaCandidates *c, const CudaPlanOptions *options)
{
    const Timings *timings = options->timings;
    for (int i = 0; i < c->list.num; i++) {
        CudaCandidate *at = &c->list.elem[i];
        if (at->reason)
            continue;
        at->us = at->predicted = cuda_cost(&at->kernel);
        at->text = candidate_text(c, at);
        at->avoided = avoided(c, at, options);
        const TimingRow *row =
            timings && timings->gpu ? measured(c, at, timings, &at->source) : NULL;
        at->old = row && row->old && row->us > 0;
        if (!row || (row->old && row->us < 0))
            at->source = TIMING_MODEL;
        else if (row->us > 0)
            at->us = row->us;
        else
            at->failed = row->note[0] ? row->note : "for no known reason";
    }
    const char *akin = timings && timings->gpu ? timings_akin(timings, c->problem, c->rows) : NULL;
    if (akin)
        look_up_alike(c, timings, &(Alike){TIMING_AKIN, akin});
    if (timings && timings->like)
        look_up_alike(c, timings, &(Alike){TIMING_LIKE, c->problem});
    if (is_known(c))
        scale_predictions(c);
    else if (timings && timings->gpu)
        cuda_scale_between(c, timings);
    leave_out_failed(c);
}
