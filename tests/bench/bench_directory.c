/* SPDX-License-Identifier: MIT */
/*
 * What a directory costs. First a file with 1,000 and with 1,000,000 records: time to load, memory, time to find
 * one. Then a whole agent (in this process) on a control plane of our own over HTTP, asked over SPOP: decisions
 * about records in use while the control plane answers and, in turns, while it hangs for five seconds; and
 * 1,000 questions at once about a record that nobody knows yet. `bench_directory [TURNS]`.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/agent.h"
#include "spoa/agent/directory_file.h"
#include "spoa/lib/spop_client.h"

enum { IN_USE = 1000, AT_ONCE = 1000, HANG_SECONDS = 5, FRAME = 16384, SAMPLES = 4000000 };

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
    if (!directory_file_load(path, NULL, &load, &why))
        die(why.text);
    long after = resident_kib();
    printf("%9zu  %9.3f  %11.1f  %12.1f  %11.0f\n", count, load.seconds,
           (double)records_bytes(load.records) / (1 << 20), (double)(after - before) / 1024,
           find_all(load.records, count) * 1e9);
    fflush(stdout);
    records_release(load.records);
    unlink(path);
}

/* ---- the control plane ---- */

struct plane {
    int listener;
    uint16_t port;
    unsigned delay_ms, asked; /* atomic */
};

struct visit {
    struct plane *plane;
    int fd;
};

static bool answer(struct plane *plane, int fd, const char *request)
{
    static const char body[] = "{\"worker\": \"http://127.0.0.1:9\", \"epoch\": 1}";
    char text[256];
    bool is_record = strncmp(request, "GET /v1/sandboxes/", 18) == 0;
    if (is_record)
        __atomic_add_fetch(&plane->asked, 1, __ATOMIC_RELAXED);
    usleep(__atomic_load_n(&plane->delay_ms, __ATOMIC_RELAXED) * 1000);
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

static void *accept_all(void *context)
{
    struct plane *plane = context;
    for (;;) {
        pthread_t thread;
        struct visit *visit = malloc(sizeof *visit);
        if (!visit)
            die("out of memory");
        *visit = (struct visit){plane, accept(plane->listener, NULL, NULL)};
        if (visit->fd < 0 || pthread_create(&thread, NULL, serve, visit) != 0)
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
    plane->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (plane->listener < 0 || bind(plane->listener, (struct sockaddr *)&address, len) != 0 ||
        listen(plane->listener, 1024) != 0 ||
        getsockname(plane->listener, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&thread, NULL, accept_all, plane) != 0)
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

static void agent_begin(struct running *r, uint16_t port)
{
    struct fail why;
    snprintf(r->config, sizeof r->config, "%s/cellgate.json", r->folder);
    FILE *out = fopen(r->config, "w");
    if (!out)
        die(r->config);
    fprintf(out,
            "{\"open\": true, \"tokens\": [], \"directory\": {\"kind\": \"http\", \"ttl\": \"1s\","
            " \"url\": \"http://127.0.0.1:%u\"},\n"
            " \"routes\": [{\"name\": \"s\", \"path\": \"/s/{sandbox}/{rest...}\", \"need\": \"none\"}],\n"
            " \"agent\": {\"listen\": \"unix@%s/a\", \"relay_listen\": \"unix@%s/r\", \"threads\": 1}}",
            port, r->folder, r->folder);
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

/* ---- asking it ---- */

struct asker {
    struct spop_client *client;
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
    uint8_t memory[SPOP_HELLO_MOST];
    for (;;) {
        struct slice rest = slice_of(a->in, a->len);
        struct spop_client_event event;
        struct writer out = writer_of(memory, sizeof memory);
        enum spop_client_step step;
        while ((step = spop_client_next(a->client, &rest, &event, &out)) == SPOP_CLIENT_ANSWER && answers) {
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

static void connect_to(struct asker *a, const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint8_t memory[SPOP_HELLO_MOST];
    struct writer out = writer_of(memory, sizeof memory);
    const struct spop_offer offer = {.frame_size = FRAME};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/a", folder);
    a->client = spop_client_new(AT_ONCE);
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
    spop_client_ask_arg(&question, SLICE_LITERAL("host"), spop_text(SLICE_LITERAL("cell.example")));
    spop_client_ask_arg(&question, SLICE_LITERAL("hosts"), spop_int(1));
    if (!spop_client_ask_end(a->client, &question))
        die("a question does not fit");
    send_all(a, &out);
}

struct samples {
    double *seconds;
    size_t count;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sample_for(struct asker *a, double seconds, struct samples *s)
{
    double until = now() + seconds;
    for (unsigned i = 0; now() < until && s->count < SAMPLES; i++) {
        char name[32];
        snprintf(name, sizeof name, "sb-%u", i % IN_USE);
        ask(a, name, &s->seconds[s->count]);
        await(a, 1);
        s->count++;
    }
}

static void print_samples(const char *what, struct samples *s)
{
    qsort(s->seconds, s->count, sizeof *s->seconds, by_value);
    printf("%-28s %10zu %8.0f %8.0f %8.0f %8.0f\n", what, s->count, s->seconds[s->count / 2] * 1e6,
           s->seconds[s->count * 99 / 100] * 1e6, s->seconds[s->count * 999 / 1000] * 1e6,
           s->seconds[s->count - 1] * 1e6);
}

static void bench_hanging(struct asker *a, struct plane *plane, unsigned turns)
{
    struct samples healthy = {calloc(SAMPLES, sizeof(double)), 0},
                   hanging = {calloc(SAMPLES, sizeof(double)), 0};
    if (!healthy.seconds || !hanging.seconds)
        die("out of memory");
    plane->delay_ms = 1;
    sample_for(a, 1, &healthy);
    healthy.count = 0; /* all are known now */
    for (unsigned i = 0; i < turns; i++) {
        __atomic_store_n(&plane->delay_ms, 1, __ATOMIC_RELAXED);
        sample_for(a, HANG_SECONDS, &healthy);
        __atomic_store_n(&plane->delay_ms, HANG_SECONDS * 1000, __ATOMIC_RELAXED);
        sample_for(a, HANG_SECONDS, &hanging);
    }
    __atomic_store_n(&plane->delay_ms, 1, __ATOMIC_RELAXED);
    printf("\n%-28s %10s %8s %8s %8s %8s   microseconds\n", "decisions, records in use", "count", "p50",
           "p99", "p99.9", "most");
    print_samples("the directory answers", &healthy);
    print_samples("it hangs for 5 s", &hanging);
    free(healthy.seconds);
    free(hanging.seconds);
}

static void bench_herd(struct asker *a, struct plane *plane)
{
    static double when[AT_ONCE];
    double longest = 0;
    sleep(HANG_SECONDS + 1); /* what hung is answered */
    __atomic_store_n(&plane->delay_ms, 50, __ATOMIC_RELAXED);
    unsigned before = __atomic_load_n(&plane->asked, __ATOMIC_RELAXED);
    for (int i = 0; i < AT_ONCE; i++)
        ask(a, "nobody-knows-it-yet", &when[i]);
    await(a, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++)
        longest = when[i] > longest ? when[i] : longest;
    printf(
        "\n%d questions at once about one unknown record, a look-up takes 50 ms: %u look-ups, all answered "
        "after at most %.0f ms\n",
        AT_ONCE, __atomic_load_n(&plane->asked, __ATOMIC_RELAXED) - before, longest * 1e3);
}

int main(int argc, char **argv)
{
    struct running r = {.folder = "/tmp/bench_directory.XXXXXX"};
    struct plane plane = {.delay_ms = 1};
    static struct asker a;
    long turns = argc > 1 ? atol(argv[1]) : 3;
    if (!mkdtemp(r.folder))
        die("no temporary folder");
    printf("%9s  %9s  %11s  %12s  %11s\n", "records", "load, s", "table, MiB", "resident MiB", "find, ns");
    bench_file(r.folder, 1000);
    bench_file(r.folder, 1000000);
    plane_start(&plane);
    agent_begin(&r, plane.port);
    connect_to(&a, r.folder);
    bench_hanging(&a, &plane, turns > 0 && turns < 100 ? (unsigned)turns : 1);
    bench_herd(&a, &plane);
    char path[128];
    static const char *const left[] = {"cellgate.json", "a", "r"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(path, sizeof path, "%s/%s", r.folder, left[i]);
        unlink(path);
    }
    rmdir(r.folder);
    fflush(stdout);
    _exit(EXIT_SUCCESS); /* with threads that still serve */
}
