/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/agent/model/record_json.h"

/* ---- answers ---- */

static uint8_t scratch_memory[128 * 1024];

struct expected {
    enum lookup outcome;
    enum directory_http_health health;
    int state;
    uint64_t ttl, pause; /* seconds */
};

static void answer(struct directory_http_reply reply, struct expected e)
{
    struct directory_http_finding f;
    struct fail why = {""};
    struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory);
    reply.body = guarded(reply.body);
    directory_http_answer(&reply, &scratch, &f, &why);
    assert_int_equal(f.outcome, e.outcome);
    assert_int_equal(f.health, e.health);
    if (f.outcome == LOOKUP_FOUND)
        assert_int_equal(f.record.state, e.state);
    assert_true(f.ttl == e.ttl * SECOND && f.pause == e.pause * SECOND);
    assert_int_equal(why.text[0] != '\0', e.health != DIRECTORY_HTTP_GOOD);
    json_free(f.doc);
    guarded_free(reply.body);
}

#define TEXT(literal) SLICE_LITERAL(literal)
#define RECORD        TEXT("{\"worker\":\"http://127.0.0.1:1\",\"epoch\":4}")

static void a_record_is_found_and_lives_as_long_as_the_answer_says(void **state)
{
    (void)state;
    answer((struct directory_http_reply){.status = 200, .body = RECORD},
           (struct expected){LOOKUP_FOUND, .ttl = 0});
    static const struct {
        const char *value;
        uint64_t ttl;
    } controls[] = {{"max-age=7", 7},
                    {"public, max-age=7", 7},
                    {"Max-Age=7 , private", 7},
                    {"max-age=0", 1},
                    {"no-store", 1},
                    {"max-age=9, no-cache", 1},
                    {"max-age=999999", 3600},
                    {"max-age=", 0},
                    {"max-age=-1", 0},
                    {"s-maxage=7", 0},
                    {"", 0},
                    {"max-age=\"7\"", 0}};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        answer((struct directory_http_reply){.status = 200,
                                             .body = RECORD,
                                             .cache_control = slice_text(controls[i].value)},
               (struct expected){LOOKUP_FOUND, .ttl = controls[i].ttl});
}

static void what_is_no_record_is_doubt_about_this_one_only(void **state)
{
    static const char *const bodies[] = {"",
                                         "{",
                                         "[]",
                                         "null",
                                         "{}",
                                         "{\"state\":\"asleep\"}",
                                         "{\"worker\":\"ftp://x\"}",
                                         "{\"worker\":\"http://127.0.0.1:1\"}x",
                                         "<html>"};
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        answer((struct directory_http_reply){.status = 200, .body = slice_text(bodies[i])},
               (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_DOUBT, .ttl = 0});
    answer((struct directory_http_reply){.status = 200, .body = RECORD, .too_large = true},
           (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_DOUBT, .ttl = 0});
}

static void headers_that_do_not_fit_into_a_frame_are_doubt(void **state)
{
    char text[20000], value[8000];
    (void)state;
    memset(value, 'x', sizeof value);
    for (int i = 0; i < 2; i++) {
        int len = snprintf(text, sizeof text,
                           "{\"worker\":\"http://127.0.0.1:1\",\"headers\":{\"a\":\"%.*s\",\"b\":\"%.*s\"}}",
                           8000, value, i ? 8000 : 4000, value);
        answer((struct directory_http_reply){.status = 200, .body = slice_of(text, (size_t)len)},
               i ? (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_DOUBT, .ttl = 0}
                 : (struct expected){LOOKUP_FOUND, .ttl = 0});
    }
}

static void absence_and_states_are_told_by_status(void **state)
{
    (void)state;
    answer((struct directory_http_reply){.status = 404, .body = TEXT("{}")},
           (struct expected){LOOKUP_ABSENT, .ttl = 0});
    answer((struct directory_http_reply){.status = 404}, (struct expected){LOOKUP_ABSENT, .ttl = 0});
    answer((struct directory_http_reply){.status = 404, .content_type = TEXT("text/plain; charset=utf-8")},
           (struct expected){LOOKUP_ABSENT, .ttl = 0});
    answer((struct directory_http_reply){.status = 410},
           (struct expected){LOOKUP_FOUND, .state = RECORD_STOPPED, .ttl = 0});
    answer((struct directory_http_reply){.status = 503, .body = TEXT("{\"error\":\"sandbox_migrating\"}")},
           (struct expected){LOOKUP_FOUND, .state = RECORD_MIGRATING, .ttl = 1});
    answer((struct directory_http_reply){.status = 503,
                                         .body = TEXT("{\"error\":\"sandbox_waking\",\"more\":1}")},
           (struct expected){LOOKUP_FOUND, .state = RECORD_WAKING, .ttl = 1});
}

static void the_page_of_something_in_front_is_no_absence(void **state)
{
    (void)state;
    answer((struct directory_http_reply){.status = 404, .content_type = TEXT("Text/HTML; charset=utf-8")},
           (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_BAD, .ttl = 0});
}

static void other_statuses_speak_against_the_control_plane(void **state)
{
    static const unsigned statuses[] = {201, 204, 301, 302, 307, 400, 401, 403, 500, 502, 504};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        answer((struct directory_http_reply){.status = statuses[i], .body = RECORD, .retry_after = TEXT("3")},
               (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_BAD, .ttl = 0});
}

static void retry_after_is_heeded_within_bounds(void **state)
{
    static const struct {
        const char *value;
        uint64_t pause;
    } values[] = {{"3", 3}, {"0", 0}, {"99999", 10}, {"-1", 0}, {"Fri, 31 Dec 1999 23:59:59 GMT", 0},
                  {"", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (unsigned status = 429; status <= 503; status += 503 - 429)
            answer(
                (struct directory_http_reply){.status = status, .retry_after = slice_text(values[i].value)},
                (struct expected){LOOKUP_UNAVAILABLE, DIRECTORY_HTTP_BAD, .ttl = 0,
                                  .pause = values[i].pause});
}

/* ---- events ---- */

static char told[512];

static void note(const char *what, struct slice key, const struct record *record)
{
    snprintf(told, sizeof told, "%s %.*s %s", what, SLICE_PRINTF(key),
             record ? record_state_text(record->state) : "");
}

/* As of directory/kind.h: here they stand for the directory itself. */
void directory_changed(struct directory *directory, struct slice key, const struct record *record)
{
    assert_null(directory);
    note("changed", key, record);
}

void directory_removed(struct directory *directory, struct slice key)
{
    assert_null(directory);
    note("removed", key, NULL);
}

void directory_announced(struct directory *directory, struct slice key)
{
    assert_null(directory);
    note("announced", key, NULL);
}

static bool out_of_memory;

bool directory_revoked_tokens(struct directory *directory, struct slice text, bool all, struct fail *why)
{
    (void)directory, (void)why;
    snprintf(told, sizeof told, "%s %.*s", all ? "all of" : "more of", SLICE_PRINTF(text));
    return true;
}

bool directory_revoked(struct directory *directory, int64_t not_before)
{
    assert_null(directory);
    if (!out_of_memory)
        snprintf(told, sizeof told, "revoked %lld", (long long)not_before);
    return !out_of_memory;
}

/* NULL: the event makes no sense. */
static void event(const char *name, const char *data, const char *expected)
{
    struct fail why = {""};
    struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory);
    struct slice copy = guarded(slice_text(data));
    told[0] = '\0';
    bool good = directory_http_event(NULL, slice_text(name), copy, &scratch, &why);
    guarded_free(copy);
    assert_string_equal(told, expected ? expected : "");
    assert_int_equal(good, expected != NULL);
    assert_int_equal(why.text[0] != '\0', !good);
}

static void events_are_given_to_the_directory(void **state)
{
    (void)state;
    event("update", "{\"sandbox\":\"sb-1\",\"record\":{\"worker\":\"http://127.0.0.1:1\"}}",
          "changed sb-1 running");
    event("update", "{\"sandbox\":\"sb-1\",\"namespace\":\"team\",\"record\":{\"state\":\"stopped\"}}",
          "changed team/sb-1 stopped");
    event("update", "{\"sandbox\":\"sb-1\",\"namespace\":null}", "announced sb-1 ");
    event("update", "{\"sandbox\":\"sb-1\",\"record\":{}}", "announced sb-1 ");
    event("update", "{\"sandbox\":\"sb-1\",\"record\":7}", "announced sb-1 ");
    event("remove", "{\"sandbox\":\"sb-1\",\"namespace\":\"default\"}", "removed sb-1 ");
    event("remove", "{\"sandbox\":\"sb-1\"}", "removed sb-1 ");
    event("revoke", "{\"not_before\":1700000000}", "revoked 1700000000");
    event("revoke", "{\"revoked\":{\"j\":1}}", "more of {\"revoked\":{\"j\":1}}");
    event("ping", "anything", "");
    event("", "{\"sandbox\":\"sb-1\"}", "");
}

/* The stream ends, and the next one begins with it. */
static void a_revocation_that_there_is_no_memory_for_is_refused(void **state)
{
    (void)state;
    out_of_memory = true;
    event("revoke", "{\"not_before\":1700000000}", NULL);
    out_of_memory = false;
    event("revoke", "{\"not_before\":1700000000}", "revoked 1700000000");
}

static void events_that_make_no_sense_are_refused(void **state)
{
    char data[600];
    (void)state;
    event("update", "", NULL);
    event("update", "{", NULL);
    event("update", "{\"record\":{\"state\":\"stopped\"}}", NULL);
    event("remove", "{\"sandbox\":\"\"}", NULL);
    event("remove", "{\"sandbox\":\"a b\"}", NULL);
    event("remove", "{\"sandbox\":\"a\",\"namespace\":7}", NULL);
    event("remove", "[\"sb-1\"]", NULL);
    event("revoke", "{\"not_before\":-1}", NULL);
    event("revoke", "{}", NULL);
    snprintf(data, sizeof data, "{\"sandbox\":\"%0256d\"}", 1);
    event("remove", data, NULL);
}

/* ---- requests ---- */

static void path(const char *key, const char *suffix, const char *expected)
{
    char text[1100];
    assert_true(directory_http_target_path(slice_text(key), suffix, text, sizeof text));
    assert_string_equal(text, expected);
    assert_false(directory_http_target_path(slice_text(key), suffix, text, strlen(expected)));
}

static void an_id_is_one_step_of_the_path_whatever_it_is(void **state)
{
    (void)state;
    path("sb-1", "", "/v1/sandboxes/sb-1");
    path("sb-1", "/wake", "/v1/sandboxes/sb-1/wake");
    path("team/sb-1", "/wake", "/v1/sandboxes/sb-1/wake?namespace=team");
    path("a/b/c&d", "", "/v1/sandboxes/b%2Fc%26d?namespace=a");
    path("..", "", "/v1/sandboxes/%2E%2E");
    path(".", "", "/v1/sandboxes/%2E");
    path("a?b#c%d", "", "/v1/sandboxes/a%3Fb%23c%25d");
    path("\xC3\xA4", "", "/v1/sandboxes/%C3%A4");
}

static void url(const char *text, bool good)
{
    struct fail why = {""};
    assert_int_equal(directory_http_target_check(text, &why), good);
    assert_null(strstr(why.text, "secret"));
}

static void only_urls_without_secrets_are_taken(void **state)
{
    (void)state;
    url("http://127.0.0.1:8081", true);
    url("https://plane.example/cell/7/", true);
    url("http://[::1]:8081", true);
    url("ftp://127.0.0.1", false);
    url("file:///etc/passwd", false);
    url("127.0.0.1:8081", false);
    url("http://", false);
    url("http://user:secret@127.0.0.1", false);
    url("http://user@127.0.0.1", false);
    url("http://127.0.0.1?secret=1", false);
    url("http://127.0.0.1#secret", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_found_and_lives_as_long_as_the_answer_says),
        cmocka_unit_test(what_is_no_record_is_doubt_about_this_one_only),
        cmocka_unit_test(headers_that_do_not_fit_into_a_frame_are_doubt),
        cmocka_unit_test(absence_and_states_are_told_by_status),
        cmocka_unit_test(the_page_of_something_in_front_is_no_absence),
        cmocka_unit_test(other_statuses_speak_against_the_control_plane),
        cmocka_unit_test(retry_after_is_heeded_within_bounds),
        cmocka_unit_test(events_are_given_to_the_directory),
        cmocka_unit_test(a_revocation_that_there_is_no_memory_for_is_refused),
        cmocka_unit_test(events_that_make_no_sense_are_refused),
        cmocka_unit_test(an_id_is_one_step_of_the_path_whatever_it_is),
        cmocka_unit_test(only_urls_without_secrets_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
