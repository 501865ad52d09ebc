/* SPDX-License-Identifier: MIT */
/*
 * What a directory costs. First a file with 1,000 and with 1,000,000 records: time to load, memory, time to find
 * one. Then a whole agent (in this process) on a control plane of our own over HTTP, asked over SPOP: decisions
 * about records in use while the control plane answers and, in turns, while it hangs for five seconds;
 * 1,000 questions at once about a record that nobody knows yet; and what a pushed change costs that one watch
 * of many is about. Last, for each kind that is asked, with a server of our own that answers at once: look-ups of
 * records that nobody knew. `bench_directory [TURNS]`, `bench_directory cold`: the last alone.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/directory/file.h"
#include "spoa/agent/serve/agent.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/spop/client.h"

#define FOLDER "/tmp/bench_directory.XXXXXX"

enum {
    IN_USE = 1000,
    AT_ONCE = 1000,
    HANG_SECONDS = 5,
    FRAME = 16384,
    SAMPLES = 1000000, /* of one turn */
    TURNS_MOST = 100,
    WATCHES = 10000,
    CHANGES = 1000,
    COLD = 20000, /* look-ups of one kind */
    COLD_AT_ONCE = 64,
};

static void die(const char *what)
{
    fprintf(stderr, "bench_directory: %s\n", what);
    exit(EXIT_FAILURE);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long resident_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmRSS: %ld", &kib);
    if (status)
        fclose(status);
    return kib;
}

/* ---- a file ---- */

static void write_file(const char *path, size_t count)
{
    FILE *out = fopen(path, "w");
    if (!out)
        die(path);
    fputs("{\"sandboxes\": {", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out,
                "%s\n\"sb-%08zx\": {\"worker\": \"http://10.1.%zu.%zu:9000\", \"epoch\": 3, \"org\": "
                "\"org-%zu\"}",
                i ? "," : "", i, i >> 8 & 255, i & 255, i % 1000);
    fputs("}}\n", out);
    if (fclose(out) != 0)
        die(path);
}

/* CPU seconds of one. */
static double find_all(const struct records *records, size_t count)
{
    enum { KEYS = 4096, ROUNDS = 200 };
    static char keys[KEYS][32];
    for (int i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "sb-%08zx", (size_t)random() % count);
    clock_t begun = clock();
    for (int i = 0; i < KEYS * ROUNDS; i++) {
        struct record record;
        if (records_get(records, slice_text(keys[i % KEYS]), &record) != LOOKUP_FOUND)
            die("a record is not found");
    }
    return (double)(clock() - begun) / CLOCKS_PER_SEC / (KEYS * ROUNDS);
}

static void bench_file(const char *folder, size_t count)
{
    char path[128];
    struct directory_load load;
    struct fail why;
    snprintf(path, sizeof path, "%s/sandboxes.json", folder);
    write_file(path, count);
    long before = resident_kib();
    clock_t cpu = clock();
    if (!directory_file_load(path, NULL, &load, &why))
        die(why.text);
    double spent = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    long after = resident_kib();
    printf("%9zu  %9.3f  %9.3f  %11.1f  %12.1f  %11.0f\n", count, load.seconds, spent,
           (double)records_bytes(load.records) / (1 << 20), (double)(after - before) / 1024,
           find_all(load.records, count) * 1e9);
    fflush(stdout);
    records_release(load.records);
    unlink(path);
}

/* ---- the control plane ---- */

struct plane {
    void *(*serve)(void *visit); /* one connection; NULL: datagrams */
    int listener;
    uint16_t port;
    atomic_uint delay_ms, asked;
    bool pushes;       /* has a stream of events */
    atomic_int stream; /* of the agent that follows, 0: none */
};

struct visit {
    struct plane *plane;
    int fd;
};

static bool follow(struct plane *plane, int fd)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    bool good = send(fd, head, sizeof head - 1, MSG_NOSIGNAL) == sizeof head - 1;
    atomic_store_explicit(&plane->stream, fd, memory_order_release);
    return good;
}

/* A change of that sandbox's record. */
static void push(struct plane *plane, const char *sandbox, unsigned epoch)
{
    char text[256];
    int len = snprintf(text, sizeof text,
                       "event: update\ndata: {\"sandbox\":\"%s\",\"record\":{\"worker\":"
                       "\"http://127.0.0.1:%u\",\"epoch\":%u}}\n\n",
                       sandbox, 10 + epoch % 2, epoch);
    if (send(atomic_load_explicit(&plane->stream, memory_order_acquire), text, (size_t)len, MSG_NOSIGNAL) !=
        len)
        die("the agent does not follow any more");
}

static bool answer(struct plane *plane, int fd, const char *request)
{
    static const char body[] = "{\"worker\": \"http://127.0.0.1:9\", \"epoch\": 1}";
    char text[256];
    bool is_record = strncmp(request, "GET /v1/sandboxes/", 18) == 0;
    if (!is_record && plane->pushes)
        return follow(plane, fd);
    if (is_record)
        atomic_fetch_add_explicit(&plane->asked, 1, memory_order_relaxed);
    usleep(atomic_load_explicit(&plane->delay_ms, memory_order_relaxed) * 1000);
    int len = is_record ? snprintf(text, sizeof text,
                                   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                   "Content-Length: %zu\r\n\r\n%s",
                                   sizeof body - 1, body)
                        : snprintf(text, sizeof text, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    return send(fd, text, (size_t)len, MSG_NOSIGNAL) == len;
}

static void *serve(void *context)
{
    struct visit visit = *(struct visit *)context;
    char in[8192];
    size_t len = 0;
    free(context);
    for (;;) {
        ssize_t n = recv(visit.fd, in + len, sizeof in - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        in[len] = '\0';
        if (!strstr(in, "\r\n\r\n"))
            continue;
        if (!answer(visit.plane, visit.fd, in))
            break;
        len = 0;
    }
    close(visit.fd);
    return NULL;
}

/* ---- a Redis and a name server that know every sandbox ---- */

/* Takes one command off `in`; its first letter, 0: it is not whole. */
static char take_command(char *in, size_t *len)
{
    char *at = in, *end = in + *len, first = 0;
    long words = *len ? strtol(in + 1, NULL, 10) : 0;
    for (long i = 0; i < words; i++) {
        at = memchr(at, '$', (size_t)(end - at));
        char *line = at ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!line || line + strtol(at + 1, NULL, 10) + 3 > end)
            return 0;
        first = i ? first : line[1];
        at = line + strtol(at + 1, NULL, 10) + 3;
    }
    *len -= (size_t)(at - in);
    memmove(in, at, *len);
    return first;
}

static void *serve_redis(void *context)
{
    static const char body[] = "{\"worker\": \"http://127.0.0.1:9\", \"epoch\": 1}";
    struct visit visit = *(struct visit *)context;
    static __thread char in[1 << 20], out[1 << 20];
    size_t len = 0;
    free(context);
    for (ssize_t n; (n = recv(visit.fd, in + len, sizeof in - 1 - len, 0)) > 0;) {
        int answered = 0;
        len += (size_t)n;
        in[len] = '\0';
        for (char first; (first = take_command(in, &len));)
            answered += sprintf(out + answered,
                                first == 'G'   ? "$%zu\r\n%s\r\n"
                                : first == 'S' ? "*3\r\n$9\r\nsubscribe\r\n$1\r\ne\r\n:1\r\n"
                                               : "+PONG\r\n",
                                sizeof body - 1, body);
        if (send(visit.fd, out, (size_t)answered, MSG_NOSIGNAL) != answered)
            break;
    }
    close(visit.fd);
    return NULL;
}

static void *serve_names(void *context)
{
    static const uint8_t address[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1};
    struct plane *plane = context;
    uint8_t datagram[1024];
    struct sockaddr_in from;
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(plane->listener, datagram, 512, 0, (struct sockaddr *)&from, &size);
        if (n < 17)
            continue;
        size_t end = 12;
        while (datagram[end])
            end += datagram[end] + 1u;
        bool is_a = datagram[end + 2] == 1;
        datagram[2] = 0x81, datagram[3] = 0x80, datagram[7] = is_a;
        datagram[11] = 0; /* without what stood behind the question */
        end += 5;
        memcpy(datagram + end, address, is_a ? sizeof address : 0);
        sendto(plane->listener, datagram, end + (is_a ? sizeof address : 0), 0, (struct sockaddr *)&from,
               size);
    }
    return NULL;
}

static void *accept_all(void *context)
{
    struct plane *plane = context;
    for (;;) {
        pthread_t thread;
        struct visit *visit = malloc(sizeof *visit);
        if (!visit)
            die("out of memory");
        *visit = (struct visit){plane, accept(plane->listener, NULL, NULL)};
        if (visit->fd < 0 || pthread_create(&thread, NULL, plane->serve, visit) != 0)
            die("the control plane cannot accept");
        pthread_detach(thread);
    }
    return NULL;
}

static void plane_start(struct plane *plane)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    pthread_t thread;
    plane->listener = socket(AF_INET, plane->serve ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (plane->listener < 0 || bind(plane->listener, (struct sockaddr *)&address, len) != 0 ||
        (plane->serve && listen(plane->listener, 1024) != 0) ||
        getsockname(plane->listener, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&thread, NULL, plane->serve ? accept_all : serve_names, plane) != 0)
        die("the control plane cannot listen");
    pthread_detach(thread);
    plane->port = ntohs(address.sin_port);
}

/* ---- the agent ---- */

struct running {
    char folder[64], config[128];
    struct loop *loop;
    struct agent *agent;
    struct log *log;
    pthread_t thread;
};

static void on_started(void *context)
{
    (void)context;
}

static void *run_loop(void *context)
{
    loop_run(((struct running *)context)->loop);
    return NULL;
}

static void agent_begin(struct running *r, const char *directory)
{
    struct fail why;
    if (!mkdtemp(r->folder))
        die("no temporary folder");
    snprintf(r->config, sizeof r->config, "%s/cellgate.json", r->folder);
    FILE *out = fopen(r->config, "w");
    if (!out)
        die(r->config);
    fprintf(out,
            "{\"open\": true, \"tokens\": [], \"systems\": [\"opensandbox\"], \"worker_networks\": "
            "[\"127.0.0.0/8\"], \"directory\": {%s},\n"
            " \"routes\": [{\"name\": \"s\", \"path\": \"/s/{sandbox}/{rest...}\", \"need\": \"none\"}, "
            "\"defaults\"],\n"
            " \"agent\": {\"listen\": \"unix@%s/a\", \"relay_listen\": \"unix@%s/r\", \"threads\": 1}}",
            directory, r->folder, r->folder);
    fclose(out);
    struct policy *policy = policy_load(r->config, NULL, 0, &why);
    if (!policy)
        die(why.text);
    r->log = log_new(open("/dev/null", O_WRONLY), LOG_ERROR);
    r->loop = loop_new(&why);
    const struct agent_options options = {
        .loop = r->loop, .log = r->log, .config = r->config, .started = on_started};
    r->agent = agent_start(&options, policy, &why);
    if (!r->agent || pthread_create(&r->thread, NULL, run_loop, r) != 0)
        die(why.text);
}

static void agent_begin_http(struct running *r, uint16_t port, const char *ttl)
{
    char directory[128];
    snprintf(directory, sizeof directory,
             "\"kind\": \"http\", \"ttl\": \"%s\", \"url\": \"http://127.0.0.1:%u\"", ttl, port);
    agent_begin(r, directory);
}

/* ---- asking it ---- */

struct asker {
    struct spop_client *client;
    struct key *ticket_key; /* of who watches */
    int fd;
    uint8_t in[65536];
    size_t len;
};

static void send_all(struct asker *a, const struct writer *w)
{
    for (size_t at = 0; at < w->len;) {
        ssize_t n = send(a->fd, w->at + at, w->len - at, MSG_NOSIGNAL);
        if (n <= 0)
            die("the agent closed the connection");
        at += (size_t)n;
    }
}

/* Reads until so many answers came. Each context is a double: when it was asked; then how long it took. */
static void await(struct asker *a, unsigned answers)
{
    uint8_t memory[SPOP_HELLO_MAX];
    for (;;) {
        struct slice rest = slice_of(a->in, a->len);
        struct spop_client_event event;
        struct writer out = writer_of(memory, sizeof memory);
        enum spop_client_step step = SPOP_CLIENT_ANSWER;
        while (answers && (step = spop_client_next(a->client, &rest, &event, &out)) == SPOP_CLIENT_ANSWER) {
            double *when = event.context;
            *when = now() - *when;
            answers--;
        }
        memmove(a->in, rest.at, rest.len);
        a->len = rest.len;
        if (step == SPOP_CLIENT_READY || answers == 0)
            return;
        ssize_t n = recv(a->fd, a->in + a->len, sizeof a->in - a->len, 0);
        if (n <= 0)
            die("the agent closed the connection");
        a->len += (size_t)n;
    }
}

/* To the agent's socket of that name. */
static void connect_to(struct asker *a, const char *folder, const char *name, unsigned questions)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer out = writer_of(memory, sizeof memory);
    const struct spop_offer offer = {.frame_size = FRAME};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
    a->client = spop_client_new(questions);
    a->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!a->client || a->fd < 0 || connect(a->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to the agent");
    spop_client_hello(a->client, &offer, &out);
    send_all(a, &out);
    await(a, 1);
}

static void ask(struct asker *a, const char *sandbox, double *when)
{
    uint8_t memory[FRAME];
    char path[64];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_ask question;
    snprintf(path, sizeof path, "/s/%s/x", sandbox);
    *when = now();
    if (!spop_client_ask_begin(a->client, SLICE_LITERAL("cell-route"), when, &out, &question))
        die("too many questions");
    spop_client_ask_arg(&question, SLICE_LITERAL("method"), spop_text(SLICE_LITERAL("GET")));
    spop_client_ask_arg(&question, SLICE_LITERAL("version"), spop_text(SLICE_LITERAL("1.1")));
    spop_client_ask_arg(&question, SLICE_LITERAL("path"), spop_text(slice_text(path)));
    spop_client_ask_arg(&question, SLICE_LITERAL("headers"),
                        spop_text(SLICE_LITERAL("host: cell.example\r\n\r\n")));
    if (!spop_client_ask_end(a->client, &question))
        die("a question does not fit");
    send_all(a, &out);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Latencies in one state of the directory: of each turn its percentiles. */
struct state {
    const char *name;
    size_t count;
    double p50[TURNS_MOST], p99[TURNS_MOST], p999[TURNS_MOST];
};

/* One turn; counts and percentiles are the turn's. */
static void sample(struct asker *a, struct state *state, unsigned turn, double *seconds)
{
    double until = now() + HANG_SECONDS;
    size_t count = 0;
    while (count < SAMPLES && now() < until) {
        char name[32];
        snprintf(name, sizeof name, "sb-%zu", count % IN_USE);
        ask(a, name, &seconds[count]);
        await(a, 1);
        count++;
    }
    qsort(seconds, count, sizeof *seconds, by_value);
    state->count += count;
    state->p50[turn] = seconds[count / 2];
    state->p99[turn] = seconds[count * 99 / 100];
    state->p999[turn] = seconds[count * 999 / 1000];
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void print_state(struct state *s, unsigned turns)
{
    printf("%-28s %10zu %8.1f %8.1f %8.1f\n", s->name, s->count, median(s->p50, turns) * 1e6,
           median(s->p99, turns) * 1e6, median(s->p999, turns) * 1e6);
}

/* Which of both comes first changes with each turn. */
static void bench_hanging(struct asker *a, struct plane *plane, unsigned turns)
{
    static struct state states[2] = {{.name = "the directory answers"}, {.name = "it hangs for 5 s"}};
    double *seconds = malloc(SAMPLES * sizeof *seconds);
    if (!seconds)
        die("out of memory");
    sample(a, &states[0], 0, seconds); /* all are known now */
    states[0].count = 0;
    for (unsigned turn = 0; turn < turns; turn++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned hangs = (turn + i) % 2;
            atomic_store_explicit(&plane->delay_ms, hangs ? HANG_SECONDS * 1000 : 1, memory_order_relaxed);
            sample(a, &states[hangs], turn, seconds);
        }
    atomic_store_explicit(&plane->delay_ms, 1, memory_order_relaxed);
    printf("\n%-28s %10s %8s %8s %8s   microseconds, medians of %u turns\n", "decisions, records in use",
           "count", "p50", "p99", "p99.9", turns);
    for (unsigned i = 0; i < 2; i++)
        print_state(&states[i], turns);
    free(seconds);
}

static void bench_herd(struct asker *a, struct plane *plane)
{
    static double when[AT_ONCE];
    double longest = 0;
    sleep(HANG_SECONDS + 1); /* what hung is answered */
    atomic_store_explicit(&plane->delay_ms, 50, memory_order_relaxed);
    unsigned before = atomic_load_explicit(&plane->asked, memory_order_relaxed);
    for (int i = 0; i < AT_ONCE; i++)
        ask(a, "nobody-knows-it-yet", &when[i]);
    await(a, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++)
        longest = when[i] > longest ? when[i] : longest;
    printf(
        "\n%d questions at once about one unknown record, a look-up takes 50 ms: %u look-ups, all answered "
        "after at most %.0f ms\n",
        AT_ONCE, atomic_load_explicit(&plane->asked, memory_order_relaxed) - before, longest * 1e3);
}

/* ---- watches ---- */

/* Answered when the record is newer than epoch. The tunnel is where the record says. */
static void watch(struct asker *a, const char *sandbox, unsigned epoch, double *when)
{
    static const uint8_t loopback[] = {127, 0, 0, 1};
    uint8_t memory[FRAME];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_ask question;
    if (!spop_client_ask_begin(a->client, SLICE_LITERAL("cell-watch"), when, &out, &question))
        die("too many watches");
    struct handover h = handover_none();
    uint8_t of_ticket[TICKET_BYTES * 2];
    struct writer ticket = writer_of(of_ticket, sizeof of_ticket);
    h.route = SLICE_LITERAL("s");
    h.sandbox = slice_text(sandbox);
    spop_client_ask_arg(&question, SLICE_LITERAL("route"), spop_text(h.route));
    spop_client_ask_arg(&question, SLICE_LITERAL("sandbox"), spop_text(h.sandbox));
    spop_client_ask_arg(&question, SLICE_LITERAL("ticket"),
                        spop_text(ticket_write(a->ticket_key, &h, &ticket)));
    spop_client_ask_arg(&question, SLICE_LITERAL("epoch"), spop_int(epoch));
    spop_client_ask_arg(&question, SLICE_LITERAL("addr"), spop_address(slice_of(loopback, sizeof loopback)));
    if (!spop_client_ask_end(a->client, &question))
        die("a watch does not fit");
    send_all(a, &out);
}

/* CHANGES of one sandbox, one after the other, from the push to the answer of its watch. CPU is that of agent,
 * control plane and who watches together. */
static void bench_changes(struct asker *a, struct plane *plane, unsigned others)
{
    static double took[CHANGES];
    static unsigned epoch = 1;
    watch(a, "changed", epoch, &took[0]);
    for (int i = 0; i < 6000 && atomic_load_explicit(&plane->asked, memory_order_relaxed) <= others; i++)
        usleep(10000);
    sleep(2); /* everything is known */
    clock_t cpu = clock();
    for (unsigned i = 0; i < CHANGES; i++) {
        double begun = took[i] = now();
        push(plane, "changed", ++epoch);
        while (took[i] == begun) /* a watch of others may be answered too */
            await(a, 1);
        if (i + 1 < CHANGES)
            watch(a, "changed", epoch, &took[i + 1]);
    }
    double each = (double)(clock() - cpu) / CLOCKS_PER_SEC / CHANGES;
    qsort(took, CHANGES, sizeof *took, by_value);
    printf("%13u %8.0f %8.0f %8.0f %8.0f\n", others, took[CHANGES / 2] * 1e6, took[CHANGES * 99 / 100] * 1e6,
           took[CHANGES - 1] * 1e6, each * 1e6);
}

static void bench_watches(const char *folder, struct plane *plane)
{
    static struct asker a;
    static double never;
    char path[128];
    struct fail why;
    snprintf(path, sizeof path, "%s/r.key", folder);
    a.ticket_key = ticket_key_load(path, &why); /* the agent's */
    if (!a.ticket_key)
        die(why.text);
    connect_to(&a, folder, "r", WATCHES + 1);
    for (int i = 0; i < 1000 && !atomic_load_explicit(&plane->stream, memory_order_acquire); i++)
        usleep(10000);
    printf("\n%13s %8s %8s %8s %8s   microseconds, from a pushed change to the watch's answer\n",
           "other watches", "p50", "p99", "most", "CPU");
    bench_changes(&a, plane, 0);
    for (unsigned i = 0; i < WATCHES; i++) {
        char name[32];
        snprintf(name, sizeof name, "watched-%u", i);
        watch(&a, name, 1, &never);
    }
    bench_changes(&a, plane, WATCHES);
}

static void agent_clean(const struct running *r)
{
    char path[128];
    static const char *const left[] = {"cellgate.json", "a", "r", "r.key"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(path, sizeof path, "%s/%s", r->folder, left[i]);
        unlink(path);
    }
    rmdir(r->folder);
}

/* ---- look-ups of what nobody knew ---- */

static unsigned threads_of_process(void)
{
    char line[256];
    unsigned threads = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Threads: %u", &threads);
    if (status)
        fclose(status);
    return threads;
}

/* COLD of them, so many at once: in a second, and the median. */
static void ask_cold(struct asker *a, unsigned at_once, size_t count, const char *prefix, double *each)
{
    static double when[COLD];
    double begun = now();
    for (size_t asked = 0, answered = 0; answered < count;) {
        char name[32];
        snprintf(name, sizeof name, "%s-%zu", prefix, asked);
        if (asked < count && asked - answered < at_once) {
            ask(a, name, &when[asked++]);
            continue;
        }
        await(a, 1);
        answered++;
    }
    double took = now() - begun;
    qsort(when, count, sizeof *when, by_value);
    each[0] = (double)count / took;
    each[1] = when[count / 2];
}

static void bench_cold(const char *name, const char *directory, void *(*serves)(void *visit))
{
    struct running r = {.folder = FOLDER};
    struct plane plane = {.serve = serves};
    struct asker *a = calloc(1, sizeof *a);
    char text[256];
    double one[2], many[2];
    unsigned before = threads_of_process();
    plane_start(&plane);
    snprintf(text, sizeof text, "%s127.0.0.1:%u%s", directory, plane.port, serves ? "\"" : "\"]");
    agent_begin(&r, text);
    unsigned threads = threads_of_process() - before - 1 - 1; /* the server, and who asks */
    connect_to(a, r.folder, "a", COLD_AT_ONCE);
    ask_cold(a, 1, COLD / 10, "one", one);
    ask_cold(a, COLD_AT_ONCE, COLD, "many", many);
    printf("%-8s %12.0f %12.0f %12.0f %12.0f %10u\n", name, one[0], one[1] * 1e6, many[0], many[1] * 1e6,
           threads);
    fflush(stdout);
    agent_clean(&r);
}

static void bench_all_cold(void)
{
    printf("\n%-8s %12s %12s %12s %12s   look-ups of unknown records, one and %d at a time\n", "kind",
           "1: per s", "p50, us", "per s", "p50, us", COLD_AT_ONCE);
    bench_cold("http", "\"kind\": \"http\", \"url\": \"http://", serve);
    bench_cold("redis", "\"kind\": \"redis\", \"server\": \"", serve_redis);
    bench_cold("dns", "\"kind\": \"dns\", \"name\": \"{sandbox}.test\", \"servers\": [\"", NULL);
}

int main(int argc, char **argv)
{
    struct running asked = {.folder = FOLDER}, pushed = asked;
    char folder[] = FOLDER;
    struct plane plane = {.serve = serve, .delay_ms = 1}, pushing = {.serve = serve, .pushes = true};
    static struct asker a;
    long turns = argc > 1 ? atol(argv[1]) : 5;
    if (argc > 1 && strcmp(argv[1], "cold") == 0) {
        bench_all_cold();
        _exit(EXIT_SUCCESS);
    }
    if (!mkdtemp(folder))
        die("no temporary folder");
    printf("%9s  %9s  %9s  %11s  %12s  %11s\n", "records", "load, s", "CPU, s", "table, MiB", "resident MiB",
           "find, ns");
    bench_file(folder, 1000);
    bench_file(folder, 1000000);
    rmdir(folder);
    plane_start(&plane);
    agent_begin_http(&asked, plane.port, "1s");
    connect_to(&a, asked.folder, "a", AT_ONCE);
    bench_hanging(&a, &plane, turns > 0 && turns <= TURNS_MOST ? (unsigned)turns : 1);
    bench_herd(&a, &plane);
    plane_start(&pushing);
    agent_begin_http(&pushed, pushing.port, "1h");
    bench_watches(pushed.folder, &pushing);
    agent_clean(&asked);
    agent_clean(&pushed);
    bench_all_cold();
    fflush(stdout);
    _exit(EXIT_SUCCESS); /* with threads that still serve */
}
