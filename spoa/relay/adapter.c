/* SPDX-License-Identifier: MIT */
#include "spoa/relay/adapter.h"

static const struct adapter none = {.name = "none"};

static const struct adapter *const adapters[] = {
    [HANDOVER_RESUME_NONE] = &none,
};

const struct adapter *adapter_find(enum handover_resume resume)
{
    return resume < sizeof adapters / sizeof adapters[0] && adapters[resume] ? adapters[resume] : &none;
}
