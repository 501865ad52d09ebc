/* SPDX-License-Identifier: MIT */
/* cellgate status, tunnels, kick and drain: query and control the daemons of this machine over their control sockets. */
#include <stdio.h>
#include <string.h>

#include "spoa/base/json/json_write.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/ctl.h"
#include "spoa/ctl/daemons.h"
#include "spoa/service/control.h"
#include "spoa/service/settings.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_READY = 3 };
#define PATIENCE        (10 * SECOND)
#define STATUS_PATIENCE (2 * SECOND) /* short, because liveness checks must not wait */

static const char usage[] =
    "usage: cellgate status  [--config FILE | --agent ADDRESS --relay ADDRESS] [--json]\n"
    "       cellgate tunnels [--config FILE | --relay ADDRESS] [--sandbox ID] [--json]\n"
    "       cellgate kick ID [--config FILE | --relay ADDRESS]\n"
    "       cellgate drain   [--config FILE | --relay ADDRESS]\n"
    "\n"
    "status   what the agent and the relay of this machine are doing\n"
    "tunnels  the open tunnels: id, state, route, sandbox, worker, age, bytes, redials\n"
    "kick     closes one tunnel; its client gets 1008 `closed by the operator`\n"
    "drain    the relay takes no new tunnels and closes those it has, spread over relay.drain, then exits\n"
    "\n"
    "  --config FILE   where the sockets are; default " SETTINGS_PATH "\n"
    "  --agent, --relay ADDRESS   of a control socket, as unix@/run/cellgate/relay.control.sock\n"
    "\n"
    "Exit code: 0 done; 1 a daemon does not answer (status waits 2 s for each, the others 10 s) or refuses;\n"
    "2 wrong usage; 3 (status) one is not ready: it drains, or its directory is not loaded.\n";

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

/* Reads the arguments. Returns false if the command must exit with *exit_code. */
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
        fprintf(stderr, "cellgate %s: %s is not understood, lacks its value or is given twice\n", command,
                *argv);
    else if (!a->help)
        fprintf(stderr, "cellgate %s: the tunnel's ID is missing\n", command);
    fputs(usage, a->help ? stdout : stderr);
    *exit_code = a->help ? 0 : EXIT_USAGE;
    return false;
}

/* ---- asking ---- */

/* Returns the answer's document, or NULL after printing an answer with `"ok": false`. */
static struct json *ask(const struct arguments *a, enum daemon daemon, struct slice request,
                        uint64_t patience)
{
    struct net_address address;
    struct fail why;
    struct buffer answer = buffer_with_limit(0);
    struct json *doc = NULL;
    const char *given = daemon == DAEMON_AGENT ? a->agent : a->relay;
    if (daemon_address(daemon, given, a->config, &address, &why))
        doc = daemon_ask(daemon, &address, request, patience, &answer, &why);
    if (!doc) {
        fprintf(stderr, "cellgate: the %s: ", daemon_name(daemon));
        daemon_put_text(stderr, slice_text(why.text));
        fputc('\n', stderr);
    }
    if (doc && a->json)
        daemon_put_json(stdout, buffer_slice(&answer));
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
        doc = ask(a, DAEMON_RELAY, buffer_slice(&request), PATIENCE);
    else
        fprintf(stderr, "cellgate: the argument is too long\n");
    buffer_free(&request);
    return doc;
}

/* ---- showing ---- */

static void put_wide(struct slice text, size_t width)
{
    daemon_put_text(stdout, text);
    for (size_t i = text.len; i < width; i++)
        putchar(' ');
}

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

/* Prints the members of an object, and those of nested objects as `object.member`. Lists are only for programs (JSON). */
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

static bool is_ready(const struct json *doc)
{
    struct slice state;
    return json_text(json_member(json_member(json_root(doc), "status"), "state"), &state) &&
           slice_is(state, "ready");
}

int ctl_status(int argc, char **argv)
{
    struct arguments a;
    int code = 0;
    (void)argc;
    if (!read_arguments(argv, false, &a, &code))
        return code;
    for (enum daemon daemon = DAEMON_AGENT; daemon <= DAEMON_RELAY; daemon++) {
        struct json *doc = ask(&a, daemon, SLICE_LITERAL("{\"command\":\"status\"}"), STATUS_PATIENCE);
        if (!doc)
            code = EXIT_FAILED;
        else if (!is_ready(doc) && code == 0)
            code = EXIT_NOT_READY;
        if (doc && !a.json)
            print_status(daemon_name(daemon), doc);
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
