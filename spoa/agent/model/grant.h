/* SPDX-License-Identifier: MIT */
/*
 * grant: what a good token lets its bearer do. A view: its slices point into the memory of the token cache
 * that gave it, and live until that cache is asked again, or into the credential.
 */
#ifndef CELLGATE_AGENT_MODEL_GRANT_H
#define CELLGATE_AGENT_MODEL_GRANT_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

/* X(NAME, bit, word in a token's `need` and in a route's `need`) */
#define NEEDS(X)         \
    X(PTY, 1, "pty")     \
    X(EXEC, 2, "exec")   \
    X(AGENT, 4, "agent") \
    X(HTTP, 8, "http")   \
    X(MUX, 16, "mux")    \
    X(EGRESS, 32, "egress")

enum need {
#define X(name, bit, word) NEED_##name = (bit),
    NEEDS(X)
#undef X
        NEED_ALL = 63,
    /* Of a token that names none: all ways into a sandbox, and not the one out of it. */
    NEED_UNSAID = NEED_ALL & ~NEED_EGRESS
};

/* A longer `jti` is none: it goes with every question about a tunnel, and into lists of what is revoked. */
enum { GRANT_JTI_MOST = 256 };

/* A credential is at most this long; a longer one is invalid before anything looks at it. */
#define TOKEN_LIMIT 8192

struct grant {
    const char *kind; /* which checked it, also if it refused; NULL: none recognised it */
    struct slice sub, org, sandbox, jti, kid; /* absent: the token has none; sandbox "*": all of org */
    struct slice key;                         /* fingerprint of the one that verified it; absent: none did */
    bool ours;             /* it names, or was made with, a key of an entry, whether it is good or not */
    unsigned needs;        /* of enum need */
    struct slice ports;    /* packed; absent: every port */
    int64_t iat;           /* Unix seconds; -1: the token does not say */
    int64_t exp;           /* Unix seconds, as in the token */
    int64_t leeway;        /* seconds; the token is good while now < exp + leeway */
    bool bind;             /* a tunnel ends when the token does */
    bool in_place;         /* X-Sandbox-UID and X-Sandbox-Pod-IP do not go with it */
    struct slice file;     /* the only one that it is for; absent: it is for no file */
    const char *operation; /* with file: what may be done with it, as its kind calls it */
    /* Good for a request of this method for this path as the worker gets it, at a port that it names, of the sandbox of this
     * UID; all or none are present. Such a grant is never remembered. */
    struct slice method, path, uid;
    /* Good only where a secret of the record has signed it (token_kind.confirms): signature of file, operation and these. */
    struct slice signature, user, expires;
    /* Good only where the record holds this access secret (64 hex digits), or where it holds none. */
    struct slice secret_sha256;
    bool without_secret;
};

/* The bit of a word; 0: no such word. */
unsigned need_of(struct slice word);
/* The words of a mask with commas between them, into w. */
void need_text(unsigned needs, struct writer *w);

void grant_put_port(struct writer *packed, uint16_t port);
/* The i-th port of a packed list; false behind the last. */
bool grant_port(const struct grant *grant, size_t i, uint16_t *port);
/* Returns whether a packed list holds the port. */
bool grant_ports_have(struct slice ports, uint16_t port);
/* port 0: the request names none, which every grant allows. */
bool grant_allows_port(const struct grant *grant, uint16_t port);

#endif
