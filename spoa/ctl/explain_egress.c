/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/explain_egress.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/egress/target.h"
#include "spoa/ctl/explain_report.h"

bool explain_egress_wants(struct slice request_line, struct slice sandbox)
{
    return slice_present(sandbox) || slice_starts(request_line, "CONNECT ");
}

/* Builds the request as HAProxy would receive it inside a CONNECT to the URL's host. */
static bool take_inside(struct slice url, struct writer *w, struct egress_request *request, struct fail *why)
{
    struct slice rest = slice_from(url, strlen("https://"));
    size_t end = slice_find(rest, '/'), query = slice_find(rest, '?'), start = w->len;
    struct target target;
    const char *fault = target_parse(slice_sub(rest, 0, end < query ? end : query), 443, &target);
    if (fault)
        return fail(why, "%s", fault);
    writer_put(w, target_host(&target));
    request->sni = slice_from(writer_slice(w), start);
    start = w->len;
    if (target.address.family == 6)
        writer_text(w, "[");
    writer_put(w, target_host(&target));
    writer_text(w, target.address.family == 6 ? "]:" : ":");
    writer_decimal(w, target.port);
    request->to = slice_from(writer_slice(w), start);
    return request->inside = request->tls = true;
}

/* Adds a Host header from the URL if none was given. */
static void put_host(const struct head_lines *head, struct slice url, struct writer *w)
{
    size_t scheme = slice_starts(url, "https://") ? 8 : 7;
    struct slice rest = slice_from(url, scheme);
    size_t end = slice_find(rest, '/'), query = slice_find(rest, '?');
    for (size_t i = 0; i < head->count; i++)
        if (slice_equal_nocase(head->line[i].name, SLICE_LITERAL("host")))
            return;
    writer_text(w, "host: ");
    writer_put(w, slice_sub(rest, 0, end < query ? end : query));
    writer_text(w, "\r\n");
}

bool explain_egress_request(const struct head_lines *head, struct writer *w, struct egress_request *request,
                            struct fail *why)
{
    struct slice rest = head->request;
    if (!slice_split(&rest, ' ', &request->method) || !slice_present(rest))
        return fail(why, "a request is METHOD URL, or CONNECT HOST:PORT");
    request->target = slice_trim(rest);
    request->version = SLICE_LITERAL("1.1");
    bool connects = slice_is(request->method, "CONNECT");
    if (!connects && slice_starts(request->target, "https://") &&
        !take_inside(request->target, w, request, why))
        return false;
    size_t start = w->len;
    if (!connects)
        put_host(head, request->target, w);
    for (size_t i = 0; i < head->count; i++) {
        for (size_t c = 0; c < head->line[i].name.len; c++) /* HAProxy reports names in lower case */
            writer_u8(w, (uint8_t)tolower(head->line[i].name.at[c]));
        writer_text(w, ": ");
        writer_put(w, head->line[i].value);
        writer_text(w, "\r\n");
    }
    writer_text(w, "\r\n");
    request->headers = slice_from(writer_slice(w), start);
    return !w->full || fail(why, "the headers are too large");
}

static bool take(const struct addrinfo *found, struct address *address)
{
    *address = (struct address){.family = found->ai_family == AF_INET ? 4 : 6};
    if (found->ai_family == AF_INET)
        memcpy(address->bytes, &((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr, 4);
    else if (found->ai_family == AF_INET6)
        memcpy(address->bytes, &((const struct sockaddr_in6 *)(const void *)found->ai_addr)->sin6_addr, 16);
    return found->ai_family == AF_INET || found->ai_family == AF_INET6;
}

enum lookup explain_egress_addresses(void *directory, struct slice space, struct slice sandbox,
                                     struct slice host, struct address *addresses, size_t *count)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char *name = slice_dup(host);
    int result = name ? getaddrinfo(name, NULL, &hints, &all) : EAI_MEMORY;
    (void)directory, (void)space, (void)sandbox;
    free(name);
    *count = 0;
    const struct addrinfo *one = result ? NULL : all;
    for (; one && *count < EGRESS_ADDRESSES; one = one->ai_next)
        *count += take(one, &addresses[*count]);
    *count += one != NULL;
    if (!result)
        freeaddrinfo(all);
    return *count ? LOOKUP_FOUND : result == EAI_NONAME ? LOOKUP_ABSENT : LOOKUP_UNAVAILABLE;
}

/* Returns true if `cellgate certificates` writes a certificate for this host; `*` stands for one label. */
static bool is_listed(const struct texts *names, struct slice host)
{
    for (size_t i = 0; i < names->count; i++) {
        struct slice name = slice_text(names->at[i]);
        bool any = slice_starts(name, "*.");
        if (slice_equal_nocase(slice_from(host, any ? slice_find(host, '.') : 0), slice_from(name, any)))
            return true;
    }
    return false;
}

static void report_verdict(struct report *r, const struct egress_verdict *v)
{
    char text[INET6_ADDRSTRLEN];
    report_text(r, "verdict", slice_text(egress_verdict_text(v)));
    report_number(r, "status", v->status);
    report_text(r, "error", v->error);
    report_text(r, "message", v->message);
    report_text(r, "reason", v->reason);
    report_truth(r, "retryable", v->retryable);
    report_truth(r, "audit", v->audit);
    report_number(r, "rule", v->rule);
    report_text(r, "sandbox", v->sandbox);
    report_text(r, "namespace", v->space);
    report_text(r, "host", v->host);
    report_number(r, "port", v->port);
    if (v->addr.family &&
        inet_ntop(v->addr.family == 4 ? AF_INET : AF_INET6, v->addr.bytes, text, sizeof text))
        report_text(r, "address", slice_text(text));
    report_text(r, "path", v->path);
    report_text(r, "authority", v->authority);
#define X(field, variable, header)                             \
    if (v->refusal == REFUSAL_NONE && slice_present(v->field)) \
        report_truth(r, variable, true);
    EGRESS_CREDENTIALS(X)
#undef X
}

/* Returns the CONNECT request that contains this request. */
static struct egress_request connect_of(const struct egress_request *request)
{
    return (struct egress_request){.method = SLICE_LITERAL("CONNECT"),
                                   .version = request->version,
                                   .target = request->to,
                                   .headers = SLICE_LITERAL("\r\n"),
                                   .sandbox = request->sandbox,
                                   .source = request->source};
}

enum refusal explain_egress_print(bool json, const struct texts *http2, const struct decide_view *view,
                                  const struct egress_request *request, struct writer *scratch)
{
    struct report report = {.json = json};
    struct decide_trace trace = {.step = report_step, .context = &report};
    struct decide_view traced = *view;
    struct egress_verdict verdict;
    traced.trace = &trace;
    if (json)
        printf("{\"steps\": [");
    if (request->inside) {
        struct egress_request connect = connect_of(request);
        size_t before = scratch->len;
        egress_decide(view, &connect, scratch, &verdict);
        scratch->len = before;
        if (verdict.refusal != REFUSAL_NONE) {
            report_step(&report, "request", "it would come in a CONNECT, which is refused", connect.target);
            egress_decide(&traced, &connect, scratch, &verdict);
        } else {
            egress_decide(&traced, request, scratch, &verdict);
        }
    } else {
        egress_decide(&traced, request, scratch, &verdict);
    }
    report.members = 0;
    printf("%s", json ? "], \"verdict\": {" : "\n");
    report_verdict(&report, &verdict);
    if (verdict.refusal == REFUSAL_NONE && (verdict.kind == EGRESS_INSPECT || request->inside))
        report_text(&report, "http2", slice_text(is_listed(http2, verdict.host) ? "offered" : "not listed"));
    printf("%s", json ? "}}\n" : "");
    return verdict.refusal;
}
