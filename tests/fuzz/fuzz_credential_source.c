/* SPDX-License-Identifier: MIT */
/* Lines of the input: Authorization, Sec-WebSocket-Protocol, query, cookie, method, path. What is left for the worker
 * carries no credential any more, and is left alone the second time. */
#include <stdlib.h>

#include "spoa/agent/token/credential_source.h"
#include "tests/fuzz/fuzz.h"

/* As if kinds for all sources were configured. */
static const struct credential_rules rules = {.listening = ~0u, .cookie = true};

static struct slice left_protocol(const struct request *request, const struct carried *carried)
{
    return carried->protocol_edit ? carried->protocol : request->ws_protocol;
}

static void again(const struct request *request, const struct carried *first, size_t size)
{
    struct request left = {.ws_protocol = left_protocol(request, first),
                           .query = first->query,
                           .method = request->method,
                           .path = request->path};
    uint8_t *memory = malloc(2 * size + 1);
    struct writer scratch = writer_of(memory, 2 * size);
    struct carried second;
    if (credential_find(&left, &rules, &scratch, &second) != REFUSAL_NONE ||
        second.credential.source != SOURCE_NONE || second.protocol_edit ||
        !slice_equal(second.query, left.query))
        abort();
    free(memory);
}

static int read_input(const uint8_t *data, size_t size)
{
    struct request request = {.authorizations = 1, .ws_protocols = 1};
    struct slice rest = slice_of(data, size);
    struct slice *const fields[] = {&request.authorization, &request.ws_protocol, &request.query,
                                    &request.cookie,        &request.method,      &request.path};
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        slice_split(&rest, '\n', fields[i]);
    uint8_t *memory = malloc(2 * size + 1);
    struct writer scratch = writer_of(memory, 2 * size);
    struct carried carried;
    enum refusal refusal = credential_find(&request, &rules, &scratch, &carried);
    if (refusal == REFUSAL_request_too_large)
        abort();
    if (refusal == REFUSAL_NONE) {
        if ((carried.credential.source == SOURCE_NONE) == slice_present(carried.credential.token))
            abort();
        again(&request, &carried, size);
    }
    free(memory);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
