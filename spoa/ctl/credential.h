/* SPDX-License-Identifier: MIT */
/* credential: a credential as somebody would paste it: a token, a signed route, a signed URL. */
#ifndef CELLGATE_CTL_CREDENTIAL_H
#define CELLGATE_CTL_CREDENTIAL_H

#include "spoa/agent/token/credential_source.h"

/* A signed route is "ID-PORT-EXPIRES-SIGNATURE", as a host with anything behind its first dot, or
 * "/ID/PORT/EXPIRES/SIGNATURE/..."; a signed file URL "/api/sandboxes/ID/files/download?...". Anything else,
 * and these where no kind listens for them, is a token. scratch holds as many bytes as text. False when a file
 * URL lacks a parameter. */
bool credential_from_text(struct slice text, unsigned listening, struct writer *scratch,
                          struct credential *credential);

#endif
