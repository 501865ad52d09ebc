/* SPDX-License-Identifier: MIT */
/*
 * directory_http_target: where the control plane is, and what every request to it has: no proxy, no redirect,
 * a token that is read again when its file changes.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_TARGET_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_TARGET_H

#include <curl/curl.h>
#include <sys/stat.h>

#include "spoa/agent/directory/kind.h"
#include "spoa/base/bytes/writer.h"

struct directory_http_target {
    const char *url, *token_file, *ca_file; /* borrowed; the files may be NULL */
    size_t url_len;                         /* without slashes at its end */
    struct slice token;
    struct stat token_seen;
};

/* Whether it is a URL that can be used; false and *why. */
bool directory_http_target_check(const char *url, struct fail *why);

void directory_http_target_init(struct directory_http_target *t, const char *url, const char *token_file,
                                const char *ca_file);
void directory_http_target_free(struct directory_http_target *t);

/* The token was refused: its file is read again before the next request, whatever it looks like. */
void directory_http_target_doubt(struct directory_http_target *t);

/* Sets up a request for `path` below the URL; accept: a header line. *fields are its header lines, the caller's
 * to free when the transfer is over; more may be appended before CURLOPT_HTTPHEADER is set to them. False and *why: out of
 * memory, or the token cannot be read. */
bool directory_http_target_aim(struct directory_http_target *t, CURL *easy, const char *path,
                               const char *accept, struct curl_slist **fields, struct fail *why);

/* As one step of a path, or a value of the query. */
void directory_http_target_encode(struct writer *w, struct slice text);
/* The path of one sandbox: "/v1/sandboxes/ID" with `suffix` and, for a key with a namespace, the query. */
bool directory_http_target_path(struct slice key, const char *suffix, char *path, size_t size);

#endif
