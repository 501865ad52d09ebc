/* SPDX-License-Identifier: MIT */
/* cellgate status, tunnels, kick, drain: what the daemons on this machine do, over their control sockets. */
#include <stdio.h>
#include <string.h>

#include "spoa/base/json_string.h"
#include "spoa/base/json_write.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/ctl.h"
#include "spoa/service/control.h"
#include "spoa/service/settings.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, ANSWER_MAX = 64 << 20 };
#define PATIENCE 10.0 /* seconds */

static const char usage[] =
    "usage: cellgate status  [--config FILE | --agent ADDRESS --relay ADDRESS] [--json]\n"
    "       cellgate tunnels [--config FILE | --relay ADDRESS] [--sandbox ID] [--json]\n"
    "       cellgate kick ID [--config FILE | --relay ADDRESS]\n"
    "       cellgate drain   [--config FILE | --relay ADDRESS]\n"
    "\n"
    "status   what the agent and the relay of this machine are doing\n"
    "tunnels  the open tunnels: id, state, route, sandbox, worker, age, bytes, redials\n"
    "kick     closes one tunnel; its client is told 1008 `closed by the operator`\n"
    "drain    the relay takes no new tunnels and closes those it has, spread over relay.drain, then exits\n"
    "\n"
    "  --config FILE   where the sockets are; default " SETTINGS_PATH "\n"
    "  --agent, --relay ADDRESS   of a control socket, as unix@/run/cellgate/relay.control.sock\n"
    "\n"
    "Exit code: 0 done; 1 a daemon does not answer or refuses; 2 wrong usage.\n";

struct arguments {
    const char *config, *agent, *relay, *sandbox, *id;
    bool json, help;
};

static bool take_any(char ***argv, struct arguments *a)
{
    return argument_take(argv, "--config", &a->config) || argument_take(argv, "--agent", &a->agent) ||
           argument_take(argv, "--relay", &a->relay) || argument_take(argv, "--sandbox", &a->sandbox) ||
           argument_flag(argv, "--json", &a->json) || argument_flag(argv, "--help", &a->help) ||
           argument_flag(argv, "-h", &a->help);
}

/* False: the command is to leave with *exit_code. */
static bool read_arguments(char **argv, bool wants_id, struct arguments *a, int *exit_code)
{
    const char *command = *argv++;
    *a = (struct arguments){.config = NULL};
    while (*argv && !a->help) {
        if (take_any(&argv, a))
            continue;
        if (!wants_id || a->id || **argv == '-')
            break;
        a->id = *argv++;
    }
    if (!a->help && !*argv && (!wants_id || a->id)) {
        a->config = a->config ? a->config : SETTINGS_PATH;
        return true;
    }
    if (!a->help && *argv)
        fprintf(stderr, "cellgate %s: %s is not understood, lacks its value or is given twice\n", command, *argv);
    else if (!a->help)
        fprintf(stderr, "cellgate %s: the tunnel's ID is missing\n", command);
    fputs(usage, a->help ? stdout : stderr);
    *exit_code = a->help ? 0 : EXIT_USAGE;
    return false;
}

/* ---- what daemons say ---- */

/* C0, DEL and C1, which is two bytes of UTF-8: what a terminal would obey. */
static bool is_control(struct slice character)
{
    uint8_t first = character.at[0];
    return first < ' ' || first == 0x7f || (character.len == 2 && first == 0xc2 && character.at[1] < 0xa0);
}

/* A worker or a client may have chosen a part of the text: what is no character that can be seen is a '?'. */
static void put(FILE *to, struct slice text)
{
    while (text.len) {
        size_t len = text.at[0] < 0x80 ? 1 : json_string_utf8(text);
        struct slice character = slice_sub(text, 0, len ? len : 1);
        if (len && !is_control(character))
            fwrite(character.at, 1, len, to);
        else
            fputc('?', to);
        text = slice_from(text, character.len);
    }
}

/* Of a document that was parsed: these can be raw in it, within texts only. C0 cannot. */
static void put_json(struct slice document)
{
    for (size_t i = 0; i < document.len; i++) {
        struct slice pair = slice_sub(document, i, 2);
        if (pair.at[0] == 0x7f || (pair.at[0] == 0xc2 && is_control(pair)))
            printf("\\u%04x", pair.at[0] == 0x7f ? 0x7f : document.at[++i]);
        else
            putchar(pair.at[0]);
    }
    putchar('\n');
}

static void put_wide(struct slice text, size_t width)
{
    put(stdout, text);
    for (size_t i = text.len; i < width; i++)
        putchar(' ');
}

/* ---- asking ---- */

enum daemon { AGENT, RELAY };

static bool find_socket(const struct arguments *a, enum daemon daemon, struct net_address *address,
                        struct fail *why)
{
    const char *given = daemon == AGENT ? a->agent : a->relay;
    if (given)
        return net_parse(slice_text(given), address, why);
    struct settings *settings = settings_load(a->config, NULL, 0, why);
    if (!settings)
        return false;
    *address = daemon == AGENT ? settings->agent.control : settings->relay.control;
    settings_free(settings);
    return true;
}

/* The answer's document, or NULL when it says `"ok": false`, which is printed. */
static struct json *ask(const struct arguments *a, enum daemon daemon, struct slice request)
{
    struct net_address address;
    struct fail why;
    struct buffer answer = buffer_with_limit(ANSWER_MAX);
    struct json *doc = NULL;
    struct slice error;
    bool ok = false;
    if (find_socket(a, daemon, &address, &why) && control_ask(&address, request, PATIENCE, &answer, &why))
        doc = json_parse(buffer_slice(&answer), "answer", 0, (struct json_limits){ANSWER_MAX, 8}, &why);
    if (doc && (!json_bool(json_member(json_root(doc), "ok"), &ok) || !ok)) {
        bool said = json_text(json_member(json_root(doc), "error"), &error);
        fail(&why, "%.*s", SLICE_PRINTF(said ? error : SLICE_LITERAL("refused")));
    }
    if (!ok) {
        fprintf(stderr, "cellgate: the %s: ", daemon == AGENT ? "agent" : "relay");
        put(stderr, slice_text(why.text));
        fputc('\n', stderr);
        json_free(doc);
        doc = NULL;
    }
    if (doc && a->json)
        put_json(buffer_slice(&answer));
    buffer_free(&answer);
    return doc;
}

static struct json *ask_with(const struct arguments *a, const char *command, const char *key,
                             const char *value)
{
    struct buffer request = buffer_with_limit(CONTROL_REQUEST_MAX);
    struct json *doc = NULL;
    bool fits =
        json_write(&request, "{\"command\":\"%s\"", command) &&
        (!value || (json_write(&request, ",\"%s\":", key) && json_write_text(&request, slice_text(value)))) &&
        json_write(&request, "}");
    if (fits)
        doc = ask(a, RELAY, buffer_slice(&request));
    else
        fprintf(stderr, "cellgate: the argument is too long\n");
    buffer_free(&request);
    return doc;
}

/* ---- showing ---- */

static void print_value(const struct json *doc, const json_node *value, size_t width)
{
    struct slice text;
    int64_t number;
    double real;
    bool truth;
    char shown[32] = "-";
    if (json_text(value, &text) && text.len) {
        put_wide(text, width);
        return;
    }
    if (json_int(doc, value, INT64_MIN, INT64_MAX, &number))
        snprintf(shown, sizeof shown, "%lld", (long long)number);
    else if (json_bool(value, &truth))
        snprintf(shown, sizeof shown, "%s", truth ? "yes" : "no");
    else if (json_real(value, &real))
        snprintf(shown, sizeof shown, "%.3f", real);
    put_wide(slice_text(shown), width);
}

static void print_tunnels(const struct json *doc)
{
    static const struct {
        const char *key;
        size_t width;
    } columns[] = {{"id", 11},  {"state", 10},     {"route", 17},     {"sandbox", 17}, {"worker", 23},
                   {"age", 10}, {"to_worker", 11}, {"to_client", 11}, {"redials", 8}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    for (size_t i = 0; i < COLUMNS; i++)
        printf("%s%-*s", i ? " " : "", (int)columns[i].width, columns[i].key);
    putchar('\n');
    for (const json_node *t = json_first(json_member(json_root(doc), "tunnels")); t; t = json_next(t)) {
        for (size_t i = 0; i < COLUMNS; i++) {
            fputs(i ? " " : "", stdout);
            print_value(doc, json_member(t, columns[i].key), columns[i].width);
        }
        putchar('\n');
    }
}

/* Members of an object, those of objects within it as `object.member`; lists are for programs. */
static void print_members(const struct json *doc, const json_node *object, const char *within)
{
    for (const json_node *n = json_first(object); n; n = json_next(n)) {
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", within, *within ? "." : "", json_key(n));
        if (json_is_object(n))
            print_members(doc, n, name);
        if (json_is_object(n) || json_is_array(n))
            continue;
        fputs("  ", stdout);
        put_wide(slice_text(name), 22);
        print_value(doc, n, 0);
        putchar('\n');
    }
}

static void print_status(const char *daemon, const struct json *doc)
{
    printf("%s\n", daemon);
    print_members(doc, json_member(json_root(doc), "status"), "");
}

/* ---- the commands ---- */

int ctl_status(int argc, char **argv)
{
    struct arguments a;
    int code = 0;
    (void)argc;
    if (!read_arguments(argv, false, &a, &code))
        return code;
    for (enum daemon daemon = AGENT; daemon <= RELAY; daemon++) {
        struct json *doc = ask(&a, daemon, SLICE_LITERAL("{\"command\":\"status\"}"));
        if (!doc)
            code = EXIT_FAILED;
        else if (!a.json)
            print_status(daemon == AGENT ? "agent" : "relay", doc);
        json_free(doc);
    }
    return code;
}

int ctl_tunnels(int argc, char **argv)
{
    struct arguments a;
    int code;
    (void)argc;
    if (!read_arguments(argv, false, &a, &code))
        return code;
    struct json *doc = ask_with(&a, "list", "sandbox", a.sandbox);
    if (doc && !a.json)
        print_tunnels(doc);
    code = doc ? 0 : EXIT_FAILED;
    json_free(doc);
    return code;
}

static int simple(char **argv, const char *command, bool wants_id, const char *done)
{
    struct arguments a;
    int code;
    if (!read_arguments(argv, wants_id, &a, &code))
        return code;
    struct json *doc = ask_with(&a, command, "id", a.id);
    if (doc && !a.json)
        puts(done);
    code = doc ? 0 : EXIT_FAILED;
    json_free(doc);
    return code;
}

int ctl_kick(int argc, char **argv)
{
    (void)argc;
    return simple(argv, "kick", true, "closed");
}

int ctl_drain(int argc, char **argv)
{
    (void)argc;
    return simple(argv, "drain", false, "draining");
}
