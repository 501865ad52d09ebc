/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/limits.h"

#include "spoa/base/bytes/writer.h"
#include "spoa/base/table/client_site.h"
#include "spoa/base/table/fair.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>

enum {
    SHARDS = 64,
    WHOLE_PART = 4,    /* divisor of memory, for messages that must become complete */
    TUNNEL_PART = 4,   /* divisor of free memory: the largest part of one tunnel */
    GIVEN_PART = 16,   /* divisor of memory: the most freed in one round */
    FULL_PART = 8,     /* divisor of memory: with less than this free, an owner may fill its share alone */
    WANTED_MORE = 8192 /* bytes beyond the held ones, which give a waiting tunnel room for 4096 bytes */
};

/* The counters of one name: for a sandbox, organisation or token the number of tunnels; for an owner the number of uses, the bytes that
 * they hold, and the number of replays that they collect. */
struct limits_holder {
    /* member `of`: the holder of all unauthenticated clients; NULL unless this is one of them */
    struct limits_holder *next, *of;
    uint64_t tunnels, uses;
    uint32_t replays; /* guarded by limits.replays_lock */
    _Atomic uint64_t held;
    size_t len;
    uint8_t name[];
};

/* The number of chained buckets per shard. The number of sandboxes with tunnels in one process is small. */
enum { BUCKETS = 256 };

struct shard {
    pthread_mutex_t lock;
    struct limits_holder *buckets[BUCKETS];
};

struct limits {
    _Atomic uint64_t tunnels_most, most[LIMIT_COUNT], memory;
    _Atomic uint64_t tunnels;
    pthread_mutex_t replays_lock;
    _Atomic uint32_t replays; /* changed with replays_lock only */
    _Atomic int64_t held;
    /* the number of owners that hold memory; bytes that waiting tunnels need */
    _Atomic uint64_t owners, wanted;
    _Atomic uint64_t above; /* sum of the bytes above LIMITS_LEAST of each tunnel */
    struct hash_secret secret;
    struct shard shards[SHARDS];
    _Atomic uint64_t nobody_wants; /* bytes that waiting unauthenticated clients need */
    struct limits_holder nobody;   /* all unauthenticated clients; last, because `name` has no length */
};

const char *const limit_names[] = {
#define X(name) #name,
    LIMITS(X)
#undef X
        "tunnels",
    NULL};

void limits_client_name(const struct limits *l, const struct address *source, char name[LIMITS_CLIENT_NAME])
{
    const struct address site = client_site(source, &l->secret);
    inet_ntop(site.family == 6 ? AF_INET6 : AF_INET, site.bytes, name, LIMITS_CLIENT_NAME);
}

void limits_set(struct limits *l, const struct limits_settings *s)
{
    l->tunnels_most = s->tunnels;
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        l->most[i] = s->most[i];
    l->memory = s->memory;
}

struct limits *limits_new(const struct limits_settings *s)
{
    struct limits *l = calloc(1, sizeof *l);

    if (!l || !hash_secret_init(&l->secret)) {
        free(l);
        return NULL;
    }
    pthread_mutex_init(&l->replays_lock, NULL);
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&l->shards[i].lock, NULL);
    limits_set(l, s);
    return l;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        for (size_t k = 0; k < BUCKETS; k++) {
            for (struct limits_holder *h = l->shards[i].buckets[k], *next; h; h = next) {
                next = h->next;
                free(h);
            }
        }
        pthread_mutex_destroy(&l->shards[i].lock);
    }
    pthread_mutex_destroy(&l->replays_lock);
    free(l);
}

/* ---- one name ---- */
static struct limits_holder **find(struct shard *shard, uint64_t hash, struct slice name)
{
    struct limits_holder **at = &shard->buckets[hash / SHARDS % BUCKETS];

    while (*at && !slice_equal(slice_of((*at)->name, (*at)->len), name))
        at = &(*at)->next;
    return at;
}

/* Returns a new holder, or NULL if memory is short. */
static struct limits_holder *new_holder(struct slice name)
{
    struct limits_holder *holder = calloc(1, sizeof *holder + name.len);

    if (holder) {
        holder->len = name.len;
        memcpy(holder->name, name.at, name.len);
    }
    return holder;
}

static enum limit count_up(struct limits_holder **at, struct slice name, uint64_t most, enum limit limit)
{
    if (!*at && !(*at = new_holder(name)))
        return LIMIT_MEMORY;
    if (most && (*at)->tunnels >= most)
        return limit;
    (*at)->tunnels++;
    return LIMIT_NONE;
}

static void count_down(struct limits_holder **at)
{
    struct limits_holder *holder = *at;

    if (!holder || --holder->tunnels)
        return;
    *at = holder->next;
    free(holder);
}

/* Locks the shard of a name. Returns the link to the name's holder, or to NULL if there is none. */
static struct limits_holder **lock(struct limits *l, struct slice name, struct shard **shard)
{
    uint64_t hash = hash_keyed(&l->secret, name);

    *shard = &l->shards[hash % SHARDS];
    pthread_mutex_lock(&(*shard)->lock);
    return find(*shard, hash, name);
}

/* ---- names: "s" or, of egress, "e" or "u" and namespace "/" sandbox, "o" or "f" organisation, "t" token, "r", "x", "m",
 * "c" client, "n"; of an owner "S" and namespace "/" sandbox, "O" organisation, "C" client ---- */
enum { NAME_MAX_BYTES = 1024 };

static void put_sandbox(struct writer *w, const char *kind, struct slice space, struct slice sandbox)
{
    writer_text(w, kind);
    if (!slice_is(space, "default"))
        writer_put(w, space);
    writer_text(w, "/");
    writer_put(w, sandbox);
}

/* Writes the name counted under this limit. Returns false if the owner is not counted there. */
static bool put_name(struct writer *w, const struct limits_owner *owner, enum limit limit)
{
    switch (limit) {
    case LIMIT_sandbox:
        put_sandbox(w, owner->inside ? "u" : owner->egress ? "e" : "s", owner->space, owner->sandbox);
        return owner->sandbox.len > 0;
    case LIMIT_org:
        writer_text(w, owner->egress ? "f" : "o");
        writer_put(w, owner->org);
        return owner->org.len > 0;
    case LIMIT_token:
        writer_text(w, "t");
        writer_put(w, owner->token);
        return owner->token.len > 0;
    case LIMIT_refused:
        writer_text(w, "r");
        return owner->refused;
    case LIMIT_egress:
        writer_text(w, "x");
        return owner->egress;
    case LIMIT_client:
        writer_text(w, "c");
        writer_put(w, owner->client);
        return owner->client.len > 0;
    case LIMIT_unauthenticated:
        writer_text(w, "n");
        return owner->client.len > 0;
    default:
        writer_text(w, "m");
        return owner->mux;
    }
}

/* Writes the name of the owner of memory. Returns false if the owner is unknown. */
static bool put_owner(struct writer *w, const struct limits_owner *owner)
{
    if (owner->org.len) {
        writer_text(w, "O");
        writer_put(w, owner->org);
    } else if (owner->sandbox.len) {
        put_sandbox(w, "S", owner->space, owner->sandbox);
    } else {
        writer_text(w, "C");
        writer_put(w, owner->client);
    }
    return !w->full && w->len > 1;
}

uint64_t limits_most(const struct limits *l, const struct limits_owner *owner, enum limit limit)
{
    uint64_t most = limit < LIMIT_COUNT ? l->most[limit] : l->tunnels_most;
    bool own = limit == LIMIT_sandbox && owner->most && (!most || owner->most < most);
    return own ? owner->most : most;
}

static enum limit change(struct limits *l, const struct limits_owner *owner, enum limit limit, bool up)
{
    uint8_t memory[NAME_MAX_BYTES];
    struct writer w = writer_of(memory, sizeof memory);
    struct shard *shard;
    enum limit reached = LIMIT_NONE;

    if (!put_name(&w, owner, limit))
        return LIMIT_NONE;
    if (w.full)
        return limit;
    struct limits_holder **at = lock(l, writer_slice(&w), &shard);
    if (up)
        reached = count_up(at, writer_slice(&w), owner->kept ? 0 : limits_most(l, owner, limit), limit);
    else
        count_down(at);
    pthread_mutex_unlock(&shard->lock);
    return reached;
}

enum limit limits_enter(struct limits *l, const struct limits_owner *owner)
{
    uint64_t most = owner->kept ? 0 : l->tunnels_most;
    enum limit reached = LIMIT_NONE;
    unsigned entered = 0;

    if (atomic_fetch_add(&l->tunnels, 1) >= most && most)
        reached = LIMIT_tunnels;
    while (reached == LIMIT_NONE && entered < LIMIT_COUNT)
        if ((reached = change(l, owner, (enum limit)entered, true)) == LIMIT_NONE)
            entered++;
    if (reached == LIMIT_NONE)
        return LIMIT_NONE;
    while (entered)
        (void)change(l, owner, (enum limit)-- entered, false);
    atomic_fetch_sub(&l->tunnels, 1);
    return reached;
}

void limits_leave(struct limits *l, const struct limits_owner *owner)
{
    for (unsigned limit = 0; limit < LIMIT_COUNT; limit++)
        (void)change(l, owner, (enum limit)limit, false);
    atomic_fetch_sub(&l->tunnels, 1);
}

uint64_t limits_tunnels(const struct limits *l)
{
    return l->tunnels;
}

/* ---- the sandboxes with most tunnels ---- */
/* Inserts a holder into the sorted list of `count` entries and drops the smallest if there is no room. */
static size_t note_busy(struct limits_busy *busy, size_t count, size_t room,
                        const struct limits_holder *holder)
{
    size_t at = count < room ? count : room - 1;

    if (count == room && busy[at].tunnels >= holder->tunnels)
        return count;
    while (at > 0 && busy[at - 1].tunnels < holder->tunnels) {
        busy[at] = busy[at - 1];
        at--;
    }
    struct slice name = slice_from(slice_of(holder->name, holder->len), holder->name[1] == '/' ? 2 : 1);
    busy[at].tunnels = holder->tunnels;
    busy[at].len = name.len < LIMITS_NAME_SHOWN ? name.len : LIMITS_NAME_SHOWN;
    memcpy(busy[at].name, name.at, busy[at].len);
    return count < room ? count + 1 : count;
}

size_t limits_busiest(struct limits *l, struct limits_busy *busy, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < SHARDS && room; i++) {
        pthread_mutex_lock(&l->shards[i].lock);
        for (size_t k = 0; k < BUCKETS; k++)
            for (const struct limits_holder *h = l->shards[i].buckets[k]; h; h = h->next)
                if (h->len > 1 && h->name[0] == 's' && h->tunnels)
                    count = note_busy(busy, count, room, h);
        pthread_mutex_unlock(&l->shards[i].lock);
    }
    return count;
}

/* ---- memory ---- */
void limits_hold(struct limits *l, int64_t bytes)
{
    if (bytes)
        atomic_fetch_add_explicit(&l->held, bytes, memory_order_relaxed);
}

uint64_t limits_held(const struct limits *l)
{
    int64_t held = atomic_load_explicit(&l->held, memory_order_relaxed);
    return held > 0 ? (uint64_t)held : 0;
}

bool limits_is_short(const struct limits *l)
{
    return l->memory && limits_held(l) > l->memory / 2;
}

static uint64_t free_memory(const struct limits *l, int64_t unsettled, uint64_t most)
{
    int64_t held = (int64_t)limits_held(l) + unsettled;
    return held < (int64_t)most ? most - (uint64_t)(held > 0 ? held : 0) : 0;
}

/* Returns the owner whose share counts: all unauthenticated clients share one. */
static struct limits_holder *owner_of(struct limits_holder *holder)
{
    return holder->of ? holder->of : holder;
}

/* ---- replays ---- */
static uint32_t permits(const struct limits *l)
{
    uint64_t number = l->memory / LIMITS_REPLAY_LEN;
    return number < 1 ? 1 : number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

bool limits_replay_begin(struct limits *l, struct limits_use *use)
{
    if (use->replays)
        return true;
    struct limits_holder *owner = owner_of(use->holder);
    pthread_mutex_lock(&l->replays_lock);
    if (fair_is_part(permits(l), l->replays, owner->replays, 1, FAIR_SPARED) &&
        (!l->replays || free_memory(l, 0, l->memory) >= LIMITS_REPLAY_LEN)) {
        l->replays++;
        owner->replays++;
        use->replays = true;
    }
    pthread_mutex_unlock(&l->replays_lock);
    return use->replays;
}

void limits_replay_end(struct limits *l, struct limits_use *use)
{
    if (!use->replays)
        return;
    pthread_mutex_lock(&l->replays_lock);
    l->replays--;
    owner_of(use->holder)->replays--;
    use->replays = false;
    pthread_mutex_unlock(&l->replays_lock);
}

/* The permit remains taken while it moves: `from` must not be refused it because others wait. */
static void move_replay(struct limits *l, struct limits_use *from, struct limits_use *to)
{
    if (!from->replays)
        return;
    pthread_mutex_lock(&l->replays_lock);
    owner_of(from->holder)->replays--;
    owner_of(to->holder)->replays++;
    from->replays = false;
    to->replays = true;
    pthread_mutex_unlock(&l->replays_lock);
}

bool limits_replay_alone(const struct limits *l)
{
    return l->replays == 1;
}

/* ---- what tunnels hold ---- */
struct limits_use limits_use_begin(struct limits *l, const struct limits_owner *owner)
{
    uint8_t memory[NAME_MAX_BYTES];
    struct writer w = writer_of(memory, sizeof memory);
    struct shard *shard;

    if (!put_owner(&w, owner))
        return (struct limits_use){.holder = &l->nobody};
    struct limits_holder **at = lock(l, writer_slice(&w), &shard);
    if (!*at)
        *at = new_holder(writer_slice(&w));
    struct limits_holder *holder = *at;
    if (holder) {
        holder->of = memory[0] == 'C' ? &l->nobody : NULL;
        holder->uses++;
    }
    pthread_mutex_unlock(&shard->lock);
    return (struct limits_use){.holder = holder ? holder : &l->nobody};
}

void limits_use_end(struct limits *l, struct limits_use *use)
{
    struct limits_holder *holder = use->holder;
    struct shard *shard;

    if (!holder)
        return;
    limits_replay_end(l, use);
    limits_use_set(l, use, 0, false);
    use->holder = NULL;
    if (holder == &l->nobody)
        return;
    struct limits_holder **at = lock(l, slice_of(holder->name, holder->len), &shard);
    if (--holder->uses == 0) {
        *at = holder->next;
        free(holder);
    }
    pthread_mutex_unlock(&shard->lock);
}

void limits_use_move(struct limits *l, struct limits_use *use, const struct limits_owner *owner)
{
    struct limits_use to = limits_use_begin(l, owner);

    limits_use_set(l, &to, use->held, use->wanted > 0);
    move_replay(l, use, &to);
    limits_use_end(l, use);
    *use = to;
}

static void owner_holds(struct limits *l, struct limits_holder *holder, uint64_t bytes)
{
    struct limits_holder *owner = owner_of(holder);
    uint64_t before = atomic_fetch_add_explicit(&owner->held, bytes, memory_order_relaxed);

    if (holder != owner)
        atomic_fetch_add_explicit(&holder->held, bytes, memory_order_relaxed);

    if (!before)
        atomic_fetch_add_explicit(&l->owners, 1, memory_order_relaxed);
    else if (!(before + bytes))
        atomic_fetch_sub_explicit(&l->owners, 1, memory_order_relaxed);
}

static bool is_nobodys(const struct limits *l, const struct limits_use *use)
{
    return use->holder == &l->nobody || use->holder->of;
}

static uint64_t above_least(uint64_t held)
{
    return held > LIMITS_LEAST ? held - LIMITS_LEAST : 0;
}

/* Differences are computed modulo 2^64. */
void limits_use_set(struct limits *l, struct limits_use *use, uint64_t held, bool waits)
{
    uint64_t wanted = waits ? held + WANTED_MORE : 0;

    if (held != use->held)
        owner_holds(l, use->holder, held - use->held);
    uint64_t more = above_least(held) - above_least(use->held);
    if (more)
        atomic_fetch_add_explicit(&l->above, more, memory_order_relaxed);
    if (wanted != use->wanted)
        atomic_fetch_add_explicit(is_nobodys(l, use) ? &l->nobody_wants : &l->wanted, wanted - use->wanted,
                                  memory_order_relaxed);
    use->held = held;
    use->wanted = wanted;
}

enum limit limits_name_org(struct limits *l, const struct limits_owner *owner, struct limits_use *use)
{
    enum limit reached = change(l, owner, LIMIT_org, true);

    if (reached == LIMIT_NONE)
        limits_use_move(l, use, owner);
    return reached;
}

static uint64_t held_by(const struct limits_holder *owner)
{
    return atomic_load_explicit(&owner->held, memory_order_relaxed);
}

static uint64_t share(const struct limits *l)
{
    uint64_t owners = atomic_load_explicit(&l->owners, memory_order_relaxed);
    return owners ? l->memory / owners : l->memory;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the bytes that an owner may still fill of its share of `most` if no memory is free. One owner with very many tunnels can
 * use up the memory with LIMITS_LEAST for each; other owners then still get their shares. Shares of successive owners can add up to
 * more than the memory, so the sum above LIMITS_LEAST is limited for all owners together. */
static uint64_t rest_of_share(const struct limits *l, const struct limits_use *use, uint64_t held,
                              uint64_t most)
{
    uint64_t owners = atomic_load_explicit(&l->owners, memory_order_relaxed), has = held_by(use->holder),
             own = owners ? most / owners : most, limit = 2 * l->memory,
             above = atomic_load_explicit(&l->above, memory_order_relaxed) + above_least(held) -
                     above_least(use->held);

    if (is_nobodys(l, use) || has >= own || above >= limit)
        return 0;
    return smaller(own - has, limit - above);
}

static uint64_t slice(const struct limits *l)
{
    return l->memory / LIMITS_SLICE;
}

/* Returns the free bytes of the slice of unauthenticated clients. One address may hold half of the rest that others leave. */
static uint64_t rest_of_slice(const struct limits *l, const struct limits_use *use, uint64_t held)
{
    uint64_t grows = held - use->held, all = held_by(&l->nobody) + grows, most = slice(l);

    if (all >= most)
        return 0;
    if (use->holder == &l->nobody)
        return most - all;
    uint64_t own = held_by(use->holder) + grows, others = all > own ? all - own : 0,
             half = (most - others) / 2;
    return half > own ? half - own : 0;
}

/* Returns the free bytes for this use. An owner above its share leaves the bytes that other owners wait for. */
static uint64_t free_for(const struct limits *l, const struct limits_use *use, uint64_t held, uint64_t most)
{
    bool nobodys = is_nobodys(l, use);
    uint64_t own = nobodys ? 0 : use->wanted, kept = 0,
             wanted = atomic_load_explicit(&l->wanted, memory_order_relaxed);

    if (wanted > own && held_by(owner_of(use->holder)) > share(l))
        kept = wanted - own;
    uint64_t room = free_memory(l, (int64_t)(held - use->held + kept), most);
    if (nobodys)
        return smaller(room, rest_of_slice(l, use, held));
    bool full = limits_held(l) >= most - most / FULL_PART;
    return full ? larger(room, rest_of_share(l, use, held, most)) : room;
}

/* Returns the bytes r that a buffer may read: with `grows` held, the buffer doubles to 2 * (grows + r), at most part + grows. */
static size_t until_doubled(uint64_t part, uint64_t grows)
{
    return part > grows ? (size_t)((part - grows) / 2) : 0;
}

size_t limits_room(const struct limits *l, const struct limits_use *use, uint64_t held)
{
    return until_doubled(free_for(l, use, held, l->memory - l->memory / WHOLE_PART) / TUNNEL_PART, held);
}

size_t limits_room_whole(const struct limits *l, const struct limits_use *use, uint64_t held, uint64_t grows)
{
    return until_doubled(free_for(l, use, held, l->memory), grows);
}

bool limits_fits(const struct limits *l, const struct limits_use *use, uint64_t grows)
{
    return until_doubled(is_nobodys(l, use) ? slice(l) / 2 - smaller(grows, slice(l) / 2)
                                            : l->memory - smaller(grows, l->memory),
                         grows) > 0;
}

/* ---- giving way ---- */
static uint64_t lacks(uint64_t held, uint64_t wanted, uint64_t most)
{
    return wanted && held + wanted > most ? held + wanted - most : 0;
}

bool limits_round_begin(const struct limits *l, struct limits_round *r)
{
    uint64_t nobody_wants = atomic_load_explicit(&l->nobody_wants, memory_order_relaxed),
             nobody_holds = held_by(&l->nobody), most = slice(l),
             left = most - smaller(nobody_holds, most), /* bytes that unauthenticated clients may still get */
        wanted = atomic_load_explicit(&l->wanted, memory_order_relaxed) + smaller(nobody_wants, left),
             lacking = lacks(limits_held(l), wanted, l->memory);

    *r = (struct limits_round){.lacking = smaller(lacking, l->memory / GIVEN_PART)};
    if (!lacking) {
        r->lacking = smaller(lacks(nobody_holds, nobody_wants, most), most / GIVEN_PART);
        r->nobody = &l->nobody;
    }
    return r->lacking > 0;
}

void limits_round_look(struct limits_round *r, const struct limits_use *use)
{
    const struct limits_holder *owner = owner_of(use->holder), *one = use->holder;
    uint64_t all = held_by(owner), ones = held_by(one);

    if (r->nobody && owner != r->nobody)
        return;
    if (owner != r->owner ? all > r->most : one != r->one && ones > r->ones)
        *r = (struct limits_round){r->lacking, r->nobody, owner, all, one, ones, use->held};
    else if (one == r->one && use->held > r->largest)
        r->largest = use->held;
}

bool limits_round_takes(const struct limits *l, struct limits_round *r, const struct limits_use *use)
{
    if (!r->lacking || use->holder != r->one || use->held < r->largest - r->largest / 8 ||
        (!r->nobody && held_by(owner_of(use->holder)) < smaller(share(l), r->most)))
        return false;
    r->lacking -= smaller(use->held, r->lacking);
    return true;
}
