/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_store: what is known of all objects, by their names and by the keys of their sandboxes; some 200 bytes each.
 * Each object has a source (one resource in one namespace), whose objects are listed again from time to time: what such a
 * list has not named is removed. That there is none of a key is said only while every source has been listed whole and
 * nothing of it was lost.
 *
 * More than one object of a key is one sandbox only if all are EndpointSlices, of which the lowest running address counts;
 * otherwise nobody can tell which is meant, and the key is UNAVAILABLE. For one thread.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_STORE_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_STORE_H

#include "spoa/agent/directory/kubernetes/object.h"

struct kubernetes_store;

struct kubernetes_store_options {
    size_t most;    /* objects */
    size_t sources; /* below it their numbers are */
    /* What kubernetes_store_find says of the key may be something else now. The store may be read, not changed. */
    void (*changed)(void *context, struct slice key);
    void *context;
};

struct kubernetes_store *kubernetes_store_new(
    const struct kubernetes_store_options *options);        /* NULL: out of memory */
void kubernetes_store_free(struct kubernetes_store *store); /* NULL is fine */

/* From here on the objects of the source are listed, from the first one. */
void kubernetes_store_list(struct kubernetes_store *store, size_t source);
/* The list came to its end: what was not put since it began is removed, or UNAVAILABLE if something was lost since. True: what
 * had no room in it may have some now. */
bool kubernetes_store_listed(struct kubernetes_store *store, size_t source);
/* There is something of which not even the name is known, until the next list is whole. */
void kubernetes_store_lose(struct kubernetes_store *store, size_t source);

/* Of a KUBERNETES_FOUND or _ODD object. False: there is no room, or no memory; nothing is known of the object then:
 * no key is absent until the next list is whole. */
bool kubernetes_store_put(struct kubernetes_store *store, size_t source, enum kubernetes_sort sort,
                          const struct kubernetes_object *object);
void kubernetes_store_remove(struct kubernetes_store *store, size_t source, struct slice space,
                             struct slice name);

/* FOUND: *record is valid until the store changes, and the source has told it. UNAVAILABLE: more than one sandbox is
 * called so, it may be gone, or there may be one that is not known. */
enum lookup kubernetes_store_find(const struct kubernetes_store *store, struct slice key,
                                  struct record *record, size_t *source);
/* More than one sandbox is called so. */
bool kubernetes_store_ambiguous(const struct kubernetes_store *store, struct slice key);
/* The object that a sandbox is. False: there is none, or more than one. */
bool kubernetes_store_object(const struct kubernetes_store *store, struct slice key, size_t *source,
                             struct slice *space, struct slice *name);

/* Every source has been listed, and nothing of it was lost. */
bool kubernetes_store_whole(const struct kubernetes_store *store);
size_t kubernetes_store_count(const struct kubernetes_store *store);
size_t kubernetes_store_bytes(const struct kubernetes_store *store);

#endif
