/* Products of ggml's, where bench_cpu is built with it (ggml.sh). */
#ifndef SINTER_BENCH_PEER_GGML_H
#define SINTER_BENCH_PEER_GGML_H

#include <stdint.h>

typedef struct GgmlProduct GgmlProduct;
/* f32 activations [m, k] by as many weights [n, k] of the type ("q4_0") as `copies`, which are
 * taken in turn, in the layout that ggml prefers for them. NULL: ggml lacks the type. */
GgmlProduct *ggml_product_new(const char *type, int64_t m, int64_t n, int64_t k, int copies,
                              int threads);
void ggml_product_run(GgmlProduct *p);
void ggml_product_free(GgmlProduct *p);

#endif
