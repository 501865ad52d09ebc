/* SPDX-License-Identifier: MIT */
/*
 * upgrade: a client's upgrade as HAProxy hands it over. It is kept for the life of its tunnel because every redial repeats it,
 * packed, as it is looked at rarely. Pure: heads are read from and written to memory of the caller's.
 */
#ifndef CELLGATE_RELAY_TUNNEL_UPGRADE_H
#define CELLGATE_RELAY_TUNNEL_UPGRADE_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/image_pack.h"
#include "spoa/proto/handover.h"
#include "spoa/proto/ws_handshake.h"
#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/tunnel/target.h"

#define UPGRADE_HEAD_MAX (HTTP_HEAD_MAX + 16384) /* a head of ours: the client's and the record's fields */

struct upgrade {
    struct handover handover;
    struct slice target; /* path and query towards the worker */
    struct slice host;
    struct slice key;
    struct slice protocols; /* offered, comma-separated; absent: none */
    struct slice fields;    /* the others: {u16be length, name, u16be length, value}* */
    bool client_resumes;    /* it speaks Cell-Resume itself, on a route that does */
    struct slice selected;  /* the subprotocol that the first worker selected; absent: none yet, or none */
    size_t size;            /* of its memory */
    uint8_t memory[];
};

/* Judges the request. NULL: *refusal says why (REFUSAL_relay_unavailable when out of memory), *why in words.
 */
struct upgrade *upgrade_new(const struct http_head *head, enum refusal *refusal, struct fail *why);
/* free() frees it. */

/* One that is kept, in one piece of memory; free() frees it. */
struct upgrade_kept;
/* A copy; NULL when out of memory. */
struct upgrade_kept *upgrade_keep(const struct upgrade *upgrade);
/* Its slices point to what is kept. */
struct upgrade upgrade_unpack(const struct upgrade_kept *kept);
struct handover upgrade_handover(const struct upgrade_kept *kept);
size_t upgrade_kept_size(const struct upgrade_kept *kept);
/* Returns a copy that has this handover instead; NULL when out of memory. */
struct upgrade_kept *upgrade_with_handover(const struct upgrade_kept *kept, const struct handover *handover);
/* upgrade.selected, of one that upgrade_unpack gave, is kept. */
void upgrade_keep_selected(struct upgrade_kept *kept, const struct upgrade *upgrade);

/* Its client has had its 101, for which alone the key was kept: upgrade.key is absent from now on. False: it was already. */
bool upgrade_forget_key(struct upgrade_kept *kept);

/* ---- as an image (spoa/base/image.h) ---- */
#define UPGRADE_KEPT_MAX (UPGRADE_HEAD_MAX + 65536) /* bytes, of one that is read from an image */
extern const struct image_table upgrade_table;

/* Returns what many upgrades have in common, for image_words_new. */
struct slice upgrade_words(void);
/* Appends the image. Returns false if the buffer's limit is reached or memory is short. */
bool upgrade_save(const struct upgrade_kept *kept, const struct image_words *words, struct buffer *to)
    __attribute__((warn_unused_result));
/* Returns the size of the upgrade that this is the image of, at most UPGRADE_KEPT_MAX; 0: it is none. */
size_t upgrade_saved_size(struct slice saved);
/* Reads an image, by the words that it was written by, into aligned memory of upgrade_saved_size. Returns false if it cannot be. */
bool upgrade_load(struct slice saved, const struct image_words *words, struct upgrade_kept *kept)
    __attribute__((warn_unused_result));

/* The request to a worker. fields: more of them, each line with its end; w->full when it does not fit. */
void upgrade_request(const struct upgrade *upgrade, const struct target *to, struct slice key,
                     struct slice query, struct slice fields, struct writer *w);
/* A plain question about the session, GET target with the same fields. */
void upgrade_probe(const struct upgrade *upgrade, const struct target *to, struct slice target,
                   struct writer *w);
/* Whether a worker's 101 is one (RFC 6455 section 4.1), and for a further worker the same subprotocol. */
bool upgrade_check(struct upgrade *upgrade, const struct http_head *answer, struct slice key, bool first,
                   struct fail *why);
/* The 101 to the client, with what else the worker's head says (NULL: there was no worker), but for the fields
 * that the worker was given. */
bool upgrade_accept(const struct upgrade *upgrade, const struct target *from, const struct http_head *answer,
                    struct writer *w);
/* A worker's refusal for the client: status, fields that concern it, body. Where handover.close is set it is, as
 * the relay's own, a 101 and a Close with 4000 + status, which a browser can read. */
void upgrade_pass_refusal(const struct upgrade *upgrade, const struct target *from,
                          const struct http_head *answer, struct slice body, struct writer *w);
/* A refusal of the relay's own. upgrade: NULL where there is none yet. */
void upgrade_refuse(const struct upgrade *upgrade, enum refusal refusal, struct writer *w);

#endif
