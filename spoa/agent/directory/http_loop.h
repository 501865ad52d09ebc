/* SPDX-License-Identifier: MIT */
/*
 * http_loop: libcurl's transfers on a loop. libcurl tells the loop which descriptors and which time it waits for (its
 * multi-socket interface). It looks names up on threads of its own, and leaves one that hangs behind instead of waiting for
 * it (CURLOPT_QUICK_EXIT). Whatever happened, the owner takes one look at everything at the end of the loop's turn.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_LOOP_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_LOOP_H

#include <curl/curl.h>

#include "spoa/net/loop.h"

struct http_loop_socket;

struct http_loop {
    CURLM *multi;

    /* private */
    struct loop *loop;
    struct http_loop_socket *sockets;
    struct loop_timer curl_timer, timer; /* what libcurl waits for, and what the owner does */
    struct loop_task look;
};

/* look: what the owner does after transfers have moved, after http_loop_soon and when the time of http_loop_at has come.
 * False and *why; nothing is to be stopped then. */
bool http_loop_start(struct http_loop *l, struct loop *loop, void (*look)(void *context), void *context,
                     struct fail *why);
/* The transfers are removed already. No look follows; `done` runs on `context` at the end of this turn, behind one that
 * may be waiting: it may free the loop. */
void http_loop_stop(struct http_loop *l, void (*done)(void *context), void *context);

void http_loop_soon(struct http_loop *l);
/* The next look is then (of loop_clock), if nothing happens before. */
void http_loop_at(struct http_loop *l, uint64_t time);
/* Transfers that were just added begin now, not when libcurl's time of zero is over. */
void http_loop_go(struct http_loop *l);

#endif
