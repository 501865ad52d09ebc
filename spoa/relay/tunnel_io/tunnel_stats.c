/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/tunnel_stats.h"

#include <stdio.h>
#include <time.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json_write.h"

void tunnel_stats_id(const struct tunnel_stats *s, char id[static 32])
{
    struct writer w = writer_of(id, 32);

    writer_text(&w, "t-");
    writer_decimal(&w, s->thread->number);
    writer_u8(&w, '-');
    writer_decimal(&w, s->id);
    writer_u8(&w, 0);
}

const char *tunnel_stats_worker(const struct tunnel_stats *s, char text[static NET_TEXT])
{
    const struct target *to = &s->tunnel->connector.target;
    struct net_address address;

    if (slice_present(to->unix_path)) {
        snprintf(text, NET_TEXT, "unix@%.*s", SLICE_PRINTF(to->unix_path));
        return text;
    }
    net_from_ip(slice_of(to->addr.bytes, to->addr.family == 4 ? 4 : 16), to->port, &address);
    return net_text(&address, text);
}

/* ---- its life ---- */
void tunnel_stats_problem(const struct tunnel_stats *s, const char *what, const char *why)
{
    char id[32];
    tunnel_stats_id(s, id);
    log_audit(s->thread->log, LOG_INFO, what, LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", upgrade_handover(s->upgrade).sandbox), LOG_TEXT("why", why));
}

void tunnel_stats_dial_failed(const struct tunnel_stats *s, const char *why)
{
    metrics_add(s->thread->shard, METRIC_DIALS_FAILED, METRIC_PLAIN, 1);
    tunnel_stats_problem(s, "dial failed", why);
}

void tunnel_stats_opened(const struct tunnel_stats *s)
{
    const struct handover handover = upgrade_handover(s->upgrade), *h = &handover;
    char id[32], worker[NET_TEXT];

    metrics_add(s->thread->shard, METRIC_OPENED, METRIC_INDEX(s->route), 1);
    metrics_add(s->thread->shard, METRIC_TUNNELS, METRIC_INDEX(s->route), 1);
    tunnel_stats_id(s, id);
    log_audit(s->thread->log, LOG_INFO, "tunnel opened", LOG_TEXT("tunnel", id), LOG_SLICE("id", h->id),
              LOG_SLICE("route", h->route), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org),
              LOG_SLICE("sub", h->sub), LOG_SLICE("jti", h->jti),
              LOG_TEXT("worker", tunnel_stats_worker(s, worker)));
}

void tunnel_stats_taken_over(const struct tunnel_stats *s)
{
    const struct handover h = upgrade_handover(s->upgrade);
    char id[32], worker[NET_TEXT];

    metrics_add(s->thread->shard, METRIC_TUNNELS, METRIC_INDEX(s->route), 1);
    tunnel_stats_id(s, id);
    log_write(s->thread->log, LOG_DEBUG, "tunnel taken over", LOG_TEXT("tunnel", id), LOG_SLICE("id", h.id),
              LOG_SLICE("route", h.route), LOG_SLICE("sandbox", h.sandbox),
              LOG_TEXT("worker", tunnel_stats_worker(s, worker)));
}

void tunnel_stats_resumed(const struct tunnel_stats *s, enum loss loss, uint64_t gap)
{
    struct metrics_shard *shard = s->thread->shard;

    metrics_add(shard, METRIC_REDIALS, METRIC_INDEX(loss, REDIAL_RESUMED), 1);
    metrics_observe(shard, METRIC_GAP, METRIC_PLAIN, (double)gap / 1e6);
    if (gap > s->thread->longest_gap)
        s->thread->longest_gap = gap;
    char id[32], worker[NET_TEXT];
    tunnel_stats_id(s, id);
    log_audit(s->thread->log, LOG_INFO, "redialled", LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", upgrade_handover(s->upgrade).sandbox), LOG_TEXT("cause", loss_names[loss]),
              LOG_TEXT("worker", tunnel_stats_worker(s, worker)), LOG_SECONDS("gap", (double)gap / 1e6));
}

void tunnel_stats_declared(const struct tunnel_stats *s, uint64_t missing)
{
    struct metrics_shard *shard = s->thread->shard;
    bool plain = s->tunnel->forward.adapter == &adapter_none, known = missing != ADAPTER_UNKNOWN;
    unsigned adapter = plain ? HANDOVER_RESUME_NONE : upgrade_handover(s->upgrade).resume;
    char id[32];

    metrics_add(shard, METRIC_RESUME, METRIC_INDEX(adapter, missing ? RESUME_GAP : RESUME_EXACT), 1);
    if (!missing || plain)
        return;
    if (known)
        metrics_add(shard, METRIC_MISSING, METRIC_INDEX(adapter),
                    missing < INT64_MAX ? (int64_t)missing : INT64_MAX);
    tunnel_stats_id(s, id);
    log_audit(s->thread->log, LOG_WARN, "resumed with a gap", LOG_TEXT("tunnel", id),
              LOG_SLICE("sandbox", upgrade_handover(s->upgrade).sandbox),
              LOG_TEXT("adapter", s->tunnel->forward.adapter->name),
              known ? LOG_U64("missing", missing) : LOG_TEXT("missing", "unknown"));
}

void tunnel_stats_unconfirmed(const struct tunnel_stats *s, uint64_t bytes)
{
    metrics_add(s->thread->shard, METRIC_UNCONFIRMED, METRIC_PLAIN, (int64_t)bytes);
}

uint64_t tunnel_stats_held(const struct tunnel_stats *s)
{
    const struct tunnel *t = s->tunnel;
    size_t held = t->forward.adapter_state && t->forward.adapter->held
                      ? t->forward.adapter->held(t->forward.adapter_state)
                      : 0;

    for (enum side side = CLIENT; side <= WORKER; side++)
        held += t->forward.legs[side].out.frames.size + t->forward.legs[side].partial.size;
    held += send_queue_piped(&t->forward.legs[CLIENT].out);
    return held + s->opening + t->pending_close.size;
}

void tunnel_stats_update(struct tunnel_stats *s)
{
    uint64_t held = tunnel_stats_held(s);

    relay_metrics_hold(s->thread->shard, s->thread->limits, (int64_t)(held - s->use.held));
    limits_use_set(s->thread->limits, &s->use, held, forward_waits(&s->tunnel->forward));
}

static uint64_t unacknowledged(const struct tunnel *t)
{
    const struct adapter_numbers *numbers = t->forward.adapter->numbers;
    return numbers ? numbers->unacknowledged(t->forward.adapter_state) : 0;
}

static void log_ended(const struct tunnel_stats *s)
{
    const struct tunnel *t = s->tunnel;
    const struct handover handover = upgrade_handover(s->upgrade), *h = &handover;
    char id[32], worker[NET_TEXT];

    tunnel_stats_id(s, id);
    log_audit(s->thread->log, LOG_INFO, "tunnel ended", LOG_TEXT("tunnel", id), LOG_SLICE("id", h->id),
              LOG_SLICE("route", h->route), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org),
              LOG_SLICE("sub", h->sub), LOG_SLICE("jti", h->jti),
              LOG_TEXT("worker", tunnel_stats_worker(s, worker)),
              LOG_TEXT("reason", close_reason_info(t->reason)->name),
              LOG_U64("to_worker", t->forward.legs[WORKER].bytes_out),
              LOG_U64("to_client", t->forward.legs[CLIENT].bytes_out), LOG_U64("redials", t->redials),
              LOG_SECONDS("longest_gap", (double)t->longest_gap / 1e6), LOG_U64("gaps", t->forward.gaps),
              LOG_U64("missing", t->forward.missing), LOG_U64("unacknowledged", unacknowledged(t)),
              LOG_SECONDS("age", (double)(loop_clock() - t->opened) / 1e6));
}

static void note_end(const struct tunnel_stats *s)
{
    const struct tunnel *t = s->tunnel;
    const struct handover h = upgrade_handover(s->upgrade);
    struct top_end *end = top_ends_note(&s->thread->ends);
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    end->at = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    end->reason = t->reason;
    end->redials = t->redials;
    end->age = loop_clock() - t->opened;
    end->longest_gap = t->longest_gap;
    tunnel_stats_id(s, end->id);
    end->sandbox_len = top_end_name(end->sandbox, h.sandbox);
    end->route_len = top_end_name(end->route, h.route);
}

void tunnel_stats_ended(const struct tunnel_stats *s)
{
    struct metrics_shard *shard = s->thread->shard;
    const struct tunnel *t = s->tunnel;

    metrics_add(shard, METRIC_TUNNELS, METRIC_INDEX(s->route), -1);
    metrics_add(shard, METRIC_CLOSED, METRIC_INDEX(s->route, t->reason), 1);
    metrics_observe(shard, METRIC_AGE, METRIC_PLAIN, (double)(loop_clock() - t->opened) / 1e6);
    if (t->reason == CLOSE_unrecoverable || t->reason == CLOSE_flapping ||
        t->reason == CLOSE_session_not_found || t->reason == CLOSE_worker_refused)
        metrics_add(shard, METRIC_REDIALS, METRIC_INDEX(t->loss, REDIAL_FAILED), 1);
    note_end(s);
    log_ended(s);
}

/* ---- as it is ---- */
static bool describe_text(struct buffer *to, const char *key, struct slice value)
{
    return !slice_present(value) || (json_write(to, ",\"%s\":", key) && json_write_text(to, value));
}

bool tunnel_stats_describe(const struct tunnel_stats *s, struct buffer *to)
{
    const struct tunnel *t = s->tunnel;
    const struct handover handover = upgrade_handover(s->upgrade), *h = &handover;
    char id[32], worker[NET_TEXT];
    uint64_t now = loop_clock();

    tunnel_stats_id(s, id);
    return json_write(to, "{\"id\":\"%s\",\"state\":\"%s\"", id, tunnel_state_names[s->tunnel->state]) &&
           describe_text(to, "request_id", h->id) && describe_text(to, "route", h->route) &&
           describe_text(to, "sandbox", h->sandbox) && describe_text(to, "namespace", h->space) &&
           describe_text(to, "session", h->session) && describe_text(to, "org", h->org) &&
           describe_text(to, "sub", h->sub) &&
           describe_text(to, "worker", slice_text(tunnel_stats_worker(s, worker))) &&
           json_write(to,
                      ",\"age\":%.3f,\"idle\":%.3f,\"to_worker\":%llu,\"to_client\":%llu,\"held\":%llu,"
                      "\"redials\":%u,\"longest_gap\":%.3f}",
                      (double)(now - t->opened) / 1e6, (double)(now - t->forward.used) / 1e6,
                      (unsigned long long)t->forward.legs[WORKER].bytes_out,
                      (unsigned long long)t->forward.legs[CLIENT].bytes_out, (unsigned long long)s->use.held,
                      t->redials, (double)t->longest_gap / 1e6);
}
