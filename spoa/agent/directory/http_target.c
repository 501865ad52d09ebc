/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_target.h"

#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/file.h"

#define TOKEN_MAX        ((size_t)16 * 1024) /* maximum size of a token's file */
#define URL_MAX          8192
#define AUTHORITIES_KEPT 60 /* time until a replaced file of authorities is read again [s] */

/* ---- the URL ---- */

/* Returns whether the URL has this part. */
static bool has_part(CURLU *parsed, CURLUPart part)
{
    char *text = NULL;
    bool has = curl_url_get(parsed, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return has;
}

/* Returns whether a parsed URL can be used. */
static bool check_parsed(CURLU *parsed, const char *url, struct fail *why)
{
    char *scheme = NULL;
    bool http = curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    if (!http)
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

void directory_http_target_encode(struct writer *w, struct slice text)
{
    /* "." and ".." would otherwise be steps of the path; the unreserved characters are those of RFC 3986 section 2.3 */
    bool dots = slice_is(text, ".") || slice_is(text, "..");
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i], letter = c | 0x20;
        bool plain = (c >= '0' && c <= '9') || (letter >= 'a' && letter <= 'z') || (c && strchr("-._~", c));
        if (plain && !dots)
            writer_u8(w, c);
        else
            writer_printf(w, "%%%02X", c);
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

/* Drops the end of the line, which editors write and no token has. */
static struct slice without_end(struct slice text)
{
    while (text.len && strchr(" \t\r\n", text.at[text.len - 1]))
        text.len--;
    return text;
}

/* Reads the token's file if it has changed. A good token stays in use until there is another one, because a file that is being rotated
 * may be missing for a moment. Returns false with *why if there is no token at all. */
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
    struct slice token = without_end(content);
    bool good = token.len > 0;
    for (size_t i = 0; i < token.len; i++)
        good = good && token.at[i] > 0x20 && token.at[i] < 0x7f;
    if (!good) {
        file_free(content);
        return slice_present(t->token) || fail(why, "%s: there is no token in it", path);
    }
    file_free(t->token);
    t->token = content;
    t->token_seen = now;
    return true;
}

/* ---- requests ---- */

/* Appends a header line. Returns false if memory is short. */
static bool add_field(struct curl_slist **fields, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*fields, line);
    if (longer)
        *fields = longer;
    return longer != NULL;
}

/* Appends the header with the token, if there is one, and wipes its copy. */
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

/* Returns the file of authorities to trust, or NULL for libcurl's default places. libcurl keeps the content of a file for its next
 * connections, but not if a folder of authorities is set, too, which is the built-in default. Reading the system's file
 * takes 50 ms each time, during which the loop stands still. */
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
    /* abandon the thread of a name look-up that hangs */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    return good || fail(why, "out of memory");
}
