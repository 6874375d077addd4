/* See draws.h. */
#include "draws.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>
#include <unistd.h>

static char made[4096], name[64];

static void remove_folder(void)
{
    rmdir(made);
}

/* Paths are hashed, and so the name that mkdtemp draws is not used: that of a descriptor is. */
const char *fuzz_folder(void)
{
    const char *root = getenv("TMPDIR");

    if (made[0])
        return name;
    snprintf(made, sizeof made, "%s/fuzz-XXXXXX", root ? root : "/tmp");
    int fd = mkdtemp(made) ? open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        abort();
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    atexit(remove_folder);
    return name;
}

/* In place of libc's: the seed of hashed names (base/hash.c). */
ssize_t getrandom(void *data, size_t size, unsigned flags)
{
    (void)flags;
    memset(data, 0x5a, size);
    return (ssize_t)size;
}
