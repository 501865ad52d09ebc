/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/redial.h"

#include <stdlib.h>

void redial_free(struct redial *redial)
{
    free(redial->history);
    redial->history = NULL;
}

static bool has_history(struct redial *redial)
{
    if (!redial->history)
        redial->history = calloc(1, sizeof *redial->history);
    return redial->history;
}

void redial_begin(struct redial *redial, uint64_t budget, uint64_t now)
{
    redial->attempts = 0;
    redial->waiting = 0;
    redial->give_up = now + budget;
}

void redial_renew(struct redial *redial, uint64_t budget, uint64_t now)
{
    redial->give_up = now + budget;
    if (redial->waiting)
        redial->waiting = now;
}

bool redial_next(struct redial *redial, const struct redial_settings *settings, uint64_t most,
                 uint32_t random, uint64_t now, uint64_t *at)
{
    unsigned step = redial->attempts++;
    uint64_t end = redial->give_up + (redial->waiting ? now - redial->waiting : 0);

    *at = now;
    if (step == 0)
        return true;
    if (step > settings->backoff_count)
        step = settings->backoff_count;
    uint64_t pause = settings->backoff[step - 1];
    /* the pause is 80 % to 120 % of the backoff */
    *at += (pause < most ? pause : most) * (800 + random % 401) / 1000;
    if (*at > end && now < end)
        *at = end;
    return *at <= end;
}

void redial_attempted(struct redial *redial)
{
    redial->attempts = 1;
}

void redial_wait(struct redial *redial, uint64_t now)
{
    if (!redial->waiting)
        redial->waiting = now;
}

void redial_found(struct redial *redial, uint64_t now)
{
    if (redial->waiting)
        redial->give_up += now - redial->waiting;
    redial->waiting = 0;
}

/* Puts `now` into a ring of `size` and returns true if the entry `limit` places before it lies within the window. */
static bool too_many(uint64_t *ring, unsigned size, unsigned *count, unsigned limit, uint64_t window,
                     uint64_t now)
{
    bool many = *count >= limit && now - ring[(*count - limit) % size] < window;

    ring[*count % size] = now;
    ++*count;
    return many;
}

bool redial_lost(struct redial *redial, const struct redial_settings *settings, uint64_t lived, uint64_t now)
{
    if (lived >= 10 * SECOND || !has_history(redial))
        return false;
    struct redial_history *h = redial->history;
    bool many =
        too_many(h->loss_at, REDIAL_LOSSES_MAX, &h->losses, settings->flap_limit, settings->flap_window, now);
    redial->quick = many ? redial->quick + 1 : 0;
    return many;
}

void redial_begin_slowly(struct redial *redial, uint64_t budget, uint64_t now)
{
    redial_begin(redial, budget, now);
    redial->attempts = redial->quick;
}

bool redial_changed(struct redial *redial, uint64_t now)
{
    struct redial_history *h = has_history(redial) ? redial->history : NULL;
    return h && too_many(h->change_at, REDIAL_CHANGES_MAX, &h->changes, REDIAL_CHANGES_MAX, MINUTE, now);
}

static const struct image_field history_fields[] = {
    IMAGE_ANY(struct redial_history, losses),
    IMAGE_ANY(struct redial_history, changes),
    IMAGE_TIMES(struct redial_history, loss_at),
    IMAGE_TIMES(struct redial_history, change_at),
};
static IMAGE_TABLE(history_table, struct redial_history, history_fields);

static const struct image_field fields[] = {
    IMAGE_TIME(struct redial, give_up),
    IMAGE_TIME(struct redial, waiting),
    IMAGE_ANY(struct redial, attempts),
    IMAGE_ANY(struct redial, quick),
    IMAGE_OWNED(struct redial, history, &history_table),
};
IMAGE_TABLE(redial_table, struct redial, fields);
