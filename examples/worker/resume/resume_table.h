/* SPDX-License-Identifier: MIT */
/*
 * resume_table: all tunnels of a session manager by their session's name, also those that are over, for as long as they
 * are remembered. When it is full the oldest of these is forgotten.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_TABLE_H
#define CELLGATE_WORKER_RESUME_RESUME_TABLE_H

#include "examples/worker/resume/resume_tunnel.h"

struct resume_entry;

struct resume_table {
    struct loop *loop;
    /* microseconds in which a tunnel may come back, and then as many in which it is remembered */
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
/* Whether one may be added; forgets one for it if need be. */
bool resume_table_has_room(struct resume_table *table);
/* A tunnel for that session; NULL when out of memory. */
struct resume_tunnel *resume_table_add(struct resume_table *table, struct running *session);

#endif
