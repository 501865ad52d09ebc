/* SPDX-License-Identifier: MIT */
/*
 * traffic: the clients of a soak. Opens tunnels whose sessions run tests/soak/session.c, talks on each of them, checks
 * every byte, and prints a JSON object a second and one at the end (see tell() for what is in them).
 *
 *   traffic ADDRESS -f FILE [-c TUNNELS] [-t SECONDS] [-r RECORDS] [-l SECONDS] [-q COUNT] [-H 'Name: value']...
 *
 *   -f FILE     a line per tunnel: PATH [STREAM]; {id} in PATH becomes the number of the stream, which is new then
 *   -c TUNNELS  so many at once (1)
 *   -t SECONDS  then all tunnels are asked what their sessions heard, and closed (10); SIGTERM does the same earlier
 *   -r RECORDS  per second and tunnel (10)
 *   -l SECONDS  mean life of a tunnel; another takes its place (0: until the end)
 *   -q COUNT    tunnels that read their session's first record and, however much they say, no other until the end (0)
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/proto/ws.h"
#include "spoa/proto/ws_handshake.h"
#include "tests/soak/record.h"

enum {
    AT_ONCE = 64,       /* tunnels being opened */
    OUT_MAX = 64 << 10, /* beyond it a tunnel says nothing more until it has room */
    BATCH_MAX = 8,      /* records in a message */
    TIMED = 64,         /* records whose time is remembered */
    BUCKETS = 400,      /* of times, each 5 % longer than the one before */
    REASONS_MAX = 32,
    PATIENCE = 60, /* seconds for what is under way at the end */
};

enum phase { IDLE, CONNECTING, UPGRADING, TALKING, STOPPING, CLOSING };

struct histogram {
    uint64_t count, buckets[BUCKETS], max;
};

struct reason {
    char text[96];
    uint64_t count;
};

struct totals {
    uint64_t opened, finished, closed, failed;
    uint64_t in_bytes, out_bytes;
    uint64_t lost, repeated, torn, foreign;                         /* towards the client */
    uint64_t input_lost, input_repeated, input_torn, input_foreign; /* towards the session */
    uint64_t unanswered; /* tunnels that ended without the session's account */
};

struct tunnel;

static uint64_t after(double seconds)
{
    return (uint64_t)(seconds * 1e6);
}

struct traffic {
    struct net_address address;
    char headers[16384];
    char (*paths)[1024];
    unsigned path_count, count, quiet;
    double seconds, rate, life;
    struct loop *loop;
    struct loop_timer second, end;
    struct loop_io signals;
    struct tunnel *tunnels;
    unsigned opening, open;
    uint64_t streams; /* handed out */
    bool stopping;
    uint64_t began, last_in;
    struct totals totals;
    struct histogram now, all;
    struct reason reasons[REASONS_MAX];
};

struct tunnel {
    struct traffic *t;
    unsigned index;
    enum phase phase;
    struct loop_io io;
    struct loop_timer timer;
    struct http_reader head;
    struct ws_decoder in;
    uint8_t control[WS_CONTROL_MAX]; /* the decoder's */
    struct buffer partial, out;
    struct record_reader reader;
    char key[WS_KEY_SIZE];
    uint64_t number, stop_at, patience_at;
    uint64_t sent_at[TIMED], answered;
    bool mute;           /* it does not read */
    struct totals heard; /* the session's account */
    unsigned accounts;
};

static void die(const char *what)
{
    fprintf(stderr, "traffic: %s\n", what);
    exit(2);
}

/* ---- what is told ---- */
static void sample(struct histogram *h, uint64_t microseconds)
{
    double bucket = log((double)(microseconds + 1)) / log(1.05);
    h->buckets[bucket < BUCKETS ? (unsigned)bucket : BUCKETS - 1]++;
    h->count++;
    if (microseconds > h->max)
        h->max = microseconds;
}

static double quantile(const struct histogram *h, double part)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += h->buckets[i];
        if (h->count && (double)seen >= part * (double)h->count)
            return pow(1.05, i + 1) / 1e3;
    }
    return 0;
}

static void reason(struct traffic *t, const char *what, unsigned code, struct slice text)
{
    char told[sizeof t->reasons[0].text];
    snprintf(told, sizeof told, "%s %u %.*s", what, code, (int)(text.len < 60 ? text.len : 60),
             (const char *)text.at);
    for (char *c = told; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '?';
    for (unsigned i = 0; i < REASONS_MAX; i++)
        if (!t->reasons[i].count || strcmp(t->reasons[i].text, told) == 0) {
            memcpy(t->reasons[i].text, told, sizeof told);
            t->reasons[i].count++;
            return;
        }
}

static void tell(struct traffic *t, const struct histogram *h, const char *what)
{
    const struct totals *n = &t->totals;
    printf("{\"%s\":%.1f,\"open\":%u,\"opened\":%" PRIu64 ",\"finished\":%" PRIu64 ",\"closed\":%" PRIu64
           ",\"failed\":%" PRIu64 ",\"in\":%" PRIu64 ",\"out\":%" PRIu64,
           what, (double)(loop_clock() - t->began) / 1e6, t->open, n->opened, n->finished, n->closed,
           n->failed, n->in_bytes, n->out_bytes);
    printf(",\"lost\":%" PRIu64 ",\"repeated\":%" PRIu64 ",\"torn\":%" PRIu64 ",\"foreign\":%" PRIu64,
           n->lost, n->repeated, n->torn, n->foreign);
    printf(",\"input_lost\":%" PRIu64 ",\"input_repeated\":%" PRIu64 ",\"input_torn\":%" PRIu64
           ",\"input_foreign\":%" PRIu64 ",\"unanswered\":%" PRIu64,
           n->input_lost, n->input_repeated, n->input_torn, n->input_foreign, n->unanswered);
    printf(",\"trips\":%" PRIu64 ",\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,\"reasons\":{", h->count,
           quantile(h, 0.5), quantile(h, 0.99), (double)h->max / 1e3);
    for (unsigned i = 0; i < REASONS_MAX && t->reasons[i].count; i++)
        printf("%s\"%s\":%" PRIu64, i ? "," : "", t->reasons[i].text, t->reasons[i].count);
    printf("}}\n");
    fflush(stdout);
}

/* ---- a tunnel's end ---- */
static void tunnel_open(struct tunnel *u);
static void fill(struct traffic *t);

static void over(struct tunnel *u)
{
    struct traffic *t = u->t;
    struct totals *n = &t->totals;
    if (u->phase >= TALKING) {
        t->open--;
        n->lost += u->reader.lost;
        n->repeated += u->reader.repeated;
        n->torn += u->reader.torn;
        n->foreign += u->reader.foreign;
        n->input_lost += u->heard.lost;
        n->input_repeated += u->heard.repeated;
        n->input_torn += u->heard.torn;
        n->input_foreign += u->heard.foreign;
        n->unanswered += u->accounts == 0;
    } else {
        t->opening--;
    }
    loop_io_close(&u->io);
    loop_timer_stop(&u->timer);
    buffer_free(&u->partial);
    buffer_free(&u->out);
    u->phase = IDLE;
    if (t->stopping) {
        if (!t->open && !t->opening)
            loop_stop(t->loop);
        return;
    }
    loop_timer_set(&u->timer, 100 * MILLISECOND); /* another takes its place */
}

static void failed(struct tunnel *u, unsigned status)
{
    u->t->totals.failed++;
    reason(u->t, "HTTP", status, SLICE_LITERAL(""));
    over(u);
}

static void closed(struct tunnel *u, unsigned code, struct slice text)
{
    if (u->phase == CLOSING) {
        u->t->totals.finished++;
    } else {
        u->t->totals.closed++;
        reason(u->t, "Close", code, text);
    }
    over(u);
}

static void lost(struct tunnel *u)
{
    if (u->phase < TALKING)
        failed(u, 0);
    else
        closed(u, 1006, SLICE_LITERAL("connection lost"));
}

/* ---- out ---- */
static void flush(struct tunnel *u)
{
    while (u->io.share && buffer_len(&u->out)) {
        struct slice rest = buffer_slice(&u->out);
        ssize_t sent = send(loop_io_fd(&u->io), rest.at, rest.len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            lost(u);
            return;
        }
        u->t->totals.out_bytes += (uint64_t)sent;
        buffer_consume(&u->out, (size_t)sent);
    }
    loop_io_want(&u->io, (u->mute ? 0 : LOOP_READ) | (buffer_len(&u->out) ? LOOP_WRITE : 0));
}

static void put(struct tunnel *u, struct slice bytes)
{
    if (!buffer_put(&u->out, bytes))
        die("out of memory");
}

static void put_frame(struct tunnel *u, enum ws_opcode opcode, bool fin, struct slice payload)
{
    uint8_t bytes[WS_HEAD_MAX + BATCH_MAX * RECORD_SIZE];
    struct ws_frame frame = {.opcode = opcode, .fin = fin, .masked = true, .length = payload.len};
    uint32_t mask = (uint32_t)random();
    memcpy(frame.mask, &mask, sizeof frame.mask);
    size_t head = ws_encode_head(bytes, &frame);
    ws_mask(bytes + head, payload.at, payload.len, frame.mask, 0);
    put(u, slice_of(bytes, head + payload.len));
}

static void put_control(struct tunnel *u, enum ws_opcode opcode, struct slice payload)
{
    static const uint8_t mask[4] = {1, 2, 3, 4};
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    put(u, slice_of(frame, ws_encode_control(frame, opcode, payload, mask)));
}

static void say(struct tunnel *u, char kind, unsigned count)
{
    uint8_t bytes[BATCH_MAX * RECORD_SIZE];
    for (unsigned i = 0; i < count; i++) {
        struct record_line line = {.kind = kind, .stream = u->reader.stream, .number = u->number};
        record_write(bytes + i * RECORD_SIZE, &line, 2);
        u->sent_at[u->number++ % TIMED] = loop_clock();
    }
    struct slice all = slice_of(bytes, count * RECORD_SIZE);
    if (random() % 8 == 0) { /* in two frames, cut anywhere */
        size_t cut = (size_t)random() % all.len;
        put_frame(u, WS_BINARY, false, slice_sub(all, 0, cut));
        put_frame(u, WS_CONTINUATION, true, slice_from(all, cut));
    } else {
        put_frame(u, WS_BINARY, true, all);
    }
    flush(u);
}

/* ---- in ---- */
static void finish(struct tunnel *u)
{
    u->phase = CLOSING;
    put_control(u, WS_CLOSE, SLICE_LITERAL("\x03\xe8"));
    flush(u);
}

static void account(struct tunnel *u, const struct record_line *line)
{
    u->heard.lost = line->kind == 'l' ? line->value : u->heard.lost;
    u->heard.repeated = line->kind == 'a' ? line->value : u->heard.repeated;
    u->heard.torn = line->kind == 't' ? line->value : u->heard.torn;
    u->heard.foreign = line->kind == 'f' ? line->value : u->heard.foreign;
    u->accounts += line->kind == 'f';
    if (line->kind == 'f' && u->phase == STOPPING)
        finish(u);
}

static void on_line(void *owner, const struct record_line *line)
{
    struct tunnel *u = owner;
    if (line->kind != 'd') {
        account(u, line);
        return;
    }
    if (line->number == 0) { /* its terminal is raw by now */
        loop_timer_set(&u->timer, after((double)(random() % 1000) / 1000 / u->t->rate));
        u->mute = u->index < u->t->quiet && u->phase == TALKING;
    }
    if (line->value > u->answered && line->value <= u->number) {
        if (u->number - line->value < TIMED && line->value) {
            uint64_t took = loop_clock() - u->sent_at[(line->value - 1) % TIMED];
            sample(&u->t->now, took);
            sample(&u->t->all, took);
        }
        u->answered = line->value;
    }
}

static void on_control(struct tunnel *u)
{
    if (u->in.frame.opcode == WS_PING) {
        put_control(u, WS_PONG, ws_control_payload(&u->in));
    } else if (u->in.frame.opcode == WS_CLOSE) {
        if (u->phase != CLOSING)
            put_control(u, WS_CLOSE, slice_sub(ws_control_payload(&u->in), 0, 2));
        flush(u);
        if (u->io.share)
            closed(u, u->in.close_code, ws_close_reason(&u->in));
    }
}

static void on_frames(struct tunnel *u, struct slice in)
{
    struct ws_piece piece;
    enum ws_event event;
    while (u->io.share && (event = ws_decode(&u->in, &in, &piece)) != WS_MORE) {
        if (event == WS_BAD) {
            closed(u, 1002, slice_text(u->in.why));
            return;
        }
        if (event == WS_PIECE)
            record_read(&u->reader, piece.bytes);
        if (event == WS_CONTROL)
            on_control(u);
    }
    if (u->io.share)
        flush(u);
}

static void on_head(struct tunnel *u)
{
    struct http_head head;
    struct fail why;
    struct slice protocol;
    enum http_result result = http_read(&u->head, buffer_slice(&u->partial), &head);
    if (result == HTTP_MORE)
        return;
    if (result != HTTP_DONE ||
        !ws_handshake_check_answer(&head, slice_text(u->key), slice_text(NULL), &protocol, &why)) {
        failed(u, result == HTTP_DONE ? head.status : 0);
        return;
    }
    struct buffer rest = u->partial;
    u->partial = buffer_with_limit(OUT_MAX);
    u->phase = TALKING;
    u->t->opening--;
    u->t->open++;
    u->t->totals.opened++;
    on_frames(u, slice_from(buffer_slice(&rest), head.len));
    buffer_free(&rest);
    fill(u->t);
}

static void on_bytes(struct tunnel *u)
{
    static uint8_t bytes[64 << 10];
    ssize_t got = recv(loop_io_fd(&u->io), bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        lost(u);
        return;
    }
    u->t->totals.in_bytes += (uint64_t)got;
    if (u->phase >= TALKING)
        on_frames(u, slice_of(bytes, (size_t)got));
    else if (!buffer_put(&u->partial, slice_of(bytes, (size_t)got)))
        failed(u, 431);
    else
        on_head(u);
}

static void on_ready(void *owner, int events)
{
    struct tunnel *u = owner;
    if (u->phase == CONNECTING) {
        if (net_connected(loop_io_fd(&u->io)) != 0) {
            failed(u, 0);
            return;
        }
        u->phase = UPGRADING;
    }
    if (events & LOOP_READ)
        on_bytes(u);
    if (u->io.share && events & LOOP_WRITE)
        flush(u);
}

/* ---- a tunnel's life ---- */
static void stop(struct tunnel *u)
{
    u->phase = STOPPING;
    u->mute = false;
    u->patience_at = loop_clock() + (uint64_t)PATIENCE * 1000000;
    say(u, 's', 1);
    if (u->io.share)
        loop_timer_set(&u->timer, 3 * SECOND);
}

static void on_timer(void *owner)
{
    struct tunnel *u = owner;
    struct traffic *t = u->t;
    if (u->phase == IDLE) {
        fill(t);
    } else if (u->phase == TALKING && (t->stopping || loop_clock() > u->stop_at)) {
        stop(u);
    } else if (u->phase == TALKING) {
        unsigned batch = 1 + (unsigned)random() % BATCH_MAX;
        if (buffer_len(&u->out) < OUT_MAX / 2)
            say(u, 'd', batch);
        if (u->io.share)
            loop_timer_set(&u->timer, after(batch * (0.5 + (double)(random() % 1000) / 1000) / t->rate));
    } else if (u->phase >= STOPPING && loop_clock() > u->patience_at) {
        closed(u, 1006, SLICE_LITERAL("no answer at the end"));
    } else if (u->phase == STOPPING) { /* what was lost may have been the question */
        say(u, 's', 1);
        if (u->io.share)
            loop_timer_set(&u->timer, 3 * SECOND);
    }
}

/* The path of this tunnel, and its stream. */
static uint64_t put_path(struct tunnel *u, struct writer *w)
{
    struct traffic *t = u->t;
    char path[1024];
    memcpy(path, t->paths[u->index % t->path_count], sizeof path);
    char *space = strchr(path, ' '), *id = strstr(path, "{id}");
    uint64_t stream = space ? strtoull(space + 1, NULL, 10) : ++t->streams;
    if (space)
        *space = '\0';
    if (id)
        writer_printf(w, "%.*s%" PRIu64 "%s", (int)(id - path), path, stream, id + 4);
    else
        writer_text(w, path);
    return stream;
}

static void tunnel_open(struct tunnel *u)
{
    struct traffic *t = u->t;
    struct fail why;
    uint8_t memory[20000], nonce[16], path[2048];
    struct writer w = writer_of(memory, sizeof memory), target = writer_of(path, sizeof path);
    uint64_t stream = put_path(u, &target);
    t->opening++;
    u->phase = CONNECTING;
    int fd = net_connect(&t->address, &why);
    if (fd < 0) {
        failed(u, 0);
        return;
    }
    loop_io_open(&u->io, t->loop, fd, on_ready, u);
    u->head = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    u->in = ws_decoder_with(WS_SERVER, u->control);
    u->partial = u->out = buffer_with_limit(OUT_MAX);
    u->reader = (struct record_reader){.stream = stream, .seed = 1, .taken = on_line, .owner = u};
    u->number = u->answered = u->accounts = 0;
    u->heard = (struct totals){0};
    double life = t->life > 0 ? -log((double)(1 + random() % 9999) / 10000) * t->life : 1e9;
    u->stop_at = loop_clock() + after(life);
    for (size_t i = 0; i < sizeof nonce; i++)
        nonce[i] = (uint8_t)random();
    ws_handshake_key(u->key, nonce);
    ws_handshake_put_request(&w, writer_slice(&target), SLICE_LITERAL("soak"), slice_text(u->key),
                             slice_text(NULL));
    writer_text(&w, t->headers);
    writer_text(&w, "\r\n");
    put(u, writer_slice(&w));
    loop_io_want(&u->io, LOOP_WRITE | LOOP_READ);
}

/* Opens what is missing, so many at a time. */
static void fill(struct traffic *t)
{
    for (unsigned i = 0;
         i < t->count && t->opening < AT_ONCE && t->open + t->opening < t->count && !t->stopping; i++)
        if (t->tunnels[i].phase == IDLE && !loop_timer_active(&t->tunnels[i].timer))
            tunnel_open(&t->tunnels[i]);
}

/* ---- a run ---- */
static void on_second(void *owner)
{
    struct traffic *t = owner;
    tell(t, &t->now, "t");
    t->now = (struct histogram){0};
    loop_timer_set(&t->second, SECOND);
    fill(t);
}

static void on_end(void *owner)
{
    struct traffic *t = owner;
    t->stopping = true;
    for (unsigned i = 0; i < t->count; i++)
        if (t->tunnels[i].phase == TALKING)
            stop(&t->tunnels[i]);
    if (!t->open && !t->opening)
        loop_stop(t->loop);
}

static void on_signal(void *owner, int events)
{
    struct traffic *t = owner;
    struct signalfd_siginfo info;
    (void)events;
    if (read(loop_io_fd(&t->signals), &info, sizeof info) == sizeof info && !t->stopping)
        on_end(t);
}

static void read_paths(struct traffic *t, const char *name)
{
    FILE *file = fopen(name, "r");
    if (!file)
        die("cannot read the file of paths");
    t->paths = calloc(t->count, sizeof *t->paths);
    if (!t->paths)
        die("out of memory");
    while (t->path_count < t->count && fgets(t->paths[t->path_count], sizeof *t->paths, file)) {
        t->paths[t->path_count][strcspn(t->paths[t->path_count], "\n")] = '\0';
        t->path_count++;
    }
    fclose(file);
    if (!t->path_count)
        die("no path");
}

static void read_arguments(struct traffic *t, int argc, char **argv)
{
    struct writer headers = writer_of(t->headers, sizeof t->headers - 1);
    const char *paths = NULL;
    optind = 2;
    for (int option; (option = getopt(argc, argv, "f:c:t:r:l:q:H:")) != -1;) {
        switch (option) {
        case 'f':
            paths = optarg;
            break;
        case 'c':
            t->count = (unsigned)atoi(optarg);
            break;
        case 't':
            t->seconds = atof(optarg);
            break;
        case 'r':
            t->rate = atof(optarg);
            break;
        case 'l':
            t->life = atof(optarg);
            break;
        case 'q':
            t->quiet = (unsigned)atoi(optarg);
            break;
        case 'H':
            writer_printf(&headers, "%s\r\n", optarg);
            break;
        default:
            die("see the head of tests/soak/traffic.c");
        }
    }
    if (!paths || !t->count || t->rate <= 0 || headers.full)
        die("see the head of tests/soak/traffic.c");
    read_paths(t, paths);
}

static void start(struct traffic *t)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    loop_io_open(&t->signals, t->loop, signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC), on_signal, t);
    loop_io_want(&t->signals, LOOP_READ);
    t->tunnels = calloc(t->count, sizeof *t->tunnels);
    if (!t->tunnels)
        die("out of memory");
    for (unsigned i = 0; i < t->count; i++) {
        t->tunnels[i] = (struct tunnel){.t = t, .index = i};
        loop_timer_open(&t->tunnels[i].timer, t->loop, on_timer, &t->tunnels[i]);
    }
    t->began = loop_clock();
    loop_timer_open(&t->second, t->loop, on_second, t);
    loop_timer_set(&t->second, SECOND);
    loop_timer_open(&t->end, t->loop, on_end, t);
    loop_timer_set(&t->end, after(t->seconds));
    fill(t);
}

int main(int argc, char **argv)
{
    static struct traffic t = {.count = 1, .seconds = 10, .rate = 10};
    struct rlimit files;
    struct fail why;
    if (argc < 2 || !net_parse(slice_text(argv[1]), &t.address, &why))
        die("see the head of tests/soak/traffic.c");
    read_arguments(&t, argc, argv);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    t.loop = loop_new(&why);
    if (!t.loop)
        die(why.text);
    start(&t);
    loop_run(t.loop);
    tell(&t, &t.all, "total");
    return t.totals.lost || t.totals.repeated || t.totals.torn || t.totals.foreign || t.totals.closed ||
           t.totals.failed || t.totals.input_lost || t.totals.input_repeated || t.totals.input_torn ||
           t.totals.input_foreign;
}
