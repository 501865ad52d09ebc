/* SPDX-License-Identifier: MIT */
/*
 * path: percent-encoding and dot segments of a request's path (RFC 3986). The path is never normalised for the worker: the worker gets
 * the client's bytes, and these functions judge every way to read them.
 */
#ifndef CELLGATE_AGENT_ROUTE_PATH_H
#define CELLGATE_AGENT_ROUTE_PATH_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

/* Returns whether the path begins with '/', has only printable ASCII without '#', and two digits after each '%'. */
bool path_valid(struct slice path);

/* Returns whether a segment equals `text` after percent-decoding of unreserved characters only (section 2.3). */
bool path_segment_is(struct slice segment, struct slice text);

/* Returns whether a segment, percent-decoded, is "." or "..". */
bool path_segment_dots(struct slice segment);

/* Returns whether the dot segments of a path's tail climb out of it (section 5.2.4) in any way that a worker may read it: with %2F, '\'
 * and %5C as slashes or not, "..;x" and "..%3Bx" as ".." or not, empty segments merged or not. A tail that goes up at all and mixes
 * several of these kinds counts as climbing, because there are too many ways to read it. */
bool path_climbs(struct slice tail);

/* Returns whether one of a NULL-terminated list of words, in unreserved characters, is a segment of the path in any way that a worker
 * may read it (see path_climbs), wherever dot segments lead. */
bool path_names(struct slice path, const char *const *words);

/* Copies s with unreserved characters percent-decoded. The copy is never longer than s. */
void path_decode(struct slice s, struct writer *w);

#endif
