/* SPDX-License-Identifier: MIT */
/*
 * What a neighbour process says of a tunnel: the image of one that lives, spoiled anywhere. Four bytes of the input choose the
 * tunnel, then each five are an offset (two bytes), how to spoil what is there (a byte, a bit, a whole number, a cut) and with
 * what. Or all behind the image's version and time is the input itself. Whatever is loaded lives on
 * for a while: nothing it says may touch memory that is not its own. What it forwards then is nonsense, which is allowed.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/relay/tunnel_world.h"

enum { HEAD = 1 + 3 /* bytes: a version, a time of 1,000 seconds or so */ };

struct spoiling {
    const uint8_t *data;
    size_t size;
    bool all;
};

static void spoil(struct buffer *image, void *context)
{
    const struct spoiling *s = context;
    size_t len = buffer_len(image);
    uint8_t *at = image->memory + image->start;

    if (s->all) {
        buffer_cut(image, HEAD);
        CHECK(buffer_put(image, slice_of(s->data, s->size)));
        return;
    }
    for (size_t i = 0; i + 5 <= s->size; i += 5) {
        size_t place = ((size_t)s->data[i] << 8 | s->data[i + 1]) * (s->data[i + 2] % 8 + 1u) % len;
        if (s->data[i + 2] & 0x20) /* small, or almost 2^64 */
            for (size_t k = 0; k < 8 && place + k < len; k++)
                at[place + k] = k == 7 ? s->data[i + 3] : s->data[i + 4] & 1 ? 0xff : 0;
        else if (s->data[i + 2] & 0x80)
            at[place] = s->data[i + 3];
        else
            at[place] ^= (uint8_t)(1u << (s->data[i + 3] & 7));
        if (s->data[i + 2] & 0x40)
            buffer_cut(image, place + 1); /* cut */
        len = buffer_len(image);
    }
}

static void connects(struct world *w)
{
    static struct http_head head;
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    uint8_t memory[2][512];
    struct writer query = writer_of(memory[0], 512), fields = writer_of(memory[1], 512);

    if (w->asking)
        world_answers(w, ANSWER_RUNNING, 2, 2);
    if (!w->dialling)
        return;
    if (w->t.forward.adapter->request)
        w->t.forward.adapter->request(w->t.forward.adapter_state, &query, &fields);
    CHECK(http_read(&r, slice_text("HTTP/1.1 101 S\r\nCell-Resume: 1; recv=0; next=1\r\n\r\n"), &head) ==
          HTTP_DONE);
    w->head = &head;
    world_dialled(w, DIAL_OPEN, 101);
}

/* Some life of either side, whose reads end anywhere. */
static void talks(struct world *w, unsigned rounds)
{
    static const char *const words[] = {"\1output", "\3\0\0\0\0",   "\4",
                                        "\0typed",  "\1more of it", "\2errors"};

    for (unsigned i = 0; i < rounds && w->t.state != TUNNEL_ended; i++) {
        if (w->t.forward.there[WORKER])
            world_says(w, WORKER, i % 3 ? 0x82 : 0x02, words[i % 6 == 1 ? 0 : i % 6]);
        if (w->t.state != TUNNEL_ended && w->t.forward.there[CLIENT])
            world_says(w, CLIENT, i % 4 ? 0x82 : 0x89, words[3]);
        if (w->t.state != TUNNEL_ended && w->t.forward.there[WORKER])
            world_says(w, WORKER, 0x80, "rest");
    }
}

/* Enough for marks; of one that replays, the same again. */
static void talks_long(struct world *w, uint8_t tag, size_t len)
{
    static uint8_t frame[70000 + WS_HEAD_MAX], said[70000];

    fuzz_fill(said + 1, len, 7);
    said[0] = tag;
    if (w->t.state != TUNNEL_ended && w->t.forward.there[WORKER])
        world_bytes(w, WORKER, world_frame(frame, WORKER, 0x82, slice_of(said, len + 1)), SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct handover h = world_handover();
    static struct world w;

    if (size < 9 || size > 1000)
        return 0;
    h.resume = data[0] & 3;
    h.end = data[0] >> 2 & 1;
    h.stream = true;
    h.session = SLICE_LITERAL("name");
    if (!world_open_to(&w, &h, "/pty/x/ws", false))
        return 0;
    connects(&w);
    if (data[3] & 3)
        talks_long(&w, 1, (size_t)(data[3] & 3) * 20000);
    talks(&w, data[1] % 8u);
    if (data[3] & 4 && w.t.state == TUNNEL_serving) {
        world_lost(&w, WORKER, LOSS_reset, w.now);
        connects(&w);
        talks_long(&w, 1, (size_t)data[3] << 8);
        talks_long(&w, 2, data[3]);
    }
    w.ears[CLIENT].room = data[2] & 1 ? 3 : SIZE_MAX;
    w.ears[WORKER].room = data[2] & 2 ? 3 : SIZE_MAX;
    talks(&w, data[2] >> 4 & 3u);
    if (data[2] & 4 && w.t.forward.there[WORKER])
        world_lost(&w, WORKER, LOSS_eof, w.now);
    if (data[2] & 8)
        talks(&w, 2);
    if (w.t.state != TUNNEL_ended) {
        struct spoiling spoiling = {data + 4, size - 4, data[3] & 32};
        world_hands_over(&w, spoil, &spoiling);
    }
    w.ears[CLIENT].room = w.ears[WORKER].room = SIZE_MAX;
    for (int i = 0; i < 3 && w.t.state != TUNNEL_ended; i++) {
        connects(&w);
        talks(&w, 3);
        if (data[3] & 8) {
            talks_long(&w, 1, 30000);
            talks_long(&w, 4, 0);
        }
        for (int side = 0; side < 2 && w.t.state != TUNNEL_ended; side++)
            world_writable(&w, (enum side)side, w.now);
        if (w.t.state != TUNNEL_ended)
            world_tick(&w, w.now);
        if (i == 1 && w.t.state != TUNNEL_ended && w.t.forward.there[WORKER])
            world_lost(&w, WORKER, LOSS_reset, w.now);
        if (w.t.state != TUNNEL_ended)
            world_pass(&w, SEC);
        if (data[3] & 16 && w.t.state != TUNNEL_ended)
            world_pass(&w, 20 * SEC);
    }
    if (w.t.state != TUNNEL_ended)
        world_end(&w, CLOSE_restarting, w.now);
    if (w.t.state != TUNNEL_ended)
        world_end(&w, CLOSE_restarting, w.now);
    world_close(&w);
    return 0;
}
