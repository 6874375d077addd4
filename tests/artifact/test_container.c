/* The file: deterministic, atomic, and every changed byte, cut or appended, is found out. */
#include "models.h"

#include <cmocka.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char stub[] = "\177ELF a stand-in for the program";
static char dir[] = "/tmp/sinter-container-XXXXXX";
static char path[64], other[64];
static TestModel model;

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/m", dir);
    snprintf(other, sizeof other, "%s/n", dir);
    model_float(&model);
    return model_write(&model, path, stub, sizeof stub) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    unlink(other);
    model_free(&model);
    return rmdir(dir);
}

static char *read_all(const char *name, uint64_t *size)
{
    IoError err;
    char *data = file_read(name, 1 << 20, size, &err);
    assert_non_null(data);
    return data;
}

static void write_all(const char *name, const void *data, size_t size)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
}

static void a_file_opens_and_shows_its_sections(void **state)
{
    (void)state;
    Artifact a;
    IoError err;
    if (!artifact_open(path, false, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(a.start % ARTIFACT_ALIGN, 0);
    assert_int_equal(a.num_sections, 4);
    const Section *w = artifact_find(&a, SECTION_WEIGHTS, NULL);
    assert_non_null(w);
    assert_int_equal(w->offset % ARTIFACT_ALIGN, 0);
    assert_int_equal(w->size, model.weights_bytes);
    assert_memory_equal(artifact_data(&a, w), model.weights, w->size);
    assert_null(artifact_find(&a, SECTION_PLAN, "portable"));
    assert_memory_equal(a.file.data, stub, sizeof stub);
    artifact_close(&a);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0100, 0100);
}

static void same_inputs_give_the_same_bytes(void **state)
{
    (void)state;
    uint64_t size, again_size;
    assert_true(model_write(&model, other, stub, sizeof stub));
    char *once = read_all(path, &size), *again = read_all(other, &again_size);
    assert_int_equal(size, again_size);
    assert_memory_equal(once, again, size);
    free(once);
    free(again);
}

/* Every byte of the file, one bit at a time, in turn. */
static void every_changed_byte_is_found(void **state)
{
    (void)state;
    uint64_t size;
    char *data = read_all(path, &size);
    write_all(other, data, size);
    int fd = open(other, O_WRONLY);
    assert_true(fd >= 0);
    for (uint64_t at = 0; at < size; at++) {
        char changed = (char)(data[at] ^ (1 << at % 8));
        Artifact a;
        IoError err = {0};
        assert_int_equal(pwrite(fd, &changed, 1, (off_t)at), 1);
        if (artifact_open(other, false, &a, &err))
            fail_msg("a changed byte at %llu is not found", (unsigned long long)at);
        assert_true(err.id >= E_FILE_NOT_COMPILED && err.id <= E_FILE_VERSION);
        assert_true(strlen(err.text) > strlen(other) + 10);
        assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
    }
    close(fd);
    free(data);
}

static void every_cut_is_found(void **state)
{
    (void)state;
    uint64_t size;
    char *data = read_all(path, &size);
    write_all(other, data, size);
    for (uint64_t left = size; left-- > 0;) {
        Artifact a;
        IoError err = {0};
        assert_int_equal(truncate(other, (off_t)left), 0);
        assert_false(artifact_open(other, false, &a, &err));
        if (left > ARTIFACT_ALIGN + 64)
            assert_int_equal(err.id, E_FILE_TRUNCATED);
    }
    free(data);
}

static void appended_bytes_are_found(void **state)
{
    (void)state;
    uint64_t size;
    char *data = read_all(path, &size);
    char *longer = calloc(1, size + 7);
    memcpy(longer, data, size);
    write_all(other, longer, size + 7);
    Artifact a;
    IoError err = {0};
    assert_false(artifact_open(other, false, &a, &err));
    assert_int_equal(err.id, E_FILE_TRUNCATED);
    assert_non_null(strstr(err.text, "7 bytes follow the end"));
    free(longer);
    free(data);
}

static void another_version_is_refused_kindly(void **state)
{
    (void)state;
    uint64_t size;
    char *data = read_all(path, &size);
    for (char version = ARTIFACT_VERSION - 1; version <= ARTIFACT_VERSION + 1; version += 2) {
        char want[64];
        Artifact a;
        IoError err = {0};
        data[size - 12] = version;
        write_all(other, data, size);
        assert_false(artifact_open(other, false, &a, &err));
        assert_int_equal(err.id, E_FILE_VERSION);
        snprintf(want, sizeof want, "its format is version %d, this program reads version 13",
                 version);
        assert_non_null(strstr(err.text, want));
    }
    free(data);
}

static void other_files_are_no_models(void **state)
{
    (void)state;
    Artifact a;
    IoError err = {0};
    write_all(other, "hello", 5);
    assert_false(artifact_open(other, false, &a, &err));
    assert_int_equal(err.id, E_FILE_NOT_COMPILED);
    write_all(other, "", 0);
    assert_false(artifact_open(other, false, &a, &err));
    assert_false(artifact_open("/nonexistent/m", false, &a, &err));
}

static void an_abandoned_file_leaves_nothing(void **state)
{
    (void)state;
    char name[96];
    IoError err;
    struct stat st;
    snprintf(name, sizeof name, "%s/abandoned", dir);
    ArtifactWriter *w = artifact_create(name, stub, sizeof stub, &err);
    assert_non_null(w);
    assert_true(artifact_section_begin(w, SECTION_META, "x"));
    artifact_abandon(w);
    assert_int_not_equal(stat(name, &st), 0);
    assert_null(artifact_create("/nonexistent/m", stub, sizeof stub, &err));
}

/* After a call out of order nothing is written, and finishing it fails. */
static void misuse_fails(int call)
{
    char name[96];
    IoError err;
    struct stat st;
    snprintf(name, sizeof name, "%s/disorder", dir);
    ArtifactWriter *w = artifact_create(name, stub, sizeof stub, &err);
    assert_non_null(w);
    switch (call) {
    case 0: assert_false(artifact_write(w, "x", 1)); break;
    case 1: assert_false(artifact_section_end(w)); break;
    case 2:
        assert_true(artifact_section_begin(w, SECTION_META, "x") && artifact_write(w, "x", 1));
        assert_false(artifact_section_begin(w, SECTION_META, "y"));
        assert_false(artifact_section_begin(w, SECTION_META, "z"));
        assert_false(artifact_section_end(w));
        assert_false(artifact_align(w, 64));
        break;
    case 3:
        assert_false(artifact_section_begin(w, SECTION_META, "a name of more than thirty bytes"));
        break;
    case 4: assert_true(artifact_section_begin(w, SECTION_META, "x")); break;
    default:
        for (int i = 0; i < 4096; i++)
            assert_true(artifact_section_begin(w, SECTION_META, "x") && artifact_section_end(w));
        assert_false(artifact_section_begin(w, SECTION_META, "x"));
    }
    assert_false(artifact_finish(w, &err));
    assert_int_not_equal(stat(name, &st), 0);
}

static void calls_out_of_order_fail(void **state)
{
    (void)state;
    for (int call = 0; call < 6; call++)
        misuse_fails(call);
    artifact_abandon(NULL);
}

/* Forged files ------------------------------------------------------------------------------------
 * What docs/file.md says of the table and the trailer, broken with all hashes right. */

#define ROW     72
#define TRAILER 120

typedef struct Forged {
    uint8_t *file, *artifact, *table, *trailer;
    uint64_t size;
} Forged;

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static void write_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, 8);
}

static void hash_to(uint8_t *at, const uint8_t *data, uint64_t size)
{
    XXH128_hash_t hash = XXH3_128bits(data, (size_t)size);
    memcpy(at, &hash.low64, 8);
    memcpy(at + 8, &hash.high64, 8);
}

static void forge_begin(Forged *f, const char *name)
{
    f->file = (uint8_t *)read_all(name, &f->size);
    f->trailer = f->file + f->size - TRAILER;
    f->artifact = f->file + read_u64(f->trailer);
    f->table = f->artifact + read_u64(f->trailer + 16);
}

static void forged_is_refused(Forged *f, bool table, const char *why)
{
    Artifact a;
    IoError err = {0};
    if (table)
        hash_to(f->trailer + 64, f->table, (uint64_t)(f->trailer - f->table));
    hash_to(f->trailer + 80, f->trailer, 80);
    write_all(other, f->file, f->size);
    assert_false(artifact_open(other, false, &a, &err));
    if (!strstr(err.text, why))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
    free(f->file);
}

#define FORGED(table, why, ...)            \
    do {                                   \
        Forged f;                          \
        forge_begin(&f, path);             \
        __VA_ARGS__;                       \
        forged_is_refused(&f, table, why); \
    } while (0)

static void trailers_must_be_sound(void **state)
{
    (void)state;
    FORGED(false, "the trailer says", write_u64(f.trailer, f.size + 1));
    FORGED(false, "the trailer says", write_u64(f.trailer + 8, 5));
    FORGED(false, "the trailer was altered", write_u64(f.trailer, f.size - 8);
           write_u64(f.trailer + 8, 8));
    FORGED(false, "the trailer was altered", write_u64(f.trailer, 64);
           write_u64(f.trailer + 8, f.size - 64));
    FORGED(false, "the trailer was altered", write_u64(f.trailer + 24, 4097));
    FORGED(false, "the trailer was altered", write_u64(f.trailer + 16, 63));
    FORGED(false, "the trailer was altered", write_u64(f.trailer + 16, f.size));
    FORGED(false, "the trailer was altered", write_u64(f.trailer + 24, 3));
    FORGED(false, "the trailer was altered", write_u64(f.trailer + 96, 1));
    FORGED(false, "the trailer was altered", f.trailer[104]++);
}

static void tables_must_be_sound(void **state)
{
    static const char altered[] = "the table of sections was altered";
    (void)state;
    FORGED(true, altered, memset(f.table + 8, 'x', 32));
    FORGED(true, altered, write_u64(f.table, 0));
    FORGED(true, altered, write_u64(f.table, SECTION_REPORT + 1));
    FORGED(true, altered, write_u64(f.table, UINT64_MAX));
    FORGED(true, altered, write_u64(f.table + ROW + 40, 64)); /* where the first one lies */
    FORGED(true, altered, write_u64(f.table + 40, 0));
    FORGED(true, altered, write_u64(f.table + 48, UINT64_MAX));
    FORGED(true, altered, write_u64(f.table + 48, f.size));
    FORGED(true, altered, write_u64(f.table + 40, read_u64(f.table + 40) + 1));
    FORGED(true, altered, f.table[3 * ROW] = SECTION_CODE; /* the weights, which go on far behind */
           write_u64(f.table + 2 * ROW + 48, 0));
    FORGED(true, "the gap before the table", write_u64(f.table + 3 * ROW + 48, 0));
}

/* What was altered is named by what it is for. */
static void altered_sections_are_named(void **state)
{
    static const struct {
        int kind;
        const char *word;
    } cases[] = {
        {SECTION_META, "the description"}, {SECTION_SOURCE, "the source text"},
        {SECTION_PLAN, "the launch plan"}, {SECTION_CODE, "the device code"},
        {SECTION_REPORT, "the report"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        FORGED(true, cases[i].word, write_u64(f.table, (uint64_t)cases[i].kind); f.table[56] ^= 1);
        FORGED(true, cases[i].word, write_u64(f.table, (uint64_t)cases[i].kind); f.table[64] ^= 1);
    }
    FORGED(true, "the weights", f.table[3 * ROW + 56] ^= 1);
}

/* Weights may be left for later; what else is there is checked, and a copy is checked whole. */
static void weights_may_be_skipped(void **state)
{
    (void)state;
    Artifact a;
    IoError err = {0};
    Forged f;
    forge_begin(&f, path);
    f.artifact[read_u64(f.table + 3 * ROW + 40)] ^= 1;
    write_all(other, f.file, f.size);
    free(f.file);
    assert_false(artifact_open(other, false, &a, &err));
    assert_true(artifact_open(other, true, &a, &err));
    artifact_close(&a);
    assert_false(artifact_open_copy(other, &a, &err));
    assert_non_null(strstr(err.text, "the weights"));
    assert_true(artifact_open_copy(path, &a, &err));
    assert_non_null(artifact_find(&a, SECTION_SOURCE, "m.sinter"));
    artifact_close(&a);
    assert_false(artifact_open_copy("/nonexistent/m", &a, &err));
    write_all(other, "", 0);
    assert_false(artifact_open_copy(other, &a, &err));
    assert_int_equal(err.id, E_FILE_NOT_COMPILED);
}

static void sections_are_many_and_aligned(void **state)
{
    (void)state;
    Artifact a;
    IoError err = {0};
    const int num = 4096;
    ArtifactWriter *w = artifact_create(other, stub, sizeof stub, &err);
    assert_non_null(w);
    for (int i = 0; i < num; i++) {
        assert_true(artifact_section_begin(w, SECTION_META, "x"));
        if (i == 0) {
            assert_true(artifact_align(w, 64) && artifact_write(w, "x", 1));
            assert_true(artifact_align(w, 2 * (uint64_t)ARTIFACT_ALIGN));
            assert_int_equal(artifact_offset(w), 2 * (uint64_t)ARTIFACT_ALIGN);
        }
        assert_true(artifact_section_end(w));
    }
    assert_int_equal(artifact_offset(w), 0);
    assert_true(artifact_finish(w, &err));
    assert_true(artifact_open(other, false, &a, &err));
    assert_int_equal(a.num_sections, num);
    artifact_close(&a);
    /* only what aligns the next one may lie between two */
    Forged f;
    forge_begin(&f, other);
    write_u64(f.table + 48, 0);
    forged_is_refused(&f, true, "the table of sections was altered");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_opens_and_shows_its_sections),
        cmocka_unit_test(same_inputs_give_the_same_bytes),
        cmocka_unit_test(every_changed_byte_is_found),
        cmocka_unit_test(every_cut_is_found),
        cmocka_unit_test(appended_bytes_are_found),
        cmocka_unit_test(another_version_is_refused_kindly),
        cmocka_unit_test(other_files_are_no_models),
        cmocka_unit_test(an_abandoned_file_leaves_nothing),
        cmocka_unit_test(calls_out_of_order_fail),
        cmocka_unit_test(trailers_must_be_sound),
        cmocka_unit_test(tables_must_be_sound),
        cmocka_unit_test(altered_sections_are_named),
        cmocka_unit_test(weights_may_be_skipped),
        cmocka_unit_test(sections_are_many_and_aligned),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
