/* SPDX-License-Identifier: MIT */
/* query: the parameters of a query (`a=1&b=2`), looked at one by one with slice_split at '&'. */
#ifndef CELLGATE_AGENT_MODEL_QUERY_H
#define CELLGATE_AGENT_MODEL_QUERY_H

#include "spoa/base/bytes/writer.h"

/* Whether a parameter has this name, percent-encoded or not. */
bool query_name_is(struct slice parameter, const char *name);
/* What stands behind its first '='; empty without one. */
struct slice query_value(struct slice parameter);
/* Whether any parameter has this name. */
bool query_has(struct slice query, const char *name);

enum query_plus { QUERY_PLUS_STAYS, QUERY_PLUS_IS_BLANK };
/* The value percent-decoded where that is well-formed: itself if nothing changes, else a copy in scratch,
 * which is never longer. */
struct slice query_decode(struct slice value, enum query_plus plus, struct writer *scratch);
/* Appends the text as a value: everything but letters, digits and "-._~/" encoded. */
void query_encode(struct slice text, struct writer *w);

#endif
