/* choose/knapsack: one item of each group, so that the sum of costs is least while the sum of each
 * use stays within its limit (the multiple-choice knapsack problem), solved exactly. */
#ifndef SINTER_CHOOSE_KNAPSACK_H
#define SINTER_CHOOSE_KNAPSACK_H

#include "base/base.h"

enum { KNAP_LIMITS = 8, KNAP_ITEMS = 64 };

typedef struct KnapItem {
    double cost;             /* >= 0, finite */
    double use[KNAP_LIMITS]; /* >= 0, finite */
} KnapItem;

typedef struct KnapGroup {
    int num_items; /* 1 .. KNAP_ITEMS */
    const KnapItem *item;
} KnapGroup;

typedef struct KnapProblem {
    int num_groups, num_limits;
    const KnapGroup *group;
    double limit[KNAP_LIMITS]; /* >= 0; infinity: none */
} KnapProblem;

typedef enum KnapStatus {
    KNAP_OPTIMAL,    /* proven: no other choice costs less */
    KNAP_UNPROVEN,   /* the best found; none costs less than `bound` */
    KNAP_INFEASIBLE, /* proven: no choice is within the limits */
    KNAP_UNKNOWN     /* none was found, and none was excluded */
} KnapStatus;

typedef struct KnapResult {
    KnapStatus status;
    double cost, bound;
    double use[KNAP_LIMITS];
    int64_t states; /* partial choices that were looked at */
} KnapResult;

/* pick[num_groups] gets the items. Deterministic; uses scratch, whose memory it leaves there. */
KnapResult knap_solve(const KnapProblem *problem, Arena *scratch, int *pick);

#endif
