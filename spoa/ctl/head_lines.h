/* SPDX-License-Identifier: MIT */
/* head_lines: reads a request's head from arguments: header lines and a request line, or, as with curl, "@FILE" and "@-" (standard input),
 * which keeps secrets out of ps(1). Errors never quote a line. */
#ifndef CELLGATE_CTL_HEAD_LINES_H
#define CELLGATE_CTL_HEAD_LINES_H

#include "spoa/agent/model/request_text.h"

enum { HEAD_LINES = 128, HEAD_FILES = 8 };

struct head_lines {       /* zeroed by the caller */
    struct slice request; /* request line; absent if it was not given */
    struct header_line line[HEAD_LINES];
    size_t count;
    struct slice file[HEAD_FILES]; /* the texts of the files */
    size_t files;
};

/* Adds a header "NAME: VALUE", or those of a file of such lines. */
bool head_lines_add(struct head_lines *head, const char *text, struct fail *why);
/* Sets the request line "METHOD URL", or reads a file with that line and, after it, header lines up to an empty one. */
bool head_lines_request(struct head_lines *head, const char *text, struct fail *why);
void head_lines_free(struct head_lines *head);

#endif
