/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/verdict.h"

const char *verdict_kind_text(enum verdict_kind kind)
{
    static const char *const texts[] = {[VERDICT_DENY] = "deny",
                                        [VERDICT_DIRECT] = "direct",
                                        [VERDICT_RELAY] = "relay",
                                        [VERDICT_REDIRECT] = "redirect",
                                        [VERDICT_PREFLIGHT] = "preflight"};
    return texts[kind];
}

void verdict_clear(struct verdict *verdict)
{
    *verdict = (struct verdict){.kind = VERDICT_DENY};
#define CLEAR_TEXT(field)
#define CLEAR_BOOL(field)
#define CLEAR_ADDRESS(field)
#define CLEAR_INT(field)    verdict->field = -1;
#define X(kind, field, ...) CLEAR_##kind(field)
    VERDICT_VARIABLES(X)
#undef X
}

void verdict_deny(struct verdict *verdict, enum refusal refusal)
{
    const struct refusal_info *info = refusal_info(refusal);
    verdict->kind = VERDICT_DENY;
    verdict->refusal = refusal;
    verdict->status = info->status;
    verdict->error = slice_text(info->code);
    verdict->message = slice_text(info->sentence);
    verdict->retryable = info->retryable;
    verdict->retry_after = info->retry_after ? info->retry_after : -1;
}
