/* choose/settle: what the files that settle a choice share: the choices that were run, each with
 * what it measured. */
#ifndef SINTER_CHOOSE_SETTLE_H
#define SINTER_CHOOSE_SETTLE_H

#include "choose/internal.h"

typedef struct Check { /* one file of data that choices are verified on */
    const char *path;
    DataSet data;
    Tensors want;
    Distance worst;     /* of the output that turned most */
    double noise, turn; /* of the choice at hand, mean over outputs */
} Check;

typedef struct Tried { /* a choice that was compiled, run and, on a device, timed */
    ChoicePoint point;
    double noise_ratio, turn_ratio; /* measured over estimated, of the file with the most */
    bool exact;                     /* it met what is required of errors on data */
    bool good;                      /* and everything else */
    double correction;              /* that it was solved with; 0: it was found otherwise */
} Tried;

typedef struct Settle {
    Chooser *ch;
    Choice *c;
    Arena *arena;
    Check *check;
    int num_checks;
    bool is_timed;             /* choices run on a device, and their graphs' times decide */
    double missed, held;       /* corrections: the largest that missed, the least that held */
    struct Contexts *contexts; /* search.c */
    ARRAY(Tried) tried;
} Settle;

static inline double ratio_of(const Tried *t)
{
    return fmax(t->noise_ratio, t->turn_ratio);
}

/* verify.c: the data that requirements name, and what they should give. False after an error. */
bool checks_open(Settle *s);
bool has_error_budget(const Choice *c);
/* Index of the choice among the tried, run and timed if it is new; -1 after an error. */
int point_try(Settle *s, const ChoicePoint *point);
int tried_find(const Settle *s, const int *pick); /* -1: not yet */
/* Does it meet bytes, times and what is required of single layers? */
bool point_fits(const Settle *s, const ChoicePoint *point);
/* What is minimised: of a GPU's graph, where it was timed. */
double point_cost(const Choice *c, const ChoicePoint *point);
/* The rules bring the calibration data where only `auto` names them. */
const char *text_calibrate(const Settle *s);

/* settle.c: the tried choice is the best so far, if it is. */
void settle_note(const Settle *s, int at, int *best);

/* search.c: what the layers of a choice that was timed took there, beside which neighbours. */
void search_learn(Settle *s, const int *pick, const double *us);
/* Runs choices on the device that should be better than *best by what was measured so far. False
 * after an error. */
bool search_run(Settle *s, int *best);

/* refuse.c: why nothing holds, and the nearest choices. Returns false. */
bool settle_refuse(Settle *s);

#endif
