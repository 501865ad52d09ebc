/* SPDX-License-Identifier: MIT */
/* decide_handover: writes the relay's information about a tunnel, at the end of a decision that sends it there. */
#include <openssl/evp.h>

#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/base/text/base64url.h"

static int64_t if_set(int64_t value)
{
    return value ? value : -1;
}

static void set_route(struct handover *h, const struct route *route)
{
    h->resume = (unsigned)route->resume;
    h->end = (unsigned)route->end;
    h->keepalive = (unsigned)route->keepalive;
    h->close = route->refuse == ROUTE_REFUSE_CLOSE;
    h->stream = route->stream;
    h->overlap = route->overlap;
    h->one_leg = route->one_leg;
    h->waits = route->waits;
    h->hold = if_set(route->hold);
    h->idle = if_set(route->idle);
    h->max_age = if_set(route->max_age);
    h->max_message = if_set(route->max_message);
}

/* Joins the names of the headers that the route strips. */
static struct slice strip_list(const struct texts *names, struct writer *w)
{
    size_t start = w->len;
    for (size_t i = 0; i < names->count; i++) {
        writer_text(w, i ? "," : "");
        writer_text(w, names->at[i]);
    }
    return names->count ? slice_of(w->at + start, w->len - start) : slice_text(NULL);
}

/* HAProxy's IDs have 36 bytes. The limit protects the relay, which keeps the ID for the life of the tunnel. */
enum { REQUEST_ID_MOST = 64 };

#define TOKEN_DOMAIN "cellgate token 1;"
enum { TOKEN_DIGEST = 8 };

/* Returns a digest that identifies the credential, of any kind, the same in all agents; absent if there is none. Without it the relay
 * does not count by tokens. */
static struct slice digest_token(const struct credential *credential, struct writer *scratch)
{
    const struct slice parts[] = {SLICE_LITERAL(TOKEN_DOMAIN), credential->token, credential->expires,
                                  credential->path};
    uint8_t digest[EVP_MAX_MD_SIZE];
    size_t start = scratch->len;
    EVP_MD_CTX *context = slice_present(credential->token) ? EVP_MD_CTX_new() : NULL;
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL);

    for (size_t i = 0; good && i < sizeof parts / sizeof parts[0]; i++)
        good = EVP_DigestUpdate(context, parts[i].at, parts[i].len) && EVP_DigestUpdate(context, "", 1);
    good = good && EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
    if (!good)
        return slice_text(NULL);
    base64url_encode(slice_of(digest, TOKEN_DIGEST), scratch);
    return slice_of(scratch->at + start, scratch->len - start);
}

static void set_grant(struct handover *h, const struct grant *grant)
{
    h->sub = grant->sub;
    h->jti = grant->jti;
    h->kid = grant->kid;
    h->needs = grant->needs;
    h->ports = grant->ports;
    h->key = grant->key;
    h->iat = grant->iat < 0 ? 0 : grant->iat; /* a token without iat counts as the oldest possible one */
    if (grant->bind)
        h->exp = grant->exp + grant->leeway;
}

/* Sets the tunnel's organisation. Only a token's own organisation must stay equal to the record's for the life of the tunnel. */
static void set_org(struct handover *h, const struct decision *d)
{
    bool own = d->granted && slice_present(d->grant.org) && d->grant.org.len > 0;
    h->org = d->verdict->org;
    if (slice_present(h->org) && !own)
        h->org_of_record = 1;
}

static void set_place(struct handover *h, const struct decision *d)
{
    const struct verdict *v = d->verdict;
    bool judged = d->found && d->judgement.leads;
    h->route = v->route;
    h->sandbox = v->sandbox;
    h->space = v->space;
    /* the worker's port may change when the sandbox moves */
    h->port = judged && d->judgement.follows ? -1 : v->port;
    h->pending = judged || d->route->mux ? -1 : 1;
    unsigned host_only = judge_host_only(v->path);
    h->host_only = host_only ? (int64_t)host_only : -1;
}

/* The application's own credential may turn out to be the sandbox's access secret when the record arrives or changes, so the relay gets
 * its digest. */
static void set_bearer(struct handover *h, struct decision *d)
{
    if (d->foreign_auth && slice_present(d->verdict->auth) && slice_present(bearer_token(d->request)))
        h->bearer = decide_bearer_digest(d);
}

static void write_handover(struct decision *d, const struct handover *h)
{
    size_t start = d->scratch->len;
    /* the encoder puts a separator before every key but the first of its writer, so it needs a new writer */
    struct writer line = writer_of(d->scratch->at + start, d->scratch->size - start);
    handover_encode(h, &line);
    d->scratch->full = d->scratch->full || line.full;
    d->scratch->len += line.len;
    d->verdict->handover = slice_of(line.at, line.len);
}

/* Sets the owner of a mux socket from its token, which need not be the owner of its requests' sandboxes. */
static void set_opener(struct handover *h, struct decision *d)
{
    const struct grant *grant = &d->grant;
    size_t slash = slice_find(grant->sandbox, '/');
    h->org = grant->org;
    h->sub = grant->sub;
    h->needs = grant->needs;
    h->token = digest_token(&d->opener.credential, d->scratch);
    if (slice_is(grant->sandbox, "*"))
        return;
    h->sandbox = slash < grant->sandbox.len ? slice_from(grant->sandbox, slash + 1) : grant->sandbox;
    if (slash < grant->sandbox.len)
        h->space = slice_sub(grant->sandbox, 0, slash);
}

void decide_handover(struct decision *d)
{
    struct verdict *v = d->verdict;
    struct handover h = handover_none();
    h.id = slice_sub(v->request_id, 0, REQUEST_ID_MOST);
    set_place(&h, d);
    h.session = v->session;
    set_org(&h, d);
    set_bearer(&h, d);
    h.epoch = v->epoch;
    h.addr = v->addr;
    h.addr_port = v->addr_port;
    h.tls = v->tls;
    h.sni = v->sni;
    h.host = v->host;
    h.secrets = d->headers.len > 0 || d->route->set_count > 0;
    h.select_cellgate = v->select_cellgate;
    set_route(&h, d->route);
    if (d->route->mux)
        h.mux = slice_text(route_mux_names[d->route->mux]);
    if (d->route->mux)
        h.source = decide_mux_proof(d);
    if (d->route->mux && d->route->template)
        h.below = v->path;
    h.strip = strip_list(&d->route->strip, d->scratch);
    if (d->granted) {
        set_grant(&h, &d->grant);
        h.token = digest_token(&d->carried.credential, d->scratch);
    }
    if (d->opened)
        set_opener(&h, d);
    if (v->refusal != REFUSAL_NONE) {
        h.refuse = v->status;
        h.error = v->error;
    } else if (!d->route->mux) { /* the relay asks nothing about a mux */
        h.ticket = ticket_write(d->view->ticket_key, &h, d->scratch);
    }
    write_handover(d, &h);
}

void decide_mux_ticket(struct decision *d)
{
    struct handover h = handover_none();
    set_place(&h, d);
    set_org(&h, d);
    if (d->granted) {
        set_grant(&h, &d->grant);
        h.token = digest_token(&d->carried.credential, d->scratch); /* absent if no token is needed */
    }
    h.sub = slice_text(
        NULL); /* the relay logs it with answers, and it does not see the answers to these requests */
    h.epoch = d->verdict->epoch;
    h.ticket = ticket_write(d->view->ticket_key, &h, d->scratch);
    write_handover(d, &h);
}
