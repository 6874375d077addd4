/* Products of oneDNN's for bench_cpu. Neither version has a scale a row, and version 2 adds the
 * bias before the scale: a little less than ours do. */
#include "bench/peer_dnnl.h"
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ARGS 5

struct DnnlProduct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[MAX_ARGS];
    int num_args;
};

static void check(dnnl_status_t status, int line)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "bench_cpu: oneDNN failed with %d at line %d\n", (int)status, line);
    exit(1);
}
#define DNNL(call) check(call, __LINE__)

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t Desc;

static dnnl_memory_desc_t desc_new(int dims, int64_t rows, int64_t cols, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    dnnl_dims_t size = {rows, cols};
    DNNL(dnnl_memory_desc_create_with_tag(&desc, dims, size, type, tag));
    return desc;
}
#else
typedef const dnnl_memory_desc_t *Desc;

static dnnl_memory_desc_t desc_new(int dims, int64_t rows, int64_t cols, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    dnnl_dims_t size = {rows, cols};
    DNNL(dnnl_memory_desc_init_by_tag(&desc, dims, size, type, tag));
    return desc;
}
#endif

static void fill_random(uint8_t *data, uint64_t size)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (uint8_t)(state >> 24);
    }
}

/* An argument's memory; codes are random, floats all one value. */
static void arg_add(DnnlProduct *p, int slot, Desc desc, bool is_float, float value)
{
    void *data;
    dnnl_memory_t memory;
    DNNL(dnnl_memory_create(&memory, desc, p->engine, DNNL_MEMORY_ALLOCATE));
    DNNL(dnnl_memory_get_data_handle(memory, &data));
    uint64_t size = dnnl_memory_desc_get_size(desc);
    if (!is_float)
        fill_random(data, size);
    for (uint64_t i = 0; is_float && i < size / sizeof value; i++)
        ((float *)data)[i] = value;
    p->arg[p->num_args++] = (dnnl_exec_arg_t){slot, memory};
}

static dnnl_primitive_attr_t attr_new(int64_t n)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_post_ops_create(&post));
#if DNNL_VERSION_MAJOR >= 3
    (void)n;
    DNNL(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, 2));
    DNNL(dnnl_post_ops_append_eltwise(post, dnnl_eltwise_gelu_erf, 0, 0));
#else
    float *scale = malloc((size_t)n * sizeof *scale);
    for (int64_t i = 0; scale && i < n; i++)
        scale[i] = 0.001f;
    DNNL(dnnl_primitive_attr_set_output_scales(attr, n, 2, scale));
    free(scale);
    DNNL(dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_gelu_erf, 0, 0));
#endif
    DNNL(dnnl_primitive_attr_set_post_ops(attr, post));
    DNNL(dnnl_post_ops_destroy(post));
    return attr;
}

DnnlProduct *dnnl_product_new(int64_t m, int64_t n, int64_t k)
{
    DnnlProduct *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    DNNL(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
    dnnl_primitive_attr_t attr = attr_new(n);
    dnnl_memory_desc_t a = desc_new(2, m, k, dnnl_s8, dnnl_ab);
    dnnl_memory_desc_t w = desc_new(2, k, n, dnnl_s8, dnnl_format_tag_any);
    dnnl_memory_desc_t bias = desc_new(2, 1, n, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t c = desc_new(2, m, n, dnnl_s8, dnnl_ab);
    dnnl_primitive_desc_t pd;
#if DNNL_VERSION_MAJOR >= 3
    DNNL(dnnl_matmul_primitive_desc_create(&pd, p->engine, a, w, bias, c, attr));
    dnnl_memory_desc_t scale = desc_new(1, n, 1, dnnl_f32, dnnl_a);
    arg_add(p, DNNL_ARG_SRC, a, false, 0);
    arg_add(p, DNNL_ARG_BIAS, bias, true, 0);
    arg_add(p, DNNL_ARG_DST, c, false, 0);
    arg_add(p, DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scale, true, 0.001f);
#else
    dnnl_matmul_desc_t desc;
    DNNL(dnnl_matmul_desc_init(&desc, &a, &w, &bias, &c));
    DNNL(dnnl_primitive_desc_create(&pd, &desc, attr, p->engine, NULL));
    arg_add(p, DNNL_ARG_SRC, &a, false, 0);
    arg_add(p, DNNL_ARG_BIAS, &bias, true, 0);
    arg_add(p, DNNL_ARG_DST, &c, false, 0);
#endif
    arg_add(p, DNNL_ARG_WEIGHTS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), false,
            0);
    DNNL(dnnl_primitive_create(&p->primitive, pd));
    DNNL(dnnl_primitive_desc_destroy(pd));
    DNNL(dnnl_primitive_attr_destroy(attr));
    return p;
}

void dnnl_product_run(DnnlProduct *p)
{
    DNNL(dnnl_primitive_execute(p->primitive, p->stream, p->num_args, p->arg));
    DNNL(dnnl_stream_wait(p->stream));
}

void dnnl_product_free(DnnlProduct *p)
{
    DNNL(dnnl_primitive_destroy(p->primitive));
    for (int i = 0; i < p->num_args; i++)
        DNNL(dnnl_memory_destroy(p->arg[i].memory));
    DNNL(dnnl_stream_destroy(p->stream));
    DNNL(dnnl_engine_destroy(p->engine));
    free(p);
}

const char *dnnl_peer_version(void)
{
    static char text[48];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}
