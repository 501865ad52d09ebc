/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/pass.h"

/* Turns a record into a frame in place, and moves the frame down to the end of the frames before it. Returns false if there is no room
 * for the frame's head. */
static bool put_frame(uint8_t *frames, size_t *len, uint8_t tag, struct slice bytes)
{
    struct ws_frame frame = {.opcode = WS_BINARY, .fin = true, .length = bytes.len + 1};
    uint8_t *at = (uint8_t *)bytes.at;
    size_t room = (size_t)(at - (frames + *len));

    if (room < 1)
        return false;
    struct slice whole = ws_put_head(slice_of(at - 1, bytes.len + 1), room - 1, &frame);
    if (!slice_present(whole))
        return false;
    at[-1] = tag;
    memmove(frames + *len, whole.at, whole.len);
    *len += whole.len;
    return true;
}

/* Turns the records of s->replay into frames, in the same memory. Invariant: a record has at most RECORD_MAX bytes, so the head and tag
 * of its frame are never longer than the record's own head. Returns false if memory is short. */
static bool put_frames(struct scrollback *s, const struct delivered_place places[2])
{
    struct slice rest = buffer_slice(&s->replay.memory), bytes;
    uint8_t *frames = (uint8_t *)rest.at, tag;
    uint64_t seen[2] = {0, 0};
    size_t len = 0;

    while (records_take(&rest, &tag, &bytes)) {
        unsigned i = tag - TAG_OUTPUT;
        uint64_t place = places[i].at, from = seen[i];
        seen[i] += bytes.len;
        if (place >= seen[i])
            continue;
        if (place > from)
            bytes = slice_from(bytes, (size_t)(place - from));
        if (!delivered_put(&s->streams[i].delivered, bytes) || !put_frame(frames, &len, tag, bytes))
            return false;
    }
    buffer_cut(&s->replay.memory, len);
    buffer_consume(&s->replay.memory, 0);
    for (unsigned i = 0; i < 2; i++) {
        s->streams[i].skip = places[i].at > seen[i] ? places[i].at - seen[i] : 0;
        s->streams[i].doubt = !places[i].found;
    }
    return true;
}

bool pass_replay(struct scrollback *s, struct delivered_place places[2], struct adapter_edit *edit)
{
    /* The previous worker went on serving after the dial; the client has that output, too, and gets it again in the replay or live. */
    for (unsigned i = 0; i < 2; i++) {
        places[i].at += s->streams[i].delivered.end.len - s->streams[i].joined.len;
        delivered_forget(&s->streams[i].joined);
    }
    if (!put_frames(s, places))
        return false;
    edit->insert = s->replay.memory;
    edit->insert.limit = SCROLLBACK_INSERT;
    s->replay = records_with_limit(SCROLLBACK_REPLAY);
    s->phase = SCROLLBACK_PASSING;
    return true;
}

bool pass_held(struct scrollback *s, const uint64_t at[2], struct adapter_edit *edit)
{
    struct delivered_place places[2];

    for (unsigned i = 0; i < 2; i++)
        places[i] = (struct delivered_place){true, s->settle->first[i] + at[i]};
    if (!put_frames(s, places))
        return false;
    edit->insert.limit = SCROLLBACK_INSERT;
    bool put = buffer_put(&edit->insert, buffer_slice(&s->replay.memory));
    scrollback_clear_replay(s);
    s->phase = SCROLLBACK_PASSING;
    return put;
}

void pass_outcome(struct scrollback *s, bool gap, struct adapter_edit *edit)
{
    if (s->settle) {
        s->settle->gap = s->settle->gap || gap || s->torn;
    } else {
        edit->outcome = gap || s->torn ? ADAPTER_GAP : ADAPTER_EXACT;
        edit->gap = edit->outcome == ADAPTER_GAP ? ADAPTER_UNKNOWN : 0;
    }
    s->torn = false;
}

bool pass_exit(struct scrollback *s, const struct settle *settle, struct adapter_edit *edit)
{
    if (!settle->exited || s->exited)
        return true;
    s->exited = true;
    edit->insert.limit = SCROLLBACK_INSERT;
    return adapter_put_frame(&edit->insert, WS_BINARY, true, slice_of(settle->exit, sizeof settle->exit));
}
