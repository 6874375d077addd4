/* See cache.h. An entry's file is "<32 hex digits>.entry": EntryHead, then the bytes. */
#include "io/cache.h"
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC         "sinter\n1"
#define SUFFIX        ".entry"
#define TEMPORARY     ".tmp-"
#define MAX_ENTRY     (UINT64_C(256) << 20)
#define STALE_SECONDS 3600 /* a temporary file this old has no writer any more */

struct Cache {
    char *folder;
    int fd;
    atomic_uint hits, misses, corrupt, unwritten;
};
static atomic_uint temporaries; /* made by this process: their names differ */

typedef struct EntryHead {
    char magic[8];
    uint64_t key[2];
    uint64_t size;
    uint64_t hash[2]; /* of about and the bytes */
    char about[64];
} EntryHead;
_Static_assert(sizeof(EntryHead) == 112, "the file's layout has no padding");

static void hash_parts(int num, const CachePart *part, uint64_t ret[2])
{
    XXH3_state_t on_stack,
        *state = &on_stack; /* a hash has no way to say that memory is exhausted */
    XXH3_INITSTATE(state);
    XXH3_128bits_reset(state);
    for (int i = 0; i < num; i++) {
        uint64_t size = part[i].size;
        XXH3_128bits_update(state, &size, sizeof size);
        XXH3_128bits_update(state, part[i].data, part[i].size);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    ret[0] = hash.low64;
    ret[1] = hash.high64;
}

CacheKey cache_key(int num, const CachePart *part)
{
    CacheKey key;
    hash_parts(num, part, key.half);
    return key;
}

static void hash_entry(const EntryHead *head, const void *data, uint64_t ret[2])
{
    const CachePart part[] = {{head->about, sizeof head->about}, {data, head->size}};
    hash_parts(2, part, ret);
}

/* The folder ----------------------------------------------------------------------------------- */

/* Absolute path of the folder, malloc'ed. A program with raised rights gets none from the
 * environment, so that nothing is left in another user's home. */
static char *choose_folder(const char *given, char *ret_why, size_t why_size)
{
    const char *ours = given ? given : secure_getenv("SINTER_CACHE_DIR");
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    if (ours && *ours) {
        if (*ours == '/' || given)
            return strdup(ours);
        snprintf(ret_why, why_size, "SINTER_CACHE_DIR is '%.200s', not an absolute path", ours);
        return NULL;
    }
    if (xdg && *xdg == '/')
        return path_join(xdg, "sinter");
    if (home && *home == '/')
        return path_join(home, ".cache/sinter");
    snprintf(ret_why, why_size, "none of SINTER_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return NULL;
}

static void make_folder(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(path, 0700); /* one that exists is fine; other failures show at the last */
        *at = '/';
    }
    mkdir(path, 0700);
}

static bool is_ours(int fd, const char **ret_why)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        *ret_why = strerror(errno);
    else if (st.st_uid != geteuid())
        *ret_why = "it belongs to another user";
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        *ret_why = "other users may write to it";
    else
        return true;
    return false;
}

static int open_folder(char *path, bool make, const char **ret_why)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT && make) {
        make_folder(path);
        fd = open(path, flags);
    }
    if (fd >= 0 && is_ours(fd, ret_why))
        return fd;
    if (fd >= 0)
        close(fd);
    else
        *ret_why = errno == ELOOP || errno == ENOTDIR ? "it is a symbolic link, or no folder"
                                                      : strerror(errno);
    return -1;
}

Cache *cache_open(const char *folder, bool make, bool *ret_missing, char *ret_why, size_t why_size)
{
    const char *why = "";
    char *path = choose_folder(folder, ret_why, why_size);
    Cache *c = path ? calloc(1, sizeof *c) : NULL;
    if (ret_missing)
        *ret_missing = false;
    if (!c) {
        free(path);
        return NULL;
    }
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') /* "link/" would follow the link */
        path[--len] = 0;
    errno = 0;
    c->folder = path;
    c->fd = open_folder(path, make, &why);
    if (c->fd >= 0)
        return c;
    if (ret_missing)
        *ret_missing = errno == ENOENT;
    snprintf(ret_why, why_size, "'%.200s' cannot be the cache: %s", path, why);
    cache_close(c);
    return NULL;
}

void cache_close(Cache *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c->folder);
    free(c);
}

const char *cache_folder(const Cache *c)
{
    return c->folder;
}

CacheCounts cache_counts(const Cache *c)
{
    return (CacheCounts){c->hits, c->misses, c->corrupt, c->unwritten};
}

/* Entries -------------------------------------------------------------------------------------- */

static void entry_name(CacheKey key, char ret[48])
{
    snprintf(ret, 48, "%016llx%016llx" SUFFIX, (unsigned long long)key.half[1],
             (unsigned long long)key.half[0]);
}

static bool read_all(int fd, void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        ssize_t num = read(fd, at, size);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return false;
        at += num;
        size -= (size_t)num;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t num = write(fd, at, size);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return false;
        at += num;
        size -= (size_t)num;
    }
    return true;
}

/* The head of an open entry; false when the file is not one that we wrote whole. */
static bool read_head(int fd, EntryHead *ret)
{
    struct stat st;
    const char *why;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && is_ours(fd, &why) &&
           read_all(fd, ret, sizeof *ret) && memcmp(ret->magic, MAGIC, sizeof ret->magic) == 0 &&
           ret->size <= MAX_ENTRY && (uint64_t)st.st_size == sizeof *ret + ret->size;
}

static void *read_entry(int fd, CacheKey key, size_t *ret_size)
{
    EntryHead head;
    uint64_t hash[2];
    if (!read_head(fd, &head) || memcmp(head.key, key.half, sizeof head.key) != 0)
        return NULL;
    void *data = malloc(head.size ? head.size : 1);
    if (data && read_all(fd, data, head.size)) {
        hash_entry(&head, data, hash);
        if (memcmp(hash, head.hash, sizeof hash) == 0) {
            *ret_size = head.size;
            return data;
        }
    }
    free(data);
    return NULL;
}

void *cache_get(Cache *c, CacheKey key, size_t *ret_size)
{
    char name[48];
    entry_name(key, name);
    int fd = openat(c->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool there = fd >= 0 || errno == ELOOP;
    void *data = fd >= 0 ? read_entry(fd, key, ret_size) : NULL;
    if (data) {
        futimens(fd, NULL); /* last use, for prune; not being allowed to is no matter */
        c->hits++;
    } else {
        c->misses++;
        if (there) {
            unlinkat(c->fd, name, 0);
            c->corrupt++;
        }
    }
    if (fd >= 0)
        close(fd);
    return data;
}

bool cache_put(Cache *c, CacheKey key, const char *about, const void *data, size_t size)
{
    char name[48], temporary[64];
    EntryHead head = {.magic = MAGIC, .key = {key.half[0], key.half[1]}, .size = size};
    bool ok = size <= MAX_ENTRY;
    snprintf(head.about, sizeof head.about, "%s", about);
    hash_entry(&head, data, head.hash);
    entry_name(key, name);
    snprintf(temporary, sizeof temporary, TEMPORARY "%ld-%u-%.16s", (long)getpid(), temporaries++,
             name);
    int fd =
        ok ? openat(c->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
           : -1;
    ok =
        fd >= 0 && write_all(fd, &head, sizeof head) && write_all(fd, data, size) && fsync(fd) == 0;
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && renameat(c->fd, temporary, c->fd, name) == 0;
    if (!ok && fd >= 0)
        unlinkat(c->fd, temporary, 0);
    c->unwritten += !ok;
    return ok;
}

/* All entries ---------------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *suffix)
{
    size_t len = strlen(name), num = strlen(suffix);
    return len > num && strcmp(name + len - num, suffix) == 0;
}

static bool look_at(const Cache *c, const char *name, CacheEntry *ret)
{
    struct stat st;
    EntryHead head;
    size_t len = strlen(name);
    if (len >= sizeof ret->name || fstatat(c->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    *ret = (CacheEntry){.bytes = (uint64_t)st.st_size, .used = (int64_t)st.st_mtime};
    memcpy(ret->name, name, len + 1);
    int fd = openat(c->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && read_head(fd, &head)) {
        for (size_t i = 0; i < sizeof head.about - 1 && head.about[i]; i++)
            ret->about[i] = head.about[i] >= ' ' && head.about[i] <= '~' ? head.about[i] : '?';
    }
    if (fd >= 0)
        close(fd);
    return true;
}

static int by_use(const void *a, const void *b)
{
    const CacheEntry *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used)
                              : strcmp(x->name, y->name);
}

static DIR *open_listing(const Cache *c)
{
    int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !dir)
        close(fd);
    return dir;
}

bool cache_list(const Cache *c, int *ret_num, CacheEntry **ret_entry)
{
    DIR *dir = open_listing(c);
    CacheEntry *entry = NULL;
    int num = 0, room = 0;
    bool ok = dir != NULL;
    for (struct dirent *d; ok && (d = readdir(dir)) != NULL;) {
        if (!ends_in(d->d_name, SUFFIX) || d->d_name[0] == '.')
            continue;
        if (num == room) {
            room = room ? 2 * room : 64;
            CacheEntry *grown = realloc(entry, (size_t)room * sizeof *entry);
            ok = grown != NULL;
            entry = grown ? grown : entry;
        }
        if (ok && look_at(c, d->d_name, &entry[num]))
            num++;
    }
    if (dir)
        closedir(dir);
    if (!ok) {
        free(entry);
        return false;
    }
    if (num)
        qsort(entry, (size_t)num, sizeof *entry, by_use);
    *ret_num = num;
    *ret_entry = entry;
    return true;
}

static void remove_stale(Cache *c)
{
    DIR *dir = open_listing(c);
    time_t now = time(NULL);
    struct stat st;
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;)
        if (strncmp(d->d_name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
            fstatat(c->fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            now - st.st_mtime > STALE_SECONDS)
            unlinkat(c->fd, d->d_name, 0);
    if (dir)
        closedir(dir);
}

bool cache_prune(Cache *c, uint64_t max_bytes, int *ret_removed, uint64_t *ret_left)
{
    CacheEntry *entry;
    int num;
    remove_stale(c);
    if (!cache_list(c, &num, &entry))
        return false;
    *ret_removed = 0;
    *ret_left = 0;
    for (int i = 0; i < num; i++)
        *ret_left += entry[i].bytes;
    for (int i = 0; i<num && * ret_left> max_bytes; i++) {
        if (unlinkat(c->fd, entry[i].name, 0) != 0)
            continue;
        *ret_left -= entry[i].bytes;
        ++*ret_removed;
    }
    free(entry);
    return true;
}
