/* SPDX-License-Identifier: MIT */
/*
 * jwt_claims: the payload of a JWT (RFC 7519 section 4) against the rules of one entry of `tokens`, and the
 * reverse. Looks at no signature: call it with what a signature has been verified for.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWT_CLAIMS_H
#define CELLGATE_AGENT_TOKEN_JWT_CLAIMS_H

#include "spoa/agent/model/grant.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/base/os/fail.h"

/* X(NAME, name): `claims` in the configuration gives another name to any of them */
#define JWT_CLAIMS(X)     \
    X(ISS, "iss")         \
    X(AUD, "aud")         \
    X(CELL, "cell")       \
    X(SUB, "sub")         \
    X(ORG, "org")         \
    X(IAT, "iat")         \
    X(NBF, "nbf")         \
    X(EXP, "exp")         \
    X(JTI, "jti")         \
    X(SANDBOX, "sandbox") \
    X(NEED, "need")       \
    X(PORTS, "ports")

enum jwt_claim {
#define X(id, name) JWT_##id,
    JWT_CLAIMS(X)
#undef X
        JWT_CLAIM_COUNT
};

struct jwt_rules {
    const char *name[JWT_CLAIM_COUNT]; /* in the token */
    const char *issuer;                /* NULL: any, or none */
    const char *audience;              /* NULL: the cell's name, and `cell` will do instead of `aud` */
    const char *cell;
    int64_t leeway, max_ttl; /* seconds */
    bool bind;
};

/* The claim that is called so unless renamed; JWT_CLAIM_COUNT: none. */
enum jwt_claim jwt_claim_of(struct slice name);
const char *jwt_claim_name(enum jwt_claim claim);

/* Fills all of *grant but kid; its strings go into text, which needs as many bytes as the payload has.
 * token_invalid, token_expired, wrong_cell, or agent_unavailable when out of memory; *reason is then static
 * text. */
enum refusal jwt_claims_read(const struct jwt_rules *rules, struct slice payload, int64_t now,
                             struct writer *text, struct grant *grant, const char **reason);

/* Appends a payload that these rules read as this grant. Strings must need no escaping in JSON. */
bool jwt_claims_write(const struct jwt_rules *rules, const struct grant *grant, struct writer *w,
                      struct fail *why);

#endif
