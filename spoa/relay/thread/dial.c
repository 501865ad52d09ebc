/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/dial.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "spoa/base/os/random.h"
#include "spoa/net/stream.h"
#include "spoa/proto/proxy_header.h"

#define BODY_MAX    65536
#define INTERIM_MAX 4
#define READ_LEAST  4096

struct dial {
    struct loop *loop;
    struct stream stream; /* closed if no socket could be made */
    struct loop_task gone;
    struct loop_timer told;
    void (*done)(void *owner, enum dial_outcome outcome);
    void *owner;
    struct upgrade_kept *upgrade;
    bool first, wants_body, connected, asked, finished, has_head;
    unsigned interim;
    size_t head_max;
    char key[WS_KEY_SIZE];
    struct http_reader reader;
    struct http_chunked chunked;
    struct buffer body;
    size_t body_at;          /* offset of the next unread byte of the body in the input */
    enum dial_outcome early; /* outcome known before dial_new returned, which a timer reports */
    struct fail why;
    struct http_head head; /* valid if has_head; too large to be cleared */
};

static void finish(struct dial *d, enum dial_outcome outcome)
{
    if (d->finished)
        return;
    d->finished = true;
    stream_stop_time(&d->stream);
    stream_pause(&d->stream, true);
    d->done(d->owner, outcome);
}

static void finish_because(struct dial *d, enum dial_outcome outcome, const char *why)
{
    fail(&d->why, "%s", why);
    finish(d, outcome);
}

/* ---- the answer ---- */
static struct slice received(const struct dial *d)
{
    return buffer_slice(&d->stream.in);
}

/* Keeps a part of the body. If memory is short, the client gets only the status. */
static bool keep_body(struct dial *d, struct slice body)
{
    if (!buffer_put(&d->body, body))
        buffer_free(&d->body);
    return true;
}

/* Reads a body of known length. Returns false if more bytes are needed. The body is cut at BODY_MAX, which is enough to explain a
 * refusal. */
static bool take_length(struct dial *d, bool ended)
{
    struct slice rest = slice_from(received(d), d->head.len);
    uint64_t wanted = d->head.length < BODY_MAX ? d->head.length : BODY_MAX;

    if (rest.len < wanted && !ended)
        return false;
    return keep_body(d, slice_sub(rest, 0, (size_t)wanted));
}

static bool take_chunks(struct dial *d, bool ended)
{
    struct slice rest = slice_from(received(d), d->head.len + d->body_at), data;
    enum http_result result;
    size_t before = rest.len;

    do {
        result = http_chunked_read(&d->chunked, &rest, &data);
        if (data.len && !buffer_put(&d->body, data))
            return true; /* cut */
    } while (result == HTTP_MORE && rest.len);
    d->body_at += before - rest.len;
    return result != HTTP_MORE || ended;
}

static bool take_all(struct dial *d, bool ended)
{
    struct slice rest = slice_from(received(d), d->head.len);

    if (!ended && rest.len < BODY_MAX)
        return false;
    return keep_body(d, slice_sub(rest, 0, BODY_MAX));
}

static bool take_body(struct dial *d, bool ended)
{
    switch (http_framing(&d->head, false)) {
    case HTTP_LENGTH:
        return take_length(d, ended);
    case HTTP_CHUNKED:
        return take_chunks(d, ended);
    case HTTP_UNTIL_CLOSE:
        return take_all(d, ended);
    default:
        return true;
    }
}

static bool is_good(struct dial *d)
{
    struct upgrade upgrade = upgrade_unpack(d->upgrade);

    if (!upgrade_check(&upgrade, &d->head, slice_text(d->key), d->first, &d->why))
        return false;
    upgrade_keep_selected(d->upgrade, &upgrade);
    return true;
}

static void on_head(struct dial *d, bool ended)
{
    if (d->head.status == 101 && is_good(d)) {
        finish(d, DIAL_OPEN);
    } else if (d->head.status == 101) {
        finish(d, fail_of_memory(&d->why) ? DIAL_MEMORY : DIAL_INVALID);
    } else if (!d->wants_body || take_body(d, ended)) {
        fail(&d->why, "upgrade was refused with status %u", d->head.status);
        finish(d, DIAL_STATUS);
    }
}

/* Skips an interim answer. Returns true if one was skipped; another head may follow. */
static bool skip_interim(struct dial *d)
{
    if (d->head.status >= 200 || d->head.status == 101)
        return false;
    if (++d->interim > INTERIM_MAX) {
        finish_because(d, DIAL_INVALID, "too many interim answers");
        return false;
    }
    d->has_head = false;
    stream_consume(&d->stream, d->head.len);
    d->reader = http_reader_of(HTTP_RESPONSE, d->head_max);
    return true;
}

static bool read_head(struct dial *d)
{
    do {
        switch (http_read(&d->reader, received(d), &d->head)) {
        case HTTP_DONE:
            d->has_head = true;
            break;
        case HTTP_MORE:
            return false;
        default:
            finish_because(d, DIAL_INVALID, d->reader.why);
            return false;
        }
    } while (skip_interim(d));
    return !d->finished;
}

static void on_bytes(struct dial *d, bool ended)
{
    /* the head's slices point into the buffer, which may have moved */
    if (d->has_head)
        d->reader = http_reader_of(HTTP_RESPONSE, d->head_max);
    if (read_head(d))
        on_head(d, ended);
    if (ended && !d->finished)
        finish_because(d, DIAL_INVALID, "connection ended within the answer");
}

/* ---- events ---- */
static void on_connected(void *owner)
{
    ((struct dial *)owner)->connected = true;
}

/* Reads input. A body that does not fit is cut. */
static void on_input(void *owner)
{
    struct dial *d = owner;
    on_bytes(d, buffer_len(&d->stream.in) + READ_LEAST > d->stream.in.limit);
}

static void note_asked(struct dial *d)
{
    if (d->asked || buffer_len(&d->stream.out) > 0)
        return;
    d->asked = true;
    net_asked(loop_io_fd(&d->stream.io));
}

static void on_sent(void *owner)
{
    note_asked(owner);
}

static void on_ended(void *owner, int error)
{
    struct dial *d = owner;

    if (error == ENOMEM)
        finish_because(d, DIAL_MEMORY, "out of memory");
    else if (error && !d->asked)
        finish_because(d, DIAL_UNREACHABLE, strerror(error));
    else
        on_bytes(d, true);
}

static void on_late(void *owner)
{
    struct dial *d = owner;
    finish_because(d, DIAL_TIMEOUT, d->connected ? "no answer in time" : "no connection in time");
}

static const struct stream_user stream_user = {.connected = on_connected,
                                               .input = on_input,
                                               .sent = on_sent,
                                               .ended = on_ended,
                                               .late = on_late,
                                               .read_size = READ_LEAST};

static void tell_early(void *owner)
{
    struct dial *d = owner;
    finish(d, d->early);
}

/* ---- the request ---- */
static bool put_request(struct dial *d, const struct dial_options *o)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX + PROXY_HEADER_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct upgrade upgrade = upgrade_unpack(o->upgrade);
    uint8_t nonce[16];

    if (!random_bytes(nonce, sizeof nonce))
        return fail(&d->why, "no randomness");
    ws_handshake_key(d->key, nonce); /* a probe sends no key, so no worker can answer it with a valid 101 */
    if (o->to->tls)
        proxy_header_write(&w, NULL, &o->to->addr, (uint16_t)o->to->port, o->to->sni,
                           (struct slice){NULL, 0});
    if (slice_present(o->probe))
        upgrade_probe(&upgrade, o->to, o->probe, &w);
    else
        upgrade_request(&upgrade, o->to, slice_text(d->key), o->query, o->fields, &w);
    if (w.full)
        return fail(&d->why, "the request's head is too large");
    d->early = DIAL_MEMORY;
    return buffer_put(&d->stream.out, writer_slice(&w)) || fail(&d->why, "out of memory");
}

int dial_connect(const struct target *to, const struct net_address *tls, const char *folder, struct fail *why)
{
    struct net_address address;
    if (to->tls)
        return net_connect_to_ask(tls, why);
    if (slice_present(to->unix_path))
        return net_connect_beneath(folder, to->unix_path, why);
    net_from_ip(slice_of(to->addr.bytes, to->addr.family == 4 ? 4 : 16), to->port, &address);
    return net_connect_to_ask(&address, why);
}

static int take_ahead(const struct dial_options *o)
{
    int fd = o->ahead ? *o->ahead : -1;

    if (o->ahead)
        *o->ahead = -1;
    return fd;
}

static bool start(struct dial *d, const struct dial_options *o)
{
    d->early = DIAL_INVALID;
    if (o->to->tls && o->to->sni.len > 255)
        return fail(&d->why, "the worker's name is too long");
    if (!put_request(d, o))
        return false;
    d->early = DIAL_UNREACHABLE;
    int fd = take_ahead(o);
    if (fd < 0)
        fd = dial_connect(o->to, o->tls, o->folder, &d->why);
    if (fd < 0) {
        if (fail_of_resources(errno))
            d->early = DIAL_NO_SOCKET;
        return false;
    }
    stream_open(&d->stream, o->loop, fd);
    if (o->share)
        stream_join(&d->stream, o->share);
    stream_set_time(&d->stream, o->timeout);
    return true;
}

struct dial *dial_new(const struct dial_options *o)
{
    struct dial *d = malloc(sizeof *d);

    if (!d)
        return NULL;
    memset(d, 0, offsetof(struct dial, head));
    d->loop = o->loop;
    d->done = o->done;
    d->owner = o->owner;
    d->upgrade = o->upgrade;
    d->first = o->first;
    d->wants_body = o->first || slice_present(o->probe);
    d->head_max = o->head_max;
    d->stream = (struct stream){.user = &stream_user,
                                .owner = d,
                                .in = buffer_with_limit(o->head_max + BODY_MAX + READ_LEAST),
                                .out = buffer_with_limit(UPGRADE_HEAD_MAX + PROXY_HEADER_MAX)};
    d->body = buffer_with_limit(BODY_MAX);
    d->reader = http_reader_of(HTTP_RESPONSE, o->head_max);
    loop_timer_open(&d->told, o->loop, tell_early, d);
    if (!start(d, o))
        loop_timer_set(&d->told, 0);
    return d;
}

void dial_hurry(struct dial *d)
{
    d->connected = stream_send_early(&d->stream);
    if (d->connected)
        note_asked(d);
}

void dial_free(struct dial *d)
{
    if (!d)
        return;
    stream_close(&d->stream);
    loop_timer_close(&d->told);
    buffer_free(&d->body);
    d->finished = true;
    d->gone = (struct loop_task){.run = free, .context = d};
    loop_defer(d->loop, &d->gone);
}

/* ---- after done ---- */
unsigned dial_status(const struct dial *d)
{
    return d->has_head ? d->head.status : 0;
}

const struct http_head *dial_head(const struct dial *d)
{
    return d->has_head ? &d->head : NULL;
}

struct slice dial_body(const struct dial *d)
{
    return buffer_slice(&d->body);
}

const char *dial_why(const struct dial *d)
{
    return d->why.text;
}

int dial_take(struct dial *d)
{
    return stream_release(&d->stream);
}

struct slice dial_rest(const struct dial *d)
{
    return slice_from(received(d), d->head.len);
}

size_t dial_held(const struct dial *d)
{
    return d ? stream_held(&d->stream) + d->body.size : 0;
}
