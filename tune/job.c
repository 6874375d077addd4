/* The items of `sinter tune` on their way to a process of its own: one record each, then images in
 * the order in which they were put there. Both sides are the same program, so records are plain
 * memory. */
#include "tune/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Header {
    int num, ordinal;
    char arch[16];
} Header;

typedef struct Record {
    char problem[LIMIT_TIMING_LINE], candidate[128], entry[64];
    int64_t rows;
    double predicted;
    uint64_t image_at, image_size; /* size 0: there is none yet */
} Record;

static bool put(int fd, const void *data, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t num = pwrite(fd, (const char *)data + done, size - done, at + (off_t)done);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return false;
        done += (size_t)num;
    }
    return true;
}

static bool get(int fd, void *data, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t num = pread(fd, (char *)data + done, size - done, at + (off_t)done);
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return false;
        done += (size_t)num;
    }
    return true;
}

static off_t record_at(int index)
{
    return (off_t)(sizeof(Header) + (size_t)index * sizeof(Record));
}

int tune_job_write(const TuneRun *run)
{
    Header header = {.num = run->num, .ordinal = run->ordinal};
    int fd = memfd_create("sinter-tune", 0); /* inherited */
    bool ok = fd >= 0;
    snprintf(header.arch, sizeof header.arch, "%s", run->arch ? run->arch : "");
    ok = ok && put(fd, &header, sizeof header, 0);
    for (int i = 0; ok && i < run->num; i++) {
        const TuneItem *item = &run->item[i];
        Record r = {.rows = item->rows, .predicted = item->predicted};
        snprintf(r.problem, sizeof r.problem, "%s", item->problem);
        snprintf(r.candidate, sizeof r.candidate, "%s", item->candidate);
        snprintf(r.entry, sizeof r.entry, "%s", item->entry);
        ok = put(fd, &r, sizeof r, record_at(i));
    }
    if (fd >= 0 && !ok)
        close(fd);
    return ok ? fd : -1;
}

bool tune_job_put_image(const TuneRun *run, int job, int item)
{
    struct stat st;
    const TuneItem *from = &run->item[item];
    if (fstat(job, &st) != 0)
        return false;
    const uint64_t place[2] = {(uint64_t)st.st_size, from->image_size};
    return put(job, from->image, from->image_size, st.st_size) &&
           put(job, place, sizeof place, record_at(item) + (off_t)offsetof(Record, image_at));
}

void *tune_job_image(int job, int item)
{
    Record r;
    if (!get(job, &r, sizeof r, record_at(item)) || !r.image_size)
        return NULL;
    char *image = malloc(r.image_size + 1);
    if (image && get(job, image, r.image_size, (off_t)r.image_at)) {
        image[r.image_size] = 0;
        return image;
    }
    free(image);
    return NULL;
}

bool tune_job_read(Arena *arena, int job, TuneRun *ret)
{
    struct stat st;
    if (fstat(job, &st) != 0 || (size_t)st.st_size < sizeof(Header))
        return false;
    const uint8_t *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, job, 0);
    if (data == MAP_FAILED)
        return false;
    const Header *header = (const Header *)(const void *)data;
    *ret = (TuneRun){.arena = arena,
                     .arch = header->arch,
                     .ordinal = header->ordinal,
                     .num = header->num,
                     .item = ARENA_NEW_ARRAY(arena, TuneItem, (size_t)header->num + 1)};
    for (int i = 0; i < header->num; i++) {
        const Record *r = (const Record *)(const void *)(data + record_at(i));
        ret->item[i] = (TuneItem){.problem = r->problem,
                                  .candidate = r->candidate,
                                  .entry = r->entry,
                                  .rows = r->rows,
                                  .predicted = r->predicted,
                                  .note = ""};
    }
    return true;
}
