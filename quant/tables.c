/* The tables of calibrators and weight quantisers. */
#include "quant/calib.h"
#include "quant/weights.h"
#include <string.h>

const Calibrator *const calibrators[] = {&calib_minmax, &calib_percentile, &calib_mse, &calib_kl,
                                         NULL};
const WeightQuantiser *const weight_quantisers[] = {
    &weight_rtn, &weight_gptq, &weight_awq, &weight_mse, &weight_hqq, &weight_imatrix, NULL};

const Calibrator *calibrator_find(const char *name)
{
    for (int i = 0; calibrators[i]; i++)
        if (strcmp(calibrators[i]->name, name) == 0)
            return calibrators[i];
    return NULL;
}

const WeightQuantiser *weight_quantiser_find(const char *name)
{
    for (int i = 0; weight_quantisers[i]; i++)
        if (strcmp(weight_quantisers[i]->name, name) == 0)
            return weight_quantisers[i];
    return NULL;
}
