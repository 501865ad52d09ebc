/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/watch.h"
#include "spoa/net/loop.h"

#define START   (1000 * SECOND)
#define TIMEOUT (15 * SECOND)
#define LISTS \
    "/apis/agents.x-k8s.io/v1beta1/sandboxes?limit=500&labelSelector=%21agents.x-k8s.io%2Fwarm-pool-sandbox"
#define META(name, version) \
    "\"metadata\":{\"name\":\"" name "\",\"namespace\":\"default\",\"resourceVersion\":\"" version "\"}"
#define SANDBOX(name, version) "{" META(name, version) ",\"spec\":{},\"status\":{}}"
#define LIST(version, more, items) \
    "{\"metadata\":{\"resourceVersion\":\"" version "\"" more "},\"items\":[" items "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define BOOKMARK(version)   EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"" version "\"}}")
#define ERROR_EVENT(code)   EVENT("ERROR", "{\"kind\":\"Status\",\"code\":" code ",\"message\":\"too old\"}")

static struct kubernetes_store *store;
static struct kubernetes_watching all;
static struct kubernetes_watch watch;
static uint64_t now;
static char path[8192];
static size_t path_room;

static void on_changed(void *context, struct slice key)
{
    (void)context, (void)key;
}

static void open_watch_of(enum kubernetes_sort sort, const char *space, size_t most)
{
    const struct kubernetes_store_options options = {.most = most, .sources = 1, .changed = on_changed};
    store = kubernetes_store_new(&options);
    assert_non_null(store);
    all = (struct kubernetes_watching){
        .store = store, .timeout = TIMEOUT, .slices = {"example.com/sandbox", NULL}};
    kubernetes_watch_init(&watch, &all, sort, space, 0);
    now = START;
    path_room = sizeof path - 1;
}

static void open_watch(void)
{
    open_watch_of(KUBERNETES_AGENT_SANDBOX, NULL, 100);
}

static void close_watch(void)
{
    kubernetes_watch_free(&watch);
    kubernetes_store_free(store);
}

static enum kubernetes_step step(void)
{
    struct writer w = writer_of(path, path_room);
    enum kubernetes_step next = kubernetes_watch_step(&watch, &w, now);
    path[w.len] = '\0';
    return next;
}

/* How long it waits until it asks, which it does not do before. */
static uint64_t await(void)
{
    uint64_t due = kubernetes_watch_next(&watch), begun = now;
    assert_int_equal(watch.phase, KUBERNETES_IDLE);
    if (due > now) {
        now = due - 1;
        assert_int_equal(step(), KUBERNETES_WAIT);
        now = due;
    }
    assert_int_equal(step(), KUBERNETES_BEGIN);
    return now - begun;
}

static bool say(const char *text)
{
    struct slice copy = guarded(slice_text(text));
    bool more = kubernetes_watch_body(&watch, copy, now);
    guarded_free(copy);
    return more;
}

static void answer(unsigned status, const char *body)
{
    kubernetes_watch_head(&watch, status, now);
    bool more = say(body);
    kubernetes_watch_end(&watch, more ? NULL : "Failed writing", 0, now);
}

static char found(const char *key)
{
    struct record record;
    size_t source;
    enum lookup lookup = kubernetes_store_find(store, slice_text(key), &record, &source);
    return lookup == LOOKUP_FOUND ? '+' : lookup == LOOKUP_ABSENT ? '-' : '?';
}

static bool asks_for(const char *start)
{
    return strncmp(path, start, strlen(start)) == 0;
}

static bool lists(void)
{
    return strstr(path, "?limit=") != NULL;
}

static bool watches_from(const char *version)
{
    char end[64];
    snprintf(end, sizeof end, "&resourceVersion=%s&", version);
    return strstr(path, "?watch=1&allowWatchBookmarks=true&timeoutSeconds=3") && strstr(path, end);
}

/* Listed, and the watch is asked for. */
static void be_listed(const char *list)
{
    assert_int_equal(await(), 0);
    answer(200, list);
    assert_int_equal(await(), 0);
    assert_false(lists());
}

static void be_watching(void)
{
    be_listed(LIST("7", "", SANDBOX("sb-1", "3")));
    kubernetes_watch_head(&watch, 200, now);
    assert_true(watch.open);
}

static void it_lists_in_pages_and_watches_from_there(void **state)
{
    (void)state;
    open_watch();
    assert_int_equal(await(), 0);
    assert_string_equal(path, LISTS);
    assert_int_equal(watch.phase, KUBERNETES_LISTING);
    answer(200, LIST("7", ",\"continue\":\"a/b\"", SANDBOX("sb-1", "3")));
    assert_int_equal(found("sb-1"), '+');
    assert_int_equal(found("sb-9"), '?');
    assert_false(watch.listed_once);
    assert_int_equal(await(), 0);
    assert_string_equal(
        path, "/apis/agents.x-k8s.io/v1beta1/"
              "sandboxes?limit=500&continue=a%2Fb&labelSelector=%21agents.x-k8s.io%2Fwarm-pool-sandbox");
    answer(200, LIST("7", ",\"continue\":\"\"", SANDBOX("sb-2", "4")));
    assert_true(watch.listed_once);
    assert_int_equal(all.lists, 1);
    assert_int_equal(found("sb-9"), '-');
    assert_int_equal(await(), 0);
    assert_true(watches_from("7"));
    assert_true(strstr(path, "&labelSelector=%21agents.x-k8s.io%2Fwarm-pool-sandbox") != NULL);
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say(EVENT("ADDED", SANDBOX("sb-3", "8")) EVENT("DELETED", SANDBOX("sb-1", "9"))));
    assert_int_equal(found("sb-3"), '+');
    assert_int_equal(found("sb-1"), '-');
    assert_int_equal(all.events, 2);
    close_watch();
}

static void each_resource_is_asked_for_where_it_is(void **state)
{
    (void)state;
    open_watch_of(KUBERNETES_ENDPOINT_SLICES, "team-a", 10);
    all.selector = "tier=public";
    (void)await();
    assert_string_equal(path, "/apis/discovery.k8s.io/v1/namespaces/team-a/"
                              "endpointslices?limit=500&labelSelector=example.com%2Fsandbox%2Ctier%3Dpublic");
    close_watch();
    open_watch_of(KUBERNETES_OPENSANDBOX, NULL, 10);
    (void)await();
    assert_string_equal(path, "/apis/sandbox.opensandbox.io/v1alpha1/batchsandboxes?limit=500");
    answer(404, "404 page not found\n");
    (void)await();
    assert_true(asks_for("/apis/sandbox.opensandbox.io/v1alpha1/")); /* there is no other version */
    close_watch();
}

static void a_watch_whose_time_is_over_goes_on_at_the_last_version(void **state)
{
    (void)state;
    open_watch();
    be_watching();
    now += 5 * SECOND;
    assert_true(say(EVENT("MODIFIED", SANDBOX("sb-1", "12")) BOOKMARK("31")));
    now += 300 * SECOND;
    kubernetes_watch_end(&watch, NULL, 0, now);
    assert_false(watch.open);
    assert_true(watch.contact == now);
    assert_int_equal(await(), 0);
    assert_true(watches_from("31"));
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say(EVENT("MODIFIED", SANDBOX("sb-1", "33"))));
    now += 2 * SECOND;
    kubernetes_watch_end(&watch, "Connection reset by peer", 0, now); /* cut, also in an event */
    assert_in_range(await(), 50 * MILLISECOND, 100 * MILLISECOND);
    assert_true(watches_from("33"));
    assert_int_equal(all.lists, 1);
    assert_false(watch.failing);
    close_watch();
}

static void one_that_is_cut_in_an_event_has_not_heard_it(void **state)
{
    static const char event[] = EVENT("DELETED", SANDBOX("sb-1", "12"));
    (void)state;
    for (size_t len = 1; len < sizeof event - 2; len++) {
        char part[sizeof event] = "";
        open_watch();
        be_watching();
        memcpy(part, event, len);
        assert_true(say(part));
        now += 2 * SECOND;
        kubernetes_watch_end(&watch, NULL, 0, now);
        (void)await();
        assert_true(watches_from("7"));
        assert_int_equal(found("sb-1"), '+');
        close_watch();
    }
}

static void pauses_grow_while_it_fails_and_start_anew_when_it_was_good(void **state)
{
    static const uint64_t steps[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000};
    (void)state;
    open_watch();
    (void)await();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (i % 2)
            answer(500, "{}");
        else
            kubernetes_watch_end(&watch, "Connection refused", 0, now);
        assert_true(watch.failing);
        assert_in_range(await(), steps[i] * MILLISECOND / 2, steps[i] * MILLISECOND);
    }
    assert_int_equal(all.lists_failed, sizeof steps / sizeof *steps);
    assert_string_equal(watch.why.text, "sandboxes: status 500 ");
    answer(200, LIST("7", "", ""));
    assert_false(watch.failing);
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    kubernetes_watch_end(&watch, NULL, 0, now); /* one that ends at once was not good */
    assert_in_range(await(), 5 * SECOND, 10 * SECOND);
    kubernetes_watch_head(&watch, 200, now);
    now += 2 * SECOND;
    kubernetes_watch_end(&watch, "Connection reset by peer", 0, now);
    assert_in_range(await(), 50 * MILLISECOND, 100 * MILLISECOND);
    close_watch();
}

/* Each list costs the API server all objects: one watch that is told so again and again was not good for having lived a
 * while. */
static void what_has_to_be_listed_again_and_again_is_listed_ever_less_often(void **state)
{
    static const uint64_t steps[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    (void)state;
    open_watch();
    (void)await();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        answer(200, LIST("7", "", ""));
        (void)await();
        kubernetes_watch_head(&watch, 200, now);
        now += 9 * SECOND;
        assert_false(say(ERROR_EVENT("410")));
        kubernetes_watch_end(&watch, "Failed writing", 0, now);
        assert_in_range(await(), steps[i] * MILLISECOND / 2,
                        steps[i] * MILLISECOND + SECOND); /* and a second by chance */
        assert_string_equal(path, LISTS);
    }
    answer(200, LIST("7", "", ""));
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    now += 11 * SECOND; /* longer than the longest pause */
    assert_false(say(ERROR_EVENT("410")));
    kubernetes_watch_end(&watch, "Failed writing", 0, now);
    assert_in_range(await(), 0, 100 * MILLISECOND + SECOND);
    close_watch();
}

static void it_stays_away_for_as_long_as_it_is_asked_to(void **state)
{
    static const struct {
        unsigned status;
        uint64_t asked, least, most; /* seconds; the others as they would be */
    } times[] = {{429, 7, 7, 7},   {503, 3, 3, 3},  {429, 86400, 30, 30}, {503, UINT32_MAX, 30, 30},
                 {500, 20, 0, 10}, {403, 20, 0, 10}};
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        open_watch();
        (void)await();
        kubernetes_watch_head(&watch, times[i].status, now);
        kubernetes_watch_end(&watch, NULL, times[i].asked, now);
        assert_in_range(await(), times[i].least * SECOND, times[i].most * SECOND);
        close_watch();
    }
}

static void a_version_that_is_too_old_is_followed_by_a_list(void **state)
{
    (void)state;
    for (int by_event = 0; by_event < 2; by_event++) {
        open_watch();
        be_watching();
        now += 60 * SECOND;
        if (by_event) {
            assert_false(say(ERROR_EVENT("410")));
            kubernetes_watch_end(&watch, "Failed writing", 0, now);
        } else {
            kubernetes_watch_end(&watch, "Connection reset by peer", 0, now);
            (void)await();
            answer(410, "{\"code\":410}");
        }
        assert_false(watch.failing); /* that is as it should be */
        assert_in_range(await(), 0, 2 * SECOND);
        assert_string_equal(path, LISTS);
        assert_int_equal(found("sb-1"), '+');
        answer(200, LIST("90", "", SANDBOX("sb-2", "80")));
        assert_int_equal(found("sb-1"), '-');
        assert_int_equal(found("sb-2"), '+');
        assert_int_equal(await(), 0);
        assert_true(watches_from("90"));
        close_watch();
    }
}

/* However it says so. */
static void a_server_that_always_says_so_is_not_listed_without_end(void **state)
{
    (void)state;
    for (int by_event = 0; by_event < 2; by_event++) {
        open_watch();
        while (now < START + 600 * SECOND) {
            (void)await();
            if (lists()) {
                answer(200, LIST("7", "", SANDBOX("sb-1", "3")));
            } else if (by_event) {
                kubernetes_watch_head(&watch, 200, now);
                assert_false(say(ERROR_EVENT("410")));
                kubernetes_watch_end(&watch, "Failed writing", 0, now);
            } else {
                answer(410, "{}");
            }
        }
        assert_in_range(all.lists, 50, 130);
        close_watch();
    }
}

static void an_error_that_is_another_is_told_and_followed_by_a_list(void **state)
{
    (void)state;
    open_watch();
    be_watching();
    now += 60 * SECOND;
    assert_false(say(ERROR_EVENT("500")));
    assert_false(say(EVENT("DELETED", SANDBOX("sb-1", "8")))); /* nothing of it is heard any more */
    kubernetes_watch_end(&watch, "Failed writing", 0, now);
    assert_true(watch.failing);
    assert_string_equal(watch.why.text, "sandboxes: its watch ended with an error (500): too old");
    assert_in_range(await(), 50 * MILLISECOND, 100 * MILLISECOND);
    assert_true(lists());
    assert_int_equal(found("sb-1"), '+');
    close_watch();
}

static void what_makes_no_sense_is_followed_by_a_list(void **state)
{
    static const char *const nonsense[] = {"{}",
                                           "[]",
                                           "<html>",
                                           EVENT("ADDED", "7"),
                                           EVENT("RENAMED", SANDBOX("sb-1", "8")),
                                           EVENT("ADDED", "{\"metadata\":{\"name\":\"sb-1\"}}"),
                                           EVENT("DELETED", "{}")};
    (void)state;
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        open_watch();
        be_watching();
        assert_false(say(nonsense[i]));
        kubernetes_watch_end(&watch, "Failed writing", 0, now);
        assert_true(watch.failing);
        (void)await();
        assert_true(lists());
        assert_int_equal(found("sb-1"), '+');
        close_watch();
    }
}

static void what_is_refused_is_listed_again_and_what_fails_only_after_a_while(void **state)
{
    static const struct {
        unsigned status, times;
    } all_of[] = {{400, 1}, {403, 1}, {404, 1}, {410, 1}, {401, 3}, {429, 3}, {500, 3}, {503, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof all_of / sizeof *all_of; i++) {
        unsigned times = 0;
        open_watch();
        be_listed(LIST("7", "", ""));
        while (!lists()) {
            assert_true(++times < 9);
            answer(all_of[i].status, "{}");
            (void)await();
        }
        assert_int_equal(times, all_of[i].times);
        close_watch();
    }
}

static void a_list_that_is_none_removes_nothing(void **state)
{
    static const char *const lists_of[] = {
        "",
        "[]",
        "{}",
        "{\"items\":[]}",
        "{\"metadata\":{\"resourceVersion\":\"7\"}}",
        "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[",
        "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[1]}",
        "{\"metadata\":{\"resourceVersion\":\"7\",\"continue\":7},\"items\":[]}"};
    (void)state;
    for (size_t i = 0; i < sizeof lists_of / sizeof *lists_of; i++) {
        open_watch();
        be_watching();
        assert_false(say(ERROR_EVENT("410")));
        kubernetes_watch_end(&watch, "Failed writing", 0, now);
        (void)await();
        answer(200, lists_of[i]);
        assert_true(watch.failing);
        assert_int_equal(all.lists_failed, 1);
        assert_int_equal(found("sb-1"), '+');
        (void)await();
        assert_string_equal(path, LISTS);
        close_watch();
    }
}

static void a_list_without_end_is_given_up(void **state)
{
    char list[256];
    (void)state;
    for (int sort = 0; sort < 3; sort++) { /* the same page; ever others; too slowly */
        unsigned pages = 0;
        open_watch();
        (void)await();
        while (!watch.failing && ++pages < 50000) {
            snprintf(list, sizeof list, LIST("7", ",\"continue\":\"%u\"", ""), sort ? pages : 0);
            now += sort == 2 ? 10 * SECOND : 0;
            answer(200, list);
            if (!watch.failing)
                (void)await();
        }
        assert_true(pages == (sort == 0 ? 2 : sort == 1 ? 40000 : 181));
        assert_string_equal(watch.why.text, "sandboxes: its list has no end");
        close_watch();
    }
}

static void a_continue_that_is_too_old_is_followed_by_a_list_in_one_piece(void **state)
{
    (void)state;
    open_watch();
    (void)await();
    answer(200, LIST("7", ",\"continue\":\"x\"", ""));
    (void)await();
    answer(410, "{}");
    (void)await();
    assert_true(strstr(path, "?limit=0&") != NULL);
    now += 119 * SECOND; /* which takes its time */
    assert_int_equal(step(), KUBERNETES_WAIT);
    answer(200, LIST("7", "", ""));
    (void)await();
    answer(410, "{}");
    (void)await();
    assert_string_equal(path, LISTS);
    close_watch();
}

static void a_version_of_the_resource_that_is_not_there_is_followed_by_the_other(void **state)
{
    (void)state;
    open_watch();
    (void)await();
    answer(404, "404 page not found\n");
    assert_string_equal(watch.why.text,
                        "sandboxes: status 404: the cluster does not have agents.x-k8s.io/v1beta1");
    (void)await();
    assert_true(asks_for("/apis/agents.x-k8s.io/v1alpha1/sandboxes?limit=500"));
    answer(404, "404 page not found\n");
    (void)await();
    assert_true(asks_for("/apis/agents.x-k8s.io/v1beta1/sandboxes?limit=500"));
    close_watch();
}

static void what_is_lacking_is_said(void **state)
{
    (void)state;
    open_watch_of(KUBERNETES_AGENT_SANDBOX, "team-a", 10);
    (void)await();
    answer(403, "{\"code\":403}");
    assert_string_equal(
        watch.why.text,
        "sandboxes in team-a: status 403: RBAC lacks `list` on sandboxes.agents.x-k8s.io in team-a");
    (void)await();
    answer(401, "{}");
    assert_string_equal(watch.why.text, "sandboxes in team-a: status 401: the API server refuses the token");
    assert_int_equal(watch.status, 401);
    (void)await();
    answer(200, LIST("7", "", ""));
    (void)await();
    answer(403, "{}");
    assert_string_equal(
        watch.why.text,
        "sandboxes in team-a: status 403: RBAC lacks `watch` on sandboxes.agents.x-k8s.io in team-a");
    close_watch();
}

/* ---- time ---- */

static void hangs_after(uint64_t time)
{
    now += time - 1;
    assert_int_equal(step(), KUBERNETES_WAIT);
    now += 1;
    assert_true(kubernetes_watch_next(&watch) == now);
    assert_int_equal(step(), KUBERNETES_END);
    kubernetes_watch_end(&watch, "Timeout was reached", 0, now);
    assert_int_equal(watch.phase, KUBERNETES_IDLE);
}

static void an_answer_has_to_begin_in_time(void **state)
{
    (void)state;
    open_watch();
    (void)await();
    hangs_after(TIMEOUT);
    assert_string_equal(watch.why.text, "sandboxes: no answer in time");
    (void)await();
    answer(200, LIST("7", "", ""));
    (void)await();
    hangs_after(TIMEOUT);
    assert_string_equal(watch.why.text, "sandboxes: no answer in time");
    (void)await();
    assert_true(watches_from("7"));
    close_watch();
}

static void a_list_that_falls_silent_or_takes_too_long_hangs(void **state)
{
    (void)state;
    open_watch();
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say("{\"items\":["));
    now += TIMEOUT - 1;
    assert_true(say(" "));
    hangs_after(TIMEOUT);
    assert_false(watch.listed_once);
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say("{\"items\":["));
    for (int i = 0; i < 179; i++) { /* a byte in ten seconds */
        now += 10 * SECOND;
        assert_true(say(" "));
    }
    hangs_after(10 * SECOND);
    assert_int_equal(all.lists_failed, 2);
    close_watch();
}

static void a_watch_may_be_silent_and_has_to_end(void **state)
{
    (void)state;
    open_watch();
    be_watching();
    hangs_after(390 * SECOND);
    assert_string_equal(watch.why.text, "");
    assert_in_range(await(), 0, 100 * MILLISECOND);
    assert_true(watches_from("7"));
    close_watch();
}

/* ---- what does not fit ---- */

static void what_has_no_room_is_listed_again_when_something_is_gone(void **state)
{
    (void)state;
    open_watch_of(KUBERNETES_AGENT_SANDBOX, NULL, 1);
    be_listed(LIST("7", "", SANDBOX("sb-1", "3")));
    answer(410, "{}");
    (void)await();
    answer(200, LIST("8", "", SANDBOX("sb-2", "4")));
    assert_int_equal(found("sb-2"), '?');
    assert_int_equal(await(), 0);
    assert_true(lists());
    answer(200, LIST("8", "", SANDBOX("sb-2", "4")));
    assert_int_equal(found("sb-2"), '+');
    assert_int_equal(found("sb-1"), '-');
    (void)await();
    assert_true(watches_from("8"));
    close_watch();
}

static void an_answer_that_is_none_is_kept_in_part_and_a_url_that_is_too_long_is_not_asked_for(void **state)
{
    static char much[8192];
    (void)state;
    open_watch();
    (void)await();
    memset(much, 'x', sizeof much - 1);
    kubernetes_watch_head(&watch, 500, now);
    much[4095] = '\0';
    assert_true(say(much));
    assert_true(say("x"));
    assert_false(say("x"));
    kubernetes_watch_end(&watch, "Failed writing", 0, now);
    path_room = 60;
    now += 10 * SECOND;
    assert_int_equal(step(), KUBERNETES_WAIT);
    assert_string_equal(watch.why.text, "sandboxes: the URL is too long");
    assert_true(kubernetes_watch_next(&watch) > now);
    close_watch();
}

static void an_object_that_is_too_large_is_of_no_consequence_for_others(void **state)
{
    static const char head[] = "{\"metadata\":{\"annotations\":{\"a\":\"",
                      tail[] = "\"},\"name\":\"sb-2\",\"namespace\":\"default\",\"resourceVersion\":\"9\"}}";
    char *large = malloc(sizeof head + sizeof tail + KUBERNETES_OBJECT_MAX);
    (void)state;
    assert_non_null(large);
    memset(stpcpy(large, head), '<', KUBERNETES_OBJECT_MAX);
    strcpy(large + strlen(head) + KUBERNETES_OBJECT_MAX, tail);
    open_watch();
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say("{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[" SANDBOX("sb-1", "3") ","));
    assert_true(say(large) && say("]}"));
    kubernetes_watch_end(&watch, NULL, 0, now);
    assert_true(found("sb-1") == '+' && found("sb-2") == '+' && found("sb-3") == '-');
    assert_int_equal(all.odd, 1);
    (void)await();
    kubernetes_watch_head(&watch, 200, now);
    assert_true(say("{\"type\":\"DELETED\",\"object\":") && say(large) && say("}\n"));
    assert_true(found("sb-1") == '+' && found("sb-2") == '-');
    assert_true(say("{\"type\":\"ADDED\",\"object\":") && say(large) && say("}\n"));
    assert_true(found("sb-2") == '+');
    assert_int_equal(all.odd, 2);
    now += 2 * SECOND;
    kubernetes_watch_end(&watch, NULL, 0, now);
    (void)await();
    assert_true(watches_from("9"));
    close_watch();
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_lists_in_pages_and_watches_from_there),
        cmocka_unit_test(each_resource_is_asked_for_where_it_is),
        cmocka_unit_test(a_watch_whose_time_is_over_goes_on_at_the_last_version),
        cmocka_unit_test(one_that_is_cut_in_an_event_has_not_heard_it),
        cmocka_unit_test(pauses_grow_while_it_fails_and_start_anew_when_it_was_good),
        cmocka_unit_test(what_has_to_be_listed_again_and_again_is_listed_ever_less_often),
        cmocka_unit_test(it_stays_away_for_as_long_as_it_is_asked_to),
        cmocka_unit_test(a_version_that_is_too_old_is_followed_by_a_list),
        cmocka_unit_test(a_server_that_always_says_so_is_not_listed_without_end),
        cmocka_unit_test(an_error_that_is_another_is_told_and_followed_by_a_list),
        cmocka_unit_test(what_makes_no_sense_is_followed_by_a_list),
        cmocka_unit_test(what_is_refused_is_listed_again_and_what_fails_only_after_a_while),
        cmocka_unit_test(a_list_that_is_none_removes_nothing),
        cmocka_unit_test(a_list_without_end_is_given_up),
        cmocka_unit_test(a_continue_that_is_too_old_is_followed_by_a_list_in_one_piece),
        cmocka_unit_test(a_version_of_the_resource_that_is_not_there_is_followed_by_the_other),
        cmocka_unit_test(what_is_lacking_is_said),
        cmocka_unit_test(an_answer_has_to_begin_in_time),
        cmocka_unit_test(a_list_that_falls_silent_or_takes_too_long_hangs),
        cmocka_unit_test(a_watch_may_be_silent_and_has_to_end),
        cmocka_unit_test(what_has_no_room_is_listed_again_when_something_is_gone),
        cmocka_unit_test(an_answer_that_is_none_is_kept_in_part_and_a_url_that_is_too_long_is_not_asked_for),
        cmocka_unit_test(an_object_that_is_too_large_is_of_no_consequence_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
