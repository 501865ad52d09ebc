/* SPDX-License-Identifier: MIT */
/* certificate: creates certificates for outside hosts, signed by the authority of egress, as files for HAProxy. */
#ifndef CELLGATE_CTL_CERTIFICATE_H
#define CELLGATE_CTL_CERTIFICATE_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct authority {
    STACK_OF(X509) * chain; /* certificates: the first signs, the others follow up to the root */
    EVP_PKEY *key;
};

/* Reads PEM certificates and key from one file. Returns false and sets *why if they do not match, or cannot sign now. */
bool authority_load(struct authority *authority, const char *path, struct fail *why);
void authority_free(struct authority *authority);
/* Writes the day on which the authority and all certificates it signs expire, like "2027-11-24". */
void authority_end(const struct authority *authority, char text[11]);

/* Writes PEM to fd: a certificate for the name with its own key, valid as long as the authority, and the chain that a client needs up to
 * the root. */
bool certificate_write(const struct authority *authority, const char *name, int fd, struct fail *why);
/* Returns NULL if the file's content is what certificate_write would write for the name now; otherwise the reason why not. */
const char *certificate_outdated(const struct authority *authority, const char *name, struct slice pem);
/* Returns true if certificate_write wrote the file, with any authority. */
bool certificate_is_ours(struct slice pem);

#endif
