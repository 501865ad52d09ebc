/* SPDX-License-Identifier: MIT */
/*
 * request: what HAProxy tells about one HTTP request, in the SPOE message `cell-route`. The table below is the one
 * list of its arguments: the decoder, `cellgate explain`, the SPOE file (checked by a test) and the documentation
 * follow it. Slices point into the frame (or whatever the caller read from) and live as long as that does.
 *
 * Values are those of the FIRST header line of the name, the whole line (`req.fhdr(name,1)`); the count beside it
 * tells how many lines there were, so that the decision can refuse what is ambiguous.
 */
#ifndef CELLGATE_AGENT_REQUEST_H
#define CELLGATE_AGENT_REQUEST_H

#include "spoa/lib/address.h"
#include "spoa/lib/slice.h"

/*  X(kind, field, SPOE argument name, HAProxy sample expression)
 *  kinds: TEXT struct slice (absent = the header is not there), COUNT int64_t, BOOL bool, ADDRESS struct address */
#define REQUEST_ARGUMENTS(X)                                                                                      \
    X(TEXT, id, "id", "unique-id")                                                                                \
    X(TEXT, method, "method", "method")                                                                           \
    X(TEXT, version, "version", "req.ver")                                                                        \
    X(TEXT, path, "path", "path")                                                                                 \
    X(TEXT, query, "query", "query")                                                                              \
    X(TEXT, host, "host", "req.fhdr(host,1)")                                                                     \
    X(COUNT, hosts, "hosts", "req.fhdr_cnt(host)")                                                                \
    X(TEXT, upgrade, "upgrade", "req.fhdr(upgrade,1)")                                                            \
    X(COUNT, upgrades, "upgrades", "req.fhdr_cnt(upgrade)")                                                       \
    X(TEXT, connection, "connection", "req.fhdr(connection,1)")                                                   \
    X(TEXT, connection2, "connection2", "req.fhdr(connection,2)")                                                 \
    X(COUNT, connections, "connections", "req.fhdr_cnt(connection)")                                              \
    X(TEXT, ws_version, "ws_version", "req.fhdr(sec-websocket-version,1)")                                        \
    X(COUNT, ws_versions, "ws_versions", "req.fhdr_cnt(sec-websocket-version)")                                   \
    X(TEXT, ws_key, "ws_key", "req.fhdr(sec-websocket-key,1)")                                                    \
    X(COUNT, ws_keys, "ws_keys", "req.fhdr_cnt(sec-websocket-key)")                                               \
    X(TEXT, ws_protocol, "ws_protocol", "req.fhdr(sec-websocket-protocol,1)")                                     \
    X(COUNT, ws_protocols, "ws_protocols", "req.fhdr_cnt(sec-websocket-protocol)")                                \
    X(TEXT, content_length, "content_length", "req.fhdr(content-length,1)")                                       \
    X(COUNT, transfer_encodings, "transfer_encodings", "req.fhdr_cnt(transfer-encoding)")                         \
    X(TEXT, authorization, "authorization", "req.fhdr(authorization,1)")                                          \
    X(COUNT, authorizations, "authorizations", "req.fhdr_cnt(authorization)")                                     \
    X(TEXT, origin, "origin", "req.fhdr(origin,1)")                                                               \
    X(COUNT, origins, "origins", "req.fhdr_cnt(origin)")                                                          \
    X(TEXT, cookie, "cookie", "req.cook(__Host-cellgate)")                                                        \
    X(COUNT, cookies, "cookies", "req.cook_cnt(__Host-cellgate)")                                                 \
    X(TEXT, accept, "accept", "req.fhdr(accept,1)")                                                               \
    X(TEXT, cors_method, "cors_method", "req.fhdr(access-control-request-method,1)")                              \
    X(TEXT, sandbox_id, "sandbox_id", "req.fhdr(x-sandbox-id,1)")                                                 \
    X(TEXT, sandbox_namespace, "sandbox_namespace", "req.fhdr(x-sandbox-namespace,1)")                            \
    X(TEXT, sandbox_port, "sandbox_port", "req.fhdr(x-sandbox-port,1)")                                           \
    X(TEXT, sandbox_uid, "sandbox_uid", "req.fhdr(x-sandbox-uid,1)")                                              \
    X(TEXT, sandbox_pod_ip, "sandbox_pod_ip", "req.fhdr(x-sandbox-pod-ip,1)")                                     \
    X(TEXT, ingress_to, "ingress_to", "req.fhdr(opensandbox-ingress-to,1)")                                       \
    X(TEXT, ingress, "ingress", "req.fhdr(open-sandbox-ingress,1)")                                               \
    X(TEXT, secure_access, "secure_access", "req.fhdr(opensandbox-secure-access,1)")                              \
    X(COUNT, secure_accesses, "secure_accesses", "req.fhdr_cnt(opensandbox-secure-access)")                       \
    X(TEXT, oc_preview, "oc_preview", "req.fhdr(x-oc-preview-token,1)")                                           \
    X(COUNT, oc_previews, "oc_previews", "req.fhdr_cnt(x-oc-preview-token)")                                      \
    X(TEXT, daytona_preview, "daytona_preview", "req.fhdr(x-daytona-preview-token,1)")                            \
    X(COUNT, daytona_previews, "daytona_previews", "req.fhdr_cnt(x-daytona-preview-token)")                       \
    X(TEXT, e2b_access, "e2b_access", "req.fhdr(e2b-traffic-access-token,1)")                                     \
    X(COUNT, e2b_accesses, "e2b_accesses", "req.fhdr_cnt(e2b-traffic-access-token)")                              \
    X(ADDRESS, source, "source", "var(txn.client_addr)")                                                          \
    X(BOOL, tls, "tls", "var(txn.client_tls)")

#define REQUEST_TYPE_TEXT    struct slice
#define REQUEST_TYPE_COUNT   int64_t
#define REQUEST_TYPE_BOOL    bool
#define REQUEST_TYPE_ADDRESS struct address

struct request {
#define X(kind, field, name, sample) REQUEST_TYPE_##kind field;
    REQUEST_ARGUMENTS(X)
#undef X
};

#endif
