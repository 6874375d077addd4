/* Serves a compiled model from several threads: one model, one session a thread, requests of
 * different sizes from one queue. Each answer is compared with the one that a session alone gives:
 * the same bits, whoever answers.
 *
 *   cc serve.c $(pkg-config --cflags --libs sinter) -pthread -o serve
 *   ./serve MODEL [THREADS] [REQUESTS] */
#include <pthread.h>
#include <sinter_dlpack.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ROWS    32
#define MAX_THREADS 64

typedef struct Request {
    DLManagedTensorVersioned *input, *output; /* made by the library; any framework's would do */
    double started_us, ended_us;
} Request;

typedef struct Server {
    SinterModel *model;
    pthread_mutex_t lock;
    Request *request;
    int num, next; /* next: the queue's head, under the lock */
} Server;

typedef struct Worker {
    pthread_t thread;
    Server *server;
    SinterError err; /* status SINTER_OK: all went well */
} Worker;

static double now_us(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* One request by one session. Nothing is copied: the tensors are used where they lie. */
static SinterStatus answer(SinterSession *session, const DLManagedTensorVersioned *input,
                           const DLManagedTensorVersioned *output, SinterError *err)
{
    SinterTensor in, out;
    SinterStatus status = sinter_dlpack_import(session, 0, NULL, input, &in, err);
    if (!status)
        status = sinter_dlpack_import(session, 1, NULL, output, &out, err);
    return status ? status : sinter_run(session, &in, 1, &out, 1, err);
}

/* A thread of the server: a session of its own, then whatever the queue holds. With as many
 * sessions as processors, one thread each is the fastest. */
static void *work(void *arg)
{
    Worker *w = arg;
    Server *s = w->server;
    SinterSession *session = NULL;
    const SinterSessionOptions options = {.device = "cpu", .threads = 1};
    if (sinter_session_create(s->model, &options, &session, &w->err))
        return NULL;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        Request *r = s->next < s->num ? &s->request[s->next++] : NULL;
        pthread_mutex_unlock(&s->lock);
        if (!r)
            break;
        r->started_us = now_us();
        if (answer(session, r->input, r->output, &w->err))
            break;
        r->ended_us = now_us();
    }
    sinter_session_destroy(session);
    return NULL;
}

static size_t tensor_bytes(const DLManagedTensorVersioned *t)
{
    size_t bytes = t->dl_tensor.dtype.bits / 8;
    for (int i = 0; i < t->dl_tensor.ndim; i++)
        bytes *= (size_t)t->dl_tensor.shape[i];
    return bytes;
}

/* A tensor for the model's input or output of so many rows. */
static SinterStatus make_tensor(SinterSession *session, const SinterModel *model, int is_output,
                                int64_t rows, DLManagedTensorVersioned **ret, SinterError *err)
{
    SinterTensor like;
    SinterStatus status = sinter_port_shape(model, is_output, 0, &rows, &like, err);
    return status ? status : sinter_dlpack_create(session, &like, ret, err);
}

/* Requests of 1 to MAX_ROWS rows of values between 0 and 1. */
static SinterStatus make_requests(SinterSession *session, const Server *s, SinterError *err)
{
    SinterStatus status = SINTER_OK;
    unsigned seed = 1;
    for (int i = 0; i < s->num && !status; i++) {
        Request *r = &s->request[i];
        int64_t rows = 1 + i * 7 % MAX_ROWS;
        status = make_tensor(session, s->model, 0, rows, &r->input, err);
        if (!status)
            status = make_tensor(session, s->model, 1, rows, &r->output, err);
        if (status)
            break;
        float *value = r->input->dl_tensor.data;
        for (size_t k = 0; k < tensor_bytes(r->input) / sizeof *value; k++) {
            seed = seed * 1664525u + 1013904223u;
            value[k] = (float)(seed >> 8) / (float)(1 << 24);
        }
    }
    return status;
}

/* How many answers have the bits that `session` alone gives; -1 after an error. */
static int count_same(SinterSession *session, const Server *s, SinterError *err)
{
    int same = 0;
    for (int i = 0; i < s->num; i++) {
        const Request *r = &s->request[i];
        DLManagedTensorVersioned *again;
        if (make_tensor(session, s->model, 1, r->input->dl_tensor.shape[0], &again, err))
            return -1;
        memset(again->dl_tensor.data, 0, tensor_bytes(again));
        bool failed = answer(session, r->input, again, err) != SINTER_OK;
        same += !failed &&
                !memcmp(again->dl_tensor.data, r->output->dl_tensor.data, tensor_bytes(again));
        again->deleter(again);
        if (failed)
            return -1;
    }
    return same;
}

static SinterStatus serve(Server *s, int threads, SinterError *err)
{
    Worker worker[MAX_THREADS];
    SinterStatus status = SINTER_OK;
    int started = 0;
    for (; started < threads; started++) {
        worker[started] = (Worker){.server = s};
        if (pthread_create(&worker[started].thread, NULL, work, &worker[started]))
            break;
    }
    if (!started) {
        status = err->status = SINTER_ERROR_MEMORY;
        snprintf(err->text, sizeof err->text, "no thread can be made");
    }
    for (int i = 0; i < started; i++) {
        pthread_join(worker[i].thread, NULL);
        if (worker[i].err.status) {
            *err = worker[i].err;
            status = err->status;
        }
    }
    return status;
}

static SinterStatus check_model(const SinterModel *model, SinterError *err)
{
    if (sinter_num_inputs(model) == 1 && sinter_num_outputs(model) == 1 &&
        sinter_num_symbols(model) == 1 && sinter_input(model, 0).dtype == SINTER_F32)
        return SINTER_OK;
    snprintf(err->text, sizeof err->text,
             "this example serves models of one f32 input, one output and one dim");
    return SINTER_ERROR_UNSUPPORTED;
}

static int run(const char *path, int threads, int num, Request *request, SinterError *err)
{
    Server server = {.num = num, .request = request};
    SinterSession *alone = NULL;
    const SinterSessionOptions on_cpu = {.device = "cpu"};
    int same = -1;
    pthread_mutex_init(&server.lock, NULL);
    if (!sinter_open(path, &server.model, err) && !check_model(server.model, err) &&
        !sinter_session_create(server.model, &on_cpu, &alone, err) &&
        !make_requests(alone, &server, err)) {
        double start = now_us(), sum = 0;
        if (!serve(&server, threads, err)) {
            double all = now_us() - start;
            for (int i = 0; i < num; i++)
                sum += request[i].ended_us - request[i].started_us;
            same = count_same(alone, &server, err);
            printf("%d sessions answered %d requests of 1 to %d rows, %d as one session does, in "
                   "%.1f ms, each in %.0f us\n",
                   threads, num, MAX_ROWS, same, all / 1e3, sum / num);
        }
    }
    sinter_session_destroy(alone);
    sinter_close(server.model);
    pthread_mutex_destroy(&server.lock);
    return same;
}

int main(int argc, char **argv)
{
    SinterError err = {0};
    int threads = argc > 2 ? atoi(argv[2]) : 4, num = argc > 3 ? atoi(argv[3]) : 256;
    if (argc < 2 || argc > 4 || threads < 1 || threads > MAX_THREADS || num < 1 || num > 1000000) {
        fprintf(stderr, "usage: %s MODEL [THREADS] [REQUESTS]\n", argv[0]);
        return 2;
    }
    Request *request = calloc((size_t)num, sizeof *request);
    int same = request ? run(argv[1], threads, num, request, &err) : -1;
    if (same < 0)
        fprintf(stderr, "%s: %s\n", argv[0], request ? err.text : "no memory");
    for (int i = 0; request && i < num; i++) {
        if (request[i].input)
            request[i].input->deleter(request[i].input);
        if (request[i].output)
            request[i].output->deleter(request[i].output);
    }
    free(request);
    return same == num ? 0 : 1;
}
