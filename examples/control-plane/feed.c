/* SPDX-License-Identifier: MIT */
#include "examples/control-plane/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/base/json/json_write.h"

#define EVENT_MAX ((size_t)64 * 1024)

struct feed {
    unsigned long long began;
    uint64_t count; /* number of events so far; event n is in events[n % FEED_KEPT] */
    struct buffer events[FEED_KEPT];
};

struct feed *feed_new(void)
{
    struct feed *feed = calloc(1, sizeof *feed);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (feed)
        feed->began = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    return feed;
}

void feed_free(struct feed *feed)
{
    if (!feed)
        return;
    for (size_t i = 0; i < FEED_KEPT; i++)
        buffer_free(&feed->events[i]);
    free(feed);
}

struct slice feed_add(struct feed *feed, const char *name, struct slice data)
{
    struct buffer *event = &feed->events[feed->count % FEED_KEPT];
    buffer_free(event);
    *event = buffer_with_limit(EVENT_MAX);
    bool good = json_write(event, "id: %llu-%llu\nevent: %s\ndata: ", feed->began,
                           (unsigned long long)feed->count, name) &&
                buffer_put(event, data) && buffer_put(event, SLICE_LITERAL("\n\n"));
    feed->count++;
    if (!good)
        buffer_free(event);
    return buffer_slice(event);
}

/* Reads an id, and sets *next to the number of the event after it. Returns false if the event is of another process, or no longer kept. */
static bool read_id(const struct feed *feed, struct slice id, uint64_t *next)
{
    size_t dash = slice_find(id, '-');
    uint64_t began, number;
    if (!slice_u64(slice_sub(id, 0, dash), UINT64_MAX, &began) || began != feed->began ||
        !slice_u64(slice_from(id, dash + 1), UINT64_MAX - 1, &number))
        return false;
    *next = number + 1;
    return *next <= feed->count && feed->count - *next <= FEED_KEPT;
}

void feed_since(const struct feed *feed, struct slice last_id, struct buffer *to)
{
    uint64_t next;
    if (!read_id(feed, last_id, &next))
        return;
    for (bool good = true; next < feed->count && good; next++)
        good = buffer_put(to, buffer_slice(&feed->events[next % FEED_KEPT]));
}
