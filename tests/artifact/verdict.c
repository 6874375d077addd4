/* What reading a plan back says of it; see verdict.h. */
#include "verdict.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

Plan *plan_again(const TestModel *m, IoError *err)
{
    Bytes b;
    assert_true(plan_encode(&m->plan, &b));
    Plan *plan = plan_decode(b.data, b.size, m->weights_bytes, err);
    bytes_free(&b);
    return plan;
}

void plan_verdict(TestModel *m, const char *why)
{
    IoError err = {0};
    Plan *plan = plan_again(m, &err);
    if (!why && !plan)
        fail_msg("%s", err.text);
    if (why && (plan || err.id != E_PLAN || !strstr(err.text, why)))
        fail_msg("got \"%s\", want \"%s\"", err.text, why);
    plan_free(plan);
    model_free(m);
}
