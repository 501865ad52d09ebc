/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/snapshot.h"

#include <stdlib.h>

struct snapshot *snapshot_new(const struct snapshot_parts *parts)
{
    struct snapshot *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (struct snapshot){.parts = *parts, .references = 1};
    policy_retain(parts->policy);
    if (parts->records)
        records_retain(parts->records);
    if (parts->directory)
        directory_retain(parts->directory);
    if (parts->names)
        name_table_retain(parts->names);
    if (parts->revoked)
        revoked_retain(parts->revoked);
    return s;
}

struct snapshot *snapshot_retain(struct snapshot *s)
{
    references_add(&s->references);
    return s;
}

void snapshot_release(struct snapshot *s)
{
    if (!s || !references_drop(&s->references))
        return;
    policy_release(s->parts.policy);
    records_release(s->parts.records);
    directory_release(s->parts.directory);
    name_table_release(s->parts.names);
    revoked_release(s->parts.revoked);
    free(s);
}

struct slice snapshot_key(struct slice space, struct slice sandbox, uint8_t memory[256])
{
    struct writer w = writer_of(memory, 255);
    if (slice_present(space) && !slice_is(space, "default")) {
        writer_put(&w, space);
        writer_u8(&w, '/');
    }
    writer_put(&w, sandbox);
    return w.full ? slice_of(memory, 0) : writer_slice(&w);
}

static void look_up(struct snapshot_finder *f, struct directory_cache *cache, struct slice key, bool alike)
{
    if (key.len)
        memcpy(f->key, key.at, key.len);
    f->len = key.len;
    f->alike = alike;
    shared_record_release(f->held);
    f->found = alike ? directory_cache_find_alike(cache, key, f->last, f->waiter, f->owner, &f->held)
                     : directory_cache_find(cache, key, f->last, f->waiter, f->owner, &f->held);
}

static void snapshot_asks(void *directory, const struct asker *asker)
{
    struct snapshot_finder *f = directory;
    if (f->owners)
        f->owner = asker_owner(asker, f->owners);
}

bool snapshot_finds(const struct snapshot *s, struct snapshot_finder *f, struct slice key, bool alike,
                    const struct shared_record *record)
{
    look_up(f, directory_cache(s->parts.directory), key, alike);
    f->ahead = true;
    return f->found == LOOKUP_FOUND && f->held == record;
}

static enum lookup find_by(struct snapshot_finder *f, struct slice space, struct slice sandbox, bool alike,
                           struct record *record)
{
    const struct snapshot_parts *parts = &f->snapshot->parts;
    uint8_t memory[256];
    if (!parts->directory || !directory_cache(parts->directory))
        return parts->records ? records_find(parts->records, space, sandbox, record) : LOOKUP_UNAVAILABLE;
    struct slice key = snapshot_key(space, sandbox, memory);
    bool ahead = f->ahead && f->alike == alike && slice_equal(key, slice_of(f->key, f->len));
    f->ahead = false;
    f->look_ups++;
    if (!ahead)
        look_up(f, directory_cache(parts->directory), key, alike);
    if (f->found == LOOKUP_FOUND)
        *record = f->held->record;
    return f->found;
}

static enum lookup snapshot_find(void *directory, struct slice space, struct slice sandbox,
                                 struct record *record)
{
    return find_by(directory, space, sandbox, false, record);
}

static enum lookup snapshot_find_alike(void *directory, struct slice space, struct slice sandbox,
                                       struct record *record)
{
    return find_by(directory, space, sandbox, true, record);
}

static bool wake(void *directory, struct slice space, struct slice sandbox)
{
    const struct snapshot_finder *f = directory;
    struct directory *running = f->snapshot->parts.directory;
    uint8_t memory[256];
    if (!running || !directory_can_wake(running))
        return false;
    if (f->wakes)
        directory_wake(running, snapshot_key(space, sandbox, memory), f->owner);
    return true;
}

void snapshot_finder_done(struct snapshot_finder *f)
{
    shared_record_release(f->held);
    f->held = NULL;
}

static bool snapshot_resolve(void *directory, struct slice host, struct address *addr)
{
    const struct snapshot_finder *f = directory;
    const struct snapshot_parts *parts = &f->snapshot->parts;
    bool found = name_table_find(parts->names, host, addr);
    if (!found && parts->resolver && f->held)
        names_use(parts->resolver, host,
                  f->owner); /* the record has been in the cache for longer than names are kept */
    return found;
}

struct slice snapshot_host_key(struct slice host, uint8_t memory[256])
{
    struct writer w = writer_of(memory, 255);
    writer_u8(&w, ':');
    writer_put(&w, host);
    return w.full ? slice_of(memory, 0) : writer_slice(&w);
}

bool snapshot_is_host_key(struct slice key)
{
    return slice_starts(key, ":");
}

_Static_assert((int)DNS_ADDRESSES == (int)EGRESS_ADDRESSES, "what is found is checked");

static enum lookup snapshot_addresses(void *directory, struct slice space, struct slice sandbox,
                                      struct slice host, struct address *addresses, size_t *count)
{
    struct snapshot_finder *f = directory;
    struct host_cache *hosts = f->snapshot->parts.hosts;
    if (!hosts)
        return LOOKUP_UNAVAILABLE;
    uint8_t key[256];
    const struct host_cache_asker asker = {.sandbox = snapshot_key(space, sandbox, key),
                                           .owner = f->owner,
                                           .waiter = f->waiter,
                                           .last = f->last};
    f->len = snapshot_host_key(host, f->key).len;
    return host_cache_find(hosts, host, &asker, addresses, count);
}

static bool allowed(const void *networks, const struct address *addr)
{
    return settings_worker_allowed(networks, addr);
}

static bool socket_allowed(const void *networks, struct slice path)
{
    return settings_socket_folder(networks, path) != NULL;
}

struct decide_view snapshot_view(const struct snapshot *s, struct snapshot_finder *finder,
                                 struct token_cache *cache, int64_t now)
{
    finder->snapshot = s;
    const struct policy *policy = s->parts.policy;
    return (struct decide_view){
        .routes = policy->routes,
        .management = &policy->management,
        .tokens = policy->tokens,
        .open = policy->settings->open,
        .cache = cache,
        .auth_failures_most = policy->settings->agent.auth_failures,
        .not_before = s->parts.not_before,
        .revoked = {s->parts.revoked, policy->revoked},
        .now = now,
        .allowed = allowed,
        .socket_allowed = socket_allowed,
        .networks = policy->settings,
        .asks = snapshot_asks,
        .find = snapshot_find,
        .find_alike = snapshot_find_alike,
        .resolve = snapshot_resolve,
        .wake = wake,
        .egress = policy->egress,
        .addresses = snapshot_addresses,
        .directory = finder,
    };
}
