/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/os/file.h"
#include "spoa/ctl/ctl.h"

#define EXIT_USAGE 2
#define EXIT_LOST  255 /* as ssh */
#define TOKEN_MAX  8192
#define PROGRAM    "cellgate attach"

static const char usage[] =
    "Usage: cellgate attach [--token-file FILE] [--ca FILE | --insecure] URL\n"
    "Connects this terminal to a terminal behind a gate, over ws:// or wss://.\n"
    "\n"
    "  --token-file FILE  the capability token; else the environment's CELLGATE_TOKEN;\n"
    "                     else the URL's query has it, or none is needed\n"
    "  --ca FILE          trust the certificates in FILE (PEM) instead of the system's\n"
    "  --insecure         do not verify the gate's certificate\n"
    "\n"
    "After a line's end ~. leaves (the session goes on), ~? helps. The exit code is the remote's,\n"
    "or 255 when the session could not be opened or was lost. When standard input is not a\n"
    "terminal, its end is typed as Ctrl-D, and again while the other side is quiet.\n";

struct options {
    const char *url, *token_file;
    struct attach_trust trust;
};

static bool parse_options(struct options *options, int argc, char **argv, int *code)
{
    static const struct option table[] = {
        {"token-file", required_argument, NULL, 't'},
        {"ca", required_argument, NULL, 'c'},
        {"insecure", no_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };

    *code = EXIT_USAGE;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "h", table, NULL)) != -1;)
        if ((option == 't' && options->token_file) || (option == 'c' && options->trust.ca_file)) {
            fputs(PROGRAM ": --token-file or --ca is given twice\n", stderr);
            return false;
        } else if (option == 't') {
            options->token_file = optarg;
        } else if (option == 'c') {
            options->trust.ca_file = optarg;
        } else if (option == 'i') {
            options->trust.insecure = true;
        } else {
            fputs(usage, option == 'h' ? stdout : stderr);
            *code = option == 'h' ? 0 : EXIT_USAGE;
            return false;
        }
    if (optind + 1 == argc) {
        options->url = argv[optind];
        return true;
    }
    fprintf(stderr, PROGRAM ": %s\n", optind < argc ? "there is more than one URL" : "the URL is missing");
    fputs(usage, stderr);
    return false;
}

void attach_printable(char *to, size_t size, struct slice text)
{
    size_t len = text.len < size - 1 ? text.len : size - 1;

    for (size_t i = 0; i < len; i++) {
        bool plain = text.at[i] >= 0x20 && text.at[i] < 0x7f;
        to[i] = (char)(plain ? text.at[i] : '?');
    }
    to[len] = '\0';
}

/* ---- token ---- */

static struct slice trim_line_end(struct slice s)
{
    while (s.len > 0 && (s.at[s.len - 1] == '\n' || s.at[s.len - 1] == '\r'))
        s.len--;
    return slice_trim(s);
}

static bool token_fits_a_header(struct slice token)
{
    for (size_t i = 0; i < token.len; i++)
        if (token.at[i] <= 0x20 || token.at[i] >= 0x7f)
            return false;
    return token.len > 0 && token.len <= TOKEN_MAX;
}

/* Finds the token. `*token` is absent if there is none; the caller frees `*owned` with file_free. */
static bool find_token(const struct options *options, struct slice *token, struct slice *owned,
                       struct fail *why)
{
    *owned = (struct slice){NULL, 0};
    if (options->token_file && !file_read_stream(options->token_file, TOKEN_MAX + 2, owned, why))
        return false;
    *token = options->token_file ? trim_line_end(*owned) : slice_text(getenv("CELLGATE_TOKEN"));
    if (slice_present(*token) && !token_fits_a_header(*token))
        return fail(why, "the token in %s is empty, too long or not one word",
                    options->token_file ? options->token_file : "CELLGATE_TOKEN");
    return true;
}

/* ---- the end ---- */

static void tell_close(const struct attach_end *end)
{
    if (end->closed && end->close_code == 1005)
        fputs(" (closed without a code)", stderr);
    else if (end->closed)
        fprintf(stderr, " (closed with %u%s%s)", end->close_code, *end->close_reason ? " " : "",
                end->close_reason);
    fputc('\n', stderr);
}

/* Returns false for a terminal that is paused, to which a write would block. */
static bool takes_words(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    return poll(&one, 1, 0) > 0;
}

static int tell_end(const struct attach_end *end)
{
    if (end->signal) {
        if (takes_words(STDERR_FILENO))
            fprintf(stderr, PROGRAM ": ended by signal %d\n", end->signal);
        return 128 + end->signal;
    }
    if (end->exited) {
        fprintf(stderr, PROGRAM ": session ended with exit code %d", end->exit_code);
        tell_close(end);
        return end->exit_code & 0xff;
    }
    if (end->left) {
        fprintf(stderr, PROGRAM ": left\n");
        return 0;
    }
    if (end->lost) {
        fprintf(stderr, PROGRAM ": %s\n", end->lost);
        return EXIT_LOST;
    }
    fputs(PROGRAM ": session ended", stderr);
    tell_close(end);
    return end->close_code == 1000 ? 0 : EXIT_LOST;
}

static bool attach(const struct options *options, struct slice token, struct attach_end *end,
                   struct fail *why)
{
    struct attach_url url;
    struct buffer input = {0};
    struct attach_wire *wire = NULL;

    bool opened = attach_url_parse(&url, options->url, why) &&
                  (wire = attach_wire_dial(&url, &options->trust, why)) &&
                  attach_open(wire, &url, token, &input, why);
    if (opened) {
        struct attach_screen screen = attach_screen_open();
        attach_session(wire, &screen, &input, end);
        attach_screen_close(&screen);
    }
    buffer_free(&input);
    attach_wire_free(wire);
    return opened;
}

int ctl_attach(int argc, char **argv)
{
    struct options options = {0};
    struct attach_end end;
    struct slice token, owned;
    struct fail why = {.text = ""};
    int code;

    if (!parse_options(&options, argc, argv, &code))
        return code;
    signal(SIGPIPE, SIG_IGN);
    bool done = find_token(&options, &token, &owned, &why) && attach(&options, token, &end, &why);
    file_free(owned);
    if (done)
        return tell_end(&end);
    fprintf(stderr, PROGRAM ": %s\n", why.text);
    return EXIT_LOST;
}
