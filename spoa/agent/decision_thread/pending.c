/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/pending.h"

#include <assert.h>
#include <stdlib.h>

#include "spoa/base/table/hash_table.h"

#define REST_MOST (100 * MILLISECOND) /* longest pause between two looks at all questions */
#define LOOK_AGAIN \
    (50 * MILLISECOND) /* time until the next look at questions whose connection had no room for an answer */

struct link {
    struct kept *next, *before;
};

struct chain {
    struct kept *first, *last;
};

/* The questions with one key in one `pending`. A queued topic is not freed, even if it is empty. */
struct topic {
    struct hash_node node; /* must be the first member */
    struct pending *pending;
    struct chain members;
    struct topic *next; /* next notified topic of the `pending` */
    bool queued, begun, again;
    struct kept *cursor; /* next question to look at, if begun */
    size_t len;
    uint8_t key[];
};

/* The questions of one connection. A closing source is not freed, even if it is empty. */
struct source {
    struct hash_node node; /* must be the first member */
    uint32_t slot, generation;
    struct chain members;
    struct source *next; /* next closing source */
    bool closing;
    uint64_t units;
};

struct kept {
    struct hash_node node; /* by ticket; must be the first member */
    struct link of_all, of_topic,
        of_source; /* of_all is in the order of their ends, which is the order of their arrivals */
    struct topic *topic;
    struct source *source;
    struct pending_request request;
    size_t bytes;
    uint64_t units;
    bool skipped; /* notified while its connection had no room for an answer */
    /* One place for options.fair and one for options.payers, if set; subscriptions, which are many, have none. The request's texts
     * follow. */
    struct fair_place places[];
};

struct pending_table {
    struct hash_secret secret;
    struct hash_table topics;
    struct pending *first, **end; /* in the order of creation */
    void (*work)(void *context);
    void *context;
};

struct pending {
    struct pending_options options;
    struct pending_table *table;
    struct pending *next;
    struct loop_timer timer; /* fires when the first question is due */
    struct loop_timer rest;  /* fires when all questions must be looked at again */
    struct hash_table tickets, sources;
    struct chain all;
    size_t bytes;
    struct topic *notified, **notified_end;
    struct source *closing, **closing_end;
    bool looking, again; /* looking at all; another look must follow */
    bool whole;          /* the current look covers all questions, not only skipped ones */
    bool skipped;        /* a connection had no room since the look began */
    struct kept *cursor;
    uint64_t look_began, rests_until;
};

/* ---- chains ---- */

static struct link *link_of(struct kept *k, size_t member)
{
    return (struct link *)((uint8_t *)k + member);
}

static void append(struct chain *chain, struct kept *k, size_t member)
{
    *link_of(k, member) = (struct link){.before = chain->last};
    *(chain->last ? &link_of(chain->last, member)->next : &chain->first) = k;
    chain->last = k;
}

static void detach(struct chain *chain, struct kept *k, size_t member)
{
    const struct link *link = link_of(k, member);
    *(link->before ? &link_of(link->before, member)->next : &chain->first) = link->next;
    *(link->next ? &link_of(link->next, member)->before : &chain->last) = link->before;
}

#define OF_ALL    offsetof(struct kept, of_all)
#define OF_TOPIC  offsetof(struct kept, of_topic)
#define OF_SOURCE offsetof(struct kept, of_source)

/* ---- look-ups ---- */

static uint64_t hash_of_ticket(const struct pending *w, const struct server_ticket *t)
{
    const uint64_t words[] = {(uint64_t)t->slot << 32 | t->generation, t->stream_id, t->frame_id};
    return hash_keyed(&w->table->secret, slice_of(words, sizeof words));
}

static uint64_t hash_of_source(const struct pending *w, uint32_t slot, uint32_t generation)
{
    const uint64_t word = (uint64_t)slot << 32 | generation;
    return hash_keyed(&w->table->secret, slice_of(&word, sizeof word));
}

static bool same_ticket(const struct server_ticket *a, const struct server_ticket *b)
{
    return a->stream_id == b->stream_id && a->frame_id == b->frame_id && a->slot == b->slot &&
           a->generation == b->generation;
}

static struct kept *find_ticket(const struct pending *w, const struct server_ticket *ticket)
{
    struct hash_node *node = hash_table_find(&w->tickets, hash_of_ticket(w, ticket));
    while (node && !same_ticket(&((struct kept *)node)->request.ticket, ticket))
        node = hash_table_next(node);
    return (struct kept *)node;
}

/* Returns the first topic with this key from `node` on; each `pending` has its own. */
static struct topic *topic_of(struct hash_node *node, struct slice key)
{
    for (; node; node = hash_table_next(node)) {
        const struct topic *t = (const struct topic *)node;
        if (slice_equal(slice_of(t->key, t->len), key))
            break;
    }
    return (struct topic *)node;
}

static struct topic *find_topic(const struct pending *w, uint64_t hash, struct slice key)
{
    struct topic *t = topic_of(hash_table_find(&w->table->topics, hash), key);
    while (t && t->pending != w)
        t = topic_of(hash_table_next(&t->node), key);
    return t;
}

static struct source *find_source(const struct pending *w, uint32_t slot, uint32_t generation)
{
    struct hash_node *node = hash_table_find(&w->sources, hash_of_source(w, slot, generation));
    for (; node; node = hash_table_next(node)) {
        const struct source *s = (const struct source *)node;
        if (s->slot == slot && s->generation == generation)
            break;
    }
    return (struct source *)node;
}

/* ---- topics and sources exist as long as they have questions ---- */

static struct topic *topic_for(struct pending *w, struct slice key)
{
    uint64_t hash = hash_keyed(&w->table->secret, key);
    struct topic *t = find_topic(w, hash, key);
    if (t || !(t = malloc(sizeof *t + key.len)))
        return t;
    *t = (struct topic){.pending = w, .len = key.len};
    memcpy(t->key, key.at, key.len);
    if (hash_table_insert(&w->table->topics, &t->node, hash))
        return t;
    free(t);
    return NULL;
}

static struct source *source_for(struct pending *w, const struct server_ticket *ticket)
{
    struct source *s = find_source(w, ticket->slot, ticket->generation);
    if (s || !(s = malloc(sizeof *s)))
        return s;
    *s = (struct source){.slot = ticket->slot, .generation = ticket->generation};
    if (hash_table_insert(&w->sources, &s->node, hash_of_source(w, s->slot, s->generation)))
        return s;
    free(s);
    return NULL;
}

static void release_topic(struct topic *t)
{
    if (!t || t->members.first || t->queued)
        return;
    hash_table_remove(&t->pending->table->topics, &t->node);
    free(t);
}

static void release_source(struct pending *w, struct source *s)
{
    if (!s || s->members.first || s->closing)
        return;
    hash_table_remove(&w->sources, &s->node);
    free(s);
}

/* ---- limits ---- */

static bool take_units(struct pending *w, const struct source *s, uint64_t units)
{
    struct pending_quota *q = w->options.quota;
    if (!q)
        return true;
    uint64_t used = atomic_fetch_add_explicit(&q->used, units, memory_order_relaxed) + units;
    if (used <= q->most && s->units + units <= q->most - used)
        return true;
    atomic_fetch_sub_explicit(&q->used, units, memory_order_relaxed);
    return false;
}

static void give_units_back(struct pending *w, uint64_t units)
{
    if (w->options.quota)
        atomic_fetch_sub_explicit(&w->options.quota->used, units, memory_order_relaxed);
}

/* ---- adding and removing ---- */

static uint64_t due_at(const struct pending *w, const struct kept *k)
{
    return k->request.begun + w->options.patience;
}

static void leave_shares(struct pending *w, struct kept *k)
{
    if (w->options.fair)
        fair_leave(w->options.fair, &k->places[0]);
    if (w->options.payers)
        fair_leave(w->options.payers, &k->places[1]);
}

static void forget(struct pending *w, struct kept *k)
{
    if (w->cursor == k)
        w->cursor = k->of_all.next;
    if (k->topic->cursor == k)
        k->topic->cursor = k->of_topic.next;
    detach(&w->all, k, OF_ALL);
    detach(&k->topic->members, k, OF_TOPIC);
    detach(&k->source->members, k, OF_SOURCE);
    hash_table_remove(&w->tickets, &k->node);
    k->source->units -= k->units;
    w->bytes -= k->bytes;
    give_units_back(w, k->units);
    leave_shares(w, k);
    if (w->options.gone)
        w->options.gone(w->options.context, &k->request);
    release_topic(k->topic);
    release_source(w, k->source);
    free(k);
}

static size_t size_of_kept(const struct pending *w)
{
    size_t places = w->options.payers ? 2 : w->options.fair ? 1 : 0;
    return sizeof(struct kept) + places * sizeof(struct fair_place);
}

static size_t bytes_of(const struct pending *w, const struct pending_request *request)
{
    return size_of_kept(w) + sizeof(struct topic) + request->key.len + request->args.reader.rest.len;
}

static uint32_t places_of(size_t bytes)
{
    return (uint32_t)((bytes + PENDING_PLACE - 1) / PENDING_PLACE);
}

static struct fair_owner payer_of(const struct pending_request *request)
{
    return (struct fair_owner){.hash = request->payer, .rank = request->owner.rank};
}

bool pending_has_room(const struct pending *w, const struct pending_request *request)
{
    uint32_t places = places_of(bytes_of(w, request));
    return (!w->options.fair || fair_has_room(w->options.fair, request->owner, places)) &&
           (!w->options.payers || fair_has_room(w->options.payers, payer_of(request), places));
}

static bool enter(struct pending *w, struct kept *k)
{
    uint32_t places = places_of(k->bytes);
    uint64_t now = loop_clock();
    if ((!w->options.fair || fair_enter(w->options.fair, &k->places[0], k->request.owner, places, now)) &&
        (!w->options.payers ||
         fair_enter(w->options.payers, &k->places[1], payer_of(&k->request), places, now)))
        return true;
    leave_shares(w, k);
    return false;
}

static struct kept *keep_request(struct pending *w, const struct pending_request *request,
                                 struct topic *topic, struct source *source)
{
    struct slice rest = request->args.reader.rest;
    size_t bytes = bytes_of(w, request);
    uint64_t units = (bytes + PENDING_UNIT - 1) / PENDING_UNIT;
    if (w->tickets.count >= w->options.most || bytes > w->options.most_bytes - w->bytes ||
        !take_units(w, source, units))
        return NULL;
    struct kept *k = calloc(1, size_of_kept(w) + rest.len);
    if (k)
        *k = (struct kept){
            .topic = topic, .source = source, .request = *request, .bytes = bytes, .units = units};
    if (k && enter(w, k)) {
        if (hash_table_insert(&w->tickets, &k->node, hash_of_ticket(w, &request->ticket)))
            return k;
        leave_shares(w, k);
    }
    free(k);
    give_units_back(w, units);
    return NULL;
}

bool pending_add(struct pending *w, const struct pending_request *request)
{
    struct slice rest = request->args.reader.rest;
    assert(!w->all.last || w->all.last->request.begun <= request->begun);
    struct topic *topic = topic_for(w, request->key);
    struct source *source = source_for(w, &request->ticket);
    struct kept *k = topic && source ? keep_request(w, request, topic, source) : NULL;
    if (!k) {
        release_topic(topic);
        release_source(w, source);
        return false;
    }
    uint8_t *texts = (uint8_t *)k + size_of_kept(w);
    memcpy(texts, rest.at, rest.len);
    k->request.key = slice_of(topic->key, topic->len);
    k->request.args.reader.rest = slice_of(texts, rest.len);
    append(&w->all, k, OF_ALL);
    append(&topic->members, k, OF_TOPIC);
    append(&source->members, k, OF_SOURCE);
    source->units += k->units;
    w->bytes += k->bytes;
    if (w->all.first == k)
        loop_timer_set_at(&w->timer, due_at(w, k));
    return true;
}

/* ---- notifications ---- */

static void begin_look(struct pending *w, bool whole)
{
    w->looking = true;
    w->whole = whole;
    w->again = w->skipped = false;
    w->cursor = w->all.first;
    w->look_began = loop_clock();
    w->table->work(w->table->context);
}

static void notify_topic(struct topic *t)
{
    struct pending *w = t->pending;

    if (t->queued) {
        t->again = t->begun;
        return;
    }
    t->queued = true;
    t->next = NULL;
    *w->notified_end = t;
    w->notified_end = &t->next;
    w->table->work(w->table->context);
}

void pending_notify(struct pending_table *all, struct slice key)
{
    struct topic *t = topic_of(hash_table_find(&all->topics, hash_keyed(&all->secret, key)), key);

    for (; t; t = topic_of(hash_table_next(&t->node), key))
        notify_topic(t);
}

/* Notifies all. After each look there is a pause of the same length, so that other work gets its turn. */
void pending_notify_all(struct pending *w)
{
    if (!w->all.first)
        return;
    if (w->looking || w->rests_until > loop_clock())
        w->again = true;
    else
        begin_look(w, true);
    if (w->again && !w->looking && !loop_timer_active(&w->rest))
        loop_timer_set_at(&w->rest, w->rests_until);
}

static void on_pending_rested(void *owner)
{
    struct pending *w = owner;
    if (!w->looking)
        begin_look(w, w->again);
}

void pending_drop(struct pending *w, uint32_t slot, uint32_t generation)
{
    struct source *s = find_source(w, slot, generation);
    if (!s || s->closing)
        return;
    s->closing = true;
    s->next = NULL;
    *w->closing_end = s;
    w->closing_end = &s->next;
    w->table->work(w->table->context);
}

bool pending_end(struct pending *w, const struct server_ticket *ticket)
{
    struct kept *k = find_ticket(w, ticket);
    if (!k)
        return false;
    w->options.due(w->options.context, &k->request);
    forget(w, k);
    return true;
}

/* ---- steps of the work; each returns false if there is nothing to do ---- */

static bool has_room(const struct pending *w, const struct kept *k)
{
    return !w->options.room || w->options.room(w->options.context, &k->request);
}

static bool step_due(struct pending *w)
{
    struct kept *k = w->all.first;
    uint64_t now = loop_clock();
    if (!k || due_at(w, k) > now)
        return false;
    if (has_room(w, k)) {
        w->options.due(w->options.context, &k->request);
        forget(w, k);
        return true;
    }
    struct kept *cursor = w->cursor == k && k->of_all.next ? k->of_all.next : w->cursor;
    detach(&w->all, k, OF_ALL);
    k->request.begun = now;
    append(&w->all, k, OF_ALL);
    w->cursor = cursor;
    return true;
}

static bool step_closing(struct pending *w)
{
    struct source *s = w->closing;
    if (!s)
        return false;
    if (s->members.first) {
        forget(w, s->members.first);
        return true;
    }
    w->closing = s->next;
    if (!w->closing)
        w->closing_end = &w->closing;
    s->closing = false;
    release_source(w, s);
    return true;
}

static void look_at(struct pending *w, struct kept *k)
{
    if (k->source->closing)
        return; /* the question is removed soon */
    k->skipped = !has_room(w, k);
    if (k->skipped)
        w->skipped = true;
    else if (w->options.notify(w->options.context, &k->request))
        forget(w, k);
}

static void unqueue_first(struct pending *w)
{
    struct topic *t = w->notified;
    w->notified = t->next;
    if (!w->notified)
        w->notified_end = &w->notified;
    t->queued = t->begun = false;
}

static bool step_topic(struct pending *w)
{
    struct topic *t = w->notified;
    if (!t)
        return false;
    if (!t->begun)
        t->cursor = t->members.first;
    t->begun = true;
    struct kept *k = t->cursor;
    if (k) {
        t->cursor = k->of_topic.next;
        look_at(w, k);
        return true;
    }
    bool again = t->again;
    t->again = false;
    unqueue_first(w);
    if (again)
        notify_topic(t);
    release_topic(t);
    return true;
}

/* Moves a long topic to the end of the queue, so that the others are not delayed. */
static void rotate(struct pending *w)
{
    struct topic *t = w->notified;
    if (!t || !t->next)
        return;
    w->notified = t->next;
    t->next = NULL;
    *w->notified_end = t;
    w->notified_end = &t->next;
}

static void end_look(struct pending *w)
{
    uint64_t now = loop_clock(), took = now - w->look_began;
    w->looking = false;
    w->rests_until = now + (took < REST_MOST ? took : REST_MOST);
    if (w->skipped && w->rests_until < now + LOOK_AGAIN)
        w->rests_until = now + LOOK_AGAIN;
    if (w->again || w->skipped)
        loop_timer_set_at(&w->rest, w->rests_until);
}

static bool step_all(struct pending *w)
{
    struct kept *k = w->cursor;
    if (!w->looking)
        return false;
    if (k) {
        w->cursor = k->of_all.next;
        if (w->whole || k->skipped)
            look_at(w, k);
    } else {
        end_look(w);
    }
    return true;
}

/* Does one step of each sort for each `pending`, so that none waits for many of another. */
static bool step(struct pending_table *all)
{
    bool more = false;
    for (struct pending *w = all->first; w; w = w->next) {
        more = step_topic(w) || more;
        more = step_due(w) || more;
        more = step_closing(w) || more;
        more = step_all(w) || more;
    }
    return more;
}

bool pending_work(struct pending_table *all, uint64_t until)
{
    bool more = true;
    do
        more = step(all);
    while (more && loop_clock() < until);
    for (struct pending *w = all->first; w; w = w->next) {
        rotate(w);
        if (!more && w->skipped && !w->looking && !loop_timer_active(&w->rest))
            loop_timer_set(&w->rest, LOOK_AGAIN); /* for topics; a look at all has its own timer */
        if (w->all.first)
            loop_timer_set_at(&w->timer, due_at(w, w->all.first));
    }
    return more;
}

static void on_pending_due(void *owner)
{
    struct pending *w = owner;
    w->table->work(w->table->context);
}

/* ---- start and end ---- */

struct pending_table *pending_table_new(void (*work)(void *context), void *context)
{
    struct pending_table *all = calloc(1, sizeof *all);
    if (!all || !hash_secret_init(&all->secret)) {
        free(all);
        return NULL;
    }
    all->end = &all->first;
    all->work = work;
    all->context = context;
    return all;
}

struct pending *pending_new(struct pending_table *table, const struct pending_options *options)
{
    struct pending *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->options = *options;
    w->table = table;
    *table->end = w;
    table->end = &w->next;
    w->closing_end = &w->closing;
    w->notified_end = &w->notified;
    loop_timer_open(&w->timer, options->loop, on_pending_due, w);
    loop_timer_open(&w->rest, options->loop, on_pending_rested, w);
    return w;
}

static void free_pending(struct pending *w)
{
    loop_timer_close(&w->timer);
    loop_timer_close(&w->rest);
    while (w->all.first)
        forget(w, w->all.first);
    while (step_closing(w))
        ;
    while (w->notified) {
        struct topic *t = w->notified;
        unqueue_first(w);
        release_topic(t);
    }
    hash_table_free(&w->tickets);
    hash_table_free(&w->sources);
    free(w);
}

void pending_table_free(struct pending_table *all)
{
    if (!all)
        return;
    for (struct pending *w = all->first, *next; w; w = next) {
        next = w->next;
        free_pending(w);
    }
    hash_table_free(&all->topics);
    free(all);
}

size_t pending_count(const struct pending *w)
{
    return w->tickets.count;
}
