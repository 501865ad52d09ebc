/* SPDX-License-Identifier: MIT */
/*
 * http_loop: runs libcurl's transfers on a loop. libcurl tells the loop which descriptors and which time it waits for (its multi-socket
 * interface). It resolves names on threads of its own; a thread that hangs is abandoned, not waited for
 * (CURLOPT_QUICK_EXIT). After any event the owner is called once, at the end of the loop's turn, to check everything.
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
    struct loop_timer curl_timer; /* the time that libcurl waits for */
    struct loop_timer timer;      /* the time of http_loop_at */
    struct loop_task look;
};

/* Starts libcurl on `loop`. `look` is called after transfers have made progress, after http_loop_soon and at the time of http_loop_at.
 * Returns false with *why; http_loop_stop must not be called then. */
bool http_loop_start(struct http_loop *l, struct loop *loop, void (*look)(void *context), void *context,
                     struct fail *why) MUST_CHECK;
/* Stops libcurl; the owner has removed its transfers before. `look` is not called any more; `done` runs on `context` at the end of
 * this turn, instead of a `look` that is due, and may free the loop's memory. */
void http_loop_stop(struct http_loop *l, void (*done)(void *context), void *context);

/* Lets `look` run at the end of this turn. */
void http_loop_soon(struct http_loop *l);
/* Lets `look` run at `time` (of loop_clock), if nothing calls it before. */
void http_loop_at(struct http_loop *l, uint64_t time);
/* Begins transfers that were just added. Otherwise they would begin when libcurl's timer of zero expires. */
void http_loop_go(struct http_loop *l);

#endif
