/* SPDX-License-Identifier: MIT */
/*
 * record: the address, state and owner of a sandbox (directory.md). A `struct record` is a view that is valid for one decision: its
 * slices point into the store that holds the record, or into the JSON text it was read from.
 */
#ifndef CELLGATE_AGENT_MODEL_RECORD_H
#define CELLGATE_AGENT_MODEL_RECORD_H

#include "spoa/agent/model/management.h"
#include "spoa/agent/model/request.h"
#include "spoa/base/os/fail.h"

enum record_state { RECORD_RUNNING, RECORD_MIGRATING, RECORD_WAKING, RECORD_SUSPENDED, RECORD_STOPPED };

/* A parsed http://, https:// or http+unix:/ address of a worker. */
struct worker {
    enum { WORKER_NONE, WORKER_HTTP, WORKER_HTTPS, WORKER_UNIX } kind;
    struct slice host;   /* name or literal without brackets; the path for WORKER_UNIX */
    uint16_t port;       /* 0 if the sandbox has an address of its own; the request's port is then used */
    struct address addr; /* family 0 until the name has been resolved */
};

struct record {
    enum record_state state;
    bool bare;     /* the directory gave the state alone: owner, secret and all other fields are unknown */
    int64_t epoch; /* 0 if the record has none */
    struct slice org;
    struct worker worker;
    int64_t not_before;         /* Unix seconds; tokens issued earlier are revoked; 0 if there is no limit */
    struct slice access_sha256; /* 64 lower-case hex digits, or absent */
    struct slice ports;         /* packed, read with record_port */
    struct slice details; /* packed, read with record_details: settings of a port other than its address */
    struct slice headers; /* packed, read with record_header; for the management address */
    enum serves serves;   /* use of the worker's own port, or of the management ports */
    bool h2;              /* the worker speaks HTTP/2 */
    struct slice
        management;      /* packed, read with record_management; absent if the configuration's ports apply */
    struct slice egress; /* packed (egress/rules.h); absent if the configuration's rules apply */
    struct slice uid;    /* distinguishes this sandbox from another one of the same name; absent if unknown */
    struct slice signing_key; /* secret that signs URLs of the sandbox's files; absent if there is none */
    struct slice
        sandbox; /* in a record under `addr:ADDRESS`: the sandbox with this address; absent in others */
};

/* A record's settings of one port. */
struct record_details {
    enum serves serves;
    bool h2;
    struct slice access_sha256; /* empty if the record's secret applies */
    struct slice headers;       /* packed; empty if the port has no headers of its own */
};

enum lookup {
    LOOKUP_FOUND,
    LOOKUP_ABSENT,      /* the directory answered that there is no such record */
    LOOKUP_UNAVAILABLE, /* the directory cannot answer now */
    LOOKUP_PENDING      /* not in the cache; the look-up has been started */
};

/* Returns the record's epoch or, if it has none, a hash of state and addresses, which is the same in every agent. Always above 0. */
int64_t record_epoch(const struct record *record);
/* Returns the address of a sandbox port, or false if it is the worker's. */
bool record_port(const struct record *record, uint16_t port, struct worker *worker);
/* Returns the next of these addresses, or false at the end; start with *cursor = 0. */
bool record_port_next(const struct record *record, size_t *cursor, uint16_t *port, struct worker *worker);
/* Returns false if the record has no settings of the port other than its address; *details is then empty. */
bool record_details(const struct record *record, uint16_t port, struct record_details *details);
/* Returns whether the record has management ports of its own; *is_one then says whether this port is one of them. */
bool record_management(const struct record *record, uint16_t port, bool *is_one);
/* Returns the access secret of a port; port 0 if the request named none. */
struct slice record_access(const struct record *record, uint16_t port);
/* Returns the headers for the management address and this port; port 0 if the request named none. */
struct slice record_headers(const struct record *record, uint16_t port);
/* Returns the next header of a record or a port, or false at the end; start with *cursor = 0. */
bool record_header(struct slice headers, size_t *cursor, struct slice *name, struct slice *value);

#endif
