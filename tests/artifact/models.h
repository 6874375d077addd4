/* Small compiled models made by hand, so that plans, files and the runtime are tested without the
 * compiler. All values are small integers or powers of two: expected results are exact. */
#ifndef TEST_MODELS_H
#define TEST_MODELS_H

#include "artifact/artifact.h"

#define MODEL_K 8
#define MODEL_N 16
#define MODEL_E 4 /* groups of model_grouped */

typedef struct TestModel {
    Plan plan;
    uint8_t *weights; /* aligned to 64 */
    uint64_t weights_bytes;
    float w[MODEL_N][MODEL_K], bias[MODEL_N];
} TestModel;

/* x: f32[B, 8] -> y = 2 * relu(x * w^T + bias): f32[B, 16], z = the same as [B, 8, 2] transposed to
 * [B, 2, 8] pairs; B in [1, 4, 16]. One launch of each family. */
void model_float(TestModel *m);
/* x: f32[B, 8] -> y: f32[B, 16]; i8 per token dynamic times i8 per channel, scale 0.5, and bias. */
void model_int8(TestModel *m);
/* x: f32[B, 8], s: f32[B, 4] -> y: f32[B, 16]: each row goes to the groups of its two largest
 * numbers in s, of which each has a weight, a bias and a row of factors: relu(x * w^T + bias) *
 * factor, weighed by these numbers. Group g has g + 1 times the weight of model_float, and factors
 * 1 / (g + 1). */
enum { GROUPED_TENSORS = 18, GROUPED_LAUNCHES = 8 };
void model_grouped(TestModel *m);
/* x: f32[B, 16], logits: f32[B, 4] -> y: f32[B, 16]: each row goes to the groups of its two largest
 * logits and comes back times their sum. One launch of each step of routing, then two of tiles that
 * read rows by an index; no weights. */
void model_routed(TestModel *m);
void model_free(TestModel *m);

/* What model_float and model_int8 (activations that are integers up to 127 and reach it) compute.
 */
void model_expect(const TestModel *m, float factor, bool relu, const float *x, int64_t rows,
                  float *y);
/* A compiled file with this plan; false after printing why. */
bool model_write(const TestModel *m, const char *path, const void *stub, size_t stub_size);
/* Two plans in one file, in the sections "cpu" and "portable" whatever they say, over the weights
 * of the larger one; cuda may be NULL. */
bool model_write_both(const TestModel *cpu, const TestModel *cuda, const char *path,
                      const void *stub, size_t stub_size);

#endif
