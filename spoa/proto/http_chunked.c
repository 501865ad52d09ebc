/* SPDX-License-Identifier: MIT */
#include "spoa/proto/http.h"

#include "spoa/base/bytes/ascii.h"

/* Each state says what comes next. The trailer states must follow CHUNK_DATA_LF: http_chunked_read compares with `>=`. */
enum {
    CHUNK_SIZE,          /* a digit of the size, or what ends it */
    CHUNK_EXTENSION,     /* an extension after the size, or CR */
    CHUNK_SIZE_LF,       /* LF after the size */
    CHUNK_DATA,          /* `left` bytes of data */
    CHUNK_DATA_CR,       /* CR after the data */
    CHUNK_DATA_LF,       /* LF after the data */
    CHUNK_TRAILER,       /* the first byte of a trailer line, or the CR of the empty line */
    CHUNK_TRAILER_NAME,  /* the rest of its name */
    CHUNK_TRAILER_VALUE, /* its value, or CR */
    CHUNK_TRAILER_LF,    /* LF after its value */
    CHUNK_END_LF,        /* LF of the empty line */
    CHUNK_END,           /* nothing: the body has ended */
    CHUNK_BAD,           /* nothing: the body is malformed */
};

#define CHUNK_DIGITS_MAX    16   /* digits of a size, leading zeros included */
#define CHUNK_EXTENSION_MAX 256  /* bytes of one chunk's extension */
#define CHUNK_TRAILER_MAX   8192 /* bytes of all trailers */

/* Takes a byte of the size line. A size of 2^63 or more is bad. */
static unsigned chunk_size(struct http_chunked *c, uint8_t byte)
{
    if (c->digits && byte == '\r')
        return CHUNK_SIZE_LF;
    if (c->digits && byte == ';') {
        c->extra = 0;
        return CHUNK_EXTENSION;
    }
    int value = ascii_hex_value(byte);
    if (value < 0 || c->digits == CHUNK_DIGITS_MAX || c->left >> 59)
        return CHUNK_BAD;
    c->digits++;
    c->left = c->left << 4 | (unsigned)value;
    return CHUNK_SIZE;
}

/* Checks and drops a byte of an extension or a trailer value. Returns `next` after a CR, else `same`, or CHUNK_BAD after `limit`
 * bytes. */
static unsigned chunk_dropped(struct http_chunked *c, uint8_t byte, unsigned limit, unsigned same,
                              unsigned next)
{
    if (byte == '\r')
        return next;
    return http_is_control(byte) || c->extra++ == limit ? CHUNK_BAD : same;
}

static unsigned chunk_trailer_name(struct http_chunked *c, uint8_t byte)
{
    if (c->extra++ == CHUNK_TRAILER_MAX)
        return CHUNK_BAD;
    if (byte == ':' && c->state == CHUNK_TRAILER_NAME)
        return CHUNK_TRAILER_VALUE;
    return http_is_token(slice_of(&byte, 1)) ? CHUNK_TRAILER_NAME : CHUNK_BAD;
}

/* Takes one byte that is not data. Returns the next state. */
static unsigned chunk_step(struct http_chunked *c, uint8_t byte)
{
    switch (c->state) {
    case CHUNK_SIZE:
        return chunk_size(c, byte);
    case CHUNK_EXTENSION:
        return chunk_dropped(c, byte, CHUNK_EXTENSION_MAX, CHUNK_EXTENSION, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF:
        c->digits = c->extra = 0;
        return byte != '\n' ? CHUNK_BAD : c->left ? CHUNK_DATA : CHUNK_TRAILER;
    case CHUNK_DATA_CR:
        return byte == '\r' ? CHUNK_DATA_LF : CHUNK_BAD;
    case CHUNK_DATA_LF:
        return byte == '\n' ? CHUNK_SIZE : CHUNK_BAD;
    case CHUNK_TRAILER:
        return byte == '\r' ? CHUNK_END_LF : chunk_trailer_name(c, byte);
    case CHUNK_TRAILER_NAME:
        return chunk_trailer_name(c, byte);
    case CHUNK_TRAILER_VALUE:
        return chunk_dropped(c, byte, CHUNK_TRAILER_MAX, CHUNK_TRAILER_VALUE, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LF:
        return byte == '\n' ? CHUNK_TRAILER : CHUNK_BAD;
    case CHUNK_END_LF:
        return byte == '\n' ? CHUNK_END : CHUNK_BAD;
    default:
        return CHUNK_BAD;
    }
}

enum http_result http_chunked_read(struct http_chunked *c, struct slice *in, struct slice *data)
{
    *data = slice_of(in->at, 0);
    while (c->state != CHUNK_END && c->state != CHUNK_BAD && in->len > 0) {
        if (c->state == CHUNK_DATA) {
            *data = slice_sub(*in, 0, c->left < in->len ? (size_t)c->left : in->len);
            *in = slice_from(*in, data->len);
            c->left -= data->len;
            if (c->left == 0)
                c->state = CHUNK_DATA_CR;
            return HTTP_MORE;
        }
        if (c->trailers && c->state >= CHUNK_TRAILER && !buffer_put(c->trailers, slice_sub(*in, 0, 1))) {
            c->state = CHUNK_BAD;
            break;
        }
        c->state = chunk_step(c, in->at[0]);
        *in = slice_from(*in, 1);
    }
    return c->state == CHUNK_END ? HTTP_DONE : c->state == CHUNK_BAD ? HTTP_BAD : HTTP_MORE;
}
