/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/query.h"

#include "spoa/base/bytes/ascii.h"

/* Takes one character off *s and percent-decodes it if its escape is well-formed. */
static uint8_t next_character(struct slice *s)
{
    uint8_t c = s->at[0];
    size_t used = 1;
    if (c == '%' && s->len >= 3 && ascii_hex_value(s->at[1]) >= 0 && ascii_hex_value(s->at[2]) >= 0) {
        c = (uint8_t)(ascii_hex_value(s->at[1]) << 4 | ascii_hex_value(s->at[2]));
        used = 3;
    }
    *s = slice_from(*s, used);
    return c;
}

bool query_name_is(struct slice parameter, const char *name)
{
    struct slice left = slice_sub(parameter, 0, slice_find(parameter, '='));
    while (left.len && *name && next_character(&left) == (uint8_t)*name)
        name++;
    return left.len == 0 && *name == '\0';
}

struct slice query_value(struct slice parameter)
{
    size_t equals = slice_find(parameter, '=');
    return slice_from(parameter, equals < parameter.len ? equals + 1 : equals);
}

bool query_has(struct slice query, const char *name)
{
    struct slice parameter;
    while (slice_split(&query, '&', &parameter))
        if (query_name_is(parameter, name))
            return true;
    return false;
}

struct slice query_decode(struct slice value, enum query_plus plus, struct writer *scratch)
{
    bool blanks = plus == QUERY_PLUS_IS_BLANK;
    if (slice_find(value, '%') == value.len && (!blanks || slice_find(value, '+') == value.len))
        return value;
    struct slice text = {scratch->at + scratch->len, 0};
    while (value.len) {
        bool blank = blanks && value.at[0] == '+';
        uint8_t c = next_character(&value);
        writer_u8(scratch, blank ? ' ' : c);
        text.len = (size_t)(scratch->at + scratch->len - text.at);
    }
    return text;
}

void query_encode(struct slice text, struct writer *w)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i], letter = c | 0x20;
        if ((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || (c && strchr("-._~/", c)))
            writer_u8(w, c);
        else
            writer_printf(w, "%%%02X", c);
    }
}
