/* The program stub that every compiled file starts with, embedded by the build. */
#ifndef SINTER_STUB_H
#define SINTER_STUB_H

#include <stddef.h>

extern const unsigned char sinter_stub[];
extern const size_t sinter_stub_size;

#endif
