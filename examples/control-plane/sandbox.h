/* SPDX-License-Identifier: MIT */
/*
 * sandbox: one record of the control plane. The record's epoch grows with each change, even after a restart that lost the file, because
 * a new epoch begins at the time of day. Members that the control plane does not interpret (org, ports, headers, ...) are kept
 * unchanged.
 */
#ifndef CELLGATE_PLANE_SANDBOX_H
#define CELLGATE_PLANE_SANDBOX_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"
#include "spoa/net/loop.h"

#define SANDBOX_ID_MAX     255
#define SANDBOX_RECORD_MAX ((size_t)60 * 1024)

enum sandbox_state { RUNNING, MIGRATING, WAKING, SUSPENDED, STOPPED };

struct sandbox {
    char *id;     /* "ID" or "NAMESPACE/ID" */
    char *worker; /* address of the worker, or NULL */
    enum sandbox_state state;
    int64_t epoch;
    struct buffer rest;    /* members that are kept unchanged, each with a comma in front */
    struct buffer headers; /* value of the member `headers`; empty if there is none */
    bool authorizes; /* `headers` has an Authorization of its own, or is no object: nothing may be added */
    struct loop_timer waking; /* timer of the owner, until the sandbox is awake */
    void *owner;
};

/* Returns a sandbox without a record, or NULL if memory is short. */
struct sandbox *sandbox_new(struct slice id);
/* Frees the sandbox; NULL is fine. */
void sandbox_free(struct sandbox *s);

/* Returns true if the text may be an id: 1 to SANDBOX_ID_MAX bytes, no blanks. */
bool sandbox_id_is_good(struct slice id);

/* Replaces the record by one in JSON. Returns false with *why, and changes nothing, if the record is invalid. */
bool sandbox_read(struct sandbox *s, struct slice record, struct fail *why);
/* Appends the record in JSON. `authorization` is added to its headers, unless these have an Authorization; it may be NULL. Returns false
 * if memory is short. */
bool sandbox_write(const struct sandbox *s, const char *authorization, struct buffer *to);
/* Sets the epoch for a change at the present time. */
void sandbox_touch(struct sandbox *s);
/* Returns false, and changes nothing, if memory is short. `worker` may be NULL. */
bool sandbox_set_worker(struct sandbox *s, const char *worker);

#endif
