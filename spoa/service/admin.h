/* SPDX-License-Identifier: MIT */
/*
 * admin: read-only pages over HTTP for people and for Prometheus: /metrics, /healthz, /readyz, views. GET and
 * HEAD, one request per connection. Nothing can be changed here: see control.h.
 *
 * A page of a website must not be able to read it through its visitor's browser: the Host has to be `localhost` or an IP
 * address (DNS rebinding), an Origin has to be that Host, and nothing is shown in frames (http_site.h). A listener that
 * stands where others reach it (monitor.h) has any Host and a token instead.
 */
#ifndef CELLGATE_SERVICE_ADMIN_H
#define CELLGATE_SERVICE_ADMIN_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"

struct admin_answer {
    unsigned status;    /* 200 unless the page sets another */
    const char *type;   /* Content-Type; text/plain unless the page sets another */
    const char *policy; /* Content-Security-Policy, for a page that needs more than nothing; NULL: nothing */
    struct buffer body; /* the page writes it */
};

struct admin_page {
    const char *path; /* exactly this */
    /* query: without '?', absent if there is none. False: the page could not be made, 500 is answered. */
    bool (*make)(void *context, struct slice query, struct admin_answer *answer);
    void *context;
};

struct admin_rules {
    bool anyone;         /* Any Host. Whoever keeps connections open keeps nobody out: the oldest give way. */
    const char *guarded; /* The path of a page that wants the token; NULL: none. Kept, like the next. */
    const char *token_file; /* The first line is the token, read for each request: it may be replaced. */
};

#define ADMIN_JSON       "application/json"
#define ADMIN_PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"

enum {
    ADMIN_HEAD_MAX = 8192,
    ADMIN_BODY_MAX = 48 << 20,
    ADMIN_ANSWER_MAX = 64 << 20,
    ADMIN_CONNECTIONS = 64,  /* more wait in the backlog */
    ADMIN_TIME = 5 * SECOND, /* for the request, and for each step of the answer */
    ADMIN_TOKEN_MAX = 4096,  /* bytes of the file of a token */
};

struct admin;
/* Takes over the listener, also when it fails: NULL when out of memory. The pages must outlive it. rules: NULL for a
 * listener on loopback. */
struct admin *admin_new(struct loop *loop, int listener, const struct admin_page *pages, size_t count,
                        const struct admin_rules *rules);
void admin_free(struct admin *admin); /* NULL is fine */

/* The token in the content of such a file: its first line, without what is around it. */
struct slice admin_token(struct slice content);

#endif
