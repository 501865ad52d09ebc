/* SPDX-License-Identifier: MIT */
/*
 * credential_source: finds a request's credential, and removes credentials from the request before the worker sees it (tokens.md).
 *
 * The first source of this table that is present decides, even if its credential is empty or invalid. Sources that are only meant for
 * cellgate come first, then sources that an application may also use for itself.
 *
 *   headers        CREDENTIAL_HEADERS of the systems (systems/tables.h)
 *   own headers    headers that the configuration's entries name, in their order
 *   signature      {expires} and {signature} that the route captured
 *   label          {token} that the route captured
 *   signed URLs    SIGNED_URLS of the systems: a signature and the signed values, in the query
 *   authorization  `Authorization: Bearer TOKEN`, the scheme in any case; other schemes are the application's, and
 *                  so may a Bearer be (enum bearer_use)
 *   subprotocol    `cellgate.bearer.TOKEN` among the subprotocols
 *   query          `cellgate_token=TOKEN`; name and value may be percent-encoded, '+' is no blank
 *   parameters     CREDENTIAL_PARAMETERS of the systems, and then the configuration's own ones, in the query
 *   cookie         `__Host-cellgate`, only if the route allows it; the decision checks the Origin
 *
 * Two credentials in one source are ambiguous: bad_request. So is a second line of a header that an entry uses, because HAProxy shows
 * the agent only the first. The tokens of all sources are removed, also those that did not decide.
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

/* X(NAME, name, ...), in the order of precedence, after CREDENTIAL_HEADERS. */
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
            SOURCE_COUNT /* number of the built-in sources; higher numbers are the configuration's own ones */
};

/* The headers and parameters that entries of `tokens` name; the first is source SOURCE_COUNT. The struct owns the names. */
enum { SOURCES_OWN_MOST = 16 };
struct own_sources {
    struct {
        char *name;
        bool query; /* a parameter of the query if true, otherwise a header */
    } at[SOURCES_OWN_MOST];
    size_t count;
    struct texts headers; /* the headers among them that haproxy.cfg does not know */
};
void own_sources_free(struct own_sources *own);

#define SOURCE_BIT(name) (1u << SOURCE_##name)
/* Sources that can have a token of any kind. Other sources count only if a kind uses them. */
#define SOURCES_GENERAL \
    (SOURCE_BIT(AUTHORIZATION) | SOURCE_BIT(SUBPROTOCOL) | SOURCE_BIT(QUERY) | SOURCE_BIT(COOKIE))

/* Signatures, which are valid only for the signed values: a token or secret never comes from these sources. */
#define SOURCES_SIGNED_X(id, ...) | SOURCE_BIT(id)
#define SOURCES_SIGNED            (SOURCE_BIT(SIGNATURE) SIGNED_URLS(SOURCES_SIGNED_X))

#define SOURCES_OWN (~((1u << SOURCE_COUNT) - 1))

/* The place in which a credential is used. Entries of `tokens` may be limited to routes, systems and domains. */
struct credential_place {
    const char *route; /* NULL if there is no route, for example in `cellgate token --inspect` */
    enum system system;
    struct slice host; /* in lower case, without port; absent if the request has none */
    bool by_host;      /* the host selected the route (struct route) */
    bool any_host;     /* the host is unknown, because the tunnel is already open */
    uint16_t port;     /* sandbox port that the request names; 0 if there is none, or for a tunnel */
};

struct credential {
    enum credential_source source;
    const char *name; /* name of the source; NULL if credential_source_text has it */
    bool in_query;    /* the credential is a parameter of the query */
    struct credential_place place;
    struct slice token;   /* absent only with SOURCE_NONE; an empty token is invalid */
    struct slice expires; /* end of a signature or a signed URL, as written; absent if it has none */
    struct slice key_id;  /* ID of the key of a signature without an end; absent for other credentials */
    struct slice path;    /* signed URL: the file, decoded */
    struct slice user;    /* signed URL: the user in the sandbox, decoded; absent if none is named */
    const struct signed_url_form *form; /* NULL if the credential is not a signed URL */
    const char *operation;              /* signed URL: the operation on the file, in the word of its form */
    struct slice sandbox;               /* the requested sandbox; the decision fills it */
    uint16_t port;
};

struct carried {
    struct credential credential;
    struct slice query;    /* query for the worker, without the token's parameter; absent if it is empty */
    bool protocol_edit;    /* HAProxy must replace Sec-WebSocket-Protocol by `protocol` */
    struct slice protocol; /* absent if the header must be removed */
    bool select_cellgate;  /* the client offered `cellgate` */
};

/* The meaning of `Authorization: Bearer` on the route. */
enum bearer_use {
    BEARER_DECIDES, /* a credential, with its precedence in the table */
    BEARER_LAST,    /* the application's, unless there is no other credential: then an invalid credential */
    BEARER_FOREIGN  /* always the application's */
};

struct credential_rules {
    unsigned listening; /* mask of the SOURCE_BITs that the configured kinds use */
    bool cookie;        /* the route allows the cookie */
    enum bearer_use bearer;
    const struct captures *captures; /* captures of the route; may be NULL */
    const struct own_sources *own;   /* NULL if there are none */
};

/* Finds the credential. Returns REFUSAL_NONE, bad_request, or request_too_large if `scratch` is too small for the rewritten values
 * (twice the length of the protocols and of the query is always enough). Slices point into the request, the captures and `scratch`. */
enum refusal credential_find(const struct request *request, const struct credential_rules *rules,
                             struct writer *scratch, struct carried *carried);

/* Returns the token of `Authorization: Bearer`, absent if there is none. */
struct slice bearer_token(const struct request *request);

/* Makes the credential of a token in `Authorization: Bearer`. */
static inline struct credential credential_bearer(struct slice token)
{
    return (struct credential){.source = slice_present(token) ? SOURCE_AUTHORIZATION : SOURCE_NONE,
                               .token = token};
}

/* Returns the name of a built-in source in the table, or "none". */
const char *credential_source_text(enum credential_source source);
/* Returns the name of any source. */
const char *credential_source_name(const struct credential *credential);

/* Fills *carried for a route that uses no credential: nothing is removed from the request. */
void credential_none(const struct request *request, struct writer *scratch, struct carried *carried);

#endif
