/* SPDX-License-Identifier: MIT */
/* upgrade: a client's upgrade request as HAProxy hands it over. The relay keeps the request for the life of the tunnel, because each
 * redial repeats it, and keeps it packed, because it is rarely read. No I/O: heads are read from and written to the caller's memory. */
#ifndef CELLGATE_RELAY_TUNNEL_UPGRADE_H
#define CELLGATE_RELAY_TUNNEL_UPGRADE_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/image_pack.h"
#include "spoa/proto/handover.h"
#include "spoa/proto/ws_handshake.h"
#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/tunnel/target.h"

/* bytes of a head that the relay writes: the client's and the record's fields */
#define UPGRADE_HEAD_MAX (HTTP_HEAD_MAX + 16384)

struct upgrade {
    struct handover handover;
    struct slice target; /* path and query towards the worker */
    struct slice host;
    struct slice key;
    struct slice protocols; /* offered subprotocols, comma-separated; absent if there are none */
    struct slice fields;    /* other header fields: {u16be length, name, u16be length, value}* */
    bool client_resumes;    /* true if the client speaks Cell-Resume itself, on a route that does */
    /* subprotocol that the first worker selected; absent if none was selected, or not yet */
    struct slice selected;
    size_t size; /* bytes of `memory` */
    uint8_t memory[];
};

/* Parses and checks the request. Returns NULL on failure: `*refusal` is the reason (REFUSAL_relay_unavailable if memory is short), `*why`
 * the words. The caller frees the result with free(). */
struct upgrade *upgrade_new(const struct http_head *head, enum refusal *refusal, struct fail *why);
/* (free() frees the result.) */

/* A packed upgrade in one piece of memory; the caller frees it with free(). */
struct upgrade_kept;
/* Returns a packed copy, or NULL if memory is short. */
struct upgrade_kept *upgrade_keep(const struct upgrade *upgrade);
/* Returns the unpacked upgrade; its slices point into `kept`. */
struct upgrade upgrade_unpack(const struct upgrade_kept *kept);
struct handover upgrade_handover(const struct upgrade_kept *kept);
size_t upgrade_kept_size(const struct upgrade_kept *kept);
/* Returns a copy with this handover instead; NULL if memory is short. */
struct upgrade_kept *upgrade_with_handover(const struct upgrade_kept *kept, const struct handover *handover);
/* Stores the `selected` of an upgrade that upgrade_unpack returned. */
void upgrade_keep_selected(struct upgrade_kept *kept, const struct upgrade *upgrade);

/* Forgets the key, which is only needed until the client has its 101: upgrade.key is absent from now on. Returns false if the key was
 * forgotten already. */
bool upgrade_forget_key(struct upgrade_kept *kept);

/* ---- as an image (spoa/base/image.h) ---- */
/* largest packed upgrade that is read from an image, in bytes */
#define UPGRADE_KEPT_MAX (UPGRADE_HEAD_MAX + 65536)
extern const struct image_table upgrade_table;

/* Returns what many upgrades have in common, for image_words_new. */
struct slice upgrade_words(void);
/* Appends the image. Returns false if the buffer's limit is reached or memory is short. */
bool upgrade_save(const struct upgrade_kept *kept, const struct image_words *words, struct buffer *to)
    __attribute__((warn_unused_result));
/* Returns the size of the upgrade of which `saved` is the image, at most UPGRADE_KEPT_MAX; 0 if `saved` is no such image. */
size_t upgrade_saved_size(struct slice saved);
/* Reads an image into aligned memory of upgrade_saved_size bytes, with the words that it was written with. Returns false if the image is
 * invalid. */
bool upgrade_load(struct slice saved, const struct image_words *words, struct upgrade_kept *kept)
    __attribute__((warn_unused_result));

/* Writes the request to a worker. `fields` are further header lines, each with its line end. Sets w->full if the request does not fit. */
void upgrade_request(const struct upgrade *upgrade, const struct target *to, struct slice key,
                     struct slice query, struct slice fields, struct writer *w);
/* Writes a plain GET of `target` with the same fields, to ask about the session. */
void upgrade_probe(const struct upgrade *upgrade, const struct target *to, struct slice target,
                   struct writer *w);
/* Returns true if a worker's 101 is valid (RFC 6455 section 4.1) and, unless `first`, selects the same subprotocol as before. */
bool upgrade_check(struct upgrade *upgrade, const struct http_head *answer, struct slice key, bool first,
                   struct fail *why);
/* Writes the 101 to the client, with the other fields of the worker's head (NULL if there was no worker), except the fields that the relay
 * gave to the worker. */
bool upgrade_accept(const struct upgrade *upgrade, const struct target *from, const struct http_head *answer,
                    struct writer *w);
/* Writes a worker's refusal to the client: status, fields that concern the client, body. If handover.close is set, the refusal is a 101
 * and a Close with 4000 + status, which a browser can read. */
void upgrade_pass_refusal(const struct upgrade *upgrade, const struct target *from,
                          const struct http_head *answer, struct slice body, struct writer *w);
/* Writes a refusal of the relay's own; `upgrade` is NULL if there is none yet. */
void upgrade_refuse(const struct upgrade *upgrade, enum refusal refusal, struct writer *w);

#endif
