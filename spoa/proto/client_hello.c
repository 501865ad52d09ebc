/* SPDX-License-Identifier: MIT */
#include "spoa/proto/client_hello.h"

#include "spoa/base/bytes/reader.h"

enum {
    RECORD_FIRST = 20, /* content types: change_cipher_spec, alert, handshake, application_data, heartbeat */
    RECORD_LAST = 24,
    MESSAGE_HEAD = 4, /* bytes of a handshake message's head: type, length */
    MESSAGE_CLIENT_HELLO = 1,
    EXTENSION_SERVER_NAME = 0,
    NAME_HOST = 0
};

/* Returns the length of the handshake message, or of its head as long as the head is incomplete. */
static size_t message_length(const struct writer *message)
{
    struct reader r = reader_of(slice_from(writer_slice(message), 1));
    return MESSAGE_HEAD + (message->len < MESSAGE_HEAD ? 0 : (size_t)reader_be(&r, 3));
}

/* Takes the head of a handshake record off *bytes and sets *left to the record's length. Returns CLIENT_HELLO_NAMED if all is well.
 * The record's version is ignored, as servers must ignore it (RFC 8446 section 5.1). */
static enum client_hello enter_record(struct slice *bytes, size_t *left)
{
    if (bytes->len > 0 && bytes->at[0] != TLS_HANDSHAKE)
        return CLIENT_HELLO_BAD;
    if (bytes->len < TLS_RECORD_HEAD)
        return CLIENT_HELLO_MORE;
    *left = (size_t)bytes->at[3] << 8 | bytes->at[4];
    *bytes = slice_from(*bytes, TLS_RECORD_HEAD);
    return *left > 0 && *left <= TLS_RECORD_MAX ? CLIENT_HELLO_NAMED : CLIENT_HELLO_BAD;
}

/* Assembles the message from its records. Returns CLIENT_HELLO_NAMED if it is complete. */
static enum client_hello join_records(struct slice bytes, struct writer *message,
                                      struct client_hello_place *place)
{
    struct slice rest = bytes;
    size_t left = place->left, length;
    while (message->len < (length = message_length(message))) {
        size_t wanted = length - message->len;
        enum client_hello entered = left ? CLIENT_HELLO_NAMED : enter_record(&rest, &left);
        if (entered != CLIENT_HELLO_NAMED || length > message->size || rest.len == 0) {
            place->len = bytes.len + wanted;
            return entered == CLIENT_HELLO_BAD || length > message->size ? CLIENT_HELLO_BAD
                                                                         : CLIENT_HELLO_MORE;
        }
        struct slice part = slice_sub(rest, 0, left < wanted ? left : wanted);
        writer_put(message, part);
        rest = slice_from(rest, part.len);
        left -= part.len;
        if (message->at[0] != MESSAGE_CLIENT_HELLO)
            return CLIENT_HELLO_BAD;
    }
    *place = (struct client_hello_place){left, bytes.len - rest.len};
    return CLIENT_HELLO_NAMED;
}

/* Takes a vector: a length of 1 or 2 bytes, and that number of bytes. */
static struct slice take_part(struct reader *r, size_t length_size)
{
    return reader_take(r, reader_be(r, length_size));
}

static enum client_hello read_names(struct slice list, struct slice *name)
{
    struct reader r = reader_of(list);
    struct reader names = reader_of(take_part(&r, 2));
    if (!reader_done(&r) || names.rest.len == 0)
        return CLIENT_HELLO_BAD;
    uint8_t kind = reader_u8(&names);
    *name = take_part(&names, 2);
    bool good = reader_done(&names) && kind == NAME_HOST && name->len > 0 && name->len <= 255;
    return good && slice_find(*name, '\0') == name->len ? CLIENT_HELLO_NAMED : CLIENT_HELLO_BAD;
}

static enum client_hello read_extensions(struct slice list, struct slice *name)
{
    struct reader r = reader_of(list);
    enum client_hello found = CLIENT_HELLO_UNNAMED;
    while (r.rest.len && !r.failed) {
        uint64_t kind = reader_be(&r, 2);
        struct slice body = take_part(&r, 2);
        if (r.failed || kind != EXTENSION_SERVER_NAME)
            continue;
        if (found != CLIENT_HELLO_UNNAMED) /* servers differ in which of two names they use */
            return CLIENT_HELLO_BAD;
        found = read_names(body, name);
    }
    return r.failed ? CLIENT_HELLO_BAD : found;
}

static enum client_hello read_message(struct slice body, struct slice *name)
{
    struct reader r = reader_of(body);
    (void)reader_take(&r, 2 + 32); /* version, random */
    (void)take_part(&r, 1);        /* session id */
    (void)take_part(&r, 2);        /* cipher suites */
    (void)take_part(&r, 1);        /* compression methods */
    if (reader_done(&r))
        return CLIENT_HELLO_UNNAMED; /* TLS 1.0 allows a message without extensions */
    struct slice extensions = take_part(&r, 2);
    return reader_done(&r) ? read_extensions(extensions, name) : CLIENT_HELLO_BAD;
}

enum client_hello client_hello_next(struct slice bytes, struct writer *memory, struct slice *name,
                                    struct client_hello_place *place)
{
    memory->len = 0;
    memory->full = false;
    *name = (struct slice){NULL, 0};
    enum client_hello whole = join_records(bytes, memory, place);
    return whole == CLIENT_HELLO_NAMED ? read_message(slice_from(writer_slice(memory), MESSAGE_HEAD), name)
                                       : whole;
}

enum client_hello client_hello_read(struct slice bytes, struct writer *memory, struct slice *name)
{
    struct client_hello_place place = {0};
    uint8_t first = bytes.len ? bytes.at[0] : TLS_HANDSHAKE;
    *name = (struct slice){NULL, 0};
    /* SSL 2.0: two bytes of length, of which the first bit is set, and the type of the message */
    if (first & 0x80 && (bytes.len < 3 || bytes.at[2] == MESSAGE_CLIENT_HELLO))
        return bytes.len < 3 ? CLIENT_HELLO_MORE : CLIENT_HELLO_UNNAMED;
    /* a TLS record with which no client begins is BAD and not FOREIGN: a server may skip it */
    if (first < RECORD_FIRST || first > RECORD_LAST)
        return CLIENT_HELLO_FOREIGN;
    return client_hello_next(bytes, memory, name, &place);
}
