/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/numbers.h"

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

#define LENGTH 4 /* bytes of the length in front of a waiting message */

struct mux_numbers mux_numbers_of(void)
{
    return (struct mux_numbers){.kept = buffer_with_limit(BUFFER_LIMIT_MAX),
                                .waiting = buffer_with_limit(BUFFER_LIMIT_MAX),
                                .window = CELL_RESUME_WINDOW};
}

void mux_numbers_free(struct mux_numbers *r)
{
    buffer_free(&r->kept);
    buffer_free(&r->waiting);
}

size_t mux_numbers_held(const struct mux_numbers *r)
{
    return r->kept.size + r->waiting.size;
}

/* ---- frames ---- */

/* Returns the length of a whole unmasked frame, and sets *cost to the cost of its item. */
static size_t frame_len(struct slice frames, uint64_t *cost)
{
    struct reader r = reader_of(frames);
    (void)reader_u8(&r);
    uint64_t payload = reader_u8(&r);
    if (payload >= 126)
        payload = reader_be(&r, payload == 126 ? 2 : 8);
    *cost = payload + CELL_RESUME_COST;
    return frames.len - r.rest.len + (size_t)payload;
}

/* ---- legs ---- */

void mux_numbers_left(struct mux_numbers *r)
{
    buffer_consume(&r->waiting, buffer_len(&r->waiting));
    r->waits = 0;
    r->pending = r->untold;
    r->marked = false;
}

static void forget_acknowledged(struct mux_numbers *r, uint64_t number)
{
    uint64_t cost;
    while (r->acknowledged < number) {
        size_t len = frame_len(buffer_slice(&r->kept), &cost);
        buffer_consume(&r->kept, len);
        r->acknowledged++;
        if (r->acknowledged > r->given) {
            r->given = r->acknowledged;
        } else {
            r->given_bytes -= len;
            r->in_flight -= cost;
        }
    }
}

enum mux_numbers_answer mux_numbers_request(struct mux_numbers *r, const struct cell_resume_terms *request,
                                            struct cell_resume_terms *greeting)
{
    if (request->attempt <= r->attempt)
        return MUX_NUMBERS_LATE;
    r->attempt = request->attempt;
    if (request->recv > r->sent || (request->buffer && request->buffer < MUX_NUMBERS_WINDOW_LEAST))
        return MUX_NUMBERS_IMPOSSIBLE;
    mux_numbers_left(r);
    r->pending = r->untold = 0; /* the greeting acknowledges all taken items */
    r->told = r->taken;
    r->given = r->acknowledged;
    r->given_bytes = 0;
    r->in_flight = 0;
    if (request->buffer && request->buffer < r->window)
        r->window = request->buffer;
    forget_acknowledged(r, request->recv);
    *greeting = (struct cell_resume_terms){
        .recv = r->taken, .next = r->acknowledged + 1, .buffer = CELL_RESUME_WINDOW};
    return MUX_NUMBERS_ACCEPTED;
}

/* ---- to the client ---- */

struct slice mux_numbers_next(const struct mux_numbers *r, bool *large)
{
    struct slice rest = slice_from(buffer_slice(&r->kept), r->given_bytes);
    uint64_t cost;
    *large = false;
    if (!rest.len)
        return slice_text(NULL);
    size_t len = frame_len(rest, &cost);
    *large = cost > r->window;
    return r->in_flight + cost > r->window ? slice_text(NULL) : slice_sub(rest, 0, len);
}

void mux_numbers_give(struct mux_numbers *r)
{
    uint64_t cost;
    r->given_bytes += frame_len(slice_from(buffer_slice(&r->kept), r->given_bytes), &cost);
    r->in_flight += cost;
    r->given++;
    if (r->given > r->sent)
        r->sent = r->given;
}

bool mux_numbers_acknowledge(struct mux_numbers *r, uint64_t number)
{
    if (number > r->sent)
        return false;
    forget_acknowledged(r, number);
    return true;
}

uint64_t mux_numbers_end(const struct mux_numbers *r)
{
    return r->given_bytes == buffer_len(&r->kept) ? r->given + 1 : 0;
}

/* ---- from the client ---- */

enum mux_numbers_verdict mux_numbers_put(struct mux_numbers *r, struct slice message)
{
    uint8_t memory[LENGTH];
    struct writer w = writer_of(memory, sizeof memory);
    size_t room;
    r->marked = false;
    r->pending += message.len + CELL_RESUME_COST;
    if (r->pending > CELL_RESUME_WINDOW)
        return MUX_NUMBERS_TOO_BIG;
    writer_be(&w, message.len, LENGTH);
    if (!buffer_room(&r->waiting, LENGTH + message.len, &room) ||
        !buffer_put(&r->waiting, writer_slice(&w)) || !buffer_put(&r->waiting, message))
        return MUX_NUMBERS_NO_MEMORY;
    r->waits++;
    return MUX_NUMBERS_FINE;
}

struct slice mux_numbers_first(const struct mux_numbers *r)
{
    struct reader all = reader_of(buffer_slice(&r->waiting));
    if (!r->waits)
        return slice_text(NULL);
    size_t len = (size_t)reader_be(&all, LENGTH);
    return reader_take(&all, len);
}

void mux_numbers_take(struct mux_numbers *r)
{
    size_t len = mux_numbers_first(r).len;
    buffer_consume(&r->waiting, LENGTH + len);
    r->waits--;
    r->taken++;
    r->untold += len + CELL_RESUME_COST;
}

bool mux_numbers_mark(struct mux_numbers *r, uint64_t number)
{
    r->marked = number == r->taken + r->waits + 1;
    return r->marked;
}

bool mux_numbers_owes(const struct mux_numbers *r, bool *now)
{
    *now = r->untold >= CELL_RESUME_WINDOW / 4;
    return r->untold > 0;
}

uint64_t mux_numbers_tell(struct mux_numbers *r)
{
    r->pending -= r->untold;
    r->untold = 0;
    r->told = r->taken;
    return r->taken;
}
