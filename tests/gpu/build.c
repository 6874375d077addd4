/* Models compiled for two devices; see build.h. */
#include "tests/gpu/build.h"
#include "frontend/frontend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool complain(Built *b, const char *what)
{
    printf("# %s\n", what);
    if (b->diag.num_errors)
        diag_print(&b->diag, stdout, false);
    return false;
}

static Module *read_module(Built *b, const char *path)
{
    size_t len = strlen(path);
    if (len < 3 || strcmp(path + len - 3, ".ir") != 0)
        return frontend_compile(b->arena, &b->diag, path, NULL);
    IoError err;
    uint64_t size;
    char *text = file_read(path, LIMIT_SOURCE_BYTES, &size, &err);
    if (!text) {
        printf("# %s\n", err.text);
        return NULL;
    }
    const char *copy = arena_strdup(b->arena, text);
    free(text);
    return module_parse(b->arena, &b->diag, diag_add_source(&b->diag, path, copy, size));
}

static const char *arch_wanted(void)
{
    const char *arch = getenv("GPU_ARCH");
    return arch ? arch : "sm_90a";
}

static bool compile_code(Built *b)
{
    const char *arch = arch_wanted();
    const CudaCompileOptions options = {.num_archs = 1, .arch = &arch, .threads = 1};
    return cuda_compile(&b->diag, b->arena, &b->cuda, &options) ||
           complain(b, "the kernels cannot be compiled");
}

static bool open_file(Built *b, const char *path)
{
    SinterError err;
    SinterStatus status = sinter_open(path, &b->file, &err);
    unlink(path); /* the mapping stays */
    if (status)
        return complain(b, err.text);
    b->on_cpu = model_target(b->file, "cpu");
    b->on_gpu = model_target(b->file, b->cuda.gpu->name);
    return true;
}

static void for_racecheck(Built *b)
{
    CudaSource *source = ARENA_NEW_ARRAY(b->arena, CudaSource, (size_t)b->cuda.num_sources);
    for (int i = 0; i < b->cuda.num_sources; i++) {
        source[i] = b->cuda.source[i];
        source[i].text = arena_printf(b->arena, "#define SINTER_RACECHECK\n%s", source[i].text);
    }
    b->cuda.source = source;
}

bool built_make(Built *b, const BuildOptions *options)
{
    const PassOptions how = {.opt_level = options->level, .base_dir = options->dir};
    const char *arch = arch_wanted();
    const CudaPlanOptions plan = {.gpu = cuda_class_of(arch),
                                  .family = options->family,
                                  .wish = options->wish,
                                  .decode = options->decode,
                                  .layout = options->layout,
                                  .invariant = options->invariant};
    PassContext context;
    WriteOptions write = {.stub = "", .report = "none\n"};
    const WriteTarget target[] = {{.target = &b->cpu}, {&b->cuda.target, &b->cuda.code}};
    *b = (Built){.arena = arena_create()};
    diag_init(&b->diag, b->arena);
    const char *out =
        arena_printf(b->arena, "%s/file%d.%d", options->dir, options->level, getpid());
    b->m = read_module(b, options->path);
    if (!b->m)
        return complain(b, "the text is refused");
    pass_context_init(&context, b->arena, &how);
    if (!passes_run(b->m, &context, NULL) || b->diag.num_errors)
        return complain(b, "a pass fails");
    if (!codegen_plan(b->m, b->arena, &b->cpu) ||
        !cuda_plan(b->m, b->arena, &b->cpu, &plan, &b->cuda))
        return complain(b, "there is no plan");
    if (options->racecheck)
        for_racecheck(b);
    if (options->code && !compile_code(b))
        return false;
    if (!codegen_write(b->m, options->code ? 2 : 1, target, out, &write) || b->diag.num_errors)
        return complain(b, "the file cannot be written");
    return open_file(b, out);
}

void built_free(Built *b)
{
    sinter_close(b->file);
    if (b->m)
        weights_close(b->m->weights);
    arena_destroy(b->arena);
    *b = (Built){0};
}
