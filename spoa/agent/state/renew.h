/* SPDX-License-Identifier: MIT */
/*
 * renew: tells a control plane which sandboxes are in use, so that it lets them live on: renew
 * intents in a Redis list. Best effort: noting one never waits, a loop talks to Redis, and what cannot be sent in
 * five minutes, after which nobody would read it, is let go.
 */
#ifndef CELLGATE_AGENT_STATE_RENEW_H
#define CELLGATE_AGENT_STATE_RENEW_H

#include "spoa/agent/state/intents.h"
#include "spoa/service/log.h"
#include "spoa/service/metrics.h"
#include "spoa/service/settings.h"

struct renew;

struct renew_options {
    const struct settings_renew
        *settings; /* copied but for its texts, which outlive it; renew.redis is set */
    struct loop *loop;
    struct log *log;
    struct metrics_shard *shard; /* of the loop's thread */
};

/* Whether renew.redis is an address; true when it is not set. */
bool renew_check(const struct settings_renew *settings, struct fail *why);
/* On the loop's thread, as renew_stop is. NULL and *why. */
struct renew *renew_start(const struct renew_options *options, struct fail *why);
void renew_stop(struct renew *renew); /* NULL is fine; nobody notes any more */
/* Any thread. renew may be NULL. */
void renew_note(struct renew *renew, const struct intent *intent);

#endif
