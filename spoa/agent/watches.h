/* SPDX-License-Identifier: MIT */
/*
 * watches: the relay's questions (`cell-watch`) that wait for news: answered when the record's epoch or the
 * tunnel's authorisation differs from what the relay knows, at the latest after 60 seconds. One per decider
 * thread and server.
 */
#ifndef CELLGATE_AGENT_WATCHES_H
#define CELLGATE_AGENT_WATCHES_H

#include "spoa/agent/resolve.h"
#include "spoa/agent/server.h"

#define WATCH_SECONDS 60

struct watches;

struct watches_options {
    struct loop *loop;
    /* Answers the ticket; the question is gone when it returns. */
    void (*answer)(void *context, const struct server_ticket *ticket,
                   const struct resolve_question *question);
    void *context;
};

/* NULL when out of memory. */
struct watches *watches_new(const struct watches_options *options);
void watches_free(struct watches *watches); /* answers nothing; NULL is fine */
/* Copies what it keeps. False when out of memory: answer at once then. */
bool watches_add(struct watches *watches, const struct server_ticket *ticket,
                 const struct resolve_question *question);
/* Answers those for which `news` is true. */
void watches_look(struct watches *watches,
                  bool (*news)(void *context, const struct resolve_question *question));
size_t watches_count(const struct watches *watches);

#endif
