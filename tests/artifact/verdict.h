/* What reading a plan back says of it. */
#ifndef TEST_VERDICT_H
#define TEST_VERDICT_H

#include "models.h"

/* The model's plan, written and read again; NULL after filling err. */
Plan *plan_again(const TestModel *m, IoError *err);
/* It is read (why: NULL), or refused in words that hold `why`; the model is freed. */
void plan_verdict(TestModel *m, const char *why);

#endif
