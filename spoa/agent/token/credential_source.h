/* SPDX-License-Identifier: MIT */
/*
 * credential_source: finds a request's credential, and what of the request the worker may see without it (tokens.md).
 *
 * In the order of the table the first one present decides, even if what it carries is empty or bad: first
 * what can only be meant for us, then what an application may use for itself, too.
 *
 *   OpenSandbox-Secure-Access, X-OC-Preview-Token, X-Daytona-Preview-Token, e2b-traffic-access-token: headers
 *   headers of the configuration's own, in the order in which its entries name them
 *   signature      {expires} and {signature} that the route captured (OpenSandbox)
 *   label          {token} that the route captured (sandbox-sdk)
 *   file-url       `expires` and `signature` in the query of GET .../files/download and PUT .../files/upload
 *                  (OpenComputer)
 *   envd-url       `signature` in the query of GET and POST /files at envd's port (e2b); envd gets it, too
 *   authorization  `Authorization: Bearer TOKEN`, the scheme in any case; other schemes are the application's, and
 *                  so may a Bearer be (enum bearer_use)
 *   subprotocol    `cellgate.bearer.TOKEN` among the subprotocols
 *   query          `cellgate_token=TOKEN`; name and value may be percent-encoded, '+' is no blank
 *   DAYTONA_SANDBOX_AUTH_KEY: a parameter of the query, and then the configuration's own ones
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
#include "spoa/base/bytes/writer.h"
#include "spoa/service/options.h"

/* X(NAME, name), in the order in which they decide, behind those of CREDENTIAL_HEADERS */
#define SOURCES(X)                               \
    X(SIGNATURE, "signature")                    \
    X(LABEL, "label")                            \
    X(FILE_URL, "file-url")                      \
    X(ENVD_URL, "envd-url")                      \
    X(AUTHORIZATION, "authorization")            \
    X(SUBPROTOCOL, "subprotocol")                \
    X(QUERY, "query")                            \
    X(DAYTONA_QUERY, "DAYTONA_SANDBOX_AUTH_KEY") \
    X(COOKIE, "cookie")

enum credential_source {
    SOURCE_NONE,
#define X(field, lines, name, id, ...) SOURCE_##id,
    CREDENTIAL_HEADERS(X)
#undef X
#define X(id, name) SOURCE_##id,
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
    struct slice token; /* absent only with SOURCE_NONE; may be empty, then it is a bad one */
    struct slice
        expires; /* signature, file-url, envd-url: as it was written; of envd-url: absent, it has none */
    struct slice path;     /* file-url, envd-url: of the file, decoded */
    struct slice user;     /* envd-url: who it is for in the sandbox, decoded */
    const char *operation; /* file-url: "download" or "upload"; envd-url: "read" or "write" */
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
