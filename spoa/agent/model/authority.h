/* SPDX-License-Identifier: MIT */
/* authority: parses the "HOST[:PORT]" of a Host header, and compares it with an Origin header (RFC 9110 section 7.2, RFC 6454 section
 * 7). */
#ifndef CELLGATE_AGENT_MODEL_AUTHORITY_H
#define CELLGATE_AGENT_MODEL_AUTHORITY_H

#include "spoa/base/bytes/slice.h"

struct authority {
    struct slice host; /* in the spelling of the input; an IPv6 literal has its brackets */
    uint16_t port;     /* 0 if the input names none */
};

/* Returns false if the text has no host, has user information, an empty or invalid port, or a byte that no name or literal may have. */
bool authority_parse(struct slice text, struct authority *authority);

/* Returns whether `origin` is http:// or https:// and has the host and port of `host`. A missing port is the default port of the scheme. */
bool authority_of_origin(struct slice origin, const struct authority *host);

/* Returns whether the text is an origin as browsers (RFC 6454 section 6.2) and configurations write it: `null`, or SCHEME://HOST[:PORT]
 * with any scheme that pages have (https, vscode-webview, tauri). */
bool origin_valid(struct slice origin);

/* Returns whether two origins are equal, ignoring case, a final dot, and the default port of http and https. */
bool origin_same(struct slice a, struct slice b);

#endif
