/* SPDX-License-Identifier: MIT */
/* digest: length and SHA-256 of a body that passes by in pieces. */
#ifndef CELLGATE_WORKER_SYSTEMS_DIGEST_H
#define CELLGATE_WORKER_SYSTEMS_DIGEST_H

#include <openssl/evp.h>

#include "spoa/base/bytes/slice.h"

#define DIGEST_TEXT 65 /* 64 hexadecimal digits and NUL */

struct digest {
    EVP_MD_CTX *context; /* NULL: memory was short */
    uint64_t length;
};

void digest_begin(struct digest *d);
void digest_add(struct digest *d, struct slice piece);
/* False when it could not be computed. */
bool digest_text(struct digest *d, char text[DIGEST_TEXT]);
void digest_free(struct digest *d);

#endif
