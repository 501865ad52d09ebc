/* SPDX-License-Identifier: MIT */
/* decide_record: finds the record of a decision's sandbox, and checks the caller and the sandbox's state. */
#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/token/static.h"

static const struct slice nothing;

bool decide_without_address(struct decision *d, const char *why)
{
    decide_tell(d, "worker", why, nothing);
    d->verdict->kind = VERDICT_RELAY;
    return true;
}

/* Returns whether the token names the sandbox. Otherwise only the record's organisation shows whether the token is valid here. */
static bool is_named(const struct decision *d)
{
    return !d->granted || (slice_present(d->grant.sandbox) && !slice_is(d->grant.sandbox, "*"));
}

/* Decides without an answer of the directory. The relay can wait for one. */
static bool without_record(struct decision *d, enum lookup lookup)
{
    d->pending = lookup == LOOKUP_PENDING;
    if (d->granted && token_revoked(d->grant.iat, d->view->not_before))
        return decide_deny(d, REFUSAL_token_revoked, "token",
                           "it was issued before the directory's `not_before`");
    if (d->pending && is_named(d) && d->route->via == ROUTE_RELAY)
        return decide_without_address(d, "the directory has not answered yet: the relay waits for it");
    return decide_deny(d, REFUSAL_directory_unavailable, "record", "the directory cannot say");
}

struct slice decide_bearer_digest(struct decision *d)
{
    size_t start = d->scratch->len;
    if (!token_static_digest(bearer_token(d->request), d->scratch) || d->scratch->full)
        return SLICE_LITERAL("");
    return slice_of(d->scratch->at + start, d->scratch->len - start);
}

static struct admission admission_of(struct decision *d)
{
    struct admission a = {.route = d->route,
                          .named = is_named(d),
                          .host_only = judge_host_only(d->verdict->path),
                          .port = d->port};
    if (d->foreign_auth && slice_present(bearer_token(d->request)) && judge_wants_bearer(&d->record, d->port))
        a.bearer = decide_bearer_digest(d);
    if (!d->granted)
        return a;
    a.org = d->grant.org;
    a.iat = d->grant.iat;
    a.kid = slice_present(d->grant.key) ? nothing : d->grant.kid;
    a.secret = d->grant.secret_sha256;
    a.uid = d->grant.uid;
    a.needs = slice_present(d->grant.file)
                  ? NEED_ALL
                  : d->grant.needs; /* the token's file limits it more exactly than needs */
    a.ports = d->grant.ports;
    a.by_token = true;
    return a;
}

/* Checks the caller of a service that relies on cellgate's checks. In an open cell no caller has an organisation, so `orgs` admits none:
 * the credentials that cellgate adds for the service belong to nobody there. */
static bool check_service(struct decision *d)
{
    if (d->granted && token_revoked(d->grant.iat, d->view->not_before))
        return decide_deny(d, REFUSAL_token_revoked, "token",
                           "it was issued before the directory's `not_before`");
    return !d->route->need || judge_org(d->route, d->granted ? d->grant.org : nothing) ||
           decide_deny(d, REFUSAL_not_granted, "token",
                       "the route's `orgs` does not have the token's organisation");
}

bool decide_record(struct decision *d)
{
    if (d->route->mux)
        return decide_without_address(
            d, "the relay takes requests out of its messages, each of which is decided");
    if (d->route->service)
        return check_service(d);
    enum lookup lookup = decide_look_up(
        d, !is_named(
               d)); /* a caller who may not know of the sandbox must not learn of it from the time either */
    if (lookup == LOOKUP_ABSENT)
        return decide_deny(d, REFUSAL_sandbox_not_found, "record", "the directory has no such sandbox");
    if (lookup != LOOKUP_FOUND)
        return without_record(d, lookup);
    d->found = true;
    const struct admission admission = admission_of(d);
    judge(d->view, &admission, &d->record, &d->judgement);
    return d->judgement.caller == REFUSAL_NONE ||
           decide_deny(d, d->judgement.caller, "record", d->judgement.why);
}

static bool relay_waits(struct decision *d, enum refusal otherwise, const char *why)
{
    return d->route->via == ROUTE_RELAY ? decide_without_address(d, why)
                                        : decide_deny(d, otherwise, "record", why);
}

/* Returns whether the sandbox can be woken. The asker may be better known now than when the record was looked up. */
static bool may_wake(const struct decision *d)
{
    const struct asker asker = decide_asker(d);
    decide_asks(d->view, &asker);
    return d->view->wake != NULL;
}

bool decide_state(struct decision *d)
{
    if (!d->found)
        return true;
    if (!slice_present(d->verdict->org) || d->verdict->org.len == 0)
        d->verdict->org = d->record.org;
    bool compared = !d->record.bare || !d->granted || !slice_present(d->grant.org);
    if (compared) /* otherwise resolve() compares the owner later, when it is known */
        d->verdict->epoch = record_epoch(&d->record);
    switch (d->record.state) {
    case RECORD_STOPPED:
        return decide_deny(d, REFUSAL_sandbox_stopped, "record", "the sandbox has been stopped");
    case RECORD_SUSPENDED:
        if (may_wake(d) && d->view->wake(d->view->directory, d->space, d->sandbox))
            return relay_waits(d, REFUSAL_sandbox_waking, "the sandbox is suspended and is being woken");
        d->asleep = true;
        return decide_deny(d, REFUSAL_sandbox_waking, "record",
                           "the sandbox is suspended and nobody here can wake it");
    case RECORD_WAKING:
        return relay_waits(d, REFUSAL_sandbox_waking, "the sandbox is waking up");
    case RECORD_MIGRATING:
        if (d->record.worker.kind == WORKER_NONE)
            return relay_waits(d, REFUSAL_sandbox_migrating, "the sandbox is between two workers");
        break;
    case RECORD_RUNNING:
        break;
    }
    decide_tell(d, "record", "found, and a worker serves it", nothing);
    return true;
}
