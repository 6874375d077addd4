/* draft/decoder: what the files of drafts of decoders share. */
#ifndef SINTER_DRAFT_DECODER_H
#define SINTER_DRAFT_DECODER_H

#include "draft/draft.h"

/* Where the experts' tensors are, behind "model.layers.{i}.". */
typedef struct ExpertNames {
    const char *router;
    const char *gate, *up, *down; /* of each expert; NULL: those of all are in one, as gpt-oss's */
    bool normalised;              /* whatever config.json says: the chosen weights sum to 1 */
} ExpertNames;
extern const ExpertNames experts_mixtral, experts_named, experts_gpt_oss;

typedef struct Family {
    const char *type, *act;
    bool adds_one;   /* norms multiply by weight + 1 */
    bool scales;     /* embeddings are multiplied by the root of their size */
    bool is_phi;     /* layernorm; attention and feed-forward read the same */
    bool has_window; /* some layers look at near tokens only */
    double partial;  /* of each head, what is rotated, where config.json does not say */
    const ExpertNames *experts;
} Family;

typedef struct Decoder {
    Draft *d;
    const Family *family;
    const char *layer; /* "model.layers.{i}." */
    int64_t heads, keys, size, turned, hidden, inner;
    bool has_near;  /* some layers look at near tokens only */
    bool has_local; /* near layers have positions of their own */
} Decoder;

/* decoder.c */
const char *decoder_name(const Decoder *e, const char *rest);
/* Parameters of a linear layer, and its call. */
const char *decoder_linear(Decoder *e, const char *word, const char *dims, int64_t rows,
                           int64_t cols, const char *tensor, const char *x);

/* experts.c: false after an error */
bool experts_measure(Decoder *e);
void experts_put_sizes(Decoder *e);
/* The feed-forward layer of experts of the value `in`; the name of its result. */
const char *experts_put(Decoder *e, Sb *body, const char *in);
void experts_put_rules(Decoder *e); /* behind all else */

#endif
