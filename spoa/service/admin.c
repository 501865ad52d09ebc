/* SPDX-License-Identifier: MIT */
#include "spoa/service/admin.h"

#include <stdlib.h>

#include "spoa/base/writer.h"
#include "spoa/net/exchange.h"
#include "spoa/service/http_site.h"

struct admin {
    const struct admin_page *pages;
    size_t count;
    struct exchange *exchange;
};

/* ---- answers ---- */

static const char *reason(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
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

/* All of it or nothing. */
static void put_answer(struct buffer *to, unsigned status, const char *type, const char *policy,
                       struct slice body, bool head_only)
{
    char memory[1024];
    struct writer head = writer_of(memory, sizeof memory);
    writer_printf(&head,
                  "HTTP/1.1 %u %s\r\n%sContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                  "Content-Security-Policy: %s\r\n" HTTP_SITE_FIELDS "Connection: close\r\n\r\n",
                  status, reason(status), status == 405 ? "Allow: GET, HEAD\r\n" : "", type, body.len,
                  policy ? policy : "default-src 'none'; frame-ancestors 'none'");
    if (head.full || !buffer_put(to, writer_slice(&head)) || (!head_only && !buffer_put(to, body)))
        buffer_free(to);
}

static void put_error(struct buffer *to, unsigned status, const char *code, const char *message)
{
    char memory[256];
    struct writer body = writer_of(memory, sizeof memory);
    writer_printf(&body, "{\"error\":\"%s\",\"message\":\"%s\",\"retryable\":false}\n", code, message);
    put_answer(to, status, ADMIN_JSON, NULL, writer_slice(&body), false);
}

/* ---- requests ---- */

static void put_page(const struct admin_page *page, struct slice query, bool head_only, struct buffer *to)
{
    struct admin_answer answer = {.status = 200, .type = "text/plain; charset=utf-8"};
    answer.body = buffer_with_limit(ADMIN_BODY_MAX);
    if (page->make(page->context, query, &answer))
        put_answer(to, answer.status, answer.type, answer.policy, buffer_slice(&answer.body), head_only);
    else
        put_error(to, 500, "internal", "The page could not be made.");
    buffer_free(&answer.body);
}

static void answer_request(const struct admin_page *pages, size_t count, const struct http_head *head,
                           struct buffer *to)
{
    struct slice query = head->target, path;
    slice_split(&query, '?', &path);
    bool get = slice_is(head->method, "GET"), head_only = slice_is(head->method, "HEAD");
    if (!get && !head_only) {
        put_error(to, 405, "method_not_allowed", "Only GET and HEAD are allowed here.");
        return;
    }
    struct slice host = http_get(head, "Host"); /* absent in HTTP/1.0, which no browser speaks */
    if (slice_present(host) && !http_site_is_unnamed(http_site_name(host))) {
        put_error(to, 421, "bad_request", "The Host must be localhost or an IP address.");
        return;
    }
    if (!http_site_is_own(head)) {
        put_error(to, 403, "origin_refused", "Pages of other origins may not ask here.");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (slice_is(path, pages[i].path)) {
            put_page(&pages[i], query, head_only, to);
            return;
        }
    }
    put_error(to, 404, "not_found", "There is no such page.");
}

bool admin_respond(const struct admin_page *pages, size_t count, struct slice bytes, struct buffer *answer)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, ADMIN_HEAD_MAX);
    struct http_head head;
    switch (http_read(&reader, bytes, &head)) {
    case HTTP_MORE:
        return false;
    case HTTP_DONE:
        answer_request(pages, count, &head, answer);
        return true;
    case HTTP_TOO_LARGE:
        put_error(answer, 431, "request_too_large", "The request's head is too large.");
        return true;
    default:
        put_error(answer, 400, "bad_request", "The request is malformed.");
        return true;
    }
}

/* ---- the server ---- */

static bool on_request(void *context, struct slice bytes, struct buffer *answer)
{
    const struct admin *admin = context;
    return admin_respond(admin->pages, admin->count, bytes, answer);
}

static void on_refuse(void *context, enum exchange_end end, struct buffer *answer)
{
    (void)context;
    if (end == EXCHANGE_TOO_SLOW)
        put_error(answer, 408, "request_timeout", "The request did not come in time.");
    else
        put_error(answer, 431, "request_too_large", "The request's head is too large.");
}

struct admin *admin_new(struct loop *loop, int listener, const struct admin_page *pages, size_t count)
{
    struct admin *admin = calloc(1, sizeof *admin);
    struct exchange_protocol protocol = {ADMIN_HEAD_MAX, on_request, on_refuse, admin};
    struct exchange *exchange = exchange_new(loop, listener, &protocol);
    if (!admin || !exchange) {
        exchange_free(exchange);
        free(admin);
        return NULL;
    }
    *admin = (struct admin){pages, count, exchange};
    return admin;
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    exchange_free(admin->exchange);
    free(admin);
}
