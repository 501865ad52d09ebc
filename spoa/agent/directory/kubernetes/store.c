/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/store.h"

#include <stdlib.h>

#include "spoa/agent/model/record_pack.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"

#define TEXT_MAX 2048 /* of names, key and record: an object has neither ports nor headers */

/* text: "space/name", the key unless it is part of that, the record. */
struct entry {
    struct hash_node by_name, by_key;
    uint32_t list;
    uint16_t source;
    uint8_t sort, space_len, key_len;
    uint16_t name_len, key_at, record_at, len;
    uint8_t text[];
};

struct source {
    uint32_t list;      /* the number of its last list that has begun */
    uint32_t ended;     /* of its last list that came to its end */
    bool whole, losing; /* everything is known; something is not, since that list began */
    bool nameless;      /* nor is its name, so it may be any */
};

struct kubernetes_store {
    struct kubernetes_store_options options;
    struct source *sources;
    size_t not_whole;
    struct hash_secret secret;
    struct hash_table by_name, by_key;
    size_t bytes;
};

struct kubernetes_store *kubernetes_store_new(const struct kubernetes_store_options *options)
{
    struct kubernetes_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->options = *options;
    s->not_whole = options->sources;
    s->sources = calloc(options->sources, sizeof *s->sources);
    if (s->sources && hash_secret_init(&s->secret))
        return s;
    kubernetes_store_free(s);
    return NULL;
}

static struct entry *of_name(struct hash_node *node)
{
    return node ? (struct entry *)(void *)((char *)node - offsetof(struct entry, by_name)) : NULL;
}

static struct entry *of_key(struct hash_node *node)
{
    return node ? (struct entry *)(void *)((char *)node - offsetof(struct entry, by_key)) : NULL;
}

void kubernetes_store_free(struct kubernetes_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->by_name.used; i++)
        for (struct hash_node *node = s->by_name.buckets[i], *next; node; node = next) {
            next = node->next;
            free(of_name(node));
        }
    hash_table_free(&s->by_name);
    hash_table_free(&s->by_key);
    free(s->sources);
    free(s);
}

static struct slice key_of(const struct entry *e)
{
    return slice_of(e->text + e->key_at, e->key_len);
}

static struct slice space_of(const struct entry *e)
{
    return slice_of(e->text, e->space_len);
}

static struct slice name_of(const struct entry *e)
{
    return slice_of(e->text + e->space_len + 1, e->name_len);
}

static void record_of(const struct entry *e, struct record *record)
{
    struct reader in = reader_of(slice_of(e->text + e->record_at, (size_t)(e->len - e->record_at)));
    record_unpack(&in, record);
}

/* ---- by name ---- */

/* names: "space/name". Sources have objects of the same name. */
static uint64_t name_hash(const struct kubernetes_store *s, size_t source, struct slice names)
{
    return hash_keyed(&s->secret, names) ^ source * UINT64_C(0x9e3779b97f4a7c15);
}

static struct entry *find_name(const struct kubernetes_store *s, size_t source, struct slice names,
                               uint64_t hash)
{
    for (struct hash_node *node = hash_table_find(&s->by_name, hash); node; node = hash_table_next(node)) {
        struct entry *e = of_name(node);
        if (e->source == source &&
            slice_equal(slice_of(e->text, (size_t)e->space_len + 1 + e->name_len), names))
            return e;
    }
    return NULL;
}

static void put_names(struct writer *w, struct slice space, struct slice name)
{
    writer_put(w, space);
    writer_u8(w, '/');
    writer_put(w, name);
}

static void take_out(struct kubernetes_store *s, struct entry *e)
{
    hash_table_remove(&s->by_name, &e->by_name);
    hash_table_remove(&s->by_key, &e->by_key);
    s->bytes -= sizeof *e + e->len;
}

static void remove_entry(struct kubernetes_store *s, struct entry *e)
{
    take_out(s, e);
    s->options.changed(s->options.context, key_of(e));
    free(e);
}

void kubernetes_store_remove(struct kubernetes_store *s, size_t source, struct slice space, struct slice name)
{
    uint8_t memory[TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    put_names(&w, space, name);
    struct entry *e = find_name(s, source, writer_slice(&w), name_hash(s, source, writer_slice(&w)));
    if (e && !w.full)
        remove_entry(s, e);
}

/* ---- lists ---- */

static void set_whole(struct kubernetes_store *s, struct source *source, bool whole)
{
    s->not_whole = s->not_whole + source->whole - whole;
    source->whole = whole;
}

void kubernetes_store_list(struct kubernetes_store *s, size_t source)
{
    s->sources[source].list++;
    s->sources[source].losing = s->sources[source].nameless = false;
}

static void lack(struct kubernetes_store *s, size_t source)
{
    s->sources[source].losing = true;
    set_whole(s, &s->sources[source], false);
}

void kubernetes_store_lose(struct kubernetes_store *s, size_t source)
{
    lack(s, source);
    s->sources[source].nameless = true;
}

/* The last list has not named it, but may have meant it. */
static bool is_doubtful(const struct kubernetes_store *s, const struct entry *e)
{
    return e->list < s->sources[e->source].ended;
}

static void tell_doubtful(struct kubernetes_store *s, size_t source)
{
    for (size_t i = 0; i < s->by_name.used; i++)
        for (struct hash_node *node = s->by_name.buckets[i]; node; node = node->next)
            if (of_name(node)->source == source && is_doubtful(s, of_name(node)))
                s->options.changed(s->options.context, key_of(of_name(node)));
}

/* From the last bucket on: when the table shrinks, what was in the last goes where it is still to be looked at. */
static void sweep(struct kubernetes_store *s, size_t source)
{
    for (size_t i = s->by_name.used; i-- > 0;)
        for (struct hash_node *node = i < s->by_name.used ? s->by_name.buckets[i] : NULL, *next; node;
             node = next) {
            struct entry *e = of_name(node);
            next = node->next;
            if (e->source != source || e->list == s->sources[source].list)
                continue;
            remove_entry(s, e);
            next =
                i < s->by_name.used ? s->by_name.buckets[i] : NULL; /* what is left of it, from its front */
        }
}

/* First it is whole, then what is gone is told: that there is none can be said by then. */
bool kubernetes_store_listed(struct kubernetes_store *s, size_t source)
{
    struct source *of = &s->sources[source];
    size_t before = s->by_name.count;
    of->ended = of->list;
    if (!of->losing)
        set_whole(s, of, true);
    if (of->nameless)
        tell_doubtful(s, source);
    else
        sweep(s, source);
    return of->losing && s->by_name.count < before;
}

/* ---- putting ---- */

/* Lengths and text of *e, which has none yet. False: too long. */
static bool lay_out(struct entry *e, const struct kubernetes_object *o, struct writer *w)
{
    put_names(w, o->space, o->name);
    struct slice names = writer_slice(w);
    e->key_at = (uint16_t)w->len;
    if (slice_equal(o->key, names))
        e->key_at = 0;
    else if (slice_equal(o->key, o->name))
        e->key_at = (uint16_t)(o->space.len + 1);
    else
        writer_put(w, o->key);
    e->space_len = (uint8_t)o->space.len;
    e->name_len = (uint16_t)o->name.len;
    e->key_len = (uint8_t)o->key.len;
    e->record_at = (uint16_t)w->len;
    record_pack(w, &o->record);
    e->len = (uint16_t)w->len;
    return !w->full && o->space.len <= KUBERNETES_LABEL_MAX && o->name.len <= KUBERNETES_NAME_MAX &&
           o->key.len <= 255;
}

static bool insert(struct kubernetes_store *s, struct entry *e, uint64_t hash)
{
    if (!hash_table_insert(&s->by_name, &e->by_name, hash))
        return false;
    if (!hash_table_insert(&s->by_key, &e->by_key, hash_keyed(&s->secret, key_of(e)))) {
        hash_table_remove(&s->by_name, &e->by_name);
        return false;
    }
    s->bytes += sizeof *e + e->len;
    return true;
}

/* A copy in memory of its own; NULL: there is no room. */
static struct entry *make(const struct kubernetes_store *s, const struct entry *head, const uint8_t *text,
                          bool another)
{
    struct entry *e = another && s->by_name.count >= s->options.most ? NULL : malloc(sizeof *e + head->len);
    if (e) {
        *e = *head;
        memcpy(e->text, text, head->len);
    }
    return e;
}

/* The old one is out before anybody is told: with both, the key would be ambiguous. */
static bool replace(struct kubernetes_store *s, struct entry *old, struct entry *fresh, uint64_t hash)
{
    if (old)
        take_out(s, old);
    bool good = fresh && insert(s, fresh, hash);
    if (good)
        s->options.changed(s->options.context, key_of(fresh));
    else
        lack(s, fresh ? fresh->source : old->source);
    if (old && !(good && slice_equal(key_of(old), key_of(fresh))))
        s->options.changed(s->options.context, key_of(old));
    if (!good)
        free(fresh);
    free(old);
    return good;
}

bool kubernetes_store_put(struct kubernetes_store *s, size_t source, enum kubernetes_sort sort,
                          const struct kubernetes_object *o)
{
    uint8_t memory[TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct entry head = {.list = s->sources[source].list, .source = (uint16_t)source, .sort = (uint8_t)sort};
    if (!lay_out(&head, o, &w)) {
        kubernetes_store_lose(s, source); /* what was known of it stays, and is in doubt */
        return false;
    }
    struct slice names = slice_of(memory, o->space.len + 1 + o->name.len);
    uint64_t hash = name_hash(s, source, names);
    struct entry *old = find_name(s, source, names, hash);
    if (old && old->key_at == head.key_at && old->key_len == head.key_len &&
        slice_equal(slice_of(old->text, old->len), writer_slice(&w))) {
        bool doubtful = is_doubtful(s, old);
        old->list = head.list;
        if (doubtful)
            s->options.changed(s->options.context, key_of(old));
        return true;
    }
    struct entry *fresh = make(s, &head, memory, !old);
    if (!fresh)
        lack(s, source);
    return (fresh || old) && replace(s, old, fresh, hash);
}

/* ---- by key ---- */

static struct entry *next_of_key(struct hash_node *node, struct slice key)
{
    struct entry *e = of_key(node);
    while (e && !slice_equal(key_of(e), key))
        e = of_key(hash_table_next(&e->by_key));
    return e;
}

static bool goes_before(const struct record *a, const struct record *b)
{
    if ((a->state == RECORD_RUNNING) != (b->state == RECORD_RUNNING))
        return a->state == RECORD_RUNNING;
    return memcmp(&a->worker.addr, &b->worker.addr, sizeof a->worker.addr) < 0;
}

static bool is_one_sandbox(const struct entry *a, const struct entry *b)
{
    return a->sort == KUBERNETES_ENDPOINT_SLICES && b->sort == a->sort && a->source == b->source &&
           slice_equal(space_of(a), space_of(b));
}

enum lookup kubernetes_store_find(const struct kubernetes_store *s, struct slice key, struct record *record,
                                  size_t *source)
{
    uint64_t hash = hash_keyed(&s->secret, key);
    struct entry *first = next_of_key(hash_table_find(&s->by_key, hash), key);
    if (!first)
        return s->not_whole ? LOOKUP_UNAVAILABLE : LOOKUP_ABSENT;
    if (is_doubtful(s, first))
        return LOOKUP_UNAVAILABLE;
    *source = first->source;
    record_of(first, record);
    for (struct entry *e = first; (e = next_of_key(hash_table_next(&e->by_key), key));) {
        struct record other;
        if (!is_one_sandbox(first, e) || is_doubtful(s, e))
            return LOOKUP_UNAVAILABLE;
        record_of(e, &other);
        if (goes_before(&other, record))
            *record = other;
    }
    return LOOKUP_FOUND;
}

bool kubernetes_store_ambiguous(const struct kubernetes_store *s, struct slice key)
{
    struct entry *first = next_of_key(hash_table_find(&s->by_key, hash_keyed(&s->secret, key)), key);
    for (struct entry *e = first; e && (e = next_of_key(hash_table_next(&e->by_key), key));)
        if (!is_one_sandbox(first, e))
            return true;
    return false;
}

bool kubernetes_store_whole(const struct kubernetes_store *s)
{
    return s->not_whole == 0;
}

bool kubernetes_store_object(const struct kubernetes_store *s, struct slice key, size_t *source,
                             struct slice *space, struct slice *name)
{
    struct entry *e = next_of_key(hash_table_find(&s->by_key, hash_keyed(&s->secret, key)), key);
    if (!e || next_of_key(hash_table_next(&e->by_key), key))
        return false;
    *source = e->source;
    *space = space_of(e);
    *name = name_of(e);
    return true;
}

size_t kubernetes_store_count(const struct kubernetes_store *s)
{
    return s->by_name.count;
}

size_t kubernetes_store_bytes(const struct kubernetes_store *s)
{
    return sizeof *s + s->bytes + (s->by_name.room + s->by_key.room) * sizeof(struct hash_node *);
}
