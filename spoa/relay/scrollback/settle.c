/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/settle.h"

#include <stdlib.h>

/* Bounds of settle_align's work, because the session chooses the bytes: the number of compared places (up to SETTLE_TAIL of them have
 * few bytes before them), and the number of equal bytes at all these places together, compared in parts. */
#define TRIES_MOST    2048
#define COMPARED_MOST (2 * SETTLE_MOST)
#define COMPARED_PART 1024

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct settle *settle_new(uint64_t now, bool after_exit)
{
    struct settle *settle = calloc(1, sizeof *settle);

    if (!settle)
        return NULL;
    settle->snapshot = records_with_limit(SETTLE_MOST);
    settle->since = now;
    settle->due = now + SETTLE_FIRST;
    settle->after_exit = after_exit;
    return settle;
}

void settle_free(struct settle *settle)
{
    if (settle)
        records_clear(&settle->snapshot);
    free(settle);
}

/* ---- times ---- */
uint64_t settle_due(const struct settle *s, uint64_t said_at)
{
    if (s->phase == SETTLE_READING)
        return UINT64_MAX;
    return s->checks || s->phase == SETTLE_CATCHING_UP
               ? s->due
               : smaller(s->due, larger(s->since, said_at) + SETTLE_QUIET);
}

void settle_begin(struct settle *s)
{
    records_clear(&s->snapshot);
    s->sizes[0] = s->sizes[1] = 0;
    s->before[0] = s->live[0];
    s->before[1] = s->live[1];
    s->exited_first = s->exited;
    s->phase = SETTLE_READING;
    s->tag = 0;
    s->checks++;
}

void settle_failed(struct settle *s, uint64_t now)
{
    s->failed++;
    settle_pause(s, now);
}

void settle_pause(struct settle *s, uint64_t now)
{
    records_clear(&s->snapshot);
    s->phase = SETTLE_HOLDING;
    s->due = now + SETTLE_PAUSE;
}

bool settle_is_over(const struct settle *s, uint64_t now)
{
    return s->checks >= SETTLE_CHECKS || s->failed >= SETTLE_FAILED || now >= s->since + SETTLE_TIME;
}

bool settle_was_quiet(const struct settle *s)
{
    return s->live[0] == s->before[0] && s->live[1] == s->before[1];
}

bool settle_stands_still(const struct settle *s, uint64_t size)
{
    return s->checks > 1 && size == s->last && settle_was_quiet(s);
}

/* ---- comparison ---- */

/* Returns true if the snapshot ends with the `len` bytes before position `at` of the live output. The bytes are compared from their
 * end, in parts, because the session chooses where they differ. *left is the remaining budget of equal bytes; the function returns
 * false when the budget is spent. */
static bool ends_alike(const struct settle_view *v, uint64_t at, uint64_t len, uint64_t *left)
{
    uint64_t done = 0;

    if (len > v->snapshot.len || len > at)
        return false;
    for (; done < len && *left; *left -= smaller(*left, COMPARED_PART)) {
        size_t part = (size_t)smaller(len - done, COMPARED_PART);
        done += part;
        if (!slice_equal(slice_sub(v->snapshot, v->snapshot.len - (size_t)done, part),
                         slice_sub(v->live, (size_t)(at - done), part)))
            return false;
    }
    return done == len;
}

/* Returns the number of bytes that must agree before position `at`: SETTLE_TAIL, or all live output before `at` if that is less. */
static uint64_t needed(const struct settle_view *v, uint64_t at)
{
    return larger(v->growth, smaller(smaller(at, SETTLE_TAIL), v->snapshot.len));
}

/* Returns true if the live output continues the snapshot where it must if the worker has dropped no chunk. */
static bool is_expected(const struct settle_view *v, uint64_t *left)
{
    return v->expected >= v->before && v->expected <= v->live.len && v->growth <= v->expected &&
           ends_alike(v, v->expected, smaller(v->expected, v->snapshot.len), left);
}

/* Returns the next place after `at` where the tail of the snapshot ends, or 0 if there is none. */
static uint64_t next_place(const struct settle_view *v, struct slice tail, uint64_t at)
{
    if (at < tail.len)
        return smaller(at + 1, tail.len);
    struct slice rest = slice_from(v->live, (size_t)at + 1 - tail.len);
    const uint8_t *found = tail.len ? memmem(rest.at, rest.len, tail.at, tail.len) : NULL;
    return found ? (uint64_t)(found - v->live.at) + tail.len : 0;
}

bool settle_align(const struct settle_view *v, uint64_t *at)
{
    struct slice tail =
        slice_from(v->snapshot, v->snapshot.len - (size_t)smaller(v->snapshot.len, SETTLE_TAIL));
    uint64_t left = COMPARED_MOST;
    unsigned found = 0, tries = 0;

    *at = v->live.len;
    if (v->before == v->live.len)
        return ends_alike(v, v->live.len, v->growth, &left);
    *at = v->expected;
    if (is_expected(v, &left))
        return true;
    for (uint64_t place = v->before; place <= v->live.len && found < 2;) {
        if (tries++ == TRIES_MOST)
            return false;
        if (ends_alike(v, place, needed(v, place), &left)) {
            *at = place;
            found++;
        }
        uint64_t next = next_place(v, tail, place);
        if (next <= place)
            break;
        place = next;
    }
    return found == 1 && left;
}

/* ---- as an image ---- */
static bool holds(const void *object)
{
    const struct settle *s = object;
    return s->before[0] <= s->live[0] && s->before[1] <= s->live[1];
}

static const struct image_field fields[] = {
    IMAGE_PART(struct settle, snapshot, &records_table),
    IMAGE_NUMBERS(struct settle, sizes, SETTLE_MOST),
    IMAGE_NUMBERS(struct settle, first, INT64_MAX),
    IMAGE_NUMBERS(struct settle, live, SETTLE_MOST),
    IMAGE_NUMBERS(struct settle, before, SETTLE_MOST),
    IMAGE_NUMBERS(struct settle, ahead, INT64_MAX),
    IMAGE_NUMBERS(struct settle, base, INT64_MAX),
    IMAGE_TIME(struct settle, since),
    IMAGE_TIME(struct settle, due),
    IMAGE_ANY(struct settle, last),
    IMAGE_NUMBER(struct settle, checks, SETTLE_CHECKS),
    IMAGE_NUMBER(struct settle, failed, SETTLE_CHECKS),
    IMAGE_NUMBER(struct settle, phase, SETTLE_CATCHING_UP),
    IMAGE_FLAG(struct settle, judged),
    IMAGE_FLAG(struct settle, open),
    IMAGE_FLAG(struct settle, placed),
    IMAGE_FLAG(struct settle, gap),
    IMAGE_FLAG(struct settle, exited),
    IMAGE_FLAG(struct settle, exited_first),
    IMAGE_FLAG(struct settle, after_exit),
    IMAGE_ANY(struct settle, tag),
    IMAGE_BYTES(struct settle, exit),
};
IMAGE_TABLE(settle_table, struct settle, fields, .holds = holds);
