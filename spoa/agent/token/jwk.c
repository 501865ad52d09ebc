/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/jwk.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>

#include "spoa/base/json/json.h"
#include "spoa/base/text/base64url.h"

#define COORDINATE 32 /* length of every number in keys of these two curves, in bytes */

struct jwk {
    const struct json *doc;
    const json_node *root;
    enum key_algorithm algorithm;
    enum key_part part;
    uint8_t point[1 + 2 * COORDINATE]; /* SEC 1 uncompressed; Ed25519 uses the first coordinate */
    uint8_t d[COORDINATE];
};

static bool member_is(const struct jwk *jwk, const char *key, const char *word)
{
    struct slice value;
    return json_text(json_member(jwk->root, key), &value) && slice_is(value, word);
}

static bool member_absent_or(const struct jwk *jwk, const char *key, const char *word)
{
    return !json_member(jwk->root, key) || member_is(jwk, key, word);
}

static bool operation_listed(const struct jwk *jwk)
{
    const json_node *list = json_member(jwk->root, "key_ops");
    if (!list)
        return true;
    struct slice word;
    for (const json_node *node = json_first(list); node; node = json_next(node))
        if (json_text(node, &word) && slice_is(word, jwk->part == KEY_PRIVATE ? "sign" : "verify"))
            return true;
    return false;
}

static bool coordinate(const struct jwk *jwk, const char *key, uint8_t *at)
{
    struct slice text;
    struct writer w = writer_of(at, COORDINATE);
    return json_text(json_member(jwk->root, key), &text) && base64url_decode(text, &w) && w.len == COORDINATE;
}

static bool purpose(const struct jwk *jwk, struct fail *why)
{
    bool curve = jwk->algorithm == KEY_ES256;
    if (!member_is(jwk, "kty", curve ? "EC" : "OKP") || !member_is(jwk, "crv", curve ? "P-256" : "Ed25519"))
        return json_fail(jwk->doc, jwk->root, why, "not a key for %s", key_algorithm_text(jwk->algorithm));
    if (!member_absent_or(jwk, "alg", key_algorithm_text(jwk->algorithm)))
        return json_fail(jwk->doc, json_member(jwk->root, "alg"), why, "the key is for another algorithm");
    if (!member_absent_or(jwk, "use", "sig") || !operation_listed(jwk))
        return json_fail(jwk->doc, jwk->root, why, "the key is not for signatures");
    if (jwk->part == KEY_PUBLIC && json_member(jwk->root, "d"))
        return json_fail(jwk->doc, jwk->root, why, "a private key where a public one is expected");
    return true;
}

static bool numbers(struct jwk *jwk, struct fail *why)
{
    jwk->point[0] = POINT_CONVERSION_UNCOMPRESSED;
    if (!coordinate(jwk, "x", jwk->point + 1))
        return json_fail(jwk->doc, jwk->root, why, "x is not %d bytes of base64url", COORDINATE);
    if (jwk->algorithm == KEY_ES256 && !coordinate(jwk, "y", jwk->point + 1 + COORDINATE))
        return json_fail(jwk->doc, jwk->root, why, "y is not %d bytes of base64url", COORDINATE);
    if (jwk->part == KEY_PRIVATE && !coordinate(jwk, "d", jwk->d))
        return json_fail(jwk->doc, jwk->root, why, "d is not %d bytes of base64url", COORDINATE);
    return true;
}

static bool push_curve(const struct jwk *jwk, OSSL_PARAM_BLD *build, const BIGNUM *d)
{
    return OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
           OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, jwk->point, sizeof(jwk->point)) &&
           (!d || OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, d));
}

static EVP_PKEY *from_parameters(const OSSL_PARAM *parameters, enum key_part part)
{
    EVP_PKEY *pkey = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    if (context && EVP_PKEY_fromdata_init(context) > 0)
        EVP_PKEY_fromdata(context, &pkey, part == KEY_PRIVATE ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY,
                          (OSSL_PARAM *)parameters);
    EVP_PKEY_CTX_free(context);
    return pkey;
}

static EVP_PKEY *curve_key(const struct jwk *jwk)
{
    BIGNUM *d = jwk->part == KEY_PRIVATE ? BN_bin2bn(jwk->d, sizeof(jwk->d), NULL) : NULL;
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    OSSL_PARAM *parameters = NULL;
    EVP_PKEY *pkey = NULL;
    if (build && (d || jwk->part == KEY_PUBLIC) && push_curve(jwk, build, d))
        parameters = OSSL_PARAM_BLD_to_param(build);
    if (parameters)
        pkey = from_parameters(parameters, jwk->part);
    OSSL_PARAM_free(parameters);
    OSSL_PARAM_BLD_free(build);
    BN_clear_free(d);
    return pkey;
}

/* Makes a private key; its public half follows from d and must equal x. */
static EVP_PKEY *edwards_private(const struct jwk *jwk)
{
    uint8_t x[COORDINATE];
    size_t length = sizeof(x);
    EVP_PKEY *pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, jwk->d, sizeof(jwk->d));
    if (pkey && EVP_PKEY_get_raw_public_key(pkey, x, &length) && memcmp(x, jwk->point + 1, COORDINATE) == 0)
        return pkey;
    EVP_PKEY_free(pkey);
    return NULL;
}

static EVP_PKEY *edwards_key(const struct jwk *jwk)
{
    return jwk->part == KEY_PRIVATE
               ? edwards_private(jwk)
               : EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, jwk->point + 1, COORDINATE);
}

EVP_PKEY *jwk_load(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                   struct fail *why)
{
    struct json_limits limits = {.bytes = KEY_FILE, .depth = 4};
    struct json *doc = json_parse(text, name, 0, limits, why);
    if (!doc)
        return NULL;
    struct jwk jwk = {.doc = doc, .root = json_root(doc), .algorithm = algorithm, .part = part};
    EVP_PKEY *pkey = NULL;
    if (purpose(&jwk, why) && numbers(&jwk, why)) {
        pkey = algorithm == KEY_ES256 ? curve_key(&jwk) : edwards_key(&jwk);
        if (!pkey)
            fail(why, "%s: the numbers are not a key", name);
    }
    OPENSSL_cleanse(jwk.d, sizeof(jwk.d));
    json_free(doc);
    return pkey;
}
