/* SPDX-License-Identifier: MIT */
/* cellgate headers: what HAProxy has to be told about headers and parameters that the configuration names, as lines of its
 * environment (/etc/default/haproxy). */
#include <stdio.h>
#include <string.h>

#include "spoa/agent/own_headers.h"
#include "spoa/agent/route.h"
#include "spoa/agent/token_scope.h"
#include "spoa/ctl/ctl.h"
#include "spoa/lib/settings.h"

enum { TEXT_MOST = 64 * 1024 };

static void print_line(const char *name, const struct writer *w)
{
    printf("%s='%.*s'\n", name, w->len ? (int)w->len : 4, w->len ? (const char *)w->at : "none");
}

static void print_all(const struct routes *routes, const struct carriers_own *own)
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

static bool print_of(const struct settings *settings, struct fail *why)
{
    const struct route_nodes nodes = {settings->systems, settings->routes, settings->domains, settings->services};
    struct carriers_own own;
    struct routes *routes = routes_new(settings->doc, &nodes, why);
    bool good = routes && token_scope_own(settings->doc, settings->tokens, &own, why);
    if (good) {
        print_all(routes, &own);
        carriers_own_free(&own);
    }
    routes_free(routes);
    return good;
}

static int print(const char *path)
{
    struct fail why;
    struct settings *settings = settings_load(path, NULL, 0, &why);
    bool good = settings && print_of(settings, &why);
    if (!good)
        fprintf(stderr, "%s\n", why.text);
    if (settings)
        settings_free(settings);
    return good ? 0 : 1;
}

int ctl_headers(int argc, char **argv)
{
    if (argc == 1)
        return print(SETTINGS_PATH);
    if (argc == 3 && (strcmp(argv[1], "--config") == 0 || strcmp(argv[1], "-c") == 0))
        return print(argv[2]);
    bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fprintf(help ? stdout : stderr,
            "usage: cellgate headers [--config FILE]\n"
            "Prints the headers and parameters that the configuration names as credentials or addresses, beyond those\n"
            "that haproxy.cfg knows, as HAProxy's environment wants them: cellgate headers >>/etc/default/haproxy\n");
    return help ? 0 : 2;
}
