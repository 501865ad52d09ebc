/* SPDX-License-Identifier: MIT */
/* decide_mux: finds the opener of a WebSocket with many requests. This grants nothing, because each request is decided by itself. But
 * the socket's share of the relay is charged to the organisation or the sandbox of its token. So clients without a token, who may be
 * anyone and many, cannot use up the shares of others. */
#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/token/mux_proof.h"
#include "spoa/agent/token/tokens.h"

enum { LATE = 60 }; /* seconds that the relay may end a socket too late, and clocks may differ */

/* Returns the meaning of Authorization: one that is the application's own does not identify the opener. */
static enum bearer_use use_of_bearer(const struct decision *d, const struct credential_place *place)
{
    const struct decide_view *view = d->view;
    struct slice bearer = bearer_token(d->request);
    bool foreign =
        slice_present(bearer) && !token_is_ours(view->tokens, bearer, place, view->now, view->cache);
    return foreign ? BEARER_FOREIGN : BEARER_DECIDES;
}

static bool find(struct decision *d)
{
    const struct decide_view *view = d->view;
    const struct credential_place place = {
        .route = d->route->name, .system = d->route->system, .host = d->host, .by_host = d->route->by_host};
    const struct credential_rules rules = {.listening = tokens_sources(view->tokens, &place),
                                           .bearer = use_of_bearer(d, &place),
                                           .captures = &d->match.captures,
                                           .own = tokens_own(view->tokens)};
    d->opener = (struct carried){.query = d->request->query};
    bool found = credential_find(d->request, &rules, d->scratch, &d->opener) == REFUSAL_NONE;
    d->opener.credential.place = place;
    return found && d->opener.credential.source != SOURCE_NONE;
}

/* Returns whether the token identifies the opener. A secret that only a sandbox's record can confirm does not. */
static bool is_good(struct decision *d, enum refusal refusal)
{
    return refusal == REFUSAL_NONE && !token_needs_secret(&d->grant) &&
           !decide_revoked(d->view, d->grant.jti) && !token_revoked(d->grant.iat, d->view->not_before);
}

void decide_mux_opener(struct decision *d)
{
    const struct decide_view *view = d->view;
    const char *why;
    if (view->open || !view->tokens || !find(d))
        return;
    enum refusal refusal =
        token_check(view->tokens, &d->opener.credential, view->now, view->cache, &d->grant, &why);
    d->opened = is_good(d, auth_failure_limiter_judge(view->limiter, &d->request->source, AUTH_FAILURE_TOKEN,
                                                      view->now, view->auth_failures_most, refusal, &why));
    if (!d->opened)
        d->grant = (struct grant){.kind = NULL};
}

struct slice decide_mux_proof(struct decision *d)
{
    int64_t age = d->route->max_age, until = age ? d->view->now + age / 1000 + LATE : -1;
    return mux_proof_write(d->view->ticket_key, &d->request->source, until, d->scratch);
}

/* The relay says from which address a request comes, and whoever has the relay's rights can connect as it does. An address without
 * its proof is not counted against, and stands in no log. */
bool decide_mux_source(struct decision *d)
{
    const struct request *r = d->request;
    d->proven_until = -1;
    if (!r->mux)
        return true;
    bool good = mux_proof_read(d->view->ticket_key, r->proof, &r->source, &d->proven_until) &&
                (d->proven_until < 0 || d->view->now <= d->proven_until);
    if (good)
        return true;
    d->verdict->source = (struct address){.family = 0};
    return decide_deny(d, REFUSAL_agent_unavailable, "request",
                       "nobody proves that the client of this mux socket has this address");
}
