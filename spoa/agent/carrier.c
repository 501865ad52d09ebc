/* SPDX-License-Identifier: MIT */
#include "spoa/agent/carrier.h"

#define SUBPROTOCOL "cellgate"
#define BEARER      "cellgate.bearer."
#define PARAMETER   "cellgate_token"

const char *carrier_text(enum carrier carrier)
{
    static const char *const words[] = {[CARRIER_NONE] = "none",
                                        [CARRIER_AUTHORIZATION] = "authorization",
                                        [CARRIER_SUBPROTOCOL] = "subprotocol",
                                        [CARRIER_QUERY] = "query",
                                        [CARRIER_COOKIE] = "cookie"};
    return words[carrier];
}

/* ---- Authorization ---- */

/* "Bearer TOKEN" (RFC 6750 section 2.1); "Bearer" alone carries an empty token. */
static struct slice bearer_of(struct slice authorization)
{
    static const struct slice scheme = {(const uint8_t *)"Bearer", 6};
    struct slice value = slice_trim(authorization), rest = slice_from(value, scheme.len);
    if (!slice_equal_nocase(slice_sub(value, 0, scheme.len), scheme))
        return (struct slice){NULL, 0};
    if (rest.len && rest.at[0] != ' ' && rest.at[0] != '\t')
        return (struct slice){NULL, 0};
    return slice_trim(rest);
}

/* ---- Sec-WebSocket-Protocol ---- */

/* What the list holds of ours, and in *others the rest, or nothing. False: two tokens. */
static bool split_protocols(struct slice list, struct writer *scratch, struct carried *carried,
                            struct slice *token)
{
    struct slice entry, kept = {scratch->at + scratch->len, 0};
    while (slice_split(&list, ',', &entry)) {
        entry = slice_trim(entry);
        if (slice_starts(entry, BEARER)) {
            if (slice_present(*token))
                return false;
            *token = slice_from(entry, sizeof(BEARER) - 1);
        } else if (slice_is(entry, SUBPROTOCOL)) {
            carried->select_cellgate = true;
        } else if (entry.len) {
            writer_text(scratch, kept.len ? "," : "");
            writer_put(scratch, entry);
            kept.len = (size_t)(scratch->at + scratch->len - kept.at);
        }
    }
    carried->protocol_edit = slice_present(*token) || carried->select_cellgate;
    if (carried->protocol_edit && kept.len)
        carried->protocol = kept;
    return true;
}

/* ---- the query ---- */

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Takes one character, percent-decoded where that is well-formed. */
static uint8_t next_character(struct slice *s)
{
    uint8_t c = s->at[0];
    size_t used = 1;
    if (c == '%' && s->len >= 3 && hex(s->at[1]) >= 0 && hex(s->at[2]) >= 0) {
        c = (uint8_t)(hex(s->at[1]) << 4 | hex(s->at[2]));
        used = 3;
    }
    *s = slice_from(*s, used);
    return c;
}

static bool is_parameter(struct slice name)
{
    static const char wanted[] = PARAMETER;
    size_t i = 0;
    while (name.len && i < sizeof(wanted) - 1 && next_character(&name) == (uint8_t)wanted[i])
        i++;
    return name.len == 0 && i == sizeof(wanted) - 1;
}

static struct slice decoded(struct slice value, struct writer *scratch)
{
    if (slice_find(value, '%') == value.len)
        return value;
    struct slice text = {scratch->at + scratch->len, 0};
    while (value.len) {
        writer_u8(scratch, next_character(&value));
        text.len = (size_t)(scratch->at + scratch->len - text.at);
    }
    return text;
}

static struct slice value_of(struct slice parameter)
{
    size_t equals = slice_find(parameter, '=');
    return slice_from(parameter, equals < parameter.len ? equals + 1 : equals);
}

/* The query without the token's parameter and one '&' beside it. False: two tokens. */
static bool split_query(struct slice query, struct writer *scratch, struct carried *carried,
                        struct slice *token)
{
    struct slice rest = query, parameter, value = {NULL, 0};
    const uint8_t *kept = scratch->at + scratch->len;
    const char *ampersand = "";
    while (slice_split(&rest, '&', &parameter)) {
        if (!is_parameter(slice_sub(parameter, 0, slice_find(parameter, '=')))) {
            writer_text(scratch, ampersand);
            writer_put(scratch, parameter);
            ampersand = "&";
            continue;
        }
        if (slice_present(value))
            return false;
        value = value_of(parameter);
    }
    struct slice without = slice_of(kept, (size_t)(scratch->at + scratch->len - kept));
    if (slice_present(value)) {
        *token = decoded(value, scratch);
        query = without;
    }
    if (query.len || !slice_present(value)) /* an empty query that was sent stays one */
        carried->query = query;
    return true;
}

/* ---- all of them ---- */

static void choose(struct carried *carried, enum carrier carrier, struct slice token)
{
    if (carried->carrier != CARRIER_NONE || !slice_present(token))
        return;
    carried->carrier = carrier;
    carried->token = token;
}

enum refusal carrier_find(const struct request *request, bool cookie_route, struct writer *scratch,
                          struct carried *carried)
{
    struct slice subprotocol = {NULL, 0}, query = {NULL, 0};
    *carried = (struct carried){.carrier = CARRIER_NONE};
    if (request->authorizations > 1 || request->ws_protocols > 1)
        return REFUSAL_bad_request;
    if (!split_protocols(request->ws_protocol, scratch, carried, &subprotocol) ||
        !split_query(request->query, scratch, carried, &query))
        return REFUSAL_bad_request;
    if (scratch->full)
        return REFUSAL_request_too_large;
    choose(carried, CARRIER_AUTHORIZATION, bearer_of(request->authorization));
    choose(carried, CARRIER_SUBPROTOCOL, subprotocol);
    choose(carried, CARRIER_QUERY, query);
    if (cookie_route)
        choose(carried, CARRIER_COOKIE, request->cookie);
    return REFUSAL_NONE;
}
