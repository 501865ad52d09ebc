/* SPDX-License-Identifier: MIT */
#include "examples/worker/front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


#define CONNECTIONS_MAX 8192
#define TICK            1.0 /* seconds */

struct front {
    struct http_server server; /* the first member */
    struct loop *loop;
    const struct front_options *options;
    int listener;
    struct loop_io accept;
    struct front_work *works;
    unsigned count; /* of both */
    struct loop_timer tick, bound;
};

/* ---- routing ---- */

static bool matches(const char *pattern, struct slice path, struct slice parts[FRONT_PARTS])
{
    struct slice rest = slice_text(pattern), want, part;
    size_t count = 0;
    while (slice_split(&rest, '/', &want)) {
        if (!slice_split(&path, '/', &part))
            return false;
        if (!slice_is(want, "*")) {
            if (!slice_equal(want, part))
                return false;
        } else if (part.len == 0 || count == FRONT_PARTS) {
            return false;
        } else {
            parts[count++] = part;
        }
    }
    return !slice_present(path);
}

static void not_found(struct exchange *x)
{
    http_refuse(x, 404, "not found");
}

static void wrong_method(struct exchange *x)
{
    http_refuse(x, 405, "method not allowed");
}

struct exchange *front_not_found(struct http_conn *h)
{
    struct exchange *x = http_exchange_new(sizeof *x, h);
    if (x)
        x->end = not_found;
    return x;
}

static void no_secret(struct exchange *x)
{
    http_answer(x, 401, "application/json", "WWW-Authenticate: Bearer\r\n",
                SLICE_LITERAL("{\"error\":\"unauthorized\"}"));
}

static void wrong_host(struct exchange *x)
{
    http_refuse(x, 421, "the Host is no name of this server");
}

static void wrong_origin(struct exchange *x)
{
    http_refuse(x, 403, "pages of other origins may not ask here");
}

static void wrong_type(struct exchange *x)
{
    http_refuse(x, 415, "this Content-Type is not taken: say application/json");
}

static bool is_refused(const struct front *f, struct exchange *x)
{
    static void (*const refusals[])(struct exchange * x) = {[GUARD_NO_SECRET] = no_secret,
                                                            [GUARD_HOST] = wrong_host,
                                                            [GUARD_ORIGIN] = wrong_origin,
                                                            [GUARD_TYPE] = wrong_type};
    enum guard_verdict verdict = guard_judge(&f->options->guard, x->head);
    if (verdict != GUARD_PASS)
        x->end = refusals[verdict];
    return verdict != GUARD_PASS;
}

static struct exchange *route(struct http_server *server, struct http_conn *h)
{
    const struct front *f = (const struct front *)server;
    struct exchange *asked = front_not_found(h);
    struct slice parts[FRONT_PARTS] = {{NULL, 0}};
    if (!asked || is_refused(f, asked))
        return asked;
    for (const struct front_route *r = f->options->routes; r->path; r++) {
        if (!matches(r->path, asked->path, parts))
            continue;
        if (!*r->method || slice_is(asked->head->method, r->method)) {
            free(asked);
            return r->make(h, parts);
        }
        asked->end = wrong_method;
    }
    return asked;
}

/* ---- for what is served ---- */

const struct guard *front_guard(const struct front *f)
{
    return &f->options->guard;
}

void *front_context(const struct front *f)
{
    return f->options->context;
}

struct loop *front_loop(struct front *f)
{
    return f->loop;
}

const char *front_name(const struct front *f)
{
    return f->options->name;
}

bool front_is_draining(const struct front *f)
{
    return f->server.draining;
}

/* ---- for a main() ---- */

void front_say_listening(const struct front *f)
{
    char text[NET_TEXT];
    struct net_address bound;
    if (net_local(f->listener, &bound))
        printf("listening %s\n", net_text(&bound, text));
    fflush(stdout);
}

/* ---- connections ---- */

struct front *http_front(struct http_conn *h)
{
    return (struct front *)http_server(h);
}

static void gone(struct http_server *server)
{
    struct front *f = (struct front *)server;
    f->count--;
    if (f->server.draining && f->count == 0)
        loop_stop(f->loop);
}

void front_work_add(struct front *f, struct front_work *w)
{
    w->link = &f->works;
    w->next = f->works;
    if (w->next)
        w->next->link = &w->next;
    f->works = w;
    f->count++;
}

void front_work_done(struct front *f, struct front_work *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    gone(&f->server);
}

static void accept_ready(void *owner, int events)
{
    struct front *f = owner;
    (void)events;
    int fd = f->count < CONNECTIONS_MAX ? net_accept(f->listener) : -1;
    if (fd < 0) {
        bool later =
            f->count >= CONNECTIONS_MAX || (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED);
        if (later)
            loop_io_want(&f->accept, 0); /* until the next tick */
        return;
    }
    if (http_conn_new(&f->server, f->loop, fd))
        f->count++;
    else
        close(fd);
}

static void tick_due(void *owner)
{
    struct front *f = owner;
    for (struct http_conn *h = f->server.conns; h; h = http_conn_next(h))
        client_check(http_client(h));
    loop_io_want(&f->accept, LOOP_READ);
    loop_timer_set(&f->tick, TICK);
}

/* ---- life ---- */

static void bound_due(void *owner)
{
    loop_stop(((struct front *)owner)->loop);
}

void front_stop(struct front *f)
{
    if (f->server.draining || f->count == 0)
        return loop_stop(f->loop);
    f->server.draining = true;
    loop_timer_set(&f->bound, f->options->drain);
    for (struct http_conn *h = f->server.conns; h; h = http_conn_next(h))
        http_conn_leave(h);
}

struct front *front_new(struct loop *loop, const struct front_options *options, struct fail *why)
{
    struct front *f = calloc(1, sizeof *f);
    int listener = f ? net_listen(&options->listen, 0, why) : -1;
    if (listener < 0) {
        if (!f)
            fail(why, "out of memory");
        free(f);
        return NULL;
    }
    f->server = (struct http_server){.name = options->name, .route = route, .gone = gone};
    f->loop = loop;
    f->options = options;
    f->listener = listener;
    loop_io_open(&f->accept, loop, listener, accept_ready, f);
    loop_io_want(&f->accept, LOOP_READ);
    loop_timer_open(&f->tick, loop, tick_due, f);
    loop_timer_open(&f->bound, loop, bound_due, f);
    loop_timer_set(&f->tick, TICK);
    return f;
}

void front_free(struct front *f)
{
    if (!f)
        return;
    /* first: in the last turn nobody may come any more */
    loop_io_close(&f->accept);
    loop_timer_close(&f->tick);
    loop_timer_close(&f->bound);
    for (struct http_conn *h = f->server.conns; h; h = http_conn_next(h))
        client_abort(http_client(h));
    loop_turn(f->loop, false); /* they free themselves at its end */
    while (f->works)
        f->works->end(f->works);
    free(f);
}
