/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/hash.h"

#include <endian.h>
#include <sys/random.h>

bool hash_secret_init(struct hash_secret *secret)
{
    return getrandom(secret, sizeof *secret, 0) == (ssize_t)sizeof *secret;
}

static uint64_t rotate(uint64_t v, unsigned bits)
{
    return v << bits | v >> (64 - bits);
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline __attribute__((always_inline)) void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

/* Returns the last word of SipHash: the bytes after the last whole word, and the length in the top byte. */
static uint64_t last_word(struct slice data)
{
    uint64_t word = 0;
    size_t left = data.len % 8;
    /* one load of the last eight bytes; the shift drops those of the word before */
    if (data.len >= 8 && left) {
        memcpy(&word, data.at + data.len - 8, 8);
        word = le64toh(word) >> (64 - 8 * left);
    } else {
        for (size_t i = 0; i < left; i++)
            word |= (uint64_t)data.at[i] << (8 * i);
    }
    return word | (uint64_t)data.len << 56;
}

uint64_t hash_keyed(const struct hash_secret *secret, struct slice data)
{
    struct sip s = {secret->k0 ^ 0x736f6d6570736575u, secret->k1 ^ 0x646f72616e646f6du,
                    secret->k0 ^ 0x6c7967656e657261u, secret->k1 ^ 0x7465646279746573u};
    uint64_t word;
    for (size_t i = 0; data.len - i >= 8; i += 8) {
        memcpy(&word, data.at + i, 8);
        sip_word(&s, le64toh(word));
    }
    sip_word(&s, last_word(data));
    s.v2 ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
