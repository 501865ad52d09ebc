/* SPDX-License-Identifier: MIT */
/*
 * token_secret: secrets of token kinds from files that hold them as text: what stands before and behind it (a
 * line end) does not count. Files are registered with the load, short secrets are warned of. Errors name the
 * file and never what is in it.
 */
#ifndef CELLGATE_AGENT_TOKEN_SECRET_H
#define CELLGATE_AGENT_TOKEN_SECRET_H

#include "spoa/agent/key.h"
#include "spoa/agent/token_kind.h"

#define TOKEN_SECRET 1024 /* bytes that a secret may have */

/* A key for HMAC-SHA256; NULL and *why. `least`: bytes that it must have. */
struct key *token_secret_key(const struct token_load *load, const char *path, size_t least, struct fail *why);
/* The same from padded base64 (RFC 4648 section 4): appends its bytes to w, which holds TOKEN_SECRET. */
bool token_secret_base64(const struct token_load *load, const char *path, size_t least, struct writer *w,
                         struct fail *why);

#endif
