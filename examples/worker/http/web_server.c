/* SPDX-License-Identifier: MIT */
#include "examples/worker/http/web_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/table/list.h"

#define CONNECTIONS_MAX 8192
#define TICK            SECOND

struct web_server {
    struct http_server http; /* the first member */
    struct http_server_options http_options;
    const struct web_server_options *options;
    struct web_server_work *works; /* each has a place of the server's */
    struct loop_timer tick, bound;
};

/* ---- routing ---- */

static bool matches(const char *pattern, struct slice path, struct slice parts[WEB_SERVER_PARTS])
{
    struct slice rest = slice_text(pattern), want, part;
    size_t count = 0;
    while (slice_split(&rest, '/', &want)) {
        if (!slice_split(&path, '/', &part))
            return false;
        if (!slice_is(want, "*")) {
            if (!slice_equal(want, part))
                return false;
        } else if (part.len == 0 || count == WEB_SERVER_PARTS) {
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

struct http_exchange *web_server_not_found(struct http_conn *h)
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

static bool is_refused(const struct web_server *web, struct http_exchange *x)
{
    static void (*const refusals[])(struct http_exchange * x) = {[GUARD_NO_SECRET] = no_secret,
                                                                 [GUARD_HOST] = wrong_host,
                                                                 [GUARD_ORIGIN] = wrong_origin,
                                                                 [GUARD_TYPE] = wrong_type};
    enum guard_verdict verdict = guard_judge(&web->options->guard, x->head);
    if (verdict != GUARD_PASS)
        x->end = refusals[verdict];
    return verdict != GUARD_PASS;
}

static struct http_exchange *route(struct http_server *server, struct http_conn *h)
{
    const struct web_server *web = (const struct web_server *)server;
    struct http_exchange *asked = web_server_not_found(h);
    struct slice parts[WEB_SERVER_PARTS] = {{NULL, 0}};
    if (!asked || is_refused(web, asked))
        return asked;
    for (const struct web_server_route *r = web->options->routes; r->path; r++) {
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

const struct guard *web_server_guard(const struct web_server *web)
{
    return &web->options->guard;
}

void *web_server_context(const struct web_server *web)
{
    return web->options->context;
}

struct loop *web_server_loop(struct web_server *web)
{
    return web->http.loop;
}

const char *web_server_name(const struct web_server *web)
{
    return web->options->name;
}

bool web_server_is_draining(const struct web_server *web)
{
    return web->http.draining;
}

/* ---- for a main() ---- */

void web_server_say_listening(const struct web_server *web)
{
    char text[NET_TEXT];
    struct net_address bound;
    if (net_local(listener_fd(&web->http.listener), &bound))
        printf("listening %s\n", net_text(&bound, text));
    fflush(stdout);
}

/* ---- connections ---- */

struct web_server *web_server_of(struct http_conn *h)
{
    return (struct web_server *)http_conn_server(h);
}

static void gone(struct http_server *server)
{
    if (server->draining && server->count == 0)
        loop_stop(server->loop);
}

void web_server_work_add(struct web_server *web, struct web_server_work *w)
{
    LIST_PUSH(web->works, w);
    http_server_enter(&web->http);
}

void web_server_work_done(struct web_server *web, struct web_server_work *w)
{
    LIST_UNLINK(w);
    http_server_leave(&web->http);
}

/* What is late is answered to nobody. */
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
    struct web_server *web = owner;
    http_server_check(&web->http);
    loop_timer_set(&web->tick, TICK);
}

/* ---- life ---- */

static void bound_due(void *owner)
{
    loop_stop(((struct web_server *)owner)->http.loop);
}

void web_server_stop(struct web_server *web)
{
    if (web->http.draining || web->http.count == 0)
        return loop_stop(web->http.loop);
    loop_timer_set(&web->bound, web->options->drain);
    http_server_drain(&web->http);
}

struct web_server *web_server_new(struct loop *loop, const struct web_server_options *options,
                                  struct fail *why)
{
    struct web_server *web = calloc(1, sizeof *web);
    int listener = web ? net_listen(&options->listen, 0, why) : -1;
    if (listener < 0) {
        if (!web)
            fail(why, "out of memory");
        free(web);
        return NULL;
    }
    web->options = options;
    web->http_options = (struct http_server_options){
        .name = options->name,
        .head_max = HTTP_HEAD_MAX,
        .output_max = WEB_SERVER_OUTPUT_MAX,
        .connections = CONNECTIONS_MAX,
        .head_time = 10 * SECOND,
        .idle_time = 75 * SECOND,
        .linger = {.step = 30 * SECOND, .grace = 5 * SECOND, .drain = SIZE_MAX},
        .route = route,
        .refuse = refuse,
        .gone = gone,
    };
    http_server_open(&web->http, loop, listener, &web->http_options);
    loop_timer_open(&web->tick, loop, tick_due, web);
    loop_timer_open(&web->bound, loop, bound_due, web);
    loop_timer_set(&web->tick, TICK);
    return web;
}

void web_server_free(struct web_server *web)
{
    if (!web)
        return;
    /* first: in the last turn nobody may come any more */
    close(http_server_close(&web->http));
    loop_timer_close(&web->tick);
    loop_timer_close(&web->bound);
    loop_turn(web->http.loop, false); /* connections free themselves at its end */
    while (web->works)
        web->works->end(web->works);
    free(web);
}
