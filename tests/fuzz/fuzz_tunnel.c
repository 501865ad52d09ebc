/* SPDX-License-Identifier: MIT */
/*
 * Random lives of a tunnel: two bytes of settings, then each two bytes of the input are an event and its
 * argument. Whatever happens, what the peers get is valid RFC 6455, memory is bounded, sockets are accounted
 * for and nothing happens after the end.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/relay/tunnel_world.h"

static void check_world(const struct world *w)
{
    const struct tunnel *t = &w->t;
    bool ended = t->state == TUNNEL_ended;

    CHECK(!w->ears[CLIENT].broken && !w->ears[WORKER].broken);
    CHECK(t->state < TUNNEL_closing || t->reason != CLOSE_no_memory);
    CHECK(w->ends == (ended ? 1 : 0));
    CHECK(w->accepts || !w->ears[CLIENT].said[0]);
    CHECK(w->accepts + w->refusals <= 1 && (t->state != TUNNEL_serving || w->accepts == 1));
    CHECK(w->adopts - w->parted[WORKER] - w->dropped[WORKER] == (t->forward.there[WORKER] ? 1 : 0));
    CHECK(w->parted[CLIENT] + w->dropped[CLIENT] + w->refusals == (t->forward.there[CLIENT] ? 0 : 1));
    CHECK(!ended || (!t->forward.there[CLIENT] && !t->forward.there[WORKER] && !w->dialling && !w->open));
    CHECK((t->connector.phase == CONNECTOR_DIALLING) == (w->dialling && !ended));
    CHECK(!forward_needs_permit(&t->forward) || !t->forward.legs[WORKER].reading || w->turn);
    for (int side = 0; side < 2; side++)
        CHECK(send_queue_len(&t->forward.legs[side].out) <=
              t->forward.place.settings->buffer + LEG_SLACK +
                  (side == CLIENT ? t->forward.adapter->insert_max : 0));
}

/* What a side still has to say of a long frame: its reads cut it anywhere, and it may have to wait. */
static struct {
    uint8_t memory[WS_HEAD_MAX + (1 << 20) + 1];
    struct slice rest;
    unsigned of; /* which worker's */
    size_t step;
} longs[2];
static size_t long_bytes; /* in this life */

static bool can_say(const struct world *w, enum side from)
{
    return w->t.state != TUNNEL_ended &&
           (from == WORKER ? w->t.forward.there[WORKER] : w->t.forward.there[CLIENT] && w->accepts);
}

/* False: it is not through. */
static bool says_rest(struct world *w, enum side from)
{
    struct slice *rest = &longs[from].rest;

    if (longs[from].of != w->adopts && from == WORKER)
        rest->len = 0;
    while (rest->len && can_say(w, from) && w->t.forward.legs[from].reading) {
        size_t room = forward_room(&w->t.forward, from), step = longs[from].step;
        struct slice part = slice_sub(*rest, 0, step < room ? step : room);
        if (!part.len)
            break;
        *rest = slice_from(*rest, part.len);
        world_bytes(w, from, part, SIZE_MAX);
        if (longs[from].of != w->adopts && from == WORKER)
            rest->len = 0;
    }
    return !rest->len;
}

/* A binary frame of a length of fuzz_length, of what adapters know; the upper bits choose that. */
static void says_long(struct world *w, enum side from, uint8_t argument)
{
    static const size_t steps[] = {65536, 65535, 16384, 16385, 4096, 126, 65536, 30000};
    static uint8_t payload[(1 << 20) + 1];
    size_t len = fuzz_length(argument & 0x1f);

    if (!can_say(w, from) || !says_rest(w, from) || long_bytes > 6 << 20)
        return;
    long_bytes += len;
    fuzz_fill(payload + 1, len, 7);
    payload[0] = from == WORKER ? 1 + (argument >> 5 & 1) : argument >> 5 & 1;
    unsigned opcode = w->t.forward.legs[from].in.in_message ? WS_CONTINUATION : WS_BINARY,
             fin = argument & 0x40 ? 0 : 0x80;
    longs[from].rest = world_frame(longs[from].memory, from, fin | opcode, slice_of(payload, len + 1));
    longs[from].of = w->adopts;
    longs[from].step = steps[argument >> 5];
    if (longs[from].step < len / 256)
        longs[from].step = len / 256;
    says_rest(w, from);
}

static void says(struct world *w, enum side from, uint8_t argument)
{
    if (!says_rest(w, from))
        return;
    static const unsigned starts[] = {0x81, 0x82, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x83};
    static const size_t lens[] = {0, 1, 5, 125, 126, 17000, 70000, 300};
    static uint8_t frame[70100], payload[70000];
    unsigned start = starts[argument & 7];
    size_t len = lens[argument >> 3 & 7];
    if (start >= 0x88 && len > 125)
        len = 125;
    memset(payload, argument, len);
    if (from == WORKER && argument & 0x80)
        payload[0] = (uint8_t)(argument >> 2 & 7); /* what adapters know; an exit, if it is 3 and 5 long */
    struct slice bytes = world_frame(frame, from, start, slice_of(payload, len));
    if (argument & 0x40)
        bytes = slice_sub(bytes, 0, bytes.len / 2 + 1); /* what comes next is nonsense then */
    if (from == WORKER ? w->t.forward.there[WORKER] : w->t.forward.there[CLIENT] && w->accepts)
        world_bytes(w, from, bytes, argument & 0x80 ? 1000 : SIZE_MAX);
}

/* Several frames in one read, most of them whole small messages, which pass as they came; the read may end within one. */
static void bursts(struct world *w, enum side from, uint8_t argument)
{
    static const unsigned others[] = {0x82, 0x81, 0x02, 0x00, 0x80, 0x89, 0x8a, 0xc2};
    static const size_t lens[] = {0, 1, 5, 124, 125, 126, 127, 4095};
    static uint8_t memory[8 * 4200], payload[4096];
    size_t len = 0, at = argument >> 4 & 3;

    if (!can_say(w, from) || !says_rest(w, from) || w->t.forward.legs[from].in.in_message)
        return;
    for (size_t i = 0; i < 6; i++) {
        unsigned start = i == 4 ? others[argument & 7] : argument & 8 ? 0x82 : 0x81;
        size_t l = lens[(argument + i * 3) & 7];
        memset(payload, (int)i, l);
        payload[0] = from == WORKER ? 1 : (uint8_t)(i & 1);
        len +=
            world_frame(memory + len, from, start, slice_of(payload, start == 0x89 || start == 0x8a ? 5 : l))
                .len;
    }
    size_t cut = len - (argument & 0x40 ? at : argument & 0x80 ? 5 * at : 0);
    world_bytes(w, from, slice_of(memory, cut), SIZE_MAX);
    if (can_say(w, from) && w->t.forward.legs[from].reading)
        world_bytes(w, from, slice_of(memory + cut, len - cut), SIZE_MAX);
}

static void closes(struct world *w, enum side from, uint8_t argument)
{
    static const unsigned codes[] = {1000, 1001, 1002, 1005, 1011, 1012, 3000, 4001};
    if (from == WORKER ? w->t.forward.there[WORKER] : w->t.forward.there[CLIENT] && w->accepts)
        world_closes(w, from, codes[argument & 7], argument & 8 ? "reason" : "");
}

static void told(struct world *w, bool watch, uint8_t argument)
{
    enum answer_state state = (enum answer_state)(argument % 7);
    uint16_t port = state <= ANSWER_SUSPENDED ? argument >> 3 & 3 : 0;
    struct answer answer = world_answer(state, port, argument >> 5);
    if (argument == 0xff)
        answer.refused = REFUSAL_token_expired;
    *(watch ? &w->watching : &w->asking) = false;
    world_answered(w, &answer, watch, w->now);
}

/* Acknowledgements and marks of a worker that numbers. */
static void numbers(struct world *w, uint8_t argument)
{
    uint8_t payload[13] = "cr\0\0\0\0\0\0\0\0end", frame[32];

    payload[9] = argument & 0x0f;
    if (w->t.forward.there[WORKER])
        world_bytes(w, WORKER, world_frame(frame, WORKER, 0x8a, slice_of(payload, argument & 0x10 ? 13 : 10)),
                    SIZE_MAX);
}

/* What a worker says to a request: a head that may fit the counters. */
static void answers(struct world *w, uint8_t argument)
{
    static struct http_head head;
    static char text[128];
    uint8_t memory[2][512];
    struct writer query = writer_of(memory[0], 512), fields = writer_of(memory[1], 512);
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);

    if (w->t.forward.adapter->request)
        w->t.forward.adapter->request(w->t.forward.adapter_state, &query, &fields);
    snprintf(text, sizeof text, "HTTP/1.1 101 S\r\nCell-Resume: %d; recv=%d; next=%d\r\n\r\n",
             (argument & 0x7f) == 0x7f ? 2 : 1, argument & 3, 1 + (argument >> 2 & 3));
    CHECK(http_read(&r, slice_text(text), &head) == HTTP_DONE);
    w->head = &head;
}

static void event(struct world *w, uint8_t what, uint8_t argument)
{
    static const size_t rooms[] = {0, 1, 100, 70000, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    enum side side = what & 0x80 ? WORKER : CLIENT;

    switch (what % 12) {
    case 0:
        says(w, side, argument);
        break;
    case 1:
        says_long(w, side, argument);
        break;
    case 2:
        closes(w, side, argument);
        break;
    case 3:
        world_lost(w, side, argument & 1 ? LOSS_eof : LOSS_reset, w->now);
        break;
    case 4:
    case 5:
        answers(w, argument);
        if (w->dialling)
            world_dialled(w,
                          argument < 128 ? DIAL_OPEN : (enum dial_outcome)(argument % (DIAL_NO_SOCKET + 1)),
                          argument & 1 ? 404 : 503);
        break;
    case 6:
        if (w->asking)
            told(w, false, argument);
        break;
    case 7:
        if (w->watching)
            told(w, true, argument);
        break;
    case 8:
        world_pass(w, (uint64_t)argument * argument * 10 * MS);
        break;
    case 9:
        w->ears[side].room = rooms[argument & 7];
        world_writable(w, side, w->now);
        break;
    case 10:
        if (side == WORKER)
            numbers(w, argument);
        else
            bursts(w, what & 0x40 ? WORKER : CLIENT, argument);
        break;
    default:
        w->full = argument & 1;
        w->crowded = argument & 2;
        w->tight = argument & 4;
        if (argument > 200 && argument <= 245 && w->accepts && w->t.state != TUNNEL_ended)
            CHECK(world_hands_over(w, NULL, NULL));
        if (argument > 245)
            world_end(w, argument > 250 ? CLOSE_restarting : CLOSE_held_too_much, w->now);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct handover h = world_handover();
    static struct world w;

    if (size < 3 || size > 4000)
        return 0;
    longs[CLIENT].rest.len = longs[WORKER].rest.len = long_bytes = 0;
    h.end = data[0] % 3;
    h.stream = data[0] & 4;
    h.overlap = data[0] & 8;
    h.secrets = data[0] & 16;
    h.keepalive = data[0] & 32 ? HANDOVER_KEEPALIVE_EMPTY_FRAME : HANDOVER_KEEPALIVE_PING;
    h.max_message = data[0] & 64 ? 20000 : -1;
    h.idle = data[0] & 128 ? 100000 : -1;
    h.resume = data[1] & 3;
    h.session = data[1] & 8 ? SLICE_LITERAL("name") : slice_text(NULL);
    if (!world_open_to(&w, &h, "/pty/x/ws", data[1] & 4))
        return 0;
    w.pipes = data[1] & 16;
    w.twins = data[1] & 32;
    for (size_t i = 2; i + 1 < size && w.t.state != TUNNEL_ended; i += 2) {
        event(&w, data[i], data[i + 1]);
        check_world(&w);
    }
    world_close(&w);
    return 0;
}
