/* SPDX-License-Identifier: MIT */
/* algorithm: the algorithms of keys, the parts of a pair, and the size limit of a key file. */
#ifndef CELLGATE_AGENT_TOKEN_ALGORITHM_H
#define CELLGATE_AGENT_TOKEN_ALGORITHM_H

#define KEY_FILE 65536 /* limit of a key file, in bytes */

enum key_algorithm { KEY_HS256, KEY_ES256, KEY_EDDSA };
enum key_part { KEY_PUBLIC, KEY_PRIVATE };

/* Returns the name of the algorithm in a token's `alg`. */
static inline const char *key_algorithm_text(enum key_algorithm algorithm)
{
    static const char *const words[] = {[KEY_HS256] = "HS256", [KEY_ES256] = "ES256", [KEY_EDDSA] = "EdDSA"};
    return words[algorithm];
}

#endif
