/* SPDX-License-Identifier: MIT */
/*
 * jws: the compact form of RFC 7515, HEADER.PAYLOAD.SIGNATURE: its parts, its signature and how to make it. What the
 * payload claims is for jwt_claims.h. Of the header, `alg`, `typ` and `kid` are
 * honoured, a `crit` is refused, everything else (`jku`, `jwk`, `x5u`, ...) is ignored: keys come from the
 * configuration alone.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWS_H
#define CELLGATE_AGENT_TOKEN_JWS_H

#include "spoa/agent/token/key.h"
#include "spoa/base/json/json.h"

#define JWS_LIMIT ((size_t)8192)      /* bytes of a token; refused beyond before anything is parsed */
#define JWS_PART  (JWS_LIMIT / 4 * 3) /* bytes that any part of it decodes to */

enum jws_result { JWS_GOOD, JWS_BAD, JWS_MEMORY };

struct jws {
    struct slice input;         /* HEADER.PAYLOAD, which is signed */
    struct slice payload;       /* still base64url */
    struct slice alg, typ, kid; /* absent: the header has none; they point into `header` */
    uint8_t signature[KEY_SIGNATURE];
    size_t signature_length;
    struct json *header;
};

/* Whether text has the outward form: three parts with dots between them. */
bool jws_recognises(struct slice text);

/* Takes a token apart; text must outlive jws. On JWS_GOOD the caller calls jws_close; otherwise *reason says
 * why not, in static text. */
enum jws_result jws_open(struct slice text, struct jws *jws, const char **reason);
void jws_close(struct jws *jws);

/* KEY_GOOD: the token says the key's algorithm, and the signature is the key's. */
enum key_result jws_verify(const struct jws *jws, const struct key *key);
/* Decodes the payload into w, which needs JWS_PART bytes. */
bool jws_payload(const struct jws *jws, struct writer *w);

/* Whether s can stand in a header as it is: printable ASCII without quotes and backslashes. */
bool jws_plain(struct slice s);
/* Appends a token for a payload, with the key's algorithm, typ JWT and, if present, the kid. False when w is
 * full, the key cannot sign, kid is not plain text, or out of memory. */
bool jws_sign(const struct key *key, struct slice kid, struct slice payload, struct writer *w);

#endif
