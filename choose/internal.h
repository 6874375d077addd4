/* choose/internal: what the files of this folder share. */
#ifndef SINTER_CHOOSE_INTERNAL_H
#define SINTER_CHOOSE_INTERNAL_H

#include "choose/lab.h"
#include <math.h>

typedef struct Chooser {
    Lab lab;
    Arena *arena;
    Choice *c;
    const Module *m; /* the user's, lowered */
    Probe reference; /* the float model, open */
    int num_stage, stages;
} Chooser;

void chooser_progress(Chooser *ch, double done, const char *what);

/* layers.c ------------------------------------------------------------------------------------ */

/* Layers, groups, columns, buckets and their weights. False after reporting. */
bool layers_find(Chooser *ch);
/* The linear layers of a lowered probe, in the order of choice.layer. */
Op **probe_layers(const Probe *t, const Choice *c);
/* Fills why of each cell that cannot be used; false when a group is left without candidates. */
bool cells_check(Chooser *ch);
bool cell_usable(const Choice *c, int group, int column);
/* False after reporting: a group has no candidate left. */
bool groups_check(Chooser *ch);
/* Every group at this column where it can be used, else unquantised. */
int *pick_uniform(const Choice *c, Arena *arena, int column);
/* No calibration, no search for codes: what remains is as fast and as large as the real model. */
bool probe_prepare_fast(Probe *t, bool with_weights);

/* rules.c: `quant` rules that give each group its column. */
const char *choice_rules(const Choice *c, Arena *arena, const int *pick, const char *calibrate);

/* errors.c: sqnr, cosine, noise and turn of every cell. */
bool errors_measure(Chooser *ch);
/* The float model: lowered, without any quantisation, up to before insert-quant. */
bool float_lower(Probe *t, const Lab *lab);

/* times.c: us and bytes of every cell, the fixed part, and where times come from. */
bool times_measure(Chooser *ch);
bool bucket_counts(const Choice *c, int bucket); /* something asks for its times */
/* given.c: times and errors of an earlier choice. */
bool times_read(Chooser *ch);
bool errors_read(Chooser *ch);
/* times_gpu.c: times the planned probe on the device: us[launches][buckets], graph[buckets]. The
 * fault, with the reason; CLOCK_GPU is reported. */
ClockFault gpu_times(Chooser *ch, Probe *t, double *us, double *graph, const char **ret_why);
/* .. and a compiled choice as a whole: its graph_us, and us[layers][buckets] of its layers. */
ClockFault gpu_times_whole(Chooser *ch, Probe *t, ChoicePoint *point, double *us,
                           const char **ret_why);
/* times.c: what launches took, us[launches][buckets], as their layers': ret[layers][buckets]. */
void layer_times(Chooser *ch, const Probe *t, const double *us, double *ret);
/* Are they the same but for their place in the model? */
bool layers_alike(const Choice *c, int i, int k);

/* solve.c ------------------------------------------------------------------------------------- */

/* What is asked of a solution, in numbers. */
typedef struct Budget {
    double turn, noise; /* sums over all layers; infinity: none */
    double bytes;
    double *us; /* [buckets] */
} Budget;
Budget budget_whole(const Chooser *ch, double correction); /* of all layers */
Budget budget_of(const Chooser *ch, double correction);    /* of those that are not pinned */
/* What is to be minimised. */
typedef enum Aim { AIM_LATENCY, AIM_NOISE, AIM_BYTES } Aim;
Aim aim_of(const AutoSpec *spec);
/* False: nothing lies within the budget. Fills c->proven and c->gap. */
bool choice_solve(Chooser *ch, const Budget *budget, Aim aim, ChoicePoint *ret);
bool bucket_is(const Choice *c, int bucket, const AutoAt *at); /* of that size */
/* Does every layer of the group keep what is required of single layers? */
bool column_allowed(const Choice *c, int group, int column);
/* Of all layers at that size, the slowest bucket with it; measured, where the point was timed. */
double point_latency_at(const Choice *c, const ChoicePoint *point, const AutoAt *at);
/* Sums of the estimates. */
void point_fill(const Choice *c, ChoicePoint *point);
/* settle.c: solves, verifies and tightens; false after reporting. */
bool choice_settle(Chooser *ch);
void front_find(Chooser *ch);

static inline double turn_of_cosine(double cosine) /* squared tangent of the angle */
{
    return cosine > 0 ? 1 / (cosine * cosine) - 1 : (double)INFINITY;
}

#endif
