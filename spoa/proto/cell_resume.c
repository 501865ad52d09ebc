/* SPDX-License-Identifier: MIT */
#include "spoa/proto/cell_resume.h"

#include <inttypes.h>

#include "spoa/base/bytes/ascii.h"
#include "spoa/base/bytes/reader.h"

#define VERSION "1"
#define MARK    "cr"                   /* begins the payload of every Pong */
#define PREFIX  "{\"cell-resume\":{\"" /* begins every message of the browser binding */

/* ---- the handshake ---- */

/* Bits, so that a set of parameters is a number. */
enum parameter { TUNNEL = 1, ATTEMPT = 2, RECV = 4, NEXT = 8, BUFFER = 16, UNKNOWN = 0 };

static const struct {
    const char *name;
    enum parameter is;
} names[] = {{"tunnel", TUNNEL}, {"attempt", ATTEMPT}, {"recv", RECV}, {"next", NEXT}, {"buffer", BUFFER}};

static const struct {
    unsigned known, required; /* sets of parameters */
} sides[] = {
    [CELL_RESUME_REQUEST] = {TUNNEL | ATTEMPT | RECV | BUFFER, TUNNEL | ATTEMPT},
    [CELL_RESUME_ANSWER] = {RECV | NEXT | BUFFER, RECV | NEXT},
};

/* Returns the parameter with this name, or UNKNOWN if the side does not send it. */
static enum parameter parameter_of(struct slice name, enum cell_resume_side side)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_equal_nocase(name, slice_text(names[i].name)))
            return sides[side].known & names[i].is ? names[i].is : UNKNOWN;
    return UNKNOWN;
}

static bool is_id(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!ascii_is_digit(s.at[i]) && !(s.at[i] >= 'a' && s.at[i] <= 'f'))
            return false;
    return s.len == CELL_RESUME_ID_LEN;
}

/* Reads a number of at least `min`. Leading zeros are refused, so that a number has one spelling. */
static bool read_number(struct slice s, uint64_t min, uint64_t *number)
{
    return (s.len == 1 || (s.len && s.at[0] != '0')) && slice_u64(s, CELL_RESUME_NUMBER_MAX, number) &&
           *number >= min;
}

static bool read_parameter(enum parameter is, struct slice value, struct cell_resume_terms *terms)
{
    switch (is) {
    case TUNNEL:
        terms->tunnel = value;
        return is_id(value);
    case ATTEMPT:
        return read_number(value, 1, &terms->attempt);
    case RECV:
        terms->has_recv = true;
        return read_number(value, 0, &terms->recv);
    case NEXT:
        return read_number(value, 1, &terms->next);
    case BUFFER:
        return read_number(value, CELL_RESUME_WINDOW_MIN, &terms->buffer);
    case UNKNOWN:
        break;
    }
    return true;
}

/* Takes one parameter. Returns false if its value is malformed or the parameter came before. */
static bool take(enum parameter is, struct slice value, unsigned *seen, struct cell_resume_terms *terms)
{
    bool again = *seen & is;
    *seen |= is;
    return !again && read_parameter(is, value, terms);
}

static bool is_complete(unsigned seen, enum cell_resume_side side)
{
    return (seen & sides[side].required) == sides[side].required;
}

enum cell_resume_found cell_resume_read_value(struct slice value, enum cell_resume_side side,
                                              struct cell_resume_terms *terms)
{
    struct slice rest = value, part = {NULL, 0};
    unsigned seen = 0;
    *terms = (struct cell_resume_terms){0};
    if (!slice_split(&rest, ';', &part) || !http_is_token(slice_trim(part)))
        return CELL_RESUME_MALFORMED;
    if (!slice_is(slice_trim(part), VERSION))
        return CELL_RESUME_ABSENT;
    while (slice_split(&rest, ';', &part)) {
        part = slice_trim(part);
        size_t equals = slice_find(part, '=');
        struct slice name = slice_sub(part, 0, equals), text = slice_from(part, equals + 1);
        if (!http_is_token(name) || (equals < part.len && !http_is_token(text)) ||
            !take(parameter_of(name, side), text, &seen, terms))
            return CELL_RESUME_MALFORMED;
    }
    return is_complete(seen, side) ? CELL_RESUME_FOUND : CELL_RESUME_MALFORMED;
}

enum cell_resume_found cell_resume_read_head(const struct http_head *head, enum cell_resume_side side,
                                             struct cell_resume_terms *terms)
{
    size_t lines = http_count(head, CELL_RESUME_HEADER);
    if (lines == 1)
        return cell_resume_read_value(http_get(head, CELL_RESUME_HEADER), side, terms);
    return lines ? CELL_RESUME_MALFORMED : CELL_RESUME_ABSENT;
}

enum cell_resume_found cell_resume_read_query(struct slice query, struct cell_resume_terms *terms)
{
    struct slice rest = query, part;
    unsigned seen = 0;
    bool good = true;
    *terms = (struct cell_resume_terms){0};
    while (slice_split(&rest, '&', &part)) {
        size_t equals = slice_find(part, '=');
        struct slice name = slice_sub(part, 0, equals);
        enum parameter is =
            slice_starts(name, "cr_") ? parameter_of(slice_from(name, 3), CELL_RESUME_REQUEST) : UNKNOWN;
        good &= take(is, slice_from(part, equals + 1), &seen, terms);
    }
    if (!(seen & TUNNEL))
        return CELL_RESUME_ABSENT;
    return good && is_complete(seen, CELL_RESUME_REQUEST) ? CELL_RESUME_FOUND : CELL_RESUME_MALFORMED;
}

static void put_count(struct writer *w, const char *name, uint64_t count)
{
    if (count)
        writer_printf(w, "; %s=%" PRIu64, name, count);
}

void cell_resume_put_field(struct writer *w, const struct cell_resume_terms *terms)
{
    writer_text(w, CELL_RESUME_HEADER ": " VERSION);
    if (slice_present(terms->tunnel)) {
        writer_text(w, "; tunnel=");
        writer_put(w, terms->tunnel);
    }
    put_count(w, "attempt", terms->attempt);
    if (terms->has_recv)
        writer_printf(w, "; recv=%" PRIu64, terms->recv);
    put_count(w, "next", terms->next);
    put_count(w, "buffer", terms->buffer);
    writer_text(w, "\r\n");
}

void cell_resume_put_greeting(struct writer *w, const struct cell_resume_terms *terms)
{
    writer_printf(w, PREFIX "recv\":%" PRIu64 ",\"next\":%" PRIu64 ",\"buffer\":%" PRIu64 "}}", terms->recv,
                  terms->next, terms->buffer);
}

/* ---- on a leg ---- */

bool cell_resume_is_own(struct slice payload)
{
    return slice_starts(payload, MARK);
}

enum cell_resume_say cell_resume_read_pong(struct slice payload, uint64_t *number)
{
    struct reader r = reader_of(payload);
    if (!slice_is(reader_take(&r, 2), MARK))
        return CELL_RESUME_NOTHING;
    *number = reader_be(&r, 8);
    if (reader_done(&r))
        return CELL_RESUME_RECV;
    return !r.failed && slice_is(r.rest, "end") ? CELL_RESUME_END : CELL_RESUME_NOTHING;
}

void cell_resume_put_pong(struct writer *w, enum cell_resume_say say, uint64_t number)
{
    writer_text(w, MARK);
    writer_be(w, number, 8);
    if (say == CELL_RESUME_END)
        writer_text(w, "end");
}

bool cell_resume_is_message(struct slice text)
{
    return slice_starts(text, "{\"cell-resume\":");
}

enum cell_resume_say cell_resume_read_message(struct slice text, uint64_t *number)
{
    enum cell_resume_say say = slice_starts(text, PREFIX "recv\":")  ? CELL_RESUME_RECV
                               : slice_starts(text, PREFIX "end\":") ? CELL_RESUME_END
                                                                     : CELL_RESUME_NOTHING;
    size_t from = strlen(PREFIX) + (say == CELL_RESUME_RECV ? 6 : 5);
    if (say == CELL_RESUME_NOTHING || text.len < from + 3)
        return CELL_RESUME_NOTHING;
    bool good = slice_is(slice_from(text, text.len - 2), "}}") &&
                read_number(slice_sub(text, from, text.len - 2 - from), say == CELL_RESUME_END, number);
    return good ? say : CELL_RESUME_NOTHING;
}

void cell_resume_put_message(struct writer *w, enum cell_resume_say say, uint64_t number)
{
    writer_printf(w, PREFIX "%s\":%" PRIu64 "}}", say == CELL_RESUME_END ? "end" : "recv", number);
}

/* ---- close codes ---- */

const char *cell_resume_reason(enum cell_resume_close code)
{
    switch (code) {
    case CELL_RESUME_CLOSE_PROTOCOL:
        return "protocol error";
    case CELL_RESUME_CLOSE_TOO_BIG:
        return "message too big";
    case CELL_RESUME_CLOSE_TAKEN:
        return "taken over";
    case CELL_RESUME_CLOSE_REFUSED:
        break;
    }
    return "";
}
