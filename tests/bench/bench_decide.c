/* SPDX-License-Identifier: MIT */
/*
 * What a decision costs on one core: the built-in routes, with 1, 1,000 and 1,000,000 records, sandboxes
 * asked for in random order, without a token (open) and with one that the cache knows. `bench_decide
 * [RECORDS]` adds a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/agent/token/tokens.h"

enum { REQUESTS = 4096, ROUNDS = 20, HEADERS_MOST = 2048 };

static const char config[] = "{\"tokens\":[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"}],"
                             "\"domains\":{\"opencomputer\":[\"oc.io\"],\"opensandbox\":[\"os.io\"],"
                             "\"sandbox-sdk\":[\"p.io\"],\"daytona\":[\"day.io\"],\"e2b\":[\"e2b.io\"]}}";

struct bench {
    struct routes *routes;
    struct tokens *tokens;
    struct token_cache *cache;
    struct records *records;
    char line[REQUESTS][160], header[2048];
    struct header_line lines[8];
    struct request request[REQUESTS];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_decide: %s\n", what);
    exit(1);
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    return records_find(directory, space, sandbox, record);
}

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks;
    return addr->bytes[0] == 10;
}

/* A key of the tokens, in a folder that is gone again when this returns. */
static void load_tokens(struct bench *b, const struct json *doc)
{
    char folder[] = "/tmp/bench_decide.XXXXXX", path[64];
    struct fail why;
    if (!mkdtemp(folder))
        die("no temporary folder");
    snprintf(path, sizeof path, "%s/k", folder);
    FILE *key = fopen(path, "w");
    if (!key || fputs("0123456789abcdef0123456789abcdef", key) < 0 || fclose(key) != 0)
        die("cannot write a key");
    b->tokens = tokens_load(doc, json_member(json_root(doc), "tokens"), folder, "cell", TOKENS_MINT, &why);
    unlink(path);
    rmdir(folder);
    if (!b->tokens)
        die(why.text);
}

static struct bench *bench_new(void)
{
    struct bench *b = calloc(1, sizeof *b);
    struct fail why;
    uint8_t token[1500];
    struct writer w = writer_of(token, sizeof token);
    const struct grant grant = {.sandbox = SLICE_LITERAL("*"),
                                .org = SLICE_LITERAL("org"),
                                .needs = NEED_ALL,
                                .iat = time(NULL),
                                .exp = time(NULL) + 3600};
    struct json *doc = json_parse(slice_text(config), "bench", 0, (struct json_limits){65536, 8}, &why);
    if (!b || !doc || !(b->routes = routes_of_all_systems(doc, json_member(json_root(doc), "domains"), &why)))
        die("cannot start");
    load_tokens(b, doc);
    b->cache = token_cache_new(1024);
    if (!b->cache ||
        !tokens_mint(b->tokens, (struct slice){NULL, 0}, (struct slice){NULL, 0}, &grant, &w, &why))
        die("no token");
    snprintf(b->header, sizeof b->header, "Authorization: Bearer %.*s", SLICE_PRINTF(writer_slice(&w)));
    json_free(doc);
    return b;
}

static void make_records(struct bench *b, size_t count)
{
    struct fail why;
    b->records = records_new(count);
    for (size_t i = 0; b->records && i < count; i++) {
        char key[32];
        const struct record record = {
            .epoch = 1,
            .org = SLICE_LITERAL("org"),
            .worker = {WORKER_HTTP, SLICE_LITERAL("10.0.0.1"), 9001, {4, {10, 0, 0, 1}}}};
        snprintf(key, sizeof key, "sb-%08zx", i);
        if (!records_add(b->records, slice_text(key), &record, &why))
            die(why.text);
    }
    if (!b->records)
        die("out of memory");
}

/* The sandbox's number stands between both texts. */
static void make_requests(struct bench *b, const char *before, const char *behind, size_t records,
                          const char *const *headers)
{
    struct fail why;
    size_t count = 0;
    header_line_parse(slice_text(b->header), &b->lines[count++]);
    for (; headers[count - 1]; count++)
        header_line_parse(slice_text(headers[count - 1]), &b->lines[count]);
    for (size_t i = 0; i < REQUESTS; i++) {
        snprintf(b->line[i], sizeof b->line[i], "GET http://%s%08zx%s", before, (size_t)random() % records,
                 behind);
        struct writer w = writer_of(malloc(HEADERS_MOST), HEADERS_MOST); /* as long as the bench */
        if (!request_from_text(slice_text(b->line[i]), b->lines, count, &w, &b->request[i], &why))
            die(why.text);
    }
}

static double run(struct bench *b, bool open, enum verdict_kind want)
{
    static uint8_t memory[DECIDE_SCRATCH];
    struct timespec start, end;
    struct decide_view view = {.routes = b->routes,
                               .tokens = b->tokens,
                               .open = open,
                               .cache = b->cache,
                               .now = time(NULL),
                               .allowed = allowed,
                               .find = find,
                               .directory = b->records};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < REQUESTS; i++) {
            struct verdict verdict;
            struct writer scratch = writer_of(memory, sizeof memory);
            decide(&view, &b->request[i], &scratch, &verdict);
            if (verdict.kind != want || verdict.refusal != REFUSAL_NONE)
                die("the verdict is not the one expected");
        }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / REQUESTS /
           ROUNDS;
}

static void measure(struct bench *b, size_t records)
{
    static const struct {
        const char *name, *before, *behind;
        const char *headers[5];
        enum verdict_kind want;
    } forms[] = {
        {"preview host (1st route)", "sb-", "-p9001.oc.io/a/b?x=1", {NULL}, VERDICT_DIRECT},
        {"pty upgrade, relay",
         "h/api/sandboxes/sb-",
         "/pty/s1",
         {"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", NULL},
         VERDICT_RELAY},
        {"proxy path (last route)", "h/v1/sandboxes/sb-", "/proxy/9001/a/b?x=1", {NULL}, VERDICT_DIRECT},
    };
    make_records(b, records);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        make_requests(b, forms[i].before, forms[i].behind, records, forms[i].headers);
        double open = run(b, true, forms[i].want);
        printf("%10zu  %-26s %8.0f %14.0f\n", records, forms[i].name, open, run(b, false, forms[i].want));
    }
    records_release(b->records);
}

int main(int argc, char **argv)
{
    struct bench *b = bench_new();
    printf("%10s  %-26s %8s %14s   ns per decision, CPU time\n", "records", "request", "open",
           "cached token");
    measure(b, 1);
    measure(b, 1000);
    measure(b, 1000000);
    if (argc > 1 && atol(argv[1]) > 0)
        measure(b, (size_t)atol(argv[1]));
    routes_free(b->routes);
    tokens_free(b->tokens);
    token_cache_free(b->cache);
    free(b);
    return 0;
}
