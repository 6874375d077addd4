/* codegen/cuda/layout: how each weight lies in the file, where there is a choice: the layout with
 * which all of its launches under all buckets take the least time together. */
#include "codegen/cuda/family.h"

typedef struct LayoutTime { /* of all launches of a weight */
    double us, predicted;
    bool measured, runs;
} LayoutTime;

typedef struct Layouts {
    Arena *arena;
    const CudaPlanOptions *options;
    const Plan *plan;
    const CudaRole *roles;
    const PlanLayout *layout; /* [buckets][tensors] */
} Layouts;

/* The launch is a product with the weight, or the row kernel before one. */
static bool is_about(const Layouts *s, int launch, int weight)
{
    int product = s->roles[launch].product;
    const PlanLaunch *l = &s->plan->launch[product >= 0 ? product : launch];
    return l->family == LAUNCH_GEMM && l->w == weight;
}

static void add_launch(const Layouts *s, int launch, int bucket, bool visit, LayoutTime *ret)
{
    const char *problem = NULL;
    CudaChoice choice = {0};
    Sb rejected;
    sb_init(&rejected, s->arena);
    CudaPlanOptions options = *s->options;
    if (!visit)
        options.visit = NULL;
    const CudaRole *role = &s->roles[launch];
    CudaKernel k = {.gpu = options.gpu,
                    .plan = s->plan,
                    .launch = &s->plan->launch[launch],
                    .layout = s->layout + bucket * s->plan->num_tensors,
                    .size = plan_bucket(s->plan, bucket),
                    .varies = plan_launch_varies(s->plan, &s->plan->launch[launch]),
                    .span = role->span,
                    .span_operand = role->span_operand,
                    .rejected = &rejected};
    bool wanted = cuda_choose(&k, role, s->arena, &options, &choice, &problem);
    ret->runs = ret->runs && !problem;
    if (!wanted || problem)
        return;
    ret->us += choice.us;
    ret->predicted += choice.predicted;
    if (k.launch->family == LAUNCH_GEMM)
        ret->measured = ret->measured && choice.source != TIMING_MODEL;
}

static LayoutTime time_of(const Layouts *s, int weight, bool visit)
{
    LayoutTime ret = {.measured = true, .runs = true};
    for (int i = 0; i < s->plan->num_launches; i++)
        for (int bucket = 0; bucket < s->plan->num_buckets && is_about(s, i, weight); bucket++)
            add_launch(s, i, bucket, visit, &ret);
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
static CudaLayout choose(const Layouts *s, PlanTensor *weight, int index, unsigned possible)
{
    LayoutTime least = {.runs = false};
    int best = CUDA_RECORDS;
    for (int i = 0; i < NUM_CUDA_PACKED; i++) {
        if (!(possible >> i & 1))
            continue;
        weight->pack_spec.layout = (uint8_t)i;
        LayoutTime time = time_of(s, index, false);
        bool asked = s->options->family && cuda_family[*s->options->family]->layouts >> i & 1;
        if (s->options->family ? asked && time.runs : is_faster(&time, &least)) {
            best = i;
            least = time;
        }
    }
    return (CudaLayout)best;
}

void cuda_choose_layouts(Arena *arena, const CudaPlanOptions *options, const Plan *plan,
                         PlanTensor *tensor, const CudaRole *roles, const PlanLayout *layout)
{
    Layouts s = {arena, options, plan, roles, layout};
    for (int i = 0; i < plan->num_tensors; i++) {
        unsigned possible = 0;
        for (int l = 0; tensor[i].packed && l < NUM_CUDA_PACKED; l++)
            possible |= (unsigned)is_read(options->gpu, &tensor[i].pack_spec, (CudaLayout)l) << l;
        if (!(possible & (possible - 1)))
            continue; /* no choice */
        CudaLayout best = choose(&s, &tensor[i], i, possible);
        for (int l = 0; options->visit && l < NUM_CUDA_PACKED; l++) {
            tensor[i].pack_spec.layout = (uint8_t)l; /* the best one's are visited later */
            if (l != (int)best && possible >> l & 1)
                time_of(&s, i, true);
        }
        tensor[i].pack_spec.layout = (uint8_t)best;
    }
}
