/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_stream: cuts what an API server sends into objects, as the bytes come. Sans-I/O. Of a list it gives each
 * element of `items` and the other members of the document, of a watch each event; it holds one of them at a time, never
 * a page. It only counts brackets and follows strings: what it gives is for json.h to read.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_STREAM_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_STREAM_H

#include "spoa/agent/directory/kubernetes/abridged.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

#define KUBERNETES_OBJECT_MAX ((size_t)2 << 20)
#define KUBERNETES_MEMBER_MAX ((size_t)64 << 10)

enum kubernetes_form { KUBERNETES_LIST, KUBERNETES_WATCH };

struct kubernetes_stream {
    /* Set by the owner, with kubernetes_stream_begin. The text is valid for the call, in which nothing of the stream may
     * be called. too_large: it was over KUBERNETES_OBJECT_MAX, and this is what abridged.h has kept of it; absent:
     * not even that. */
    void (*object)(void *context, struct slice text, bool too_large);
    /* Of a list; `key` is as it stands between the quotes. One over KUBERNETES_MEMBER_MAX is left out. */
    void (*member)(void *context, struct slice key, struct slice value);
    const char *label; /* that is kept of an object that is too large; NULL: none */
    void *context;

    bool has_items; /* read only: `items` has begun */

    /* private */
    enum kubernetes_form form;
    int at;             /* enum place */
    struct buffer held; /* of the value, or of the key */
    char key[32];       /* of the member; a longer one is cut, and none that anybody wants */
    size_t nest;        /* brackets that are open in the value: any number, they cost nothing */
    bool string, escaped,
        scalar;    /* within a string of the value; behind a backslash; the value has no brackets */
    bool item;     /* the value is an object for `object` */
    bool first;    /* nothing stands between the opening bracket and here */
    bool left_out; /* the value is too large */
    struct kubernetes_abridged abridged; /* of an item that is left out */
};

/* From the first byte of an answer; what was held is dropped. Zero bytes are a stream that has not begun. */
void kubernetes_stream_begin(struct kubernetes_stream *s, enum kubernetes_form form);
void kubernetes_stream_free(struct kubernetes_stream *s);
/* False and *why: this is no such document, or out of memory. Only _begin and _free are of use then. */
bool kubernetes_stream_feed(struct kubernetes_stream *s, struct slice bytes, struct fail *why)
    __attribute__((warn_unused_result));
/* Whether it may end here: the list's document is closed, no event is cut. */
bool kubernetes_stream_whole(const struct kubernetes_stream *s);

#endif
