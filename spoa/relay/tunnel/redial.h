/* SPDX-License-Identifier: MIT */
/* redial: decides when to dial again and when to give up. No I/O; times are microseconds of loop_clock. */
#ifndef CELLGATE_RELAY_TUNNEL_REDIAL_H
#define CELLGATE_RELAY_TUNNEL_REDIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "spoa/base/bytes/image.h"
#include "spoa/base/os/time.h"

enum { REDIAL_LOSSES_MAX = 64, REDIAL_CHANGES_MAX = 10, REDIAL_BACKOFF_MAX = 16 };

struct redial_settings {
    /* pauses before the second attempt, the third and so on, in µs; the last pause repeats */
    uint64_t backoff[REDIAL_BACKOFF_MAX];
    unsigned backoff_count; /* never 0 */
    /* longest duration of one search, in µs; time spent waiting for a worker to exist does not count */
    uint64_t budget;
    uint64_t flap_window;
    /* number of losses within flap_window above which the tunnel ends; at most REDIAL_LOSSES_MAX */
    unsigned flap_limit;
};

/* Recent losses and target changes. Few tunnels have any, so the history is allocated separately. */
struct redial_history {
    unsigned losses, changes;
    /* ring of the last losses' times; change_at is the ring of the last changes' times */
    uint64_t loss_at[REDIAL_LOSSES_MAX];
    uint64_t change_at[REDIAL_CHANGES_MAX];
};

struct redial {
    uint64_t give_up; /* time when the search's budget is spent */
    /* time since which no worker can be dialled or nobody can be asked; 0 if that is not so */
    uint64_t waiting;
    unsigned attempts;              /* number of attempts of this search */
    unsigned quick;                 /* number of consecutive losses that counted as flapping */
    struct redial_history *history; /* history; NULL if there is none */
};

/* Frees the history; accepts a zeroed struct. */
void redial_free(struct redial *redial);

/* Begins a search. */
void redial_begin(struct redial *redial, uint64_t budget, uint64_t now);
/* Begins a search of a tunnel that flaps but makes progress: the pause before the first attempt grows with the number of flaps. */
void redial_begin_slowly(struct redial *redial, uint64_t budget, uint64_t now);
/* Continues a search with a fresh budget, because the worker that served meanwhile is lost. */
void redial_renew(struct redial *redial, uint64_t budget, uint64_t now);
/* Counts a first attempt that was made without redial_next, so that the next one pauses. */
void redial_attempted(struct redial *redial);
/* Sets `*at` to the time of the next attempt: now for the first, later ones after the backoff (at most `most`) plus or minus a fifth
 * (`random` is any 32 bits), the last one when the budget ends. Returns false if the budget is spent. */
bool redial_next(struct redial *redial, const struct redial_settings *settings, uint64_t most,
                 uint32_t random, uint64_t now, uint64_t *at);
/* Stops the budget's clock, because there is no worker to dial or nobody to ask. */
void redial_wait(struct redial *redial, uint64_t now);
/* Lets the budget's clock run again. */
void redial_found(struct redial *redial, uint64_t now);

/* Counts the loss of a worker that served for `lived`. Returns true if the tunnel flaps. Losses of workers that served long do not count,
 * nor do losses for which there is no memory. */
bool redial_lost(struct redial *redial, const struct redial_settings *settings, uint64_t lived, uint64_t now);
/* Counts a change of the target. Returns true if there were more than REDIAL_CHANGES_MAX changes in a minute. */
bool redial_changed(struct redial *redial, uint64_t now);

extern const struct image_table redial_table;

#endif
