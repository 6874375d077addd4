/* report: what is known of one compiled model, gathered once and then shown as a page and as JSON.
 *
 * gather.c and times.c fill a Report; page.c (with drawing.c and tables.c) writes the page, json.c
 * the same numbers as data. Writing reads nothing but the Report: equal reports give equal bytes.
 */
#ifndef SINTER_REPORT_H
#define SINTER_REPORT_H

#include "driver/compare.h"
#include "driver/ranges.h"
#include "driver/work.h"
#include "report/graph.h"

typedef struct ReportBucket {
    const char *name; /* "B = 16", "T = 1, S = 128", "fixed sizes" */
    int plan;         /* its number in the plan */
    uint64_t bytes;   /* of activations */
    double run_us;    /* median of whole runs; NaN: not timed */
} ReportBucket;

typedef struct ReportKernel { /* a launch of the plan */
    const char *layer, *family, *place, *absorbed;
    const char *act, *weight; /* formats of a product's operands; NULL: another launch */
    int64_t n, k;             /* of a product's packed weight, 0: it has none */
    uint64_t bytes;           /* likewise */
    int node;                 /* of the graph */
    double *us;               /* [buckets] shortest; NaN: not timed, or not part of that bucket */
} ReportKernel;

typedef struct ReportLayer {
    const char *name;
    const char *scheme;    /* as written; NULL: it has none */
    const char *by;        /* weight quantiser; NULL: the weight is not quantised */
    const char *why;       /* what settled its format */
    int64_t experts, n, k; /* experts: 0, a matrix for all rows */
    uint64_t bytes;        /* its share of the packed weight of the first kernel */
    ARRAY(int)
    kernels; /* that compute it, alone or with siblings: more than one where it is called
                more often, or where a GPU takes different ones in different buckets */
} ReportLayer;

typedef struct ReportNode { /* of the graph */
    ARRAY(int) kernels, layers;
} ReportNode;

typedef struct ReportStop { /* a chain of operations that ended */
    int kernel;
    const char *place, *text;
} ReportStop;

typedef struct ReportWarning {
    const char *code, *place, *text;
} ReportWarning;

typedef struct ReportPick { /* the GPU's kernel of a launch, for some buckets */
    int launch;             /* of the GPU's plan */
    const char *layer, *absorbed;
    const char *buckets, *text, *source;
    const char *rejected; /* lines */
    double us;
    double roofline;                          /* share of us that the GPU could not be faster */
    const char *apart, *apart_place, *remedy; /* why it is a launch of its own; NULL: it is not */
} ReportPick;

typedef struct ReportFusion { /* what runs inside fused kernels, of a plan under a bucket */
    const char *target, *bucket;
    FusionShare share;
} ReportFusion;

typedef struct ReportSection { /* of the compiled file */
    const char *kind, *name, *hash;
    uint64_t bytes;
} ReportSection;

typedef struct Report {
    Arena *arena;
    const char *model, *source, *target;
    const char *device; /* where it was timed; NULL: nowhere */
    const char *inputs; /* whose errors are shown; NULL: none */
    ARRAY(const char *) ports;
    ARRAY(ReportSection) sections;
    uint64_t weight_bytes;
    ARRAY(ReportBucket) buckets;
    int shown; /* the bucket that colours speak of */
    ARRAY(ReportKernel) kernels;
    ARRAY(ReportLayer) layers;
    Map layer_index; /* name to number + 1 */
    ARRAY(ReportStop) stops;
    ARRAY(ReportWarning) warnings;
    ARRAY(ReportPick) picks;
    ARRAY(ReportFusion) fusion;
    StaticRanges ranges;
    Graph graph;
    ReportNode *node;         /* [graph.nodes] */
    const Comparison *errors; /* against the float model; NULL: no_errors says why */
    const char *no_errors, *no_times;
    const Choice *choice; /* what auto came to; NULL: the text has none */
} Report;

/* gather.c ------------------------------------------------------------------------------------- */

/* Everything but times, errors and warnings, of a model that was compiled to `program`.
 * report_layers goes into w->calibrated, with the report as its user. */
void report_layers(Work *w, void *report);
bool report_gather(Report *r, Work *w, const char *program);
/* The warnings of `w` until now. */
void report_warnings(Report *r, const Work *w);
/* The layer's errors; NULL: there are none. */
const CompareRow *report_errors(const Report *r, const char *name);
/* Microseconds of some launches, of all (kernel NULL); NaN: none was timed. */
double report_us(const Report *r, int num, const int *kernel, int bucket);

/* times.c -------------------------------------------------------------------------------------- */

/* Runs the program on made-up data in every bucket and fills what report_gather left open. False
 * after an error; *ret_exit then is the exit code. */
bool report_times(Report *r, Work *w, const char *program, int *ret_exit);

/* Output --------------------------------------------------------------------------------------- */

void report_page(Sb *sb, Report *r); /* a whole HTML document that is well-formed XML, too */
void report_json(Sb *sb, const Report *r);

typedef enum ReportColour { COLOUR_TIME, COLOUR_ERROR } ReportColour;
/* drawing.c: the graph as SVG, and what its colours mean. */
void report_drawing(Sb *sb, Report *r, ReportColour what);

/* choice.c: what auto came to; and why a layer has its format, NULL where a rule says it. */
void report_choice(Sb *sb, Report *r);
const char *report_choice_reason(const Report *r, const char *layer);

/* tables.c */
void report_buckets_table(Sb *sb, const Report *r);
void report_layers_table(Sb *sb, const Report *r);
void report_reasons_table(Sb *sb, const Report *r);
void report_kernels_table(Sb *sb, const Report *r);
void report_outputs_table(Sb *sb, const Report *r);
void report_stops_table(Sb *sb, const Report *r);
void report_picks_table(Sb *sb, const Report *r);
void report_fusion_table(Sb *sb, const Report *r);
void report_ranges_table(Sb *sb, const Report *r);
void report_warnings_table(Sb *sb, const Report *r);
void report_sections_table(Sb *sb, const Report *r);

#endif
