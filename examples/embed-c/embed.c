/* Runs a compiled model inside a C program: opens it, asks what it takes and gives, runs one batch.
 *
 *   cc embed.c $(pkg-config --cflags --libs sinter) -o embed
 *   ./embed MODEL [ROWS] */
#include <sinter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_PORTS   8
#define MAX_SYMBOLS 8

static size_t tensor_elements(const SinterTensor *t)
{
    size_t num = 1;
    for (int i = 0; i < t->rank; i++)
        num *= (size_t)t->dim[i];
    return num;
}

/* Gives a tensor memory of its own; inputs that are f32 are filled with ones, others with zeros. */
static int tensor_alloc(SinterTensor *t, int is_input)
{
    size_t num = tensor_elements(t);
    t->data = calloc(num + 1, sizeof(float)); /* the widest element of a port */
    if (t->data && is_input && t->dtype == SINTER_F32)
        for (size_t i = 0; i < num; i++)
            ((float *)t->data)[i] = 1.0f;
    return t->data != NULL;
}

static void tensor_print(const SinterTensor *t)
{
    printf("%s [", t->name);
    for (int i = 0; i < t->rank; i++)
        printf("%s%lld", i ? ", " : "", (long long)t->dim[i]);
    printf("]:");
    for (size_t i = 0; t->dtype == SINTER_F32 && i < tensor_elements(t) && i < 8; i++)
        printf(" %g", (double)((const float *)t->data)[i]);
    printf("\n");
}

/* One batch: shapes of all ports for these sizes, memory, run. */
static SinterStatus run(SinterModel *model, SinterSession *session, const int64_t *size,
                        SinterTensor *in, SinterTensor *out, SinterError *err)
{
    int num_in = sinter_num_inputs(model), num_out = sinter_num_outputs(model);
    for (int i = 0; i < num_in + num_out; i++) {
        int is_output = i >= num_in;
        SinterTensor *t = is_output ? &out[i - num_in] : &in[i];
        SinterStatus status =
            sinter_port_shape(model, is_output, is_output ? i - num_in : i, size, t, err);
        if (status)
            return status;
        if (!tensor_alloc(t, !is_output)) {
            snprintf(err->text, sizeof err->text, "no memory");
            return SINTER_ERROR_MEMORY;
        }
    }
    return sinter_run(session, in, num_in, out, num_out, err);
}

int main(int argc, char **argv)
{
    SinterModel *model = NULL;
    SinterSession *session = NULL;
    SinterTensor in[MAX_PORTS] = {{0}}, out[MAX_PORTS] = {{0}};
    SinterError err = {0};
    int64_t size[MAX_SYMBOLS];
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL [ROWS]\n", argv[0]);
        return 2;
    }
    SinterStatus status = sinter_open(argv[1], &model, &err);
    if (!status)
        status = sinter_session_create(model, NULL, &session, &err);
    if (!status &&
        (sinter_num_inputs(model) > MAX_PORTS || sinter_num_outputs(model) > MAX_PORTS)) {
        status = SINTER_ERROR_UNSUPPORTED;
        snprintf(err.text, sizeof err.text, "this example has room for %d ports", MAX_PORTS);
    }
    if (!status) {
        for (int i = 0; i < sinter_num_symbols(model) && i < MAX_SYMBOLS; i++)
            size[i] = argc > 2 ? atoll(argv[2]) : 1;
        status = run(model, session, size, in, out, &err);
    }
    if (status)
        fprintf(stderr, "%s: %s (%s)\n", argv[0], err.text, sinter_status_name(status));
    for (int i = 0; !status && i < sinter_num_outputs(model); i++)
        tensor_print(&out[i]);
    for (int i = 0; i < MAX_PORTS; i++) {
        free(in[i].data);
        free(out[i].data);
    }
    sinter_session_destroy(session);
    sinter_close(model);
    return status != SINTER_OK;
}
