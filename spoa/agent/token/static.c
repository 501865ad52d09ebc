/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/static.h"

#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "spoa/agent/token/scope.h"

#define KID    "static:" /* followed by 8 hex digits that change with the secret */
#define PUBLIC KID "public"

/* Lifetime of a cookie. The secret is checked at each request nevertheless. */
enum { LIFE = 86400, HEX = 2 * SHA256_DIGEST_LENGTH, MARK = 8, SECRET = 32 };

struct options {
    char *kind;
    struct token_scope_options scope;
    struct texts need;
    bool public, everywhere;
};

struct state {
    unsigned needs;
    bool public, everywhere;
    struct token_scope scope;   /* if it has no systems and routes, each source is valid for its own system */
    unsigned public_by;         /* unbound: mask of the sources whose systems are public */
    unsigned own[SYSTEM_COUNT]; /* sources that only clients of this system use */
};

/* ---- the configuration ---- */

static unsigned sources_of_system(enum system system)
{
    unsigned sources = 0;
    for (const char *const *name = profile_of(system)->sources; *name; name++)
        for (enum credential_source c = SOURCE_NONE + 1; c < SOURCE_COUNT; c++)
            sources |= strcmp(*name, credential_source_text(c)) == 0 ? 1u << c : 0;
    return sources;
}

static const char *check_need(struct slice value)
{
    return need_of(value) ? NULL : "pty, exec, agent, http, mux or egress";
}

#define FIELD(name) offsetof(struct options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`static`", .max = 16},
    {TOKEN_SCOPE_SOURCES, OPTION_TEXTS, FIELD(scope.sources), OPTION_NONE,
     .help = "where the secret may stand: headers, `?NAME` for query parameters, other sources; not set: "
             "those of systems, "
             "and all if the entry says where it is good",
     .max = SOURCE_COUNT + SOURCES_OWN_MOST, .check = token_scope_check_source,
     .old = TOKEN_SCOPE_SOURCES_OLD},
    {"need", OPTION_TEXTS, FIELD(need), OPTION_NONE, .help = "what it grants; not set: `http`", .max = 6,
     .check = check_need},
    {"systems", OPTION_TEXTS, FIELD(scope.systems), OPTION_NONE,
     .help = "it is good on their routes; not set, nor `routes` or `domains`: its source's system",
     .max = SYSTEM_COUNT, .check = token_scope_check_system},
    {"routes", OPTION_TEXTS, FIELD(scope.routes), OPTION_NONE, .help = "names of routes on which it is good",
     .max = 64},
    {"domains", OPTION_TEXTS, FIELD(scope.domains), OPTION_NONE,
     .help = "domains below which it is good, or `<FORM>` for a host form's; not set: every host", .max = 64,
     .check = token_scope_check_domain},
    {"everywhere", OPTION_BOOL, FIELD(everywhere), "false", .help = "good on every route"},
    {"public", OPTION_BOOL, FIELD(public), "false",
     .help = "sandboxes without access secret are open to everybody, for `need`; with `domains` only on "
             "routes whose `host` "
             "is a pattern"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

/* Refuses an entry without a scope if any source can have its secret or it is public: the operator must name the places such an entry
 * opens. */
static bool check_scope(const struct token_load *load, const json_node *node, const struct options *o,
                        unsigned sources, struct fail *why)
{
    bool bound = o->scope.systems.count || o->scope.routes.count || o->scope.domains.count;
    if (bound && o->everywhere)
        return json_fail(load->doc, node, why, "everywhere: not together with systems, routes or domains");
    if (bound || o->everywhere)
        return true;
    if (sources & (SOURCES_GENERAL | SOURCES_OWN))
        return json_fail(
            load->doc, node, why,
            "sources: one of them is of no system: say systems, routes, domains or \"everywhere\": true");
    if (o->public && !sources)
        return json_fail(load->doc, node, why,
                         "public: say for which systems, routes or domains, or \"everywhere\": true");
    return true;
}

static unsigned all_needs(const struct texts *words)
{
    unsigned bits = 0;
    for (size_t i = 0; i < words->count; i++)
        bits |= need_of(slice_text(words->at[i]));
    return words->count ? bits : NEED_HTTP;
}

static void static_release(void *pointer)
{
    struct state *state = pointer;
    token_scope_free(&state->scope);
    free(state);
}

static bool fill_state(const struct token_load *load, struct options *o, unsigned sources,
                       struct token_entry *entry, struct state *state, struct fail *why)
{
    if (!token_scope_take(load, &o->scope, &state->scope, why))
        return false;
    bool bound = token_scope_is_bound(&state->scope);
    state->needs = all_needs(&o->need);
    state->public = o->public;
    state->everywhere = o->everywhere;
    state->public_by = sources;
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++)
        state->own[s] = sources_of_system(s);
    entry->sources = sources                  ? sources
                     : bound || o->everywhere ? SOURCES_BUILT_IN
                                              : SOURCES_BUILT_IN & ~SOURCES_GENERAL;
    entry->state = state;
    return true;
}

static bool read_scope(const struct token_load *load, const json_node *node, struct options *o,
                       struct token_entry *entry, struct state *state, struct fail *why)
{
    struct fail what;
    unsigned sources;
    if (!token_scope_sources(load, &o->scope.sources, &sources, &what))
        return json_fail(load->doc, node, why, "%s", what.text);
    return check_scope(load, node, o, sources, why) && (fill_state(load, o, sources, entry, state, &what) ||
                                                        json_fail(load->doc, node, why, "%s", what.text));
}

static bool static_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                        struct fail *why)
{
    struct options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why) &&
                read_scope(load, node, &o, entry, state, why);
    options_free(options, OPTION_COUNT, &o);
    if (!good)
        static_release(state);
    return good;
}

/* ---- validity in a place ---- */

static unsigned static_sources_at(const struct token_entry *entry, const struct credential_place *place)
{
    const struct state *state = entry->state;
    if (state->everywhere)
        return entry->sources;
    if (token_scope_is_bound(&state->scope))
        return token_scope_has(&state->scope, place) ? entry->sources : 0;
    return entry->sources & state->own[place->system];
}

/* A domain does not open routes by path or header, because there the caller can name any host. */
static bool is_public_at(const struct state *state, const struct credential_place *place)
{
    if (!state->public || !place->route || state->everywhere)
        return state->public;
    if (state->scope.domains.count && !place->by_host)
        return false;
    return token_scope_is_bound(&state->scope) ? token_scope_has(&state->scope, place)
                                               : (state->public_by & state->own[place->system]) != 0;
}

/* ---- checking ---- */

static bool static_recognises(struct slice token)
{
    (void)token; /* a secret has no fixed form */
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

/* Writes a mark of a digest. Equal marks show that the secrets are equal, and reveal nothing else. */
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

static enum refusal static_check(const struct token_check *check, struct grant *grant, const char **reason)
{
    const struct token_entry *entry = check->entries;
    while (entry->kind != &token_kind_static ||
           !(token_entry_sources(entry, &check->credential->place) & 1u << check->credential->source))
        entry++; /* ends, because this kind is only called if there is such an entry */
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
        if (entry->kind != &token_kind_static || !is_public_at(entry->state, &check->credential->place))
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

/* Admits the tunnel for any of the entry's sources, because the tunnel does not hold its source. */
static bool static_admits(const struct token_entry *entry, const struct token_tunnel *tunnel)
{
    const struct state *state = entry->state;
    if (!slice_starts(tunnel->kid, KID) || tunnel->needs & ~state->needs)
        return false;
    return slice_is(tunnel->kid, PUBLIC) ? is_public_at(state, &tunnel->place)
                                         : token_entry_sources(entry, &tunnel->place) != 0;
}

/* ---- minting ---- */

/* Makes a new secret of characters that may be in a host's label. It grants nothing until a record holds its SHA-256. */
static bool static_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
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
                                             .load = static_load,
                                             .release = static_release,
                                             .sources_at = static_sources_at,
                                             .recognises = static_recognises,
                                             .check = static_check,
                                             .mint = static_mint,
                                             .admits = static_admits};
