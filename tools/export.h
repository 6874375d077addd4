/* From a model whose schemes are settled to the modules and tensors of a checkpoint. */
#ifndef SINTER_EXPORT_H
#define SINTER_EXPORT_H

#include "checkpoint/write.h"
#include "driver/work.h"

/* A linear layer's weight that is written quantised. */
typedef struct Export {
    WriteModule module;
    const char *weight;         /* the tensor that a param names */
    const Op *matmul;           /* NULL: the text does not read it */
    const Value *value;         /* its codes; NULL: they are stored */
    const Value *codes;         /* those that the layer reads: of one of several matrices, all */
    const StoredModule *stored; /* NULL: they are chosen here */
    const CheckpointWriter *writer;
    Work *work;
    float outer, written; /* the second scale: as chosen and as written */
} Export;

/* A tensor that passes have changed: smoothing moves factors into norms and biases. */
typedef struct ExportValue {
    const char *weight;
    const Value *value;
    Work *work;
} ExportValue;

/* Experts that lie apart, of one weight. */
typedef struct ExportApart {
    const Op *matmul; /* which reads them */
    bool is_refused;  /* one error is for all */
} ExportApart;

typedef struct Exports {
    Work *work;
    const CheckpointWriter *writer;
    ARRAY(Export *) modules; /* in the order in which they are written */
    ARRAY(FolderUnit) units;
    ARRAY(const char *) plain; /* linear layers that stay as they are */
    int num_copied, num_changed;
    Map by_weight, changed; /* Export, ExportValue */
    Map apart;              /* ExportApart, by the weight of each expert */
    int num_before;
    const Op **before; /* every op that stood when schemes were settled, by address */
} Exports;

/* After choose-scheme: layers that read one weight in the same way are made one. Then the passes up
 * to quantise-weights; then collect. */
void exports_begin(Exports *x, Work *w, const CheckpointWriter *writer);
bool exports_collect(Exports *x); /* false after errors, which name each layer that does not fit */

#endif
