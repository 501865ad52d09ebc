/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token_static.h"

#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "spoa/agent/token.h"

#define KID    "static:" /* and 8 hex digits that change when the secret does */
#define PUBLIC KID "public"

/* A cookie lasts as long; the secret is looked at each time all the same. */
enum { LIFE = 86400, HEX = 2 * SHA256_DIGEST_LENGTH, MARK = 8, SECRET = 32 };

struct options {
    char *kind;
    struct option_texts carriers, need;
    bool public;
};

struct state {
    unsigned needs;
    bool public;
};

/* ---- the configuration ---- */

/* All but those that carry a signature. */
#define CARRIERS_ALL (((1u << CARRIER_COUNT) - 2) & ~(CARRIER_BIT(SIGNATURE) | CARRIER_BIT(FILE_URL)))

static unsigned carrier_bit(struct slice name)
{
    for (enum carrier c = CARRIER_NONE + 1; c < CARRIER_COUNT; c++)
        if (slice_equal_nocase(name, slice_text(carrier_text(c))))
            return 1u << c & CARRIERS_ALL;
    return 0;
}

static const char *check_carrier(struct slice value)
{
    return carrier_bit(value) ? NULL
                              : "OpenSandbox-Secure-Access, X-OC-Preview-Token, X-Daytona-Preview-Token, "
                                "e2b-traffic-access-token, label, authorization, subprotocol, query, "
                                "DAYTONA_SANDBOX_AUTH_KEY or cookie";
}

static const char *check_need(struct slice value)
{
    return need_of(value) ? NULL : "pty, exec, agent, http, mux or egress";
}

#define FIELD(name) offsetof(struct options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`static`", .max = 16},
    {"carriers", OPTION_TEXTS, FIELD(carriers), OPTION_NONE,
     .help = "where the secret may be: names of headers, and of what else carries tokens; none: all of them",
     .max = CARRIER_COUNT, .check = check_carrier},
    {"need", OPTION_TEXTS, FIELD(need), OPTION_NONE, .help = "what it grants; none: `http`", .max = 6,
     .check = check_need},
    {"public", OPTION_BOOL, FIELD(public), "false",
     .help = "a sandbox whose record has no access secret is open to everybody, for `need`"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static unsigned all_carriers(const struct option_texts *names)
{
    unsigned bits = 0;
    for (size_t i = 0; i < names->count; i++)
        bits |= carrier_bit(slice_text(names->at[i]));
    return names->count ? bits : CARRIERS_ALL;
}

static unsigned all_needs(const struct option_texts *words)
{
    unsigned bits = 0;
    for (size_t i = 0; i < words->count; i++)
        bits |= need_of(slice_text(words->at[i]));
    return words->count ? bits : NEED_HTTP;
}

static bool load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                 struct fail *why)
{
    struct options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why);
    if (good) {
        *state = (struct state){.needs = all_needs(&o.need), .public = o.public};
        entry->carriers = all_carriers(&o.carriers);
        entry->state = state;
    }
    options_free(options, OPTION_COUNT, &o);
    if (!good)
        free(state);
    return good;
}

/* ---- checking ---- */

static bool recognises(struct slice token)
{
    (void)token; /* a secret has any form */
    return true;
}

bool token_static_digest(struct slice data, struct writer *w)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    if (!SHA256(data.at, data.len, digest))
        return false;
    for (size_t i = 0; i < sizeof(digest); i++)
        writer_printf(w, "%02x", digest[i]);
    return true;
}

/* Of a digest: says of two whether they are the same, and nothing about the secret. */
static bool write_mark(struct slice digest, struct writer *w)
{
    uint8_t memory[sizeof(KID) + HEX], mark[HEX + 1];
    struct writer text = writer_of(memory, sizeof(memory)), hex = writer_of(mark, sizeof(mark));
    writer_text(&text, KID);
    writer_put(&text, digest);
    if (!token_static_digest(writer_slice(&text), &hex))
        return false;
    writer_text(w, KID);
    writer_put(w, slice_of(mark, MARK));
    return true;
}

static void fill(const struct token_check *check, const struct token_entry *entry, struct grant *grant)
{
    grant->sandbox = check->credential->sandbox;
    grant->needs = ((const struct state *)entry->state)->needs;
    grant->iat = check->now;
    grant->exp = check->now + LIFE;
}

static enum refusal check(const struct token_check *check, struct grant *grant, const char **reason)
{
    const struct token_entry *entry = check->entries;
    while (entry->kind != &token_kind_static || !(entry->carriers & 1u << check->credential->carrier))
        entry++; /* there is one, or this kind would not have been asked */
    *reason = "out of memory";
    if (!token_static_digest(check->credential->token, check->text))
        return REFUSAL_agent_unavailable;
    grant->secret_sha256 = writer_slice(check->text);
    if (!write_mark(grant->secret_sha256, check->text))
        return REFUSAL_agent_unavailable;
    grant->kid = slice_from(writer_slice(check->text), HEX);
    fill(check, entry, grant);
    return REFUSAL_NONE;
}

bool token_static_public(const struct token_check *check, struct grant *grant)
{
    for (size_t i = 0; i < check->count; i++) {
        const struct token_entry *entry = &check->entries[i];
        if (entry->kind != &token_kind_static || !((const struct state *)entry->state)->public)
            continue;
        fill(check, entry, grant);
        grant->kind = entry->kind->name;
        grant->kid = SLICE_LITERAL(PUBLIC);
        grant->without_secret = true;
        return true;
    }
    return false;
}

bool token_static_stands(struct slice kid, const struct record *record)
{
    uint8_t memory[sizeof(KID) + MARK];
    struct writer mark = writer_of(memory, sizeof(memory));
    if (!slice_starts(kid, KID))
        return true;
    if (slice_is(kid, PUBLIC))
        return !slice_present(record->access_sha256);
    return slice_present(record->access_sha256) && write_mark(record->access_sha256, &mark) &&
           slice_equal(kid, writer_slice(&mark));
}

static bool has_kid(const struct token_entry *entry, struct slice kid)
{
    return slice_is(kid, PUBLIC) ? ((const struct state *)entry->state)->public : slice_starts(kid, KID);
}

/* ---- making one ---- */

/* A new secret, of characters that can stand in a host's label. It grants nothing until a record holds its
 * SHA-256. */
static bool mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                 struct fail *why)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint8_t random[SECRET];
    (void)entry, (void)grant;
    if (RAND_bytes(random, sizeof(random)) != 1)
        return fail(why, "no randomness");
    for (size_t i = 0; i < sizeof(random); i++)
        writer_u8(w, (uint8_t)letters[random[i] % 32]);
    return !w->full;
}

const struct token_kind token_kind_static = {.name = "static",
                                             .options = options,
                                             .options_count = OPTION_COUNT,
                                             .load = load,
                                             .release = free,
                                             .recognises = recognises,
                                             .check = check,
                                             .mint = mint,
                                             .has_kid = has_kid};
