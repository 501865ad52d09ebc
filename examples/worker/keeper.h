/* SPDX-License-Identifier: MIT */
/*
 * keeper: all sessions, and the socket by which workers reach them (keeper_protocol.h). Sessions belong to
 * the keeper; connections only read them, so that any number of workers may come and go.
 *
 * The process that runs a keeper blocks SIGCHLD and calls keeper_reap when one is pending: all children are
 * the keeper's to wait for.
 */
#ifndef CELLGATE_WORKER_KEEPER_H
#define CELLGATE_WORKER_KEEPER_H

#include "examples/worker/resume_tunnel.h"
#include "examples/worker/running.h"

struct keeper;

struct keeper_options {
    const char *path; /* of the socket; it gets mode 0600 */
    unsigned sessions;
    unsigned connections;
    uint64_t memory; /* all rings together, in bytes */
    double grace;    /* seconds in which a Cell-Resume tunnel may come back */
    double wait;     /* seconds in which the first client of a session has to come that starts for it */
};

struct keeper *keeper_new(struct loop *loop, const struct keeper_options *options, struct fail *why);
/* Kills what is left; not while the loop runs. NULL is fine. */
void keeper_free(struct keeper *k);
void keeper_reap(struct keeper *k);
/* Takes no more connections, removes the socket and hangs up all sessions; stops the loop when all have
 * ended, or after some seconds. */
void keeper_stop(struct keeper *k);

/* ---- for connections ---- */
struct loop *keeper_loop(struct keeper *k);
void keeper_check(struct keeper *k); /* looks who has left */
struct running *keeper_find(struct keeper *k, struct slice scope,
                            struct slice id); /* NULL if there is none */
/* The first session after `r` (NULL: of all) in that scope (empty: any). */
struct running *keeper_next(struct keeper *k, struct running *r, struct slice scope);
/* NULL, *code and why when refused. An empty id is replaced by 8 random hexadecimal digits. */
struct running *keeper_create(struct keeper *k, const struct keeper_message *create, enum keeper_code *code,
                              struct fail *why);
/* The tunnel of that name, which is made with its session if it is not there and need not be. The carrier carries
 * it then, and *answer is a RESUMED. False, *code and why when refused; answer->number goes with KEEPER_OVER. */
bool keeper_resume(struct keeper *k, struct resume_carrier *c, const struct keeper_message *request,
                   struct keeper_message *answer, enum keeper_code *code, struct fail *why);

/* ---- keeper_conn.c ---- */
struct keeper_conn;
/* Takes fd over; false when out of memory (fd is closed then). `gone` is called when it has ended; the owner
 * frees it. */
struct keeper_conn *keeper_conn_new(struct keeper *k, int fd,
                                    void (*gone)(struct keeper *k, struct keeper_conn *c));
/* A connection that is not read would not be seen to end: to be called now and then. */
void keeper_conn_check(struct keeper_conn *c);
void keeper_conn_free(struct keeper_conn *c);

#endif
