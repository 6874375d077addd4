/* How many processors the process may use. A quota is time a period, shared by all threads: more
 * threads than it pays for would stop together until the next period. */
#include "base/team.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

static int affinity(void)
{
    cpu_set_t set;
    int num = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return num < 1 ? 1 : num;
}

/* The first line of a file, without its end; false: there is none. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, size, f);
    if (f)
        fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

static int whole_processors(double quota, double period, int most)
{
    if (!(quota > 0) || !(period > 0) || quota / period >= most)
        return most;
    int num = (int)(quota / period);
    return num < 1 ? 1 : num;
}

/* Version 2: "100000 100000" or "max 100000". */
static int quota_unified(const char *folder, int most)
{
    char path[PATH_BYTES], line[128], *end;
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path ||
        !read_line(path, line, sizeof line))
        return most;
    double quota = strtod(line, &end);
    return end == line ? most : whole_processors(quota, strtod(end, NULL), most);
}

/* Version 1: a file each; -1 is no quota. */
static int quota_legacy(const char *folder, int most)
{
    static const char *const name[] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    double value[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_BYTES], line[128];
        if (snprintf(path, sizeof path, "%s/%s", folder, name[i]) >= (int)sizeof path ||
            !read_line(path, line, sizeof line))
            return most;
        value[i] = strtod(line, NULL);
    }
    return whole_processors(value[0], value[1], most);
}

typedef int QuotaFn(const char *folder, int most);

/* The smallest quota of a group and those around it. Inside of a container the group's path may lie
 * outside of what is mounted; the mount itself is then the group. */
static int quota_upwards(const char *mount, char *group, QuotaFn *quota, int most)
{
    char folder[PATH_BYTES];
    for (;;) {
        if (snprintf(folder, sizeof folder, "%s%s", mount, group) < (int)sizeof folder)
            most = quota(folder, most);
        char *slash = strrchr(group, '/');
        if (!slash)
            return most;
        *slash = 0;
    }
}

/* Is `name` among words parted by commas? */
static bool has_word(const char *words, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = words; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && !strncmp(at, name, len))
            return true;
    return false;
}

int processors_below(const char *root, int most)
{
    char path[PATH_BYTES], mount[PATH_BYTES], line[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path)
        return most;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { /* "4:cpu,cpuacct:/group" or "0::/group" */
        line[strcspn(line, "\n")] = 0;
        char *words = strchr(line, ':'), *group = words ? strchr(words + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        bool unified = !words[1];
        if (!unified && !has_word(words + 1, "cpu"))
            continue;
        if (snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, unified ? "" : "/cpu") <
            (int)sizeof mount)
            most = quota_upwards(mount, group, unified ? quota_unified : quota_legacy, most);
    }
    if (f)
        fclose(f);
    return most;
}

int processors_allowed(void)
{
    return processors_below("", affinity());
}
