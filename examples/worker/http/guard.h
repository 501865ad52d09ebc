/* SPDX-License-Identifier: MIT */
/*
 * guard: who may ask an HTTP server. With a secret: whoever brings it as `Authorization: Bearer SECRET`, wherever the request comes
 * from. Without one: whoever reaches the port, but no page of another site that a browser shows.
 */
#ifndef CELLGATE_WORKER_HTTP_GUARD_H
#define CELLGATE_WORKER_HTTP_GUARD_H

#include "spoa/base/os/fail.h"
#include "spoa/proto/http.h"

enum { GUARD_HOSTS_MAX = 16 };

struct guard {
    const char *secret;                 /* NULL: open */
    const char *hosts[GUARD_HOSTS_MAX]; /* names beside `localhost` by which an open one may be called */
    size_t host_count;
};

enum guard_verdict {
    GUARD_PASS,
    GUARD_NO_SECRET,
    GUARD_HOST,   /* a name that is not ours: DNS may have been pointed at us */
    GUARD_ORIGIN, /* a page of another site */
    GUARD_TYPE, /* a body of a kind that a page may send to other sites unasked (Fetch, "no-CORS-safelisted") */
};

enum guard_verdict guard_judge(const struct guard *guard, const struct http_head *head);

/* What a command line says of it. */
struct guard_options {
    const char *secret_file;
    bool open;
    struct guard guard;
};
bool guard_add_host(struct guard_options *options, const char *name); /* False: too many, or no name */
/* The first line of a file; none where path is NULL. The caller frees it. */
bool guard_read_token(const char *path, char **token, struct fail *why);
/* The same, which is visible ASCII, for it has to stand in a header; none where path is NULL. The caller
 * frees it. */
bool guard_read_secret(const char *path, char **secret, struct fail *why);
/* What is wrong with them; NULL: nothing. */
const char *guard_check(const struct guard_options *options);
/* Reads the secret; the caller frees it, it outlives the guard. */
bool guard_open(struct guard_options *options, char **secret, struct fail *why);

#endif
