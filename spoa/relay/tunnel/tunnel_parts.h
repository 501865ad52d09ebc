/* SPDX-License-Identifier: MIT */
/*
 * What the files of the tunnel machine share and nobody else uses: tunnel.c (life and times), tunnel_pass.c
 * (frames), tunnel_lose.c (what a worker's end means), tunnel_seek.c (finding the next one).
 */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_PARTS_H

#include "spoa/relay/tunnel/tunnel.h"

#define READ_LEAST 4096 /* bytes of a side that are read however short memory is, if nothing of it is held */

static inline enum side other(enum side side)
{
    return side == CLIENT ? WORKER : CLIENT;
}

static inline void put(struct tunnel *t, enum command_kind kind)
{
    commands_put(t->host->commands, &(struct command){.kind = kind});
}

/* ---- tunnel.c ---- */
void tunnel_note_unconfirmed(struct tunnel *t, uint64_t bytes);
void tunnel_drop(struct tunnel *t, enum side side);
/* Ends it; code and text are those that are passed on, for reasons that pass them. */
void tunnel_close(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text, uint64_t now);
/* The worker's leg is left with a Close. keep: what is held for it is for the next one; else it is still
 * sent. */
void tunnel_leave_worker(struct tunnel *t, unsigned code, struct slice text, bool keep, uint64_t now);
/* In TUNNEL_CLOSING: the client gets its Close, t->pending_close, when the worker has answered its own. */
static inline bool tunnel_owes_close(const struct tunnel *t)
{
    return t->reason == CLOSE_client_closed || t->reason == CLOSE_client_protocol;
}
/* In TUNNEL_CLOSING: the worker, which has made a mistake, gets its Close behind what the client still says to what came
 * before that. */
static inline bool tunnel_hears_client(const struct tunnel *t)
{
    return t->state == TUNNEL_CLOSING && t->reason == CLOSE_worker_protocol && t->worker_there;
}
/* The same of one that has said this in its Close: what is held for it is for the next one. */
void tunnel_answer_worker(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
/* It has been heard, or the worker does not listen: the worker is left, and the client's answer is waited for. */
void tunnel_heard_client(struct tunnel *t, uint64_t now);
/* Nothing more is to be done with the client's leg. */
void tunnel_leave_client(struct tunnel *t, uint64_t now);
/* Counts what a worker that was lost may not have read, if nobody sends it again; all: what is held for the next
 * one goes, too. */
void tunnel_lose_input(struct tunnel *t, bool all);
void tunnel_reading(struct tunnel *t, uint64_t now);
/* How many more bytes of that side may be held, as far as memory goes; may be 0. */
size_t tunnel_memory(const struct tunnel *t, enum side from);
/* In TUNNEL_OPENING. */
void tunnel_refuse(struct tunnel *t, enum refusal refusal);

/* ---- tunnel_pass.c ---- */
bool tunnel_send_control(struct tunnel *t, enum side to, enum ws_opcode opcode, struct slice payload,
                         uint64_t now);
bool tunnel_send_close(struct tunnel *t, enum side to, unsigned code, struct slice text, uint64_t now);
void tunnel_keep_alive(struct tunnel *t, enum side to, uint64_t now);
/* Ends a message towards the client that the worker has left open; false: that is not possible. */
bool tunnel_mend_message(struct tunnel *t, uint64_t now);

/* A Pong by which the adapter acknowledges, if one is due and the client is not too slow. */
void tunnel_acknowledge(struct tunnel *t, uint64_t now);
/* However slow the client is: the session has ended, there is nothing more to hold back. */
void tunnel_acknowledge_all(struct tunnel *t, uint64_t now);
/* Says that the client's Close comes next, to workers that number it. */
void tunnel_mark_end(struct tunnel *t, uint64_t now);
void tunnel_declare(struct tunnel *t, enum adapter_outcome outcome, uint64_t gap);
/* Tells the adapter the time, or ADAPTER_NO_MORE. */
void tunnel_tell_adapter(struct tunnel *t, uint64_t time, uint64_t now);
/* So much is held for the client that it is not told to the worker yet what was received. */
bool tunnel_withholds(const struct tunnel *t);

/* ---- tunnel_lose.c ---- */
void tunnel_worker_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now);
void tunnel_worker_lost(struct tunnel *t, enum loss how, uint64_t now);
/* The worker was lost or left: what is held for it is for the next one. */
void tunnel_worker_gone(struct tunnel *t, enum loss loss, uint64_t now);
/* Behind that: the tunnel is redialling, and the search has a budget; or it is closed, where that is not to be. */
void tunnel_redial(struct tunnel *t, uint64_t now);
/* Nothing was announced in time: it was the session's end. */
void tunnel_settled(struct tunnel *t, uint64_t now);

/* ---- tunnel_seek.c ---- */
void tunnel_seek_begin(struct tunnel *t, uint64_t budget, uint64_t now);
/* The next attempt, now or after a pause; without budget the search is given up. */
void tunnel_seek_again(struct tunnel *t, uint64_t now);
void tunnel_ask(struct tunnel *t, uint64_t now);
void tunnel_seek_tick(struct tunnel *t, uint64_t now);
uint64_t tunnel_seek_due(const struct tunnel *t);
void tunnel_seek_stop(struct tunnel *t);
void tunnel_watch(struct tunnel *t, uint64_t now);
/* Without a pause behind a watch that told nothing new: a change is waited for. */
void tunnel_watch_now(struct tunnel *t, uint64_t now);

#endif
