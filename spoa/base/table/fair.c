/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/fair.h"

#include <assert.h>
#include <stdlib.h>

enum {
    NOBODY = UINT32_MAX,
    ALL = FAIR_RANKS * FAIR_LINES,
    WAYS = 8, /* lines among which an owner finds its own: a bounded search */
    SETS = FAIR_LINES / WAYS,
    FEW = 32 /* an owner may take places until it has 1/FEW of the places that are then still free */
};

/* The account of one owner. A line is a member of its rank's ring while one of its places waits. */
struct line {
    uint64_t hash;                   /* the owner's; valid while places > 0 */
    uint32_t places, served;         /* numbers taken, and being served */
    struct fair_place *first, *last; /* places that wait, in the order in which they are served */
    uint32_t next, before;           /* in the ring */
};

/* The lines of one rank that wait, in the order of their turns. */
struct ring {
    uint32_t at;             /* line whose turn is next; NOBODY: none waits */
    uint32_t lines;          /* members of the ring */
    uint32_t places, served; /* sums over all lines of the rank */
};

struct fair {
    struct fair_limits limits;
    uint32_t places, served, waiting; /* sums over all lines */
    unsigned turn;                    /* index of the next of the eight turns in fair_next */
    struct ring rings[FAIR_RANKS];
    struct fair_place *newest, *oldest; /* all that wait, by the time at which they began to */
    struct line lines[ALL];             /* FAIR_LINES for each rank */
};

struct fair *fair_new(const struct fair_limits *limits)
{
    struct fair *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->limits = *limits;
    if (f->limits.each == 0)
        f->limits.each = limits->places;
    for (unsigned i = 0; i < FAIR_RANKS; i++)
        f->rings[i].at = NOBODY;
    return f;
}

/* Returns the owner's line, or a free line of its set. If other owners have all lines of the set, the owner shares one of them. */
static uint32_t line_of(const struct fair *f, struct fair_owner owner)
{
    uint32_t set = (uint32_t)owner.rank * FAIR_LINES + (uint32_t)(owner.hash % SETS) * WAYS;
    uint32_t found = set + (uint32_t)(owner.hash >> 32) % WAYS;
    bool free = false;
    for (uint32_t i = set; i < set + WAYS; i++) {
        const struct line *l = &f->lines[i];
        if (l->places && l->hash == owner.hash)
            return i;
        if (!l->places && !free) {
            free = true;
            found = i;
        }
    }
    return found;
}

static struct ring *ring_of(struct fair *f, uint32_t line)
{
    return &f->rings[line / FAIR_LINES];
}

/* ---- places ---- */

bool fair_is_part(uint32_t max, uint32_t used, uint32_t own, uint32_t more, uint32_t spared)
{
    uint32_t free = max > used ? max - used : 0;
    if (more > free)
        return false;
    uint32_t left = free - more, kept = spared ? max / spared : 0, few = left / FEW;
    uint32_t part = left > kept && left - kept > few ? left - kept : few;
    return own == 0 || own + more <= part;
}

/* Like fair_is_part, and applies the same rule to the half of `max` that unverified owners share. `of_rank` is the number that all owners of
 * the rank have taken. */
static bool is_within(uint32_t max, uint32_t used, uint32_t of_rank, enum fair_rank rank, uint32_t own,
                      uint32_t more, uint32_t spared)
{
    return fair_is_part(max, used, own, more, spared) &&
           (rank != FAIR_UNVERIFIED || fair_is_part(max - max / 2, of_rank, own, more, spared));
}

bool fair_has_room(const struct fair *f, struct fair_owner owner, uint32_t cost)
{
    const struct line *l = &f->lines[line_of(f, owner)];
    return cost <= f->limits.each && l->places <= f->limits.each - cost &&
           is_within(f->limits.places, f->places, f->rings[owner.rank].places, owner.rank, l->places, cost,
                     FAIR_SPARED);
}

/* Adds `cost` to all sums; a negative number, as uint32_t, subtracts. */
static void add_places(struct fair *f, struct fair_place *p, uint32_t cost)
{
    f->lines[p->line].places += cost;
    ring_of(f, p->line)->places += cost;
    f->places += cost;
}

static void add_served(struct fair *f, const struct fair_place *p, uint32_t count)
{
    f->lines[p->line].served += count;
    ring_of(f, p->line)->served += count;
    f->served += count;
}

/* ---- waiting ---- */

/* Inserts a line before the one whose turn is next, so that the new one waits for all others. */
static void join_ring(struct fair *f, uint32_t line)
{
    struct ring *r = ring_of(f, line);
    struct line *l = &f->lines[line];
    r->lines++;
    l->next = l->before = line;
    if (r->at == NOBODY) {
        r->at = line;
        return;
    }
    l->next = r->at;
    l->before = f->lines[r->at].before;
    f->lines[l->before].next = line;
    f->lines[r->at].before = line;
}

static void leave_ring(struct fair *f, uint32_t line)
{
    struct ring *r = ring_of(f, line);
    const struct line *l = &f->lines[line];
    r->lines--;
    f->lines[l->before].next = l->next;
    f->lines[l->next].before = l->before;
    if (r->at == line)
        r->at = l->next;
    if (r->lines == 0)
        r->at = NOBODY;
}

static void begin_waiting(struct fair *f, struct fair_place *p, uint64_t now)
{
    struct line *l = &f->lines[p->line];
    p->state = FAIR_WAITS;
    p->since = now;
    p->next = NULL;
    p->before = l->last;
    *(l->last ? &l->last->next : &l->first) = p;
    l->last = p;
    p->newer = NULL;
    p->older = f->newest;
    *(f->newest ? &f->newest->newer : &f->oldest) = p;
    f->newest = p;
    f->waiting++;
    if (l->first == p)
        join_ring(f, p->line);
}

static void end_waiting(struct fair *f, struct fair_place *p)
{
    struct line *l = &f->lines[p->line];
    *(p->before ? &p->before->next : &l->first) = p->next;
    *(p->next ? &p->next->before : &l->last) = p->before;
    *(p->older ? &p->older->newer : &f->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &f->newest) = p->older;
    f->waiting--;
    if (!l->first)
        leave_ring(f, p->line);
}

/* Undoes what the present state of a place counts; the caller then sets another state. */
static void end_state(struct fair *f, struct fair_place *p)
{
    if (p->state == FAIR_WAITS)
        end_waiting(f, p);
    else if (p->state == FAIR_SERVED)
        add_served(f, p, (uint32_t)-1);
}

bool fair_enter(struct fair *f, struct fair_place *p, struct fair_owner owner, uint32_t cost, uint64_t now)
{
    assert(p->state == FAIR_OUT && cost > 0);
    if (!fair_has_room(f, owner, cost))
        return false;
    p->line = line_of(f, owner);
    p->cost = cost;
    if (!f->lines[p->line].places)
        f->lines[p->line].hash = owner.hash;
    add_places(f, p, cost);
    begin_waiting(f, p, now);
    return true;
}

void fair_hold(struct fair *f, struct fair_place *p)
{
    end_state(f, p);
    p->state = FAIR_HELD;
}

void fair_again(struct fair *f, struct fair_place *p, uint64_t now)
{
    assert(p->state != FAIR_OUT);
    end_state(f, p);
    begin_waiting(f, p, now);
}

void fair_leave(struct fair *f, struct fair_place *p)
{
    if (p->state == FAIR_OUT)
        return;
    end_state(f, p);
    add_places(f, p, -p->cost);
    p->state = FAIR_OUT;
}

/* ---- serving ---- */

/* Serves the next place of a rank. Returns NULL if no owner of the rank may have another place served. */
static struct fair_place *next_of(struct fair *f, enum fair_rank rank)
{
    struct ring *r = &f->rings[rank];
    uint32_t max = f->limits.served;
    /* if not even an owner without one may have another, the others are not looked at */
    bool full = max && !is_within(max, f->served, r->served, rank, 0, 1, 0);
    for (uint32_t left = full ? 0 : r->lines; left; left--) {
        const struct line *l = &f->lines[r->at];
        struct fair_place *p = l->first;
        r->at = l->next;
        if (max && !is_within(max, f->served, r->served, rank, l->served, 1, 0))
            continue;
        end_waiting(f, p);
        p->state = FAIR_SERVED;
        add_served(f, p, 1);
        return p;
    }
    return NULL;
}

struct fair_place *fair_next(struct fair *f)
{
    static const enum fair_rank turns[8] = {FAIR_IN_USE, FAIR_VERIFIED, FAIR_IN_USE,     FAIR_VERIFIED,
                                            FAIR_IN_USE, FAIR_VERIFIED, FAIR_UNVERIFIED, FAIR_IN_USE};
    /* first the rank whose turn it is, then any other that can use the turn */
    struct fair_place *p = f->waiting ? next_of(f, turns[f->turn]) : NULL;
    for (unsigned rank = 0; f->waiting && !p && rank < FAIR_RANKS; rank++)
        p = next_of(f, rank);
    if (p)
        f->turn = (f->turn + 1) % (sizeof turns / sizeof *turns);
    return p;
}

struct fair_place *fair_oldest(const struct fair *f)
{
    return f->oldest;
}

bool fair_is_of(const struct fair *f, const struct fair_place *p, struct fair_owner owner)
{
    return p->state != FAIR_OUT && p->line == line_of(f, owner);
}

size_t fair_waiting(const struct fair *f)
{
    return f->waiting;
}

size_t fair_used(const struct fair *f)
{
    return f->places;
}
