/* SPDX-License-Identifier: MIT */
/*
 * pattern: what a route's path, host or header value has to look like, compiled once and then read by any
 * number of threads.
 *
 * A pattern is a row of parts: the segments of a path, the labels of a host, and the parts of a header value
 * between dots if the pattern has a dot itself (otherwise the whole value is one part). A part is literal
 * text with captures:
 *
 *     {name}          bytes of one part, at least one
 *     {name...}       as the last part: all further parts with their separators, may be empty; with the
 *                     separator before it missing too, the capture is absent
 *     {name?default}  as a whole header value: `default` where the header is missing or empty
 *
 * Where a part holds more than one thing, {port} is 1 to 5 digits, {token} letters, digits and '_', and the captures of
 * SYSTEM_CAPTURES are digits and lower-case letters, as many as their rows say. Any other capture takes what these and the
 * literals leave over, so a part may hold only one such. That makes "{sandbox}-p{port}" split at the last "-p" and needs no
 * backtracking.
 *
 * Literal segments of a path are compared after percent-decoding of unreserved characters (RFC 3986
 * section 2.3); captures are always the bytes as they came. Hosts are to be given in lower case.
 */
#ifndef CELLGATE_AGENT_ROUTE_PATTERN_H
#define CELLGATE_AGENT_ROUTE_PATTERN_H

#include "spoa/agent/systems/tables.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* The bytes of a capture with a form. */
enum pattern_alphabet {
    PATTERN_DIGITS,
    PATTERN_LOWER, /* digits and lower-case letters */
    PATTERN_WORD,  /* digits, letters and '_' */
    PATTERN_BASE64URL
};

/* X(NAME, name, MIN, MAX, HEX, EVERYWHERE, ALPHABET): the captures that have a meaning, at fixed places in struct captures. One
 * of MIN to MAX bytes (MIN 0: of any form), of which the first HEX are hexadecimal digits, in lower case. A part that is nothing
 * else must have that form in a host, and EVERYWHERE in a path and a header's value, too. {sandbox64} and {namespace64} are
 * {sandbox} and {namespace} in base64url. */
#define CAPTURES(X)                                                      \
    X(SANDBOX, "sandbox", 0, 0, 0, false, PATTERN_DIGITS)                \
    X(NAMESPACE, "namespace", 0, 0, 0, false, PATTERN_DIGITS)            \
    X(PORT, "port", 1, 5, 0, false, PATTERN_DIGITS)                      \
    X(SESSION, "session", 0, 0, 0, false, PATTERN_DIGITS)                \
    X(TOKEN, "token", 1, UINT16_MAX, 0, false, PATTERN_WORD)             \
    SYSTEM_CAPTURES(X)                                                   \
    X(SANDBOX64, "sandbox64", 2, UINT16_MAX, 0, true, PATTERN_BASE64URL) \
    X(NAMESPACE64, "namespace64", 2, UINT16_MAX, 0, true, PATTERN_BASE64URL)

enum capture {
#define X(name, ...) CAPTURE_##name,
    CAPTURES(X)
#undef X
        CAPTURES_KNOWN,
    CAPTURES_MAX = 20
};

/* What was captured, absent where nothing was. */
struct captures {
    struct slice value[CAPTURES_MAX];
};

/* The names of one route's captures: place in struct captures
 * -> name. Names that patterns add point into their text. */
struct capture_names {
    struct slice name[CAPTURES_MAX];
    size_t count;
};
void capture_names_init(struct capture_names *names);

enum pattern_kind { PATTERN_PATH, PATTERN_HOST, PATTERN_VALUE };

struct pattern;

/* NULL and *why (the text is quoted, it is configuration), also when out of memory. */
struct pattern *pattern_new(enum pattern_kind kind, struct slice text, struct capture_names *names,
                            struct fail *why);
void pattern_free(struct pattern *pattern); /* NULL is fine */
struct slice pattern_text(const struct pattern *pattern);
/* A bit per place in struct captures. */
unsigned pattern_captures(const struct pattern *pattern);

enum pattern_result {
    PATTERN_MISS,
    PATTERN_MATCH,
    PATTERN_CLIMBS /* matches, but a captured dot segment would climb above what was matched before it */
};

/* Captures point into input; on a miss they are undefined. An absent input is matched by a default only. */
enum pattern_result pattern_match(const struct pattern *pattern, struct slice input,
                                  struct captures *captures);

#endif
