/* SPDX-License-Identifier: MIT */
/*
 * request_text: makes a struct request from a request line and header lines, as HAProxy would. It evaluates the sample expressions of
 * REQUEST_ARGUMENTS. `cellgate explain` and the tests use it.
 */
#ifndef CELLGATE_AGENT_MODEL_REQUEST_TEXT_H
#define CELLGATE_AGENT_MODEL_REQUEST_TEXT_H

#include "spoa/agent/model/request.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"

struct header_line {
    struct slice name, value;
};

/* Parses "Name: value". Returns false if the colon or the name is missing. */
bool header_line_parse(struct slice text, struct header_line *line);

/* Parses `line`, "METHOD URL [HTTP/VERSION]", where URL is a path or starts with http://HOST or https://HOST. A Host among the lines
 * takes precedence over that of the URL. Slices of *request point into the arguments and into `memory`, which gets a copy of the lines. */
bool request_from_text(struct slice line, const struct header_line *lines, size_t count,
                       struct writer *memory, struct request *request, struct fail *why);

#endif
