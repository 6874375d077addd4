/* import: what its two kinds share. */
#ifndef SINTER_IMPORT_H
#define SINTER_IMPORT_H

#include "driver/work.h"

bool is_onnx(const char *path); /* by its name: the file itself has no mark */
int import_onnx(Cli *cli, const char *path);

#endif
