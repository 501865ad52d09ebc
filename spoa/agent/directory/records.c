/* SPDX-License-Identifier: MIT */
/*
 * Records are packed one after another in chunks. The table of slots uses open addressing with linear probing. A slot has 8 bytes: half
 * of the key's hash, and the place of the record. Eight slots share a cache line, so a longer probe is nearly free; the 32 hash bits
 * are compared first, so the memory of another record is hardly ever touched.
 */
#include "spoa/agent/directory/records.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "spoa/agent/model/record_pack.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/table/references.h"

#define CHUNK     ((size_t)4 << 20)
#define UNIT      ((size_t)8) /* every record starts at a multiple of this */
#define PER_CHUNK (CHUNK / UNIT)
#define KEY_MAX   255u

struct slot {
    uint32_t hash;
    uint32_t where; /* place in units from the start of the first chunk; 0 marks an empty slot */
};

struct records {
    atomic_uint references;
    struct hash_secret secret;
    struct slot *slots;
    size_t mask;  /* number of slots less one */
    size_t count; /* of records */
    uint8_t **chunks;
    size_t chunk_count;
    size_t used; /* bytes in use of the last chunk */
};

struct records *records_new(size_t expected)
{
    struct records *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    size_t slots = 16;
    while (slots * 3 / 4 <= expected)
        slots *= 2;
    r->slots = calloc(slots, sizeof *r->slots);
    if (!r->slots || !hash_secret_init(&r->secret)) {
        records_release(r);
        return NULL;
    }
    r->mask = slots - 1;
    r->references = 1;
    return r;
}

struct records *records_retain(struct records *r)
{
    references_add(&r->references);
    return r;
}

void records_release(struct records *r)
{
    if (!r || (r->references && !references_drop(&r->references)))
        return;
    for (size_t i = 0; i < r->chunk_count; i++)
        munmap(r->chunks[i], CHUNK);
    free(r->chunks);
    free(r->slots);
    free(r);
}

/* Adds an empty chunk. Places are 32 bits wide, which limits the number of chunks. Returns false at that limit, or if memory is short. */
static bool add_chunk(struct records *r)
{
    if (r->chunk_count >= UINT32_MAX / PER_CHUNK)
        return false;
    uint8_t **chunks = realloc(r->chunks, (r->chunk_count + 1) * sizeof *chunks);
    if (!chunks)
        return false;
    r->chunks = chunks;
    uint8_t *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED)
        return false;
    r->used = r->chunk_count == 0 ? UNIT : 0; /* unit 0 would mean an empty slot */
    r->chunks[r->chunk_count++] = chunk;
    return true;
}

/* Reads the record at `where` and returns its key. Every record was packed whole, so the end of the chunk is the only limit. */
static struct slice unpack(const struct records *r, uint32_t where, struct record *record)
{
    size_t offset = where % PER_CHUNK * UNIT;
    struct reader in = reader_of(slice_of(r->chunks[where / PER_CHUNK] + offset, CHUNK - offset));
    struct slice key = reader_take(&in, reader_u8(&in));
    record_unpack(&in, record);
    return key;
}

/* Returns the key of the record at `where`, without reading the record. */
static struct slice key_at(const struct records *r, uint32_t where)
{
    const uint8_t *at = r->chunks[where / PER_CHUNK] + where % PER_CHUNK * UNIT;
    return slice_of(at + 1, at[0]);
}

/* Returns the slot that holds `key`, or the empty slot where it belongs. The table is never full, so the loop ends. */
static struct slot *probe(const struct records *r, uint32_t hash, struct slice key)
{
    for (size_t i = hash & r->mask;; i = (i + 1) & r->mask) {
        struct slot *slot = &r->slots[i];
        if (slot->where == 0 || (slot->hash == hash && slice_equal(key_at(r, slot->where), key)))
            return slot;
    }
}

/* Doubles the number of slots. Returns false if memory is short; the table is then unchanged. */
static bool grow(struct records *r)
{
    size_t slots = (r->mask + 1) * 2;
    struct slot *old = r->slots, *fresh = calloc(slots, sizeof *fresh);
    if (!fresh)
        return false;
    for (size_t i = 0; i <= r->mask; i++) {
        size_t at = old[i].hash & (slots - 1);
        while (old[i].where && fresh[at].where)
            at = (at + 1) & (slots - 1);
        if (old[i].where)
            fresh[at] = old[i];
    }
    free(old);
    r->slots = fresh;
    r->mask = slots - 1;
    return true;
}

/* Packs the record after the last one, in a new chunk if need be. Returns its place, or 0 if memory is short or no chunk can hold it. */
static uint32_t store(struct records *r, struct slice key, const struct record *record)
{
    for (int fresh_chunk = 0; fresh_chunk < 2; fresh_chunk++) {
        if ((r->chunk_count == 0 || fresh_chunk) && !add_chunk(r))
            return 0;
        uint8_t *chunk = r->chunks[r->chunk_count - 1];
        struct writer w = writer_of(chunk + r->used, CHUNK - r->used);
        writer_u8(&w, (uint8_t)key.len);
        writer_put(&w, key);
        record_pack(&w, record);
        if (w.full)
            continue;
        size_t where = (r->chunk_count - 1) * PER_CHUNK + r->used / UNIT;
        r->used = (r->used + w.len + UNIT - 1) / UNIT * UNIT;
        return (uint32_t)where;
    }
    return 0;
}

bool records_add(struct records *r, struct slice key, const struct record *record, struct fail *why)
{
    bool valid = key.len > 0 && key.len <= KEY_MAX;
    for (size_t i = 0; i < key.len; i++)
        valid = valid && key.at[i] > 0x20 && key.at[i] != 0x7f;
    if (!valid)
        return fail(why, "a sandbox's key has 1 to %u bytes without blanks and control bytes", KEY_MAX);
    if (r->count >= (r->mask + 1) * 3 / 4 && !grow(r))
        return fail(why, "out of memory");
    uint32_t hash = (uint32_t)hash_keyed(&r->secret, key);
    struct slot *slot = probe(r, hash, key);
    if (slot->where)
        return fail(why, "sandbox %.*s is there twice", SLICE_PRINTF(key));
    uint32_t where = store(r, key, record);
    if (!where)
        return fail(why, "out of memory, or the record is too large");
    *slot = (struct slot){hash, where};
    r->count++;
    return true;
}

enum lookup records_get(const struct records *r, struct slice key, struct record *record)
{
    if (key.len == 0 || key.len > KEY_MAX)
        return LOOKUP_ABSENT;
    const struct slot *slot = probe(r, (uint32_t)hash_keyed(&r->secret, key), key);
    if (!slot->where)
        return LOOKUP_ABSENT;
    unpack(r, slot->where, record);
    return LOOKUP_FOUND;
}

enum lookup records_find(const struct records *r, struct slice space, struct slice sandbox,
                         struct record *record)
{
    if (!slice_present(space))
        return records_get(r, sandbox, record);
    uint8_t key[KEY_MAX];
    struct writer w = writer_of(key, sizeof key);
    writer_put(&w, space);
    writer_u8(&w, '/');
    writer_put(&w, sandbox);
    if (!w.full && records_get(r, writer_slice(&w), record) == LOOKUP_FOUND)
        return LOOKUP_FOUND;
    return slice_is(space, "default") ? records_get(r, sandbox, record) : LOOKUP_ABSENT;
}

size_t records_count(const struct records *r)
{
    return r->count;
}

size_t records_bytes(const struct records *r)
{
    size_t chunks = r->chunk_count ? (r->chunk_count - 1) * CHUNK + r->used : 0;
    return sizeof *r + (r->mask + 1) * sizeof *r->slots + chunks;
}

bool records_each(const struct records *r, size_t *cursor, struct slice *key, struct record *record)
{
    while (*cursor <= r->mask && !r->slots[*cursor].where)
        ++*cursor;
    if (*cursor > r->mask)
        return false;
    *key = unpack(r, r->slots[(*cursor)++].where, record);
    return true;
}
