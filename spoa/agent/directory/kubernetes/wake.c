/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/wake.h"

static struct kubernetes_question *of(struct directory_question *q)
{
    return (struct kubernetes_question *)(void *)q;
}

/* Ends a question; the answer of a wake says nothing. */
static void end_question(struct kubernetes_question *q)
{
    directory_answer(&q->question, LOOKUP_UNAVAILABLE, NULL, 0);
}

void kubernetes_wake_ask(struct kubernetes_wake *w, struct directory_question *question)
{
    directory_questions_put(&w->waiting, question);
}

/* Logs why a wake failed, but not the same reason twice in a row: a missing right is missing for all sandboxes. */
static void complain(struct kubernetes_wake *w, struct slice key, const char *why)
{
    struct fail what;
    fail(&what, "%s", why);
    if (strcmp(what.text, w->told.text) == 0)
        return;
    w->told = what;
    log_write(w->all->log, LOG_ERROR, "directory: the sandbox is not woken", LOG_SLICE("sandbox", key),
              LOG_TEXT("why", why));
}

/* Tries the wake again, or gives up if nobody waits for it any more. */
static void try_later(struct kubernetes_wake *w, struct kubernetes_question *q, const char *why)
{
    if (directory_wake_again(&q->question))
        return;
    complain(w, q->question.key, why);
    end_question(q);
}

/* Writes the path and finds the patch for a sandbox. Returns false if there is nothing (any more) that can be woken. */
static bool find_path(const struct kubernetes_wake *w, struct slice key, struct writer *path,
                      const char **patch)
{
    struct slice space, name;
    struct record record;
    size_t source;
    if (kubernetes_store_find(w->all->store, key, &record, &source) != LOOKUP_FOUND ||
        record.state != RECORD_SUSPENDED ||
        !kubernetes_store_object(w->all->store, key, &source, &space, &name))
        return false;
    const struct kubernetes_watch *watch = &w->watches[source];
    *patch = kubernetes_resource_of(watch->sort)->wake[watch->version];
    kubernetes_path(path, watch->sort, watch->version, space);
    writer_u8(path, '/');
    directory_http_target_encode(path, name);
    writer_u8(path, '\0');
    return *patch && !path->full;
}

/* Sends the patch for a question. Returns false if no transfer was added; the question is ended or set aside then. */
static bool begin(struct kubernetes_wake *w, size_t i, struct kubernetes_question *q)
{
    char path[1024];
    struct writer to = writer_of(path, sizeof path);
    struct http_call_request request = {.path = path,
                                        .method = "PATCH",
                                        .type = "Content-Type: application/merge-patch+json",
                                        .milliseconds = (long)(w->all->timeout / MILLISECOND)};
    struct fail why;
    if (!find_path(w, q->question.key, &to, &request.body)) {
        end_question(q);
        return false;
    }
    if (!http_call_begin(&w->calls[i].call, w->multi, w->target, &request, &why)) {
        try_later(w, q, why.text);
        return false;
    }
    w->calls[i].question = q;
    return true;
}

bool kubernetes_wake_step(struct kubernetes_wake *w)
{
    bool begun = false;
    for (size_t i = 0; i < KUBERNETES_WAKES_MAX && w->waiting.first; i++)
        while (!w->calls[i].question && w->waiting.first)
            begun = begin(w, i, of(directory_questions_take(&w->waiting))) || begun;
    return begun;
}

/* Takes the answer of a call. A status that may be temporary is tried again. */
static void end_call(struct kubernetes_wake *w, size_t i, CURLcode result)
{
    struct kubernetes_question *q = w->calls[i].question;
    struct directory_http_reply reply;
    struct fail why;
    w->calls[i].question = NULL;
    if (!http_call_end(&w->calls[i].call, w->multi, result, &reply, &why)) {
        try_later(w, q, why.text);
        return;
    }
    unsigned status = reply.status;
    if (status == 401)
        directory_http_target_doubt(w->target);
    fail(&why, "status %u%s", status, status == 403 ? ": RBAC lacks `patch`" : "");
    if (status == 401 || status == 409 || status == 429 || status >= 500) {
        try_later(w, q, why.text);
        return;
    }
    if (status < 200 || status >= 300)
        complain(w, q->question.key, why.text);
    else
        w->told.text[0] = '\0';
    end_question(q);
}

bool kubernetes_wake_end(struct kubernetes_wake *w, const CURL *easy, CURLcode result)
{
    for (size_t i = 0; i < KUBERNETES_WAKES_MAX; i++)
        if (w->calls[i].question && w->calls[i].call.easy == easy) {
            end_call(w, i, result);
            return true;
        }
    return false;
}

void kubernetes_wake_free(struct kubernetes_wake *w)
{
    for (size_t i = 0; i < KUBERNETES_WAKES_MAX; i++) {
        if (w->calls[i].question)
            end_question(w->calls[i].question);
        http_call_free(&w->calls[i].call, w->multi);
    }
    for (struct directory_question *q; (q = directory_questions_take(&w->waiting));)
        end_question(of(q));
}
