/* SPDX-License-Identifier: MIT */
/*
 * The kind `agent-sandbox` of token/kind.h: scoped tokens, version 1, of Agent Sandbox.
 *
 *     v1.P.S    P: base64url of {"ns":"...","name":"...","exp":SECONDS}
 *               S: base64url of HMAC-SHA256 over the context string and P
 *
 * It has no id of a key, so each entry is tried. Whoever has one may reach that sandbox, and no other by way
 * of X-Sandbox-UID or X-Sandbox-Pod-IP. It is over at the second of exp.
 */
#include "spoa/agent/systems/agent_sandbox/scoped_token.h"
#include "spoa/agent/token/secret.h"
#include "spoa/base/text/base64url.h"

#define PREFIX  "v1."
#define CONTEXT "agent-sandbox/scoped-token/v1."

enum { PAYLOAD = 1024 };

/* ---- the configuration ---- */

#define FIELD(name) offsetof(struct token_secret_options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`agent-sandbox`", .max = 16},
    {"kid", OPTION_TEXT, FIELD(kid), OPTION_NONE, .help = "names the key", .min = 1, .max = 128},
    {"secret_file", OPTION_PATH, FIELD(secret_file), NULL,
     .help = "the router's secret, as text; white space around it does not count"},
    {"min_secret", OPTION_INT, FIELD(min_secret), "32", .help = "least bytes", .min = 1, .max = TOKEN_SECRET},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), OPTION_NONE,
     .help = "longer-lived tokens are refused; not set: any `not_before` refuses all", .min = OPTION_SECOND,
     .max = 3650 * OPTION_DAY},
    {"bind", OPTION_BOOL, FIELD(bind), "true", .help = "a relayed tunnel ends with its token"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static bool agent_sandbox_load(const struct token_load *load, const json_node *node,
                               struct token_entry *entry, struct fail *why)
{
    return token_secret_load(load, node, options, OPTION_COUNT, entry, why);
}

/* ---- checking ---- */

static bool agent_sandbox_recognises(struct slice token)
{
    return slice_starts(token, PREFIX);
}

static enum refusal check_claims(const struct token_check *check, const struct token_entry *entry,
                                 struct slice payload, struct grant *grant, const char **reason)
{
    const struct token_secret *state = entry->state;
    enum refusal refusal = scoped_token_read(check, payload, NULL, grant, reason);
    grant->kid = entry->kid;
    grant->key = slice_of(entry->fingerprint, KEY_FINGERPRINT);
    grant->bind = state->bind;
    return refusal == REFUSAL_NONE ? token_check_lifetime(check, state->max_ttl, grant, reason) : refusal;
}

static enum refusal agent_sandbox_check(const struct token_check *check, struct grant *grant,
                                        const char **reason)
{
    struct slice rest = slice_from(check->credential->token, sizeof(PREFIX) - 1), payload;
    uint8_t mac[KEY_SIGNATURE], memory[PAYLOAD], signed_text[sizeof(CONTEXT) + 2 * PAYLOAD];
    struct writer signature = writer_of(mac, sizeof(mac)), decoded = writer_of(memory, sizeof(memory)),
                  data = writer_of(signed_text, sizeof(signed_text));
    slice_split(&rest, '.', &payload);
    *reason = "it is not v1.PAYLOAD.SIGNATURE in base64url";
    if (!slice_present(rest) || !base64url_decode(rest, &signature) || !base64url_decode(payload, &decoded))
        return REFUSAL_token_invalid;
    /* the signature is over the context and P as it is written, which is shorter than the room for it */
    writer_text(&data, CONTEXT);
    writer_put(&data, payload);
    const struct token_entry *entry = NULL;
    enum refusal refusal = token_secret_signer(check, &token_kind_agent_sandbox_v1, writer_slice(&data),
                                               writer_slice(&signature), &entry, reason);
    if (refusal != REFUSAL_NONE)
        return refusal;
    grant->ours = true;
    return check_claims(check, entry, writer_slice(&decoded), grant, reason);
}

/* ---- minting ---- */

static bool agent_sandbox_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                               struct fail *why)
{
    const struct token_secret *state = entry->state;
    size_t slash = slice_find(grant->sandbox, '/');
    struct slice space = SLICE_LITERAL("default"), name = grant->sandbox;
    uint8_t mac[KEY_SIGNATURE], memory[PAYLOAD], signed_text[sizeof(CONTEXT) + 2 * PAYLOAD];
    struct writer signature = writer_of(mac, sizeof(mac)), payload = writer_of(memory, sizeof(memory)),
                  data = writer_of(signed_text, sizeof(signed_text));
    if (slash < name.len) {
        space = slice_sub(name, 0, slash);
        name = slice_from(name, slash + 1);
    }
    if (!scoped_token_is_label(space) || !scoped_token_is_label(name))
        return fail(why, "agent-sandbox: the sandbox must be a name of Kubernetes, or NAMESPACE/NAME");
    if (grant->needs != NEED_UNSAID || slice_present(grant->ports) || slice_present(grant->org))
        return fail(why, "agent-sandbox: its tokens cannot say need, ports or org");
    if (!token_secret_lives(state->max_ttl, grant, why))
        return false;
    writer_printf(&payload, "{\"ns\":\"%.*s\",\"name\":\"%.*s\",\"exp\":%lld}", SLICE_PRINTF(space),
                  SLICE_PRINTF(name), (long long)grant->exp);
    writer_text(&data, CONTEXT);
    base64url_encode(writer_slice(&payload), &data);
    if (data.full || !key_sign(state->key, writer_slice(&data), &signature))
        return fail(why, "the token cannot be signed");
    writer_text(w, PREFIX);
    base64url_encode(writer_slice(&payload), w);
    writer_u8(w, '.');
    base64url_encode(writer_slice(&signature), w);
    return !w->full || fail(why, "the token cannot be signed");
}

const struct token_kind token_kind_agent_sandbox_v1 = {.name = "agent-sandbox",
                                                       .options = options,
                                                       .options_count = OPTION_COUNT,
                                                       .sources = SOURCES_GENERAL,
                                                       .load = agent_sandbox_load,
                                                       .release = token_secret_release,
                                                       .recognises = agent_sandbox_recognises,
                                                       .check = agent_sandbox_check,
                                                       .mint = agent_sandbox_mint};
