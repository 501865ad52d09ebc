/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/audit.h"

#include <arpa/inet.h>

#include "spoa/agent/model/grant.h"
#include "spoa/service/settings.h"

bool audit_wanted(const struct verdict *v, int which)
{
    bool admitted = v->refusal == REFUSAL_NONE &&
                    (v->kind == VERDICT_DIRECT || v->kind == VERDICT_RELAY || v->kind == VERDICT_REDIRECT);
    return admitted && (which == SETTINGS_AUDIT_ALL || (which == SETTINGS_AUDIT_UPGRADES && v->upgrade));
}

static struct slice address_text(const struct address *addr, struct writer w)
{
    if (!addr->family)
        return slice_text(NULL);
    address_write(&w, addr);
    return writer_slice(&w);
}

/* Returns "10.0.0.5:9001" or "[fd00::5]:9001"; absent if there is no address, or the relay asks for it. */
static struct slice endpoint_text(const struct address *addr, int64_t port, struct writer w)
{
    if (!addr->family)
        return slice_text(NULL);
    writer_text(&w, addr->family == 4 ? "" : "[");
    address_write(&w, addr);
    writer_text(&w, addr->family == 4 ? ":" : "]:");
    writer_decimal(&w, (uint64_t)port);
    return writer_slice(&w);
}

struct line {
    struct log_field fields[16];
    size_t count;
};

static void put_field(struct line *line, const char *key, struct slice value)
{
    if (slice_present(value))
        line->fields[line->count++] = LOG_SLICE(key, slice_sub(value, 0, AUDIT_VALUE));
}

void audit_write(struct log *log, const struct verdict *v)
{
    char source[INET6_ADDRSTRLEN], worker[INET6_ADDRSTRLEN + 16], words[64];
    struct writer need = writer_of(words, sizeof words);
    struct line line = {.count = 0};
    need_text(v->need, &need);
    put_field(&line, "verdict", slice_text(verdict_kind_text(v->kind)));
    put_field(&line, "id", v->request_id);
    put_field(&line, "source", address_text(&v->source, writer_of(source, sizeof source)));
    put_field(&line, "route", v->route);
    put_field(&line, "need", writer_slice(&need));
    put_field(&line, "sandbox", v->sandbox);
    put_field(&line, "namespace", v->space);
    if (v->port >= 0)
        line.fields[line.count++] = LOG_I64("port", v->port);
    put_field(&line, "worker", endpoint_text(&v->addr, v->addr_port, writer_of(worker, sizeof worker)));
    put_field(&line, "token", v->token_kind ? slice_text(v->token_kind) : SLICE_LITERAL("none"));
    put_field(&line, "org", v->org);
    put_field(&line, "kid", v->kid);
    put_field(&line, "jti", v->jti);
    put_field(&line, "sub", v->sub);
    log_fields_audit(log, LOG_INFO, "audit", line.fields, line.count);
}

void audit_write_egress(struct log *log, const struct egress_request *request, const struct egress_verdict *v)
{
    char source[INET6_ADDRSTRLEN], address[INET6_ADDRSTRLEN + 16];
    struct line line = {.count = 0};
    put_field(&line, "verdict", slice_text(egress_verdict_text(v)));
    put_field(&line, "id", request->id);
    put_field(&line, "source", address_text(&request->source, writer_of(source, sizeof source)));
    put_field(&line, "sandbox", v->sandbox);
    put_field(&line, "namespace", v->space);
    put_field(&line, "host", v->host);
    if (v->port >= 0)
        line.fields[line.count++] = LOG_I64("port", v->port);
    put_field(&line, "address", endpoint_text(&v->addr, v->port, writer_of(address, sizeof address)));
    if (v->rule >= 0)
        line.fields[line.count++] = LOG_I64("rule", v->rule);
    if (v->kind >= EGRESS_DIRECT || request->inside) {
        put_field(&line, "method", request->method);
        put_field(&line, "path", slice_sub(v->path, 0, slice_find(v->path, '?')));
    }
    put_field(&line, "error", v->error);
    put_field(&line, "reason", v->reason);
    if (v->audit)
        put_field(&line, "enforcement", SLICE_LITERAL("audit"));
    log_fields_audit(log, v->refusal == REFUSAL_NONE && !v->audit ? LOG_INFO : LOG_WARN, "egress",
                     line.fields, line.count);
}
