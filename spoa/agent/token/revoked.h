/* SPDX-License-Identifier: MIT */
/*
 * revoked: individually revoked tokens, by their `jti`. A table of keyed hashes of 128 bits needs 24 bytes per token and holds no text.
 * It is counted by reference. Any thread may look up without a lock while one thread at a time adds.
 *
 * On the wire and in files a list is {"revoked": {"JTI": UNTIL, ...}}; UNTIL is the expiry of the token, in Unix seconds. An entry is
 * dropped when a list is read or must grow, but not before REVOKED_GRACE after its expiry.
 */
#ifndef CELLGATE_AGENT_TOKEN_REVOKED_H
#define CELLGATE_AGENT_TOKEN_REVOKED_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

enum {
    REVOKED_MOST = 1 << 18,
    REVOKED_GRACE = 3600,     /* seconds; must be the maximum of `leeway` */
    REVOKED_BYTES = 32 << 20, /* limit of a list's text, in bytes */
};

struct revoked;

/* Makes a list with the unexpired entries of `old` (NULL for none) and room for `more` entries. Only the thread that adds may call this.
 * Returns NULL and *why if memory is short or the list exceeds REVOKED_MOST. */
struct revoked *revoked_new(const struct revoked *old, size_t more, int64_t now, struct fail *why);
struct revoked *revoked_retain(struct revoked *revoked);
void revoked_release(struct revoked *revoked); /* revoked may be NULL */
/* Adds an entry; an existing one keeps the later of both times. Returns false if there is no room. */
bool revoked_add(struct revoked *revoked, struct slice jti, int64_t until);
/* Returns whether the list has the jti. A NULL list is empty; an absent jti is never in a list. */
bool revoked_has(const struct revoked *revoked, struct slice jti);
size_t revoked_count(const struct revoked *revoked);

/* Reads a text, in which `revoked` may be missing. Entries are added to *revoked, or to a larger list that replaces it; NULL starts a
 * new list. Sets *not_before if the text has it. If not_before is NULL, the text may have nothing but `revoked`. Returns false and *why
 * if any of the text is invalid; *revoked may then have some of its entries. *over (may be NULL) grows by the number of entries that are
 * skipped because they would have been dropped by now. */
bool revoked_read(struct slice text, const char *name, int64_t now, struct revoked **revoked,
                  int64_t *not_before, size_t *over, struct fail *why);
/* Reads the object alone, without {"revoked": ...} around it, for a list inside another document. */
bool revoked_read_object(struct slice object, const char *name, int64_t now, struct revoked **revoked,
                         size_t *over, struct fail *why);

#endif
