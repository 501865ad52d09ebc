/* SPDX-License-Identifier: MIT */
/*
 * carrier: finds a request's credential, and what of the request the worker may see without it (tokens.md).
 *
 * In this order, the first one present decides, even if what it carries is empty or bad:
 *   1. `Authorization: Bearer TOKEN` (the scheme in any case); other schemes are the application's
 *   2. `cellgate.bearer.TOKEN` among the subprotocols
 *   3. `cellgate_token=TOKEN` in the query; name and value may be percent-encoded, '+' is no blank
 *   4. cookie `__Host-cellgate`, only where the route says so; whether the Origin fits is for the decision
 *
 * One carrier holding two credentials, or a second header line (of which HAProxy shows the agent only the
 * first), is ambiguous: bad_request. Every carrier's token is removed, also where another carrier decided.
 */
#ifndef CELLGATE_AGENT_CARRIER_H
#define CELLGATE_AGENT_CARRIER_H

#include "spoa/agent/request.h"
#include "spoa/agent/verdict.h"
#include "spoa/lib/writer.h"

enum carrier { CARRIER_NONE, CARRIER_AUTHORIZATION, CARRIER_SUBPROTOCOL, CARRIER_QUERY, CARRIER_COOKIE };

struct carried {
    enum carrier carrier;
    struct slice token; /* absent only with CARRIER_NONE; may be empty, then it is a bad one */
    struct slice query; /* for the worker: as it came, but for the token's parameter; absent: none is left */
    bool protocol_edit; /* Sec-WebSocket-Protocol is to be replaced by `protocol` */
    struct slice protocol; /* absent: to be removed */
    bool select_cellgate;  /* the client offered `cellgate` */
};

/* REFUSAL_NONE, bad_request, or request_too_large when scratch does not hold what has to be rewritten (the
 * lengths of query and protocol are always enough). The slices point into request and scratch. */
enum refusal carrier_find(const struct request *request, bool cookie_route, struct writer *scratch,
                          struct carried *carried);

/* "authorization", "subprotocol", "query", "cookie"; "none" */
const char *carrier_text(enum carrier carrier);

#endif
