/* SPDX-License-Identifier: MIT */
/* Small answers: what the worker saw of a request, and whether it is well. */
#include <stdio.h>
#include <stdlib.h>

#include "examples/worker/bridge/worker_options.h"
#include "examples/worker/http/web_server.h"
#include "examples/worker/systems/digest.h"
#include "examples/worker/systems/json_text.h"
#include "examples/worker/systems/serve.h"

static struct http_exchange *make(struct http_conn *h, void (*end)(struct http_exchange *x))
{
    struct http_exchange *x = http_exchange_new(sizeof *x, h);
    if (x)
        x->end = end;
    return x;
}

/* ---- /echo: the request line, the fields in their order, length and hash of the body ---- */

struct echo {
    struct http_exchange x;
    struct digest digest;
};

static void echo_body(struct http_exchange *x, struct slice piece)
{
    digest_add(&((struct echo *)x)->digest, piece);
}

/* Who may see this page may not see what gate and worker share. */
static struct slice shown_value(const struct http_exchange *x, const struct http_field *field)
{
    bool shared = (web_server_guard(web_server_of(x->conn))->secret &&
                   slice_equal_nocase(field->name, SLICE_LITERAL("Authorization"))) ||
                  (worker_options(x->conn)->token &&
                   slice_equal_nocase(field->name, SLICE_LITERAL("X-EXECD-ACCESS-TOKEN")));
    return shared ? SLICE_LITERAL("***") : field->value;
}

static void put_echo_json(struct writer *w, struct http_exchange *x, uint64_t length, const char *hash)
{
    const struct http_head *head = x->head;
    writer_text(w, "{\"worker\":");
    json_text_put(w, slice_text(web_server_name(web_server_of(x->conn))));
    writer_text(w, ",\"method\":");
    json_text_put_bytes(w, head->method);
    writer_text(w, ",\"target\":");
    json_text_put_bytes(w, head->target);
    writer_printf(w, ",\"version\":\"HTTP/1.%u\",\"headers\":[", head->minor);
    for (size_t i = 0; i < head->count; i++) {
        writer_text(w, i ? ",[" : "[");
        json_text_put_bytes(w, head->fields[i].name);
        writer_text(w, ",");
        json_text_put_bytes(w, shown_value(x, &head->fields[i]));
        writer_text(w, "]");
    }
    writer_printf(w, "],\"body_length\":%llu,\"body_sha256\":\"%s\"}\n", (unsigned long long)length, hash);
}

static void put_echo_text(struct writer *w, struct http_exchange *x, uint64_t length, const char *hash)
{
    const struct http_head *head = x->head;
    writer_put(w, head->method);
    writer_text(w, " ");
    writer_put(w, head->target);
    writer_printf(w, " HTTP/1.%u\n", head->minor);
    for (size_t i = 0; i < head->count; i++) {
        writer_put(w, head->fields[i].name);
        writer_text(w, ": ");
        writer_put(w, shown_value(x, &head->fields[i]));
        writer_text(w, "\n");
    }
    writer_printf(w, "\n%llu %s\n", (unsigned long long)length, hash);
}

static void echo_end(struct http_exchange *x)
{
    struct echo *e = (struct echo *)x;
    char hash[DIGEST_TEXT];
    size_t size = 4096 + 8 * x->head->len;
    char *memory = malloc(size);
    struct writer w = writer_of(memory, memory ? size : 0);
    bool text = slice_is(http_parameter(x, "format"), "text");
    if (!memory || !digest_text(&e->digest, hash)) {
        http_refuse(x, 500, "out of memory");
    } else {
        (text ? put_echo_text : put_echo_json)(&w, x, e->digest.length, hash);
        http_answer(x, 200, text ? "text/plain" : "application/json", NULL, writer_slice(&w));
    }
    free(memory);
}

static void echo_close(struct http_exchange *x)
{
    digest_free(&((struct echo *)x)->digest);
}

struct http_exchange *serve_echo(struct http_conn *h, const struct slice *parts)
{
    struct echo *e = http_exchange_new(sizeof *e, h);
    (void)parts;
    if (!e)
        return NULL;
    digest_begin(&e->digest);
    e->x.body = echo_body;
    e->x.end = echo_end;
    e->x.close = echo_close;
    return &e->x;
}

/* ---- /headers: fields that come twice ---- */

static void headers_end(struct http_exchange *x)
{
    http_answer(x, 200, "text/plain",
                "Set-Cookie: one=1; Path=/\r\n"
                "Set-Cookie: two=2; Path=/; HttpOnly\r\n"
                "X-Repeated: first\r\n"
                "X-Repeated: second\r\n"
                "X-Empty:\r\n",
                SLICE_LITERAL("see the header fields\n"));
}

struct http_exchange *serve_headers(struct http_conn *h, const struct slice *parts)
{
    (void)parts;
    return make(h, headers_end);
}

/* ---- health ---- */

static void health_end(struct http_exchange *x)
{
    http_answer(x, 200, "application/json", NULL, SLICE_LITERAL("{\"status\":\"ok\"}"));
}

struct http_exchange *serve_health(struct http_conn *h, const struct slice *parts)
{
    (void)parts;
    return make(h, health_end);
}

static void ready_end(struct http_exchange *x)
{
    if (web_server_is_draining(web_server_of(x->conn)))
        http_answer(x, 503, "application/json", NULL, SLICE_LITERAL("{\"status\":\"draining\"}"));
    else
        http_answer(x, 200, "application/json", NULL, SLICE_LITERAL("{\"status\":\"ready\"}"));
}

struct http_exchange *serve_ready(struct http_conn *h, const struct slice *parts)
{
    (void)parts;
    return make(h, ready_end);
}
