/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/request.h"

enum { LENGTH_MOST = 63 };

static const struct {
    struct slice name;
    size_t value, lines; /* offsets in struct request */
} fields[] = {
#define X(field, lines, name, ...) \
    {SLICE_STATIC(name), offsetof(struct request, field), offsetof(struct request, lines)},
    REQUEST_HEADERS(X)
#undef X
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Rejects most lines cheaply: no header of the table has a name of their length. */
static bool is_length_known(size_t len)
{
    static const uint64_t lengths = 0
#define X(field, lines, name, ...) | UINT64_C(1) << (sizeof(name) - 1)
        REQUEST_HEADERS(X)
#undef X
        ;
    return len <= LENGTH_MOST && lengths >> len & 1;
}

/* HAProxy allows neither byte in a value. A line with one must be refused, because two parsers could read it as two different requests. */
static bool is_clean(struct slice line)
{
    return slice_find(line, '\n') == line.len && slice_find(line, 0) == line.len;
}

bool request_header_next(struct slice *headers, struct request_header *header)
{
    size_t end = slice_find(*headers, '\r');
    struct slice line = slice_sub(*headers, 0, end);
    size_t colon = slice_find(line, ':');
    if (end + 1 >= headers->len || headers->at[end + 1] != '\n')
        return false;
    if (end == 0 && headers->len == 2) { /* the empty line */
        *headers = slice_from(*headers, 2);
        return false;
    }
    if (colon == 0 || colon == line.len || !is_clean(line))
        return false;
    size_t blank = colon + 1 < line.len && line.at[colon + 1] == ' ';
    header->name = slice_sub(line, 0, colon);
    header->value = slice_from(line, colon + 1 + blank);
    *headers = slice_from(*headers, end + 2);
    return true;
}

/* RFC 6265 section 4.2.1: pairs separated by ';'. The parser is lenient about blanks, because haproxy.cfg removes the cookie that is
 * found here. */
static void read_cookies(struct request *request, struct slice list)
{
    struct slice pair;
    while (slice_split(&list, ';', &pair)) {
        size_t equals = slice_find(pair, '=');
        struct slice name = slice_trim(slice_sub(pair, 0, equals));
        if (equals < pair.len && slice_is(name, "__Host-cellgate") && !request->cookies++)
            request->cookie = slice_trim(slice_from(pair, equals + 1));
    }
}

static void read_field(struct request *request, const struct request_header *header)
{
    if (slice_is(header->name, "cookie"))
        read_cookies(request, header->value);
    if (!is_length_known(header->name.len))
        return;
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].name.len != header->name.len || !slice_equal(fields[i].name, header->name))
            continue;
        struct slice *value = (void *)((char *)request + fields[i].value);
        int64_t *lines = (void *)((char *)request + fields[i].lines);
        if (++*lines == 1)
            *value = header->value;
        return;
    }
}

bool request_read_headers(struct request *request)
{
    struct slice rest = request->headers;
    struct request_header header;
    size_t last = rest.len;
    for (; request_header_next(&rest, &header); last = rest.len)
        read_field(request, &header);
    return last == 2 && rest.len == 0; /* only the empty line was left */
}

struct slice request_header(const struct request *request, struct slice name, size_t *lines)
{
    struct slice rest = request->headers, value = {NULL, 0};
    struct request_header header;
    *lines = 0;
    while (request_header_next(&rest, &header))
        if (slice_equal_nocase(header.name, name) && (*lines)++ == 0)
            value = header.value;
    return value;
}

struct slice request_list(const struct request *request, struct slice name, struct writer *w)
{
    struct slice rest = request->headers, list = {w->at + w->len, 0};
    struct request_header header;
    bool found = false;
    while (request_header_next(&rest, &header)) {
        if (!slice_equal(header.name, name))
            continue;
        writer_text(w, found ? "," : "");
        writer_put(w, header.value);
        found = true;
    }
    list.len = (size_t)(w->at + w->len - list.at);
    return found && !w->full ? list : (struct slice){NULL, 0};
}
