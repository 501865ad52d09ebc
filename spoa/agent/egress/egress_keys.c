/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/egress_keys.h"

#define AT(member) offsetof(struct settings_egress, member)

/* Returns whether the text is a label of a DNS name in lower case; *number tells whether it has only digits. */
static bool is_label(struct slice label, bool *number)
{
    bool good = label.len > 0 && label.len <= 63;
    *number = true;
    for (size_t i = 0; good && i < label.len; i++) {
        uint8_t c = label.at[i];
        bool digit = c >= '0' && c <= '9';
        good = digit || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
        *number = *number && digit;
    }
    return good;
}

/* Checks a host name, which must be usable in a certificate and as the name of its file; an address is not. */
static const char *check_host(struct slice text)
{
    bool wild = slice_starts(text, "*."), good = text.len <= 250, number = true;
    struct slice rest = wild ? slice_from(text, 2) : text, label;
    size_t labels = 0;
    for (; good && slice_split(&rest, '.', &label); labels++)
        good = is_label(label, &number);
    return good && !number && labels >= (wild ? 2 : 1)
               ? NULL
               : "a list of names such as \"api.example.org\" or \"*.example.org\", in lower case";
}

static const struct option rows[] = {
    {"egress.default", OPTION_NODE, AT(fallback), OPTION_NONE,
     "rules of sandboxes whose record has no `egress`; not set: nothing is allowed", ANY,
     .form = "an object, see below",
     .example = "{ \"rules\": [{ \"host\": \"*.example.org\", \"ports\": [443] }] }"},
    {"egress.hosts", OPTION_NODE, AT(hosts), OPTION_NONE, "addresses of hosts outside, instead of DNS", ANY,
     .form = "an object of name: address", .example = "{ \"registry.example.org\": \"192.0.2.7\" }"},
    {"egress.lookup", OPTION_DURATION, AT(lookup), "700ms",
     "longest wait of a CONNECT for DNS, after `agent.lookup`; both together below HAProxy's "
     "`CELLGATE_DECISION_TIMEOUT`",
     RANGE(1, SECONDS(30)), .restart = true},
    {"egress.private_networks", OPTION_TEXTS, AT(private_networks), OPTION_NONE,
     "loopback networks that a rule with `private` may reach", RANGE(0, 64), .check = option_check_network,
     .example = "[\"127.0.0.1\"]"},
    {"egress.sign_file", OPTION_PATH, AT(sign_file), OPTION_NONE,
     "certificate and key of the authority for inspected connections (`CELLGATE_EGRESS_SIGN`); not set: "
     "nothing is inspected",
     ANY, .later = true},
    {"egress.http2", OPTION_TEXTS, AT(http2), OPTION_NONE,
     "inspected hosts with which programs may speak HTTP/2, as gRPC does: `cellgate certificates` writes a "
     "certificate for each",
     RANGE(0, 256), .check = check_host, .example = "[\"api.example.org\", \"*.grpc.example.org\"]"},
    {"egress.http2_folder", OPTION_PATH, AT(http2_folder), OPTION_NONE,
     "folder of these certificates, and of nothing else (`CELLGATE_EGRESS_HTTP2`)", ANY, .later = true},
    {"egress.ca_file", OPTION_PATH, AT(ca_file), OPTION_NONE,
     "authorities of inspected hosts outside (`CELLGATE_EGRESS_CA`); not set: the system's", ANY,
     .later = true},
    {"egress.secrets", OPTION_NODE, AT(secrets), OPTION_NONE,
     "values of headers that rules set, by name: the first line of each file", ANY,
     .form = "an object of name: file", .example = "{ \"registry\": \"registry.token\" }"},
};

const struct option_part egress_keys = OPTION_PART(rows);
