/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <unistd.h>

#include "spoa/agent/decision_thread/audit.h"
#include "spoa/agent/model/grant.h"
#include "spoa/service/settings.h"

static struct verdict admitted(void)
{
    struct verdict v;
    verdict_clear(&v);
    v.kind = VERDICT_RELAY;
    v.upgrade = true;
    v.route = SLICE_LITERAL("pty");
    v.sandbox = SLICE_LITERAL("sb-1");
    v.port = 8080;
    v.org = SLICE_LITERAL("org");
    v.addr = (struct address){.family = 4, .bytes = {10, 0, 0, 5}};
    v.addr_port = 9001;
    v.token_kind = "jwt";
    v.sub = SLICE_LITERAL("user 7");
    v.jti = SLICE_LITERAL("j1");
    v.kid = SLICE_LITERAL("k1");
    v.need = NEED_PTY;
    v.request_id = SLICE_LITERAL("0123");
    v.source = (struct address){.family = 6, .bytes = {0xfd, [15] = 9}};
    return v;
}

/* The line that is written, behind its time. */
static const char *line_of(const struct verdict *v, char text[static 8192])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_new(ends[1], LOG_INFO);
    audit_write(log, v);
    log_free(log);
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n = 1; n > 0; len += (size_t)n)
        n = read(ends[0], text + len, 8191 - len);
    close(ends[0]);
    text[len] = '\0';
    assert_ptr_equal(strchr(text, '\n'), text + len - 1);
    return strchr(text, ' ') + 1;
}

static void the_line_says_who_was_let_in_to_what(void **state)
{
    char text[8192];
    struct verdict v = admitted();
    (void)state;
    assert_string_equal(
        line_of(&v, text),
        "level=info msg=audit verdict=relay id=0123 source=fd00::9 route=pty need=pty sandbox=sb-1 port=8080 "
        "worker=10.0.0.5:9001 token=jwt org=org kid=k1 jti=j1 sub=\"user 7\"\n");
}

/* As it is in UTF-8 too, and of any length. */
static void what_a_client_chose_forges_no_line_and_no_field(void **state)
{
    static uint8_t all[256 * 32];
    char text[8192];
    struct verdict v = admitted();
    (void)state;
    v.sub = SLICE_LITERAL("x\" sub=admin\nts=now level=info msg=audit\r\x1b[0m\\ \xe2\x80\xa8 =");
    assert_non_null(
        strstr(line_of(&v, text),
               "sub=\"x\\\" sub=admin\\nts=now level=info msg=audit\\r\\x1b[0m\\\\ \\xe2\\x80\\xa8 =\"\n"));
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)i;
    v.sub = v.jti = v.org = v.kid = v.request_id = slice_of(all, sizeof all);
    const char *line = line_of(&v, text);
    assert_true(strlen(text) <= 4096);
    for (size_t i = 0; line[i + 1]; i++)
        assert_true(line[i] >= ' ' && line[i] <= '~');
    assert_non_null(strstr(text, "verdict=relay"));
}

/* However alike they are: each is somebody's access. */
static void none_of_many_is_held_back(void **state)
{
    enum { MANY = 4 * LOG_BURST };
    static char text[64 * 1024];
    const struct verdict v = admitted();
    int ends[2];
    size_t len = 0, lines = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    struct log *log = log_new(ends[1], LOG_INFO);
    for (size_t i = 0; i < MANY; i++)
        audit_write(log, &v);
    assert_int_equal(log_dropped(log) + log_held_back(log), 0);
    log_free(log);
    close(ends[1]);
    for (ssize_t n = 1; n > 0; len += (size_t)n)
        n = read(ends[0], text + len, sizeof text - len);
    close(ends[0]);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, MANY);
}

static void only_who_is_let_in_has_a_line(void **state)
{
    struct verdict v = admitted();
    (void)state;
    assert_true(audit_wanted(&v, SETTINGS_AUDIT_UPGRADES) && audit_wanted(&v, SETTINGS_AUDIT_ALL));
    assert_false(audit_wanted(&v, SETTINGS_AUDIT_OFF));
    v.upgrade = false;
    v.kind = VERDICT_DIRECT;
    assert_true(audit_wanted(&v, SETTINGS_AUDIT_ALL));
    assert_false(audit_wanted(&v, SETTINGS_AUDIT_UPGRADES));
    v.kind = VERDICT_REDIRECT;
    assert_true(audit_wanted(&v, SETTINGS_AUDIT_ALL));
    v.kind = VERDICT_PREFLIGHT;
    assert_false(audit_wanted(&v, SETTINGS_AUDIT_ALL));
    verdict_deny(&v, REFUSAL_token_invalid);
    assert_false(audit_wanted(&v, SETTINGS_AUDIT_ALL));
    v.kind = VERDICT_RELAY; /* which closes it with the code */
    assert_false(audit_wanted(&v, SETTINGS_AUDIT_ALL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_who_was_let_in_to_what),
        cmocka_unit_test(what_a_client_chose_forges_no_line_and_no_field),
        cmocka_unit_test(none_of_many_is_held_back),
        cmocka_unit_test(only_who_is_let_in_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
