/* SPDX-License-Identifier: MIT */
/* target: the worker to dial, and the agent's answers about its place. A `struct answer` is a view that is valid for one call; a `struct
 * target` set by target_set owns a copy of its texts. */
#ifndef CELLGATE_RELAY_TUNNEL_TARGET_H
#define CELLGATE_RELAY_TUNNEL_TARGET_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"
#include "spoa/proto/refusal.h"

struct target {
    struct address addr; /* address; family 0 if unix_path is used */
    uint16_t port;
    bool tls;
    struct slice unix_path; /* path of a Unix socket; absent for TCP */
    struct slice sni;
    struct slice host;    /* Host header for the worker; absent to keep the client's */
    struct slice headers; /* headers to add: {u16be length, name, u16be length, value}* */
    /* true if the client's Authorization is the sandbox's access secret, which its worker must not get */
    bool withhold;
    uint8_t *texts; /* memory of the slices, if the target owns it; NULL otherwise */
};

/* Returns true if the target has an address or a Unix path. */
bool target_known(const struct target *target);
/* Returns true if both name the same worker: address, port, TLS and Unix path are equal. */
bool target_same(const struct target *a, const struct target *b);
/* Replaces `*to` by a copy. Returns false if memory is short; `*to` is then unchanged. */
bool target_set(struct target *to, const struct target *from) __attribute__((warn_unused_result));
void target_free(struct target *target);
/* target_put is target_set for a target on the heap, for targets that rarely exist: `*to` is NULL or an allocated target. target_drop
 * frees the target and sets the pointer to NULL. */
bool target_put(struct target **to, const struct target *from) __attribute__((warn_unused_result));
void target_drop(struct target **target);
/* Takes the next header from `*rest` (of target.headers). Returns false at the end or if the bytes are malformed. */
bool target_header(struct slice *rest, struct slice *name, struct slice *value);

/* State of a sandbox in answers to cell-resolve and cell-watch. */
enum answer_state {
    ANSWER_RUNNING, /* RUNNING, MIGRATING and WAKING may have a target */
    ANSWER_MIGRATING,
    ANSWER_WAKING,
    ANSWER_SUSPENDED,
    ANSWER_STOPPED,
    ANSWER_ABSENT,
    ANSWER_UNAVAILABLE, /* the directory or the agent cannot answer */
    ANSWER_NOT_ADMITTED /* no agent with this key has admitted the tunnel */
};
extern const char *const answer_state_names[]; /* names in the order of the enum; the last element is NULL */

struct answer {
    enum answer_state state;
    /* reason if the authorisation is gone (REFUSAL_token_revoked, REFUSAL_token_expired, REFUSAL_not_granted) or the relay's own
         * limit is reached (REFUSAL_too_many_tunnels); REFUSAL_NONE otherwise */
    enum refusal refused;
    /* true in the answer to a watch if the agent has no slot for the watch; the relay must poll */
    bool unwatched;
    bool agent_lost; /* true for ANSWER_UNAVAILABLE if the agent itself cannot be reached */
    int64_t epoch;
    struct target target;
    /* Facts that the directory reported after the tunnel was admitted, and the ticket that carries them. */
    struct slice ticket; /* new ticket; absent if the tunnel keeps its ticket */
    struct slice org;    /* owner of the sandbox; absent if unchanged */
    /* settled: the directory reported the sandbox's place; own: the port is the worker's own */
    bool settled, own;
};

extern const struct image_table target_table;

#endif
