/* test_clock: how launches that were measured apart share out the time of their graph. */
#include "choose/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void expect(int num, const double *launch, double graph, const double *want)
{
    double us[4];
    for (int i = 0; i < num; i++)
        us[i] = launch[i];
    clock_share(num, us, graph);
    for (int i = 0; i < num; i++)
        assert_true(fabs(us[i] - want[i]) < 1e-9);
}

static void test_each_loses_the_same(void **state)
{
    (void)state;
    expect(3, (const double[]){10, 20, 30}, 45, (const double[]){5, 15, 25});
}

/* (102 - 52) / 3 is more than two of them have: a tenth stays of each, and all shrink to the sum.
 */
static void test_short_ones_keep_a_tenth(void **state)
{
    (void)state;
    double left = 0.1 + 0.1 + 100 - 50.0 / 3, part = 52 / left;
    expect(3, (const double[]){1, 1, 100}, 52,
           (const double[]){0.1 * part, 0.1 * part, (100 - 50.0 / 3) * part});
}

static void test_graphs_that_take_longer(void **state)
{
    (void)state;
    expect(2, (const double[]){1, 3}, 8, (const double[]){2, 6});
}

static void test_nothing_measured(void **state)
{
    (void)state;
    expect(2, (const double[]){0, 0}, 8, (const double[]){4, 4});
    clock_share(0, NULL, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_loses_the_same), cmocka_unit_test(test_short_ones_keep_a_tenth),
        cmocka_unit_test(test_graphs_that_take_longer), cmocka_unit_test(test_nothing_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
