/* SPDX-License-Identifier: MIT */
/* name_table: names and their addresses; immutable once it is built but for a note of what was asked for, and counted
 * by reference. */
#ifndef CELLGATE_AGENT_DIRECTORY_NAME_TABLE_H
#define CELLGATE_AGENT_DIRECTORY_NAME_TABLE_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

struct name_table;

/* Room for so many names whose texts have so many bytes, NULs included. NULL when out of memory. */
struct name_table *name_table_new(size_t count, size_t bytes);
/* In the order of strcmp. */
void name_table_add(struct name_table *table, const char *name, const struct address *addr);

struct name_table *name_table_retain(struct name_table *table);
void name_table_release(struct name_table *table); /* NULL is fine */
/* Any thread. False: the name is not (yet) resolved. table may be NULL. */
bool name_table_find(struct name_table *table, struct slice name, struct address *addr);
/* Any thread: calls `each` for what was found in it since the last call. table may be NULL. */
void name_table_used(struct name_table *table, void (*each)(void *context, const char *name), void *context);

#endif
