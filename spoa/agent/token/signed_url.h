/* SPDX-License-Identifier: MIT */
/*
 * signed_url: the forms of URLs that carry their own credential in the query, one of each system with a row in SIGNED_URLS
 * (systems/tables.h). credential_source.h finds such a credential; a kind of tokens judges it.
 */
#ifndef CELLGATE_AGENT_TOKEN_SIGNED_URL_H
#define CELLGATE_AGENT_TOKEN_SIGNED_URL_H

#include "spoa/agent/model/request.h"

struct signed_url_form {
    /* Returns what the request asks for, as its kind of tokens calls it; NULL: it is no request of this form. */
    const char *(*operation)(const struct request *request);
    /* For `cellgate token --inspect`: patterns of such a URL's path with the sandbox, and its method; NULL after the last. */
    struct {
        const char *path, *method;
    } whole[3];
    /* Names of parameters. Only the signature's must be there for a request to be of this form. user may be NULL. */
    const char *signature, *expires, *path, *user;
    bool kept;       /* the worker judges the URL once more, so it gets all parameters */
    bool encoded;    /* the signature may be percent-encoded */
    bool whole_path; /* the worker's path is the request's; else the path ends in SANDBOX/files/OPERATION */
    bool at_root;    /* where the path is the worker's, it may be /files/OPERATION, too */
    bool complete;   /* a request without `expires` or `path` is malformed */
};

/* The form of that number of all systems, NULL: there are fewer. */
const struct signed_url_form *signed_url_form_at(size_t number);

#define X(source, name, variable) extern const struct signed_url_form signed_url_##variable;
SIGNED_URLS(X)
#undef X

#endif
