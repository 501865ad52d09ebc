/* SPDX-License-Identifier: MIT */
/*
 * resume_table: all tunnels of a session manager by their session's name. A tunnel that is over is remembered for some time; if the table is
 * full, the oldest of these is forgotten.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_TABLE_H
#define CELLGATE_WORKER_RESUME_RESUME_TABLE_H

#include "examples/worker/resume/resume_tunnel.h"

struct resume_entry;

struct resume_table {
    struct loop *loop;
    /* time in µs for which a tunnel may be away, and again for which it is remembered after its end */
    uint64_t grace;
    unsigned max;

    /* private */
    struct resume_entry *oldest;
    unsigned count;
    struct loop_task sweep;
};

void resume_table_init(struct resume_table *table, struct loop *loop, uint64_t grace, unsigned max);
void resume_table_free(struct resume_table *table);
struct resume_tunnel *resume_table_find(struct resume_table *table, struct slice scope, struct slice id);
/* Returns true if a tunnel may be added. Forgets an old one for that if necessary. */
bool resume_table_has_room(struct resume_table *table);
/* A tunnel for that session; NULL when out of memory. */
struct resume_tunnel *resume_table_add(struct resume_table *table, struct running *session);

#endif
