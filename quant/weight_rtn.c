/* Weight quantiser rtn: scales from each block's range, codes by rounding to nearest. */
#include "quant/weights.h"

static const char *rtn_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                           const WeightArgs *args)
{
    (void)stats;
    (void)args;
    quantize_rtn(q, src_fmt, src);
    return NULL;
}

static const char *const no_args[] = {NULL};

const WeightQuantiser weight_rtn = {
    .name = "rtn",
    .describe = "round to nearest, scales from each block's range",
    .row_by_row = true,
    .arg_names = no_args,
    .run = rtn_run,
};
