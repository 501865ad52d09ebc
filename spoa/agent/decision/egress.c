/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/egress_steps.h"

#include <openssl/evp.h>

#include <arpa/inet.h>
#include <stdio.h>

#include "spoa/agent/decision/judge.h"
#include "spoa/agent/egress/reach.h"
#include "spoa/agent/token/inside_proof.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/proto/http.h"
#include "spoa/proto/proxy_header.h"

enum { HANDOVER_ID_MOST = 64 };

/* A sandbox of another organisation has this text too, so that callers cannot distinguish it from a missing one. */
#define NO_SANDBOX "the directory has no such sandbox"

static const struct slice nothing;

void egress_tell(const struct egress *e, const char *step, const char *text, struct slice detail)
{
    const struct decide_trace *trace = e->view->trace;
    if (trace)
        trace->step(trace->context, step, text, detail);
}

static struct egress_verdict no_verdict(void)
{
    return (struct egress_verdict){.status = -1, .retry_after = -1, .rule = -1, .port = -1, .most = -1};
}

static void refuse(struct egress_verdict *v, enum refusal refusal, const char *why)
{
    const struct refusal_info *info = refusal_info(refusal);
    v->refusal = refusal;
    v->status = info->status;
    v->error = slice_text(info->code);
    v->message = slice_text(info->sentence);
    v->retryable = info->retryable;
    v->retry_after = info->retry_after ? info->retry_after : -1;
    v->reason = slice_text(why);
    v->audit = false;
}

struct egress_verdict egress_refusal(enum refusal refusal, const char *why)
{
    struct egress_verdict v = no_verdict();
    refuse(&v, refusal, why);
    return v;
}

bool egress_deny(struct egress *e, enum refusal refusal, const char *step, const char *why)
{
    egress_tell(e, step, why, nothing);
    refuse(e->verdict, refusal, why);
    return false;
}

/* ---- the request itself ---- */

void egress_note_target(struct egress *e)
{
    size_t start = e->scratch->len;
    writer_put(e->scratch, target_host(&e->target));
    e->verdict->host = slice_from(writer_slice(e->scratch), start);
    e->verdict->port = e->target.port;
}

static bool check_target(struct egress *e)
{
    if (e->request->inside)
        return egress_http_inside(e);
    if (!slice_is(e->request->method, "CONNECT"))
        return egress_http_target(e);
    const char *why = target_parse(e->request->target, 0, &e->target);
    if (why)
        return egress_deny(e, REFUSAL_bad_request, "request", why);
    egress_note_target(e);
    egress_tell(e, "request", "a CONNECT to", e->verdict->host);
    return true;
}

/* ---- the caller ---- */

/* Returns the only value of Proxy-Authorization. Returns false if the lines are malformed, or there are several. */
static bool proxy_authorization(const struct egress_request *request, struct slice *value)
{
    struct slice rest = request->headers;
    struct request_header header;
    size_t lines = 0;
    *value = nothing;
    while (request_header_next(&rest, &header))
        if (http_same_name(header.name, SLICE_LITERAL("proxy-authorization")) && lines++ == 0)
            *value = header.value;
    return rest.len == 0 && lines < 2;
}

static bool has_scheme(struct slice value, const char *scheme, struct slice *rest)
{
    size_t len = strlen(scheme);
    *rest = slice_trim(slice_from(value, len));
    return value.len > len && value.at[len] == ' ' &&
           slice_equal_nocase(slice_sub(value, 0, len), slice_text(scheme));
}

/* Returns the password of USER:PASSWORD in base64 (RFC 7617); absent if the text is not that. */
static struct slice basic_password(struct egress *e, struct slice text)
{
    struct writer *w = e->scratch;
    size_t size = text.len / 4 * 3, padding = 0;
    if (text.len == 0 || text.len % 4 || text.len > 2 * TOKEN_LIMIT || w->full || size > w->size - w->len)
        return nothing;
    int len = EVP_DecodeBlock(w->at + w->len, text.at, (int)text.len);
    if (len < 0)
        return nothing;
    while (padding < 2 && text.at[text.len - 1 - padding] == '=')
        padding++;
    struct slice whole = slice_of(w->at + w->len, (size_t)len - padding);
    size_t colon = slice_find(whole, ':');
    w->len += (size_t)len;
    return colon < whole.len ? slice_from(whole, colon + 1) : nothing;
}

void egress_take_name(struct egress *e, struct slice name)
{
    size_t slash = slice_find(name, '/');
    e->space = slash < name.len ? slice_sub(name, 0, slash) : nothing;
    e->sandbox = slash < name.len ? slice_from(name, slash + 1) : name;
}

static enum refusal check_grant(struct egress *e, struct slice token, const char **why)
{
    const struct decide_view *view = e->view;
    const struct credential credential = credential_bearer(token);
    enum refusal refusal =
        view->tokens ? token_check(view->tokens, &credential, view->now, view->cache, &e->grant, why)
                     : REFUSAL_token_invalid;
    if (refusal == REFUSAL_NONE && token_needs_secret(&e->grant)) {
        *why = "it is a secret of a sandbox, which opens no way out of one";
        refusal = REFUSAL_token_invalid;
    }
    if (refusal == REFUSAL_NONE && decide_revoked(view, e->grant.jti)) {
        *why = "its jti was revoked";
        refusal = REFUSAL_token_revoked;
    }
    if (view->token_checked)
        view->token_checked(view->counting, e->grant.kind, refusal);
    return refusal;
}

static bool check_token(struct egress *e, struct slice token)
{
    const struct decide_view *view = e->view;
    const char *why = "there is no kind of tokens";
    enum refusal refusal =
        auth_failure_limiter_judge(view->limiter, &e->request->source, AUTH_FAILURE_TOKEN, view->now,
                                   view->auth_failures_most, check_grant(e, token, &why), &why);
    if (refusal == REFUSAL_agent_unavailable || refusal == REFUSAL_wrong_cell ||
        refusal == REFUSAL_too_many_requests)
        return egress_deny(e, refusal, "token", why);
    if (refusal != REFUSAL_NONE)
        return egress_deny(e, REFUSAL_proxy_auth_required, "token", why);
    e->granted = true;
    if (!(e->grant.needs & NEED_EGRESS))
        return egress_deny(e, REFUSAL_not_granted, "token", "it does not grant egress");
    if (!slice_present(e->grant.sandbox) || slice_is(e->grant.sandbox, "*"))
        return egress_deny(e, REFUSAL_not_granted, "token",
                           "it is for no sandbox in particular, so no rules go with it");
    egress_take_name(e, e->grant.sandbox);
    egress_tell(e, "token", "it is valid and grants egress for", e->grant.sandbox);
    return true;
}

/* Returns the party that the look-ups are charged to, before the record is known. */
static struct asker asker_of(const struct egress *e)
{
    if (e->granted)
        return asker_of_grant(&e->grant);
    return slice_present(e->sandbox) ? asker_of_sandbox(e->space, e->sandbox)
                                     : asker_of_source(&e->request->source);
}

static bool look_up(struct egress *e, struct slice space, struct slice name, enum lookup *lookup)
{
    const struct decide_view *view = e->view;
    const struct asker asker = asker_of(e);
    decide_asks(view, &asker);
    *lookup = view->find(view->directory, space, name, &e->record);
    e->pending = *lookup == LOOKUP_PENDING;
    if (*lookup == LOOKUP_FOUND || *lookup == LOOKUP_ABSENT)
        return true;
    return egress_deny(e, REFUSAL_directory_unavailable, "record", "the directory cannot say");
}

/* Finds the owner of the source address in the record under `addr:ADDRESS`. The next look-up invalidates the record's text. */
static bool check_source(struct egress *e)
{
    uint8_t name[INET6_ADDRSTRLEN + 8];
    struct writer w = writer_of(name, sizeof name);
    struct address from = cidr_unmapped(&e->request->source);
    enum lookup lookup = LOOKUP_ABSENT;
    if (from.family) {
        writer_text(&w, "addr:");
        address_write(&w, &from);
        if (!look_up(e, nothing, writer_slice(&w), &lookup))
            return false;
    }
    if (lookup != LOOKUP_FOUND || !slice_present(e->record.sandbox))
        return egress_deny(e, REFUSAL_proxy_auth_required, "token",
                           "there is no token, and the source address is no sandbox's");
    size_t start = e->scratch->len;
    writer_put(e->scratch, e->record.sandbox);
    egress_take_name(e, slice_from(writer_slice(e->scratch), start));
    egress_tell(e, "source", "the address is that of", e->sandbox);
    return true;
}

static bool check_caller(struct egress *e)
{
    struct slice value, token;
    if (e->request->inside)
        return true;
    if (slice_present(e->request->sandbox)) {
        egress_take_name(e, e->request->sandbox);
        return true;
    }
    if (!proxy_authorization(e->request, &value))
        return egress_deny(e, REFUSAL_bad_request, "token",
                           "Proxy-Authorization stands there several times, or the headers are malformed");
    if (!slice_present(value))
        return check_source(e);
    if (has_scheme(value, "basic", &token))
        token = basic_password(e, token);
    else if (!has_scheme(value, "bearer", &token))
        token = nothing;
    if (!slice_present(token) || token.len == 0)
        return egress_deny(e, REFUSAL_proxy_auth_required, "token",
                           "Proxy-Authorization is neither Bearer nor Basic with a token as password");
    return check_token(e, token);
}

/* ---- the sandbox's rules ---- */

/* Checks the sandbox's owner. The owner must be known, because the owner's rules decide. */
static bool check_owner(struct egress *e)
{
    const struct grant *grant = &e->grant;
    const struct admission admission = {
        .by_token = true, .named = !slice_present(grant->org), .iat = grant->iat, .org = grant->org};
    struct judgement judgement;
    judge_caller(e->view, &admission, &e->record, &judgement);
    if (judgement.caller == REFUSAL_token_revoked)
        return egress_deny(e, REFUSAL_proxy_auth_required, "record", judgement.why);
    if (judgement.caller == REFUSAL_NONE)
        return true;
    egress_tell(e, "record", judgement.why, nothing);
    return egress_deny(e, REFUSAL_egress_denied, "record", NO_SANDBOX);
}

/* Checks that the sandbox's owner is that of the CONNECT: a connection must not get the rules and secrets of another owner's sandbox
 * with the same name. As for tunnels, a connection stays if its sandbox had no owner. */
static bool check_same_owner(struct egress *e)
{
    const struct key *key = e->view->ticket_key;
    uint8_t now[INSIDE_PROOF_OWNER], nobody[INSIDE_PROOF_OWNER];
    if (!inside_proof_owner(key, e->record.org, now) || !inside_proof_owner(key, nothing, nobody))
        return egress_deny(e, REFUSAL_agent_unavailable, "record", "there is no memory");
    return memcmp(e->owner, now, sizeof now) == 0 || memcmp(e->owner, nobody, sizeof nobody) == 0 ||
           egress_deny(e, REFUSAL_egress_denied, "record", NO_SANDBOX);
}

static bool check_whose(struct egress *e)
{
    return e->proved ? check_same_owner(e) : !e->granted || check_owner(e);
}

static bool find_sandbox(struct egress *e)
{
    enum lookup lookup;
    e->verdict->sandbox = e->sandbox;
    e->verdict->space = e->space;
    if (!look_up(e, e->space, e->sandbox, &lookup))
        return false;
    if (lookup == LOOKUP_ABSENT || slice_present(e->record.sandbox))
        return egress_deny(e, REFUSAL_egress_denied, "record", NO_SANDBOX);
    if (!e->record.bare && !check_whose(e))
        return false;
    if (e->record.state == RECORD_STOPPED)
        return egress_deny(e, REFUSAL_egress_denied, "record", "the sandbox has been stopped");
    return !e->record.bare || egress_deny(e, REFUSAL_directory_unavailable, "record",
                                          "the directory says no more than its state");
}

bool egress_refuse_by_rules(struct egress *e, const char *step, const char *why)
{
    if (!e->policy.audit)
        return egress_deny(e, REFUSAL_egress_denied, step, why);
    e->verdict->audit = true;
    e->verdict->reason = slice_text(why);
    egress_tell(e, step, "audit: this would be refused", slice_text(why));
    return true;
}

/* For `cellgate explain`: tells why the rules in front of the deciding one do not match. */
static void tell_rules(const struct egress *e)
{
    struct egress_rule rule;
    size_t cursor = 0;
    char text[64];
    if (!e->view->trace)
        return;
    while (egress_rules_next(&e->policy, &cursor, &rule)) {
        const char *miss = egress_rule_miss(&rule, &e->target);
        snprintf(text, sizeof text, "rule %u: %s", rule.number, miss ? miss : "decides");
        egress_tell(e, "rules", text, nothing);
        if (!miss)
            return;
    }
}

static bool check_rules(struct egress *e)
{
    struct slice packed =
        slice_present(e->record.egress) ? e->record.egress : egress_config_default(e->view->egress);
    if (!slice_present(packed) || !egress_policy_unpack(packed, &e->policy))
        return egress_deny(e, REFUSAL_egress_denied, "rules",
                           "neither its record nor egress.default has rules");
    tell_rules(e);
    e->matched = egress_rules_match(&e->policy, &e->target, &e->rule);
    if (!e->matched)
        return egress_refuse_by_rules(e, "rules", "no rule is about this destination");
    e->verdict->rule = e->rule.number;
    if (e->rule.deny)
        return egress_refuse_by_rules(e, "rules", "a rule denies this destination");
    if (e->rule.inspect && e->verdict->kind == EGRESS_RAW && !egress_config_inspects(e->view->egress))
        return egress_deny(e, REFUSAL_egress_denied, "rules",
                           "its rule wants requests inspected, and there is no egress.sign_file");
    egress_tell(e, "rules", "a rule allows this destination", nothing);
    return true;
}

static bool check_request(struct egress *e)
{
    return e->verdict->kind != EGRESS_DIRECT || (egress_http_rules(e) && egress_http_credentials(e));
}

/* ---- the address ---- */

/* Returns why this address may not be reached, or NULL if it may. */
static const char *address_fault(const struct egress *e, const struct address *address)
{
    bool may_private = e->matched && !e->rule.deny && e->rule.is_private;
    switch (reach_of(address)) {
    case REACH_PUBLIC:
        return NULL;
    case REACH_PRIVATE:
        return may_private ? NULL : "a private address needs a rule with `private`";
    case REACH_LOOPBACK:
        return may_private && egress_config_lists(e->view->egress, address)
                   ? NULL
                   : "a loopback address needs a rule with `private`, and egress.private_networks";
    case REACH_NEVER:
        break;
    }
    return "a metadata service, the link, multicast and what is no host's address are never reached";
}

static bool check_addresses(struct egress *e, const struct address *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *why = address_fault(e, &addresses[i]);
        if (why)
            return egress_deny(e, REFUSAL_address_refused, "address", why);
        int rule = egress_rules_deny(&e->policy, &e->target, e->matched ? e->rule.number : EGRESS_RULES_MOST,
                                     &addresses[i]);
        if (rule < 0)
            continue;
        e->verdict->rule = rule;
        if (!egress_refuse_by_rules(e, "address", "a rule denies an address that the name leads to"))
            return false;
    }
    e->address = cidr_unmapped(&addresses[0]);
    return true;
}

static bool find_address(struct egress *e)
{
    struct address addresses[EGRESS_ADDRESSES];
    size_t count = 1;
    enum lookup lookup = LOOKUP_FOUND;
    const struct asker asker = asker_of_org(e->record.org, e->space, e->sandbox);
    decide_asks(e->view, &asker);
    if (e->request->addr.family)
        addresses[0] = e->request->addr;
    else if (e->target.address.family)
        addresses[0] = e->target.address;
    else if (!egress_config_host(e->view->egress, target_host(&e->target), &addresses[0]))
        lookup = e->view->addresses ? e->view->addresses(e->view->directory, e->space, e->sandbox,
                                                         target_host(&e->target), addresses, &count)
                                    : LOOKUP_UNAVAILABLE;
    e->pending = lookup == LOOKUP_PENDING;
    if (lookup == LOOKUP_ABSENT || (lookup == LOOKUP_FOUND && count == 0))
        return egress_deny(e, REFUSAL_destination_unreachable, "address", "there is no such host");
    if (lookup != LOOKUP_FOUND)
        return egress_deny(e, REFUSAL_destination_timeout, "address", "no name server could say in time");
    if (count > EGRESS_ADDRESSES)
        return egress_deny(e, REFUSAL_address_refused, "address", "it has more addresses than are checked");
    return check_addresses(e, addresses, count);
}

enum refusal egress_stands(const struct decide_view *view, const struct record *record, struct slice to,
                           const struct address *address, int64_t inspect)
{
    struct egress_verdict verdict;
    struct egress e = {.view = view, .verdict = &verdict, .record = *record};
    if (target_parse(to, 0, &e.target))
        return REFUSAL_egress_denied;
    verdict = no_verdict();
    if (record->state == RECORD_STOPPED || !check_rules(&e) || !check_addresses(&e, address, 1))
        return verdict.refusal != REFUSAL_NONE ? verdict.refusal : REFUSAL_egress_denied;
    int64_t now = e.matched && e.rule.inspect ? egress_rule_digest(&e.policy, &e.rule) : -1;
    return now == inspect ? REFUSAL_NONE : REFUSAL_egress_denied;
}

/* ---- the handover ---- */

/* Writes "HOST:PORT" in the form that target_parse reads. */
static struct slice host_and_port(const struct egress *e)
{
    struct writer *w = e->scratch;
    size_t start = w->len;
    bool literal = e->target.address.family == 6;
    writer_text(w, literal ? "[" : "");
    writer_put(w, e->verdict->host);
    writer_text(w, literal ? "]:" : ":");
    writer_decimal(w, e->target.port);
    return slice_from(writer_slice(w), start);
}

/* Sets the connection's organisation. As for tunnels, only a token's own must stay equal to the record's for the life of the connection. */
static void set_org(struct handover *h, const struct egress *e)
{
    bool own = e->granted && slice_present(e->grant.org) && e->grant.org.len > 0;
    h->org = own ? e->grant.org : e->record.org;
    if (slice_present(h->org) && !own)
        h->org_of_record = 1;
}

/* Sets the fields that an upgrade needs in addition to those of a CONNECT: how the relay sends it on. */
static void set_upgrade(struct handover *h, const struct egress *e)
{
    h->host = e->verdict->authority;
    h->tls = e->request->tls;
    h->sni = e->request->tls ? e->verdict->host : nothing;
    h->one_leg = true;
}

static struct slice full_name(const struct egress *e)
{
    struct writer *w = e->scratch;
    size_t start = w->len;
    if (slice_present(e->space)) {
        writer_put(w, e->space);
        writer_text(w, "/");
    }
    writer_put(w, e->sandbox);
    return slice_from(writer_slice(w), start);
}

/* Writes the proof with which the relay brings the connection to HAProxy, which asks about each request inside. Call it after set_grant,
 * which sets the expiry. */
static bool set_inside(struct handover *h, struct egress *e)
{
    struct inside_connection inside = {.id = h->id,
                                       .name = full_name(e),
                                       .host = h->host,
                                       .port = e->target.port,
                                       .addr = e->address,
                                       .issued = e->view->now,
                                       .until = h->exp};
    size_t most = PROXY_UNIQUE_ID_MAX - INSIDE_PROOF_TEXT - INSIDE_PROOF_SPACES;
    if (inside.name.len > most)
        return egress_deny(e, REFUSAL_egress_denied, "rules",
                           "the sandbox's name is too long to be inspected");
    if (inside.id.len + inside.name.len > most || slice_find(inside.id, ' ') < inside.id.len)
        inside.id = SLICE_LITERAL("");
    if (inside_proof_owner(e->view->ticket_key, e->record.org, inside.owner))
        h->inside = inside_proof_write(e->view->ticket_key, &inside, e->scratch);
    return true;
}

static bool set_inspect(struct handover *h, struct egress *e)
{
    h->inspect = egress_rule_digest(&e->policy, &e->rule);
    return h->inspect >= 0 || egress_deny(e, REFUSAL_agent_unavailable, "rules", "there is no memory");
}

static void set_grant(struct handover *h, const struct grant *grant)
{
    h->jti = grant->jti;
    h->kid = grant->kid;
    h->needs = grant->needs;
    h->key = grant->key;
    h->iat = grant->iat < 0 ? 0 : grant->iat;
    if (grant->bind)
        h->exp = grant->exp + grant->leeway;
}

static bool write_handover(struct egress *e)
{
    struct egress_verdict *v = e->verdict;
    struct handover h = handover_none();
    if (e->matched && e->rule.inspect && !set_inspect(&h, e))
        return false;
    h.id = slice_sub(e->request->id, 0, HANDOVER_ID_MOST);
    h.route = SLICE_LITERAL("egress");
    h.sandbox = v->sandbox;
    h.space = v->space;
    h.addr = e->address;
    h.addr_port = e->target.port;
    h.host = v->host;
    h.egress = host_and_port(e);
    if (v->kind == EGRESS_RELAY)
        set_upgrade(&h, e);
    else if (!e->target.address.family) /* a ClientHello never has an address as its name */
        h.sni = e->matched && e->rule.any_sni ? SLICE_LITERAL("any") : SLICE_LITERAL("host");
    h.most = e->policy.most_connections ? (int64_t)e->policy.most_connections : -1;
    set_org(&h, e);
    if (e->granted)
        set_grant(&h, &e->grant);
    if (v->kind == EGRESS_INSPECT && !set_inside(&h, e))
        return false;
    h.ticket = ticket_write(e->view->ticket_key, &h, e->scratch);
    size_t start = e->scratch->len;
    struct writer line = writer_of(e->scratch->at + start, e->scratch->size - start);
    handover_encode(&h, &line);
    e->scratch->full = e->scratch->full || line.full;
    e->scratch->len += line.len;
    v->handover = slice_of(line.at, line.len);
    return true;
}

static void choose_kind(struct egress *e)
{
    struct egress_verdict *v = e->verdict;
    bool inspects = e->matched && e->rule.inspect;
    if (v->kind == EGRESS_RAW && inspects)
        v->kind = EGRESS_INSPECT;
    if (v->kind == EGRESS_DIRECT && inspects && e->upgrade && e->rule.by_relay)
        v->kind = EGRESS_RELAY;
}

static bool hand_over(struct egress *e)
{
    static const char *const ways[] = {
        [EGRESS_RAW] = "the relay dials it",
        [EGRESS_INSPECT] = "HAProxy reads the requests, and sends them there",
        [EGRESS_DIRECT] = "HAProxy sends it there",
        [EGRESS_RELAY] = "the relay takes the upgrade there",
    };
    struct egress_verdict *v = e->verdict;
    choose_kind(e);
    v->addr = e->address;
    if (v->kind != EGRESS_DIRECT && !write_handover(e))
        return false;
    if (v->kind >= EGRESS_DIRECT) {
        v->most = e->policy.most_connections ? (int64_t)e->policy.most_connections : -1;
        if (v->audit)
            egress_http_withhold(e);
    }
    egress_tell(e, "address", ways[v->kind], nothing);
    return true;
}

const char *egress_verdict_text(const struct egress_verdict *v)
{
    static const char *const kinds[] = {"raw", "inspect", "direct", "relay"};
    return v->refusal == REFUSAL_NONE ? kinds[v->kind] : "deny";
}

bool egress_decide(const struct decide_view *view, const struct egress_request *request,
                   struct writer *scratch, struct egress_verdict *verdict)
{
    static egress_step *const steps[] = {check_target,  check_caller, find_sandbox, check_rules,
                                         check_request, find_address, hand_over};
    struct egress e = {.view = view, .request = request, .scratch = scratch, .verdict = verdict};
    *verdict = no_verdict();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!steps[i](&e))
            break;
    if (scratch->full) {
        *verdict = no_verdict();
        egress_deny(&e, REFUSAL_request_too_large, "request", "its texts are too large");
        e.pending = false;
    }
    return !e.pending;
}
