/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json_feed.h"

#include "spoa/base/json/json_scan.h"
#include "spoa/base/json/json_string.h"

enum state {
    VALUE,        /* a value has to come */
    FIRST_VALUE,  /* or `]` */
    FIRST_KEY,    /* a key, or `}` */
    KEY,          /* a key has to come */
    COLON,        /* after a key */
    AFTER,        /* after a value: a comma or the end of what it is in; at the outermost level space */
    STRING,       /* within */
    ESCAPE,       /* after a backslash */
    HEX,          /* `next` more digits of \uXXXX */
    LOW_ESCAPE,   /* the backslash of a surrogate's other half */
    LOW_U,        /* its u */
    UTF8,         /* `next` more bytes of a character, the first of which is from `low` to `high` */
    WORD,         /* of true, false, null: what is left */
    NUMBER_MINUS, /* after the sign */
    NUMBER_ZERO,
    NUMBER_DIGITS,
    NUMBER_POINT, /* a digit has to come */
    NUMBER_FRACTION,
    NUMBER_E, /* a sign or a digit has to come */
    NUMBER_SIGN,
    NUMBER_EXPONENT,
    BAD
};

struct json_feed json_feed_of(unsigned depth)
{
    return (struct json_feed){.depth_most = depth < JSON_FEED_DEPTH_MAX ? depth : JSON_FEED_DEPTH_MAX};
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool in_array(const struct json_feed *f)
{
    return f->depth && f->arrays >> (f->depth - 1) & 1;
}

static bool is_number_end(unsigned state)
{
    return state == NUMBER_ZERO || state == NUMBER_DIGITS || state == NUMBER_FRACTION ||
           state == NUMBER_EXPONENT;
}

bool json_feed_is_whole(const struct json_feed *f)
{
    return f->depth == 0 && (f->state == AFTER || is_number_end(f->state));
}

/* ---- containers ---- */

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
        return is_digit(c) ? NUMBER_DIGITS : BAD;
    }
}

static unsigned in_word(struct json_feed *f, uint8_t c)
{
    if (c != (uint8_t)*f->word)
        return BAD;
    return *++f->word ? WORD : AFTER;
}

/* BAD: the number does not go on with it. */
static unsigned go_on_with_number(unsigned state, uint8_t c)
{
    bool digit = is_digit(c), e = c == 'e' || c == 'E';
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

static unsigned in_number(struct json_feed *f, uint8_t c, bool *again)
{
    unsigned state = go_on_with_number(f->state, c);
    if (state == BAD && is_number_end(f->state) && !is_digit(c)) {
        *again = true;
        return AFTER;
    }
    return f->number++ < JSON_NUMBER_MAX ? state : BAD;
}

/* ---- strings ---- */

static int hex_digit(uint8_t c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Of both halves of a pair one after the other: `low` says that it is the second. */
static unsigned begin_hex(struct json_feed *f, bool low)
{
    f->next = 4;
    f->unit = 0;
    f->low = low;
    return HEX;
}

static unsigned in_hex(struct json_feed *f, uint8_t c)
{
    int digit = hex_digit(c);
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

static unsigned in_escape(struct json_feed *f, uint8_t c)
{
    if (c == 'u')
        return begin_hex(f, false);
    return c && strchr("\"\\/bfnrt", c) ? STRING : BAD;
}

/* As json_string_utf8: no overlong form, no surrogate, nothing beyond U+10FFFF. */
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

/* again: the byte is not taken, the state has changed for it. */
static unsigned take(struct json_feed *f, uint8_t c, bool *again)
{
    if (f->state <= AFTER && is_space(c))
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
        return in_escape(f, c);
    case HEX:
        return in_hex(f, c);
    case LOW_ESCAPE:
        return c == '\\' ? LOW_U : BAD;
    case LOW_U:
        return c == 'u' ? begin_hex(f, true) : BAD;
    case UTF8:
        return in_utf8(f, c);
    case WORD:
        return in_word(f, c);
    case BAD:
        return BAD;
    default:
        return in_number(f, c, again);
    }
}

/* What is told of the outermost object behind a step. */
static enum json_feed_event tell(struct json_feed *f, unsigned before)
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
        enum json_feed_event event = tell(f, before);
        if (event != JSON_FEED_MORE)
            return event;
    }
    return f->state == BAD ? JSON_FEED_BAD : JSON_FEED_MORE;
}
