/* SPDX-License-Identifier: MIT */
/* certificate: certificates of hosts outside, signed by the authority of egress, as files for HAProxy. */
#ifndef CELLGATE_CTL_CERTIFICATE_H
#define CELLGATE_CTL_CERTIFICATE_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct authority {
    STACK_OF(X509) * chain; /* the first signs, the others are behind it */
    EVP_PKEY *key;
};

/* Reads certificates and key, PEM, from one file. False and *why: they do not belong together, or cannot sign now. */
bool authority_load(struct authority *authority, const char *path, struct fail *why);
void authority_free(struct authority *authority);
/* When it ends, and all that it signs: "2027-11-24". */
void authority_end(const struct authority *authority, char text[11]);

/* Writes PEM to fd: a certificate for the name with a key of its own, valid as long as the authority, and what a client
 * needs between it and the root. */
bool certificate_write(const struct authority *authority, const char *name, int fd, struct fail *why);
/* NULL, or why the content of such a file is not what certificate_write would write for the name now. */
const char *certificate_outdated(const struct authority *authority, const char *name, struct slice pem);
/* Whether certificate_write wrote it, whoever signed it. */
bool certificate_is_ours(struct slice pem);

#endif
