/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/asker.h"

#include "spoa/base/table/client_site.h"
#include "spoa/base/text/cidr.h"

static bool is_set(struct slice text)
{
    return slice_present(text) && text.len > 0;
}

struct asker asker_of_source(const struct address *source)
{
    return (struct asker){.kind = ASKER_SOURCE, .source = cidr_unmapped(source)};
}

struct asker asker_of_sandbox(struct slice space, struct slice sandbox)
{
    bool own = is_set(space) && !slice_is(space, "default");
    return (struct asker){
        .kind = ASKER_SANDBOX, .space = own ? space : (struct slice){NULL, 0}, .name = sandbox};
}

struct asker asker_of_org(struct slice org, struct slice space, struct slice sandbox)
{
    return is_set(org) ? (struct asker){.kind = ASKER_ORG, .name = org} : asker_of_sandbox(space, sandbox);
}

struct asker asker_of_grant(const struct grant *grant)
{
    size_t slash = slice_find(grant->sandbox, '/');
    bool named = is_set(grant->sandbox) && !slice_is(grant->sandbox, "*");
    if (!named && !is_set(grant->org))
        return (struct asker){.kind = ASKER_BEARER, .name = is_set(grant->sub) ? grant->sub : grant->kid};
    if (slash < grant->sandbox.len)
        return asker_of_org(grant->org, slice_sub(grant->sandbox, 0, slash),
                            slice_from(grant->sandbox, slash + 1));
    return asker_of_org(grant->org, (struct slice){NULL, 0}, grant->sandbox);
}

static uint64_t hash_of_source(const struct address *source, const struct hash_secret *secret)
{
    const struct address site = client_site(source, secret);
    return hash_keyed(secret, slice_of(site.bytes, sizeof site.bytes));
}

struct fair_owner asker_owner(const struct asker *asker, const struct hash_secret *secret)
{
    bool by_source = asker->kind == ASKER_SOURCE;
    const uint64_t parts[] = {
        (uint64_t)asker->kind << 8 | asker->source.family, hash_keyed(secret, asker->space),
        by_source ? hash_of_source(&asker->source, secret) : hash_keyed(secret, asker->name)};
    uint64_t hash = hash_keyed(secret, slice_of(parts, sizeof parts));
    return (struct fair_owner){.hash = hash + !hash, /* 0 means "no owner" */
                               .rank = asker->kind == ASKER_SOURCE ? FAIR_UNVERIFIED : FAIR_VERIFIED};
}
