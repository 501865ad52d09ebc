/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

static bool ends_line(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

/* Interprets the byte after a `~`: "~~" is one `~`, and any other pair that is no command is sent unchanged. */
static enum attach_command after_tilde(uint8_t byte, uint8_t *to, size_t *len)
{
    if (byte == '.')
        return ATTACH_LEAVE;
    if (byte == '?')
        return ATTACH_HELP;
    to[(*len)++] = '~';
    if (byte != '~')
        to[(*len)++] = byte;
    return ATTACH_NO_COMMAND;
}

enum attach_command attach_escape_filter(struct attach_escape *e, struct slice *in, uint8_t *to, size_t *len)
{
    enum attach_command command = ATTACH_NO_COMMAND;

    *len = 0;
    while (in->len > 0 && command == ATTACH_NO_COMMAND) {
        uint8_t byte = in->at[0];
        *in = slice_from(*in, 1);
        if (e->tilde) {
            e->tilde = false;
            command = after_tilde(byte, to, len);
            e->inside_line = command == ATTACH_NO_COMMAND && !ends_line(byte);
        } else if (byte == '~' && !e->inside_line) {
            e->tilde = true;
        } else {
            to[(*len)++] = byte;
            e->inside_line = !ends_line(byte);
        }
    }
    return command;
}
