/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_target.h"

#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/file.h"

#define TOKEN_MAX        ((size_t)16 * 1024)
#define URL_MAX          8192
#define AUTHORITIES_KEPT 60 /* seconds, until a file of them that was replaced is read */

/* ---- the URL ---- */

static bool has_part(CURLU *parsed, CURLUPart part)
{
    char *text = NULL;
    bool has = curl_url_get(parsed, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return has;
}

static bool scheme_is_http(CURLU *parsed)
{
    char *scheme = NULL;
    bool good = curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    return good;
}

static bool check_parsed(CURLU *parsed, const char *url, struct fail *why)
{
    if (curl_url_set(parsed, CURLUPART_URL, url, 0) != CURLUE_OK || !scheme_is_http(parsed))
        return fail(why, "directory.url: http://HOST:PORT or https://HOST:PORT is wanted");
    if (has_part(parsed, CURLUPART_USER) || has_part(parsed, CURLUPART_PASSWORD))
        return fail(why, "directory.url: it must not hold a password; there is token_file");
    if (has_part(parsed, CURLUPART_QUERY) || has_part(parsed, CURLUPART_FRAGMENT))
        return fail(why, "directory.url: it has a query or a fragment");
    return true;
}

bool directory_http_target_check(const char *url, struct fail *why)
{
    CURLU *parsed = curl_url();
    if (!parsed)
        return fail(why, "out of memory");
    bool good = check_parsed(parsed, url, why);
    curl_url_cleanup(parsed);
    return good;
}

static bool is_unreserved(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("-._~", c));
}

void directory_http_target_encode(struct writer *w, struct slice text)
{
    /* "." and ".." would be taken for steps of the path */
    bool dots = slice_is(text, ".") || slice_is(text, "..");
    for (size_t i = 0; i < text.len; i++) {
        if (is_unreserved(text.at[i]) && !dots)
            writer_u8(w, text.at[i]);
        else
            writer_printf(w, "%%%02X", text.at[i]);
    }
}

bool directory_http_target_path(struct slice key, const char *suffix, char *path, size_t size)
{
    struct writer w = writer_of(path, size);
    size_t slash = slice_find(key, '/');
    bool spaced = slash < key.len;
    writer_text(&w, "/v1/sandboxes/");
    directory_http_target_encode(&w, spaced ? slice_from(key, slash + 1) : key);
    writer_text(&w, suffix);
    if (spaced) {
        writer_text(&w, "?namespace=");
        directory_http_target_encode(&w, slice_sub(key, 0, slash));
    }
    writer_u8(&w, '\0');
    return !w.full;
}

/* ---- the token ---- */

void directory_http_target_init(struct directory_http_target *t, const char *url, const char *token_file,
                                const char *ca_file)
{
    *t = (struct directory_http_target){
        .url = url, .token_file = token_file, .ca_file = ca_file, .url_len = strlen(url)};
    while (t->url_len && url[t->url_len - 1] == '/')
        t->url_len--;
}

void directory_http_target_free(struct directory_http_target *t)
{
    file_free(t->token);
    t->token = (struct slice){NULL, 0};
}

void directory_http_target_doubt(struct directory_http_target *t)
{
    t->token_seen = (struct stat){0};
}

/* Editors end a file with a line's end, which no token has. */
static struct slice without_end(struct slice text)
{
    while (text.len && strchr(" \t\r\n", text.at[text.len - 1]))
        text.len--;
    return text;
}

static bool is_token(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= 0x20 || text.at[i] >= 0x7f)
            return false;
    return text.len > 0;
}

/* A token that was good stays until there is another: files that rotate may be away for a moment. */
static bool read_token(struct directory_http_target *t, struct fail *why)
{
    const char *path = t->token_file;
    struct stat now;
    struct slice content;
    if (!path)
        return true;
    file_look(path, &now);
    if (slice_present(t->token) && file_looks_same(&t->token_seen, &now))
        return true;
    if (!file_read_secret(path, TOKEN_MAX, FILE_READABLE, &content, why))
        return slice_present(t->token);
    if (!is_token(without_end(content))) {
        file_free(content);
        return slice_present(t->token) || fail(why, "%s: there is no token in it", path);
    }
    file_free(t->token);
    t->token = content;
    t->token_seen = now;
    return true;
}

/* ---- requests ---- */

static bool add_field(struct curl_slist **fields, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*fields, line);
    if (longer)
        *fields = longer;
    return longer != NULL;
}

static bool add_token(const struct directory_http_target *t, struct curl_slist **fields)
{
    char line[TOKEN_MAX + 32];
    struct slice token = without_end(t->token);
    if (!slice_present(token))
        return true;
    snprintf(line, sizeof line, "Authorization: Bearer %.*s", SLICE_PRINTF(token));
    bool good = add_field(fields, line);
    explicit_bzero(line, sizeof line);
    return good;
}

/* The file of the authorities that are believed; NULL: libcurl's own places. What libcurl has read of a file it keeps for the
 * next connections, but not if there is a folder, too, as it was built for: to read the system's takes a twentieth
 * of a second each time, in which nobody else on the loop is heard. */
static const char *authorities(const struct directory_http_target *t)
{
    const char *system = curl_version_info(CURLVERSION_NOW)->cainfo;
    struct stat there;
    if (t->ca_file || !system)
        return t->ca_file;
    file_look(system, &there);
    return S_ISREG(there.st_mode) ? system : NULL;
}

bool directory_http_target_aim(struct directory_http_target *t, CURL *easy, const char *path,
                               const char *accept, struct curl_slist **fields, struct fail *why)
{
    char url[URL_MAX];
    const char *believed = authorities(t);
    *fields = NULL;
    curl_easy_reset(easy);
    if (snprintf(url, sizeof url, "%.*s%s", (int)t->url_len, t->url, path) >= (int)sizeof url)
        return fail(why, "the URL is over %d bytes", URL_MAX);
    if (!read_token(t, why))
        return false;
    bool good = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK && add_field(fields, accept) &&
                add_token(t, fields);
    if (believed)
        good = good && curl_easy_setopt(easy, CURLOPT_CAINFO, believed) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, (long)AUTHORITIES_KEPT) == CURLE_OK;
    good = good && curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_USERAGENT, "cellgate/" CELLGATE_VERSION) == CURLE_OK;
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    /* a name look-up that hangs is left behind instead of waited for */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    return good || fail(why, "out of memory");
}
