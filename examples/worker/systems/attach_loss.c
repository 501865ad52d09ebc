/* SPDX-License-Identifier: MIT */
#include "examples/worker/systems/attach_loss.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SEEN_MAX  256 /* sessions; the oldest is forgotten first */
#define QUEUE_LEN 256 /* chunks of a burst that a client gets */
#define LOST_LEN  64  /* chunks after them that it does not get */
#define PAUSE_MS  20  /* between the snapshot and the subscription */

static char seen[SEEN_MAX][2 * MANAGER_NAME_MAX + 2];
static unsigned seen_count;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool attach_loss_begin(struct bridge *b)
{
    char name[sizeof seen[0]];

    snprintf(name, sizeof name, "%s/%s", b->scope, b->id);
    for (unsigned i = 0; i < SEEN_MAX && i < seen_count; i++)
        if (!strcmp(seen[i], name))
            return false;
    memcpy(seen[seen_count++ % SEEN_MAX], name, sizeof name);
    return true;
}

void attach_loss_subscribe(struct bridge *b)
{
    b->loss.subscribed_ms = now_ms() + (b->loss.filling ? 0 : PAUSE_MS);
}

/* Returns true if the client gets the next chunk. */
static bool passes(struct bridge *b, bool replayed)
{
    if (replayed && b->loss.filling)
        return b->loss.chunks++ % (QUEUE_LEN + LOST_LEN) < QUEUE_LEN;
    return replayed || now_ms() >= b->loss.subscribed_ms;
}

void attach_loss_send(struct bridge *b, int tag, struct slice bytes, bool replayed)
{
    while (bytes.len) {
        size_t line = slice_find(bytes, '\n');
        struct slice chunk = slice_sub(bytes, 0, line < bytes.len ? line + 1 : bytes.len);

        if (passes(b, replayed))
            bridge_send_output(b, tag, chunk, chunk.len);
        bytes = slice_from(bytes, chunk.len);
    }
}
