/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/command.h"

#include <stdlib.h>

const char *const loss_names[] = {
#define X(name) #name,
    LOSSES(X)
#undef X
        NULL};

/* Adds a declaration to the last one if there are many, because a hostile worker can make its adapter declare a gap with each message. */
static bool add_up(struct commands *c, const struct command *command)
{
    struct command *last = c->count > c->first ? &c->at[c->count - 1] : NULL;

    if (command->kind != COMMAND_DECLARED || c->count < COMMANDS_NOTES || !last ||
        last->kind != COMMAND_DECLARED)
        return false;
    last->bytes = command->bytes > UINT64_MAX - last->bytes ? UINT64_MAX : last->bytes + command->bytes;
    return true;
}

static bool take_back(struct commands *c, enum command_kind kind)
{
    for (unsigned i = c->count; i-- > c->first;)
        if (c->at[i].kind == kind) {
            for (c->count--; i < c->count; i++)
                c->at[i] = c->at[i + 1];
            return true;
        }
    return false;
}

void commands_put(struct commands *c, const struct command *command)
{
    if (add_up(c, command) || (command->kind == COMMAND_HANG_UP && take_back(c, COMMAND_DIAL)))
        return;
    if (c->count == COMMANDS_MOST)
        abort(); /* a defect: no event appends more than COMMANDS_MOST commands */
    c->at[c->count++] = *command;
    if (command->kind == COMMAND_ACCEPT || command->kind == COMMAND_ADOPT)
        c->unattached[command->kind == COMMAND_ADOPT] = true;
}

struct command *commands_take(struct commands *c)
{
    if (c->first == c->count) {
        c->first = c->count = 0;
        return NULL;
    }
    struct command *next = &c->at[c->first++];
    if (next->kind == COMMAND_ACCEPT || next->kind == COMMAND_ADOPT)
        c->unattached[next->kind == COMMAND_ADOPT] = false;
    return next;
}
