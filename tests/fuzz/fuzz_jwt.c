/* SPDX-License-Identifier: MIT */
/* The input as a token, as the payload of a good token, and as a key of the configuration. */
#include <stdlib.h>

#include "spoa/agent/token/jws.h"
#include "spoa/agent/token/jwt_claims.h"
#include "tests/fuzz/fuzz.h"

static void as_token(const struct key *key, struct slice input)
{
    struct jws jws;
    const char *reason = NULL;
    if (jws_open(input, &jws, &reason) != JWS_GOOD) {
        if (!reason)
            abort();
        return;
    }
    uint8_t memory[JWS_PART];
    struct writer payload = writer_of(memory, sizeof(memory));
    if (jws_verify(&jws, key) == KEY_GOOD && !slice_is(jws.alg, "HS256"))
        abort();
    (void)jws_payload(&jws, &payload);
    if (payload.full)
        abort();
    jws_close(&jws);
}

static bool inside(struct slice s, const struct writer *text)
{
    return !slice_present(s) || (s.at >= text->at && s.at + s.len <= text->at + text->len);
}

static void as_claims(struct slice input)
{
    struct jwt_rules rules = {.cell = "cell-a", .leeway = 5, .max_ttl = 3600};
    uint8_t memory[JWS_PART];
    struct writer text = writer_of(memory, input.len < sizeof(memory) ? input.len : sizeof(memory));
    struct grant g;
    const char *reason = NULL;
    for (enum jwt_claim i = 0; i < JWT_CLAIM_COUNT; i++)
        rules.name[i] = jwt_claim_name(i);
    if (jwt_claims_read(&rules, input, 2000000000, &text, &g, &reason) != REFUSAL_NONE) {
        if (!reason)
            abort();
        return;
    }
    if (g.exp + g.leeway <= 2000000000 || g.exp > 2000003605 || (g.needs & ~(unsigned)NEED_ALL))
        abort();
    if (!inside(g.sub, &text) || !inside(g.org, &text) || !inside(g.sandbox, &text) ||
        !inside(g.jti, &text) || !inside(g.ports, &text))
        abort();
}

static void as_payload(const struct key *key, struct slice input)
{
    uint8_t token[JWS_LIMIT], memory[JWS_PART];
    struct writer t = writer_of(token, sizeof(token)), payload = writer_of(memory, sizeof(memory));
    struct jws jws;
    const char *reason;
    if (!jws_sign(key, SLICE_LITERAL("k1"), input, &t))
        return;
    if (jws_open(writer_slice(&t), &jws, &reason) != JWS_GOOD)
        abort();
    if (jws_verify(&jws, key) != KEY_GOOD || !jws_payload(&jws, &payload) ||
        !slice_equal(writer_slice(&payload), input))
        abort();
    jws_close(&jws);
}

/* Only JWKs: reading PEM is OpenSSL's, and slow. */
static void as_key(struct slice input)
{
    if (input.len == 0 || input.at[0] != '{')
        return;
    for (enum key_algorithm a = KEY_ES256; a <= KEY_EDDSA; a++)
        for (enum key_part part = KEY_PUBLIC; part <= KEY_PRIVATE; part++) {
            struct fail why;
            key_free(key_pair(input, a, part, "key", &why));
        }
}

static int read_input(const uint8_t *data, size_t size)
{
    struct fail why;
    struct slice input = slice_of(data, size);
    static struct key *key;
    if (!key)
        key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), KEY_SECRET, "secret", &why);
    as_token(key, input);
    as_claims(input);
    as_payload(key, input);
    as_key(input);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
