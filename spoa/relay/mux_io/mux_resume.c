/* SPDX-License-Identifier: MIT */
/* mux_resume: keeps a socket of cellgate.mux.v1 while its client reconnects, by Cell-Resume's browser binding (docs/resume-protocol.md). An
 * upgrade with the id of an existing socket is handed to that socket's thread, where its connection replaces the previous one. */
#include <stdlib.h>
#include <unistd.h>

#include "spoa/relay/mux_io/mux_parts.h"

#define OUT_WAITS   ((size_t)64 << 10)  /* largest unsent output of a connection, in bytes */
#define TELLS_AFTER (100 * MILLISECOND) /* longest delay of an acknowledgement */
/* time after which the relay acknowledges even without news: a browser's page sees no Pings, and needs a sign of life */
#define TELLS_AGAIN (25 * SECOND)

enum { MESSAGES = 64 }; /* messages per event: other clients of the thread come next */
/* Base of the close codes that stand for an HTTP status, because a browser's page cannot read the status of a failed upgrade. */
enum { REFUSED = 4000 };

/* ---- beginning ---- */

enum asked { ASKS_NOT, ASKS, ASKS_WRONG };

static enum asked read_terms(const struct relay_thread *thread, const struct upgrade *u,
                             struct cell_resume_terms *terms)
{
    if (!mux_v1_is_offered(u->protocols, MUX_PROTOCOL_RESUMED))
        return ASKS_NOT;
    enum cell_resume_found found =
        cell_resume_read_query(slice_from(u->target, slice_find(u->target, '?') + 1), terms);
    if (found == CELL_RESUME_FOUND && thread->settings.mux_grace)
        return ASKS;
    return found != CELL_RESUME_MALFORMED && mux_v1_is_offered(u->protocols, MUX_PROTOCOL) ? ASKS_NOT
                                                                                           : ASKS_WRONG;
}

static void refuse(struct relay_thread *thread, int fd, struct upgrade *u, unsigned status)
{
    uint8_t memory[UPGRADE_HEAD_MAX], frame[WS_CONTROL_FRAME_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    metrics_add(thread->shard, METRIC_MUX_LEGS, METRIC_INDEX(MUX_LEG_REFUSED), 1);
    log_write(thread->log, LOG_INFO, "mux not resumed", LOG_SLICE("id", u->handover.id),
              LOG_SLICE("route", u->handover.route), LOG_U64("status", status));
    u->selected = SLICE_LITERAL(MUX_PROTOCOL_RESUMED);
    if (upgrade_accept(u, NULL, NULL, &w))
        writer_put(&w, slice_of(frame, ws_encode_close(frame, REFUSED + status, slice_text(""), NULL)));
    relay_thread_answer(thread, fd, writer_slice(&w));
    free(u);
}

/* ---- messages to the client ---- */

static bool put_text(struct mux_leg *leg, struct slice text)
{
    uint8_t head[WS_HEAD_MAX];
    const struct ws_frame frame = {.opcode = WS_TEXT, .fin = true, .length = text.len};
    return buffer_put(&leg->stream.out, slice_of(head, ws_encode_head(head, &frame))) &&
           buffer_put(&leg->stream.out, text);
}

static bool greet(struct mux_io *io, const struct cell_resume_terms *greeting)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    cell_resume_put_greeting(&w, greeting);
    io->again->told = loop_clock();
    return put_text(io->leg, writer_slice(&w));
}

static void say(struct mux_io *io, enum cell_resume_say what, uint64_t number)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    cell_resume_put_message(&w, what, number);
    if (!put_text(io->leg, writer_slice(&w)))
        mux_end_for_memory(io);
}

/* Acknowledges the client's messages so far. */
static void tell(struct mux_io *io)
{
    loop_timer_stop(&io->again->tells);
    io->again->told = loop_clock();
    say(io, CELL_RESUME_RECV, mux_numbers_tell(&io->again->numbers));
}

static void on_time_to_tell(void *owner)
{
    struct mux_io *io = owner;
    bool now;
    if (io->over || !io->leg || !mux_numbers_owes(&io->again->numbers, &now))
        return;
    tell(io);
    mux_settle(io);
}

/* Moves numbered messages to the connection's output until that has `most` bytes. */
static void pump(struct mux_io *io, size_t most)
{
    struct mux_numbers *numbers = &io->again->numbers;
    bool large = false;
    while (!io->over && io->leg && buffer_len(&io->leg->stream.out) < most) {
        struct slice frame = mux_numbers_next(numbers, &large);
        if (!frame.len)
            break;
        if (!buffer_put(&io->leg->stream.out, frame)) {
            mux_end_for_memory(io);
            return;
        }
        mux_numbers_give(numbers);
    }
    if (large)
        mux_end_socket(io, MUX_END_LARGE, 1009, "message too large");
}

void mux_resume_pump(struct mux_io *io)
{
    pump(io, OUT_WAITS);
}

void mux_resume_say_end(struct mux_io *io)
{
    pump(io, SIZE_MAX);
    uint64_t number = io->over ? 0 : mux_numbers_end(&io->again->numbers);
    if (number)
        say(io, CELL_RESUME_END, number);
}

/* ---- messages of the client ---- */

static void break_off(struct mux_io *io, const char *why)
{
    mux_end_socket(io, MUX_END_PROTOCOL, CELL_RESUME_CLOSE_PROTOCOL, why);
}

void mux_resume_heard(struct mux_io *io, struct slice text)
{
    struct mux_numbers *numbers = &io->again->numbers;
    uint64_t number;
    enum cell_resume_say said = cell_resume_read_message(text, &number);
    if (!cell_resume_is_message(text))
        mux_end_socket(io, MUX_END_PROTOCOL, 1003, "a text message");
    else if (said == CELL_RESUME_NOTHING)
        break_off(io, "not the bytes of a cell-resume message");
    else if (said == CELL_RESUME_RECV && !mux_numbers_acknowledge(numbers, number))
        break_off(io, "recv is higher than what was sent");
    else if (said == CELL_RESUME_END && !mux_numbers_mark(numbers, number))
        break_off(io, "end is not the next number");
}

void mux_resume_message(struct mux_io *io, struct slice message)
{
    enum mux_numbers_verdict verdict = mux_numbers_put(&io->again->numbers, message);
    if (verdict == MUX_NUMBERS_TOO_BIG)
        mux_end_socket(io, MUX_END_LARGE, CELL_RESUME_CLOSE_TOO_BIG,
                       cell_resume_reason(CELL_RESUME_CLOSE_TOO_BIG));
    else if (verdict == MUX_NUMBERS_NO_MEMORY)
        mux_end_for_memory(io);
    else
        mux_resume_settle(io);
}

void mux_resume_settle(struct mux_io *io)
{
    struct mux_numbers *numbers = &io->again->numbers;
    bool now;
    mux_set_flow(io);
    while (!io->over && !io->stopped && numbers->waits) {
        if (io->leg && io->again->handed++ == MESSAGES) { /* the bound is one of a connection's event */
            io->again->handed = MESSAGES;
            stream_offer_again(&io->leg->stream);
            break;
        }
        mux_take_message(io, mux_numbers_first(numbers));
        mux_numbers_take(numbers);
        if (!io->over)
            mux_set_flow(io);
    }
    if (io->over || !io->leg || !mux_numbers_owes(numbers, &now))
        return;
    if (now)
        tell(io);
    else if (!loop_timer_active(&io->again->tells))
        loop_timer_set(&io->again->tells, TELLS_AFTER);
}

bool mux_resume_is_end(const struct mux_io *io, unsigned code)
{
    return io->again->numbers.marked || code == CELL_RESUME_CLOSE_PROTOCOL ||
           code == CELL_RESUME_CLOSE_TOO_BIG;
}

/* ---- connections of the client ---- */

static void leave(struct mux_io *io, unsigned code, const char *reason)
{
    loop_timer_stop(&io->again->tells);
    io->again->lost = loop_clock();
    mux_leg_leave(io->leg, code, reason);
    mux_numbers_left(&io->again->numbers);
}

void mux_resume_lost(struct mux_io *io, unsigned code)
{
    struct relay_thread *thread = io->thread;
    metrics_add(thread->shard, METRIC_MUX_LEGS, METRIC_INDEX(MUX_LEG_LOST), 1);
    log_write(thread->log, LOG_INFO, "mux without its client", LOG_SLICE("id", io->upgrade->handover.id),
              LOG_TEXT("client", io->source_text), LOG_U64("unanswered", io->count));
    leave(io, code, "");
    if (thread->draining) /* the client will reach another relay when it comes back */
        mux_end_socket(io, MUX_END_RESTARTING, 0, NULL);
    else
        mux_settle(io);
}

void mux_resume_tick(struct mux_io *io, uint64_t now)
{
    if (!io->leg && now - io->again->lost >= io->thread->settings.mux_grace) {
        mux_end_socket(io, MUX_END_LOST, 0, NULL);
    } else if (io->leg && now - io->again->told >= TELLS_AGAIN) {
        tell(io);
        mux_settle(io);
    }
}

/* Attaches a connection: answers the upgrade, and sends the greeting with the acknowledged number. Returns false if memory is short;
 * `fd` is then still the caller's. */
static bool open_leg(struct mux_io *io, int fd, const struct upgrade *u, struct slice early,
                     const struct cell_resume_terms *greeting)
{
    uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    if (!upgrade_accept(u, NULL, NULL, &w) || !mux_leg_open(io, fd, writer_slice(&w), early))
        return false;
    if (greet(io, greeting))
        mux_leg_read(io->leg);
    else
        mux_end_for_memory(io);
    return true;
}

/* An upgrade on its way to the thread of the socket that it resumes. */
struct comer {
    struct loop_task task;
    struct relay_thread *thread;    /* thread of the socket */
    struct upgrade *upgrade;        /* owned */
    struct cell_resume_terms terms; /* the client's terms, with the socket's id */
    int fd;                         /* connection of the client; owned */
    struct buffer early;            /* input after the request's head */
};

static struct mux_io *socket_of(const struct comer *c)
{
    struct mux_session *found = mux_sessions_find(c->thread->mux_sessions, c->terms.tunnel, c->thread);
    return found ? ((struct mux_resumable *)found)->io : NULL;
}

/* Returns true if the upgrade has the same route, host, path and header fields as the one that opened the socket: its client has the
 * same credentials. */
static bool is_the_same(const struct mux_io *io, const struct upgrade *u)
{
    const struct mux_client asks = mux_client_of(u);
    return slice_equal(io->upgrade->handover.route, u->handover.route) && mux_client_is(&io->asks, &asks);
}

static void take_over(struct mux_io *io, struct comer *c, const struct cell_resume_terms *greeting)
{
    struct relay_thread *thread = io->thread;
    if (io->leg)
        leave(io, CELL_RESUME_CLOSE_TAKEN, cell_resume_reason(CELL_RESUME_CLOSE_TAKEN));
    c->upgrade->selected = SLICE_LITERAL(MUX_PROTOCOL_RESUMED);
    (void)mux_read_source(io, c->upgrade); /* without a new address the client keeps its previous one */
    metrics_add(thread->shard, METRIC_MUX_LEGS, METRIC_INDEX(MUX_LEG_RESUMED), 1);
    log_write(thread->log, LOG_INFO, "mux resumed", LOG_SLICE("id", io->upgrade->handover.id),
              LOG_SLICE("by", c->upgrade->handover.id), LOG_TEXT("client", io->source_text),
              LOG_U64("unanswered", io->count));
    /* The client is the same, but later requests must borrow from an upgrade that is kept. */
    free(io->latest);
    io->latest = c->upgrade;
    io->asks = mux_client_of(io->latest);
    if (!open_leg(io, c->fd, io->latest, buffer_slice(&c->early), greeting))
        close(c->fd);
}

/* Drops an upgrade without an answer, because the thread may be about to end. The client will connect again. */
static void drop(struct comer *c)
{
    close(c->fd);
    free(c->upgrade);
}

/* Runs in the socket's thread: attaches the upgrade's connection to its socket, or refuses it. */
static void arrive(void *context)
{
    struct comer *c = context;
    struct mux_io *io = socket_of(c);
    struct cell_resume_terms greeting;
    unsigned status = io && is_the_same(io, c->upgrade)
                          ? mux_numbers_request(&io->again->numbers, &c->terms, &greeting)
                      : io || c->terms.has_recv ? 410
                                                : 503;
    if (status == MUX_NUMBERS_ACCEPTED)
        take_over(io, c, &greeting);
    else if (!io && c->thread->draining)
        drop(c);
    else
        refuse(c->thread, c->fd, c->upgrade, status);
    buffer_free(&c->early);
    free(c);
}

/* Hands the upgrade to the thread of the socket with this id. Returns false if there is no such socket; `fd` and `u` are then still the
 * caller's. */
static bool send_on(struct relay_thread *thread, int fd, struct upgrade *u,
                    const struct cell_resume_terms *terms, struct slice early)
{
    struct comer *c = calloc(1, sizeof *c);
    if (!c) {
        refuse(thread, fd, u, 503);
        return true;
    }
    *c = (struct comer){.task = {.run = arrive, .context = c},
                        .upgrade = u,
                        .terms = *terms,
                        .fd = fd,
                        .early = buffer_with_limit(early.len)};
    if (early.len && !buffer_put(&c->early, early)) {
        refuse(thread, fd, u, 503);
        free(c);
        return true;
    }
    if (mux_sessions_post(thread->mux_sessions, terms->tunnel, &c->task, &c->thread))
        return true;
    buffer_free(&c->early);
    free(c);
    return false;
}

enum mux_resume_asked mux_resume_look(struct relay_thread *thread, int fd, struct upgrade *u,
                                      struct slice early, struct cell_resume_terms *terms)
{
    enum asked asked = read_terms(thread, u, terms);
    if (asked == ASKS_NOT)
        return MUX_RESUME_PLAIN;
    if (asked == ASKS_WRONG) {
        refuse(thread, fd, u, 400);
    } else if (!send_on(thread, fd, u, terms, early)) {
        bool possible = !terms->buffer || terms->buffer >= MUX_NUMBERS_WINDOW_LEAST;
        if (!terms->has_recv && possible)
            return MUX_RESUME_NEW;
        refuse(thread, fd, u, terms->has_recv ? 410 : 400);
    }
    return MUX_RESUME_DONE;
}

bool mux_resume_open(struct mux_io *io, int fd, struct slice early, const struct cell_resume_terms *terms)
{
    struct mux_resumable *again = calloc(1, sizeof *again);
    struct cell_resume_terms greeting;
    if (!again)
        return false;
    again->io = io;
    again->numbers = mux_numbers_of();
    loop_timer_open(&again->tells, io->thread->loop, on_time_to_tell, io);
    io->again = again;
    io->upgrade->selected = SLICE_LITERAL(MUX_PROTOCOL_RESUMED);
    return mux_numbers_request(&again->numbers, terms, &greeting) == MUX_NUMBERS_ACCEPTED &&
           mux_sessions_add(io->thread->mux_sessions, &again->session, terms->tunnel, io->thread) &&
           open_leg(io, fd, io->upgrade, early, &greeting);
}

void mux_resume_close(struct mux_io *io)
{
    mux_sessions_remove(io->thread->mux_sessions, &io->again->session);
    loop_timer_stop(&io->again->tells);
}

void mux_resume_free(struct mux_io *io)
{
    if (!io->again)
        return;
    mux_resume_close(io);
    loop_timer_close(&io->again->tells);
    mux_numbers_free(&io->again->numbers);
    free(io->again);
}
