/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/store.h"

#include <stdlib.h>

#include "spoa/agent/model/record_pack.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"

#define TEXT_MAX 2048 /* names, key and record together: an object has neither ports nor headers */

/* One object. Its text is "space/name", the key unless that is a part of it, and the packed record. */
struct entry {
    struct hash_node by_name, by_key;
    uint32_t list; /* number of the last list of its source that has named it */
    uint16_t source;
    uint8_t sort, space_len, key_len;
    uint16_t name_len, key_at, record_at, len; /* lengths, and indices into `text` */
    uint8_t text[];
};

/* One resource in one namespace. */
struct source {
    uint32_t list;  /* number of lists begun */
    uint32_t ended; /* number of the last list that came to its end */
    bool whole;     /* no object is missing */
    bool losing;    /* an object was lost since the last list began */
    bool nameless;  /* one with an unknown name was: it may be any known object */
};

struct kubernetes_store {
    struct kubernetes_store_options options;
    struct source *sources;
    size_t not_whole; /* number of sources that are not whole */
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

/* The entry of a node, or NULL. */
static struct entry *of_name(struct hash_node *node)
{
    return node ? (struct entry *)(void *)((char *)node - offsetof(struct entry, by_name)) : NULL;
}

/* The entry of a node, or NULL. */
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

/* Views of an entry's text. */
static struct slice key_of(const struct entry *e)
{
    return slice_of(e->text + e->key_at, e->key_len);
}

static struct slice space_of(const struct entry *e)
{
    return slice_of(e->text, e->space_len);
}

static void record_of(const struct entry *e, struct record *record)
{
    struct reader in = reader_of(slice_of(e->text + e->record_at, (size_t)(e->len - e->record_at)));
    record_unpack(&in, record);
}

/* ---- by name ---- */

/* Returns the hash of an object's names ("space/name"). Several sources may have objects of the same name. */
static uint64_t name_hash(const struct kubernetes_store *s, size_t source, struct slice names)
{
    return hash_keyed(&s->secret, names) ^ source * UINT64_C(0x9e3779b97f4a7c15);
}

/* Returns the entry with these names, or NULL. */
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

/* Removes an entry from both tables, without a report. */
static void take_out(struct kubernetes_store *s, struct entry *e)
{
    hash_table_remove(&s->by_name, &e->by_name);
    hash_table_remove(&s->by_key, &e->by_key);
    s->bytes -= sizeof *e + e->len;
}

/* Removes an entry, reports it and frees it. The report comes after the removal, so that the key is found as it is now. */
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

/* Changes whether a source is whole, and counts. */
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

/* Notes that an object of the source is not known. */
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

/* Returns whether the object may have been removed: the last list did not name it, but had an object without a name. */
static bool is_doubtful(const struct kubernetes_store *s, const struct entry *e)
{
    return e->list < s->sources[e->source].ended;
}

/* Removes the objects that the last list did not name. The walk goes from the last bucket to the first: when the table shrinks, the
 * content of its last bucket moves to one that the walk has yet to reach. */
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
            next = i < s->by_name.used ? s->by_name.buckets[i]
                                       : NULL; /* the rest of this bucket, from its front */
        }
}

/* The source becomes whole before removals are reported, so that a removed key is ABSENT in the report. */
bool kubernetes_store_listed(struct kubernetes_store *s, size_t source)
{
    struct source *of = &s->sources[source];
    size_t before = s->by_name.count;
    of->ended = of->list;
    if (!of->losing)
        set_whole(s, of, true);
    if (!of->nameless)
        sweep(s, source);
    else /* any object that was not named may be the one without a name: nothing is removed */
        for (size_t i = 0; i < s->by_name.used; i++)
            for (struct hash_node *node = s->by_name.buckets[i]; node; node = node->next)
                if (of_name(node)->source == source && is_doubtful(s, of_name(node)))
                    s->options.changed(s->options.context, key_of(of_name(node)));
    return of->losing && s->by_name.count < before;
}

/* ---- putting objects ---- */

/* Writes the text of an object, and the lengths to *e. Returns false if the text is too long. */
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

/* Adds an entry to both tables. Returns false if memory is short; nothing has changed then. */
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

/* Replaces `old` by `fresh`; either may be NULL. The old entry is removed before anything is reported: with both, the key would be
 * ambiguous. Frees `old`, and `fresh` if it could not be added. */
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
        kubernetes_store_lose(s, source); /* the known object stays, and is in doubt */
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
    struct entry *fresh =
        !old && s->by_name.count >= s->options.most ? NULL : malloc(sizeof *fresh + head.len);
    if (fresh) {
        *fresh = head;
        memcpy(fresh->text, memory, head.len);
    }
    if (!fresh)
        lack(s, source);
    return (fresh || old) && replace(s, old, fresh, hash);
}

/* ---- finding by key ---- */

/* Returns the first entry with this key, from `node` on, or NULL. */
static struct entry *next_of_key(struct hash_node *node, struct slice key)
{
    struct entry *e = of_key(node);
    while (e && !slice_equal(key_of(e), key))
        e = of_key(hash_table_next(&e->by_key));
    return e;
}

/* Returns whether two entries with one key are parts of one sandbox. */
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
        /* running before not running, then by address */
        bool runs = record->state == RECORD_RUNNING, other_runs = other.state == RECORD_RUNNING;
        if (other_runs != runs
                ? other_runs
                : memcmp(&other.worker.addr, &record->worker.addr, sizeof other.worker.addr) < 0)
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
    *name = slice_of(e->text + e->space_len + 1, e->name_len);
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
