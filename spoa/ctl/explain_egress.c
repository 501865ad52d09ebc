/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/explain_egress.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/ctl/explain_report.h"

bool explain_egress_wants(struct slice request_line)
{
    return slice_starts(request_line, "CONNECT ");
}

bool explain_egress_request(const struct head_lines *head, struct writer *w, struct egress_request *request, struct fail *why)
{
    size_t start = w->len;
    request->method = SLICE_LITERAL("CONNECT");
    request->target = slice_trim(slice_from(head->request, strlen("CONNECT ")));
    for (size_t i = 0; i < head->count; i++) {
        writer_put(w, head->line[i].name);
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

static void report_verdict(struct report *r, const struct egress_verdict *v)
{
    char text[INET6_ADDRSTRLEN];
    report_text(r, "verdict", v->refusal == REFUSAL_NONE ? SLICE_LITERAL("raw") : SLICE_LITERAL("deny"));
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
    if (v->addr.family && inet_ntop(v->addr.family == 4 ? AF_INET : AF_INET6, v->addr.bytes, text, sizeof text))
        report_text(r, "address", slice_text(text));
}

enum refusal explain_egress_print(bool json, const struct decide_view *view, const struct egress_request *request,
                                  struct writer *scratch)
{
    struct report report = {.json = json};
    struct decide_trace trace = {.step = report_step, .context = &report};
    struct decide_view traced = *view;
    struct egress_verdict verdict;
    traced.trace = &trace;
    if (json)
        printf("{\"steps\": [");
    egress_decide(&traced, request, scratch, &verdict);
    report.members = 0;
    printf("%s", json ? "], \"verdict\": {" : "\n");
    report_verdict(&report, &verdict);
    printf("%s", json ? "}}\n" : "");
    return verdict.refusal;
}
