/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/host_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"

enum { NAMES_MOST = 4096, ASKED_MOST = 2048, ASKED_BY_SANDBOX = 32, ASKED_BY_OWNER = ASKED_MOST / 8 };
#define KEEP_LEAST  SECOND
#define KEEP_MOST   (30 * SECOND)
#define KEEP_FAILED SECOND
#define KEEP_STALE  (5 * SECOND)
#define LATE        (2 * SECOND)        /* time that a look-up continues after its asker's patience */
#define RESEND      (150 * MILLISECOND) /* short enough that a question can survive one or two lost datagrams */

struct host {
    struct hash_node node;
    struct host *newer, *older; /* list by last use */
    struct host_cache *cache;
    struct host *next_to_ask;
    uint64_t fresh_until,
        good_until; /* after fresh_until the name is looked up again, after good_until the answer is invalid */
    uint64_t waiters;
    bool asking; /* a look-up runs; the host must not be freed before its answer */
    /* places of the first asker; others who wait for the same name use none */
    struct fair_place of_sandbox, of_owner;
    struct fair_owner asker;
    enum lookup outcome;
    size_t count; /* above DNS_ADDRESSES if there are more */
    struct address addresses[DNS_ADDRESSES];
    size_t len;
    uint8_t name[];
};

struct host_cache {
    struct host_cache_options options;
    struct dns *dns;
    struct hash_secret secret;
    pthread_mutex_t lock; /* guards the members below */
    struct hash_table names;
    struct host *newest, *oldest;
    struct fair *sandboxes, *owners;   /* shares of the running look-ups */
    struct host *to_ask, **to_ask_end; /* queue for the I/O thread */
    struct loop_task ask;
};

/* ---- list by last use; the lock is held ---- */

static void unlink_host(struct host_cache *c, struct host *h)
{
    *(h->newer ? &h->newer->older : &c->newest) = h->older;
    *(h->older ? &h->older->newer : &c->oldest) = h->newer;
    h->newer = h->older = NULL;
}

static void link_newest(struct host_cache *c, struct host *h)
{
    h->older = c->newest;
    h->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = h;
    c->newest = h;
}

static void forget(struct host_cache *c, struct host *h)
{
    unlink_host(c, h);
    hash_table_remove(&c->names, &h->node);
    free(h);
}

static bool make_room(struct host_cache *c)
{
    struct host *h = c->oldest;
    while (c->names.count >= NAMES_MOST && h) {
        struct host *newer = h->newer;
        if (!h->asking)
            forget(c, h);
        h = newer;
    }
    return c->names.count < NAMES_MOST;
}

static struct host *host_find(const struct host_cache *c, struct slice name, uint64_t hash)
{
    for (struct hash_node *n = hash_table_find(&c->names, hash); n; n = hash_table_next(n)) {
        struct host *h = (struct host *)n;
        if (slice_equal(slice_of(h->name, h->len), name))
            return h;
    }
    return NULL;
}

static struct host *host_add(struct host_cache *c, struct slice name, uint64_t hash)
{
    struct host *h = make_room(c) ? calloc(1, sizeof *h + name.len) : NULL;
    if (!h)
        return NULL;
    if (!hash_table_insert(&c->names, &h->node, hash)) {
        free(h);
        return NULL;
    }
    h->cache = c;
    h->outcome = LOOKUP_UNAVAILABLE;
    h->len = name.len;
    memcpy(h->name, name.at, name.len);
    link_newest(c, h);
    return h;
}

/* ---- look-ups ---- */

/* The two shares of a look-up: the sandbox's, so that a greedy sandbox does not harm others of its owner, and the owner's, so that many
 * sandboxes get no more than one owner's share. */
struct askers {
    struct fair_owner sandbox, owner;
};

static struct askers askers_of(const struct host_cache *c, const struct host_cache_asker *asker)
{
    struct askers a;
    a.sandbox = (struct fair_owner){hash_keyed(&c->secret, asker->sandbox), FAIR_VERIFIED};
    a.owner = asker->owner.hash ? (struct fair_owner){asker->owner.hash, FAIR_VERIFIED} : a.sandbox;
    return a;
}

static bool may_ask(const struct host_cache *c, const struct askers *a)
{
    return fair_has_room(c->sandboxes, a->sandbox, 1) && fair_has_room(c->owners, a->owner, 1);
}

/* Starts a look-up; may_ask must have returned true under the same lock. */
static void want(struct host_cache *c, struct host *h, const struct askers *a)
{
    h->asking = fair_enter(c->sandboxes, &h->of_sandbox, a->sandbox, 1, 0) &&
                fair_enter(c->owners, &h->of_owner, a->owner, 1, 0);
    h->asker = a->owner;
    h->next_to_ask = NULL;
    *c->to_ask_end = h;
    c->to_ask_end = &h->next_to_ask;
    loop_post(c->options.loop, &c->ask);
}

static void take_answer(struct host *h, const struct dns_answer *answer)
{
    uint64_t now = loop_clock();
    if (answer->result == DNS_FAILED && h->outcome == LOOKUP_FOUND && now < h->good_until) {
        h->fresh_until = now + KEEP_FAILED;
        return;
    }
    uint64_t keep = answer->ttl > KEEP_MOST ? KEEP_MOST : answer->ttl < KEEP_LEAST ? KEEP_LEAST : answer->ttl;
    h->outcome = answer->result == DNS_FOUND    ? LOOKUP_FOUND
                 : answer->result == DNS_ABSENT ? LOOKUP_ABSENT
                                                : LOOKUP_UNAVAILABLE;
    h->count = answer->result == DNS_FOUND ? answer->count + answer->more : 0;
    memcpy(h->addresses, answer->addresses, answer->count * sizeof *h->addresses);
    h->fresh_until = now + (answer->result == DNS_FOUND ? keep : KEEP_FAILED);
    h->good_until = h->fresh_until + (answer->result == DNS_FOUND ? KEEP_STALE : 0);
}

static void on_answer(void *owner, const struct dns_answer *answer)
{
    struct host *h = owner;
    struct host_cache *c = h->cache;
    uint8_t name[256];
    pthread_mutex_lock(&c->lock);
    uint64_t waiters = h->waiters;
    size_t len = h->len;
    memcpy(name, h->name, len);
    take_answer(h, answer);
    h->waiters = 0;
    h->asking = false;
    fair_leave(c->sandboxes, &h->of_sandbox);
    fair_leave(c->owners, &h->of_owner);
    pthread_mutex_unlock(&c->lock);
    c->options.notify(c->options.context, slice_of(name, len), waiters);
}

static void ask_wanted(void *context)
{
    struct host_cache *c = context;
    static const struct dns_answer none = {.result = DNS_FAILED};
    pthread_mutex_lock(&c->lock);
    struct host *h = c->to_ask;
    c->to_ask = NULL;
    c->to_ask_end = &c->to_ask;
    pthread_mutex_unlock(&c->lock);
    while (h) { /* each host remains, and cannot be queued again, until its answer */
        struct host *next = h->next_to_ask;
        if (!dns_ask(c->dns, slice_of(h->name, h->len), h->asker, on_answer, h))
            on_answer(h, &none);
        h = next;
    }
}

enum lookup host_cache_find(struct host_cache *c, struct slice name, const struct host_cache_asker *asker,
                            struct address addresses[static DNS_ADDRESSES], size_t *count)
{
    const struct askers by = askers_of(c, asker);
    uint64_t hash = hash_keyed(&c->secret, name), now = loop_clock();
    enum lookup outcome = LOOKUP_UNAVAILABLE;
    *count = 0;
    if (name.len == 0 || name.len > 255)
        return LOOKUP_ABSENT;
    pthread_mutex_lock(&c->lock);
    struct host *h = host_find(c, name, hash);
    if (!h && may_ask(c, &by))
        h = host_add(c, name, hash);
    if (h) {
        unlink_host(c, h);
        link_newest(c, h);
        if (h->fresh_until <= now && !h->asking && may_ask(c, &by))
            want(c, h, &by);
        if (h->good_until > now) {
            outcome = h->outcome;
            *count = h->count;
            memcpy(addresses, h->addresses,
                   (h->count < DNS_ADDRESSES ? h->count : DNS_ADDRESSES) * sizeof *addresses);
        } else if (h->asking && !asker->last) {
            h->waiters |= asker->waiter;
            outcome = LOOKUP_PENDING;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return outcome;
}

/* ---- start and end ---- */

static void free_shares(struct host_cache *c)
{
    if (c) {
        free(c->sandboxes);
        free(c->owners);
    }
    free(c);
}

struct host_cache *host_cache_new(const struct host_cache_options *options, struct fail *why)
{
    struct host_cache *c = calloc(1, sizeof *c);
    /* exact, because search lists and /etc/hosts of this machine must not apply to hosts outside */
    const struct dns_options dns = {
        .servers = options->servers, .exact = true, .timeout = options->patience + LATE, .resend = RESEND};
    const struct fair_limits of_sandbox = {.places = ASKED_MOST, .each = ASKED_BY_SANDBOX},
                             of_owner = {.places = ASKED_MOST, .each = ASKED_BY_OWNER};
    bool good = c && hash_secret_init(&c->secret) && (c->sandboxes = fair_new(&of_sandbox)) &&
                (c->owners = fair_new(&of_owner));
    if (!good) {
        fail(why, "out of memory");
        free_shares(c);
        return NULL;
    }
    c->options = *options;
    c->to_ask_end = &c->to_ask;
    c->ask = (struct loop_task){.run = ask_wanted, .context = c};
    pthread_mutex_init(&c->lock, NULL);
    c->dns = dns_new(options->loop, &dns, why);
    if (c->dns)
        return c;
    host_cache_free(c);
    return NULL;
}

void host_cache_free(struct host_cache *c)
{
    if (!c)
        return;
    dns_free(c->dns); /* calls back for all running look-ups */
    while (c->oldest)
        forget(c, c->oldest);
    hash_table_free(&c->names);
    pthread_mutex_destroy(&c->lock);
    free_shares(c);
}
