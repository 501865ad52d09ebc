/* SPDX-License-Identifier: MIT */
#include "spoa/agent/systems/profile.h"

#define X(name, variable, word) extern const struct profile profile_##variable;
SYSTEMS(X)
#undef X

const struct profile *profile_of(enum system system)
{
    static const struct profile *const all[] = {[SYSTEM_NONE] = NULL,
#define X(name, variable, word) [SYSTEM_##name] = &profile_##variable,
                                                SYSTEMS(X)
#undef X
    };
    return all[system];
}

bool profile_route_at(size_t number, struct profile_route *route)
{
    for (enum profile_stage stage = 0; stage < PROFILE_STAGES; stage++)
        for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++)
            for (const char *const *text = profile_of(s)->routes[stage]; text && *text; text++)
                if (number-- == 0) {
                    *route = (struct profile_route){s, *text};
                    return true;
                }
    return false;
}

const char *profile_form_at(size_t number)
{
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++)
        for (const char *const *form = profile_of(s)->forms; *form; form++)
            if (number-- == 0)
                return *form;
    return NULL;
}
