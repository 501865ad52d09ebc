/* SPDX-License-Identifier: MIT */
#include "spoa/agent/waits.h"

#include <assert.h>
#include <stdlib.h>

#define BUCKETS 4096u

enum index { BY_KEY, BY_TICKET, INDEXES };

struct kept {
    struct kept *next, *before; /* in the order of their ends, which is that of their beginnings */
    struct {
        struct kept *next, **anchor; /* of the bucket; what points to this one */
    } chain[INDEXES];
    struct wait wait;
    size_t bytes;
    uint8_t texts[];
};

struct waits {
    struct waits_options options;
    struct loop_timer timer;
    struct hash_secret secret;
    struct kept *first, *last;
    size_t count, bytes;
    struct kept *buckets[INDEXES][BUCKETS];
};

static uint64_t due_at(const struct waits *w, const struct kept *k)
{
    return k->wait.begun + (uint64_t)(w->options.seconds * 1e6);
}

static void arm(struct waits *w)
{
    uint64_t now = loop_clock();
    if (w->first) {
        uint64_t due = due_at(w, w->first);
        loop_timer_set(&w->timer, due > now ? (double)(due - now) / 1e6 : 0);
    }
}

static struct kept **bucket_of(struct waits *w, struct slice key)
{
    return &w->buckets[BY_KEY][hash_keyed(&w->secret, key) % BUCKETS];
}

/* Peers that ask to be answered later are our own relays, whose streams are numbers in a row. */
static struct kept **bucket_of_ticket(struct waits *w, const struct server_ticket *ticket)
{
    return &w->buckets[BY_TICKET][(ticket->stream_id + ticket->slot * UINT64_C(0x9e3779b9)) % BUCKETS];
}

static void link_into(struct kept **bucket, struct kept *k, enum index index)
{
    k->chain[index].next = *bucket;
    k->chain[index].anchor = bucket;
    if (*bucket)
        (*bucket)->chain[index].anchor = &k->chain[index].next;
    *bucket = k;
}

static void unlink_from(struct kept *k, enum index index)
{
    *k->chain[index].anchor = k->chain[index].next;
    if (k->chain[index].next)
        k->chain[index].next->chain[index].anchor = k->chain[index].anchor;
}

static void forget(struct waits *w, struct kept *k)
{
    if (w->first == k)
        w->first = k->next;
    else
        k->before->next = k->next;
    if (w->last == k)
        w->last = k->before;
    else
        k->next->before = k->before;
    unlink_from(k, BY_KEY);
    unlink_from(k, BY_TICKET);
    w->count--;
    w->bytes -= k->bytes;
    if (w->options.gone)
        w->options.gone(w->options.context, &k->wait);
    free(k);
}

static void on_due(void *owner)
{
    struct waits *w = owner;
    uint64_t now = loop_clock();
    while (w->first && due_at(w, w->first) <= now) {
        w->options.due(w->options.context, &w->first->wait);
        forget(w, w->first);
    }
    arm(w);
}

struct waits *waits_new(const struct waits_options *options)
{
    struct waits *w = calloc(1, sizeof *w);
    if (!w || !hash_secret_init(&w->secret)) {
        free(w);
        return NULL;
    }
    w->options = *options;
    loop_timer_open(&w->timer, options->loop, on_due, w);
    return w;
}

void waits_free(struct waits *w)
{
    if (!w)
        return;
    loop_timer_close(&w->timer);
    while (w->first)
        forget(w, w->first);
    free(w);
}

bool waits_add(struct waits *w, const struct wait *wait)
{
    struct slice key = wait->key, rest = wait->args.reader.rest;
    size_t bytes = sizeof(struct kept) + key.len + rest.len;
    assert(!w->last || w->last->wait.begun <= wait->begun);
    if (w->count >= w->options.most || w->bytes + bytes > w->options.most_bytes)
        return false;
    struct kept *k = malloc(bytes);
    if (!k)
        return false;
    *k = (struct kept){.before = w->last, .wait = *wait, .bytes = bytes};
    memcpy(k->texts, key.at, key.len);
    memcpy(k->texts + key.len, rest.at, rest.len);
    k->wait.key = slice_of(k->texts, key.len);
    k->wait.args.reader.rest = slice_of(k->texts + key.len, rest.len);
    link_into(bucket_of(w, key), k, BY_KEY);
    link_into(bucket_of_ticket(w, &wait->ticket), k, BY_TICKET);
    *(w->last ? &w->last->next : &w->first) = k;
    w->last = k;
    w->bytes += bytes;
    if (++w->count == 1)
        arm(w);
    return true;
}

void waits_look_at(struct waits *w, struct slice key, waits_news *news)
{
    for (struct kept *k = *bucket_of(w, key), *next; k; k = next) {
        next = k->chain[BY_KEY].next;
        if (slice_equal(k->wait.key, key) && news(w->options.context, &k->wait))
            forget(w, k);
    }
}

void waits_look(struct waits *w, waits_news *news)
{
    for (struct kept *k = w->first, *next; k; k = next) {
        next = k->next;
        if (news(w->options.context, &k->wait))
            forget(w, k);
    }
}

static bool same_ticket(const struct server_ticket *a, const struct server_ticket *b)
{
    return a->stream_id == b->stream_id && a->frame_id == b->frame_id && a->slot == b->slot &&
           a->generation == b->generation;
}

bool waits_end(struct waits *w, const struct server_ticket *ticket)
{
    struct kept *k = *bucket_of_ticket(w, ticket);
    while (k && !same_ticket(&k->wait.ticket, ticket))
        k = k->chain[BY_TICKET].next;
    if (!k)
        return false;
    w->options.due(w->options.context, &k->wait);
    forget(w, k);
    return true;
}

size_t waits_count(const struct waits *w)
{
    return w->count;
}
