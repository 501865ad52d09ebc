/* SPDX-License-Identifier: MIT */
#include "spoa/agent/snapshot.h"

#include <stdlib.h>

struct snapshot *snapshot_new(const struct snapshot *parts)
{
    struct snapshot *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = *parts;
    s->references = 1;
    policy_retain(s->policy);
    if (s->records)
        records_retain(s->records);
    if (s->names)
        name_table_retain(s->names);
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
    policy_release(s->policy);
    records_release(s->records);
    name_table_release(s->names);
    free(s);
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    const struct snapshot *s = directory;
    return s->records ? records_find(s->records, space, sandbox, record) : LOOKUP_UNAVAILABLE;
}

static bool resolve(void *directory, struct slice host, struct address *addr)
{
    const struct snapshot *s = directory;
    return name_table_find(s->names, host, addr);
}

static bool allowed(const void *networks, const struct address *addr)
{
    return settings_worker_allowed(networks, addr);
}

struct decide_view snapshot_view(const struct snapshot *s, struct token_cache *cache, int64_t now)
{
    const struct settings *settings = s->policy->settings;
    return (struct decide_view){
        .routes = s->policy->routes,
        .tokens = s->policy->tokens,
        .open = settings->open,
        .cache = cache,
        .not_before = s->not_before,
        .now = now,
        .allowed = allowed,
        .networks = settings,
        .find = find,
        .resolve = resolve,
        .directory = (void *)(uintptr_t)s,
    };
}
