/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/request_text.h"

/* The input of the sample expressions. */
struct head {
    struct slice method, version, host, path, query, headers;
    bool tls;
    const struct header_line *lines;
    size_t count;
};

bool header_line_parse(struct slice text, struct header_line *line)
{
    size_t colon = slice_find(text, ':');
    line->name = slice_sub(text, 0, colon);
    line->value = slice_trim(slice_from(text, colon + 1));
    return colon > 0 && colon < text.len;
}

/* Writes the value of `req.hdrs`: names in lower case, and the Host of an absolute URL, unless the lines have one. */
static struct slice headers_text(const struct head *head, struct writer *memory)
{
    size_t start = memory->len;
    bool has_host = false;
    for (size_t i = 0; i < head->count; i++) {
        const struct header_line *line = &head->lines[i];
        has_host = has_host || slice_equal_nocase(line->name, SLICE_LITERAL("host"));
        for (size_t j = 0; j < line->name.len; j++) {
            uint8_t c = line->name.at[j];
            writer_u8(memory, c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c);
        }
        writer_text(memory, ": ");
        writer_put(memory, line->value);
        writer_text(memory, "\r\n");
    }
    if (!has_host && slice_present(head->host)) {
        writer_text(memory, "host: ");
        writer_put(memory, head->host);
        writer_text(memory, "\r\n");
    }
    writer_text(memory, "\r\n");
    return slice_of(memory->at + start, memory->len - start);
}

static struct slice evaluate_TEXT(const struct head *head, const char *sample)
{
    struct slice name = slice_text(sample);
    if (slice_is(name, "req.hdrs"))
        return head->headers;
    if (slice_is(name, "method"))
        return head->method;
    if (slice_is(name, "req.ver"))
        return head->version;
    if (slice_is(name, "path"))
        return head->path;
    return slice_is(name, "query") ? head->query : (struct slice){NULL, 0};
}

static bool evaluate_BOOL(const struct head *head, const char *sample)
{
    return strcmp(sample, "var(txn.client_tls)") == 0 && head->tls;
}

static struct address evaluate_ADDRESS(const struct head *head, const char *sample)
{
    (void)head, (void)sample; /* there is no connection: use a loopback address */
    return (struct address){.family = 4, .bytes = {127, 0, 0, 1}};
}

static void url_split(struct slice url, struct head *head)
{
    head->tls = slice_starts(url, "https://");
    if (head->tls || slice_starts(url, "http://")) {
        url = slice_from(url, head->tls ? 8 : 7);
        size_t slash = slice_find(url, '/'), question = slice_find(url, '?');
        head->host = slice_sub(url, 0, slash < question ? slash : question);
        url = slice_from(url, head->host.len);
    }
    size_t question = slice_find(url, '?');
    head->path = question > 0 ? slice_sub(url, 0, question) : SLICE_LITERAL("/");
    if (url.len == 0)
        head->path = SLICE_LITERAL("/");
    if (question < url.len)
        head->query = slice_from(url, question + 1);
}

bool request_from_text(struct slice line, const struct header_line *lines, size_t count,
                       struct writer *memory, struct request *request, struct fail *why)
{
    struct head head = {.version = SLICE_LITERAL("1.1"), .lines = lines, .count = count};
    struct slice rest = line, url, version;
    if (!slice_split(&rest, ' ', &head.method) || !slice_split(&rest, ' ', &url) || head.method.len == 0)
        return fail(why, "a request is a method and a URL: 'GET http://host/path'");
    if (slice_split(&rest, ' ', &version)) {
        if (!slice_starts(version, "HTTP/") || slice_present(rest))
            return fail(why, "behind the URL there may be 'HTTP/1.1' and nothing else");
        head.version = slice_from(version, 5);
    }
    url_split(url, &head);
    head.headers = headers_text(&head, memory);
    *request = (struct request){.hosts = 0};
#define X(kind, field, name, sample) request->field = evaluate_##kind(&head, sample);
    REQUEST_ARGUMENTS(X)
#undef X
    if (memory->full)
        return fail(why, "the head is too large");
    return request_read_headers(request) || fail(why, "a header has a line end in it");
}
