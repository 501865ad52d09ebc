/* SPDX-License-Identifier: MIT */
/*
 * pattern: the form of a route's path, host or header value, compiled once and then read by any number of threads.
 *
 * A pattern is a sequence of parts: the segments of a path, the labels of a host, or the parts of a header value between dots if the
 * pattern has a dot itself (otherwise the whole value is one part). A part is literal text with captures:
 *
 *     {name}          bytes of one part, at least one
 *     {name...}       as the last part: all further parts with their separators, may be empty; if the
 *                     separator before it is missing too, the capture is absent
 *     {name?default}  as a whole header value: `default` if the header is missing or empty
 *
 * In a part with several pieces, {port} is 1 to 5 digits, {token} is letters, digits and '_', and the captures of SYSTEM_CAPTURES are
 * digits and lower-case letters with the lengths of their rows. Any other capture takes the bytes that these and the literals leave, so
 * a part may have only one such capture. Therefore "{sandbox}-p{port}" is split at the last "-p", and matching needs no backtracking.
 *
 * Literal segments of a path are compared after percent-decoding of unreserved characters (RFC 3986 section 2.3); captures are always
 * the bytes as they came. The caller passes hosts in lower case.
 */
#ifndef CELLGATE_AGENT_ROUTE_PATTERN_H
#define CELLGATE_AGENT_ROUTE_PATTERN_H

#include "spoa/agent/systems/tables.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* The bytes that a capture of limited form may have. */
enum pattern_alphabet {
    PATTERN_DIGITS,
    PATTERN_LOWER, /* digits and lower-case letters */
    PATTERN_WORD,  /* digits, letters and '_' */
    PATTERN_BASE64URL
};

/* X(NAME, name, MIN, MAX, HEX, EVERYWHERE, ALPHABET): the captures with a meaning, at fixed places in struct captures. A value has MIN
 * to MAX bytes (MIN 0: any form), and the first HEX of them are hexadecimal digits in lower case. If the capture is a whole part, the
 * form is required in a host, and with EVERYWHERE also in a path and a header's value. {sandbox64} and {namespace64} are {sandbox} and
 * {namespace} in base64url. */
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

/* The captured values; absent if nothing was captured. */
struct captures {
    struct slice value[CAPTURES_MAX];
};

/* The names of one route's captures, by their place in struct captures. Names that a pattern adds point into its text. */
struct capture_names {
    struct slice name[CAPTURES_MAX];
    size_t count;
};
void capture_names_init(struct capture_names *names);

enum pattern_kind { PATTERN_PATH, PATTERN_HOST, PATTERN_VALUE };

struct pattern;

/* Compiles a pattern. Returns NULL and *why if the text is invalid (the message quotes it, which is fine for configuration) or if memory
 * is short. */
struct pattern *pattern_new(enum pattern_kind kind, struct slice text, struct capture_names *names,
                            struct fail *why);
void pattern_free(struct pattern *pattern); /* pattern may be NULL */
struct slice pattern_text(const struct pattern *pattern);
/* Returns a mask of the captures, with a bit for each place in struct captures. */
unsigned pattern_captures(const struct pattern *pattern);

enum pattern_result {
    PATTERN_MISS,
    PATTERN_MATCH,
    PATTERN_CLIMBS /* the pattern matches, but a captured dot segment would climb above the part matched before it */
};

/* Matches the input. Captures point into it; on a miss they are undefined. Only a default matches an absent input. */
enum pattern_result pattern_match(const struct pattern *pattern, struct slice input,
                                  struct captures *captures);

#endif
