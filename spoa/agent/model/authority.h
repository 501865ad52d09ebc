/* SPDX-License-Identifier: MIT */
/* authority: "HOST[:PORT]" of a Host header, and whether an Origin header names the same (RFC 9110
 * section 7.2, RFC 6454 section 7). */
#ifndef CELLGATE_AGENT_MODEL_AUTHORITY_H
#define CELLGATE_AGENT_MODEL_AUTHORITY_H

#include "spoa/base/bytes/slice.h"

struct authority {
    struct slice host; /* as it stands there; an IPv6 literal with its brackets */
    uint16_t port;     /* 0: none is named */
};

/* False: no host, user information, an empty or bad port, or a byte that a name or literal cannot hold. */
bool authority_parse(struct slice text, struct authority *authority);

/* Whether origin is http:// or https:// and the host and port of `host`; a port that is left out is the
 * scheme's. */
bool authority_of_origin(struct slice origin, const struct authority *host);

/* An origin as a browser writes it (RFC 6454 section 6.2), or as a configuration does: `null`, or SCHEME://HOST[:PORT], of any
 * scheme that pages have (https, vscode-webview, tauri). */
bool origin_valid(struct slice origin);

/* Whether two origins are one: in any case, with the port of http and https written or left out, with a final dot or without. */
bool origin_same(struct slice a, struct slice b);

#endif
