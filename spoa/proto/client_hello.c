/* SPDX-License-Identifier: MIT */
#include "spoa/proto/client_hello.h"

#include "spoa/base/reader.h"

enum {
    RECORD_FIRST = 20, /* of all kinds: change_cipher_spec, alert, handshake, application_data, heartbeat */
    RECORD_LAST = 24,
    RECORD_HANDSHAKE = 22,
    RECORD_HEAD = 5,
    RECORD_MOST = 16384,
    MESSAGE_HEAD = 4,
    MESSAGE_CLIENT_HELLO = 1,
    EXTENSION_SERVER_NAME = 0,
    NAME_HOST = 0
};

/* The version behind the kind is not looked at, as servers do not look at it (RFC 8446 section 5.1). */
static bool is_handshake(struct slice bytes)
{
    return bytes.len == 0 || bytes.at[0] == RECORD_HANDSHAKE;
}

/* Records of TLS that no client begins with are BAD: a server may skip them. */
static bool is_foreign(struct slice bytes)
{
    return bytes.len > 0 && (bytes.at[0] < RECORD_FIRST || bytes.at[0] > RECORD_LAST);
}

/* The length of the message with its head; 0: not known yet. */
static size_t message_length(const struct writer *message)
{
    struct reader r = reader_of(slice_from(writer_slice(message), 1));
    return message->len < MESSAGE_HEAD ? 0 : MESSAGE_HEAD + (size_t)reader_be(&r, 3);
}

/* The ClientHello of SSL 2.0: two bytes of length, of which the first bit is set, and the message's kind. */
static bool is_oldest(struct slice bytes)
{
    return bytes.len > 0 && bytes.at[0] & 0x80 && (bytes.len < 3 || bytes.at[2] == MESSAGE_CLIENT_HELLO);
}

/* Appends what the records hold of the message. */
static enum client_hello join_records(struct slice bytes, struct writer *message)
{
    while (bytes.len > 0) {
        size_t wanted = message_length(message);
        if (message->len >= MESSAGE_HEAD && message->len >= wanted)
            break;
        if (!is_handshake(bytes))
            return CLIENT_HELLO_BAD;
        if (bytes.len < RECORD_HEAD)
            break;
        size_t len = (size_t)bytes.at[3] << 8 | bytes.at[4];
        if (len == 0 || len > RECORD_MOST)
            return CLIENT_HELLO_BAD;
        writer_put(message, slice_sub(bytes, RECORD_HEAD, len));
        if (message->full)
            return CLIENT_HELLO_BAD;
        bytes = slice_from(bytes, RECORD_HEAD + len);
    }
    return CLIENT_HELLO_MORE;
}

/* Takes a part that has its length, of 1 or 2 bytes, in front. */
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
        if (found != CLIENT_HELLO_UNNAMED) /* which of two counts is the server's to say */
            return CLIENT_HELLO_BAD;
        found = read_names(body, name);
    }
    return r.failed ? CLIENT_HELLO_BAD : found;
}

static enum client_hello read_message(struct slice body, struct slice *name)
{
    struct reader r = reader_of(body);
    (void)reader_take(&r, 2 + 32); /* version, random */
    (void)take_part(&r, 1);        /* session */
    (void)take_part(&r, 2);        /* cipher suites */
    (void)take_part(&r, 1);        /* compression */
    if (reader_done(&r))
        return CLIENT_HELLO_UNNAMED; /* TLS 1.0 knows messages without extensions */
    struct slice extensions = take_part(&r, 2);
    return reader_done(&r) ? read_extensions(extensions, name) : CLIENT_HELLO_BAD;
}

enum client_hello client_hello_read(struct slice bytes, struct writer *memory, struct slice *name)
{
    struct writer *message = memory;
    message->len = 0;
    message->full = false;
    *name = (struct slice){NULL, 0};
    if (is_oldest(bytes))
        return bytes.len < 3 ? CLIENT_HELLO_MORE : CLIENT_HELLO_UNNAMED;
    if (is_foreign(bytes))
        return CLIENT_HELLO_FOREIGN;
    if (join_records(bytes, message) == CLIENT_HELLO_BAD)
        return CLIENT_HELLO_BAD;
    size_t len = message_length(message);
    if (message->len && message->at[0] != MESSAGE_CLIENT_HELLO)
        return CLIENT_HELLO_BAD;
    if (len > message->size)
        return CLIENT_HELLO_BAD;
    if (len == 0 || message->len < len)
        return CLIENT_HELLO_MORE;
    return read_message(slice_sub(writer_slice(message), MESSAGE_HEAD, len - MESSAGE_HEAD), name);
}
