/* SPDX-License-Identifier: MIT */
/*
 * host_cache: the addresses of hosts outside, for programs in sandboxes. All addresses of a name are cached for its time to live, at
 * most 30 s, and all decision threads get the same ones: the address that was checked must be the one that is dialled. The cache holds
 * 4,096 names and evicts the least recently used one. At most 2,048 look-ups run at once: 32 of one sandbox, 256 of one owner, and of
 * either at most an eighth of the free places (spoa/base/table/fair.h). Beyond these limits the answer is that the look-up failed. An
 * expired answer is used for another 5 s while it is looked up again.
 *
 * A failed look-up is not cached: after a second, the next question starts another one. A look-up that takes longer than its askers wait
 * continues for a while, so that its answer serves those who try again.
 */
#ifndef CELLGATE_AGENT_STATE_HOST_CACHE_H
#define CELLGATE_AGENT_STATE_HOST_CACHE_H

#include "spoa/agent/model/record.h"
#include "spoa/base/table/fair.h"
#include "spoa/net/dns.h"

struct host_cache;

struct host_cache_options {
    struct loop *loop;    /* loop of the I/O thread */
    struct texts servers; /* borrowed; empty for the system's servers */
    uint64_t patience;    /* time that askers wait, in µs */
    /* Called on the I/O thread: the look-up of a name for these waiters has an answer, or failed. */
    void (*notify)(void *context, struct slice host, uint64_t waiters);
    void *context;
};

/* Makes a cache; call it on the loop's thread. Returns NULL and *why if memory is short, or a server is not an address. */
struct host_cache *host_cache_new(const struct host_cache_options *options, struct fail *why);
/* Call it on the loop's thread, when no decision thread uses the cache any more. cache may be NULL. */
void host_cache_free(struct host_cache *cache);

/* The asker of a look-up. */
struct host_cache_asker {
    struct slice sandbox;    /* key of the sandbox in the directory */
    struct fair_owner owner; /* owner of the sandbox; hash 0 if the sandbox is its own owner */
    uint64_t waiter;         /* bit of the asking thread, for LOOKUP_PENDING */
    bool last; /* the question has waited long enough: return LOOKUP_UNAVAILABLE instead of waiting */
};

/* For any thread; never waits. Returns at most DNS_ADDRESSES addresses; a larger *count means that there are more. After LOOKUP_PENDING,
 * `waiter` is notified. */
enum lookup host_cache_find(struct host_cache *cache, struct slice host, const struct host_cache_asker *asker,
                            struct address addresses[static DNS_ADDRESSES], size_t *count);

#endif
