/* SPDX-License-Identifier: MIT */
/*
 * admin: read-only pages over HTTP for operators and Prometheus: /metrics, /healthz, /readyz and views. GET and HEAD, one request per
 * connection. No page changes anything; that is for control.h.
 *
 * A website must not read these pages through its visitor's browser. Therefore the Host must be `localhost` or an IP address (against
 * DNS rebinding), an Origin must be equal to the Host, and no page may be framed (http_site.h). A listener that other
 * machines can reach (monitor.h) accepts any Host, and may require a token instead.
 */
#ifndef CELLGATE_SERVICE_ADMIN_H
#define CELLGATE_SERVICE_ADMIN_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"

/* A page's answer to one request. */
struct admin_answer {
    unsigned status;    /* status code; 200 unless the page sets another one */
    const char *type;   /* Content-Type; text/plain unless the page sets another one */
    const char *policy; /* Content-Security-Policy of a page that loads something; NULL forbids everything */
    struct buffer body; /* the page's content, at most ADMIN_BODY_MAX bytes */
};

/* One page of a listener. */
struct admin_page {
    const char *path; /* the whole path, without the query */
    /* Writes the answer. `query` has no '?', and is absent if there is none. Returns false if the page cannot be made: the answer is then
     * a 500. */
    bool (*make)(void *context, struct slice query, struct admin_answer *answer);
    void *context;
};

/* Rules of a listener that is not for loopback only. */
struct admin_rules {
    bool anyone; /* accept any Host, and close the oldest connection if there are too many */
    const char *
        guarded; /* path of the page that requires the token, or NULL; must outlive the listener, like token_file */
    const char *token_file; /* The first line is the token, read for each request: it may be replaced. */
};

#define ADMIN_JSON       "application/json"
#define ADMIN_PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"

enum {
    ADMIN_HEAD_MAX = 8192,       /* bytes of a request's head */
    ADMIN_BODY_MAX = 48 << 20,   /* bytes of a page */
    ADMIN_ANSWER_MAX = 64 << 20, /* bytes of an answer */
    ADMIN_CONNECTIONS = 64,      /* connections at a time; others wait in the backlog */
    ADMIN_TIME = 5 * SECOND,     /* time for the request, and for each step of the answer [µs] */
    ADMIN_TOKEN_MAX = 4096,      /* bytes of a token's file */
};

struct admin;
/* Serves `pages` on `listener`, which it takes over in any case. The pages must outlive the result. `rules` is NULL for a listener on
 * loopback. Returns NULL if memory is short. */
struct admin *admin_new(struct loop *loop, int listener, const struct admin_page *pages, size_t count,
                        const struct admin_rules *rules) MUST_CHECK;
/* Closes the listener and its connections; NULL is fine. */
void admin_free(struct admin *admin);

/* Returns the token in the content of such a file: its first line without surrounding white space. */
struct slice admin_token(struct slice content);

#endif
