/* codegen/cuda/layout: how each weight lies in the file, where there is a choice: the layout with
 * which all of its launches under all buckets take the least time together. */
#include "codegen/cuda/family.h"

typedef struct LayoutTime { /* of all launches of a weight */
    double us, predicted;
    bool measured, runs;
} LayoutTime;

/* The launch is a product with the weight, or the row kernel before one. */
static bool is_about(const CudaDraft *d, int launch, int weight)
{
    const CudaChain *chain = d->role[launch].chain;
    const PlanLaunch *l = &d->plan->launch[chain ? chain->product : launch];
    return l->family == LAUNCH_GEMM && l->w == weight;
}

static void add_launch(const CudaDraft *d, int launch, int bucket, LayoutTime *ret)
{
    const char *problem = NULL;
    CudaChoice choice = {0};
    CudaKernel k;
    bool runs;
    CudaSchedule schedule = cuda_schedule(d, launch, bucket, &runs);
    if (!runs)
        return;
    cuda_choose(d, launch, bucket, schedule, &k, &choice, &problem);
    ret->runs = ret->runs && !problem;
    if (problem)
        return;
    ret->us += choice.us;
    ret->predicted += choice.predicted;
    if (k.launch->family == LAUNCH_GEMM)
        ret->measured = ret->measured && choice.source != TIMING_MODEL;
}

static LayoutTime time_of(const CudaDraft *all, int weight, bool visit)
{
    CudaPlanOptions options = *all->options;
    CudaDraft d = *all;
    d.options = &options;
    if (!visit)
        options.visit = NULL;
    LayoutTime ret = {.measured = true, .runs = true};
    for (int i = 0; i < d.plan->num_launches; i++)
        for (int bucket = 0; bucket < d.plan->num_buckets && is_about(&d, i, weight); bucket++)
            add_launch(&d, i, bucket, &ret);
    return ret;
}

/* A measured time and a prediction do not compare. */
static bool is_faster(const LayoutTime *a, const LayoutTime *b)
{
    if (!a->runs || !b->runs)
        return a->runs;
    return a->measured && b->measured ? a->us < b->us : a->predicted < b->predicted;
}

/* A family of the class multiplies the weight as it lies. */
static bool is_read(const CodeClass *gpu, const CpuPackSpec *weight, CudaLayout layout)
{
    CudaPackSpec spec = plan_cuda_spec(weight);
    for (int i = 0; i < NUM_CUDA_FAMILIES; i++) {
        const CudaFamilyRow *family = cuda_family[i];
        if ((family->layouts >> layout & 1) && cuda_family_serves((CudaFamily)i, gpu) &&
            (!family->takes || family->takes(&spec)))
            return true;
    }
    return false;
}

/* A family that is asked for decides, where it runs; else time does. */
static CudaLayout choose(const CudaDraft *d, PlanTensor *weight, int index, unsigned possible)
{
    LayoutTime least = {.runs = false};
    int best = CUDA_RECORDS;
    for (int i = 0; i < NUM_CUDA_PACKED; i++) {
        if (!(possible >> i & 1))
            continue;
        weight->pack_spec.layout = (uint8_t)i;
        LayoutTime time = time_of(d, index, false);
        bool asked = d->options->family && cuda_family[*d->options->family]->layouts >> i & 1;
        if (d->options->family ? asked && time.runs : is_faster(&time, &least)) {
            best = i;
            least = time;
        }
    }
    return (CudaLayout)best;
}

void cuda_choose_layouts(const CudaDraft *d, PlanTensor *tensor)
{
    for (int i = 0; i < d->plan->num_tensors; i++) {
        unsigned possible = 0;
        for (int l = 0; tensor[i].packed && l < NUM_CUDA_PACKED; l++)
            possible |= (unsigned)is_read(d->options->gpu, &tensor[i].pack_spec, (CudaLayout)l)
                        << l;
        if (!(possible & (possible - 1)))
            continue; /* no choice */
        CudaLayout best = choose(d, &tensor[i], i, possible);
        for (int l = 0; d->options->visit && l < NUM_CUDA_PACKED; l++) {
            tensor[i].pack_spec.layout = (uint8_t)l; /* the best one's are visited later */
            if (l != (int)best && possible >> l & 1)
                time_of(d, i, true);
        }
        tensor[i].pack_spec.layout = (uint8_t)best;
    }
}
