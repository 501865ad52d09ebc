/* SPDX-License-Identifier: MIT */
/*
 * Load on a forward proxy, and the destination behind it.
 *
 *   bench_egress serve PEM        the destination: prints where it listens for TCP and for TLS. The first byte of a
 *                                 connection says what is wanted: `e` its echo, `u` to be read from, `d` to be sent
 *                                 to, else a request, which is answered with 1 KiB
 *   bench_egress echo ADDRESS     connections a second: each sends one byte, gets it back and is closed
 *   bench_egress open ADDRESS     the same with one request each
 *   bench_egress get ADDRESS      requests a second on connections that are kept
 *   bench_egress up | down ADDRESS   GiB a second to and from the destination
 *   bench_egress idle ADDRESS     opens all, prints a line, and keeps them until its input ends
 *
 *   -c CONNECTIONS at once (1)  -t SECONDS (2), the first tenth of which does not count
 *   -x HOST:PORT  begin each connection with a CONNECT there  -g URI of requests (/)  -s NAME: TLS for that host
 *   -a FILE: who has to have signed its certificate  -H 'Name: value' on the CONNECT, else on the request
 *
 * One thread. What would make the ends slower than the proxy is left out: bulk is sent by sendfile and thrown away
 * unread (MSG_TRUNC). Addresses are 127.0.0.1:PORT; clients come from eight addresses, so that ports are not what they
 * wait for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, BODY = 1024, SAMPLES_MAX = 4 << 20, EVENTS = 256, ERRORS_MOST = 1000 };

enum mode { MODE_ECHO, MODE_OPEN, MODE_GET, MODE_UP, MODE_DOWN, MODE_IDLE, MODES };
static const char *const modes[MODES] = {"echo", "open", "get", "up", "down", "idle"};

enum state {
    STATE_CONNECT, /* the first thing to say is not sent */
    STATE_ALLOWED, /* waits for the 200 to the CONNECT */
    STATE_TLS,
    STATE_ANSWER,
    STATE_BULK,
    STATE_IDLE,
    /* of the destination: */
    STATE_LISTENS,
    STATE_FIRST, /* what is wanted is not known */
    STATE_ECHOES,
    STATE_SERVES
};

struct conn {
    enum state state;
    int fd;
    bool tls;
    SSL *ssl;
    uint64_t since;
    size_t len;
    char in[4096];
};

static struct {
    enum mode mode;
    struct sockaddr_in address;
    unsigned connections, opened, failed;
    double seconds;
    const char *through, *uri, *name, *header;
    char request[8192], connect[8192];
    size_t request_len, connect_len;
    SSL_CTX *tls;
    int epoll, zeros;
    bool measuring;
    uint64_t began, done, bytes;
    uint64_t total; /* also of before it counted: what all CPU was spent on */
    uint32_t *samples;
    size_t sample_count;
    char answer[BODY + 128];
    size_t answer_len;
} b = {.connections = 1, .seconds = 2, .uri = "/", .header = ""};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "bench_egress: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- a connection, with TLS or without ---- */

static void want(struct conn *c, int how, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(b.epoll, how, c->fd, &event) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

static struct conn *conn_new(int fd, enum state state)
{
    struct conn *c = malloc(sizeof *c);
    if (!c)
        die("out of memory");
    c->state = state;
    c->fd = fd;
    c->tls = false;
    c->ssl = NULL;
    c->len = 0;
    c->in[0] = '\0';
    return c;
}

static void conn_close(struct conn *c)
{
    SSL_free(c->ssl);
    close(c->fd);
    free(c);
}

static void start_tls(struct conn *c)
{
    c->ssl = SSL_new(b.tls);
    if (!c->ssl || !SSL_set_fd(c->ssl, c->fd))
        die("no memory for TLS");
}

/* Returns how many bytes came; 0 at the end; -1: none now; -2: an error. */
static ssize_t take(struct conn *c)
{
    if (!c->ssl) {
        ssize_t got = recv(c->fd, c->in + c->len, sizeof c->in - c->len, 0);
        return got >= 0 ? got : errno == EAGAIN ? -1 : -2;
    }
    int got = SSL_read(c->ssl, c->in + c->len, (int)(sizeof c->in - c->len));
    if (got > 0)
        return got;
    int error = SSL_get_error(c->ssl, got);
    ERR_clear_error();
    return error == SSL_ERROR_ZERO_RETURN ? 0 : error == SSL_ERROR_WANT_READ ? -1 : -2;
}

/* What is sent here is small, and nothing else is on its way: it goes whole or not at all. */
static bool give(struct conn *c, const char *bytes, size_t len)
{
    if (!c->ssl)
        return send(c->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
    bool sent = SSL_write(c->ssl, bytes, (int)len) == (int)len;
    ERR_clear_error();
    return sent;
}

/* Returns whether a whole answer of HTTP is there, which is then forgotten; `status` is told. */
static bool whole(struct conn *c, bool has_body, int *status)
{
    static const char length_name[] = "\ncontent-length:";
    size_t body = 0;
    c->in[c->len < sizeof c->in ? c->len : sizeof c->in - 1] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return false;
    *status = atoi(c->in + 9);
    if (has_body || *status != 200) {
        char *length = strcasestr(c->in, length_name);
        body = length && length < end ? (size_t)atol(length + sizeof length_name - 1) : 0;
    }
    if (c->len < (size_t)(end + 4 - c->in) + body && c->len < sizeof c->in - 1)
        return false;
    c->len = 0;
    return true;
}

/* ---- the destination ---- */

static void serve_one(struct conn *c)
{
    c->len = 0;
    if (!give(c, b.answer, b.answer_len))
        c->state = STATE_BULK; /* gone: the next read says so */
}

/* Returns false when the connection has ended. */
static bool serve_bytes(struct conn *c)
{
    do {
        ssize_t got = take(c);
        if (got == -1)
            return true;
        if (got <= 0)
            return false;
        c->len += (size_t)got;
        if (c->state == STATE_FIRST)
            c->state = c->in[0] == 'e'                      ? STATE_ECHOES
                       : c->in[0] == 'u' || c->in[0] == 'd' ? STATE_BULK
                                                            : STATE_SERVES;
        if (c->state == STATE_ECHOES) {
            if (!give(c, c->in, c->len))
                return false;
            c->len = 0;
        } else if (c->state == STATE_BULK) {
            if (c->in[0] == 'd')
                want(c, EPOLL_CTL_MOD, EPOLLOUT);
            return true;
        } else if (c->len >= 4 && memcmp(c->in + c->len - 4, "\r\n\r\n", 4) == 0) {
            serve_one(c);
        } else if (c->len == sizeof c->in) {
            return false;
        }
    } while (c->ssl && SSL_has_pending(c->ssl));
    return true;
}

/* Returns the bytes that went, or -1 at the end. */
static ssize_t bulk(struct conn *c, bool sends)
{
    off_t from = 0;
    ssize_t moved = sends ? sendfile(c->fd, b.zeros, &from, PIECE) : recv(c->fd, NULL, PIECE, MSG_TRUNC);
    if (moved < 0 && errno == EAGAIN)
        return 0;
    return moved == 0 ? -1 : moved;
}

static bool handshake(struct conn *c)
{
    int done = SSL_do_handshake(c->ssl);
    if (done == 1)
        return true;
    int error = SSL_get_error(c->ssl, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        c->state = STATE_CONNECT; /* failed */
    ERR_clear_error();
    return false;
}

static void on_server_event(struct conn *c)
{
    bool open = true;
    if (c->state == STATE_LISTENS) {
        for (int fd; (fd = accept4(c->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
            int one = 1;
            struct conn *new = conn_new(fd, c->tls ? STATE_TLS : STATE_FIRST);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            if (c->tls) {
                start_tls(new);
                SSL_set_accept_state(new->ssl);
            }
            want(new, EPOLL_CTL_ADD, EPOLLIN);
        }
        return;
    }
    if (c->state == STATE_TLS) {
        if (handshake(c))
            c->state = STATE_FIRST;
        open = c->state != STATE_CONNECT;
    }
    if (open && c->state == STATE_BULK && !c->ssl)
        open = bulk(c, c->in[0] == 'd') >= 0;
    else if (open && c->state != STATE_TLS)
        open = serve_bytes(c);
    if (!open)
        conn_close(c);
}

static void listen_for(const char *what, bool tls)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        die("cannot listen: %s", strerror(errno));
    struct conn *c = conn_new(fd, STATE_LISTENS);
    c->tls = tls;
    want(c, EPOLL_CTL_ADD, EPOLLIN);
    printf("%s 127.0.0.1:%u\n", what, ntohs(address.sin_port));
}

static void serve(const char *pem)
{
    b.tls = SSL_CTX_new(TLS_server_method());
    if (!b.tls || SSL_CTX_use_certificate_chain_file(b.tls, pem) != 1 ||
        SSL_CTX_use_PrivateKey_file(b.tls, pem, SSL_FILETYPE_PEM) != 1)
        die("cannot use %s", pem);
    SSL_CTX_set_read_ahead(b.tls, 1);
    b.answer_len = (size_t)snprintf(b.answer, sizeof b.answer,
                                    "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%0*d", BODY, BODY, 0);
    listen_for("tcp", false);
    listen_for("tls", true);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(b.epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++)
            on_server_event(events[i].data.ptr);
    }
}

/* ---- the load ---- */

static void client_new(void);

/* Another one in its place, unless these are too many to mean anything. */
static void failed(struct conn *c, const char *why)
{
    b.failed++;
    if (b.failed > ERRORS_MOST || b.mode == MODE_IDLE || b.mode == MODE_UP || b.mode == MODE_DOWN ||
        strcmp(why, "refused") == 0)
        die("%s: %s (%.*s)", modes[b.mode], why, (int)strcspn(c->in, "\r\n"), c->in);
    c->len = 0;
    c->state = STATE_CONNECT;
    conn_close(c);
    client_new();
}

static void count(const struct conn *c)
{
    b.total++;
    if (!b.measuring)
        return;
    b.done++;
    if (b.sample_count < SAMPLES_MAX)
        b.samples[b.sample_count++] = (uint32_t)(nanoseconds() - c->since);
}

static bool ask(struct conn *c)
{
    c->state = STATE_ANSWER;
    return b.mode == MODE_ECHO ? give(c, "e", 1) : give(c, b.request, b.request_len);
}

/* The way to the destination is open. Returns whether it went on well. */
static bool begin(struct conn *c)
{
    switch (b.mode) {
    case MODE_GET:
        c->since = nanoseconds();
        return ask(c);
    case MODE_UP:
    case MODE_DOWN:
        c->state = STATE_BULK;
        want(c, EPOLL_CTL_MOD, b.mode == MODE_UP ? EPOLLOUT : EPOLLIN);
        return give(c, b.mode == MODE_UP ? "u" : "d", 1);
    case MODE_IDLE:
        c->state = STATE_IDLE;
        if (++b.opened < b.connections)
            client_new();
        return true;
    default:
        return ask(c);
    }
}

/* Bytes to the destination are now without a hop between. */
static bool inside(struct conn *c)
{
    if (!b.name)
        return begin(c);
    start_tls(c);
    SSL_set_connect_state(c->ssl);
    if (!SSL_set_tlsext_host_name(c->ssl, b.name) || !SSL_set1_host(c->ssl, b.name))
        die("%s is no name of a host", b.name);
    c->state = STATE_TLS;
    return handshake(c) || c->state == STATE_TLS;
}

static bool on_connected(struct conn *c)
{
    if (b.through) {
        if (!give(c, b.connect, b.connect_len))
            return false;
        c->state = STATE_ALLOWED;
        return true;
    }
    return inside(c);
}

static void client_new(void)
{
    static unsigned turn;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + turn++ % 8)};
    if (fd < 0)
        die("socket: %s", strerror(errno));
    struct conn *c = conn_new(fd, STATE_CONNECT);
    c->since = nanoseconds();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    bind(fd, (struct sockaddr *)&from, sizeof from);
    if (connect(fd, (struct sockaddr *)&b.address, sizeof b.address) == 0) {
        want(c, EPOLL_CTL_ADD, EPOLLIN);
        if (!on_connected(c))
            failed(c, "cannot write");
    } else if (errno == EINPROGRESS) {
        want(c, EPOLL_CTL_ADD, EPOLLOUT);
    } else {
        die("connect: %s", strerror(errno));
    }
}

/* Returns what went wrong, or NULL. */
static const char *on_answer(struct conn *c, int status)
{
    if (status != 200)
        return "refused";
    if (b.mode == MODE_ECHO || b.mode == MODE_OPEN) {
        count(c);
        conn_close(c);
        client_new();
        return NULL;
    }
    count(c);
    c->since = nanoseconds();
    return ask(c) ? NULL : "cannot write";
}

static const char *on_bytes(struct conn *c)
{
    int status = 200;
    ssize_t got;
    do
        got = take(c);
    while (got > 0 && (c->len += (size_t)got) < sizeof c->in - 1 && c->ssl && SSL_has_pending(c->ssl));
    if (got == 0 || got == -2)
        return "ended early";
    if (c->state == STATE_ALLOWED) {
        if (!whole(c, false, &status))
            return NULL;
        if (status != 200)
            return "refused";
        return inside(c) ? NULL : "cannot go on";
    }
    if (c->len == 0)
        return NULL;
    if (b.mode == MODE_ECHO) {
        c->len = 0;
        return on_answer(c, 200);
    }
    return whole(c, true, &status) ? on_answer(c, status) : NULL;
}

static void on_event(struct conn *c)
{
    const char *why = NULL;
    ssize_t moved;
    switch (c->state) {
    case STATE_CONNECT:
        want(c, EPOLL_CTL_MOD, EPOLLIN);
        why = on_connected(c) ? NULL : "cannot connect";
        break;
    case STATE_TLS:
        if (handshake(c))
            why = begin(c) ? NULL : "cannot write";
        else if (c->state != STATE_TLS)
            why = "TLS failed";
        break;
    case STATE_ALLOWED:
    case STATE_ANSWER:
        why = on_bytes(c);
        break;
    case STATE_BULK:
        moved = bulk(c, b.mode == MODE_UP);
        b.bytes += moved > 0 ? (uint64_t)moved : 0;
        b.total += moved > 0 ? (uint64_t)moved : 0;
        why = moved < 0 ? "ended early" : NULL;
        break;
    default:
        why = "ended early";
    }
    if (why)
        failed(c, why);
}

static int by_size(const void *a, const void *c)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)c;
    return left < right ? -1 : left > right;
}

static void tell(uint64_t end)
{
    double took = (double)(end - b.began) / 1e9;
    printf("%s connections=%u total=%lu failed=%u", modes[b.mode], b.connections, (unsigned long)b.total,
           b.failed);
    if (b.mode == MODE_UP || b.mode == MODE_DOWN)
        printf(" gib_per_second=%.3f", (double)b.bytes / took / (1 << 30));
    else
        printf(" rate=%.1f", (double)b.done / took);
    if (b.sample_count) {
        qsort(b.samples, b.sample_count, sizeof *b.samples, by_size);
        printf(" p50_us=%.1f p99_us=%.1f", b.samples[b.sample_count / 2] / 1e3,
               b.samples[b.sample_count * 99 / 100] / 1e3);
    }
    printf("\n");
}

/* Until its input ends, which nobody writes to. */
static void keep_open(void)
{
    char byte;
    printf("idle\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
}

static void load(void)
{
    uint64_t start = nanoseconds(), length = (uint64_t)(b.seconds * 1e9), now;
    b.samples = malloc(SAMPLES_MAX * sizeof *b.samples);
    if (!b.samples)
        die("out of memory");
    for (unsigned i = 0; i < (b.mode == MODE_IDLE ? 1 : b.connections); i++)
        client_new();
    for (;;) {
        struct epoll_event events[EVENTS];
        int count_now = epoll_wait(b.epoll, events, EVENTS, 100);
        for (int i = 0; i < count_now; i++)
            on_event(events[i].data.ptr);
        now = nanoseconds();
        if (b.mode == MODE_IDLE && b.opened == b.connections) {
            keep_open();
            return;
        }
        if (!b.measuring && now - start > length / 10) {
            b.measuring = true;
            b.bytes = 0;
            b.began = now;
        }
        if (now - start > length && b.mode != MODE_IDLE)
            break;
    }
    tell(now);
}

/* ---- arguments ---- */

static void use_authority(const char *file)
{
    b.tls = SSL_CTX_new(TLS_client_method());
    if (!b.tls || SSL_CTX_load_verify_locations(b.tls, file, NULL) != 1)
        die("cannot use %s", file);
    SSL_CTX_set_verify(b.tls, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_read_ahead(b.tls, 1);
}

static void read_arguments(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "c:t:x:g:s:a:H:")) != -1;) {
        switch (option) {
        case 'c':
            b.connections = (unsigned)atoi(optarg);
            break;
        case 't':
            b.seconds = atof(optarg);
            break;
        case 'x':
            b.through = optarg;
            break;
        case 'g':
            b.uri = optarg;
            break;
        case 's':
            b.name = optarg;
            break;
        case 'a':
            use_authority(optarg);
            break;
        case 'H':
            b.header = optarg;
            break;
        default:
            die("see the head of tests/bench/bench_egress.c");
        }
    }
    if (b.connections == 0 || (b.name && !b.tls))
        die("-c is 0, or -s comes without -a");
}

/* The host of an absolute URI, or where the CONNECT goes. */
static void write_heads(void)
{
    const char *end = b.header[0] ? "\r\n" : "", *host = strstr(b.uri, "//");
    char authority[256];
    snprintf(authority, sizeof authority, "%.*s", host ? (int)strcspn(host + 2, "/") : 0,
             host ? host + 2 : "");
    int connect = snprintf(b.connect, sizeof b.connect, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n",
                           b.through, b.through, b.header, end);
    int request = snprintf(b.request, sizeof b.request, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", b.uri,
                           host        ? authority
                           : b.through ? b.through
                                       : "localhost",
                           b.through ? "" : b.header, b.through ? "" : end);
    b.connect_len = (size_t)connect;
    b.request_len = (size_t)request;
    if (b.connect_len >= sizeof b.connect || b.request_len >= sizeof b.request)
        die("a head is too long");
}

static void read_address(const char *text)
{
    char host[64] = "";
    const char *colon = strrchr(text, ':');
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - text) : 0, text);
    b.address = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)(colon ? atoi(colon + 1) : 0))};
    if (inet_pton(AF_INET, host, &b.address.sin_addr) != 1)
        die("%s is no IPv4 address with a port", text);
}

static void open_common(void)
{
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    b.epoll = epoll_create1(EPOLL_CLOEXEC);
    b.zeros = memfd_create("zeros", MFD_CLOEXEC);
    if (b.epoll < 0 || b.zeros < 0 || ftruncate(b.zeros, PIECE) != 0)
        die("%s", strerror(errno));
}

int main(int argc, char **argv)
{
    unsigned mode = 0;
    if (argc < 3)
        die("see the head of tests/bench/bench_egress.c");
    open_common();
    if (strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    while (mode < MODES && strcmp(modes[mode], argv[1]) != 0)
        mode++;
    if (mode == MODES)
        die("no mode named %s", argv[1]);
    b.mode = (enum mode)mode;
    read_address(argv[2]);
    optind = 3;
    read_arguments(argc, argv);
    write_heads();
    load();
    return 0;
}
