/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume/resume_table.h"

#include <stdlib.h>

struct resume_entry {
    struct resume_tunnel *tunnel;
    struct resume_table *table;
    struct resume_entry *next; /* a newer one */
    bool over;                 /* to be freed at the end of the turn */
};

static void remove_at(struct resume_table *table, struct resume_entry **at)
{
    struct resume_entry *e = *at;
    *at = e->next;
    table->count--;
    resume_tunnel_free(e->tunnel);
    free(e);
}

static void sweep(void *context)
{
    struct resume_table *table = context;
    for (struct resume_entry **at = &table->oldest; *at;)
        if ((*at)->over)
            remove_at(table, at);
        else
            at = &(*at)->next;
}

static void on_over(void *owner)
{
    struct resume_entry *e = owner;
    e->over = true;
    loop_defer(e->table->loop, &e->table->sweep);
}

void resume_table_init(struct resume_table *table, struct loop *loop, uint64_t grace, unsigned max)
{
    *table = (struct resume_table){.loop = loop, .grace = grace, .max = max};
    table->sweep = (struct loop_task){.run = sweep, .context = table};
}

void resume_table_free(struct resume_table *table)
{
    while (table->oldest)
        remove_at(table, &table->oldest);
}

struct resume_tunnel *resume_table_find(struct resume_table *table, struct slice scope, struct slice id)
{
    for (struct resume_entry *e = table->oldest; e; e = e->next)
        if (!e->over && resume_tunnel_is(e->tunnel, scope, id))
            return e->tunnel;
    return NULL;
}

bool resume_table_has_room(struct resume_table *table)
{
    struct resume_entry **at = &table->oldest;
    while (table->count == table->max && *at && !resume_tunnel_is_over((*at)->tunnel))
        at = &(*at)->next;
    if (table->count == table->max && *at)
        remove_at(table, at);
    return table->count < table->max;
}

struct resume_tunnel *resume_table_add(struct resume_table *table, struct running *session)
{
    struct resume_entry *e = calloc(1, sizeof *e), **end = &table->oldest;
    if (e)
        e->tunnel = resume_tunnel_new(table->loop, session, table->grace, on_over, e);
    if (!e || !e->tunnel) {
        free(e);
        return NULL;
    }
    e->table = table;
    while (*end)
        end = &(*end)->next;
    *end = e;
    table->count++;
    return e->tunnel;
}
