/* The cache of compiled kernels: what is put comes back, whatever is damaged or untrusted does not,
 * and writers do not disturb each other. */
#include "io/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char top[64], folder[96];
static char why[512];

static int make(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/sinter-cache-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(folder, sizeof folder, "%s/cache", top);
    return 0;
}

static void empty(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;)
        if (d->d_name[0] != '.' || strncmp(d->d_name, ".tmp-", 5) == 0)
            unlinkat(dirfd(dir), d->d_name, 0);
    if (dir)
        closedir(dir);
}

static int clear(void **state)
{
    (void)state;
    chmod(folder, 0700);
    empty(folder);
    if (unlink(folder) != 0)
        rmdir(folder);
    empty(top);
    return rmdir(top);
}

static CacheKey key_of(const char *text)
{
    const CachePart part = {text, strlen(text)};
    return cache_key(1, &part);
}

static Cache *open_it(void)
{
    Cache *c = cache_open(folder, true, NULL, why, sizeof why);
    assert_non_null(c);
    return c;
}

static void put(Cache *c, const char *key, const char *text)
{
    assert_true(cache_put(c, key_of(key), key, text, strlen(text)));
}

/* text NULL: there must be none. */
static void expect(Cache *c, const char *key, const char *text)
{
    size_t size = 0;
    char *data = cache_get(c, key_of(key), &size);
    if (!text) {
        assert_null(data);
        return;
    }
    assert_non_null(data);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(data, text, size);
    free(data);
}

static char *only_file(void)
{
    static char path[512];
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    path[0] = 0;
    for (struct dirent *d; (d = readdir(dir)) != NULL;)
        if (strstr(d->d_name, ".entry"))
            snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
    closedir(dir);
    assert_true(path[0]);
    return path;
}

static void test_round_trip(void **state)
{
    (void)state;
    Cache *c = open_it();
    expect(c, "a", NULL);
    put(c, "a", "first");
    put(c, "b", "");
    put(c, "a", "second");
    expect(c, "a", "second");
    expect(c, "b", "");
    CacheCounts counts = cache_counts(c);
    assert_int_equal(counts.hits, 2);
    assert_int_equal(counts.misses, 1);
    assert_int_equal(counts.corrupt, 0);
    struct stat st;
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(only_file(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    cache_close(c);
    c = open_it(); /* another run */
    expect(c, "a", "second");
    cache_close(c);
}

static void test_key_separates_parts(void **state)
{
    (void)state;
    const CachePart one[] = {{"ab", 2}, {"c", 1}}, two[] = {{"a", 1}, {"bc", 2}};
    CacheKey x = cache_key(2, one), y = cache_key(2, two);
    assert_memory_not_equal(&x, &y, sizeof x);
}

/* Every bit of an entry matters: whatever one is flipped, the entry is not used and goes away. */
static void test_flipped_bits(void **state)
{
    (void)state;
    Cache *c = open_it();
    struct stat st;
    put(c, "k", "some machine code");
    assert_int_equal(stat(only_file(), &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        char byte;
        put(c, "k", "some machine code");
        int fd = open(only_file(), O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte = (char)(byte ^ 1 << at % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        expect(c, "k", NULL);
        assert_int_equal(cache_counts(c).corrupt, (unsigned)at + 1);
        expect(c, "k", NULL);
        assert_int_equal(cache_counts(c).corrupt, (unsigned)at + 1); /* it was deleted */
    }
    cache_close(c);
}

static void test_cut_entries(void **state)
{
    (void)state;
    Cache *c = open_it();
    struct stat st;
    put(c, "k", "some machine code");
    assert_int_equal(stat(only_file(), &st), 0);
    for (off_t size = 0; size < st.st_size; size++) {
        put(c, "k", "some machine code");
        assert_int_equal(truncate(only_file(), size), 0);
        expect(c, "k", NULL);
    }
    cache_close(c);
}

/* The entry of one key under the name of another. */
static void test_renamed_entry(void **state)
{
    (void)state;
    char from[512], to[512];
    Cache *c = open_it();
    put(c, "a", "of a");
    snprintf(to, sizeof to, "%s", only_file());
    assert_int_equal(unlink(to), 0);
    put(c, "b", "of b");
    snprintf(from, sizeof from, "%s", only_file());
    assert_int_equal(rename(from, to), 0);
    expect(c, "a", NULL);
    assert_int_equal(cache_counts(c).corrupt, 1);
    cache_close(c);
}

static void test_entry_that_is_a_link(void **state)
{
    (void)state;
    char real[160];
    Cache *c = open_it();
    put(c, "a", "of a");
    snprintf(real, sizeof real, "%s/moved", top);
    assert_int_equal(rename(only_file(), real), 0);
    put(c, "a", "of a");
    char *path = only_file();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(real, path), 0);
    expect(c, "a", NULL);
    assert_int_equal(access(real, F_OK), 0); /* the link went, not what it names */
    assert_int_equal(access(path, F_OK), -1);
    cache_close(c);
}

static void test_entry_that_others_may_write(void **state)
{
    (void)state;
    Cache *c = open_it();
    put(c, "a", "of a");
    assert_int_equal(chmod(only_file(), 0666), 0);
    expect(c, "a", NULL);
    cache_close(c);
}

static void refused(const char *reason)
{
    bool missing = true;
    Cache *c = cache_open(folder, true, &missing, why, sizeof why);
    assert_null(c);
    assert_false(missing);
    if (!strstr(why, reason))
        fail_msg("'%s' lacks '%s'", why, reason);
}

static void test_folder_modes(void **state)
{
    (void)state;
    static const unsigned bad[] = {0777, 0720, 0702, 0770};
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(chmod(folder, bad[i]), 0);
        refused("other users may write to it");
    }
    assert_int_equal(chmod(folder, 0755), 0);
    cache_close(open_it());
}

static void test_folder_of_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give a folder away */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    refused("it belongs to another user");
}

static void test_folder_that_is_a_link(void **state)
{
    (void)state;
    char real[160], slashed[128];
    snprintf(real, sizeof real, "%s/real", top);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, folder), 0);
    refused("symbolic link");
    snprintf(slashed, sizeof slashed, "%s//", folder);
    assert_null(cache_open(slashed, true, NULL, why, sizeof why));
    assert_int_equal(rmdir(real), 0);
}

static void test_folder_that_is_a_file(void **state)
{
    (void)state;
    close(open(folder, O_CREAT | O_WRONLY, 0600));
    refused("no folder");
}

static void test_folder_that_is_missing(void **state)
{
    (void)state;
    bool missing = false;
    assert_null(cache_open(folder, false, &missing, why, sizeof why));
    assert_true(missing);
    assert_int_equal(access(folder, F_OK), -1);
}

/* In a child without rights, because root may write anywhere. */
static void test_folder_that_cannot_be_written(void **state)
{
    (void)state;
    Cache *c = open_it();
    put(c, "a", "of a");
    cache_close(c);
    assert_int_equal(chmod(top, 0755), 0);
    uid_t user = geteuid() ? geteuid() : 12345;
    if (geteuid() == 0) {
        assert_int_equal(chown(only_file(), user, (gid_t)-1), 0);
        assert_int_equal(chown(folder, user, (gid_t)-1), 0);
    }
    assert_int_equal(chmod(folder, 0500), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() != user && setuid(user) != 0)
            _exit(9);
        c = cache_open(folder, true, NULL, why, sizeof why);
        size_t size;
        if (!c || !cache_get(c, key_of("a"), &size))
            _exit(1);
        if (cache_put(c, key_of("b"), "b", "of b", 4) || cache_counts(c).unwritten != 1)
            _exit(2);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_environment(void **state)
{
    (void)state;
    char expected[160];
    char *old_home = getenv("HOME"), *kept = old_home ? strdup(old_home) : NULL;
    unsetenv("SINTER_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_null(cache_open(NULL, true, NULL, why, sizeof why));
    assert_non_null(strstr(why, "none of"));
    setenv("SINTER_CACHE_DIR", "relative", 1);
    assert_null(cache_open(NULL, true, NULL, why, sizeof why));
    assert_non_null(strstr(why, "absolute"));
    unsetenv("SINTER_CACHE_DIR");
    setenv("HOME", top, 1);
    setenv("XDG_CACHE_HOME", "relative", 1); /* as the XDG specification says: ignored */
    Cache *c = cache_open(NULL, true, NULL, why, sizeof why);
    assert_non_null(c);
    snprintf(expected, sizeof expected, "%s/.cache/sinter", top);
    assert_string_equal(cache_folder(c), expected);
    cache_close(c);
    assert_int_equal(rmdir(expected), 0);
    snprintf(expected, sizeof expected, "%s/.cache", top);
    assert_int_equal(rmdir(expected), 0);
    setenv("SINTER_CACHE_DIR", folder, 1);
    c = cache_open(NULL, true, NULL, why, sizeof why);
    assert_non_null(c);
    assert_string_equal(cache_folder(c), folder);
    cache_close(c);
    unsetenv("SINTER_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    if (kept)
        setenv("HOME", kept, 1);
    free(kept);
}

enum { WRITES = 200, KEYS = 4 };

/* Puts and gets the same keys as everyone else; counts what is wrong. */
static void *write_many(void *user)
{
    int *wrong = user;
    char text[4096], reason[512];
    Cache *c = cache_open(folder, true, NULL, reason, sizeof reason);
    for (int i = 0; c && i < WRITES; i++) {
        char key[16];
        size_t size;
        snprintf(key, sizeof key, "k%d", i % KEYS);
        memset(text, 'a' + i % KEYS, sizeof text);
        *wrong += !cache_put(c, key_of(key), key, text, sizeof text);
        char *data = cache_get(c, key_of(key), &size);
        *wrong += !data || size != sizeof text || memcmp(data, text, size) != 0;
        free(data);
    }
    *wrong += !c || cache_counts(c).corrupt;
    cache_close(c);
    return NULL;
}

static void test_writers(void **state)
{
    (void)state;
    pthread_t thread[2];
    int wrong[3] = {0}, status;
    pid_t child = fork();
    if (child == 0) {
        write_many(&wrong[2]);
        _exit(wrong[2] != 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_many, &wrong[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(wrong[0], 0);
    assert_int_equal(wrong[1], 0);
}

/* A writer killed at any moment leaves whole entries or none. */
static void test_killed_writers(void **state)
{
    (void)state;
    Cache *c = open_it();
    for (int i = 0; i < 20; i++) {
        int wrong = 0;
        pid_t child = fork();
        if (child == 0) {
            write_many(&wrong);
            _exit(0);
        }
        nanosleep(&(struct timespec){0, 300000L * (i % 7)}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        for (int k = 0; k < KEYS; k++) {
            char key[16];
            size_t size;
            snprintf(key, sizeof key, "k%d", k);
            free(cache_get(c, key_of(key), &size));
        }
        assert_int_equal(cache_counts(c).corrupt, 0);
    }
    cache_close(c);
}

static void test_list_and_prune(void **state)
{
    (void)state;
    CacheEntry *entry;
    int num, removed;
    uint64_t left;
    char stale[160], fresh[160];
    Cache *c = open_it();
    put(c, "old", "0123456789");
    const struct timespec past[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, only_file(), past, 0), 0);
    put(c, "new", "0123456789");
    snprintf(stale, sizeof stale, "%s/.tmp-1", folder);
    snprintf(fresh, sizeof fresh, "%s/.tmp-2", folder);
    close(open(stale, O_CREAT | O_WRONLY, 0600));
    close(open(fresh, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(utimensat(AT_FDCWD, stale, past, 0), 0);
    assert_true(cache_list(c, &num, &entry));
    assert_int_equal(num, 2);
    assert_string_equal(entry[0].about, "old");
    assert_string_equal(entry[1].about, "new");
    assert_int_equal(entry[0].used, 1000);
    uint64_t bytes = entry[0].bytes;
    free(entry);
    assert_true(cache_prune(c, bytes, &removed, &left));
    assert_int_equal(removed, 1);
    assert_int_equal(left, bytes);
    assert_int_equal(access(stale, F_OK), -1);
    assert_int_equal(access(fresh, F_OK), 0);
    expect(c, "old", NULL);
    expect(c, "new", "0123456789");
    assert_true(cache_prune(c, 0, &removed, &left));
    assert_int_equal(removed, 1);
    assert_int_equal(left, 0);
    cache_close(c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_round_trip),
        CASE(test_key_separates_parts),
        CASE(test_flipped_bits),
        CASE(test_cut_entries),
        CASE(test_renamed_entry),
        CASE(test_entry_that_is_a_link),
        CASE(test_entry_that_others_may_write),
        CASE(test_folder_modes),
        CASE(test_folder_of_another_user),
        CASE(test_folder_that_is_a_link),
        CASE(test_folder_that_is_a_file),
        CASE(test_folder_that_is_missing),
        CASE(test_folder_that_cannot_be_written),
        CASE(test_environment),
        CASE(test_writers),
        CASE(test_killed_writers),
        CASE(test_list_and_prune),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
