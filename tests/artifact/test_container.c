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
    for (char version = 1; version <= 3; version += 2) {
        char want[64];
        Artifact a;
        IoError err = {0};
        data[size - 12] = version;
        write_all(other, data, size);
        assert_false(artifact_open(other, false, &a, &err));
        assert_int_equal(err.id, E_FILE_VERSION);
        snprintf(want, sizeof want, "its format is version %d, this program reads version 2",
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

static void calls_out_of_order_fail(void **state)
{
    (void)state;
    char name[96];
    IoError err;
    struct stat st;
    snprintf(name, sizeof name, "%s/disorder", dir);
    ArtifactWriter *w = artifact_create(name, stub, sizeof stub, &err);
    assert_non_null(w);
    assert_false(artifact_write(w, "x", 1));
    assert_false(artifact_finish(w, &err));
    assert_int_not_equal(stat(name, &st), 0);
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
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
