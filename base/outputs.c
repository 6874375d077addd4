/* The files that this process is going to write, so that no reader takes one of them for an input:
 * it would be lost when the output replaces it. A program names its outputs before it reads
 * anything; a library that names none refuses nothing. */
#include "base/base.h"
#include "base/limits.h"

#include <string.h>
#include <sys/stat.h>

/* A file that exists is its device and inode, so that links are seen through; one that does not is
 * its folder's and its name. */
typedef struct Place {
    dev_t device;
    ino_t inode;
    bool exists;
    char name[256]; /* in the folder, when the file does not exist */
} Place;

static struct {
    const char *option, *path;
    Place place;
} output[LIMIT_OUTPUTS];
static int num_outputs;

static bool place_of_new(const char *path, Place *ret)
{
    char folder[4096];
    struct stat st;
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    if (len >= sizeof folder || strlen(path + len) >= sizeof ret->name)
        return false;
    memcpy(folder, path, len);
    folder[len] = '\0';
    if (stat(len ? folder : ".", &st) != 0)
        return false;
    *ret = (Place){.device = st.st_dev, .inode = st.st_ino};
    memcpy(ret->name, path + len, strlen(path + len) + 1);
    return true;
}

/* False where there is nothing to lose: devices, pipes, folders, names that cannot be written. */
static bool place_of(const char *path, Place *ret)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return place_of_new(path, ret);
    *ret = (Place){.device = st.st_dev, .inode = st.st_ino, .exists = true};
    return S_ISREG(st.st_mode);
}

static bool same_place(const Place *a, const Place *b)
{
    return a->exists == b->exists && a->device == b->device && a->inode == b->inode &&
           !strcmp(a->name, b->name);
}

bool outputs_add(const char *option, const char *path, const char **ret_other)
{
    Place place;
    *ret_other = NULL;
    if (!place_of(path, &place))
        return true;
    for (int i = 0; i < num_outputs; i++) {
        if (!same_place(&output[i].place, &place))
            continue;
        *ret_other = output[i].option;
        return !strcmp(output[i].option, option) && !strcmp(output[i].path, path);
    }
    if (num_outputs == LIMIT_OUTPUTS)
        return false;
    output[num_outputs].option = option;
    output[num_outputs].path = path;
    output[num_outputs++].place = place;
    return true;
}

const char *outputs_find(int fd)
{
    struct stat st;
    if (num_outputs == 0 || fstat(fd, &st) != 0)
        return NULL;
    for (int i = 0; i < num_outputs; i++) {
        const Place *place = &output[i].place;
        if (place->exists && place->device == st.st_dev && place->inode == st.st_ino)
            return output[i].option;
    }
    return NULL;
}
