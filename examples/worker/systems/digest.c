/* SPDX-License-Identifier: MIT */
#include "examples/worker/systems/digest.h"

#include <stdio.h>

void digest_free(struct digest *d)
{
    EVP_MD_CTX_free(d->context);
    d->context = NULL;
}

void digest_begin(struct digest *d)
{
    *d = (struct digest){EVP_MD_CTX_new(), 0};
    if (d->context && !EVP_DigestInit_ex(d->context, EVP_sha256(), NULL))
        digest_free(d);
}

void digest_add(struct digest *d, struct slice piece)
{
    d->length += piece.len;
    if (d->context && !EVP_DigestUpdate(d->context, piece.at, piece.len))
        digest_free(d);
}

bool digest_text(struct digest *d, char text[DIGEST_TEXT])
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!d->context || !EVP_DigestFinal_ex(d->context, hash, &len))
        return false;
    for (unsigned i = 0; i < len; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", hash[i]);
    return true;
}
