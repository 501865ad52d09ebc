/* SPDX-License-Identifier: MIT */
/*
 * upgrade: checks whether a request that claims an upgrade is exactly the opening handshake of RFC 6455 (section 4.2.1). HAProxy lets
 * most malformed ones through, so values and counts of header lines are checked here.
 *
 * HAProxy shows a handshake in HTTP/2 (RFC 8441) as method GET, version "2.0", `Upgrade: websocket`, `Connection` absent or `upgrade`,
 * and no key. A key there is refused: it comes from an HTTP/1 client that wrote "HTTP/2.0" itself.
 */
#ifndef CELLGATE_AGENT_DECISION_UPGRADE_H
#define CELLGATE_AGENT_DECISION_UPGRADE_H

#include "spoa/agent/model/request.h"
#include "spoa/agent/model/verdict.h"

/* Returns whether the request has a WebSocket key or version, or an Upgrade that names websocket. In HTTP/2 any Upgrade counts, because
 * HAProxy writes one only for an extended CONNECT. Other offers (h2c, TLS) are ignored (RFC 9110 section 7.8): the request is served
 * without them, and they are not passed on. */
bool upgrade_claimed(const struct request *request);

/* Returns REFUSAL_NONE, method_not_allowed, upgrade_version, or bad_request for every other defect. *reason is then a static sentence
 * for people. */
enum refusal upgrade_judge(const struct request *request, const char **reason);

/*
 * Checks `Connection` of a request that claims no upgrade: it may name only headers that HAProxy always removes. Other headers named
 * there would have to be removed too (RFC 9110 section 7.6.1), but HAProxy cannot remove a header by a computed name, and a worker must
 * not see headers for this hop. Returns bad_request if there are any.
 */
enum refusal upgrade_connection(const struct request *request, const char **reason);

#endif
