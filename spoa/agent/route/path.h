/* SPDX-License-Identifier: MIT */
/*
 * path: percent-encoding and dot segments of a request's path (RFC 3986). Nothing here is normalised for the
 * worker: it gets the bytes that the client sent, and what those could mean is judged instead.
 */
#ifndef CELLGATE_AGENT_ROUTE_PATH_H
#define CELLGATE_AGENT_ROUTE_PATH_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

/* Begins with '/', holds printable ASCII without '#', and every '%' has its two digits. */
bool path_valid(struct slice path);

/* Whether a segment equals text after percent-decoding of unreserved characters only (section 2.3). */
bool path_segment_is(struct slice segment, struct slice text);

/* Whether a segment, percent-decoded, is "." or "..". */
bool path_segment_dots(struct slice segment);

/* Whether the dot segments of a path's tail leave it upwards (section 5.2.4), in any way that a worker may
 * read it: %2F, '\' and %5C taken for slashes, "..;x" and "..%3Bx" for ".." or not, empty segments merged. A tail that
 * goes up at all and has several kinds of these is taken to climb: too many ways to read it. */
bool path_climbs(struct slice tail);

/* Whether one of a NULL-terminated list of words, of unreserved characters, is a segment of the path in any way that a worker
 * may read it: as path_climbs, wherever dot segments lead. */
bool path_names(struct slice path, const char *const *words);

/* Copies s with unreserved characters percent-decoded; it never gets longer. */
void path_decode(struct slice s, struct writer *w);

#endif
