/* SPDX-License-Identifier: MIT */
/*
 * mux_sessions: a table of the resumable mux sockets of all threads of the relay, by the id in Cell-Resume's terms. An upgrade arrives
 * on any thread, and is handed to the thread on which its socket lives. Every thread may call these functions.
 */
#ifndef CELLGATE_RELAY_MUX_IO_MUX_SESSIONS_H
#define CELLGATE_RELAY_MUX_IO_MUX_SESSIONS_H

#include "spoa/base/table/hash_table.h"
#include "spoa/net/loop.h"
#include "spoa/proto/cell_resume.h"

struct mux_sessions;
struct relay_thread;

/* An entry of the table, which its socket embeds as first member. */
struct mux_session {
    struct hash_node node;
    uint8_t id[CELL_RESUME_ID_LEN]; /* whoever knows the id may resume the socket: do not log it */
    struct relay_thread *thread;    /* thread of the socket; NULL while the entry is not in the table */
};

/* Returns NULL if memory is short. */
struct mux_sessions *mux_sessions_new(void);
/* Frees the table, which must be empty. NULL is fine. */
void mux_sessions_free(struct mux_sessions *sessions);

/* Adds a session of `thread`. Returns false if there is one with this id, or memory is short. */
bool mux_sessions_add(struct mux_sessions *sessions, struct mux_session *session, struct slice id,
                      struct relay_thread *thread) __attribute__((warn_unused_result));
/* Removes the session if it is in the table. */
void mux_sessions_remove(struct mux_sessions *sessions, struct mux_session *session);
/* Posts the task to the thread of the session with this id, and sets *thread before that. The session may be gone when the task runs.
 * Returns false if there is no such session. */
bool mux_sessions_post(struct mux_sessions *sessions, struct slice id, struct loop_task *task,
                       struct relay_thread **thread) __attribute__((warn_unused_result));
/* Returns the session with this id if it belongs to `thread`, which must be the caller's; otherwise NULL. */
struct mux_session *mux_sessions_find(struct mux_sessions *sessions, struct slice id,
                                      const struct relay_thread *thread);

#endif
