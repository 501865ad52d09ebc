/* SPDX-License-Identifier: MIT */
#include "spoa/agent/request_text.h"

/* What the sample expressions are evaluated on. */
struct head {
    struct slice method, version, host, path, query;
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

static size_t header_count(const struct head *head, struct slice name)
{
    size_t n = 0;
    for (size_t i = 0; i < head->count; i++)
        n += slice_equal_nocase(head->lines[i].name, name);
    if (n == 0 && slice_present(head->host) && slice_equal_nocase(name, SLICE_LITERAL("host")))
        return 1;
    return n;
}

/* The n-th line of that name, counted from 1. */
static struct slice header_value(const struct head *head, struct slice name, uint64_t n)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < head->count; i++)
        if (slice_equal_nocase(head->lines[i].name, name) && ++seen == n)
            return head->lines[i].value;
    if (seen == 0 && n == 1 && slice_equal_nocase(name, SLICE_LITERAL("host")))
        return head->host;
    return (struct slice){NULL, 0};
}

/* How many cookies have the name, and the value of the first. */
static size_t cookies_of(const struct head *head, struct slice name, struct slice *first)
{
    size_t count = 0;
    for (size_t i = 0; i < head->count; i++) {
        struct slice list = head->lines[i].value, pair;
        if (!slice_equal_nocase(head->lines[i].name, SLICE_LITERAL("cookie")))
            continue;
        while (slice_split(&list, ';', &pair)) {
            pair = slice_trim(pair);
            size_t equals = slice_find(pair, '=');
            if (equals < pair.len && slice_equal(slice_trim(slice_sub(pair, 0, equals)), name) && !count++)
                *first = slice_trim(slice_from(pair, equals + 1));
        }
    }
    return count;
}

static struct slice cookie_value(const struct head *head, struct slice name)
{
    struct slice value = {NULL, 0};
    cookies_of(head, name, &value);
    return value;
}

/* "req.fhdr(name,1)" is function "req.fhdr" of "name" and 1; no parentheses: no argument. */
static void sample_split(struct slice sample, struct slice *function, struct slice *name, uint64_t *n)
{
    size_t open = slice_find(sample, '('), comma = slice_find(sample, ','), close = slice_find(sample, ')');
    size_t end = comma < close ? comma : close;
    *function = slice_sub(sample, 0, open);
    *name = slice_sub(sample, open + 1, end > open ? end - open - 1 : 0);
    if (comma >= close || !slice_u64(slice_sub(sample, comma + 1, close - comma - 1), 9, n))
        *n = 1;
}

static struct slice evaluate_TEXT(const struct head *head, const char *sample)
{
    struct slice function, name;
    uint64_t n;
    sample_split(slice_text(sample), &function, &name, &n);
    if (slice_is(function, "req.fhdr"))
        return header_value(head, name, n);
    if (slice_is(function, "req.cook"))
        return cookie_value(head, name);
    if (slice_is(function, "method"))
        return head->method;
    if (slice_is(function, "req.ver"))
        return head->version;
    if (slice_is(function, "path"))
        return head->path;
    return slice_is(function, "query") ? head->query : (struct slice){NULL, 0};
}

static int64_t evaluate_COUNT(const struct head *head, const char *sample)
{
    struct slice function, name;
    uint64_t n;
    sample_split(slice_text(sample), &function, &name, &n);
    struct slice first;
    return (int64_t)(slice_is(function, "req.cook_cnt") ? cookies_of(head, name, &first)
                                                        : header_count(head, name));
}

static bool evaluate_BOOL(const struct head *head, const char *sample)
{
    return strcmp(sample, "var(txn.client_tls)") == 0 && head->tls;
}

static struct address evaluate_ADDRESS(const struct head *head, const char *sample)
{
    (void)head, (void)sample; /* nobody connected */
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
                       struct request *request, struct fail *why)
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
#define X(kind, field, name, sample) request->field = evaluate_##kind(&head, sample);
    REQUEST_ARGUMENTS(X)
#undef X
    return true;
}
