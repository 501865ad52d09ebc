/* SPDX-License-Identifier: MIT */
/*
 * redial: when to dial again, and when to give up. Pure; times are microseconds of loop_clock.
 */
#ifndef CELLGATE_RELAY_TUNNEL_REDIAL_H
#define CELLGATE_RELAY_TUNNEL_REDIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "spoa/base/bytes/image.h"
#include "spoa/base/os/time.h"

enum { REDIAL_LOSSES_MAX = 64, REDIAL_CHANGES_MAX = 10, REDIAL_BACKOFF_MAX = 16 };

struct redial_settings {
    /* in front of the second attempt, the third ...; the last repeats */
    uint64_t backoff[REDIAL_BACKOFF_MAX];
    unsigned backoff_count; /* never 0 */
    uint64_t budget;        /* of one search for a worker, waiting for a worker to exist not counted */
    uint64_t flap_window;
    unsigned flap_limit; /* more losses than this in flap_window end the tunnel; at most REDIAL_LOSSES_MAX */
};

/* Of a tunnel that has lost a worker, or whose target has changed: few have. */
struct redial_history {
    unsigned losses, changes;
    uint64_t loss_at[REDIAL_LOSSES_MAX]; /* rings: the last ones */
    uint64_t change_at[REDIAL_CHANGES_MAX];
};

struct redial {
    uint64_t give_up;               /* when its budget is spent */
    uint64_t waiting;               /* since when there is no worker to dial, or nobody to ask; 0: there is */
    unsigned attempts;              /* of this search */
    unsigned quick;                 /* losses in a row by which it flapped */
    struct redial_history *history; /* NULL: none */
};

/* Of a zeroed one, too. */
void redial_free(struct redial *redial);

/* A search begins. */
void redial_begin(struct redial *redial, uint64_t budget, uint64_t now);
/* The same of a tunnel that flaps, but gets on: the more often, the longer before the first attempt. */
void redial_begin_slowly(struct redial *redial, uint64_t budget, uint64_t now);
/* It goes on, and its times count from now: what served meanwhile is lost. */
void redial_renew(struct redial *redial, uint64_t budget, uint64_t now);
/* The first attempt is made without redial_next: the next one pauses. */
void redial_attempted(struct redial *redial);
/* When the next attempt is due: at once for the first, then after the backoff, or `most` where that is less, give or take
 * a fifth (random: any 32 bits), the last one when the budget ends. False: it has ended. */
bool redial_next(struct redial *redial, const struct redial_settings *settings, uint64_t most,
                 uint32_t random, uint64_t now, uint64_t *at);
/* There is no worker to dial, or nobody to ask for one: the budget stands still. */
void redial_wait(struct redial *redial, uint64_t now);
/* There is one again. */
void redial_found(struct redial *redial, uint64_t now);

/* A worker was lost after `lived`: whether the tunnel flaps. Losses of legs that lived long do not count, nor does what there
 * is no memory to note. */
bool redial_lost(struct redial *redial, const struct redial_settings *settings, uint64_t lived, uint64_t now);
/* The target changed: whether it changes too often, more than REDIAL_CHANGES_MAX times in a minute. */
bool redial_changed(struct redial *redial, uint64_t now);

extern const struct image_table redial_table;

#endif
