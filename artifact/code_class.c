/* The kinds of GPUs that share code. A row more is a kind more: codegen asks the table what to
 * compile for and what a block may have, the runtime which plan a GPU takes. */
#include "artifact/artifact.h"

#include <string.h>

#define EVERY_NEWER INT32_MAX

const CodeClass code_classes[NUM_CODE_CLASSES] = {
    {"sm_90a", "H100, H200: instructions that no other GPU has", 90, 90, "sm_90a", 227, 132},
    {"portable", "A100, RTX 30 and newer, as PTX", 80, EVERY_NEWER, "compute_80", 99, 108},
    {"turing", "T4, RTX 20 and newer, as PTX", 75, EVERY_NEWER, "compute_75", 64, 40},
};

const CodeClass *code_class_find(const char *name)
{
    for (int i = 0; i < NUM_CODE_CLASSES; i++)
        if (!strcmp(code_classes[i].name, name))
            return &code_classes[i];
    return NULL;
}

bool code_class_serves(const CodeClass *c, int capability)
{
    return capability >= c->from && capability <= c->to;
}

const CodeClass *code_class_for(int capability)
{
    for (int i = 0; i < NUM_CODE_CLASSES; i++)
        if (code_class_serves(&code_classes[i], capability))
            return &code_classes[i];
    return NULL;
}
