/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/pings.h"

struct pings pings_none(void)
{
    return (struct pings){buffer_with_limit(PINGS_MAX)};
}

void pings_free(struct pings *pings)
{
    buffer_free(&pings->open);
}

void pings_put(struct pings *pings, struct slice payload)
{
    uint8_t entry[126];
    uint8_t forgotten[125];
    size_t len;

    entry[0] = (uint8_t)payload.len;
    if (payload.len)
        memcpy(entry + 1, payload.at, payload.len);
    while (PINGS_MAX - buffer_len(&pings->open) < payload.len + 1 && pings_take(pings, forgotten, &len))
        ;
    /* if memory is short, a worker that is lost just now leaves one ping unanswered */
    bool remembered = buffer_put(&pings->open, slice_of(entry, payload.len + 1));
    (void)remembered;
}

void pings_answered(struct pings *pings, struct slice payload)
{
    struct slice rest = buffer_slice(&pings->open);
    size_t taken = 0;

    while (rest.len) {
        struct slice ping = slice_sub(rest, 1, rest.at[0]);
        taken += ping.len + 1;
        rest = slice_from(rest, ping.len + 1);
        if (slice_equal(ping, payload)) {
            buffer_consume(&pings->open, taken);
            return;
        }
    }
}

bool pings_take(struct pings *pings, uint8_t payload[125], size_t *len)
{
    struct slice rest = buffer_slice(&pings->open);

    if (!rest.len)
        return false;
    *len = rest.at[0];
    memcpy(payload, rest.at + 1, *len);
    buffer_consume(&pings->open, *len + 1);
    return true;
}

void pings_image(struct image *image, struct pings *pings)
{
    image_buffer(image, &pings->open);
    for (struct slice rest = buffer_slice(&pings->open); rest.len; rest = slice_from(rest, rest.at[0] + 1u))
        image_check(image, rest.at[0] <= 125 && rest.at[0] < rest.len);
}
