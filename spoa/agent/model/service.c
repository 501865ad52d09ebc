/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/service.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/base/os/file.h"
#include "spoa/proto/http.h"

struct services {
    struct service *at;
    size_t count;
};

#define FILE_LIMITS ((struct json_limits){.bytes = (size_t)16 * 1024, .depth = 2})

struct options {
    char *url, *headers_file;
    const json_node *headers;
};

#define FIELD(name) offsetof(struct options, name)
static const struct option keys[] = {
    {"url", OPTION_TEXT, FIELD(url), NULL,
     .help = "`http://ADDRESS:PORT` or `https://`, within `worker_networks`", .min = 8, .max = 300},
    {"headers", OPTION_NODE, FIELD(headers), OPTION_NONE,
     .help = "added to each request: `Authorization`"
#define X(kind, field, variable, header, ...) ", `" header "`"
     WORKER_HEADERS(X)
#undef X
         "; the route then needs a token",
     .form = "an object of texts"},
    {"headers_file", OPTION_TEXT, FIELD(headers_file), OPTION_NONE,
     .help = "instead of `headers`: a file of such an object, which the agent alone can read; read at a "
             "start and a "
             "reload",
     .min = 1, .max = 4095},
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
    static const char *const names[] = {"Authorization",
#define X(kind, field, variable, header, ...) (header),
                                        WORKER_HEADERS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_equal_nocase(name, slice_text(names[i])))
            return true;
    return false;
}

static bool read_headers(const struct json *doc, const json_node *node, struct service *service,
                         struct fail *why)
{
    if (node && !json_is_object(node))
        return json_fail(doc, node, why, "headers is an object of names and values");
    for (const json_node *member = json_first(node); member; member = json_next(member)) {
        struct slice name = slice_text(json_key(member)), value;
        if (!is_settable(name) || !json_text(member, &value) || !http_is_printable(value))
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
    service->headers_file = o.headers_file;
    if (good && o.headers && o.headers_file)
        return json_fail(doc, node, why, "headers and headers_file: leave one of them out");
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

static bool read_headers_file(struct service *service, const char *base_dir, struct fail *why)
{
    char path[8192];
    struct slice content;
    bool absolute = service->headers_file[0] == '/';
    if (snprintf(path, sizeof path, "%s%s%s", absolute ? "" : base_dir, absolute ? "" : "/",
                 service->headers_file) >= (int)sizeof path)
        return fail(why, "the path is too long");
    if (!file_read_secret(path, FILE_LIMITS.bytes, FILE_PRIVATE, &content, why))
        return false;
    struct json *doc = json_parse(content, path, JSON_COMMENTS, FILE_LIMITS, why);
    bool good = doc &&
                (json_is_object(json_root(doc)) ||
                 json_fail(doc, json_root(doc), why, "an object of names and values is expected")) &&
                read_headers(doc, json_root(doc), service, why);
    json_free(doc);
    file_free(content);
    return good;
}

bool services_read_secrets(struct services *services, const struct json *doc, const json_node *node,
                           const char *base_dir, struct fail *why)
{
    const json_node *member = json_first(node);
    for (size_t i = 0; services && i < services->count; i++, member = json_next(member)) {
        struct service *service = &services->at[i];
        struct fail inner;
        if (service->headers_file && !read_headers_file(service, base_dir, &inner))
            return json_fail(doc, json_member(member, "headers_file"), why, "headers_file: %s", inner.text);
    }
    return true;
}

void services_free(struct services *services)
{
    if (!services)
        return;
    for (size_t i = 0; services->at && i < services->count; i++) {
        free(services->at[i].name);
        free(services->at[i].url);
        free(services->at[i].headers_file);
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
