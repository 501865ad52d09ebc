/* SPDX-License-Identifier: MIT */
/* tunnel_times: the deadlines of all tunnels of a thread, which share one timer of the loop. */
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

static struct tunnel_seat *seat_of(struct deadline *deadline)
{
    return (struct tunnel_seat *)(void *)((uint8_t *)deadline - offsetof(struct tunnel_seat, deadline));
}

/* Sets the timer to the first deadline, but only to an earlier time. The timer may fire too early if that deadline was postponed, which is
 * cheaper than setting it each time. */
static void set_timer(struct tunnel_times *times)
{
    uint64_t first = deadlines_first(&times->deadlines);

    if (first == UINT64_MAX || (loop_timer_active(&times->timer) && times->timer_at <= first))
        return;
    times->timer_at = first;
    loop_timer_set_at(&times->timer, first);
}

enum {
    DUE_MOST = 64
}; /* largest number of tunnels per event: clients choose the times of their tunnels, so many may be due at once */

/* Handles the tunnels that are due, at most DUE_MOST. The others wait for the next turn, and so does a tunnel that is due again at once. */
static void on_due(void *owner)
{
    struct tunnel_times *times = &((struct relay_thread *)owner)->times;
    uint64_t now = loop_clock();

    for (unsigned i = 0; i < DUE_MOST; i++) {
        uint64_t at = deadlines_first(&times->deadlines);
        struct deadline *due = deadlines_take(&times->deadlines, now);
        if (!due)
            break;
        tunnel_io_due(seat_of(due), at);
    }
    set_timer(times);
}

void tunnel_times_open(struct tunnel_times *times, struct relay_thread *thread)
{
    loop_timer_open(&times->timer, thread->loop, on_due, thread);
}

void tunnel_times_end(struct tunnel_times *times)
{
    loop_timer_close(&times->timer);
    deadlines_free(&times->deadlines);
}

uint64_t tunnel_times_at(const struct tunnel_seat *seat)
{
    return deadlines_at(&seat->thread->times.deadlines, &seat->deadline);
}

void tunnel_times_set(struct tunnel_seat *seat, uint64_t at)
{
    struct tunnel_times *times = &seat->thread->times;

    if (at == UINT64_MAX) {
        deadlines_clear(&times->deadlines, &seat->deadline);
        return;
    }
    deadlines_set(&times->deadlines, &seat->deadline, at);
    set_timer(times);
}
