/* SPDX-License-Identifier: MIT */
/*
 * upgrade: whether a request that claims an upgrade is exactly the opening handshake of RFC 6455
 * (section 4.2.1). HAProxy lets most malformed ones through, so it is judged here, by values and by counts of
 * header lines.
 *
 * HTTP/2 (RFC 8441) as HAProxy shows it: method GET, version "2.0", `Upgrade: websocket`, `Connection` absent
 * or `upgrade`, no key. A key there is refused too: it comes from an HTTP/1 client that wrote "HTTP/2.0"
 * itself.
 */
#ifndef CELLGATE_AGENT_DECISION_UPGRADE_H
#define CELLGATE_AGENT_DECISION_UPGRADE_H

#include "spoa/agent/model/request.h"
#include "spoa/agent/model/verdict.h"

/* Whether it has a WebSocket key or version, or an Upgrade that names websocket. In HTTP/2, where HAProxy writes Upgrade for an
 * extended CONNECT alone, any Upgrade. Another offer (h2c, TLS) is not taken up (RFC 9110 section 7.8): the request is served as
 * if it was not there, and nothing of it goes on. */
bool upgrade_claimed(const struct request *request);

/* REFUSAL_NONE; method_not_allowed; upgrade_version; bad_request for every other defect. *reason is then a
 * static sentence for people. */
enum refusal upgrade_judge(const struct request *request, const char **reason);

/*
 * For requests that claim none: `Connection` may name only what HAProxy removes anyway. The headers that a
 * client names there would have to be removed too (RFC 9110 section 7.6.1), but HAProxy cannot remove a
 * header by a computed name, and a worker must not see what was declared to be for this hop: bad_request.
 */
enum refusal upgrade_connection(const struct request *request, const char **reason);

#endif
