/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/inside_proof.h"

#include <openssl/crypto.h>

#include "spoa/base/text/base64url.h"

/* The same key signs tickets, so each use has a domain of its own. A version that signs other fields must change it. */
#define DOMAIN       "cellgate inside 2;"
#define DOMAIN_OWNER "cellgate inside owner 1;"

enum {
    TIME_BYTES = 4,
    SAID_BYTES = 2 * TIME_BYTES + INSIDE_PROOF_OWNER,
    MAC_BYTES = 16,
    PROOF_BYTES = SAID_BYTES + MAC_BYTES,
    SIGNED_MOST = 1024
};

#define FOREVER UINT32_MAX

_Static_assert(PROOF_BYTES * 4 == INSIDE_PROOF_TEXT * 3, "a proof is whole groups of base64");

/* Signs the fields. Each text but the last has its length in front, so that no two connections have the same signed bytes. */
static bool sign(const struct key *key, const uint8_t said[SAID_BYTES], const struct inside_connection *c,
                 uint8_t mac[MAC_BYTES])
{
    uint8_t text[SIGNED_MOST], signature[KEY_SIGNATURE];
    struct writer w = writer_of(text, sizeof text), out = writer_of(signature, sizeof signature);
    writer_text(&w, DOMAIN);
    writer_put(&w, slice_of(said, SAID_BYTES));
    writer_u8(&w, c->addr.family);
    writer_put(&w, slice_of(c->addr.bytes, c->addr.family == 4 ? 4 : 16));
    writer_be(&w, c->port, 2);
    writer_be(&w, c->host.len, 2);
    writer_put(&w, c->host);
    writer_be(&w, c->id.len, 2);
    writer_put(&w, c->id);
    writer_put(&w, c->name);
    if (w.full || !c->addr.family || !key || !key_sign(key, writer_slice(&w), &out))
        return false;
    memcpy(mac, signature, MAC_BYTES);
    return true;
}

bool inside_proof_owner(const struct key *key, struct slice org, uint8_t owner[static INSIDE_PROOF_OWNER])
{
    uint8_t text[SIGNED_MOST], signature[KEY_SIGNATURE];
    struct writer w = writer_of(text, sizeof text), out = writer_of(signature, sizeof signature);
    writer_text(&w, DOMAIN_OWNER);
    writer_put(&w, org);
    if (w.full || !key || !key_sign(key, writer_slice(&w), &out))
        return false;
    memcpy(owner, signature, INSIDE_PROOF_OWNER);
    return true;
}

static uint32_t time_of(int64_t seconds)
{
    return seconds < 0 || seconds > FOREVER ? FOREVER : (uint32_t)seconds;
}

struct slice inside_proof_write(const struct key *key, const struct inside_connection *c, struct writer *w)
{
    uint8_t proof[PROOF_BYTES];
    struct writer said = writer_of(proof, SAID_BYTES);
    size_t start = w->len;
    writer_be(&said, time_of(c->issued), TIME_BYTES);
    writer_be(&said, time_of(c->until), TIME_BYTES);
    writer_put(&said, slice_of(c->owner, INSIDE_PROOF_OWNER));
    if (slice_find(c->id, ' ') < c->id.len || !sign(key, proof, c, proof + SAID_BYTES))
        return slice_text(NULL);
    base64url_encode(slice_of(proof, sizeof proof), w);
    writer_text(w, " ");
    writer_put(w, c->id);
    writer_text(w, " ");
    writer_put(w, c->name);
    return w->full ? slice_text(NULL) : slice_from(writer_slice(w), start);
}

static uint32_t read_time(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

bool inside_proof_read(const struct key *key, struct slice text, struct inside_connection *c)
{
    uint8_t proof[PROOF_BYTES], mac[MAC_BYTES];
    struct writer w = writer_of(proof, sizeof proof);
    struct slice rest = slice_from(text, INSIDE_PROOF_TEXT + 1);
    size_t space = slice_find(rest, ' ');
    if (text.len <= INSIDE_PROOF_TEXT || text.at[INSIDE_PROOF_TEXT] != ' ' || space >= rest.len ||
        !base64url_decode(slice_sub(text, 0, INSIDE_PROOF_TEXT), &w) || w.len != PROOF_BYTES)
        return false;
    c->id = slice_sub(rest, 0, space);
    c->name = slice_from(rest, space + 1);
    uint32_t until = read_time(proof + TIME_BYTES);
    c->issued = read_time(proof);
    c->until = until == FOREVER ? -1 : (int64_t)until;
    memcpy(c->owner, proof + 2 * TIME_BYTES, INSIDE_PROOF_OWNER);
    return sign(key, proof, c, mac) && CRYPTO_memcmp(mac, proof + SAID_BYTES, MAC_BYTES) == 0;
}
