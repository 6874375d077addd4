/* test_cuda's sessions on the fake driver, their data, and what must be left of them. */
#include "cuda_rig.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const char *fake_path, *profiler_path;
FakeReset *reset;
FakeSetKernel *set_kernel;
FakeGetCounts *get_counts;
FakeGetLog *get_log;

static char dir[] = "/tmp/sinter-cuda-XXXXXX";
char path[64], mixed_path[64], large_path[64], gpu_path[64], map_path[64], scales_path[64];
TestModel model;

void *symbol(void *library, const char *name)
{
    void *ret = dlsym(library, name);
    if (!ret)
        fprintf(stderr, "the fake driver has no %s\n", name);
    return ret;
}

static bool load_fake(void)
{
    void *library = dlopen(fake_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    void *found[] = {symbol(library, "fake_reset"), symbol(library, "fake_kernel"),
                     symbol(library, "fake_counts"), symbol(library, "fake_log")};
    memcpy(&reset, &found[0], sizeof reset);
    memcpy(&set_kernel, &found[1], sizeof set_kernel);
    memcpy(&get_counts, &found[2], sizeof get_counts);
    memcpy(&get_log, &found[3], sizeof get_log);
    return reset && set_kernel && get_counts && get_log;
}

int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || !load_fake())
        return -1;
    snprintf(path, sizeof path, "%s/m", dir);
    snprintf(mixed_path, sizeof mixed_path, "%s/mixed", dir);
    snprintf(large_path, sizeof large_path, "%s/large", dir);
    snprintf(gpu_path, sizeof gpu_path, "%s/gpu", dir);
    model_float(&model);
    TestModel mixed = model;
    mixed.plan.rows_independent = false;
    snprintf(map_path, sizeof map_path, "%s/map", dir);
    snprintf(scales_path, sizeof scales_path, "%s/scales", dir);
    use_model(&model);
    bool ok = write_cuda_model(&model, path, 0, HOLDS_ALL) &&
              write_cuda_model(&mixed, mixed_path, 0, HOLDS_ALL) &&
              write_cuda_model(&model, large_path, MANY_BYTES, HOLDS_ALL) &&
              write_cuda_model(&model, gpu_path, 0, HOLDS_SM_90A) &&
              write_cuda_model(&mixed, map_path, 0, HOLDS_SM_90A | WITH_MAPS) &&
              write_cuda_model(&mixed, scales_path, 0, HOLDS_SM_90A | WITH_MAPS | OF_SCALES);
    return ok ? 0 : -1;
}

int teardown(void **state)
{
    (void)state;
    unlink(path);
    unlink(mixed_path);
    unlink(large_path);
    unlink(gpu_path);
    unlink(map_path);
    unlink(scales_path);
    model_free(&model);
    return rmdir(dir);
}

/* Models and tensors --------------------------------------------------------------------------- */

SinterStatus try_open(const char *file, const SinterSessionOptions *options, Opened *ret,
                      SinterError *err)
{
    *ret = (Opened){0};
    SinterStatus status = sinter_open(file, &ret->model, err);
    if (!status)
        status = sinter_session_create(ret->model, options, &ret->session, err);
    return status;
}

void close_model(Opened o)
{
    sinter_session_destroy(o.session);
    sinter_close(o.model);
}

const SinterSessionOptions on_cuda = {.device = "cuda"};

Opened open_model(const char *file)
{
    Opened o;
    SinterError err;
    if (try_open(file, &on_cuda, &o, &err))
        fail_msg("%s", err.text);
    return o;
}

/* Why a session cannot be created; the statuses must agree. */
const char *refusal_of(const char *file, const char *device, SinterStatus want)
{
    static SinterError err;
    const SinterSessionOptions options = {.device = device};
    Opened o;
    SinterStatus status = try_open(file, &options, &o, &err);
    close_model(o);
    if (status != want)
        fail_msg("status %d, not %d: %s", status, want, status ? err.text : "");
    assert_int_equal(err.status, want);
    return err.text;
}

const char *refusal(const char *device, SinterStatus want)
{
    return refusal_of(path, device, want);
}

void assert_says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

void data_make(Data *d, int64_t rows, int seed)
{
    for (int64_t i = 0; i < rows * MODEL_K; i++)
        d->x[i] = (float)((i * 13 + seed * 5) % 23 - 11);
    memset(d->y, 0xff, sizeof d->y);
    memset(d->z, 0xff, sizeof d->z);
    model_expect(&model, 2.0f, true, d->x, rows, d->want);
    d->in = (SinterTensor){"x", SINTER_F32, 2, {rows, MODEL_K}, d->x};
    d->out[0] = (SinterTensor){"y", SINTER_F32, 2, {rows, MODEL_N}, d->y};
    d->out[1] = (SinterTensor){"z", SINTER_F32, 3, {rows, 2, 8}, d->z};
}

void data_check(const Data *d)
{
    for (int64_t i = 0; i < d->in.dim[0] * MODEL_N; i++) {
        int64_t row = i / MODEL_N, at = i % MODEL_N;
        if (d->y[i] != d->want[i])
            fail_msg("y[%lld][%lld] = %g, not %g", (long long)row, (long long)at, (double)d->y[i],
                     (double)d->want[i]);
        assert_true(d->z[row * MODEL_N + at % 2 * 8 + at / 2] == d->want[i]);
    }
}

void run_rows(Opened o, int64_t rows, int seed)
{
    static Data d;
    SinterError err;
    data_make(&d, rows, seed);
    if (sinter_run(o.session, &d.in, 1, d.out, 2, &err))
        fail_msg("%s", err.text);
    data_check(&d);
}

void assert_nothing_left(void)
{
    FakeCounts c = get_counts();
    if (c.misuse)
        fail_msg("%d misuses:\n%s", c.misuse, get_log());
    int alive = c.memory + c.pinned + c.modules + c.streams + c.events + c.graphs + c.execs +
                c.contexts + c.pushed;
    if (alive)
        fail_msg("left: memory %d pinned %d modules %d streams %d events %d graphs %d execs %d "
                 "contexts %d pushed %d",
                 c.memory, c.pinned, c.modules, c.streams, c.events, c.graphs, c.execs, c.contexts,
                 c.pushed);
}

void fresh(void)
{
    reset(NULL);
    set_kernel(run_model_kernel);
}
