/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/management.h"

#include "spoa/agent/model/system.h"
#include "spoa/service/settings.h"

enum serves serves_of(struct slice word)
{
    return slice_is(word, "management")    ? SERVES_MANAGEMENT
           : slice_is(word, "application") ? SERVES_APPLICATION
                                           : SERVES_UNSAID;
}

bool management_ports(struct slice text, struct port_list *ports, struct fail *why)
{
    ports->count = 0;
    return slice_is(text, "none") || port_list_add(ports, text, why);
}

/* Without named systems a sandbox may run any of them, so the ports of all systems count. */
static bool ports_of(unsigned systems, struct port_list *ports, struct fail *why)
{
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++) {
        struct slice text = slice_text(profile_of(s)->ports);
        bool named = !systems || systems & SYSTEM_BIT(s);
        if (named && slice_present(text) && !port_list_add(ports, text, why))
            return false;
    }
    return true;
}

bool management_read(const struct settings *s, struct management *management, struct fail *why)
{
    struct fail what;
    *management = (struct management){.serves = s->serves ? SERVES_APPLICATION : SERVES_MANAGEMENT};
    if (!systems_read(s->doc, s->systems, &management->systems, why))
        return false;
    if (!s->management_ports)
        return ports_of(management->systems, &management->ports, why);
    return management_ports(slice_text(s->management_ports), &management->ports, &what) ||
           json_fail(s->doc, json_member(json_root(s->doc), "management_ports"), why, "management_ports: %s",
                     what.text);
}
