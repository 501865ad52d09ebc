/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json_feed.h"

#include "spoa/base/bytes/ascii.h"
#include "spoa/base/json/json_scan.h"
#include "spoa/base/json/json_string.h"

/* Each state says what may come next. Space is allowed in every state up to AFTER. */
enum state {
    VALUE,       /* a value */
    FIRST_VALUE, /* a value or `]` */
    FIRST_KEY,   /* a key or `}` */
    KEY,         /* a key */
    COLON,       /* the colon after a key */
    AFTER,       /* a comma or the end of the container; after the outermost value only space */
    STRING,      /* a character of a string, or its closing quote */
    ESCAPE,      /* the character after a backslash */
    /* `next` more digits of \uXXXX; `unit` has the value so far, `low` is set in a second surrogate */
    HEX,
    LOW_ESCAPE,      /* the backslash that begins the second surrogate of a pair */
    LOW_U,           /* the u of the second surrogate */
    UTF8,            /* `next` more bytes of a character, of which the first lies within [low, high] */
    WORD,            /* the rest of true, false or null, at `word` */
    NUMBER_MINUS,    /* a digit; like all NUMBER states, with `number` characters so far */
    NUMBER_ZERO,     /* a point, an exponent or the end */
    NUMBER_DIGITS,   /* a digit, a point, an exponent or the end */
    NUMBER_POINT,    /* a digit */
    NUMBER_FRACTION, /* a digit, an exponent or the end */
    NUMBER_E,        /* a sign or a digit */
    NUMBER_SIGN,     /* a digit */
    NUMBER_EXPONENT, /* a digit or the end */
    BAD              /* nothing: the document is not valid */
};

struct json_feed json_feed_of(unsigned depth)
{
    return (struct json_feed){.depth_most = depth < JSON_FEED_DEPTH_MAX ? depth : JSON_FEED_DEPTH_MAX};
}

static bool in_array(const struct json_feed *f)
{
    return f->depth && f->arrays >> (f->depth - 1) & 1;
}

/* Returns true if a number may end in this state. */
static bool is_number_end(unsigned state)
{
    return state == NUMBER_ZERO || state == NUMBER_DIGITS || state == NUMBER_FRACTION ||
           state == NUMBER_EXPONENT;
}

bool json_feed_is_whole(const struct json_feed *f)
{
    return f->depth == 0 && (f->state == AFTER || is_number_end(f->state));
}

/* ---- containers; every function below returns the next state ---- */

static unsigned open_one(struct json_feed *f, bool array)
{
    if (f->depth == f->depth_most)
        return BAD;
    f->object = f->object || (f->depth == 0 && !array);
    f->arrays = (f->arrays & ~(UINT64_C(1) << f->depth)) | (uint64_t)array << f->depth;
    f->depth++;
    return array ? FIRST_VALUE : FIRST_KEY;
}

static unsigned close_one(struct json_feed *f, bool array)
{
    if (f->depth == 0 || in_array(f) != array)
        return BAD;
    f->depth--;
    return AFTER;
}

static unsigned after_value(struct json_feed *f, uint8_t c)
{
    if (c == ',' && f->depth)
        return in_array(f) ? VALUE : KEY;
    if (c == ']' || c == '}')
        return close_one(f, c == ']');
    return BAD;
}

/* ---- values ---- */

static unsigned begin_word(struct json_feed *f, const char *rest)
{
    f->word = rest;
    return WORD;
}

static unsigned begin_value(struct json_feed *f, uint8_t c)
{
    if (f->depth == 1 && !in_array(f) && !f->in_value) {
        f->in_value = true;
        f->value = f->at;
    }
    f->number = 1;
    f->is_key = false;
    switch (c) {
    case '{':
    case '[':
        return open_one(f, c == '[');
    case '"':
        return STRING;
    case 't':
        return begin_word(f, "rue");
    case 'f':
        return begin_word(f, "alse");
    case 'n':
        return begin_word(f, "ull");
    case '-':
        return NUMBER_MINUS;
    case '0':
        return NUMBER_ZERO;
    default:
        return ascii_is_digit(c) ? NUMBER_DIGITS : BAD;
    }
}

/* Returns BAD if the number cannot continue with c: then it has ended, or it is malformed. */
static unsigned continue_number(unsigned state, uint8_t c)
{
    bool digit = ascii_is_digit(c), e = c == 'e' || c == 'E';
    switch (state) {
    case NUMBER_MINUS:
        return c == '0' ? NUMBER_ZERO : digit ? NUMBER_DIGITS : BAD;
    case NUMBER_ZERO:
        return c == '.' ? NUMBER_POINT : e ? NUMBER_E : BAD;
    case NUMBER_DIGITS:
        return digit ? NUMBER_DIGITS : c == '.' ? NUMBER_POINT : e ? NUMBER_E : BAD;
    case NUMBER_POINT:
        return digit ? NUMBER_FRACTION : BAD;
    case NUMBER_FRACTION:
        return digit ? NUMBER_FRACTION : e ? NUMBER_E : BAD;
    case NUMBER_E:
        return digit ? NUMBER_EXPONENT : c == '+' || c == '-' ? NUMBER_SIGN : BAD;
    default:
        return digit ? NUMBER_EXPONENT : BAD;
    }
}

/* A number has no closing character, so the byte after it belongs to the next state: *again is then set. */
static unsigned in_number(struct json_feed *f, uint8_t c, bool *again)
{
    unsigned state = continue_number(f->state, c);
    if (state == BAD && is_number_end(f->state) && !ascii_is_digit(c)) {
        *again = true;
        return AFTER;
    }
    return f->number++ < JSON_NUMBER_MAX ? state : BAD;
}

/* ---- strings ---- */

/* Starts \uXXXX. `low` is set for the second surrogate of a pair. */
static unsigned begin_hex(struct json_feed *f, bool low)
{
    f->next = 4;
    f->unit = 0;
    f->low = low;
    return HEX;
}

static unsigned in_hex(struct json_feed *f, uint8_t c)
{
    int digit = ascii_hex_value(c);
    if (digit < 0)
        return BAD;
    f->unit = (uint16_t)(f->unit << 4 | digit);
    if (--f->next)
        return HEX;
    bool high = f->unit >= 0xD800 && f->unit < 0xDC00, low = f->unit >= 0xDC00 && f->unit < 0xE000;
    if (f->low)
        return low ? STRING : BAD;
    return f->unit == 0 || low ? BAD : high ? LOW_ESCAPE : STRING;
}

/* Accepts the characters that json_string_utf8 accepts: no overlong form, no surrogate, nothing beyond U+10FFFF. */
static unsigned begin_utf8(struct json_feed *f, uint8_t lead)
{
    if (lead < 0xC2 || lead > 0xF4)
        return BAD;
    f->next = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    f->low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    f->high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return UTF8;
}

static unsigned in_utf8(struct json_feed *f, uint8_t c)
{
    if (c < f->low || c > f->high)
        return BAD;
    f->low = 0x80;
    f->high = 0xBF;
    return --f->next ? UTF8 : STRING;
}

static unsigned in_string(struct json_feed *f, uint8_t c)
{
    if (c == '"')
        return f->is_key ? COLON : AFTER;
    if (c == '\\')
        return ESCAPE;
    return c < 0x20 ? BAD : c < 0x80 ? STRING : begin_utf8(f, c);
}

static unsigned begin_key(struct json_feed *f, uint8_t c)
{
    if (c != '"')
        return BAD;
    f->is_key = true;
    if (f->depth == 1)
        f->key = f->at + 1;
    return STRING;
}

/* ---- one byte ---- */

/* Takes a byte. Sets *again if the byte only ended a number and must be taken once more, in the state returned. */
static unsigned take(struct json_feed *f, uint8_t c, bool *again)
{
    if (f->state <= AFTER && (c == ' ' || c == '\n' || c == '\t' || c == '\r'))
        return f->state;
    switch (f->state) {
    case FIRST_VALUE:
        return c == ']' ? close_one(f, true) : begin_value(f, c);
    case VALUE:
        return begin_value(f, c);
    case FIRST_KEY:
        return c == '}' ? close_one(f, false) : begin_key(f, c);
    case KEY:
        return begin_key(f, c);
    case COLON:
        return c == ':' ? VALUE : BAD;
    case AFTER:
        return after_value(f, c);
    case STRING:
        return in_string(f, c);
    case ESCAPE:
        if (c == 'u')
            return begin_hex(f, false);
        return c && strchr("\"\\/bfnrt", c) ? STRING : BAD;
    case HEX:
        return in_hex(f, c);
    case LOW_ESCAPE:
        return c == '\\' ? LOW_U : BAD;
    case LOW_U:
        return c == 'u' ? begin_hex(f, true) : BAD;
    case UTF8:
        return in_utf8(f, c);
    case WORD:
        if (c != (uint8_t)*f->word)
            return BAD;
        return *++f->word ? WORD : AFTER;
    case BAD:
        return BAD;
    default:
        return in_number(f, c, again);
    }
}

/* Returns the event that the last byte has caused. `before` is the state before that byte. */
static enum json_feed_event event_of(struct json_feed *f, unsigned before)
{
    if (f->state == BAD)
        return JSON_FEED_BAD;
    if (f->depth != 1 || in_array(f))
        return JSON_FEED_MORE;
    if (f->state == COLON && before == STRING) {
        f->key_len = f->at - 1 - f->key;
        return JSON_FEED_KEY;
    }
    if (f->state != AFTER || !f->in_value)
        return JSON_FEED_MORE;
    f->in_value = false;
    f->value_len = f->at - f->value;
    return JSON_FEED_VALUE;
}

enum json_feed_event json_feed(struct json_feed *f, struct slice *bytes)
{
    while (bytes->len) {
        size_t plain = f->state == STRING ? json_string_plain(*bytes) : 0;
        f->at += plain;
        *bytes = slice_from(*bytes, plain);
        if (!bytes->len)
            break;
        unsigned before = f->state;
        bool again = false;
        f->state = (uint8_t)take(f, bytes->at[0], &again);
        if (!again) {
            f->at++;
            *bytes = slice_from(*bytes, 1);
        }
        enum json_feed_event event = event_of(f, before);
        if (event != JSON_FEED_MORE)
            return event;
    }
    return f->state == BAD ? JSON_FEED_BAD : JSON_FEED_MORE;
}
