/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/mux_proof.h"

#include <openssl/crypto.h>

#include "spoa/base/text/base64url.h"
#include "spoa/base/text/cidr.h"

/* The key signs tickets, too. A later version that signs something else says so here. */
#define DOMAIN "cellgate mux source 1;"

enum { TIME_BYTES = 5, MAC_BYTES = 16, PROOF_BYTES = TIME_BYTES + MAC_BYTES, SIGNED_MOST = 64 };

#define FOREVER (((uint64_t)1 << 8 * TIME_BYTES) - 1)

_Static_assert(PROOF_BYTES * 4 == MUX_PROOF_TEXT * 3, "a proof is whole groups of base64");

static bool sign(const struct key *key, const uint8_t until[TIME_BYTES], const struct address *source,
                 uint8_t mac[MAC_BYTES])
{
    uint8_t text[SIGNED_MOST], signature[KEY_SIGNATURE];
    struct writer w = writer_of(text, sizeof text), out = writer_of(signature, sizeof signature);
    const struct address plain = cidr_unmapped(source);
    writer_text(&w, DOMAIN);
    writer_put(&w, slice_of(until, TIME_BYTES));
    writer_u8(&w, plain.family);
    writer_put(&w, slice_of(plain.bytes, plain.family == 4 ? 4 : 16));
    if (w.full || !plain.family || !key || !key_sign(key, writer_slice(&w), &out))
        return false;
    memcpy(mac, signature, MAC_BYTES);
    return true;
}

struct slice mux_proof_write(const struct key *key, const struct address *source, int64_t until,
                             struct writer *w)
{
    uint8_t proof[PROOF_BYTES];
    struct writer time = writer_of(proof, TIME_BYTES);
    size_t start = w->len;
    writer_be(&time, until < 0 || (uint64_t)until > FOREVER ? FOREVER : (uint64_t)until, TIME_BYTES);
    if (!sign(key, proof, source, proof + TIME_BYTES))
        return slice_text(NULL);
    base64url_encode(slice_of(proof, sizeof proof), w);
    return w->full ? slice_text(NULL) : slice_from(writer_slice(w), start);
}

static uint64_t read_time(const uint8_t *at)
{
    uint64_t time = 0;
    for (size_t i = 0; i < TIME_BYTES; i++)
        time = time << 8 | at[i];
    return time;
}

bool mux_proof_read(const struct key *key, struct slice text, const struct address *source, int64_t *until)
{
    uint8_t proof[PROOF_BYTES], mac[MAC_BYTES];
    struct writer w = writer_of(proof, sizeof proof);
    if (text.len != MUX_PROOF_TEXT || !base64url_decode(text, &w) || w.len != PROOF_BYTES)
        return false;
    uint64_t time = read_time(proof);
    *until = time == FOREVER ? -1 : (int64_t)time;
    return sign(key, proof, source, mac) && CRYPTO_memcmp(mac, proof + TIME_BYTES, MAC_BYTES) == 0;
}
