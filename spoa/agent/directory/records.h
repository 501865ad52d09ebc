/* SPDX-License-Identifier: MIT */
/*
 * records: an immutable table of sandbox records, built once and then read by any number of threads without a
 * lock. A record takes about 60 bytes beside its own text, whatever the table's size; a look-up costs one
 * keyed hash and one or two cache misses. Tables are reference-counted: the last records_release gives the
 * memory back.
 *
 * A record's key is the sandbox id, or "namespace/id" where a request names a namespace; a request for
 * namespace "default" finds a plain id too.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_RECORDS_H
#define CELLGATE_AGENT_DIRECTORY_RECORDS_H

#include "spoa/agent/model/record.h"
#include "spoa/base/json/json.h"

struct records;

/* ---- building: single-threaded ---- */

/* `expected` is a hint for the number of records. NULL when out of memory. */
struct records *records_new(size_t expected);
/* Copies `record` under `key`. False with *why: the key is there already, it is empty, over 255 bytes or
 * holds control bytes, a text is too long, or out of memory. */
bool records_add(struct records *records, struct slice key, const struct record *record, struct fail *why);

/* ---- reading: any thread that holds a reference ---- */
struct records *records_retain(struct records *records);
void records_release(struct records *records); /* NULL is fine */

/* LOOKUP_FOUND or LOOKUP_ABSENT. *record is valid while the reference is held. `space` may be absent. */
enum lookup records_find(const struct records *records, struct slice space, struct slice sandbox,
                         struct record *record);
/* The same by the exact key. */
enum lookup records_get(const struct records *records, struct slice key, struct record *record);
size_t records_count(const struct records *records);
size_t records_bytes(const struct records *records); /* memory held, in bytes */
/* Goes through all records in no particular order: start with *cursor = 0; false at the end. */
bool records_each(const struct records *records, size_t *cursor, struct slice *key, struct record *record);

#endif
