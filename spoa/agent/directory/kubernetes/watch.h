/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_watch: the objects of one resource in one namespace, or in all. They are listed in pages and watched from there on, for as
 * long as the directory runs. A watch that ends is opened again at the same version. A new list, which is compared with the known
 * objects, comes first if the server cannot continue (410, an ERROR event) or has sent something that makes no sense. Versions
 * are opaque: objects are ordered by arrival.
 *
 * Sans-I/O: the watch tells its owner what to request, and the owner tells it what arrives. Times are those of loop_clock().
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_WATCH_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_WATCH_H

#include "spoa/agent/directory/kubernetes/store.h"
#include "spoa/agent/directory/kubernetes/stream.h"
#include "spoa/net/backoff.h"
#include "spoa/service/log.h"

#define KUBERNETES_VERSION_MAX  128  /* maximum length of a resourceVersion */
#define KUBERNETES_CONTINUE_MAX 1536 /* maximum length of a list's `continue` */

/* Shared by all watches of a directory. */
struct kubernetes_watching {
    struct kubernetes_store *store;
    struct log *log;
    struct kubernetes_slices slices;
    const char *selector; /* the operator's label selector, or NULL */
    uint64_t timeout;     /* maximum time until an answer begins [µs] */
    uint64_t logged;      /* time of the last log line about an odd object */
    /* counters; see enum directory_followed */
    uint64_t lists, lists_failed, events, odd, errors;
    uint8_t scratch[16 * 1024]; /* memory for one record */
};

/* The state of a watch. IDLE: it waits for its next request. */
enum kubernetes_phase { KUBERNETES_IDLE, KUBERNETES_LISTING, KUBERNETES_WATCHING };

/* Read the fields before `stream`; the others are private. */
struct kubernetes_watch {
    struct kubernetes_watching *all;
    enum kubernetes_sort sort;
    const char *space; /* namespace, or NULL for all */
    size_t source;     /* number in the store */
    size_t version;    /* index of the resource's version that is used */

    enum kubernetes_phase phase;
    bool open;        /* the watch is answered: changes are pushed */
    bool listed_once; /* a complete list was read */
    bool failing;     /* the last attempt failed; `why` tells why */
    uint64_t contact; /* last time when it was open or listed, or 0 */
    struct fail why;
    unsigned status; /* status of the present or last answer, or 0 */

    /* private */
    struct kubernetes_stream stream;
    bool listed;                        /* the next request is a watch, not a list */
    bool paged;                         /* lists are read in pages, not in one piece */
    bool broken;                        /* the present answer makes no sense; `odd` tells why */
    bool gone;                          /* the watch ended with a 410 */
    bool twice;                         /* the list that has begun follows one that made room */
    char at[KUBERNETES_VERSION_MAX];    /* version to watch from */
    char next[KUBERNETES_CONTINUE_MAX]; /* `continue` of this answer */
    char page[KUBERNETES_CONTINUE_MAX]; /* `continue` of the requested page; empty for the first page */
    size_t pages;                       /* number of pages of this list */
    unsigned refusals;                  /* number of refused watches since the last good one */
    char answer[4096];                  /* beginning of an error's body */
    size_t answer_len;
    uint64_t begun, last_byte; /* times of the present request */
    uint64_t list_begun;       /* start of the first page */
    uint64_t due;              /* time of the next request, while idle */
    struct backoff backoff;
    struct fail odd;  /* why the present answer is broken */
    struct fail told; /* the last failure that was logged */
};

/* The owner's next step. */
enum kubernetes_step {
    KUBERNETES_WAIT,
    KUBERNETES_BEGIN, /* send a request */
    KUBERNETES_END    /* end the request, which hangs */
};

/* Prepares a watch of one resource. `space` is a namespace, or NULL for all; `source` is its number in the store. */
void kubernetes_watch_init(struct kubernetes_watch *w, struct kubernetes_watching *all,
                           enum kubernetes_sort sort, const char *space, size_t source);
/* Frees what the watch holds. */
void kubernetes_watch_free(struct kubernetes_watch *w);

/* Returns what to do now. For BEGIN `path`, which must be empty, gets the path of a GET; the functions below then report its answer. */
enum kubernetes_step kubernetes_watch_step(struct kubernetes_watch *w, struct writer *path, uint64_t now);
/* Returns the latest time of the next kubernetes_watch_step. */
uint64_t kubernetes_watch_next(const struct kubernetes_watch *w);
/* Reports the head of the answer. */
void kubernetes_watch_head(struct kubernetes_watch *w, unsigned status, uint64_t now);
/* Reports bytes of the body. Returns false if no more is wanted: the owner then ends the request. */
bool kubernetes_watch_body(struct kubernetes_watch *w, struct slice bytes, uint64_t now) MUST_CHECK;
/* Reports the end of the request, or that it could not begin. `error`: the reason, or NULL if the answer is complete.
 * retry_after: seconds that the answer asks for, or 0. */
void kubernetes_watch_end(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now);

/* Writes "/apis/GROUP/VERSION[/namespaces/SPACE]/PLURAL"; `space` may be absent. */
void kubernetes_path(struct writer *w, enum kubernetes_sort sort, size_t version, struct slice space);

#endif
