/* mutate_modules FIRST NUM [FILE.ir]...: mutants of modules, of random ones where no file is given,
 * at -O0 against -O1. Mutant i is made from i alone, so that `mutate_modules i 1` repeats it; one
 * that fails is printed. One in four is also run as a file. TAP. */
#include "io/io.h"
#include "modules.h"
#include "tests/passes/models.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PER_MODEL 16 /* mutants of one random model */

static const char *mutate_text(Arena *arena, const char *text, size_t size, uint64_t number)
{
    Diag diag;
    Sb sb;
    Choices c = {.state = number * UINT64_C(0x9e3779b97f4a7c15)};
    diag_init(&diag, arena);
    Module *m = module_parse(arena, &diag, diag_add_source(&diag, "model", text, size));
    if (!m)
        return NULL;
    for (uint64_t rounds = 1 + choose(&c, 3); rounds; rounds--)
        module_mutate(m, &c);
    sb_init(&sb, arena);
    module_print(&sb, m, false);
    return sb.text;
}

static void print_lines(const char *text)
{
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        printf("# %.*s\n", (int)(end - at), at);
    }
}

static const char *base_text(Arena *arena, int num_files, char **file, uint64_t number)
{
    uint64_t size;
    IoError err;
    if (!num_files)
        return model_text(arena, number / PER_MODEL);
    char *text = file_read(file[number % (uint64_t)num_files], LIMIT_SOURCE_BYTES, &size, &err);
    const char *ret = text ? arena_strndup(arena, text, (size_t)size) : NULL;
    free(text);
    return ret;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    uint64_t first = strtoull(argv[1], NULL, 10), num = strtoull(argv[2], NULL, 10), failed = 0;
    uint64_t verdicts[NUM_MODULE_VERDICTS] = {0};
    const char *root = getenv("TMPDIR");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/sinter-mutants-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(folder))
        return 2;
    for (uint64_t i = first; i < first + num; i++) {
        Arena *arena = arena_new();
        ModuleVerdict verdict = MODULE_REFUSED;
        const char *base = base_text(arena, argc - 3, argv + 3, i);
        const char *text = base ? mutate_text(arena, base, strlen(base), i) : NULL;
        const char *why =
            text ? module_check(arena, text, strlen(text), i % 4 ? NULL : folder, &verdict)
                 : "the model does not parse";
        verdicts[verdict]++;
        failed += why != NULL;
        if (why) {
            printf("# mutant %llu: %s\n", (unsigned long long)i, why);
            print_lines(text ? text : "");
        }
        arena_destroy(arena);
    }
    rmdir(folder);
    printf("# %llu refused, %llu large, %llu without a plan, %llu compiled\n",
           (unsigned long long)verdicts[MODULE_REFUSED], (unsigned long long)verdicts[MODULE_LARGE],
           (unsigned long long)verdicts[MODULE_PLANNED],
           (unsigned long long)verdicts[MODULE_COMPILED]);
    bool some = verdicts[MODULE_COMPILED] * 4 >= num || argc > 3;
    printf("%sok 1 - mutants mean the same at -O0 and -O1\n", failed ? "not " : "");
    printf("%sok 2 - many of them are compiled\n1..2\n", some ? "" : "not ");
    return failed || !some;
}
