/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_abridged: keeps the identity of an object that is too large to be held. The bytes of the object, or of a watch's event,
 * are fed as they arrive; type, name, namespace, resourceVersion and one label are kept, wherever they stand, as an
 * object of the same form. The readers of object.h find in it what they would find in the whole object. Sans-I/O; allocates nothing.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_ABRIDGED_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_ABRIDGED_H

#include "spoa/base/bytes/writer.h"

#define KUBERNETES_ABRIDGED_MAX 2048 /* maximum size of the result [bytes] */
#define KUBERNETES_KEY_MAX      320 /* maximum length of a key that is kept; a label's key has 317 bytes at most */

struct kubernetes_abridged {
    /* private */
    const char *label; /* key of the label to keep, or NULL; borrowed */
    uint8_t path[4];   /* enum node of each open container on the wanted path, from the outermost on */
    size_t nest;       /* number of open containers */
    size_t wanted;     /* number of them in `path` */
    bool value;        /* in the innermost wanted container: a colon was read, so a value follows */
    bool begins;       /* the value has not begun yet */
    bool string;       /* in a string */
    bool escaped;      /* a backslash was read in it */
    bool copied;       /* the string is a value to keep */
    uint8_t key[KUBERNETES_KEY_MAX];
    size_t key_len;                        /* KUBERNETES_KEY_MAX + 1: the key is too long to be wanted */
    uint8_t text[KUBERNETES_ABRIDGED_MAX]; /* the result so far */
    size_t len;
    bool full; /* the result does not fit */
};

/* Begins an object, or a watch's event if `event`. `label` is the key of a label to keep, or NULL; it must live as long as *a. */
void kubernetes_abridged_begin(struct kubernetes_abridged *a, bool event, const char *label);
/* Takes the next bytes, cut anywhere. */
void kubernetes_abridged_feed(struct kubernetes_abridged *a, struct slice bytes);
/* Returns the result after the last byte was fed; absent if it does not fit. */
struct slice kubernetes_abridged_text(const struct kubernetes_abridged *a);

#endif
