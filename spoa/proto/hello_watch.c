/* SPDX-License-Identifier: MIT */
#include "spoa/proto/hello_watch.h"

#include "spoa/base/bytes/min_max.h"

enum { MESSAGE_SERVER_HELLO = 2, RANDOM_AT = 4 + 2 };

/* The random by which a ServerHello is a HelloRetryRequest (RFC 8446 section 4.1.3). */
static const uint8_t retry[32] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
                                  0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
                                  0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

static size_t record_length(const uint8_t head[static TLS_RECORD_HEAD])
{
    return (size_t)head[3] << 8 | head[4];
}

/* ---- the client ---- */

/* Skips the client's records that are no handshake records. Returns the number of bytes skipped. */
static size_t skip_others(struct hello_watch *w, struct slice bytes)
{
    size_t at = 0;
    for (;;) {
        if (w->other) {
            size_t skipped = min_size(w->left, bytes.len - at);
            at += skipped;
            w->left -= skipped;
            w->other = w->left > 0;
        }
        if (w->left > 0 || bytes.len - at < TLS_RECORD_HEAD || bytes.at[at] == TLS_HANDSHAKE)
            return at;
        w->other = true;
        w->left = record_length(bytes.at + at);
        at += TLS_RECORD_HEAD;
    }
}

/* Reads the first ClientHello. No server asks for another one after that of SSL 2.0, so the watch is then done. */
static enum client_hello read_first(struct hello_watch *w, struct slice bytes, struct writer *memory,
                                    struct slice *name, struct client_hello_place *place)
{
    if (bytes.len > 0 && bytes.at[0] == TLS_HANDSHAKE)
        return client_hello_next(bytes, memory, name, place);
    enum client_hello said = client_hello_read(bytes, memory, name);
    w->done = said == CLIENT_HELLO_FOREIGN || said == CLIENT_HELLO_UNNAMED;
    place->len = bytes.len;
    return said;
}

enum client_hello hello_watch_client(struct hello_watch *w, struct slice bytes, struct writer *memory,
                                     struct slice *name, size_t *clear)
{
    struct client_hello_place place = {0};
    *clear = w->done ? bytes.len : 0;
    *name = (struct slice){NULL, 0};
    if (w->done)
        return CLIENT_HELLO_FOREIGN;
    if (bytes.len < w->needs)
        return CLIENT_HELLO_MORE;
    size_t at = w->begun ? skip_others(w, bytes) : 0;
    place.left = w->other ? 0 : w->left;
    *clear = at;
    w->needs = 0;
    if (w->begun && (w->other || (w->left == 0 && bytes.len - at < TLS_RECORD_HEAD)))
        return CLIENT_HELLO_MORE;
    enum client_hello said = w->begun ? client_hello_next(slice_from(bytes, at), memory, name, &place)
                                      : read_first(w, bytes, memory, name, &place);
    if (said == CLIENT_HELLO_MORE) {
        w->needs = place.len;
        return said;
    }
    if (said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED) {
        w->done = w->done || w->retried;
        w->begun = true;
        w->left = place.left;
    }
    *clear = said == CLIENT_HELLO_BAD ? at : at + place.len;
    return said;
}

/* ---- the server ---- */

/* Fills `to` up to `size` bytes, of which it has *len. Returns the number of bytes taken. */
static size_t take(uint8_t *to, size_t *len, size_t size, struct slice from)
{
    size_t taken = min_size(size - *len, from.len);
    if (taken)
        memcpy(to + *len, from.at, taken);
    *len += taken;
    return taken;
}

/* Takes the current record's part of the answer, and judges the answer once it is complete. An alert is skipped: it may be a warning
 * before the answer. */
static size_t read_record(struct hello_watch *w, struct slice bytes)
{
    struct slice part = slice_sub(bytes, 0, w->answer_left);
    size_t taken = w->alert ? part.len : take(w->answer, &w->answer_len, HELLO_WATCH_ANSWER, part);
    w->answer_left -= taken;
    if (w->answer_left == 0)
        w->head_len = 0;
    if (w->answer_len == HELLO_WATCH_ANSWER) {
        w->retried =
            w->answer[0] == MESSAGE_SERVER_HELLO && memcmp(w->answer + RANDOM_AT, retry, sizeof retry) == 0;
        w->done = !w->retried;
    }
    return taken;
}

void hello_watch_server(struct hello_watch *w, struct slice bytes)
{
    while (w->begun && !w->done && !w->retried && bytes.len > 0) {
        if (w->head_len == TLS_RECORD_HEAD) {
            bytes = slice_from(bytes, read_record(w, bytes));
            continue;
        }
        bytes = slice_from(bytes, take(w->head, &w->head_len, TLS_RECORD_HEAD, bytes));
        w->alert = w->head[0] == TLS_ALERT;
        if (w->head[0] != TLS_HANDSHAKE && !w->alert)
            w->done = true; /* the server does not speak TLS */
        if (w->head_len < TLS_RECORD_HEAD)
            continue;
        w->answer_left = record_length(w->head);
        if (w->answer_left == 0)
            w->head_len = 0;
    }
}
