/* SPDX-License-Identifier: MIT */
/* route_keys: the table of a route's keys. */
#include "spoa/agent/model/authority.h"
#include "spoa/agent/route/table.h"
#include "spoa/proto/handover.h"

static const char *const via_names[] = {"direct", "relay", NULL};
static const char *const protocol_names[] = {"h1", "h2", NULL};
const char *const route_mux_names[] = {"off",
#define X(form, word) (word),
                                       SYSTEM_MUX_FORMS(X)
#undef X
                                           NULL};
static const char *const refuse_names[] = {"http", "close", NULL};
/* in the order of enum route_keep; the default "form" follows the route's `host` (entry_defaults) */
static const char *const host_names[] = {"form", "worker", "keep", NULL};
static const char *const keep_names[] = {"form", "strip", "keep", NULL};

static const char *check_name(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (!((value.at[i] | 0x20) >= 'a' && (value.at[i] | 0x20) <= 'z') &&
            !(value.at[i] >= '0' && value.at[i] <= '9') && value.at[i] != '-' && value.at[i] != '_' &&
            value.at[i] != '.')
            return "letters, digits, '-', '_' and '.'";
    return NULL;
}

static const char *check_org(struct slice value)
{
    return value.len > 0 && value.len <= 255 ? NULL : "an organisation of 1 to 255 bytes, or *";
}

static const char *check_origin(struct slice value)
{
    return slice_is(value, "*") || origin_valid(value)
               ? NULL
               : "an origin without path, as https://app.example.com, vscode-webview://id or null, or *";
}

bool header_name_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!((name.at[i] | 0x20) >= 'a' && (name.at[i] | 0x20) <= 'z') &&
            !(name.at[i] >= '0' && name.at[i] <= '9') &&
            !(name.at[i] && strchr("!#$%&'*+-.^_`|~", name.at[i])))
            return false;
    return name.len > 0;
}

static const char *check_header(struct slice value)
{
    return header_name_valid(value) ? NULL : "the name of a header";
}

#define FIELD(name) offsetof(struct route_entry, name)
static const struct option keys[] = {
    {"name", OPTION_TEXT, FIELD(route.name), NULL, .help = "for logs, metrics and `cellgate explain`",
     .min = 1, .max = 64, .check = check_name},
    {"system", OPTION_TEXT, FIELD(system), OPTION_NONE,
     .help = "for entries of `tokens` that name systems; not set: of none", .min = 1, .max = 32},
    {"path", OPTION_NODE, FIELD(path_node), OPTION_NONE, .help = "pattern or patterns",
     .form = "a text or a list of texts"},
    {"host", OPTION_NODE, FIELD(host_node), OPTION_NONE, .help = "pattern or patterns",
     .form = "a text or a list of texts"},
    {"headers", OPTION_NODE, FIELD(headers_node), OPTION_NONE, .help = "patterns of values, by header",
     .form = "an object of texts or lists of texts"},
    {"port", OPTION_INT, FIELD(route.port), "0", .help = "if the route captures none; 0: the worker's own",
     .min = 0, .max = 65535},
    {"ports", OPTION_TEXT, FIELD(ports), OPTION_NONE,
     .help = "served ports, `\"80,8000-8999\"`; not set: all", .min = 1, .max = 128},
    {"upgrade", OPTION_NODE, FIELD(upgrade_node), OPTION_NONE,
     .help = "`true`: only WebSocket upgrades, `false`: only plain requests; not set: both",
     .form = "true or false"},
    {"via", OPTION_ENUM, FIELD(route.via), "direct", .help = "to the worker, or through the relay",
     .names = via_names},
    {"protocol", OPTION_ENUM, FIELD(route.protocol), "h1",
     .help = "what the worker speaks, if its record does not say `h2`; WebSockets are always `h1`",
     .names = protocol_names},
    {"mux", OPTION_ENUM, FIELD(route.mux), "off",
     .help = "a WebSocket of many requests: the form of its messages; each request is decided as if it had "
             "come by itself",
     .names = route_mux_names},
    {"to", OPTION_TEXT, FIELD(to), OPTION_NONE,
     .help = "the worker's path; not set: unchanged; with `mux`: what is put in front of the messages' paths",
     .min = 1, .max = 1024},
    {"to_service", OPTION_TEXT, FIELD(to_service), OPTION_NONE,
     .help = "one of `services`, instead of a sandbox", .min = 1, .max = 64},
    {"orgs", OPTION_TEXTS, FIELD(route.orgs), OPTION_NONE,
     .help = "with `to_service`, and required unless `need` is `none`: organisations whose tokens are good "
             "there, or `*` for all",
     .max = 256, .check = check_org},
    {"need", OPTION_TEXT, FIELD(need), "http", .help = "what the token must grant; `none`: no token needed",
     .min = 1, .max = 16},
    {"host_header", OPTION_ENUM, FIELD(host_header), "form",
     .help = "`Host` towards the worker; `form`: kept where `host` is a pattern", .names = host_names},
    {"cookies", OPTION_ENUM, FIELD(cookies), "form",
     .help = "the application's cookies; `form`: kept where `host` is a pattern", .names = keep_names},
    {"auth", OPTION_ENUM, FIELD(auth), "form",
     .help = "the application's `Authorization`; `form`: kept where `host` names the sandbox",
     .names = keep_names},
    {"cookie", OPTION_BOOL, FIELD(route.cookie), "false",
     .help = "the token may come as cookie; a route for upgrades alone needs one with `cookie` for the "
             "host's pages beside it"},
    {"origins", OPTION_TEXTS, FIELD(route.origins), OPTION_NONE,
     .help = "may open a WebSocket, or `*`; not set: the request's own host", .max = 64,
     .check = check_origin},
    {"cors", OPTION_TEXTS, FIELD(route.cors), OPTION_NONE,
     .help = "origins whose preflights are answered here", .max = 64, .check = check_origin},
    {"timeout", OPTION_DURATION, FIELD(route.timeout), OPTION_NONE,
     .help = "longest silence; not set: HAProxy's own", .min = 1, .max = 30 * OPTION_DAY},
    {"strip", OPTION_TEXTS, FIELD(route.strip), OPTION_NONE,
     .help = "further headers removed towards the worker", .max = 32, .check = check_header},
    {"set", OPTION_NODE, FIELD(set_node), OPTION_NONE, .help = "headers set towards the worker",
     .form = "an object of texts"},
    {"refuse", OPTION_ENUM, FIELD(route.refuse), "http",
     .help = "refused upgrades; `close`: accepted, then closed with a code", .names = refuse_names},
    {"resume", OPTION_ENUM, FIELD(route.resume), "none", .help = "how a tunnel goes on after a redial",
     .names = handover_resume_names},
    {"end", OPTION_ENUM, FIELD(route.end), "close", .help = "what tells a session's end",
     .names = handover_end_names},
    {"keepalive", OPTION_ENUM, FIELD(route.keepalive), "ping", .help = "sent on an idle tunnel",
     .names = handover_keepalive_names},
    {"stream", OPTION_BOOL, FIELD(route.stream), "false", .help = "messages may be cut anywhere"},
    {"redial", OPTION_NODE, FIELD(redial_node), OPTION_NONE,
     .help = "`false`: a tunnel ends with its worker; not set: `true` with `resume`, `stream`, `overlap` or "
             "`{session}`",
     .form = "true or false"},
    {"overlap", OPTION_BOOL, FIELD(route.overlap), "false",
     .help = "dial the new worker while the old one serves"},
    {"hold", OPTION_DURATION, FIELD(route.hold), OPTION_NONE,
     .help = "longest wait of an upgrade for a sandbox that wakes", .min = 1, .max = OPTION_HOUR},
    {"idle", OPTION_DURATION, FIELD(route.idle), OPTION_NONE, .help = "closes a tunnel without data",
     .min = 1, .max = 30 * OPTION_DAY},
    {"max_age", OPTION_DURATION, FIELD(route.max_age), OPTION_NONE, .help = "closes a tunnel that old",
     .min = 1, .max = 365 * OPTION_DAY},
    {"max_message", OPTION_SIZE, FIELD(route.max_message), OPTION_NONE,
     .help = "a larger one closes the tunnel", .min = 1, .max = 1 << 30},
};
#undef FIELD
enum { KEYS = sizeof keys / sizeof *keys };

const struct option *route_options(size_t *count)
{
    *count = KEYS;
    return keys;
}

bool text_among(struct slice name, const char *const *list)
{
    for (; *list; list++)
        if (slice_equal_nocase(name, slice_text(*list)))
            return true;
    return false;
}
