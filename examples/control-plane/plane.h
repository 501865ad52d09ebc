/* SPDX-License-Identifier: MIT */
/*
 * plane: the table of sandboxes. Invariant: a change is on the disk before any agent or operator sees it. The file has the format of the
 * directory kind `file` (docs/directory.md).
 */
#ifndef CELLGATE_PLANE_PLANE_H
#define CELLGATE_PLANE_PLANE_H

#include "examples/control-plane/sandbox.h"

#define PLANE_WORKERS_MAX 64
#define PLANE_TIME_MAX    ((int64_t)1 << 53) /* Unix seconds */

struct plane_options {
    const char *state; /* path of the file; NULL to keep the table in memory only */
    const char
        *workers[PLANE_WORKERS_MAX]; /* addresses of the workers to which sandboxes may be moved and woken */
    size_t worker_count;
    uint64_t wake_time; /* time that waking a sandbox takes, in µs */
    const char
        *authorization; /* value of Authorization that these workers require; NULL if they require none */
};

struct plane;

/* Loads the file. The options must outlive the plane. Returns NULL with *why, which names the file. */
struct plane *plane_new(struct loop *loop, const struct plane_options *options, struct fail *why);
/* Frees the plane; NULL is fine. */
void plane_free(struct plane *p);

/* Sets the call-back for changes, which replaces an earlier one. It runs after each change; `s` is NULL if the sandbox was removed. */
void plane_on_change(struct plane *p, void (*changed)(void *context, const char *id, const struct sandbox *s),
                     void *context);

/* Returns the sandbox with this id, or NULL. */
const struct sandbox *plane_find(const struct plane *p, struct slice id);
/* Returns the number of sandboxes. */
size_t plane_count(const struct plane *p);
/* Returns sandbox number i, in the order of the ids. */
const struct sandbox *plane_at(const struct plane *p, size_t i);
/* Returns the time in Unix seconds before which all tokens are revoked: 0 if that was taken back, -1 if it was never set. */
int64_t plane_not_before(const struct plane *p);
/* Appends {"JTI":UNTIL,...}, the tokens that are revoked one by one. Returns false if memory is short. */
bool plane_write_revoked(const struct plane *p, struct buffer *to);
/* Appends {"sandboxes":{ID:RECORD,...}}, and "not_before" if it was ever set. for_agents: each record has the Authorization that its
 * worker requires, if the worker is one of the options'. Returns false if memory is short. */
bool plane_write(const struct plane *p, bool for_agents, struct buffer *to);
/* Appends one record as agents get it. Returns false if memory is short. */
bool plane_write_record(const struct plane *p, const struct sandbox *s, struct buffer *to);

/* ---- changes: each function returns false with *why, and changes nothing, if the change cannot be made or saved ---- */

/* Adds a sandbox, or replaces its record. */
bool plane_set(struct plane *p, struct slice id, struct slice record, struct fail *why);
bool plane_remove(struct plane *p, struct slice id, struct fail *why);
/* Moves a sandbox to `worker`; if that is absent, to the worker after its own in the options. */
bool plane_move(struct plane *p, struct slice id, struct slice worker, struct fail *why);
bool plane_suspend(struct plane *p, struct slice id, struct fail *why);
bool plane_stop(struct plane *p, struct slice id, struct fail *why);
/* Revokes all tokens issued before this time, in Unix seconds. */
bool plane_revoke(struct plane *p, int64_t not_before, struct fail *why);
/* Revokes one token. until: time of the token's expiry, in Unix seconds */
bool plane_revoke_token(struct plane *p, struct slice jti, int64_t until, struct fail *why);
/* Returns the number of tokens that are revoked one by one. */
size_t plane_revoked_count(const struct plane *p);
/* Wakes a suspended or stopped sandbox. Does nothing if it runs, migrates or is being woken. */
bool plane_wake(struct plane *p, struct slice id, struct fail *why);

#endif
