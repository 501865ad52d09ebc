/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_abridged: what is kept of an object that is too large to be held: who it is. It is fed with the bytes of the
 * object, or of a watch's event, as they come, and keeps type, name, namespace, resourceVersion and one label, wherever
 * they stand, as an object of the same form: the readers of object.h see in it what they would see in the whole
 * one. Sans-I/O; allocates nothing.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_ABRIDGED_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_ABRIDGED_H

#include "spoa/base/bytes/writer.h"

#define KUBERNETES_ABRIDGED_MAX 2048
#define KUBERNETES_KEY_MAX      320 /* a label's has 317 bytes at most */

struct kubernetes_abridged {
    /* private */
    const char *label;
    uint8_t path[4];     /* enum node of the open containers, from the outermost on, while they are wanted */
    size_t nest, wanted; /* how many are open; how many of them path has */
    bool value, begins;  /* in the innermost of path: behind a colon; nothing of the value has come */
    bool string, escaped, copied; /* within a string; behind a backslash; it is a value that is kept */
    uint8_t key[KUBERNETES_KEY_MAX];
    size_t key_len; /* over KUBERNETES_KEY_MAX: nobody wants it */
    uint8_t text[KUBERNETES_ABRIDGED_MAX];
    size_t len;
    bool full;
};

/* label: its key, NULL: none; lives as long as this. */
void kubernetes_abridged_begin(struct kubernetes_abridged *a, bool event, const char *label);
void kubernetes_abridged_feed(struct kubernetes_abridged *a, struct slice bytes);
/* When all of it was fed. Absent: it does not fit. */
struct slice kubernetes_abridged_text(const struct kubernetes_abridged *a);

#endif
