/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "spoa/net/net.h"
#include "spoa/service/options.h"

static const char *const colours[] = {"red", "green", NULL};

struct sample {
    bool on;
    int64_t number, wait, room;
    int colour;
    char *name, *nothing, *path;
    struct net_address listen;
    struct texts list;
    const json_node *node;
};

static const char *lower_case(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] < 'a' || text.at[i] > 'z')
            return "lower case";
    return NULL;
}

#define AT(member) offsetof(struct sample, member)
static const struct option table[] = {
    {"on", OPTION_BOOL, AT(on), "true", "a switch", .min = 0},
    {"sub.number", OPTION_INT, AT(number), "-3", "a number", .min = -5, .max = 1000},
    {"sub.wait", OPTION_DURATION, AT(wait), "30s", "a time", .min = 100, .max = OPTION_DAY},
    {"sub.deep.room", OPTION_SIZE, AT(room), "64KiB", "a size", .min = 1, .max = 1 << 30},
    {"colour", OPTION_ENUM, AT(colour), "green", "a | colour", .names = colours},
    {"name", OPTION_TEXT, AT(name), "bob", "a name", .min = 1, .max = 8, .check = lower_case},
    {"nothing", OPTION_TEXT, AT(nothing), OPTION_NONE, "may be left out", .max = 0},
    {"path", OPTION_PATH, AT(path), "/etc/x", "a -path\\", .max = 0},
    {"listen", OPTION_ADDRESS, AT(listen), "127.0.0.1:80", "an address", .max = 0},
    {"list", OPTION_TEXTS, AT(list), "[\"a\", \"b\"]", "texts", .max = 3, .check = lower_case},
    {"node", OPTION_NODE, AT(node), OPTION_NONE, "anything", .max = 0, .form = "a thing"},
};
enum { COUNT = sizeof table / sizeof *table };

static const struct option strict[] = {
    {"must", OPTION_INT, AT(number), NULL, "has to be there", .min = 0, .max = 9},
};

/* Keys that had other names: one within its section, one that changed its section, one of the root. */
static const struct option renamed[] = {
    {"size", OPTION_INT, AT(number), "1", "a number", .min = 0, .max = 9, .old = "number"},
    {"sub.wait", OPTION_DURATION, AT(wait), "30s", "a time", .min = 0, .max = OPTION_DAY, .old = "sub.pause"},
    {"sub.list", OPTION_TEXTS, AT(list), OPTION_NONE, "texts", .max = 3, .old = "past.texts"},
};
enum { RENAMED = sizeof renamed / sizeof *renamed };

static struct fail why;
static struct json *doc;

static bool read_text(const char *text, struct sample *out)
{
    memset(out, 0, sizeof *out);
    doc = json_parse(slice_text(text), "f", JSON_COMMENTS, (struct json_limits){4096, 10}, &why);
    return doc && options_read(doc, json_root(doc), table, COUNT, "/base", out, &why);
}

static void done(struct sample *out)
{
    options_free(table, COUNT, out);
    json_free(doc);
    doc = NULL;
}

static void an_empty_object_gives_every_default(void **state)
{
    (void)state;
    struct sample s;
    char text[NET_TEXT];
    assert_true(read_text("{}", &s));
    assert_true(s.on);
    assert_int_equal(s.number, -3);
    assert_int_equal(s.wait, 30000);
    assert_int_equal(s.room, 65536);
    assert_int_equal(s.colour, 1);
    assert_string_equal(s.name, "bob");
    assert_null(s.nothing);
    assert_string_equal(s.path, "/etc/x");
    assert_string_equal(net_text(&s.listen, text), "127.0.0.1:80");
    assert_int_equal(s.list.count, 2);
    assert_string_equal(s.list.at[1], "b");
    assert_null(s.node);
    done(&s);
}

static void values_of_the_file_win(void **state)
{
    (void)state;
    struct sample s;
    char text[NET_TEXT];
    assert_true(
        read_text("{\"on\": false, \"sub\": {\"number\": 1000, \"wait\": \"250ms\", \"deep\": {\"room\": "
                  "\"1GiB\"}}, // yes\n \"colour\":\"red\", \"name\":\"eve\", \"nothing\": \"\", \"path\": "
                  "\"a/b\", \"listen\": \"unix@/tmp/x\", \"list\": [], \"node\": [1]}",
                  &s));
    assert_false(s.on);
    assert_int_equal(s.number, 1000);
    assert_int_equal(s.wait, 250);
    assert_int_equal(s.room, 1 << 30);
    assert_int_equal(s.colour, 0);
    assert_string_equal(s.name, "eve");
    assert_string_equal(s.nothing, "");
    assert_string_equal(s.path, "/base/a/b");
    assert_string_equal(net_text(&s.listen, text), "unix@/tmp/x");
    assert_int_equal(s.list.count, 0);
    assert_non_null(s.list.at);
    assert_int_equal(json_count(s.node), 1);
    done(&s);
}

static void what_is_wrong_is_refused_with_its_position(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"[]", "f:1:1: an object is expected"},
        {"{\"sub\":\n {\"deep\": 1}}", "f:2:11: sub.deep: an object is expected"},
        {"{\"oops\": 1}", "f:1:2: unknown key oops"},
        {"{\n \"sub\": {\"oops\": 1}}", "f:2:10: unknown key sub.oops"},
        {"{\"sub.number\": 1}", "f:1:2: unknown key"},
        {"{\"\": 1}", "f:1:2: unknown key"},
        {"{\"su\": {}}", "f:1:2: unknown key su"},
        {"{\"on\": 1, \"on\": 2}", "f:1:11: duplicate key"},
        {"{\"on\": 1}", "f:1:8: on must be true or false"},
        {"{\"on\": \"true\"}", "f:1:8: on must be true or false"},
        {"{\"sub\": {\"number\": 1001}}", "f:1:20: sub.number must be an integer from -5 to 1000"},
        {"{\"sub\": {\"number\": -6}}", "f:1:20: sub.number must be an integer from -5 to 1000"},
        {"{\"sub\": {\"number\": 1.0}}", "f:1:20: sub.number must be an integer from -5 to 1000"},
        {"{\"sub\": {\"number\": \"1\"}}", "f:1:20: sub.number must be an integer from -5 to 1000"},
        {"{\"sub\": {\"wait\": 30}}", "f:1:18: sub.wait must be a duration from 100ms to 1d"},
        {"{\"sub\": {\"wait\": \"99ms\"}}", "f:1:18: sub.wait must be a duration from 100ms to 1d"},
        {"{\"sub\": {\"wait\": \"25h\"}}", "f:1:18: sub.wait must be a duration from 100ms to 1d"},
        {"{\"sub\": {\"deep\": {\"room\": \"2GiB\"}}}",
         "f:1:27: sub.deep.room must be a size from 1B to 1GiB"},
        {"{\"colour\": \"Red\"}", "f:1:12: colour must be \"red\" or \"green\""},
        {"{\"name\": \"\"}", "f:1:10: name must be a text of 1 to 8 bytes"},
        {"{\"name\": \"abcdefghi\"}", "f:1:10: name must be a text of 1 to 8 bytes"},
        {"{\"name\": \"Bob\"}", "f:1:10: name must be lower case"},
        {"{\"name\": null}", "f:1:10: name must be a text of 1 to 8 bytes"},
        {"{\"path\": \"\"}", "f:1:10: path must be a path"},
        {"{\"list\": \"a\"}", "f:1:10: list must be a list of 0 to 3 texts"},
        {"{\"list\": [\"a\", 1]}", "f:1:16: list must be a list of texts"},
        {"{\"list\": [\"a\", \"B\"]}", "f:1:16: list must be lower case"},
        {"{\"list\": [\"a\", \"b\", \"c\", \"d\"]}", "f:1:10: list must be a list of 0 to 3 texts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample s;
        assert_false(read_text(cases[i].text, &s));
        assert_string_equal(why.text, cases[i].why);
        done(&s);
    }
}

static void a_bad_address_is_refused_with_its_position(void **state)
{
    (void)state;
    struct sample s;
    assert_false(read_text("{\"listen\": \"nowhere\"}", &s));
    assert_int_equal(strncmp(why.text, "f:1:12: listen: ", 16), 0);
    done(&s);
}

static void a_required_key_must_be_there(void **state)
{
    (void)state;
    struct sample s = {0};
    doc = json_parse(SLICE_LITERAL(" {}"), "f", 0, (struct json_limits){10, 1}, &why);
    assert_false(options_read(doc, json_root(doc), strict, 1, NULL, &s, &why));
    assert_string_equal(why.text, "f:1:2: must is missing");
    json_free(doc);
}

static void durations_and_sizes_have_exact_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
    } times[] = {{"0s", 0},
                 {"7ms", 7},
                 {"2m", 120000},
                 {"1h", 3600000},
                 {"1d", 86400000},
                 {"", -1},
                 {"s", -1},
                 {"1", -1},
                 {"1 s", -1},
                 {"-1s", -1},
                 {"+1s", -1},
                 {"1S", -1},
                 {"1.5s", -1},
                 {"1s ", -1},
                 {"99999999999999999999s", -1},
                 {"9223372036854775807ms", INT64_MAX},
                 {"9223372036854775807s", -1}},
      sizes[] = {{"0B", 0},
                 {"1KiB", 1024},
                 {"3MiB", 3 << 20},
                 {"1GiB", 1 << 30},
                 {"1kB", -1},
                 {"1K", -1},
                 {"1", -1},
                 {"9223372036854775807B", INT64_MAX},
                 {"9007199254740992KiB", -1}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t value = -1;
        assert_int_equal(options_duration(slice_text(times[i].text), &value), times[i].value >= 0);
        assert_int_equal(value, times[i].value);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t value = -1;
        assert_int_equal(options_size(slice_text(sizes[i].text), &value), sizes[i].value >= 0);
        assert_int_equal(value, sizes[i].value);
    }
}

static void an_override_replaces_one_value(void **state)
{
    (void)state;
    struct sample s;
    assert_true(read_text("{\"name\": \"eve\"}", &s));
    static const char *const good[] = {
        "name=ann",       "sub.number=7", "sub.wait=1m",        "on=false",       "path=rel",
        "colour=\"red\"", "list=[\"z\"]", "sub.deep.room=2KiB", "listen=[::1]:9", "nothing=a=b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(options_override(table, COUNT, good[i], &s, &why));
    assert_string_equal(s.name, "ann");
    assert_int_equal(s.number, 7);
    assert_int_equal(s.wait, 60000);
    assert_false(s.on);
    assert_string_equal(s.path, "rel");
    assert_int_equal(s.colour, 0);
    assert_int_equal(s.list.count, 1);
    assert_string_equal(s.list.at[0], "z");
    assert_int_equal(s.room, 2048);
    assert_string_equal(s.nothing, "a=b");
    done(&s);
}

static void a_bad_override_names_the_option(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"name", "-o name: it must have the form key=value"},
        {"", "-o : it must have the form key=value"},
        {"oops=1", "-o oops: unknown key"},
        {"sub=1", "-o sub: unknown key"},
        {"node=1", "-o node: this key can only be set in the file"},
        {"sub.number=x", "-o sub.number: value:1:1: a value is expected"},
        {"sub.number=5000", "-o sub.number: value:1:1: sub.number must be an integer from -5 to 1000"},
        {"sub.wait=5", "-o sub.wait: sub.wait must be a duration from 100ms to 1d"},
        {"name=\"unclosed", "-o name: value:1:10: the document ends inside a string"},
    };
    struct sample s;
    assert_true(read_text("{}", &s));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(options_override(table, COUNT, cases[i].text, &s, &why));
        assert_string_equal(why.text, cases[i].why);
    }
    done(&s);
}

static bool read_renamed(const char *text, struct sample *out, struct texts *warnings)
{
    memset(out, 0, sizeof *out);
    *warnings = (struct texts){NULL, 0};
    doc = json_parse(slice_text(text), "f", 0, (struct json_limits){4096, 10}, &why);
    return doc && options_read(doc, json_root(doc), renamed, RENAMED, NULL, out, &why) &&
           options_warn_old(doc, json_root(doc), renamed, RENAMED, warnings, &why);
}

static void done_renamed(struct sample *out, struct texts *warnings)
{
    texts_free(warnings);
    options_free(renamed, RENAMED, out);
    json_free(doc);
    doc = NULL;
}

static void an_old_name_is_read_and_warned_of(void **state)
{
    (void)state;
    struct sample s;
    struct texts warnings;
    assert_true(read_renamed(
        "{\"number\": 7,\n \"sub\": {\"pause\": \"2s\"},\n \"past\": {\"texts\": [\"a\"]}}", &s, &warnings));
    assert_int_equal(s.number, 7);
    assert_int_equal(s.wait, 2000);
    assert_int_equal(s.list.count, 1);
    assert_int_equal(warnings.count, 3);
    assert_string_equal(warnings.at[0], "f:1:2: number is now called size");
    assert_string_equal(warnings.at[1], "f:2:10: sub.pause is now called sub.wait");
    assert_string_equal(warnings.at[2], "f:3:11: past.texts is now called sub.list");
    done_renamed(&s, &warnings);
    assert_true(read_renamed("{\"size\": 7, \"sub\": {\"wait\": \"2s\"}}", &s, &warnings));
    assert_int_equal(s.number, 7);
    assert_int_equal(warnings.count, 0);
    done_renamed(&s, &warnings);
}

static void an_old_name_beside_the_new_one_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{\"size\": 7,\n  \"number\": 8}",
         "f:2:3: number is the old name of size, which is given at 1:2 too"},
        {"{\"number\": 7,\n  \"size\": 7}", "f:2:3: size is given by its old name number at 1:2 too"},
        {"{\"sub\": {\"pause\": \"2s\", \"wait\": \"2s\"}}",
         "f:1:25: sub.wait is given by its old name sub.pause at 1:10 too"},
        {"{\"number\": 10}", "f:1:12: size must be an integer from 0 to 9"},
        {"{\"past\": {\"wait\": 1}}", "f:1:11: unknown key past.wait"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample s;
        struct texts warnings;
        assert_false(read_renamed(cases[i].text, &s, &warnings));
        assert_string_equal(why.text, cases[i].why);
        done_renamed(&s, &warnings);
    }
}

static void an_override_may_have_the_old_name(void **state)
{
    (void)state;
    struct sample s;
    struct texts warnings;
    assert_true(read_renamed("{\"number\": 7}", &s, &warnings));
    assert_true(options_override(renamed, RENAMED, "number=8", &s, &why));
    assert_int_equal(s.number, 8);
    assert_ptr_equal(options_find(renamed, RENAMED, SLICE_LITERAL("number")), renamed);
    assert_ptr_equal(options_find(renamed, RENAMED, SLICE_LITERAL("size")), renamed);
    assert_null(options_find(renamed, RENAMED, SLICE_LITERAL("numbe")));
    done_renamed(&s, &warnings);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    const char *text = "{\"name\":\"eve\",\"path\":\"x\",\"list\":[\"a\",\"b\"]}";
    doc = json_parse(slice_text(text), "f", 0, (struct json_limits){4096, 10}, &why);
    unsigned n = 1;
    for (bool good = false; !good; n++) {
        struct sample s = {0};
        alloc_fail_at(n);
        good = options_read(doc, json_root(doc), table, COUNT, "/b", &s, &why);
        alloc_fail_at(0);
        options_free(table, COUNT, &s);
        assert_true(n < 50);
    }
    assert_true(n > 3);
    done(&(struct sample){0});
    n = 1;
    for (bool good = false; !good; n++) {
        struct sample s;
        struct texts warnings;
        assert_true(read_renamed("{\"number\": 7}", &s, &warnings));
        texts_free(&warnings);
        alloc_fail_at(n);
        good = options_warn_old(doc, json_root(doc), renamed, RENAMED, &warnings, &why);
        alloc_fail_at(0);
        done_renamed(&s, &warnings);
        assert_true(n < 50);
    }
    assert_true(n > 2);
}

static void the_table_is_written_for_people(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    options_help(to, strict, 1);
    options_help(to, renamed, 1);
    options_manual(to, table + 7, 1);
    options_manual(to, renamed, 1);
    fclose(to);
    assert_non_null(
        strstr(text, "  must\n      has to be there (an integer from 0 to 9; default: required)\n"));
    assert_non_null(strstr(text, ".TP\n.B path\na \\-path\\e;\na path, default: /etc/x.\n"));
    assert_non_null(
        strstr(text, "  size\n      a number (an integer from 0 to 9; default: 1; was `number`)\n"));
    assert_non_null(strstr(text, "an integer from 0 to 9, default: 1; was number.\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_object_gives_every_default),
        cmocka_unit_test(values_of_the_file_win),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_position),
        cmocka_unit_test(a_bad_address_is_refused_with_its_position),
        cmocka_unit_test(a_required_key_must_be_there),
        cmocka_unit_test(durations_and_sizes_have_exact_forms),
        cmocka_unit_test(an_override_replaces_one_value),
        cmocka_unit_test(a_bad_override_names_the_option),
        cmocka_unit_test(an_old_name_is_read_and_warned_of),
        cmocka_unit_test(an_old_name_beside_the_new_one_is_refused),
        cmocka_unit_test(an_override_may_have_the_old_name),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(the_table_is_written_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
