/* SPDX-License-Identifier: MIT */
/*
 * sandbox: one record of the control plane, and what can be done with it. Its epoch grows with each change, also
 * across a restart that lost everything: it begins at the time of day. What the control plane does not
 * understand of a record (org, ports, headers, ...) is kept as it came.
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
    char *id;     /* or "namespace/id" */
    char *worker; /* NULL: none */
    enum sandbox_state state;
    int64_t epoch;
    struct buffer rest;       /* further members, each with a comma in front */
    struct buffer headers;    /* the member of that name, empty where there is none */
    bool authorizes;          /* they have an Authorization of their own, or are no object */
    struct loop_timer waking; /* of the owner */
    void *owner;
};

/* NULL when out of memory. */
struct sandbox *sandbox_new(struct slice id);
void sandbox_free(struct sandbox *s); /* NULL is fine */

bool sandbox_id_is_good(struct slice id);

/* Takes over a record in JSON. False and *why: nothing has changed. */
bool sandbox_read(struct sandbox *s, struct slice record, struct fail *why);
/* The record in JSON, appended. authorization: what is to be among its headers, unless it has one itself; or NULL. */
bool sandbox_write(const struct sandbox *s, const char *authorization, struct buffer *to);
/* The epoch of a change that is made now. */
void sandbox_touch(struct sandbox *s);
/* False when out of memory. */
bool sandbox_set_worker(struct sandbox *s, const char *worker);

#endif
