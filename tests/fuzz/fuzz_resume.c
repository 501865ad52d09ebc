/* SPDX-License-Identifier: MIT */
/*
 * Random lives of the session's side of Cell-Resume: two bytes are an event and its argument. After each one
 * numbers are in order, windows are kept, memory is bounded, and what is sent again is what was sent.
 */

#include "examples/worker/resume/resume.h"
#include "spoa/base/bytes/reader.h"
#include "tests/fuzz/fuzz.h"

enum { ITEMS = 4096 };

struct life {
    struct resume r;
    struct resume_item items[ITEMS]; /* as they were numbered */
    uint64_t produced;
    uint64_t acknowledged, consumed; /* never go back */
};

static void check_life(struct life *l)
{
    const struct resume *r = &l->r;

    CHECK(r->acknowledged >= l->acknowledged && r->consumed >= l->consumed);
    l->acknowledged = r->acknowledged;
    l->consumed = r->consumed;
    CHECK(r->acknowledged <= r->sent && r->sent <= r->numbered && r->numbered < ITEMS);
    CHECK(r->next <= r->numbered + 1 && r->told <= r->consumed);
    CHECK(r->in_flight <= r->window && r->window <= RESUME_WINDOW);
    CHECK(r->cut <= l->produced && resume_kept(r) <= r->cut);
    CHECK(buffer_len(&r->held) <= (RESUME_WINDOW + CELL_RESUME_COST) * 2);
    if (r->state != RESUME_LIVE)
        CHECK(!r->waiting && !resume_to_send(r) && !resume_room(r));
    const struct resume_item *i = resume_to_send(r);
    if (i) {
        const struct resume_item *was = &l->items[r->next];
        CHECK(i->offset == was->offset && i->length == was->length && i->kind == was->kind);
        CHECK(i->offset >= resume_kept(r) || i->kind != RESUME_BYTES);
    }
}

static void number(struct life *l, enum resume_kind kind, uint32_t length)
{
    if (l->r.ended || l->r.numbered + 2 >= ITEMS)
        return;
    uint64_t at = l->r.cut;
    if (kind == RESUME_BYTES) {
        size_t room = resume_room(&l->r);
        length = length < room ? length : (uint32_t)room;
        if (length == 0)
            return;
        l->produced += length;
    } else if (l->r.state == RESUME_OVER) {
        return;
    }
    CHECK(resume_number(&l->r, kind, kind == RESUME_END ? 0 : length));
    l->items[l->r.numbered] = (struct resume_item){at, kind == RESUME_END ? 0 : length, kind};
}

static void hear(struct life *l, uint8_t argument)
{
    static uint8_t bytes[1 << 20];
    struct slice piece = slice_of(bytes, fuzz_length(argument & 0x1f));
    struct resume_message m = {.length = (uint32_t)piece.len + (uint32_t)l->r.open};
    m.size = m.length;
    if (l->r.state != RESUME_LIVE || l->r.closing)
        return;
    enum resume_verdict verdict = resume_piece(&l->r, piece, &m, argument & 0x80);
    CHECK(verdict != RESUME_NO_MEMORY);
    if (verdict != RESUME_FINE)
        resume_left(&l->r); /* its owner ends the leg */
}

static void consume(struct life *l)
{
    struct resume_message m;
    struct slice bytes;
    bool now;
    if (l->r.state == RESUME_LIVE && resume_waiting(&l->r, &m, &bytes)) {
        CHECK(bytes.len == m.length);
        resume_consume(&l->r);
    }
    if (l->r.state == RESUME_LIVE && resume_owes(&l->r, &now))
        resume_tell(&l->r);
}

static void request(struct life *l, uint8_t argument)
{
    struct resume_request q = {.attempt = l->r.attempt + (argument & 3),
                               .recv = l->r.acknowledged + (argument >> 2 & 7),
                               .buffer = argument & 0x80 ? CELL_RESUME_WINDOW_MIN : 0,
                               .has_recv = true};
    enum resume_answer answer = resume_request(&l->r, &q);
    if (answer == RESUME_ACCEPTED)
        CHECK(l->r.state == RESUME_LIVE && l->r.acknowledged >= q.recv);
}

static void event(struct life *l, uint8_t what, uint8_t argument)
{
    switch (what % 10) {
    case 0:
        request(l, argument);
        break;
    case 1:
        number(l, RESUME_BYTES, (uint32_t)fuzz_length(argument) + (argument >> 5));
        break;
    case 2:
        number(l, argument > 240 ? RESUME_END : argument > 200 ? RESUME_EXIT : RESUME_BYTES, 5);
        break;
    case 3:
    case 4:
        for (unsigned n = 0; n <= argument % 8u && resume_to_send(&l->r); n++)
            resume_was_sent(&l->r);
        break;
    case 5:
        if (l->r.state == RESUME_LIVE &&
            resume_acknowledge(&l->r, l->r.acknowledged + argument % 8) != RESUME_FINE)
            resume_left(&l->r);
        break;
    case 6:
        hear(l, argument);
        break;
    case 7:
        consume(l);
        break;
    case 8:
        if (l->r.state == RESUME_LIVE && !l->r.closing &&
            resume_close(&l->r, l->r.consumed + l->r.waiting + (argument & 3)) != RESUME_FINE)
            resume_left(&l->r);
        break;
    default:
        if (argument < 250)
            resume_left(&l->r);
        else
            resume_over(&l->r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct life l;
    struct reader r = reader_of(slice_of(data, size));
    struct resume_request first = {.attempt = 1};

    if (size > 8000)
        return 0;
    memset(&l, 0, sizeof l);
    resume_init(&l.r);
    CHECK(resume_request(&l.r, &first) == RESUME_ACCEPTED);
    while (r.rest.len >= 2) {
        uint8_t what = reader_u8(&r), argument = reader_u8(&r);
        event(&l, what, argument);
        check_life(&l);
    }
    resume_free(&l.r);
    return 0;
}
