/* SPDX-License-Identifier: MIT */
/* json_text: strings for JSON documents that are written by hand. */
#ifndef CELLGATE_WORKER_SYSTEMS_JSON_TEXT_H
#define CELLGATE_WORKER_SYSTEMS_JSON_TEXT_H

#include "spoa/base/bytes/writer.h"

/* Writes s with quotes around it. What is not ASCII passes as it is, so s should be UTF-8. */
void json_text_put(struct writer *w, struct slice s);
/* The same for bytes that need not be UTF-8: each that is not ASCII becomes the character of its number. */
void json_text_put_bytes(struct writer *w, struct slice s);

#endif
