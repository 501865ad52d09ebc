/* SPDX-License-Identifier: MIT */
/*
 * WebSocket load: what a tunnel costs, whoever carries it.
 *
 *   bench_tunnel serve [ADDRESS]       a worker: /echo, /sink, /source by the last part of the path; it speaks
 *                                      Cell-Resume where it is asked to, as far as legs are not lost
 *   bench_tunnel ping ADDRESS          messages of SIZE bytes to and fro on TUNNELS tunnels: rate, p50, p99
 *   bench_tunnel send ADDRESS          bulk to the worker: MB/s   bench_tunnel receive ADDRESS   and from it
 *   bench_tunnel open ADDRESS          set-ups a second, TUNNELS at a time
 *   bench_tunnel idle ADDRESS          opens TUNNELS and leaves them alone: resident memory per tunnel
 *
 *   -c TUNNELS (1)  -t SECONDS (3)  -s SIZE of a message (64; bulk 65536)  -p PATH (/echo, /sink, /source)
 *   -H 'Name: value' (repeated)  -P PID (repeated): CPU and memory of these processes are told, too
 *
 * ADDRESS is 127.0.0.1:PORT, [::1]:PORT or unix@PATH, of the worker or of whatever stands in front of it.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/proto/ws.h"
#include "spoa/proto/ws_handshake.h"

enum {
    SIZE_MAX_MESSAGE = 1 << 20,
    SAMPLES_MAX = 8 << 20,
    PIDS_MAX = 8,
    HELD_MAX = 4 << 20,
    ACKNOWLEDGED_AT = 64 << 10,
    WINDOW = 256 << 10,
    ITEM_COST = 16
};

enum mode { MODE_SERVE, MODE_PING, MODE_SEND, MODE_RECEIVE, MODE_OPEN, MODE_IDLE };
static const char *const modes[] = {"serve", "ping", "send", "receive", "open", "idle", NULL};

struct process {
    long pid;
    double cpu;    /* seconds, when it began */
    long resident; /* bytes, when it began */
};

struct bench {
    enum mode mode;
    struct net_address address;
    const char *path;
    unsigned tunnels;
    double seconds;
    size_t size;
    char headers[16384];
    struct process processes[PIDS_MAX];
    unsigned process_count;

    struct loop *loop;
    struct loop_io listener;
    struct loop_timer timer;
    unsigned open, opening;
    bool measuring, over;
    uint64_t began, messages, bytes;
    uint32_t *samples; /* nanoseconds */
    size_t sample_count;
    uint8_t *frame; /* one message, ready to be sent */
    size_t frame_len;
    uint8_t scratch[256 << 10];
};

enum role { ROLE_ECHO, ROLE_SINK, ROLE_SOURCE, ROLE_CLIENT };

struct conn {
    struct bench *b;
    enum role role;
    struct loop_io io;
    struct loop_task gone;
    struct http_reader head;
    struct ws_decoder in;
    struct buffer partial, out;
    bool connected, upgraded;
    uint64_t sent_at;
    char key[WS_KEY_SIZE];
    bool numbered;          /* Cell-Resume is spoken */
    uint64_t said, heard;   /* messages sent; those that the other side has acknowledged */
    uint64_t taken, unsaid; /* messages received; bytes of those that are not acknowledged */
    uint64_t unsaid_since;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_tunnel: %s\n", what);
    exit(1);
}

static void die_of(unsigned code, struct slice reason)
{
    fprintf(stderr, "bench_tunnel: a tunnel was closed: %u %.*s\n", code, SLICE_PRINTF(reason));
    exit(1);
}

static uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- other processes ---- */
/* Of all threads, to the nanosecond. A thread that ends takes its time along. */
static double cpu_of(long pid)
{
    char path[320];
    uint64_t sum = 0, one;
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        die("no such process");
    for (struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", pid, task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file && fscanf(file, "%" SCNu64, &one) == 1)
            sum += one;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return (double)sum / 1e9;
}

static long resident_of(long pid)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%ld/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        die("no such process");
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void note_processes(struct bench *b)
{
    for (unsigned i = 0; i < b->process_count; i++) {
        b->processes[i].cpu = cpu_of(b->processes[i].pid);
        b->processes[i].resident = resident_of(b->processes[i].pid);
    }
}

/* ---- the result ---- */
static int by_size(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static void tell_processes(const struct bench *b)
{
    for (unsigned i = 0; i < b->process_count; i++) {
        const struct process *p = &b->processes[i];
        double cpu = cpu_of(p->pid) - p->cpu;
        printf(" pid=%ld cpu=%.6f", p->pid, cpu);
        if (b->mode == MODE_IDLE)
            printf(" bytes_per_tunnel=%.0f",
                   (double)(resident_of(p->pid) - p->resident) / (b->open ? b->open : 1));
        if (b->bytes && (b->mode == MODE_SEND || b->mode == MODE_RECEIVE))
            printf(" cpu_per_gib=%.4f", cpu * (1 << 30) / (double)b->bytes);
        if (b->messages)
            printf(" cpu_per_million=%.3f", cpu * 1e6 / (double)b->messages);
    }
}

static void tell(struct bench *b)
{
    double took = (double)(nanoseconds() - b->began) / 1e9;
    printf("%s tunnels=%u size=%zu seconds=%.2f", modes[b->mode], b->tunnels, b->size, took);
    if (b->mode == MODE_PING || b->mode == MODE_OPEN)
        printf(" rate=%.0f", (double)b->messages / took);
    if (b->mode == MODE_SEND || b->mode == MODE_RECEIVE)
        printf(" mb_per_second=%.0f", (double)b->bytes / took / 1e6);
    if (b->sample_count) {
        qsort(b->samples, b->sample_count, sizeof *b->samples, by_size);
        printf(" p50_us=%.1f p99_us=%.1f", b->samples[b->sample_count / 2] / 1e3,
               b->samples[b->sample_count * 99 / 100] / 1e3);
    }
    tell_processes(b);
    printf("\n");
    fflush(stdout);
}

static void finish(struct bench *b)
{
    if (b->over)
        return;
    b->over = true;
    tell(b);
    loop_stop(b->loop);
}

/* ---- connections ---- */
static void client_new(struct bench *b);

static void release(void *context)
{
    free(context);
}

static void leave(struct conn *c)
{
    if (!c->io.share)
        return;
    loop_io_close(&c->io);
    buffer_free(&c->partial);
    buffer_free(&c->out);
    c->gone = (struct loop_task){.run = release, .context = c};
    loop_defer(c->b->loop, &c->gone);
}

static void lost(struct conn *c)
{
    bool wanted = c->role == ROLE_CLIENT && c->b->mode != MODE_OPEN && !c->b->over;
    leave(c);
    if (wanted)
        die("a tunnel was lost");
}

/* The relay's buffer, of what it has not acknowledged, has room for one message more. */
static bool has_window(const struct conn *c)
{
    return !c->numbered || (c->said - c->heard + 1) * (c->b->size + ITEM_COST) <= WINDOW;
}

static void flush(struct conn *c)
{
    while (c->io.share && buffer_len(&c->out)) {
        struct slice rest = buffer_slice(&c->out);
        ssize_t sent = send(loop_io_fd(&c->io), rest.at, rest.len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            lost(c);
            return;
        }
        buffer_consume(&c->out, (size_t)sent);
    }
    bool pours = c->upgraded && ((c->role == ROLE_SOURCE && has_window(c)) ||
                                 (c->role == ROLE_CLIENT && c->b->mode == MODE_SEND && c->b->measuring));
    loop_io_want(&c->io, LOOP_READ | (buffer_len(&c->out) || pours ? LOOP_WRITE : 0));
}

static void put(struct conn *c, struct slice bytes)
{
    if (!buffer_put(&c->out, bytes))
        die("out of memory, or the peer does not read");
}

static void put_control(struct conn *c, enum ws_opcode opcode, struct slice payload)
{
    static const uint8_t mask[4] = {1, 2, 3, 4};
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    put(c, slice_of(frame, ws_encode_control(frame, opcode, payload, c->role == ROLE_CLIENT ? mask : NULL)));
}

static void put_message(struct conn *c)
{
    c->sent_at = nanoseconds();
    put(c, slice_of(c->b->frame, c->b->frame_len));
}

/* Bulk: always one message more. */
static void pour(struct conn *c)
{
    while (c->io.share && buffer_len(&c->out) < c->b->frame_len && has_window(c)) {
        put_message(c);
        c->said++;
        if (c->role == ROLE_CLIENT)
            c->b->bytes += c->b->size;
        flush(c);
        if (buffer_len(&c->out))
            return;
    }
}

/* ---- frames ---- */
static void on_reply(struct conn *c)
{
    struct bench *b = c->b;
    if (!b->measuring)
        return;
    b->messages++;
    if (b->sample_count < SAMPLES_MAX)
        b->samples[b->sample_count++] = (uint32_t)(nanoseconds() - c->sent_at);
    put_message(c);
}

static void echo(struct conn *c, const struct ws_piece *piece)
{
    static uint8_t payload[SIZE_MAX_MESSAGE];
    uint8_t head[WS_HEAD_MAX];
    struct ws_frame frame = {
        .opcode = c->in.frame.opcode, .fin = c->in.frame.fin, .length = piece->bytes.len};
    ws_mask(payload, piece->bytes.at, piece->bytes.len, c->in.frame.mask, piece->offset);
    put(c, slice_of(head, ws_encode_head(head, &frame)));
    put(c, slice_of(payload, piece->bytes.len));
}

/* docs/resume-protocol.md: at the latest at a quarter of the other side's buffer, or after 200 ms */
static void acknowledge(struct conn *c, uint64_t bytes, bool whole)
{
    uint8_t payload[10] = "cr";
    if (c->unsaid == 0)
        c->unsaid_since = nanoseconds();
    c->unsaid += bytes;
    c->taken += whole;
    if (!whole)
        return;
    if (c->unsaid < ACKNOWLEDGED_AT && nanoseconds() - c->unsaid_since < 200000000)
        return;
    for (int i = 0; i < 8; i++)
        payload[2 + i] = (uint8_t)(c->taken >> (56 - 8 * i));
    put_control(c, WS_PONG, slice_of(payload, sizeof payload));
    c->unsaid = 0;
}

static void on_piece(struct conn *c, const struct ws_piece *piece)
{
    if (c->role == ROLE_ECHO)
        echo(c, piece);
    if (c->numbered)
        acknowledge(c, piece->bytes.len, piece->last && c->in.frame.fin);
    if (c->role != ROLE_CLIENT)
        return;
    if (c->b->mode == MODE_RECEIVE && c->b->measuring)
        c->b->bytes += piece->bytes.len;
    if (c->b->mode == MODE_PING && piece->last && c->in.frame.fin)
        on_reply(c);
}

static void on_acknowledgement(struct conn *c, struct slice payload)
{
    uint64_t number = 0;
    if (payload.len != 10 || memcmp(payload.at, "cr", 2) != 0)
        return;
    for (int i = 2; i < 10; i++)
        number = number << 8 | payload.at[i];
    c->heard = number;
    if (c->role == ROLE_SOURCE)
        pour(c);
}

static void on_control(struct conn *c)
{
    if (c->in.frame.opcode == WS_PONG && c->numbered)
        on_acknowledgement(c, ws_control_payload(&c->in));
    if (c->in.frame.opcode == WS_PING)
        put_control(c, WS_PONG, ws_control_payload(&c->in));
    if (c->in.frame.opcode == WS_CLOSE && c->role != ROLE_CLIENT)
        put_control(c, WS_CLOSE, ws_control_payload(&c->in));
    if (c->in.frame.opcode == WS_CLOSE && c->role == ROLE_CLIENT && c->b->mode != MODE_OPEN && !c->b->over)
        die_of(c->in.close_code, ws_close_reason(&c->in));
    /* the worker's sink has got everything that was sent before the Ping */
    if (c->in.frame.opcode == WS_PONG && c->role == ROLE_CLIENT && --c->b->opening == 0)
        finish(c->b);
}

static void on_frames(struct conn *c, struct slice in)
{
    struct ws_piece piece;
    enum ws_event event;
    while (c->io.share && (event = ws_decode(&c->in, &in, &piece)) != WS_MORE) {
        if (event == WS_BAD)
            die(c->in.why);
        if (event == WS_PIECE)
            on_piece(c, &piece);
        if (event == WS_CONTROL)
            on_control(c);
    }
    if (c->io.share && in.len && !buffer_put(&c->partial, in))
        die("out of memory");
}

/* ---- upgrades ---- */
static enum role role_of(struct slice target)
{
    struct slice path = slice_sub(target, 0, slice_find(target, '?')), part, last = path;
    while (slice_split(&path, '/', &part))
        last = part;
    return slice_is(last, "sink") ? ROLE_SINK : slice_is(last, "source") ? ROLE_SOURCE : ROLE_ECHO;
}

static void answer(struct conn *c, const struct http_head *head)
{
    struct fail why;
    struct slice key;
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    if (ws_handshake_check_request(head, &key, &why) || !ws_handshake_put_answer(&w, key, slice_text(NULL)))
        die("not an upgrade");
    c->numbered = slice_present(http_get(head, "Cell-Resume"));
    if (c->numbered)
        writer_text(&w, "Cell-Resume: 1; recv=0; next=1; buffer=1048576\r\n");
    writer_text(&w, "\r\n");
    put(c, writer_slice(&w));
    c->role = role_of(head->target);
}

static void begin(struct bench *b);

static void opened(struct conn *c, const struct http_head *head)
{
    struct bench *b = c->b;
    struct fail why;
    struct slice protocol;
    if (!ws_handshake_check_answer(head, slice_text(c->key), slice_text(NULL), &protocol, &why))
        die(why.text);
    b->open++;
    if (b->mode == MODE_OPEN) {
        b->messages += b->measuring;
        if (b->measuring && b->sample_count < SAMPLES_MAX)
            b->samples[b->sample_count++] = (uint32_t)(nanoseconds() - c->sent_at);
        leave(c);
        if (!b->over)
            client_new(b);
        return;
    }
    if (--b->opening == 0 && b->open == b->tunnels)
        begin(b);
    else if (b->open + b->opening < b->tunnels)
        client_new(b);
}

static void on_head(struct conn *c)
{
    struct http_head head;
    if (http_read(&c->head, buffer_slice(&c->partial), &head) != HTTP_DONE)
        return;
    struct buffer rest = c->partial;
    c->partial = buffer_with_limit(HELD_MAX);
    c->upgraded = true;
    if (c->role == ROLE_CLIENT)
        opened(c, &head);
    else
        answer(c, &head);
    if (c->io.share)
        on_frames(c, slice_from(buffer_slice(&rest), head.len));
    buffer_free(&rest);
}

static void on_bytes(struct conn *c)
{
    struct bench *b = c->b;
    struct slice held = c->upgraded ? buffer_slice(&c->partial) : slice_of(NULL, 0);
    size_t before = held.len;
    if (before)
        memcpy(b->scratch, held.at, before);
    if (c->upgraded)
        buffer_consume(&c->partial, before);
    ssize_t got = recv(loop_io_fd(&c->io), b->scratch + before, sizeof b->scratch - before, 0);
    if (got < 0 && errno == EAGAIN)
        got = 0;
    else if (got <= 0) {
        lost(c);
        return;
    }
    struct slice bytes = slice_of(b->scratch, before + (size_t)got);
    if (c->upgraded)
        on_frames(c, bytes);
    else if (!buffer_put(&c->partial, bytes))
        die("head is too large");
    else
        on_head(c);
}

static void on_ready(void *owner, int events)
{
    struct conn *c = owner;
    if (!c->connected && net_connected(loop_io_fd(&c->io)) != 0)
        die("cannot connect");
    c->connected = true;
    if (events & LOOP_READ)
        on_bytes(c);
    if (!c->io.share)
        return;
    if (c->upgraded &&
        (c->role == ROLE_SOURCE || (c->role == ROLE_CLIENT && c->b->mode == MODE_SEND && c->b->measuring)))
        pour(c);
    flush(c);
}

static struct conn *conn_new(struct bench *b, int fd, enum role role)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        die("out of memory");
    *c = (struct conn){
        .b = b,
        .role = role,
        .head = http_reader_of(role == ROLE_CLIENT ? HTTP_RESPONSE : HTTP_REQUEST, HTTP_HEAD_MAX),
        .in = ws_decoder_of(role == ROLE_CLIENT ? WS_SERVER : WS_CLIENT, role == ROLE_CLIENT ? 0 : 65536),
        .partial = buffer_with_limit(HELD_MAX),
        .out = buffer_with_limit(HELD_MAX),
    };
    loop_io_open(&c->io, b->loop, fd, on_ready, c);
    return c;
}

static struct conn **clients; /* of a run, to start them together */
static unsigned client_count;

static void client_new(struct bench *b)
{
    struct fail why;
    uint8_t memory[20000], nonce[16];
    struct writer w = writer_of(memory, sizeof memory);
    int fd = net_connect(&b->address, &why);
    if (fd < 0)
        die(why.text);
    struct conn *c = conn_new(b, fd, ROLE_CLIENT);
    if (b->mode != MODE_OPEN)
        clients[client_count++] = c;
    for (size_t i = 0; i < sizeof nonce; i++)
        nonce[i] = (uint8_t)random();
    ws_handshake_key(c->key, nonce);
    ws_handshake_put_request(&w, slice_text(b->path), SLICE_LITERAL("bench"), slice_text(c->key),
                             slice_text(NULL));
    writer_text(&w, b->headers);
    writer_text(&w, "\r\n");
    c->sent_at = nanoseconds();
    put(c, writer_slice(&w));
    b->opening++;
    loop_io_want(&c->io, LOOP_WRITE);
}

/* ---- a run ---- */
static void end_of_run(void *owner)
{
    struct bench *b = owner;
    if (b->mode == MODE_SEND && b->measuring) {
        b->measuring = false;
        b->opening = b->tunnels; /* pongs that are awaited */
        for (unsigned i = 0; i < client_count; i++) {
            put_control(clients[i], WS_PING, SLICE_LITERAL("end"));
            flush(clients[i]);
        }
        loop_timer_set(&b->timer, 30 * SECOND);
    } else {
        finish(b);
    }
}

static void begin(struct bench *b)
{
    b->measuring = true;
    b->began = nanoseconds();
    if (b->mode != MODE_IDLE)
        note_processes(b);
    for (unsigned i = 0; i < client_count; i++) {
        if (b->mode == MODE_PING)
            put_message(clients[i]);
        if (b->mode == MODE_PING || b->mode == MODE_SEND)
            flush(clients[i]);
    }
    loop_timer_set(&b->timer, (uint64_t)(b->seconds * 1e6));
}

static void make_frame(struct bench *b)
{
    struct ws_frame frame = {.opcode = WS_BINARY,
                             .fin = true,
                             .masked = b->mode != MODE_SERVE,
                             .mask = {1, 2, 3, 4},
                             .length = b->size};
    b->frame = calloc(1, WS_HEAD_MAX + b->size);
    if (!b->frame)
        die("out of memory");
    b->frame_len = ws_encode_head(b->frame, &frame) + b->size;
}

static void on_accept(void *owner, int events)
{
    struct bench *b = owner;
    (void)events;
    for (int fd; (fd = net_accept(loop_io_fd(&b->listener))) >= 0;) {
        struct conn *c = conn_new(b, fd, ROLE_ECHO);
        c->connected = true;
        loop_io_want(&c->io, LOOP_READ);
    }
}

/* The first hash of a process takes a millisecond, in which its library reads its configuration: no part of a gap. */
static void warm_up(void)
{
    char accept[WS_ACCEPT_SIZE];
    if (!ws_handshake_accept(accept, SLICE_LITERAL("dGhlIHNhbXBsZSBub25jZQ==")))
        die("out of memory");
}

static void serve(struct bench *b)
{
    struct fail why;
    struct net_address bound;
    char text[NET_TEXT];
    int fd = net_listen(&b->address, 0600, &why);
    if (fd < 0)
        die(why.text);
    warm_up();
    if (!net_local(fd, &bound))
        die("a listening socket has no address");
    printf("listening %s\n", net_text(net_is_unix(&b->address) ? &b->address : &bound, text));
    fflush(stdout);
    loop_io_open(&b->listener, b->loop, fd, on_accept, b);
    loop_io_want(&b->listener, LOOP_READ);
}

static void load(struct bench *b)
{
    unsigned together = b->tunnels < 64 ? b->tunnels : 64;
    clients = calloc(b->tunnels, sizeof *clients);
    b->samples = malloc(SAMPLES_MAX * sizeof *b->samples);
    if (!clients || !b->samples)
        die("out of memory");
    if (b->mode == MODE_IDLE)
        note_processes(b);
    for (unsigned i = 0; i < together; i++)
        client_new(b);
    if (b->mode == MODE_OPEN)
        begin(b);
}

static void read_arguments(struct bench *b, int argc, char **argv)
{
    struct writer headers = writer_of(b->headers, sizeof b->headers - 1);
    for (int option; (option = getopt(argc, argv, "c:t:s:p:H:P:")) != -1;) {
        switch (option) {
        case 'c':
            b->tunnels = (unsigned)atoi(optarg);
            break;
        case 't':
            b->seconds = atof(optarg);
            break;
        case 's':
            b->size = (size_t)atol(optarg);
            break;
        case 'p':
            b->path = optarg;
            break;
        case 'H':
            writer_printf(&headers, "%s\r\n", optarg);
            break;
        case 'P':
            if (b->process_count < PIDS_MAX)
                b->processes[b->process_count++].pid = atol(optarg);
            break;
        default:
            die("see the head of tests/bench/bench_tunnel.c");
        }
    }
    if (b->tunnels == 0 || b->size > SIZE_MAX_MESSAGE || headers.full)
        die("a number is out of range");
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"", "/echo", "/sink", "/source", "/echo", "/echo"};
    static struct bench b = {.tunnels = 1, .seconds = 3};
    struct rlimit files;
    struct fail why;
    unsigned mode = 0;
    if (argc < 2)
        die("see the head of tests/bench/bench_tunnel.c");
    while (modes[mode] && strcmp(modes[mode], argv[1]) != 0)
        mode++;
    if (!modes[mode])
        die("no such mode");
    b.mode = (enum mode)mode;
    b.path = paths[mode];
    b.size = b.mode == MODE_PING || b.mode == MODE_OPEN || b.mode == MODE_IDLE ? 64 : 65536;
    const char *address = argc > 2 && argv[2][0] != '-' ? argv[2] : "127.0.0.1:0";
    optind = address == argv[2] ? 3 : 2;
    read_arguments(&b, argc, argv);
    if (!net_parse(slice_text(address), &b.address, &why))
        die(why.text);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    b.loop = loop_new(&why);
    if (!b.loop)
        die(why.text);
    make_frame(&b);
    loop_timer_open(&b.timer, b.loop, end_of_run, &b);
    if (b.mode == MODE_SERVE)
        serve(&b);
    else
        load(&b);
    loop_run(b.loop);
    return 0;
}
