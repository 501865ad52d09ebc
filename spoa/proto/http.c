/* SPDX-License-Identifier: MIT */
#include "spoa/proto/http.h"

#include "spoa/base/bytes/ascii.h"
#include "spoa/base/bytes/min_max.h"

static enum http_result refuse(struct http_reader *r, const char *why)
{
    r->why = why;
    return HTTP_BAD;
}

bool http_is_token(struct slice s)
{
    static const bool tchar[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['!'] = true,  ['#'] = true,
        ['$'] = true,         ['%'] = true,         ['&'] = true,         ['\''] = true, ['*'] = true,
        ['+'] = true,         ['-'] = true,         ['.'] = true,         ['^'] = true,  ['_'] = true,
        ['`'] = true,         ['|'] = true,         ['~'] = true,
    };
    for (size_t i = 0; slice_present(s) && i < s.len; i++)
        if (!tchar[s.at[i]])
            return false;
    return s.len > 0;
}

bool http_is_printable(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] < ' ' || value.at[i] > '~')
            return false;
    return true;
}

bool http_is_target_part(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] >= 0x7f || text.at[i] == '#')
            return false;
    return true;
}

/* ---- the end of the head ---- */

/* Checks byte i together with those before it. Returns HTTP_DONE if it ends the head. */
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

/* Finds the end of the head and refuses bytes that no head may contain, before anything is parsed. */
static enum http_result scan(struct http_reader *r, struct slice bytes)
{
    size_t end = min_size(bytes.len, r->head_max);
    const uint8_t *at = bytes.at;

    for (;;) {
        /* a printable byte is always valid, unless it follows a CR */
        bool after_cr = r->scanned > 0 && at[r->scanned - 1] == '\r';
        while (!after_cr && r->scanned < end && at[r->scanned] >= 0x20 && at[r->scanned] != 0x7f)
            r->scanned++;
        if (r->scanned == end)
            break;
        enum http_result result = scan_byte(r, at, r->scanned);
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

static enum http_result parse_request_line(struct http_reader *r, struct slice line, struct http_head *head)
{
    if (!slice_split(&line, ' ', &head->method) || !http_is_token(head->method))
        return refuse(r, "method is not a token");
    if (!slice_split(&line, ' ', &head->target) || head->target.len == 0 ||
        !http_is_target_part(head->target))
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
    /* many servers send "HTTP/1.1 200" without the blank that belongs before an empty reason */
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

/* Takes a line off *rest and returns it without its CR LF, which the scan has found to be there. */
static struct slice take_line(struct slice *rest)
{
    size_t len = slice_find(*rest, '\r');
    struct slice line = slice_sub(*rest, 0, len);
    *rest = slice_from(*rest, len + 2);
    return line;
}

/* Maps bytes that servers may take for one another to one byte. */
static uint8_t folded(uint8_t c)
{
    return c == '_' ? '-' : ascii_lower(c);
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

bool http_list_has(struct slice list, struct slice element)
{
    struct slice part;
    while (slice_split(&list, ',', &part))
        if (slice_equal_nocase(slice_trim(part), element))
            return true;
    return false;
}

bool http_has_token(const struct http_head *head, const char *name, const char *token)
{
    struct slice wanted = slice_text(name);
    for (size_t i = 0; i < head->count; i++)
        if (slice_equal_nocase(head->fields[i].name, wanted) &&
            http_list_has(head->fields[i].value, slice_text(token)))
            return true;
    return false;
}

/* ---- the fields together ---- */

/* Keeps Content-Length. Equal duplicates are accepted (RFC 9112 section 6.3), because every parser reads them in one way. */
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

/* Finds how the body is framed, and refuses a head that two parsers could frame differently. */
static enum http_result check_framing(struct http_reader *r, struct http_head *head)
{
    for (size_t i = 0; i < head->count; i++) {
        const struct http_field *field = &head->fields[i];
        if (slice_equal_nocase(field->name, SLICE_LITERAL("Content-Length"))) {
            enum http_result result = take_length(r, field->value, head);
            if (result != HTTP_DONE)
                return result;
        } else if (slice_equal_nocase(field->name, SLICE_LITERAL("Transfer-Encoding"))) {
            if (head->minor == 0)
                return refuse(r, "Transfer-Encoding in HTTP/1.0");
            if (head->chunked || !slice_equal_nocase(field->value, SLICE_LITERAL("chunked")))
                return refuse(r, "Transfer-Encoding is not a single chunked");
            head->chunked = true;
        }
    }
    if (head->chunked && head->has_length)
        return refuse(r, "both Content-Length and Transfer-Encoding");
    /* a server that obeys such a Connection drops the field that frames or addresses the message */
    if (http_has_token(head, "Connection", "Host") || http_has_token(head, "Connection", "Content-Length") ||
        http_has_token(head, "Connection", "Transfer-Encoding"))
        return refuse(r, "Connection names a field that must stay");
    return HTTP_DONE;
}

/* Checks the characters of uri-host [ ":" port ] (RFC 9110 section 7.2). A comma, which joins several hosts, is refused. */
static bool is_host(struct slice s)
{
    static const char marks[] = "-._~!$&'()*+;=%:[]";
    for (size_t i = 0; i < s.len; i++)
        if (!ascii_is_alphanumeric(s.at[i]) && !memchr(marks, s.at[i], sizeof(marks) - 1))
            return false;
    return s.len > 0;
}

/* Returns the authority within the request target; absent for a path, which most targets are. */
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

/* Requires one Host that agrees with the target: otherwise two servers could route the request differently. */
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

    /* the head ends with an empty line; a folded line fails, because it begins with a blank and no field name does */
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

    /* the fields are most of the struct and need no zeros: each is written before it is read */
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
