/* Cases for formats by what their codes are, so that a row of formats.def is enough where code is
 * the same for all of a kind:
 *
 *   #define FORMAT(ID, name, bits, family, ...) EACH_CODED(CASE, ID, family)
 *   #include "numerics/formats.def"
 *   #undef FORMAT
 *
 * EACH_CODED: minifloats and codebooks, which num_encode makes. EACH_BYTE: minifloats of a byte. */
#ifndef SINTER_NUMERICS_EACH_H
#define SINTER_NUMERICS_EACH_H

#define EACH_CODED(CASE, ID, family) EACH_CODED_##family(CASE, ID)
#define EACH_CODED_FLOAT(CASE, ID)
#define EACH_CODED_INT(CASE, ID)
#define EACH_CODED_MINIFLOAT(CASE, ID) CASE(ID)
#define EACH_CODED_CODEBOOK(CASE, ID)  CASE(ID)

#define EACH_BYTE(CASE, ID, bits, family) EACH_BYTE_##family(CASE, ID, bits)
#define EACH_BYTE_FLOAT(CASE, ID, bits)
#define EACH_BYTE_INT(CASE, ID, bits)
#define EACH_BYTE_CODEBOOK(CASE, ID, bits)
#define EACH_BYTE_MINIFLOAT(CASE, ID, bits) EACH_BYTE_##bits(CASE, ID)
#define EACH_BYTE_4(CASE, ID)
#define EACH_BYTE_8(CASE, ID) CASE(ID)

#endif
