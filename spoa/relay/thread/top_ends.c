/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/top_ends.h"

struct top_end *top_ends_note(struct top_ends *ends)
{
    struct top_end *end = &ends->at[ends->noted++ % TOP_ENDS];
    *end = (struct top_end){.at = 0};
    return end;
}

size_t top_end_name(uint8_t to[static TOP_END_NAME], struct slice name)
{
    size_t len = name.len < TOP_END_NAME ? name.len : TOP_END_NAME;
    if (len)
        memcpy(to, name.at, len);
    return len;
}

const struct top_end *top_ends_newest(const struct top_ends *ends, size_t i)
{
    if (i >= TOP_ENDS || i >= ends->noted)
        return NULL;
    return &ends->at[(ends->noted - 1 - i) % TOP_ENDS];
}
