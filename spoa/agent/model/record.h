/* SPDX-License-Identifier: MIT */
/*
 * record: where a sandbox is (directory.md). A `struct record` is a view for the time of one decision: its slices point
 * into the store it was looked up in, or into the JSON text it was read from.
 */
#ifndef CELLGATE_AGENT_MODEL_RECORD_H
#define CELLGATE_AGENT_MODEL_RECORD_H

#include "spoa/agent/model/management.h"
#include "spoa/agent/model/request.h"
#include "spoa/base/os/fail.h"

enum record_state { RECORD_RUNNING, RECORD_MIGRATING, RECORD_WAKING, RECORD_SUSPENDED, RECORD_STOPPED };

/* An http://, https:// or http+unix:/ address of a worker, taken apart. */
struct worker {
    enum { WORKER_NONE, WORKER_HTTP, WORKER_HTTPS, WORKER_UNIX } kind;
    struct slice host;   /* name or literal without brackets; the path for WORKER_UNIX */
    uint16_t port;       /* 0: the sandbox has an address of its own, the request's port is used */
    struct address addr; /* family 0 until the name has been resolved */
};

struct record {
    enum record_state state;
    bool bare;     /* the directory said the state alone: owner, secret and all else are not known */
    int64_t epoch; /* 0: the record has none */
    struct slice org;
    struct worker worker;
    int64_t not_before;         /* Unix seconds, 0: none; tokens issued before are revoked */
    struct slice access_sha256; /* 64 lower-case hex digits, or absent */
    struct slice ports;         /* packed, read with record_port */
    struct slice details;       /* packed, read with record_details: what a port has beside an address */
    struct slice headers;       /* packed, read with record_header; of the management address */
    enum serves serves;         /* what the worker's own port, or its management ports, serve */
    bool h2;                    /* the worker speaks HTTP/2 */
    struct slice management;    /* packed, read with record_management; absent: the configuration's */
    struct slice egress;        /* packed (egress/rules.h); absent: the configuration's */
    struct slice uid;           /* tells it from another sandbox of its name; absent: not known */
    struct slice signing_key;   /* a secret that signs URLs of the sandbox's files; absent: it has none */
    struct slice sandbox;       /* whose address it is, of a record under `addr:ADDRESS`; absent in others */
};

/* What the record says of one of its ports. */
struct record_details {
    enum serves serves;
    bool h2;
    struct slice access_sha256; /* empty: the record's counts */
    struct slice headers;       /* packed; empty: none of its own */
};

enum lookup {
    LOOKUP_FOUND,
    LOOKUP_ABSENT,      /* the directory says that there is none */
    LOOKUP_UNAVAILABLE, /* the directory cannot say */
    LOOKUP_PENDING      /* not in the cache: asked for, comes later */
};

/* The record's epoch or, where it has none, a hash of state and addresses: the same in every agent, always above 0. */
int64_t record_epoch(const struct record *record);
/* The address of one sandbox port where it differs from the worker's; false: it does not. */
bool record_port(const struct record *record, uint16_t port, struct worker *worker);
/* The next of these addresses: start with *cursor = 0; false at the end. */
bool record_port_next(const struct record *record, size_t *cursor, uint16_t *port, struct worker *worker);
/* False: nothing is said of the port but its address; *details is empty. */
bool record_details(const struct record *record, uint16_t port, struct record_details *details);
/* Whether the record has management ports of its own, and if so whether this is one. */
bool record_management(const struct record *record, uint16_t port, bool *is_one);
/* The access secret that opens a port (0: none was named). */
struct slice record_access(const struct record *record, uint16_t port);
/* The headers of a management address behind a port (0: none was named). */
struct slice record_headers(const struct record *record, uint16_t port);
/* The next header of a record's or a port's: start with *cursor = 0; false at the end. */
bool record_header(struct slice headers, size_t *cursor, struct slice *name, struct slice *value);

#endif
