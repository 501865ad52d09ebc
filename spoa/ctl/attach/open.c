/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <sys/random.h>

#include "spoa/base/json/json.h"
#include "spoa/proto/ws_handshake.h"

#define ANSWER_SECONDS 120 /* the gate may wait for a sandbox to wake up before it answers */
#define ANSWER_MAX     (HTTP_HEAD_MAX + 65536)

static bool send_all(struct attach_wire *wire, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t sent = attach_wire_write(wire, bytes);
        if (sent > 0)
            bytes = slice_from(bytes, (size_t)sent);
        else if (sent != ATTACH_WIRE_AGAIN || !attach_wire_wait(wire, false, true, ANSWER_SECONDS))
            return false;
    }
    return true;
}

/* Adds received bytes to *input. Returns false at the end of the connection, on a timeout, or if *input is full. */
static bool receive_some(struct attach_wire *wire, struct buffer *input)
{
    for (;;) {
        size_t room;
        uint8_t *to = buffer_room(input, 1024, &room);
        ssize_t got = to ? attach_wire_read(wire, to, room) : ATTACH_WIRE_FAILED;
        buffer_commit(input, got > 0 ? (size_t)got : 0);
        if (got > 0)
            return true;
        if (got != ATTACH_WIRE_AGAIN || !attach_wire_wait(wire, true, false, ANSWER_SECONDS))
            return false;
    }
}

static bool send_request(struct attach_wire *wire, const struct attach_url *url, struct slice token,
                         struct slice key, struct fail *why)
{
    static const size_t size = 32768;
    struct buffer request = buffer_with_limit(size);
    size_t room;
    uint8_t *memory = buffer_room(&request, size, &room);

    if (!memory)
        return fail(why, "out of memory");
    struct writer w = writer_of(memory, room);
    ws_handshake_put_request(&w, url->target, slice_text(url->authority), key, (struct slice){NULL, 0});
    if (slice_present(token)) {
        writer_text(&w, "Authorization: Bearer ");
        writer_put(&w, token);
        writer_text(&w, "\r\n");
    }
    writer_text(&w, "\r\n");
    bool sent = !w.full && send_all(wire, writer_slice(&w));
    explicit_bzero(memory, room);
    buffer_free(&request);
    return sent ||
           fail(why, w.full ? "the URL is too long" : "connection was lost while the request was sent");
}

static bool receive_head(struct attach_wire *wire, struct buffer *input, struct http_head *head,
                         struct fail *why)
{
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    enum http_result result;

    while ((result = http_read(&reader, buffer_slice(input), head)) == HTTP_MORE)
        if (!receive_some(wire, input))
            return fail(why, "no answer to the upgrade");
    if (result != HTTP_DONE)
        return fail(why, "answer to the upgrade is not HTTP: %s", reader.why);
    return true;
}

/* ---- refusals ---- */

static void text_member(const json_node *root, const char *key, char *to, size_t size)
{
    struct slice text = {NULL, 0};
    (void)json_text(json_member(root, key), &text);
    attach_printable(to, size, text);
}

/* Explains a refusal from the gate's body {"error":"...","message":"..."}; other bodies are of no use on a terminal. */
static bool explain_refusal(unsigned status, struct slice body, struct fail *why)
{
    struct fail ignored;
    struct json *doc = json_parse(body, "answer", 0, (struct json_limits){65536, 8}, &ignored);
    char error[64] = "", message[256] = "";

    if (doc) {
        text_member(json_root(doc), "error", error, sizeof(error));
        text_member(json_root(doc), "message", message, sizeof(message));
        json_free(doc);
    }
    return fail(why, "refused with status %u%s%s%s%s", status, *error ? " " : "", error, *message ? ": " : "",
                message);
}

/* Reads the body by its length, or until the connection ends, because a refusal closes it. */
static bool refused(struct attach_wire *wire, struct buffer *input, const struct http_head *head,
                    struct fail *why)
{
    unsigned status = head->status;
    size_t begin = head->len, length = ANSWER_MAX;

    if (http_framing(head, false) == HTTP_NO_BODY)
        length = 0;
    else if (head->has_length && head->length < length)
        length = (size_t)head->length;
    bool more = true;
    while (more && buffer_len(input) - begin < length)
        more = receive_some(wire, input);
    return explain_refusal(status, slice_sub(buffer_slice(input), begin, length), why);
}

bool attach_open(struct attach_wire *wire, const struct attach_url *url, struct slice token,
                 struct buffer *input, struct fail *why)
{
    char key[WS_KEY_SIZE];
    uint8_t nonce[16];
    struct http_head head;
    struct slice protocol;

    *input = buffer_with_limit(ANSWER_MAX);
    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return fail(why, "no random bytes");
    ws_handshake_key(key, nonce);
    if (!send_request(wire, url, token, slice_text(key), why) || !receive_head(wire, input, &head, why))
        return false;
    if (head.status != 101)
        return refused(wire, input, &head, why);
    if (!ws_handshake_check_answer(&head, slice_text(key), (struct slice){NULL, 0}, &protocol, why))
        return false;
    buffer_consume(input, head.len);
    return true;
}
