/* SPDX-License-Identifier: MIT */
/* The command `cellgate token`: makes a capability token, or says what one grants. No part of the daemons: it asks
 * spoa/agent/token as they do. */
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/token/check.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/credential.h"
#include "spoa/ctl/ctl.h"
#include "spoa/service/settings.h"

#define EXIT_REFUSED 1
#define EXIT_USAGE   2
#define PORTS_MOST   64
#define LABEL_MOST   63
#define PROGRAM      "cellgate token"

static const char usage[] =
    "Usage: cellgate token [--config FILE] --sandbox ID [--need WORDS] [--port NUMBERS] [--org ID]\n"
    "                      [--ttl TIME] [--kind KIND] [--kid KID] [--download FILE | --upload FILE]\n"
    "       cellgate token [--config FILE] --inspect TOKEN [--sandbox ID [--need WORDS] [--port NUMBER]]\n"
    "                      [--org ID]\n"
    "Makes a capability token with a key of the configuration, or says what a token grants, until when,\n"
    "and why it would be refused (there, if they are named).\n"
    "\n"
    "  --config FILE   default " SETTINGS_PATH "\n"
    "  --sandbox ID    the sandbox; '*' with --org: any of the organisation\n"
    "  --need WORDS    of pty, exec, agent, http, mux, egress, with commas between, or several times; "
    "default\n"
    "                  all but egress\n"
    "  --port NUMBERS  the sandbox's ports, likewise; default all\n"
    "  --org ID        the organisation, which must be that of the sandbox's record\n"
    "  --ttl TIME      how long it is good, as 90s or 10m; default 120s, at most the key's max_ttl\n"
    "  --kind KIND     of the entry of `tokens`; static makes a new secret for a record\n"
    "  --kid KID       of the entry; default the first that can make what is asked for\n"
    "  --download FILE, --upload FILE: a signed URL for it in the sandbox\n"
    "  --inspect TOKEN a token, a signed label or path, or a signed file URL; '-' reads it from standard\n"
    "                  input: arguments can be seen with ps\n"
    "\n"
    "Exit code: 0 made, or good; 1 could not be made, or would be refused; 2 wrong usage.\n";

struct arguments {
    const char *config, *sandbox, *org, *ttl, *kind, *kid, *download, *upload, *inspect;
    struct argument_texts need, port;
};

/* The parsed arguments. */
struct wanted {
    struct grant grant; /* grant; its ports point into `ports` */
    struct token_target target;
    int64_t ttl; /* seconds */
    uint8_t ports[2 * PORTS_MOST];
};

/* ---- the arguments ---- */

static bool take_any(char ***argv, struct arguments *a)
{
    return argument_take(argv, "--config", &a->config) || argument_take(argv, "--sandbox", &a->sandbox) ||
           argument_add(argv, "--need", &a->need) || argument_add(argv, "--port", &a->port) ||
           argument_take(argv, "--org", &a->org) || argument_take(argv, "--ttl", &a->ttl) ||
           argument_take(argv, "--kind", &a->kind) || argument_take(argv, "--kid", &a->kid) ||
           argument_take(argv, "--download", &a->download) || argument_take(argv, "--upload", &a->upload) ||
           argument_take(argv, "--inspect", &a->inspect);
}

static bool read_needs(const struct argument_texts *texts, struct wanted *wanted, struct fail *why)
{
    wanted->grant.needs = texts->count ? 0 : NEED_UNSAID;
    for (size_t i = 0; i < texts->count; i++) {
        struct slice rest = slice_text(texts->at[i]), word;
        while (slice_split(&rest, ',', &word)) {
            if (!need_of(word))
                return fail(why, "--need: \"%.*s\" is none of pty, exec, agent, http, mux, egress",
                            SLICE_PRINTF(word));
            wanted->grant.needs |= need_of(word);
        }
    }
    wanted->target.need = texts->count ? wanted->grant.needs : 0;
    return true;
}

static bool read_ports(const struct argument_texts *texts, struct wanted *wanted, struct fail *why)
{
    struct writer packed = writer_of(wanted->ports, sizeof(wanted->ports));
    uint64_t port;
    for (size_t i = 0; i < texts->count; i++) {
        struct slice rest = slice_text(texts->at[i]), word;
        while (slice_split(&rest, ',', &word)) {
            if (!slice_u64(word, 65535, &port) || port == 0)
                return fail(why, "--port: \"%.*s\" is not a port", SLICE_PRINTF(word));
            grant_put_port(&packed, (uint16_t)port);
            wanted->target.port = (uint16_t)port;
        }
    }
    if (texts->count)
        wanted->grant.ports = writer_slice(&packed);
    return !packed.full || fail(why, "--port: at most %d ports", PORTS_MOST);
}

static bool understand(const struct arguments *a, struct wanted *wanted, struct fail *why)
{
    int64_t milliseconds;
    if (!options_duration(slice_text(a->ttl ? a->ttl : "120s"), &milliseconds) ||
        milliseconds < OPTION_SECOND)
        return fail(why, "--ttl: a time of at least a second, as 90s or 10m");
    wanted->ttl = milliseconds / OPTION_SECOND;
    wanted->grant.sandbox = wanted->target.sandbox = slice_text(a->sandbox);
    wanted->grant.org = slice_text(a->org);
    if (a->download || a->upload) {
        wanted->grant.file = slice_text(a->download ? a->download : a->upload);
        wanted->grant.operation = a->download ? "download" : "upload";
    }
    if (a->download && a->upload)
        return fail(why, "--download and --upload need a URL each");
    if (!a->inspect && !a->sandbox)
        return fail(why, "--sandbox is missing");
    if (a->sandbox && strcmp(a->sandbox, "*") == 0 && !a->org)
        return fail(why, "any sandbox is possible only with --org");
    return read_needs(&a->need, wanted, why) && read_ports(&a->port, wanted, why);
}

/* ---- making one ---- */

static const struct credential_place anywhere;

/* Checks the credential at each place where a kind of token that knows it may listen, because a secret may be accepted in a header only. */
static enum refusal check_anywhere(const struct tokens *tokens, struct credential *credential, int64_t now,
                                   struct token_cache *cache, struct grant *grant, const char **reason)
{
    enum refusal refusal = token_check(tokens, credential, now, cache, grant, reason);
    struct credential other = *credential;
    unsigned count = SOURCE_COUNT + (unsigned)tokens_own(tokens)->count;
    for (unsigned c = SOURCE_NONE + 1; refusal == REFUSAL_token_invalid && c < count; c++) {
        struct grant granted;
        const char *why;
        if (!(tokens_sources(tokens, &anywhere) & 1u << c) || 1u << c & SOURCES_SIGNED)
            continue;
        other.source = c;
        enum refusal again = token_check(tokens, &other, now, cache, &granted, &why);
        /* another entry of the same kind may listen elsewhere; its verdict counts if it accepts the credential */
        if (grant->kind && (granted.kind != grant->kind || again == REFUSAL_token_invalid))
            continue;
        *credential = other;
        *grant = granted;
        *reason = why;
        refusal = again;
    }
    return refusal;
}

static enum refusal check_text(const struct tokens *tokens, struct slice text, int64_t now,
                               struct token_cache *cache, struct writer *scratch, struct grant *grant,
                               const char **reason)
{
    struct credential credential;
    *grant = (struct grant){.kind = NULL};
    *reason = "a signed URL has path, expires and signature";
    if (!credential_from_text(text, tokens_sources(tokens, &anywhere), scratch, &credential))
        return REFUSAL_bad_request;
    return check_anywhere(tokens, &credential, now, cache, grant, reason);
}

/* Returns the name of the kind whose tokens have this form, of which there is one. */
static const char *kind_of_form(enum token_form form)
{
    size_t i = 0;
    while (token_kind_at(i)->form != form)
        i++;
    return token_kind_at(i)->name;
}

static bool make(const struct tokens *tokens, const struct arguments *a, struct grant *grant, int64_t now,
                 struct token_cache *cache, struct writer *token, struct grant *made, struct fail *why)
{
    uint8_t random[8], memory[TOKEN_LIMIT];
    struct writer scratch = writer_of(memory, sizeof(memory));
    char id[17];
    const char *reason;
    if (RAND_bytes(random, sizeof(random)) != 1)
        return fail(why, "no randomness");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    grant->jti = slice_text(id);
    /* naming a file selects a signed URL */
    const char *kind = a->kind ? a->kind : grant->operation ? kind_of_form(TOKEN_IS_FILE_URL) : NULL;
    if (!tokens_mint(tokens, slice_text(kind), slice_text(a->kid), grant, token, why))
        return false;
    /* Another entry may have the same kid and refuse what this one signs. */
    if (check_text(tokens, writer_slice(token), now, cache, &scratch, made, &reason) != REFUSAL_NONE)
        return fail(why, "the token would be refused: %s", reason);
    return true;
}

static int make_and_print(const struct tokens *tokens, const struct arguments *a, struct wanted *wanted,
                          struct token_cache *cache)
{
    char memory[TOKEN_LIMIT];
    struct writer token = writer_of(memory, sizeof(memory));
    struct grant made = {.kind = NULL};
    struct fail why;
    int64_t now = time(NULL);
    wanted->grant.iat = now;
    wanted->grant.exp = now + wanted->ttl;
    if (!make(tokens, a, &wanted->grant, now, cache, &token, &made, &why)) {
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        return EXIT_REFUSED;
    }
    if (slice_present(made.secret_sha256))
        fprintf(stderr, "for the sandbox's record: \"access\": {\"token_sha256\": \"%.*s\"}\n",
                SLICE_PRINTF(made.secret_sha256));
    if (strcmp(made.kind, kind_of_form(TOKEN_IS_LABEL)) == 0 && token.len > LABEL_MOST)
        fprintf(stderr, "longer than a host's label may be (%d): for a path or a header\n", LABEL_MOST);
    return printf("%.*s\n", SLICE_PRINTF(writer_slice(&token))) > 0 && fflush(stdout) == 0 ? 0 : EXIT_REFUSED;
}

/* ---- inspecting one ---- */

static void print_text(const char *name, struct slice value)
{
    if (slice_present(value))
        printf("%-9s %.*s\n", name, SLICE_PRINTF(value));
}

static void print_time(const char *name, int64_t seconds, int64_t now)
{
    char text[64] = "beyond the calendar";
    struct tm tm;
    time_t t = (time_t)seconds;
    if (seconds < 0)
        return;
    if (gmtime_r(&t, &tm))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    long long away = (long long)(seconds - now);
    printf("%-9s %s (%lld s %s)\n", name, text, away < 0 ? -away : away, away < 0 ? "ago" : "from now");
}

/* Prints a secret, whose grant is defined by the sandbox's record. */
static void print_secret(const struct grant *g)
{
    print_text("kind", slice_text(g->kind));
    print_text("sandbox", SLICE_LITERAL("the one whose record has this in access.token_sha256:"));
    print_text("", g->secret_sha256);
}

static void print_grant(const struct grant *g, int64_t now)
{
    char memory[64];
    struct writer needs = writer_of(memory, sizeof(memory));
    uint16_t port;
    need_text(g->needs, &needs);
    print_text("kind", slice_text(g->kind));
    print_text("kid", g->kid);
    print_text("sub", g->sub);
    print_text("org", g->org);
    print_text("jti", g->jti);
    print_text("sandbox", slice_present(g->sandbox) ? g->sandbox : SLICE_LITERAL("any of org"));
    if (slice_present(g->method)) {
        print_text("uid", g->uid);
        print_text("method", g->method);
        print_text("path", g->path);
    }
    print_text("need", g->needs ? writer_slice(&needs) : SLICE_LITERAL("nothing"));
    printf("%-9s", "ports");
    for (size_t i = 0; grant_port(g, i, &port); i++)
        printf(" %u", port);
    puts(!slice_present(g->ports) ? " all" : g->ports.len ? "" : " none");
    print_time("issued", g->iat, now);
    print_time("expires", g->exp, now);
    if (g->bind)
        print_text("bind", SLICE_LITERAL("a tunnel ends when the token expires"));
    if (slice_present(g->file)) {
        printf("%-9s %s of ", "file", g->operation);
        for (size_t i = 0; i < g->file.len; i++)
            putchar(g->file.at[i] < ' ' || g->file.at[i] == 0x7f ? '?' : g->file.at[i]);
        putchar('\n');
    }
}

/* Reads a token, at most one byte more than its limit, so that a longer one is detected. */
static struct slice read_token(const char *argument, uint8_t memory[TOKEN_LIMIT + 1])
{
    if (strcmp(argument, "-") != 0)
        return slice_text(argument);
    size_t len = fread(memory, 1, TOKEN_LIMIT + 1, stdin);
    while (len && (memory[len - 1] == '\n' || memory[len - 1] == '\r'))
        len--;
    return slice_of(memory, len);
}

static int inspect(const struct tokens *tokens, const struct arguments *a, const struct wanted *wanted,
                   struct token_cache *cache)
{
    uint8_t memory[TOKEN_LIMIT + 1], decoded[2 * TOKEN_LIMIT];
    struct writer scratch = writer_of(decoded, sizeof(decoded));
    struct grant grant;
    const char *reason;
    int64_t now = time(NULL);
    enum refusal refusal =
        check_text(tokens, read_token(a->inspect, memory), now, cache, &scratch, &grant, &reason);
    bool secret = slice_present(grant.secret_sha256);
    if (secret)
        print_secret(&grant);
    else if (refusal == REFUSAL_NONE || refusal == REFUSAL_token_expired || refusal == REFUSAL_wrong_cell)
        print_grant(&grant, now);
    /* a clock is wrong: print the difference */
    else if (refusal == REFUSAL_token_invalid && grant.iat > now) {
        print_time("issued", grant.iat, now);
        print_time("expires", grant.exp, now);
    }
    if (refusal == REFUSAL_NONE && a->sandbox && !secret)
        refusal = token_admits(&grant, &wanted->target, &reason);
    if (refusal == REFUSAL_NONE && a->org)
        refusal = token_admits_record(&grant, slice_text(a->org), 0, &reason);
    if (refusal == REFUSAL_NONE) {
        print_text("verdict", SLICE_LITERAL("good"));
        return 0;
    }
    printf("%-9s refused with %s: %s\n", "verdict", refusal_info(refusal)->code, reason);
    return EXIT_REFUSED;
}

/* ---- all of it ---- */

static int with_settings(const struct arguments *a, struct wanted *wanted, const struct settings *settings)
{
    struct fail why;
    struct token_cache *cache = token_cache_new(1);
    struct tokens *tokens = tokens_load(settings->doc, settings->tokens, settings->base_dir, settings->cell,
                                        a->inspect ? TOKENS_CHECK : TOKENS_MINT, &why);
    int code = EXIT_REFUSED;
    if (!tokens)
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
    else if (!cache)
        fprintf(stderr, "%s: out of memory\n", PROGRAM);
    else
        code = a->inspect ? inspect(tokens, a, wanted, cache) : make_and_print(tokens, a, wanted, cache);
    tokens_free(tokens);
    token_cache_free(cache);
    return code;
}

static int token_run(const struct arguments *a)
{
    struct wanted wanted = {.ttl = 0};
    struct fail why;
    if (!understand(a, &wanted, &why)) {
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        return EXIT_USAGE;
    }
    struct settings *settings = settings_load(a->config ? a->config : SETTINGS_PATH, NULL, 0, &why);
    if (!settings) {
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        return EXIT_REFUSED;
    }
    int code = with_settings(a, &wanted, settings);
    settings_free(settings);
    return code;
}

int ctl_token(int argc, char **argv)
{
    struct arguments arguments = {.config = NULL};
    char **word = argv + (argc > 0);
    while (*word) {
        bool help = strcmp(*word, "--help") == 0 || strcmp(*word, "-h") == 0;
        if (!help && take_any(&word, &arguments))
            continue;
        if (!help)
            /* Not quoted: it may be a token. */
            fprintf(stderr, "%s: argument %d is not understood, lacks its value or is given twice\n", PROGRAM,
                    (int)(word - argv));
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : EXIT_USAGE;
    }
    return token_run(&arguments);
}
