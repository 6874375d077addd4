/* What the files of ir/ share and nobody else sees. */
#ifndef SINTER_IR_INTERNAL_H
#define SINTER_IR_INTERNAL_H

#include "ir/ir.h"

/* type.c: "i8{sym per row}", as in types; what rules ask for prints in their words for a row,
 * "channel" and "token". */
void scheme_put(Sb *sb, const Scheme *scheme, const char *row);
/* The module's own type equal to this one; the same pointer when it was interned here. */
const Type *type_make_same(Module *m, const Type *type);

/* valuemap.c: a pointer beside a value; NULL where none was put. */
typedef struct ValueMap ValueMap;
ValueMap *valuemap_create(Arena *arena);
void valuemap_reserve(ValueMap *map, size_t num); /* room for num values without growing */
void *valuemap_get(const ValueMap *map, const Value *value);
void valuemap_put(ValueMap *map, const Value *value, void *data);

/* verify.c: why this op cannot stand where it does or have that many results (static text), or
 * NULL. Looks at the op and what precedes it only. */
const char *op_place_problem(const Op *op);
int op_num_results(const Op *op);   /* by its kind; of a kernel: as many as it has, at least 1 */
bool const_bytes_fit(const Op *op); /* data have the size of the type */

/* print.c: how enums print. */
#define NUM_PLACES 3
#define NUM_MODES  4
extern const char *const place_name[NUM_PLACES];
extern const char *const mode_name[NUM_MODES];

/* names.c: what each value of a module prints as, without the %. */
typedef struct ValueNames ValueNames;
ValueNames *names_create(Arena *arena, const Block *block);
const char *names_get(const ValueNames *names, const Value *value);
bool name_is_word(const char *text); /* a letter or _, then letters, digits, _ and . */

#endif
