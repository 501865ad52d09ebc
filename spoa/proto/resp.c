/* SPDX-License-Identifier: MIT */
#include "spoa/proto/resp.h"

#include <stdio.h>

/* ---- values ---- */

/* Takes a line and the CR LF that ends it off *in. */
static enum resp_result take_line(struct slice *in, struct slice *line)
{
    struct slice seen = slice_sub(*in, 0, RESP_LINE);
    size_t end = slice_find(seen, '\r');
    if (end == seen.len)
        return seen.len == RESP_LINE ? RESP_BROKEN : RESP_MORE;
    if (end + 1 >= in->len)
        return RESP_MORE;
    if (in->at[end + 1] != '\n')
        return RESP_BROKEN;
    *line = slice_sub(*in, 0, end);
    *in = slice_from(*in, end + 2);
    return RESP_VALUE;
}

/* Takes the length of a string or an array, at most max. The length -1 means nil. */
static enum resp_result take_length(struct slice *in, uint64_t max, uint64_t *length, bool *nil)
{
    struct slice line;
    enum resp_result result = take_line(in, &line);
    if (result != RESP_VALUE)
        return result;
    *nil = slice_is(line, "-1");
    return *nil || slice_u64(line, max, length) ? RESP_VALUE : RESP_BROKEN;
}

static enum resp_result take_string(struct slice *in, struct resp_part *part)
{
    uint64_t length = 0;
    bool nil = false;
    enum resp_result result = take_length(in, RESP_TEXT, &length, &nil);
    if (result != RESP_VALUE)
        return result;
    if (nil) {
        part->kind = RESP_NIL;
        return RESP_VALUE;
    }
    if (in->len < length + 2)
        return RESP_MORE;
    if (in->at[length] != '\r' || in->at[length + 1] != '\n')
        return RESP_BROKEN;
    *part = (struct resp_part){RESP_STRING, slice_sub(*in, 0, length)};
    *in = slice_from(*in, length + 2);
    return RESP_VALUE;
}

/* Takes a value that is no array. */
static enum resp_result take_part(struct slice *in, struct resp_part *part)
{
    if (in->len == 0)
        return RESP_MORE;
    uint8_t type = in->at[0];
    *in = slice_from(*in, 1);
    *part = (struct resp_part){0};
    switch (type) {
    case '$':
        return take_string(in, part);
    case '+':
        part->kind = RESP_STATUS;
        break;
    case '-':
        part->kind = RESP_ERROR;
        break;
    case ':':
        part->kind = RESP_INTEGER;
        break;
    default:
        return RESP_BROKEN;
    }
    return take_line(in, &part->text);
}

static enum resp_result take_array(struct slice *in, struct resp *value)
{
    uint64_t count = 0;
    bool nil = false;
    *in = slice_from(*in, 1);
    enum resp_result result = take_length(in, RESP_PARTS, &count, &nil);
    value->kind = nil ? RESP_NIL : RESP_ARRAY;
    for (; result == RESP_VALUE && value->count < count; value->count++)
        result = take_part(in, &value->parts[value->count]);
    return result;
}

enum resp_result resp_next(struct slice *in, struct resp *value)
{
    struct slice rest = *in;
    *value = (struct resp){0};
    enum resp_result result;
    if (rest.len && rest.at[0] == '*') {
        result = take_array(&rest, value);
    } else {
        result = take_part(&rest, &value->parts[0]);
        value->kind = value->parts[0].kind;
        value->count = 1;
    }
    if (result == RESP_VALUE)
        *in = rest;
    return result;
}

/* ---- commands ---- */

static bool put_header(struct buffer *to, char type, size_t number)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%c%zu\r\n", type, number);
    return buffer_put(to, slice_of(text, (size_t)len));
}

bool resp_command(struct buffer *to, const struct slice *words, size_t count)
{
    size_t before = buffer_len(to);
    bool good = put_header(to, '*', count);
    for (size_t i = 0; good && i < count; i++)
        good = put_header(to, '$', words[i].len) && buffer_put(to, words[i]) &&
               buffer_put(to, SLICE_LITERAL("\r\n"));
    if (!good)
        buffer_cut(to, before);
    return good;
}
