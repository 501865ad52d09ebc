/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/worker_url.h"

static struct record record_at(const char *url, int64_t epoch)
{
    struct record record = {.epoch = epoch};
    struct fail why;
    assert_true(worker_url_parse(slice_text(url), &record.worker, &why));
    return record;
}

static void add(struct records *records, const char *key, const struct record *record)
{
    struct fail why;
    assert_true(records_add(records, slice_text(key), record, &why));
}

static void what_was_added_is_found_whole(void **state)
{
    (void)state;
    uint8_t memory[512];
    struct writer scratch = writer_of(memory, sizeof memory);
    struct record record = record_at("https://worker-7.example:8443", INT64_MAX), found;
    const struct record by_four = record_at("http://10.0.0.5:49001", 0),
                        by_six = record_at("http://[fd00::5]:1", 0);
    struct worker port;
    record.state = RECORD_MIGRATING;
    record.org = slice_text("org-1");
    record.not_before = 1999999999;
    record.access_sha256 = slice_text("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    record_pack_port(&scratch, 8080, &by_four.worker);
    record_pack_port(&scratch, 65535, &by_six.worker);
    record.ports = writer_slice(&scratch);
    record_pack_header(&scratch, slice_text("Authorization"), slice_text("Bearer x"));
    record_pack_header(&scratch, slice_text("X-Empty"), slice_text(""));
    record.headers = slice_from(writer_slice(&scratch), record.ports.len);

    struct records *records = records_new(0);
    add(records, "sb-1", &record);
    memset(memory, 0xee, sizeof memory); /* the store has copies of its own */

    assert_int_equal(records_find(records, slice_text(NULL), slice_text("sb-1"), &found), LOOKUP_FOUND);
    assert_int_equal(found.state, RECORD_MIGRATING);
    assert_int_equal(found.epoch, INT64_MAX);
    assert_int_equal(found.not_before, 1999999999);
    assert_true(slice_is(found.org, "org-1"));
    assert_int_equal(found.access_sha256.len, 64);
    assert_int_equal(found.worker.kind, WORKER_HTTPS);
    assert_true(slice_is(found.worker.host, "worker-7.example"));
    assert_int_equal(found.worker.port, 8443);
    assert_int_equal(found.worker.addr.family, 0);
    assert_true(record_port(&found, 8080, &port));
    assert_int_equal(port.addr.family, 4);
    assert_memory_equal(port.addr.bytes, "\x0a\0\0\x05", 4);
    assert_int_equal(port.port, 49001);
    assert_true(record_port(&found, 65535, &port));
    assert_int_equal(port.addr.family, 6);
    assert_false(record_port(&found, 8081, &port));

    struct slice name, value;
    size_t cursor = 0;
    assert_true(record_header(found.headers, &cursor, &name, &value));
    assert_true(slice_is(name, "Authorization") && slice_is(value, "Bearer x"));
    assert_true(record_header(found.headers, &cursor, &name, &value));
    assert_true(slice_is(name, "X-Empty") && value.len == 0);
    assert_false(record_header(found.headers, &cursor, &name, &value));
    records_release(records);
}

static void an_absent_organisation_stays_absent(void **state)
{
    (void)state;
    struct records *records = records_new(1);
    struct record record = record_at("http://127.0.0.1:1", 0), found;
    add(records, "sb", &record);
    records_get(records, slice_text("sb"), &found);
    assert_false(slice_present(found.org));
    assert_false(slice_present(found.access_sha256));
    records_release(records);
}

static void a_hundred_thousand_records_are_each_found_and_no_other(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct records *records = records_new(0);
    struct record found;
    char key[32], url[64];
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "sb-%d", i);
        snprintf(url, sizeof url, "http://10.%d.%d.%d:%d", i >> 16, i >> 8 & 255, i & 255, 1 + i % 65535);
        struct record record = record_at(url, i + 1);
        add(records, key, &record);
    }
    assert_int_equal(records_count(records), COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "sb-%d", i);
        assert_int_equal(records_get(records, slice_text(key), &found), LOOKUP_FOUND);
        assert_int_equal(found.epoch, i + 1);
        snprintf(key, sizeof key, "sb-%dx", i);
        assert_int_equal(records_get(records, slice_text(key), &found), LOOKUP_ABSENT);
    }
    size_t cursor = 0, seen = 0;
    struct slice each;
    int64_t epochs = 0;
    while (records_each(records, &cursor, &each, &found)) {
        seen++;
        epochs += found.epoch;
    }
    assert_int_equal(seen, COUNT);
    assert_int_equal(epochs, (int64_t)COUNT * (COUNT + 1) / 2);
    assert_true(records_bytes(records) < (size_t)COUNT * 128);
    records_release(records);
}

static void a_key_twice_or_malformed_is_refused(void **state)
{
    (void)state;
    char longest[257];
    memset(longest, 'a', sizeof longest);
    struct records *records = records_new(4);
    struct record record = record_at("http://127.0.0.1:1", 1);
    struct fail why;
    add(records, "sb", &record);
    assert_false(records_add(records, slice_text("sb"), &record, &why));
    assert_string_equal(why.text, "sandbox sb is there twice");
    assert_false(records_add(records, slice_text(""), &record, &why));
    assert_false(records_add(records, slice_text("a b"), &record, &why));
    assert_false(records_add(records, slice_of("a\0b", 3), &record, &why));
    assert_false(records_add(records, slice_of(longest, 256), &record, &why));
    assert_true(records_add(records, slice_of(longest, 255), &record, &why));
    assert_int_equal(records_get(records, slice_of(longest, 255), &record), LOOKUP_FOUND);
    assert_int_equal(records_get(records, slice_of(longest, 256), &record), LOOKUP_ABSENT);
    assert_int_equal(records_get(records, slice_text(""), &record), LOOKUP_ABSENT);
    records_release(records);
}

static void a_namespace_is_part_of_the_key_but_default_finds_plain_ids(void **state)
{
    (void)state;
    struct records *records = records_new(4);
    struct record in_team = record_at("http://127.0.0.1:1", 1), plain = record_at("http://127.0.0.1:2", 2),
                  found;
    add(records, "team/box", &in_team);
    add(records, "box", &plain);
    assert_int_equal(records_find(records, slice_text("team"), slice_text("box"), &found), LOOKUP_FOUND);
    assert_int_equal(found.epoch, 1);
    assert_int_equal(records_find(records, slice_text("default"), slice_text("box"), &found), LOOKUP_FOUND);
    assert_int_equal(found.epoch, 2);
    assert_int_equal(records_find(records, slice_text("other"), slice_text("box"), &found), LOOKUP_ABSENT);
    records_release(records);
}

static void without_memory_nothing_is_added_and_nothing_breaks(void **state)
{
    (void)state;
    struct record record = record_at("http://127.0.0.1:1", 1), found;
    struct fail why;
    for (unsigned n = 1; n <= 2; n++) {
        alloc_fail_at(n);
        assert_null(records_new(100));
        alloc_fail_at(0);
    }
    struct records *records = records_new(0);
    char key[16];
    unsigned added = 0, refused = 0;
    for (int i = 0; i < 200; i++) {
        alloc_fail_at(i % 3 == 0 ? 1 : 0);
        snprintf(key, sizeof key, "k%d", i);
        if (records_add(records, slice_text(key), &record, &why))
            added++;
        else
            refused++;
        alloc_fail_at(0);
    }
    assert_true(refused > 0);
    assert_int_equal(records_count(records), added);
    size_t cursor = 0;
    struct slice each;
    for (unsigned i = 0; i < added; i++)
        assert_true(records_each(records, &cursor, &each, &found));
    assert_false(records_each(records, &cursor, &each, &found));
    records_release(records);
}

static void a_large_record_takes_a_new_chunk_and_a_huge_one_is_refused(void **state)
{
    (void)state;
    static uint8_t memory[70000];
    struct records *records = records_new(0);
    struct record record = record_at("http://127.0.0.1:1", 1), found;
    struct fail why;
    char key[16];
    record.headers = slice_of(memory, 60000);
    for (int i = 0; i < 200; i++) { /* 12 MB: three chunks */
        snprintf(key, sizeof key, "sb-%d", i);
        add(records, key, &record);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "sb-%d", i);
        assert_int_equal(records_get(records, slice_text(key), &found), LOOKUP_FOUND);
        assert_int_equal(found.headers.len, 60000);
    }
    record.headers = slice_of(memory, 65536);
    assert_false(records_add(records, slice_text("huge"), &record, &why));
    assert_int_equal(records_get(records, slice_text("huge"), &found), LOOKUP_ABSENT);
    records_release(records);
}

static void worker_urls(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int kind, family, port;
        const char *host;
    } cases[] = {
        {"http://10.0.0.1:80", true, WORKER_HTTP, 4, 80, "10.0.0.1"},
        {"http://10.0.0.1", true, WORKER_HTTP, 4, 0, "10.0.0.1"},
        {"https://[::1]:8443", true, WORKER_HTTPS, 6, 8443, "::1"},
        {"https://[::1]", true, WORKER_HTTPS, 6, 0, "::1"},
        {"http://box.ns.svc.cluster.local:8888", true, WORKER_HTTP, 0, 8888, "box.ns.svc.cluster.local"},
        {"http://localhost:1", true, WORKER_HTTP, 0, 1, "localhost"},
        {"http+unix:/run/w.sock", true, WORKER_UNIX, 0, 0, "/run/w.sock"},
        {"http://10.0.0.1:0", false, 0, 0, 0, ""},
        {"http://10.0.0.1:080", false, 0, 0, 0, ""},
        {"http://10.0.0.1:65536", false, 0, 0, 0, ""},
        {"http://10.0.0.1:", false, 0, 0, 0, ""},
        {"http://10.0.0.1:80/", false, 0, 0, 0, ""},
        {"http://10.0.0.1/x", false, 0, 0, 0, ""},
        {"http://10.0.0.256:80", false, 0, 0, 0, ""},
        {"http://user@host:80", false, 0, 0, 0, ""},
        {"http://:80", false, 0, 0, 0, ""},
        {"http://", false, 0, 0, 0, ""},
        {"http://[::1", false, 0, 0, 0, ""},
        {"http://[10.0.0.1]:1", false, 0, 0, 0, ""},
        {"http://[::1]x", false, 0, 0, 0, ""},
        {"http://-a:1", false, 0, 0, 0, ""},
        {"http://a..b:1", false, 0, 0, 0, ""},
        {"http://a b:1", false, 0, 0, 0, ""},
        {"http://a\r\nb:1", false, 0, 0, 0, ""},
        {"HTTP://a:1", false, 0, 0, 0, ""},
        {"ftp://a:1", false, 0, 0, 0, ""},
        {"a:1", false, 0, 0, 0, ""},
        {"", false, 0, 0, 0, ""},
        {"http+unix:run", false, 0, 0, 0, ""},
        {"http+unix:/", false, 0, 0, 0, ""},
        {"http+unix:/run/w.sock/", false, 0, 0, 0, ""},
        {"http+unix://run/w.sock", false, 0, 0, 0, ""},
        {"http+unix:/run//w.sock", false, 0, 0, 0, ""},
        {"http+unix:/run/./w.sock", false, 0, 0, 0, ""},
        {"http+unix:/run/x/../w.sock", false, 0, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice text = guarded(slice_text(cases[i].text));
        struct worker worker;
        struct fail why = {""};
        bool good = worker_url_parse(text, &worker, &why);
        if (good != cases[i].good)
            fail_msg("%s: %s", cases[i].text, why.text);
        if (good) {
            assert_int_equal(worker.kind, cases[i].kind);
            assert_int_equal(worker.port, cases[i].port);
            assert_int_equal(worker.addr.family, cases[i].family);
            assert_true(slice_is(worker.host, cases[i].host));
        } else {
            assert_int_not_equal(why.text[0], '\0');
        }
        guarded_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found_whole),
        cmocka_unit_test(an_absent_organisation_stays_absent),
        cmocka_unit_test(a_hundred_thousand_records_are_each_found_and_no_other),
        cmocka_unit_test(a_key_twice_or_malformed_is_refused),
        cmocka_unit_test(a_namespace_is_part_of_the_key_but_default_finds_plain_ids),
        cmocka_unit_test(without_memory_nothing_is_added_and_nothing_breaks),
        cmocka_unit_test(a_large_record_takes_a_new_chunk_and_a_huge_one_is_refused),
        cmocka_unit_test(worker_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
