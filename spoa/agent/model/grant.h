/* SPDX-License-Identifier: MIT */
/*
 * grant: the permissions that a valid token gives its bearer. A grant is a view: its slices point into the credential, or into the
 * memory of the token cache that returned it, which is valid until the next call of that cache.
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
    /* Needs of a token that names none: every way into a sandbox, but no way out of it. */
    NEED_UNSAID = NEED_ALL & ~NEED_EGRESS
};

/* A longer `jti` is ignored: every question about a tunnel carries it, and lists of revoked tokens hold it. */
enum { GRANT_JTI_MOST = 256 };

/* The longest credential, in bytes. A longer one is invalid before any check. */
#define TOKEN_LIMIT 8192

struct grant {
    const char *kind; /* kind that checked the token, also if it refused; NULL if none recognised it */
    struct slice sub, org, sandbox, jti,
        kid;               /* absent if the token has none; sandbox "*" means every sandbox of org */
    struct slice key;      /* fingerprint of the key that verified the token; absent if none did */
    bool ours;             /* the token names a configured key, or was made with one; it need not be valid */
    unsigned needs;        /* mask of enum need */
    struct slice ports;    /* packed; absent if every port is allowed */
    int64_t iat;           /* Unix seconds; -1 if the token has none */
    int64_t exp;           /* Unix seconds, as in the token */
    int64_t leeway;        /* seconds; the token is valid while now < exp + leeway */
    bool bind;             /* a tunnel ends when the token does */
    bool in_place;         /* a request with X-Sandbox-UID or X-Sandbox-Pod-IP is refused */
    struct slice file;     /* the only file that the token allows; absent if the token is not for a file */
    const char *operation; /* if `file` is present: the operation on it, in the word of the token's kind */
    /* The token is valid for one request: this method, this path as the worker gets it, a port it names, and the sandbox of this UID.
     * All three are present or none is. Such a grant is never cached. */
    struct slice method, path, uid;
    /* If present, the token is valid only if a secret of the record made `signature` of file, operation and these fields
     * (token_kind.confirms). */
    struct slice signature, user, expires;
    /* If present, the token is valid only if the record holds this access secret (64 hex digits), or with `without_secret`, if it holds
     * none. */
    struct slice secret_sha256;
    bool without_secret;
};

/* Returns the bit of a word, or 0 if there is no such word. */
unsigned need_of(struct slice word);
/* Writes the words of a mask into w, separated by commas. */
void need_text(unsigned needs, struct writer *w);

void grant_put_port(struct writer *packed, uint16_t port);
/* Returns the i-th port of a packed list, or false after the last. */
bool grant_port(const struct grant *grant, size_t i, uint16_t *port);
/* Returns whether a packed list holds the port. */
bool grant_ports_have(struct slice ports, uint16_t port);
/* Returns whether the grant allows the port. Port 0 is a request that names none, which every grant allows. */
bool grant_allows_port(const struct grant *grant, uint16_t port);

#endif
