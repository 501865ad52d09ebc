/* SPDX-License-Identifier: MIT */
/* The caller's input: complete messages, held in order until the session consumes them. */
#include <assert.h>

#include "examples/worker/resume/resume.h"

#define HEAD sizeof(struct resume_message)

/* The window bounds the memory for input, because a held message costs no more than the protocol counts. */
static_assert(HEAD <= CELL_RESUME_COST, "a message's head costs no more than the protocol says");

static bool put_head(struct resume *r, const struct resume_message *m)
{
    return buffer_put(&r->held, slice_of(m, HEAD));
}

static bool begin(struct resume *r)
{
    struct resume_message head = {0};
    r->begun = put_head(r, &head);
    r->pending += r->begun ? CELL_RESUME_COST : 0;
    return r->begun;
}

static void complete(struct resume *r, struct resume_message m)
{
    m.length = (uint32_t)r->open;
    m.end = false;
    memcpy(r->held.memory + r->held.end - r->open - HEAD, &m, HEAD);
    r->begun = false;
    r->open = 0;
    r->waiting++;
}

enum resume_verdict resume_piece(struct resume *r, struct slice bytes, const struct resume_message *m,
                                 bool last)
{
    /* of a message whose payload matters only in part, the rest is counted when it is complete */
    uint64_t rest = last && m->size > r->open + bytes.len ? m->size - r->open - bytes.len : 0;
    if (r->state != RESUME_LIVE || r->closing)
        return RESUME_WRONG;
    if (r->pending + (r->begun ? 0 : CELL_RESUME_COST) + bytes.len + rest > r->window)
        return RESUME_TOO_BIG;
    if ((!r->begun && !begin(r)) || !buffer_put(&r->held, bytes))
        return RESUME_NO_MEMORY;
    r->open += bytes.len;
    r->pending += bytes.len + rest;
    if (last)
        complete(r, *m);
    return RESUME_FINE;
}

/* Drops an incomplete message, which the caller can never complete, because the end has its number. */
static void drop_open(struct resume *r)
{
    if (!r->begun)
        return;
    buffer_cut(&r->held, buffer_len(&r->held) - (r->open + HEAD));
    r->pending -= r->open + CELL_RESUME_COST;
    r->begun = false;
    r->open = 0;
}

enum resume_verdict resume_close(struct resume *r, uint64_t number)
{
    struct resume_message end = {.end = true};
    if (r->state != RESUME_LIVE || r->closing || number != r->consumed + r->waiting + 1)
        return RESUME_WRONG;
    drop_open(r);
    if (!put_head(r, &end))
        return RESUME_NO_MEMORY;
    r->closing = true;
    r->waiting++;
    return RESUME_FINE;
}

bool resume_waiting(const struct resume *r, struct resume_message *m, struct slice *bytes)
{
    if (!r->waiting)
        return false;
    struct slice held = buffer_slice(&r->held);
    memcpy(m, held.at, HEAD);
    *bytes = slice_sub(held, HEAD, m->length);
    return true;
}

void resume_consume(struct resume *r)
{
    struct resume_message m;
    memcpy(&m, buffer_slice(&r->held).at, HEAD);
    buffer_consume(&r->held, HEAD + m.length);
    r->waiting--;
    r->consumed++;
    if (!m.end)
        r->untold += (m.size > m.length ? m.size : m.length) + CELL_RESUME_COST;
}

bool resume_owes(const struct resume *r, bool *now)
{
    *now = r->untold >= r->window / 4;
    return r->told < r->consumed;
}

void resume_tell(struct resume *r)
{
    r->pending -= r->untold;
    r->untold = 0;
    r->told = r->consumed;
}
