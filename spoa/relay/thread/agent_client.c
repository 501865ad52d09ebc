/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/agent_client.h"

#include "spoa/base/table/list.h"
#include "spoa/net/backoff.h"
#include "spoa/net/stream.h"
#include "spoa/spop/client.h"

#include <stdlib.h>

#define ASK_PATIENCE (3 * SECOND)
#define TICK         (100 * MILLISECOND) /* interval between checks for overdue questions */
/* time in which watches are collected, because no owner waits for one */
#define LEISURE         (5 * MILLISECOND)
#define RECONNECT_LEAST (100 * MILLISECOND)
#define RECONNECT_MOST  SECOND
#define QUESTION_MAX    SPOP_FRAME_USUAL
#define UNWATCH_MAX     128
#define HELLO_PATIENCE  (5 * SECOND) /* time limit for connecting and the agent's HELLO */
#define INPUT_MAX       (4 * SPOP_FRAME_MAX)
#define OUTPUT_MAX      (64 << 20)
/* largest number of open cell-unwatch messages, in addition to the questions */
#define TAKEN_BACK(most) (1 + (most) / 8)

struct agent_client {
    struct loop *loop;
    struct net_address agent;
    struct log *log;
    unsigned most;
    struct spop_client *client; /* NULL if not connected */
    struct stream stream;
    struct loop_timer tick, leisure, reconnect;
    struct loop_task flush; /* sends the messages of a loop turn at its end */
    struct backoff backoff;
    struct question *queued, **queued_end; /* oldest first */
    struct question *asked, *watched;      /* in no order */
    struct question *overdue;              /* questions about to be answered as overdue */
    bool ready, told_lost;
    bool hurry; /* the queued questions must be sent now */
};

/* ---- the lists ---- */
static void unlink_question(struct agent_client *r, struct question *q)
{
    if (r->queued_end == &q->next)
        r->queued_end = q->link;
    LIST_UNLINK(q);
    q->state = QUESTION_CLOSED;
}

static void queue(struct agent_client *r, struct question *q)
{
    q->state = QUESTION_QUEUED;
    LIST_APPEND(r->queued_end, q);
}

static void note_asked(struct agent_client *r, struct question *q)
{
    unlink_question(r, q);
    q->state = QUESTION_ASKED;
    struct question **list = q->watch ? &r->watched : &r->asked;
    LIST_PUSH(*list, q);
}

/* ---- the connection ---- */
static void tick_if_wanted(struct agent_client *r)
{
    if (!loop_timer_active(&r->tick) && (r->queued || r->asked || buffer_len(&r->stream.out)))
        loop_timer_set(&r->tick, TICK);
}

static void lose(struct agent_client *r)
{
    void *context;

    if (!r->told_lost)
        log_write(r->log, LOG_WARN, "the agent cannot be asked");
    r->told_lost = true;
    r->ready = false;
    stream_close(&r->stream);
    while (r->client && spop_client_lost(r->client, &context)) {
        unlink_question(r, context);
        queue(r, context);
    }
    spop_client_free(r->client);
    r->client = NULL;
    loop_timer_set(&r->reconnect, backoff_next(&r->backoff));
    tick_if_wanted(r);
}

/* ---- asking ---- */
static void arg_text(struct spop_ask *ask, const char *name, struct slice value)
{
    if (slice_present(value))
        spop_client_ask_arg(ask, slice_text(name), spop_text(value));
}

static void arg_int(struct spop_ask *ask, const char *name, int64_t value)
{
    if (value >= 0)
        spop_client_ask_arg(ask, slice_text(name), spop_int(value));
}

static void arg_address(struct spop_ask *ask, const char *name, const struct address *addr)
{
    if (addr->family)
        spop_client_ask_arg(ask, slice_text(name),
                            spop_address(slice_of(addr->bytes, addr->family == 4 ? 4 : 16)));
}

static void put_args(struct spop_ask *ask, const struct question *q)
{
    _Alignas(max_align_t) uint8_t texts[QUESTION_TEXTS];
    struct question_text text = {.handover = handover_none(), .epoch = -1, .idle = -1, .memory = texts};
    const struct handover *h = &text.handover;

    q->user->say(q->owner, q->watch, &text);

#define ARG_TEXT            arg_text
#define ARG_INT             arg_int
#define X(kind, field, key) ARG_##kind(ask, key, h->field);
    HANDOVER_IDENTITY(X)
#undef X
    arg_text(ask, "ticket", h->ticket);
    arg_int(ask, "settles", text.settles ? 1 : -1);
    if (q->watch)
        arg_int(ask, "idle", text.idle);
    arg_int(ask, "epoch", text.epoch);
    arg_address(ask, "addr", &text.addr);
}

static void answer_unavailable(struct agent_client *r, struct question *q)
{
    struct answer a = {.state = ANSWER_UNAVAILABLE, .agent_lost = true, .epoch = -1};
    unlink_question(r, q);
    q->user->answered(q->owner, q->watch, &a);
}

static bool put_question(struct agent_client *r, struct question *q)
{
    struct spop_ask ask;
    size_t room;
    /* the room is needed first, because spop_client cannot forget a question */
    uint8_t *memory = buffer_room(&r->stream.out, QUESTION_MAX, &room);
    struct writer w = writer_of(memory, memory ? room : 0);

    if (!memory)
        return false;
    bool put =
        spop_client_ask_begin(r->client, slice_text(q->watch ? "cell-watch" : "cell-resolve"), q, &w, &ask);
    if (put) {
        put_args(&ask, q);
        put = spop_client_ask_end(r->client, &ask);
        q->id = ask.id;
    }
    buffer_commit(&r->stream.out, put ? w.len : 0);
    return put;
}

/* Sends a cell-unwatch with the next question, or at the next tick. The answers to the watch and to this message are ignored. If
 * the message cannot be sent, the watch ends by itself. */
static void take_back(struct agent_client *r, uint64_t watch)
{
    struct spop_ask ask;
    size_t room;
    uint8_t *memory = buffer_room(&r->stream.out, UNWATCH_MAX, &room);
    struct writer w = writer_of(memory, memory ? room : 0);

    if (!memory)
        return;
    if (spop_client_ask_begin(r->client, SLICE_LITERAL("cell-unwatch"), NULL, &w, &ask)) {
        spop_client_ask_arg(&ask, SLICE_LITERAL("watch"), spop_int((int64_t)watch));
        if (spop_client_ask_end(r->client, &ask))
            spop_client_forget(r->client, ask.id);
        else
            w.len = 0;
    }
    buffer_commit(&r->stream.out, w.len);
}

static bool can_ask(const struct agent_client *r)
{
    return r->client && spop_client_ready(r->client) && spop_client_waiting(r->client) < r->most;
}

/* Sends queued questions. A question that cannot be sent waits for the next tick, or for its own deadline. */
static void put_queued(struct agent_client *r)
{
    struct question *next;

    for (struct question *q = r->queued; q && r->hurry && can_ask(r); q = next) {
        next = q->next;
        if (put_question(r, q))
            note_asked(r, q);
    }
    r->hurry = r->hurry && r->queued;
    if (buffer_len(&r->stream.out))
        loop_defer(r->loop, &r->flush);
}

static void put_all(void *owner)
{
    struct agent_client *r = owner;

    r->hurry = true;
    if (r->ready)
        put_queued(r);
}

static void flush(void *context)
{
    struct agent_client *r = context;
    stream_send(&r->stream);
}

/* ---- answers ---- */
static bool name_of(struct slice text, const char *const *names, unsigned *index)
{
    for (*index = 0; names[*index]; ++*index)
        if (slice_is(text, names[*index]))
            return true;
    return false;
}

static void take_address(struct spop_value value, struct address *address)
{
    *address = (struct address){.family = value.bytes.len == 4 ? 4 : 6};
    if (value.bytes.len == 4 || value.bytes.len == 16)
        memcpy(address->bytes, value.bytes.at, value.bytes.len);
}

/* Returns the port in the value, or 0 if there is none. */
static uint16_t io_of(struct spop_value value)
{
    uint64_t number;
    return spop_value_unsigned(value, &number) && number <= UINT16_MAX ? (uint16_t)number : 0;
}

/* Returns the refusal for the agent's code. An unknown code, of a newer agent, ends the tunnel, too. */
static enum refusal refused_of(struct slice code)
{
    return slice_is(code, "token_expired")                                        ? REFUSAL_token_expired
           : slice_is(code, "not_granted")                                        ? REFUSAL_not_granted
           : slice_is(code, "egress_denied") || slice_is(code, "address_refused") ? REFUSAL_not_granted
                                                                                  : REFUSAL_token_revoked;
}

static void take_variable(struct answer *a, const struct spop_action *action)
{
    const struct spop_value *value = &action->value;
    struct slice name = action->name;
    unsigned index;

    if (slice_is(name, "state") && name_of(value->bytes, answer_state_names, &index))
        a->state = (enum answer_state)index;
    else if (slice_is(name, "addr") && (value->kind == SPOP_IPV4 || value->kind == SPOP_IPV6))
        take_address(*value, &a->target.addr);
    else if (slice_is(name, "addr_port"))
        a->target.port = io_of(*value);
    else if (slice_is(name, "tls"))
        a->target.tls = value->truth;
    else if (slice_is(name, "sni"))
        a->target.sni = value->bytes;
    else if (slice_is(name, "unix"))
        a->target.unix_path = value->bytes;
    else if (slice_is(name, "host"))
        a->target.host = value->bytes;
    else if (slice_is(name, "headers"))
        a->target.headers = value->bytes;
    else if (slice_is(name, "withhold"))
        a->target.withhold = value->truth;
    else if (slice_is(name, "ticket"))
        a->ticket = value->bytes;
    else if (slice_is(name, "org"))
        a->org = value->bytes;
    else if (slice_is(name, "settled"))
        a->settled = value->truth;
    else if (slice_is(name, "own"))
        a->own = value->truth;
    else if (slice_is(name, "epoch"))
        a->epoch = value->number;
    else if (slice_is(name, "unwatched"))
        a->unwatched = value->truth;
    else if (slice_is(name, "refused"))
        a->refused = refused_of(value->bytes);
}

static void on_answer(struct agent_client *r, struct question *q, struct reader actions)
{
    struct answer a = {.state = ANSWER_UNAVAILABLE, .epoch = -1};
    struct spop_action action;

    while (spop_action_next(&actions, &action))
        take_variable(&a, &action);
    if (a.target.addr.family && !a.target.port) {
        log_write(r->log, LOG_WARN, "the agent names a worker without a port");
        a = (struct answer){.state = ANSWER_UNAVAILABLE, .epoch = -1};
    }
    unlink_question(r, q);
    q->user->answered(q->owner, q->watch, &a);
}

static void on_ready_to_ask(struct agent_client *r)
{
    r->ready = r->hurry = true;
    backoff_reset(&r->backoff);
    stream_stop_time(&r->stream);
    if (r->told_lost)
        log_write(r->log, LOG_INFO, "the agent can be asked again");
    r->told_lost = false;
}

/* Handles the received frames. Returns false if the connection has ended. */
static bool take_frames(struct agent_client *r)
{
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer goodbye = writer_of(memory, sizeof memory);
    struct slice in = buffer_slice(&r->stream.in);
    size_t before = in.len;
    struct spop_client_event event;

    for (;;) {
        switch (spop_client_next(r->client, &in, &event, &goodbye)) {
        case SPOP_CLIENT_READY:
            on_ready_to_ask(r);
            break;
        case SPOP_CLIENT_ANSWER:
            on_answer(r, event.context, event.actions);
            break;
        case SPOP_CLIENT_MORE:
            stream_consume(&r->stream, before - in.len);
            return true;
        case SPOP_CLIENT_ENDED:
            return false;
        }
    }
}

static void on_input(void *owner)
{
    struct agent_client *r = owner;

    if (take_frames(r))
        put_queued(r);
    else
        lose(r);
}

static void on_sent(void *owner)
{
    put_queued(owner);
}

static void on_ended(void *owner, int error)
{
    (void)error;
    lose(owner);
}

static void on_late(void *owner)
{
    lose(owner);
}

/* ---- connecting ---- */
static void on_connected(void *owner)
{
    struct agent_client *r = owner;
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer hello = writer_of(memory, sizeof memory);
    struct spop_offer offer = {SPOP_FRAME_USUAL, SLICE_LITERAL("cellgate-relay"), false, true};

    spop_client_hello(r->client, &offer, &hello);
    if (buffer_put(&r->stream.out, writer_slice(&hello)))
        stream_send(&r->stream);
    else
        lose(r);
}

static const struct stream_user stream_user = {.connected = on_connected,
                                               .input = on_input,
                                               .sent = on_sent,
                                               .ended = on_ended,
                                               .late = on_late,
                                               .read_size = SPOP_FRAME_USUAL + SPOP_LENGTH_BYTES};

static void connect_agent(void *owner)
{
    struct agent_client *r = owner;
    struct fail why;

    r->client = spop_client_new(r->most + TAKEN_BACK(r->most));
    int fd = r->client ? net_connect(&r->agent, &why) : -1;
    if (fd < 0) {
        lose(r);
        return;
    }
    stream_open(&r->stream, r->loop, fd);
    stream_set_time(&r->stream, HELLO_PATIENCE);
}

/* ---- times ---- */
static uint32_t ticks_of(uint64_t when)
{
    return (uint32_t)(when / TICK);
}

static void take_overdue(struct agent_client *r, struct question *first, uint64_t now)
{
    struct question *next;

    for (struct question *q = first; q; q = next) {
        next = q->next;
        if (q->watch || (int32_t)(ticks_of(now) - q->due) < 0)
            continue;
        if (q->state == QUESTION_ASKED && r->client)
            spop_client_forget(r->client, q->id);
        unlink_question(r, q);
        q->state = QUESTION_OVERDUE;
        LIST_PUSH(r->overdue, q);
    }
}

/* Answers overdue questions. Each list is traversed once, because an owner may ask again and drop other questions. An answer that has
 * already arrived counts as in time. */
static void give_up_overdue(struct agent_client *r)
{
    uint64_t now = loop_clock();

    agent_client_look(r);
    take_overdue(r, r->queued, now);
    take_overdue(r, r->asked, now);
    while (r->overdue)
        answer_unavailable(r, r->overdue);
}

static void on_tick(void *owner)
{
    struct agent_client *r = owner;

    give_up_overdue(r);
    put_all(r);
    tick_if_wanted(r);
}

/* ---- for the outside ---- */
struct agent_client *agent_client_new(struct loop *loop, const struct net_address *agent, unsigned most,
                                      struct log *log)
{
    struct agent_client *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    *r = (struct agent_client){
        .loop = loop,
        .agent = *agent,
        .log = log,
        .most = most,
        .stream = {.user = &stream_user,
                   .owner = r,
                   .in = buffer_with_limit(INPUT_MAX),
                   .out = buffer_with_limit(OUTPUT_MAX)},
        .backoff = {.least = RECONNECT_LEAST, .most = RECONNECT_MOST},
    };
    r->queued_end = &r->queued;
    r->flush = (struct loop_task){.run = flush, .context = r};
    loop_timer_open(&r->tick, loop, on_tick, r);
    loop_timer_open(&r->leisure, loop, put_all, r);
    loop_timer_open(&r->reconnect, loop, connect_agent, r);
    loop_timer_set(&r->reconnect, 0);
    return r;
}

void agent_client_free(struct agent_client *r)
{
    if (!r)
        return;
    stream_close(&r->stream);
    loop_timer_close(&r->tick);
    loop_timer_close(&r->leisure);
    loop_timer_close(&r->reconnect);
    spop_client_free(r->client);
    r->flush.run = free; /* the task may be queued already */
    loop_defer(r->loop, &r->flush);
}

void agent_client_ask(struct agent_client *r, struct question *q)
{
    agent_client_drop(r, q);
    q->due = ticks_of(loop_clock() + ASK_PATIENCE) + 1; /* the next tick, so that the deadline is not early */
    queue(r, q);
    if (!q->watch)
        put_all(r);
    else if (!loop_timer_active(&r->leisure))
        loop_timer_set(&r->leisure, LEISURE);
    tick_if_wanted(r);
}

void agent_client_drop(struct agent_client *r, struct question *q)
{
    if (q->state == QUESTION_CLOSED)
        return;
    if (q->state == QUESTION_ASKED && r->client) {
        spop_client_forget(r->client, q->id);
        if (q->watch)
            take_back(r, q->id);
        tick_if_wanted(r);
    }
    unlink_question(r, q);
}

void agent_client_look(struct agent_client *r)
{
    if (r->ready)
        stream_look(&r->stream);
}

bool agent_client_connected(const struct agent_client *r)
{
    return r->ready;
}
