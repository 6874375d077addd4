/* cache: the GPU kernels that earlier compilations kept. */
#include "driver/work.h"
#include "io/cache.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int list(Work *w, const Cache *c)
{
    CacheEntry *entry;
    int num;
    uint64_t bytes = 0;
    if (!cache_list(c, &num, &entry)) {
        diag_error(&w->diag, (Span){0}, E_CACHE, "'%s' cannot be read", cache_folder(c));
        return EXIT_INPUT;
    }
    for (int i = 0; i < num; i++) {
        bool whole = entry[i].about[0] != 0;
        printf("%10" PRIu64 "  %.32s  %s\n", entry[i].bytes, entry[i].name,
               whole ? entry[i].about : "not whole: will be compiled anew");
        bytes += entry[i].bytes;
    }
    printf("%d entries, %" PRIu64 " bytes in %s\n", num, bytes, cache_folder(c));
    free(entry);
    return EXIT_OK;
}

static int prune(Work *w, Cache *c, uint64_t max_bytes)
{
    int removed;
    uint64_t left;
    if (!cache_prune(c, max_bytes, &removed, &left)) {
        diag_error(&w->diag, (Span){0}, E_CACHE, "'%s' cannot be read", cache_folder(c));
        return EXIT_INPUT;
    }
    printf("%d entries removed, %" PRIu64 " bytes left in %s\n", removed, left, cache_folder(c));
    if (left > max_bytes)
        diag_error(&w->diag, (Span){0}, E_CACHE, "some entries of '%s' cannot be removed",
                   cache_folder(c));
    return EXIT_OK;
}

int cmd_cache(Cli *cli)
{
    Work w;
    char why[512];
    bool missing;
    uint64_t max_bytes = 0;
    const char *what = cli->operand.elem[0];
    bool is_prune = !strcmp(what, "prune");
    if (!is_prune && strcmp(what, "ls") != 0)
        return cli_usage(cli, "sinter cache takes 'ls' or 'prune', not '%s'", what);
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (!work_bytes(&w, OPTION_MAX_BYTES, 0, &max_bytes))
        return work_end(&w, EXIT_USAGE);
    Cache *c = cache_open(NULL, false, &missing, why, sizeof why);
    int exit_code = EXIT_OK;
    if (c)
        exit_code = is_prune ? prune(&w, c, max_bytes) : list(&w, c);
    else if (missing)
        puts("nothing has been kept yet");
    else
        diag_error(&w.diag, (Span){0}, E_CACHE, "%s", why);
    cache_close(c);
    return work_end(&w, exit_code);
}
