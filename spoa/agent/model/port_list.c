/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/port_list.h"

static bool read_range(struct slice text, struct port_range *range)
{
    uint64_t from, to;
    size_t hyphen = slice_find(text, '-');
    if (!slice_u64(slice_sub(text, 0, hyphen), 65535, &from))
        return false;
    to = from;
    if (hyphen < text.len && !slice_u64(slice_from(text, hyphen + 1), 65535, &to))
        return false;
    *range = (struct port_range){(uint16_t)from, (uint16_t)to};
    return from >= 1 && from <= to;
}

bool port_list_add(struct port_list *list, struct slice text, struct fail *why)
{
    struct slice rest = text, part;
    while (slice_split(&rest, ',', &part)) {
        if (list->count == PORT_RANGES_MAX)
            return fail(why, "more than %d ranges", PORT_RANGES_MAX);
        if (!read_range(slice_trim(part), &list->range[list->count]))
            return fail(why, "'%.*s' is no port or range of ports", SLICE_PRINTF(part));
        list->count++;
    }
    return true;
}

bool port_list_has(const struct port_list *list, uint16_t port)
{
    for (size_t i = 0; i < list->count; i++)
        if (port >= list->range[i].from && port <= list->range[i].to)
            return true;
    return false;
}
