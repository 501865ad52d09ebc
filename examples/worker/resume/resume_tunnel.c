/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume/resume_tunnel.h"

#include <stdio.h>
#include <stdlib.h>

#define TELL_AFTER  (100 * MILLISECOND) /* in which more input is waited for before it is acknowledged */
#define EXIT_LENGTH 64u                 /* more than the message has that tells an exit */

struct resume_tunnel {
    struct running_reader reader; /* first: its callbacks know the tunnel by it */
    struct resume numbers;
    struct resume_carrier *carrier; /* NULL: no leg */
    uint32_t piece;                 /* bytes of the current item that this leg has got */
    bool exited;                    /* the session's exit is numbered */
    bool tell;                      /* an acknowledgement is due */
    uint64_t closed;                /* number of the caller's end once that is consumed, otherwise 0 */
    struct loop_timer grace, telling;
    uint64_t away; /* longest time without a leg, in µs */
    char scope[MANAGER_NAME_MAX + 1], id[MANAGER_NAME_MAX + 1];
    void (*over)(void *owner);
    void *owner;
};

static const struct session *session_of(const struct resume_tunnel *t)
{
    return running_session(t->reader.running);
}

static void wake_carrier(struct resume_tunnel *t)
{
    if (t->carrier)
        t->carrier->wake(t->carrier);
}

/* ---- the end ---- */

/* Ends the tunnel. Its numbers are remembered for another grace period, so that a late request does not create a new session. */
static void bury(struct resume_tunnel *t)
{
    if (t->carrier)
        t->carrier->tunnel = NULL;
    t->carrier = NULL;
    loop_timer_stop(&t->telling);
    loop_timer_set(&t->grace, t->away);
    resume_over(&t->numbers);
    running_detach(&t->reader);
}

static void fence(struct resume_tunnel *t, enum manager_code code)
{
    struct resume_carrier *old = t->carrier;
    t->carrier = NULL;
    if (!old)
        return;
    old->tunnel = NULL;
    old->fenced(old, code);
}

static void give_up(struct resume_tunnel *t, enum manager_code code)
{
    fence(t, code);
    bury(t);
}

static void grace_due(void *owner)
{
    struct resume_tunnel *t = owner;
    if (t->numbers.state == RESUME_OVER)
        t->over(t->owner);
    else
        bury(t);
}

/* ---- input ---- */

/* Returns true if the session can take the item. The caller's end hangs the session up, so the process must have read all input before. */
static bool has_room(const struct resume_tunnel *t, const struct resume_message *m)
{
    return m->end ? running_input_is_empty(t->reader.running) : running_wants_input(t->reader.running);
}

static void say_consumed(struct resume_tunnel *t)
{
    bool now;
    if (!resume_owes(&t->numbers, &now))
        return;
    if (now)
        t->tell = true;
    else if (!loop_timer_active(&t->telling))
        loop_timer_set(&t->telling, TELL_AFTER);
}

static void telling_due(void *owner)
{
    struct resume_tunnel *t = owner;
    t->tell = true;
    wake_carrier(t);
}

/* Input for a process that reads no more is consumed too: what becomes of it is the process's affair. */
static bool give(struct resume_tunnel *t, const struct resume_message *m, struct slice bytes)
{
    if (m->cols && m->rows)
        running_resize(t->reader.running, m->cols, m->rows);
    return !bytes.len || running_input(t->reader.running, bytes) || !running_reads(t->reader.running);
}

static void consume(struct resume_tunnel *t)
{
    struct resume_message m;
    struct slice bytes;
    while (t->carrier && resume_waiting(&t->numbers, &m, &bytes) && has_room(t, &m) && give(t, &m, bytes)) {
        resume_consume(&t->numbers);
        if (m.end)
            t->closed = t->numbers.consumed;
    }
    say_consumed(t);
}

static enum resume_verdict take_message(struct resume_tunnel *t, const struct manager_message *m)
{
    struct resume_message message = {.size = m->size, .cols = m->cols, .rows = m->rows};
    enum resume_verdict verdict = resume_piece(&t->numbers, m->bytes, &message, m->flags & MANAGER_LAST);
    if (verdict == RESUME_FINE)
        consume(t);
    return verdict;
}

static enum resume_verdict acknowledge(struct resume_tunnel *t, uint64_t number)
{
    enum resume_verdict verdict = resume_acknowledge(&t->numbers, number);
    if (verdict != RESUME_FINE)
        return verdict;
    if (t->numbers.state == RESUME_OVER)
        bury(t);
    else
        running_keep(&t->reader, resume_kept(&t->numbers));
    return verdict;
}

static enum resume_verdict close_input(struct resume_tunnel *t, uint64_t number)
{
    enum resume_verdict verdict = resume_close(&t->numbers, number);
    if (verdict == RESUME_FINE)
        consume(t);
    return verdict;
}

enum resume_verdict resume_tunnel_handle(struct resume_carrier *c, const struct manager_message *m)
{
    struct resume_tunnel *t = c->tunnel;
    enum resume_verdict verdict = m->type == MANAGER_MESSAGE       ? take_message(t, m)
                                  : m->type == MANAGER_ACKNOWLEDGE ? acknowledge(t, m->number)
                                                                   : close_input(t, m->number);
    if (verdict == RESUME_NO_MEMORY)
        resume_tunnel_left(c);
    else if (verdict != RESUME_FINE)
        bury(t);
    return verdict;
}

/* ---- output ---- */

static bool number_output(struct resume_tunnel *t, size_t len)
{
    size_t room = resume_room(&t->numbers);
    return room && resume_number(&t->numbers, RESUME_BYTES, (uint32_t)(len < room ? len : room));
}

/* Numbers one more item if there is output, an exit or an end without a number. */
static bool number_next(struct resume_tunnel *t)
{
    enum manager_stream stream;
    if (t->numbers.ended)
        return false;
    struct slice bytes = session_at(session_of(t), t->numbers.cut, &stream);
    if (bytes.len)
        return number_output(t, bytes.len);
    if (session_of(t)->state != SESSION_ENDED)
        return false;
    if (t->exited)
        return resume_number(&t->numbers, RESUME_END, 0);
    t->exited = resume_number(&t->numbers, RESUME_EXIT, EXIT_LENGTH);
    return t->exited;
}

static void put_bytes(struct resume_tunnel *t, const struct resume_item *item, struct manager_message *m)
{
    enum manager_stream stream;
    struct slice bytes = session_at(session_of(t), item->offset + t->piece, &stream);
    bytes = slice_sub(bytes, 0, item->length - t->piece);
    t->piece += (uint32_t)bytes.len;
    m->type = MANAGER_ITEM;
    m->stream = (uint8_t)stream;
    m->bytes = bytes;
    m->flags = t->piece == item->length ? MANAGER_LAST : 0;
}

static void put_item(struct resume_tunnel *t, const struct resume_item *item, struct manager_message *m)
{
    if (item->kind == RESUME_BYTES) {
        put_bytes(t, item, m);
        if (!m->flags)
            return;
    } else if (item->kind == RESUME_EXIT) {
        *m = (struct manager_message){.type = MANAGER_EXIT, .exit_code = session_of(t)->exit_code};
    } else {
        *m = (struct manager_message){.type = MANAGER_END, .number = t->numbers.next};
    }
    t->piece = 0;
    resume_was_sent(&t->numbers);
    running_keep(&t->reader, resume_kept(&t->numbers));
}

static bool tell(struct resume_tunnel *t, struct manager_message *m)
{
    t->tell = false;
    loop_timer_stop(&t->telling);
    resume_tell(&t->numbers);
    *m = (struct manager_message){.type = MANAGER_ACKNOWLEDGE, .number = t->numbers.consumed};
    return true;
}

bool resume_tunnel_next(struct resume_carrier *c, struct manager_message *m)
{
    struct resume_tunnel *t = c->tunnel;
    *m = (struct manager_message){0};
    if (t->closed && !t->piece) {
        *m = (struct manager_message){.type = MANAGER_ACKNOWLEDGE, .number = t->closed};
        bury(t);
        return true;
    }
    if (t->tell && !t->piece)
        return tell(t, m);
    /* the ring holds all that is not acknowledged, unless memory was short when it had to grow */
    if (session_first(session_of(t)) > resume_kept(&t->numbers))
        return give_up(t, MANAGER_OUT_OF_MEMORY), false;
    const struct resume_item *item = resume_to_send(&t->numbers);
    if (!item && t->numbers.next > t->numbers.numbered && number_next(t))
        item = resume_to_send(&t->numbers);
    if (!item)
        return false;
    put_item(t, item, m);
    return true;
}

/* ---- legs ---- */

enum resume_answer resume_tunnel_request(struct resume_tunnel *t, struct resume_carrier *c,
                                         const struct manager_message *request,
                                         struct manager_message *answer)
{
    struct resume_request asked = {request->number, request->since, request->buffer,
                                   request->flags & MANAGER_RECEIVED};
    bool was_over = t->numbers.state == RESUME_OVER;
    enum resume_answer is = resume_request(&t->numbers, &asked);
    if (is == RESUME_EXPIRED && !was_over)
        give_up(t, MANAGER_TAKEN_OVER);
    if (is != RESUME_ACCEPTED) {
        answer->number = t->numbers.consumed;
        return is;
    }
    fence(t, MANAGER_TAKEN_OVER);
    loop_timer_stop(&t->grace);
    loop_timer_stop(&t->telling);
    t->tell = false;
    t->piece = 0;
    t->carrier = c;
    c->tunnel = t;
    running_keep(&t->reader, resume_kept(&t->numbers));
    *answer = (struct manager_message){.type = MANAGER_RESUMED,
                                       .since = t->numbers.consumed,
                                       .number = t->numbers.next,
                                       .buffer = RESUME_WINDOW};
    return is;
}

void resume_tunnel_left(struct resume_carrier *c)
{
    struct resume_tunnel *t = c->tunnel;
    if (!t)
        return;
    c->tunnel = NULL;
    t->carrier = NULL;
    if (t->closed) /* nobody comes back */
        return bury(t);
    resume_left(&t->numbers);
    loop_timer_stop(&t->telling);
    loop_timer_set(&t->grace, t->away);
}

/* ---- the session's reader ---- */

static void on_wake(struct running_reader *reader)
{
    struct resume_tunnel *t = (struct resume_tunnel *)reader;
    consume(t);
    wake_carrier(t);
}

static void on_drop(struct running_reader *reader, enum manager_code code)
{
    give_up((struct resume_tunnel *)reader, code);
}

/* ---- life ---- */

struct resume_tunnel *resume_tunnel_new(struct loop *loop, struct running *session, uint64_t grace,
                                        void (*over)(void *owner), void *owner)
{
    struct resume_tunnel *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    const struct manager_message *plan = &running_session(session)->plan;
    snprintf(t->scope, sizeof t->scope, "%.*s", SLICE_PRINTF(plan->scope));
    snprintf(t->id, sizeof t->id, "%.*s", SLICE_PRINTF(plan->id));
    t->reader.wake = on_wake;
    t->reader.drop = on_drop;
    t->away = grace;
    t->over = over;
    t->owner = owner;
    resume_init(&t->numbers);
    loop_timer_open(&t->grace, loop, grace_due, t);
    loop_timer_open(&t->telling, loop, telling_due, t);
    running_attach(session, &t->reader, 0);
    return t;
}

void resume_tunnel_free(struct resume_tunnel *t)
{
    if (t->carrier)
        t->carrier->tunnel = NULL;
    running_detach(&t->reader);
    loop_timer_close(&t->grace);
    loop_timer_close(&t->telling);
    resume_free(&t->numbers);
    free(t);
}

bool resume_tunnel_is(const struct resume_tunnel *t, struct slice scope, struct slice id)
{
    return slice_is(scope, t->scope) && slice_is(id, t->id);
}

bool resume_tunnel_is_over(const struct resume_tunnel *t)
{
    return t->numbers.state == RESUME_OVER;
}
