/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/jwt_claims.h"

#include "spoa/agent/token/jws.h"
#include "spoa/base/json/json.h"

#define EXACT ((int64_t)1 << 53) /* JSON readers disagree on larger integers (RFC 8259 section 6) */
#define DEPTH 8

static const char *const claim_names[JWT_CLAIM_COUNT] = {
#define X(id, name) [JWT_##id] = (name),
    JWT_CLAIMS(X)
#undef X
};

enum jwt_claim jwt_claim_of(struct slice name)
{
    enum jwt_claim claim = 0;
    while (claim < JWT_CLAIM_COUNT && !slice_is(name, claim_names[claim]))
        claim++;
    return claim;
}

const char *jwt_claim_name(enum jwt_claim claim)
{
    return claim_names[claim];
}

/* ---- reading ---- */

struct reading {
    const struct jwt_rules *rules;
    const struct json *doc;
    int64_t now;
    struct writer *text;
    struct grant *grant;
    const char **reason;
};

static enum refusal refuse_claims(const struct reading *r, enum refusal refusal, const char *text)
{
    *r->reason = text;
    return refusal;
}

static enum refusal invalid(const struct reading *r, const char *text)
{
    return refuse_claims(r, REFUSAL_token_invalid, text);
}

static const json_node *claim(const struct reading *r, enum jwt_claim which)
{
    return json_member(json_root(r->doc), r->rules->name[which]);
}

/* Copies a string claim; an absent claim stays absent. Empty strings and control characters are refused: no claim needs them, and some
 * claims go into logs and headers. */
static bool take_text(struct reading *r, enum jwt_claim which, struct slice *value)
{
    const json_node *node = claim(r, which);
    struct slice text;
    *value = (struct slice){NULL, 0};
    if (!node)
        return true;
    if (!json_text(node, &text) || text.len == 0)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] < ' ' || text.at[i] == 0x7f)
            return false;
    *value = slice_of(r->text->at + r->text->len, text.len);
    writer_put(r->text, text);
    return !r->text->full;
}

/* Reads a NumericDate (RFC 7519 section 2), which may have a fraction. Rounding down ensures that no token lives longer than its exp,
 * and that a token is valid in the second in which it was issued. */
static bool take_time(const struct reading *r, enum jwt_claim which, int64_t absent, int64_t *value)
{
    const json_node *node = claim(r, which);
    *value = absent;
    return !node || json_seconds(r->doc, node, EXACT, value);
}

static enum refusal take_needs(struct reading *r)
{
    const json_node *list = claim(r, JWT_NEED);
    struct slice word;
    r->grant->needs = list ? 0 : NEED_UNSAID;
    if (list && !json_is_array(list))
        return invalid(r, "need is not an array");
    for (const json_node *node = list ? json_first(list) : NULL; node; node = json_next(node)) {
        if (!json_text(node, &word))
            return invalid(r, "need holds something that is not a string");
        /* An unknown word, of a later version, grants nothing. */
        r->grant->needs |= need_of(word);
    }
    return REFUSAL_NONE;
}

static enum refusal take_ports(struct reading *r)
{
    const json_node *list = claim(r, JWT_PORTS);
    const uint8_t *at = r->text->at + r->text->len;
    int64_t port;
    if (!list)
        return REFUSAL_NONE;
    if (!json_is_array(list))
        return invalid(r, "ports is not an array");
    for (const json_node *node = json_first(list); node; node = json_next(node)) {
        if (!json_int(r->doc, node, 1, 65535, &port))
            return invalid(r, "ports holds something that is not a port");
        grant_put_port(r->text, (uint16_t)port);
    }
    if (r->text->full)
        return invalid(r, "too many ports");
    r->grant->ports = slice_of(at, (size_t)(r->text->at + r->text->len - at));
    return REFUSAL_NONE;
}

static enum refusal judge_issuer(const struct reading *r)
{
    const json_node *node = claim(r, JWT_ISS);
    struct slice issuer;
    if (node && !json_text(node, &issuer))
        return invalid(r, "the issuer is not a string");
    if (r->rules->issuer && (!node || !slice_is(issuer, r->rules->issuer)))
        return invalid(r, "the issuer is not the one configured");
    return REFUSAL_NONE;
}

static enum refusal judge_audience(const struct reading *r)
{
    const json_node *aud = claim(r, JWT_AUD);
    const char *wanted = r->rules->audience ? r->rules->audience : r->rules->cell;
    struct slice text;
    bool named = false;
    if (json_text(aud, &text))
        named = slice_is(text, wanted);
    else if (!json_is_array(aud))
        return invalid(r, "the audience is neither a string nor an array");
    else
        for (const json_node *node = json_first(aud); node; node = json_next(node)) {
            if (!json_text(node, &text))
                return invalid(r, "the audience holds something that is not a string");
            named = named || slice_is(text, wanted);
        }
    return named ? REFUSAL_NONE : refuse_claims(r, REFUSAL_wrong_cell, "the audience is another one");
}

static enum refusal judge_cell(const struct reading *r)
{
    const json_node *aud = claim(r, JWT_AUD), *cell = claim(r, JWT_CELL);
    struct slice text;
    if (!aud && (r->rules->audience || !cell))
        return invalid(r, "it does not say for which cell it is");
    enum refusal refusal = aud ? judge_audience(r) : REFUSAL_NONE;
    if (refusal != REFUSAL_NONE || !cell)
        return refusal;
    if (!json_text(cell, &text))
        return invalid(r, "the cell is not a string");
    return slice_is(text, r->rules->cell) ? REFUSAL_NONE
                                          : refuse_claims(r, REFUSAL_wrong_cell, "the cell is another one");
}

static enum refusal judge_times(const struct reading *r)
{
    const struct grant *g = r->grant;
    int64_t nbf, leeway = r->rules->leeway, issued = g->iat >= 0 ? g->iat : r->now + leeway;
    if (!take_time(r, JWT_NBF, 0, &nbf))
        return invalid(r, "nbf is no number of seconds");
    if (g->exp < g->iat)
        return invalid(r, "it expires before it is issued");
    if (g->exp - issued > r->rules->max_ttl)
        return invalid(r, "it lives longer than max_ttl");
    if (g->iat > r->now + leeway)
        return invalid(r, "it is issued in the future");
    if (nbf > r->now + leeway)
        return invalid(r, "it is not valid yet");
    if (r->now >= g->exp + leeway)
        return refuse_claims(r, REFUSAL_token_expired, "it has expired");
    return REFUSAL_NONE;
}

static enum refusal take_all(struct reading *r)
{
    struct grant *g = r->grant;
    if (!json_is_object(json_root(r->doc)))
        return invalid(r, "the payload is not a JSON object");
    if (!take_time(r, JWT_EXP, -1, &g->exp) || g->exp < 0)
        return invalid(r, "exp is missing or no number of seconds");
    if (!take_time(r, JWT_IAT, -1, &g->iat))
        return invalid(r, "iat is no number of seconds");
    if (!take_text(r, JWT_SUB, &g->sub) || !take_text(r, JWT_ORG, &g->org) ||
        !take_text(r, JWT_SANDBOX, &g->sandbox) || !take_text(r, JWT_JTI, &g->jti))
        return invalid(r, "sub, org, sandbox or jti is not a string that could be one");
    if (g->jti.len > GRANT_JTI_MOST)
        return invalid(r, "the jti is longer than 256 bytes");
    if (!slice_present(g->org) && (!slice_present(g->sandbox) || slice_is(g->sandbox, "*")))
        return invalid(r, "it names neither a sandbox nor an organisation");
    enum refusal refusal = take_needs(r);
    return refusal == REFUSAL_NONE ? take_ports(r) : refusal;
}

typedef enum refusal judge_step(const struct reading *r);

static enum refusal judge_claims(struct reading *r)
{
    static judge_step *const steps[] = {judge_issuer, judge_cell, judge_times};
    enum refusal refusal = take_all(r);
    for (size_t i = 0; refusal == REFUSAL_NONE && i < sizeof(steps) / sizeof(*steps); i++)
        refusal = steps[i](r);
    return refusal;
}

enum refusal jwt_claims_read(const struct jwt_rules *rules, struct slice payload, int64_t now,
                             struct writer *text, struct grant *grant, const char **reason)
{
    static const struct json_limits limits = {.bytes = JWS_PART, .depth = DEPTH};
    struct fail why;
    *grant = (struct grant){.leeway = rules->leeway, .bind = rules->bind};
    struct reading r = {.rules = rules, .now = now, .text = text, .grant = grant, .reason = reason};
    struct json *doc = json_parse(payload, "payload", 0, limits, &why);
    if (!doc && fail_of_memory(&why))
        return refuse_claims(&r, REFUSAL_agent_unavailable, "out of memory");
    if (!doc)
        return invalid(&r, "the payload is not JSON within limits");
    r.doc = doc;
    enum refusal refusal = judge_claims(&r);
    json_free(doc);
    return refusal;
}

/* ---- writing ---- */

struct writing {
    const struct jwt_rules *rules;
    struct writer *w;
    const char *comma;
};

static void put_name(struct writing *out, enum jwt_claim which)
{
    writer_printf(out->w, "%s\"%s\":", out->comma, out->rules->name[which]);
    out->comma = ",";
}

static void put_text(struct writing *out, enum jwt_claim which, struct slice value)
{
    if (!slice_present(value))
        return;
    put_name(out, which);
    writer_printf(out->w, "\"%.*s\"", SLICE_PRINTF(value));
}

static void put_time(struct writing *out, enum jwt_claim which, int64_t value)
{
    if (value < 0)
        return;
    put_name(out, which);
    writer_printf(out->w, "%lld", (long long)value);
}

static void put_needs(struct writing *out, unsigned needs)
{
    char memory[64];
    struct writer words = writer_of(memory, sizeof(memory));
    struct slice rest, word;
    const char *comma = "";
    if (needs == NEED_UNSAID)
        return;
    put_name(out, JWT_NEED);
    need_text(needs, &words);
    rest = writer_slice(&words);
    writer_text(out->w, "[");
    while (rest.len && slice_split(&rest, ',', &word)) {
        writer_printf(out->w, "%s\"%.*s\"", comma, SLICE_PRINTF(word));
        comma = ",";
    }
    writer_text(out->w, "]");
}

static void put_ports(struct writing *out, const struct grant *grant)
{
    uint16_t port;
    if (!slice_present(grant->ports))
        return;
    put_name(out, JWT_PORTS);
    writer_text(out->w, "[");
    for (size_t i = 0; grant_port(grant, i, &port); i++)
        writer_printf(out->w, "%s%u", i ? "," : "", port);
    writer_text(out->w, "]");
}

/* Writes `aud`, unless the issuer renamed the cell's claim and has no audience. */
static void put_cell(struct writing *out)
{
    const struct jwt_rules *rules = out->rules;
    bool renamed = strcmp(rules->name[JWT_CELL], claim_names[JWT_CELL]) != 0;
    if (renamed)
        put_text(out, JWT_CELL, slice_text(rules->cell));
    if (rules->audience || !renamed)
        put_text(out, JWT_AUD, slice_text(rules->audience ? rules->audience : rules->cell));
}

bool jwt_claims_write(const struct jwt_rules *rules, const struct grant *grant, struct writer *w,
                      struct fail *why)
{
    const struct slice texts[] = {slice_text(rules->issuer),
                                  slice_text(rules->audience),
                                  slice_text(rules->cell),
                                  grant->sub,
                                  grant->org,
                                  grant->sandbox,
                                  grant->jti};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (!jws_plain(texts[i]))
            return fail(why, "a token is made of printable ASCII without quotes and backslashes only");
    if (grant->jti.len > GRANT_JTI_MOST)
        return fail(why, "a jti has at most %d bytes", GRANT_JTI_MOST);
    struct writing out = {.rules = rules, .w = w, .comma = ""};
    writer_text(w, "{");
    put_text(&out, JWT_ISS, slice_text(rules->issuer));
    put_cell(&out);
    put_text(&out, JWT_SUB, grant->sub);
    put_text(&out, JWT_ORG, grant->org);
    put_time(&out, JWT_IAT, grant->iat);
    put_time(&out, JWT_EXP, grant->exp);
    put_text(&out, JWT_JTI, grant->jti);
    put_text(&out, JWT_SANDBOX, grant->sandbox);
    put_needs(&out, grant->needs);
    put_ports(&out, grant);
    writer_text(w, "}");
    return !w->full || fail(why, "the token would be too long");
}
