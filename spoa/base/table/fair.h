/* SPDX-License-Identifier: MIT */
/*
 * fair: places that owners share, and the order in which those who wait are served. Whatever holds or asks for others has one:
 * look-ups of a directory, wakes, names, decisions that wait.
 *
 * An eighth of the places is spared. Of the others an owner may take one while that leaves as many free as it has then itself: alone it gets
 * half of them, of n that want all each gets the n + 1st part. What is spared is for owners that have few: one has at most a
 * 32nd part of what it leaves free, and always its first place. So an owner who fills its places is refused, and nobody else, and
 * very many owners leave some, in whatever order they come. The same rule, with nothing spared, says
 * how many of its places are served at once: these are free again soon. Unverified owners share half of both in the same way.
 *
 * The next one to be served is of the next owner, in turn, who may have another one served. Of eight turns four are of sandboxes
 * in use, three of verified owners, one of unverified ones, and each of them can be used by the others. Every operation takes a
 * constant time but fair_next, which passes over those owners who have as many served as they may, each of which has some.
 *
 * Owners are told apart by a keyed hash, FAIR_LINES of a rank at most: beyond that some share their part. Nothing is allocated
 * after fair_new. For one thread at a time.
 */
#ifndef CELLGATE_BASE_TABLE_FAIR_H
#define CELLGATE_BASE_TABLE_FAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAIR_LINES = 4096 }; /* owners of a rank that are told apart */

enum fair_rank {
    FAIR_IN_USE,     /* it is about what somebody uses already */
    FAIR_VERIFIED,   /* a credential says who asks */
    FAIR_UNVERIFIED, /* nothing but an address says who asks */
    FAIR_RANKS
};

struct fair_owner {
    uint64_t hash; /* keyed: owners choose their names */
    enum fair_rank rank;
};

enum fair_state { FAIR_OUT, FAIR_WAITS, FAIR_SERVED, FAIR_HELD };

/* A member of whatever has a place. Zero bytes have none. */
struct fair_place {
    void *of; /* the caller's */

    /* private */
    struct fair_place *next, *before; /* in the line of its owner, while it waits */
    struct fair_place *newer, *older; /* among all that wait */
    uint32_t line, cost;
    enum fair_state state;
    uint64_t since; /* when it began to wait */
};

struct fair_limits {
    uint32_t places; /* in all */
    uint32_t each;   /* of one owner, below what is its part; 0: its part */
    uint32_t served; /* at once; 0: any number */
};

struct fair;

struct fair *fair_new(const struct fair_limits *limits); /* NULL when out of memory; free() it */

/* Takes `cost` (1 or more) places, and waits from `now` on. Returns false if its owner has no more; `place` is as before. */
bool fair_enter(struct fair *fair, struct fair_place *place, struct fair_owner owner, uint32_t cost,
                uint64_t now);
/* Whether fair_enter would return true. */
bool fair_has_room(const struct fair *fair, struct fair_owner owner, uint32_t cost);
/* Returns the next one to be served, which is then: FAIR_SERVED. NULL: nobody waits who may be. */
struct fair_place *fair_next(struct fair *fair);
/* Returns the one that has waited longest, which waits on. NULL: nobody waits. */
struct fair_place *fair_oldest(const struct fair *fair);
/* It keeps its places, and is neither served nor waits. */
void fair_hold(struct fair *fair, struct fair_place *place);
/* It waits once more, behind all of its owner. */
void fair_again(struct fair *fair, struct fair_place *place, uint64_t now);
/* It gives up its places, if it has some. */
void fair_leave(struct fair *fair, struct fair_place *place);
/* Whether that is its owner. */
bool fair_is_of(const struct fair *fair, const struct fair_place *place, struct fair_owner owner);

size_t fair_waiting(const struct fair *fair); /* the number of those who wait */
size_t fair_used(const struct fair *fair);    /* the number of places that are taken */

#endif
