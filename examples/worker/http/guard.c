/* SPDX-License-Identifier: MIT */
#include "examples/worker/http/guard.h"

#include <stdlib.h>

#include "spoa/base/os/file.h"
#include "spoa/service/http_site.h"

#define TOKEN_MAX 4096

/* ---- with a secret ---- */

static bool brings(const struct http_head *head, const char *secret)
{
    struct slice given = http_get(head, "Authorization");
    return http_count(head, "Authorization") == 1 &&
           slice_equal_nocase(slice_sub(given, 0, 7), SLICE_LITERAL("Bearer ")) &&
           slice_equal_constant_time(slice_from(given, 7), slice_text(secret));
}

/* ---- without one ---- */

static bool is_our_name(const struct guard *guard, struct slice host)
{
    struct slice name = http_site_name(host);
    bool ours =
        !slice_present(host) || http_site_is_loopback(name); /* HTTP/1.0 has none; no browser speaks that */
    for (size_t i = 0; i < guard->host_count && !ours; i++)
        ours = slice_equal_nocase(name, slice_text(guard->hosts[i]));
    return ours;
}

/* A page may send a body of no type, too. */
static bool may_be_of_any_page(const struct http_head *head)
{
    static const char *const types[] = {"", "text/plain", "application/x-www-form-urlencoded",
                                        "multipart/form-data"};
    struct slice type = http_get(head, "Content-Type");
    type = slice_trim(slice_sub(type, 0, slice_find(type, ';')));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (slice_equal_nocase(type, slice_text(types[i])))
            return true;
    return http_count(head, "Content-Type") > 1;
}

enum guard_verdict guard_judge(const struct guard *guard, const struct http_head *head)
{
    if (guard->secret)
        return brings(head, guard->secret) ? GUARD_PASS : GUARD_NO_SECRET;
    if (!is_our_name(guard, http_get(head, "Host")))
        return GUARD_HOST;
    if (!http_site_is_own(head))
        return GUARD_ORIGIN;
    if (slice_is(head->method, "POST") && http_framing(head, false) != HTTP_NO_BODY &&
        may_be_of_any_page(head))
        return GUARD_TYPE;
    return GUARD_PASS;
}

/* ---- the command line ---- */

bool guard_add_host(struct guard_options *options, const char *name)
{
    struct guard *guard = &options->guard;
    if (!*name || strpbrk(name, ":/[]@ ") || guard->host_count == GUARD_HOSTS_MAX)
        return false;
    guard->hosts[guard->host_count++] = name;
    return true;
}

const char *guard_check(const struct guard_options *options)
{
    if (!options->secret_file && !options->open)
        return "--secret-file FILE is needed: the secret that every request has to bring (or --open: none)";
    if (options->secret_file && options->open)
        return "either --secret-file or --open";
    if (options->guard.host_count && !options->open)
        return "--host goes with --open: who brings the secret may use any name";
    return NULL;
}

bool guard_read_token(const char *path, char **token, struct fail *why)
{
    struct slice content;
    if (!path)
        return true;
    if (!file_read_secret(path, TOKEN_MAX, FILE_READABLE, &content, why))
        return false;
    struct slice line = slice_sub(content, 0, slice_find(content, '\n'));
    line = slice_trim(slice_sub(line, 0, slice_find(line, '\r')));
    *token = line.len ? slice_dup(line) : NULL;
    file_free(content);
    return *token || fail(why, "%s: no token in it", path);
}

bool guard_read_secret(const char *path, char **secret, struct fail *why)
{
    if (!guard_read_token(path, secret, why))
        return false;
    for (const char *c = *secret ? *secret : ""; *c; c++)
        if (*c <= ' ' || *c >= 0x7f) {
            free(*secret);
            *secret = NULL;
            return fail(why, "%s: a secret is visible ASCII without blanks", path);
        }
    return true;
}

bool guard_open(struct guard_options *options, char **secret, struct fail *why)
{
    if (!guard_read_secret(options->secret_file, secret, why))
        return false;
    options->guard.secret = *secret;
    return true;
}
