/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/deadlines.h"

#include <assert.h>
#include <stdlib.h>

enum { CHILDREN = 4, ROOM_MIN = 16 };

/* ---- the heap; in this part places are counted from 0 ---- */
static void put(struct deadlines *d, uint32_t place, struct deadlines_entry entry)
{
    d->heap[place] = entry;
    entry.of->place = place + 1;
}

/* Puts an entry at `place` or above: each parent that is due later moves down. */
static void rise(struct deadlines *d, uint32_t place, struct deadlines_entry entry)
{
    while (place) {
        uint32_t parent = (place - 1) / CHILDREN;
        if (d->heap[parent].at <= entry.at)
            break;
        put(d, place, d->heap[parent]);
        place = parent;
    }
    put(d, place, entry);
}

/* Returns the child that is due first, or d->count if there is no child. */
static uint32_t first_child(const struct deadlines *d, uint32_t place)
{
    uint64_t from = (uint64_t)place * CHILDREN + 1;
    if (from >= d->count)
        return d->count;
    uint32_t first = (uint32_t)from, end = d->count - first > CHILDREN ? first + CHILDREN : d->count;
    for (uint32_t i = first + 1; i < end; i++)
        if (d->heap[i].at < d->heap[first].at)
            first = i;
    return first;
}

/* Puts an entry into the free `place` or, as the order of the heap demands, above or below it. */
static void settle(struct deadlines *d, uint32_t place, struct deadlines_entry entry)
{
    if (place && d->heap[(place - 1) / CHILDREN].at > entry.at) {
        rise(d, place, entry);
        return;
    }
    for (uint32_t child; (child = first_child(d, place)) < d->count && d->heap[child].at < entry.at;
         place = child)
        put(d, place, d->heap[child]);
    put(d, place, entry);
}

/* ---- the interface ---- */
bool deadlines_reserve(struct deadlines *d, size_t objects)
{
    if (objects <= d->room)
        return true;
    if (objects > DEADLINES_MAX)
        return false;
    size_t room = objects + objects / 4 + ROOM_MIN;
    struct deadlines_entry *heap = realloc(d->heap, room * sizeof *heap);
    if (!heap)
        return false;
    d->heap = heap;
    d->room = (uint32_t)room;
    return true;
}

void deadlines_set(struct deadlines *d, struct deadline *of, uint64_t at)
{
    if (of->place) {
        settle(d, of->place - 1, (struct deadlines_entry){at, of});
        return;
    }
    assert(d->count < d->room);
    rise(d, d->count++, (struct deadlines_entry){at, of});
}

void deadlines_clear(struct deadlines *d, struct deadline *of)
{
    if (!of->place)
        return;
    uint32_t place = of->place - 1;
    struct deadlines_entry last = d->heap[--d->count];
    of->place = 0;
    if (place < d->count)
        settle(d, place, last);
}

uint64_t deadlines_at(const struct deadlines *d, const struct deadline *of)
{
    return of->place ? d->heap[of->place - 1].at : UINT64_MAX;
}

uint64_t deadlines_first(const struct deadlines *d)
{
    return d->count ? d->heap[0].at : UINT64_MAX;
}

struct deadline *deadlines_take(struct deadlines *d, uint64_t now)
{
    if (!d->count || d->heap[0].at > now)
        return NULL;
    struct deadline *of = d->heap[0].of;
    deadlines_clear(d, of);
    return of;
}

void deadlines_free(struct deadlines *d)
{
    free(d->heap);
    *d = (struct deadlines){0};
}
