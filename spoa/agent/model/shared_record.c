/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/shared_record.h"

#include <stdlib.h>

#define TEXTS 11

static void texts_of(struct record *record, struct slice *texts[TEXTS])
{
    texts[0] = &record->org;
    texts[1] = &record->worker.host;
    texts[2] = &record->access_sha256;
    texts[3] = &record->ports;
    texts[4] = &record->headers;
    texts[5] = &record->details;
    texts[6] = &record->management;
    texts[7] = &record->egress;
    texts[8] = &record->sandbox;
    texts[9] = &record->uid;
    texts[10] = &record->signing_key;
}

struct shared_record *shared_record_new(const struct record *record)
{
    struct record copy = *record;
    struct slice *texts[TEXTS];
    size_t size = sizeof(struct shared_record);
    texts_of(&copy, texts);
    for (size_t i = 0; i < TEXTS; i++)
        size += texts[i]->len;
    struct shared_record *box = malloc(size);
    if (!box)
        return NULL;
    uint8_t *at = box->texts;
    for (size_t i = 0; i < TEXTS; i++) {
        if (!slice_present(*texts[i]))
            continue;
        if (texts[i]->len)
            memcpy(at, texts[i]->at, texts[i]->len);
        texts[i]->at = at;
        at += texts[i]->len;
    }
    box->references = 1;
    box->bytes = size;
    box->record = copy;
    return box;
}

struct shared_record *shared_record_retain(struct shared_record *box)
{
    references_add(&box->references);
    return box;
}

void shared_record_release(struct shared_record *box)
{
    if (box && references_drop(&box->references))
        free(box);
}

static bool worker_equal(const struct worker *a, const struct worker *b)
{
    return a->kind == b->kind && a->port == b->port && slice_equal(a->host, b->host) &&
           a->addr.family == b->addr.family &&
           memcmp(a->addr.bytes, b->addr.bytes, sizeof a->addr.bytes) == 0;
}

bool shared_record_equal(const struct shared_record *a, const struct shared_record *b)
{
    const struct record *x = &a->record, *y = &b->record;
    return x->state == y->state && x->bare == y->bare && x->epoch == y->epoch &&
           x->not_before == y->not_before && slice_equal(x->org, y->org) &&
           worker_equal(&x->worker, &y->worker) && slice_equal(x->access_sha256, y->access_sha256) &&
           slice_equal(x->ports, y->ports) && slice_equal(x->headers, y->headers) &&
           slice_equal(x->details, y->details) && x->serves == y->serves && x->h2 == y->h2 &&
           slice_present(x->management) == slice_present(y->management) &&
           slice_equal(x->management, y->management) &&
           slice_present(x->egress) == slice_present(y->egress) && slice_equal(x->egress, y->egress) &&
           slice_equal(x->sandbox, y->sandbox) && slice_equal(x->uid, y->uid) &&
           slice_equal(x->signing_key, y->signing_key);
}
