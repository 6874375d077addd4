/* The destructor of the capsules in which Tensor.__dlpack__ hands tensors out: what no consumer
 * took over, and so renamed, is freed. The interpreter runs it whenever a capsule ends, also while
 * an exception is on its way, when Python code must not run; so it is not written in Python. The
 * two functions are of the stable ABI, and come from the interpreter that loads this: no header,
 * and one binary for all versions. */
#include "runtime/sinter_dlpack.h"

typedef struct _object PyObject;
extern int PyCapsule_IsValid(PyObject *capsule, const char *name);
extern void *PyCapsule_GetPointer(PyObject *capsule, const char *name);

SINTER_API void sinter_capsule_end(PyObject *capsule);

void sinter_capsule_end(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *t = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        t->deleter(t);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *t = PyCapsule_GetPointer(capsule, "dltensor");
        t->deleter(t);
    }
}
