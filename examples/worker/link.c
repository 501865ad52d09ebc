/* SPDX-License-Identifier: MIT */
#include "examples/worker/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/net.h"

#define IN_LIMIT  (2 * (size_t)(KEEPER_LENGTH_SIZE + KEEPER_MESSAGE_MAX))
#define OUT_LIMIT ((size_t)512 * 1024)
#define OUT_FULL  ((size_t)128 * 1024)
#define OVERHEAD  512  /* of a message that holds data */
#define PATIENCE  10.0 /* seconds in which a keeper takes nothing of what was said last */

bool link_is_open(const struct link *l)
{
    return l->io.loop != NULL;
}

/* ---- last words ---- */

/* A client that leaves right behind its last words has said them: those that the keeper's socket does not take at once
 * outlive their link. */
struct last_words {
    struct front_work work; /* first: its callback knows them by it */
    struct front *front;
    struct loop_io io;
    struct buffer out;
    struct loop_timer patience;
    struct loop_task bury;
};

static void end_last_words(struct front_work *work)
{
    struct last_words *w = (struct last_words *)work;
    loop_io_close(&w->io);
    loop_timer_close(&w->patience);
    buffer_free(&w->out);
    loop_defer(front_loop(w->front), &w->bury);
    front_work_done(w->front, work);
}

static void no_patience(void *owner)
{
    end_last_words(owner);
}

/* Whether there is more to say. */
static bool say_more(int fd, struct buffer *out)
{
    struct slice rest = buffer_slice(out);
    ssize_t put = rest.len ? write(fd, rest.at, rest.len) : 0;
    if (put > 0)
        buffer_consume(out, (size_t)put);
    return buffer_len(out) && (put >= 0 || errno == EAGAIN || errno == EINTR);
}

static void last_words_ready(void *owner, int events)
{
    struct last_words *w = owner;
    (void)events;
    if (say_more(loop_io_fd(&w->io), &w->out))
        loop_timer_set(&w->patience, PATIENCE);
    else
        end_last_words(&w->work);
}

static void leave_last_words(struct link *l)
{
    struct loop *loop = l->io.loop;
    struct last_words *w = calloc(1, sizeof *w);
    if (!w)
        return;
    *w = (struct last_words){.work.end = end_last_words, .front = l->front, .out = l->out};
    w->bury = (struct loop_task){.run = free, .context = w};
    l->out = buffer_with_limit(OUT_LIMIT);
    int fd = loop_io_release(&l->io);
    shutdown(fd, SHUT_RD); /* nobody hears the keeper any more: it learns that when it speaks, or looks */
    loop_io_open(&w->io, loop, fd, last_words_ready, w);
    loop_io_want(&w->io, LOOP_WRITE);
    loop_timer_open(&w->patience, loop, no_patience, w);
    loop_timer_set(&w->patience, PATIENCE);
    front_work_add(w->front, &w->work);
}

/* ---- the link ---- */

void link_close(struct link *l)
{
    if (link_is_open(l) && say_more(loop_io_fd(&l->io), &l->out))
        leave_last_words(l);
    loop_io_close(&l->io);
    if (!l->delivering)
        buffer_free(&l->in);
    buffer_free(&l->out);
}

static void want(struct link *l)
{
    if (link_is_open(l))
        loop_io_want(&l->io, (l->paused ? 0 : LOOP_READ) | (buffer_len(&l->out) ? LOOP_WRITE : 0));
}

static void lose(struct link *l)
{
    if (!link_is_open(l))
        return;
    link_close(l);
    l->lost(l->user);
}

/* A callback may close the link: what is in the buffer stays until it returned. */
static void deliver(struct link *l)
{
    if (l->delivering)
        return;
    bool bad = false;
    l->delivering = true;
    while (link_is_open(l) && !l->paused && !bad) {
        struct slice in = buffer_slice(&l->in);
        size_t before = in.len;
        struct keeper_message m;
        enum keeper_result result = keeper_read(&in, &m);
        bad = result == KEEPER_BAD;
        if (result != KEEPER_READ)
            break;
        l->message(l->user, &m);
        buffer_consume(&l->in, before - in.len);
    }
    l->delivering = false;
    if (!link_is_open(l))
        buffer_free(&l->in);
    else if (bad)
        lose(l);
}

static void receive(struct link *l)
{
    size_t room = 0;
    uint8_t *at = buffer_room(&l->in, IN_LIMIT - buffer_len(&l->in), &room);
    ssize_t got = at ? read(loop_io_fd(&l->io), at, room) : 0;
    if (got > 0) {
        buffer_commit(&l->in, (size_t)got);
        deliver(l);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose(l);
    }
}

/* The keeper hears nothing any more. What it has said last is still read: it may be the session's end. */
static void deafen(struct link *l)
{
    l->deaf = true;
    buffer_free(&l->out);
}

static void flush(struct link *l)
{
    struct slice s = buffer_slice(&l->out);
    ssize_t put = s.len ? write(loop_io_fd(&l->io), s.at, s.len) : 0;
    if (put > 0)
        buffer_consume(&l->out, (size_t)put);
    else if (put < 0 && errno != EAGAIN && errno != EINTR)
        deafen(l);
    if (!link_is_full(l) && l->room)
        l->room(l->user);
}

static void ready(void *owner, int events)
{
    struct link *l = owner;
    if (events & LOOP_WRITE)
        flush(l);
    if ((events & LOOP_READ) && link_is_open(l))
        receive(l);
    want(l);
}

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
    l->deaf = false;
    l->in = buffer_with_limit(IN_LIMIT);
    l->out = buffer_with_limit(OUT_LIMIT);
    loop_io_open(&l->io, front_loop(front), fd, ready, l);
    link_put(l, &(struct keeper_message){.type = KEEPER_HELLO, .version = KEEPER_VERSION});
    return true;
}

void link_put(struct link *l, const struct keeper_message *m)
{
    if (l->deaf)
        return;
    size_t room = 0, need = OVERHEAD + m->bytes.len + m->argv.len + m->env.len + m->cwd.len;
    uint8_t *at = link_is_open(l) ? buffer_room(&l->out, need, &room) : NULL;
    struct writer w = writer_of(at, room);
    if (at)
        keeper_put(&w, m);
    if (!at || w.full)
        return lose(l);
    buffer_commit(&l->out, w.len);
    want(l);
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
    return buffer_len(&l->out) >= OUT_FULL;
}

void link_pause(struct link *l, bool paused)
{
    if (l->paused == paused)
        return;
    l->paused = paused;
    if (!paused)
        deliver(l);
    want(l);
}
