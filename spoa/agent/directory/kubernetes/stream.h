/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_stream: splits what an API server sends into objects while the bytes arrive. Sans-I/O. A list gives each element of
 * `items` and the other members of the document, a watch gives each event. The stream holds one of them at a time, never a whole
 * page. It only counts brackets and follows strings; json.h reads what it gives.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_STREAM_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_STREAM_H

#include "spoa/agent/directory/kubernetes/abridged.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

#define KUBERNETES_OBJECT_MAX ((size_t)2 << 20)  /* maximum size of an object, and of an event */
#define KUBERNETES_MEMBER_MAX ((size_t)64 << 10) /* maximum size of another member */

enum kubernetes_form { KUBERNETES_LIST, KUBERNETES_WATCH };

struct kubernetes_stream {
    /* The owner sets the next fields before kubernetes_stream_begin. */

    /* Takes an object or event. `text` is valid for the call, which may call no function of the stream. too_large: the object
     * exceeded KUBERNETES_OBJECT_MAX, and `text` is what abridged.h kept of it; absent: not even that. */
    void (*object)(void *context, struct slice text, bool too_large);
    /* Takes another member of a list's document; `key` keeps its escapes. A member over KUBERNETES_MEMBER_MAX is skipped. */
    void (*member)(void *context, struct slice key, struct slice value);
    const char *label; /* key of the label to keep of an object that is too large, or NULL */
    void *context;

    bool has_items; /* read only: `items` has begun */

    /* private */
    enum kubernetes_form form;
    int at;             /* enum place */
    struct buffer held; /* the value or the key so far */
    char key[32];       /* key of the member; a longer one is cut, and is not equal to any that is wanted */
    size_t nest;   /* number of open brackets in the value; there is no limit, because they take no memory */
    bool string;   /* in a string of the value */
    bool escaped;  /* a backslash was read in it */
    bool scalar;   /* the value has neither brackets nor quotes */
    bool item;     /* the value is an object for `object` */
    bool first;    /* only white space was read after the opening bracket */
    bool left_out; /* the value is too large to be held */
    struct kubernetes_abridged abridged; /* identity of an item that is too large */
};

/* Begins an answer, and drops the rest of the last one. Zero bytes are a stream that has not begun. */
void kubernetes_stream_begin(struct kubernetes_stream *s, enum kubernetes_form form);
/* Frees what the stream holds. */
void kubernetes_stream_free(struct kubernetes_stream *s);
/* Takes the next bytes, cut anywhere. Returns false with *why if they are no such document or memory is short; then only
 * kubernetes_stream_begin and kubernetes_stream_free may be called. */
bool kubernetes_stream_feed(struct kubernetes_stream *s, struct slice bytes, struct fail *why) MUST_CHECK;
/* Returns whether the answer may end here: the document of a list is closed, or no event is cut. */
bool kubernetes_stream_whole(const struct kubernetes_stream *s);

#endif
