/* SPDX-License-Identifier: MIT */
/*
 * jws: the compact form of RFC 7515, HEADER.PAYLOAD.SIGNATURE: parses, verifies and makes it. jwt_claims.h reads the payload. In the
 * header, `alg`, `typ` and `kid` count, a `crit` is refused, and everything else (`jku`, `jwk`, `x5u`, ...) is ignored, because keys
 * come only from the configuration.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWS_H
#define CELLGATE_AGENT_TOKEN_JWS_H

#include "spoa/agent/token/key.h"
#include "spoa/base/json/json.h"

#define JWS_LIMIT ((size_t)8192)      /* longest token, in bytes; a longer one is refused before parsing */
#define JWS_PART  (JWS_LIMIT / 4 * 3) /* longest decoded part of a token, in bytes */

enum jws_result { JWS_GOOD, JWS_BAD, JWS_MEMORY };

struct jws {
    struct slice input;         /* HEADER.PAYLOAD, the signed bytes */
    struct slice payload;       /* still base64url */
    struct slice alg, typ, kid; /* absent if the header has none; point into `header` */
    uint8_t signature[KEY_SIGNATURE];
    size_t signature_length;
    struct json *header;
};

/* Returns whether the text has the form of a token: three parts separated by dots. */
bool jws_recognises(struct slice text);

/* Parses a token; `text` must outlive *jws. After JWS_GOOD the caller must call jws_close; otherwise *reason is a static text. */
enum jws_result jws_open(struct slice text, struct jws *jws, const char **reason);
void jws_close(struct jws *jws);

/* Returns KEY_GOOD if the token names the key's algorithm and has a signature of this key. */
enum key_result jws_verify(const struct jws *jws, const struct key *key);
/* Decodes the payload into w, which needs room for JWS_PART bytes. */
bool jws_payload(const struct jws *jws, struct writer *w);

/* Returns whether s needs no escaping in a header: printable ASCII without quotes and backslashes. */
bool jws_plain(struct slice s);
/* Appends a token with this payload, the key's algorithm, typ JWT and, if present, the kid. Returns false if w is full, the key cannot
 * sign, kid needs escaping, or memory is short. */
bool jws_sign(const struct key *key, struct slice kid, struct slice payload, struct writer *w);

#endif
