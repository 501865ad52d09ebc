/* SPDX-License-Identifier: MIT */
/*
 * plane: the control plane's sandboxes: a table that is in a file before anybody hears of a change. The file is
 * one that the directory kind `file` reads, too.
 */
#ifndef CELLGATE_PLANE_PLANE_H
#define CELLGATE_PLANE_PLANE_H

#include "examples/control-plane/sandbox.h"

#define PLANE_WORKERS_MAX 64
#define PLANE_TIME_MAX    ((int64_t)1 << 53) /* Unix seconds */

struct plane_options {
    const char *state;                      /* the file; NULL: nothing is kept */
    const char *workers[PLANE_WORKERS_MAX]; /* where sandboxes may be moved to and woken */
    size_t worker_count;
    uint64_t wake_time;        /* microseconds that waking takes */
    const char *authorization; /* what these workers ask for; NULL: nothing */
};

struct plane;

/* The options outlive it. NULL and *why (which names the file). */
struct plane *plane_new(struct loop *loop, const struct plane_options *options, struct fail *why);
void plane_free(struct plane *p); /* NULL is fine */

/* Told after every change; s is NULL where the sandbox is gone. One for all; the last one set. */
void plane_on_change(struct plane *p, void (*changed)(void *context, const char *id, const struct sandbox *s),
                     void *context);

const struct sandbox *plane_find(const struct plane *p, struct slice id); /* NULL: there is none */
size_t plane_count(const struct plane *p);
const struct sandbox *plane_at(const struct plane *p, size_t i); /* in the order of their ids */
/* Tokens issued before are revoked, for all sandboxes; 0: none any more; -1: none ever were. */
int64_t plane_not_before(const struct plane *p);
/* Appends {"JTI":UNTIL,...} of the tokens that are revoked one by one and have not expired long ago. */
bool plane_write_revoked(const struct plane *p, struct buffer *to);
/* {"sandboxes":{ID:RECORD,...}}, and "not_before" where tokens are revoked, or were. For agents: with what its worker asks
 * for, where that is one of the options'. */
bool plane_write(const struct plane *p, bool for_agents, struct buffer *to);
/* One record, for agents. */
bool plane_write_record(const struct plane *p, const struct sandbox *s, struct buffer *to);

/* Each is false with *why when it cannot be done, and nothing has changed then. */
bool plane_set(struct plane *p, struct slice id, struct slice record, struct fail *why);
bool plane_remove(struct plane *p, struct slice id, struct fail *why);
/* worker absent: the next one after the sandbox's own */
bool plane_move(struct plane *p, struct slice id, struct slice worker, struct fail *why);
bool plane_suspend(struct plane *p, struct slice id, struct fail *why);
bool plane_stop(struct plane *p, struct slice id, struct fail *why);
bool plane_revoke(struct plane *p, int64_t not_before, struct fail *why);
/* until: when the token expires, Unix seconds */
bool plane_revoke_token(struct plane *p, struct slice jti, int64_t until, struct fail *why);
size_t plane_revoked_count(const struct plane *p);
/* What runs, moves or is being woken is left alone. */
bool plane_wake(struct plane *p, struct slice id, struct fail *why);

#endif
