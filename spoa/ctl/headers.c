/* SPDX-License-Identifier: MIT */
/* cellgate headers: prints the configuration that HAProxy needs as lines of its environment (/etc/default/haproxy): names of headers and
 * parameters, and files of egress. */
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/state/policy.h"
#include "spoa/agent/token/scope.h"
#include "spoa/ctl/configuration.h"
#include "spoa/ctl/ctl.h"

enum { TEXT_MOST = 64 * 1024 };

static const char usage[] =
    "usage: cellgate headers [--config FILE]\n"
    "Prints the headers and parameters that the configuration names as credentials or addresses, beyond\n"
    "those that haproxy.cfg knows, and the files of egress that HAProxy reads, as its environment wants\n"
    "them: cellgate headers >>/etc/default/haproxy\n";

static void print_line(const char *name, const struct writer *w)
{
    printf("%s='%.*s'\n", name, w->len ? (int)w->len : 4, w->len ? (const char *)w->at : "none");
}

static void print_all(const struct routes *routes, const struct own_sources *own)
{
    static uint8_t memory[2][TEXT_MOST];
    struct writer headers = writer_of(memory[0], TEXT_MOST), parameters = writer_of(memory[1], TEXT_MOST);
    own_headers_pattern(&own->headers, &headers);
    own_headers_pattern(routes_own_headers(routes), &headers);
    for (size_t i = 0; i < own->count; i++)
        if (own->at[i].query) {
            writer_text(&parameters, parameters.len ? "|" : "");
            writer_text(&parameters, own->at[i].name);
        }
    print_line("CELLGATE_HEADERS", &headers);
    print_line("CELLGATE_PARAMETERS", &parameters);
}

/* HAProxy may be started in another folder. */
static void print_path(const char *name, const char *path)
{
    char *whole = path ? realpath(path, NULL) : NULL;
    if (path)
        printf("%s='%s'\n", name, whole ? whole : path);
    free(whole);
}

static bool print(const struct settings *settings, struct fail *why)
{
    struct own_sources own;
    struct routes *routes = policy_routes(settings, why);
    bool good = routes && token_scope_own(settings->doc, settings->tokens, &own, why);
    if (good) {
        print_all(routes, &own);
        own_sources_free(&own);
        print_path("CELLGATE_EGRESS_SIGN", settings->egress.sign_file);
        print_path("CELLGATE_EGRESS_HTTP2", settings->egress.http2_folder);
        print_path("CELLGATE_EGRESS_CA", settings->egress.ca_file);
    }
    routes_free(routes);
    return good;
}

int ctl_headers(int argc, char **argv)
{
    return configuration_command(argc, argv, usage, print);
}
