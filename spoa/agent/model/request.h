/* SPDX-License-Identifier: MIT */
/*
 * request: HAProxy's description of one HTTP request, in the SPOE message `cell-route`. The table of arguments is the only list of them:
 * the decoder, `cellgate explain`, the SPOE file (checked by a test) and the documentation follow it. Slices point into the frame (or
 * other input of the caller) and are valid as long as it is.
 *
 * For each header of the second table the value is that of the FIRST line with this name, the whole line. The count beside it is the
 * number of lines with this name, so that the decision can refuse an ambiguous request.
 */
#ifndef CELLGATE_AGENT_MODEL_REQUEST_H
#define CELLGATE_AGENT_MODEL_REQUEST_H

#include "spoa/agent/systems/tables.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/text/address.h"

/* X(kind, field, SPOE argument name, HAProxy sample expression)
 * kinds: TEXT struct slice (absent if there is none), BOOL bool, ADDRESS struct address */
#define REQUEST_ARGUMENTS(X)                                                                            \
    X(TEXT, id, "id", "unique-id")                                                                      \
    X(TEXT, method, "method", "method")                                                                 \
    X(TEXT, version, "version", "req.ver")                                                              \
    X(TEXT, path, "path", "path")                                                                       \
    X(TEXT, query, "query", "query")                                                                    \
    X(TEXT, headers, "headers", "req.hdrs")                                                             \
    X(TEXT, removed, "removed", "var(txn.removed)")                                                     \
    X(ADDRESS, source, "source", "var(txn.client_addr)")                                                \
    X(BOOL, tls, "tls", "var(txn.client_tls)")                                                          \
    X(BOOL, mux, "mux", "var(txn.mux)") /* the relay asks, for a WebSocket that multiplexes requests */ \
    X(TEXT, proof, "proof", "var(txn.proof)")

/*  X(field of the value, field of the count, name in lower case, ...) */
#define REQUEST_HEADERS(X)                                        \
    X(host, hosts, "host")                                        \
    X(upgrade, upgrades, "upgrade")                               \
    X(connection, connections, "connection")                      \
    X(ws_version, ws_versions, "sec-websocket-version")           \
    X(ws_key, ws_keys, "sec-websocket-key")                       \
    X(ws_protocol, ws_protocols, "sec-websocket-protocol")        \
    X(content_length, content_lengths, "content-length")          \
    X(transfer_encoding, transfer_encodings, "transfer-encoding") \
    X(authorization, authorizations, "authorization")             \
    X(origin, origins, "origin")                                  \
    X(accept, accepts, "accept")                                  \
    X(cors_method, cors_methods, "access-control-request-method") \
    CREDENTIAL_HEADERS(X)                                         \
    TARGET_HEADERS(X)

#define REQUEST_TYPE_TEXT    struct slice
#define REQUEST_TYPE_BOOL    bool
#define REQUEST_TYPE_ADDRESS struct address

struct request {
#define X(kind, field, name, sample) REQUEST_TYPE_##kind field;
    REQUEST_ARGUMENTS(X)
#undef X
#define X(field, lines, ...) \
    struct slice field;      \
    int64_t lines;
    REQUEST_HEADERS(X)
#undef X
    struct slice cookie; /* value of the first __Host-cellgate in all Cookie lines */
    int64_t cookies;     /* number of __Host-cellgate cookies */
};

struct request_header {
    struct slice name, value;
};

/* Takes the next line, "name: value" and a line end, off *headers; `value` is the text after ": ". Returns false if no line is left,
 * with *headers empty, or if the line is malformed, with *headers not empty. */
bool request_header_next(struct slice *headers, struct request_header *header);
/* Fills the fields of REQUEST_HEADERS and the cookies from `headers`. Returns false if `headers` is absent or malformed. */
bool request_read_headers(struct request *request);
/* Returns the value of the first line of a header, which need not be in the table, and the number of its lines. `name` is in any case. */
struct slice request_header(const struct request *request, struct slice name, size_t *lines);

/* Writes all lines of a header as one list (RFC 9110 section 5.3) and returns it; absent if there is none. `name` is in lower case. */
struct slice request_list(const struct request *request, struct slice name, struct writer *w);

#endif
