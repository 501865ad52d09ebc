/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/answer_cache.h"

#include <stdlib.h>

#include "spoa/base/table/hash.h"
#include "spoa/base/table/recent.h"

enum {
    ENTRIES = 4096,
    BYTES = 8 << 20,
    QUESTION_MOST = 4096,
    ANSWER_MOST = 4096,
    SEEN =
        4096, /* number of questions remembered as asked once; a question that never repeats costs nothing more */
    WINDOW = SEEN, /* number of questions after which the benefit of the cache is evaluated */
    WORTH =
        8, /* the cache is used if one of this many questions is found, because a look-up costs about an eighth of a decision */
};

/* Pause of the cache. At a rate at which CPU time matters, a window takes a few milliseconds; at a low rate, it takes so long that the
 * pause hardly counts. */
#define REST (250 * MILLISECOND)

struct entry {
    struct slice question, answer,
        key;        /* in text; key is the directory's, absent if the directory was not asked */
    unsigned count; /* number of the answer's actions */
    bool alike;
    struct shared_record *record; /* the record in the directory; NULL if the directory was not asked */
    struct verdict verdict;       /* without id; its texts are in text */
    size_t len;
    uint8_t text[];
};

struct answer_cache {
    struct hash_secret secret;
    struct recent table;
    unsigned looks, given; /* in the current window */
    uint64_t rests_until;
    uint64_t seen[SEEN];
};

static void leave(void *context, void *item)
{
    struct entry *e = item;
    (void)context;
    shared_record_release(e->record);
    explicit_bzero(e->text, e->len); /* the text may have tokens and secrets of workers */
    free(e);
}

struct answer_cache *answer_cache_new(void)
{
    struct answer_cache *cache = calloc(1, sizeof *cache);
    if (cache)
        cache->table.gone = leave;
    if (cache && hash_secret_init(&cache->secret) && recent_init(&cache->table, ENTRIES, BYTES))
        return cache;
    answer_cache_free(cache);
    return NULL;
}

void answer_cache_free(struct answer_cache *cache)
{
    if (!cache)
        return;
    recent_free(&cache->table);
    free(cache);
}

void answer_cache_clear(struct answer_cache *cache)
{
    recent_clear(&cache->table);
}

/* ---- questions ---- */

static bool rests(struct answer_cache *cache, uint64_t clock)
{
    if (clock < cache->rests_until)
        return true;
    if (cache->looks < WINDOW) {
        cache->looks++;
        return false;
    }
    if (cache->given < WINDOW / WORTH)
        cache->rests_until = clock + REST;
    cache->looks = cache->given = 0;
    return rests(cache, clock);
}

struct answer_question answer_question_of(struct answer_cache *cache, struct spop_args args, uint64_t clock)
{
    struct answer_question q = {.rest = args.reader.rest, .aside = rests(cache, clock)};
    struct slice name;
    struct spop_value value;
    if (q.aside)
        return q;
    if (spop_arg_next(&args, &name, &value) && slice_is(name, "id")) {
        q.aside = value.kind != SPOP_TEXT && value.kind != SPOP_BINARY && value.kind != SPOP_NULL;
        q.id = value.bytes;
        q.rest = args.reader.rest;
    }
    q.aside = q.aside || q.rest.len > QUESTION_MOST;
    if (!q.aside)
        q.hash = hash_keyed(&cache->secret, q.rest);
    return q;
}

/* Returns whether there is an id after the first argument; it would count, because readers take the last argument of a name. */
static bool has_id(struct slice rest)
{
    struct spop_args args = {.reader = reader_of(rest), .left = UINT8_MAX};
    struct slice name;
    struct spop_value value;
    while (args.reader.rest.len && spop_arg_next(&args, &name, &value))
        if (slice_is(name, "id"))
            return true;
    return false;
}

static bool is_same(const void *item, const void *key)
{
    return slice_equal(((const struct entry *)item)->question, *(const struct slice *)key);
}

/* ---- giving ---- */

static bool fits(const struct entry *e, const struct spop_actions *actions)
{
    const struct writer *out = actions->out;
    size_t most = actions->most && actions->most < out->size ? actions->most : out->size;
    return !out->full && out->len <= most && e->answer.len <= most - out->len;
}

static bool is_current(const struct entry *e, const struct snapshot *snapshot, struct snapshot_finder *finder,
                       int64_t now)
{
    return now < e->verdict.good_until &&
           (!e->record || snapshot_finds(snapshot, finder, e->key, e->alike, e->record));
}

const struct verdict *answer_cache_give(struct answer_cache *cache, const struct answer_question *question,
                                        const struct snapshot *snapshot, struct snapshot_finder *finder,
                                        int64_t now, struct spop_actions *actions)
{
    struct recent_slot *slot =
        question->aside ? NULL : recent_find(&cache->table, question->hash, is_same, &question->rest);
    struct entry *e = slot ? slot->item : NULL;
    if (!e || !fits(e, actions))
        return NULL;
    if (!is_current(e, snapshot, finder, now)) {
        recent_drop(&cache->table, slot);
        return NULL;
    }
    writer_put(actions->out, e->answer);
    actions->count += e->count;
    e->verdict.request_id = question->id;
    cache->given++;
    return &e->verdict;
}

/* ---- keeping ---- */

static bool was_seen(struct answer_cache *cache, uint64_t hash)
{
    uint64_t *seen = &cache->seen[hash % SEEN];
    bool again = *seen == hash;
    *seen = hash;
    return again;
}

/* All texts of a verdict except the request's id. */
#define TEXTS(X) X(sub) X(jti) X(kid) X(left)

static size_t texts_len(const struct verdict *v)
{
    size_t len = 0;
#define X(field) len += v->field.len;
    TEXTS(X)
#undef X
#define LEN_TEXT(field) len += v->field.len;
#define LEN_BOOL(field)
#define LEN_ADDRESS(field)
#define LEN_INT(field)
#define X(kind, field, ...) LEN_##kind(field)
    VERDICT_VARIABLES(X)
#undef X
    return len;
}

/* Copies the text into the writer, which must have room. */
static struct slice own(struct writer *w, struct slice text)
{
    const uint8_t *at = w->at + w->len;
    writer_put(w, text);
    return slice_present(text) ? slice_of(at, text.len) : text;
}

static void own_texts(struct verdict *v, struct writer *w)
{
    v->request_id = slice_text(NULL);
#define X(field) v->field = own(w, v->field);
    TEXTS(X)
#undef X
#define OWN_TEXT(field) v->field = own(w, v->field);
#define OWN_BOOL(field)
#define OWN_ADDRESS(field)
#define OWN_INT(field)
#define X(kind, field, ...) OWN_##kind(field)
    VERDICT_VARIABLES(X)
#undef X
}

/* Returns whether the cache knows everything that the decision read, and reading it again would give the same. */
static bool may_keep(const struct answer_question *question, const struct verdict *verdict,
                     const struct answer *answer, const struct snapshot_finder *finder)
{
    bool found = finder->look_ups == 0 || (finder->look_ups == 1 && finder->found == LOOKUP_FOUND);
    return verdict->good_until > 0 && !finder->last && found && !question->aside &&
           answer->bytes.len <= ANSWER_MOST;
}

static struct entry *entry_new(const struct answer_question *question, const struct verdict *verdict,
                               const struct answer *answer, const struct snapshot_finder *finder,
                               size_t *bytes)
{
    bool asked = finder->look_ups > 0;
    struct slice key = slice_of(finder->key, asked ? finder->len : 0);
    size_t len = question->rest.len + answer->bytes.len + key.len + texts_len(verdict);
    struct entry *e = malloc(sizeof *e + len);
    if (!e)
        return NULL;
    struct writer w = writer_of(e->text, len);
    e->len = len;
    e->question = own(&w, question->rest);
    e->answer = own(&w, answer->bytes);
    e->key = own(&w, key);
    e->count = answer->count;
    e->alike = finder->alike;
    e->record = asked ? shared_record_retain(finder->held) : NULL;
    e->verdict = *verdict;
    own_texts(&e->verdict, &w);
    *bytes = sizeof *e + len;
    return e;
}

void answer_cache_keep(struct answer_cache *cache, const struct answer_question *question,
                       const struct verdict *verdict, const struct answer *answer,
                       const struct snapshot_finder *finder)
{
    size_t bytes;
    if (!may_keep(question, verdict, answer, finder) || !was_seen(cache, question->hash) ||
        has_id(question->rest))
        return;
    struct recent_slot *old = recent_find(&cache->table, question->hash, is_same, &question->rest);
    if (old)
        recent_drop(&cache->table, old);
    struct entry *e = entry_new(question, verdict, answer, finder, &bytes);
    if (e)
        recent_put(&cache->table, question->hash, e, bytes);
}
