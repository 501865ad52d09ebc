/* SPDX-License-Identifier: MIT */
/*
 * What resume costs while nothing is lost: round trips of 64 bytes, output and input in messages of 16 KiB,
 * through the tunnel's machine and a pair of sockets per side, for each adapter, in interleaved rounds. The
 * worker acknowledges a quarter of the window at a time where messages are numbered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "spoa/relay/tunnel/tunnel.h"

enum { BENCH_ROUNDS = 9, TRIPS = 20000, BULKS = 4000, BULK = 16384, KINDS = 3 };

static const enum handover_resume adapters[] = {HANDOVER_RESUME_NONE, HANDOVER_RESUME_SINCE,
                                                HANDOVER_RESUME_SCROLLBACK, HANDOVER_RESUME_CELL};
enum { ADAPTERS = sizeof adapters / sizeof adapters[0] };

struct bench {
    struct tunnel t;
    uint64_t state[ADAPTER_STATE_MOST / sizeof(uint64_t)]; /* its adapter's */
    struct tunnel_settings settings;
    int fd[2], peer[2];
    uint64_t now, messages, cost;
};

static size_t host_send(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct bench *b = io;
    struct iovec parts[LEG_RUNS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};

    for (size_t i = 0; i < count; i++)
        parts[i] = (struct iovec){(void *)runs[i].at, runs[i].len};
    ssize_t sent = sendmsg(b->fd[to], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? (size_t)sent : 0;
}

static size_t host_may_hold(void *io, bool whole, size_t grows)
{
    (void)io, (void)whole, (void)grows;
    return SIZE_MAX;
}

static bool host_permits_replay(void *io)
{
    (void)io;
    return true;
}

static uint32_t host_random(void *io)
{
    (void)io;
    return 4;
}

static struct commands commands;
static const struct tunnel_host host = {host_send,           NULL,        NULL,     NULL, host_may_hold,
                                        host_permits_replay, host_random, &commands};

/* Sockets stay as they are. */
static void obey(struct bench *b)
{
    for (struct command *next; (next = commands_take(&commands));) {
        send_queue_free(&next->rest);
        if (next->kind == COMMAND_ADOPT)
            tunnel_writable(&b->t, WORKER, b->now);
        if (next->kind == COMMAND_ACCEPT)
            tunnel_writable(&b->t, CLIENT, b->now);
    }
}

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "bench_resume: %s\n", what);
    exit(1);
}

static void begin(struct bench *b, enum handover_resume resume)
{
    static const char answer[] = "HTTP/1.1 101 S\r\nCell-Resume: 1; recv=0; next=1\r\n\r\n";
    static struct http_head head;
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    struct handover h = handover_none();

    *b = (struct bench){.now = 1000000,
                        .settings = {.keepalive = 25000000,
                                     .dead_after = 60000000,
                                     .stall = 300000000,
                                     .buffer = 262144,
                                     .redial = {.backoff_count = 1}}};
    for (int side = 0; side < 2; side++) {
        int pair[2], size = 1 << 20;
        need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no sockets");
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        b->fd[side] = pair[0];
        b->peer[side] = pair[1];
    }
    h.addr = (struct address){4, {127, 0, 0, 1}};
    h.addr_port = 1;
    h.resume = resume;
    h.session = SLICE_LITERAL("s");
    struct tunnel_opening opening = {{&host, b, &b->settings}, &h, SLICE_LITERAL("/p"), false, 0, b->state};
    need(tunnel_open(&b->t, &opening, b->now), "no tunnel");
    obey(b);
    need(http_read(&r, slice_text(answer), &head) == HTTP_DONE, "no answer");
    tunnel_dialled(&b->t, DIAL_OPEN, 101, &head, b->now);
    obey(b);
    need(b->t.state == TUNNEL_serving, "not serving");
}

static void finish(struct bench *b)
{
    tunnel_free(&b->t);
    for (int side = 0; side < 2; side++) {
        close(b->fd[side]);
        close(b->peer[side]);
    }
}

/* Bytes as the kernel would give them, and those that come out at the other side. */
static void pass(struct bench *b, enum side from, struct slice frame)
{
    static uint8_t scratch[WS_HEAD_MAX + 2 * BULK], sink[1 << 18];

    memcpy(scratch + WS_HEAD_MAX, frame.at, frame.len);
    tunnel_read(&b->t, from, slice_of(scratch + WS_HEAD_MAX, frame.len), b->now);
    obey(b);
    need(recv(b->peer[from == CLIENT ? WORKER : CLIENT], sink, sizeof sink, 0) > 0, "nothing came");
    if (tunnel_due(&b->t) <= b->now)
        tunnel_tick(&b->t, b->now);
    obey(b);
    b->now += 20;
    if (from == WORKER || !b->t.forward.adapter->numbers)
        return;
    b->messages++;
    b->cost += frame.len + 10;
    if (b->cost < b->settings.buffer / 4)
        return;
    b->cost = 0;
    uint8_t payload[10] = "cr", pong[WS_CONTROL_FRAME_MAX];
    struct writer w = writer_of(payload + 2, 8);
    writer_be(&w, b->messages, 8);
    size_t len = ws_encode_control(pong, WS_PONG, slice_of(payload, 10), NULL);
    memcpy(scratch + WS_HEAD_MAX, pong, len);
    tunnel_read(&b->t, WORKER, slice_of(scratch + WS_HEAD_MAX, len), b->now);
    obey(b);
}

static struct slice message(uint8_t *to, enum side from, size_t len)
{
    struct ws_frame frame = {
        .opcode = WS_BINARY, .fin = true, .masked = from == CLIENT, .length = len, .mask = {0, 0, 0, 0}};
    size_t head = ws_encode_head(to, &frame);

    memset(to + head, 'x', len);
    to[head] = 1; /* output, to those who look */
    return slice_of(to, head + len);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Nanoseconds for each message or round trip. */
static double measure(enum handover_resume resume, int kind)
{
    static uint8_t in[BULK + WS_HEAD_MAX], out[BULK + WS_HEAD_MAX];
    struct bench b;
    struct slice to_worker = message(in, CLIENT, kind == 0 ? 64 : BULK - 1),
                 to_client = message(out, WORKER, kind == 0 ? 64 : BULK - 1);
    int count = kind == 0 ? TRIPS : BULKS;

    begin(&b, resume);
    double start = seconds();
    for (int i = 0; i < count; i++) {
        if (kind != 1)
            pass(&b, CLIENT, to_worker);
        if (kind != 2)
            pass(&b, WORKER, to_client);
        need(b.t.state == TUNNEL_serving, "the tunnel has ended");
    }
    double took = seconds() - start;
    finish(&b);
    return took / count * 1e9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(void)
{
    static const char *const kinds[KINDS] = {"round trip, 64 B", "output, 16 KiB", "input, 16 KiB"};
    double took[ADAPTERS][KINDS][BENCH_ROUNDS];

    for (int round = 0; round < BENCH_ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t i = 0; i < ADAPTERS; i++)
                took[i][kind][round] = measure(adapters[i], kind);
    printf("%-18s %-12s %10s %8s\n", "", "resume", "ns", "of none");
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < ADAPTERS; i++) {
            qsort(took[i][kind], BENCH_ROUNDS, sizeof(double), compare);
            double median = took[i][kind][BENCH_ROUNDS / 2];
            printf("%-18s %-12s %10.0f %7.1f%%\n", kinds[kind], handover_resume_names[adapters[i]], median,
                   100 * median / took[0][kind][BENCH_ROUNDS / 2]);
        }
    printf("state per tunnel, bytes: since %zu, scrollback %zu, cell %zu (tunnel %zu)\n",
           adapter_since.state_len, adapter_scrollback.state_len, adapter_cell.state_len,
           sizeof(struct tunnel));
    return 0;
}
