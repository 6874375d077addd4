/* Products of oneDNN's, where bench_cpu is built with it: version 2 or 3. */
#ifndef SINTER_BENCH_PEER_DNNL_H
#define SINTER_BENCH_PEER_DNNL_H

#include <stdint.h>

typedef struct DnnlProduct DnnlProduct;
/* s8 [m, k] by s8 [n, k], a scale a channel, bias, GELU (erf), s8 out, in the layout of weights
 * that oneDNN prefers. */
DnnlProduct *dnnl_product_new(int64_t m, int64_t n, int64_t k);
void dnnl_product_run(DnnlProduct *p);
void dnnl_product_free(DnnlProduct *p);
/* "2.6.3", of the library that runs */
const char *dnnl_peer_version(void);

#endif
