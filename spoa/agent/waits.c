/* SPDX-License-Identifier: MIT */
#include "spoa/agent/waits.h"

#include <assert.h>
#include <stdlib.h>

#define BUCKETS 4096u

struct kept {
    struct kept *next, *before;   /* in the order of their ends, which is that of their beginnings */
    struct kept *chain, **anchor; /* next of the bucket; what points to this one */
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
    struct kept *buckets[BUCKETS];
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
    return &w->buckets[hash_keyed(&w->secret, key) % BUCKETS];
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
    *k->anchor = k->chain;
    if (k->chain)
        k->chain->anchor = k->anchor;
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
    struct kept *k = malloc(bytes), **bucket = bucket_of(w, key);
    if (!k)
        return false;
    *k = (struct kept){.before = w->last, .chain = *bucket, .anchor = bucket, .wait = *wait, .bytes = bytes};
    memcpy(k->texts, key.at, key.len);
    memcpy(k->texts + key.len, rest.at, rest.len);
    k->wait.key = slice_of(k->texts, key.len);
    k->wait.args.reader.rest = slice_of(k->texts + key.len, rest.len);
    if (k->chain)
        k->chain->anchor = &k->chain;
    *bucket = k;
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
        next = k->chain;
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

size_t waits_count(const struct waits *w)
{
    return w->count;
}
