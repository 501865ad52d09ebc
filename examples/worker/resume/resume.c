/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume/resume.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN 64u /* doubled when it is full, so always a power of two */
#define MESSAGE_MAX  32768u

void resume_init(struct resume *r)
{
    *r = (struct resume){.window = 0, .next = 1};
    r->held = buffer_with_limit(RESUME_WINDOW + CELL_RESUME_COST); /* the caller's end costs nothing */
}

void resume_free(struct resume *r)
{
    free(r->kept);
    buffer_free(&r->held);
    r->kept = NULL;
    r->capacity = 0;
}

static struct resume_item *item(const struct resume *r, uint64_t number)
{
    return &r->kept[number & (r->capacity - 1)];
}

static uint64_t cost(const struct resume_item *i)
{
    return i->kind == RESUME_END ? 0 : i->length + CELL_RESUME_COST;
}

/* ---- legs ---- */

/* Items up to this one are needed no more. One that was acknowledged before its turn on this leg still takes its
 * turn, as its number is its position. */
static uint64_t dropped(const struct resume *r)
{
    return r->acknowledged < r->next ? r->acknowledged : r->next - 1;
}

static void forget(struct resume *r, uint64_t number)
{
    while (r->acknowledged < number)
        if (++r->acknowledged < r->next)
            r->in_flight -= cost(item(r, r->acknowledged));
    if (r->ended && r->acknowledged == r->numbered)
        resume_over(r);
}

static void drop_held(struct resume *r)
{
    buffer_free(&r->held);
    r->waiting = 0;
    r->open = 0;
    r->begun = r->closing = false;
    r->pending = r->untold;
}

/* Returns the window for a leg. It never shrinks, because items that are numbered already might not fit a smaller one. */
static uint64_t window_of(const struct resume *r, const struct resume_request *request)
{
    uint64_t wanted = request->buffer ? request->buffer : CELL_RESUME_WINDOW;
    uint64_t window = wanted < RESUME_WINDOW ? wanted : RESUME_WINDOW;
    return window > r->window ? window : r->window;
}

enum resume_answer resume_request(struct resume *r, const struct resume_request *request)
{
    if (request->attempt <= r->attempt)
        return RESUME_LATE;
    r->attempt = request->attempt;
    if (r->state == RESUME_OVER)
        return RESUME_EXPIRED;
    if (request->recv > r->sent)
        return RESUME_IMPOSSIBLE;
    resume_left(r);
    forget(r, request->recv);
    if (r->state == RESUME_OVER)
        return RESUME_EXPIRED;
    r->window = window_of(r, request);
    r->next = r->acknowledged + 1;
    resume_tell(r);
    r->state = RESUME_LIVE;
    return RESUME_ACCEPTED;
}

void resume_left(struct resume *r)
{
    if (r->state != RESUME_LIVE)
        return;
    r->state = RESUME_AWAY;
    drop_held(r);
    r->in_flight = 0;
    r->next = r->acknowledged + 1;
}

void resume_over(struct resume *r)
{
    r->state = RESUME_OVER;
    drop_held(r);
    resume_free(r);
}

/* ---- output ---- */

size_t resume_room(const struct resume *r)
{
    uint64_t most = r->window / 4 < MESSAGE_MAX ? r->window / 4 : MESSAGE_MAX;
    if (r->state != RESUME_LIVE || r->ended || r->in_flight + CELL_RESUME_COST >= r->window)
        return 0;
    uint64_t room = r->window - r->in_flight - CELL_RESUME_COST;
    return (size_t)(room < most ? room : most);
}

static bool grow(struct resume *r)
{
    size_t capacity = r->capacity ? 2 * r->capacity : CAPACITY_MIN;
    struct resume_item *kept = malloc(capacity * sizeof *kept);
    if (!kept)
        return false;
    for (uint64_t n = dropped(r) + 1; n <= r->numbered; n++)
        kept[n & (capacity - 1)] = *item(r, n);
    free(r->kept);
    r->kept = kept;
    r->capacity = capacity;
    return true;
}

bool resume_number(struct resume *r, enum resume_kind kind, uint32_t length)
{
    assert(!r->ended);
    if (r->numbered - dropped(r) == r->capacity && !grow(r))
        return false;
    r->numbered++;
    *item(r, r->numbered) = (struct resume_item){r->cut, length, kind};
    r->cut += kind == RESUME_BYTES ? length : 0;
    r->ended = kind == RESUME_END;
    return true;
}

const struct resume_item *resume_to_send(const struct resume *r)
{
    if (r->state != RESUME_LIVE || r->next > r->numbered)
        return NULL;
    const struct resume_item *i = item(r, r->next);
    return r->in_flight + cost(i) <= r->window ? i : NULL;
}

void resume_was_sent(struct resume *r)
{
    if (r->next > r->acknowledged)
        r->in_flight += cost(item(r, r->next));
    if (r->next > r->sent)
        r->sent = r->next;
    r->next++;
}

enum resume_verdict resume_acknowledge(struct resume *r, uint64_t number)
{
    if (number > r->sent)
        return RESUME_WRONG;
    forget(r, number);
    return RESUME_FINE;
}

uint64_t resume_kept(const struct resume *r)
{
    return r->capacity && r->numbered > dropped(r) ? item(r, dropped(r) + 1)->offset : r->cut;
}
