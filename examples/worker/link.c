/* SPDX-License-Identifier: MIT */
#include "examples/worker/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "spoa/net/net.h"

#define IN_LIMIT  (2 * (size_t)(KEEPER_LENGTH_SIZE + KEEPER_MESSAGE_MAX))
#define OUT_LIMIT ((size_t)512 * 1024)
#define OUT_FULL  ((size_t)128 * 1024)
#define OVERHEAD  512               /* of a message that holds data */
#define PATIENCE  INT64_C(10000000) /* microseconds in which a keeper takes nothing of what was said last */

/* ---- last words ---- */

/* A client that leaves right behind its last words has said them: those that the keeper's socket does not take at once
 * outlive their link. */
struct last_words {
    struct front_work work; /* first: its callback knows them by it */
    struct front *front;    /* NULL: it knows that they have ended */
    struct stream stream;
};

static void end_last_words(struct front_work *work)
{
    struct last_words *w = (struct last_words *)work;
    struct front *front = w->front;
    w->front = NULL;
    stream_close(&w->stream);
    front_work_done(front, work);
}

static void on_said(void *owner)
{
    struct last_words *w = owner;
    if (w->front)
        end_last_words(&w->work);
    free(w);
}

static void leave_last_words(struct link *l)
{
    static const struct stream_user saying = {.gone = on_said};
    static const struct stream_linger linger = {.step = PATIENCE, .grace = PATIENCE, .drain = SIZE_MAX};
    struct last_words *w = calloc(1, sizeof *w);
    if (!w)
        return;
    *w = (struct last_words){.work.end = end_last_words,
                             .front = l->front,
                             .stream = {.user = &saying, .owner = w, .out = l->stream.out}};
    l->stream.out = buffer_with_limit(OUT_LIMIT);
    int fd = stream_release(&l->stream);
    shutdown(fd, SHUT_RD); /* nobody hears the keeper any more: it learns that when it speaks, or looks */
    front_work_add(w->front, &w->work);
    stream_open(&w->stream, front_loop(w->front), fd);
    stream_finish(&w->stream, &linger);
}

/* ---- the link ---- */

bool link_is_open(const struct link *l)
{
    return stream_is_open(&l->stream);
}

void link_close(struct link *l)
{
    if (link_is_open(l)) {
        stream_send(&l->stream);
        if (buffer_len(&l->stream.out))
            leave_last_words(l);
    }
    stream_close(&l->stream);
}

static void lose(struct link *l)
{
    if (!link_is_open(l))
        return;
    link_close(l);
    l->lost(l->user);
}

static void on_input(void *owner)
{
    struct link *l = owner;
    while (link_is_open(l) && !l->paused) {
        struct slice in = buffer_slice(&l->stream.in);
        size_t before = in.len;
        struct keeper_message m;
        enum keeper_result result = keeper_read(&in, &m);
        if (result == KEEPER_BAD)
            lose(l);
        if (result != KEEPER_READ)
            return;
        l->message(l->user, &m);
        stream_consume(&l->stream, before - in.len);
    }
}

static void on_sent(void *owner)
{
    struct link *l = owner;
    if (!link_is_full(l) && l->room)
        l->room(l->user);
}

static void on_ended(void *owner, int error)
{
    (void)error;
    lose(owner);
}

/* A keeper that takes nothing more may have said the session's end. */
static const struct stream_user stream_user = {
    .input = on_input, .sent = on_sent, .ended = on_ended, .hears_out = true};

bool link_open(struct link *l, struct front *front, const char *path)
{
    struct net_address address;
    struct fail why;
    char text[sizeof address.path.sun_path + 8];
    int len = snprintf(text, sizeof text, "unix@%s", path);
    int fd = len < (int)sizeof text && net_parse(slice_text(text), &address, &why)
                 ? net_connect(&address, &why)
                 : -1;
    if (fd < 0)
        return false;
    l->front = front;
    l->stream = (struct stream){.user = &stream_user,
                                .owner = l,
                                .in = buffer_with_limit(IN_LIMIT),
                                .out = buffer_with_limit(OUT_LIMIT)};
    stream_open(&l->stream, front_loop(front), fd);
    link_put(l, &(struct keeper_message){.type = KEEPER_HELLO, .version = KEEPER_VERSION});
    return true;
}

void link_put(struct link *l, const struct keeper_message *m)
{
    size_t room = 0, need = OVERHEAD + m->bytes.len + m->argv.len + m->env.len + m->cwd.len;
    uint8_t *at = link_is_open(l) ? buffer_room(&l->stream.out, need, &room) : NULL;
    struct writer w = writer_of(at, room);
    if (at)
        keeper_put(&w, m);
    if (!at || w.full)
        return lose(l);
    buffer_commit(&l->stream.out, w.len);
    stream_send_soon(&l->stream);
}

void link_put_input(struct link *l, struct slice bytes)
{
    while (bytes.len && link_is_open(l)) {
        struct slice part = slice_sub(bytes, 0, KEEPER_DATA_MAX);
        link_put(l, &(struct keeper_message){.type = KEEPER_INPUT, .bytes = part});
        bytes = slice_from(bytes, part.len);
    }
}

bool link_is_full(const struct link *l)
{
    return buffer_len(&l->stream.out) >= OUT_FULL;
}

void link_pause(struct link *l, bool paused)
{
    if (l->paused == paused)
        return;
    l->paused = paused;
    stream_pause(&l->stream, paused);
    if (!paused)
        stream_offer(&l->stream);
}
