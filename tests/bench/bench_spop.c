/* SPDX-License-Identifier: MIT */
/*
 * An SPOP load generator: asks an agent as HAProxy does and tells how many answers per second came, and how
 * long one took.
 *
 *     bench_spop unix@/run/cellgate/agent.sock
 *     bench_spop -c 4 -f 20 -d 5 -a arguments.txt 127.0.0.1:12345
 *
 *     -c connections (4), -f questions in flight on each (20), -d seconds (5), -m message (cell-route),
 *     -a file of `name=value` lines: the arguments of the message, in order; a value is text, or `i:`
 * integer, `b:` true or false, `a:` IP address, `h:` lines of headers with `|` behind each, `n:` nothing. Where a value
 *     has `########`, each question has another number. Without it: a WebSocket upgrade for a terminal.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/spop/client.h"

#define FRAME_ROOM (SPOP_LENGTH_BYTES + SPOP_FRAME_USUAL)
#define ARGS_MOST  255
#define NUMBER     "########"

enum { NUMBERS_MOST = 4, HELLO_WAITS = 100 };

static const char builtin_arguments[] =
    "id=7F000001:A0B4_7F000001:1F90_673E6B0C_0001:1F3A\n"
    "method=GET\nversion=1.1\n"
    "path=/api/sandboxes/sb-5c1f29e0/pty/3b7d\n"
    "query=n:\n"
    "headers=h:host: cell-a.example.com|upgrade: websocket|connection: Upgrade|sec-websocket-version: 13|"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==|origin: https://app.example.com|"
    "user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0|"
    "accept-language: en-US,en;q=0.5|sec-websocket-extensions: permessage-deflate||\n"
    "removed=none\n"
    "source=a:192.0.2.17\ntls=b:true\n";

/* Latencies up to 64 s in buckets of at most 1/32 of their value. */
#define STEPS   32
#define BUCKETS (27 * STEPS)

struct bench {
    struct loop *loop;
    struct loop_timer timer;
    struct net_address address;
    struct slice message, arguments;            /* arguments: packed as in a NOTIFY */
    size_t numbers[NUMBERS_MOST], number_count; /* where they stand in the arguments */
    uint32_t number;
    unsigned count, connections, in_flight, open, waits;
    bool measuring, stopping;
    uint64_t answers, from, buckets[BUCKETS];
    double seconds;
    char last_action[160]; /* shown, so that one sees what is being measured */
};

struct question {
    uint64_t asked;
};

struct connection {
    struct bench *bench;
    struct spop_client *client;
    struct question *questions;
    unsigned next;
    struct loop_io io;
    struct buffer in, out;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_spop: %s\n", what);
    exit(EXIT_FAILURE);
}

/* ---- latencies ---- */
static size_t bucket_of(uint64_t us)
{
    if (us < STEPS)
        return us;
    unsigned shift = 58 - (unsigned)__builtin_clzll(us);
    size_t bucket = (size_t)(shift + 1) * STEPS + (size_t)(us >> shift) - STEPS;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double bucket_value(size_t bucket)
{
    if (bucket < STEPS)
        return (double)bucket;
    size_t shift = bucket / STEPS - 1;
    return (double)(((uint64_t)(bucket % STEPS) + STEPS) << shift);
}

static double percentile(const struct bench *bench, double part)
{
    uint64_t wanted = (uint64_t)((double)bench->answers * part), seen = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        if ((seen += bench->buckets[i]) > wanted)
            return bucket_value(i);
    return 0;
}

/* ---- arguments ---- */
/* Headers with '|' where their lines end. */
static struct spop_value headers_of(struct slice text)
{
    static uint8_t memory[FRAME_ROOM];
    struct writer w = writer_of(memory, sizeof memory);
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] == '|')
            writer_text(&w, "\r\n");
        else
            writer_u8(&w, text.at[i]);
    return spop_text(writer_slice(&w));
}

static struct spop_value value_of(struct slice text, uint8_t address[static 16])
{
    struct slice rest = slice_from(text, 2);
    char copy[64];
    snprintf(copy, sizeof copy, "%.*s", (int)rest.len, (const char *)rest.at);
    if (slice_starts(text, "n:"))
        return spop_null();
    if (slice_starts(text, "h:"))
        return headers_of(rest);
    if (slice_starts(text, "i:"))
        return spop_int(strtoll(copy, NULL, 10));
    if (slice_starts(text, "b:"))
        return spop_bool(slice_is(rest, "true"));
    if (slice_starts(text, "a:"))
        return spop_address(slice_of(address, inet_pton(AF_INET, copy, address) == 1    ? 4
                                              : inet_pton(AF_INET6, copy, address) == 1 ? 16
                                                                                        : 0));
    return spop_text(text);
}

static void pack_arguments(struct bench *bench, struct slice lines)
{
    static uint8_t memory[FRAME_ROOM];
    struct writer w = writer_of(memory, sizeof memory);
    struct slice line, name;
    while (slice_split(&lines, '\n', &line)) {
        struct slice value = line;
        uint8_t address[16];
        if (!slice_split(&value, '=', &name) || !slice_present(value))
            continue;
        spop_text_write(&w, name);
        spop_value_write(&w, value_of(value, address));
        bench->count++;
    }
    if (w.full || bench->count > ARGS_MOST)
        die("too many arguments");
    bench->arguments = writer_slice(&w);
    for (size_t i = 0; i + strlen(NUMBER) <= w.len && bench->number_count < NUMBERS_MOST; i++)
        if (memcmp(w.at + i, NUMBER, strlen(NUMBER)) == 0)
            bench->numbers[bench->number_count++] = i;
}

static void put_numbers(struct bench *bench, uint8_t *arguments)
{
    uint32_t number = bench->number++;
    for (size_t i = 0; i < bench->number_count; i++)
        for (size_t digit = 0; digit < strlen(NUMBER); digit++)
            arguments[bench->numbers[i] + digit] =
                (uint8_t) "0123456789abcdef"[number >> (28 - 4 * digit) & 15];
}

static struct slice file_of(const char *path)
{
    static char memory[FRAME_ROOM];
    FILE *file = fopen(path, "r");
    if (!file)
        die(path);
    size_t len = fread(memory, 1, sizeof memory, file);
    fclose(file);
    return slice_of(memory, len);
}

/* ---- a connection ---- */
static void flush(struct connection *c)
{
    struct slice bytes = buffer_slice(&c->out);
    ssize_t n = bytes.len ? send(loop_io_fd(&c->io), bytes.at, bytes.len, MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN)
        die("the agent closed the connection");
    if (n > 0)
        buffer_consume(&c->out, (size_t)n);
    loop_io_want(&c->io, LOOP_READ | (buffer_len(&c->out) ? LOOP_WRITE : 0));
}

/* The arguments are the same each time, but for numbers: they go into the frame as one piece. */
static void ask_all(struct connection *c, struct writer *out, uint64_t now)
{
    struct bench *bench = c->bench;
    struct spop_ask ask;
    while (!bench->stopping && out->size - out->len >= FRAME_ROOM && spop_client_ready(c->client)) {
        struct question *question = &c->questions[c->next++ % (2 * bench->in_flight)];
        while (question->asked)
            question = &c->questions[c->next++ % (2 * bench->in_flight)];
        question->asked = now;
        if (!spop_client_ask_begin(c->client, bench->message, question, out, &ask))
            abort(); /* the client was ready above */
        size_t start = out->len;
        writer_put(out, bench->arguments);
        if (!out->full) {
            put_numbers(bench, out->at + start);
            out->at[ask.message] = (uint8_t)bench->count;
        }
        if (!spop_client_ask_end(c->client, &ask))
            die("the arguments do not fit a frame");
    }
}

static void on_answer(struct connection *c, struct spop_client_event *event, uint64_t now)
{
    struct bench *bench = c->bench;
    struct question *question = event->context;
    if (bench->measuring) {
        if (bench->answers++ == 0) {
            struct spop_action action = {.type = 0};
            while (spop_action_next(&event->actions, &action))
                ;
            snprintf(bench->last_action, sizeof bench->last_action, "%.*s = %.*s", SLICE_PRINTF(action.name),
                     SLICE_PRINTF(action.value.bytes));
        }
        bench->buckets[bucket_of(now - question->asked)]++;
    }
    question->asked = 0;
}

static void on_bytes(struct connection *c, struct slice in)
{
    static uint8_t memory[16 * FRAME_ROOM];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_client_event event;
    uint64_t now = loop_clock();
    enum spop_client_step step;
    while ((step = spop_client_next(c->client, &in, &event, &out)) != SPOP_CLIENT_MORE) {
        if (step == SPOP_CLIENT_ENDED) {
            fprintf(stderr, "bench_spop: the agent disconnects: %s\n", spop_status_text(event.status));
            exit(EXIT_FAILURE);
        }
        if (step == SPOP_CLIENT_READY)
            c->bench->open++;
        else
            on_answer(c, &event, now);
    }
    ask_all(c, &out, now);
    buffer_free(&c->in);
    if (!buffer_put(&c->in, in) || !buffer_put(&c->out, writer_slice(&out)))
        die("out of memory");
}

static void on_io(void *owner, int events)
{
    static uint8_t memory[5 * FRAME_ROOM];
    struct connection *c = owner;
    if (events & LOOP_READ) {
        struct slice held = buffer_slice(&c->in);
        if (held.len)
            memcpy(memory, held.at, held.len);
        ssize_t n = recv(loop_io_fd(&c->io), memory + held.len, sizeof memory - held.len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            die("the agent closed the connection");
        if (n > 0)
            on_bytes(c, slice_of(memory, held.len + (size_t)n));
    }
    flush(c);
}

static void start(struct connection *c, struct bench *bench)
{
    struct fail why;
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_offer offer = {SPOP_FRAME_USUAL, SLICE_LITERAL("bench-spop"), false, true};
    int fd = net_connect(&bench->address, &why);
    if (fd < 0)
        die(why.text);
    c->bench = bench;
    c->client = spop_client_new(bench->in_flight);
    c->questions = calloc(2 * bench->in_flight, sizeof *c->questions);
    c->in = c->out = buffer_with_limit(16 * FRAME_ROOM);
    loop_io_open(&c->io, bench->loop, fd, on_io, c);
    if (!c->client || !c->questions)
        die("out of memory");
    spop_client_hello(c->client, &offer, &out);
    if (!buffer_put(&c->out, writer_slice(&out)))
        die("out of memory");
    loop_io_want(&c->io, LOOP_WRITE);
}

static void finish(struct connection *c)
{
    loop_io_close(&c->io);
    buffer_free(&c->in);
    buffer_free(&c->out);
    free(c->questions);
    spop_client_free(c->client);
}

/* ---- the run: a tenth to warm up, then the measurement ---- */
static void on_time(void *owner)
{
    struct bench *bench = owner;
    if (bench->open != bench->connections) {
        if (++bench->waits == HELLO_WAITS)
            die("the agent did not say hello");
        loop_timer_set(&bench->timer, SECOND / 10);
        return;
    }
    if (bench->measuring) {
        bench->stopping = true;
        loop_stop(bench->loop);
        return;
    }
    bench->measuring = true;
    bench->from = loop_clock();
    loop_timer_set(&bench->timer, (uint64_t)(bench->seconds * 1e6));
}

static void options(struct bench *bench, int argc, char **argv)
{
    struct slice arguments = slice_of(builtin_arguments, sizeof builtin_arguments - 1);
    struct fail why;
    int option;
    while ((option = getopt(argc, argv, "c:f:d:m:a:")) != -1) {
        if (option == 'c')
            bench->connections = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'f')
            bench->in_flight = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'd')
            bench->seconds = strtod(optarg, NULL);
        else if (option == 'm')
            bench->message = slice_text(optarg);
        else if (option == 'a')
            arguments = file_of(optarg);
        else
            exit(EXIT_FAILURE);
    }
    if (optind + 1 != argc || !bench->connections || !bench->in_flight || bench->seconds <= 0)
        die("usage: bench_spop [-c connections] [-f in flight] [-d seconds] [-m message] [-a file] ADDRESS");
    if (!net_parse(slice_text(argv[optind]), &bench->address, &why))
        die(why.text);
    pack_arguments(bench, arguments);
}

int main(int argc, char **argv)
{
    static struct bench bench = {.connections = 4, .in_flight = 20, .seconds = 5};
    struct fail why;
    bench.message = SLICE_LITERAL("cell-route");
    options(&bench, argc, argv);
    bench.loop = loop_new(&why);
    struct connection *connections = calloc(bench.connections, sizeof *connections);
    if (!bench.loop || !connections)
        die("out of memory");
    for (unsigned i = 0; i < bench.connections; i++)
        start(&connections[i], &bench);
    loop_timer_open(&bench.timer, bench.loop, on_time, &bench);
    loop_timer_set(&bench.timer, (uint64_t)(bench.seconds * 1e5));
    loop_run(bench.loop);
    double seconds = (double)(loop_clock() - bench.from) / 1e6;
    printf("%u connections x %u in flight, %u arguments in %zu bytes, last action %s\n", bench.connections,
           bench.in_flight, bench.count, bench.arguments.len, bench.last_action);
    printf("%.0f ACK/s  p50 %.0f us  p99 %.0f us  p99.9 %.0f us  (%llu ACKs in %.2f s)\n",
           (double)bench.answers / seconds, percentile(&bench, 0.5), percentile(&bench, 0.99),
           percentile(&bench, 0.999), (unsigned long long)bench.answers, seconds);
    for (unsigned i = 0; i < bench.connections; i++)
        finish(&connections[i]);
    free(connections);
    loop_timer_close(&bench.timer);
    loop_free(bench.loop);
    return bench.answers ? EXIT_SUCCESS : EXIT_FAILURE;
}
