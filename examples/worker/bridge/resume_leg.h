/* SPDX-License-Identifier: MIT */
/*
 * resume_leg: one leg of a Cell-Resume tunnel (docs/resume-protocol.md) on a WebSocket, by header or in the browser's
 * way. It translates between frames and the session manager's messages and decides nothing: the tunnel is not here.
 */
#ifndef CELLGATE_WORKER_BRIDGE_RESUME_LEG_H
#define CELLGATE_WORKER_BRIDGE_RESUME_LEG_H

#include "examples/worker/bridge/manager_client.h"
#include "examples/worker/bridge/text_message.h"
#include "examples/worker/http/ws_conn.h"
#include "examples/worker/protocol/manager_protocol.h"
#include "spoa/base/json/json.h"
#include "spoa/proto/cell_resume.h"

/* What a dialect says on such a leg. Output is its bytes, in binary messages. */
struct resume_dialect {
    /* Sends the one message that tells an exit: always the same for the same exit. */
    void (*tell_exit)(struct ws_conn *ws, const struct manager_message *m);
    /* Whether a text message of the client's is a resize; all others are consumed without effect. */
    bool (*read_resize)(const struct json *doc, uint16_t *cols, uint16_t *rows);
    struct {
        unsigned code;
        const char *reason;
    } end; /* the Close that follows the exit */
};

enum resume_binding { RESUME_NONE, RESUME_BY_HEADER, RESUME_BY_BROWSER };

struct resume_leg {
    /* borrowed, and set by the owner */
    struct ws_conn *ws;
    struct manager_client *manager;
    struct text_message *text;            /* that is being read */
    const struct resume_dialect *dialect; /* NULL: this route knows no Cell-Resume */

    enum resume_binding binding; /* RESUME_NONE: it is no leg, and has no part in what comes */

    /* private */
    bool waiting; /* for the answer to the request */
    struct cell_resume_terms terms;
    char fields[CELL_RESUME_TEXT_MAX];
    bool begun;       /* a message to the client */
    uint64_t size;    /* bytes of a text message from it so far */
    uint64_t mark;    /* the client's next Close is this item; 0: it is none */
    uint64_t closing; /* it was that item; 0: not yet */
    unsigned code;    /* of that Close */
    uint64_t ended;   /* number of the session's end, once it is sent */
    uint64_t told;    /* input that was acknowledged */
    struct loop_timer repeat;
};

/* Looks for Cell-Resume in the request; false when it is wrong, and then it has been refused. */
bool resume_leg_read(struct resume_leg *leg);
/* Asks the session manager for the tunnel; `create` says what its session is if it has to be made. */
void resume_leg_ask(struct resume_leg *leg, const struct manager_message *create);
void resume_leg_close(struct resume_leg *leg);

/* From the session manager; false: not a leg's affair. */
bool resume_leg_message(struct resume_leg *leg, const struct manager_message *m);
bool resume_leg_lost(struct resume_leg *leg); /* before it answered */
bool resume_leg_error(struct resume_leg *leg, const struct manager_message *m);
/* From the client. */
void resume_leg_data(struct resume_leg *leg, const struct ws_data *data);
bool resume_leg_control(struct resume_leg *leg, enum ws_opcode opcode, struct slice payload);

#endif
