/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/own_headers.h"

#include <stdlib.h>

#include "spoa/agent/systems/tables.h"
#include "spoa/proto/http.h"

enum { NAME_MOST = 64 };

/* Headers that HAProxy, the relay or every worker interprets: the configuration must not use them for credentials. */
static const char *const reserved[] = {"accept",
                                       "accept-encoding",
                                       "access-control-request-headers",
                                       "access-control-request-method",
                                       "connection",
                                       "content-length",
                                       "content-type",
                                       "date",
                                       "expect",
                                       "forwarded",
                                       "host",
                                       "http2-settings",
                                       "keep-alive",
                                       "origin",
                                       "range",
                                       "referer",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade",
                                       "user-agent",
                                       "via",
                                       "x-request-id",
                                       NULL};
static const char *const reserved_starts[] = {"cell-", "x-cell-", "x-forwarded-", "sec-", "proxy-", NULL};

static const char *const known[] = {"authorization", "cookie",
#define X(name) (name),
                                    API_HEADERS(X)
#undef X
#define X(field, lines, name, ...) name,
                                        CREDENTIAL_HEADERS(X) TARGET_HEADERS(X)
#undef X
                                            NULL};

static bool is_among(struct slice name, const char *const *list)
{
    while (*list && !http_same_name(name, slice_text(*list)))
        list++;
    return *list;
}

const char *own_header_defect(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.at[i], letter = c | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(c >= '0' && c <= '9') && c != '-')
            return "a header's name of letters, digits and '-'";
    }
    if (name.len == 0 || name.len > NAME_MOST)
        return "a header's name of 1 to 64 bytes";
    for (size_t i = 0; reserved_starts[i]; i++)
        if (http_name_starts(name, reserved_starts[i]))
            return "a header that has no other meaning";
    return is_among(name, reserved) ? "a header that has no other meaning" : NULL;
}

bool own_header_is_known(struct slice name)
{
    return is_among(name, known);
}

bool own_headers_add(struct texts *names, struct slice name)
{
    if (own_header_is_known(name))
        return true;
    for (size_t i = 0; i < names->count; i++)
        if (slice_equal_nocase(name, slice_text(names->at[i])))
            return true;
    return texts_add(names, name);
}

/* Writes an expression such as "x[-_]api[-_]key". */
static void put_pattern(struct slice name, struct writer *w)
{
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.at[i];
        if (c == '-' || c == '_')
            writer_text(w, "[-_]");
        else
            writer_u8(w, c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c);
    }
}

void own_headers_pattern(const struct texts *names, struct writer *w)
{
    for (size_t i = 0; i < names->count; i++) {
        writer_text(w, w->len ? "|" : "");
        put_pattern(slice_text(names->at[i]), w);
    }
}

bool own_header_is_removed(const struct request *request, struct slice name)
{
    uint8_t memory[4 * NAME_MOST];
    struct writer pattern = writer_of(memory, sizeof memory);
    struct slice rest = request->removed, word;
    put_pattern(name, &pattern);
    while (!pattern.full && slice_split(&rest, '|', &word))
        if (slice_equal(word, writer_slice(&pattern)))
            return true;
    return false;
}

static bool has(const struct request *request, struct slice name)
{
    struct slice rest = request->headers;
    struct request_header header;
    while (request_header_next(&rest, &header))
        if (http_same_name(header.name, name))
            return true;
    return false;
}

const char *own_headers_left(const struct texts *names, const struct request *request)
{
    for (size_t i = 0; i < names->count; i++)
        if (has(request, slice_text(names->at[i])) &&
            !own_header_is_removed(request, slice_text(names->at[i])))
            return names->at[i];
    return NULL;
}
