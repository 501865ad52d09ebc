/* SPDX-License-Identifier: MIT */
#include "spoa/agent/snapshot.h"

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
    if (parts->names)
        name_table_retain(parts->names);
    return s;
}

struct snapshot *snapshot_retain(struct snapshot *s)
{
    __atomic_fetch_add(&s->references, 1, __ATOMIC_RELAXED);
    return s;
}

void snapshot_release(struct snapshot *s)
{
    if (!s || __atomic_sub_fetch(&s->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    policy_release(s->parts.policy);
    records_release(s->parts.records);
    name_table_release(s->parts.names);
    free(s);
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    const struct records *records = ((const struct snapshot *)directory)->parts.records;
    return records ? records_find(records, space, sandbox, record) : LOOKUP_UNAVAILABLE;
}

static bool resolve(void *directory, struct slice host, struct address *addr)
{
    const struct snapshot *s = directory;
    return name_table_find(s->parts.names, host, addr);
}

static bool allowed(const void *networks, const struct address *addr)
{
    return settings_worker_allowed(networks, addr);
}

struct decide_view snapshot_view(const struct snapshot *s, struct token_cache *cache, int64_t now)
{
    const struct policy *policy = s->parts.policy;
    return (struct decide_view){
        .routes = policy->routes,
        .tokens = policy->tokens,
        .open = policy->settings->open,
        .cache = cache,
        .not_before = s->parts.not_before,
        .now = now,
        .allowed = allowed,
        .networks = policy->settings,
        .find = find,
        .resolve = resolve,
        .directory = (void *)s,
    };
}
