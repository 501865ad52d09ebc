/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/decide.h"

#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/decision/upgrade.h"
#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/route/path.h"
#include "spoa/agent/token/static.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/text/base64url.h"
#include "spoa/proto/http.h"

/* A longer name is invalid: names are keys of a directory and parts of DNS names, which cannot be longer. */
enum { NAME_MOST = 253 };

void decide_tell(const struct decision *d, const char *step, const char *text, struct slice detail)
{
    if (d->view->trace)
        d->view->trace->step(d->view->trace->context, step, text, detail);
}

static const struct slice nothing;

bool decide_deny(struct decision *d, enum refusal refusal, const char *step, const char *why)
{
    struct verdict *v = d->verdict;
    decide_tell(d, step, why, nothing);
    verdict_deny(v, refusal);
    if (d->route && d->upgrade && d->route->refuse == ROUTE_REFUSE_CLOSE) {
        v->kind = VERDICT_RELAY;
        v->path = d->request->path;
    }
    return false;
}

/* ---- the request itself ---- */

/* Returns the defect of Host, or NULL. Only a request in HTTP/1.0 may have no Host. */
static const char *host_defect(struct decision *d)
{
    const struct request *r = d->request;
    if (r->hosts > 1)
        return "there are several Host headers";
    if (r->hosts == 0 || !slice_present(r->host))
        return slice_is(r->version, "1.0") ? NULL : "Host is missing";
    return authority_parse(r->host, &d->authority) ? NULL : "Host is malformed";
}

static bool version_known(struct slice version)
{
    return slice_is(version, "1.1") || slice_is(version, "2.0") || slice_is(version, "1.0") ||
           slice_is(version, "3.0");
}

static bool check_request(struct decision *d)
{
    const struct request *r = d->request;
    const char *why = host_defect(d);
    if (slice_is(r->method, "CONNECT") || slice_is(r->method, "TRACE") || r->method.len == 0)
        return decide_deny(d, REFUSAL_method_not_allowed, "request", "this method is served nowhere");
    if (!version_known(r->version))
        why = "the version of HTTP is not known";
    else if (!path_valid(r->path))
        why = "the path is malformed";
    else if (!http_is_target_part(r->query))
        why = "the query is malformed";
    else if (r->origins > 1)
        why = "there are several Origin headers";
    else if (r->cookies > 1) /* another site of the parent domain could have added one of them */
        why = "there are several __Host-cellgate cookies";
    return !why || decide_deny(d, REFUSAL_bad_request, "request", why);
}

static bool check_upgrade(struct decision *d)
{
    const char *why;
    d->upgrade = d->verdict->upgrade = upgrade_claimed(d->request);
    enum refusal refusal =
        d->upgrade ? upgrade_judge(d->request, &why) : upgrade_connection(d->request, &why);
    if (refusal != REFUSAL_NONE)
        return decide_deny(d, refusal, "upgrade", why);
    decide_tell(d, "upgrade", d->upgrade ? "a WebSocket upgrade as it should be" : "a plain request",
                nothing);
    return true;
}

/* Returns the host's name in lower case and without its last dot; copies it only if it changes. */
static struct slice host_name(struct decision *d)
{
    struct slice host = d->authority.host;
    bool upper = false;
    if (host.len && host.at[host.len - 1] == '.')
        host.len--;
    for (size_t i = 0; i < host.len; i++)
        upper = upper || (host.at[i] >= 'A' && host.at[i] <= 'Z');
    if (!upper)
        return host;
    struct slice copy = slice_of(d->scratch->at + d->scratch->len, host.len);
    for (size_t i = 0; i < host.len; i++)
        writer_u8(d->scratch,
                  (uint8_t)(host.at[i] >= 'A' && host.at[i] <= 'Z' ? host.at[i] | 0x20 : host.at[i]));
    return d->scratch->full ? nothing : copy;
}

/* Refuses a request with a header that the configuration names as a credential or an address, unless HAProxy removes it: no worker may
 * see it. */
static bool check_removed(struct decision *d)
{
    const struct decide_view *view = d->view;
    const char *left = view->tokens ? own_headers_left(&tokens_own(view->tokens)->headers, d->request) : NULL;
    left = left ? left : own_headers_left(routes_own_headers(view->routes), d->request);
    if (!left)
        return true;
    d->verdict->left = slice_text(left);
    return decide_deny(d, REFUSAL_agent_unavailable, "request",
                       "HAProxy does not remove a header that the configuration names: `cellgate headers`");
}

static bool find_route(struct decision *d)
{
    const struct decide_trace *trace = d->view->trace;
    d->host = host_name(d);
    if (!route_match(d->view->routes, d->request, d->upgrade, d->host, &d->match,
                     trace ? &trace->routes : NULL))
        return decide_deny(d, REFUSAL_no_route, "route", "no route matches");
    d->verdict->route = slice_text(d->match.route->name);
    d->verdict->route_label = d->match.route->label;
    d->route = d->match.route;
    d->verdict->need = d->route->need;
    d->verdict->vary = d->route->cors.count > 0;
    if (d->match.climbs)
        return decide_deny(d, REFUSAL_bad_request, "route", "a dot segment climbs above the captured part");
    return true;
}

/* ---- captures ---- */

/* Returns a capture with unreserved characters decoded. */
static struct slice capture_text(struct decision *d, enum capture capture)
{
    struct slice raw = d->match.captures.value[capture];
    if (slice_find(raw, '%') == raw.len)
        return raw;
    size_t start = d->scratch->len;
    path_decode(raw, d->scratch);
    return d->scratch->full ? nothing : slice_of(d->scratch->at + start, d->scratch->len - start);
}

/* Names are keys of the directory, and parts of URLs and DNS names there. */
static bool name_valid(struct slice name)
{
    return slice_unreserved(name) && name.len > 0 && name.len <= NAME_MOST && !slice_is(name, ".") &&
           !slice_is(name, "..");
}

/* Returns whether a name has the form of a token, which must not get into logs as a name: three parts of a JWT, whose first begins with
 * `{"`, or a token of another system that begins with its version. Mere versions (v1.2.3) are shorter. */
static bool is_token(struct slice name)
{
    enum { SHORTEST = 32 };
    size_t first = slice_find(name, '.');
    struct slice rest = first < name.len ? slice_from(name, first + 1) : name;
    bool three = first < name.len && slice_find(rest, '.') < rest.len;
    bool scoped = slice_starts(name, "v1.") || slice_starts(name, "v2.") || slice_starts(name, "f1.");
    return three && (slice_starts(name, "eyJ") || (scoped && name.len >= SHORTEST));
}

/* Decodes a capture in base64url; an invalid one becomes empty, which is no valid name. */
static struct slice capture_base64(struct decision *d, enum capture capture)
{
    size_t start = d->scratch->len;
    bool good = base64url_decode(d->match.captures.value[capture], d->scratch);
    return slice_of(d->scratch->at + start, good ? d->scratch->len - start : 0);
}

/* Returns the sandbox's name. If the host has a token instead, the name is the token's SHA-256, so that neither the directory nor a log
 * gets the token. */
static struct slice sandbox_name(struct decision *d)
{
    const struct slice *value = d->match.captures.value;
    size_t start = d->scratch->len;
    if (slice_present(value[CAPTURE_SANDBOX64]))
        return capture_base64(d, CAPTURE_SANDBOX64);
    if (slice_present(value[CAPTURE_SANDBOX]) || !slice_present(value[CAPTURE_TOKEN]))
        return capture_text(d, CAPTURE_SANDBOX);
    bool good = token_static_digest(value[CAPTURE_TOKEN], d->scratch) && !d->scratch->full;
    return good ? slice_of(d->scratch->at + start, d->scratch->len - start) : nothing;
}

static bool read_captures(struct decision *d)
{
    struct verdict *v = d->verdict;
    struct slice port = capture_text(d, CAPTURE_PORT);
    uint64_t number = 0;
    if (d->route->service || d->route->mux)
        return true;
    d->sandbox = sandbox_name(d);
    d->space = slice_present(d->match.captures.value[CAPTURE_NAMESPACE64])
                   ? capture_base64(d, CAPTURE_NAMESPACE64)
                   : capture_text(d, CAPTURE_NAMESPACE);
    if (!name_valid(d->sandbox))
        return decide_deny(d, REFUSAL_bad_request, "route", "this cannot be the name of a sandbox");
    if (is_token(d->sandbox))
        return decide_deny(d, REFUSAL_bad_request, "route",
                           "a token stands in the place of the sandbox's name");
    if (slice_present(d->space) && !name_valid(d->space))
        return decide_deny(d, REFUSAL_bad_request, "route", "this cannot be a namespace");
    if (slice_present(port) && (!slice_u64(port, 65535, &number) || port.at[0] == '0'))
        return decide_deny(d, REFUSAL_bad_request, "route", "this is no port");
    d->port = (uint16_t)(slice_present(port) ? number : (uint64_t)d->route->port);
    v->sandbox = d->sandbox;
    v->space = d->space;
    v->session = capture_text(d, CAPTURE_SESSION);
    v->port = d->port ? d->port : -1;
    return true;
}

/* ---- the caller ---- */

static bool origin_listed(const struct texts *list, struct slice origin)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], "*") == 0 || origin_same(origin, slice_text(list->at[i])))
            return true;
    return false;
}

static bool answer_preflight(struct decision *d)
{
    const struct request *r = d->request;
    if (d->route->cors.count == 0 || !slice_present(r->origin))
        return true;
    bool listed = origin_listed(&d->route->cors, r->origin);
    if (listed)
        d->verdict->cors_origin = r->origin;
    if (!slice_is(r->method, "OPTIONS") || !slice_present(r->cors_method))
        return true;
    if (!listed)
        return decide_deny(d, REFUSAL_origin_refused, "cors", "this origin is not in the route's `cors`");
    decide_tell(d, "cors", "a preflight from an origin in the route's `cors`", r->origin);
    d->verdict->kind = VERDICT_PREFLIGHT;
    return false;
}

/* A token for a sandbox in a namespace must name both: otherwise it would also be valid for a sandbox of the same name elsewhere. */
static struct slice token_sandbox(struct decision *d)
{
    if (!slice_present(d->space) || slice_is(d->space, "default"))
        return d->sandbox;
    size_t start = d->scratch->len;
    writer_put(d->scratch, d->space);
    writer_u8(d->scratch, '/');
    writer_put(d->scratch, d->sandbox);
    return d->scratch->full ? nothing : slice_of(d->scratch->at + start, d->scratch->len - start);
}

/* Returns whether trials can find the credential: it has too few bits, or people chose it. */
static bool can_be_guessed(const struct decision *d)
{
    return d->carried.credential.source == SOURCE_SIGNATURE || token_needs_secret(&d->grant);
}

static bool has_credential(const struct decision *d)
{
    return d->carried.credential.source != SOURCE_NONE;
}

static bool may_fail(const struct decision *d, enum auth_failure sort)
{
    const struct decide_view *view = d->view;
    return auth_failure_limiter_allows(view->limiter, &d->request->source, sort, view->now,
                                       view->auth_failures_most);
}

/* Collects the credential and its sandbox for the limiter. The port is left out: otherwise a client with one secret could try it on all
 * 65,535 ports and evict what the limiter knows of others. A known credential is admitted by nothing here: it is only checked as if
 * there had been no failures. */
static size_t right_parts(const struct decision *d, uint8_t memory[static 1],
                          struct slice parts[static AUTH_FAILURE_LIMITER_PARTS])
{
    const struct credential *c = &d->carried.credential;
    memory[0] = (uint8_t)c->source;
    parts[0] = slice_of(memory, 1);
    parts[1] = d->space;
    parts[2] = d->sandbox;
    parts[3] = c->token;
    parts[4] = c->expires;
    return 5;
}

static bool was_right(const struct decision *d)
{
    uint8_t memory[1];
    struct slice parts[AUTH_FAILURE_LIMITER_PARTS];
    size_t count = right_parts(d, memory, parts);
    return auth_failure_limiter_knows(d->view->limiter, parts, count);
}

static void remember(const struct decision *d)
{
    uint8_t memory[1];
    struct slice parts[AUTH_FAILURE_LIMITER_PARTS];
    size_t count = right_parts(d, memory, parts);
    auth_failure_limiter_learn(d->view->limiter, parts, count);
}

void decide_asks(const struct decide_view *view, const struct asker *asker)
{
    if (view->asks)
        view->asks(view->directory, asker);
}

/* Returns the sandbox as the asker if its credential can be guessed but was right before. */
struct asker decide_asker(const struct decision *d)
{
    if (d->granted && !can_be_guessed(d))
        return asker_of_grant(&d->grant);
    return has_credential(d) && (d->granted || was_right(d)) ? asker_of_sandbox(d->space, d->sandbox)
                                                             : asker_of_source(&d->request->source);
}

enum lookup decide_look_up(struct decision *d, bool alike)
{
    const struct decide_view *view = d->view;
    const struct asker asker = decide_asker(d);
    decide_asks(view, &asker);
    if (!d->looked)
        d->lookup = (alike && view->find_alike ? view->find_alike : view->find)(view->directory, d->space,
                                                                                d->sandbox, &d->record);
    d->looked = true;
    return d->lookup;
}

/* Checks a secret that only the record can confirm. The look-up must be alike for all sandboxes, because the caller has proved nothing
 * yet. */
static enum refusal check_secret(struct decision *d, const char **why)
{
    *why = "a service has no record with a secret";
    if (d->route->service)
        return has_credential(d) ? REFUSAL_token_invalid : REFUSAL_token_missing;
    enum lookup lookup = decide_look_up(d, true);
    d->pending = lookup == LOOKUP_PENDING;
    *why = "the directory cannot say";
    if (lookup != LOOKUP_FOUND && lookup != LOOKUP_ABSENT)
        return REFUSAL_directory_unavailable;
    /* a bare record does not tell whether there is a secret */
    struct record record = d->record;
    bool whole = lookup == LOOKUP_FOUND && !record.bare;
    if (whole) {
        record.access_sha256 = record_access(&record, d->port);
        record.headers = record_headers(&record, d->port);
    }
    enum refusal refusal = token_admits_secret(&d->grant, whole ? &record : NULL, why);
    d->unconfirmed = refusal == REFUSAL_token_invalid;
    return refusal;
}

static enum refusal judge_credential(struct decision *d, enum refusal refusal, const char **why)
{
    enum auth_failure sort = can_be_guessed(d) ? AUTH_FAILURE_SECRET : AUTH_FAILURE_TOKEN;
    if (refusal == REFUSAL_NONE && sort == AUTH_FAILURE_SECRET)
        remember(d);
    return auth_failure_limiter_judge(d->view->limiter, &d->request->source, sort, d->view->now,
                                      d->view->auth_failures_most, refusal, why);
}

static enum refusal check_text(struct decision *d, const char **why)
{
    const struct decide_view *view = d->view;
    d->grant = (struct grant){.kind = NULL};
    bool short_one = d->carried.credential.source == SOURCE_SIGNATURE;
    if (short_one && !may_fail(d, AUTH_FAILURE_SECRET) && !was_right(d))
        return auth_failure_limiter_refuses(why);
    enum refusal refusal =
        token_check(view->tokens, &d->carried.credential, view->now, view->cache, &d->grant, why);
    if (refusal != REFUSAL_NONE || !token_needs_secret(&d->grant))
        return refusal;
    if (has_credential(d) && !may_fail(d, AUTH_FAILURE_SECRET) && !was_right(d))
        return auth_failure_limiter_refuses(why);
    return check_secret(d, why);
}

bool decide_revoked(const struct decide_view *view, struct slice jti)
{
    return revoked_has(view->revoked[0], jti) || revoked_has(view->revoked[1], jti);
}

/* Checks the credential itself, whatever it grants. */
static enum refusal check_credential(struct decision *d, const char **why)
{
    const struct credential *credential = &d->carried.credential;
    decide_tell(d, "token", "carried by", slice_text(credential_source_name(credential)));
    enum refusal refusal = check_text(d, why);
    if (has_credential(d))
        refusal = judge_credential(d, refusal, why);
    if (d->grant.kind)
        decide_tell(d, "token", "judged as a token of kind", slice_text(d->grant.kind));
    if (slice_present(d->grant.kid))
        decide_tell(d, "token", "with the key", d->grant.kid);
    if (refusal == REFUSAL_NONE && decide_revoked(d->view, d->grant.jti)) {
        refusal = REFUSAL_token_revoked;
        *why = "its jti was revoked";
    }
    if (d->view->token_checked && refusal != REFUSAL_token_missing)
        d->view->token_checked(d->view->counting, d->grant.kind, refusal);
    return refusal;
}

/* Returns whether the path is the sandbox's file API. An application at a port, or below another path, may have a path with the same
 * end. */
static bool is_file_api(const struct decision *d)
{
    const struct signed_url_form *form = d->carried.credential.form;
    if (form && form->whole_path)
        return !d->route->template;
    if (form && form->at_root && !d->route->template)
        return d->request->path.len == strlen("/files/") + strlen(d->grant.operation);
    struct slice path = d->request->path, sandbox = d->match.captures.value[CAPTURE_SANDBOX];
    size_t end = strlen("/files/") + strlen(d->grant.operation);
    return slice_present(sandbox) && path.len > end && sandbox.at + sandbox.len == path.at + path.len - end;
}

static enum refusal check_grant(struct decision *d, struct slice sandbox, const char **why)
{
    /* at a management address a route for http needs exec; the record decides later which it is */
    bool either = d->route->need == NEED_HTTP && d->grant.needs & NEED_EXEC;
    const struct token_target target = {sandbox, either ? NEED_EXEC : d->route->need, d->port};
    const struct request *r = d->request;
    enum refusal refusal = token_admits(&d->grant, &target, why);
    if (refusal == REFUSAL_NONE && slice_present(d->grant.file) && !is_file_api(d)) {
        *why = "it is for a file of the sandbox, and this is not where these are";
        return REFUSAL_not_granted;
    }
    if (refusal == REFUSAL_NONE && slice_present(d->grant.file) && d->upgrade) {
        *why = "it is for a file of the sandbox, which no WebSocket is";
        return REFUSAL_not_granted;
    }
    if (refusal != REFUSAL_NONE || !d->grant.in_place ||
        !(slice_present(r->sandbox_uid) || slice_present(r->sandbox_pod_ip)))
        return refusal;
    *why = "X-Sandbox-UID and X-Sandbox-Pod-IP do not go with a scoped token";
    return REFUSAL_not_granted;
}

static void note_token(struct verdict *v, const struct grant *grant)
{
    v->token_kind = grant->kind;
    v->sub = grant->sub;
    v->jti = grant->jti;
    v->kid = grant->kid;
}

/* Decides whether a Bearer is the application's, on routes that keep Authorization. One that is not a token of cellgate does not count
 * as a credential if the request has another one or may need none. */
static enum bearer_use judge_bearer(struct decision *d, const struct credential_place *place)
{
    const struct decide_view *view = d->view;
    if (!d->route->keep_auth)
        return BEARER_DECIDES;
    struct slice bearer = bearer_token(d->request);
    d->bearer_judged = !view->open && slice_present(bearer);
    d->foreign_auth = view->open || !token_is_ours(view->tokens, bearer, place, view->now, view->cache);
    if (!d->foreign_auth)
        return BEARER_DECIDES;
    bool needed = !view->open && d->route->need && !token_is_public(view->tokens, place);
    return needed ? BEARER_LAST : BEARER_FOREIGN;
}

/* Removes nothing from a request to a service, which checks its callers, or to a mux, whose requests are decided one by one. */
static bool leave_as_it_is(struct decision *d)
{
    credential_none(d->request, d->scratch, &d->carried);
    d->foreign_auth = d->verdict->service = true;
    if (d->route->mux)
        decide_mux_opener(d);
    decide_tell(d, "token",
                d->route->mux ? "the route needs none: each request brings what the client brings"
                              : "the route needs none: the service gets what the client brings",
                nothing);
    return d->request->authorizations < 2 ||
           decide_deny(d, REFUSAL_bad_request, "token", "there are several Authorization headers");
}

static bool check_token(struct decision *d)
{
    const struct decide_view *view = d->view;
    if ((d->route->service && !d->route->need) || d->route->mux)
        return leave_as_it_is(d);
    const struct credential_place place = {.route = d->route->name,
                                           .system = d->route->system,
                                           .host = d->host,
                                           .by_host = d->route->by_host,
                                           .port = d->port};
    const struct credential_rules rules = {.listening =
                                               view->tokens ? tokens_sources(view->tokens, &place) : 0,
                                           .cookie = d->route->cookie,
                                           .bearer = judge_bearer(d, &place),
                                           .captures = &d->match.captures,
                                           .own = view->tokens ? tokens_own(view->tokens) : NULL};
    const char *why = "";
    enum refusal refusal = credential_find(d->request, &rules, d->scratch, &d->carried);
    if (refusal != REFUSAL_NONE)
        return decide_deny(d, refusal, "token",
                           "it is not clear which token is meant, or what holds it is too large");
    if (view->open || d->route->need == 0) {
        decide_tell(d, "token", view->open ? "none is needed: the cell is open" : "the route needs none",
                    nothing);
        return true;
    }
    struct slice sandbox = token_sandbox(d);
    d->carried.credential.place = place;
    d->carried.credential.sandbox = sandbox;
    d->carried.credential.port = d->port;
    refusal = check_credential(d, &why);
    if (refusal != REFUSAL_NONE)
        return decide_deny(d, refusal, "token", why);
    d->granted = true;
    d->verdict->org = d->grant.org;
    note_token(d->verdict, &d->grant);
    refusal = check_grant(d, sandbox, &why);
    if (refusal != REFUSAL_NONE)
        return decide_deny(d, refusal, "token", why);
    decide_tell(d, "token", "it is valid and grants this", nothing);
    return true;
}

static bool is_safe(struct slice method)
{
    return slice_is(method, "GET") || slice_is(method, "HEAD") || slice_is(method, "OPTIONS");
}

/* A browser in a hostile network can load a page of http://, whose requests send the cookie too. */
static bool is_downgraded(const struct request *r)
{
    return r->tls && slice_starts(r->origin, "http://");
}

/* Checks Origin. Browsers send it with every WebSocket; with a cookie, which browsers send without being asked, it must be present. */
static bool check_origin(struct decision *d)
{
    const struct request *r = d->request;
    bool by_cookie = d->granted && d->carried.credential.source == SOURCE_COOKIE;
    if (!d->upgrade && !(by_cookie && !is_safe(r->method)))
        return true;
    if (!slice_present(r->origin) && !by_cookie)
        return true;
    bool good = d->route->origins.count
                    ? origin_listed(&d->route->origins, r->origin)
                    : authority_of_origin(r->origin, &d->authority) && !(by_cookie && is_downgraded(r));
    if (!good)
        return decide_deny(d, REFUSAL_origin_refused, "origin",
                           d->route->origins.count ? "it is not in the route's `origins`"
                                                   : "it is not the request's own host");
    decide_tell(d, "origin", "allowed", r->origin);
    return true;
}

/* Returns whether a cookie can have the value without quoting (RFC 6265 section 4.1.1). */
static bool cookie_valid(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] <= ' ' || value.at[i] >= 0x7f || strchr("\",;\\", value.at[i]))
            return false;
    return value.len > 0;
}

static struct slice text_from(const struct writer *w, size_t start)
{
    return slice_of(w->at + start, w->len - start);
}

/* Writes the request's address without the token. A browser reads "//x" (and "/\x") as another host; "/.//x" avoids this. */
static void write_location(struct decision *d)
{
    struct slice path = d->request->path;
    size_t start = d->scratch->len;
    if (path.len > 1 && (path.at[1] == '/' || path.at[1] == '\\'))
        writer_text(d->scratch, "/.");
    writer_put(d->scratch, path);
    if (slice_present(d->carried.query)) {
        writer_u8(d->scratch, '?');
        writer_put(d->scratch, d->carried.query);
    }
    d->verdict->location = text_from(d->scratch, start);
}

static bool turn_into_cookie(struct decision *d)
{
    const struct credential *c = &d->carried.credential;
    bool foreign = d->granted && d->found && slice_present(d->grant.org) && !d->judgement.owner_known;
    if (!d->granted || !d->found || foreign || !d->route->cookie || d->upgrade || !c->in_query ||
        !slice_is(d->request->method, "GET") || !cookie_valid(c->token) ||
        !token_may_be_cookie(d->view->tokens, &d->grant, &c->place))
        return true;
    write_location(d);
    size_t start = d->scratch->len;
    writer_text(d->scratch, "__Host-cellgate=");
    writer_put(d->scratch, c->token);
    writer_printf(d->scratch, "; Path=/; Max-Age=%lld; Secure; HttpOnly; SameSite=Lax",
                  (long long)(d->grant.exp + d->grant.leeway - d->view->now));
    d->verdict->set_cookie = text_from(d->scratch, start);
    d->verdict->kind = VERDICT_REDIRECT;
    decide_tell(d, "cookie", "the token of the query becomes a cookie", nothing);
    return false;
}

/* Returns the end of the time in which the answer may be reused; 0 for never. Answers with own content (tunnels, redirects), refusals,
 * and answers that depend on more than the clock are never reused. */
static int64_t good_until(const struct decision *d)
{
    bool plain = d->verdict->kind == VERDICT_DIRECT && d->verdict->refusal == REFUSAL_NONE && !d->upgrade;
    if (!plain || d->pending || d->bearer_judged || d->view->trace)
        return 0;
    int64_t proven = d->proven_until < 0 ? INT64_MAX : d->proven_until,
            granted = !d->granted                                      ? INT64_MAX
                      : token_lasts(&d->carried.credential, &d->grant) ? d->grant.exp + d->grant.leeway
                                                                       : 0;
    return proven < granted ? proven : granted;
}

bool decide(const struct decide_view *view, const struct request *request, struct writer *scratch,
            struct verdict *verdict)
{
    static decide_step *const steps[] = {decide_mux_source, check_request, check_removed,    check_upgrade,
                                         find_route,        read_captures, answer_preflight, check_token,
                                         check_origin,      decide_path,   decide_bound,     decide_record,
                                         turn_into_cookie,  decide_state,  decide_worker,    decide_headers};
    struct decision d;
    d.view = view;
    d.request = request;
    d.scratch = scratch;
    d.verdict = verdict;
    d.route = NULL;
    d.upgrade = d.pending = d.granted = d.looked = d.found = d.foreign_auth = d.bearer_judged = false;
    d.opened = d.unconfirmed = d.asleep = false;
    d.headers = nothing;
    d.sandbox = d.space = nothing;
    d.port = 0;
    d.authority = (struct authority){.port = 0};
    verdict_clear(verdict);
    verdict->request_id = request->id;
    verdict->source = request->source;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!steps[i](&d))
            break;
    if (verdict->kind == VERDICT_RELAY)
        decide_handover(&d);
    else if (verdict->kind == VERDICT_DIRECT && request->mux && slice_present(d.sandbox))
        decide_mux_ticket(&d);
    else if (verdict->kind == VERDICT_DENY)
        decide_foreign(&d);
    verdict->good_until = good_until(&d);
    if (scratch->full) {
        verdict_clear(verdict);
        d.route = NULL;
        verdict->upgrade = d.upgrade;
        decide_deny(&d, REFUSAL_request_too_large, "request", "its texts are too large");
    }
    return !d.pending;
}
