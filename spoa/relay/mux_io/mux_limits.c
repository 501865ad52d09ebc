/* SPDX-License-Identifier: MIT */
/* mux_limits: applies the limits (limits.h) to a mux socket: who owns it, how much memory it may hold, when it must wait for memory, and
 * when it is evicted. */
#include <stdlib.h>

#include "spoa/relay/mux_io/mux_parts.h"

#define PATIENCE   (5 * SECOND)        /* longest time in which a message or an answer waits for memory */
#define LOOK_SOON  (100 * MILLISECOND) /* time between two looks while the socket waits for memory */
#define NEXT_MOST  ((size_t)80 << 10) /* largest single read: a buffer with less spare room may have to grow */
#define READ_FIRST ((size_t)16 << 10) /* room for the first read, in bytes */
#define LEFT_MOST  ((size_t)16 << 10) /* bytes for the client that an evicted socket still delivers */

/* ---- the owner ---- */

/* Returns the owner for whom the socket counts. Only a client with a token counts for an organisation or a sandbox; an unauthenticated
 * client counts for its own address, so that nobody else can use up an owner's share. */
static struct limits_owner owner_of(const struct handover *h, struct slice client)
{
    bool shown = h->needs >= 0 && slice_present(h->token) && h->token.len;
    struct limits_owner owner = {.mux = true};
    if (shown && slice_present(h->org) && h->org.len)
        owner.org = h->org;
    else if (shown && slice_present(h->sandbox) && h->sandbox.len)
        owner.space = h->space, owner.sandbox = h->sandbox;
    else
        return (struct limits_owner){.client = client, .mux = true};
    owner.token = h->token;
    return owner;
}

bool mux_limits_enter(struct mux_io *io)
{
    struct relay_thread *thread = io->thread;
    const struct handover *h = &io->upgrade->handover;
    limits_client_name(thread->limits, &io->source, io->client_name);
    io->owner = owner_of(h, slice_text(io->client_name));
    enum limit limit = limits_enter(thread->limits, &io->owner);
    if (limit == LIMIT_NONE) {
        io->use = limits_use_begin(thread->limits, &io->owner);
        return true;
    }
    if (limit == LIMIT_MEMORY)
        return false;
    metrics_add(thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    log_write(thread->log, LOG_INFO, "too many tunnels", LOG_TEXT("limit", limit_names[limit]),
              LOG_U64("at", limits_most(thread->limits, &io->owner, limit)), LOG_SLICE("id", h->id),
              LOG_SLICE("route", h->route), LOG_SLICE("org", io->owner.org),
              LOG_TEXT("client", io->source_text));
    return false;
}

void mux_limits_leave(struct mux_io *io)
{
    relay_metrics_hold(io->thread->shard, io->thread->limits, -(int64_t)io->held);
    limits_use_end(io->thread->limits, &io->use);
    limits_leave(io->thread->limits, &io->owner);
    free(io->owner_texts);
}

/* Counts the socket and all its requests for one more owner. Returns false and counts nothing if a limit of that owner is reached. */
static bool enter_again(struct mux_io *io, const struct limits_owner *owner)
{
    size_t entered = 0, all = io->count + 1;
    while (entered < all && limits_enter(io->thread->limits, owner) == LIMIT_NONE)
        entered++;
    for (size_t i = 0; entered < all && i < entered; i++)
        limits_leave(io->thread->limits, owner);
    return entered == all;
}

/* Appends `text` to `w`, and returns the copy; absent if the text is empty. */
static struct slice keep(struct writer *w, struct slice text)
{
    size_t start = w->len;
    writer_put(w, text);
    return text.len ? slice_of(w->at + start, text.len) : slice_text(NULL);
}

/* Moves the socket and its requests to the thread's time share of the new owner. */
static void change_share(struct mux_io *io)
{
    struct loop_share *before = io->share;
    io->share = time_shares_take(&io->thread->shares, &io->owner);
    if (io->leg)
        stream_join(&io->leg->stream, io->share);
    for (struct mux_request *r = io->requests; r; r = r->next)
        stream_join(&r->up, io->share);
    time_shares_give(&io->thread->shares, before);
}

void mux_limits_learn(struct mux_io *io, struct slice handover)
{
    static _Thread_local uint8_t memory[MUX_HEAD_MOST];
    struct writer decoded = writer_of(memory, sizeof memory);
    struct handover h;
    struct fail why;
    if (!io->owner.client.len || !handover.len || !handover_decode(&h, handover, &decoded, &why))
        return;
    struct limits_owner owner = owner_of(&h, slice_text(NULL));
    if (!owner.org.len && !owner.sandbox.len)
        return;
    size_t size = owner.org.len + owner.space.len + owner.sandbox.len + owner.token.len;
    uint8_t *texts = malloc(size);
    if (!texts)
        return;
    struct writer w = writer_of(texts, size);
    owner.org = keep(&w, owner.org);
    owner.space = keep(&w, owner.space);
    owner.sandbox = keep(&w, owner.sandbox);
    owner.token = keep(&w, owner.token);
    if (!enter_again(io, &owner)) { /* the socket stays that of an unauthenticated client */
        free(texts);
        return;
    }
    for (size_t i = 0; i <= io->count; i++)
        limits_leave(io->thread->limits, &io->owner);
    limits_use_move(io->thread->limits, &io->use, &owner);
    io->owner = owner;
    io->owner_texts = texts;
    change_share(io);
}

/* ---- memory ---- */

void mux_account(struct mux_io *io)
{
    size_t held =
        mux_leg_held(io->leg) + io->requests_held + (io->again ? mux_numbers_held(&io->again->numbers) : 0);
    relay_metrics_hold(io->thread->shard, io->thread->limits, (int64_t)held - (int64_t)io->held);
    io->held = held;
    limits_use_set(io->thread->limits, &io->use, held, io->wants);
}

/* Returns the number of bytes that a socket may hold however short memory is. Unauthenticated sockets have no such right, because their
 * number is not bounded by an owner. */
static size_t least_of(const struct mux_io *io)
{
    return io->owner.client.len ? 0 : LIMITS_LEAST;
}

/* Returns true if the next read may make the buffer grow beyond the guaranteed memory. */
static bool must_grow(const struct mux_io *io, const struct buffer *b)
{
    return b->size >= least_of(io) && buffer_spare(b) < NEXT_MOST;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

bool mux_limits_fits(const struct mux_io *io, const struct buffer *whole)
{
    return !must_grow(io, whole) || limits_fits(io->thread->limits, &io->use, whole->size);
}

/* Returns true if the limits have no room now for the buffer, whose content must become complete in memory. */
static bool lacks_room(const struct mux_io *io, const struct buffer *whole)
{
    return must_grow(io, whole) &&
           !limits_room_whole(io->thread->limits, &io->use, io->held, larger(whole->size, READ_FIRST));
}

bool mux_limits_lacks(const struct mux_io *io, const struct mux_request *r)
{
    return io->v1 || mux_answer_streams(&r->answer) ? io->tight : lacks_room(io, &r->answer.text);
}

/* Returns true if the client's input lacks memory. Only input counts (`uploads`: bytes of request bodies), never the output: the output
 * of a resumable socket only shrinks by acknowledgements, which must be read. */
static bool leg_lacks(const struct mux_io *io, size_t uploads)
{
    bool lacks = io->leg && io->leg->asks && !io->v1 && lacks_room(io, &io->leg->message);
    return lacks || (io->tight && uploads > least_of(io));
}

/* Also starts a timer when the socket begins to wait for memory. */
bool mux_limits_look(struct mux_io *io)
{
    size_t uploads = 0;
    bool answers = false;
    mux_account(io);
    io->tight = io->held > least_of(io) && !limits_room(io->thread->limits, &io->use, io->held);
    for (const struct mux_request *r = io->requests; r; r = r->next) {
        uploads += r->up.out.size + r->body.size;
        answers = answers || mux_limits_lacks(io, r);
    }
    bool leg = leg_lacks(io, uploads), starves = leg || answers;
    io->wants = starves && !io->v1 && !io->over;
    limits_use_set(io->thread->limits, &io->use, io->held, io->wants);
    if (starves && !io->starved) {
        io->starved = loop_clock();
        loop_timer_set(&io->tick, LOOK_SOON);
    } else if (!starves) {
        io->starved = 0;
    }
    return leg;
}

/* Refuses each answer that waits for memory; the socket and its other requests go on. */
static void give_answers_up(struct mux_io *io)
{
    struct mux_request *r = io->requests;
    while (r && !io->over) {
        struct mux_request *next = r->next;
        if (!io->v1 && mux_limits_lacks(io, r))
            mux_refuse_answer(r);
        r = next;
    }
}

uint64_t mux_limits_tick(struct mux_io *io, uint64_t now)
{
    if (io->starved && !io->v1 && now - io->starved >= PATIENCE) {
        if (leg_lacks(io, 0))
            mux_end_for_memory(io);
        else
            give_answers_up(io);
    }
    if (io->over)
        return UINT64_MAX;
    mux_set_flow(io);
    if (io->leg && !io->stopped && buffer_len(&io->leg->stream.in))
        mux_leg_read(io->leg); /* decodes the input that was left when reading stopped */
    return io->starved ? LOOK_SOON : UINT64_MAX;
}

/* ---- eviction ---- */

/* Returns true if evicting the socket would free memory: a socket that has ended may still hold unsent output. */
static bool may_give_way(const struct mux_io *io)
{
    return !io->over || (io->leg && io->use.held > LEFT_MOST);
}

void mux_ios_look(struct relay_thread *thread, struct limits_round *round)
{
    for (const struct mux_io *io = thread->muxes; io; io = io->next)
        if (may_give_way(io))
            limits_round_look(round, &io->use);
}

void mux_ios_give_way(struct relay_thread *thread, struct limits_round *round)
{
    for (struct mux_io *io = thread->muxes, *next; io && round->lacking; io = next) {
        next = io->next;
        if (!may_give_way(io) || !limits_round_takes(thread->limits, round, &io->use))
            continue;
        mux_end_for_memory(io);
        /* More unsent output than this is not worth the memory: the client did not read it. */
        if (io->leg && mux_leg_held(io->leg) > LEFT_MOST)
            stream_close(&io->leg->stream);
    }
}
