/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_watch: the objects of one resource in one namespace, or in all: listed in pages, then watched from there on,
 * for as long as the directory runs. A watch that ends is opened again where it was; one that the server cannot continue
 * (410, an ERROR event), or that said something that makes no sense, is preceded by a new list, which is compared with
 * what is known. Versions are opaque: the order is that of arrival.
 *
 * Sans-I/O: it says what to ask the API server for, and is told what comes. Times are those of loop_clock().
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_WATCH_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_WATCH_H

#include "spoa/agent/directory/kubernetes/store.h"
#include "spoa/agent/directory/kubernetes/stream.h"
#include "spoa/net/backoff.h"
#include "spoa/service/log.h"

#define KUBERNETES_VERSION_MAX  128 /* bytes of a resourceVersion */
#define KUBERNETES_CONTINUE_MAX 1536

/* What all watches of a directory have in common. */
struct kubernetes_watching {
    struct kubernetes_store *store;
    struct log *log;
    struct kubernetes_slices slices;
    const char *selector; /* NULL: none */
    uint64_t timeout;     /* until there is an answer */
    uint64_t logged;      /* the last line about an odd object */
    /* counted */
    uint64_t lists, lists_failed, events, odd, errors;
    uint8_t scratch[16 * 1024];
};

enum kubernetes_phase { KUBERNETES_IDLE, KUBERNETES_LISTING, KUBERNETES_WATCHING };

struct kubernetes_watch {
    struct kubernetes_watching *all;
    enum kubernetes_sort sort;
    const char *space; /* NULL: all */
    size_t source;     /* in the store */
    size_t version;    /* of the resource's */

    enum kubernetes_phase phase;
    bool open; /* the watch was answered: what changes comes by itself */
    bool listed_once;
    bool failing;     /* the last attempt; `why` says why */
    uint64_t contact; /* when it was last open, or listed; 0: never */
    struct fail why;
    unsigned status; /* of the answer, the last one if none is under way; 0: there was none */

    /* private */
    struct kubernetes_stream stream;
    bool listed, paged, broken, gone;
    bool twice; /* the list that has begun follows one that made room */
    char at[KUBERNETES_VERSION_MAX], next[KUBERNETES_CONTINUE_MAX], page[KUBERNETES_CONTINUE_MAX];
    size_t pages;
    unsigned refusals;
    char answer[4096]; /* of an error, its beginning */
    size_t answer_len;
    uint64_t begun, last_byte, list_begun, due;
    struct backoff backoff;
    struct fail odd, told;
};

enum kubernetes_step {
    KUBERNETES_WAIT,
    KUBERNETES_BEGIN, /* a request */
    KUBERNETES_END    /* it hangs: it is to be ended */
};

void kubernetes_watch_init(struct kubernetes_watch *w, struct kubernetes_watching *all,
                           enum kubernetes_sort sort, const char *space, size_t source);
void kubernetes_watch_free(struct kubernetes_watch *w);

/* What is to be done now. BEGIN: a GET for what is in `path`, which was empty; the functions below are told what becomes of it. */
enum kubernetes_step kubernetes_watch_step(struct kubernetes_watch *w, struct writer *path, uint64_t now);
/* When step is to be called next, at the latest. */
uint64_t kubernetes_watch_next(const struct kubernetes_watch *w);
/* The head of its answer. */
void kubernetes_watch_head(struct kubernetes_watch *w, unsigned status, uint64_t now);
/* Some of its body. False: no more is wanted, the request is to be ended. */
bool kubernetes_watch_body(struct kubernetes_watch *w, struct slice bytes, uint64_t now);
/* It ended, or could not begin. error: why, for people; NULL: its answer came to its end. retry_after: seconds, as the answer
 * says; 0: it does not. */
void kubernetes_watch_end(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now);

/* "/apis/GROUP/VERSION[/namespaces/SPACE]/PLURAL", into w; space may be absent. */
void kubernetes_path(struct writer *w, enum kubernetes_sort sort, size_t version, struct slice space);

#endif
