/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/name_table.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/base/table/references.h"

struct name {
    const char *text; /* in the table's memory */
    struct address addr;
    atomic_bool used; /* found since the last name_table_used */
};

struct name_table {
    atomic_uint references;
    size_t count;
    char *texts_end;     /* where the next text goes */
    struct name names[]; /* sorted by text; the texts follow in the same memory */
};

struct name_table *name_table_retain(struct name_table *table)
{
    references_add(&table->references);
    return table;
}

void name_table_release(struct name_table *table)
{
    if (table && references_drop(&table->references))
        free(table);
}

/* Orders like strcmp, with a slice that has no NUL. */
static int compare(struct slice a, const char *b)
{
    int order = a.len ? strncmp((const char *)a.at, b, a.len) : 0;
    return order ? order : -(int)(b[a.len] != '\0');
}

void name_table_used(struct name_table *table, void (*each)(void *context, const char *name), void *context)
{
    for (size_t i = 0; table && i < table->count; i++)
        if (atomic_load_explicit(&table->names[i].used, memory_order_relaxed)) {
            atomic_store_explicit(&table->names[i].used, false, memory_order_relaxed);
            each(context, table->names[i].text);
        }
}

bool name_table_find(struct name_table *table, struct slice name, struct address *addr)
{
    size_t low = 0, high = table ? table->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(name, table->names[middle].text);
        if (order == 0) {
            *addr = table->names[middle].addr;
            /* written only if it is clear, so that threads that find the same name do not contend for its cache line */
            if (!atomic_load_explicit(&table->names[middle].used, memory_order_relaxed))
                atomic_store_explicit(&table->names[middle].used, true, memory_order_relaxed);
            return addr->family != 0;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

struct name_table *name_table_new(size_t count, size_t bytes)
{
    size_t size = sizeof(struct name_table) + count * sizeof(struct name);
    struct name_table *table = malloc(size + bytes);
    if (!table)
        return NULL;
    table->references = 1;
    table->count = 0;
    table->texts_end = (char *)table + size;
    return table;
}

void name_table_add(struct name_table *table, const char *name, const struct address *addr)
{
    size_t size = strlen(name) + 1;
    memcpy(table->texts_end, name, size);
    table->names[table->count++] = (struct name){table->texts_end, *addr, false};
    table->texts_end += size;
}
