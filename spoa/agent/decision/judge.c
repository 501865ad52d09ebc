/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/judge.h"

#include "spoa/agent/model/system.h"
#include "spoa/agent/route/path.h"
#include "spoa/agent/token/static.h"

/* ---- the caller ---- */

/* Returns whether the record says who owns the sandbox. A record without an address may only say that the sandbox moves. */
static bool says_owner(const struct record *record)
{
    bool leads = record->worker.kind != WORKER_NONE || record->ports.len > 0;
    return !record->bare && (slice_present(record->org) || leads);
}

/* Returns whether the sandbox belongs to another organisation. A tunnel belongs to the organisation under which it was opened, so it
 * ends when the sandbox gets another one. */
static bool is_foreign(const struct admission *a, const struct record *record)
{
    if (!says_owner(record) && a->named)
        return false;
    if (a->org_of_record)
        return slice_present(record->org) && slice_present(a->org) && !slice_equal(record->org, a->org);
    return !token_owns(a->org, a->named, record->org);
}

static bool holds_secret(const struct admission *a, const struct record *record)
{
    if (record->bare)
        return true; /* the directory gave only a state */
    struct record own = *record;
    own.access_sha256 = record_access(record, a->port);
    if (slice_present(a->secret))
        return slice_present(own.access_sha256) && slice_equal_constant_time(own.access_sha256, a->secret);
    return token_static_stands(a->kid, &own);
}

static void refuse_caller(struct judgement *j, enum refusal refusal, const char *why)
{
    j->caller = refusal;
    j->why = why;
}

void judge_caller(const struct decide_view *view, const struct admission *a, const struct record *record,
                  struct judgement *j)
{
    int64_t own = record->not_before, all = view->not_before;
    *j = (struct judgement){.why = "good", .owner_known = says_owner(record)};
    if (slice_present(record->sandbox))
        refuse_caller(j, REFUSAL_sandbox_not_found,
                      "the record says whose address this is, and is no sandbox");
    else if (is_foreign(a, record))
        refuse_caller(j, REFUSAL_sandbox_not_found, "the sandbox is not of the token's organisation");
    else if (slice_present(a->uid) && !(slice_present(record->uid) && slice_equal(a->uid, record->uid)))
        refuse_caller(j, REFUSAL_sandbox_not_found,
                      "the record does not say that the sandbox is the one of the token's UID");
    else if (a->by_token && token_revoked(a->iat, own > all ? own : all))
        refuse_caller(j, REFUSAL_token_revoked, "it was issued before not_before, or does not say when");
    else if (a->by_token && !holds_secret(a, record))
        refuse_caller(j, REFUSAL_token_revoked, "it is not the sandbox's access secret any more");
}

/* ---- the place ---- */

/* Returns whether the sandbox has a worker. A sandbox between two workers has none, whatever the record says of its ports. */
static bool leads_somewhere(const struct record *record)
{
    return record->state == RECORD_RUNNING ||
           (record->state == RECORD_MIGRATING && record->worker.kind != WORKER_NONE);
}

/* A route that needs `http` needs `exec` at a management address. */
static bool needs_admit(const struct admission *a, const struct destination *to)
{
    unsigned need = to->management && a->route->need == NEED_HTTP ? NEED_EXEC : a->route->need;
    return (a->needs & need) == need;
}

/* Returns true if the admission's list of ports admits the destination. A management address needs no entry in the list, because the
 * admission's `needs` limit it. A Unix socket has no port, so a list never admits it. */
static bool ports_admit(const struct admission *a, const struct destination *to)
{
    if (!slice_present(a->ports))
        return true;
    if (a->port)
        return grant_ports_have(a->ports, a->port);
    return to->management || (to->port && grant_ports_have(a->ports, to->port));
}

/* Returns whether the place is the worker's own port. A management port stands for a worker with a port of its own, wherever the worker
 * moves. */
static bool is_own_port(const struct admission *a, const struct destination *to)
{
    return to->own && (!a->port || a->port == to->worker.port);
}

/* Returns whether the listener may be software of this system. For a worker with a port of its own, only the configuration tells what it
 * runs. */
static bool may_be_of(const struct decide_view *view, const struct admission *a, enum system system,
                      const struct destination *to)
{
    unsigned systems = view->management ? view->management->systems : 0;
    uint16_t port = profile_of(system)->withheld.port;
    bool foreign = a->route->system != SYSTEM_NONE && a->route->system != system;
    if (systems && !(systems & SYSTEM_BIT(system)))
        return false;
    return a->port == port || to->port == port ||
           (systems && !foreign && to->management && is_own_port(a, to));
}

static bool is_for_host(const struct decide_view *view, const struct admission *a,
                        const struct destination *to)
{
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++)
        if (a->host_only & SYSTEM_BIT(s) && may_be_of(view, a, s, to))
            return true;
    return false;
}

unsigned judge_host_only(struct slice path)
{
    unsigned systems = 0;
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++)
        if (profile_of(s)->withheld.port && path_names(path, profile_of(s)->withheld.segments))
            systems |= SYSTEM_BIT(s);
    return systems;
}

static void refuse_place(struct judgement *j, enum refusal refusal, const char *why)
{
    j->place = refusal;
    j->why = why;
}

static bool same_secret(struct slice secret, struct slice digest)
{
    return slice_present(secret) && (!digest.len || slice_equal_constant_time(secret, digest));
}

static bool is_secret_of(const struct record *record, const struct admission *a)
{
    return slice_present(a->bearer) && (same_secret(record->access_sha256, a->bearer) ||
                                        same_secret(record_access(record, a->port), a->bearer));
}

static void judge_place(const struct decide_view *view, const struct admission *a,
                        const struct record *record, struct judgement *j)
{
    j->result = destination_choose(view, record, a->port, &j->to);
    if (j->result == DESTINATION_CLOSED)
        refuse_place(j, REFUSAL_not_granted, destination_text(j->result));
    else if (!a->route)
        refuse_place(j, REFUSAL_not_granted, "its route is gone");
    else if (j->result == DESTINATION_FOUND && a->by_token && !needs_admit(a, &j->to))
        refuse_place(j, REFUSAL_not_granted, "it does not grant what is served at this address");
    else if (j->result == DESTINATION_FOUND && a->by_token && !ports_admit(a, &j->to))
        refuse_place(j, REFUSAL_not_granted, "it is not for the port that is served there");
    else if (j->result == DESTINATION_FOUND && a->host_only && is_for_host(view, a, &j->to))
        refuse_place(j, REFUSAL_no_route, "this endpoint is for the sandbox's host alone, whoever asks");
    j->leads = j->result == DESTINATION_FOUND && j->place == REFUSAL_NONE;
    j->follows = is_own_port(a, &j->to);
}

void judge(const struct decide_view *view, const struct admission *a, const struct record *record,
           struct judgement *j)
{
    judge_caller(view, a, record, j);
    if (j->caller != REFUSAL_NONE)
        return;
    j->withhold = is_secret_of(record, a);
    if (record->state == RECORD_STOPPED)
        refuse_place(j, REFUSAL_sandbox_stopped, "the sandbox has been stopped");
    else if (!leads_somewhere(record))
        j->waits = true;
    else
        judge_place(view, a, record, j);
}

bool judge_org(const struct route *route, struct slice org)
{
    for (size_t i = 0; i < route->orgs.count; i++)
        if (slice_present(org) && (slice_is(org, route->orgs.at[i]) || strcmp(route->orgs.at[i], "*") == 0))
            return true;
    return false;
}

bool judge_wants_bearer(const struct record *record, uint16_t port)
{
    return slice_present(record->access_sha256) || slice_present(record_access(record, port));
}
