/* SPDX-License-Identifier: MIT */
#include "spoa/agent/verdict.h"

const struct refusal_info *refusal_info(enum refusal refusal)
{
    static const struct refusal_info infos[] = {
        {"", 0, false, 0, ""},
#define X(name, status, retryable, after, sentence) {#name, status, retryable, after, sentence},
        REFUSALS(X)
#undef X
    };
    return &infos[refusal];
}

const char *verdict_kind_text(enum verdict_kind kind)
{
    static const char *const texts[] = {[VERDICT_DENY] = "deny",
                                        [VERDICT_DIRECT] = "direct",
                                        [VERDICT_RELAY] = "relay",
                                        [VERDICT_REDIRECT] = "redirect",
                                        [VERDICT_PREFLIGHT] = "preflight"};
    return texts[kind];
}
