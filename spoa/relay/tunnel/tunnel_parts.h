/* SPDX-License-Identifier: MIT */
/* Declarations that only the tunnel_*.c files share. tunnel.c (life, client, times) uses tunnel_worker.c (workers that come and go); both
 * use tunnel_close.c (how a tunnel and its legs end). tunnel_image.c saves and restores all of the tunnel's state. */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H

#include "spoa/relay/tunnel/tunnel.h"

/* ---- tunnel_close.c ---- */
/* Moves the tunnel to the state that the event leads to. Invariant: the state of an opened tunnel changes only here. */
void tunnel_enter(struct tunnel *t, enum tunnel_event event);
/* Sets the purpose of the connector and the mode of `forward` to match the state. */
void tunnel_tell_parts(struct tunnel *t);
/* Closes the tunnel. `code` and `text` are passed on for reasons that are CLOSE_PASSED. */
void tunnel_close(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text, uint64_t now);
/* Closes the tunnel for a reason that has a code and text of its own. */
void tunnel_fail(struct tunnel *t, enum close_reason reason, uint64_t now);
/* Closes the tunnel with CLOSE_no_memory if `memory` is false. */
void tunnel_need(struct tunnel *t, bool memory, uint64_t now);
/* Refuses the client's request, in TUNNEL_opening. */
void tunnel_refuse(struct tunnel *t, enum refusal refusal);
/* Closes or refuses the tunnel if the connector's result is CONNECTOR_HOPELESS. */
void tunnel_heed(struct tunnel *t, struct connector_result result, uint64_t now);
/* tunnel_owes_close returns true in TUNNEL_closing if the client gets its Close (t->pending_close) after the worker has answered the
 * relay's Close; tunnel_pay_close sends that Close. */
bool tunnel_owes_close(const struct tunnel *t);
void tunnel_pay_close(struct tunnel *t, uint64_t now);
/* Passes a worker's Close to a client that answers the Close itself, or whose answer is passed on. */
void tunnel_pass_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
/* Detaches the worker after the client's last data, or because the worker does not read, and waits for the client's Close. */
void tunnel_heard_client(struct tunnel *t, uint64_t now);
/* Detaches both legs and ends the tunnel. */
void tunnel_leave_client(struct tunnel *t, uint64_t now);
void tunnel_client_lost(struct tunnel *t, uint64_t now);
/* Ends a tunnel in which a Close was not answered in time. */
void tunnel_close_overdue(struct tunnel *t, uint64_t now);
/* Returns the time until which an answer is awaited, in TUNNEL_closing. */
uint64_t tunnel_close_due(const struct tunnel *t);
/* Detaches the worker's leg with a Close. If `keep` is true, the output held for this worker is kept for the next one; otherwise it is
 * still sent. */
void tunnel_leave_worker(struct tunnel *t, unsigned code, struct slice text, bool keep, uint64_t now);
/* Answers a worker's Close and detaches its leg; the output held for this worker is kept for the next one. */
void tunnel_answer_worker(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
/* Drops the worker's leg after its socket has ended. */
void tunnel_drop_worker(struct tunnel *t);
/* Counts input that a lost worker may not have read, if nobody sends it again. If `all` is true, output held for the next worker is
 * discarded and counted too. */
void tunnel_lose_input(struct tunnel *t, bool all);

/* ---- tunnel_recheck.c: the second connection to the worker that serves ---- */
struct recheck {
    struct ws_decoder in;
    uint64_t until;
    enum ws_opcode message;
    uint8_t control[WS_CONTROL_MAX];
};

/* Closes the second connection, if there is one. */
void tunnel_end_recheck(struct tunnel *t, uint64_t now);
/* Opens a second connection if the adapter asks for one, closes one that takes too long, and forwards output that the connection has
 * confirmed. */
void tunnel_check_recheck(struct tunnel *t, uint64_t now);
uint64_t tunnel_recheck_due(const struct tunnel *t);
/* Called if the worker has ended after its session's exit. Returns true if its output is not confirmed yet and the worker must be dialled
 * again. */
bool tunnel_holds_exit(struct tunnel *t);

/* ---- tunnel_worker.c ---- */
void tunnel_worker_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
void tunnel_worker_lost(struct tunnel *t, enum loss how, uint64_t now);
/* Returns true if the next worker is dialled while the last one serves. */
bool tunnel_overlaps(const struct tunnel *t);
/* Handle CONNECTOR_MOVED (tunnel_worker_moved) and CONNECTOR_STAYS (tunnel_grace_over). */
void tunnel_worker_moved(struct tunnel *t, const struct answer *answer, uint64_t now);
void tunnel_grace_over(struct tunnel *t, uint64_t now);
/* Handles a dial that succeeded. */
void tunnel_worker_found(struct tunnel *t, const struct http_head *head, uint64_t now);

#endif
