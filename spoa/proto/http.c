/* SPDX-License-Identifier: MIT */
#include "spoa/proto/http.h"

static enum http_result refuse(struct http_reader *r, const char *why)
{
    r->why = why;
    return HTTP_BAD;
}

static bool is_alnum(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* RFC 9110 section 5.6.2. */
static bool is_tchar(uint8_t c)
{
    static const bool tchar[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['!'] = true,  ['#'] = true,
        ['$'] = true,         ['%'] = true,         ['&'] = true,         ['\''] = true, ['*'] = true,
        ['+'] = true,         ['-'] = true,         ['.'] = true,         ['^'] = true,  ['_'] = true,
        ['`'] = true,         ['|'] = true,         ['~'] = true,
    };
    return tchar[c];
}

bool http_is_token(struct slice s)
{
    for (size_t i = 0; slice_present(s) && i < s.len; i++)
        if (!is_tchar(s.at[i]))
            return false;
    return s.len > 0;
}

/* ---- where the head ends ---- */

/* Looks at one byte together with those before it; HTTP_DONE when it ends the head. */
static enum http_result scan_byte(struct http_reader *r, const uint8_t *at, size_t i)
{
    uint8_t c = at[i];
    bool after_cr = i > 0 && at[i - 1] == '\r';

    if (c == '\n') {
        if (!after_cr)
            return refuse(r, "line feed without carriage return");
        if (i == 1)
            return refuse(r, "empty line before the head");
        return at[i - 2] == '\n' ? HTTP_DONE : HTTP_MORE;
    }
    if (after_cr)
        return refuse(r, "carriage return without line feed");
    if (http_is_control(c) && c != '\r')
        return refuse(r, "control byte in the head");
    return HTTP_MORE;
}

/* Past the bytes from i on that need no look at their neighbours. */
static size_t skip_plain(const uint8_t *at, size_t i, size_t end)
{
    bool after_cr = i > 0 && at[i - 1] == '\r';

    while (!after_cr && i < end && at[i] >= 0x20 && at[i] != 0x7f)
        i++;
    return i;
}

static enum http_result scan(struct http_reader *r, struct slice bytes)
{
    size_t end = bytes.len < r->head_max ? bytes.len : r->head_max;

    while ((r->scanned = skip_plain(bytes.at, r->scanned, end)) < end) {
        enum http_result result = scan_byte(r, bytes.at, r->scanned);
        if (result == HTTP_BAD)
            return result;
        r->scanned++;
        if (result == HTTP_DONE)
            return result;
    }
    if (r->scanned < r->head_max)
        return HTTP_MORE;
    r->why = "head is too large";
    return HTTP_TOO_LARGE;
}

/* ---- the first line ---- */

static bool parse_version(struct slice s, unsigned *minor)
{
    if (s.len != 8 || !slice_starts(s, "HTTP/1.") || (s.at[7] != '0' && s.at[7] != '1'))
        return false;
    *minor = s.at[7] - (unsigned)'0';
    return true;
}

static bool is_target(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.at[i] <= 0x20 || s.at[i] >= 0x7f || s.at[i] == '#')
            return false;
    return s.len > 0;
}

static enum http_result parse_request_line(struct http_reader *r, struct slice line, struct http_head *head)
{
    if (!slice_split(&line, ' ', &head->method) || !http_is_token(head->method))
        return refuse(r, "method is not a token");
    if (!slice_split(&line, ' ', &head->target) || !is_target(head->target))
        return refuse(r, "request target is malformed");
    if (!slice_present(line) || !parse_version(line, &head->minor))
        return refuse(r, "request line does not end with HTTP/1.0 or HTTP/1.1");
    return HTTP_DONE;
}

static enum http_result parse_status_line(struct http_reader *r, struct slice line, struct http_head *head)
{
    struct slice version, status;
    uint64_t code;

    if (!slice_split(&line, ' ', &version) || !parse_version(version, &head->minor))
        return refuse(r, "status line does not begin with HTTP/1.0 or HTTP/1.1");
    if (!slice_split(&line, ' ', &status) || status.len != 3 || !slice_u64(status, 599, &code) || code < 100)
        return refuse(r, "status is not a number from 100 to 599");
    head->status = (unsigned)code;
    /* "HTTP/1.1 200" without the blank before an empty reason is what many servers send */
    head->reason = slice_present(line) ? line : slice_of("", 0);
    return HTTP_DONE;
}

/* ---- fields ---- */

static enum http_result parse_field(struct http_reader *r, struct slice line, struct http_head *head)
{
    size_t colon = slice_find(line, ':');
    struct slice name = slice_sub(line, 0, colon);

    if (colon == line.len)
        return refuse(r, "field line without a colon");
    if (!http_is_token(name))
        return refuse(r, "field name is not a token");
    if (head->count == HTTP_FIELDS_MAX) {
        r->why = "too many fields";
        return HTTP_TOO_LARGE;
    }
    head->fields[head->count++] = (struct http_field){name, slice_trim(slice_from(line, colon + 1))};
    return HTTP_DONE;
}

/* The line at *at without its CR LF, which the scan has seen. */
static struct slice take_line(struct slice *rest)
{
    size_t len = slice_find(*rest, '\r');
    struct slice line = slice_sub(*rest, 0, len);
    *rest = slice_from(*rest, len + 2);
    return line;
}

static uint8_t folded(uint8_t c)
{
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

bool http_same_letters(const uint8_t *a, const uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (folded(a[i]) != folded(b[i]))
            return false;
    return true;
}

bool http_name_starts(struct slice name, const char *prefix)
{
    size_t len = strlen(prefix);
    return name.len >= len && http_same_name(slice_sub(name, 0, len), slice_of(prefix, len));
}

struct slice http_get(const struct http_head *head, const char *name)
{
    struct slice wanted = slice_text(name);
    for (size_t i = 0; i < head->count; i++)
        if (slice_equal_nocase(head->fields[i].name, wanted))
            return head->fields[i].value;
    return (struct slice){NULL, 0};
}

size_t http_count(const struct http_head *head, const char *name)
{
    struct slice wanted = slice_text(name);
    size_t count = 0;
    for (size_t i = 0; i < head->count; i++)
        count += slice_equal_nocase(head->fields[i].name, wanted);
    return count;
}

static bool list_has(struct slice list, struct slice token)
{
    struct slice part;
    while (slice_split(&list, ',', &part))
        if (slice_equal_nocase(slice_trim(part), token))
            return true;
    return false;
}

bool http_has_token(const struct http_head *head, const char *name, const char *token)
{
    struct slice wanted = slice_text(name);
    for (size_t i = 0; i < head->count; i++)
        if (slice_equal_nocase(head->fields[i].name, wanted) &&
            list_has(head->fields[i].value, slice_text(token)))
            return true;
    return false;
}

/* ---- what the fields mean together ---- */

/* Equal duplicates pass (RFC 9112 section 6.3): they cannot be read in two ways. */
static enum http_result take_length(struct http_reader *r, struct slice value, struct http_head *head)
{
    uint64_t length;

    if (!slice_u64(value, INT64_MAX, &length))
        return refuse(r, "Content-Length is not a number");
    if (head->has_length && length != head->length)
        return refuse(r, "two Content-Lengths that differ");
    head->has_length = true;
    head->length = length;
    return HTTP_DONE;
}

static enum http_result take_coding(struct http_reader *r, struct slice value, struct http_head *head)
{
    if (head->minor == 0)
        return refuse(r, "Transfer-Encoding in HTTP/1.0");
    if (head->chunked || !slice_equal_nocase(value, SLICE_LITERAL("chunked")))
        return refuse(r, "Transfer-Encoding is not a single chunked");
    head->chunked = true;
    return HTTP_DONE;
}

static enum http_result check_framing(struct http_reader *r, struct http_head *head)
{
    enum http_result result = HTTP_DONE;

    for (size_t i = 0; i < head->count && result == HTTP_DONE; i++) {
        const struct http_field *field = &head->fields[i];
        if (slice_equal_nocase(field->name, SLICE_LITERAL("Content-Length")))
            result = take_length(r, field->value, head);
        else if (slice_equal_nocase(field->name, SLICE_LITERAL("Transfer-Encoding")))
            result = take_coding(r, field->value, head);
    }
    if (result != HTTP_DONE)
        return result;
    if (head->chunked && head->has_length)
        return refuse(r, "both Content-Length and Transfer-Encoding");
    /* whoever obeyed such a Connection would drop what frames or addresses the message */
    if (http_has_token(head, "Connection", "Host") || http_has_token(head, "Connection", "Content-Length") ||
        http_has_token(head, "Connection", "Transfer-Encoding"))
        return refuse(r, "Connection names a field that must stay");
    return HTTP_DONE;
}

/* uri-host [ ":" port ] (RFC 9110 section 7.2), without the comma that a joined list of hosts would have. */
static bool is_host(struct slice s)
{
    static const char marks[] = "-._~!$&'()*+;=%:[]";
    for (size_t i = 0; i < s.len; i++)
        if (!is_alnum(s.at[i]) && !memchr(marks, s.at[i], sizeof(marks) - 1))
            return false;
    return s.len > 0;
}

/* The authority that a target carries itself; absent when it has none, as most. */
static struct slice target_authority(const struct http_head *head)
{
    struct slice rest = head->target;

    if (slice_is(head->method, "CONNECT"))
        return rest;
    if (slice_equal_nocase(slice_sub(rest, 0, 7), SLICE_LITERAL("http://")))
        rest = slice_from(rest, 7);
    else if (slice_equal_nocase(slice_sub(rest, 0, 8), SLICE_LITERAL("https://")))
        rest = slice_from(rest, 8);
    else
        return (struct slice){NULL, 0};
    size_t slash = slice_find(rest, '/'), question = slice_find(rest, '?');
    return slice_sub(rest, 0, slash < question ? slash : question);
}

static enum http_result check_host(struct http_reader *r, const struct http_head *head)
{
    struct slice host = http_get(head, "Host"), authority = target_authority(head);
    size_t hosts = http_count(head, "Host");

    if (hosts > 1)
        return refuse(r, "more than one Host");
    if (hosts == 0 && head->minor == 1)
        return refuse(r, "no Host");
    if (hosts == 1 && !is_host(host))
        return refuse(r, "Host is malformed");
    if (slice_present(authority)) {
        if (!is_host(authority) || (hosts == 1 && !slice_equal_nocase(authority, host)))
            return refuse(r, "request target and Host differ");
    } else if (!slice_starts(head->target, "/") &&
               !(slice_is(head->method, "OPTIONS") && slice_is(head->target, "*"))) {
        return refuse(r, "request target is malformed");
    }
    return HTTP_DONE;
}

static enum http_result parse(struct http_reader *r, struct slice bytes, struct http_head *head)
{
    struct slice rest = bytes, line = take_line(&rest);
    enum http_result result =
        r->side == HTTP_REQUEST ? parse_request_line(r, line, head) : parse_status_line(r, line, head);

    /* field lines up to the empty one; a folded line begins with a blank, which no name does */
    while (result == HTTP_DONE && (line = take_line(&rest)).len > 0)
        result = parse_field(r, line, head);
    if (result == HTTP_DONE)
        result = check_framing(r, head);
    if (result == HTTP_DONE && r->side == HTTP_REQUEST)
        result = check_host(r, head);
    return result;
}

enum http_result http_read(struct http_reader *r, struct slice bytes, struct http_head *head)
{
    if (r->why)
        return HTTP_BAD;
    enum http_result result = scan(r, bytes);
    if (result != HTTP_DONE)
        return result;

    /* without the fields: they are written before they are read, and are most of the struct */
    memset(head, 0, offsetof(struct http_head, fields));
    head->len = r->scanned;
    return parse(r, slice_sub(bytes, 0, head->len), head);
}

enum http_framing http_framing(const struct http_head *head, bool to_head)
{
    bool response = head->status != 0;

    if (response && (to_head || head->status < 200 || head->status == 204 || head->status == 304))
        return HTTP_NO_BODY;
    if (head->chunked)
        return HTTP_CHUNKED;
    if (head->has_length)
        return head->length ? HTTP_LENGTH : HTTP_NO_BODY;
    return response ? HTTP_UNTIL_CLOSE : HTTP_NO_BODY;
}
