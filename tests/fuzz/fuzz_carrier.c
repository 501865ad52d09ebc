/* SPDX-License-Identifier: MIT */
/* Lines of the input: Authorization, Sec-WebSocket-Protocol, query, cookie. What is left for the worker
 * carries no credential any more, and is left alone the second time. */
#include <stdlib.h>

#include "spoa/agent/carrier.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct slice left_protocol(const struct request *request, const struct carried *carried)
{
    return carried->protocol_edit ? carried->protocol : request->ws_protocol;
}

static void again(const struct request *request, const struct carried *first, size_t size)
{
    struct request left = {.ws_protocol = left_protocol(request, first), .query = first->query};
    uint8_t *memory = malloc(size + 1);
    struct writer scratch = writer_of(memory, size);
    struct carried second;
    if (carrier_find(&left, false, &scratch, &second) != REFUSAL_NONE || second.carrier != CARRIER_NONE ||
        second.protocol_edit || !slice_equal(second.query, left.query))
        abort();
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request request = {.authorizations = 1, .ws_protocols = 1};
    struct slice rest = slice_of(data, size);
    struct slice *const fields[] = {&request.authorization, &request.ws_protocol, &request.query,
                                    &request.cookie};
    for (size_t i = 0; i < 4; i++)
        slice_split(&rest, '\n', fields[i]);
    uint8_t *memory = malloc(size + 1);
    struct writer scratch = writer_of(memory, size);
    struct carried carried;
    enum refusal refusal = carrier_find(&request, true, &scratch, &carried);
    if (refusal == REFUSAL_request_too_large)
        abort();
    if (refusal == REFUSAL_NONE) {
        if ((carried.carrier == CARRIER_NONE) == slice_present(carried.token))
            abort();
        again(&request, &carried, size);
    }
    free(memory);
    return 0;
}
