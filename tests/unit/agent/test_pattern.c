/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/agent/route/path.h"
#include "spoa/agent/route/pattern.h"
#include "spoa/agent/route/template.h"

static const char *const result_names[] = {"miss", "match", "climbs"};

/* "sandbox=sb-1 port=80": what was captured, in the order of places. */
static void captures_text(const struct capture_names *names, unsigned mask, const struct captures *captures,
                          char *text, size_t size)
{
    struct writer w = writer_of(text, size - 1);
    for (size_t i = 0; i < names->count; i++)
        if (mask & 1u << i && slice_present(captures->value[i]))
            writer_printf(&w, "%s%.*s=%.*s", w.len ? " " : "", SLICE_PRINTF(names->name[i]),
                          SLICE_PRINTF(captures->value[i]));
    text[w.len] = '\0';
}

struct row {
    enum pattern_kind kind;
    const char *pattern, *input;
    const char *result; /* captures of a match; "miss"; "climbs" */
};

static void row_check(const struct row *row)
{
    struct capture_names names;
    struct captures captures;
    struct fail why;
    char got[512];
    capture_names_init(&names);
    struct pattern *pattern = pattern_new(row->kind, slice_text(row->pattern), &names, &why);
    if (!pattern)
        fail_msg("%s", why.text);
    struct slice input = guarded(slice_text(row->input));
    memset(&captures, 0, sizeof captures);
    enum pattern_result result =
        pattern_match(pattern, row->input ? input : (struct slice){NULL, 0}, &captures);
    if (result == PATTERN_MATCH)
        captures_text(&names, pattern_captures(pattern), &captures, got, sizeof got);
    else
        snprintf(got, sizeof got, "%s", result_names[result]);
    if (strcmp(got, row->result) != 0)
        fail_msg("'%s' on '%s': '%s', not '%s'", row->pattern, row->input ? row->input : "(absent)", got,
                 row->result);
    guarded_free(input);
    pattern_free(pattern);
}

#define PTY     "/api/sandboxes/{sandbox}/pty/{session}"
#define API     "/api/sandboxes/{sandbox}/{rest...}"
#define INGRESS "{sandbox}-{port}-{expires}-{signature}.x.io"

static const struct row rows[] = {
    /* paths */
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/s1", "sandbox=sb-1 session=s1"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/s1/", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes//pty/s1", "miss"},
    {PATTERN_PATH, PTY, "//api/sandboxes/sb-1/pty/s1", "miss"},
    {PATTERN_PATH, PTY, "/API/sandboxes/sb-1/pty/s1", "miss"},
    {PATTERN_PATH, PTY, "api/sandboxes/sb-1/pty/s1", "miss"},
    {PATTERN_PATH, PTY, "", "miss"},
    {PATTERN_PATH, PTY, NULL, "miss"},
    {PATTERN_PATH, PTY, "/", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb%2D1/pty/a%2Fb", "sandbox=sb%2D1 session=a%2Fb"},
    {PATTERN_PATH, PTY, "/%61pi/s%61ndboxes/sb-1/%70%74%79/s1", "sandbox=sb-1 session=s1"},
    {PATTERN_PATH, PTY, "/api%2Fsandboxes/sb-1/pty/s1", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pt%7/s1", "miss"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/..", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/./pty/s1", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/%2E%2e/pty/s1", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/.../pty/s1", "sandbox=... session=s1"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/..%2F..%2Fsb-2%2Fpty%2Fs1", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/a%2F..%2F..%2Fexec", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/..\\exec", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/..;x", "climbs"},
    {PATTERN_PATH, PTY, "/api/sandboxes/sb-1/pty/a%2F..", "sandbox=sb-1 session=a%2F.."},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/..%3b/x", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/%2e%2E%3Bx/y", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a/..%3Bx/y", "sandbox=sb-1 rest=a/..%3Bx/y"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a/..%3b/b/..;/y", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a%3b/b", "sandbox=sb-1 rest=a%3b/b"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1", "sandbox=sb-1"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/", "sandbox=sb-1 rest="},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1//a//b", "sandbox=sb-1 rest=/a//b"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a%2Fb%20c", "sandbox=sb-1 rest=a%2Fb%20c"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a/../b", "sandbox=sb-1 rest=a/../b"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/../sb-2/x", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/..", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/a/../..", "climbs"},
    {PATTERN_PATH, API, "/api/sandboxes/sb-1/%2e%2E/x", "climbs"},
    {PATTERN_PATH, "/{rest...}", "/", "rest="},
    {PATTERN_PATH, "/{rest...}", "/a", "rest=a"},
    {PATTERN_PATH, "/", "/", ""},
    {PATTERN_PATH, "/", "/a", "miss"},
    {PATTERN_PATH, "/a/", "/a/", ""},
    {PATTERN_PATH, "/a/", "/a", "miss"},
    {PATTERN_PATH, "/a", "/a/", "miss"},
    {PATTERN_PATH, "/x/{port}", "/x/nonsense", "port=nonsense"},
    {PATTERN_PATH, "/{sandbox}/{port}/{expires}/{signature}/{rest...}", "/sb/80/x2qxvk/21e6a3d0a/a",
     "sandbox=sb port=80 expires=x2qxvk signature=21e6a3d0a rest=a"},
    {PATTERN_PATH, "/{sandbox}/{port}/{expires}/{signature}/{rest...}", "/sb/80/x2qxvk/21e6a3d0a",
     "sandbox=sb port=80 expires=x2qxvk signature=21e6a3d0a"},
    {PATTERN_PATH, "/{sandbox}/{port}/{expires}/{signature}/{rest...}", "/sb/80/x2qxvk/21e6a3d0/a", "miss"},
    {PATTERN_PATH, "/{sandbox}/{port}/{expires}/{signature}/{rest...}", "/sb/80/X2/21e6a3d0a/a", "miss"},
    {PATTERN_PATH, "/f.{name}", "/f..", "name=."},
    {PATTERN_PATH, "/.{name}", "/..", "climbs"},
    {PATTERN_PATH, "/x-{name}-y/z", "/x-a-b-y/z", "name=a-b"},
    {PATTERN_PATH, "/x-{name}-y/z", "/x--y/z", "miss"},
    /* hosts */
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-1-p80.x.io", "sandbox=sb-1 port=80"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p1-p80.x.io", "sandbox=sb-p1 port=80"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-i1abc-6532622b.x.io",
     "sandbox=i1abc port=80 e2b_client=6532622b"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-i1abc-6532622.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-i1abc-6532622bb.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-i1abc-6532622g.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-i1abc-653_622b.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{e2b_client}.x.io", "80-6532622b.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-pp80.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "-p80.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p8a.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p808080.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "a.sb-p80.x.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p80.x.io.evil", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p80.y.io", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.x.io", "sb-p80", "miss"},
    {PATTERN_HOST, "{sandbox}-p{port}.X.IO", "sb-p80.x.io", "sandbox=sb port=80"},
    {PATTERN_HOST, "{port}-{sandbox}-{token}.x.io", "8080-sb-1-abc_1.x.io",
     "sandbox=sb-1 port=8080 token=abc_1"},
    {PATTERN_HOST, "{port}-{sandbox}-{token}.x.io", "8080-sb.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{token}.x.io", "8080--abc.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{token}.x.io", "8080-sb-.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}-{token}.x.io", "x-sb-abc.x.io", "miss"},
    {PATTERN_HOST, "{port}-{sandbox}.x.io", "80-sb-1.x.io", "sandbox=sb-1 port=80"},
    {PATTERN_HOST, "{port}-{sandbox}.x.io", "80-.x.io", "miss"},
    {PATTERN_HOST, "{port}.{sandbox}.x.io", "80.sb.x.io", "sandbox=sb port=80"},
    {PATTERN_HOST, "{port}.{sandbox}.x.io", "www.sb.x.io", "miss"},
    {PATTERN_HOST, INGRESS, "my-sandbox-8080-x2qxvk-21e6a3d0a.x.io",
     "sandbox=my-sandbox port=8080 expires=x2qxvk signature=21e6a3d0a"},
    {PATTERN_HOST, INGRESS, "d-e-3000-x2qxvk-8c431392a.x.io",
     "sandbox=d-e port=3000 expires=x2qxvk signature=8c431392a"},
    {PATTERN_HOST, INGRESS, "my-sandbox-8080.x.io", "miss"},
    {PATTERN_HOST, INGRESS, "my-80-abc-80.x.io", "miss"},
    {PATTERN_HOST, INGRESS, "my-80-abcdefghijklmn-21e6a3d0a.x.io", "miss"},
    {PATTERN_HOST, INGRESS, "my-80-abc-g1e6a3d0a.x.io", "miss"},
    {PATTERN_HOST, INGRESS, "80-abc-21e6a3d0a.x.io", "miss"},
    {PATTERN_HOST, "x.io", "x.io", ""},
    {PATTERN_HOST, "x.io", NULL, "miss"},
    {PATTERN_HOST, "x.io", "", "miss"},
    {PATTERN_HOST, "{sandbox}.{domain...}", "sb.a.b", "sandbox=sb domain=a.b"},
    {PATTERN_HOST, "{sandbox}.{domain...}", "sb", "sandbox=sb"},
    /* values */
    {PATTERN_VALUE, "{sandbox}", "sb.1", "sandbox=sb.1"},
    {PATTERN_VALUE, "{sandbox}", "", "miss"},
    {PATTERN_VALUE, "{sandbox}", NULL, "miss"},
    {PATTERN_VALUE, "{port?8888}", NULL, "port=8888"},
    {PATTERN_VALUE, "{port?8888}", "", "port=8888"},
    {PATTERN_VALUE, "{port?8888}", "80", "port=80"},
    {PATTERN_VALUE, "{port?8888}", "x", "port=x"},
    {PATTERN_VALUE, "{host?a.b}", NULL, "host=a.b"},
    {PATTERN_VALUE, "{sandbox}-{port}.{domain...}", "sb-1-80", "sandbox=sb-1 port=80"},
    {PATTERN_VALUE, "{sandbox}-{port}.{domain...}", "sb-1-80.x.io", "sandbox=sb-1 port=80 domain=x.io"},
    {PATTERN_VALUE, "{sandbox}-{port}.{domain...}", "sb", "miss"},
    {PATTERN_VALUE, "yes", "yes", ""},
    {PATTERN_VALUE, "yes", "YES", "miss"},
};

static void matches_and_captures(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        row_check(&rows[i]);
}

static void refuses_patterns_that_are_not_clear(void **state)
{
    static const struct {
        enum pattern_kind kind;
        const char *text, *why;
    } bad[] = {
        {PATTERN_PATH, "", "empty"},
        {PATTERN_PATH, "a", "begins with '/'"},
        {PATTERN_PATH, "/{", "without '}'"},
        {PATTERN_PATH, "/{}", "no capture"},
        {PATTERN_PATH, "/{A}", "no capture"},
        {PATTERN_PATH, "/{1a}", "no capture"},
        {PATTERN_PATH, "/a}", "literally"},
        {PATTERN_PATH, "/a%20b", "literally"},
        {PATTERN_PATH, "/a?b", "literally"},
        {PATTERN_PATH, "/a b", "literally"},
        {PATTERN_PATH, "/{a}/{a}", "twice"},
        {PATTERN_PATH, "/{a}{b}", "text between"},
        {PATTERN_PATH, "/{a}-{b}", "only one capture"},
        {PATTERN_PATH, "/{a...}/b", "last part"},
        {PATTERN_PATH, "/x{a...}", "last part"},
        {PATTERN_PATH, "/{a?b}", "default"},
        {PATTERN_HOST, "{a?b}", "default"},
        {PATTERN_HOST, "<e2b>", "literally"},
        {PATTERN_VALUE, "{a?}", "default"},
        {PATTERN_VALUE, "{a?b}c", "default"},
        {PATTERN_VALUE, "{a...}", "last part"},
        {PATTERN_PATH, "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}/{j}", "captures"},
        {PATTERN_PATH, "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", "parts"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct capture_names names;
        struct fail why = {""};
        capture_names_init(&names);
        assert_null(pattern_new(bad[i].kind, slice_text(bad[i].text), &names, &why));
        if (!strstr(why.text, bad[i].why))
            fail_msg("'%s': '%s' has no '%s'", bad[i].text, why.text, bad[i].why);
    }
}

static void finds_every_way_to_climb(void **state)
{
    static const struct {
        const char *tail;
        bool climbs;
    } tails[] = {
        {"", false},
        {"a", false},
        {".", false},
        {"./././", false},
        {"..", true},
        {"../", true},
        {"a/..", false},
        {"a/../", false},
        {"a/../b", false},
        {"a/../..", true},
        {"a/b/../../", false},
        {"a/b/../../..", true},
        {"%2e%2e", true},
        {".%2E/", true},
        {"%2e./x", true},
        {"%2e", false},
        {"...", false},
        {"..a", false},
        {"a//..//..", true},
        {"a//b//..//..", false},
        {"//..", true},
        {"a%2F..", false},
        {"a%2f../..", true},
        {"..%2Fx", true},
        {"a%2F..%2F..", true},
        {"a%2Fb/../..", true},
        {"a/..%5c..", true},
        {"a\\..\\..", true},
        {"..\\", true},
        {"a/..;x/..;y", true},
        {"..;x", true},
        {"a/..;x", false},
        {"%252e%252e", false},
        {"a/./../..", true},
        {"a/%2E/../b", false},
        {"%", false},
        {"%2", false},
        {"..%", false},
        {"a/../%2e%2e%2f", true},
        /* what separates for one worker is part of a name for another */
        {"a%2Fb\\..\\..", true},
        {"a\\b%2F..%2F..", true},
        {"a\\b%5C..%5C..", true},
        {"a%5Cb\\..\\..", true},
        {"a%2Fb/..;x/..;x", true},
        {"a\\b\\..\\..", false},
        {"a%2Fb%2F..%2F..", false},
        {"a;b\\..", true},
        {"a;b\\c", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        struct slice tail = guarded(slice_text(tails[i].tail));
        if (path_climbs(tail) != tails[i].climbs)
            fail_msg("'%s' %s", tails[i].tail, tails[i].climbs ? "climbs" : "does not climb");
        guarded_free(tail);
    }
}

static void decodes_unreserved_characters_only(void **state)
{
    static const char *const pairs[][2] = {
        {"a%2Db", "a-b"}, {"%41%7a%30", "Az0"}, {"a%2Fb", "a%2Fb"}, {"%25", "%25"}, {"%2", "%2"},  {"%", "%"},
        {"%zz", "%zz"},   {"%7E%5F%2e", "~_."}, {"%2520", "%2520"}, {"", ""},       {"%00", "%00"}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char memory[32];
        struct writer w = writer_of(memory, sizeof memory);
        struct slice in = guarded(slice_text(pairs[i][0]));
        path_decode(in, &w);
        assert_true(slice_is(writer_slice(&w), pairs[i][1]));
        assert_true(path_segment_is(in, slice_text(pairs[i][1])));
        assert_false(path_segment_is(in, SLICE_LITERAL("other")));
        guarded_free(in);
    }
}

static void judges_whole_paths(void **state)
{
    static const char *const good[] = {"/",       "/a",  "//",   "/a%20b", "/a%2Fb", "/~!$&'()*+,;=:@",
                                       "/a/../b", "/\\", "/{}|^"};
    static const char *const bad[] = {"",    "*",    "a",   "/a b",  "/a#b",     "/%",
                                      "/%2", "/%zz", "/\t", "/\x7f", "/\xc3\xa4"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(path_valid(slice_text(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(path_valid(slice_text(bad[i])));
    assert_false(path_valid(slice_of("/a\0b", 4)));
}

static void writes_the_path_of_the_worker(void **state)
{
    static const struct {
        const char *pattern, *template, *path, *want;
    } cases[] = {
        {API, "/sandboxes/{sandbox}/{rest...}", "/api/sandboxes/sb/a//b%2F", "/sandboxes/sb/a//b%2F"},
        {API, "/sandboxes/{sandbox}/{rest}", "/api/sandboxes/sb/", "/sandboxes/sb/"},
        {API, "/sandboxes/{sandbox}/{rest}", "/api/sandboxes/sb", "/sandboxes/sb"},
        {API, "/{rest}", "/api/sandboxes/sb", "/"},
        {API, "/{rest}", "/api/sandboxes/sb//x", "//x"},
        {API, "/x-{sandbox}.y", "/api/sandboxes/sb", "/x-sb.y"},
        {API, "/fixed", "/api/sandboxes/sb", "/fixed"},
        {PTY, "/{session}/{sandbox}", "/api/sandboxes/s%2Db/pty/%2F", "/%2F/s%2Db"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct capture_names names;
        struct captures captures = {{{NULL, 0}}};
        struct fail why;
        char memory[64];
        struct writer w = writer_of(memory, sizeof memory);
        capture_names_init(&names);
        struct pattern *pattern = pattern_new(PATTERN_PATH, slice_text(cases[i].pattern), &names, &why);
        struct template *template = template_new(slice_text(cases[i].template), &names, &why);
        assert_non_null(template);
        assert_int_equal(pattern_match(pattern, slice_text(cases[i].path), &captures), PATTERN_MATCH);
        template_write(template, &captures, &w);
        if (!slice_is(writer_slice(&w), cases[i].want))
            fail_msg("%.*s, not %s", SLICE_PRINTF(writer_slice(&w)), cases[i].want);
        template_free(template);
        pattern_free(pattern);
    }
}

static void a_template_that_does_not_fit_is_full(void **state)
{
    struct capture_names names;
    struct fail why;
    (void)state;
    capture_names_init(&names);
    struct template *template = template_new(SLICE_LITERAL("/ab/{sandbox}/{session}"), &names, &why);
    struct captures captures = {
        .value = {[CAPTURE_SANDBOX] = SLICE_LITERAL("sb"), [CAPTURE_SESSION] = SLICE_LITERAL("s")}};
    for (size_t size = 0; size <= 8; size++) {
        uint8_t memory[8];
        struct writer w = writer_of(memory, size);
        template_write(template, &captures, &w);
        assert_int_equal(w.full, size < 8);
    }
    template_free(template);
}

static void refuses_bad_templates(void **state)
{
    static const char *const bad[] = {"", "a", "/{", "/{nobody}", "/}{sandbox}", "/{sandbox", "/a b"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct capture_names names;
        struct fail why;
        capture_names_init(&names);
        assert_null(template_new(slice_text(bad[i]), &names, &why));
    }
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        struct capture_names names;
        struct fail why;
        capture_names_init(&names);
        alloc_fail_at(n);
        struct pattern *pattern = pattern_new(PATTERN_PATH, SLICE_LITERAL(PTY), &names, &why);
        alloc_fail_at(n);
        struct template *template = template_new(SLICE_LITERAL("/{sandbox}"), &names, &why);
        alloc_fail_at(0);
        assert_null(pattern);
        assert_null(template);
        assert_string_equal(why.text, "out of memory");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_and_captures),
        cmocka_unit_test(refuses_patterns_that_are_not_clear),
        cmocka_unit_test(finds_every_way_to_climb),
        cmocka_unit_test(decodes_unreserved_characters_only),
        cmocka_unit_test(judges_whole_paths),
        cmocka_unit_test(writes_the_path_of_the_worker),
        cmocka_unit_test(a_template_that_does_not_fit_is_full),
        cmocka_unit_test(refuses_bad_templates),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
