/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/state.h"

#include <stddef.h>

const char *const tunnel_state_names[] = {
#define X(state, meaning) #state,
    TUNNEL_STATES(X)
#undef X
        NULL};

static const struct {
    enum tunnel_state from;
    enum tunnel_event event;
    enum tunnel_state to;
} transitions[] = {
#define X(from, event, to, when) {TUNNEL_##from, EVENT_##event, TUNNEL_##to},
    TUNNEL_TRANSITIONS(X)
#undef X
};

bool tunnel_transition(enum tunnel_state *state, enum tunnel_event event)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
        if (transitions[i].from == *state && transitions[i].event == event) {
            *state = transitions[i].to;
            return true;
        }
    return false;
}
