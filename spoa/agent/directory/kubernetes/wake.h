/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_wake: sends merge patches that wake suspended sandboxes, a few at a time. A patch that the API server does not take is tried
 * again for half a minute (directory_wake_again), because a tunnel may wait for the sandbox and nobody else asks. The watch
 * reports the result.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_WAKE_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_WAKE_H

#include "spoa/agent/directory/http_call.h"
#include "spoa/agent/directory/kubernetes/watch.h"

enum { KUBERNETES_WAKES_MAX = 8 };

struct kubernetes_question { /* nothing beside the question */
    struct directory_question question;
};

/* The owner sets the first four fields; zero bytes are a valid start of the others. */
struct kubernetes_wake {
    struct kubernetes_watching *all;
    CURLM *multi;
    struct directory_http_target *target;
    const struct kubernetes_watch *watches; /* indexed by the sources of the store */
    struct directory_questions waiting;     /* questions without a call */
    struct {
        struct http_call call;
        struct kubernetes_question *question; /* NULL if this call is free */
    } calls[KUBERNETES_WAKES_MAX];
    struct fail told; /* the last error that was logged; empty: none */
};

/* Takes over a question that wakes. */
void kubernetes_wake_ask(struct kubernetes_wake *w, struct directory_question *question);
/* Begins what may begin. Returns true if a transfer was added to `multi`. */
bool kubernetes_wake_step(struct kubernetes_wake *w);
/* Takes the end of the transfer `easy`. Returns false if it is none of these calls. */
bool kubernetes_wake_end(struct kubernetes_wake *w, const CURL *easy, CURLcode result);
/* Ends all questions, and removes the transfers. */
void kubernetes_wake_free(struct kubernetes_wake *w);

#endif
