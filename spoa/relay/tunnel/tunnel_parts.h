/* SPDX-License-Identifier: MIT */
/*
 * What the files of the tunnel share and nobody else uses: tunnel.c (its life, its client, its times) stands on
 * tunnel_worker.c (workers that come and go), and both on tunnel_close.c (how a tunnel and its legs end). tunnel_image.c
 * writes all of it out and reads it back.
 */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H

#include "spoa/relay/tunnel/tunnel.h"

/* ---- tunnel_close.c ---- */
/* The only place where the state of one that was opened changes. */
void tunnel_enter(struct tunnel *t, enum tunnel_event event);
/* What the state means for its parts. */
void tunnel_tell_parts(struct tunnel *t);
/* Ends it; code and text are those that are passed on, for reasons that pass them. */
void tunnel_close(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text, uint64_t now);
/* The same for reasons that pass nothing. */
void tunnel_fail(struct tunnel *t, enum close_reason reason, uint64_t now);
/* false: there was no memory, and that ends it. */
void tunnel_need(struct tunnel *t, bool memory, uint64_t now);
/* In TUNNEL_opening: no tunnel. */
void tunnel_refuse(struct tunnel *t, enum refusal refusal);
/* What the connector says, when it does not go on. */
void tunnel_heed(struct tunnel *t, struct connector_result result, uint64_t now);
/* In TUNNEL_closing: the client gets its Close, t->pending_close, when the worker has answered its own. */
bool tunnel_owes_close(const struct tunnel *t);
void tunnel_pay_close(struct tunnel *t, uint64_t now);
/* A Close of the worker's that the client answers itself, or whose answer is passed on. */
void tunnel_pass_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
/* The client has been heard, or the worker does not listen: the worker is left, and the client's answer is waited for. */
void tunnel_heard_client(struct tunnel *t, uint64_t now);
/* Nothing more is to be done with the client's leg. */
void tunnel_leave_client(struct tunnel *t, uint64_t now);
void tunnel_client_lost(struct tunnel *t, uint64_t now);
/* Nobody has answered our Close, or the worker that of the client. */
void tunnel_close_overdue(struct tunnel *t, uint64_t now);
/* In TUNNEL_closing: until when an answer is waited for. */
uint64_t tunnel_close_due(const struct tunnel *t);
/* The worker's leg is left with a Close. keep: what is held for it is for the next one; else it is still sent. */
void tunnel_leave_worker(struct tunnel *t, unsigned code, struct slice text, bool keep, uint64_t now);
/* The same of one that has said this in its Close: what is held for it is for the next one. */
void tunnel_answer_worker(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
/* The worker's socket has ended. */
void tunnel_drop_worker(struct tunnel *t);
/* Counts what a worker that was lost may not have read, if nobody sends it again; all: what is held for the next one
 * goes, too. */
void tunnel_lose_input(struct tunnel *t, bool all);

/* ---- tunnel_recheck.c: the second connection to the worker that serves ---- */
struct recheck {
    struct ws_decoder in;
    uint64_t until;
    enum ws_opcode message;
    uint8_t control[WS_CONTROL_MAX];
};

/* Closes it, if there is one. */
void tunnel_end_recheck(struct tunnel *t, uint64_t now);
/* Opens one if the adapter asks for it, closes one that takes too long, and passes on what it has confirmed. */
void tunnel_check_recheck(struct tunnel *t, uint64_t now);
uint64_t tunnel_recheck_due(const struct tunnel *t);
/* The worker has ended after its session's exit. Returns true if its output is not confirmed yet: it is to be dialled again. */
bool tunnel_holds_exit(struct tunnel *t);

/* ---- tunnel_worker.c ---- */
void tunnel_worker_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
void tunnel_worker_lost(struct tunnel *t, enum loss how, uint64_t now);
/* Whether the next worker is dialled while the last one serves. */
bool tunnel_overlaps(const struct tunnel *t);
/* CONNECTOR_MOVED and CONNECTOR_STAYS. */
void tunnel_worker_moved(struct tunnel *t, const struct answer *answer, uint64_t now);
void tunnel_grace_over(struct tunnel *t, uint64_t now);
/* What was dialled is open. */
void tunnel_worker_found(struct tunnel *t, const struct http_head *head, uint64_t now);

#endif
