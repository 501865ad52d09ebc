/* SPDX-License-Identifier: MIT */
/*
 * bridge: a client's WebSocket and a session of the session manager's, joined. What is said on the WebSocket is the
 * dialect's. A client that leaves ends the attachment at once; a client that is slow stops the session manager's
 * output, a process that does not read stops the client's input.
 */
#ifndef CELLGATE_WORKER_BRIDGE_BRIDGE_H
#define CELLGATE_WORKER_BRIDGE_BRIDGE_H

#include "examples/worker/bridge/manager_client.h"
#include "examples/worker/bridge/resume_leg.h"
#include "examples/worker/http/ws_conn.h"
#include "spoa/base/json/json.h"

struct bridge;

struct dialect {
    void (*ask)(struct bridge *b); /* puts the ATTACH to the manager; the handshake is good */
    /* The answer to ATTACH: calls bridge_accept, or refuses over HTTP. */
    void (*attached)(struct bridge *b, const struct manager_message *m);
    void (*output)(struct bridge *b, const struct manager_message *m);
    void (*ended)(struct bridge *b, const struct manager_message *m);
    void (*detached)(struct bridge *b, enum manager_code code);
    void (*refused)(struct bridge *b, enum manager_code code, const char *text); /* no ATTACH: over HTTP */
    void (*error)(struct bridge *b, enum manager_code code, const char *text);   /* later; may be NULL */
    void (*data)(struct bridge *b, const struct ws_data *data);
    const struct resume_dialect *resume; /* NULL: it knows no Cell-Resume */
};

struct bridge {
    struct ws_conn ws;
    const struct dialect *dialect;
    struct manager_client manager;
    struct resume_leg leg;
    struct text_message text;
    char scope[MANAGER_NAME_MAX + 1], id[MANAGER_NAME_MAX + 1];
    uint64_t replay_end; /* offset at which live output begins */
    unsigned answers;    /* SESSION messages to pass over before the one to ATTACH */
    int tag;             /* first byte of the message that is being read; BRIDGE_NO_TAG before it came */
    const char *mode;    /* for dialects that name it */
    struct {
        bool filling; /* this worker's ring: the client is the first one */
        unsigned chunks;
        int64_t subscribed_ms;
    } loss; /* attach_loss.h */
    bool replaying, marks_replay, waiting;
};

#define BRIDGE_NO_TAG (-1)

/* NULL when out of memory. */
struct bridge *bridge_new(struct http_conn *h, const struct dialect *dialect, const char *scope,
                          struct slice id);
/* Sends the 101. */
void bridge_accept(struct bridge *b);
/* Output as frames of `tag` (none if negative) and at most `max` bytes each. */
void bridge_send_output(struct bridge *b, int tag, struct slice bytes, size_t max);
void bridge_send_text(struct bridge *b, const char *text);
/* Takes the first byte of a message off its pieces, as b->tag. */
struct slice bridge_untag(struct bridge *b, const struct ws_data *data);
void bridge_input(struct bridge *b, struct slice bytes);
void bridge_resize(struct bridge *b, uint16_t cols, uint16_t rows);
/* Takes a piece of a text message: once that is complete its document, that the caller frees; *bad when it is none. */
struct json *bridge_collect(struct bridge *b, const struct ws_data *data, bool *bad);
/* Reads {"cols":,"rows":} of a resize message; false when they are not there. */
bool bridge_read_size(const struct json *doc, uint16_t *cols, uint16_t *rows);
/* Reads it and resizes. */
bool bridge_read_resize(struct bridge *b, const struct json *doc);

#endif
