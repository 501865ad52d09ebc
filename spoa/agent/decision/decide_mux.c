/* SPDX-License-Identifier: MIT */
/* decide_mux: finds the opener of a WebSocket with many requests. This grants nothing, because each request is decided by itself. But
 * the socket's share of the relay is charged to the organisation or the sandbox of its token. So clients without a token, who may be
 * anyone and many, cannot use up the shares of others. */
#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/token/tokens.h"

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
