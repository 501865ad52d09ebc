/* SPDX-License-Identifier: MIT */
#include "spoa/proto/event_stream.h"

#define RETRY_MAX ((uint64_t)24 * 3600 * 1000) /* milliseconds; a longer retry time is ignored */

void event_stream_init(struct event_stream *s, size_t limit)
{
    s->limit = limit;
    s->line = buffer_with_limit(limit);
    s->data = buffer_with_limit(limit);
    s->name[0] = s->id[0] = s->last_id[0] = '\0';
    s->retry = 0;
    s->has_data = s->after_cr = s->past_start = false;
}

void event_stream_free(struct event_stream *s)
{
    buffer_free(&s->line);
    buffer_free(&s->data);
}

void event_stream_restart(struct event_stream *s)
{
    event_stream_free(s);
    s->line = buffer_with_limit(s->limit);
    s->data = buffer_with_limit(s->limit);
    s->name[0] = '\0';
    memcpy(s->id, s->last_id, sizeof s->id);
    s->has_data = s->after_cr = s->past_start = false;
}

const char *event_stream_last_id(const struct event_stream *s)
{
    return s->last_id;
}

uint64_t event_stream_retry(const struct event_stream *s)
{
    return s->retry;
}

static void copy_text(char *to, size_t max, struct slice text)
{
    struct slice kept = slice_sub(text, 0, max);
    if (kept.len)
        memcpy(to, kept.at, kept.len);
    to[kept.len] = '\0';
}

/* Keeps the id of the current event. The id returns to the server in a header, so an id that a header cannot hold counts as none. */
static void set_id(struct event_stream *s, struct slice value)
{
    if (slice_find(value, '\0') < value.len)
        return;
    bool fits = value.len <= EVENT_STREAM_ID_MAX;
    for (size_t i = 0; i < value.len; i++)
        fits = fits && value.at[i] >= 0x20 && value.at[i] != 0x7f;
    copy_text(s->id, EVENT_STREAM_ID_MAX, fits ? value : slice_of("", 0));
}

static bool read_field(struct event_stream *s, struct slice line)
{
    size_t colon = slice_find(line, ':');
    struct slice name = slice_sub(line, 0, colon), value = slice_from(line, colon + 1);
    uint64_t retry;
    if (value.len && value.at[0] == ' ')
        value = slice_from(value, 1);
    if (slice_is(name, "data")) {
        bool first = !s->has_data;
        s->has_data = true;
        return (first || buffer_put(&s->data, SLICE_LITERAL("\n"))) && buffer_put(&s->data, value);
    }
    if (slice_is(name, "event"))
        copy_text(s->name, EVENT_STREAM_NAME_MAX, value);
    else if (slice_is(name, "id"))
        set_id(s, value);
    else if (slice_is(name, "retry") && slice_u64(value, RETRY_MAX, &retry))
        s->retry = retry;
    return true;
}

/* Ends the current event, and passes it to the owner if it has data. */
static void dispatch(struct event_stream *s)
{
    memcpy(s->last_id, s->id, sizeof s->last_id);
    if (s->has_data)
        s->event(s->context, slice_text(s->name), buffer_slice(&s->data));
    buffer_consume(&s->data, buffer_len(&s->data));
    s->name[0] = '\0';
    s->has_data = false;
}

static bool end_line(struct event_stream *s)
{
    struct slice line = buffer_slice(&s->line);
    if (!s->past_start && slice_starts(line, "\xEF\xBB\xBF"))
        line = slice_from(line, 3);
    s->past_start = true;
    bool good = true;
    if (line.len)
        good = read_field(s, line); /* a comment has an empty name, and is ignored like an unknown one */
    else
        dispatch(s);
    buffer_consume(&s->line, buffer_len(&s->line));
    return good;
}

bool event_stream_feed(struct event_stream *s, struct slice bytes, struct fail *why)
{
    while (bytes.len) {
        if (s->after_cr && bytes.at[0] == '\n') {
            s->after_cr = false;
            bytes = slice_from(bytes, 1);
            continue;
        }
        s->after_cr = false;
        size_t end = 0;
        while (end < bytes.len && bytes.at[end] != '\n' && bytes.at[end] != '\r')
            end++;
        if (!buffer_put(&s->line, slice_sub(bytes, 0, end)))
            return fail(why, "a line of the event stream cannot be held (%zu bytes at most)", s->limit);
        if (end == bytes.len)
            return true;
        s->after_cr = bytes.at[end] == '\r';
        if (!end_line(s))
            return fail(why, "an event cannot be held (%zu bytes at most)", s->limit);
        bytes = slice_from(bytes, end + 1);
    }
    return true;
}
