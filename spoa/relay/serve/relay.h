/* SPDX-License-Identifier: MIT */
/*
 * relay: the process as a whole: its threads, what they share, and what operators see and do. On the main
 * thread alone.
 */
#ifndef CELLGATE_RELAY_SERVE_RELAY_H
#define CELLGATE_RELAY_SERVE_RELAY_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/serve/top.h"
#include "spoa/relay/thread/relay_thread.h"

struct keeper_server;
struct relay;

struct relay_options {
    struct loop *loop;
    struct log *log;
    const char *config; /* for a reload */
    const char *const *overrides;
    size_t override_count;
    const struct keeper_server *keeper; /* NULL: the process has none; outlives the relay */
    void (*drained)(void *context);     /* once, when the last tunnel has gone after relay_drain */
    void *context;
};

/* Starts the threads; they accept nobody before relay_serve. Settings are borrowed for the call. Returns NULL with *why on failure. */
struct relay *relay_start(const struct relay_options *options, const struct settings *settings,
                          struct fail *why);
/* Goes on with the tunnels that the server before has handed over, if there was one, then accepts clients: a client that has waited must not take
 * the place of a tunnel. */
void relay_serve(struct relay *relay);
/* Writes the tunnels into a memory file (handover.h) and returns it, or -1 if memory is short. All threads of the relay have ended their work;
 * the process exits next, without relay_stop, which would close the tunnels. */
int relay_hand_over(struct relay *relay);
/* In a salvager, after the death of this relay's process: writes the tunnels into a memory file for the next relay (salvage.h). */
void relay_salvage(struct relay *relay);
/* Ends all tunnels at once. NULL is fine. */
void relay_stop(struct relay *relay);
void relay_drain(struct relay *relay);
/* Asks the keeper for an upgrade. Returns false if there is no keeper. */
bool relay_upgrade(struct relay *relay, bool same);
/* Reads the configuration again; a bad one leaves the running one in force and is logged. Sockets, threads,
 * admin listeners and `buffer` stay as they were at the start. */
void relay_reload(struct relay *relay);
/* *why is one line for people. */
bool relay_ready(const struct relay *relay, const char **why);
/* One line per thread into the log. */
void relay_log_summary(struct relay *relay);

/* ---- views; false: the buffer is full ---- */
bool relay_write_metrics(struct relay *relay, struct buffer *to);
/* "tunnels":[...], a member of an object: of one sandbox, or of all if it is absent. */
bool relay_write_tunnels(struct relay *relay, struct slice sandbox, struct buffer *to);
/* Members of an object, each after a comma: what the keeper has done. */
bool relay_write_keeper(struct relay *relay, struct buffer *to);
/* What the live page shows: now, and samples of the last minutes. */
bool relay_write_stats(struct relay *relay, struct buffer *to);
/* Members of an object: the state, and what top.h has. */
bool relay_write_top(struct relay *relay, const struct top_question *question, struct buffer *to);
/* Ends one tunnel by its id; false: there is none. */
bool relay_kick(struct relay *relay, struct slice id);

#endif
