/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_store: objects, by their names and by the keys of their sandboxes; about 250 bytes each. Each object
 * belongs to a source (one resource in one namespace), which is listed again from time to time; an object that such a list does not
 * name is removed. A key is ABSENT only while every source has been listed completely and nothing of it was lost.
 *
 * Several objects with one key are one sandbox only if all of them are EndpointSlices; then the lowest running address counts.
 * Otherwise nobody can tell which sandbox is meant, and the key is UNAVAILABLE. For one thread.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_STORE_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_STORE_H

#include "spoa/agent/directory/kubernetes/object.h"

struct kubernetes_store;

struct kubernetes_store_options {
    size_t most;    /* maximum number of objects */
    size_t sources; /* number of sources, which are numbered from 0 on */
    /* Reports that the result of kubernetes_store_find for `key` may have changed. The call-back may read the store, not change it. */
    void (*changed)(void *context, struct slice key);
    void *context;
};

/* Returns an empty store, or NULL if memory is short. The options are copied. */
struct kubernetes_store *kubernetes_store_new(const struct kubernetes_store_options *options) MUST_CHECK;
/* Frees the store; NULL is fine. */
void kubernetes_store_free(struct kubernetes_store *store);

/* Begins a list of the source's objects. */
void kubernetes_store_list(struct kubernetes_store *store, size_t source);
/* Ends a list. An object that was not put since kubernetes_store_list is removed, or UNAVAILABLE if kubernetes_store_lose was called
 * since. Returns true if objects did not fit and may fit now, so that another list makes sense. */
bool kubernetes_store_listed(struct kubernetes_store *store, size_t source);
/* Notes that the source has an object whose name is not known. Until its next complete list no key is ABSENT. */
void kubernetes_store_lose(struct kubernetes_store *store, size_t source);

/* Puts an object that was read as KUBERNETES_FOUND or KUBERNETES_ODD. Returns false if there is no room or memory is short: the object
 * is then not in the store, and no key is ABSENT until the next complete list. */
bool kubernetes_store_put(struct kubernetes_store *store, size_t source, enum kubernetes_sort sort,
                          const struct kubernetes_object *object) MUST_CHECK;
/* Removes an object, if the store has it. */
void kubernetes_store_remove(struct kubernetes_store *store, size_t source, struct slice space,
                             struct slice name);

/* Finds the sandbox of `key`. FOUND: *record is valid until the store changes, and *source is where it comes from. UNAVAILABLE: the key is
 * ambiguous, its object may have been removed, or there may be objects that are not known. */
enum lookup kubernetes_store_find(const struct kubernetes_store *store, struct slice key,
                                  struct record *record, size_t *source);
/* Returns whether the key is ambiguous: several sandboxes have it. */
bool kubernetes_store_ambiguous(const struct kubernetes_store *store, struct slice key);
/* Finds the object that a sandbox is. Returns false if there is none or more than one. */
bool kubernetes_store_object(const struct kubernetes_store *store, struct slice key, size_t *source,
                             struct slice *space, struct slice *name) MUST_CHECK;

/* Returns whether every source has been listed completely and nothing of it was lost. */
bool kubernetes_store_whole(const struct kubernetes_store *store);
/* Returns the number of objects. */
size_t kubernetes_store_count(const struct kubernetes_store *store);
/* Returns the memory of the store [bytes]. */
size_t kubernetes_store_bytes(const struct kubernetes_store *store);

#endif
