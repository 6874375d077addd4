/* sinter_dlpack.h: tensors of a framework of our own go in and out, on the processor and on the
 * fake driver's GPU; what must be refused is; memory outlives what it came from. */
#include "cuda_rig.h"
#include "runtime/sinter_dlpack.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Where the specification puts each field on machines with pointers of 64 bits. */
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 &&
                   offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
                   offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
                   offsetof(DLTensor, byte_offset) == 40,
               "DLTensor");
_Static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, manager_ctx) == 48 &&
                   offsetof(DLManagedTensor, deleter) == 56,
               "DLManagedTensor");
_Static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
                   offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
                   offsetof(DLManagedTensorVersioned, deleter) == 16 &&
                   offsetof(DLManagedTensorVersioned, flags) == 24 &&
                   offsetof(DLManagedTensorVersioned, dl_tensor) == 32,
               "DLManagedTensorVersioned");

static const SinterSessionOptions on_cpu = {.device = "cpu"};

typedef struct Lent { /* a tensor of somebody else's */
    int64_t shape[2], stride[2];
    DLManagedTensorVersioned tensor;
} Lent;

static void lend(Lent *l, void *data, int64_t rows, int64_t cols)
{
    *l = (Lent){.shape = {rows, cols}, .stride = {cols, 1}};
    l->tensor = (DLManagedTensorVersioned){.version = {1, 0},
                                           .dl_tensor = {.data = data,
                                                         .device = {kDLCPU, 0},
                                                         .ndim = 2,
                                                         .dtype = {kDLFloat, 32, 1},
                                                         .shape = l->shape,
                                                         .strides = l->stride}};
}

static Opened open_on(const SinterSessionOptions *options)
{
    Opened o;
    SinterError err;
    if (try_open(path, options, &o, &err))
        fail_msg("%s", err.text);
    return o;
}

static void must(SinterStatus status, const SinterError *err)
{
    if (status)
        fail_msg("%s", err->text);
}

static DLManagedTensorVersioned *create(Opened o, int is_output, int index, int64_t rows)
{
    SinterError err;
    SinterTensor like;
    DLManagedTensorVersioned *ret;
    must(sinter_port_shape(o.model, is_output, index, &rows, &like, &err), &err);
    must(sinter_dlpack_create(o.session, &like, &ret, &err), &err);
    return ret;
}

/* x comes from elsewhere, y and z are ours; device memory of the fake driver is host memory. */
static void run_lent(Opened o, int64_t rows, int seed)
{
    static Data d;
    SinterError err;
    DLManagedTensorVersioned *y, *z;
    SinterTensor in, out[2];
    Lent x;
    static float shifted[3 + MAX_ROWS * MODEL_K];
    data_make(&d, rows, seed);
    memcpy(shifted + 3, d.x, sizeof d.x);
    lend(&x, shifted, rows, MODEL_K);
    x.tensor.dl_tensor.byte_offset = 3 * sizeof(float);
    y = create(o, 1, 0, rows);
    z = create(o, 1, 1, rows);
    must(sinter_dlpack_import(o.session, 0, "x", &x.tensor, &in, &err), &err);
    must(sinter_dlpack_import(o.session, 1, "z", z, &out[0], &err), &err);
    must(sinter_dlpack_import(o.session, 1, "y", y, &out[1], &err), &err);
    must(sinter_run(o.session, &in, 1, out, 2, &err), &err);
    assert_int_equal(y->dl_tensor.ndim, 2);
    assert_int_equal(z->dl_tensor.ndim, 3);
    assert_int_equal(z->dl_tensor.strides[0], 16);
    assert_int_equal(z->dl_tensor.strides[1], 8);
    memcpy(d.y, y->dl_tensor.data, (size_t)rows * MODEL_N * sizeof(float));
    memcpy(d.z, z->dl_tensor.data, (size_t)rows * MODEL_N * sizeof(float));
    data_check(&d);
    y->deleter(y);
    z->deleter(z);
}

static void tensors_go_in_and_out(void **state)
{
    (void)state;
    fresh();
    const SinterSessionOptions *const all[] = {&on_cpu, &on_cuda};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        Opened o = open_on(all[i]);
        for (int64_t rows = 1; rows <= 33; rows += 8)
            run_lent(o, rows, (int)rows);
        close_model(o);
    }
    assert_nothing_left();
}

static void ports_have_no_copies(void **state)
{
    (void)state;
    static Data d;
    SinterError err;
    DLManagedTensorVersioned *x, *y;
    SinterTensor in, out[2];
    int64_t rows = 4, too_many = 17;
    fresh();
    Opened o = open_on(&on_cuda);
    run_rows(o, rows, 1); /* makes the graph */
    must(sinter_dlpack_port(o.session, 0, 0, &rows, &x, &err), &err);
    must(sinter_dlpack_port(o.session, 1, 0, &rows, &y, &err), &err);
    assert_int_equal(x->dl_tensor.device.device_type, kDLCUDA);
    data_make(&d, rows, 3);
    memcpy(x->dl_tensor.data, d.x, (size_t)rows * MODEL_K * sizeof(float));
    must(sinter_dlpack_import(o.session, 0, "x", x, &in, &err), &err);
    must(sinter_dlpack_import(o.session, 1, "y", y, &out[0], &err), &err);
    out[1] = d.out[1];
    reset(NULL);
    must(sinter_run_async(o.session, &in, 1, out, 2, NULL, &err), &err);
    assert_string_equal(get_log(), "graph of 3\nfrom device 256\n"); /* z alone */
    must(sinter_wait(o.session, &err), &err);
    must(sinter_wait(o.session, &err), &err); /* nothing is left to wait for */
    DLManagedTensorVersioned *none;
    assert_int_equal(sinter_dlpack_port(o.session, 0, 0, &too_many, &none, &err),
                     SINTER_ERROR_ARGUMENT);
    assert_says(err.text, "544 bytes for these sizes, but the session's memory");
    assert_null(none);
    x->deleter(x);
    close_model(o); /* y keeps session and model */
    memcpy(d.y, y->dl_tensor.data, (size_t)rows * MODEL_N * sizeof(float));
    data_check(&d);
    y->deleter(y);
    assert_nothing_left();

    o = open_on(&on_cpu);
    assert_int_equal(sinter_dlpack_port(o.session, 0, 0, &rows, &none, &err),
                     SINTER_ERROR_UNSUPPORTED);
    close_model(o);
}

static void memory_outlives_what_it_came_from(void **state)
{
    (void)state;
    const SinterSessionOptions *const all[] = {&on_cpu, &on_cuda};
    fresh();
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        SinterError err;
        int64_t rows = 5;
        DLManagedTensorVersioned *first, *second;
        DLManagedTensor *third;
        Opened o = open_on(all[i]);
        sinter_close(o.model); /* the session keeps it */
        run_lent(o, 3, 1);
        first = create(o, 0, 0, rows);
        sinter_session_destroy(o.session);
        memset(first->dl_tensor.data, 7, (size_t)rows * MODEL_K * sizeof(float));
        must(sinter_dlpack_share(first, &second, &err), &err);
        first->deleter(first);
        must(sinter_dlpack_share_legacy(second, &third, &err), &err);
        second->deleter(second);
        assert_int_equal(((uint8_t *)third->dl_tensor.data)[rows * MODEL_K * 4 - 1], 7);
        assert_int_equal(third->dl_tensor.shape[0], rows);
        third->deleter(third);
    }
    assert_nothing_left();
}

static void refused(SinterStatus got, SinterStatus want, const SinterError *err, const char *part)
{
    assert_int_equal(got, want);
    assert_int_equal(err->status, want);
    assert_says(err->text, part);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static float data[4 * MODEL_K];
    SinterError err;
    SinterTensor t;
    Lent x;
    fresh();
    Opened cpu = open_on(&on_cpu), gpu = open_on(&on_cuda);
#define REFUSED(session, output, want, part, ...)                                            \
    do {                                                                                     \
        lend(&x, data, 4, MODEL_K);                                                          \
        DLTensor *d = &x.tensor.dl_tensor;                                                   \
        (void)d;                                                                             \
        __VA_ARGS__;                                                                         \
        refused(sinter_dlpack_import(session, output, "x", &x.tensor, &t, &err), want, &err, \
                part);                                                                       \
    } while (0)
    REFUSED(cpu.session, 0, SINTER_ERROR_UNSUPPORTED, "DLPack 2.3, but this library knows 1.x",
            x.tensor.version = ((DLPackVersion){2, 3}));
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "float64; ports take float32",
            d->dtype.bits = 64);
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "special8", d->dtype.code = kDLFloat8_e4m3fn,
            d->dtype.bits = 8);
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "in vectors", d->dtype.lanes = 2);
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "x lies on cuda:0, but the session runs on cpu",
            d->device = ((DLDevice){kDLCUDA, 0}));
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "cuda:0",
            d->device.device_type = kDLCUDAManaged);
    REFUSED(gpu.session, 0, SINTER_ERROR_ARGUMENT, "on cuda:1, but the session runs on cuda:0",
            d->device = ((DLDevice){kDLCUDA, 1}));
    REFUSED(gpu.session, 0, SINTER_ERROR_ARGUMENT, "DLPack's device 10",
            d->device.device_type = kDLROCM);
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "not row-major", d->strides[0] = MODEL_K + 1);
    REFUSED(cpu.session, 0, SINTER_ERROR_ARGUMENT, "7 dimensions", d->ndim = 7);
    REFUSED(cpu.session, 1, SINTER_ERROR_ARGUMENT, "read only",
            x.tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY);
#undef REFUSED
    DLManagedTensorVersioned *none;
    refused(sinter_dlpack_share(&x.tensor, &none, &err), SINTER_ERROR_ARGUMENT, &err,
            "not made by");
    assert_null(none);
    SinterTensor huge = {"x", SINTER_F32, 2, {INT64_C(1) << 40, INT64_C(1) << 40}, NULL};
    refused(sinter_dlpack_create(cpu.session, &huge, &none, &err), SINTER_ERROR_ARGUMENT, &err,
            "the size of x overflows");
    huge.dim[1] = 1;
    refused(sinter_dlpack_create(gpu.session, &huge, &none, &err), SINTER_ERROR_MEMORY, &err,
            "memory is full");
    huge.rank = 7;
    refused(sinter_dlpack_create(gpu.session, &huge, &none, &err), SINTER_ERROR_ARGUMENT, &err,
            "rank 7");
    assert_null(none);
    close_model(cpu);
    close_model(gpu);
    assert_nothing_left();
}

static void what_fits_is_taken(void **state)
{
    (void)state;
    static float data[4 * MODEL_K];
    SinterError err;
    SinterTensor t;
    Lent x;
    fresh();
    Opened cpu = open_on(&on_cpu), gpu = open_on(&on_cuda);
    lend(&x, data, 1, MODEL_K);
    x.stride[0] = 99; /* of one row: means nothing */
    must(sinter_dlpack_import(cpu.session, 0, NULL, &x.tensor, &t, &err), &err);
    assert_null(t.name);
    lend(&x, data, 4, MODEL_K);
    x.tensor.dl_tensor.strides = NULL;
    x.tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY; /* an input */
    must(sinter_dlpack_import(cpu.session, 0, "x", &x.tensor, &t, &err), &err);
    assert_int_equal(t.dim[0], 4);
    static const DLDeviceType fits[] = {kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged};
    for (size_t i = 0; i < COUNT_OF(fits); i++) {
        x.tensor.dl_tensor.device.device_type = fits[i];
        must(sinter_dlpack_import(gpu.session, 0, "x", &x.tensor, &t, &err), &err);
    }
    lend(&x, NULL, 0, MODEL_K);
    x.tensor.dl_tensor.strides[0] = 5; /* of no rows */
    must(sinter_dlpack_import(cpu.session, 0, "x", &x.tensor, &t, &err), &err);
    static const struct {
        DLDataType type;
        SinterDtype want;
    } row[] = {{{kDLFloat, 16, 1}, SINTER_F16},
               {{kDLBfloat, 16, 1}, SINTER_BF16},
               {{kDLInt, 32, 1}, SINTER_I32}};
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        DLManagedTensor legacy = {.dl_tensor = x.tensor.dl_tensor};
        legacy.dl_tensor.dtype = row[i].type;
        must(sinter_dlpack_import_legacy(cpu.session, 1, "x", &legacy, &t, &err), &err);
        assert_int_equal(t.dtype, row[i].want);
    }
    close_model(cpu);
    close_model(gpu);
}

typedef struct Sharer {
    pthread_t thread;
    const DLManagedTensorVersioned *of;
    int failed;
} Sharer;

static void *share_often(void *arg)
{
    Sharer *s = arg;
    for (int i = 0; i < 1000; i++) {
        DLManagedTensorVersioned *mine;
        if (sinter_dlpack_share(s->of, &mine, NULL))
            s->failed++;
        else
            mine->deleter(mine);
    }
    return NULL;
}

static void any_thread_may_share_and_delete(void **state)
{
    (void)state;
    Sharer sharer[4];
    DLManagedTensorVersioned *t;
    fresh();
    Opened o = open_on(&on_cuda);
    t = create(o, 0, 0, 2);
    close_model(o);
    for (size_t i = 0; i < COUNT_OF(sharer); i++) {
        sharer[i] = (Sharer){.of = t};
        assert_int_equal(pthread_create(&sharer[i].thread, NULL, share_often, &sharer[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(sharer); i++) {
        pthread_join(sharer[i].thread, NULL);
        assert_int_equal(sharer[i].failed, 0);
    }
    t->deleter(t);
    assert_nothing_left();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_go_in_and_out),
        cmocka_unit_test(ports_have_no_copies),
        cmocka_unit_test(memory_outlives_what_it_came_from),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_fits_is_taken),
        cmocka_unit_test(any_thread_may_share_and_delete),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_dlpack FAKE_DRIVER\n");
        return 2;
    }
    fake_path = argv[1];
    setenv("SINTER_LIBCUDA", fake_path, 1);
    return cmocka_run_group_tests_name("dlpack", tests, setup, teardown);
}
