/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/scope.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/agent/token/kind.h"

enum { PARAMETER_MOST = 64 };

/* ---- the options ---- */

static unsigned built_in_bit(struct slice name)
{
    for (enum credential_source c = SOURCE_NONE + 1; c < SOURCE_COUNT; c++)
        if (slice_equal_nocase(name, slice_text(credential_source_text(c))))
            return 1u << c & SOURCES_BUILT_IN;
    return 0;
}

/* Returns whether a source of signatures has this name; those have no tokens. */
static bool is_signed(struct slice name)
{
    for (enum credential_source c = SOURCE_NONE + 1; c < SOURCE_COUNT; c++)
        if (SOURCES_SIGNED & 1u << c && slice_is(name, credential_source_text(c)))
            return true;
    return false;
}

static bool is_parameter(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.at[i], letter = c | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return false;
    }
    return name.len > 0 && name.len <= PARAMETER_MOST && !slice_is(name, "cellgate_token") &&
           !built_in_bit(name);
}

const char *token_scope_check_source(struct slice value)
{
    if (built_in_bit(value))
        return NULL;
    if (slice_starts(value, "?") && is_parameter(slice_from(value, 1)))
        return NULL;
    if (is_signed(value) || own_header_defect(value))
        return "a header's name that has no other meaning, \"?NAME\" for a parameter of the query, label, "
               "authorization, subprotocol, query, "
#define X(id, name) name ", "
            CREDENTIAL_PARAMETERS(X)
#undef X
                "or cookie";
    return NULL;
}

const char *token_scope_check_system(struct slice value)
{
    return system_of(value) ? NULL : system_words();
}

const char *token_scope_check_domain(struct slice value)
{
    bool form = value.len > 2 && value.at[0] == '<' && value.at[value.len - 1] == '>';
    return form || hostname_valid(value) ? NULL : "the name of a domain, or <FORM> for those of a form";
}

static bool own_bit(const struct token_load *load, struct slice name, unsigned *bit, struct fail *why)
{
    struct own_sources *own = load->own;
    bool query = slice_starts(name, "?");
    size_t i = 0;
    name = slice_from(name, query);
    while (i < own->count &&
           !(own->at[i].query == query && (query ? slice_is(name, own->at[i].name)
                                                 : slice_equal_nocase(name, slice_text(own->at[i].name)))))
        i++;
    if (i == SOURCES_OWN_MOST)
        return fail(why, "tokens: more than %d headers and parameters of your own as sources",
                    SOURCES_OWN_MOST);
    if (i == own->count) {
        if (!(own->at[i].name = slice_dup(name)))
            return fail(why, "out of memory");
        own->at[own->count++].query = query;
        if (!query && !own_headers_add(&own->headers, name))
            return fail(why, "out of memory");
    }
    *bit = 1u << (SOURCE_COUNT + i);
    return true;
}

bool token_scope_sources(const struct token_load *load, const struct texts *names, unsigned *bits,
                         struct fail *why)
{
    *bits = 0;
    for (size_t i = 0; i < names->count; i++) {
        struct slice name = slice_text(names->at[i]);
        unsigned bit = built_in_bit(name);
        if (!bit && !own_bit(load, name, &bit, why))
            return false;
        *bits |= bit;
    }
    return true;
}

static bool add_sources(const struct token_load *load, const json_node *list, struct fail *why)
{
    for (const json_node *node = json_first(list); node; node = json_next(node)) {
        struct slice name;
        unsigned bit;
        const char *wanted = json_text(node, &name) ? token_scope_check_source(name) : "a text";
        if (wanted)
            return json_fail(load->doc, node, why, "sources: not %s", wanted);
        if (!built_in_bit(name) && !own_bit(load, name, &bit, why))
            return false;
    }
    return true;
}

bool token_scope_own(const struct json *doc, const json_node *tokens, struct own_sources *own,
                     struct fail *why)
{
    const struct token_load load = {.doc = doc, .own = own};
    *own = (struct own_sources){.count = 0};
    for (const json_node *entry = json_first(tokens); entry; entry = json_next(entry))
        if (!add_sources(&load, json_member(entry, TOKEN_SCOPE_SOURCES), why) ||
            !add_sources(&load, json_member(entry, TOKEN_SCOPE_SOURCES_OLD), why)) {
            own_sources_free(own);
            return false;
        }
    return true;
}

/* ---- the scope ---- */

static bool add_domain(struct texts *domains, struct slice name)
{
    if (!texts_add(domains, name))
        return false;
    for (char *c = domains->at[domains->count - 1]; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c | 0x20 : *c);
    return true;
}

/* Replaces "<FORM>" by the domains that `domains` of the configuration lists for "FORM". */
static bool add_form(const struct token_load *load, struct texts *domains, struct slice form,
                     struct fail *why)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", SLICE_PRINTF(form));
    const json_node *all = load->doc ? json_member(json_root(load->doc), "domains") : NULL;
    const json_node *list = json_member(all, name);
    if (!json_first(list))
        return fail(why, "domains: '<%s>' has none in the `domains` of the configuration", name);
    for (const json_node *node = json_first(list); node; node = json_next(node)) {
        struct slice domain = {NULL, 0};
        json_text(node, &domain);
        if (!add_domain(domains, domain))
            return fail(why, "out of memory");
    }
    return true;
}

static bool take_domains(const struct token_load *load, const struct texts *texts, struct texts *domains,
                         struct fail *why)
{
    for (size_t i = 0; i < texts->count; i++) {
        struct slice text = slice_text(texts->at[i]);
        if (slice_starts(text, "<") ? !add_form(load, domains, slice_sub(text, 1, text.len - 2), why)
                                    : !add_domain(domains, text))
            return slice_starts(text, "<") ? false : fail(why, "out of memory");
    }
    return true;
}

bool token_scope_take(const struct token_load *load, struct token_scope_options *options,
                      struct token_scope *scope, struct fail *why)
{
    *scope = (struct token_scope){.routes = options->routes};
    options->routes = (struct texts){NULL, 0};
    for (size_t i = 0; i < options->systems.count; i++)
        scope->systems |= SYSTEM_BIT(system_of(slice_text(options->systems.at[i])));
    return take_domains(load, &options->domains, &scope->domains, why);
}

void token_scope_free(struct token_scope *scope)
{
    texts_free(&scope->routes);
    texts_free(&scope->domains);
}

bool token_scope_is_bound(const struct token_scope *scope)
{
    return scope->systems || scope->routes.count || scope->domains.count;
}

static bool has_route(const struct token_scope *scope, const struct credential_place *place)
{
    if (!scope->systems && !scope->routes.count)
        return true;
    if (scope->systems & SYSTEM_BIT(place->system))
        return true;
    for (size_t i = 0; place->route && i < scope->routes.count; i++)
        if (strcmp(scope->routes.at[i], place->route) == 0)
            return true;
    return false;
}

static bool has_host(const struct token_scope *scope, const struct credential_place *place)
{
    for (size_t i = 0; i < scope->domains.count && !place->any_host; i++) {
        struct slice domain = slice_text(scope->domains.at[i]);
        size_t front = place->host.len - domain.len;
        if (place->host.len >= domain.len && slice_equal(slice_from(place->host, front), domain) &&
            (front == 0 || place->host.at[front - 1] == '.'))
            return true;
    }
    return !scope->domains.count || place->any_host;
}

bool token_scope_has(const struct token_scope *scope, const struct credential_place *place)
{
    return has_route(scope, place) && has_host(scope, place);
}

static void put_texts(const struct texts *texts, struct writer *w)
{
    for (size_t i = 0; i < texts->count; i++)
        writer_printf(w, "%zu:%s", strlen(texts->at[i]), texts->at[i]);
    writer_u8(w, ';');
}

void token_scope_text(const struct token_scope *scope, struct writer *w)
{
    writer_printf(w, "%u;", scope->systems);
    put_texts(&scope->routes, w);
    put_texts(&scope->domains, w);
}
