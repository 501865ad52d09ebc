/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/decision_thread/resolve.h"
#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/agent/token/tokens.h"

#define DIGEST "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032"

struct world {
    struct records *records;
    struct json *doc;
    struct routes *routes;
    struct decide_view view;
    uint8_t memory[4096];
    struct writer scratch;
};

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    struct world *w = directory;
    if (slice_is(sandbox, "bare")) { /* a control plane that says that it moves, and nothing else */
        *record = (struct record){.state = RECORD_MIGRATING, .bare = true};
        return LOOKUP_FOUND;
    }
    if (slice_is(sandbox, "between")) {
        *record = (struct record){.state = RECORD_MIGRATING, .epoch = 8};
        return LOOKUP_FOUND;
    }
    if (slice_is(sandbox, "app")) {
        *record =
            (struct record){.epoch = 1, .serves = SERVES_APPLICATION, .access_sha256 = SLICE_LITERAL(DIGEST)};
        record->worker = (struct worker){WORKER_HTTP, SLICE_LITERAL("10.0.0.6"), 5173, {4, {10, 0, 0, 6}}};
        return LOOKUP_FOUND;
    }
    return w->records ? records_find(w->records, space, sandbox, record) : LOOKUP_UNAVAILABLE;
}

static bool socket_allowed(const void *networks, struct slice path)
{
    (void)networks;
    return slice_starts(path, "/run/");
}

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks;
    return addr->bytes[0] == 10;
}

static void put(struct world *w, const char *id, const char *url, enum record_state state, int64_t epoch,
                const char *org, int64_t not_before)
{
    struct record record = {.state = state, .epoch = epoch, .org = slice_text(org), .not_before = not_before};
    uint8_t memory[64];
    struct writer headers = writer_of(memory, sizeof memory);
    struct fail why;
    assert_true(worker_url_parse(slice_text(url), &record.worker, &why));
    record_pack_header(&headers, slice_text("Authorization"), slice_text("Bearer r"));
    record.headers = writer_slice(&headers);
    assert_true(records_add(w->records, slice_text(id), &record, &why));
}

static int setup(void **state)
{
    static const char routes[] = "[{\"name\":\"pty\",\"path\":\"/{sandbox}/"
                                 "{rest...}\",\"upgrade\":true,\"via\":\"relay\",\"set\":{\"X-A\":\"1\"}},"
                                 "{\"name\":\"kept\",\"path\":\"/k/"
                                 "{sandbox}\",\"upgrade\":true,\"via\":\"relay\",\"host_header\":\"keep\"},"
                                 "{\"name\":\"app\",\"path\":\"/a/{sandbox}\",\"need\":\"http\"},"
                                 "{\"name\":\"free\",\"path\":\"/f/{sandbox}\",\"need\":\"none\"}]";
    struct world *w = test_calloc(1, sizeof *w);
    struct fail why;
    w->doc = json_parse(slice_text(routes), "routes", 0, (struct json_limits){4096, 8}, &why);
    const struct route_nodes nodes = {.routes = json_root(w->doc)};
    w->routes = routes_new(w->doc, &nodes, &why);
    if (!w->routes)
        fail_msg("%s", why.text);
    w->records = records_new(8);
    put(w, "run", "http://10.0.0.1:9001", RECORD_RUNNING, 7, "org", 0);
    put(w, "tls", "https://10.0.0.2", RECORD_MIGRATING, 8, NULL, 0);
    put(w, "stop", "http://10.0.0.3:1", RECORD_STOPPED, 9, NULL, 0);
    put(w, "wake", "http://10.0.0.3:1", RECORD_WAKING, 9, NULL, 0);
    put(w, "far", "http://11.0.0.3:1", RECORD_RUNNING, 9, NULL, 0);
    put(w, "revoked", "http://10.0.0.4:1", RECORD_RUNNING, 9, NULL, 2000);
    put(w, "hashed", "http://10.0.0.5:1", RECORD_RUNNING, 0, NULL, 0);
    put(w, "unix", "http+unix:/run/w.sock", RECORD_RUNNING, 1, NULL, 0);
    static const struct management management = {.ports = {{{8080, 8080}}, 1}, .serves = SERVES_MANAGEMENT};
    w->view = (struct decide_view){.routes = w->routes,
                                   .management = &management,
                                   .allowed = allowed,
                                   .socket_allowed = socket_allowed,
                                   .find = find,
                                   .directory = w};
    w->scratch = writer_of(w->memory, sizeof w->memory);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    records_release(w->records);
    routes_free(w->routes);
    json_free(w->doc);
    test_free(w);
    return 0;
}

static struct resolve_question ask(const char *sandbox)
{
    return (struct resolve_question){.route = slice_text("pty"),
                                     .sandbox = slice_text(sandbox),
                                     .port = 8080,
                                     .needs = -1,
                                     .pending = -1,
                                     .iat = -1,
                                     .exp = -1,
                                     .org_of_record = -1,
                                     .epoch = -1};
}

static struct resolve_answer answer(struct world *w, const struct resolve_question *question)
{
    struct resolve_answer a;
    resolve(&w->view, question, &w->scratch, &a);
    return a;
}

static void a_running_sandbox_has_a_worker_a_host_and_headers(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("run");
    struct resolve_answer a = answer(w, &q);
    assert_int_equal(a.state, RECORD_RUNNING);
    assert_int_equal(a.epoch, 7);
    assert_true(a.reachable);
    assert_int_equal(a.port, 9001);
    assert_true(slice_is(a.host, "10.0.0.1:9001"));
    struct record headers = {.headers = a.headers};
    struct slice name, value;
    size_t cursor = 0;
    assert_true(record_header(headers.headers, &cursor, &name, &value) && slice_is(name, "X-A"));
    assert_true(record_header(headers.headers, &cursor, &name, &value) && slice_is(value, "Bearer r"));
    assert_false(record_header(headers.headers, &cursor, &name, &value));
}

static void a_route_that_keeps_the_host_gets_none(void **state)
{
    struct resolve_question q = ask("run");
    q.route = slice_text("kept");
    assert_false(slice_present(answer(*state, &q).host));
}

static void states_without_a_worker_to_dial(void **state)
{
    static const struct {
        const char *sandbox;
        int state;
        bool reachable;
    } cases[] = {{"tls", RECORD_MIGRATING, true}, {"stop", RECORD_STOPPED, false},
                 {"wake", RECORD_WAKING, false},  {"none", RESOLVE_ABSENT, false},
                 {"far", RECORD_RUNNING, false},  {"unix", RECORD_RUNNING, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct resolve_question q = ask(cases[i].sandbox);
        struct resolve_answer a = answer(*state, &q);
        assert_int_equal(a.state, cases[i].state);
        assert_int_equal(a.reachable, cases[i].reachable);
    }
}

static void a_sandbox_of_another_organisation_is_absent(void **state)
{
    struct resolve_question q = ask("run");
    q.org = slice_text("other");
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
    q.org = slice_text("org");
    assert_int_equal(answer(*state, &q).state, RECORD_RUNNING);
}

/* decide() refuses such a token, too; where the record was not there yet it could not. */
static void a_sandbox_of_no_organisation_is_absent_for_who_has_one(void **state)
{
    struct resolve_question q = ask("tls");
    assert_int_equal(answer(*state, &q).state, RECORD_MIGRATING);
    q.org = slice_text("org");
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
    assert_false(answer(*state, &q).reachable);
    q.org = slice_of("", 0);
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
}

/* Whatever the relay knows of the record. Only one that leads nowhere may say as little as that the sandbox moves. */
static void a_tunnel_ends_with_its_record_s_organisation(void **state)
{
    struct resolve_question q = ask("stop");
    q.org = slice_text("org");
    q.epoch = 7;
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
    q.sandbox = slice_text("tls");
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
    assert_false(answer(*state, &q).reachable);
    q.sandbox = slice_text("between");
    assert_int_equal(answer(*state, &q).state, RECORD_MIGRATING);
    assert_false(answer(*state, &q).reachable);
}

/* The token names the sandbox alone; the organisation was the record's. */
static void a_tunnel_of_a_token_of_nobody_outlives_its_record_s_organisation(void **state)
{
    struct resolve_question q = ask("tls");
    q.org = slice_text("org");
    q.org_of_record = 1;
    assert_int_equal(answer(*state, &q).state, RECORD_MIGRATING);
    assert_true(answer(*state, &q).reachable);
    q.sandbox = slice_text("run");
    assert_true(answer(*state, &q).reachable);
    q.org = slice_text("other");
    assert_int_equal(answer(*state, &q).state, RESOLVE_ABSENT);
}

static void a_state_alone_does_not_stand_for_a_record_whose_owner_was_compared(void **state)
{
    struct resolve_question q = ask("bare");
    q.org = slice_text("org");
    struct resolve_answer a = answer(*state, &q);
    assert_int_equal(a.state, RECORD_MIGRATING);
    assert_int_equal(a.epoch, -1);
    assert_false(resolve_has_changed(&q, &a));
    a.state = RECORD_STOPPED;
    assert_true(resolve_has_changed(&q, &a));
    q.epoch = 7;
    assert_true(answer(*state, &q).epoch > 0);
    q.epoch = -1;
    q.org = slice_text(NULL);
    assert_true(answer(*state, &q).epoch > 0);
}

static void a_token_issued_before_not_before_is_refused_and_a_tunnel_without_one_is_not(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("revoked");
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    q.needs = NEED_ALL;
    q.iat = 1999;
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    q.iat = 2000;
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    w->view.not_before = 2001;
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    q.iat = -1;
    q.kid = slice_text("k1"); /* a token that does not say when it was issued */
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
}

static void a_tunnel_outlives_a_state_that_does_not_say_the_secret(void **state)
{
    struct world *w = *state;
    struct fail why;
    struct json *doc = json_parse(SLICE_LITERAL("[{\"kind\":\"static\",\"everywhere\":true}]"), "tokens", 0,
                                  (struct json_limits){4096, 8}, &why);
    struct tokens *tokens = tokens_load(doc, json_root(doc), "/", "cell", TOKENS_CHECK, &why);
    assert_non_null(tokens);
    w->view.tokens = tokens;
    struct resolve_question q = ask("bare");
    q.kid = slice_text("static:12345678");
    q.needs = NEED_HTTP; /* what such an entry grants */
    q.iat = 1999;
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    assert_int_equal(answer(w, &q).state, RECORD_MIGRATING);
    q.sandbox = slice_text("run"); /* its record has no secret any more */
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    q.kid = slice_text("k1");
    q.sandbox = slice_text("bare");
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked); /* there is no such key */
    w->view.tokens = NULL;
    tokens_free(tokens);
    json_free(doc);
}

/* With one key, of which the tunnel has or has not the fingerprint; an older relay tells the kid alone. */
static void a_tunnel_whose_key_is_gone_is_refused(void **state)
{
    struct world *w = *state;
    char folder[] = "/tmp/test_resolve.XXXXXX", path[64], text[160];
    struct fail why;
    size_t count;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("a secret of 32 bytes, or of more", file);
    fclose(file);
    snprintf(text, sizeof text, "[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"kid\":\"k\",\"secret_file\":\"%s\"}]",
             path);
    struct json *doc = json_parse(slice_text(text), "tokens", 0, (struct json_limits){4096, 8}, &why);
    struct tokens *tokens = tokens_load(doc, json_root(doc), "/", "cell", TOKENS_CHECK, &why);
    assert_non_null(tokens);
    w->view.tokens = tokens;
    struct resolve_question q = ask("run");
    q.needs = NEED_ALL;
    q.iat = 1999;
    q.kid = slice_text("k");
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    q.key = slice_of(tokens_entries(tokens, &count)->fingerprint, KEY_FINGERPRINT);
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    q.kid = slice_text(NULL);
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    q.kid = slice_text("k");
    q.key = slice_sub(q.key, 0, KEY_FINGERPRINT - 1);
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    q.key = slice_text("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    q.key = slice_of("", 0);
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    w->view.tokens = NULL;
    tokens_free(tokens);
    json_free(doc);
    unlink(path);
    rmdir(folder);
}

/* An entry that is bound to other routes lets nobody in any more. */
static void a_tunnel_by_a_secret_is_refused_when_its_entry_is_narrowed(void **state)
{
    static const struct {
        const char *tokens;
        enum refusal refused;
    } cases[] = {
        {"[{\"kind\":\"static\",\"routes\":[\"app\"]}]", REFUSAL_NONE},
        {"[{\"kind\":\"static\",\"routes\":[\"kept\"]}]", REFUSAL_token_revoked},
        {"[{\"kind\":\"static\",\"routes\":[\"app\"],\"need\":[\"pty\"]}]", REFUSAL_token_revoked},
    };
    struct world *w = *state;
    struct resolve_question q = ask("bare");
    q.route = slice_text("app");
    q.kid = slice_text("static:12345678");
    q.needs = NEED_HTTP;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fail why;
        struct json *doc =
            json_parse(slice_text(cases[i].tokens), "tokens", 0, (struct json_limits){4096, 8}, &why);
        struct tokens *tokens = tokens_load(doc, json_root(doc), "/", "cell", TOKENS_CHECK, &why);
        assert_non_null(tokens);
        w->view.tokens = tokens;
        assert_int_equal(answer(w, &q).refused, cases[i].refused);
        w->view.tokens = NULL;
        tokens_free(tokens);
        json_free(doc);
    }
}

/* Nobody would be let in there any more. */
static void a_tunnel_whose_route_is_gone_is_not_granted(void **state)
{
    struct resolve_question q = ask("run");
    assert_int_equal(answer(*state, &q).refused, REFUSAL_NONE);
    q.route = slice_text("gone");
    assert_int_equal(answer(*state, &q).refused, REFUSAL_not_granted);
    assert_false(answer(*state, &q).reachable);
}

/* `open` was taken back, or the route needs a token now. */
static void a_tunnel_without_a_token_is_refused_where_one_is_needed(void **state)
{
    struct world *w = *state;
    struct fail why;
    struct tokens *tokens = tokens_load(NULL, NULL, "/", "cell", TOKENS_CHECK, &why);
    assert_non_null(tokens);
    w->view.tokens = tokens;
    struct resolve_question q = ask("run");
    assert_int_equal(answer(w, &q).refused, REFUSAL_token_revoked);
    w->view.open = true;
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    w->view.open = false;
    q.route = slice_text("free");
    assert_int_equal(answer(w, &q).refused, REFUSAL_NONE);
    w->view.tokens = NULL;
    tokens_free(tokens);
}

/* It says nothing of the token's ports, and of what Authorization holds: none, and anything. */
static void an_older_ticket_grants_the_least(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("run");
    q.needs = NEED_ALL;
    q.iat = 1999;
    q.port = -1; /* the worker's own, which is management */
    q.old = q.settles = 1;
    assert_true(answer(w, &q).reachable);
    assert_false(slice_present(answer(w, &q).ticket));
    q.sandbox = slice_text("app");
    assert_int_equal(answer(w, &q).refused, REFUSAL_not_granted);
    q.old = -1;
    assert_true(answer(w, &q).reachable);
    q.old = 1;
    q.port = 5173; /* that was compared with the token's when the tunnel was opened */
    struct resolve_answer a = answer(w, &q);
    assert_true(a.reachable && a.withhold);
    q.old = -1;
    assert_false(answer(w, &q).withhold);
}

/* Only for a relay that keeps it: another one would be told of it again and again. */
static void a_record_s_organisation_is_news_to_a_tunnel_without_one(void **state)
{
    struct world *w = *state;
    struct fail why;
    struct key *key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), 32, "t", &why);
    struct resolve_question q = ask("run");
    w->view.ticket_key = key;
    q.epoch = 7;
    struct resolve_answer a = answer(w, &q);
    assert_false(slice_present(a.ticket) || resolve_has_changed(&q, &a));
    q.settles = 1;
    a = answer(w, &q);
    assert_true(slice_is(a.org, "org") && slice_present(a.ticket) && resolve_has_changed(&q, &a));
    assert_false(a.settled);
    q.pending = 1;
    a = answer(w, &q);
    assert_true(a.settled && !a.own); /* a management port means the worker wherever it is */
    q.port = 9001;
    a = answer(w, &q);
    assert_true(a.settled && a.own);
    q.pending = -1;
    q.org = slice_text("org");
    q.org_of_record = 1;
    a = answer(w, &q);
    assert_false(slice_present(a.ticket) || resolve_has_changed(&q, &a));
    w->view.ticket_key = NULL; /* as without memory: nothing is said, or a tunnel would go on for nobody */
    q.org = slice_text(NULL);
    assert_int_equal(answer(w, &q).state, RESOLVE_UNAVAILABLE);
    assert_false(answer(w, &q).reachable);
    key_free(key);
}

static void without_an_epoch_a_hash_stands_in_and_changes_with_the_address(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("hashed");
    int64_t epoch = answer(w, &q).epoch;
    assert_true(epoch > 0);
    records_release(w->records);
    w->records = records_new(1);
    put(w, "hashed", "http://10.0.0.5:1", RECORD_RUNNING, 0, NULL, 0);
    assert_int_equal(answer(w, &q).epoch, epoch);
    records_release(w->records);
    w->records = records_new(1);
    put(w, "hashed", "http://10.0.0.6:1", RECORD_RUNNING, 0, NULL, 0);
    assert_int_not_equal(answer(w, &q).epoch, epoch);
}

static void doubt_is_no_news(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("run");
    struct resolve_answer a = answer(w, &q);
    assert_true(resolve_has_changed(&q, &a)); /* it knows no epoch yet */
    q.epoch = 7;
    assert_false(resolve_has_changed(&q, &a));
    records_release(w->records);
    w->records = NULL;
    a = answer(w, &q);
    assert_int_equal(a.state, RESOLVE_UNAVAILABLE);
    assert_false(resolve_has_changed(&q, &a));
}

/* A name got another address: the record and its epoch are as they were. */
static void another_address_is_news(void **state)
{
    struct world *w = *state;
    struct resolve_question q = ask("run");
    q.epoch = 7;
    struct resolve_answer a = answer(w, &q);
    assert_true(a.reachable);
    q.addr = a.worker.addr;
    assert_false(resolve_has_changed(&q, &a));
    q.addr.bytes[3] ^= 1;
    assert_true(resolve_has_changed(&q, &a));
    a.reachable = false;
    assert_false(resolve_has_changed(&q, &a));
    a.reachable = true;
    a.worker.kind = WORKER_UNIX;
    assert_false(resolve_has_changed(&q, &a));
}

/* With the most headers that a record and a route may have: what does not fit would be told as `unavailable`. */
static void the_largest_answer_fits_into_a_frame(void **state)
{
    static uint8_t texts[RECORD_HEADERS_MOST + ROUTE_SET_MOST], memory[SPOP_FRAME_USUAL + SPOP_LENGTH_BYTES];
    static const enum refusal refusals[] = {
#define X(name, status, retryable, after, sentence) REFUSAL_##name,
        REFUSALS(X)
#undef X
    };
    const struct slice name = slice_of(texts, 253);
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct resolve_answer a = {.state = RECORD_SUSPENDED,
                                   .epoch = INT64_MAX,
                                   .reachable = true,
                                   .worker = {WORKER_HTTPS, name, 65535, {.family = 6}},
                                   .port = 65535,
                                   .host = slice_of(texts, 253 + strlen(":65535")),
                                   .headers = slice_of(texts, sizeof texts),
                                   .withhold = true,
                                   .ticket = slice_of(texts, 22),
                                   .org = slice_of(texts, 255),
                                   .settled = true,
                                   .own = true,
                                   .refused = refusals[i]};
        struct writer w = writer_of(memory, sizeof memory);
        struct spop_actions actions = {.out = &w};
        size_t begin = spop_frame_begin(&w, SPOP_TYPE_ACK, UINT64_MAX, UINT64_MAX);
        resolve_write(&a, &actions);
        assert_true(spop_frame_end(&w, begin, SPOP_FRAME_USUAL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_running_sandbox_has_a_worker_a_host_and_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(a_route_that_keeps_the_host_gets_none, setup, teardown),
        cmocka_unit_test_setup_teardown(states_without_a_worker_to_dial, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_of_another_organisation_is_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_of_no_organisation_is_absent_for_who_has_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_ends_with_its_record_s_organisation, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_of_a_token_of_nobody_outlives_its_record_s_organisation,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_state_alone_does_not_stand_for_a_record_whose_owner_was_compared,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_token_issued_before_not_before_is_refused_and_a_tunnel_without_one_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_outlives_a_state_that_does_not_say_the_secret, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_whose_key_is_gone_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_by_a_secret_is_refused_when_its_entry_is_narrowed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_whose_route_is_gone_is_not_granted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tunnel_without_a_token_is_refused_where_one_is_needed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_older_ticket_grants_the_least, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_s_organisation_is_news_to_a_tunnel_without_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_an_epoch_a_hash_stands_in_and_changes_with_the_address, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(doubt_is_no_news, setup, teardown),
        cmocka_unit_test_setup_teardown(another_address_is_news, setup, teardown),
        cmocka_unit_test(the_largest_answer_fits_into_a_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
