/* SPDX-License-Identifier: MIT */
/*
 * redact: finds text that looks like a credential, for logs: a JWS in compact form, a scoped token ("v1."), the word after
 * "Bearer ", "Basic ", "cellgate.bearer.", "cellgate_token" or the cookie's name, and everything after a '?'. A safety net for
 * code that logs, not a permission to log secrets: a bare key looks like any other text.
 */
#ifndef CELLGATE_SERVICE_REDACT_H
#define CELLGATE_SERVICE_REDACT_H

#include "spoa/base/bytes/slice.h"

/* Splits *rest at its first secret: *plain is the text before it, and *rest the text after it. Returns whether there is a secret; if
 * not, *plain is the whole text and *rest is empty. Takes linear time. */
bool redact_split(struct slice *rest, struct slice *plain) MUST_CHECK;

#endif
