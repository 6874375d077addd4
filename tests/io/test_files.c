/* Files: mapping, bounded reading, atomic writing under errors and signals, round trips of the
 * writers, and weight sets. */
#include "io/io.h"

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sinter-io-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int num_entries(void)
{
    int num = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        num += entry->d_name[0] != '.';
    closedir(dir);
    return num;
}

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int next;
    char *ret = path[next++ % 4];
    snprintf(ret, sizeof path[0], "%s/%s", folder, name);
    return ret;
}

static int teardown(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            unlink(in_folder(entry->d_name));
    closedir(dir);
    return rmdir(folder);
}

static void write_text(const char *path, const void *text, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, size, f), size);
    fclose(f);
}

static void expect_text(const char *path, const char *text)
{
    IoError err;
    uint64_t size;
    char *got = file_read(path, 1 << 20, &size, &err);
    assert_non_null(got);
    assert_string_equal(got, text);
    free(got);
}

static void maps_only_regular_files(void **state)
{
    (void)state;
    MappedFile map;
    IoError err;
    const char *path = in_folder("a");
    assert_false(file_map(path, &map, &err));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(err.id, E_FILE_OPEN);
    assert_false(file_map(folder, &map, &err));
    assert_non_null(strstr(err.text, "is a folder"));
    assert_false(file_map("/dev/zero", &map, &err));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(file_map(path, &map, &err)); /* and does not wait for a writer */
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(path);
    write_text(path, "", 0);
    assert_true(file_map(path, &map, &err));
    assert_int_equal(map.size, 0);
    file_unmap(&map);
    write_text(path, "abc", 3);
    assert_true(file_map(path, &map, &err));
    assert_int_equal(map.size, 3);
    assert_memory_equal(map.data, "abc", 3);
    file_unmap(&map);
}

static void reads_at_most_the_limit(void **state)
{
    (void)state;
    IoError err;
    uint64_t size;
    static char big[200000];
    const char *path = in_folder("a");
    memset(big, 'x', sizeof big);
    write_text(path, big, sizeof big);
    char *text = file_read(path, sizeof big, &size, &err);
    assert_non_null(text);
    assert_int_equal(size, sizeof big);
    assert_int_equal(text[sizeof big], 0);
    free(text);
    assert_null(file_read(path, sizeof big - 1, &size, &err));
    assert_non_null(strstr(err.text, "larger than the limit"));
    assert_null(file_read("/dev/zero", 100, &size, &err));
}

static void output_is_atomic(void **state)
{
    (void)state;
    IoError err;
    const char *path = in_folder("out");
    write_text(path, "old", 3);
    OutFile *f = outfile_create(path, 0644, &err);
    assert_non_null(f);
    assert_true(outfile_write(f, "0123", 4));
    assert_true(outfile_align(f, 8));
    assert_int_equal(outfile_offset(f), 8);
    static char big[1 << 20];
    memset(big, 'b', sizeof big);
    assert_true(outfile_write(f, big, sizeof big));
    assert_true(outfile_patch(f, 1, "XY", 2));
    assert_true(outfile_write(f, "end", 3));
    assert_true(outfile_patch(f, 8 + sizeof big, "END", 3));
    expect_text(path, "old");
    assert_true(outfile_finish(f, &err));
    MappedFile map;
    assert_true(file_map(path, &map, &err));
    assert_int_equal(map.size, 8 + sizeof big + 3);
    assert_memory_equal(map.data, "0XY3\0\0\0\0bbb", 11);
    assert_memory_equal(map.data + 8 + sizeof big, "END", 3);
    file_unmap(&map);
    assert_int_equal(num_entries(), 1);

    f = outfile_create(path, 0755, &err);
    outfile_write(f, "x", 1);
    outfile_abandon(f);
    assert_int_equal(num_entries(), 1);
    outfile_abandon(NULL);
}

static void output_keeps_modes_and_links(void **state)
{
    (void)state;
    IoError err;
    struct stat st;
    mode_t mask = umask(022);
    OutFile *f = outfile_create(in_folder("target"), 0777, &err);
    assert_true(outfile_finish(f, &err));
    umask(mask);
    assert_int_equal(stat(in_folder("target"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    assert_int_equal(symlink("target", in_folder("link")), 0);
    f = outfile_create(in_folder("link"), 0666, &err);
    assert_non_null(f);
    outfile_write(f, "via", 3);
    assert_true(outfile_finish(f, &err));
    assert_int_equal(lstat(in_folder("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    expect_text(in_folder("target"), "via");
}

static void output_never_replaces_devices(void **state)
{
    (void)state;
    IoError err;
    assert_null(outfile_create("/dev/full", 0666, &err));
    assert_int_equal(err.id, E_FILE_WRITE);
    OutFile *f = outfile_create("/dev/null", 0666, &err); /* which keeps nothing, and stays */
    assert_non_null(f);
    assert_true(outfile_write(f, "x", 1));
    assert_true(outfile_patch(f, 0, "y", 1));
    assert_true(outfile_finish(f, &err));
    f = outfile_create("/dev/null", 0666, &err);
    assert_non_null(f);
    outfile_abandon(f);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_null(outfile_create(folder, 0666, &err));
    assert_non_null(strstr(err.text, "is a folder"));
    assert_null(outfile_create(in_folder("no/such/folder"), 0666, &err));
    assert_int_equal(symlink("nothing", in_folder("link")), 0);
    assert_null(outfile_create(in_folder("link"), 0666, &err));
    assert_null(outfile_create("/proc/sinter", 0666, &err));
    assert_int_equal(num_entries(), 1);
}

/* The limit on file sizes stands in for a full disk: write fails half-way. */
static void a_full_disk_is_reported(void **state)
{
    (void)state;
    const char *path = in_folder("out");
    write_text(path, "old", 3);
    pid_t child = fork();
    if (child == 0) {
        IoError err = {0};
        struct rlimit limit = {100000, 100000};
        static char big[1 << 20];
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        OutFile *f = outfile_create(path, 0666, &err);
        bool wrote = outfile_write(f, big, sizeof big);
        bool more = outfile_write(f, "x", 1);
        bool done = outfile_finish(f, &err);
        bool told = err.id == E_FILE_WRITE && strstr(err.text, strerror(EFBIG));
        /* small enough for the buffer: fails at finish only */
        limit = (struct rlimit){10, 10};
        setrlimit(RLIMIT_FSIZE, &limit);
        f = outfile_create(path, 0666, &err);
        bool buffered = outfile_write(f, big, 1000);
        done |= outfile_finish(f, &err);
        _exit(!wrote && !more && !done && told && buffered ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    expect_text(path, "old");
    assert_int_equal(num_entries(), 1);
}

/* Stands before the C library's, for files like those of a system that has none without a name. */
int __real_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode);
static bool all_have_names;
int __wrap_open64(const char *path, int flags, mode_t mode)
{
    if (!all_have_names || (flags & O_TMPFILE) != O_TMPFILE)
        return __real_open64(path, flags, mode);
    errno = EOPNOTSUPP;
    return -1;
}

static void signals_remove_the_temporary_file(void **state)
{
    (void)state;
    static const int number[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                 SIGPIPE, SIGXFSZ, SIGXCPU, SIGUSR1};
    for (size_t i = 0; i < 2 * COUNT_OF(number); i++) {
        int ready[2], signal_number = number[i / 2];
        char byte;
        all_have_names = i % 2;
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            IoError err;
            signal(signal_number, SIG_DFL); /* whoever runs the tests may ignore it */
            OutFile *f = outfile_create(in_folder("out"), 0666, &err);
            OutFile *g = outfile_create(in_folder("out2"), 0666, &err);
            outfile_write(f, "x", 1);
            outfile_abandon(g);
            alarm(20); /* should the test fail before it ends this */
            if (write(ready[1], "x", 1) == 1)
                pause();
            _exit(0);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        int here = num_entries();
        kill(child, signal_number);
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signal_number);
        assert_int_equal(here, all_have_names);
        assert_int_equal(num_entries(), 0);
    }
    all_have_names = false;
}

static void signal_handlers_are_put_back(void **state)
{
    (void)state;
    IoError err;
    struct sigaction now;
    all_have_names = true;
    OutFile *f = outfile_create(in_folder("out"), 0666, &err);
    sigaction(SIGTERM, NULL, &now);
    all_have_names = false;
    assert_true(now.sa_handler != SIG_DFL);
    outfile_abandon(f);
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
}

/* A mapped file that is cut short ends a guarded program with an error that names it. */
static void what_a_file_lost_is_an_error(void **state)
{
    (void)state;
    const char *path = in_folder("cut");
    static char big[1 << 16];
    int said[2], status;
    char text[512];
    write_text(path, big, sizeof big);
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        IoError err;
        MappedFile map;
        dup2(said[1], 2);
        files_guard("program");
        bool ok = file_map(path, &map, &err) && truncate(path, 10) == 0;
        _exit(ok && map.data[sizeof big - 1] ? 3 : 4);
    }
    close(said[1]);
    size_t len = 0;
    for (ssize_t got; (got = read(said[0], text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)got;
    text[len] = 0;
    close(said[0]);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_non_null(strstr(text, "program: error[E0501]: "));
    assert_non_null(strstr(text, "/cut: was cut short while it was read"));
    unlink(path);
}

/* A file without a name is written and read by the path that it has in this process. */
static void files_without_names(void **state)
{
    (void)state;
    char path[FILE_UNNAMED];
    IoError err;
    MappedFile map;
    int fd = file_unnamed(path);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        OutFile *f = outfile_create(path, 0666, &err);
        assert_non_null(f);
        outfile_write(f, &"longer"[3 * i], 6 - 3 * (uint64_t)i);
        assert_true(outfile_finish(f, &err));
        assert_true(file_map(path, &map, &err));
        assert_int_equal(map.size, i ? 3 : 6);
        assert_memory_equal(map.data, i ? "ger" : "longer", map.size);
        file_unmap(&map);
    }
    close(fd);
    assert_null(outfile_create(path, 0666, &err));
    assert_int_equal(num_entries(), 0);
}

static void paths_beside(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a/b/m.sinter", "w.safetensors", "a/b/w.safetensors"},
        {"m.sinter", "w", "w"},
        {"a/m", "/abs/w", "/abs/w"},
        {"/m", "w", "/w"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *path = path_beside(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

static void npy_round_trip(void **state)
{
    (void)state;
    static const FormatId fmt[] = {FMT_F64, FMT_F32, FMT_F16, FMT_I32, FMT_I8, FMT_U8};
    static const int size[] = {8, 4, 2, 4, 1, 1};
    uint8_t data[6 * 8];
    IoError err;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37);
    for (size_t i = 0; i < COUNT_OF(fmt); i++)
        for (int rank = 0; rank <= 3; rank++) {
            const int64_t dim[3] = {1, 2, 3};
            const char *path = in_folder("a.npy");
            assert_true(npy_write(path, fmt[i], rank, dim, data, &err));
            TensorFile *f = tensorfile_open(path, &err);
            if (!f)
                fail_msg("%s", err.text);
            const TensorView *view = tensorfile_at(f, 0);
            assert_true(tensorfile_is_npy(f));
            assert_int_equal(view->fmt, fmt[i]);
            assert_int_equal(view->rank, rank);
            assert_int_equal(view->bytes, (rank == 3 ? 6 : rank == 2 ? 2 : 1) * size[i]);
            assert_memory_equal(view->data, data, view->bytes);
            assert_int_equal((uintptr_t)view->data % 64, 0); /* numpy's alignment */
            tensorfile_close(f);
        }
    assert_false(npy_write(in_folder("b.npy"), FMT_BF16, 1, (int64_t[]){1}, data, &err));
    assert_non_null(strstr(err.text, ".safetensors"));
    assert_false(npy_write(in_folder("b.npy"), FMT_F32, 2, (int64_t[]){INT64_MAX, 8}, data, &err));
    assert_false(npy_write(in_folder("b.npy"), FMT_F32, 1, (int64_t[]){INT64_MAX}, data, &err));
    assert_false(npy_write(in_folder("b.npy"), FMT_F32, LIMIT_RANK + 1, NULL, data, &err));
    assert_false(npy_write(in_folder("b.npy"), FMT_NONE, 0, NULL, data, &err));
    assert_false(npy_write(in_folder("no/b.npy"), FMT_F32, 0, NULL, data, &err));
    assert_int_equal(num_entries(), 1);
}

static void safetensors_round_trip(void **state)
{
    (void)state;
    static const int64_t two[] = {1, 2}, four[] = {4};
    const SafetensorsItem item[] = {
        {"bytes", FMT_U8, 1, four, "abcd", NULL},
        {"x\"\\\n\xc3\xa9", FMT_F32, 2, two, "12345678", NULL},
        {"wide", FMT_F64, 2, two, "0123456789abcdef", NULL},
        {"half", FMT_BF16, 1, four, "ABCDEFGH", NULL},
        {"nibbles", FMT_E2M1, 1, four, "uv", NULL},
        {"scalar", FMT_F32, 0, NULL, "wxyz", NULL},
    };
    IoError err;
    const char *path = in_folder("a.safetensors");
    assert_true(safetensors_write(path, COUNT_OF(item), item, &err));
    TensorFile *f = tensorfile_open(path, &err);
    if (!f)
        fail_msg("%s", err.text);
    assert_int_equal(tensorfile_num(f), COUNT_OF(item));
    for (size_t i = 0; i < COUNT_OF(item); i++) {
        const TensorView *view = tensorfile_find(f, item[i].name);
        assert_non_null(view);
        assert_int_equal(view->fmt, item[i].fmt);
        assert_int_equal(view->rank, item[i].rank);
        assert_memory_equal(view->data, item[i].data, view->bytes);
    }
    tensorfile_close(f);

    SafetensorsItem bad[] = {item[0], item[0]};
    assert_false(safetensors_write(path, 2, bad, &err));
    assert_non_null(strstr(err.text, "occurs twice"));
    bad[1] = (SafetensorsItem){"n", FMT_NF4, 1, four, "uv", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"n", FMT_E2M1, 1, (int64_t[]){3}, "uv", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"\xff", FMT_U8, 1, four, "abcd", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"__metadata__", FMT_U8, 1, four, "abcd", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"n", FMT_F32, 2, (int64_t[]){INT64_MAX, 8}, "", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"n", FMT_F32, 1, (int64_t[]){INT64_MAX}, "", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    bad[1] = (SafetensorsItem){"n", FMT_NONE, 1, four, "", NULL};
    assert_false(safetensors_write(path, 2, bad, &err));
    assert_false(safetensors_write(in_folder("no/a.safetensors"), 1, item, &err));
    path = in_folder("a.safetensors");
    assert_true(safetensors_write(path, 0, NULL, &err));
    assert_int_equal(num_entries(), 1);
}

/* Weight sets --------------------------------------------------------------------------------- */

static const int64_t one[] = {1};

static void write_weight(const char *name, const char *tensor, const char *data)
{
    IoError err;
    const SafetensorsItem item = {tensor, FMT_F32, 1, one, data, NULL};
    assert_true(safetensors_write(in_folder(name), 1, &item, &err));
}

static WeightSet *open_set(const char *a, const char *b, IoError *err)
{
    char first[256], second[256];
    snprintf(first, sizeof first, "%s/%s", folder, a);
    snprintf(second, sizeof second, "%s/%s", folder, b ? b : "");
    const char *const path[] = {first, second};
    return weights_open(b ? 2 : 1, path, err);
}

static void weight_files_form_one_name_space(void **state)
{
    (void)state;
    IoError err;
    write_weight("a", "x", "aaaa");
    write_weight("b", "y", "bbbb");
    write_weight("c", "x", "cccc");
    WeightSet *w = open_set("a", "b", &err);
    assert_non_null(w);
    assert_int_equal(weights_num(w), 2);
    assert_memory_equal(weights_find(w, "y")->data, "bbbb", 4);
    assert_string_equal(weights_at(w, 0)->name, "x");
    assert_null(weights_find(w, "z"));
    weights_close(w);
    assert_null(open_set("a", "c", &err));
    assert_int_equal(err.id, E_WEIGHT_TWICE);
    assert_null(open_set("a", "missing", &err));
    assert_int_equal(err.id, E_FILE_OPEN);
    weights_close(NULL);
}

/* More files than a set first has room for. */
static void many_weight_files(void **state)
{
    (void)state;
    enum { NUM = 20 };
    char name[NUM][256];
    const char *path[NUM];
    IoError err;
    for (int i = 0; i < NUM; i++) {
        char tensor[8];
        snprintf(tensor, sizeof tensor, "t%d", i);
        write_weight(tensor, tensor, "aaaa");
        snprintf(name[i], sizeof name[i], "%s/%s", folder, tensor);
        path[i] = name[i];
    }
    WeightSet *w = weights_open(NUM, path, &err);
    assert_non_null(w);
    assert_int_equal(weights_num(w), NUM);
    weights_close(w);
    write_weight("late", "t17", "aaaa");
    snprintf(name[0], sizeof name[0], "%s/late", folder);
    path[0] = name[17], path[1] = name[16], path[2] = name[0];
    assert_null(weights_open(3, path, &err));
    assert_non_null(strstr(err.text, "t17"));
}

static void weight_index(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rule; /* rule NULL: accepted */
    } cases[] = {
        {"{\"metadata\":{\"total_size\":8},\"weight_map\":{\"x\":\"a\",\"y\":\"b\"}}", NULL},
        {" \n{\"weight_map\":{\"x\":\"a\"}}\n", NULL},
        {"{\"weight_map\":{}}", NULL},
        {"{\"metadata\":{}}", "has no weight_map"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "occurs twice"},
        {"{\"weight_map\":{\"z\":\"a\"}}", "'z' is not in"},
        {"{\"weight_map\":{\"x\":\"a\",\"x\":\"a\"}}", "'x' is also in"},
        {"{\"weight_map\":{\"x\":\"../a\"}}", "not a plain name"},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", "not a plain name"},
        {"{\"weight_map\":{\"x\":\"..\"}}", "not a plain name"},
        {"{\"weight_map\":{\"x\":\"\"}}", "not a plain name"},
        {"{\"weight_map\":{\"x\":\".\"}}", "not a plain name"},
        {"{\"weight_map\":{\"x\":\"..\\\\a\"}}", "not a plain name"},
        {" \t\r\n", "is text"},
        {"", "is empty"},
        {"{\"weight_map\":{\"x\":\"gone\"}}", "No such file"},
        {"{\"weight_map\":{\"x\":1}}", "a string is expected"},
        {"{\"weight_map\":[]}", "an object is expected"},
        {"{\"weight_map\":{\"x\":\"a\"}", "a comma or '}' is expected"},
        {"{\"weight_map\":{\"x\":\"a\"}} x", "text follows the end"},
        {"{\"metadata\":nul,\"weight_map\":{}}", "a value is expected"},
        {"{\"metadata\":-,\"weight_map\":{}}", "lacks its digits"},
        {"{\"metadata\":01,\"weight_map\":{}}", "leading zeros"},
        {"{\"metadata\":[1,2.5e-3,true,null,\"s\",{\"k\":[]}],\"weight_map\":{}}", NULL},
        {"{\"metadata\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         "nested too deeply"},
    };
    IoError err;
    write_weight("a", "x", "aaaa");
    write_weight("b", "y", "bbbb");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_text(in_folder("index.json"), cases[i].text, strlen(cases[i].text));
        WeightSet *w = open_set("index.json", NULL, &err);
        if (!w && !cases[i].rule)
            fail_msg("%s: refused: %s", cases[i].text, err.text);
        if (w && cases[i].rule)
            fail_msg("%s: accepted", cases[i].text);
        if (!w && !strstr(err.text, cases[i].rule))
            fail_msg("%s: refused with '%s'", cases[i].text, err.text);
        weights_close(w);
    }
    write_text(in_folder("index.json"), "\0{}", 3);
    assert_null(open_set("index.json", NULL, &err));
    write_text(in_folder("index.json"), "{", 1);
    assert_int_equal(truncate(in_folder("index.json"), LIMIT_SAFETENSORS_HEADER + 1), 0);
    assert_null(open_set("index.json", NULL, &err));
    assert_non_null(strstr(err.text, "is larger than the limit"));
    assert_true(npy_write(in_folder("n.npy"), FMT_F32, 1, one, "aaaa", &err));
    assert_null(open_set("n.npy", NULL, &err));
    assert_non_null(strstr(err.text, "names no tensor"));
    assert_non_null(strstr(err.text, "safetensors.numpy.save_file({"));
    /* numpy's archives are zip files, as PyTorch's are, but run no code: advice of their own */
    assert_null(
        tensorfile_parse("w.npz", (const uint8_t *)"PK\x03\x04\x14\x00\x00\x00\x08\x08", 10, &err));
    assert_non_null(strstr(err.text, "save_file(dict(numpy.load(path))"));
    assert_null(tensorfile_parse("model.pt", (const uint8_t *)"PK\x03\x04\x14\x00\x00\x00\x08\x08",
                                 10, &err));
    assert_non_null(strstr(err.text, "torch.load(path, weights_only=True)"));
}

int main(void)
{
    /* a job in the background of a shell ignores them, which signals of these tests must not be */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(maps_only_regular_files),
        TEST(reads_at_most_the_limit),
        TEST(output_is_atomic),
        TEST(output_keeps_modes_and_links),
        TEST(output_never_replaces_devices),
        TEST(a_full_disk_is_reported),
        TEST(signals_remove_the_temporary_file),
        TEST(signal_handlers_are_put_back),
        TEST(what_a_file_lost_is_an_error),
        TEST(files_without_names),
        TEST(paths_beside),
        TEST(npy_round_trip),
        TEST(safetensors_round_trip),
        TEST(weight_files_form_one_name_space),
        TEST(many_weight_files),
        TEST(weight_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
