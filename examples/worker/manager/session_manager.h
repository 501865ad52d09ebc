/* SPDX-License-Identifier: MIT */
/*
 * session_manager: all sessions, and the socket by which workers reach them (manager_protocol.h). Sessions belong to
 * the session manager; connections only read them, so that any number of workers may come and go.
 *
 * The process that runs it blocks SIGCHLD and calls session_manager_reap when one is pending: all children are
 * the session manager's to wait for.
 */
#ifndef CELLGATE_WORKER_MANAGER_SESSION_MANAGER_H
#define CELLGATE_WORKER_MANAGER_SESSION_MANAGER_H

#include "examples/worker/resume/resume_tunnel.h"
#include "examples/worker/session/running.h"

struct session_manager;

struct session_manager_options {
    const char *path; /* of the socket; it gets mode 0600 */
    unsigned sessions;
    unsigned connections;
    uint64_t memory; /* all rings together, in bytes */
    uint64_t grace;  /* microseconds in which a Cell-Resume tunnel may come back */
    uint64_t wait;   /* microseconds in which the first client of a session has to come that starts for it */
};

struct session_manager *session_manager_new(struct loop *loop, const struct session_manager_options *options,
                                            struct fail *why);
/* Kills what is left; not while the loop runs. NULL is fine. */
void session_manager_free(struct session_manager *manager);
void session_manager_reap(struct session_manager *manager);
/* Takes no more connections, removes the socket and hangs up all sessions; stops the loop when all have
 * ended, or after some seconds. */
void session_manager_stop(struct session_manager *manager);

/* ---- for connections ---- */
struct loop *session_manager_loop(struct session_manager *manager);
void session_manager_check(struct session_manager *manager); /* looks who has left */
struct running *session_manager_find(struct session_manager *manager, struct slice scope,
                                     struct slice id); /* NULL if there is none */
/* The first session after `r` (NULL: of all) in that scope (empty: any). */
struct running *session_manager_next(struct session_manager *manager, struct running *r, struct slice scope);
/* NULL, *code and why when refused. An empty id is replaced by 8 random hexadecimal digits. */
struct running *session_manager_create(struct session_manager *manager, const struct manager_message *create,
                                       enum manager_code *code, struct fail *why);
/* The tunnel of that name, which is made with its session if it is not there and need not be. The carrier carries
 * it then, and *answer is a RESUMED. False, *code and why when refused; answer->number goes with MANAGER_OVER. */
bool session_manager_resume(struct session_manager *manager, struct resume_carrier *c,
                            const struct manager_message *request, struct manager_message *answer,
                            enum manager_code *code, struct fail *why);

/* ---- session_manager_conn.c ---- */
struct session_manager_conn;
/* Takes fd over; false when out of memory (fd is closed then). `gone` is called when it has ended; the owner
 * frees it. */
struct session_manager_conn *session_manager_conn_new(struct session_manager *manager, int fd,
                                                      void (*gone)(struct session_manager *manager,
                                                                   struct session_manager_conn *c));
/* A connection that is not read would not be seen to end: to be called now and then. */
void session_manager_conn_check(struct session_manager_conn *c);
void session_manager_conn_free(struct session_manager_conn *c);

#endif
