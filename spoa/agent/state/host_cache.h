/* SPDX-License-Identifier: MIT */
/*
 * host_cache: the addresses of hosts outside, as programs in sandboxes name them. All of a name's addresses are kept, for
 * its time to live and 30 s at most, and given to all decision threads alike: the address that was checked is the one that
 * is dialled. There are 4,096 names; beyond that the one that was used longest ago goes. 2,048 are asked for at once, 32 of
 * one sandbox, 256 of one owner, and of neither more than an eighth of what is left (spoa/base/table/fair.h); who wants another one is told that
 * nobody can say. What is known is used on for 5 s beyond its time, while it
 * is asked for again.
 *
 * A failed look-up is no answer: it is asked again by whoever comes a second later. One that takes longer than anybody waits
 * goes on for a while: its answer is for who tries again.
 */
#ifndef CELLGATE_AGENT_STATE_HOST_CACHE_H
#define CELLGATE_AGENT_STATE_HOST_CACHE_H

#include "spoa/agent/model/record.h"
#include "spoa/base/table/fair.h"
#include "spoa/net/dns.h"

struct host_cache;

struct host_cache_options {
    struct loop *loop;    /* of the I/O thread */
    struct texts servers; /* borrowed; none: the system's */
    uint64_t patience;    /* microseconds that who asks waits */
    /* The I/O thread: a name that these waiters asked for is known now, or nobody could say. */
    void (*notify)(void *context, struct slice host, uint64_t waiters);
    void *context;
};

/* On the loop's thread. NULL and *why when out of memory, or a server is no address. */
struct host_cache *host_cache_new(const struct host_cache_options *options, struct fail *why);
/* On the loop's thread, when no decision thread uses it any more. NULL is fine. */
void host_cache_free(struct host_cache *cache);

/* Who asks. */
struct host_cache_asker {
    struct slice sandbox;    /* its key in the directory */
    struct fair_owner owner; /* of the sandbox; hash 0: itself */
    uint64_t waiter;         /* the bit of its thread, for LOOKUP_PENDING */
    bool last;               /* it has waited enough: LOOKUP_UNAVAILABLE instead */
};

/* Any thread, never waits: up to DNS_ADDRESSES addresses; *count is more: there are others. LOOKUP_PENDING: `waiter` is notified. */
enum lookup host_cache_find(struct host_cache *cache, struct slice host, const struct host_cache_asker *asker,
                            struct address addresses[static DNS_ADDRESSES], size_t *count);

#endif
