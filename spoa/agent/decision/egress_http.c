/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/egress_steps.h"
#include "spoa/agent/decision/upgrade.h"
#include "spoa/agent/token/inside_proof.h"
#include "spoa/proto/http.h"

enum {
    PORT_HTTP = 80,
    PORT_HTTPS = 443,
    CLOCKS_APART = 5 /* seconds that the clocks of HAProxy and the agent may differ */
};

static uint16_t usual_port(const struct egress *e)
{
    return e->request->tls ? PORT_HTTPS : PORT_HTTP;
}

/* ---- the target ---- */

/* Refuses these methods in any case of letters, because some servers ignore case. An answer to TRACE would repeat credentials that the
 * sandbox must not see. */
static bool is_refused(struct slice method)
{
    return slice_equal_nocase(method, SLICE_LITERAL("TRACE")) ||
           slice_equal_nocase(method, SLICE_LITERAL("TRACK")) ||
           slice_equal_nocase(method, SLICE_LITERAL("CONNECT"));
}

static bool is_same(const struct target *a, const struct target *b)
{
    return a->port == b->port && slice_equal(target_host(a), target_host(b));
}

/* Splits "http://AUTHORITY[/PATH]". Returns false if the scheme is another one, or missing. */
static bool split_url(struct slice url, const char *scheme, struct slice *authority, struct slice *path)
{
    size_t len = strlen(scheme);
    if (url.len <= len || !slice_equal_nocase(slice_sub(url, 0, len), slice_text(scheme)))
        return false;
    struct slice rest = slice_from(url, len);
    size_t end = 0;
    while (end < rest.len && rest.at[end] != '/' && rest.at[end] != '?')
        end++;
    *authority = slice_sub(rest, 0, end);
    *path = slice_from(rest, end);
    return true;
}

/* Takes path and query as HAProxy sends them on: the checked bytes must be the sent bytes. */
static bool take_path(struct egress *e, struct slice path)
{
    struct writer *w = e->scratch;
    size_t start = w->len;
    for (size_t i = 0; i < path.len; i++)
        if (path.at[i] <= ' ' || path.at[i] >= 0x7f || path.at[i] == '#')
            return egress_deny(e, REFUSAL_bad_request, "request", "the target has bytes that no URL has");
    /* without a path the request concerns the whole server (RFC 9112 section 3.2.4) */
    if (path.len == 0 && slice_is(e->request->method, "OPTIONS"))
        writer_text(w, "*");
    else if (path.len == 0 || path.at[0] == '?')
        writer_text(w, "/");
    writer_put(w, path);
    e->verdict->path = slice_from(writer_slice(w), start);
    e->path = slice_sub(e->verdict->path, 0, slice_find(e->verdict->path, '?'));
    return true;
}

/* Checks that there is exactly one Host, and that it names the request's target. */
static bool check_host(struct egress *e, const struct request *r)
{
    struct target host;
    if (r->hosts != 1 || !slice_present(r->host))
        return egress_deny(e, REFUSAL_bad_request, "request", "Host is missing, or there is more than one");
    if (target_parse(r->host, usual_port(e), &host) || !is_same(&host, &e->target))
        return egress_deny(e, REFUSAL_misdirected_request, "request",
                           "Host names another host than the target");
    return true;
}

static void put_authority(struct egress *e)
{
    struct writer *w = e->scratch;
    size_t start = w->len;
    bool literal = e->target.address.family == 6;
    writer_text(w, literal ? "[" : "");
    writer_put(w, target_host(&e->target));
    writer_text(w, literal ? "]" : "");
    if (e->target.port != usual_port(e)) {
        writer_text(w, ":");
        writer_decimal(w, e->target.port);
    }
    e->verdict->authority = slice_from(writer_slice(w), start);
}

/* Checks an upgrade by the same rules as the ingress: only WebSocket is possible; other offers (h2c) are ignored. */
static bool check_upgrade(struct egress *e, const struct request *r)
{
    const char *why = "";
    if (r->ws_protocols > 1)
        e->verdict->protocol = request_list(r, SLICE_LITERAL("sec-websocket-protocol"), e->scratch);
    e->upgrade = e->verdict->upgrade = upgrade_claimed(r);
    enum refusal refusal = e->upgrade ? upgrade_judge(r, &why) : upgrade_connection(r, &why);
    return refusal == REFUSAL_NONE || egress_deny(e, refusal, "request", why);
}

static bool is_known(struct slice version)
{
    return slice_is(version, "1.1") || slice_is(version, "2.0") || slice_is(version, "1.0");
}

static bool check_head(struct egress *e)
{
    struct request r = {.method = e->request->method,
                        .version = e->request->version,
                        .path = e->path,
                        .headers = e->request->headers};
    if (!request_read_headers(&r))
        return egress_deny(e, REFUSAL_bad_request, "request", "the headers are malformed");
    if (!is_known(r.version))
        return egress_deny(e, REFUSAL_bad_request, "request", "the version of HTTP is not known");
    if (r.transfer_encodings && slice_is(r.version, "1.0")) /* parsers disagree on the end of such a body */
        return egress_deny(e, REFUSAL_bad_request, "request", "HTTP/1.0 has no chunks");
    if (!check_host(e, &r) || !check_upgrade(e, &r))
        return false;
    e->verdict->kind = EGRESS_DIRECT;
    put_authority(e);
    egress_tell(e, "request", "a request to", e->verdict->authority);
    return true;
}

static bool check_method(struct egress *e)
{
    return !is_refused(e->request->method) ||
           egress_deny(e, REFUSAL_method_not_allowed, "request", "CONNECT and TRACE are not served inside");
}

bool egress_http_target(struct egress *e)
{
    struct slice authority, path;
    if (is_refused(e->request->method))
        return egress_deny(e, REFUSAL_method_not_allowed, "request", "TRACE is not served here");
    if (!split_url(e->request->target, "http://", &authority, &path))
        return egress_deny(e, REFUSAL_bad_request, "request",
                           "this is a proxy: the target is http://HOST/PATH, or that of a CONNECT");
    const char *why = target_parse(authority, PORT_HTTP, &e->target);
    if (why)
        return egress_deny(e, REFUSAL_bad_request, "request", why);
    egress_note_target(e);
    return take_path(e, path) && check_head(e);
}

/* ---- requests inside ---- */

/* Checks the target of a request inside: a path, a URL of the same host (HTTP/2, and some clients), or "*" for OPTIONS. */
static bool check_form(struct egress *e)
{
    struct slice target = e->request->target, authority, path;
    struct target named;
    if (target.len && target.at[0] == '/')
        return take_path(e, target);
    if (slice_is(target, "*") && slice_is(e->request->method, "OPTIONS")) {
        e->path = e->verdict->path = target;
        return true;
    }
    if (!split_url(target, e->request->tls ? "https://" : "http://", &authority, &path))
        return egress_deny(e, REFUSAL_bad_request, "request",
                           "the target is neither a path nor a URL of this scheme");
    if (target_parse(authority, usual_port(e), &named) || !is_same(&named, &e->target))
        return egress_deny(e, REFUSAL_misdirected_request, "request",
                           "the target names another host than the CONNECT");
    return take_path(e, path);
}

static bool check_name(struct egress *e)
{
    struct slice sni = e->request->sni;
    if (!e->request->tls)
        return true;
    if (slice_present(sni) && sni.len && sni.at[sni.len - 1] == '.')
        sni.len--;
    return (slice_present(sni) && slice_equal_nocase(sni, target_host(&e->target))) ||
           egress_deny(e, REFUSAL_misdirected_request, "request",
                       "the TLS name is another one than that of the CONNECT");
}

/* Returns why a connection with a valid proof may not be used for this request, or NULL if it may. */
static const char *connection_fault(const struct egress *e, const struct inside_connection *c)
{
    int64_t begun = e->request->begun, late = egress_config_patience(e->view->egress);
    if (begun < c->issued - CLOCKS_APART || begun > c->issued + late)
        return "its connection began too long after its CONNECT";
    return c->until >= 0 && e->view->now > c->until ? "the token of its CONNECT has expired" : NULL;
}

/* Finds the sandbox of the connection. The relay names it, and a program with the relay's rights could connect in the same way.
 * Therefore only a proof that the agent wrote for a CONNECT to this host, port and address counts. */
static bool take_connection(struct egress *e)
{
    struct inside_connection c = {
        .host = target_host(&e->target), .port = e->target.port, .addr = cidr_unmapped(&e->request->addr)};
    if (slice_present(e->request->sandbox)) { /* only in `cellgate explain` */
        c.name = e->request->sandbox;
    } else if (!inside_proof_read(e->view->ticket_key, e->request->connection, &c)) {
        return egress_deny(e, REFUSAL_egress_denied, "request", "nobody proves whose connection this is");
    } else {
        const char *fault = connection_fault(e, &c);
        if (fault)
            return egress_deny(e, REFUSAL_egress_denied, "request", fault);
        memcpy(e->owner, c.owner, sizeof e->owner);
        e->proved = true;
    }
    egress_take_name(e, c.name);
    e->verdict->sandbox = e->sandbox;
    e->verdict->space = e->space;
    return true;
}

bool egress_http_inside(struct egress *e)
{
    if (target_parse(e->request->to, 0, &e->target))
        return egress_deny(e, REFUSAL_agent_unavailable, "request", "nobody says where this connection goes");
    egress_note_target(e);
    return take_connection(e) && check_method(e) && check_form(e) && check_name(e) && check_head(e);
}

/* ---- the rule ---- */

/* Returns whether the request has a header that makes some servers use another method or path. */
static bool says_otherwise(const struct egress *e)
{
    static const char *const names[] = {"x-http-method",  "x-http-method-override", "x-method-override",
                                        "x-original-uri", "x-original-url",         "x-rewrite-uri",
                                        "x-rewrite-url",  "x-override-url",         NULL};
    struct slice rest = e->request->headers;
    struct request_header header;
    while (request_header_next(&rest, &header))
        for (size_t i = 0; names[i]; i++)
            if (http_same_name(header.name, slice_text(names[i])))
                return true;
    return false;
}

bool egress_http_rules(struct egress *e)
{
    const struct egress_rule *rule = &e->rule;
    if (e->request->inside && (!e->matched || !rule->inspect))
        return egress_deny(e, REFUSAL_egress_denied, "rules",
                           "no rule inspects what goes to this destination");
    if (!e->matched || !rule->inspect)
        return true;
    if (rule->set.len && !e->request->tls)
        return egress_deny(e, REFUSAL_egress_denied, "rules",
                           "its rule sets a credential, which goes over TLS alone");
    if ((rule->methods.len || rule->paths.len) && says_otherwise(e))
        return egress_refuse_by_rules(e, "rules",
                                      "a header of it means another method or path to some servers");
    if (e->upgrade && !rule->websocket)
        return egress_refuse_by_rules(e, "rules", "its rule lets no upgrade pass");
    if (!egress_rule_method(rule, e->request->method))
        return egress_refuse_by_rules(e, "rules", "its rule does not allow this method");
    if (!egress_rule_path(rule, e->path))
        return egress_refuse_by_rules(e, "rules", "its rule does not allow this path");
    return true;
}

static void set_credential(struct egress_verdict *v, struct slice header, struct slice value)
{
#define X(field, variable, name)                         \
    if (slice_equal_nocase(header, SLICE_LITERAL(name))) \
        v->field = value;
    EGRESS_CREDENTIALS(X)
#undef X
}

void egress_http_withhold(struct egress *e)
{
    struct egress_verdict *v = e->verdict;
    bool any = false;
#define X(field, variable, name)          \
    any = any || slice_present(v->field); \
    v->field = (struct slice){NULL, 0};
    EGRESS_CREDENTIALS(X)
#undef X
    if (any)
        egress_tell(e, "rules", "audit: no credential is set on what would be refused",
                    (struct slice){NULL, 0});
}

bool egress_http_credentials(struct egress *e)
{
    struct slice header, name;
    size_t cursor = 0;
    while (e->matched && egress_rule_set(&e->rule, &cursor, &header, &name)) {
        struct slice value = egress_config_secret(e->view->egress, name);
        if (!slice_present(value))
            return egress_deny(e, REFUSAL_egress_denied, "rules",
                               "its rule sets a secret that egress.secrets does not have");
        set_credential(e->verdict, header, value);
        egress_tell(e, "rules", "HAProxy sets", header);
    }
    return true;
}
