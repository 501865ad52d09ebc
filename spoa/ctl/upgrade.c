/* SPDX-License-Identifier: MIT */
/* cellgate upgrade: lets the relay's keeper replace the program under open sockets, and waits until the new one serves. */
#include <poll.h>
#include <stdio.h>

#include "spoa/ctl/arguments.h"
#include "spoa/ctl/ctl.h"
#include "spoa/ctl/daemons.h"
#include "spoa/net/loop.h"
#include "spoa/service/settings.h"

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, STEP = 20 /* ms */ };
#define PATIENCE   (2 * SECOND)  /* longest wait for one answer */
#define UNANSWERED (30 * SECOND) /* longest time without an answer while the relay's program is replaced */

static const char usage[] =
    "usage: cellgate upgrade [--config FILE | --relay ADDRESS] [--same]\n"
    "\n"
    "The relay becomes the program that is installed at its path. Its sockets stay open.\n"
    "\n"
    "  --same          the program that runs, to apply what is read at the start alone\n"
    "  --config FILE   where the socket is; default " SETTINGS_PATH "\n"
    "  --relay ADDRESS of the control socket, as unix@/run/cellgate/relay.control.sock\n"
    "\n"
    "Exit code: 0 the new program serves; 1 the old one goes on, and why; 2 wrong usage.\n";

/* State of the keeper, as reported by the relay. */
struct keeper_state {
    int64_t upgraded, refused;
    char version[32], why[256];
};

static void copy_text(const struct json *doc, const char *key, char *to, size_t size)
{
    struct slice text;

    if (!json_text(json_member(json_root(doc), key), &text))
        text = SLICE_LITERAL("");
    snprintf(to, size, "%.*s", (int)text.len, (const char *)text.at);
}

static bool ask(const struct net_address *relay, const char *request, struct keeper_state *state,
                struct fail *why)
{
    struct buffer answer = buffer_with_limit(0);
    struct json *doc = daemon_ask(DAEMON_RELAY, relay, slice_text(request), PATIENCE, &answer, why);

    if (doc && state) {
        const json_node *root = json_root(doc);
        state->upgraded = state->refused = 0;
        (void)json_int(doc, json_member(root, "upgraded"), 0, INT64_MAX, &state->upgraded);
        (void)json_int(doc, json_member(root, "refused"), 0, INT64_MAX, &state->refused);
        copy_text(doc, "version", state->version, sizeof state->version);
        copy_text(doc, "why", state->why, sizeof state->why);
    }
    json_free(doc);
    buffer_free(&answer);
    return doc != NULL;
}

/* Waits until the keeper has upgraded or refused, and prints the result. */
static int await(const struct net_address *relay, const struct keeper_state *before)
{
    uint64_t answered = loop_clock();
    struct keeper_state now;
    struct fail why;

    while (loop_clock() - answered < UNANSWERED) {
        if (ask(relay, "{\"command\":\"keeper\"}", &now, &why)) {
            if (now.upgraded > before->upgraded) {
                printf("upgraded: %s\n", now.version);
                return 0;
            }
            if (now.refused > before->refused) {
                fputs("cellgate upgrade: the old program goes on: ", stderr);
                daemon_put_text(stderr, slice_text(now.why));
                fputc('\n', stderr);
                return EXIT_REFUSED;
            }
            answered = loop_clock();
        }
        (void)poll(NULL, 0, STEP);
    }
    fprintf(stderr, "cellgate upgrade: the relay does not answer any more: %s\n", why.text);
    return EXIT_REFUSED;
}

static int upgrade(const char *given, const char *config, bool same)
{
    struct net_address relay;
    struct keeper_state before;
    struct fail why;

    if (daemon_address(DAEMON_RELAY, given, config, &relay, &why) &&
        ask(&relay, "{\"command\":\"keeper\"}", &before, &why) &&
        ask(&relay, same ? "{\"command\":\"upgrade\",\"same\":true}" : "{\"command\":\"upgrade\"}", NULL,
            &why))
        return await(&relay, &before);
    fputs("cellgate upgrade: the relay: ", stderr);
    daemon_put_text(stderr, slice_text(why.text));
    fputc('\n', stderr);
    return EXIT_REFUSED;
}

int ctl_upgrade(int argc, char **argv)
{
    const char *config = NULL, *relay = NULL;
    bool same = false, help = false;
    (void)argc;

    for (argv++; *argv && !help;)
        if (!argument_take(&argv, "--config", &config) && !argument_take(&argv, "--relay", &relay) &&
            !argument_flag(&argv, "--same", &same) && !argument_flag(&argv, "--help", &help) &&
            !argument_flag(&argv, "-h", &help)) {
            fprintf(stderr, "cellgate upgrade: %s is not understood, lacks its value or is given twice\n%s",
                    *argv, usage);
            return EXIT_USAGE;
        }
    if (!help)
        return upgrade(relay, config ? config : SETTINGS_PATH, same);
    fputs(usage, stdout);
    return 0;
}
