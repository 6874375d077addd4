/* The calibrators of this room, one a file; tables.c lists them. */
#ifndef SINTER_QUANT_CALIB_H
#define SINTER_QUANT_CALIB_H

#include "quant/quant.h"

extern const Calibrator calib_minmax, calib_percentile;

#endif
