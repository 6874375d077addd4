/* write_model FILE: the hand-made model with a GPU's plan, for tests in other languages. */
#include "cuda_models.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    TestModel m;
    if (argc != 2) {
        fprintf(stderr, "usage: write_model FILE\n");
        return 2;
    }
    model_float(&m);
    bool ok = write_cuda_model(&m, argv[1], 0, HOLDS_ALL);
    model_free(&m);
    return ok ? 0 : 1;
}
