/* SPDX-License-Identifier: MIT */
/*
 * jwt_claims: reads the payload of a JWT (RFC 7519 section 4) by the rules of one entry of `tokens`, and writes one. It checks no
 * signature: the caller must have verified it.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWT_CLAIMS_H
#define CELLGATE_AGENT_TOKEN_JWT_CLAIMS_H

#include "spoa/agent/model/grant.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/base/os/fail.h"

/* X(NAME, name); `claims` of the configuration can rename any of them */
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
    const char *name[JWT_CLAIM_COUNT]; /* names of the claims in the token */
    const char *issuer;                /* NULL if any issuer, or none, is allowed */
    const char *audience; /* NULL for the cell's name; a `cell` claim is then accepted instead of `aud` */
    const char *cell;
    int64_t leeway, max_ttl; /* seconds */
    bool bind;
};

/* Returns the claim with this default name, or JWT_CLAIM_COUNT if there is none. */
enum jwt_claim jwt_claim_of(struct slice name);
const char *jwt_claim_name(enum jwt_claim claim);

/* Fills all of *grant but kid. Its strings are written to `text`, which needs as many bytes as the payload. Returns REFUSAL_NONE, or
 * token_invalid, token_expired, wrong_cell, or agent_unavailable if memory is short; *reason is then static text. */
enum refusal jwt_claims_read(const struct jwt_rules *rules, struct slice payload, int64_t now,
                             struct writer *text, struct grant *grant, const char **reason);

/* Appends a payload that these rules read as this grant. The strings must need no escaping in JSON. */
bool jwt_claims_write(const struct jwt_rules *rules, const struct grant *grant, struct writer *w,
                      struct fail *why);

#endif
