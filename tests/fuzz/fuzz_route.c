/* SPDX-License-Identifier: MIT */
/*
 * Input: a configuration's {"systems", "routes", "domains"}, then behind NUL bytes a request line and header lines.
 * Where the first part is no configuration, the built-in routes are used.
 */
#include <stdlib.h>

#include "spoa/agent/model/request_text.h"
#include "spoa/agent/route/path.h"
#include "spoa/agent/route/route.h"
#include "tests/fuzz/fuzz.h"

static struct routes *routes_from(struct slice text)
{
    static const struct json_limits limits = {65536, 16};
    struct fail why;
    struct json *doc = json_parse(text, "fuzz", 0, limits, &why);
    const json_node *root = doc ? json_root(doc) : NULL;
    const struct route_nodes nodes = json_is_object(root) ? route_nodes_of(root) : (struct route_nodes){0};
    struct routes *routes = json_is_object(root) ? routes_new(doc, &nodes, &why) : NULL;
    json_free(doc);
    return routes;
}

static void check_match(const struct route_match *match)
{
    uint8_t memory[65536];
    struct writer w = writer_of(memory, sizeof memory);
    if (!match->route || !slice_present(match->captures.value[CAPTURE_SANDBOX]))
        abort();
    if (match->climbs || !match->route->template)
        return;
    template_write(match->route->template, &match->captures, &w);
    if (w.full ? w.len > sizeof memory : w.len == 0 || w.at[0] != '/')
        abort();
}

static int read_input(const uint8_t *data, size_t size)
{
    static struct routes *built_in;
    struct slice rest = slice_of(data, size), text, line;
    struct header_line lines[8];
    struct request request;
    struct route_match match;
    struct fail why;
    size_t count = 0;
    if (!slice_split(&rest, 0, &text) || !slice_split(&rest, 0, &line))
        return 0;
    for (struct slice header; count < 8 && slice_split(&rest, 0, &header);)
        count += header_line_parse(header, &lines[count]);
    static uint8_t memory[1 << 16];
    struct writer w = writer_of(memory, sizeof memory);
    if (!request_from_text(line, lines, count, &w, &request, &why) || !path_valid(request.path))
        return 0;
    if (!built_in)
        built_in = routes_of_all_systems(NULL, NULL, &why);
    struct routes *own = routes_from(text), *routes = own ? own : built_in;
    for (int upgrade = 0; upgrade < 2; upgrade++)
        if (route_match(routes, &request, upgrade, request.host, &match, NULL))
            check_match(&match);
    routes_free(own);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
