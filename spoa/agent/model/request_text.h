/* SPDX-License-Identifier: MIT */
/*
 * request_text: a struct request from a request line and header lines, as HAProxy would make it: the sample
 * expressions of REQUEST_ARGUMENTS are evaluated here. For `cellgate explain` and tests.
 */
#ifndef CELLGATE_AGENT_MODEL_REQUEST_TEXT_H
#define CELLGATE_AGENT_MODEL_REQUEST_TEXT_H

#include "spoa/agent/model/request.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"

struct header_line {
    struct slice name, value;
};

/* "Name: value"; false without a colon or a name. */
bool header_line_parse(struct slice text, struct header_line *line);

/* line: "METHOD URL [HTTP/VERSION]", URL a path or http://HOST/PATH or https://…; a Host among the lines
 * comes before that of the URL. Slices of *request point into the arguments and memory, which holds the lines once more. */
bool request_from_text(struct slice line, const struct header_line *lines, size_t count,
                       struct writer *memory, struct request *request, struct fail *why);

#endif
