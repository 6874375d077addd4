/* replay CORPUS [TARGET]: every committed input of every fuzz target, or of one, without a fuzzer:
 * what was once found stays mended in each build and under each sanitiser. TAP, one line a target;
 * an input that ends the process is named. */
#include "base/base.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Target(const uint8_t *data, size_t size);
#define TARGET(name) Target fuzz_##name;
TARGETS
#undef TARGET
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* libFuzzer's own */

static const struct {
    const char *name;
    Target *run;
} target[] = {
#define TARGET(name) {#name, fuzz_##name},
    TARGETS
#undef TARGET
};

static char at_work[4096];

static void say_which(int signal_number)
{
    if (write(STDOUT_FILENO, at_work, strlen(at_work)) < 0)
        _exit(3);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
    (void)data, (void)most;
    BUG("an input of %zu bytes is to be changed, but inputs are only read here", size);
}

/* In memory of just its size, so that a sanitiser sees a read beyond it. */
static bool replay(const char *path, Target *run)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        printf("# cannot read %s\n", path);
        if (file)
            fclose(file);
        return false;
    }
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size ? size : 1);
    bool ok = data && fread(data, 1, size, file) == size;
    fclose(file);
    snprintf(at_work, sizeof at_work, "# %s\n", path);
    if (ok)
        run(data, size);
    free(data);
    return ok;
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* How many inputs a target has; -1: one cannot be read. */
static int replay_all(const char *corpus, const char *name, Target *run)
{
    struct dirent **entry;
    char folder[2048], path[4000];
    snprintf(folder, sizeof folder, "%s/%s", corpus, name);
    int num = scandir(folder, &entry, is_input, alphasort), failed = num < 0;
    for (int i = 0; i < num; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        failed += !replay(path, run);
        free(entry[i]);
    }
    if (num >= 0)
        free(entry);
    return failed ? -1 : num;
}

int main(int argc, char **argv)
{
    static const int fault[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP};
    const char *only = argc == 3 ? argv[2] : NULL;
    bool ok = argc == 2 || only;
    int tests = 0;
    for (size_t i = 0; i < COUNT_OF(fault); i++)
        signal(fault[i], say_which);
    for (size_t i = 0; ok && i < COUNT_OF(target); i++) {
        if (only && strcmp(only, target[i].name))
            continue;
        int num = replay_all(argv[1], target[i].name, target[i].run);
        printf("%sok %d - %s: %d inputs\n", num > 0 ? "" : "not ", ++tests, target[i].name, num);
        fflush(stdout);
        ok = num > 0;
    }
    printf("1..%d\n", tests);
    return !ok || !tests;
}
