/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/relay_thread.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- settings ---- */
static uint64_t microseconds(int64_t milliseconds)
{
    return (uint64_t)milliseconds * MILLISECOND;
}

static struct redial_settings redial_from(const struct settings_relay *s)
{
    struct redial_settings redial = {
        .budget = microseconds(s->redial_budget),
        .flap_window = microseconds(s->flap_window),
        .flap_limit = (unsigned)s->flap_limit,
        .backoff_count = (unsigned)s->redial_backoff_count,
    };
    for (size_t i = 0; i < s->redial_backoff_count; i++)
        redial.backoff[i] = microseconds(s->redial_backoff[i]);
    return redial;
}

static struct tunnel_settings tunnel_from(const struct settings_relay *s)
{
    return (struct tunnel_settings){
        .limits = {microseconds(s->hold), microseconds(s->idle), microseconds(s->max_age),
                   (uint64_t)s->max_message},
        .keepalive = microseconds(s->keepalive),
        .dead_after = microseconds(s->dead_after),
        .stall = microseconds(s->stall),
        .grace_period = microseconds(s->grace_period),
        .close_timeout = 5 * SECOND,
        .connect_budget = microseconds(s->connect_budget),
        .migration_budget = microseconds(s->migration_budget),
        .buffer = (size_t)s->buffer,
        .rechecks = true,
        .redial = redial_from(s),
    };
}

bool relay_thread_settings_from(struct relay_thread_settings *to, const struct settings *settings)
{
    const struct settings_relay *s = &settings->relay;

    if (settings->networks_count > RELAY_THREAD_CIDRS)
        return false;
    *to = (struct relay_thread_settings){
        .tunnel = tunnel_from(s),
        .dial_timeout = microseconds(s->dial_timeout),
        .head_time = microseconds(s->head_time),
        .drain = microseconds(s->drain),
        .head_size = (size_t)s->head_size,
        .worker_tls = s->worker_tls,
        .egress_tls = s->egress_tls,
        .egress_http = s->egress_http,
        .egress_out = s->egress_out,
        .mux = s->mux,
        .mux_requests = (size_t)s->mux_requests,
        .mux_grace = microseconds(s->mux_grace),
        .networks_count = settings->networks_count,
    };
    for (size_t i = 0; i < settings->worker_sockets.count; i++)
        snprintf(to->socket_folders[i], sizeof to->socket_folders[i], "%s", settings->worker_sockets.at[i]);
    memcpy(to->networks, settings->networks, settings->networks_count * sizeof to->networks[0]);
    return true;
}

/* ---- refusing ---- */
void relay_thread_answer(struct relay_thread *thread, int fd, struct slice answer)
{
    struct buffer rest = buffer_with_limit(answer.len);

    if (buffer_put(&rest, answer)) {
        lingering_close_begin(&thread->lingering, fd, &rest, 0, 0);
    } else {
        (void)!send(fd, answer.at, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
}

void relay_thread_refuse(struct relay_thread *thread, int fd, const struct upgrade *upgrade,
                         enum refusal refusal)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);

    relay_metrics_refused(thread->shard, refusal);
    upgrade_refuse(upgrade, refusal, &w);
    relay_thread_answer(thread, fd, writer_slice(&w));
}
