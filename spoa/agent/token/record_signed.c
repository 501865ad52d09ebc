/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/record_signed.h"

#include <stdlib.h>

enum { LIFE = 60 }; /* seconds after which a grant without an end is checked again */

struct state {
    int64_t max_ttl; /* seconds; 0 if there is no limit */
};

bool record_signed_load(const struct token_load *load, const json_node *node, const struct option *options,
                        struct token_entry *entry, struct fail *why)
{
    struct record_signed_options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, RECORD_SIGNED_OPTION_COUNT, load->base_dir, &o, why);
    state->max_ttl = o.max_ttl / OPTION_SECOND;
    options_free(options, RECORD_SIGNED_OPTION_COUNT, &o);
    if (good)
        entry->state = state;
    else
        free(state);
    return good;
}

bool record_signed_expiry(struct slice text, uint64_t *seconds)
{
    return slice_u64(text, (uint64_t)1 << 53, seconds) && !(text.len > 1 && text.at[0] == '0');
}

enum refusal record_signed_grant(const struct token_check *check, const struct token_kind *kind,
                                 uint64_t expires, struct grant *grant, const char **reason)
{
    const struct credential *url = check->credential;
    const struct token_entry *entry = check->entries;
    while (entry->kind != kind)
        entry++; /* ends, because this kind is only called if there is such an entry */
    int64_t max_ttl = ((const struct state *)entry->state)->max_ttl;
    *reason = "it has no end, and max_ttl wants one";
    if (!expires && max_ttl)
        return REFUSAL_token_invalid;
    grant->sandbox = url->sandbox;
    grant->file = slice_present(url->path) ? url->path : SLICE_LITERAL("");
    grant->operation = url->operation;
    grant->user = url->user;
    grant->expires = url->expires;
    grant->signature = url->token;
    grant->needs = NEED_EXEC;
    grant_put_port(check->text, url->port);
    grant->ports = writer_slice(check->text);
    grant->exp = expires ? (int64_t)expires : check->now + LIFE;
    grant->leeway = 1;
    return token_check_lifetime(check, max_ttl, grant, reason);
}
