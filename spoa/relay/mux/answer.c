/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/answer.h"

#include "spoa/base/json/json_write.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/message.h"

#include <limits.h>

#define COPY_MAX ((size_t)256 << 10) /* bytes; a longer message is moved to an empty buffer, not copied */

#define ID_MEMBER   ",\"id\":"
#define BODY_MEMBER ",\"body\":"

/* ---- messages ---- */

static bool put_head(struct buffer *out, size_t payload)
{
    const struct ws_frame frame = {.opcode = WS_TEXT, .fin = true, .length = payload};
    uint8_t head[WS_HEAD_MAX];
    return buffer_put(out, slice_of(head, ws_encode_head(head, &frame)));
}

static bool begin(struct buffer *text, const char *type, struct slice id)
{
    return json_write(text, "{\"type\":\"%s\"", type) &&
           (!slice_present(id) || (json_write(text, ID_MEMBER) && json_write_text(text, id)));
}

bool mux_put_error(struct buffer *out, struct slice id, const char *code, const char *message,
                   unsigned status)
{
    struct buffer text = buffer_with_limit(INT_MAX);
    bool good =
        begin(&text, "error", id) &&
        json_write(&text, ",\"code\":\"%s\",\"message\":\"%s\",\"status\":%u}", code, message, status);
    size_t room, len = buffer_len(&text);
    good = good && buffer_room(out, WS_HEAD_MAX + len, &room) && put_head(out, len) &&
           buffer_put(out, buffer_slice(&text));
    buffer_free(&text);
    return good;
}

/* Appends the whole event to `out` as one frame, or nothing if there is no room. */
static void put_event(void *context, struct slice name, struct slice data)
{
    static const char type[] = "{\"type\":\"stream\"" ID_MEMBER,
                      event[] = ",\"event\":", value[] = ",\"data\":";
    struct mux_answer *a = context;
    struct buffer *out = a->out;
    size_t room, len = strlen(type) + json_text_len(a->id) + strlen(value) + json_text_len(data) + 1;
    if (name.len)
        len += strlen(event) + json_text_len(name);
    if (a->full)
        return;
    a->full = !(buffer_room(out, WS_HEAD_MAX + len, &room) && put_head(out, len) &&
                buffer_put(out, slice_text(type)) && json_write_text(out, a->id) &&
                (!name.len || (buffer_put(out, slice_text(event)) && json_write_text(out, name))) &&
                buffer_put(out, slice_text(value)) && json_write_text(out, data) &&
                buffer_put(out, SLICE_LITERAL("}")));
}

/* Writes the message up to its body. The head of the answer is not needed afterwards. */
static bool begin_response(struct mux_answer *a, const struct http_head *head)
{
    static const uint8_t room[WS_HEAD_MAX];
    struct buffer *text = &a->text;
    bool good = buffer_put(text, slice_of(room, sizeof room)) && begin(text, "response", a->id) &&
                json_write(text, ",\"status\":%u,\"headers\":{", head->status) &&
                mux_put_headers(text, head, false) && json_write(text, "}");
    a->members = buffer_len(text);
    return good && json_write(text, BODY_MEMBER);
}

/* Appends a piece of the body. A body that is no JSON is omitted, as the server of sandbox-sdk does. */
static bool put_body(struct mux_answer *a, struct slice piece)
{
    struct slice rest = piece;
    a->gathered += piece.len;
    while (rest.len && !a->no_json)
        a->no_json = json_feed(&a->check, &rest) == JSON_FEED_BAD;
    if (!a->no_json)
        return buffer_put(&a->text, piece);
    buffer_cut(&a->text, a->members);
    return true;
}

static enum mux_step end_response(struct mux_answer *a)
{
    uint8_t head[WS_HEAD_MAX];
    struct buffer *text = &a->text;
    if (!json_feed_is_whole(&a->check))
        buffer_cut(text, a->members);
    if (!json_write(text, ",\"done\":true}"))
        return MUX_BROKEN;
    const struct ws_frame frame = {.opcode = WS_TEXT, .fin = true, .length = buffer_len(text) - WS_HEAD_MAX};
    size_t len = ws_encode_head(head, &frame);
    buffer_consume(text, WS_HEAD_MAX - len);
    memcpy(text->memory + text->start, head, len);
    if (buffer_len(a->out) == 0) {
        mux_answer_finish(a, a->out);
        return MUX_DONE;
    }
    if (buffer_len(text) > COPY_MAX) {
        a->whole = true;
        return MUX_WHOLE;
    }
    bool good = buffer_put(a->out, buffer_slice(text));
    buffer_free(text);
    return good ? MUX_DONE : MUX_BROKEN;
}

void mux_answer_finish(struct mux_answer *a, struct buffer *out)
{
    buffer_swap(out, &a->text);
    buffer_free(&a->text);
    a->whole = false;
}

bool mux_answer_is_whole(const struct mux_answer *a)
{
    return a->whole;
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

/* Completes the answer after its last byte. */
static enum mux_step conclude(struct mux_answer *a, bool *fits)
{
    struct fail why;
    /* the last event counts, too, if the empty line after the event is missing */
    if (a->streams && !event_stream_feed(&a->events, SLICE_LITERAL("\n\n"), &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    enum mux_step step = a->full ? MUX_BROKEN : end_response(a);
    *fits = step != MUX_BROKEN;
    return step;
}

/* ---- the answer ---- */

void mux_answer_init(struct mux_answer *a, struct slice id, size_t most)
{
    *a = (struct mux_answer){.id = id,
                             .most = most,
                             .response = mux_response_of(false),
                             .text = buffer_with_limit(INT_MAX),
                             .check = json_feed_of(MUX_DEPTH)};
    event_stream_init(&a->events, most < MUX_EVENT_MOST ? most : MUX_EVENT_MOST);
    a->events.event = put_event;
    a->events.context = a;
}

void mux_answer_free(struct mux_answer *a)
{
    event_stream_free(&a->events);
    mux_response_free(&a->response);
    buffer_free(&a->text);
}

size_t mux_answer_held(const struct mux_answer *a)
{
    return mux_response_held(&a->response) + a->text.size + a->events.line.size + a->events.data.size;
}

bool mux_answer_gathers(const struct mux_answer *a)
{
    return a->gathered > 0;
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
    a->streams = is_event_stream(&head);
    bool good = begin_response(a, &head);
    mux_response_forget_head(&a->response);
    return good ? MUX_MORE : no_room(fits);
}

static enum mux_step take_piece(struct mux_answer *a, struct slice piece, bool *fits)
{
    struct fail why;
    if (a->streams && !event_stream_feed(&a->events, piece, &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    if (!a->streams && (piece.len > a->most - a->gathered || !put_body(a, piece)))
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
