/* SPDX-License-Identifier: MIT */
/*
 * records: an immutable table of sandbox records. It is built once, and then read by any number of threads without a lock. A record
 * takes about 60 bytes beside its own text, whatever the table's size; a look-up costs one keyed hash and one or two cache misses.
 * Tables are counted by reference: the last records_release frees the memory.
 *
 * The key of a record is the sandbox id, or "namespace/id". A request for namespace "default" also finds a plain id.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_RECORDS_H
#define CELLGATE_AGENT_DIRECTORY_RECORDS_H

#include "spoa/agent/model/record.h"
#include "spoa/base/json/json.h"

struct records;

/* ---- building: one thread ---- */

/* Returns an empty table, or NULL if memory is short. `expected` is a hint for the number of records. */
struct records *records_new(size_t expected) MUST_CHECK;
/* Copies `record` under `key`. Returns false with *why if the key exists, is empty, has over 255 bytes, blanks or control bytes, if a
 * text is too long, or if memory is short; the table is then unchanged. */
bool records_add(struct records *records, struct slice key, const struct record *record, struct fail *why)
    MUST_CHECK;

/* ---- reading: any thread that holds a reference ---- */

/* Take and drop a reference; NULL may be released. */
struct records *records_retain(struct records *records);
void records_release(struct records *records);

/* Finds the record of a sandbox. Returns LOOKUP_FOUND, with *record valid while the caller holds its reference, or LOOKUP_ABSENT.
 * `space`, the namespace, may be absent. */
enum lookup records_find(const struct records *records, struct slice space, struct slice sandbox,
                         struct record *record);
/* Like records_find, by the exact key. */
enum lookup records_get(const struct records *records, struct slice key, struct record *record);
/* Returns the number of records. */
size_t records_count(const struct records *records);
/* Returns the memory of the table [bytes]. */
size_t records_bytes(const struct records *records);
/* Returns the next record, in no particular order, and advances *cursor, which starts at 0. Returns false after the last one. */
bool records_each(const struct records *records, size_t *cursor, struct slice *key, struct record *record);

#endif
