/* SPDX-License-Identifier: MIT */
#include "examples/worker/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECTIONS_MAX 8192
#define TICK            1.0 /* seconds */
#define SECOND          INT64_C(1000000)

struct front {
    struct http_server server; /* the first member */
    struct http_server_options http;
    const struct front_options *options;
    struct front_work *works; /* each has a place of the server's */
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

static void not_found(struct http_exchange *x)
{
    http_refuse(x, 404, "not found");
}

static void wrong_method(struct http_exchange *x)
{
    http_refuse(x, 405, "method not allowed");
}

struct http_exchange *front_not_found(struct http_conn *h)
{
    struct http_exchange *x = http_exchange_new(sizeof *x, h);
    if (x)
        x->end = not_found;
    return x;
}

static void no_secret(struct http_exchange *x)
{
    http_answer(x, 401, "application/json", "WWW-Authenticate: Bearer\r\n",
                SLICE_LITERAL("{\"error\":\"unauthorized\"}"));
}

static void wrong_host(struct http_exchange *x)
{
    http_refuse(x, 421, "the Host is no name of this server");
}

static void wrong_origin(struct http_exchange *x)
{
    http_refuse(x, 403, "pages of other origins may not ask here");
}

static void wrong_type(struct http_exchange *x)
{
    http_refuse(x, 415, "this Content-Type is not taken: say application/json");
}

static bool is_refused(const struct front *f, struct http_exchange *x)
{
    static void (*const refusals[])(struct http_exchange * x) = {[GUARD_NO_SECRET] = no_secret,
                                                                 [GUARD_HOST] = wrong_host,
                                                                 [GUARD_ORIGIN] = wrong_origin,
                                                                 [GUARD_TYPE] = wrong_type};
    enum guard_verdict verdict = guard_judge(&f->options->guard, x->head);
    if (verdict != GUARD_PASS)
        x->end = refusals[verdict];
    return verdict != GUARD_PASS;
}

static struct http_exchange *route(struct http_server *server, struct http_conn *h)
{
    const struct front *f = (const struct front *)server;
    struct http_exchange *asked = front_not_found(h);
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
    return f->server.loop;
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
    if (net_local(listener_fd(&f->server.listener), &bound))
        printf("listening %s\n", net_text(&bound, text));
    fflush(stdout);
}

/* ---- connections ---- */

struct front *http_front(struct http_conn *h)
{
    return (struct front *)http_conn_server(h);
}

static void gone(struct http_server *server)
{
    if (server->draining && server->count == 0)
        loop_stop(server->loop);
}

void front_work_add(struct front *f, struct front_work *w)
{
    w->link = &f->works;
    w->next = f->works;
    if (w->next)
        w->next->link = &w->next;
    f->works = w;
    http_server_enter(&f->server);
}

void front_work_done(struct front *f, struct front_work *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    http_server_leave(&f->server);
}

/* Of what is late nobody is told. */
static void refuse(struct http_server *server, unsigned status, struct buffer *answer)
{
    (void)server;
    const char *text = status == 400   ? "400 Bad Request"
                       : status == 431 ? "431 Request Header Fields Too Large"
                                       : NULL;
    if (text && !(buffer_put(answer, SLICE_LITERAL("HTTP/1.1 ")) && buffer_put(answer, slice_text(text)) &&
                  buffer_put(answer, SLICE_LITERAL("\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))))
        buffer_free(answer);
}

static void tick_due(void *owner)
{
    struct front *f = owner;
    http_server_check(&f->server);
    loop_timer_set(&f->tick, TICK);
}

/* ---- life ---- */

static void bound_due(void *owner)
{
    loop_stop(((struct front *)owner)->server.loop);
}

void front_stop(struct front *f)
{
    if (f->server.draining || f->server.count == 0)
        return loop_stop(f->server.loop);
    loop_timer_set(&f->bound, f->options->drain);
    http_server_drain(&f->server);
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
    f->options = options;
    f->http = (struct http_server_options){
        .name = options->name,
        .head_max = HTTP_HEAD_MAX,
        .output_max = FRONT_OUTPUT_MAX,
        .connections = CONNECTIONS_MAX,
        .head_time = 10 * SECOND,
        .idle_time = 75 * SECOND,
        .linger = {.step = 30 * SECOND, .grace = 5 * SECOND, .drain = SIZE_MAX},
        .route = route,
        .refuse = refuse,
        .gone = gone,
    };
    http_server_open(&f->server, loop, listener, &f->http);
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
    close(http_server_close(&f->server));
    loop_timer_close(&f->tick);
    loop_timer_close(&f->bound);
    loop_turn(f->server.loop, false); /* connections free themselves at its end */
    while (f->works)
        f->works->end(f->works);
    free(f);
}
