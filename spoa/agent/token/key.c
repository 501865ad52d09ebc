/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "spoa/agent/token/jwk.h"
#include "spoa/base/os/file.h"
#include "spoa/base/os/openssl_memory.h"

#define FINGERPRINT "\0cellgate: fingerprint of a key, 1"
#define HASH        ((size_t)32) /* length of SHA-256, and of each half of an ES256 signature, in bytes */

struct key {
    enum key_algorithm algorithm;
    EVP_MAC_CTX *mac; /* HMAC of a secret, to be copied for each use */
    size_t secret_length;
    bool ends_line;
    EVP_PKEY *pkey; /* a pair, or its public part */
};

void key_free(struct key *key)
{
    if (!key)
        return;
    EVP_MAC_CTX_free(key->mac);
    EVP_PKEY_free(key->pkey);
    free(key);
}

static struct key *key_new(enum key_algorithm algorithm, const char *name, struct fail *why)
{
    struct key *key = calloc(1, sizeof(*key));
    if (key)
        key->algorithm = algorithm;
    else
        fail(why, "%s: out of memory", name);
    return key;
}

/* ---- secrets ---- */

static EVP_MAC_CTX *hmac_sha256(struct slice secret)
{
    OSSL_PARAM digest[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = mac ? EVP_MAC_CTX_new(mac) : NULL;
    EVP_MAC_free(mac);
    if (context && EVP_MAC_init(context, secret.at, secret.len, digest))
        return context;
    EVP_MAC_CTX_free(context);
    return NULL;
}

static bool ends_line(struct slice s)
{
    if (s.len == 0 || s.at[s.len - 1] != '\n')
        return false;
    for (size_t i = 0; i < s.len; i++)
        if ((s.at[i] < ' ' || s.at[i] > '~') && s.at[i] != '\n' && s.at[i] != '\r')
            return false;
    return true;
}

struct key *key_secret(struct slice bytes, size_t least, const char *name, struct fail *why)
{
    if (bytes.len == 0 || bytes.len < least) {
        fail(why, "%s: the secret has %zu bytes, at least %zu are required", name, bytes.len,
             least ? least : 1);
        return NULL;
    }
    struct key *key = key_new(KEY_HS256, name, why);
    if (!key)
        return NULL;
    key->secret_length = bytes.len;
    key->ends_line = ends_line(bytes);
    openssl_memory_watch();
    key->mac = hmac_sha256(bytes);
    if (key->mac)
        return key;
    ERR_clear_error();
    fail(why, "%s: %s", name, openssl_memory_lacked() ? "out of memory" : "HMAC-SHA256 is not available");
    key_free(key);
    return NULL;
}

size_t key_secret_length(const struct key *key)
{
    return key->secret_length;
}

bool key_secret_ends_line(const struct key *key)
{
    return key->ends_line;
}

/* ---- pairs ---- */

/* OpenSSL asks on the terminal for the password of an encrypted key unless a callback returns none. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer, (void)size, (void)writing, (void)context;
    return -1;
}

static bool holds(struct slice text, const char *words)
{
    return memmem(text.at, text.len, words, strlen(words)) != NULL;
}

static EVP_PKEY *pem_load(struct slice text, enum key_part part, const char *name, struct fail *why)
{
    if (part == KEY_PUBLIC && holds(text, "PRIVATE KEY-----")) {
        fail(why, "%s: a private key where a public one is expected", name);
        return NULL;
    }
    BIO *bio = BIO_new_mem_buf(text.at, (int)text.len);
    EVP_PKEY *pkey = NULL;
    if (bio && part == KEY_PUBLIC)
        pkey = PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    else if (bio)
        pkey = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    BIO_free(bio);
    if (!pkey)
        fail(why, "%s: not an unencrypted PEM %s key", name, part == KEY_PUBLIC ? "public" : "private");
    return pkey;
}

static bool fits(EVP_PKEY *pkey, enum key_algorithm algorithm)
{
    char group[32];
    if (algorithm == KEY_EDDSA)
        return EVP_PKEY_is_a(pkey, "ED25519");
    return EVP_PKEY_is_a(pkey, "EC") && EVP_PKEY_get_group_name(pkey, group, sizeof(group), NULL) &&
           strcmp(group, "prime256v1") == 0;
}

/* Returns false for a point off the curve, or a private number that does not belong to the point. */
static bool sound(EVP_PKEY *pkey, enum key_part part)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(pkey, NULL);
    bool good = context &&
                (part == KEY_PUBLIC ? EVP_PKEY_public_check(context) : EVP_PKEY_pairwise_check(context)) > 0;
    EVP_PKEY_CTX_free(context);
    return good;
}

static bool judge_pkey(EVP_PKEY *pkey, enum key_algorithm algorithm, enum key_part part, const char *name,
                       struct fail *why)
{
    if (!pkey)
        return false;
    if (!fits(pkey, algorithm))
        return fail(why, "%s: not a key for %s", name, key_algorithm_text(algorithm));
    if (!sound(pkey, part))
        return fail(why, "%s: the key is not sound", name);
    return true;
}

static bool starts_with_brace(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!text.at[i] || !strchr(" \t\r\n", text.at[i]))
            return text.at[i] == '{';
    return false;
}

struct key *key_pair(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                     struct fail *why)
{
    struct key *key = key_new(algorithm, name, why);
    if (!key)
        return NULL;
    openssl_memory_watch();
    key->pkey = starts_with_brace(text) ? jwk_load(text, algorithm, part, name, why)
                                        : pem_load(text, part, name, why);
    bool good = judge_pkey(key->pkey, algorithm, part, name, why);
    ERR_clear_error();
    if (good)
        return key;
    if (openssl_memory_lacked())
        fail(why, "%s: out of memory", name);
    key_free(key);
    return NULL;
}

bool key_matches(const struct key *one, const struct key *other)
{
    return one->pkey && other->pkey && EVP_PKEY_eq(one->pkey, other->pkey) == 1;
}

enum key_algorithm key_algorithm(const struct key *key)
{
    return key->algorithm;
}

/* ---- files ---- */

struct key *key_secret_file(const char *path, size_t least, struct fail *why)
{
    struct slice content;
    if (!file_read_secret(path, KEY_FILE, FILE_READABLE, &content, why))
        return NULL;
    struct key *key = key_secret(content, least, path, why);
    file_free(content);
    return key;
}

struct key *key_pair_file(const char *path, enum key_algorithm algorithm, enum key_part part,
                          struct fail *why)
{
    struct slice content;
    if (!file_read_secret(path, KEY_FILE, FILE_READABLE, &content, why))
        return NULL;
    struct key *key = key_pair(content, algorithm, part, path, why);
    file_free(content);
    return key;
}

/* ---- signatures ---- */

static bool mac_of(const struct key *key, struct slice data, uint8_t mac[HASH])
{
    size_t length = 0;
    EVP_MAC_CTX *context = EVP_MAC_CTX_dup(key->mac);
    bool made = context && EVP_MAC_update(context, data.at, data.len) &&
                EVP_MAC_final(context, mac, &length, HASH) && length == HASH;
    EVP_MAC_CTX_free(context);
    ERR_clear_error();
    return made;
}

/* Computes an HMAC of a text that no token kind signs: tokens begin with letters and have no NUL byte. So a fingerprint can never be a
 * signature. */
static bool mark_secret(const struct key *key, struct slice use, uint8_t mark[HASH])
{
    uint8_t memory[sizeof FINGERPRINT + HASH];
    struct writer text = writer_of(memory, sizeof memory);
    writer_put(&text, slice_of(FINGERPRINT, sizeof FINGERPRINT));
    writer_put(&text, use);
    return !text.full && mac_of(key, writer_slice(&text), mark);
}

static bool mark_public(const struct key *key, struct slice use, uint8_t mark[HASH])
{
    uint8_t *der = NULL;
    unsigned length = 0;
    int size = i2d_PUBKEY(key->pkey, &der);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool made = size > 0 && context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
                EVP_DigestUpdate(context, FINGERPRINT, sizeof FINGERPRINT) &&
                EVP_DigestUpdate(context, use.at, use.len) && EVP_DigestUpdate(context, der, (size_t)size) &&
                EVP_DigestFinal_ex(context, mark, &length) && length == HASH;
    EVP_MD_CTX_free(context);
    OPENSSL_free(der);
    ERR_clear_error();
    return made;
}

bool key_fingerprint(const struct key *key, struct slice use, uint8_t fingerprint[KEY_FINGERPRINT])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t mark[HASH] = {0};
    if (!(key->pkey ? mark_public(key, use, mark) : mark_secret(key, use, mark)))
        return false;
    for (size_t i = 0; i < KEY_FINGERPRINT; i++)
        fingerprint[i] = (uint8_t)digits[i % 2 ? mark[i / 2] & 15 : mark[i / 2] >> 4];
    return true;
}

/* Converts an ES256 signature to DER, as OpenSSL needs it. A token has r and s, 32 bytes each; the DER has at most 72 bytes. */
static bool der_of(struct slice raw, struct writer *der)
{
    uint8_t *at = der->at;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(raw.at, HASH, NULL), *s = BN_bin2bn(raw.at + HASH, HASH, NULL);
    int length = -1;
    if (pair && r && s && ECDSA_SIG_set0(pair, r, s)) {
        r = s = NULL;
        length = i2d_ECDSA_SIG(pair, &at);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);
    der->len = length > 0 ? (size_t)length : 0;
    return length > 0;
}

static bool raw_of(struct slice der, uint8_t raw[2 * HASH])
{
    const uint8_t *at = der.at;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)der.len);
    bool made = pair && BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, HASH) == HASH &&
                BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + HASH, HASH) == HASH;
    ECDSA_SIG_free(pair);
    return made;
}

static const EVP_MD *digest_of(const struct key *key)
{
    return key->algorithm == KEY_ES256 ? EVP_sha256() : NULL;
}

/* Makes a context for one signature, so that OpenSSL need not keep a copy of the state for more data. */
static EVP_MD_CTX *context_new(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context)
        EVP_MD_CTX_set_flags(context, EVP_MD_CTX_FLAG_FINALISE);
    return context;
}

static enum key_result pair_verify(const struct key *key, struct slice data, struct slice signature)
{
    uint8_t memory[80];
    struct writer der = writer_of(memory, sizeof(memory));
    if (signature.len != 2 * HASH)
        return KEY_BAD;
    if (key->algorithm == KEY_ES256) {
        if (!der_of(signature, &der))
            return KEY_MEMORY;
        signature = writer_slice(&der);
    }
    enum key_result result = KEY_MEMORY;
    EVP_MD_CTX *context = context_new();
    if (context && EVP_DigestVerifyInit(context, NULL, digest_of(key), NULL, key->pkey) == 1) {
        openssl_memory_watch();
        bool good = EVP_DigestVerify(context, signature.at, signature.len, data.at, data.len) == 1;
        result = good ? KEY_GOOD : openssl_memory_lacked() ? KEY_MEMORY : KEY_BAD;
    }
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    return result;
}

enum key_result key_verify(const struct key *key, struct slice data, struct slice signature)
{
    uint8_t mac[HASH];
    if (key->pkey)
        return pair_verify(key, data, signature);
    if (!mac_of(key, data, mac))
        return KEY_MEMORY;
    return slice_equal_constant_time(slice_of(mac, HASH), signature) ? KEY_GOOD : KEY_BAD;
}

static bool pair_sign(const struct key *key, struct slice data, struct writer *w)
{
    uint8_t made[80], raw[2 * HASH];
    size_t length = sizeof(made);
    EVP_MD_CTX *context = context_new();
    bool good = context && EVP_DigestSignInit(context, NULL, digest_of(key), NULL, key->pkey) == 1 &&
                EVP_DigestSign(context, made, &length, data.at, data.len) == 1;
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    if (!good)
        return false;
    if (key->algorithm == KEY_EDDSA)
        writer_put(w, slice_of(made, length));
    else if (raw_of(slice_of(made, length), raw))
        writer_put(w, slice_of(raw, sizeof(raw)));
    else
        return false;
    return !w->full;
}

bool key_sign(const struct key *key, struct slice data, struct writer *w)
{
    uint8_t mac[HASH];
    if (key->pkey)
        return pair_sign(key, data, w);
    if (!mac_of(key, data, mac))
        return false;
    writer_put(w, slice_of(mac, sizeof(mac)));
    return !w->full;
}
