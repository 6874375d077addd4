/* Ranges for profilers, in the convention of NVIDIA's NVTX: the variable NVTX_INJECTION64_PATH
 * names a library of the profiler's, whose InitializeInjectionNvtx2 asks for tables of function
 * slots and fills those that it wants to hear of (nvtxDetail/nvtxInit.h and nvtxTypes.h of the CUDA
 * toolkit). Without a profiler nothing is loaded and a range costs one comparison. */
#include "runtime/nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3 };             /* NvtxExportTableID */
enum { MODULE_CORE = 1, MODULE_CORE2 = 5, NUM_MODULES = 7 }; /* NvtxCallbackModule */
enum { SLOT_PUSH = 9, SLOT_POP = 11, NUM_SLOTS = 16 };       /* NvtxCallbackIdCore, ..Core2 */

typedef void (*Function)(void);

typedef struct Callbacks {
    size_t size;
    int (*get_module)(int module, Function ***ret_table, unsigned *ret_size);
} Callbacks;
typedef struct Version {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t version);
} Version;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static Function core[NUM_SLOTS], core2[NUM_SLOTS];

/* An array of pointers to the slots, ended by NULL; slot 0 is none. */
static int get_module(int module, Function ***ret_table, unsigned *ret_size)
{
    static Function *core_table[NUM_SLOTS + 1], *core2_table[NUM_SLOTS + 1];
    if (module != MODULE_CORE && module != MODULE_CORE2)
        return 0;
    Function **table = module == MODULE_CORE ? core_table : core2_table;
    for (int i = 1; i < NUM_SLOTS; i++)
        table[i] = module == MODULE_CORE ? &core[i] : &core2[i];
    if (ret_size)
        *ret_size = NUM_SLOTS;
    if (ret_table)
        *ret_table = table;
    return 1;
}

static void set_version(uint32_t version)
{
    (void)version;
}

static const void *get_table(uint32_t id)
{
    static const Callbacks callbacks = {sizeof callbacks, get_module};
    static const Version version = {sizeof version, 3, 0, set_version};
    return id == TABLE_CALLBACKS ? (const void *)&callbacks
           : id == TABLE_VERSION ? (const void *)&version
                                 : NULL;
}

static void attach(void)
{
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!library)
        return;
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    void *symbol = dlsym(library, "InitializeInjectionNvtx2");
    memcpy(&initialize, &symbol, sizeof initialize);
    if (!initialize || !initialize(get_table)) {
        memset(core, 0, sizeof core);
        dlclose(library);
    }
}

bool nvtx_is_heard(void)
{
    pthread_once(&once, attach);
    return core[SLOT_PUSH] != NULL;
}

void nvtx_push(const char *name)
{
    int (*push)(const char *);
    if (!nvtx_is_heard())
        return;
    memcpy(&push, &core[SLOT_PUSH], sizeof push);
    push(name);
}

void nvtx_pop(void)
{
    int (*pop)(void);
    if (!core[SLOT_POP])
        return;
    memcpy(&pop, &core[SLOT_POP], sizeof pop);
    pop();
}
