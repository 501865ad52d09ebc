/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/certificate.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/os/file.h"

enum { FILE_MOST = 256 * 1024, SERIAL_BITS = 127, VERSION_3 = 2 };

/* Organisation that marks certificates as cellgate's. The certificate has no common name, which may have 64 bytes at most. */
static const char organisation[] = "cellgate egress";

static bool fail_of_openssl(struct fail *why, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    fail(why, "%s: %s", what, reason ? reason : "OpenSSL does not say why");
    ERR_clear_error();
    return false;
}

/* Provides no passphrase: HAProxy could not ask for one either. */
static int no_passphrase(char *text, int size, int writes, void *context)
{
    (void)text, (void)size, (void)writes, (void)context;
    return -1;
}

static EVP_PKEY *read_key(struct slice pem)
{
    BIO *in = BIO_new_mem_buf(pem.at, (int)pem.len);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL) : NULL;
    BIO_free(in);
    ERR_clear_error();
    return key;
}

static void free_chain(STACK_OF(X509) * chain)
{
    sk_X509_pop_free(chain, X509_free);
}

/* Returns the chain, or NULL if there is none or it cannot be read. */
static STACK_OF(X509) * read_chain(struct slice pem)
{
    BIO *in = BIO_new_mem_buf(pem.at, (int)pem.len);
    STACK_OF(X509) *chain = in ? sk_X509_new_null() : NULL;
    X509 *next = NULL;
    while (chain && (next = PEM_read_bio_X509(in, NULL, no_passphrase, NULL)))
        if (sk_X509_push(chain, next) == 0) {
            X509_free(next);
            free_chain(chain);
            chain = NULL;
        }
    bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (chain && (!ended || sk_X509_num(chain) == 0)) {
        free_chain(chain);
        chain = NULL;
    }
    BIO_free(in);
    ERR_clear_error();
    return chain;
}

/* ---- the authority ---- */

static X509 *signer_of(const struct authority *authority)
{
    return sk_X509_value(authority->chain, 0);
}

static bool can_sign(const struct authority *authority, const char *path, struct fail *why)
{
    X509 *signer = signer_of(authority);
    if (X509_check_private_key(signer, authority->key) != 1)
        return ERR_clear_error(), fail(why, "%s: the key is not that of the first certificate", path);
    if (X509_check_ca(signer) == 0)
        return fail(why, "%s: the first certificate is no authority's: it needs basicConstraints CA:TRUE",
                    path);
    if (X509_cmp_current_time(X509_get0_notAfter(signer)) <= 0)
        return fail(why, "%s: the certificate has ended", path);
    return true;
}

bool authority_load(struct authority *authority, const char *path, struct fail *why)
{
    struct slice pem;
    *authority = (struct authority){0};
    if (!file_read_secret(path, FILE_MOST, FILE_READABLE, &pem, why))
        return false;
    authority->chain = read_chain(pem);
    authority->key = authority->chain ? read_key(pem) : NULL;
    file_free(pem);
    bool good = authority->chain
                    ? authority->key || fail(why, "%s: there is no key, or one with a passphrase", path)
                    : fail(why, "%s: there is no certificate, or a broken one", path);
    if (good && can_sign(authority, path, why))
        return true;
    authority_free(authority);
    return false;
}

void authority_free(struct authority *authority)
{
    free_chain(authority->chain);
    EVP_PKEY_free(authority->key);
    *authority = (struct authority){0};
}

void authority_end(const struct authority *authority, char text[11])
{
    struct tm end = {0};
    ASN1_TIME_to_tm(X509_get0_notAfter(signer_of(authority)), &end);
    strftime(text, 11, "%Y-%m-%d", &end);
}

/* ---- a certificate ---- */

static X509_NAME *subject(void)
{
    X509_NAME *name = X509_NAME_new();
    if (name && X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_ASC,
                                           (const uint8_t *)organisation, -1, -1, 0) == 1)
        return name;
    X509_NAME_free(name);
    return NULL;
}

static bool set_serial(X509 *certificate)
{
    BIGNUM *number = BN_new();
    bool good = number && BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return good;
}

static bool set_subject(X509 *certificate)
{
    X509_NAME *name = subject();
    bool good = name && X509_set_subject_name(certificate, name) == 1;
    X509_NAME_free(name);
    return good;
}

static bool add_host(X509 *certificate, const char *host)
{
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    bool good = names && name && text && ASN1_STRING_set(text, host, -1) == 1;
    if (good) {
        GENERAL_NAME_set0_value(name, GEN_DNS, text);
        text = NULL;
        good = sk_GENERAL_NAME_push(names, name) > 0;
        name = good ? NULL : name;
        good =
            good && X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1;
    }
    ASN1_IA5STRING_free(text);
    GENERAL_NAME_free(name);
    GENERAL_NAMES_free(names);
    return good;
}

static bool add_extension(X509 *certificate, X509 *signer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, signer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, &context, nid, value);
    bool good = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool fill(X509 *certificate, X509 *signer, EVP_PKEY *key, const char *host)
{
    bool signer_has_id = X509_get_ext_by_NID(signer, NID_subject_key_identifier, -1) >= 0;
    return X509_set_version(certificate, VERSION_3) == 1 && set_serial(certificate) &&
           set_subject(certificate) &&
           X509_set_issuer_name(certificate, X509_get_subject_name(signer)) == 1 &&
           X509_set1_notBefore(certificate, X509_get0_notBefore(signer)) == 1 &&
           X509_set1_notAfter(certificate, X509_get0_notAfter(signer)) == 1 &&
           X509_set_pubkey(certificate, key) == 1 && add_host(certificate, host) &&
           add_extension(certificate, signer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate, signer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate, signer, NID_ext_key_usage, "serverAuth") &&
           add_extension(certificate, signer, NID_subject_key_identifier, "hash") &&
           (!signer_has_id || add_extension(certificate, signer, NID_authority_key_identifier, "keyid"));
}

static bool sign(X509 *certificate, EVP_PKEY *key)
{
    int kind = EVP_PKEY_get_base_id(key);
    bool hashes_itself = kind == EVP_PKEY_ED25519 || kind == EVP_PKEY_ED448;
    return X509_sign(certificate, key, hashes_itself ? NULL : EVP_sha256()) > 0;
}

/* Writes the chain without the root, which clients have. */
static bool write_chain(BIO *out, STACK_OF(X509) * chain)
{
    bool good = true;
    for (int i = 0; good && i < sk_X509_num(chain); i++) {
        X509 *link = sk_X509_value(chain, i);
        bool root = X509_NAME_cmp(X509_get_subject_name(link), X509_get_issuer_name(link)) == 0;
        good = root || PEM_write_bio_X509(out, link) == 1;
    }
    return good;
}

bool certificate_write(const struct authority *authority, const char *name, int fd, struct fail *why)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    BIO *out = BIO_new_fd(fd, BIO_NOCLOSE);
    bool good = key && certificate && out && fill(certificate, signer_of(authority), key, name) &&
                sign(certificate, authority->key) && PEM_write_bio_X509(out, certificate) == 1 &&
                write_chain(out, authority->chain) &&
                PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1;
    if (!good)
        fail_of_openssl(why, "no certificate can be made");
    BIO_free(out);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return good;
}

/* ---- one that is there ---- */

static bool is_for(X509 *certificate, const char *host)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool good = false;
    if (sk_GENERAL_NAME_num(names) == 1) {
        int kind;
        ASN1_STRING *text = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, 0), &kind);
        good = kind == GEN_DNS &&
               slice_equal(slice_of(ASN1_STRING_get0_data(text), (size_t)ASN1_STRING_length(text)),
                           slice_text(host));
    }
    GENERAL_NAMES_free(names);
    return good;
}

/* Returns true if the signer's chain without the root follows the certificate, as write_chain writes it. */
static bool has_chain(STACK_OF(X509) * chain, STACK_OF(X509) * wanted)
{
    int at = 1;
    for (int i = 0; i < sk_X509_num(wanted); i++) {
        X509 *link = sk_X509_value(wanted, i);
        if (X509_NAME_cmp(X509_get_subject_name(link), X509_get_issuer_name(link)) == 0)
            continue;
        if (at >= sk_X509_num(chain) || X509_cmp(sk_X509_value(chain, at++), link) != 0)
            return false;
    }
    return at == sk_X509_num(chain);
}

static bool is_signed_by(X509 *certificate, const struct authority *authority)
{
    X509 *signer = signer_of(authority);
    return X509_NAME_cmp(X509_get_issuer_name(certificate), X509_get_subject_name(signer)) == 0 &&
           X509_verify(certificate, X509_get0_pubkey(signer)) == 1 &&
           ASN1_TIME_compare(X509_get0_notBefore(certificate), X509_get0_notBefore(signer)) == 0 &&
           ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(signer)) == 0;
}

const char *certificate_outdated(const struct authority *authority, const char *name, struct slice pem)
{
    STACK_OF(X509) *chain = read_chain(pem);
    EVP_PKEY *key = chain ? read_key(pem) : NULL;
    X509 *certificate = chain ? sk_X509_value(chain, 0) : NULL;
    const char *reason = NULL;
    if (!certificate || !is_for(certificate, name))
        reason = "its certificate is another host's";
    else if (!key || X509_check_private_key(certificate, key) != 1)
        reason = "its certificate has not its key";
    else if (!is_signed_by(certificate, authority) || !has_chain(chain, authority->chain))
        reason = "its certificate is not of the present egress.sign_file";
    ERR_clear_error();
    EVP_PKEY_free(key);
    free_chain(chain);
    return reason;
}

bool certificate_is_ours(struct slice pem)
{
    STACK_OF(X509) *chain = read_chain(pem);
    X509_NAME *name = subject();
    bool ours = chain && name && X509_NAME_cmp(X509_get_subject_name(sk_X509_value(chain, 0)), name) == 0;
    X509_NAME_free(name);
    free_chain(chain);
    return ours;
}
