/* The table of tensor names: open addressing, at most half full. */
#include "io/tensors.h"

#include <stdlib.h>
#include <string.h>

static uint32_t find_slot(const NameTable *table, const char *name)
{
    uint32_t mask = table->num_slots - 1;
    uint32_t at = (uint32_t)hash_keyed(name, strlen(name)) & mask;
    while (table->slot[at] && strcmp(table->view[table->slot[at] - 1]->name, name) != 0)
        at = (at + 1) & mask;
    return at;
}

const TensorView *names_find(const NameTable *table, const char *name)
{
    if (!table->num_slots)
        return NULL;
    uint32_t at = find_slot(table, name);
    return table->slot[at] ? table->view[table->slot[at] - 1] : NULL;
}

static bool grow(NameTable *table)
{
    uint32_t num_slots = table->num_slots ? table->num_slots * 2 : 64;
    uint32_t *slot = calloc(num_slots, sizeof *slot);
    const TensorView **view = realloc(table->view, num_slots / 2 * sizeof *view);
    if (view)
        table->view = view;
    if (!slot || !view) {
        free(slot);
        return false;
    }
    free(table->slot);
    table->slot = slot;
    table->num_slots = num_slots;
    for (uint32_t i = 0; i < table->num; i++)
        slot[find_slot(table, table->view[i]->name)] = i + 1;
    return true;
}

bool names_add(NameTable *table, const TensorView *view)
{
    if (table->num >= table->num_slots / 2 && !grow(table))
        return false;
    uint32_t at = find_slot(table, view->name);
    table->view[table->num++] = view;
    table->slot[at] = table->num;
    return true;
}

void names_free(NameTable *table)
{
    free(table->view);
    free(table->slot);
    *table = (NameTable){0};
}
