/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/system.h"

static const char *const words[] = {[SYSTEM_NONE] = "none",
#define X(name, variable, word) [SYSTEM_##name] = word,
                                    SYSTEMS(X)
#undef X
};

enum system system_of(struct slice word)
{
    enum system system = SYSTEM_COUNT - 1;
    while (system != SYSTEM_NONE && !slice_is(word, words[system]))
        system--;
    return system;
}

const char *system_text(enum system system)
{
    return words[system];
}

const char *system_words(void)
{
    static const char all[] =
#define X(name, variable, word) ", " word
        SYSTEMS(X)
#undef X
        ;
    return all + 2;
}

bool systems_read(const struct json *doc, const json_node *node, unsigned *systems, struct fail *why)
{
    *systems = 0;
    if (node && (!json_is_array(node) || !json_first(node)))
        return json_fail(doc, node, why, "systems is a list of one or more of %s", system_words());
    for (const json_node *item = json_first(node); item; item = json_next(item)) {
        struct slice word;
        enum system system = json_text(item, &word) ? system_of(word) : SYSTEM_NONE;
        if (system == SYSTEM_NONE)
            return json_fail(doc, item, why, "systems: this is none of %s", system_words());
        if (*systems & SYSTEM_BIT(system))
            return json_fail(doc, item, why, "systems: '%s' stands twice", system_text(system));
        *systems |= SYSTEM_BIT(system);
    }
    return true;
}
