/* SPDX-License-Identifier: MIT */
/*
 * The kind `agent-sandbox-v2` of token/kind.h: scoped tokens, version 2, of Agent Sandbox.
 *
 *     v2.KID.P.S    P: base64url of {"ns":"...","name":"...","uid":"...","port":N,"method":"...","path":"...","exp":SECONDS}
 *                   S: base64url of the Ed25519 signature over the context string, KID, "." and P
 *
 * Good for one method and path at one port of the one sandbox of that UID, and over at the second of exp. KID is signed, and an
 * entry's key of that name is the only one that is tried. The path is the worker's, without the query, escapes in upper case.
 */
#include <stdlib.h>

#include "spoa/agent/systems/agent_sandbox/scoped_token.h"
#include "spoa/base/os/file.h"
#include "spoa/base/text/base64url.h"

#define PREFIX  "v2."
#define CONTEXT "agent-sandbox/scoped-token/v2."

enum {
    PAYLOAD = SCOPED_TOKEN_PAYLOAD,
    KID_MOST = 128,
    UID_MOST = 64,
    KEYS_MOST = 64,
    FILE_MOST = 65536,
    METHOD_MOST = 32
};

struct options {
    char *kind, *keys_file;
    int64_t max_ttl;
};

struct named_key {
    char *kid;
    struct key *key;
    uint8_t fingerprint[KEY_FINGERPRINT];
};

struct state {
    int64_t max_ttl; /* seconds; 0 if there is no limit */
    size_t count;
    struct named_key keys[KEYS_MOST];
};

/* ---- the configuration ---- */

#define FIELD(name) offsetof(struct options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`agent-sandbox-v2`", .max = 32},
    {"keys_file", OPTION_PATH, FIELD(keys_file), NULL,
     .help = "the router's keys, `{\"keys\": [{\"kid\": ..., \"publicKey\": ...}]}`, Ed25519 in base64url"},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), OPTION_NONE,
     .help = "longer-lived tokens are refused; not set: any `not_before` refuses all", .min = OPTION_SECOND,
     .max = 3650 * OPTION_DAY},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static void v2_release(void *pointer)
{
    struct state *state = pointer;
    for (size_t i = 0; i < state->count; i++) {
        free(state->keys[i].kid);
        key_free(state->keys[i].key);
    }
    free(state);
}

static bool is_kid(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.at[i], letter = c | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return false;
    }
    return s.len > 0 && s.len <= KID_MOST;
}

static const struct named_key *key_named(const struct state *state, struct slice kid)
{
    for (size_t i = 0; i < state->count; i++)
        if (slice_is(kid, state->keys[i].kid))
            return &state->keys[i];
    return NULL;
}

/* Reads a key; it is converted to a JWK, which key.h reads. */
static bool read_key(const struct token_load *load, const char *path, const json_node *node,
                     struct state *state, struct fail *why)
{
    uint8_t memory[256], raw[32];
    struct slice kid, text;
    struct writer jwk = writer_of(memory, sizeof(memory)), bytes = writer_of(raw, sizeof(raw));
    if (json_count(node) != 2 || !json_text(json_member(node, "kid"), &kid) || !is_kid(kid) ||
        !json_text(json_member(node, "publicKey"), &text) || !base64url_decode(text, &bytes) ||
        bytes.len != sizeof(raw))
        return fail(why, "%s: a key is {\"kid\": A-Z a-z 0-9 - _, \"publicKey\": 32 bytes in base64url}",
                    path);
    if (key_named(state, kid) || state->count == KEYS_MOST)
        return fail(why, "%s: a kid stands twice, or there are more than %d keys", path, KEYS_MOST);
    struct named_key *named = &state->keys[state->count];
    if (!(named->kid = slice_dup(kid)))
        return fail(why, "out of memory");
    state->count++; /* from here on v2_release frees the key */
    writer_printf(&jwk, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%.*s\"}", SLICE_PRINTF(text));
    named->key = key_pair(writer_slice(&jwk), KEY_EDDSA, KEY_PUBLIC, path, why);
    return named->key &&
           token_load_key(load, named->key, "agent-sandbox-v2", &kid, 1, named->fingerprint, why);
}

static bool read_keys(const struct token_load *load, const char *path, struct state *state, struct fail *why)
{
    struct slice text;
    if (!token_load_file(load, path, why) || !file_read_secret(path, FILE_MOST, FILE_READABLE, &text, why))
        return false;
    struct json *doc = json_parse(text, path, 0, (struct json_limits){FILE_MOST, 4}, why);
    const json_node *root = doc ? json_root(doc) : NULL, *list = root ? json_member(root, "keys") : NULL;
    bool good = doc && ((json_count(root) == 1 && list && json_is_array(list) && json_first(list)) ||
                        fail(why, "%s: it is {\"keys\": [...]} with at least one key", path));
    for (const json_node *node = good ? json_first(list) : NULL; good && node; node = json_next(node))
        good = read_key(load, path, node, state, why);
    json_free(doc);
    file_free(text);
    return good;
}

static bool v2_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                    struct fail *why)
{
    struct options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why) &&
                read_keys(load, o.keys_file, state, why);
    state->max_ttl = o.max_ttl / OPTION_SECOND;
    options_free(options, OPTION_COUNT, &o);
    if (good)
        entry->state = state;
    else
        v2_release(state);
    return good;
}

/* ---- claims ---- */

static bool v2_recognises(struct slice token)
{
    return slice_starts(token, PREFIX);
}

static bool is_method(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.at[i] >= 'A' && s.at[i] <= 'Z') && !(s.at[i] >= '0' && s.at[i] <= '9') && s.at[i] != '-')
            return false;
    return s.len > 0 && s.len <= METHOD_MOST;
}

static bool is_printable(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.at[i] <= ' ' || s.at[i] >= 0x7f)
            return false;
    return s.len > 0;
}

static struct slice keep(struct writer *text, struct slice s)
{
    size_t start = text->len;
    writer_put(text, s);
    return slice_of(text->at + start, text->len - start);
}

/* Reads the claims that version 1 does not have. Texts are copied, because the claims are freed with their document. */
static bool read_scope(const struct token_check *check, const struct json *doc, struct grant *grant)
{
    const json_node *root = json_root(doc);
    struct writer *text = check->text;
    struct slice uid, method, path;
    int64_t port;
    if (!json_text(json_member(root, "uid"), &uid) || !is_printable(uid) || uid.len > UID_MOST ||
        !json_text(json_member(root, "method"), &method) || !is_method(method) ||
        !json_text(json_member(root, "path"), &path) || !is_printable(path) || path.at[0] != '/' ||
        !json_int(doc, json_member(root, "port"), 1, 65535, &port))
        return false;
    grant->uid = keep(text, uid);
    grant->method = keep(text, method);
    grant->path = keep(text, path);
    size_t start = text->len;
    grant_put_port(text, (uint16_t)port);
    grant->ports = slice_of(text->at + start, text->len - start);
    grant->bind = true;
    return !text->full;
}

/* ---- checking ---- */

/* Finds the first entry with a key of that name. It alone decides: no other key of that name is tried. */
static const struct named_key *find_key(const struct token_check *check, struct slice kid,
                                        const struct state **state)
{
    for (size_t i = 0; i < check->count; i++) {
        if (check->entries[i].kind != &token_kind_agent_sandbox_v2)
            continue;
        *state = check->entries[i].state;
        const struct named_key *key = key_named(*state, kid);
        if (key)
            return key;
    }
    return NULL;
}

struct parts {
    struct slice kid, encoded, payload, signature;
};

static bool take_apart(struct slice token, struct parts *p, struct writer *payload, struct writer *signature)
{
    struct slice rest = slice_from(token, sizeof(PREFIX) - 1);
    if (!slice_split(&rest, '.', &p->kid) || !slice_split(&rest, '.', &p->encoded) || !slice_present(rest) ||
        !is_kid(p->kid) || !base64url_decode(p->encoded, payload) || !base64url_decode(rest, signature))
        return false;
    p->payload = writer_slice(payload);
    p->signature = writer_slice(signature);
    return p->signature.len == KEY_SIGNATURE;
}

static enum refusal v2_check(const struct token_check *check, struct grant *grant, const char **reason)
{
    uint8_t raw[KEY_SIGNATURE], memory[PAYLOAD], signed_text[sizeof(CONTEXT) + KID_MOST + 2 * PAYLOAD];
    struct writer signature = writer_of(raw, sizeof(raw)), payload = writer_of(memory, sizeof(memory)),
                  data = writer_of(signed_text, sizeof(signed_text));
    const struct state *state = NULL;
    struct parts p;
    *reason = "it is not v2.KID.PAYLOAD.SIGNATURE in base64url";
    if (!take_apart(check->credential->token, &p, &payload, &signature))
        return REFUSAL_token_invalid;
    const struct named_key *key = find_key(check, p.kid, &state);
    *reason = "there is no key of its kid";
    if (!key)
        return REFUSAL_token_invalid;
    /* the signature is over the context, KID and P as they are written, which are shorter than the room for them */
    writer_text(&data, CONTEXT);
    writer_put(&data, p.kid);
    writer_u8(&data, '.');
    writer_put(&data, p.encoded);
    enum key_result result = key_verify(key->key, writer_slice(&data), p.signature);
    *reason = result == KEY_MEMORY ? "out of memory" : "its signature is not that of the key";
    if (result != KEY_GOOD)
        return result == KEY_MEMORY ? REFUSAL_agent_unavailable : REFUSAL_token_invalid;
    grant->ours = true;
    grant->kid = slice_text(key->kid);
    grant->key = slice_of(key->fingerprint, KEY_FINGERPRINT);
    enum refusal refusal = scoped_token_read(check, p.payload, read_scope, grant, reason);
    return refusal == REFUSAL_NONE ? token_check_lifetime(check, state->max_ttl, grant, reason) : refusal;
}

/* ---- minting ---- */

static bool v2_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                    struct fail *why)
{
    (void)entry, (void)grant, (void)w;
    return fail(why, "agent-sandbox-v2: its controller makes them, with a key that the gate does not have");
}

const struct token_kind token_kind_agent_sandbox_v2 = {.name = "agent-sandbox-v2",
                                                       .options = options,
                                                       .options_count = OPTION_COUNT,
                                                       .sources = SOURCES_GENERAL,
                                                       .load = v2_load,
                                                       .release = v2_release,
                                                       .recognises = v2_recognises,
                                                       .check = v2_check,
                                                       .mint = v2_mint};
