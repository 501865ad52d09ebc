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

#include "spoa/agent/token/kind.h"
#include "spoa/base/json/json.h"
#include "spoa/base/os/file.h"
#include "spoa/base/text/base64url.h"

#define PREFIX  "v2."
#define CONTEXT "agent-sandbox/scoped-token/v2."

enum {
    PAYLOAD = 2048,
    LABEL = 63,
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
    int64_t max_ttl; /* seconds; 0: any */
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

/* The key becomes a JWK, which key.h reads. */
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
    state->count++; /* v2_release frees it from here on */
    writer_printf(&jwk, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%.*s\"}", SLICE_PRINTF(text));
    named->key = key_pair(writer_slice(&jwk), KEY_EDDSA, KEY_PUBLIC, path, why);
    return named->key &&
           token_load_key(load, named->key, "agent-sandbox-v2", &kid, 1, named->fingerprint, why);
}

static bool read_keys(const struct token_load *load, const char *path, struct state *state, struct fail *why)
{
    struct slice text;
    if (!token_load_file(load, path, why) || !file_read(path, FILE_MOST, &text, why))
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

/* A DNS label, as Kubernetes wants names of namespaces and sandboxes. */
static bool is_label(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.at[i] >= 'a' && s.at[i] <= 'z') && !(s.at[i] >= '0' && s.at[i] <= '9') &&
            !(s.at[i] == '-' && i > 0 && i + 1 < s.len))
            return false;
    return s.len > 0 && s.len <= LABEL;
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

struct claims {
    struct slice space, name, uid, method, path;
    int64_t port, exp;
};

static bool read_claims(const struct json *doc, struct claims *c)
{
    const json_node *root = json_root(doc);
    return json_text(json_member(root, "ns"), &c->space) && is_label(c->space) &&
           json_text(json_member(root, "name"), &c->name) && is_label(c->name) &&
           json_text(json_member(root, "uid"), &c->uid) && is_printable(c->uid) && c->uid.len <= UID_MOST &&
           json_text(json_member(root, "method"), &c->method) && is_method(c->method) &&
           json_text(json_member(root, "path"), &c->path) && is_printable(c->path) && c->path.at[0] == '/' &&
           json_int(doc, json_member(root, "port"), 1, 65535, &c->port) &&
           json_int(doc, json_member(root, "exp"), 0, (int64_t)1 << 53, &c->exp);
}

static struct slice keep(struct writer *text, struct slice s)
{
    size_t start = text->len;
    writer_put(text, s);
    return slice_of(text->at + start, text->len - start);
}

/* What the claims grant. Texts are copied, since the claims go with their document. */
static bool fill(const struct token_check *check, const struct claims *c, struct grant *grant)
{
    struct writer *text = check->text;
    size_t start = text->len;
    if (!slice_is(c->space, "default")) {
        writer_put(text, c->space);
        writer_u8(text, '/');
    }
    writer_put(text, c->name);
    grant->sandbox = slice_of(text->at + start, text->len - start);
    grant->uid = keep(text, c->uid);
    grant->method = keep(text, c->method);
    grant->path = keep(text, c->path);
    start = text->len;
    grant_put_port(text, (uint16_t)c->port);
    grant->ports = slice_of(text->at + start, text->len - start);
    grant->exp = c->exp;
    grant->needs = NEED_UNSAID;
    grant->in_place = grant->bind = true;
    return !text->full;
}

static enum refusal check_claims(const struct token_check *check, struct slice payload, struct grant *grant,
                                 const char **reason)
{
    struct fail why;
    struct claims claims;
    struct json *doc = json_parse(payload, "token", 0, (struct json_limits){PAYLOAD, 4}, &why);
    bool short_of_memory = !doc && fail_of_memory(&why);
    bool good = doc && read_claims(doc, &claims) && fill(check, &claims, grant);
    json_free(doc);
    *reason = short_of_memory ? "out of memory" : "a claim is missing or not what it should be";
    if (short_of_memory)
        return REFUSAL_agent_unavailable;
    return good ? REFUSAL_NONE : REFUSAL_token_invalid;
}

/* ---- checking ---- */

/* The first entry with a key of that name decides: there is no second chance. */
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
    enum refusal refusal = check_claims(check, p.payload, grant, reason);
    return refusal == REFUSAL_NONE ? token_check_lifetime(check, state->max_ttl, grant, reason) : refusal;
}

/* ---- making one ---- */

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
