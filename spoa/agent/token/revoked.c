/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/revoked.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/agent/model/grant.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/table/references.h"

#define TIME_MOST ((uint64_t)1 << 53)

/* `first` is stored last: a reader that sees it sees the other members. 0 means that the slot is empty. */
struct slot {
    _Atomic uint64_t first;
    uint64_t second;
    _Atomic int64_t until;
};

struct revoked {
    atomic_uint references;
    struct hash_secret secrets[2];
    atomic_size_t count;
    size_t most, mask; /* at most half of the slots are used */
    struct slot slots[];
};

struct name {
    uint64_t first, second;
};

static struct name name_of(const struct revoked *r, struct slice jti)
{
    struct name name = {hash_keyed(&r->secrets[0], jti), hash_keyed(&r->secrets[1], jti)};
    name.first += name.first == 0;
    return name;
}

/* Returns the slot of that name, or the empty one in which it would be. */
static struct slot *slot_of(const struct revoked *r, struct name name)
{
    for (size_t i = name.first & r->mask;; i = (i + 1) & r->mask) {
        const struct slot *slot = &r->slots[i];
        uint64_t first = atomic_load_explicit(&slot->first, memory_order_acquire);
        if (first == 0 || (first == name.first && slot->second == name.second))
            return (struct slot *)slot;
    }
}

static bool put_revoked(struct revoked *r, struct name name, int64_t until)
{
    struct slot *slot = slot_of(r, name);
    if (atomic_load_explicit(&slot->first, memory_order_relaxed)) {
        if (until > atomic_load_explicit(&slot->until, memory_order_relaxed))
            atomic_store_explicit(&slot->until, until, memory_order_relaxed);
        return true;
    }
    size_t count = atomic_load_explicit(&r->count, memory_order_relaxed);
    if (count >= r->most)
        return false;
    slot->second = name.second;
    atomic_store_explicit(&slot->until, until, memory_order_relaxed);
    atomic_store_explicit(&slot->first, name.first, memory_order_release);
    atomic_store_explicit(&r->count, count + 1, memory_order_relaxed);
    return true;
}

static bool is_over(const struct slot *slot, int64_t now)
{
    int64_t until = atomic_load_explicit(&slot->until, memory_order_relaxed);
    return until < now - REVOKED_GRACE;
}

static size_t count_unexpired(const struct revoked *old, int64_t now)
{
    size_t count = 0;
    for (size_t i = 0; old && i <= old->mask; i++)
        count +=
            atomic_load_explicit(&old->slots[i].first, memory_order_relaxed) && !is_over(&old->slots[i], now);
    return count;
}

struct revoked *revoked_new(const struct revoked *old, size_t more, int64_t now, struct fail *why)
{
    size_t kept = count_unexpired(old, now), most = 16;
    if (more > REVOKED_MOST || kept + more > REVOKED_MOST) {
        fail(why, "over %d revoked tokens", REVOKED_MOST);
        return NULL;
    }
    while (most < kept + more)
        most *= 2;
    struct revoked *r = calloc(1, sizeof *r + 2 * most * sizeof *r->slots);
    if (!r || !hash_secret_init(&r->secrets[0]) || !hash_secret_init(&r->secrets[1])) {
        free(r);
        fail(why, "out of memory");
        return NULL;
    }
    if (old) {
        r->secrets[0] = old->secrets[0];
        r->secrets[1] = old->secrets[1];
    }
    r->references = 1;
    r->most = most;
    r->mask = 2 * most - 1;
    for (size_t i = 0; old && i <= old->mask; i++) {
        const struct slot *slot = &old->slots[i];
        struct name name = {atomic_load_explicit(&slot->first, memory_order_relaxed), slot->second};
        if (name.first && !is_over(slot, now))
            put_revoked(r, name, atomic_load_explicit(&slot->until, memory_order_relaxed));
    }
    return r;
}

struct revoked *revoked_retain(struct revoked *r)
{
    references_add(&r->references);
    return r;
}

void revoked_release(struct revoked *r)
{
    if (r && references_drop(&r->references))
        free(r);
}

bool revoked_add(struct revoked *r, struct slice jti, int64_t until)
{
    return put_revoked(r, name_of(r, jti), until);
}

bool revoked_has(const struct revoked *r, struct slice jti)
{
    if (!r || !slice_present(jti) || revoked_count(r) == 0)
        return false;
    return atomic_load_explicit(&slot_of(r, name_of(r, jti))->first, memory_order_relaxed) != 0;
}

size_t revoked_count(const struct revoked *r)
{
    return r ? atomic_load_explicit(&r->count, memory_order_relaxed) : 0;
}

/* ---- texts ---- */

struct reading {
    const char *name;
    int64_t now;
    struct revoked **revoked;
    int64_t *not_before;
    size_t entry; /* number of the current entry, from 1 */
    size_t *over;
};

static bool read_time(const struct reading *r, struct slice value, const char *what, int64_t *seconds,
                      struct fail *why)
{
    uint64_t number;
    if (!slice_u64(slice_trim(value), TIME_MOST, &number))
        return fail(why, "%s: %s is a time in Unix seconds", r->name, what);
    *seconds = (int64_t)number;
    return true;
}

/* Replaces the list by a larger copy. Other threads may use the old one, so it must not change. */
static bool grow(struct reading *r, struct fail *why)
{
    struct revoked *old = *r->revoked,
                   *wide = revoked_new(old, old ? revoked_count(old) + 1 : 16, r->now, why);
    if (!wide && old) /* with less spare room, near the limit */
        wide = revoked_new(old, 1, r->now, why);
    if (!wide)
        return false;
    revoked_release(old);
    *r->revoked = wide;
    return true;
}

static bool read_token(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct reading *r = context;
    int64_t until = 0;
    r->entry++;
    if (key.len == 0)
        return fail(why, "%s: revoked: entry %zu: an empty jti", r->name, r->entry);
    if (key.len > GRANT_JTI_MOST)
        return fail(why, "%s: revoked: entry %zu: a jti of over %d bytes", r->name, r->entry, GRANT_JTI_MOST);
    if (!read_time(r, value, "revoked: the value of a jti", &until, why))
        return false;
    if (until < r->now - REVOKED_GRACE) {
        *r->over += 1;
        return true;
    }
    if ((*r->revoked && revoked_add(*r->revoked, key, until)))
        return true;
    if (!grow(r, why))
        return false;
    return revoked_add(*r->revoked, key, until) || fail(why, "out of memory");
}

static bool read_other(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct reading *r = context;
    if (!r->not_before)
        return fail(why, "%s: beside revoked nothing else may stand here", r->name);
    return !slice_is(key, "not_before") || /* ignore keys of later versions */
           read_time(r, value, "not_before", r->not_before, why);
}

bool revoked_read(struct slice text, const char *name, int64_t now, struct revoked **revoked,
                  int64_t *not_before, size_t *over, struct fail *why)
{
    size_t uncounted = 0;
    struct reading r = {.name = name,
                        .now = now,
                        .revoked = revoked,
                        .not_before = not_before,
                        .over = over ? over : &uncounted};
    const struct json_stream stream = {read_token, read_other, &r};
    if (text.len > REVOKED_BYTES)
        return fail(why, "%s: over %d bytes", name, REVOKED_BYTES);
    return json_stream_object(text, name, "revoked", 0, 3, &stream, why);
}

bool revoked_read_object(struct slice object, const char *name, int64_t now, struct revoked **revoked,
                         size_t *over, struct fail *why)
{
    struct buffer text = buffer_with_limit(REVOKED_BYTES);
    bool good = buffer_put(&text, SLICE_LITERAL("{\"revoked\":")) && buffer_put(&text, object) &&
                buffer_put(&text, SLICE_LITERAL("}"));
    good = good ? revoked_read(buffer_slice(&text), name, now, revoked, NULL, over, why)
                : fail(why, "%s: revoked: over %d bytes, or out of memory", name, REVOKED_BYTES);
    buffer_free(&text);
    return good;
}
