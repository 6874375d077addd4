/* The kernels of a plan, compiled; see work.h. What ptxas makes of a source is known once it is
 * compiled: where it spills registers, lets products wait for each other or leaves some out, the
 * product's next best candidate is taken, and the plan made anew. */
#include "driver/work.h"
#include <string.h>

#define MOST_PLANS 8 /* each leaves out what the one before had to spill */

static bool is_avoided(const WorkGpu *gpu, const CudaChoice *choice)
{
    for (int i = 0; i < gpu->avoided.num; i++)
        if (!strcmp(gpu->avoided.elem[i].problem, choice->problem) &&
            !strcmp(gpu->avoided.elem[i].candidate, choice->candidate))
            return true;
    return false;
}

/* The products that run a kernel are to take others; false: there is nothing new to leave out. */
static bool avoid_kernel(Work *w, WorkGpu *gpu, int kernel, const CudaImageSaid *said)
{
    const CudaTarget *t = &gpu->cuda;
    int num = t->target.plan->num_launches * t->target.plan->num_buckets, before = gpu->avoided.num;
    for (int i = 0; i < num; i++) {
        const CudaChoice *choice = &t->choice[i];
        if (t->code.launch[i].kernel != kernel || !choice->problem || is_avoided(gpu, choice))
            continue;
        CudaAvoided one = {choice->problem, choice->candidate,
                           said->dropped ? "ptxas leaves out some of its products"
                           : said->spilled
                               ? arena_printf(w->arena, "it spills %ld bytes", said->spilled)
                               : "ptxas serialises its products"};
        ARRAY_PUSH(w->arena, &gpu->avoided, one);
    }
    return gpu->avoided.num > before;
}

static bool is_refused(const CudaImageAbout *about)
{
    return about->said.spilled || about->said.serialised || about->said.dropped;
}

static bool avoid_more(Work *w, WorkGpu *gpu)
{
    bool ret = false;
    for (int i = 0; i < gpu->cuda.code.num_images; i++)
        if (is_refused(&gpu->cuda.about[i]))
            ret = avoid_kernel(w, gpu, gpu->cuda.code.image[i].kernel, &gpu->cuda.about[i].said) ||
                  ret;
    return ret;
}

static bool any_refused(const CudaTarget *t)
{
    for (int i = 0; i < t->code.num_images; i++)
        if (is_refused(&t->about[i]))
            return true;
    return false;
}

static bool any_broken(const CudaTarget *t)
{
    for (int i = 0; i < t->code.num_images; i++)
        if (t->about[i].said.dropped)
            return true;
    return false;
}

/* Kernels of several architectures are left: what one of them spills another may not. */
static bool compile(Work *w, WorkGpu *gpu, CudaCompileOptions *options)
{
    bool refuses = options->fail_on_spill, several = gpu->num_archs > 1;
    options->fail_on_spill = refuses && several;
    options->keep_broken = !several;
    bool ok = cuda_compile(&w->diag, w->arena, &gpu->cuda, options);
    for (int i = 1; ok && i < MOST_PLANS && !several && avoid_more(w, gpu); i++)
        ok = work_plan_gpu(w, gpu) && cuda_compile(&w->diag, w->arena, &gpu->cuda, options);
    options->fail_on_spill = refuses;
    options->keep_broken = false;
    if (!ok || several || !(refuses ? any_refused(&gpu->cuda) : any_broken(&gpu->cuda)))
        return ok;
    return cuda_compile(&w->diag, w->arena, &gpu->cuda, options); /* which says what is left */
}

static bool compile_gpu(Work *w, WorkGpu *gpu)
{
    int threads;
    if (!work_threads(w, &threads))
        return false;
    CudaCompileOptions options = {.num_archs = gpu->num_archs,
                                  .arch = gpu->arch,
                                  .threads = threads,
                                  .fail_on_spill = cli_has(w->cli, OPTION_FAIL_ON_SPILL),
                                  .no_cache = cli_has(w->cli, OPTION_NO_CACHE)};
    double start = clock_us();
    bool ok = compile(w, gpu, &options);
    if (ok && cli_has(w->cli, OPTION_TIME_PASSES))
        fprintf(stderr, "%s: %d kernels, %d of %d images from the cache: %.3f s\n", gpu->gpu->name,
                gpu->cuda.num_sources, gpu->cuda.num_cached, gpu->cuda.code.num_images,
                1e-6 * (clock_us() - start));
    return ok;
}

bool work_compile_kernels(Work *w)
{
    bool ok = true;
    for (int i = 0; i < w->num_gpus && ok; i++)
        ok = compile_gpu(w, &w->gpu[i]);
    return ok;
}
