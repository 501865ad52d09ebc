/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/answer.h"

#include "spoa/base/json.h"
#include "spoa/base/json_write.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/message.h"

#include <limits.h>

/* ---- messages ---- */

/* The text of a message as one frame, behind what is there: all of it, or nothing. */
static bool put_frame(struct buffer *out, const struct buffer *text)
{
    struct slice payload = buffer_slice(text);
    const struct ws_frame frame = {.opcode = WS_TEXT, .fin = true, .length = payload.len};
    uint8_t head[WS_HEAD_MAX];
    size_t len = ws_encode_head(head, &frame), room;
    uint8_t *to = buffer_room(out, len + payload.len, &room);
    if (!to)
        return false;
    memcpy(to, head, len);
    if (payload.len)
        memcpy(to + len, payload.at, payload.len);
    buffer_commit(out, len + payload.len);
    return true;
}

/* `good`: whether all of the text found room. */
static bool finish(struct buffer *out, struct buffer *text, bool good)
{
    good = good && put_frame(out, text);
    buffer_free(text);
    return good;
}

static bool begin(struct buffer *text, const char *type, struct slice id)
{
    *text = buffer_with_limit(INT_MAX);
    return json_write(text, "{\"type\":\"%s\"", type) &&
           (!slice_present(id) || (json_write(text, ",\"id\":") && json_write_text(text, id)));
}

bool mux_put_error(struct buffer *out, struct slice id, const char *code, const char *message,
                   unsigned status)
{
    struct buffer text;
    bool good =
        begin(&text, "error", id) &&
        json_write(&text, ",\"code\":\"%s\",\"message\":\"%s\",\"status\":%u}", code, message, status);
    return finish(out, &text, good);
}

static void put_event(void *context, struct slice name, struct slice data)
{
    struct mux_answer *a = context;
    struct buffer text;
    if (a->full)
        return;
    bool good = begin(&text, "stream", a->id);
    if (good && name.len)
        good = json_write(&text, ",\"event\":") && json_write_text(&text, name);
    good = good && json_write(&text, ",\"data\":") && json_write_text(&text, data) && json_write(&text, "}");
    a->full = !finish(a->out, &text, good);
}

static bool put_headers(const struct mux_answer *a, struct buffer *text)
{
    struct http_head head;
    return mux_response_head(&a->response, &head) && json_write(text, ",\"headers\":{") &&
           mux_put_headers(text, &head, false) && json_write(text, "}");
}

/* A body that is no JSON is left out, as sandbox-sdk's own server does. */
static bool put_body(const struct mux_answer *a, struct buffer *text)
{
    struct slice body = buffer_slice(&a->body);
    struct fail why;
    if (body.len == 0 || !json_check(body, "body", 0, (struct json_limits){body.len, MUX_DEPTH}, &why))
        return true;
    return json_write(text, ",\"body\":") && buffer_put(text, body);
}

static enum mux_step broken(struct mux_answer *a, const char *code, const char *message, unsigned status,
                            bool *fits)
{
    *fits = !a->full && mux_put_error(a->out, a->id, code, message, status);
    return MUX_BROKEN;
}

static enum mux_step no_room(bool *fits)
{
    *fits = false;
    return MUX_BROKEN;
}

/* All of the answer is there. */
static enum mux_step conclude(struct mux_answer *a, bool *fits)
{
    struct buffer text;
    struct fail why;
    /* the last event counts without the empty line behind it, too */
    if (a->streams && !event_stream_feed(&a->events, SLICE_LITERAL("\n\n"), &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    if (a->full)
        return no_room(fits);
    bool good = begin(&text, "response", a->id) && json_write(&text, ",\"status\":%u", a->status) &&
                put_headers(a, &text) && put_body(a, &text) && json_write(&text, ",\"done\":true}");
    *fits = finish(a->out, &text, good);
    return *fits ? MUX_DONE : MUX_BROKEN;
}

/* ---- the answer ---- */

void mux_answer_init(struct mux_answer *a, struct slice id, size_t most)
{
    *a = (struct mux_answer){
        .id = id, .most = most, .response = mux_response_of(false), .body = buffer_with_limit(most)};
    event_stream_init(&a->events, most);
    a->events.event = put_event;
    a->events.context = a;
}

void mux_answer_free(struct mux_answer *a)
{
    event_stream_free(&a->events);
    mux_response_free(&a->response);
    buffer_free(&a->body);
}

size_t mux_answer_held(const struct mux_answer *a)
{
    return mux_response_held(&a->response) + a->body.size + a->events.line.size + a->events.data.size;
}

bool mux_answer_gathers(const struct mux_answer *a)
{
    return buffer_len(&a->body) > 0;
}

bool mux_answer_streams(const struct mux_answer *a)
{
    return a->streams;
}

static bool is_event_stream(const struct http_head *head)
{
    static const char type[] = "text/event-stream";
    struct slice value = http_get(head, "Content-Type");
    value = slice_trim(slice_sub(value, 0, slice_find(value, ';')));
    return head->status < 400 && slice_equal_nocase(value, slice_text(type));
}

static enum mux_step take_head(struct mux_answer *a, bool *fits)
{
    struct http_head head;
    if (!mux_response_head(&a->response, &head))
        return no_room(fits);
    a->status = head.status;
    a->streams = is_event_stream(&head);
    return MUX_MORE;
}

static enum mux_step take_piece(struct mux_answer *a, struct slice piece, bool *fits)
{
    struct fail why;
    if (a->streams && !event_stream_feed(&a->events, piece, &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    if (!a->streams && !buffer_put(&a->body, piece))
        return broken(a, "INTERNAL_ERROR", "The answer is too large for a message.", 502, fits);
    return a->full ? no_room(fits) : MUX_MORE;
}

static enum mux_step take_bad(struct mux_answer *a, bool *fits)
{
    if (mux_response_has_head(&a->response))
        return broken(a, "STREAM_ERROR", "The answer's chunks are broken.", 502, fits);
    return broken(a, "INTERNAL_ERROR", "The answer is no HTTP.", 502, fits);
}

enum mux_step mux_answer_feed(struct mux_answer *a, struct slice in, struct buffer *out, bool *fits)
{
    enum mux_step step = MUX_MORE;
    enum mux_part part = MUX_PART_HEAD;
    struct slice piece;
    a->out = out;
    *fits = true;
    while (step == MUX_MORE && part != MUX_PART_MORE) {
        part = mux_response_next(&a->response, &in, SIZE_MAX, &piece);
        if (part == MUX_PART_HEAD)
            step = take_head(a, fits);
        else if (part == MUX_PART_BODY)
            step = take_piece(a, piece, fits);
        else if (part == MUX_PART_END)
            step = conclude(a, fits);
        else if (part == MUX_PART_BAD)
            step = take_bad(a, fits);
        else if (part == MUX_PART_NO_MEMORY)
            step = no_room(fits);
    }
    return step;
}

enum mux_step mux_answer_end(struct mux_answer *a, struct buffer *out, bool *fits)
{
    a->out = out;
    *fits = true;
    if (mux_response_cut(&a->response) == MUX_PART_END)
        return conclude(a, fits);
    return mux_response_has_head(&a->response)
               ? broken(a, "STREAM_ERROR", "The answer was cut.", 502, fits)
               : broken(a, "INTERNAL_ERROR", "There was no answer.", 502, fits);
}
