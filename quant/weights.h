/* The weight quantisers of this room, one a file; tables.c lists them. */
#ifndef SINTER_QUANT_WEIGHTS_H
#define SINTER_QUANT_WEIGHTS_H

#include "quant/quant.h"

extern const WeightQuantiser weight_rtn;

#endif
