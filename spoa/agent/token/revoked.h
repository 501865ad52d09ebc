/* SPDX-License-Identifier: MIT */
/*
 * revoked: the tokens that were revoked one by one, by their `jti`. A table of keyed hashes of 128 bits: 24 bytes for each,
 * no text of anybody. Counted by reference; any thread may look up without a lock while one thread at a time adds.
 *
 * On the wire and in files a list is {"revoked": {"JTI": UNTIL, ...}}; UNTIL is when the token expires, in Unix seconds. An
 * entry is forgotten REVOKED_GRACE later, when a list is read or has to grow, and not before.
 */
#ifndef CELLGATE_AGENT_TOKEN_REVOKED_H
#define CELLGATE_AGENT_TOKEN_REVOKED_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

enum {
    REVOKED_MOST = 1 << 18,
    REVOKED_GRACE = 3600,     /* seconds: the most that `leeway` can be */
    REVOKED_BYTES = 32 << 20, /* of a list's text */
};

struct revoked;

/* Of the thread that adds: one that has the unexpired entries of old (NULL: none) and room for `more`. NULL and *why when out
 * of memory or over REVOKED_MOST. */
struct revoked *revoked_new(const struct revoked *old, size_t more, int64_t now, struct fail *why);
struct revoked *revoked_retain(struct revoked *revoked);
void revoked_release(struct revoked *revoked); /* NULL is fine */
/* Whether there was room. What is there already stays until the later of both. */
bool revoked_add(struct revoked *revoked, struct slice jti, int64_t until);
/* NULL is an empty list; so is a jti that is absent. */
bool revoked_has(const struct revoked *revoked, struct slice jti);
size_t revoked_count(const struct revoked *revoked);

/* What a text says, of which `revoked` may be left out. Where *revoked is not NULL, it is added to that list, or to one that
 * takes its place; not_before stays as it is if the text does not say, which may then say other things, too (NULL: neither). False and *why when any of it is
 * not in order; *revoked is as before then, or has some of it. *over (may be NULL) grows by the entries that are left out, as
 * they would be forgotten by now. */
bool revoked_read(struct slice text, const char *name, int64_t now, struct revoked **revoked,
                  int64_t *not_before, size_t *over, struct fail *why);
/* The object alone, without {"revoked": ...} around it, which is `key` of another document. */
bool revoked_read_object(struct slice object, const char *name, int64_t now, struct revoked **revoked,
                         size_t *over, struct fail *why);

#endif
