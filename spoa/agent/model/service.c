/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/service.h"

#include <stdlib.h>

#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/model/worker_url.h"

struct services {
    struct service *at;
    size_t count;
};

struct options {
    char *url;
    const json_node *headers;
};

#define FIELD(name) offsetof(struct options, name)
static const struct option keys[] = {
    {"url", OPTION_TEXT, FIELD(url), NULL,
     .help = "`http://ADDRESS:PORT` or `https://`, within `worker_networks`", .min = 8, .max = 300},
    {"headers", OPTION_NODE, FIELD(headers), OPTION_NONE,
     .help = "added to each request: `Authorization`, `X-Access-Token`, `X-EXECD-ACCESS-TOKEN` or "
             "`OPENSANDBOX-EGRESS-AUTH`; the route then needs a token",
     .form = "an object of texts"},
};
#undef FIELD
enum { KEYS = sizeof keys / sizeof *keys };

const struct option *service_options(size_t *count)
{
    *count = KEYS;
    return keys;
}

static bool is_settable(struct slice name)
{
    static const char *const names[] = {"Authorization", "X-Access-Token", "X-EXECD-ACCESS-TOKEN",
                                        "OPENSANDBOX-EGRESS-AUTH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_equal_nocase(name, slice_text(names[i])))
            return true;
    return false;
}

static bool is_value(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] < ' ' || value.at[i] > '~')
            return false;
    return true;
}

static bool read_headers(const struct json *doc, const json_node *node, struct service *service,
                         struct fail *why)
{
    if (node && !json_is_object(node))
        return json_fail(doc, node, why, "headers is an object of names and values");
    for (const json_node *member = json_first(node); member; member = json_next(member)) {
        struct slice name = slice_text(json_key(member)), value;
        if (!is_settable(name) || !json_text(member, &value) || !is_value(value))
            return json_fail(doc, member, why, "headers: HAProxy cannot set '%s' to this", json_key(member));
        if (!texts_add(&service->names, name) || !texts_add(&service->values, value))
            return fail(why, "out of memory");
    }
    return true;
}

static bool read_url(const struct json *doc, const json_node *node, struct service *service, struct fail *why)
{
    struct fail what;
    if (!worker_url_parse(slice_text(service->url), &service->worker, &what))
        return json_fail(doc, node, why, "url: %s", what.text);
    if (service->worker.kind == WORKER_UNIX || !service->worker.addr.family || !service->worker.port)
        return json_fail(doc, node, why, "url: an address and a port, as in http://10.0.0.2:8080");
    return true;
}

static bool read_service(const struct json *doc, const json_node *node, struct service *service,
                         struct fail *why)
{
    struct options o = {.url = NULL};
    if (!json_is_object(node))
        return json_fail(doc, node, why, "a service is an object");
    if (!(service->name = slice_dup(slice_text(json_key(node)))))
        return fail(why, "out of memory");
    bool good = options_read(doc, node, keys, KEYS, NULL, &o, why);
    service->url = o.url;
    return good && read_url(doc, node, service, why) && read_headers(doc, o.headers, service, why);
}

struct services *services_read(const struct json *doc, const json_node *node, struct fail *why)
{
    *why = (struct fail){""};
    if (!node)
        return NULL;
    if (!json_is_object(node)) {
        json_fail(doc, node, why, "services is an object of names and services");
        return NULL;
    }
    struct services *services = calloc(1, sizeof *services);
    if (!services || !(services->at = calloc(json_count(node) + 1, sizeof *services->at))) {
        fail(why, "out of memory");
        services_free(services);
        return NULL;
    }
    for (const json_node *member = json_first(node); member; member = json_next(member))
        if (!read_service(doc, member, &services->at[services->count++], why)) {
            services_free(services);
            return NULL;
        }
    return services;
}

void services_free(struct services *services)
{
    if (!services)
        return;
    for (size_t i = 0; services->at && i < services->count; i++) {
        free(services->at[i].name);
        free(services->at[i].url);
        texts_free(&services->at[i].names);
        texts_free(&services->at[i].values);
    }
    free(services->at);
    free(services);
}

const struct service *services_find(const struct services *services, struct slice name)
{
    for (size_t i = 0; services && i < services->count; i++)
        if (slice_is(name, services->at[i].name))
            return &services->at[i];
    return NULL;
}
