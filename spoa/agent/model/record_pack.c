/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/record_pack.h"

#include "spoa/base/table/hash.h"

static size_t address_size(uint8_t family)
{
    return family == 4 ? 4 : family == 6 ? 16 : 0;
}

void record_pack_text(struct writer *w, struct slice text)
{
    if (text.len > UINT16_MAX)
        w->full = true;
    writer_be(w, text.len, 2);
    writer_put(w, text);
}

struct slice record_unpack_text(struct reader *r)
{
    return reader_take(r, reader_be(r, 2));
}

void record_pack_worker(struct writer *w, const struct worker *worker)
{
    writer_u8(w, (uint8_t)worker->kind);
    writer_be(w, worker->port, 2);
    writer_u8(w, worker->addr.family);
    writer_put(w, slice_of(worker->addr.bytes, address_size(worker->addr.family)));
    record_pack_text(w, worker->host);
}

void record_unpack_worker(struct reader *r, struct worker *worker)
{
    *worker = (struct worker){0};
    worker->kind = reader_u8(r);
    worker->port = (uint16_t)reader_be(r, 2);
    worker->addr.family = reader_u8(r);
    struct slice bytes = reader_take(r, address_size(worker->addr.family));
    if (bytes.len)
        memcpy(worker->addr.bytes, bytes.at, bytes.len);
    worker->host = record_unpack_text(r);
}

void record_pack_port(struct writer *w, uint16_t port, const struct worker *worker)
{
    writer_be(w, port, 2);
    record_pack_worker(w, worker);
}

void record_pack_details(struct writer *w, uint16_t port, const struct record_details *details)
{
    writer_be(w, port, 2);
    writer_u8(w, (uint8_t)details->serves);
    writer_u8(w, details->h2);
    record_pack_text(w, details->access_sha256);
    record_pack_text(w, details->headers);
}

void record_pack_management(struct writer *w, const struct port_list *ports)
{
    for (size_t i = 0; i < ports->count; i++) {
        writer_be(w, ports->range[i].from, 2);
        writer_be(w, ports->range[i].to, 2);
    }
}

void record_pack_header(struct writer *w, struct slice name, struct slice value)
{
    record_pack_text(w, name);
    record_pack_text(w, value);
}

/* ---- whole ---- */

enum { FLAG_H2 = 1, FLAG_BARE = 2, FLAG_MANAGEMENT = 4, FLAG_EGRESS = 8 };

void record_pack(struct writer *w, const struct record *record)
{
    writer_u8(w, (uint8_t)record->state);
    writer_be(w, (uint64_t)record->epoch, 8);
    writer_be(w, (uint64_t)record->not_before, 8);
    record_pack_text(w, record->org);
    record_pack_worker(w, &record->worker);
    record_pack_text(w, record->access_sha256);
    record_pack_text(w, record->ports);
    record_pack_text(w, record->headers);
    record_pack_text(w, record->details);
    writer_u8(w, (uint8_t)record->serves);
    writer_u8(w, (uint8_t)((record->h2 ? FLAG_H2 : 0) | (record->bare ? FLAG_BARE : 0) |
                           (slice_present(record->management) ? FLAG_MANAGEMENT : 0) |
                           (slice_present(record->egress) ? FLAG_EGRESS : 0)));
    record_pack_text(w, record->management);
    record_pack_text(w, record->egress);
    record_pack_text(w, record->sandbox);
    record_pack_text(w, record->uid);
    record_pack_text(w, record->signing_key);
}

static void absent_if_empty(struct slice *s)
{
    if (s->len == 0)
        s->at = NULL;
}

void record_unpack(struct reader *r, struct record *record)
{
    record->state = reader_u8(r);
    record->epoch = (int64_t)reader_be(r, 8);
    record->not_before = (int64_t)reader_be(r, 8);
    record->org = record_unpack_text(r);
    record_unpack_worker(r, &record->worker);
    record->access_sha256 = record_unpack_text(r);
    record->ports = record_unpack_text(r);
    record->headers = record_unpack_text(r);
    record->details = record_unpack_text(r);
    record->serves = reader_u8(r);
    uint8_t flags = reader_u8(r);
    record->h2 = flags & FLAG_H2;
    record->bare = flags & FLAG_BARE;
    record->management = record_unpack_text(r);
    record->egress = record_unpack_text(r);
    record->sandbox = record_unpack_text(r);
    record->uid = record_unpack_text(r);
    record->signing_key = record_unpack_text(r);
    if (!(flags & FLAG_MANAGEMENT))
        record->management = (struct slice){NULL, 0};
    if (!(flags & FLAG_EGRESS))
        record->egress = (struct slice){NULL, 0};
    absent_if_empty(&record->org);
    absent_if_empty(&record->access_sha256);
    absent_if_empty(&record->sandbox);
    absent_if_empty(&record->uid);
    absent_if_empty(&record->signing_key);
}

/* ---- reading parts ---- */

bool record_port_next(const struct record *record, size_t *cursor, uint16_t *port, struct worker *worker)
{
    struct reader r = reader_of(slice_from(record->ports, *cursor));
    if (r.rest.len == 0)
        return false;
    *port = (uint16_t)reader_be(&r, 2);
    record_unpack_worker(&r, worker);
    *cursor = record->ports.len - r.rest.len;
    return !r.failed;
}

bool record_port(const struct record *record, uint16_t port, struct worker *worker)
{
    size_t cursor = 0;
    uint16_t candidate;
    while (record_port_next(record, &cursor, &candidate, worker))
        if (candidate == port)
            return true;
    return false;
}

bool record_details(const struct record *record, uint16_t port, struct record_details *details)
{
    struct reader r = reader_of(record->details);
    while (r.rest.len && !r.failed) {
        uint16_t candidate = (uint16_t)reader_be(&r, 2);
        details->serves = reader_u8(&r);
        details->h2 = reader_u8(&r);
        details->access_sha256 = record_unpack_text(&r);
        details->headers = record_unpack_text(&r);
        if (candidate == port && !r.failed)
            return true;
    }
    *details = (struct record_details){.serves = SERVES_UNSAID};
    return false;
}

bool record_management(const struct record *record, uint16_t port, bool *is_one)
{
    struct reader r = reader_of(record->management);
    *is_one = false;
    if (!slice_present(record->management))
        return false;
    while (r.rest.len && !r.failed) {
        uint64_t from = reader_be(&r, 2), to = reader_be(&r, 2);
        *is_one = *is_one || (port >= from && port <= to);
    }
    return true;
}

struct slice record_access(const struct record *record, uint16_t port)
{
    struct record_details details;
    bool own = port && record_details(record, port, &details) && details.access_sha256.len;
    return own ? details.access_sha256 : record->access_sha256;
}

struct slice record_headers(const struct record *record, uint16_t port)
{
    struct record_details details;
    bool own = port && record_details(record, port, &details) && details.headers.len;
    return own ? details.headers : record->headers;
}

bool record_header(struct slice headers, size_t *cursor, struct slice *name, struct slice *value)
{
    struct reader r = reader_of(slice_from(headers, *cursor));
    if (r.rest.len == 0)
        return false;
    *name = record_unpack_text(&r);
    *value = record_unpack_text(&r);
    *cursor = headers.len - r.rest.len;
    return !r.failed;
}

int64_t record_epoch(const struct record *record)
{
    static const struct hash_secret known = {0, 0}; /* constant, so that every agent computes the same hash */
    uint8_t memory[512];
    struct writer w = writer_of(memory, sizeof memory);
    if (record->epoch)
        return record->epoch;
    writer_u8(&w, (uint8_t)record->state);
    record_pack_worker(&w, &record->worker);
    uint64_t hash = hash_keyed(&known, writer_slice(&w)) ^ hash_keyed(&known, record->ports);
    return (int64_t)(hash >> 1 | 1);
}
