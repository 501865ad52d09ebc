/* SPDX-License-Identifier: MIT */
/*
 * fair: shares a fixed number of places among owners, and decides whose waiting place is served next. Everything that holds a place
 * or makes others wait uses this module: look-ups of a directory, wakes, names, decisions that wait.
 *
 * Places. An eighth of the places is spared. Of the others, an owner may take one if the number that stay free is at least the number
 * that the owner then has. A single owner therefore gets half of them; if n owners want all they can get, each gets the (n + 1)th
 * part. The spared places are for owners that have few: an owner may always have a 32nd part of what it leaves free, and always its
 * first place. So an owner that fills its part is refused, and nobody else is, and very many owners find places in whatever order they
 * come. The same rule, with nothing spared, bounds how many places of an owner are served at once: these are free again soon.
 * Unverified owners share half of both in the same way.
 *
 * Order. Owners that wait are served in turn, one place each. Of eight turns, four go to sandboxes in use, three to verified owners
 * and one to unverified ones; a turn that its rank does not need goes to another rank. Every operation takes constant time except
 * fair_next, which skips owners that have reached their bound of places served.
 *
 * A keyed hash tells owners apart, at most FAIR_LINES for each rank; beyond that number some owners share one line and its part.
 * Nothing is allocated after fair_new. For one thread at a time.
 */
#ifndef CELLGATE_BASE_TABLE_FAIR_H
#define CELLGATE_BASE_TABLE_FAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/must_check.h"

enum { FAIR_LINES = 4096 }; /* largest number of owners of one rank that have lines of their own */

/* The trust in an owner. A lower number is a better rank. */
enum fair_rank {
    FAIR_IN_USE,     /* the question concerns a sandbox that somebody uses already */
    FAIR_VERIFIED,   /* a credential identifies the owner */
    FAIR_UNVERIFIED, /* only an address identifies the owner */
    FAIR_RANKS
};

struct fair_owner {
    /* keyed hash of the owner's name: owners choose their names, and must not be able to choose collisions */
    uint64_t hash;
    enum fair_rank rank;
};

enum fair_state {
    FAIR_OUT,    /* has no place */
    FAIR_WAITS,  /* has a place, and fair_next may return it */
    FAIR_SERVED, /* fair_next has returned it */
    FAIR_HELD    /* has a place, and neither waits nor is served */
};

/* A member of each object that takes places. Zero bytes take none. */
struct fair_place {
    void *of; /* the caller's object */

    /* private */
    struct fair_place *next, *before; /* in the line of its owner, while it waits */
    struct fair_place *newer, *older; /* among all that wait */
    uint32_t line;                    /* index of the owner's line */
    uint32_t cost;                    /* number of places taken */
    enum fair_state state;
    uint64_t since; /* time at which it began to wait */
};

struct fair_limits {
    uint32_t places; /* in all */
    /* largest number that one owner may have, even if its part is larger; 0 means no such bound */
    uint32_t each;
    uint32_t served; /* largest number served at once; 0 means any number */
};

/* The rule of places: returns true if an owner that has `own` of the `max` places may take `more`, while all owners have `used`. An
 * owner without a place may take any that is free. Otherwise it may have as much as it leaves free beyond the spared places, 1/spared
 * of all (none if 0), or a few of all it leaves free, whichever is more. */
bool fair_is_part(uint32_t max, uint32_t used, uint32_t own, uint32_t more, uint32_t spared);
enum { FAIR_SPARED = 8 }; /* 1/FAIR_SPARED of all places is kept for owners that have few */

struct fair;

/* Returns a new set without any place taken, or NULL if memory is short. The caller releases it with free(). */
struct fair *fair_new(const struct fair_limits *limits) MUST_CHECK;

/* Takes `cost` places, at least 1, and waits from `now` on. Returns false, and leaves `place` unchanged, if the owner may have no
 * more. */
bool fair_enter(struct fair *fair, struct fair_place *place, struct fair_owner owner, uint32_t cost,
                uint64_t now) MUST_CHECK;
/* Returns true if fair_enter would. */
bool fair_has_room(const struct fair *fair, struct fair_owner owner, uint32_t cost);
/* Returns the place to be served next, in state FAIR_SERVED, or NULL if none waits or the limit of served places is reached. */
struct fair_place *fair_next(struct fair *fair);
/* Returns the place that has waited longest, whose state does not change, or NULL if none waits. */
struct fair_place *fair_oldest(const struct fair *fair);
/* Keeps what the place has taken, in state FAIR_HELD. */
void fair_hold(struct fair *fair, struct fair_place *place);
/* Lets a place wait again, after all others of its owner. */
void fair_again(struct fair *fair, struct fair_place *place, uint64_t now);
/* Gives back what the place has taken. Does nothing in state FAIR_OUT. */
void fair_leave(struct fair *fair, struct fair_place *place);
/* Returns true if `owner` has taken this place. */
bool fair_is_of(const struct fair *fair, const struct fair_place *place, struct fair_owner owner);

/* Returns the number of fair_place objects that wait. */
size_t fair_waiting(const struct fair *fair);
/* Returns the number of places taken. */
size_t fair_used(const struct fair *fair);

#endif
