/* SPDX-License-Identifier: MIT */
/*
 * renew: reports sandboxes in use to a control plane that extends their life, as "renew intents" in a Redis list. Best effort: noting a
 * use never waits, a loop talks to Redis, and an intent that cannot be sent in five minutes is dropped, because no reader would use it
 * after that.
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
        *settings; /* copied without its texts, which must outlive `renew`; renew.redis must be set */
    struct loop *loop;
    struct log *log;
    struct metrics_shard *shard; /* shard of the loop's thread */
};

/* Returns whether renew.redis is an address, or not set. */
bool renew_check(const struct settings_renew *settings, struct fail *why);
/* Call it on the loop's thread, like renew_stop. Returns NULL and *why if it cannot start. */
struct renew *renew_start(const struct renew_options *options, struct fail *why);
void renew_stop(struct renew *renew); /* renew may be NULL; no thread may note any more */
/* For any thread. renew may be NULL. */
void renew_note(struct renew *renew, const struct intent *intent);

#endif
