/* A libnvrtc.so for tests: an image is made of its source's and options' hash, after a pause of no
 * fixed length. SINTER_FAKE_NVRTC: the function that fails ("nvrtcGetCUBIN"), "noise": the image
 * of one kernel differs each time, "places": images depend on where heap, code and stack lie and on
 * the folder, "spill": ptxas tells of spilled registers, "drop": its code lacks a product, or
 * "crash": the process ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FINE, FAILED = 6 }; /* NVRTC_ERROR_COMPILATION */
#define LARGEST 5000

typedef struct Program {
    uint64_t hash;
    char *text;
} Program;

#pragma GCC visibility push(default)
int nvrtcVersion(int *major, int *minor);
int nvrtcCreateProgram(Program **program, const char *text, const char *name, int num_headers,
                       const char *const *headers, const char *const *names);
int nvrtcDestroyProgram(Program **program);
int nvrtcCompileProgram(Program *program, int num_options, const char *const *options);
int nvrtcGetProgramLogSize(Program *program, size_t *size);
int nvrtcGetProgramLog(Program *program, char *log);
int nvrtcGetCUBINSize(Program *program, size_t *size);
int nvrtcGetCUBIN(Program *program, char *cubin);
int nvrtcGetPTXSize(Program *program, size_t *size);
int nvrtcGetPTX(Program *program, char *ptx);
#pragma GCC visibility pop

static int outcome(const char *function)
{
    const char *fails = getenv("SINTER_FAKE_NVRTC");
    return fails && !strcmp(fails, function) ? FAILED : FINE;
}

static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return FINE;
}

int nvrtcCreateProgram(Program **program, const char *text, const char *name, int num_headers,
                       const char *const *headers, const char *const *names)
{
    *program = calloc(1, sizeof **program);
    (*program)->text = strdup(text);
    (*program)->hash = hash(hash(UINT64_C(0xcbf29ce484222325), text), name);
    for (int i = 0; i < num_headers; i++)
        (*program)->hash = hash(hash((*program)->hash, headers[i]), names[i]);
    return outcome("nvrtcCreateProgram");
}

int nvrtcDestroyProgram(Program **program)
{
    free((*program)->text);
    free(*program);
    *program = NULL;
    return FINE;
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t places(const Program *program)
{
    char folder[4096];
    uintptr_t at[] = {(uintptr_t)program, (uintptr_t)nvrtcVersion, (uintptr_t)folder};
    uint64_t ret = hash(0, getcwd(folder, sizeof folder) ? folder : "");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        ret = (ret ^ at[i]) * UINT64_C(0x100000001b3);
    return ret;
}

int nvrtcCompileProgram(Program *program, int num_options, const char *const *options)
{
    if (outcome("crash"))
        abort();
    if (outcome("places"))
        program->hash ^= places(program);
    for (int i = 0; i < num_options; i++)
        program->hash = hash(program->hash, options[i]);
    usleep((useconds_t)((program->hash ^ clock_ns()) % 700));
    if (outcome("noise") && strstr(program->text, "tile_rows<"))
        program->hash ^= clock_ns();
    return outcome("nvrtcCompileProgram");
}

static const char *told(void)
{
    if (outcome("serialised"))
        return "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions "
               "are "
               "serialized due to non wgmma instructions reading accumulator registers of  a wgmma "
               "between start and end of the pipeline stage in the function 'k'\n";
    return outcome("spill") ? "0 bytes stack frame, 7 bytes spill stores, 7 bytes spill loads\n"
                              "8 bytes stack frame, 24 bytes spill stores, 16 bytes spill loads\n"
                              " bytes spill stores"
                            : "as told";
}

int nvrtcGetProgramLogSize(Program *program, size_t *size)
{
    (void)program;
    *size = strlen(told()) + 1;
    return FINE;
}

int nvrtcGetProgramLog(Program *program, char *log)
{
    (void)program;
    memcpy(log, told(), strlen(told()) + 1);
    return FINE;
}

int nvrtcGetCUBINSize(Program *program, size_t *size)
{
    *size = 64 + program->hash % (LARGEST - 64);
    return outcome("nvrtcGetCUBINSize");
}

static void fill(const Program *program, char *image, size_t size)
{
    uint64_t state = program->hash;
    for (size_t i = 0; i < size; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        image[i] = (char)('a' + (state >> 33) % 26);
    }
}

int nvrtcGetCUBIN(Program *program, char *cubin)
{
    size_t size;
    if (outcome("nvrtcGetCUBIN"))
        return FAILED; /* and nothing is written */
    nvrtcGetCUBINSize(program, &size);
    fill(program, cubin, size);
    memcpy(cubin, "\177ELF", 4);
    if (outcome("drop")) /* what stands in a product's place */
        memcpy(cubin + 16, "\xF0\x79\xFF\x3F\0\0\0\0\xFF\0\0\x0C\0\xE2\x0F", 16);
    return FINE;
}

int nvrtcGetPTXSize(Program *program, size_t *size)
{
    *size = 64 + program->hash % (LARGEST - 64);
    return outcome("nvrtcGetPTXSize");
}

int nvrtcGetPTX(Program *program, char *ptx)
{
    size_t size;
    if (outcome("nvrtcGetPTX"))
        return FAILED;
    nvrtcGetPTXSize(program, &size);
    fill(program, ptx, size - 1);
    ptx[size - 1] = 0;
    return FINE;
}
