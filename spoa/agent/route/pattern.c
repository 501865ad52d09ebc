/* SPDX-License-Identifier: MIT */
#include "spoa/agent/route/pattern.h"

#include <stdlib.h>

#include "spoa/agent/route/path.h"

enum { PARTS_MAX = 16, PIECES_MAX = 40, LITERAL = 0xff };

struct piece {
    struct slice literal;
    uint8_t capture; /* LITERAL, or a place in struct captures */
};

struct part {
    uint8_t first, count; /* pieces */
};

struct pattern {
    enum pattern_kind kind;
    uint8_t separator; /* 0 if the pattern is one part */
    /* first byte of a path whose first part begins with text; compared first, because it is cheap */
    uint8_t start;
    bool has_rest;
    uint8_t rest;
    struct slice fallback; /* default of {name?default}; absent if there is none */
    struct slice tail;     /* in a host: text after the last capture; compared first */
    unsigned captures;
    size_t parts, pieces;
    struct part part[PARTS_MAX];
    struct piece piece[PIECES_MAX];
    char *text;
    size_t len;
};

/* ---- compiling ---- */

void capture_names_init(struct capture_names *names)
{
    *names = (struct capture_names){.count = CAPTURES_KNOWN};
#define X(place, text, ...) names->name[CAPTURE_##place] = SLICE_LITERAL(text);
    CAPTURES(X)
#undef X
}

static bool name_find(const struct capture_names *names, struct slice name, uint8_t *capture)
{
    for (size_t i = 0; i < names->count; i++)
        if (slice_equal(names->name[i], name)) {
            *capture = (uint8_t)i;
            return true;
        }
    return false;
}

static bool name_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!((name.at[i] >= 'a' && name.at[i] <= 'z') || name.at[i] == '_' ||
              (i > 0 && name.at[i] >= '0' && name.at[i] <= '9')))
            return false;
    return name.len > 0;
}

/* The parsed text between braces. */
struct braces {
    struct slice name, fallback;
    bool rest;
};

/* Takes "{...}" off *text, which begins with the brace. */
static bool braces_take(struct slice *text, struct braces *braces, struct fail *why)
{
    size_t end = slice_find(*text, '}');
    if (end == text->len)
        return fail(why, "'{' without '}'");
    struct slice inner = slice_sub(*text, 1, end - 1);
    *text = slice_from(*text, end + 1);
    *braces = (struct braces){.name = inner};
    size_t question = slice_find(inner, '?');
    if (question < inner.len) {
        braces->name = slice_sub(inner, 0, question);
        braces->fallback = slice_from(inner, question + 1);
    } else if (inner.len > 3 && slice_is(slice_from(inner, inner.len - 3), "...")) {
        braces->name = slice_sub(inner, 0, inner.len - 3);
        braces->rest = true;
    }
    if (!name_valid(braces->name))
        return fail(why, "'{%.*s}' is no capture: a name is of a-z, 0-9 and '_'", SLICE_PRINTF(inner));
    return true;
}

/* The form of a capture, from its row in CAPTURES; min 0 for any form. */
struct form {
    uint16_t min, max, hex;
    bool everywhere;
    enum pattern_alphabet alphabet;
};

static struct form form_of(uint8_t capture)
{
    static const struct form forms[] = {
#define X(place, text, min, max, hex, everywhere, alphabet) \
    [CAPTURE_##place] = {min, max, hex, everywhere, alphabet},
        CAPTURES(X)
#undef X
    };
    return capture < CAPTURES_KNOWN ? forms[capture] : (struct form){0};
}

static bool is_narrow(uint8_t capture)
{
    return form_of(capture).min > 0;
}

static bool capture_place(struct pattern *p, struct capture_names *names, struct slice name, uint8_t *capture,
                          struct fail *why)
{
    if (!name_find(names, name, capture)) {
        if (names->count == CAPTURES_MAX)
            return fail(why, "more than %d different captures", CAPTURES_MAX);
        *capture = (uint8_t)names->count;
        names->name[names->count++] = name;
    }
    if (p->captures & 1u << *capture)
        return fail(why, "'{%.*s}' stands twice", SLICE_PRINTF(name));
    p->captures |= 1u << *capture;
    return true;
}

/* Adds the capture of braces to the current part; `left` is the pattern after it. */
static bool capture_add(struct pattern *p, struct part *part, const struct braces *braces, struct slice left,
                        struct capture_names *names, struct fail *why)
{
    uint8_t capture = 0;
    if (!capture_place(p, names, braces->name, &capture, why))
        return false;
    bool alone = part->count == 0 && left.len == 0;
    if (braces->rest) {
        if (!alone || !p->separator)
            return fail(why, "'{%.*s...}' must be the whole last part", SLICE_PRINTF(braces->name));
        p->has_rest = true;
        p->rest = capture;
        return true;
    }
    if (slice_present(braces->fallback)) {
        if (braces->fallback.len == 0 || p->kind != PATTERN_VALUE || !alone || p->parts > 0)
            return fail(why, "a default is some text, for a capture that is a whole header value");
        p->fallback = braces->fallback;
    }
    if (p->pieces == PIECES_MAX)
        return fail(why, "the pattern is too long");
    p->piece[part->first + part->count++] = (struct piece){.capture = capture};
    p->pieces++;
    return true;
}

static bool literal_valid(const struct pattern *p, struct slice literal)
{
    for (size_t i = 0; i < literal.len; i++)
        if (literal.at[i] <= ' ' || literal.at[i] >= 0x7f || strchr("[]}%<>", literal.at[i]) ||
            (p->kind != PATTERN_VALUE && strchr("?#\\", literal.at[i])))
            return false;
    return true;
}

/* Takes literal text off *left, up to the next brace or separator. */
static bool literal_add(struct pattern *p, struct part *part, struct slice *left, struct fail *why)
{
    size_t len = slice_find(*left, '{');
    if (p->separator && slice_find(*left, p->separator) < len)
        len = slice_find(*left, p->separator);
    struct slice literal = slice_sub(*left, 0, len);
    if (!literal_valid(p, literal))
        return fail(why, "'%.*s' holds a character that cannot be matched literally", SLICE_PRINTF(literal));
    if (p->pieces == PIECES_MAX)
        return fail(why, "the pattern is too long");
    p->piece[part->first + part->count++] = (struct piece){.literal = literal, .capture = LITERAL};
    p->pieces++;
    *left = slice_from(*left, len);
    return true;
}

/* Refuses ambiguous parts: two captures side by side, or two captures of any form. */
static bool part_check(const struct pattern *p, const struct part *part, struct fail *why)
{
    unsigned wide = 0;
    bool before = false;
    for (size_t i = 0; i < part->count; i++) {
        uint8_t capture = p->piece[part->first + i].capture;
        if (capture != LITERAL && before)
            return fail(why, "there must be text between two captures");
        before = capture != LITERAL;
        wide += before && !is_narrow(capture);
    }
    if (wide > 1)
        return fail(why, "a part can hold only one capture of any form");
    return true;
}

static bool part_add(struct pattern *p, struct slice *left, struct capture_names *names, struct fail *why)
{
    struct part part = {.first = (uint8_t)p->pieces};
    while (left->len && !(p->separator && left->at[0] == p->separator)) {
        struct braces braces = {.rest = false};
        if (left->at[0] != '{') {
            if (!literal_add(p, &part, left, why))
                return false;
        } else if (!braces_take(left, &braces, why) || !capture_add(p, &part, &braces, *left, names, why)) {
            return false;
        }
    }
    if (p->has_rest)
        return true;
    if (p->parts == PARTS_MAX)
        return fail(why, "more than %d parts", PARTS_MAX);
    p->part[p->parts++] = part;
    return part_check(p, &part, why);
}

static bool pattern_compile(struct pattern *p, struct capture_names *names, struct fail *why)
{
    struct slice left = slice_of(p->text, p->len);
    if (left.len == 0)
        return fail(why, "a pattern cannot be empty");
    if (p->kind == PATTERN_PATH && left.at[0] != '/')
        return fail(why, "a path begins with '/'");
    if (p->kind == PATTERN_HOST)
        for (char *c = p->text; *c; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c | 0x20 : *c);
    if (p->kind == PATTERN_PATH)
        left = slice_from(left, 1);
    for (;;) {
        if (!part_add(p, &left, names, why))
            return false;
        if (left.len == 0)
            return true;
        left = slice_from(left, 1);
    }
}

static struct slice literal_tail(struct slice text)
{
    size_t start = text.len;
    while (start && text.at[start - 1] != '}')
        start--;
    return slice_from(text, start);
}

/* Dots in a header's pattern separate parts, except those of "{name...}". */
static uint8_t value_separator(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] == '{')
            i += slice_find(slice_from(text, i), '}');
        else if (text.at[i] == '.')
            return '.';
    }
    return 0;
}

struct pattern *pattern_new(enum pattern_kind kind, struct slice text, struct capture_names *names,
                            struct fail *why)
{
    struct pattern *p = calloc(1, sizeof *p);
    if (!p || !(p->text = slice_dup(text))) {
        fail(why, "out of memory");
        pattern_free(p);
        return NULL;
    }
    p->len = text.len;
    p->kind = kind;
    p->separator = kind == PATTERN_PATH ? '/' : kind == PATTERN_HOST ? '.' : value_separator(text);
    struct fail what;
    if (!pattern_compile(p, names, &what)) {
        fail(why, "'%.*s': %s", (int)text.len, (const char *)text.at, what.text);
        pattern_free(p);
        return NULL;
    }
    const struct piece *first = p->parts && p->part[0].count ? &p->piece[p->part[0].first] : NULL;
    if (kind == PATTERN_PATH && first && first->capture == LITERAL)
        p->start = first->literal.at[0];
    if (kind == PATTERN_HOST)
        p->tail = literal_tail(slice_of(p->text, p->len));
    return p;
}

void pattern_free(struct pattern *pattern)
{
    if (!pattern)
        return;
    free(pattern->text);
    free(pattern);
}

struct slice pattern_text(const struct pattern *pattern)
{
    return slice_of(pattern->text, pattern->len);
}

unsigned pattern_captures(const struct pattern *pattern)
{
    return pattern->captures;
}

/* ---- matching ---- */

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool in_alphabet(uint8_t capture, uint8_t c)
{
    enum pattern_alphabet alphabet = form_of(capture).alphabet;
    if (alphabet >= PATTERN_WORD && (c == '_' || (c >= 'A' && c <= 'Z')))
        return true;
    return is_digit(c) || (alphabet >= PATTERN_LOWER && c >= 'a' && c <= 'z') ||
           (alphabet == PATTERN_BASE64URL && c == '-');
}

/* Returns whether the bytes, which are all of the alphabet, have the form of the capture. */
static bool form_valid(uint8_t capture, struct slice s)
{
    const struct form form = form_of(capture);
    for (size_t i = 0; i < s.len && i < form.hex; i++)
        if (!is_digit(s.at[i]) && s.at[i] > 'f')
            return false;
    return s.len >= form.min && s.len <= form.max;
}

static bool narrow_valid(uint8_t capture, struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!in_alphabet(capture, s.at[i]))
            return false;
    return form_valid(capture, s);
}

/* Takes one piece of limited form off the left or the right end of *s. */
static bool piece_take(const struct piece *piece, bool right, struct slice *s, struct captures *captures)
{
    size_t len = piece->literal.len;
    if (piece->capture != LITERAL) {
        len = 0;
        while (len < s->len && in_alphabet(piece->capture, s->at[right ? s->len - 1 - len : len]))
            len++;
    } else if (len > s->len) {
        return false;
    }
    struct slice taken = slice_sub(*s, right ? s->len - len : 0, len);
    *s = right ? slice_sub(*s, 0, s->len - len) : slice_from(*s, len);
    if (piece->capture == LITERAL)
        return slice_equal(taken, piece->literal);
    captures->value[piece->capture] = taken;
    return form_valid(piece->capture, taken);
}

static bool is_wide(const struct piece *piece)
{
    return piece->capture != LITERAL && !is_narrow(piece->capture);
}

/* Matches a part of several pieces from both ends inwards; the capture of any form gets the rest. */
static bool match_pieces(const struct piece *piece, size_t count, struct slice s, struct captures *captures)
{
    size_t i = 0, j = count;
    for (; i < j && !is_wide(&piece[i]); i++)
        if (!piece_take(&piece[i], false, &s, captures))
            return false;
    for (; j > i + 1; j--)
        if (!piece_take(&piece[j - 1], true, &s, captures))
            return false;
    if (i == j)
        return s.len == 0;
    captures->value[piece[i].capture] = s;
    return s.len > 0;
}

static bool match_part(const struct pattern *p, const struct part *part, struct slice s,
                       struct captures *captures)
{
    const struct piece *piece = &p->piece[part->first];
    if (part->count != 1)
        return match_pieces(piece, part->count, s, captures);
    if (piece->capture == LITERAL)
        return p->kind == PATTERN_PATH ? path_segment_is(s, piece->literal) : slice_equal(s, piece->literal);
    captures->value[piece->capture] = s;
    /* an invalid port in a path is the client's mistake, which the decision reports; in a host it is another form of host */
    bool form = p->kind == PATTERN_HOST || form_of(piece->capture).everywhere;
    return form && is_narrow(piece->capture) ? narrow_valid(piece->capture, s) : s.len > 0;
}

static bool part_is_literal(const struct pattern *p, const struct part *part)
{
    return part->count == 0 || (part->count == 1 && p->piece[part->first].capture == LITERAL);
}

/* Compares the first byte cheaply; '%' may be an encoded letter. */
static bool may_start(const struct pattern *p, struct slice path)
{
    return !p->start || (path.len && (path.at[0] == p->start || path.at[0] == '%'));
}

/* Matches the parts in order. Afterwards *left is absent, or the input after the last part's separator. */
static bool match_parts(const struct pattern *p, struct slice *left, struct captures *captures, bool *climbs)
{
    for (size_t i = 0; i < p->parts; i++) {
        struct slice s = *left;
        if (!slice_present(s))
            return false;
        if (p->separator)
            slice_split(left, p->separator, &s);
        else
            *left = (struct slice){NULL, 0};
        if (!match_part(p, &p->part[i], s, captures))
            return false;
        if (p->kind == PATTERN_PATH && !part_is_literal(p, &p->part[i]))
            *climbs = *climbs || path_segment_dots(s) || path_climbs(s);
    }
    return true;
}

enum pattern_result pattern_match(const struct pattern *p, struct slice input, struct captures *captures)
{
    if (slice_present(p->fallback) && input.len == 0)
        input = p->fallback;
    if (!slice_present(input) || !slice_equal(slice_from(input, input.len - p->tail.len), p->tail))
        return PATTERN_MISS;
    if (p->kind == PATTERN_PATH) {
        if (input.len == 0 || input.at[0] != '/')
            return PATTERN_MISS;
        input = slice_from(input, 1);
        if (!may_start(p, input))
            return PATTERN_MISS;
    }
    bool climbs = false;
    if (!match_parts(p, &input, captures, &climbs) || (slice_present(input) && !p->has_rest))
        return PATTERN_MISS;
    if (p->has_rest) {
        captures->value[p->rest] = input;
        climbs = climbs || (p->kind == PATTERN_PATH && path_climbs(input));
    }
    return climbs ? PATTERN_CLIMBS : PATTERN_MATCH;
}
