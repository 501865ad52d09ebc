/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/account.h"

#include <stdio.h>

#include "spoa/base/json_write.h"

void account_id(const struct account *a, char id[static 32])
{
    snprintf(id, 32, "t-%u-%llu", a->lane->number, (unsigned long long)a->id);
}

static const char *worker_text(const struct account *a, char text[static NET_TEXT])
{
    const struct target *to = &a->tunnel->target;
    struct net_address address;

    if (slice_present(to->unix_path)) {
        snprintf(text, NET_TEXT, "unix@%.*s", SLICE_PRINTF(to->unix_path));
        return text;
    }
    net_from_ip(slice_of(to->addr.bytes, to->addr.family == 4 ? 4 : 16), to->port, &address);
    return net_text(&address, text);
}

/* ---- its life ---- */
void account_problem(const struct account *a, const char *what, const char *why)
{
    char id[32];
    account_id(a, id);
    log_audit(a->lane->log, LOG_INFO, what, LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", a->handover->sandbox), LOG_TEXT("why", why));
}

void account_opened(const struct account *a)
{
    const struct handover *h = a->handover;
    char id[32], worker[NET_TEXT];

    metrics_add(a->lane->shard, COUNT_OPENED, METRIC_INDEX(a->route), 1);
    metrics_add(a->lane->shard, COUNT_TUNNELS, METRIC_INDEX(a->route), 1);
    account_id(a, id);
    log_audit(a->lane->log, LOG_INFO, "tunnel opened", LOG_TEXT("tunnel", id), LOG_SLICE("route", h->route),
              LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org), LOG_SLICE("sub", h->sub),
              LOG_SLICE("jti", h->jti), LOG_TEXT("worker", worker_text(a, worker)));
}

void account_resumed(const struct account *a, enum loss loss, uint64_t gap)
{
    struct metrics_shard *shard = a->lane->shard;

    metrics_add(shard, COUNT_REDIALS, METRIC_INDEX(loss, REDIAL_RESUMED), 1);
    metrics_observe(shard, COUNT_GAP, METRIC_PLAIN, (double)gap / 1e6);
    if (gap > a->lane->longest_gap)
        a->lane->longest_gap = gap;
    char id[32], worker[NET_TEXT];
    account_id(a, id);
    log_audit(a->lane->log, LOG_INFO, "redialled", LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", a->handover->sandbox), LOG_TEXT("cause", loss_names[loss]),
              LOG_TEXT("worker", worker_text(a, worker)), LOG_SECONDS("gap", (double)gap / 1e6));
}

void account_declared(const struct account *a, uint64_t missing)
{
    struct metrics_shard *shard = a->lane->shard;
    bool plain = a->tunnel->adapter == &adapter_none, known = missing != ADAPTER_UNKNOWN;
    unsigned adapter = plain ? HANDOVER_RESUME_NONE : a->handover->resume;
    char id[32];

    metrics_add(shard, COUNT_RESUME, METRIC_INDEX(adapter, missing ? RESUME_GAP : RESUME_EXACT), 1);
    if (!missing || plain)
        return;
    if (known)
        metrics_add(shard, COUNT_MISSING, METRIC_INDEX(adapter),
                    missing < INT64_MAX ? (int64_t)missing : INT64_MAX);
    account_id(a, id);
    log_audit(a->lane->log, LOG_WARN, "resumed with a gap", LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", a->handover->sandbox), LOG_TEXT("adapter", a->tunnel->adapter->name),
              known ? LOG_U64("missing", missing) : LOG_TEXT("missing", "unknown"));
}

void account_unsure(const struct account *a, uint64_t bytes)
{
    metrics_add(a->lane->shard, COUNT_UNSURE, METRIC_PLAIN, (int64_t)bytes);
}

uint64_t account_held(const struct account *a)
{
    const struct tunnel *t = a->tunnel;
    size_t held = t->adapter_state && t->adapter->held ? t->adapter->held(t->adapter_state) : 0;

    for (enum side side = CLIENT; side <= WORKER; side++)
        held += t->legs[side].out.frames.size + t->legs[side].partial.size;
    return held + a->opening + t->pings.open.size + t->goodbye.size;
}

void account_update(struct account *a)
{
    struct metrics_shard *shard = a->lane->shard;
    const struct tunnel *t = a->tunnel;
    uint64_t held = account_held(a);

    for (enum side side = CLIENT; side <= WORKER; side++) {
        const struct leg *leg = &t->legs[side];
        uint64_t sent = leg->bytes_out - a->counted[side];
        if (sent)
            metrics_add(shard, COUNT_BYTES, METRIC_INDEX(side == WORKER ? BYTES_TO_WORKER : BYTES_TO_CLIENT),
                        (int64_t)sent);
        a->counted[side] = leg->bytes_out;
    }
    counts_hold(shard, a->lane->limits, (int64_t)(held - a->use.held));
    limits_use_set(a->lane->limits, &a->use, held, tunnel_waits(t));
}

static uint64_t unacknowledged(const struct tunnel *t)
{
    const struct adapter_numbers *numbers = t->adapter->numbers;
    return numbers ? numbers->unacknowledged(t->adapter_state) : 0;
}

static void log_ended(const struct account *a)
{
    const struct tunnel *t = a->tunnel;
    const struct handover *h = a->handover;
    char id[32], worker[NET_TEXT];

    account_id(a, id);
    log_audit(a->lane->log, LOG_INFO, "tunnel ended", LOG_TEXT("tunnel", id), LOG_SLICE("route", h->route),
              LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org), LOG_SLICE("sub", h->sub),
              LOG_SLICE("jti", h->jti), LOG_TEXT("worker", worker_text(a, worker)),
              LOG_TEXT("reason", close_reason_info(t->reason)->name),
              LOG_U64("to_worker", t->legs[WORKER].bytes_out),
              LOG_U64("to_client", t->legs[CLIENT].bytes_out), LOG_U64("redials", t->redials),
              LOG_SECONDS("longest_gap", (double)t->longest_gap / 1e6), LOG_U64("gaps", t->gaps),
              LOG_U64("missing", t->missing), LOG_U64("unacknowledged", unacknowledged(t)),
              LOG_SECONDS("age", (double)(loop_clock() - t->opened) / 1e6));
}

void account_ended(const struct account *a)
{
    struct metrics_shard *shard = a->lane->shard;
    const struct tunnel *t = a->tunnel;

    metrics_add(shard, COUNT_TUNNELS, METRIC_INDEX(a->route), -1);
    metrics_add(shard, COUNT_CLOSED, METRIC_INDEX(a->route, t->reason), 1);
    if (t->reason == CLOSE_unrecoverable || t->reason == CLOSE_flapping ||
        t->reason == CLOSE_session_not_found || t->reason == CLOSE_worker_refused)
        metrics_add(shard, COUNT_REDIALS, METRIC_INDEX(t->loss, REDIAL_FAILED), 1);
    log_ended(a);
}

/* ---- as it is ---- */
static const char *state_text(const struct account *a)
{
    static const char *const names[] = {"opening", "serving", "settling", "redialling", "closing", "ended"};
    return names[a->tunnel->state];
}

static bool describe_text(struct buffer *to, const char *key, struct slice value)
{
    return !slice_present(value) || (json_write(to, ",\"%s\":", key) && json_write_text(to, value));
}

bool account_describe(const struct account *a, struct buffer *to)
{
    const struct tunnel *t = a->tunnel;
    const struct handover *h = a->handover;
    char id[32], worker[NET_TEXT];
    uint64_t now = loop_clock();

    account_id(a, id);
    return json_write(to, "{\"id\":\"%s\",\"state\":\"%s\"", id, state_text(a)) &&
           describe_text(to, "route", h->route) && describe_text(to, "sandbox", h->sandbox) &&
           describe_text(to, "namespace", h->space) && describe_text(to, "session", h->session) &&
           describe_text(to, "org", h->org) && describe_text(to, "sub", h->sub) &&
           describe_text(to, "worker", slice_text(worker_text(a, worker))) &&
           json_write(to,
                      ",\"age\":%.3f,\"idle\":%.3f,\"to_worker\":%llu,\"to_client\":%llu,\"held\":%llu,"
                      "\"redials\":%u,\"longest_gap\":%.3f}",
                      (double)(now - t->opened) / 1e6, (double)(now - t->used) / 1e6,
                      (unsigned long long)t->legs[WORKER].bytes_out,
                      (unsigned long long)t->legs[CLIENT].bytes_out, (unsigned long long)a->use.held,
                      t->redials, (double)t->longest_gap / 1e6);
}
