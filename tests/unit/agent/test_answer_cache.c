/* SPDX-License-Identifier: MIT */
/* Answers that are given again, beside answers that are made anew: by the same code as a decision thread's. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/decision_thread/answer.h"
#include "spoa/agent/decision_thread/answer_cache.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/net/loop_thread.h"

#define START 2000000000

#define KEYS "[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},{\"kind\":\"static\"}]"

#define ROUTE(name, rest) \
    "{\"name\":\"" name "\",\"path\":\"/" name "/{sandbox}/{rest...}\",\"to\":\"/{rest}\"," rest "}"
#define COOKIE "{\"name\":\"cookie\",\"host\":\"{sandbox}.c.io\",\"need\":\"http\",\"cookie\":true},"
#define ROUTES(to)                                                                                     \
    ROUTE("plain", "\"need\":\"none\",\"cors\":[\"https://a.example\"]")                               \
    "," ROUTE("http", "\"need\":\"http\"") "," ROUTE(                                                  \
        "keep", "\"need\":\"http\",\"auth\":\"keep\"") ",{\"name\":\"ws\",\"path\":\"/ws/"             \
                                                       "{sandbox}\",\"upgrade\":true,\"to\":\"/" to    \
                                                       "\",\"need\":\"http\"}"                         \
                                                       ",{\"name\":\"via\",\"path\":\"/via/{sandbox}/" \
                                                       "{rest...}\",\"via\":\"relay\",\"to\":\"/"      \
                                                       "{rest}\",\"upgrade\":true,\"need\":\"http\"}"

static const char *const policies[] = {
    "{\"cell\":\"cell\",\"tokens\":" KEYS
    ",\"worker_networks\":[\"10.0.0.0/8\"],\"directory\":{\"kind\":\"file\",\"path\":\"/nowhere\"},"
    "\"routes\":[" COOKIE ROUTES("a") "]}",
    "{\"cell\":\"cell\",\"tokens\":" KEYS
    ",\"worker_networks\":[\"10.0.0.1/32\"],\"directory\":{\"kind\":\"file\",\"path\":\"/nowhere\"},"
    "\"routes\":[" COOKIE "{\"name\":\"first\",\"path\":\"/plain/{sandbox}/"
    "{rest...}\",\"need\":\"http\",\"to\":\"/first/{rest}\"}," ROUTES("b") "]}",
    "{\"cell\":\"cell\",\"open\":true,\"tokens\":[],\"worker_networks\":[\"10.0.0.0/"
    "8\"],\"directory\":{\"kind\":\"file\",\"path\":\"/nowhere\"},"
    "\"routes\":[" COOKIE ROUTES("c") "]}"};

enum { POLICIES = sizeof policies / sizeof *policies, TOKENS = 8, SANDBOXES = 4 };

struct world {
    struct policy *policy[POLICIES];
    char token[TOKENS][1024];
    struct key *ticket_key;
    struct loop_thread *io;
    struct directory *directory; /* that is asked for each record, and answers nothing by itself */
    struct directory_questions questions;
    struct snapshot *snapshot;
    struct token_cache *tokens, *anew; /* anew: of the last answer that nothing was remembered for */
    struct answer_cache *answers;
    int64_t now;
    uint64_t clock; /* microseconds */
    bool given;     /* the last answer was given before */
};

/* ---- a directory whose cache the test fills ---- */

struct own {
    struct directory_common common;
    struct world *world;
};

static void *kind_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                        struct fail *why)
{
    (void)directory, (void)loop, (void)log, (void)why;
    return ((const struct own *)options)->world;
}

static void kind_ask(void *self, struct directory_question *q)
{
    directory_questions_put(&((struct world *)self)->questions, q);
}

static void kind_stop(void *self)
{
    struct world *w = self;
    for (struct directory_question *q; (q = directory_questions_take(&w->questions));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

static void on_learned(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_answered(void *context, enum lookup outcome, uint64_t took)
{
    (void)context, (void)outcome, (void)took;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)context, (void)key, (void)waiters;
}

static void start_directory(void *context)
{
    static const struct directory_kind kind = {.name = "test",
                                               .start = kind_start,
                                               .question_size = sizeof(struct directory_question),
                                               .ask = kind_ask,
                                               .stop = kind_stop};
    static struct own own = {.common = {.ttl = 600000, .stale = 600000, .entries = 100}};
    static struct directory_options options = {.kind = &kind, .references = 1, .own = &own.common};
    static const struct directory_owner owner = {
        .learned = on_learned, .answered = on_answered, .notify = on_notified};
    struct world *w = context;
    struct fail why;
    own.world = w;
    w->directory = directory_start(&options, &owner, 200000, loop_thread_loop(w->io), NULL, &why);
    assert_non_null(w->directory);
}

static void stop_directory(void *context)
{
    directory_stop(((struct world *)context)->directory);
}

/* ---- the world ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void mint(struct world *w, const struct tokens *tokens, size_t i, struct grant grant)
{
    struct fail why;
    struct writer out = writer_of(w->token[i], sizeof w->token[i] - 1);
    grant.iat = START - 10;
    if (!tokens_mint(tokens, slice_text(NULL), slice_text(NULL), &grant, &out, &why))
        fail_msg("%s", why.text);
}

static void mint_all(struct world *w, const char *folder)
{
    struct fail why;
    struct json *doc = json_parse(slice_text(KEYS), "k", 0, (struct json_limits){65536, 8}, &why);
    struct tokens *tokens = tokens_load(doc, json_root(doc), folder, "cell", TOKENS_MINT, &why);
    if (!tokens)
        fail_msg("%s", why.text);
    const struct slice one = SLICE_LITERAL("sb-1"), all = SLICE_LITERAL("*"), org = SLICE_LITERAL("o-1");
    mint(w, tokens, 0, (struct grant){.sandbox = one, .needs = NEED_ALL, .exp = START + 3500});
    mint(w, tokens, 1,
         (struct grant){.sandbox = one, .needs = NEED_ALL, .exp = START + 5, .jti = SLICE_LITERAL("j1")});
    mint(w, tokens, 2,
         (struct grant){
             .sandbox = all, .org = org, .needs = NEED_ALL, .exp = START + 3500, .jti = SLICE_LITERAL("j2")});
    mint(w, tokens, 3,
         (struct grant){.sandbox = all, .org = SLICE_LITERAL("o-2"), .needs = NEED_ALL, .exp = START + 20});
    mint(w, tokens, 4, (struct grant){.sandbox = one, .needs = NEED_PTY, .exp = START + 3500});
    mint(w, tokens, 5,
         (struct grant){.sandbox = SLICE_LITERAL("sb-2"),
                        .needs = NEED_HTTP | NEED_EXEC,
                        .exp = START + 40,
                        .sub = SLICE_LITERAL("me")});
    snprintf(w->token[6], sizeof w->token[6], "%.*sx", (int)strlen(w->token[0]) - 1, w->token[0]);
    snprintf(w->token[7], sizeof w->token[7], "a-secret");
    tokens_free(tokens);
    json_free(doc);
}

static void load_policies(struct world *w)
{
    char folder[] = "/tmp/cellgate-test-XXXXXX", path[64], key[64];
    struct fail why = {""};
    assert_non_null(mkdtemp(folder));
    snprintf(key, sizeof key, "%s/k", folder);
    snprintf(path, sizeof path, "%s/c.json", folder);
    write_file(key, "0123456789abcdef0123456789abcdef");
    for (size_t i = 0; i < POLICIES; i++) {
        write_file(path, policies[i]);
        w->policy[i] = policy_load(path, NULL, 0, &why);
        if (!w->policy[i])
            fail_msg("%s", why.text);
    }
    mint_all(w, folder);
    unlink(path);
    unlink(key);
    rmdir(folder);
}

static const struct record some_record = {
    .epoch = 1,
    .org = SLICE_LITERAL("o-1"),
    .worker = {
        .kind = WORKER_HTTP, .host = SLICE_LITERAL("10.0.0.1"), .port = 9001, .addr = {4, {10, 0, 0, 1}}}};

static struct record record_at(uint8_t host, int64_t epoch)
{
    struct record record = some_record;
    record.epoch = epoch;
    record.worker.addr.bytes[3] = host;
    return record;
}

static void use(struct world *w, const struct snapshot_parts *parts)
{
    struct snapshot *next = snapshot_new(parts);
    assert_non_null(next);
    snapshot_release(w->snapshot);
    w->snapshot = next;
    if (w->answers)
        answer_cache_clear(w->answers);
}

static struct directory_cache *cache_of(const struct world *w)
{
    return directory_cache(w->directory);
}

static void learn(struct world *w, const char *sandbox, const struct record *record)
{
    struct shared_record *box;
    struct slice key = slice_text(sandbox);
    for (int strangers = 0; strangers < 2; strangers++) { /* both have to be answered */
        (void)(strangers ? directory_cache_find_alike : directory_cache_find)(cache_of(w), key, true, 1,
                                                                              (struct fair_owner){0}, &box);
        shared_record_release(box);
    }
    directory_cache_answered(cache_of(w), key, record ? LOOKUP_FOUND : LOOKUP_ABSENT, record, 0);
    if (record)
        directory_cache_changed(cache_of(w), key, record);
    else
        directory_cache_removed(cache_of(w), key);
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    load_policies(w);
    w->ticket_key =
        key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), TICKET_SECRET, "test", &why);
    w->io = loop_thread_start(&why);
    assert_true(w->ticket_key && w->io);
    loop_thread_call(w->io, start_directory, w);
    use(w, &(struct snapshot_parts){.policy = w->policy[0], .directory = w->directory});
    w->tokens = token_cache_new(64);
    w->answers = answer_cache_new();
    w->now = START;
    assert_true(w->tokens && w->answers);
    learn(w, "sb-1", &some_record);
    return w;
}

static void world_free(struct world *w)
{
    token_cache_free(w->tokens);
    token_cache_free(w->anew);
    answer_cache_free(w->answers);
    loop_thread_call(w->io, stop_directory, w);
    loop_thread_stop(w->io);
    snapshot_release(w->snapshot);
    directory_release(w->directory);
    for (size_t i = 0; i < POLICIES; i++)
        policy_release(w->policy[i]);
    key_free(w->ticket_key);
    free(w);
}

/* ---- questions and answers ---- */

struct question {
    const char *id, *method, *host, *path, *query, *headers; /* NULL: none; headers: '|' behind each line */
    int token;                                               /* -1: none */
    uint8_t source;
};

static const struct question get = {.id = "1", .method = "GET", .path = "/http/sb-1/a", .source = 1};

struct message {
    uint8_t memory[4096];
    struct writer w;
    size_t begin;
};

static void put(struct message *m, const char *name, struct spop_value value)
{
    spop_arg_write(&m->w, m->begin, slice_text(name), value);
}

static void begin_message(struct message *m)
{
    m->w = writer_of(m->memory, sizeof m->memory);
    m->begin = spop_message_begin(&m->w, SLICE_LITERAL("cell-route"));
}

static struct spop_args args_of(const struct message *m)
{
    struct reader payload = reader_of(writer_slice(&m->w));
    struct spop_message message;
    assert_false(m->w.full);
    assert_true(spop_message_next(&payload, &message));
    return message.args;
}

static void put_text(struct message *m, const char *name, const char *text)
{
    put(m, name, text ? spop_text(slice_text(text)) : spop_null());
}

/* All of it but the id. */
static void put_rest(const struct world *w, struct message *m, const struct question *q)
{
    char headers[2048];
    uint8_t source[4] = {192, 0, 2, q->source};
    int len = snprintf(headers, sizeof headers, "host: %s|%s%s%s%s|", q->host ? q->host : "h",
                       q->headers ? q->headers : "", q->token >= 0 ? "authorization: Bearer " : "",
                       q->token >= 0 ? w->token[q->token] : "", q->token >= 0 ? "|" : "");
    char lines[4096];
    struct writer out = writer_of(lines, sizeof lines);
    for (int i = 0; i < len; i++)
        writer_text(&out, headers[i] == '|' ? "\r\n" : (char[]){headers[i], 0});
    put_text(m, "method", q->method);
    put_text(m, "version", "1.1");
    put_text(m, "path", q->path);
    put_text(m, "query", q->query);
    put(m, "headers", spop_text(writer_slice(&out)));
    put_text(m, "removed", "none");
    put(m, "source", spop_address(slice_of(source, 4)));
    put(m, "tls", spop_bool(true));
}

static struct spop_args args_for(const struct world *w, struct message *m, const struct question *q)
{
    begin_message(m);
    put_text(m, "id", q->id);
    put_rest(w, m, q);
    return args_of(m);
}

struct said {
    uint8_t memory[8192], scratch[DECIDE_SCRATCH];
    struct slice bytes;
    struct verdict verdict;
    bool pending;
};

static bool decide_by(struct world *w, struct token_cache *tokens, struct spop_args args,
                      struct snapshot_finder *finder, struct said *said)
{
    struct request request;
    struct writer scratch = writer_of(said->scratch, sizeof said->scratch);
    assert_true(request_from_args(args, &request));
    struct decide_view view = snapshot_view(w->snapshot, finder, tokens, w->now);
    view.ticket_key = w->ticket_key;
    return decide(&view, &request, &scratch, &said->verdict);
}

/* As a decision thread does. */
static void ask_cached(struct world *w, struct spop_args args, size_t most, struct said *said)
{
    struct snapshot_finder finder = {.waiter = 1};
    struct writer out = writer_of(said->memory, sizeof said->memory);
    struct spop_actions actions = {.out = &out, .prefix_len = 4, .most = most};
    const struct answer_question question = answer_question_of(w->answers, args, w->clock += MILLISECOND);
    const struct verdict *v =
        answer_cache_give(w->answers, &question, w->snapshot, &finder, w->now, &actions);
    w->given = v;
    said->pending = false;
    if (v) {
        said->verdict = *v;
    } else {
        said->pending = !decide_by(w, w->tokens, args, &finder, said);
        bool whole = answer_write(&said->verdict, &actions);
        const struct answer answer = {writer_slice(&out), actions.count};
        if (whole && !said->pending)
            answer_cache_keep(w->answers, &question, &said->verdict, &answer, &finder);
    }
    said->bytes = writer_slice(&out);
    assert_true(actions.count > 0);
    snapshot_finder_done(&finder);
}

/* With nothing remembered of anything. */
static void ask_anew(struct world *w, struct spop_args args, size_t most, struct said *said)
{
    struct snapshot_finder finder = {.waiter = 1};
    struct writer out = writer_of(said->memory, sizeof said->memory);
    struct spop_actions actions = {.out = &out, .prefix_len = 4, .most = most};
    token_cache_free(w->anew);
    w->anew = token_cache_new(4);
    said->pending = !decide_by(w, w->anew, args, &finder, said);
    answer_write(&said->verdict, &actions);
    said->bytes = writer_slice(&out);
    snapshot_finder_done(&finder);
}

static void same_text(struct slice a, struct slice b)
{
    assert_int_equal(slice_present(a), slice_present(b));
    assert_true(slice_equal(a, b));
}

static void same_answer(const struct said *a, const struct said *b)
{
    assert_true(slice_equal(a->bytes, b->bytes));
    assert_int_equal(a->pending, b->pending);
    assert_int_equal(a->verdict.kind, b->verdict.kind);
    assert_int_equal(a->verdict.refusal, b->verdict.refusal);
    assert_int_equal(a->verdict.need, b->verdict.need);
    assert_int_equal(a->verdict.upgrade, b->verdict.upgrade);
    assert_int_equal(a->verdict.route_label, b->verdict.route_label);
    assert_memory_equal(&a->verdict.source, &b->verdict.source, sizeof a->verdict.source);
    assert_ptr_equal(a->verdict.token_kind, b->verdict.token_kind);
    same_text(a->verdict.request_id, b->verdict.request_id);
    if (a->verdict.refusal == REFUSAL_NONE) { /* what an audit says beside the answer */
        same_text(a->verdict.sub, b->verdict.sub);
        same_text(a->verdict.jti, b->verdict.jti);
        same_text(a->verdict.kid, b->verdict.kid);
    }
}

static struct said one, other;

/* What is said, after it was held against what would be said anew. */
static const struct said *ask(struct world *w, const struct question *q)
{
    static struct message m;
    struct spop_args args = args_for(w, &m, q);
    ask_anew(w, args, 0, &other);
    ask_cached(w, args, 0, &one);
    if (!w->given && !slice_equal(one.bytes, other.bytes))
        ask_anew(w, args, 0, &other); /* the directory's absences end by the clock, perhaps just now */
    same_answer(&one, &other);
    return &one;
}

static enum refusal refusal_of(struct world *w, const struct question *q)
{
    return ask(w, q)->verdict.refusal;
}

/* From the third time on it is given again. */
static void make_known(struct world *w, const struct question *q)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(refusal_of(w, q), REFUSAL_NONE);
    assert_true(w->given);
}

static bool is_given(struct world *w, const struct question *q)
{
    for (int i = 0; i < 4; i++)
        ask(w, q);
    return w->given;
}

/* ---- tests ---- */

static void what_is_asked_again_is_answered_again(void **state)
{
    struct world *w = world_new();
    struct question q = get;
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_false(w->given);
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_false(w->given); /* a second time: from now on it is kept */
    q.id = "another";
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_true(w->given);
    assert_true(slice_is(one.verdict.request_id, "another"));
    assert_true(slice_is(one.verdict.sandbox, "sb-1") && slice_is(one.verdict.route, "http"));
    assert_true(slice_is(one.verdict.org, "o-1") && slice_is(one.verdict.path, "/a"));
    assert_int_equal(one.verdict.addr_port, 9001);
    assert_string_equal(one.verdict.token_kind, "jwt");
    q.id = NULL;
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_true(w->given && !slice_present(one.verdict.request_id));
    world_free(w);
    (void)state;
}

static void a_token_expires_to_the_second(void **state)
{
    struct world *w = world_new();
    struct question q = get;
    q.token = 1;
    make_known(w, &q);
    int64_t end = one.verdict.good_until;
    assert_in_range(end, START + 5, START + 15); /* with the leeway */
    w->now = end - 1;
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_true(w->given);
    w->now = end;
    assert_int_equal(refusal_of(w, &q), REFUSAL_token_expired);
    assert_false(w->given);
    w->now = end - 1; /* what was let go does not come back by a clock that goes back */
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_false(w->given);
    world_free(w);
    (void)state;
}

static void a_record_that_changes_is_seen_at_once(void **state)
{
    struct world *w = world_new();
    struct record moved = record_at(2, 2);
    make_known(w, &get);
    assert_int_equal(one.verdict.addr.bytes[3], 1);
    learn(w, "sb-1", &moved);
    assert_int_equal(refusal_of(w, &get), REFUSAL_NONE);
    assert_true(!w->given && one.verdict.addr.bytes[3] == 2);
    make_known(w, &get);
    moved.state = RECORD_STOPPED;
    moved.epoch = 3;
    learn(w, "sb-1", &moved);
    assert_int_equal(refusal_of(w, &get), REFUSAL_sandbox_stopped);
    assert_false(is_given(w, &get));
    moved = record_at(3, 4);
    moved.not_before = START;
    learn(w, "sb-1", &moved);
    assert_int_equal(refusal_of(w, &get), REFUSAL_token_revoked);
    moved = record_at(3, 5);
    moved.org = SLICE_LITERAL("o-2");
    learn(w, "sb-1", &moved);
    struct question all = get;
    all.token = 3;
    make_known(w, &all);
    moved.epoch = 6;
    moved.org = SLICE_LITERAL("o-1");
    learn(w, "sb-1", &moved);
    assert_int_equal(refusal_of(w, &all), REFUSAL_sandbox_not_found);
    make_known(w, &get);
    learn(w, "sb-1", NULL);
    assert_int_equal(refusal_of(w, &get), REFUSAL_sandbox_not_found);
    world_free(w);
    (void)state;
}

/* Of the owner, that is: it clears the cache with each snapshot. */
static void another_snapshot_forgets_all(void **state)
{
    struct world *w = world_new();
    struct question q = get;
    struct fail why;
    q.token = 2;
    make_known(w, &q);
    struct snapshot_parts parts = w->snapshot->parts;
    parts.revoked = revoked_new(NULL, 4, START, &why);
    assert_true(revoked_add(parts.revoked, SLICE_LITERAL("j2"), START + 9999));
    use(w, &parts);
    assert_int_equal(refusal_of(w, &q), REFUSAL_token_revoked);
    revoked_release(parts.revoked);
    parts.revoked = NULL;
    parts.not_before = START;
    use(w, &parts);
    assert_int_equal(refusal_of(w, &q), REFUSAL_token_revoked);
    parts.not_before = 0;
    use(w, &parts);
    make_known(w, &q);
    parts.policy = w->policy[2]; /* without keys; open */
    use(w, &parts);
    assert_int_equal(refusal_of(w, &q), REFUSAL_NONE);
    assert_true(!w->given && !one.verdict.token_kind);
    world_free(w);
    (void)state;
}

static void records_of_a_file_are_the_snapshots(void **state)
{
    struct world *w = world_new();
    struct fail why;
    for (uint8_t host = 1; host < 4; host++) {
        struct record record = record_at(host, host);
        struct records *records = records_new(1);
        assert_true(records_add(records, SLICE_LITERAL("sb-1"), &record, &why));
        use(w, &(struct snapshot_parts){.policy = w->policy[0], .records = records});
        records_release(records);
        make_known(w, &get);
        assert_int_equal(one.verdict.addr.bytes[3], host);
    }
    world_free(w);
    (void)state;
}

static void what_has_an_effect_of_its_own_is_decided_each_time(void **state)
{
    static const char upgrade[] = "upgrade: websocket|connection: Upgrade|sec-websocket-version: 13|"
                                  "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==|";
    const struct question refused = {.method = "GET", .path = "/http/sb-1/a", .token = 6},
                          without = {.method = "GET", .path = "/http/sb-1/a", .token = -1},
                          too_little = {.method = "GET", .path = "/http/sb-1/a", .token = 4},
                          nowhere = {.method = "GET", .path = "/nowhere", .token = 0},
                          guessed = {.method = "GET", .path = "/http/sb-1/a", .token = 7},
                          judged = {.method = "GET", .path = "/keep/sb-1/a", .token = 0},
                          tunnel = {.method = "GET", .path = "/ws/sb-1", .headers = upgrade, .token = 0},
                          relayed = {.method = "GET", .path = "/via/sb-1/x", .headers = upgrade, .token = 0},
                          preflight = {.method = "OPTIONS",
                                       .path = "/plain/sb-1/x",
                                       .token = -1,
                                       .headers =
                                           "origin: https://a.example|access-control-request-method: GET|"};
    struct world *w = world_new();
    struct record with_secret = record_at(1, 2);
    char query[1100];
    with_secret.access_sha256 =
        SLICE_LITERAL("9a6dc15f6bd4a56ff8b7fbbd1b3ee1a5ad9db4b1f0a1a6ab94d3b4eb9a1f6b25");
    const struct question *const all[] = {&refused, &without, &too_little, &nowhere,  &guessed,
                                          &judged,  &tunnel,  &relayed,    &preflight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_false(is_given(w, all[i]));
    assert_int_equal(one.verdict.kind, VERDICT_PREFLIGHT);
    assert_int_equal(ask(w, &relayed)->verdict.kind, VERDICT_RELAY);
    assert_int_equal(ask(w, &tunnel)->verdict.kind, VERDICT_DIRECT);
    snprintf(query, sizeof query, "cellgate_token=%s", w->token[0]);
    const struct question redirect = {
        .method = "GET", .host = "sb-1.c.io", .path = "/a", .query = query, .token = -1};
    assert_false(is_given(w, &redirect));
    assert_int_equal(one.verdict.kind, VERDICT_REDIRECT);
    learn(w, "sb-1", &with_secret);
    assert_false(is_given(w, &guessed));
    struct question open = {.method = "GET", .path = "/plain/sb-1/x", .token = -1};
    make_known(w, &open); /* and what has none is given again */
    world_free(w);
    (void)state;
}

static void who_differs_in_a_byte_is_another(void **state)
{
    static struct message m;
    static struct said said;
    struct world *w = world_new();
    make_known(w, &get);
    struct spop_args args = args_for(w, &m, &get);
    struct answer_question question = answer_question_of(w->answers, args, w->clock += MILLISECOND);
    uint8_t *rest = m.memory + (question.rest.at - m.memory);
    for (size_t i = 0; i < question.rest.len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct snapshot_finder finder = {.waiter = 1};
            struct writer out = writer_of(said.memory, sizeof said.memory);
            struct spop_actions actions = {.out = &out, .prefix_len = 4};
            rest[i] = (uint8_t)(rest[i] ^ 1u << bit);
            question.hash = answer_question_of(w->answers, args, w->clock).hash;
            assert_null(answer_cache_give(w->answers, &question, w->snapshot, &finder, w->now, &actions));
            assert_int_equal(out.len, 0);
            rest[i] = (uint8_t)(rest[i] ^ 1u << bit);
        }
    struct answer_question shorter = question;
    shorter.hash =
        answer_question_of(w->answers, args_of(&m), w->clock).hash; /* a hash that meets another question's */
    for (size_t len = 0; len < question.rest.len; len++) {
        struct snapshot_finder finder = {.waiter = 1};
        struct writer out = writer_of(said.memory, sizeof said.memory);
        struct spop_actions actions = {.out = &out, .prefix_len = 4};
        shorter.rest = slice_sub(question.rest, 0, len);
        assert_null(answer_cache_give(w->answers, &shorter, w->snapshot, &finder, w->now, &actions));
    }
    world_free(w);
    (void)state;
}

static void an_id_that_is_elsewhere_is_not_left_out(void **state)
{
    static struct message m;
    struct world *w = world_new();
    struct spop_args args;
    for (int i = 0; i < 4; i++) {
        begin_message(&m);
        put_rest(w, &m, &get);
        put_text(&m, "id", i % 2 ? "a" : "b");
        args = args_of(&m);
        ask_cached(w, args, 0, &one);
        assert_true(!w->given && slice_is(one.verdict.request_id, i % 2 ? "a" : "b"));
    }
    for (int i = 0; i < 4; i++) {
        begin_message(&m);
        put_text(&m, "id", "first");
        put_text(&m, "id", "last");
        put_rest(w, &m, &get);
        args = args_of(&m);
        ask_cached(w, args, 0, &one);
        assert_true(!w->given && slice_is(one.verdict.request_id, "last"));
    }
    make_known(w, &get);
    begin_message(&m);
    put(&m, "id", spop_int(1));
    put_rest(w, &m, &get);
    assert_true(answer_question_of(w->answers, args_of(&m), w->clock).aside); /* it is no question of ours */
    begin_message(&m);
    assert_int_equal(answer_question_of(w->answers, args_of(&m), w->clock).rest.len, 0);
    world_free(w);
    (void)state;
}

static void an_answer_that_does_not_fit_is_refused_as_ever(void **state)
{
    static struct message m;
    struct world *w = world_new();
    make_known(w, &get);
    struct spop_args args = args_for(w, &m, &get);
    ask_cached(w, args, 0, &one);
    size_t len = one.bytes.len;
    for (size_t most = len - 3; most < len + 3; most++) {
        ask_cached(w, args, most, &one);
        assert_int_equal(w->given, most >= len);
        ask_anew(w, args, most, &other);
        same_answer(&one, &other);
    }
    world_free(w);
    (void)state;
}

static void many_questions_take_bounded_memory(void **state)
{
    struct world *w = world_new();
    char path[3000];
    struct question q = get;
    q.path = path;
    memset(path, 'a', sizeof path);
    memcpy(path, "/http/sb-1/", 11);
    for (int i = 0; i < 6000; i++) { /* 18 MB */
        snprintf(path + sizeof path - 8, 8, "%07d", i);
        static struct message m;
        struct spop_args args = args_for(w, &m, &q);
        for (int again = 0; again < 2; again++)
            ask_cached(w, args, 0, &one);
    }
    unsigned given = 0;
    for (int i = 0; i < 6000; i++) {
        static struct message m;
        struct snapshot_finder finder = {.waiter = 1};
        struct writer out = writer_of(one.memory, sizeof one.memory);
        struct spop_actions actions = {.out = &out, .prefix_len = 4};
        snprintf(path + sizeof path - 8, 8, "%07d", i);
        const struct answer_question question =
            answer_question_of(w->answers, args_for(w, &m, &q), w->clock += MILLISECOND);
        given += answer_cache_give(w->answers, &question, w->snapshot, &finder, w->now, &actions) != NULL;
        snapshot_finder_done(&finder);
    }
    assert_in_range(given, 500, 8192 * 1024 / 3000);
    world_free(w);
    (void)state;
}

/* Whether the question is looked for, at this very time. */
static bool is_looked_for(struct world *w, const struct question *q)
{
    static struct message m;
    return !answer_question_of(w->answers, args_for(w, &m, q), w->clock).aside;
}

/* A window of them, of which every `again`-th is a question that was asked before. */
static void ask_window(struct world *w, unsigned *number, unsigned again)
{
    char path[32];
    struct question q = get;
    for (unsigned i = 0; i < 4096; i++) {
        static struct message m;
        snprintf(path, sizeof path, "/http/sb-1/%u", again && i % again == 0 ? 0 : ++*number);
        q.path = path;
        ask_cached(w, args_for(w, &m, &q), 0, &one);
        assert_int_equal(one.verdict.refusal, REFUSAL_NONE);
    }
}

static void what_hardly_comes_again_is_looked_for_now_and_then(void **state)
{
    struct world *w = world_new();
    unsigned number = 0;
    assert_int_equal(refusal_of(w, &get), REFUSAL_NONE);
    assert_int_equal(refusal_of(w, &get), REFUSAL_NONE);
    ask_window(w, &number, 0);
    assert_int_equal(refusal_of(w, &get), REFUSAL_NONE);
    assert_false(w->given); /* it rests */
    w->clock += 240 * MILLISECOND;
    assert_false(is_looked_for(w, &get));
    w->clock += 10 * MILLISECOND;
    assert_true(is_looked_for(w, &get));
    assert_int_equal(refusal_of(w, &get), REFUSAL_NONE);
    assert_true(w->given); /* what was kept before is kept */
    world_free(w);
    (void)state;
}

static void what_comes_again_often_enough_is_always_looked_for(void **state)
{
    struct world *w = world_new();
    unsigned number = 0;
    ask_window(w, &number, 7);
    for (int i = 0; i < 3; i++) {
        assert_true(is_looked_for(w, &get));
        ask_window(w, &number, 7);
    }
    ask_window(w, &number, 9);
    assert_false(is_looked_for(w, &get));
    w->clock += 300 * MILLISECOND; /* the next one is judged by itself */
    ask_window(w, &number, 7);
    assert_true(is_looked_for(w, &get));
    world_free(w);
    (void)state;
}

static void without_memory_questions_are_decided(void **state)
{
    struct world *w = world_new();
    static struct message m;
    struct spop_args args = args_for(w, &m, &get);
    for (int i = 0; i < 2; i++)
        ask_cached(w, args, 0, &one);
    struct answer_cache *full = w->answers;
    alloc_fail_at(1);
    w->answers = answer_cache_new();
    alloc_fail_at(0);
    assert_null(w->answers);
    w->answers = answer_cache_new();
    ask_cached(w, args, 0, &one);
    alloc_fail_at(1);
    ask_cached(w, args, 0, &one);
    alloc_fail_at(0);
    ask_cached(w, args, 0, &one);
    assert_true(!w->given && one.verdict.refusal == REFUSAL_NONE);
    answer_cache_free(full);
    world_free(w);
    (void)state;
}

/* ---- on against off ---- */

static unsigned random_state = 1;

static unsigned below(unsigned n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

static const char *const ids[] = {"1", "2", NULL};

enum { POOL = 48, STEPS = 60000 };

static struct {
    char path[64], query[1200];
    struct question question;
} pool[POOL];

static void fill_pool(const struct world *w, size_t i)
{
    static const char *const routes[] = {"plain", "http", "http", "http", "keep", "ws", "via", "none"};
    static const char *const methods[] = {"GET", "GET", "GET", "POST", "OPTIONS"};
    static const char *const headers[] = {NULL,
                                          NULL,
                                          "accept: */*|",
                                          "origin: https://a.example|",
                                          "origin: http://h|",
                                          "cookie: __Host-cellgate=x|",
                                          "x-access-token: a-secret|",
                                          "upgrade: websocket|connection: Upgrade|sec-websocket-version: "
                                          "13|sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==|"};
    static const char *const hosts[] = {"sb-1.c.io", "sb-2.c.io", NULL, NULL, NULL};
    char *path = pool[i].path, *query = pool[i].query;
    snprintf(path, sizeof pool[i].path, "/%s/sb-%u/%s", routes[below(8)], below(SANDBOXES),
             below(2) ? "a" : "b");
    struct question q = {.method = methods[below(5)],
                         .host = hosts[below(5)],
                         .path = path,
                         .headers = headers[below(8)],
                         .token = (int)below(TOKENS + 1) - 1,
                         .source = (uint8_t)below(2)};
    if (below(8) == 0) {
        snprintf(query, sizeof pool[i].query, "a=1&cellgate_token=%s", w->token[below(TOKENS)]);
        q.query = query;
    }
    pool[i].question = q;
}

static void change_record(struct world *w, int64_t epoch)
{
    static const struct slice orgs[] = {SLICE_LITERAL("o-1"), SLICE_LITERAL("o-2")};
    char sandbox[8];
    struct record record = record_at((uint8_t)(1 + below(2)), epoch);
    snprintf(sandbox, sizeof sandbox, "sb-%u", below(SANDBOXES));
    record.org = orgs[below(2)];
    record.state = below(4) ? RECORD_RUNNING : below(5);
    record.h2 = below(4) == 0;
    if (below(4) == 0)
        record.not_before = START - 20 + below(30);
    if (below(4) == 0)
        record.access_sha256 =
            SLICE_LITERAL("9a6dc15f6bd4a56ff8b7fbbd1b3ee1a5ad9db4b1f0a1a6ab94d3b4eb9a1f6b25");
    if (below(5) == 0)
        record.worker.addr.bytes[0] = 11; /* outside of worker_networks */
    learn(w, sandbox, below(6) ? &record : NULL);
}

static void change_snapshot(struct world *w)
{
    struct fail why;
    struct snapshot_parts parts = {.policy = w->policy[below(POLICIES)], .directory = w->directory};
    parts.not_before = below(4) ? 0 : START - 30 + below(40);
    if (below(3) == 0) {
        parts.revoked = revoked_new(NULL, 4, START, &why);
        assert_true(
            revoked_add(parts.revoked, below(2) ? SLICE_LITERAL("j1") : SLICE_LITERAL("j2"), START + 9999));
    }
    struct records *records = records_new(SANDBOXES);
    for (unsigned i = 0; i < SANDBOXES; i++) {
        char key[8];
        struct record record = record_at((uint8_t)(1 + below(3)), 1 + below(9));
        snprintf(key, sizeof key, "sb-%u", i);
        assert_true(records_add(records, slice_text(key), &record, &why));
    }
    if (below(3) == 0) {
        parts.directory = NULL;
        parts.records = records;
    }
    use(w, &parts);
    records_release(records);
    revoked_release(parts.revoked);
}

static void given_again_is_as_made_anew_whatever_happens(void **state)
{
    struct world *w = world_new();
    unsigned given = 0, admitted = 0;
    for (size_t i = 0; i < POOL; i++)
        fill_pool(w, i);
    for (int i = 0; i < SANDBOXES; i++)
        change_record(w, 1);
    for (int step = 0; step < STEPS; step++) {
        unsigned what = below(1000);
        if (what == 0)
            change_snapshot(w);
        else if (what < 6)
            change_record(w, step + 2);
        else if (what < 10)
            w->now = START + below(50);
        else if (what < 30)
            fill_pool(w, below(POOL));
        struct question q = pool[below(POOL)].question;
        q.id = ids[below(3)];
        const struct said *said = ask(w, &q);
        given += w->given;
        admitted += said->verdict.refusal == REFUSAL_NONE;
    }
    print_message("of %d answers %u were given again, %u let somebody in\n", STEPS, given, admitted);
    assert_true(given > STEPS / 50 && admitted > given);
    world_free(w);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked_again_is_answered_again),
        cmocka_unit_test(a_token_expires_to_the_second),
        cmocka_unit_test(a_record_that_changes_is_seen_at_once),
        cmocka_unit_test(another_snapshot_forgets_all),
        cmocka_unit_test(records_of_a_file_are_the_snapshots),
        cmocka_unit_test(what_has_an_effect_of_its_own_is_decided_each_time),
        cmocka_unit_test(who_differs_in_a_byte_is_another),
        cmocka_unit_test(an_id_that_is_elsewhere_is_not_left_out),
        cmocka_unit_test(an_answer_that_does_not_fit_is_refused_as_ever),
        cmocka_unit_test(many_questions_take_bounded_memory),
        cmocka_unit_test(what_hardly_comes_again_is_looked_for_now_and_then),
        cmocka_unit_test(what_comes_again_often_enough_is_always_looked_for),
        cmocka_unit_test(without_memory_questions_are_decided),
        cmocka_unit_test(given_again_is_as_made_anew_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
