/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/upgrade.h"

#include "spoa/agent/model/authority.h"
#include "spoa/proto/ws_handshake.h"

/* The content of a `Connection` list. */
struct connection {
    bool upgrade;
    bool foreign; /* names a header that is not in `known` */
};

static bool is_known(struct slice name, const char *const *known)
{
    for (; *known; known++)
        if (slice_equal_nocase(name, slice_text(*known)))
            return true;
    return false;
}

static void read_list(struct slice list, const char *const *known, struct connection *c)
{
    struct slice name;
    while (slice_split(&list, ',', &name)) {
        name = slice_trim(name);
        if (slice_equal_nocase(name, SLICE_LITERAL("upgrade")))
            c->upgrade = true;
        else if (name.len && !is_known(name, known))
            c->foreign = true;
    }
}

static struct connection connection_read(const struct request *r, const char *const *known)
{
    struct connection c = {.upgrade = false};
    struct slice rest = r->connections > 1 ? r->headers : (struct slice){NULL, 0};
    struct request_header header;
    if (r->connections == 1)
        read_list(r->connection, known, &c);
    while (request_header_next(&rest, &header))
        if (slice_is(header.name, "connection"))
            read_list(header.value, known, &c);
    return c;
}

static const char *const beside_upgrade[] = {"keep-alive", NULL};
static const char *const hop_by_hop[] = {"close",   "keep-alive",     "te", "trailer", "proxy-connection",
                                         "upgrade", "http2-settings", NULL};

static bool later_http(const struct request *r)
{
    return slice_is(r->version, "2.0") || slice_is(r->version, "3.0");
}

static bool offers_websocket(const struct request *r)
{
    struct slice rest = r->upgrades > 1 ? r->headers : (struct slice){NULL, 0};
    struct request_header header;
    if (r->upgrades == 1)
        return http_list_has(r->upgrade, SLICE_LITERAL("websocket"));
    while (request_header_next(&rest, &header))
        if (slice_is(header.name, "upgrade") && http_list_has(header.value, SLICE_LITERAL("websocket")))
            return true;
    return false;
}

bool upgrade_claimed(const struct request *r)
{
    if (r->ws_keys > 0 || r->ws_versions > 0 || offers_websocket(r))
        return true;
    return later_http(r) && (r->upgrades > 0 || connection_read(r, hop_by_hop).upgrade);
}

static bool has_body(const struct request *r)
{
    return r->transfer_encodings > 0 ||
           (slice_present(r->content_length) && !slice_is(r->content_length, "0"));
}

static const char *connection_defect(const struct request *r)
{
    struct connection c = connection_read(r, beside_upgrade);
    if (c.foreign)
        return "Connection names more than Upgrade and keep-alive";
    if (!c.upgrade && !(later_http(r) && r->connections == 0))
        return "Connection does not name Upgrade";
    return NULL;
}

static const char *key_defect(const struct request *r)
{
    if (later_http(r))
        return r->ws_keys ? "Sec-WebSocket-Key is not for HTTP/2" : NULL;
    if (r->ws_keys != 1)
        return r->ws_keys ? "there are several Sec-WebSocket-Key headers" : "Sec-WebSocket-Key is missing";
    return ws_handshake_key_valid(r->ws_key) ? NULL : "Sec-WebSocket-Key is not 16 bytes in base64";
}

static const char *host_defect(const struct request *r)
{
    struct authority authority;
    if (r->hosts != 1)
        return r->hosts ? "there are several Host headers" : "Host is missing";
    return authority_parse(r->host, &authority) ? NULL : "Host is malformed";
}

static enum refusal bad(const char **reason, const char *text)
{
    *reason = text;
    return REFUSAL_bad_request;
}

enum refusal upgrade_judge(const struct request *r, const char **reason)
{
    const char *defect;
    *reason = "";
    if (!slice_is(r->method, "GET")) {
        *reason = "an upgrade is a GET";
        return REFUSAL_method_not_allowed;
    }
    if (!slice_is(r->version, "1.1") && !later_http(r))
        return bad(reason, "an upgrade needs HTTP/1.1 or HTTP/2");
    if (r->upgrades != 1 || !slice_equal_nocase(r->upgrade, SLICE_LITERAL("websocket")))
        return bad(reason, "Upgrade is not one 'websocket'");
    if ((defect = connection_defect(r)))
        return bad(reason, defect);
    if (r->ws_versions != 1 || !slice_is(r->ws_version, "13")) {
        *reason = "Sec-WebSocket-Version is not one '13'";
        return REFUSAL_upgrade_version;
    }
    if ((defect = key_defect(r)) || (defect = host_defect(r)))
        return bad(reason, defect);
    if (has_body(r))
        return bad(reason, "an upgrade has no body");
    return REFUSAL_NONE;
}

enum refusal upgrade_connection(const struct request *r, const char **reason)
{
    *reason = "";
    if (connection_read(r, hop_by_hop).foreign)
        return bad(reason, "Connection names headers of the application");
    return REFUSAL_NONE;
}
