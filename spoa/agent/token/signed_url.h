/* SPDX-License-Identifier: MIT */
/*
 * signed_url: the forms of URLs with a credential in the query, one for each system with a row in SIGNED_URLS (systems/tables.h).
 * credential_source.h finds such a credential; a kind of tokens checks it.
 */
#ifndef CELLGATE_AGENT_TOKEN_SIGNED_URL_H
#define CELLGATE_AGENT_TOKEN_SIGNED_URL_H

#include "spoa/agent/model/request.h"

struct signed_url_form {
    /* Returns the operation that the request asks for, in the word of its kind of tokens, or NULL if the request is not of this form. */
    const char *(*operation)(const struct request *request);
    /* For `cellgate token --inspect`: patterns of the path of such a URL with the sandbox, and its method; NULL after the last. */
    struct {
        const char *path, *method;
    } whole[3];
    /* Names of parameters. A request is of this form if it has the signature's; the others may be missing. user may be NULL. */
    const char *signature, *expires, *path, *user;
    bool kept;    /* the worker checks the URL again, so it gets all parameters */
    bool encoded; /* the signature may be percent-encoded */
    bool
        whole_path; /* the worker's path is the request's path; otherwise the path ends in SANDBOX/files/OPERATION */
    bool at_root;  /* if the path is the worker's, it may also be /files/OPERATION */
    bool complete; /* a request without `expires` or `path` is malformed */
};

/* Returns the form with this number among those of all systems, or NULL after the last. */
const struct signed_url_form *signed_url_form_at(size_t number);

#define X(source, name, variable) extern const struct signed_url_form signed_url_##variable;
SIGNED_URLS(X)
#undef X

#endif
