/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/stream.h"

#include <stdio.h>

#include "spoa/agent/directory/kubernetes/json.h"

/* The place of the next byte. */
enum place {
    AT_START, /* before the document, or between two events */
    AT_KEY,   /* before a member's key */
    IN_KEY,   /* after its opening quote */
    AT_COLON,
    AT_VALUE,
    AT_ITEM,     /* before an element of `items` */
    IN_VALUE,    /* in the value of a member, an element or an event */
    AFTER_VALUE, /* after a member's value */
    AFTER_ITEM,  /* after an element of `items` */
    AT_END       /* after the document */
};

void kubernetes_stream_begin(struct kubernetes_stream *s, enum kubernetes_form form)
{
    kubernetes_stream_free(s);
    s->form = form;
    s->at = AT_START;
    s->has_items = false;
    s->held = buffer_with_limit(KUBERNETES_OBJECT_MAX);
}

void kubernetes_stream_free(struct kubernetes_stream *s)
{
    buffer_free(&s->held);
}

bool kubernetes_stream_whole(const struct kubernetes_stream *s)
{
    return s->at == (s->form == KUBERNETES_LIST ? AT_END : AT_START);
}

/* ---- values ---- */

/* Reads on in a string. Returns the number of bytes that belong to it. */
static size_t in_string(struct kubernetes_stream *s, struct slice bytes)
{
    size_t i = 0;
    while (i < bytes.len && s->string) {
        if (s->escaped) {
            s->escaped = false;
            i++;
            continue;
        }
        while (i < bytes.len && bytes.at[i] != '"' && bytes.at[i] != '\\')
            i++;
        if (i == bytes.len)
            break;
        s->escaped = bytes.at[i] == '\\';
        s->string = s->escaped;
        i++;
    }
    return i;
}

/* Reads on in a value. Returns the number of bytes that belong to it; *ended is set if the value ends with them. */
static size_t in_value(struct kubernetes_stream *s, struct slice bytes, bool *ended)
{
    size_t i = 0;
    *ended = false;
    while (i < bytes.len && !*ended) {
        if (s->string) {
            i += in_string(s, slice_from(bytes, i));
            *ended = !s->string && s->nest == 0;
            continue;
        }
        uint8_t c = bytes.at[i];
        bool space_or_mark = kubernetes_json_space(c) || c == ',' || c == '}' || c == ']';
        if (s->scalar && space_or_mark) {
            *ended = true;
            break; /* this byte is not a part of the value */
        }
        i++;
        s->string = c == '"';
        if (c == '{' || c == '[')
            s->nest++;
        else if (c == '}' || c == ']')
            *ended = s->nest == 0 || --s->nest == 0;
    }
    return i;
}

/* Keeps bytes of the value. Beyond the limit only an item's identity is kept (abridged.h). */
static bool keep(struct kubernetes_stream *s, struct slice bytes, struct fail *why)
{
    size_t max = s->item ? KUBERNETES_OBJECT_MAX : KUBERNETES_MEMBER_MAX;
    if (!s->left_out && bytes.len > max - buffer_len(&s->held)) {
        s->left_out = true;
        kubernetes_abridged_begin(&s->abridged, s->form == KUBERNETES_WATCH, s->label);
        if (s->item)
            kubernetes_abridged_feed(&s->abridged, buffer_slice(&s->held));
        buffer_consume(&s->held, buffer_len(&s->held));
    }
    if (!s->left_out)
        return buffer_put(&s->held, bytes) || fail(why, "out of memory");
    if (s->item)
        kubernetes_abridged_feed(&s->abridged, bytes);
    return true;
}

/* Reads on in a value, and reports it when it ends. */
static bool feed_value(struct kubernetes_stream *s, struct slice *bytes, struct fail *why)
{
    bool ended;
    size_t len = in_value(s, *bytes, &ended);
    if (!keep(s, slice_sub(*bytes, 0, len), why))
        return false;
    *bytes = slice_from(*bytes, len);
    if (!ended)
        return true;
    struct slice text = s->left_out ? kubernetes_abridged_text(&s->abridged) : buffer_slice(&s->held);
    if (s->item)
        s->object(s->context, text, s->left_out);
    else if (!s->left_out)
        s->member(s->context, slice_text(s->key), text);
    buffer_consume(&s->held, buffer_len(&s->held));
    s->at = !s->item ? AFTER_VALUE : s->form == KUBERNETES_LIST ? AFTER_ITEM : AT_START;
    return true;
}

/* ---- keys ---- */

/* Reads on in a key. Escapes are kept: no wanted key has one. */
static bool feed_key(struct kubernetes_stream *s, struct slice *bytes, struct fail *why)
{
    size_t len = in_string(s, *bytes);
    s->item = false;
    if (!keep(s, slice_sub(*bytes, 0, len), why))
        return false;
    *bytes = slice_from(*bytes, len);
    if (s->string)
        return true;
    struct slice held = buffer_slice(&s->held);
    snprintf(s->key, sizeof s->key, "%.*s", held.len ? (int)held.len - 1 : 0, (const char *)held.at);
    if (s->left_out)
        s->key[0] = '\0';
    buffer_consume(&s->held, buffer_len(&s->held));
    s->at = AT_COLON;
    return true;
}

/* ---- between values ---- */

/* Takes a byte outside of values, keys and white space. Returns false if the byte cannot stand here. */
static bool step(struct kubernetes_stream *s, uint8_t c)
{
    bool list = s->form == KUBERNETES_LIST, first = s->first;
    s->first = false;
    switch (s->at) {
    case AT_START:
        if (c == '{' && list) {
            s->at = AT_KEY;
            return s->first = true;
        }
        return false;
    case AT_KEY:
        if (c == '"') {
            s->at = IN_KEY;
            s->string = true;
            s->escaped = s->left_out = false;
            return true;
        }
        s->at = AT_END;
        return c == '}' && first;
    case AT_COLON:
        s->at = AT_VALUE;
        return c == ':';
    case AT_VALUE:
        s->at = AT_ITEM;
        return s->has_items = s->first = c == '[' && strcmp(s->key, "items") == 0;
    case AT_ITEM:
        s->at = AFTER_VALUE;
        return c == ']' && first;
    case AFTER_ITEM:
        s->at = c == ',' ? AT_ITEM : AFTER_VALUE;
        return c == ',' || c == ']';
    case AFTER_VALUE:
        s->at = c == ',' ? AT_KEY : AT_END;
        return c == ',' || c == '}';
    default:
        return false;
    }
}

/* Returns whether a value begins here that is held whole: an element, an event, or a member except `items`. */
static bool begins_value(const struct kubernetes_stream *s, uint8_t c)
{
    if (s->at == AT_VALUE)
        return strchr("{[\"-0123456789tfn", c) && c && !(c == '[' && strcmp(s->key, "items") == 0);
    return c == '{' && (s->at == AT_ITEM || (s->at == AT_START && s->form == KUBERNETES_WATCH));
}

bool kubernetes_stream_feed(struct kubernetes_stream *s, struct slice bytes, struct fail *why)
{
    while (bytes.len) {
        uint8_t c = bytes.at[0];
        if (s->at == IN_VALUE) {
            if (!feed_value(s, &bytes, why))
                return false;
        } else if (s->at == IN_KEY) {
            if (!feed_key(s, &bytes, why))
                return false;
        } else if (begins_value(s, c)) {
            s->item = s->at != AT_VALUE;
            s->at = IN_VALUE;
            s->nest = 0;
            s->string = s->escaped = s->left_out = false;
            s->scalar = c != '{' && c != '[' && c != '"';
        } else if (kubernetes_json_space(c) || step(s, c)) {
            bytes = slice_from(bytes, 1);
        } else {
            return fail(why, s->form == KUBERNETES_LIST ? "this is not a list" : "this is no watch's event");
        }
    }
    return true;
}
