/* SPDX-License-Identifier: MIT */
/*
 * head_lines: a request's head as the operator's command takes it: header lines and a request line as
 * arguments, or, as with curl, "@FILE" and "@-" (standard input) instead, so that what is secret in them is
 * not in ps(1). Errors never quote a line.
 */
#ifndef CELLGATE_CTL_HEAD_LINES_H
#define CELLGATE_CTL_HEAD_LINES_H

#include "spoa/agent/model/request_text.h"

enum { HEAD_LINES = 128, HEAD_FILES = 8 };

struct head_lines {       /* zeroed by the caller */
    struct slice request; /* absent: not given */
    struct header_line line[HEAD_LINES];
    size_t count;
    struct slice file[HEAD_FILES]; /* the texts of the files */
    size_t files;
};

/* "NAME: VALUE", or a file of such lines. */
bool head_lines_add(struct head_lines *head, const char *text, struct fail *why);
/* "METHOD URL", or a file of that and, behind it, header lines up to an empty one. */
bool head_lines_request(struct head_lines *head, const char *text, struct fail *why);
void head_lines_free(struct head_lines *head);

#endif
