/* The plans of one file: each belongs to the target that its section names, since the target says
 * how weights are packed and so how large they are; and all of them have the same ports, symbols
 * and buckets, since a session checks its caller's tensors once, whatever device they go to. */
#include "artifact/artifact.h"

#include <string.h>

Plan *plan_load(const Artifact *a, const Section *s, IoError *err)
{
    const Section *weights = artifact_find(a, SECTION_WEIGHTS, NULL);
    Plan *plan = plan_decode(artifact_data(a, s), s->size, weights ? weights->size : 0, err);
    if (!plan || !strcmp(plan->target, s->name))
        return plan;
    plan_fail(err, "it is for the target \"%s\", but its section is called \"%s\"", plan->target,
              s->name);
    plan_free(plan);
    return NULL;
}

static bool same_type(const PlanTensor *a, const PlanTensor *b)
{
    bool same = a->fmt == b->fmt && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = plan_dim_equal(a->dim[i], b->dim[i]);
    return same;
}

static bool ports_agree(const Plan *a, const Plan *b, bool is_output, IoError *err)
{
    const PlanPort *p = is_output ? a->output : a->input, *q = is_output ? b->output : b->input;
    const char *word = is_output ? "output" : "input";
    int num = is_output ? a->num_outputs : a->num_inputs;
    int others = is_output ? b->num_outputs : b->num_inputs;
    if (num != others)
        return plan_fail(err, "the plan for %s has %d %ss, the one for %s %d", a->target, num, word,
                         b->target, others);
    for (int i = 0; i < num; i++) {
        if (strcmp(p[i].name, q[i].name))
            return plan_fail(err, "%s %d is \"%s\" for %s, but \"%s\" for %s", word, i, p[i].name,
                             a->target, q[i].name, b->target);
        if (!same_type(&a->tensor[p[i].tensor], &b->tensor[q[i].tensor]))
            return plan_fail(err, "the types of %s \"%s\" for %s and for %s differ", word,
                             p[i].name, a->target, b->target);
    }
    return true;
}

static bool buckets_agree(const Plan *a, const Plan *b, IoError *err)
{
    if (a->num_syms != b->num_syms || a->num_buckets != b->num_buckets)
        return plan_fail(err, "%d buckets of %d symbols for %s, but %d of %d for %s",
                         a->num_buckets, a->num_syms, a->target, b->num_buckets, b->num_syms,
                         b->target);
    for (int i = 0; i < a->num_syms; i++)
        if (strcmp(a->sym[i].name, b->sym[i].name))
            return plan_fail(err, "symbol %d is %s for %s, but %s for %s", i, a->sym[i].name,
                             a->target, b->sym[i].name, b->target);
    for (int i = 0; i < a->num_buckets; i++)
        for (int k = 0; k < a->num_syms; k++)
            if (plan_bucket(a, i)[k] != plan_bucket(b, i)[k])
                return plan_fail(err, "bucket %d: %s = %lld for %s, but %lld for %s", i,
                                 a->sym[k].name, (long long)plan_bucket(a, i)[k], a->target,
                                 (long long)plan_bucket(b, i)[k], b->target);
    return true;
}

bool plans_agree(const Plan *a, const Plan *b, IoError *err)
{
    return buckets_agree(a, b, err) && ports_agree(a, b, false, err) &&
           ports_agree(a, b, true, err);
}
