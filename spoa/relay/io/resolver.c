/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/resolver.h"

#include "spoa/base/buffer.h"
#include "spoa/spop/client.h"

#include <errno.h>
#include <stdlib.h>

#define ASK_PATIENCE     UINT64_C(3000000) /* microseconds */
#define TICK             0.1 /* seconds between looks at overdue questions and attempts to connect */
#define RECONNECT_MOST   10  /* ticks */
#define QUESTION_MAX     SPOP_FRAME_USUAL
#define UNWATCH_MAX      128
#define HELLO_PATIENCE   50 /* ticks */
#define INPUT_MAX        (4 * SPOP_FRAME_MOST)
#define OUTPUT_MAX       (64 << 20)
#define TAKEN_BACK(most) (1 + (most) / 8) /* at a time, beside the questions */

struct resolver {
    struct loop *loop;
    struct net_address agent;
    struct log *log;
    unsigned most;
    struct spop_client *client; /* NULL: not connected */
    struct loop_io io;
    struct loop_timer timer;
    struct buffer in, out;
    struct question *queued, **queued_end; /* in order */
    struct question *asked, *watched;      /* in no order */
    struct question *overdue;              /* about to be told so */
    unsigned pause, backoff;               /* ticks until the next attempt; its length */
    bool ready, told_lost;
};

/* ---- the lists ---- */
static void unlink_question(struct resolver *r, struct question *q)
{
    if (r->queued_end == &q->next)
        r->queued_end = q->link;
    *q->link = q->next;
    if (q->next)
        q->next->link = q->link;
    q->state = QUESTION_CLOSED;
}

static void queue(struct resolver *r, struct question *q)
{
    q->state = QUESTION_QUEUED;
    q->next = NULL;
    q->link = r->queued_end;
    *r->queued_end = q;
    r->queued_end = &q->next;
}

static void push(struct question **list, struct question *q)
{
    q->next = *list;
    q->link = list;
    if (q->next)
        q->next->link = &q->next;
    *list = q;
}

static void note_asked(struct resolver *r, struct question *q)
{
    unlink_question(r, q);
    q->state = QUESTION_ASKED;
    push(q->watch ? &r->watched : &r->asked, q);
}

/* ---- the connection ---- */
static void lose(struct resolver *r)
{
    void *context;

    if (!r->told_lost)
        log_write(r->log, LOG_WARN, "the agent cannot be asked");
    r->told_lost = true;
    r->ready = false;
    loop_io_close(&r->io);
    while (r->client && spop_client_lost(r->client, &context)) {
        unlink_question(r, context);
        queue(r, context);
    }
    spop_client_free(r->client);
    r->client = NULL;
    buffer_free(&r->in);
    buffer_free(&r->out);
    r->pause = r->backoff;
    loop_timer_set(&r->timer, TICK);
    r->backoff = r->backoff * 2 < RECONNECT_MOST ? r->backoff * 2 : RECONNECT_MOST;
}

/* An error is met again by the next recv: what runs above may hold what lose() frees. */
static void flush(struct resolver *r)
{
    bool blocked = false;

    if (!r->client)
        return;
    while (buffer_len(&r->out) && !blocked) {
        struct slice rest = buffer_slice(&r->out);
        ssize_t sent = send(loop_io_fd(&r->io), rest.at, rest.len, MSG_NOSIGNAL);
        blocked = sent < 0;
        buffer_consume(&r->out, blocked ? 0 : (size_t)sent);
    }
    loop_io_want(&r->io, blocked && (errno == EAGAIN || errno == EINTR) ? LOOP_READ | LOOP_WRITE : LOOP_READ);
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
    const struct handover *h = q->handover;

#define ARG_TEXT            arg_text
#define ARG_INT             arg_int
#define X(kind, field, key) ARG_##kind(ask, key, h->field);
    HANDOVER_IDENTITY(X)
#undef X
    arg_text(ask, "ticket", h->ticket);
    if (q->watch)
        arg_int(ask, "idle", q->idle);
    arg_int(ask, "epoch", q->epoch);
    arg_address(ask, "addr", &q->addr);
}

static void answer_unavailable(struct resolver *r, struct question *q)
{
    struct answer a = {.state = ANSWER_UNAVAILABLE, .agent_lost = true, .epoch = -1};
    unlink_question(r, q);
    q->answered(q->owner, q->watch, &a);
}

static bool put_question(struct resolver *r, struct question *q)
{
    struct spop_ask ask;
    size_t room;
    /* before it is asked: what the client knows of it cannot be taken back */
    uint8_t *memory = buffer_room(&r->out, QUESTION_MAX, &room);
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
    buffer_commit(&r->out, put ? w.len : 0);
    return put;
}

/* The watch's answer is swallowed, and this one's. It leaves with the next question, or at the next tick. What cannot be
 * said is not: the watch ends by itself then. */
static void take_back(struct resolver *r, uint64_t watch)
{
    struct spop_ask ask;
    size_t room;
    uint8_t *memory = buffer_room(&r->out, UNWATCH_MAX, &room);
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
    buffer_commit(&r->out, w.len);
}

static bool can_ask(const struct resolver *r)
{
    return r->client && spop_client_ready(r->client) && spop_client_waiting(r->client) < r->most;
}

/* A question that cannot be put waits for its patience to end, or for the next tick. */
static void put_queued(struct resolver *r)
{
    struct question *next;

    for (struct question *q = r->queued; q && can_ask(r); q = next) {
        next = q->next;
        if (put_question(r, q))
            note_asked(r, q);
    }
    flush(r);
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

/* 0: none, or not a port. */
static uint16_t io_of(struct spop_value value)
{
    uint64_t number;
    return spop_value_unsigned(value, &number) && number <= UINT16_MAX ? (uint16_t)number : 0;
}

/* What a newer agent may say is a reason to end the tunnel all the same. */
static enum refusal refused_of(struct slice code)
{
    return slice_is(code, "token_expired") ? REFUSAL_token_expired
           : slice_is(code, "not_granted") ? REFUSAL_not_granted
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
    else if (slice_is(name, "epoch"))
        a->epoch = value->number;
    else if (slice_is(name, "unwatched"))
        a->unwatched = value->truth;
    else if (slice_is(name, "refused"))
        a->refused = refused_of(value->bytes);
}

static void on_answer(struct resolver *r, struct question *q, struct reader actions)
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
    q->answered(q->owner, q->watch, &a);
}

static void on_ready_to_ask(struct resolver *r)
{
    r->ready = true;
    r->backoff = 1;
    if (r->told_lost)
        log_write(r->log, LOG_INFO, "the agent can be asked again");
    r->told_lost = false;
}

/* False: the connection is over. */
static bool take_frames(struct resolver *r)
{
    uint8_t memory[SPOP_HELLO_MOST];
    struct writer goodbye = writer_of(memory, sizeof memory);
    struct slice in = buffer_slice(&r->in);
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
            buffer_consume(&r->in, before - in.len);
            return true;
        case SPOP_CLIENT_ENDED:
            return false;
        }
    }
}

static bool receive(struct resolver *r)
{
    size_t room;
    uint8_t *to = buffer_room(&r->in, SPOP_FRAME_USUAL + SPOP_LENGTH_BYTES, &room);
    ssize_t got = to ? recv(loop_io_fd(&r->io), to, room, 0) : 0;

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        buffer_commit(&r->in, 0);
        return true;
    }
    if (got <= 0)
        return false;
    buffer_commit(&r->in, (size_t)got);
    return take_frames(r);
}

static void on_ready(void *owner, int events)
{
    struct resolver *r = owner;

    if ((events & LOOP_READ) && !receive(r))
        lose(r);
    else
        put_queued(r);
}

static void connect_agent(struct resolver *r)
{
    uint8_t memory[SPOP_HELLO_MOST];
    struct writer hello = writer_of(memory, sizeof memory);
    struct spop_offer offer = {SPOP_FRAME_USUAL, SLICE_LITERAL("cellgate-relay"), false, true};
    struct fail why;

    r->pause = 0;
    r->client = spop_client_new(r->most + TAKEN_BACK(r->most));
    int fd = r->client ? net_connect(&r->agent, &why) : -1;
    if (fd < 0) {
        lose(r);
        return;
    }
    loop_io_open(&r->io, r->loop, fd, on_ready, r);
    spop_client_hello(r->client, &offer, &hello);
    if (!buffer_put(&r->out, writer_slice(&hello)))
        lose(r);
    else
        flush(r);
}

/* ---- times ---- */
static void take_overdue(struct resolver *r, struct question *first, uint64_t now)
{
    struct question *next;

    for (struct question *q = first; q; q = next) {
        next = q->next;
        if (q->watch || now < q->due)
            continue;
        if (q->state == QUESTION_ASKED && r->client)
            spop_client_forget(r->client, q->id);
        unlink_question(r, q);
        q->state = QUESTION_OVERDUE;
        push(&r->overdue, q);
    }
}

/* Each list is gone through once: whoever is told may ask again, and drop others. What has been answered by now was
 * answered in time. */
static void give_up_overdue(struct resolver *r)
{
    uint64_t now = loop_clock();

    resolver_look(r);
    take_overdue(r, r->queued, now);
    take_overdue(r, r->asked, now);
    while (r->overdue)
        answer_unavailable(r, r->overdue);
}

static bool wants_tick(const struct resolver *r)
{
    return !r->ready || r->queued || r->asked || buffer_len(&r->out);
}

static void tick_if_wanted(struct resolver *r)
{
    if (!loop_timer_active(&r->timer) && wants_tick(r))
        loop_timer_set(&r->timer, TICK);
}

static void on_tick(void *owner)
{
    struct resolver *r = owner;

    give_up_overdue(r);
    if (r->client && !r->ready && ++r->pause > HELLO_PATIENCE)
        lose(r);
    else if (!r->client && (r->pause == 0 || --r->pause == 0))
        connect_agent(r);
    else if (r->ready)
        put_queued(r);
    tick_if_wanted(r);
}

/* ---- for the outside ---- */
struct resolver *resolver_new(struct loop *loop, const struct net_address *agent, unsigned most,
                              struct log *log)
{
    struct resolver *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    *r = (struct resolver){
        .loop = loop,
        .agent = *agent,
        .log = log,
        .most = most,
        .in = buffer_with_limit(INPUT_MAX),
        .out = buffer_with_limit(OUTPUT_MAX),
        .backoff = 1,
    };
    r->queued_end = &r->queued;
    loop_timer_open(&r->timer, loop, on_tick, r);
    loop_timer_set(&r->timer, 0.);
    return r;
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    loop_io_close(&r->io);
    loop_timer_close(&r->timer);
    spop_client_free(r->client);
    buffer_free(&r->in);
    buffer_free(&r->out);
    free(r);
}

void resolver_ask(struct resolver *r, struct question *q)
{
    resolver_drop(r, q);
    q->due = loop_clock() + ASK_PATIENCE;
    queue(r, q);
    if (r->ready)
        put_queued(r);
    tick_if_wanted(r);
}

void resolver_drop(struct resolver *r, struct question *q)
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

void resolver_look(struct resolver *r)
{
    if (r->ready)
        on_ready(r, LOOP_READ);
}

bool resolver_connected(const struct resolver *r)
{
    return r->ready;
}
