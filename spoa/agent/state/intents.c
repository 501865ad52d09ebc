/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/intents.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json_write.h"
#include "spoa/base/table/hash.h"

/* The time at which each sandbox was last noted: sets of slots, each half a hash and half a time in units of 64 ms. A sandbox that is
 * evicted from its set is noted again too early, which readers of intents tolerate. */
enum { SETS = 1 << 15, WAYS = 4, TICK = 64000 };

struct noted {
    uint64_t at;
    int64_t port;
    uint16_t sandbox, path; /* lengths in bytes */
    char text[INTENTS_KEY_MOST + INTENTS_PATH_MOST];
};

struct intents {
    int32_t every; /* in ticks */
    struct hash_secret secret;
    _Atomic uint64_t seen[SETS][WAYS];

    pthread_mutex_t lock; /* guards the members below */
    size_t room, first, count;
    uint64_t lost;
    struct noted noted[];
};

struct intents *intents_new(uint64_t every, size_t room)
{
    struct intents *i = calloc(1, sizeof *i + room * sizeof i->noted[0]);
    if (!i || !hash_secret_init(&i->secret)) {
        free(i);
        return NULL;
    }
    i->every = (int32_t)(every / TICK);
    i->room = room;
    pthread_mutex_init(&i->lock, NULL);
    return i;
}

void intents_free(struct intents *i)
{
    if (!i)
        return;
    pthread_mutex_destroy(&i->lock);
    free(i);
}

/* ---- how often ---- */

/* Returns the age in ticks; negative if another thread read the clock later. */
static int32_t ticks_since(uint64_t slot, uint32_t tick)
{
    return (int32_t)(tick - (uint32_t)slot);
}

/* Returns whether the sandbox must be noted. If several threads ask at once, only one gets true. */
static bool is_due(struct intents *i, struct slice key, uint64_t now)
{
    uint64_t hash = hash_keyed(&i->secret, key);
    _Atomic uint64_t *set = i->seen[hash % SETS];
    size_t chosen = WAYS;
    uint32_t tick = (uint32_t)(now / TICK) | 1u; /* must not be 0, which marks an empty slot */
    uint64_t old = 0;
    for (size_t way = 0; way < WAYS; way++) {
        uint64_t value = atomic_load_explicit(&set[way], memory_order_relaxed);
        bool same = value && value >> 32 == hash >> 32;
        int32_t age = ticks_since(value, tick);
        if (same && age < i->every)
            return false;
        if (same || chosen == WAYS || (old && (!value || age > ticks_since(old, tick)))) {
            chosen = way;
            old = value;
        }
        if (same)
            break;
    }
    return atomic_compare_exchange_strong(&set[chosen], &old, hash >> 32 << 32 | tick);
}

/* ---- queue ---- */

static void keep_intent(struct noted *n, const struct intent *intent, uint64_t now)
{
    struct slice path = intent->path.len <= INTENTS_PATH_MOST ? intent->path : slice_text(NULL);
    n->at = now;
    n->port = intent->port;
    n->sandbox = (uint16_t)intent->sandbox.len;
    n->path = (uint16_t)path.len;
    memcpy(n->text, intent->sandbox.at, n->sandbox);
    if (n->path)
        memcpy(n->text + n->sandbox, path.at, n->path);
}

bool intents_note(struct intents *i, const struct intent *intent, uint64_t now)
{
    uint8_t memory[INTENTS_KEY_MOST];
    struct writer key = writer_of(memory, sizeof memory);
    writer_put(&key, intent->space);
    writer_u8(&key, '/');
    writer_put(&key, intent->sandbox);
    if (key.full || !is_due(i, writer_slice(&key), now))
        return false;
    pthread_mutex_lock(&i->lock);
    bool first = i->count == 0;
    if (i->count < i->room)
        keep_intent(&i->noted[(i->first + i->count++) % i->room], intent, now);
    else
        i->lost++;
    pthread_mutex_unlock(&i->lock);
    return first;
}

/* ---- taking ---- */

static bool put_intent(const struct noted *n, uint64_t now, int64_t unix_now, struct buffer *to)
{
    int64_t at = unix_now - (int64_t)((now - n->at) / 1000);
    time_t seconds = (time_t)(at / 1000);
    struct tm when;
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &when));
    bool good = json_write(to, "{\"sandbox_id\":") && json_write_text(to, slice_of(n->text, n->sandbox)) &&
                json_write(to, ",\"observed_at\":\"%s.%03dZ\"", stamp, (int)(at % 1000));
    if (n->port > 0)
        good = good && json_write(to, ",\"port\":%d", (int)n->port);
    if (n->path)
        good = good && json_write(to, ",\"request_uri\":") &&
               json_write_text(to, slice_of(n->text + n->sandbox, n->path));
    return good && json_write(to, "}");
}

bool intents_take(struct intents *i, uint64_t since, uint64_t now, int64_t unix_now, struct buffer *to)
{
    bool taken = false;
    pthread_mutex_lock(&i->lock);
    while (i->count && !taken) {
        const struct noted *n = &i->noted[i->first];
        taken = n->at >= since && put_intent(n, now, unix_now, to);
        i->lost += !taken;
        i->first = (i->first + 1) % i->room;
        i->count--;
    }
    pthread_mutex_unlock(&i->lock);
    return taken;
}

uint64_t intents_lost(struct intents *i)
{
    pthread_mutex_lock(&i->lock);
    uint64_t lost = i->lost;
    i->lost = 0;
    pthread_mutex_unlock(&i->lock);
    return lost;
}
