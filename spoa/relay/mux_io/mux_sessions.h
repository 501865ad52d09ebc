/* SPDX-License-Identifier: MIT */
/*
 * mux_sessions: the mux sockets that their clients can resume, of all threads of the relay, by the id of their tunnel. An
 * upgrade arrives on any thread; it goes to the thread on which its socket lives. For any thread.
 */
#ifndef CELLGATE_RELAY_MUX_IO_MUX_SESSIONS_H
#define CELLGATE_RELAY_MUX_IO_MUX_SESSIONS_H

#include "spoa/base/table/hash_table.h"
#include "spoa/net/loop.h"
#include "spoa/proto/cell_resume.h"

struct mux_sessions;
struct relay_thread;

/* A member of what it names. */
struct mux_session {
    struct hash_node node;
    uint8_t id[CELL_RESUME_ID_LEN]; /* a capability: do not log it */
    struct relay_thread *thread;    /* on which it lives; NULL: it is not in the table */
};

/* NULL when out of memory. */
struct mux_sessions *mux_sessions_new(void);
void mux_sessions_free(struct mux_sessions *sessions); /* NULL is fine */

/* False: there is one of this id, or no memory. */
bool mux_sessions_add(struct mux_sessions *sessions, struct mux_session *session, struct slice id,
                      struct relay_thread *thread) __attribute__((warn_unused_result));
/* Fine for one that is not in there. */
void mux_sessions_remove(struct mux_sessions *sessions, struct mux_session *session);
/* The task runs on that one's thread, which is put into *thread before, and finds it there or not. False: there is none. */
bool mux_sessions_post(struct mux_sessions *sessions, struct slice id, struct loop_task *task,
                       struct relay_thread **thread) __attribute__((warn_unused_result));
/* One that lives on that thread, which asks; NULL: there is none. */
struct mux_session *mux_sessions_find(struct mux_sessions *sessions, struct slice id,
                                      const struct relay_thread *thread);

#endif
