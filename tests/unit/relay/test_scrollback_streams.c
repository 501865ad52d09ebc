/* SPDX-License-Identifier: MIT */
/*
 * Random sessions of random programs, most of which say the same again and again, through random workers: the client gets
 * each byte at most once and in order, and where something is missing, or nobody can know, a gap is declared.
 * STREAMS says how many (1500), STREAMS_FROM the first one, whose number is its seed.
 */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/relay/resume/adapter.h"

#define RING       (1 << 20) /* of a worker */
#define CHUNK      4096
#define TOTAL_MOST (4 * RING)

static uint64_t seed;

static size_t pick(size_t most)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(seed >> 33) % most;
}

static bool one_in(size_t many)
{
    return !pick(many);
}

/* ---- what a program says ---- */
struct session {
    uint8_t bytes[TOTAL_MOST];
    size_t len, turn; /* the streams take turns, of so many bytes; 0: there is one */
};

static void put(struct session *s, const void *bytes, size_t len)
{
    len = len < s->len ? len : s->len; /* what is left */
    memcpy(s->bytes + TOTAL_MOST - s->len, bytes, len);
    s->len -= len;
}

/* A few texts of a few letters, one of them many times on end now and then, and maybe numbers between them. */
static void speak(struct session *s, size_t len)
{
    static uint8_t texts[8][5000];
    size_t lengths[8], count = 1 + pick(8), numbers = pick(4), number = 0, all = len;
    char line[16];

    for (size_t i = 0; i < count; i++) {
        size_t letters = 1 + pick(3);
        lengths[i] = 1 + pick(one_in(3) ? 4000 : 60);
        for (size_t k = 0; k < lengths[i]; k++)
            texts[i][k] = (uint8_t)('a' + pick(letters));
    }
    s->len = len;
    while (s->len) {
        size_t i = pick(count), times = one_in(20) ? 1 + pick(3000) : 1;
        for (; times && s->len; times--)
            put(s, texts[i], lengths[i]);
        if (!numbers)
            put(s, line, (size_t)snprintf(line, sizeof line, "%zu\n", number++));
    }
    memmove(s->bytes, s->bytes + TOTAL_MOST - all, all);
    s->len = all;
    s->turn = one_in(4) ? 50 + pick(one_in(2) ? 20000 : 500)
                        : 0; /* of single bytes the relay collects no whole ring */
}

static unsigned stream_at(const struct session *s, size_t at)
{
    return s->turn ? at / s->turn % 2 : 0;
}

/* ---- what its client gets ---- */
struct client {
    void *state;
    struct ws_decoder in;
    uint8_t tag, got[2][TOTAL_MOST];
    size_t len[2];
    unsigned exact, gaps;
    bool repeats; /* more than the program has said */
    uint64_t now;
};

static void client_hears(struct client *c, struct slice frames)
{
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&c->in, &frames, &piece)) != WS_MORE) {
        assert_int_not_equal(event, WS_BAD);
        if (event == WS_HEAD && c->in.frame.opcode != WS_CONTINUATION)
            c->tag = 0;
        if (event != WS_PIECE || !piece.bytes.len)
            continue;
        if (!c->tag) {
            c->tag = piece.bytes.at[0];
            piece.bytes = slice_from(piece.bytes, 1);
        }
        if (c->tag > 2 || !piece.bytes.len)
            continue;
        size_t *len = &c->len[c->tag - 1];
        c->repeats = c->repeats || piece.bytes.len > TOTAL_MOST - *len;
        if (c->repeats)
            continue;
        memcpy(c->got[c->tag - 1] + *len, piece.bytes.at, piece.bytes.len);
        *len += piece.bytes.len;
    }
}

static void takes(struct client *c, struct adapter_edit *edit)
{
    c->exact += edit->outcome == ADAPTER_EXACT;
    c->gaps += edit->outcome == ADAPTER_GAP;
    client_hears(c, buffer_slice(&edit->insert));
    buffer_free(&edit->insert);
}

static void worker_says(struct client *c, struct slice message)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(adapter_scrollback.insert_max)};
    struct adapter_piece piece = {WS_BINARY, true, true, message, c->now};
    struct buffer frame = buffer_with_limit(2 * CHUNK);
    enum adapter_verdict verdict = adapter_scrollback.from_worker(c->state, &piece, &edit);
    uint8_t opened = edit.opened;

    assert_true(verdict <= ADAPTER_DROP);
    takes(c, &edit);
    if (verdict == ADAPTER_PASS) {
        assert_true(adapter_put_frame(&frame, opened ? WS_CONTINUATION : WS_BINARY, true,
                                      slice_from(message, edit.skip)));
        client_hears(c, buffer_slice(&frame));
    }
    buffer_free(&frame);
}

static void says_live(struct client *c)
{
    worker_says(c, SLICE_LITERAL("\4"));
}

/* What the program has said there, in messages of one stream each. */
static void says_part(struct client *c, const struct session *s, size_t at, size_t end)
{
    uint8_t message[CHUNK + 1];

    while (at < end) {
        size_t rest = s->turn ? s->turn - at % s->turn : CHUNK, len = end - at < CHUNK ? end - at : CHUNK;
        len = rest < len ? rest : len;
        message[0] = (uint8_t)(1 + stream_at(s, at));
        memcpy(message + 1, s->bytes + at, len);
        worker_says(c, slice_of(message, len + 1));
        at += len;
    }
}

static void tick(struct client *c, uint64_t now)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(adapter_scrollback.insert_max)};

    assert_int_equal(adapter_scrollback.tick(c->state, now, &edit), ADAPTER_DROP);
    takes(c, &edit);
}

static void time_passes(struct client *c, uint64_t time)
{
    uint64_t until = c->now + time, due;

    while ((due = adapter_scrollback.due(c->state)) <= until) {
        c->now = due > c->now ? due : c->now;
        tick(c, c->now);
    }
    c->now = until;
}

static void joins(struct client *c)
{
    struct adapter_edit edit = {.outcome = ADAPTER_PENDING};

    adapter_scrollback.request(c->state, NULL, NULL);
    adapter_scrollback.joined(c->state, NULL, &edit);
    takes(c, &edit);
}

/* ---- a session that moves ---- */
struct move {
    size_t start, mark, end; /* of what its worker says; where its `04` stands */
};

/* Behind what the client has: the ring as it was some time later. */
static struct move any_move(const struct session *s, size_t had, bool last)
{
    size_t left = s->len - had + 1, asked = had + pick(one_in(2) && left > 5000 ? 5000 : left);
    struct move m = {.start = asked > RING ? asked - RING + pick(CHUNK) : 0, .mark = asked};

    if (one_in(2)) /* of a full ring not in the middle: that looks like one that is all there is */
        m.mark = m.start + (m.start || one_in(2) ? 0 : pick(asked - m.start + 1));
    m.end = last ? s->len : asked + pick(s->len - asked + 1);
    return m;
}

static void serves(struct client *c, const struct session *s, const struct move *m)
{
    size_t step = 1 + pick(one_in(4) ? 200 : 5000), at = m->start;
    uint64_t pauses =
        8 * SECOND; /* a replay that takes longer, or is silent for a second, has ended for the relay */
    bool marked = false;

    step = step > (m->end - m->start) / 3000 ? step : (m->end - m->start) / 3000;
    joins(c);
    while (at < m->end) {
        size_t len = step < m->end - at ? step : m->end - at;
        if (!marked && at >= m->mark) {
            says_live(c);
            marked = true;
        }
        if (!marked && at + len > m->mark)
            len = m->mark - at;
        says_part(c, s, at, at + len);
        at += len;
        uint64_t pause = one_in(100) ? pick(950) * MILLISECOND : 0;
        if (pause && pause < pauses) {
            time_passes(c, pause);
            pauses -= pause;
        }
    }
    if (!marked)
        says_live(c);
}

/* Of each stream: as much as is there, in order. */
static void assert_is_part(const struct session *s, const struct client *c, bool whole)
{
    size_t got[2] = {0, 0}, said[2] = {0, 0};

    assert_false(c->repeats);
    for (size_t i = 0; i < s->len; i++) {
        unsigned stream = stream_at(s, i);
        said[stream]++;
        if (got[stream] < c->len[stream] && c->got[stream][got[stream]] == s->bytes[i])
            got[stream]++;
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(got[i], c->len[i]);
        if (whole)
            assert_int_equal(c->len[i], said[i]);
    }
}

static void one_session(uint64_t number)
{
    static struct session s;
    static struct client c;
    struct move m = {0};

    seed = number * 7919 + 13;
    size_t moves = 1 + pick(3);
    speak(&s, 1 + pick(one_in(16) ? TOTAL_MOST : 60000));
    c.state = calloc(1, adapter_scrollback.state_len);
    assert_non_null(c.state);
    c.in = ws_decoder_of(WS_SERVER, 0);
    c.exact = c.gaps = 0;
    c.len[0] = c.len[1] = 0;
    c.repeats = false;
    c.now = 1000 * SECOND;
    joins(&c);
    says_live(&c);
    m.end = pick(s.len + 1);
    says_part(&c, &s, 0, m.end);
    for (size_t i = 1; i <= moves && !c.gaps; i++) {
        m = any_move(&s, m.end, i == moves);
        size_t had = c.len[0] + c.len[1];
        serves(&c, &s, &m);
        if (i == moves || one_in(2))
            time_passes(&c, 12 * SECOND);
        if (getenv("STREAMS_SAY"))
            print_message("%zu of %zu: had %zu, %zu bytes, turn %zu; start %zu mark %zu end %zu: got %zu+%zu "
                          "exact %u gaps %u\n",
                          i, moves, had, s.len, s.turn, m.start, m.mark, m.end, c.len[0], c.len[1], c.exact,
                          c.gaps);
        if (m.end > c.len[0] + c.len[1])
            break; /* the rest waits, or is missing */
    }
    tick(&c, ADAPTER_NO_MORE);
    if (getenv("STREAMS_SAY"))
        print_message("in the end of it: got %zu+%zu exact %u gaps %u\n", c.len[0], c.len[1], c.exact,
                      c.gaps);
    s.len = m.end;
    assert_is_part(&s, &c, !c.gaps);
    adapter_scrollback.end(c.state);
    free(c.state);
}

static uint64_t number_of(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : fallback;
}

static uint64_t current;

static void nothing_comes_twice_and_what_is_missing_is_declared(void **state)
{
    uint64_t from = number_of("STREAMS_FROM", 0), end = from + number_of("STREAMS", 1500);
    (void)state;
    for (current = from; current < end; current++)
        one_session(current);
}

static int say_where(void **state)
{
    (void)state;
    print_message("the last one: STREAMS=1 STREAMS_FROM=%llu\n", (unsigned long long)current);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_comes_twice_and_what_is_missing_is_declared, say_where)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
