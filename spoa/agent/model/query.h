/* SPDX-License-Identifier: MIT */
/* query: reads the parameters of a query (`a=1&b=2`). The caller separates them with slice_split at '&'. */
#ifndef CELLGATE_AGENT_MODEL_QUERY_H
#define CELLGATE_AGENT_MODEL_QUERY_H

#include "spoa/base/bytes/writer.h"

/* Returns whether a parameter has this name, percent-encoded or not. */
bool query_name_is(struct slice parameter, const char *name);
/* Returns the text after the first '=' of a parameter, or an empty slice without one. */
struct slice query_value(struct slice parameter);
/* Returns whether any parameter has this name. */
bool query_has(struct slice query, const char *name);

enum query_plus { QUERY_PLUS_STAYS, QUERY_PLUS_IS_BLANK };
/* Percent-decodes a value and leaves malformed escapes unchanged. Returns the value itself if nothing changes, otherwise a copy in
 * `scratch` that is never longer than the value. */
struct slice query_decode(struct slice value, enum query_plus plus, struct writer *scratch);
/* Appends the text as a value: encodes everything but letters, digits and "-._~/". */
void query_encode(struct slice text, struct writer *w);

#endif
