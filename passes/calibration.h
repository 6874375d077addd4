/* passes/calibration: what the layers of a model see on the calibration data, for the passes and
 * for whoever chooses formats. Three kinds of knowledge, by cost:
 *
 *   ActStats (quant/calib.h) of a layer's input: one pass over the data serves all layers; kept in
 *       m->activations by layer, and in calibration files.
 *   A sample of rows of the input: for searches that run the layer.
 *   Second moments (WeightStats.hessian): cols^2 numbers, so made for a bounded number of layers at
 *       a time, when they are asked for. */
#ifndef SINTER_PASSES_CALIBRATION_H
#define SINTER_PASSES_CALIBRATION_H

#include "io/cache.h"
#include "io/io.h"
#include "passes/passes.h"
#include "quant/calib.h"

/* watch.c: values of the module's body, observed on the data ----------------------------------- */

typedef struct Watch {
    int num_values;
    const Value *const *value; /* all go into the same statistics */
    int64_t cols;              /* 1 when the value's columns are not constant */
    bool want_moments;
    int64_t want_rows; /* sample rows */
    ActStats stats;
    LayerStats moments; /* when want_moments */
    float *sample;      /* [num_sample, cols]: rows evenly over the data */
    int64_t num_sample;
    int64_t stride, next; /* of the sample */
} Watch;
typedef struct WatchLink {
    Watch *watch;
    struct WatchLink *next;
} WatchLink;
typedef struct Watches {
    WatchLink **of; /* by the mark of the defining op */
    Arena *arena;
    ARRAY(Watch *) all;
    bool failed;
} Watches;

/* Numbers the body's ops; their marks must stay until the run is over. */
void watches_init(Watches *w, const Module *m, Arena *arena);
/* One for all who name the same values, which have as many columns and outlive the watch. */
Watch *watches_add(Watches *w, int num, const Value *const *value);
/* Runs the float model on the data of its `calibrate` lines. False after an error was reported. */
bool watches_run(Watches *w, Module *m, PassContext *ctx);
void watches_free(Watches *w); /* what observing allocated */

/* activations.c: m->activations --------------------------------------------------------------- */

/* What the calls of one layer read, without repetition; of other widths than the first call's none.
 */
typedef struct LayerInputs {
    ARRAY(const Value *) values;
} LayerInputs;
/* Of all layers: name to LayerInputs. */
void layer_inputs_init(Map *inputs, const Module *m, Arena *arena);
/* Layers whose statistics are wanted: all, or those that `wants` says. */
typedef bool LayerFilter(const Op *matmul, void *user);
/* Collects the statistics that are not there yet, in one run over the data, and warns of what they
 * leave in doubt. False after an error was reported. Without data and without a calibration file it
 * does nothing. */
bool activations_collect(Module *m, PassContext *ctx, LayerFilter *wants, void *user);
/* NULL: not collected. */
const ActStats *activation_of(const Module *m, const Op *matmul);
/* False for columns that were rescaled: their histogram is not known, nor is that of none. */
bool activation_has_histogram(const Module *m, const Op *matmul);
/* The columns of the layer's input were divided by `by`. */
void activation_rescale(Module *m, const Op *matmul, const float *by);
/* The layer of `matmul` is that of `other`, too: what it sees are the inputs of both, of whose
 * histogram the extremes are known. */
void activation_join(Module *m, const Op *matmul, const Op *other);
/* WeightStats without second moments, in the module's arena. */
const WeightStats *activation_weight_stats(Module *m, const ActStats *stats);

/* moments.c: second moments on demand --------------------------------------------------------- */

typedef struct Moments Moments;
/* Of the model as it is now; m may change afterwards, its weights must stay open. */
Moments *moments_create(Module *m, const PassContext *ctx);
void moments_want(Moments *s, const char *layer); /* in the order in which they will be asked for */
/* The input of one layer that moments_want named. Valid until the next call. NULL: *ret_why. */
const WeightStats *moments_get(Moments *s, const char *layer, const char **ret_why);
/* Hash of the model and its data: what the moments follow from. */
CacheKey moments_key(Moments *s);

/* codes.c: what the evaluator asks for codes of weights that need second moments. */
const CodeMaker *codes_create(Module *m, const PassContext *ctx, Moments *moments);

/* calib_file.c -------------------------------------------------------------------------------- */

/* One activation and the layers that read it. */
typedef struct CalibRecord {
    ARRAY(const char *) layers;
    ActStats stats; /* in the arena */
} CalibRecord;
typedef struct CalibData {
    const char *path; /* as the text names it */
    CacheKey key;     /* of its bytes */
} CalibData;
typedef struct Calibration {
    const char *model; /* its name */
    CacheKey key;
    ARRAY(CalibData) data;
    ARRAY(CalibRecord *) records;
} Calibration;
/* The text of a calibration file; and back, everything checked. False: err says which line. */
void calibration_print(Sb *sb, const Calibration *c);
bool calibration_parse(Calibration *c, Arena *arena, const char *name, const char *text, size_t len,
                       IoError *err);
/* Hash of the model's structure and weights; formats, rules and sizes of buckets aside. */
CacheKey calibration_model_key(Module *m, Arena *scratch);
/* Hash of one data file. False after reporting. */
bool calibration_data_key(Module *m, const PassContext *ctx, int file, CacheKey *ret);
/* All of m->activations as a file at `path`. False after reporting. */
bool calibration_write(Module *m, PassContext *ctx, const char *path);

#endif
