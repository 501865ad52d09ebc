/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/wake.h"

#define START   (1000 * SECOND)
#define WORKING "{\"spec\":{\"operatingMode\":\"Running\"}}"

static struct kubernetes_store *store;
static struct kubernetes_watching all;
static struct kubernetes_watch watches[KUBERNETES_SORTS];
static struct kubernetes_wake wake;
static uint64_t now;
static unsigned ended; /* questions */

/* ---- the directory and the calls, which are not here ---- */

void directory_questions_put(struct directory_questions *questions, struct directory_question *q)
{
    q->next = NULL;
    *(questions->first ? &questions->last->next : &questions->first) = q;
    questions->last = q;
}

struct directory_question *directory_questions_take(struct directory_questions *questions)
{
    struct directory_question *q = questions->first;
    if (q)
        questions->first = q->next;
    return q;
}

void directory_answer(struct directory_question *q, enum lookup outcome, const struct record *record,
                      uint64_t ttl)
{
    assert_int_equal(outcome, LOOKUP_UNAVAILABLE);
    assert_true(!record && !ttl);
    free(q);
    ended++;
}

static struct directory_questions resting;

bool directory_wake_again(struct directory_question *q)
{
    q->again = now + 500 * MILLISECOND;
    if (q->again > q->asked + 30 * SECOND)
        return false;
    directory_questions_put(&resting, q);
    return true;
}

static struct {
    struct http_call *call;
    char said[512]; /* METHOD PATH BODY */
} begun[64];
static size_t begun_count;
static bool cannot_begin;
static unsigned status; /* of the answer; 0: there was none */

bool http_call_begin(struct http_call *call, CURLM *multi, struct directory_http_target *target,
                     const struct http_call_request *request, struct fail *why)
{
    (void)multi, (void)target;
    if (cannot_begin)
        return fail(why, "the token cannot be read");
    assert_true(begun_count < sizeof begun / sizeof *begun);
    assert_string_equal(request->type, "Content-Type: application/merge-patch+json");
    assert_int_equal(request->milliseconds, 15000);
    snprintf(begun[begun_count].said, sizeof begun[0].said, "%s %s %s", request->method, request->path,
             request->body);
    call->easy = (CURL *)(uintptr_t)(begun_count + 1);
    begun[begun_count++].call = call;
    return true;
}

bool http_call_end(struct http_call *call, CURLM *multi, CURLcode result, struct directory_http_reply *reply,
                   struct fail *why)
{
    (void)multi, (void)call;
    *reply = (struct directory_http_reply){.status = status};
    return result == CURLE_OK || fail(why, "Connection refused");
}

void http_call_free(struct http_call *call, CURLM *multi)
{
    (void)multi;
    call->easy = NULL;
}

/* ---- the world ---- */

static void on_changed(void *context, struct slice key)
{
    (void)context, (void)key;
}

static void put(size_t source, const char *space, const char *name, const char *key, enum record_state state)
{
    struct kubernetes_object o = {
        .space = slice_text(space), .name = slice_text(name), .key = slice_text(key), .record.state = state};
    assert_true(kubernetes_store_put(store, source, watches[source].sort, &o));
}

static void open_wake(void)
{
    static struct directory_http_target target;
    const struct kubernetes_store_options options = {
        .most = 100, .sources = KUBERNETES_SORTS, .changed = on_changed};
    store = kubernetes_store_new(&options);
    assert_non_null(store);
    all = (struct kubernetes_watching){.store = store, .timeout = 15 * SECOND};
    for (size_t i = 0; i < KUBERNETES_SORTS; i++)
        kubernetes_watch_init(&watches[i], &all, (enum kubernetes_sort)i, NULL, i);
    wake = (struct kubernetes_wake){.all = &all, .target = &target, .watches = watches};
    now = START;
    begun_count = ended = 0;
    cannot_begin = false;
    status = 200;
    put(KUBERNETES_AGENT_SANDBOX, "default", "sb-1", "sb-1", RECORD_SUSPENDED);
}

static void close_wake(void)
{
    kubernetes_wake_free(&wake);
    for (struct directory_question *q; (q = directory_questions_take(&resting));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
    kubernetes_store_free(store);
}

static void ask(const char *key)
{
    struct kubernetes_question *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->question = (struct directory_question){.key = slice_text(key), .wake = true, .asked = now};
    kubernetes_wake_ask(&wake, &q->question);
}

static uint64_t next_step(void)
{
    return resting.first ? resting.first->again : UINT64_MAX;
}

static bool step(void)
{
    while (next_step() <= now)
        kubernetes_wake_ask(&wake, directory_questions_take(&resting));
    return kubernetes_wake_step(&wake);
}

static const char *last(void)
{
    return begun_count ? begun[begun_count - 1].said : "";
}

/* The last call ends. */
static void end_last(unsigned answer)
{
    status = answer;
    assert_true(kubernetes_wake_end(&wake, begun[begun_count - 1].call->easy,
                                    answer ? CURLE_OK : CURLE_COULDNT_CONNECT));
}

/* ---- tests ---- */

static void a_suspended_sandbox_is_patched_where_it_is(void **state)
{
    (void)state;
    open_wake();
    put(KUBERNETES_AGENT_SANDBOX, "team-a", "sb-1", "team-a/sb-1", RECORD_SUSPENDED);
    put(KUBERNETES_OPENSANDBOX, "opensandbox", "os.1", "os.1", RECORD_SUSPENDED);
    assert_false(step());
    assert_true(next_step() == UINT64_MAX);
    ask("sb-1");
    assert_true(step());
    assert_string_equal(last(),
                        "PATCH /apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/sb-1 " WORKING);
    end_last(200);
    assert_int_equal(ended, 1);
    ask("team-a/sb-1");
    assert_true(step());
    assert_string_equal(last(),
                        "PATCH /apis/agents.x-k8s.io/v1beta1/namespaces/team-a/sandboxes/sb-1 " WORKING);
    end_last(200);
    ask("os.1");
    assert_true(step());
    assert_string_equal(
        last(), "PATCH /apis/sandbox.opensandbox.io/v1alpha1/namespaces/opensandbox/batchsandboxes/os.1 "
                "{\"spec\":{\"pause\":false}}");
    end_last(200);
    watches[KUBERNETES_AGENT_SANDBOX].version = 1; /* what the cluster has */
    ask("sb-1");
    assert_true(step());
    assert_string_equal(
        last(),
        "PATCH /apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes/sb-1 {\"spec\":{\"replicas\":1}}");
    end_last(200);
    assert_int_equal(ended, 4);
    assert_false(kubernetes_wake_end(&wake, begun[0].call->easy, CURLE_OK)); /* it is nobody's any more */
    close_wake();
}

static void nobody_else_is_patched(void **state)
{
    static const char *const keys[] = {"running", "waking", "stopped", "slice", "twice", "unknown"};
    (void)state;
    open_wake();
    put(KUBERNETES_AGENT_SANDBOX, "default", "running", "running", RECORD_RUNNING);
    put(KUBERNETES_AGENT_SANDBOX, "default", "waking", "waking", RECORD_WAKING);
    put(KUBERNETES_AGENT_SANDBOX, "default", "stopped", "stopped", RECORD_STOPPED);
    put(KUBERNETES_ENDPOINT_SLICES, "default", "slice-x", "slice", RECORD_SUSPENDED);
    put(KUBERNETES_AGENT_SANDBOX, "default", "twice", "twice", RECORD_SUSPENDED);
    put(KUBERNETES_OPENSANDBOX, "opensandbox", "twice", "twice", RECORD_SUSPENDED);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ask(keys[i]);
    assert_false(step());
    assert_int_equal(begun_count, 0);
    assert_int_equal(ended, sizeof keys / sizeof *keys);
    close_wake();
}

static void what_is_not_taken_is_tried_again_for_half_a_minute(void **state)
{
    static const unsigned answers[] = {0, 401, 409, 429, 500, 503, 504};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        unsigned tries = 0;
        open_wake();
        ask("sb-1");
        while (!ended) {
            assert_true(step());
            assert_true(++tries < 100);
            end_last(answers[i]);
            assert_false(step());
            if (ended)
                break;
            assert_true(next_step() == now + 500 * MILLISECOND);
            now += 500 * MILLISECOND;
        }
        assert_int_equal(tries, 61);
        assert_true(wake.told.text[0] != '\0');
        close_wake();
    }
}

static void what_is_refused_is_told_and_not_tried_again(void **state)
{
    static const unsigned answers[] = {400, 403, 404, 422, 302};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        open_wake();
        ask("sb-1");
        assert_true(step());
        end_last(answers[i]);
        assert_int_equal(ended, 1);
        assert_true(next_step() == UINT64_MAX);
        if (answers[i] == 403)
            assert_string_equal(wake.told.text, "status 403: RBAC lacks `patch`");
        ask("sb-1");
        assert_true(step());
        end_last(200); /* then it may be told again */
        assert_string_equal(wake.told.text, "");
        close_wake();
    }
}

static void one_that_has_woken_by_itself_or_is_gone_is_left_alone(void **state)
{
    (void)state;
    open_wake();
    ask("sb-1");
    assert_true(step());
    end_last(500);
    put(KUBERNETES_AGENT_SANDBOX, "default", "sb-1", "sb-1", RECORD_RUNNING);
    now += SECOND;
    assert_false(step());
    assert_int_equal(ended, 1);
    ask("sb-1");
    kubernetes_store_remove(store, KUBERNETES_AGENT_SANDBOX, SLICE_LITERAL("default"), SLICE_LITERAL("sb-1"));
    assert_false(step());
    assert_int_equal(ended, 2);
    assert_int_equal(begun_count, 1);
    close_wake();
}

static void one_that_cannot_begin_is_tried_again(void **state)
{
    (void)state;
    open_wake();
    cannot_begin = true;
    ask("sb-1");
    assert_false(step());
    assert_int_equal(ended, 0);
    now += 500 * MILLISECOND;
    cannot_begin = false;
    assert_true(step());
    end_last(200);
    assert_int_equal(ended, 1);
    close_wake();
}

static void a_few_at_a_time_are_woken(void **state)
{
    static char names[2 * KUBERNETES_WAKES_MAX][16];
    (void)state;
    open_wake();
    for (size_t i = 0; i < 2 * KUBERNETES_WAKES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "many-%zu", i);
        put(KUBERNETES_AGENT_SANDBOX, "default", names[i], names[i], RECORD_SUSPENDED);
        ask(names[i]);
    }
    assert_true(step());
    assert_int_equal(begun_count, KUBERNETES_WAKES_MAX);
    now += 15 * SECOND; /* the API server hangs: they time out */
    for (size_t i = 0; i < KUBERNETES_WAKES_MAX; i++)
        assert_true(kubernetes_wake_end(&wake, begun[i].call->easy, CURLE_OPERATION_TIMEDOUT));
    assert_true(step());
    assert_int_equal(begun_count, 2 * KUBERNETES_WAKES_MAX);
    assert_true(strstr(begun[KUBERNETES_WAKES_MAX].said, "/many-8 ") != NULL);
    close_wake();
    assert_int_equal(ended, 2 * KUBERNETES_WAKES_MAX);
}

static void all_questions_end_with_it(void **state)
{
    (void)state;
    open_wake();
    put(KUBERNETES_AGENT_SANDBOX, "default", "sb-2", "sb-2", RECORD_SUSPENDED);
    ask("sb-1");
    assert_true(step());
    end_last(500);
    ask("sb-2");
    assert_true(step());
    ask("sb-2");
    close_wake();
    assert_int_equal(ended, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_suspended_sandbox_is_patched_where_it_is),
        cmocka_unit_test(nobody_else_is_patched),
        cmocka_unit_test(what_is_not_taken_is_tried_again_for_half_a_minute),
        cmocka_unit_test(what_is_refused_is_told_and_not_tried_again),
        cmocka_unit_test(one_that_has_woken_by_itself_or_is_gone_is_left_alone),
        cmocka_unit_test(one_that_cannot_begin_is_tried_again),
        cmocka_unit_test(a_few_at_a_time_are_woken),
        cmocka_unit_test(all_questions_end_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
