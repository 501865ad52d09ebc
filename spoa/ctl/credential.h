/* SPDX-License-Identifier: MIT */
/* credential: recognises a pasted credential: a token, a signed route or a signed URL. */
#ifndef CELLGATE_CTL_CREDENTIAL_H
#define CELLGATE_CTL_CREDENTIAL_H

#include "spoa/agent/token/credential_source.h"

/* Recognises a credential. A signed route is "ID-PORT-EXPIRES-SIGNATURE", as a host name's first label, or
 * "/ID/PORT/EXPIRES/SIGNATURE/..."; a signed file URL is "/api/sandboxes/ID/files/download?...". Any other text is a token, as are these
 * forms if no kind of token listens for them. `scratch` holds at least as many bytes as `text`. Returns false if a file URL lacks a
 * parameter. */
bool credential_from_text(struct slice text, unsigned listening, struct writer *scratch,
                          struct credential *credential);

#endif
