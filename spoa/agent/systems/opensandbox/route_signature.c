/* SPDX-License-Identifier: MIT */
/*
 * The kind `opensandbox-route` of token/kind.h: the signed routes of OpenSandbox's ingress, as a label
 * ID-PORT-EXPIRES-SIGNATURE or a path /ID/PORT/EXPIRES/SIGNATURE/...
 *
 *     canonical = "v1\nshort\n" ID "\n" PORT "\n" EXPIRES "\n"       EXPIRES: Unix seconds in base 36
 *     signature = the first 8 hex digits of SHA-256(len(secret) secret len(canonical) canonical), lengths
 *                 in 4 bytes, big-endian; then the key's id, one of [0-9a-z]
 *
 * Good for that port of that sandbox, through the second of EXPIRES. Fleets have routes without an end, as a header's whole value
 * or the first segment of a path, `f1.NS64.ID64.PORT.KEY.MAC`: an entry with `fleets` takes them.
 *
 *     MAC = the first 16 bytes of HMAC-SHA256 over "opensandbox-fleets-route-v1\n" NS "\n" ID "\n" PORT "\n", in base64url
 *
 * Such a route names the sandbox, not its caller, so it opens sandboxes without an access secret only.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "spoa/agent/token/secret.h"
#include "spoa/base/text/base64url.h"

#define KID "opensandbox-route:" /* before the key's id, so that it is no other kind's kid */

enum { KEYS = 36, DIGITS = 13, HEX = 8, NAME = 640, MAC = 16 };
enum { LIFE = 60 }; /* seconds after which a route without an end is checked again */

struct options {
    char *kind;
    const json_node *keys;
    int64_t min_secret, max_ttl;
    bool bind, fleets;
};

struct secret {
    uint8_t fingerprint[KEY_FINGERPRINT];
    size_t len; /* bytes of the secret; 0 if there is no such key */
    uint8_t at[TOKEN_SECRET];
};

struct state {
    struct secret *key[KEYS]; /* indexed by the digit that is the key's id */
    int64_t max_ttl;          /* seconds; 0 if there is no limit */
    bool bind, fleets;
};

/* ---- base 36 ---- */

static const char base36[] = "0123456789abcdefghijklmnopqrstuvwxyz";

/* Returns the digit's value, or -1. */
static int digit_of(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : -1;
}

/* Reads a number of at most 64 bits, without a leading zero. */
static bool read_base36(struct slice text, uint64_t *value)
{
    *value = 0;
    if (text.len == 0 || text.len > DIGITS || (text.at[0] == '0' && text.len > 1))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.at[i]);
        if (digit < 0 || __builtin_mul_overflow(*value, 36u, value) ||
            __builtin_add_overflow(*value, (unsigned)digit, value))
            return false;
    }
    return true;
}

static void write_base36(uint64_t value, struct writer *w)
{
    char text[DIGITS];
    size_t at = sizeof(text);
    do
        text[--at] = base36[value % 36];
    while ((value /= 36));
    writer_put(w, slice_of(text + at, sizeof(text) - at));
}

/* ---- the configuration ---- */

#define FIELD(name) offsetof(struct options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`opensandbox-route`", .max = 32},
    {"keys", OPTION_NODE, FIELD(keys), NULL,
     .help = "the ingress's keys by id, `{\"a\": \"a.key\"}`, each in padded base64",
     .form = "an object of paths"},
    {"min_secret", OPTION_INT, FIELD(min_secret), "32", .help = "least bytes", .min = 1, .max = TOKEN_SECRET},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), OPTION_NONE,
     .help = "longer-lived routes are refused; not set: any `not_before` refuses all", .min = OPTION_SECOND,
     .max = 3650 * OPTION_DAY},
    {"bind", OPTION_BOOL, FIELD(bind), "true", .help = "a relayed tunnel ends with its route"},
    {"fleets", OPTION_BOOL, FIELD(fleets), "false",
     .help = "take fleets' routes (`f1.`), which have no end, for sandboxes without an access secret"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static void opensandbox_route_release(void *pointer)
{
    struct state *state = pointer;
    for (size_t i = 0; i < KEYS; i++)
        if (state->key[i]) {
            OPENSSL_cleanse(state->key[i], sizeof(*state->key[i]));
            free(state->key[i]);
        }
    free(state);
}

/* Writes a path relative to the configuration's folder, like all paths. */
static bool write_path(const struct token_load *load, const json_node *node, struct writer *w)
{
    struct slice path;
    if (!json_text(node, &path) || path.len == 0)
        return false;
    if (load->base_dir && path.at[0] != '/') {
        writer_text(w, load->base_dir);
        writer_u8(w, '/');
    }
    writer_put(w, path);
    writer_u8(w, '\0');
    return !w->full;
}

static bool mark_key(const struct token_load *load, struct secret *secret, struct slice id, struct fail *why)
{
    struct key *key = key_secret(slice_of(secret->at, secret->len), 1, "keys", why);
    bool good = key && token_load_key(load, key, "opensandbox-route", &id, 1, secret->fingerprint, why);
    key_free(key);
    return good;
}

static bool load_key(const struct token_load *load, const json_node *node, const struct options *o,
                     struct state *state, struct fail *why)
{
    char path[4096];
    struct writer name = writer_of(path, sizeof(path));
    struct slice id = slice_text(json_key(node));
    int digit = id.len == 1 ? digit_of(id.at[0]) : -1;
    if (digit < 0)
        return json_fail(load->doc, node, why, "keys: the id of a key is one of 0-9 and a-z");
    if (!write_path(load, node, &name))
        return json_fail(load->doc, node, why, "keys: not the path of a file");
    struct secret *secret = state->key[digit] = calloc(1, sizeof(*secret));
    if (!secret)
        return fail(why, "out of memory");
    struct writer w = writer_of(secret->at, sizeof(secret->at));
    bool good = token_secret_base64(load, path, (size_t)o->min_secret, &w, why);
    secret->len = w.len;
    return good && mark_key(load, secret, id, why);
}

static bool load_keys(const struct token_load *load, const json_node *node, const struct options *o,
                      struct state *state, struct fail *why)
{
    if (!json_is_object(o->keys) || !json_first(o->keys))
        return json_fail(load->doc, node, why, "keys is an object of at least one path");
    for (const json_node *key = json_first(o->keys); key; key = json_next(key))
        if (!load_key(load, key, o, state, why))
            return false;
    return true;
}

static bool opensandbox_route_load(const struct token_load *load, const json_node *node,
                                   struct token_entry *entry, struct fail *why)
{
    struct options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why) &&
                load_keys(load, node, &o, state, why);
    state->max_ttl = o.max_ttl / OPTION_SECOND;
    state->bind = o.bind;
    state->fleets = o.fleets;
    options_free(options, OPTION_COUNT, &o);
    if (!good) {
        opensandbox_route_release(state);
        return false;
    }
    entry->state = state;
    return true;
}

static const struct secret *key_of(const struct token_entry *entry, uint8_t id)
{
    int digit = digit_of(id);
    if (entry->kind != &token_kind_opensandbox_route || digit < 0)
        return NULL;
    return ((const struct state *)entry->state)->key[digit];
}

static bool opensandbox_route_admits(const struct token_entry *entry, const struct token_tunnel *tunnel)
{
    const struct slice kid = tunnel->kid;
    return slice_starts(kid, KID) && kid.len == sizeof(KID) && key_of(entry, kid.at[kid.len - 1]);
}

/* ---- the signature ---- */

/* All values that the signature covers. */
struct route {
    struct slice sandbox, expires;
    uint16_t port;
};

/* Returns false if the name is too long, or memory is short. */
static bool sign(const struct secret *secret, const struct route *route, uint8_t digits[HEX])
{
    uint8_t text[NAME], memory[TOKEN_SECRET + NAME + 8], digest[SHA256_DIGEST_LENGTH];
    struct writer canonical = writer_of(text, sizeof(text)), inner = writer_of(memory, sizeof(memory));
    writer_text(&canonical, "v1\nshort\n");
    writer_put(&canonical, route->sandbox);
    writer_printf(&canonical, "\n%u\n", route->port);
    writer_put(&canonical, route->expires);
    writer_u8(&canonical, '\n');
    writer_be(&inner, secret->len, 4);
    writer_put(&inner, slice_of(secret->at, secret->len));
    writer_be(&inner, canonical.len, 4);
    writer_put(&inner, writer_slice(&canonical));
    bool good = !canonical.full && !inner.full && SHA256(memory, inner.len, digest);
    for (size_t i = 0; good && i < HEX; i++)
        digits[i] = (uint8_t)base36[i % 2 ? digest[i / 2] & 15 : digest[i / 2] >> 4];
    OPENSSL_cleanse(memory, inner.len);
    return good;
}

/* ---- checking ---- */

static bool opensandbox_route_recognises(struct slice token)
{
    (void)token; /* the source alone decides */
    return true;
}

static const struct token_entry *entry_with(const struct token_check *check, uint8_t id)
{
    for (size_t i = 0; i < check->count; i++)
        if (key_of(&check->entries[i], id))
            return &check->entries[i];
    return NULL;
}

static void fill_grant(const struct token_check *check, const struct secret *secret, uint8_t id,
                       struct grant *grant)
{
    const struct writer *text = check->text;
    writer_text(check->text, KID);
    writer_u8(check->text, id);
    grant->kid = writer_slice(text);
    grant->key = slice_of(secret->fingerprint, KEY_FINGERPRINT);
    grant_put_port(check->text, check->credential->port);
    grant->ports = slice_from(writer_slice(text), grant->kid.len);
    grant->sandbox = check->credential->sandbox;
    grant->needs = NEED_HTTP;
    grant->leeway = 1;
}

/* Limits a time to a value that is exact, and later than any real one. */
static int64_t bounded(uint64_t seconds)
{
    const uint64_t most = (uint64_t)1 << 53;
    return (int64_t)(seconds < most ? seconds : most);
}

/* ---- fleets ---- */

static bool sign_scope(const struct secret *secret, const struct credential *c, uint8_t mac[EVP_MAX_MD_SIZE])
{
    uint8_t text[NAME];
    struct writer canonical = writer_of(text, sizeof(text));
    size_t slash = slice_find(c->sandbox, '/');
    bool spaced = slash < c->sandbox.len;
    unsigned len = 0;
    writer_text(&canonical, "opensandbox-fleets-route-v1\n");
    writer_put(&canonical, spaced ? slice_sub(c->sandbox, 0, slash) : SLICE_LITERAL("default"));
    writer_u8(&canonical, '\n');
    writer_put(&canonical, spaced ? slice_from(c->sandbox, slash + 1) : c->sandbox);
    writer_printf(&canonical, "\n%u\n", c->port);
    return !canonical.full &&
           HMAC(EVP_sha256(), secret->at, (int)secret->len, canonical.at, canonical.len, mac, &len) &&
           len >= MAC;
}

static enum refusal check_scope(const struct token_check *check, struct grant *grant, const char **reason)
{
    const struct credential *c = check->credential;
    uint8_t wanted[EVP_MAX_MD_SIZE] = {0}, said[MAC];
    struct writer mac = writer_of(said, sizeof(said));
    uint8_t id = c->key_id.at[0];
    const struct token_entry *entry = entry_with(check, id);
    *reason = "there is no key of its id, or its entry takes no routes of fleets";
    if (!entry || !((const struct state *)entry->state)->fleets)
        return REFUSAL_token_invalid;
    const struct secret *secret = key_of(entry, id);
    *reason = "its MAC is not that of the key, or for another sandbox or port";
    if (!base64url_decode(c->token, &mac) || mac.len != MAC || !sign_scope(secret, c, wanted) ||
        !slice_equal_constant_time(slice_of(wanted, MAC), slice_of(said, MAC)))
        return REFUSAL_token_invalid;
    fill_grant(check, secret, id, grant);
    grant->without_secret = true;
    grant->exp = check->now + LIFE;
    return token_check_lifetime(check, 0, grant, reason);
}

/* ---- signatures ---- */

static enum refusal opensandbox_route_check(const struct token_check *check, struct grant *grant,
                                            const char **reason)
{
    const struct credential *c = check->credential;
    const struct route route = {c->sandbox, c->expires, c->port};
    uint8_t digits[HEX] = {0};
    uint64_t expires;
    if (slice_present(c->key_id))
        return check_scope(check, grant, reason);
    if (c->token.len != HEX + 1 || !read_base36(c->expires, &expires)) {
        *reason = "its expiry or its signature is malformed";
        return REFUSAL_bad_request;
    }
    uint8_t id = c->token.at[HEX];
    const struct token_entry *entry = entry_with(check, id);
    *reason = "there is no key of its id";
    if (!entry)
        return REFUSAL_token_invalid;
    const struct secret *secret = key_of(entry, id);
    if (!sign(secret, &route, digits)) {
        *reason = "out of memory";
        return REFUSAL_agent_unavailable;
    }
    *reason = "its signature is not that of the key, or for another sandbox, port or expiry";
    if (!slice_equal_constant_time(slice_of(digits, HEX), slice_sub(c->token, 0, HEX)))
        return REFUSAL_token_invalid;
    fill_grant(check, secret, id, grant);
    grant->exp = bounded(expires);
    grant->bind = ((const struct state *)entry->state)->bind;
    return token_check_lifetime(check, ((const struct state *)entry->state)->max_ttl, grant, reason);
}

/* ---- minting ---- */

static bool opensandbox_route_mint(const struct token_entry *entry, const struct grant *grant,
                                   struct writer *w, struct fail *why)
{
    const struct state *state = entry->state;
    uint8_t memory[DIGITS], digits[HEX], id = 0;
    struct writer expires = writer_of(memory, sizeof(memory));
    struct route route = {.sandbox = grant->sandbox};
    uint16_t more;
    while (id < KEYS && !state->key[id])
        id++;
    if (!grant_port(grant, 0, &route.port) || grant_port(grant, 1, &more))
        return fail(why, "opensandbox-route: it must be said for which port, and for one only");
    if (slice_present(grant->org) || slice_find(grant->sandbox, '/') < grant->sandbox.len)
        return fail(why, "opensandbox-route: its signatures cannot say org or a namespace");
    if (!token_secret_lives(state->max_ttl, grant, why))
        return false;
    write_base36((uint64_t)grant->exp, &expires);
    route.expires = writer_slice(&expires);
    if (!sign(state->key[id], &route, digits))
        return fail(why, "the route cannot be signed");
    writer_put(w, grant->sandbox);
    writer_printf(w, "-%u-", route.port);
    writer_put(w, route.expires);
    writer_u8(w, '-');
    writer_put(w, slice_of(digits, HEX));
    writer_u8(w, (uint8_t)base36[id]);
    return !w->full || fail(why, "the route would be too long");
}

const struct token_kind token_kind_opensandbox_route = {.form = TOKEN_IS_LABEL,
                                                        .name = "opensandbox-route",
                                                        .options = options,
                                                        .options_count = OPTION_COUNT,
                                                        .sources = SOURCE_BIT(SIGNATURE),
                                                        .load = opensandbox_route_load,
                                                        .release = opensandbox_route_release,
                                                        .recognises = opensandbox_route_recognises,
                                                        .check = opensandbox_route_check,
                                                        .mint = opensandbox_route_mint,
                                                        .admits = opensandbox_route_admits};
