/* SPDX-License-Identifier: MIT */
/*
 * waits: questions that are answered later than they came: the relays' watches, and whatever needs a record
 * that is being looked up. Each has a ticket, the key of its sandbox, and a copy of the message's arguments;
 * its time is the same for all of one `waits`. For one thread: a decider's.
 */
#ifndef CELLGATE_AGENT_WAITS_H
#define CELLGATE_AGENT_WAITS_H

#include "spoa/agent/server.h"
#include "spoa/lib/hash.h"

struct waits;

struct wait {
    struct server_ticket ticket;
    struct slice key;
    struct spop_args args;
    uint64_t begun; /* loop_clock */
    int kind;       /* the owner's */
    void *pinned;   /* the owner's */
};

struct waits_options {
    struct loop *loop;
    double seconds;          /* until a question is due */
    size_t most, most_bytes; /* questions, and memory of their texts */
    /* Its time is over: it is to be answered. */
    void (*due)(void *context, const struct wait *wait);
    /* It is not kept any more, for whatever reason. May be NULL. */
    void (*gone)(void *context, const struct wait *wait);
    void *context;
};

/* NULL when out of memory. */
struct waits *waits_new(const struct waits_options *options);
void waits_free(struct waits *waits); /* answers nothing; NULL is fine */
/* Copies key and arguments. It has not begun before the one that was added last: they end in that order. False
 * when out of memory or full: answer at once then. */
bool waits_add(struct waits *waits, const struct wait *wait);
/* Those of a key, or all: `news` returns true when it has answered, and false to keep the question. */
typedef bool waits_news(void *context, struct wait *wait);
void waits_look_at(struct waits *waits, struct slice key, waits_news *news);
void waits_look(struct waits *waits, waits_news *news);
/* The time of the question with this ticket is over now. False: there is none. */
bool waits_end(struct waits *waits, const struct server_ticket *ticket);
size_t waits_count(const struct waits *waits);

#endif
