/* io/cache: results of a slow compiler, kept between runs in one folder by the hash of
 * everything that they depend on.
 *
 * The folder is $SINTER_CACHE_DIR, else $XDG_CACHE_HOME/sinter, else $HOME/.cache/sinter; it is
 * made with mode 0700 and refused when it belongs to someone else, when others may write to it, or
 * when it is a symbolic link, because what lies in it is run. An entry appears at once or not at
 * all (temporary file, fsync, rename); it is checked against the hash of its bytes when it is read,
 * and deleted when they differ. Entries may be got and put from several threads and processes. */
#ifndef SINTER_CACHE_H
#define SINTER_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Cache Cache;
typedef struct CacheKey {
    uint64_t half[2];
} CacheKey;
typedef struct CachePart {
    const void *data;
    size_t size;
} CachePart;
typedef struct CacheCounts {
    unsigned hits, misses, corrupt /* of the misses */, unwritten;
} CacheCounts;

/* Hash of the parts and of where each ends. */
CacheKey cache_key(int num, const CachePart *part);

/* folder NULL: the one of the environment. make: create it when it is missing. NULL with the reason
 * in ret_why; ret_missing (may be NULL): the reason is only that there is none yet. */
Cache *cache_open(const char *folder, bool make, bool *ret_missing, char *ret_why, size_t why_size);
void cache_close(Cache *c); /* accepts NULL */
const char *cache_folder(const Cache *c);
CacheCounts cache_counts(const Cache *c);

/* malloc'ed; NULL when there is none (any more). */
void *cache_get(Cache *c, CacheKey key, size_t *ret_size);
/* False when it could not be written, which harms nobody. about: one line for people. */
bool cache_put(Cache *c, CacheKey key, const char *about, const void *data, size_t size);

typedef struct CacheEntry {
    char name[48], about[64]; /* about: "" when the entry is not whole */
    uint64_t bytes;
    int64_t used; /* seconds since the epoch */
} CacheEntry;
/* Entries by last use, oldest first; malloc'ed. False: out of memory or the folder cannot be read.
 */
bool cache_list(const Cache *c, int *ret_num, CacheEntry **ret_entry);
/* Removes the least recently used until at most max_bytes are left, and temporary files that a
 * killed process left. */
bool cache_prune(Cache *c, uint64_t max_bytes, int *ret_removed, uint64_t *ret_left);

#endif
