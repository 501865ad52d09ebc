/* SPDX-License-Identifier: MIT */
/* A conversation with a worker. Its output is encoded only when what was encoded before has left the process.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "examples/worker/manager/session_manager.h"

#define IN_LIMIT  (MANAGER_LENGTH_SIZE + MANAGER_MESSAGE_MAX)
#define OUT_LIMIT ((size_t)256 * 1024) /* a LIST of all sessions */
#define OUT_FULL  MANAGER_DATA_MAX
#define SIGNALS   31
#define SILENT    (10 * SECOND) /* in which nothing comes of who has left, while others wait for that */
#define HANDOVER  SECOND        /* for who was taken over to say what it had taken before */

struct session_manager_conn {
    struct running_reader reader; /* first: its callbacks know the connection by it */
    struct resume_carrier carrier;
    struct session_manager *manager;
    struct loop_io io;
    struct buffer in, out;
    bool greeted, closed;
    bool fenced; /* it was a tunnel's leg, or a reader: whatever it still says is of no interest */
    bool left;   /* nobody hears it any more, but what was said to it last may not have been read yet */
    uint64_t taken_over; /* clock when it was; 0: it was not, or has nothing to say any more */
    uint64_t silent;     /* clock since when nothing comes of it though it has left; 0: something does */
    void (*gone)(struct session_manager *manager, struct session_manager_conn *c);
};

static void close_conn(struct session_manager_conn *c)
{
    if (c->closed)
        return;
    c->closed = true;
    running_detach(&c->reader);
    resume_tunnel_left(&c->carrier);
    loop_io_close(&c->io);
    c->gone(c->manager, c);
}

static void leave(struct session_manager_conn *c)
{
    c->left = true;
    running_end(&c->reader);
    buffer_free(&c->out);
}

static void put(struct session_manager_conn *c, const struct manager_message *m)
{
    size_t room = 0;
    if (c->left)
        return;
    uint8_t *at = buffer_room(&c->out, MANAGER_LENGTH_SIZE + MANAGER_DATA_MAX + 64, &room);
    struct writer w = writer_of(at, at ? room : 0);
    if (at)
        manager_put(&w, m);
    if (!at || w.full)
        close_conn(c);
    else
        buffer_commit(&c->out, w.len);
}

static void put_error(struct session_manager_conn *c, enum manager_code code, const char *text)
{
    put(c, &(struct manager_message){.type = MANAGER_ERROR, .code = (uint8_t)code, .text = slice_text(text)});
}

static void put_over(struct session_manager_conn *c, uint64_t consumed)
{
    put(c, &(struct manager_message){.type = MANAGER_ERROR, .code = MANAGER_OVER, .number = consumed});
}

static void put_session(struct session_manager_conn *c, struct running *r)
{
    struct manager_message m = session_describe(running_session(r));
    put(c, &m);
}

/* ---- requests ---- */

static void create(struct session_manager_conn *c, const struct manager_message *m)
{
    enum manager_code code;
    struct fail why;
    struct running *r = session_manager_create(c->manager, m, &code, &why);
    if (!r)
        put_error(c, code, why.text);
    else
        put_session(c, r);
}

static uint64_t place_to_read(const struct session *s, const struct manager_message *m)
{
    if (!(m->flags & MANAGER_UNREAD))
        return session_clamp(s, m->since);
    return s->readers ? session_end(s) : session_clamp(s, s->unread);
}

static void attach(struct session_manager_conn *c, const struct manager_message *m, struct running *r)
{
    enum manager_code code;
    struct fail why;
    const struct session *s = running_session(r);
    /* what those who have left have said goes before what this one will say */
    session_manager_check(c->manager);
    if (c->reader.running)
        return put_error(c, MANAGER_BAD_REQUEST, "this connection is a reader already");
    if ((m->flags & MANAGER_EXCLUSIVE) && !(m->flags & MANAGER_TAKEOVER) && s->readers)
        return put_error(c, MANAGER_ALREADY_ATTACHED, "the session has a reader");
    if (!running_start(r, m->kind, &code, &why))
        return put_error(c, code, why.text);
    if (m->flags & MANAGER_TAKEOVER)
        running_take_over(r);
    uint64_t since = place_to_read(s, m);
    running_attach(r, &c->reader, since);
    struct manager_message answer = session_describe(s);
    answer.first = since;
    put(c, &answer);
}

static void list(struct session_manager_conn *c, const struct manager_message *m)
{
    for (struct running *r = NULL; !c->closed && (r = session_manager_next(c->manager, r, m->scope));)
        put_session(c, r);
    put(c, &(struct manager_message){.type = MANAGER_DONE});
}

static void input(struct session_manager_conn *c, const struct manager_message *m)
{
    if (!c->reader.running)
        put_error(c, MANAGER_BAD_REQUEST, "input before a session is attached");
    else if (!running_input(c->reader.running, m->bytes))
        put_error(c, MANAGER_INPUT_CLOSED, "the process reads no more input");
}

static void resume(struct session_manager_conn *c, const struct manager_message *m)
{
    struct manager_message answer;
    enum manager_code code;
    struct fail why;
    if (c->reader.running || c->carrier.tunnel)
        put_error(c, MANAGER_BAD_REQUEST, "this connection has a session already");
    else if (session_manager_resume(c->manager, &c->carrier, m, &answer, &code, &why))
        put(c, &answer);
    else if (code == MANAGER_OVER)
        put_over(c, answer.number);
    else
        put_error(c, code, why.text);
}

static void on_leg(struct session_manager_conn *c, const struct manager_message *m)
{
    if (!c->carrier.tunnel)
        return put_error(c, MANAGER_BAD_REQUEST, "this connection carries no tunnel");
    enum resume_verdict verdict = resume_tunnel_handle(&c->carrier, m);
    c->fenced = !c->carrier.tunnel;
    if (verdict == RESUME_NO_MEMORY)
        close_conn(c);
    else if (verdict != RESUME_FINE)
        put_error(c, verdict == RESUME_WRONG ? MANAGER_WRONG : MANAGER_TOO_BIG, "the tunnel is ended");
}

static void on_session(struct session_manager_conn *c, const struct manager_message *m)
{
    struct running *r = session_manager_find(c->manager, m->scope, m->id);
    if (!r)
        return put_error(c, MANAGER_UNKNOWN_SESSION, "no such session");
    if (m->type == MANAGER_ATTACH)
        return attach(c, m, r);
    if (m->type == MANAGER_QUERY)
        return put_session(c, r);
    if (m->type == MANAGER_RESIZE) {
        if (!m->cols || !m->rows)
            return put_error(c, MANAGER_BAD_REQUEST, "a terminal has at least one column and one row");
        running_resize(r, m->cols, m->rows);
    } else if (m->type == MANAGER_SIGNAL) {
        if (m->signal == 0 || m->signal > SIGNALS)
            return put_error(c, MANAGER_BAD_REQUEST, "no such signal");
        running_signal(r, m->signal);
    } else {
        running_forget(r);
    }
    put(c, &(struct manager_message){.type = MANAGER_DONE});
}

static void greet(struct session_manager_conn *c, const struct manager_message *m)
{
    c->greeted = m->type == MANAGER_HELLO && m->version == MANAGER_VERSION;
    if (!c->greeted)
        put_error(c, MANAGER_WRONG_VERSION, "this session manager speaks version 1");
}

static bool is_fenced(const struct session_manager_conn *c)
{
    return c->fenced || (c->reader.running && c->reader.leaving);
}

static void handle(struct session_manager_conn *c, const struct manager_message *m)
{
    if (!c->greeted)
        return greet(c, m);
    if (is_fenced(c) || (c->taken_over && m->type != MANAGER_INPUT))
        return;
    switch (m->type) {
    case MANAGER_CREATE:
        return create(c, m);
    case MANAGER_INPUT:
        return input(c, m);
    case MANAGER_LIST:
        return list(c, m);
    case MANAGER_RESUME:
        return resume(c, m);
    case MANAGER_MESSAGE:
    case MANAGER_ACKNOWLEDGE:
    case MANAGER_END:
        return on_leg(c, m);
    case MANAGER_ATTACH:
    case MANAGER_RESIZE:
    case MANAGER_SIGNAL:
    case MANAGER_QUERY:
    case MANAGER_DELETE:
        return on_session(c, m);
    default:
        put_error(c, MANAGER_BAD_REQUEST, "unexpected message");
    }
}

/* ---- the socket ---- */

/* Whether the next message may be handled: its answer, or the input in it, must find room. A tunnel's window sees
 * to that by itself, and its leg is read whatever its output does. */
static bool may_handle(const struct session_manager_conn *c)
{
    if (c->closed || c->carrier.tunnel || is_fenced(c))
        return !c->closed;
    if (c->reader.running && !running_wants_input_of(&c->reader))
        return false;
    return c->left || c->taken_over || buffer_len(&c->out) < OUT_FULL;
}

static void handle_all(struct session_manager_conn *c)
{
    while (may_handle(c)) {
        struct slice in = buffer_slice(&c->in);
        size_t before = in.len;
        struct manager_message m;
        enum manager_result result = manager_read(&in, &m);
        if (result == MANAGER_BAD)
            close_conn(c);
        if (result != MANAGER_READ)
            return;
        handle(c, &m);
        if (c->closed)
            return;
        buffer_consume(&c->in, before - in.len);
    }
}

/* Whether anything was added. */
static bool next(struct session_manager_conn *c, struct manager_message *m)
{
    if (c->carrier.tunnel) {
        bool is = resume_tunnel_next(&c->carrier, m);
        c->fenced = !c->carrier.tunnel;
        return is;
    }
    return c->reader.running && !c->taken_over && running_next(&c->reader, m);
}

static bool fill(struct session_manager_conn *c)
{
    struct manager_message m;
    bool added = false;
    while (!c->closed && !c->left && buffer_len(&c->out) < OUT_FULL && next(c, &m)) {
        put(c, &m);
        added = true;
    }
    return added;
}

/* False when the socket takes no more. */
static bool flush(struct session_manager_conn *c)
{
    struct slice s = buffer_slice(&c->out);
    if (!s.len)
        return true;
    ssize_t put_len = write(loop_io_fd(&c->io), s.at, s.len);
    if (put_len > 0)
        buffer_consume(&c->out, (size_t)put_len);
    else if (errno != EAGAIN && errno != EINTR)
        leave(c);
    if (c->left || buffer_len(&c->out))
        return false;
    if (c->reader.running)
        running_taken(&c->reader);
    return true;
}

/* One step: what came is handled, what there is is sent. It waits to write until there was nothing to send.
 */
static void go_on(struct session_manager_conn *c)
{
    handle_all(c);
    if (c->left && !may_handle(c))
        running_leave(&c->reader);
    bool flushed = !c->closed && flush(c);
    bool added = flushed && fill(c);
    if (added && !c->closed)
        flush(c);
    if (!c->closed)
        loop_io_want(&c->io, (may_handle(c) ? LOOP_READ : 0) |
                                 (flushed && !buffer_len(&c->out) && !added ? 0 : LOOP_WRITE));
}

/* A worker that has more to say than the socket takes ends its side for reading first: that is seen where it is
 * written to. */
static bool has_left(const struct session_manager_conn *c)
{
    struct pollfd fd = {.fd = loop_io_fd(&c->io), .events = POLLRDHUP};
    return poll(&fd, 1, 0) == 1 || (send(fd.fd, "", 0, MSG_NOSIGNAL) < 0 && errno == EPIPE);
}

static void wake_conn(struct session_manager_conn *c)
{
    if (!c->closed)
        loop_io_want(&c->io, LOOP_WRITE | (may_handle(c) ? LOOP_READ : 0));
}

static void cut_off(struct session_manager_conn *c)
{
    c->fenced = true;
    c->taken_over = 0;
    running_detach(&c->reader);
    wake_conn(c);
}

void session_manager_conn_check(struct session_manager_conn *c)
{
    if (c->closed)
        return;
    if (c->taken_over && loop_clock() - c->taken_over > HANDOVER)
        cut_off(c);
    if (!may_handle(c)) {
        c->silent = 0;
        if (!c->left && has_left(c)) {
            leave(c);
            go_on(c);
        }
    } else if (c->reader.running && c->reader.ending) {
        c->silent = c->silent ? c->silent : loop_clock();
        if (loop_clock() - c->silent > SILENT)
            close_conn(c);
    }
}

/* What has been read is handled first: behind the end nothing is. */
static void receive(struct session_manager_conn *c)
{
    size_t room = 0;
    c->silent = 0;
    handle_all(c);
    uint8_t *at = may_handle(c) ? buffer_room(&c->in, 1, &room) : NULL;
    if (!at)
        return;
    ssize_t got = read(loop_io_fd(&c->io), at, room);
    if (got > 0)
        buffer_commit(&c->in, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        close_conn(c);
}

static void ready(void *owner, int events)
{
    struct session_manager_conn *c = owner;
    if (events & LOOP_READ)
        receive(c);
    if (!c->closed)
        go_on(c);
}

static void wake(struct running_reader *reader)
{
    wake_conn((struct session_manager_conn *)reader);
}

static struct session_manager_conn *conn_of(struct resume_carrier *carrier)
{
    return (struct session_manager_conn *)((char *)carrier - offsetof(struct session_manager_conn, carrier));
}

static void wake_leg(struct resume_carrier *carrier)
{
    wake_conn(conn_of(carrier));
}

static void put_detached(struct session_manager_conn *c, enum manager_code code)
{
    put(c, &(struct manager_message){.type = MANAGER_DETACHED, .code = (uint8_t)code});
    wake_conn(c);
}

static void fenced(struct resume_carrier *carrier, enum manager_code code)
{
    struct session_manager_conn *c = conn_of(carrier);
    c->fenced = true;
    put_detached(c, code);
}

static void drop(struct running_reader *reader, enum manager_code code)
{
    struct session_manager_conn *c = (struct session_manager_conn *)reader;
    c->fenced = true;
    if (c->taken_over)
        wake_conn(c);
    else
        put_detached(c, code);
}

/* Its worker closes its client when it hears that: what it still has was said before. */
static void taken_over(struct running_reader *reader)
{
    struct session_manager_conn *c = (struct session_manager_conn *)reader;
    c->taken_over = loop_clock();
    put_detached(c, MANAGER_TAKEN_OVER);
}

struct session_manager_conn *session_manager_conn_new(struct session_manager *manager, int fd,
                                                      void (*gone)(struct session_manager *manager,
                                                                   struct session_manager_conn *c))
{
    struct session_manager_conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->reader.wake = wake;
    c->reader.drop = drop;
    c->reader.taken_over = taken_over;
    c->carrier.wake = wake_leg;
    c->carrier.fenced = fenced;
    c->manager = manager;
    c->gone = gone;
    c->in = buffer_with_limit(IN_LIMIT);
    c->out = buffer_with_limit(OUT_LIMIT);
    loop_io_open(&c->io, session_manager_loop(manager), fd, ready, c);
    loop_io_want(&c->io, LOOP_READ);
    return c;
}

void session_manager_conn_free(struct session_manager_conn *c)
{
    running_detach(&c->reader);
    resume_tunnel_left(&c->carrier);
    loop_io_close(&c->io);
    buffer_free(&c->in);
    buffer_free(&c->out);
    free(c);
}
