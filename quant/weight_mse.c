/* Weight quantiser mse: each block's range is narrowed to where its squared error is least. */
#include "quant/weights.h"

static const char *mse_run(QTensor *q, FormatId src_fmt, const void *src, const WeightStats *stats,
                           const WeightArgs *args)
{
    (void)stats;
    (void)args;
    ClipTarget target = {.cols = q->cols};
    return weight_clip_search(q, src_fmt, src, &target);
}

static const char *const no_args[] = {NULL};

const WeightQuantiser weight_mse = {
    .name = "mse",
    .describe = "clips each block's range where that lowers the squared error",
    .row_by_row = true,
    .arg_names = no_args,
    .run = mse_run,
};
