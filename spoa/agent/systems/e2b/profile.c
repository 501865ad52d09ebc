/* SPDX-License-Identifier: MIT */
/* e2b: previews, envd, and one endpoint for all sandboxes that its SDK addresses by headers. */
#include "spoa/agent/systems/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "e2b-envd", "host": ["{port}-{sandbox}-{e2b_client}.<e2b>", "{port}-{sandbox}.<e2b>"], "ports": "49983", "need": "exec"}),
    JSON({"name": "e2b-preview", "host": ["{port}-{sandbox}-{e2b_client}.<e2b>", "{port}-{sandbox}.<e2b>"], "need": "http"}),
    /* clang-format on */
    NULL};

static const char *const headers[] = {
    /* clang-format off */
    JSON({"name": "e2b-envd-header", "ports": "49983", "need": "exec",
          "headers": {"E2b-Sandbox-Id": "{sandbox}", "E2b-Sandbox-Port": "{port?49983}"},
          "host_header": "keep", "cookies": "keep", "auth": "keep"}),
    JSON({"name": "e2b-header", "need": "http",
          "headers": {"E2b-Sandbox-Id": "{sandbox}", "E2b-Sandbox-Port": "{port?49983}"},
          "host_header": "keep", "cookies": "keep", "auth": "keep"}),
    /* clang-format on */
    NULL};

/* The SDK expects 502, and no other status, for a sandbox that does not run. e2b's proxy answers this without checking a credential.
 * Here a wrong secret gets the same answer, because otherwise the status would reveal which sandboxes exist. */
static const struct profile_refusal refusals[] = {
    {.refusal = REFUSAL_sandbox_not_found, .status = 502},
    {.refusal = REFUSAL_sandbox_stopped, .status = 502},
    {.refusal = REFUSAL_token_invalid, .status = 502, .unconfirmed = true},
    {.refusal = REFUSAL_sandbox_waking, .status = 502, .asleep = true},
    {.refusal = REFUSAL_sandbox_waking, .status = 409},
    {.refusal = REFUSAL_sandbox_migrating, .status = 409},
    {.refusal = REFUSAL_NONE},
};

const struct profile profile_e2b = {
    .ports = "49983",
    .withheld = {49983, {"init", "freeze", "unfreeze", "fsfreeze", "fsthaw", "collapse", "upgrade"}},
    .forms = {"e2b"},
    .sources = {"e2b-traffic-access-token"},
    .refusals = refusals,
    .routes = {[PROFILE_HOSTS] = hosts, [PROFILE_HEADERS] = headers},
};
