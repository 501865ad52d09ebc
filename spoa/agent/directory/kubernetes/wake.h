/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_wake: merge patches that wake suspended sandboxes. A few at a time, each tried again for half a minute while the
 * API server does not take it (directory_wake_again): a tunnel may wait for it, and nobody else will ask. What becomes of it
 * the watch says.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_WAKE_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_WAKE_H

#include "spoa/agent/directory/http_call.h"
#include "spoa/agent/directory/kubernetes/watch.h"

enum { KUBERNETES_WAKES_MAX = 8 };

struct kubernetes_question {
    struct directory_question question;
};

struct kubernetes_wake {
    struct kubernetes_watching *all;
    CURLM *multi;
    struct directory_http_target *target;
    const struct kubernetes_watch *watches; /* by their sources */
    struct directory_questions waiting;
    struct {
        struct http_call call;
        struct kubernetes_question *question; /* NULL: this one is free */
    } calls[KUBERNETES_WAKES_MAX];
    struct fail told;
};

/* Takes the question over. */
void kubernetes_wake_ask(struct kubernetes_wake *w, struct directory_question *question);
/* Begins what may begin. True: a transfer was added. */
bool kubernetes_wake_step(struct kubernetes_wake *w);
/* Whether this transfer is one of its own, which has ended. */
bool kubernetes_wake_end(struct kubernetes_wake *w, const CURL *easy, CURLcode result);
/* Ends all questions. */
void kubernetes_wake_free(struct kubernetes_wake *w);

#endif
