/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume_text.h"

#include "examples/worker/resume.h"
#include "spoa/base/reader.h"
#include "spoa/proto/http.h"

#define PREFIX "{\"cell-resume\":{\""

enum parameter { TUNNEL = 1, ATTEMPT = 2, RECV = 4, BUFFER = 8, NOT_OURS = 0 };

static const struct {
    const char *name;
    enum parameter is;
} names[] = {{"tunnel", TUNNEL}, {"attempt", ATTEMPT}, {"recv", RECV}, {"buffer", BUFFER}};

static enum parameter parameter_of(struct slice name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_equal_nocase(name, slice_text(names[i].name)))
            return names[i].is;
    return NOT_OURS;
}

static bool is_id(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.at[i] >= '0' && s.at[i] <= '9') && !(s.at[i] >= 'a' && s.at[i] <= 'f'))
            return false;
    return s.len == RESUME_ID_SIZE;
}

/* A number has one spelling. */
static bool read_number(struct slice s, uint64_t min, uint64_t *number)
{
    return (s.len == 1 || (s.len && s.at[0] != '0')) && slice_u64(s, RESUME_NUMBER_MAX, number) &&
           *number >= min;
}

static bool read_value(enum parameter is, struct slice value, struct resume_terms *terms)
{
    if (is == TUNNEL)
        terms->tunnel = value;
    if (is == TUNNEL)
        return is_id(value);
    if (is == ATTEMPT)
        return read_number(value, 1, &terms->attempt);
    if (is == BUFFER)
        return read_number(value, RESUME_WINDOW_MIN, &terms->buffer);
    terms->has_recv = true;
    return read_number(value, 0, &terms->recv);
}

/* Takes one parameter; false if it is wrong or was there before. */
static bool take(enum parameter is, struct slice value, unsigned *seen, struct resume_terms *terms)
{
    if (is == NOT_OURS)
        return true;
    bool again = *seen & is;
    *seen |= is;
    return !again && read_value(is, value, terms);
}

static bool is_complete(unsigned seen)
{
    return (seen & TUNNEL) && (seen & ATTEMPT);
}

enum resume_found resume_read_header(struct slice value, struct resume_terms *terms)
{
    struct slice rest = value, part = {NULL, 0};
    unsigned seen = 0;
    *terms = (struct resume_terms){0};
    if (!slice_split(&rest, ';', &part) || !http_is_token(slice_trim(part)))
        return RESUME_MALFORMED;
    if (!slice_is(slice_trim(part), "1"))
        return RESUME_ABSENT;
    while (slice_split(&rest, ';', &part)) {
        part = slice_trim(part);
        size_t equals = slice_find(part, '=');
        struct slice name = slice_sub(part, 0, equals), text = slice_from(part, equals + 1);
        if (!http_is_token(name) || (equals < part.len && !http_is_token(text)) ||
            !take(parameter_of(name), text, &seen, terms))
            return RESUME_MALFORMED;
    }
    return is_complete(seen) ? RESUME_FOUND : RESUME_MALFORMED;
}

enum resume_found resume_read_query(struct slice query, struct resume_terms *terms)
{
    struct slice rest = query, part;
    unsigned seen = 0;
    bool good = true;
    *terms = (struct resume_terms){0};
    while (slice_split(&rest, '&', &part)) {
        size_t equals = slice_find(part, '=');
        struct slice name = slice_sub(part, 0, equals);
        if (slice_starts(name, "cr_"))
            good &= take(parameter_of(slice_from(name, 3)), slice_from(part, equals + 1), &seen, terms);
    }
    if (!(seen & TUNNEL))
        return RESUME_ABSENT;
    return good && is_complete(seen) ? RESUME_FOUND : RESUME_MALFORMED;
}

/* ---- what is said on a leg ---- */

void resume_put_header(struct writer *w, uint64_t recv, uint64_t next, uint64_t buffer)
{
    writer_printf(w, "1; recv=%llu; next=%llu; buffer=%llu", (unsigned long long)recv,
                  (unsigned long long)next, (unsigned long long)buffer);
}

void resume_put_greeting(struct writer *w, uint64_t recv, uint64_t next, uint64_t buffer)
{
    writer_printf(w, PREFIX "recv\":%llu,\"next\":%llu,\"buffer\":%llu}}", (unsigned long long)recv,
                  (unsigned long long)next, (unsigned long long)buffer);
}

bool resume_is_ours(struct slice control_payload)
{
    return slice_starts(control_payload, "cr");
}

enum resume_say resume_read_pong(struct slice payload, uint64_t *number)
{
    struct reader r = reader_of(payload);
    if (!slice_is(reader_take(&r, 2), "cr"))
        return RESUME_SAYS_NOTHING;
    *number = reader_be(&r, 8);
    if (reader_done(&r))
        return RESUME_SAYS_RECV;
    return !r.failed && slice_is(r.rest, "end") ? RESUME_SAYS_END : RESUME_SAYS_NOTHING;
}

void resume_put_pong(struct writer *w, enum resume_say say, uint64_t number)
{
    writer_text(w, "cr");
    writer_be(w, number, 8);
    if (say == RESUME_SAYS_END)
        writer_text(w, "end");
}

bool resume_is_message(struct slice text)
{
    return slice_starts(text, "{\"cell-resume\":");
}

enum resume_say resume_read_message(struct slice text, uint64_t *number)
{
    enum resume_say say = slice_starts(text, PREFIX "recv\":")  ? RESUME_SAYS_RECV
                          : slice_starts(text, PREFIX "end\":") ? RESUME_SAYS_END
                                                                : RESUME_SAYS_NOTHING;
    size_t from = strlen(PREFIX) + (say == RESUME_SAYS_RECV ? 6 : 5);
    if (say == RESUME_SAYS_NOTHING || text.len < from + 3)
        return RESUME_SAYS_NOTHING;
    bool good = slice_is(slice_from(text, text.len - 2), "}}") &&
                read_number(slice_sub(text, from, text.len - 2 - from), say == RESUME_SAYS_END, number);
    return good ? say : RESUME_SAYS_NOTHING;
}

void resume_put_message(struct writer *w, enum resume_say say, uint64_t number)
{
    writer_printf(w, PREFIX "%s\":%llu}}", say == RESUME_SAYS_END ? "end" : "recv",
                  (unsigned long long)number);
}
