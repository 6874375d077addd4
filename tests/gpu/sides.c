/* Tensors of a model's ports; see sides.h. */
#include "tests/gpu/sides.h"
#include "tests/random/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void side_free(Side *side)
{
    for (int i = 0; i < side->num; i++)
        free(side->data[i]);
    *side = (Side){.num = 0};
}

bool side_make(const SinterModel *model, bool is_output, const int64_t *size, Side *ret)
{
    SinterError err;
    int num = is_output ? sinter_num_outputs(model) : sinter_num_inputs(model);
    *ret = (Side){.num = 0};
    for (int i = 0; i < num && i < SIDE_PORTS; i++) {
        SinterTensor *t = &ret->tensor[i];
        uint64_t elements;
        if (sinter_port_shape(model, is_output, i, size, t, &err) ||
            !checked_elements(t->dim, t->rank, &elements))
            return false;
        ret->bytes[i] = elements * (uint64_t)format_info[format_of_dtype(t->dtype)].bits / 8;
        t->data = ret->data[i] = calloc(1, (size_t)ret->bytes[i] + 4);
        ret->num = i + 1;
    }
    return true;
}

static void put_odd(Odd odd, float *row, int64_t num, uint64_t at)
{
    static const float factor[] = {
        [ODD_NONE] = 1, [ODD_ZEROS] = 0, [ODD_DENORMAL] = 0x1p-140f, [ODD_LARGE] = 0x1p40f};
    for (int64_t i = 0; i < num && odd <= ODD_LARGE; i++)
        row[i] *= factor[odd];
    if (odd > ODD_LARGE)
        row[at % (uint64_t)num] = odd == ODD_NAN ? NAN : at % 2 ? INFINITY : -INFINITY;
}

void side_fill(Side *side, uint64_t seed, Odd odd)
{
    for (int i = 0; i < side->num; i++) {
        SinterTensor *t = &side->tensor[i];
        FormatId fmt = format_of_dtype(t->dtype);
        uint64_t num = side->bytes[i] / ((uint64_t)format_info[fmt].bits / 8);
        int64_t cols = t->rank ? t->dim[t->rank - 1] : 1;
        if (fmt == FMT_I32) { /* counts of rows: many, all, none, and what is no count */
            for (uint64_t k = 0; k < num; k++)
                ((int32_t *)t->data)[k] = (int32_t)(random_next(&seed) >> 8) % 256 / 2 - 8;
            continue;
        }
        float *value = malloc(4 * (size_t)num + 4);
        for (uint64_t k = 0; k < num; k++)
            value[k] = (float)(2 * random_normal(&seed));
        if (num)
            put_odd(odd, value + num - (uint64_t)cols, cols, random_next(&seed) >> 8);
        format_from_f32(fmt, value, t->data, num);
        free(value);
    }
}

void side_poison(Side *side)
{
    for (int i = 0; i < side->num; i++)
        memset(side->data[i], 0xa5, (size_t)side->bytes[i]);
}

static float number(FormatId fmt, const void *data, uint64_t at)
{
    float v = 0;
    format_to_f32(fmt, (const uint8_t *)data + at * (uint64_t)format_info[fmt].bits / 8, &v, 1);
    return v;
}

const char *side_difference(const Side *a, const Side *b, char *text, size_t size)
{
    for (int i = 0; i < a->num; i++) {
        FormatId fmt = format_of_dtype(a->tensor[i].dtype);
        uint64_t each = (uint64_t)format_info[fmt].bits / 8, num = a->bytes[i] / each;
        if (memcmp(a->data[i], b->data[i], (size_t)a->bytes[i]) == 0)
            continue;
        for (uint64_t k = 0; k < num; k++) {
            const char *x = a->tensor[i].data, *y = b->tensor[i].data;
            if (!memcmp(x + k * each, y + k * each, each) ||
                (isnan(number(fmt, x, k)) && isnan(number(fmt, y, k))))
                continue;
            snprintf(text, size, "output %s, element %" PRIu64 " of %" PRIu64 ": %.9g, %.9g",
                     a->tensor[i].name, k, num, (double)number(fmt, x, k),
                     (double)number(fmt, y, k));
            return text;
        }
    }
    return NULL;
}

double side_nmse(const Side *want, const Side *got)
{
    double worst = 0;
    for (int i = 0; i < want->num; i++) {
        FormatId fmt = format_of_dtype(want->tensor[i].dtype);
        uint64_t num = want->bytes[i] / ((uint64_t)format_info[fmt].bits / 8);
        double error = 0, all = 0;
        for (uint64_t k = 0; k < num; k++) {
            double a = (double)number(fmt, want->tensor[i].data, k);
            double b = (double)number(fmt, got->tensor[i].data, k);
            if (!isfinite(a) || !isfinite(b))
                continue;
            error += (a - b) * (a - b);
            all += a * a;
        }
        double e = error == 0 ? 0 : all == 0 ? INFINITY : error / all;
        worst = e > worst ? e : worst;
    }
    return worst;
}
