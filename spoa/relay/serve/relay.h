/* SPDX-License-Identifier: MIT */
/*
 * relay: the whole process: its threads, the state that they share, and the operators' views and commands. Only the main thread calls
 * these functions.
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
    const char *config; /* path of the configuration, for a reload */
    const char *const *overrides;
    size_t override_count;
    const struct keeper_server *keeper; /* NULL without a keeper; must outlive the relay */
    void (*drained)(void *context);     /* called once, when the last tunnel has ended after relay_drain */
    void *context;
};

/* Starts the threads, which accept no client before relay_serve. Settings are borrowed for the call. Returns NULL with *why on failure. */
struct relay *relay_start(const struct relay_options *options, const struct settings *settings,
                          struct fail *why);
/* Takes over the tunnels of the previous server, if there was one, and then accepts clients. The order matters: a waiting client must not
 * take the slot of a tunnel. */
void relay_serve(struct relay *relay);
/* Writes the tunnels into a memory file (handover.h) and returns it, or -1 if memory is short. All threads of the relay have ended their work;
 * the process exits next, without relay_stop, which would close the tunnels. */
int relay_hand_over(struct relay *relay);
/* In a salvager, after the death of this relay's process: writes the tunnels into a memory file for the next relay (salvage.h). */
void relay_salvage(struct relay *relay);
/* Ends all tunnels at once. NULL is fine. */
void relay_stop(struct relay *relay);
/* Accepts no more tunnels, and ends the present ones gradually within the time of the key `drain`. */
void relay_drain(struct relay *relay);
/* Asks the keeper for an upgrade. Returns false if there is no keeper. */
bool relay_upgrade(struct relay *relay, bool same);
/* Reads the configuration again; a bad one leaves the running one in force and is logged. Keys that need a restart (struct option) keep
 * the value of the start, and are logged. */
void relay_reload(struct relay *relay);
/* Returns true if the relay can serve. *why is the reason, one line for operators. */
bool relay_ready(const struct relay *relay, const char **why);
/* Logs one line per thread. */
void relay_log_summary(struct relay *relay);

/* ---- views: each function returns false if the buffer is full ---- */
bool relay_write_metrics(struct relay *relay, struct buffer *to);
/* Writes "tunnels":[...], a member of an object, with the tunnels of one sandbox, or with all if `sandbox` is absent. */
bool relay_write_tunnels(struct relay *relay, struct slice sandbox, struct buffer *to);
/* Writes members of an object, each after a comma, about the keeper's restarts and upgrades. */
bool relay_write_keeper(struct relay *relay, struct buffer *to);
/* Writes the numbers of the live page: present values, and samples of the last minutes. */
bool relay_write_stats(struct relay *relay, struct buffer *to);
/* Writes members of an object: the relay's state, and the answer of top.h. */
bool relay_write_top(struct relay *relay, const struct top_question *question, struct buffer *to);
/* Ends one tunnel by its id. Returns false if there is no such tunnel. */
bool relay_kick(struct relay *relay, struct slice id);

#endif
