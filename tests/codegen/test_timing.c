/* Tables of timings: what is read, refused with its line, printed, merged and chosen from. */
#include "codegen/cuda/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "sinter timings 1\ngpu sm_90-132sm-144g\n"

static Arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_create();
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static bool parse(TimingTable *t, const char *text, IoError *err)
{
    return timing_table_parse(t, arena, "t", text, strlen(text), err);
}

static void test_reads_what_it_prints(void **state)
{
    static const char sorted[] = HEAD "\n"
                                      "product a=bf16\n"
                                      "8 2.50 gemm_mma 64x64 w2x2 s4\n"
                                      "8 failed stream 8x32 w1 k8 s2  # it did not end within 5 s\n"
                                      "16 0.01 stream 16x32 w1 k8 s2\n"
                                      "\n"
                                      "product w=e4m3 n=28672\n"
                                      "16 46.91 stream 16x64 w1 k8 s2  # twice as fast\n";
    static const char shuffled[] = HEAD
        "# a remark\n\n  \nproduct w=e4m3 n=28672\n"
        "16   46.91   stream 16x64 w1 k8 s2 #twice as fast\nproduct a=bf16\n"
        "16 .01 stream 16x32 w1 k8 s2\n8 failed stream 8x32 w1 k8 s2# it did not end within 5 s\n"
        "8 2.5 gemm_mma 64x64 w2x2 s4";
    IoError err;
    TimingTable t;
    Sb sb;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(parse(&t, i ? sorted : shuffled, &err));
        sb_init(&sb, arena);
        timing_table_print(&sb, &t);
        assert_string_equal(sb.text, sorted);
    }
    const TimingRow *row = timing_table_find(&t, "a=bf16", 8, "stream 8x32 w1 k8 s2");
    assert_non_null(row);
    assert_true(row->us < 0);
    assert_string_equal(row->note, "it did not end within 5 s");
    assert_null(timing_table_find(&t, "a=bf16", 9, "stream 8x32 w1 k8 s2"));
    assert_null(timing_table_find(&t, "a=bf1", 8, "stream 8x32 w1 k8 s2"));
}

static void test_refuses(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"", "t:1: the table names no GPU"},
        {"sinter timings 2\n", "t:1: a table begins with 'sinter timings 1'"},
        {"sinter timings 1\n", "t:1: the table names no GPU"},
        {"sinter timings 1\nproduct x\n", "t:2: 'gpu' and its name come first"},
        {"sinter timings 1\ngpu Sm 90\n", "t:2: 'Sm 90' names no GPU"},
        {"sinter timings 1\ngpu ../../etc\n", "t:2: '../../etc' names no GPU"},
        {HEAD "8 1 x\n", "t:3: a row stands before the first 'product'"},
        {HEAD "product \n", "t:3: a product has no description"},
        {HEAD "product x\n8 1\n", "t:4: a row holds rows, microseconds and a candidate"},
        {HEAD "product x\n8 1 # y\n", "t:4: a row holds rows, microseconds and a candidate"},
        {HEAD "product x\n0 1 y\n", "t:4: '0' is no number of rows"},
        {HEAD "product x\n-8 1 y\n", "t:4: '-8' is no number of rows"},
        {HEAD "product x\n8a 1 y\n", "t:4: '8a' is no number of rows"},
        {HEAD "product x\n99999999999999999999 1 y\n",
         "t:4: '99999999999999999999' is no number of rows"},
        {HEAD "product x\n8 nan y\n",
         "t:4: 'nan' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 0 y\n",
         "t:4: '0' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 1e3 y\n",
         "t:4: '1e3' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 1.2.3 y\n",
         "t:4: '1.2.3' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 9999999999 y\n",
         "t:4: '9999999999' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 0.004 y\n",
         "t:4: '0.004' is neither 'failed' nor microseconds from 0.01 to 1e9"},
        {HEAD "product x\n8 1 y\n8 2 y\n", "t:5: 'y' with 8 rows stands here twice"},
        {"sinter timings 1\nkernels stream 1\n", "t:2: 'gpu' and its name come first"},
        {HEAD "kernels stream\n", "t:3: 'kernels' takes a family and a word of hexadecimal digits"},
        {HEAD "kernels stream 1 2\n",
         "t:3: 'kernels' takes a family and a word of hexadecimal digits"},
        {HEAD "kernels stream 1g\n",
         "t:3: 'kernels' takes a family and a word of hexadecimal digits"},
        {HEAD "kernels stream 1\nkernels stream 2\n", "t:4: the kernels 'stream' stand here twice"},
        {HEAD "product \x01\n", "t:3: byte 0x01; a table is ASCII text"},
        {HEAD "product \xc3\xa9\n", "t:3: byte 0xc3; a table is ASCII text"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        IoError err;
        TimingTable t;
        assert_false(parse(&t, bad[i].text, &err));
        assert_string_equal(err.text, bad[i].error);
        assert_int_equal(err.id, E_TIMING);
    }
}

static void test_limits(void **state)
{
    IoError err;
    TimingTable t;
    Sb sb;
    (void)state;
    sb_init(&sb, arena);
    sb_put(&sb, HEAD "product ");
    for (int i = 0; i < LIMIT_TIMING_LINE; i++)
        sb_putc(&sb, 'x');
    assert_false(parse(&t, sb.text, &err));
    assert_string_equal(err.text, "t:3: a line is longer than 1000 bytes");
    assert_false(timing_table_parse(&t, arena, "t", HEAD "product \0", sizeof HEAD + 8, &err));
    assert_string_equal(err.text, "t:3: byte 0x00; a table is ASCII text");
    sb.len = 0;
    sb_put(&sb, HEAD "product x\n8 1 ");
    for (int i = 0; i < LIMIT_TIMING_LINE - 50; i++)
        sb_putc(&sb, 'x');
    assert_false(parse(&t, sb.text, &err));
    assert_string_equal(err.text, "t:4: a candidate and its note are longer than 900 bytes");
    sb.len = 0;
    sb_put(&sb, HEAD "product x\n");
    for (int i = 0; i <= LIMIT_TIMING_ROWS; i++)
        sb_printf(&sb, "%d 1 y\n", i + 1);
    assert_false(parse(&t, sb.text, &err));
    assert_string_equal(err.text, "t:200004: a table holds at most 200000 rows");
}

static void test_names_of_gpus(void **state)
{
    (void)state;
    /* what drivers report of an H200, an H100, an A100 of 40 GB and an RTX 4090 */
    assert_string_equal(timing_gpu_name(arena, 90, 132, 150115123200), "sm_90-132sm-144g");
    assert_string_equal(timing_gpu_name(arena, 90, 132, 84987740160), "sm_90-132sm-80g");
    assert_string_equal(timing_gpu_name(arena, 80, 108, 42297786368), "sm_80-108sm-48g");
    assert_string_equal(timing_gpu_name(arena, 89, 128, 25262096384), "sm_89-128sm-24g");
}

/* Rows of other device code than this compiler's are old, and go when it measures. */
static void test_device_code(void **state)
{
    IoError err;
    TimingTable t;
    Sb sb;
    (void)state;
    const char *stream = cuda_family_code(arena, "stream");
    const char *mma = cuda_family_code(arena, "gemm_mma");
    assert_int_equal(strlen(stream), 8);
    assert_string_not_equal(stream, mma);
    assert_null(cuda_family_code(arena, "no"));
    const char *text = arena_printf(arena,
                                    HEAD "kernels gemm_mma 0\nkernels stream %s\n\nproduct p\n"
                                         "8 1.00 gemm_mma 64x64\n8 2.00 no family\n"
                                         "8 3.00 stream 8x32\n",
                                    stream);
    assert_true(parse(&t, text, &err));
    assert_true(timing_table_find(&t, "p", 8, "gemm_mma 64x64")->old);
    assert_false(timing_table_find(&t, "p", 8, "no family")->old); /* nobody knows */
    assert_false(timing_table_find(&t, "p", 8, "stream 8x32")->old);
    sb_init(&sb, arena);
    timing_table_print(&sb, &t);
    assert_string_equal(sb.text, text);
    timing_table_renew(&t);
    assert_null(timing_table_find(&t, "p", 8, "gemm_mma 64x64"));
    assert_non_null(timing_table_find(&t, "p", 8, "stream 8x32"));
    sb.len = 0;
    timing_table_print(&sb, &t);
    assert_non_null(strstr(sb.text, arena_printf(arena, "kernels gemm_mma %s\n", mma)));
}

static void put(const char *gpu, double us)
{
    IoError err;
    TimingTable t;
    timing_table_init(&t, arena, gpu);
    timing_table_put(&t, &(TimingRow){"p", "c", 8, 1, "", false});
    timing_table_put(&t, &(TimingRow){"p", "c", 8, us, "", false}); /* replaces */
    assert_int_equal(t.row.num, 1);
    assert_true(timing_table_write(&t, timing_own_path(arena, gpu, true), &err));
}

/* Problems whose main loops are alike; of several the one with the most rows. */
static void test_akin(void **state)
{
    static const char *const problem[] = {
        "w=e4m3 panels a=e4m3/1x0 n=8 k=4 parts=2 reads=3 out=f32",
        "w=e4m3 panels a=e4m3/0x0/fast n=8 k=4 parts=2 reads=0 out=bf16",
        "w=e4m3 panels a=e4m3/1x128 n=8 k=4 parts=2 reads=3 out=f32",
        "w=e4m3 panels a=e4m3/1x0 n=8 k=4 reads=3 out=f32",
        "w=e4m3 panels a=e4m3/1x0 n=8 k=4 parts=2 inside=4 reads=3 out=f32",
        "w=e4m3/1x0 panels a=e4m3/1x0 n=8 k=4 parts=2 reads=3 out=f32"};
    TimingTable t;
    (void)state;
    timing_table_init(&t, arena, "sm_90-132sm-144g");
    for (size_t i = 1; i < COUNT_OF(problem); i++)
        timing_table_put(&t, &(TimingRow){problem[i], "c", 16, 2, "", false});
    timing_table_put(&t, &(TimingRow){problem[1], "failed", 64, -1, "", false});
    const char *found = timing_table_akin(&t, problem[0], 16);
    assert_true(found && !strcmp(found, problem[1]));
    assert_null(timing_table_akin(&t, problem[0], 64));
    for (size_t i = 2; i < COUNT_OF(problem); i++)
        assert_null(timing_table_akin(&t, problem[i], 16));
    timing_table_put(&t, &(TimingRow){problem[0], "c", 16, 2, "", false});
    timing_table_put(&t, &(TimingRow){problem[0], "d", 16, 2, "", false});
    found = timing_table_akin(&t, "w=e4m3 panels a=e4m3 n=8 k=4 parts=2 reads=7 out=i8", 16);
    assert_true(found && !strcmp(found, problem[0]));
}

/* The nearest sizes of a problem, wherever its rows stand; what failed tells nothing. */
static void test_around(void **state)
{
    static const int64_t sizes[] = {64, 4, 512, 1024, 128};
    TimingTable t;
    (void)state;
    timing_table_init(&t, arena, "sm_90-132sm-144g");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        timing_table_put(&t, &(TimingRow){"p", "c", sizes[i], i == 4 ? -1 : 2, "", false});
        timing_table_put(&t, &(TimingRow){"q", "c", 200, 2, "", false});
    }
    int64_t found[2] = {0};
    timing_table_around(&t, "p", 256, found);
    assert_true(found[0] == 64 && found[1] == 512);
    found[0] = found[1] = 0;
    timing_table_around(&t, "p", 4, found);
    assert_true(found[0] == 0 && found[1] == 64);
    found[0] = 300, found[1] = 400; /* another table has nearer ones */
    timing_table_around(&t, "p", 320, found);
    assert_true(found[0] == 300 && found[1] == 400);
    found[0] = found[1] = 0;
    timing_table_around(&t, "r", 256, found);
    assert_true(found[0] == 0 && found[1] == 0);
}

static void test_choice_of_tables(void **state)
{
    static const char *const arch[] = {"sm_75", "compute_80"};
    char folder[] = "/tmp/sinter-timing-XXXXXX";
    Timings t;
    TimingSource source;
    Diag diag;
    (void)state;
    diag_init(&diag, arena);
    assert_non_null(mkdtemp(folder));
    setenv("XDG_DATA_HOME", folder, 1);
    assert_true(timings_open(&t, arena, &diag, NULL, 2, arch));
    assert_null(t.gpu);
    put("sm_75-40sm-16g", 2);
    put("sm_75-30sm-8g", 3);
    put("sm_7-1sm-8g", 4);
    assert_true(timings_open(&t, arena, &diag, NULL, 2, arch));
    assert_string_equal(t.gpu, "sm_75-30sm-8g"); /* the first by name */
    const TimingRow *row = timings_find(&t, "p", 8, "c", &source);
    assert_true(row && row->us == 3.0 && source == TIMING_MEASURED);
    assert_true(timings_open(&t, arena, &diag, "sm_75-40sm-16g", 2, arch));
    row = timings_find(&t, "p", 8, "c", &source);
    assert_true(row && row->us == 2.0);
    assert_true(timings_open(&t, arena, &diag, "none", 2, arch));
    assert_null(t.gpu);
    assert_null(timings_find(&t, "p", 8, "c", &source));
    assert_int_equal(diag.num_errors + diag.num_warnings, 0);
    assert_false(timings_open(&t, arena, &diag, "sm_75-1sm-4g", 2, arch));
    assert_false(timings_open(&t, arena, &diag, "./missing", 2, arch));
    assert_int_equal(diag.num_errors, 2);
    /* one that is broken is left out of a default, with a warning */
    FILE *f = fopen(timing_own_path(arena, "sm_75-30sm-8g", false), "w");
    assert_non_null(f);
    fputs("rubbish\n", f);
    fclose(f);
    assert_true(timings_open(&t, arena, &diag, NULL, 2, arch));
    assert_null(t.own);
    assert_int_equal(diag.num_warnings, 1);
    for (int i = 0; i < 3; i++)
        unlink(timing_own_path(
            arena, ((const char *[]){"sm_75-40sm-16g", "sm_75-30sm-8g", "sm_7-1sm-8g"})[i], false));
    rmdir(arena_printf(arena, "%s/sinter/timing", folder));
    rmdir(arena_printf(arena, "%s/sinter", folder));
    assert_int_equal(rmdir(folder), 0);
}

/* The tables that are part of the compiler can be read and are as `sinter tune` would print them;
 * one that is opened has the same rows, each read when its problem is first looked for. */
static void test_shipped(void **state)
{
    static const char *const gpus[] = {"sm_90-132sm-144g", "sm_90-132sm-80g"};
    size_t len;
    (void)state;
    for (size_t g = 0; g < COUNT_OF(gpus); g++) {
        IoError err;
        TimingTable t, opened;
        Sb sb;
        const char *text = timing_shipped(gpus[g], &len);
        assert_non_null(text);
        assert_true(timing_table_parse(&t, arena, "shipped", text, len, &err));
        assert_string_equal(t.gpu, gpus[g]);
        sb_init(&sb, arena);
        timing_table_print(&sb, &t);
        assert_int_equal(sb.len, len);
        assert_memory_equal(sb.text, text, len);
        assert_true(timing_table_open(&opened, arena, "shipped", text, len, &err));
        assert_int_equal(opened.row.num, 0);
        for (int i = t.row.num - 1; i >= 0; i--) {
            const TimingRow *want = &t.row.elem[i];
            const TimingRow *row =
                timing_table_find(&opened, want->problem, want->rows, want->candidate);
            assert_true(row && row->us == want->us && row->old == want->old);
        }
        assert_int_equal(opened.row.num, t.row.num);
        sb.len = 0;
        timing_table_print(&sb, &opened);
        assert_int_equal(sb.len, len);
        assert_memory_equal(sb.text, text, len);
    }
    assert_null(timing_shipped("sm_90-1sm-144g", &len));
}

/* Of a table that is opened, too, rows of akin problems and of other sizes are found unasked. */
static void test_opened(void **state)
{
    static const char text[] = HEAD "\nproduct w=e4m3 a=e4m3/1x0 n=8 k=4 reads=3 out=f32\n"
                                    "16 2.00 c\n64 3.00 c\n";
    static const char akin[] = "w=e4m3 a=e4m3/0x0 n=8 k=4 reads=1 out=bf16";
    static const char problem[] = "w=e4m3 a=e4m3/1x0 n=8 k=4 reads=3 out=f32";
    IoError err;
    TimingTable t;
    int64_t found[2] = {0};
    (void)state;
    assert_true(timing_table_open(&t, arena, "t", text, sizeof text - 1, &err));
    const char *found_akin = timing_table_akin(&t, akin, 16);
    assert_true(found_akin && !strcmp(found_akin, problem));
    assert_true(timing_table_open(&t, arena, "t", text, sizeof text - 1, &err));
    timing_table_around(&t, problem, 32, found);
    assert_true(found[0] == 16 && found[1] == 64);
    assert_true(timing_table_open(&t, arena, "t", text, sizeof text - 1, &err));
    timing_table_put(&t, &(TimingRow){problem, "c", 64, 4, "", false}); /* of a row not yet read */
    const TimingRow *row = timing_table_find(&t, problem, 64, "c");
    assert_true(row && row->us == 4.0 && t.row.num == 2);
    assert_true(timing_table_open(&t, arena, "t", HEAD, sizeof HEAD - 1, &err));
    assert_null(timing_table_find(&t, problem, 16, "c"));
    assert_false(timing_table_open(&t, arena, "t", HEAD "16 2.00 c\n", sizeof HEAD + 9, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads_what_it_prints, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_of_gpus, setup, teardown),
        cmocka_unit_test_setup_teardown(test_akin, setup, teardown),
        cmocka_unit_test_setup_teardown(test_around, setup, teardown),
        cmocka_unit_test_setup_teardown(test_choice_of_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(test_device_code, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shipped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opened, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
