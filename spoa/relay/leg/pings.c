/* SPDX-License-Identifier: MIT */
#include "spoa/relay/leg/pings.h"

#include <assert.h>

void pings_put(struct pings *pings, struct slice payload)
{
    assert(payload.len <= PINGS_PAYLOAD_MAX);
    *pings = (struct pings){.open = true, .len = (uint8_t)payload.len};
    if (payload.len)
        memcpy(pings->payload, payload.at, payload.len);
}

void pings_answered(struct pings *pings, struct slice payload)
{
    if (pings->open && slice_equal(slice_of(pings->payload, pings->len), payload))
        *pings = (struct pings){0};
}

bool pings_take(struct pings *pings, uint8_t payload[static PINGS_PAYLOAD_MAX], size_t *len)
{
    if (!pings->open)
        return false;
    *len = pings->len;
    memcpy(payload, pings->payload, pings->len);
    *pings = (struct pings){0};
    return true;
}

static bool holds(const void *object)
{
    const struct pings *pings = object;
    return pings->open ? pings->len <= PINGS_PAYLOAD_MAX : !pings->len;
}

static const struct image_field fields[] = {
    IMAGE_FLAG(struct pings, open),
    IMAGE_ANY(struct pings, len),
    IMAGE_BYTES(struct pings, payload),
};
IMAGE_TABLE(pings_table, struct pings, fields, .holds = holds);
