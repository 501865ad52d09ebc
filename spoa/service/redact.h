/* SPDX-License-Identifier: MIT */
/*
 * redact: finds what looks like a credential in a text, for logs: a JWS compact, a scoped token ("v1."), what
 * follows "Bearer ", "Basic ", "cellgate.bearer.", "cellgate_token" or the cookie's name, and whatever stands
 * behind a '?'. A net below the code that logs, not a leave to log secrets: a bare key looks like any other
 * text.
 */
#ifndef CELLGATE_SERVICE_REDACT_H
#define CELLGATE_SERVICE_REDACT_H

#include "spoa/base/bytes/slice.h"

/* Takes the text up to the next secret off *rest, and the secret itself; true if there was one. At the end
 * *rest is empty. Time is linear in the text. */
bool redact_split(struct slice *rest, struct slice *plain);

#endif
