/* Running mutants in fenced memory; see plans.h. */
#include "plans.h"
#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_BYTES  ((uint64_t)4 << 20) /* of an arena or a port */
#define MAX_WORK   2e6                 /* operations of a run */
#define CANARY     0xa5
#define MAX_FENCED 64

/* Memory that ends where a page that may not be touched begins; canaries lie before it. */
typedef struct Fenced {
    uint8_t *map, *data;
    size_t map_bytes, bytes;
} Fenced;

static Fenced fence(uint64_t bytes, uint64_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = ((size_t)bytes + align - 1) / align * align;
    size_t room = (used + page - 1) / page * page;
    Fenced f = {.map_bytes = room + 2 * page, .bytes = (size_t)bytes};
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.map == MAP_FAILED || mprotect(f.map, page, PROT_NONE) ||
        mprotect(f.map + page + room, page, PROT_NONE))
        abort();
    f.data = f.map + page + room - used;
    memset(f.map + page, CANARY, room);
    return f;
}

/* Nothing beside the data was written. */
static void unfence(Fenced f, const char *what)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (const uint8_t *at = f.map + page; at < f.map + f.map_bytes - page; at++)
        if (*at != CANARY && (at < f.data || at >= f.data + f.bytes)) {
            fprintf(stderr, "%s: a byte %td from its begin was written\n", what, at - f.data);
            abort();
        }
    munmap(f.map, f.map_bytes);
}

static void fill(Fenced f, Choices *c, bool is_float)
{
    static const float odd[] = {0, 1, -1, 127, 1e30f, -1e-30f, 3.5f, -448};
    Choices cheap = {.state = choose(c, UINT64_MAX)};
    if (is_float) {
        for (size_t i = 0; i + 4 <= f.bytes; i += 4) {
            float x = choose(&cheap, 8) ? (float)choose(&cheap, 2001) / 100 - 10
                                        : odd[choose(&cheap, COUNT_OF(odd))];
            memcpy(f.data + i, &x, 4);
        }
        return;
    }
    for (size_t i = 0; i < f.bytes; i++)
        f.data[i] = (uint8_t)choose(&cheap, 256);
}

/* Size ----------------------------------------------------------------------------------------- */

static double program_work(const PlanProgram *p)
{
    return (double)p->num_steps + 1;
}

static double launch_work(const Plan *p, const PlanLaunch *l, const PlanLayout *layout,
                          const int64_t *size)
{
    if (l->family == LAUNCH_GEMM) {
        const PlanTensor *w = &p->tensor[l->w];
        double n = w->packed ? (double)w->pack_spec.n : (double)layout[l->w].rows;
        double k = w->packed ? (double)w->pack_spec.k : (double)layout[l->w].cols;
        double m = (double)layout[l->a].rows, work = n * k * (m + 1);
        work += m * k * program_work(&l->prologue);
        for (int i = 0; i < l->num_segments; i++)
            work += m * n * program_work(&l->segment[i].epilogue);
        return work;
    }
    if (l->family == LAUNCH_TILE) {
        const PlanLayout *at = &layout[l->operand[0].tensor];
        return (double)at->rows * (double)at->cols * program_work(&l->program);
    }
    double num = 1;
    if (l->family == LAUNCH_ROUTE) {
        num += (double)l->groups;
        for (int i = 0; i < l->num_operands; i++)
            num += (double)layout[l->operand[i].tensor].bytes *
                   (plan_route_chooses(l->route) ? (double)layout[l->operand[1].tensor].cols : 1);
    }
    for (int i = 0; i < l->move_rank; i++)
        num *= (double)plan_dim_eval(l->move_dim[i], size);
    return num;
}

static bool is_small(const Plan *p, int bucket, const int64_t *size, PlanLayout *layout)
{
    IoError err;
    if (p->arena_bytes[bucket] > MAX_BYTES || p->num_inputs + p->num_outputs > MAX_FENCED ||
        !plan_bind(p, bucket, size, layout, &err))
        return false;
    for (int i = 0; i < p->num_tensors; i++)
        if (layout[i].bytes > MAX_BYTES)
            return false;
    double work = 0;
    for (int i = 0; i < p->num_launches; i++)
        work += launch_work(p, &p->launch[i], layout, size);
    return work < MAX_WORK;
}

/* Runs ----------------------------------------------------------------------------------------- */

static void run_once(const Plan *p, void *state, int bucket, const int64_t *size, Choices *c)
{
    Fenced port[MAX_FENCED];
    void *address[MAX_FENCED];
    int num = p->num_inputs + p->num_outputs;
    for (int i = 0; i < num; i++) {
        const PlanPort *of = i < p->num_inputs ? &p->input[i] : &p->output[i - p->num_inputs];
        const PlanTensor *t = &p->tensor[of->tensor];
        PlanLayout layout;
        if (!plan_tensor_layout(t, size, &layout))
            abort(); /* it was bound */
        port[i] = fence(layout.bytes, (uint64_t)format_info[t->fmt].bits / 8);
        fill(port[i], c, t->fmt == FMT_F32 && choose(c, 4));
        address[i] = port[i].data;
    }
    Trace trace = {0};
    SinterError err;
    const DeviceRun run = {.bucket = bucket,
                           .size = size,
                           .input = address,
                           .output = address + p->num_inputs,
                           .trace = &trace};
    device_cpu.run(state, &run, &err);
    for (int i = 0; i < num; i++)
        unfence(port[i], i < p->num_inputs ? "an input" : "an output");
}

static Verdict run_sizes(const Plan *p, void *state, PlanLayout *layout, Choices *c)
{
    int64_t size[16];
    Verdict ret = MUTANT_TOO_LARGE;
    for (int b = 0; b < p->num_buckets; b++)
        for (int part = 0; part < 2; part++) {
            for (int s = 0; s < p->num_syms; s++) {
                int64_t most = plan_bucket(p, b)[s];
                size[s] = part ? (int64_t)choose(c, (uint64_t)most + 1) : most;
            }
            if (!is_small(p, b, size, layout))
                continue;
            run_once(p, state, b, size, c);
            ret = MUTANT_RAN;
        }
    return ret;
}

static Verdict run_plan(const Plan *p, Fenced weights, Choices *c)
{
    Verdict ret = MUTANT_TOO_LARGE;
    PlanLayout *layout = calloc((size_t)p->num_tensors + 1, sizeof *layout);
    for (int isa = CPU_PORTABLE; layout && isa <= CPU_AVX512BF16; isa++) {
        cpu_isa_limit((CpuIsa)isa);
        if ((int)cpu_isa() != isa) /* this processor lacks it */
            continue;
        const DeviceOpen open = {.plan = p,
                                 .weights = weights.data,

                                 .threads = choose(c, 16) ? 1 : 2};
        void *state;
        SinterError err;
        if (device_cpu.create(&open, &state, &err))
            break;
        Verdict here = run_sizes(p, state, layout, c);
        ret = here == MUTANT_RAN ? here : ret;
        device_cpu.destroy(state);
    }
    free(layout);
    return ret;
}

Verdict mutant_run(const Plan *mutant, const uint8_t *weights, uint64_t weights_bytes, Choices *c)
{
    Bytes b;
    IoError err;
    if (!plan_encode(mutant, &b))
        return MUTANT_REFUSED;
    Fenced bytes = fence(b.size, 1);
    memcpy(bytes.data, b.data, b.size);
    Plan *p = plan_decode(bytes.data, b.size, weights_bytes, &err);
    unfence(bytes, "the plan");
    bytes_free(&b);
    if (!p || strcmp(p->target, "cpu")) {
        plan_free(p);
        return MUTANT_REFUSED;
    }
    Fenced w = fence(weights_bytes, 64);
    if (choose(c, 4))
        memcpy(w.data, weights, (size_t)weights_bytes);
    else
        fill(w, c, choose(c, 2)); /* forged codes, scales and zero points */
    Verdict ret = run_plan(p, w, c);
    unfence(w, "the weights");
    plan_free(p);
    return ret;
}

bool agreement_holds(const Plan *a, const Plan *b)
{
    IoError err;
    if (!plans_agree(a, b, &err))
        return true;
    for (int bucket = 0; bucket < a->num_buckets; bucket++)
        for (int i = 0; i < a->num_inputs + a->num_outputs; i++) {
            bool in = i < a->num_inputs;
            int at = in ? i : i - a->num_inputs;
            const PlanTensor *p = &a->tensor[in ? a->input[at].tensor : a->output[at].tensor];
            const PlanTensor *q = &b->tensor[in ? b->input[at].tensor : b->output[at].tensor];
            PlanLayout x, y;
            if (!plan_tensor_layout(p, plan_bucket(a, bucket), &x) ||
                !plan_tensor_layout(q, plan_bucket(b, bucket), &y) || x.bytes != y.bytes ||
                p->fmt != q->fmt)
                return false;
        }
    return true;
}
