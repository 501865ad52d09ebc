/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_loop.h"

#include <stdlib.h>

/* A descriptor that libcurl waits for. */
struct http_loop_socket {
    struct http_loop_socket *next;
    struct http_loop *owner;
    struct loop_io io;
};

void http_loop_soon(struct http_loop *l)
{
    loop_defer(l->loop, &l->look);
}

void http_loop_at(struct http_loop *l, uint64_t time)
{
    loop_timer_set_at(&l->timer, time);
}

void http_loop_go(struct http_loop *l)
{
    curl_multi_socket_action(l->multi, CURL_SOCKET_TIMEOUT, 0, &(int){0});
}

/* Tells libcurl what happened on a descriptor. */
static void act(struct http_loop *l, curl_socket_t fd, int events)
{
    int running;
    curl_multi_socket_action(l->multi, fd, events, &running);
    http_loop_soon(l);
}

static void on_socket(void *owner, int events)
{
    struct http_loop_socket *s = owner; /* freed by on_wanted if libcurl closes the descriptor */
    act(s->owner, loop_io_fd(&s->io),
        (events & LOOP_READ ? CURL_CSELECT_IN : 0) | (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0));
}

/* Call-back of libcurl: the events that it waits for on a descriptor have changed. */
static int on_wanted(CURL *easy, curl_socket_t fd, int what, void *context, void *of_socket)
{
    struct http_loop *l = context;
    struct http_loop_socket **at = &l->sockets;
    (void)easy, (void)of_socket;
    while (*at && loop_io_fd(&(*at)->io) != fd)
        at = &(*at)->next;
    struct http_loop_socket *s = *at;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            *at = s->next;
            (void)loop_io_release(&s->io); /* libcurl closes the descriptor */
            free(s);
        }
        return 0;
    }
    if (!s) {
        if (!(*at = s = calloc(1, sizeof *s)))
            return 0; /* the transfer times out; an error would end all transfers */
        s->owner = l;
        loop_io_open(&s->io, l->loop, fd, on_socket, s);
    }
    loop_io_want(&s->io, (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0));
    return 0;
}

static void on_curl_timer(void *owner)
{
    act(owner, CURL_SOCKET_TIMEOUT, 0);
}

/* Call-back of libcurl: its timer has changed, or ends if the time is -1. */
static int on_curl_time(CURLM *multi, long milliseconds, void *context)
{
    struct http_loop *l = context;
    (void)multi;
    if (milliseconds < 0)
        loop_timer_stop(&l->curl_timer);
    else
        loop_timer_set(&l->curl_timer, (uint64_t)milliseconds * MILLISECOND);
    return 0;
}

static void on_timer(void *owner)
{
    http_loop_soon(owner);
}

bool http_loop_start(struct http_loop *l, struct loop *loop, void (*look)(void *context), void *context,
                     struct fail *why)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fail(why, "libcurl cannot start");
    *l = (struct http_loop){
        .loop = loop, .multi = curl_multi_init(), .look = {.run = look, .context = context}};
    if (!l->multi) {
        curl_global_cleanup();
        return fail(why, "out of memory");
    }
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, on_wanted);
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, on_curl_time);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
    loop_timer_open(&l->curl_timer, loop, on_curl_timer, l);
    loop_timer_open(&l->timer, loop, on_timer, l);
    loop_timer_set(&l->timer, 0);
    return true;
}

void http_loop_stop(struct http_loop *l, void (*done)(void *context), void *context)
{
    curl_multi_cleanup(l->multi);
    for (struct http_loop_socket *s; (s = l->sockets); free(s)) {
        (void)loop_io_release(&s->io);
        l->sockets = s->next;
    }
    loop_timer_close(&l->curl_timer);
    loop_timer_close(&l->timer);
    curl_global_cleanup();
    l->look.run = done;
    l->look.context = context;
    loop_defer(l->loop, &l->look);
}
