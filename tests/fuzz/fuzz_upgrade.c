/* SPDX-License-Identifier: MIT */
/*
 * An HTTP head as the agent judges it (from what HAProxy would tell) and as a worker does: what the agent lets through
 * as an upgrade, the worker's handshake takes; what claims no upgrade, no worker takes for one.
 */
#include <stdlib.h>

#include "spoa/agent/decision/upgrade.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/proto/http.h"
#include "spoa/proto/ws_handshake.h"
#include "tests/fuzz/fuzz.h"

static int read_input(const uint8_t *data, size_t size)
{
    static struct http_head head;
    static struct header_line lines[HTTP_FIELDS_MAX];
    static uint8_t memory[HTTP_HEAD_MAX + 64];
    struct http_reader r = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    struct writer line = writer_of(memory, sizeof memory);
    struct request request;
    struct fail why;
    struct slice key;
    const char *reason;

    if (http_read(&r, slice_of(data, size), &head) != HTTP_DONE)
        return 0;
    writer_printf(&line, "%.*s %.*s HTTP/1.%u", SLICE_PRINTF(head.method), SLICE_PRINTF(head.target),
                  head.minor);
    for (size_t i = 0; i < head.count; i++)
        lines[i] = (struct header_line){head.fields[i].name, head.fields[i].value};
    static uint8_t text[2 * HTTP_HEAD_MAX];
    struct writer w = writer_of(text, sizeof text);
    if (!request_from_text(writer_slice(&line), lines, head.count, &w, &request, &why))
        return 0;
    unsigned status = ws_handshake_check_request(&head, &key, &why);
    if (upgrade_claimed(&request) && upgrade_judge(&request, &reason) == REFUSAL_NONE && status != 0)
        abort();
    if (!upgrade_claimed(&request) && status == 0)
        abort();
    (void)upgrade_connection(&request, &reason);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
