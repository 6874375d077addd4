/* Products of ggml's through its CPU backend, for bench_cpu. */
#include "bench/peer_ggml.h"
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <stdlib.h>
#include <string.h>

struct GgmlProduct {
    ggml_backend_t backend;
    struct ggml_context *weights, *rest;
    ggml_backend_buffer_t buffer[2];
    struct ggml_cgraph **graph;
    int copies, next;
};

static struct ggml_context *context_new(int tensors)
{
    size_t graph = ggml_graph_overhead_custom(8, false) + ggml_tensor_overhead();
    return ggml_init(
        (struct ggml_init_params){.mem_size = (size_t)(tensors + 1) * 2 * graph, .no_alloc = true});
}

/* Does a product with a weight that lies in such a buffer run? */
static bool buffer_serves(ggml_backend_buffer_type_t type, enum ggml_type format, int64_t m,
                          int64_t n, int64_t k)
{
    struct ggml_context *ctx = context_new(1), *rest = context_new(2);
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, format, k, n);
    struct ggml_tensor *x = ggml_new_tensor_2d(rest, GGML_TYPE_F32, k, m);
    struct ggml_tensor *c = ggml_mul_mat(rest, w, x);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    bool ok = buffer && ggml_backend_dev_supports_op(ggml_backend_buft_get_device(type), c);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_free(rest);
    return ok;
}

/* The first layout made for this processor that takes the weight, else the plain one. */
static ggml_backend_buffer_type_t buffer_type(enum ggml_type format, int64_t m, int64_t n,
                                              int64_t k)
{
    ggml_backend_reg_t reg = ggml_backend_cpu_reg();
    ggml_backend_dev_t dev = ggml_backend_reg_dev_get(reg, 0);
    ggml_backend_dev_get_extra_bufts_t extra = NULL;
    void *found = ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts");
    memcpy(&extra, &found, sizeof extra);
    for (ggml_backend_buffer_type_t *t = extra ? extra(dev) : NULL; t && *t; t++)
        if (buffer_serves(*t, format, m, n, k))
            return *t;
    return ggml_backend_cpu_buffer_type();
}

static bool format_find(const char *name, enum ggml_type *ret)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++)
        if (ggml_type_name((enum ggml_type)i) && !strcmp(ggml_type_name((enum ggml_type)i), name)) {
            *ret = (enum ggml_type)i;
            return true;
        }
    return false;
}

static void weights_fill(GgmlProduct *p, enum ggml_type format, int64_t n, int64_t k)
{
    size_t bytes = ggml_row_size(format, k) * (size_t)n;
    float *values = malloc((size_t)(n * k) * sizeof *values);
    void *codes = malloc(bytes);
    uint32_t state = 1;
    for (int64_t i = 0; values && i < n * k; i++) {
        state = state * 1664525 + 1013904223;
        values[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
    }
    if (!values || !codes)
        abort();
    ggml_quantize_chunk(format, values, codes, 0, n, k, NULL);
    for (struct ggml_tensor *w = ggml_get_first_tensor(p->weights); w;
         w = ggml_get_next_tensor(p->weights, w))
        ggml_backend_tensor_set(w, codes, 0, bytes);
    free(values);
    free(codes);
}

static void say_nothing(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

GgmlProduct *ggml_product_new(const char *type, int64_t m, int64_t n, int64_t k, int copies,
                              int threads)
{
    enum ggml_type format;
    GgmlProduct *p = calloc(1, sizeof *p);
    if (!p || !format_find(type, &format)) {
        free(p);
        return NULL;
    }
    ggml_log_set(say_nothing, NULL);
    p->backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(p->backend, threads);
    p->copies = copies;
    p->graph = calloc((size_t)copies, sizeof(struct ggml_cgraph *));
    p->weights = context_new(copies);
    p->rest = context_new(copies + 1);
    struct ggml_tensor *x = ggml_new_tensor_2d(p->rest, GGML_TYPE_F32, k, m);
    for (int i = 0; i < copies; i++) {
        struct ggml_tensor *w = ggml_new_tensor_2d(p->weights, format, k, n);
        p->graph[i] = ggml_new_graph_custom(p->rest, 8, false);
        ggml_build_forward_expand(p->graph[i], ggml_mul_mat(p->rest, w, x));
    }
    p->buffer[0] =
        ggml_backend_alloc_ctx_tensors_from_buft(p->weights, buffer_type(format, m, n, k));
    p->buffer[1] = ggml_backend_alloc_ctx_tensors(p->rest, p->backend);
    if (!p->buffer[0] || !p->buffer[1])
        abort();
    weights_fill(p, format, n, k);
    float *values = malloc((size_t)(m * k) * sizeof *values);
    for (int64_t i = 0; values && i < m * k; i++)
        values[i] = (float)(i % 17) - 8;
    ggml_backend_tensor_set(x, values, 0, (size_t)(m * k) * sizeof *values);
    free(values);
    return p;
}

void ggml_product_run(GgmlProduct *p)
{
    ggml_backend_graph_compute(p->backend, p->graph[p->next++ % p->copies]);
}

void ggml_product_free(GgmlProduct *p)
{
    if (!p)
        return;
    ggml_backend_buffer_free(p->buffer[0]);
    ggml_backend_buffer_free(p->buffer[1]);
    ggml_free(p->weights);
    ggml_free(p->rest);
    ggml_backend_free(p->backend);
    free(p->graph);
    free(p);
}
