/* SPDX-License-Identifier: MIT */
/* The resource `agent-sandbox` of directory/kubernetes: Sandboxes, except unclaimed ones of a warm pool. */
#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/directory/kubernetes/reader.h"
#include "spoa/agent/model/worker_url.h"

#define POOL_LABEL "agents.x-k8s.io/warm-pool-sandbox"

struct condition {
    bool there, is_true;
    struct slice reason;
};

static bool is_because(const struct condition *c, const char *reason)
{
    return c->there && !c->is_true && kubernetes_json_is(c->reason, reason);
}

/* Reads the first condition of each type. */
static void read_conditions(struct slice conditions, struct condition *ready, struct condition *finished)
{
    static const char *const keys[] = {"type", "status", "reason"};
    struct slice key, one, values[3];
    size_t cursor = 0;
    while (conditions.len && conditions.at[0] == '[' &&
           kubernetes_json_next(conditions, &cursor, &key, &one)) {
        kubernetes_json_members(one, keys, values, 3);
        struct condition *of = kubernetes_json_is(values[0], "Ready")      ? ready
                               : kubernetes_json_is(values[0], "Finished") ? finished
                                                                           : NULL;
        if (of && !of->there)
            *of = (struct condition){true, kubernetes_json_is(values[1], "True"), values[2]};
    }
}

static bool is_over(const struct condition *ready, const struct condition *finished)
{
    return finished->is_true || is_because(ready, "SandboxExpired") || is_because(ready, "PodSucceeded") ||
           is_because(ready, "PodFailed");
}

/* The spec decides, because the condition Suspended may be left over. v1alpha1 has `replicas` for it. */
static bool is_suspended(struct slice spec)
{
    static const char *const keys[] = {"operatingMode", "replicas"};
    struct slice values[2];
    kubernetes_json_members(spec, keys, values, 2);
    return kubernetes_json_is(values[0], "Suspended") || slice_is(values[1], "0");
}

static void run_agent_sandbox(struct kubernetes_reader *r, struct slice addresses, struct slice name)
{
    struct slice key, first;
    size_t cursor = 0;
    bool has_address =
        addresses.len && addresses.at[0] == '[' && kubernetes_json_next(addresses, &cursor, &key, &first);
    struct address address;
    struct slice text;
    r->object->record.state = RECORD_WAKING;
    if (has_address && !(kubernetes_json_text(first, r->scratch, &text) && address_parse(text, &address)))
        kubernetes_be_odd(r, "status.podIPs is no list of addresses");
    else if (has_address ? kubernetes_lead_to(r, text, 0)
                         : kubernetes_json_is(name, "") || !name.len || kubernetes_lead_to_text(r, name))
        r->object->record.state =
            r->object->record.worker.kind == WORKER_NONE ? RECORD_WAKING : RECORD_RUNNING;
    else
        kubernetes_be_odd(r, "status.serviceFQDN is no name");
}

static bool read_agent_sandbox(struct kubernetes_reader *r)
{
    static const char *const keys[] = {"conditions", "podIPs", "serviceFQDN"};
    struct record *record = &r->object->record;
    struct condition ready = {.there = false}, finished = {.there = false};
    struct slice status[3];
    if (kubernetes_value(r->metadata[KUBERNETES_LABELS], POOL_LABEL).len ||
        !kubernetes_make_key(r, r->object->name))
        return false;
    kubernetes_read_uid(r);
    kubernetes_json_members(r->root[KUBERNETES_STATUS], keys, status, 3);
    read_conditions(status[0], &ready, &finished);
    if (is_over(&ready, &finished) || (r->metadata[KUBERNETES_DELETED].len && !ready.is_true))
        record->state = RECORD_STOPPED;
    else if (is_suspended(r->root[KUBERNETES_SPEC]))
        record->state = RECORD_SUSPENDED;
    else if (ready.is_true)
        run_agent_sandbox(r, status[1], status[2]);
    else
        record->state = RECORD_WAKING;
    return true;
}

const struct kubernetes_resource kubernetes_resource_agent_sandbox = {
    .name = "agent-sandbox",
    .group = "agents.x-k8s.io",
    .plural = "sandboxes",
    .versions = {"v1beta1", "v1alpha1"},
    .selector = "!" POOL_LABEL,
    .wake = {"{\"spec\":{\"operatingMode\":\"Running\"}}", "{\"spec\":{\"replicas\":1}}"},
    .read = read_agent_sandbox,
};
