/* SPDX-License-Identifier: MIT */
#include "spoa/service/admin.h"

#include <stddef.h>
#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/file.h"
#include "spoa/net/http_server.h"
#include "spoa/net/net.h"
#include "spoa/service/http_site.h"

struct admin {
    const struct admin_page *pages;
    size_t count;
    struct admin_rules rules;
    struct http_server server;
    struct loop_task gone; /* frees the memory after the connections are closed */
};

/* ---- answers ---- */

/* Returns the reason phrase of a status (RFC 9110 section 15). */
static const char *reason(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 421:
        return "Misdirected Request";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    default:
        return status < 500 ? "Refused" : "Internal Server Error";
    }
}

/* Writes the whole answer, or nothing if there is no room. */
static void put_answer(struct buffer *to, unsigned status, const char *type, const char *policy,
                       struct slice body, bool head_only)
{
    char memory[1024];
    struct writer head = writer_of(memory, sizeof memory);
    const char *field = status == 405   ? "Allow: GET, HEAD\r\n"
                        : status == 401 ? "WWW-Authenticate: Bearer\r\n"
                                        : ""; /* the field that the status requires */
    writer_printf(&head,
                  "HTTP/1.1 %u %s\r\n%sContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                  "Content-Security-Policy: %s\r\n" HTTP_SITE_FIELDS "Connection: close\r\n\r\n",
                  status, reason(status), field, type, body.len,
                  policy ? policy : "default-src 'none'; frame-ancestors 'none'");
    if (head.full || !buffer_put(to, writer_slice(&head)) || (!head_only && !buffer_put(to, body)))
        buffer_free(to);
}

/* Writes an error as JSON. */
static void put_error(struct buffer *to, unsigned status, const char *code, const char *message)
{
    char memory[256];
    struct writer body = writer_of(memory, sizeof memory);
    writer_printf(&body, "{\"error\":\"%s\",\"message\":\"%s\",\"retryable\":false}\n", code, message);
    put_answer(to, status, ADMIN_JSON, NULL, writer_slice(&body), false);
}

/* ---- requests ---- */

struct slice admin_token(struct slice content)
{
    struct slice line = slice_sub(content, 0, slice_find(content, '\n'));
    return slice_trim(slice_sub(line, 0, slice_find(line, '\r')));
}

/* Returns whether the request has the token. A token that cannot be read, or is empty, admits nobody. */
static bool brings_token(const struct http_head *head, const char *path)
{
    struct slice said = http_get(head, "Authorization"), file;
    struct fail why;
    if (http_count(head, "Authorization") != 1 || said.len < 7 ||
        !slice_equal_nocase(slice_sub(said, 0, 7), SLICE_LITERAL("Bearer ")) ||
        !file_read_secret(path, ADMIN_TOKEN_MAX, FILE_READABLE, &file, &why))
        return false;
    struct slice token = admin_token(file);
    bool same = token.len > 0 && slice_equal_constant_time(token, slice_trim(slice_from(said, 7)));
    file_free(file);
    return same;
}

/* Writes the answer to a request. */
static void answer_request(const struct admin *admin, const struct http_head *head, struct buffer *to)
{
    const struct admin_rules *rules = &admin->rules;
    struct slice query = head->target, path;
    slice_split(&query, '?', &path);
    bool get = slice_is(head->method, "GET"), head_only = slice_is(head->method, "HEAD");
    if (!get && !head_only) {
        put_error(to, 405, "method_not_allowed", "Only GET and HEAD are allowed here.");
        return;
    }
    struct slice host = http_get(head, "Host"); /* absent in HTTP/1.0, which no browser sends */
    if (!rules->anyone && slice_present(host) && !http_site_is_unnamed(http_site_name(host))) {
        put_error(to, 421, "bad_request", "The Host must be localhost or an IP address.");
        return;
    }
    if (!http_site_is_own(head)) {
        put_error(to, 403, "origin_refused", "Pages of other origins may not send requests here.");
        return;
    }
    if (rules->token_file && slice_is(path, rules->guarded) && !brings_token(head, rules->token_file)) {
        put_error(to, 401, "token_invalid", "This page requires a token, which is missing or wrong.");
        return;
    }
    for (size_t i = 0; i < admin->count; i++) {
        const struct admin_page *page = &admin->pages[i];
        if (!slice_is(path, page->path))
            continue;
        struct admin_answer answer = {.status = 200, .type = "text/plain; charset=utf-8"};
        answer.body = buffer_with_limit(ADMIN_BODY_MAX);
        if (page->make(page->context, query, &answer))
            put_answer(to, answer.status, answer.type, answer.policy, buffer_slice(&answer.body), head_only);
        else
            put_error(to, 500, "internal", "The page could not be made.");
        buffer_free(&answer.body);
        return;
    }
    put_error(to, 404, "not_found", "There is no such page.");
}

/* ---- the server ---- */

/* Answers at once: a body of the request is not read. */
static void answer(struct http_exchange *x)
{
    struct http_server *server = http_conn_server(x->conn);
    const struct admin *admin = (const struct admin *)((char *)server - offsetof(struct admin, server));
    answer_request(admin, x->head, &http_stream(x->conn)->out);
    http_finish(x->conn);
}

static struct http_exchange *on_request(struct http_server *server, struct http_conn *conn)
{
    struct http_exchange *x = http_exchange_new(sizeof *x, conn);
    (void)server;
    if (x)
        x->begin = answer;
    return x;
}

/* Answers a request that the HTTP server has refused. */
static void refuse(struct http_server *server, unsigned status, struct buffer *to)
{
    (void)server;
    if (status == 408)
        put_error(to, status, "request_timeout", "The request did not come in time.");
    else if (status == 431)
        put_error(to, status, "request_too_large", "The request's head is too large.");
    else
        put_error(to, status, "bad_request", "The request is malformed.");
}

#define SERVER                                                                                  \
    .name = "cellgate", .head_max = ADMIN_HEAD_MAX, .output_max = ADMIN_ANSWER_MAX,             \
    .connections = ADMIN_CONNECTIONS, .idle_time = ADMIN_TIME,                                  \
    .linger = {.step = ADMIN_TIME, .grace = ADMIN_TIME, .drain = 1 << 20}, .route = on_request, \
    .refuse = refuse
static const struct http_server_options for_operators = {SERVER};
static const struct http_server_options for_anyone = {SERVER, .crowd_out = true};

struct admin *admin_new(struct loop *loop, int listener, const struct admin_page *pages, size_t count,
                        const struct admin_rules *rules)
{
    struct admin *admin = calloc(1, sizeof *admin);
    if (!admin) {
        net_unlisten(listener);
        return NULL;
    }
    admin->pages = pages;
    admin->count = count;
    if (rules)
        admin->rules = *rules;
    http_server_open(&admin->server, loop, listener, admin->rules.anyone ? &for_anyone : &for_operators);
    return admin;
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    net_unlisten(http_server_close(&admin->server));
    admin->gone =
        (struct loop_task){.run = free, .context = admin}; /* runs after the connections have ended */
    loop_defer(admin->server.loop, &admin->gone);
}
