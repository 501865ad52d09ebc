/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/credential_source.h"

#include <stdlib.h>

#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/model/query.h"

#define SUBPROTOCOL "cellgate"
#define BEARER      "cellgate.bearer."

const char *credential_source_text(enum credential_source source)
{
    static const char *const words[] = {[SOURCE_NONE] = "none",
#define X(field, lines, name, written, id) [SOURCE_##id] = (written),
                                        CREDENTIAL_HEADERS(X)
#undef X
#define X(id, name, ...) [SOURCE_##id] = (name),
                                            SOURCES(X)
#undef X
    };
    return words[source];
}

const char *credential_source_name(const struct credential *credential)
{
    return credential->name ? credential->name : credential_source_text(credential->source);
}

void own_sources_free(struct own_sources *own)
{
    for (size_t i = 0; i < own->count; i++)
        free(own->at[i].name);
    texts_free(&own->headers);
}

/* ---- Authorization ---- */

/* Returns the token of "Bearer TOKEN" (RFC 6750 section 2.1); "Bearer" alone has an empty token. */
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

struct slice bearer_token(const struct request *request)
{
    return bearer_of(request->authorization);
}

/* ---- Sec-WebSocket-Protocol ---- */

/* Returns the offered subprotocols, which may be in several lines (RFC 6455 section 11.3.4). */
static struct slice offered(const struct request *request, struct writer *scratch)
{
    return request->ws_protocols > 1 ? request_list(request, SLICE_LITERAL("sec-websocket-protocol"), scratch)
                                     : request->ws_protocol;
}

/* Removes cellgate's own entries from the offered subprotocols; the worker gets the others in one line. Returns false if there are two
 * tokens. */
static bool split_protocols(const struct request *request, struct writer *scratch, struct carried *carried,
                            struct slice *token)
{
    struct slice list = offered(request, scratch), entry, kept = {scratch->at + scratch->len, 0};
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
    carried->protocol_edit = slice_present(*token) || carried->select_cellgate || request->ws_protocols > 1;
    if (carried->protocol_edit && kept.len)
        carried->protocol = kept;
    return true;
}

/* ---- the query ---- */

/* A parameter to find in the query. */
struct parameter {
    const char *name; /* NULL if the parameter is not used */
    bool kept;        /* the worker gets the parameter nevertheless */
    struct slice value;
};

enum {
    TOKEN,
    SIGNATURE,
    EXPIRES,
    PATH,
    USER,
#define X(id, name) PARAMETER_##id,
    CREDENTIAL_PARAMETERS(X)
#undef X
        OWN,
    PARAMETERS = OWN + SOURCES_OWN_MOST
};

static struct parameter *parameter_named(struct parameter wanted[PARAMETERS], struct slice parameter)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        if (wanted[i].name && query_name_is(parameter, wanted[i].name))
            return &wanted[i];
    return NULL;
}

/* Fills the values. *left is the query without the parameters that are not kept, each with one '&' beside it. Returns false if one of
 * the parameters appears twice. */
static bool split_query(struct slice query, struct parameter wanted[PARAMETERS], struct writer *scratch,
                        struct slice *left)
{
    struct slice rest = query, part;
    struct slice kept = {scratch->at + scratch->len, 0};
    bool taken = false;
    const char *ampersand = "";
    while (slice_split(&rest, '&', &part)) {
        struct parameter *parameter = parameter_named(wanted, part);
        if (parameter && slice_present(parameter->value))
            return false;
        if (parameter)
            parameter->value = query_value(part);
        if (parameter && !parameter->kept) {
            taken = true;
            continue;
        }
        writer_text(scratch, ampersand);
        writer_put(scratch, part);
        ampersand = "&";
    }
    kept.len = (size_t)(scratch->at + scratch->len - kept.at);
    *left = !taken ? query : kept.len ? kept : (struct slice){NULL, 0};
    return true;
}

/* ---- signed file URLs ---- */

/* The request as a signed URL; form is NULL if it is not one. */
struct signed_url {
    const struct signed_url_form *form;
    enum credential_source source;
    const char *operation;
};

static const struct {
    const struct signed_url_form *form;
    enum credential_source source;
} forms[] = {
#define X(id, name, variable) {&signed_url_##variable, SOURCE_##id},
    SIGNED_URLS(X)
#undef X
};
enum { FORMS = sizeof forms / sizeof *forms };

const struct signed_url_form *signed_url_form_at(size_t number)
{
    return number < FORMS ? forms[number].form : NULL;
}

static struct signed_url signed_url(const struct request *request, unsigned listening)
{
    for (size_t i = 0; i < FORMS; i++) {
        const struct signed_url_form *form = forms[i].form;
        const char *operation =
            listening & 1u << forms[i].source && query_has(request->query, form->signature)
                ? form->operation(request)
                : NULL;
        if (operation)
            return (struct signed_url){form, forms[i].source, operation};
    }
    return (struct signed_url){.form = NULL};
}

/* ---- all sources ---- */

/* HAProxy passes on only the first line of a header. A worker may use another line, and so another credential, so several lines are
 * ambiguous. */
static bool is_ambiguous(const struct request *request, unsigned listening)
{
    const struct {
        unsigned source;
        int64_t lines;
    } headers[] = {
#define X(field, lines, name, written, id) {SOURCE_BIT(id), request->lines},
        CREDENTIAL_HEADERS(X)
#undef X
            {SOURCE_BIT(AUTHORIZATION), request->authorizations}};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (headers[i].lines > 1 && headers[i].source & (listening | SOURCES_GENERAL))
            return true;
    return false;
}

struct search {
    const struct credential_rules *rules;
    struct carried *carried;
};

static bool is_listened_to(const struct credential_rules *rules, enum credential_source source)
{
    return (rules->listening | SOURCES_GENERAL) & 1u << source;
}

static bool choose(const struct search *search, enum credential_source source, struct slice token)
{
    struct credential *credential = &search->carried->credential;
    if (credential->source != SOURCE_NONE || !slice_present(token) || !is_listened_to(search->rules, source))
        return false;
    credential->source = source;
    credential->token = token;
    return true;
}

static void choose_parameter(const struct search *search, enum credential_source source, struct slice value,
                             struct writer *scratch)
{
    if (choose(search, source, query_decode(value, QUERY_PLUS_STAYS, scratch)))
        search->carried->credential.in_query = true;
}

static enum credential_source own_source(size_t i)
{
    return (enum credential_source)(SOURCE_COUNT + i);
}

/* Reads the configuration's own headers. Returns false if one of them has several lines. */
static bool choose_headers(const struct search *search, const struct request *request)
{
    const struct own_sources *own = search->rules->own;
    for (size_t i = 0; own && i < own->count; i++) {
        enum credential_source source = own_source(i);
        size_t lines;
        if (own->at[i].query || !is_listened_to(search->rules, source))
            continue;
        struct slice value = request_header(request, slice_text(own->at[i].name), &lines);
        if (lines > 1)
            return false;
        if (choose(search, source, value))
            search->carried->credential.name = own->at[i].name;
    }
    return true;
}

static void want_signed_url(const struct signed_url *url, struct parameter wanted[PARAMETERS])
{
    const struct signed_url_form *form = url->form;
    if (!form)
        return;
    wanted[SIGNATURE] = (struct parameter){.name = form->signature, .kept = form->kept};
    wanted[EXPIRES] = (struct parameter){.name = form->expires, .kept = form->kept};
    wanted[PATH] = (struct parameter){.name = form->path, .kept = true};
    wanted[USER] = (struct parameter){.name = form->user, .kept = true};
}

static void want_parameters(const struct credential_rules *rules, const struct signed_url *url,
                            struct parameter wanted[PARAMETERS])
{
    memset(wanted, 0, PARAMETERS * sizeof *wanted);
    wanted[TOKEN].name = "cellgate_token";
#define X(id, written)                     \
    if (rules->listening & SOURCE_BIT(id)) \
        wanted[PARAMETER_##id].name = (written);
    CREDENTIAL_PARAMETERS(X)
#undef X
    want_signed_url(url, wanted);
    for (size_t i = 0; rules->own && i < rules->own->count; i++)
        if (rules->own->at[i].query && is_listened_to(rules, own_source(i)))
            wanted[OWN + i].name = rules->own->at[i].name;
}

static void choose_parameters(const struct search *search, const struct parameter found[PARAMETERS],
                              struct writer *scratch)
{
    choose_parameter(search, SOURCE_QUERY, found[TOKEN].value, scratch);
#define X(id, name) choose_parameter(search, SOURCE_##id, found[PARAMETER_##id].value, scratch);
    CREDENTIAL_PARAMETERS(X)
#undef X
    for (size_t i = 0; i < SOURCES_OWN_MOST; i++)
        if (slice_present(found[OWN + i].value) && search->carried->credential.source == SOURCE_NONE) {
            choose_parameter(search, own_source(i), found[OWN + i].value, scratch);
            search->carried->credential.name = found[OWN + i].name;
        }
}

static void choose_captured(const struct search *search)
{
    const struct captures *captures = search->rules->captures;
    if (!captures)
        return;
    if (slice_present(captures->value[CAPTURE_EXPIRES]) &&
        choose(search, SOURCE_SIGNATURE, captures->value[CAPTURE_SIGNATURE]))
        search->carried->credential.expires = captures->value[CAPTURE_EXPIRES];
    if (slice_present(captures->value[CAPTURE_KEY_ID]) &&
        choose(search, SOURCE_SIGNATURE, captures->value[CAPTURE_MAC]))
        search->carried->credential.key_id = captures->value[CAPTURE_KEY_ID];
    choose(search, SOURCE_LABEL, captures->value[CAPTURE_TOKEN]);
}

/* Returns false if the form requires parameters that are missing. */
static bool choose_signed_url(const struct search *search, const struct signed_url *url,
                              const struct parameter found[PARAMETERS], struct writer *scratch)
{
    struct slice signature = found[SIGNATURE].value;
    if (url->form && url->form->encoded)
        signature = query_decode(signature, QUERY_PLUS_IS_BLANK, scratch);
    if (!url->form || !choose(search, url->source, signature))
        return true;
    struct credential *credential = &search->carried->credential;
    credential->form = url->form;
    credential->operation = url->operation;
    credential->expires = found[EXPIRES].value;
    credential->path = query_decode(found[PATH].value, QUERY_PLUS_IS_BLANK, scratch);
    credential->user = query_decode(found[USER].value, QUERY_PLUS_IS_BLANK, scratch);
    return !url->form->complete || (slice_present(credential->expires) && slice_present(credential->path));
}

void credential_none(const struct request *request, struct writer *scratch, struct carried *carried)
{
    *carried = (struct carried){.query = request->query, .protocol_edit = request->ws_protocols > 1};
    if (carried->protocol_edit)
        carried->protocol = offered(request, scratch);
}

enum refusal credential_find(const struct request *request, const struct credential_rules *rules,
                             struct writer *scratch, struct carried *carried)
{
    const struct signed_url url = signed_url(request, rules->listening);
    struct slice subprotocol = {NULL, 0};
    struct parameter wanted[PARAMETERS]; /* filled if there is a query */
    const struct search search = {rules, carried};
    bool asked = slice_present(request->query);
    if (asked)
        want_parameters(rules, &url, wanted);
    *carried = (struct carried){.protocol_edit = false};
    if (is_ambiguous(request, rules->listening) ||
        !split_protocols(request, scratch, carried, &subprotocol) ||
        (asked && !split_query(request->query, wanted, scratch, &carried->query)))
        return REFUSAL_bad_request;
#define X(field, lines, name, written, id) choose(&search, SOURCE_##id, request->field);
    CREDENTIAL_HEADERS(X)
#undef X
    if (!choose_headers(&search, request))
        return REFUSAL_bad_request;
    choose_captured(&search);
    if (asked && !choose_signed_url(&search, &url, wanted, scratch))
        return REFUSAL_bad_request;
    if (rules->bearer == BEARER_DECIDES)
        choose(&search, SOURCE_AUTHORIZATION, bearer_of(request->authorization));
    choose(&search, SOURCE_SUBPROTOCOL, subprotocol);
    if (asked)
        choose_parameters(&search, wanted, scratch);
    if (rules->cookie)
        choose(&search, SOURCE_COOKIE, request->cookie);
    if (rules->bearer == BEARER_LAST)
        choose(&search, SOURCE_AUTHORIZATION, bearer_of(request->authorization));
    return scratch->full ? REFUSAL_request_too_large : REFUSAL_NONE;
}
