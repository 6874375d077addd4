/* draft: texts for checkpoints that have none. A folder's config.json and the names and shapes of
 * its tensors say what the layers are; what they do not say, or the language cannot, becomes a
 * comment. Families are told apart by `model_type`, details by which tensors there are. */
#ifndef SINTER_DRAFT_H
#define SINTER_DRAFT_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "io/io.h"

/* What config.json says; 0 and NULL where it says nothing. */
typedef struct DraftConfig {
    const char *type, *act, *quantised,
        *rope; /* rope: how positions are scaled, as it stands there */
    int64_t hidden, inner, layers, heads, keys, size, experts, chosen, window, pattern;
    double eps, theta, local_theta, partial, scalar, soft_scores, soft_logits, bound, clip;
    bool normalised; /* the weights of the chosen experts sum to 1 */
    ARRAY(const char *) layer_types;
} DraftConfig;
/* config.c: false after an error. A folder without the file has an empty DraftConfig. */
bool draft_config(Arena *arena, Diag *diag, const char *folder, DraftConfig *ret);

/* A text on its way. Emitting goes on after errors; they are in diag. */
typedef struct Draft {
    Arena *arena;
    Diag *diag;
    const WeightSet *weights;
    const Checkpoint *stored; /* the modules among them that are stored quantised */
    DraftConfig config;
    const char *folder, *format; /* format: of the model's values, by its linear weights */
    const char *prefix;          /* of all names: "model." */
    int64_t layers;
    int num_paths;
    const char *const *path; /* of the weights, as the text calls them */
    Map used;                /* names of tensors that the text takes */
    Sb sb;
} Draft;

/* draft.c: the weight files of a folder: its index, else all that end in .safetensors, by name. */
int draft_files(Arena *arena, const char *folder, const char *const **ret);
/* The text of a folder's model, NULL after errors in diag. `path`: of the weights, as the text,
 * which stands elsewhere, has to call them. */
const char *draft_text(Arena *arena, Diag *diag, const char *folder, const Checkpoint *stored,
                       int num_paths, const char *const *path);

/* names.c: what there is. Patterns hold {i} where a layer's number goes, and * where an expert's,
 * of a model that has experts. */
const TensorView *draft_find(const Draft *d, const char *pattern, int64_t layer);
bool draft_has(const Draft *d, const char *pattern); /* in layer 0, of expert 0, or at all */
/* Dimension `axis` of a tensor that must be there; 0 after an error. */
int64_t draft_dim(Draft *d, const char *pattern, int axis);
int64_t draft_half(Draft *d, const char *pattern, int axis); /* .. of gates and ups in one */
/* `param name: format[dims] from "pattern"`, after a look at the tensor in every layer. */
void draft_param(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                 const char *pattern);
/* .. of all experts: each [rows, cols] where the pattern holds *, else [experts, rows, cols];
 * without cols, [rows] and [experts, rows] */
void draft_param_experts(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                         const char *pattern);
/* .. if it is there: whether it is */
bool draft_param_maybe(Draft *d, const char *name, const char *dims, int64_t rows, int64_t cols,
                       const char *pattern);
void draft_line(Draft *d, const char *fmt, ...) PRINTF_LIKE(2, 3); /* {D}.. are not expanded */
void draft_begin(Draft *d);  /* the lines of version and weights */
void draft_unused(Draft *d); /* comments: the tensors that the text does not take */
const char *draft_act(Draft *d, const char *otherwise); /* the operation that config.act names */
/* What lies between two products, rounded to bf16 where that is the checkpoint's format, as the
 * code that it was trained with rounds it: under a scheme that quantises it by whole rows a GPU
 * keeps it in memory. (f16 would overflow where f32 does not.) */
const char *draft_rounded(Draft *d, const char *value);

void draft_decoder(Draft *d);               /* decoder.c: Llama and its relatives, Gemma, Phi */
bool draft_knows_experts(const char *type); /* decoder.c */
void draft_encoder(Draft *d);               /* encoder.c: BERT */
void draft_chain(Draft *d); /* chain.c: linear layers one behind the other, by their numbers */

#endif
