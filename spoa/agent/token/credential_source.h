/* SPDX-License-Identifier: MIT */
/*
 * credential_source: finds a request's credential, and what of the request the worker may see without it (tokens.md).
 *
 * In the order of the table the first one present decides, even if what it carries is empty or bad: first
 * what can only be meant for us, then what an application may use for itself, too.
 *
 *   headers        CREDENTIAL_HEADERS of the systems (systems/tables.h)
 *   headers of the configuration's own, in the order in which its entries name them
 *   signature      {expires} and {signature} that the route captured
 *   label          {token} that the route captured
 *   signed URLs    SIGNED_URLS of the systems: a signature and what it is of, in the query
 *   authorization  `Authorization: Bearer TOKEN`, the scheme in any case; other schemes are the application's, and
 *                  so may a Bearer be (enum bearer_use)
 *   subprotocol    `cellgate.bearer.TOKEN` among the subprotocols
 *   query          `cellgate_token=TOKEN`; name and value may be percent-encoded, '+' is no blank
 *   parameters     CREDENTIAL_PARAMETERS of the systems, and then the configuration's own ones, in the query
 *   cookie         `__Host-cellgate`, only where the route says so; whether the Origin fits is for the decision
 *
 * One source holding two credentials, or a second line of a header that somebody listens to (HAProxy shows
 * the agent only the first), is ambiguous: bad_request. Every source's token is removed, also where another source
 * decided.
 */
#ifndef CELLGATE_AGENT_TOKEN_CREDENTIAL_SOURCE_H
#define CELLGATE_AGENT_TOKEN_CREDENTIAL_SOURCE_H

#include "spoa/agent/model/request.h"
#include "spoa/agent/model/system.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/agent/route/pattern.h"
#include "spoa/agent/token/signed_url.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/service/options.h"

/* X(NAME, name, ...), in the order in which they decide, after those of CREDENTIAL_HEADERS. */
#define SOURCES(X)                    \
    X(SIGNATURE, "signature")         \
    X(LABEL, "label")                 \
    SIGNED_URLS(X)                    \
    X(AUTHORIZATION, "authorization") \
    X(SUBPROTOCOL, "subprotocol")     \
    X(QUERY, "query")                 \
    CREDENTIAL_PARAMETERS(X)          \
    X(COOKIE, "cookie")

enum credential_source {
    SOURCE_NONE,
#define X(field, lines, name, written, id) SOURCE_##id,
    CREDENTIAL_HEADERS(X)
#undef X
#define X(id, ...) SOURCE_##id,
        SOURCES(X)
#undef X
            SOURCE_COUNT /* of the built-in ones; what is beyond is an own one */
};

/* Headers and parameters that entries of `tokens` name: source SOURCE_COUNT is the first. Their names are owned here. */
enum { SOURCES_OWN_MOST = 16 };
struct own_sources {
    struct {
        char *name;
        bool query; /* a parameter; else a header */
    } at[SOURCES_OWN_MOST];
    size_t count;
    struct texts headers; /* of these, what haproxy.cfg does not know */
};
void own_sources_free(struct own_sources *own);

#define SOURCE_BIT(name) (1u << SOURCE_##name)
/* Those that carry any token. The others count only where a kind listens to them. */
#define SOURCES_GENERAL \
    (SOURCE_BIT(AUTHORIZATION) | SOURCE_BIT(SUBPROTOCOL) | SOURCE_BIT(QUERY) | SOURCE_BIT(COOKIE))

/* Signatures, which are good only for what they were made of: no token or secret comes by these. */
#define SOURCES_SIGNED_X(id, ...) | SOURCE_BIT(id)
#define SOURCES_SIGNED            (SOURCE_BIT(SIGNATURE) SIGNED_URLS(SOURCES_SIGNED_X))

#define SOURCES_OWN (~((1u << SOURCE_COUNT) - 1))

/* Where a credential is used. Entries of `tokens` may be bound to routes, systems and domains. */
struct credential_place {
    const char *route; /* NULL: nowhere in particular, as for `cellgate token --inspect` */
    enum system system;
    struct slice host; /* in lower case, without port; absent: the request has none */
    bool by_host;      /* the route is found by it (struct route) */
    bool any_host;     /* it is not known: of a tunnel that is open */
    uint16_t port;     /* of the sandbox, that a request names; 0: none, or it is a tunnel's */
};

struct credential {
    enum credential_source source;
    const char *name; /* source's; NULL: credential_source_text has it */
    bool in_query;    /* it is a parameter */
    struct credential_place place;
    struct slice token;   /* absent only with SOURCE_NONE; may be empty, then it is a bad one */
    struct slice expires; /* of a signature or a signed URL, as it was written; absent: it has none */
    struct slice key_id;  /* of a signature without an end: its key's; absent: it is no such signature */
    struct slice path;    /* of a signed URL: the file, decoded */
    struct slice user; /* of a signed URL: who it is for in the sandbox, decoded; absent: nobody is named */
    const struct signed_url_form *form; /* NULL: it is no signed URL */
    const char *operation; /* of a signed URL: what may be done with the file, as its form says */
    struct slice sandbox;  /* what the request is for; filled by the decision */
    uint16_t port;
};

struct carried {
    struct credential credential;
    struct slice query; /* for the worker: as it came, but for the token's parameter; absent: none is left */
    bool protocol_edit; /* Sec-WebSocket-Protocol is to be replaced by `protocol` */
    struct slice protocol; /* absent: to be removed */
    bool select_cellgate;  /* the client offered `cellgate` */
};

/* What `Authorization: Bearer` is on the route. */
enum bearer_use {
    BEARER_DECIDES, /* in its place in the table */
    BEARER_LAST, /* the application's, unless nothing else is there: then it is a credential, and a bad one */
    BEARER_FOREIGN /* the application's */
};

struct credential_rules {
    unsigned listening; /* SOURCE_BITs of the kinds that are configured */
    bool cookie;        /* the route's */
    enum bearer_use bearer;
    const struct captures *captures; /* the route's; may be NULL */
    const struct own_sources *own;   /* NULL: none */
};

/* REFUSAL_NONE, bad_request, or request_too_large when scratch does not hold what has to be rewritten (the
 * twice the length of the protocols and of the query are always enough). The slices point into request,
 * captures and scratch. */
enum refusal credential_find(const struct request *request, const struct credential_rules *rules,
                             struct writer *scratch, struct carried *carried);

/* The token of `Authorization: Bearer`; absent: there is none. */
struct slice bearer_token(const struct request *request);

/* A token as `Authorization: Bearer` would bring it. */
static inline struct credential credential_bearer(struct slice token)
{
    return (struct credential){.source = slice_present(token) ? SOURCE_AUTHORIZATION : SOURCE_NONE,
                               .token = token};
}

/* A built-in source's name in the table; "none". */
const char *credential_source_text(enum credential_source source);
/* Of any source. */
const char *credential_source_name(const struct credential *credential);

/* The same where no credential is looked for and nothing is taken out. */
void credential_none(const struct request *request, struct writer *scratch, struct carried *carried);

#endif
