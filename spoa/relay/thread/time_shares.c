/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/time_shares.h"

#include <stdlib.h>

#include "spoa/base/bytes/writer.h"

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
    loop_share_open(&s->nobody, loop);
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

static struct owner *add(struct time_shares *s, struct slice name, uint64_t hash, bool nobodys)
{
    struct owner *owner = calloc(1, sizeof *owner + name.len);
    if (!owner || !hash_table_insert(&s->table, &owner->node, hash)) {
        free(owner);
        return NULL;
    }
    if (nobodys)
        loop_share_open_in(&owner->share, &s->nobody);
    else
        loop_share_open(&owner->share, s->loop);
    owner->len = name.len;
    memcpy(owner->name, name.at, name.len);
    return owner;
}

/* Writes the owner's name. The address of refused clients is unknown, so they share one name. */
static void put_name(struct writer *w, const struct limits_owner *of)
{
    writer_text(w, of->org.len ? "o" : of->sandbox.len ? "s" : "c");
    if (!of->org.len && of->sandbox.len && !slice_is(of->space, "default")) {
        writer_put(w, of->space);
        writer_text(w, "/");
    }
    writer_put(w, of->org.len ? of->org : of->sandbox.len ? of->sandbox : of->client);
}

struct loop_share *time_shares_take(struct time_shares *s, const struct limits_owner *of)
{
    uint8_t memory[NAME_MAX_BYTES];
    struct writer w = writer_of(memory, sizeof memory);
    put_name(&w, of);
    if (w.full)
        return &s->unknown;
    uint64_t hash = hash_keyed(&s->secret, writer_slice(&w));
    struct owner *owner = find(s, writer_slice(&w), hash);
    if (!owner && !(owner = add(s, writer_slice(&w), hash, !of->org.len && !of->sandbox.len)))
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
