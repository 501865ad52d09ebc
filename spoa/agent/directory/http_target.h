/* SPDX-License-Identifier: MIT */
/*
 * directory_http_target: the address of the control plane, and what all requests to it have in common: no proxy, no redirect, and a
 * token that is read again when its file changes.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_TARGET_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_TARGET_H

#include <curl/curl.h>
#include <sys/stat.h>

#include "spoa/agent/directory/kind.h"
#include "spoa/base/bytes/writer.h"

/* Zeroed fields after directory_http_target_free; the texts are borrowed from the configuration. */
struct directory_http_target {
    const char *url, *token_file, *ca_file; /* NULL for no token, and for the system's authorities */
    size_t url_len;                         /* length without trailing slashes */
    struct slice token;                     /* content of token_file, or absent */
    struct stat token_seen;                 /* attributes of token_file when it was read */
};

/* Returns whether the URL can be used; false with *why. */
bool directory_http_target_check(const char *url, struct fail *why) MUST_CHECK;

/* Prepares a target. The texts must live as long as the target. */
void directory_http_target_init(struct directory_http_target *t, const char *url, const char *token_file,
                                const char *ca_file);
/* Frees and clears the token. */
void directory_http_target_free(struct directory_http_target *t);

/* Lets the next request read the token's file again, whatever its attributes: the control plane has refused the token. */
void directory_http_target_doubt(struct directory_http_target *t);

/* Sets up a request for `path` below the URL. `accept` is a header line. *fields becomes the list of header lines, for the caller to free
 * after the transfer; more may be appended before CURLOPT_HTTPHEADER is set to it. Returns false with *why if memory is short or the
 * token cannot be read; *fields may be set then, too. */
bool directory_http_target_aim(struct directory_http_target *t, CURL *easy, const char *path,
                               const char *accept, struct curl_slist **fields, struct fail *why) MUST_CHECK;

/* Writes the text percent-encoded, as one segment of a path or one value of a query (RFC 3986 section 2.1). */
void directory_http_target_encode(struct writer *w, struct slice text);
/* Writes the path of one sandbox, "/v1/sandboxes/ID", with `suffix` and, for a key with a namespace, the query. Returns false if `size` is
 * too small. */
bool directory_http_target_path(struct slice key, const char *suffix, char *path, size_t size) MUST_CHECK;

#endif
