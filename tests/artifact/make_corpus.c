/* make_corpus <folder>: the seeds of fuzz_plan and fuzz_artifact, from the models made by hand. */
#include "models.h"

#include <stdio.h>

static bool write_seed(const char *folder, const char *name, const TestModel *m)
{
    char path[512];
    Bytes plan;
    IoError err;
    snprintf(path, sizeof path, "%s/artifact/%s", folder, name);
    if (!model_write(m, path, "stub", 4) || !plan_encode(&m->plan, &plan))
        return false;
    snprintf(path, sizeof path, "%s/plan/%s", folder, name);
    OutFile *out = outfile_create(path, 0644, &err);
    bool ok = out && outfile_write(out, plan.data, plan.size);
    ok = out && outfile_finish(out, &err) && ok;
    bytes_free(&plan);
    return ok;
}

int main(int argc, char **argv)
{
    TestModel f, q, r, g;
    if (argc != 2)
        return 2;
    model_float(&f);
    model_int8(&q);
    model_routed(&r);
    model_grouped(&g);
    bool ok = write_seed(argv[1], "float", &f) && write_seed(argv[1], "int8", &q) &&
              write_seed(argv[1], "routed", &r) && write_seed(argv[1], "grouped", &g);
    model_free(&f);
    model_free(&q);
    model_free(&r);
    model_free(&g);
    return !ok;
}
