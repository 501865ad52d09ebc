/* SPDX-License-Identifier: MIT */
/* name_table: names and their addresses, counted by reference. Immutable once it is built, except for a mark on each name that was
 * asked for. */
#ifndef CELLGATE_AGENT_DIRECTORY_NAME_TABLE_H
#define CELLGATE_AGENT_DIRECTORY_NAME_TABLE_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

struct name_table;

/* Returns a table with room for `count` names of `bytes` bytes in all, NULs included, or NULL if memory is short. */
struct name_table *name_table_new(size_t count, size_t bytes) MUST_CHECK;
/* Adds a name. Names must come in the order of strcmp, and within the room of name_table_new. An address of family 0 stands for a name
 * that is not resolved. */
void name_table_add(struct name_table *table, const char *name, const struct address *addr);

/* Take and drop a reference; NULL may be released. */
struct name_table *name_table_retain(struct name_table *table);
void name_table_release(struct name_table *table);
/* Looks up `name` and marks it as used; any thread may call this. Returns false if the name is not resolved (yet). `table` may be
 * NULL. */
bool name_table_find(struct name_table *table, struct slice name, struct address *addr);
/* Calls `each` for each name that was found since the last call, and clears the marks; any thread may call this. `table` may be NULL. */
void name_table_used(struct name_table *table, void (*each)(void *context, const char *name), void *context);

#endif
