/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/time_shares.h"

#include <stdlib.h>

#include "spoa/base/writer.h"

enum { NAME_MAX_BYTES = 1024 };

struct owner {
    struct loop_share share; /* the first member */
    struct hash_node node;
    size_t users, len;
    uint8_t name[];
};

bool time_shares_open(struct time_shares *s, struct loop *loop)
{
    s->loop = loop;
    loop_share_open(&s->unknown, loop);
    return hash_secret_init(&s->secret);
}

void time_shares_close(struct time_shares *s)
{
    hash_table_free(&s->table);
}

static struct owner *owner_of(struct hash_node *node)
{
    return (struct owner *)(void *)((uint8_t *)node - offsetof(struct owner, node));
}

static struct owner *find(const struct time_shares *s, struct slice name, uint64_t hash)
{
    struct hash_node *node = hash_table_find(&s->table, hash);
    while (node && !slice_equal(slice_of(owner_of(node)->name, owner_of(node)->len), name))
        node = hash_table_next(node);
    return node ? owner_of(node) : NULL;
}

static struct owner *add(struct time_shares *s, struct slice name, uint64_t hash)
{
    struct owner *owner = calloc(1, sizeof *owner + name.len);
    if (!owner || !hash_table_insert(&s->table, &owner->node, hash)) {
        free(owner);
        return NULL;
    }
    loop_share_open(&owner->share, s->loop);
    owner->len = name.len;
    memcpy(owner->name, name.at, name.len);
    return owner;
}

struct loop_share *time_shares_take(struct time_shares *s, struct slice space, struct slice org,
                                    struct slice sandbox, struct slice client)
{
    uint8_t memory[NAME_MAX_BYTES];
    struct writer w = writer_of(memory, sizeof memory);
    writer_text(&w, org.len ? "o" : sandbox.len ? "s" : "c");
    if (!org.len && sandbox.len && !slice_is(space, "default")) {
        writer_put(&w, space);
        writer_text(&w, "/");
    }
    writer_put(&w, org.len ? org : sandbox.len ? sandbox : client);
    if (w.full || w.len == 1)
        return &s->unknown;
    uint64_t hash = hash_keyed(&s->secret, writer_slice(&w));
    struct owner *owner = find(s, writer_slice(&w), hash);
    if (!owner && !(owner = add(s, writer_slice(&w), hash)))
        return &s->unknown;
    owner->users++;
    return &owner->share;
}

void time_shares_give(struct time_shares *s, struct loop_share *share)
{
    struct owner *owner = (struct owner *)share;
    if (!share || share == &s->unknown || --owner->users)
        return;
    loop_share_close(share);
    hash_table_remove(&s->table, &owner->node);
    free(owner);
}
