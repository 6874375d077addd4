#include "check.h"
void bench_kernels(void)
{
}
