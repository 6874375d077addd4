/* doctor, targets: what this machine and this version offer. */
#include "base/team.h"
#include "codegen/cuda/target.h"
#include "driver/stub.h"
#include "io/cache.h"
#include "kernels/cpu/cpu.h"
#include "tools/words/cli.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* "model name" of /proc/cpuinfo, where there is one. */
static void print_processor(void)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (colon && !strncmp(line, "model name", 10)) {
            printf("  processor      %s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static void print_threads(void)
{
    printf("  processors     %ld online\n", sysconf(_SC_NPROCESSORS_ONLN));
    printf(
        "  threads        %d of %d allowed here (SINTER_THREADS, OMP_NUM_THREADS or --threads set "
        "them)\n",
        team_threads(), processors_allowed());
}

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path; at && *at;) {
        const char *end = strchr(at, ':');
        int len = end ? (int)(end - at) : (int)strlen(at);
        snprintf(file, sizeof file, "%.*s/%s", len, at, program);
        if (access(file, X_OK) == 0)
            return true;
        at = end ? end + 1 : NULL;
    }
    return false;
}

static bool print_temporary(void)
{
    const char *tmp = getenv("TMPDIR");
    const char *folder = tmp && *tmp ? tmp : "/tmp";
    bool ok = access(folder, W_OK | X_OK) == 0;
    printf("  temporary      %s%s\n", folder,
           ok ? "" : " cannot be written: set TMPDIR, or 'sinter run' cannot compile a text");
    return ok;
}

/* 12080 is 12.8. */
static void print_driver(void)
{
    int (*driver_version)(int *) = NULL;
    int version = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) {
        puts("  GPU driver     not found: compiled files run on the CPU here");
        return;
    }
    void *symbol = dlsym(cuda, "cuDriverGetVersion");
    memcpy(&driver_version, &symbol, sizeof symbol);
    if (symbol && driver_version(&version) == 0)
        printf("  GPU driver     libcuda.so.1, for CUDA %d.%d\n", version / 1000,
               version % 1000 / 10);
    else
        puts("  GPU driver     libcuda.so.1 does not tell its version");
    dlclose(cuda);
}

static void print_gpu(Arena *arena)
{
    char reason[512];
    const char *path = NULL, *why = NULL, *version = nvrtc_find(arena, &path, &why);
    bool missing = false;
    print_driver();
    if (version)
        printf("  NVRTC          %s, %s\n", version, path);
    else
        printf("  NVRTC          none, so --target takes no GPU: %s\n", why);
    Cache *cache = cache_open(NULL, false, &missing, reason, sizeof reason);
    printf("  kernel cache   %s\n", cache     ? cache_folder(cache)
                                    : missing ? "nothing kept yet"
                                              : reason);
    cache_close(cache);
}

int cmd_doctor(Cli *cli)
{
    struct utsname name;
    printf("sinter %s, stub of %zu bytes\n", SINTER_VERSION, sinter_stub_size);
    if (uname(&name) == 0)
        printf("  system         %s %s %s\n", name.sysname, name.release, name.machine);
    print_processor();
    printf("  instructions   %s\n", cpu_isa_name(cpu_isa()));
    print_threads();
    printf("  memory         %.1f GB\n",
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1e9);
    bool ok = print_temporary();
    printf("  dot            %s\n", on_path("dot") ? "found: 'show --emit=svg' uses its layout"
                                                   : "not found: 'show --emit=svg' has its own");
    print_gpu(cli->arena);
    return ok ? EXIT_OK : EXIT_INPUT;
}

int cmd_targets(Cli *cli)
{
    const char *path, *why, *version = nvrtc_find(cli->arena, &path, &why);
    printf("cpu       instruction sets, chosen when the file runs:");
    for (CpuIsa isa = CPU_PORTABLE; isa < NUM_CPU_ISAS; isa++)
        printf(" %s", cpu_isa_name(isa));
    printf("\n          this machine runs %s\n", cpu_isa_name(cpu_isa()));
    for (int i = 0; i < NUM_CODE_CLASSES; i++)
        printf("%-8s  %s\n", code_classes[i].name, code_classes[i].describe);
    for (int i = 0; i < NUM_CUDA_ARCHS; i++)
        if (!code_class_find(cuda_archs[i].name))
            printf("%-8s  %s, with a binary for %s\n", cuda_archs[i].name, cuda_archs[i].gpu,
                   cuda_archs[i].describe);
    if (version)
        printf("          NVRTC %s compiles for GPUs here; no GPU is needed\n", version);
    else
        printf("          no GPU target here: %s\n", why);
    return EXIT_OK;
}
