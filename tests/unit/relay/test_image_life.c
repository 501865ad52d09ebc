/* SPDX-License-Identifier: MIT */
/*
 * Random conversations of two tunnels to which the same happens. Between two events one of them is written out as its image, thrown away and
 * read back: at rest, where its memory is kept beside the image, or as by another process, where all stands in it. Both tunnels say the
 * same bytes to both sides, command the same, and read the same, until their end.
 */
#include "tests/unit/support.h"

#include "spoa/relay/scrollback/state.h"
#include "tests/unit/relay/tunnel_world.h"

enum { KEPT_MAX = 48, VERSION = 1, EVENTS = 160, SAID_MAX = 40000 };

enum how { AT_REST, BY_ANOTHER_PROCESS };

struct life {
    struct world w;
    uint64_t sent[2], hash[2]; /* bytes to each side, and what they are */
    unsigned written;
};

static struct life lives[2]; /* the second one is written out */
static uint32_t seed;

static uint32_t dice(uint32_t sides)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % sides;
}

/* ---- what is sent ---- */
static struct life *life_of(struct world *w)
{
    return (struct life *)(void *)((uint8_t *)w - offsetof(struct life, w));
}

static size_t notes(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct world *w = io;
    struct life *l = life_of(w);
    size_t taken = world_send(io, to, runs, count), left = taken;

    for (size_t i = 0; i < count && left; i++) {
        struct slice part = slice_sub(runs[i], 0, left);
        left -= part.len;
        for (size_t k = 0; k < part.len; k++)
            l->hash[to] = (l->hash[to] ^ part.at[k]) * UINT64_C(1099511628211);
    }
    l->sent[to] += taken;
    return taken;
}

static struct tunnel_host host;

/* ---- to be written, and read ---- */
static void rests(struct life *l)
{
    struct world *w = &l->w;
    struct buffer bytes = buffer_with_limit(1 << 20);
    struct tunnel next = {.forward.adapter =
                              adapter_find((enum handover_resume)w->handover.resume, w->client_resumes)};
    const struct tunnel_place place = w->t.forward.place;
    void *kept[KEPT_MAX], *back = adapter_state_for(&w->handover, w->client_resumes);

    assert_non_null(back);
    struct image write = image_to(&bytes, VERSION, w->now);
    image_keep(&write, kept, KEPT_MAX);
    image_part(&write, &tunnel_table, &w->t);
    assert_true(image_done(&write));
    memset(w->state, 0xa5, w->t.forward.adapter->state_len);
    free(w->state);
    memset(&w->t, 0xa5, sizeof w->t);
    w->state = back;
    struct image read = image_from(buffer_slice(&bytes), VERSION, UINT64_MAX);
    image_keep(&read, kept, write.kept_count);
    alloc_fail_at(1); /* waking cannot fail */
    tunnel_place(&next, &place, back);
    image_part(&read, &tunnel_table, &next);
    assert_int_equal(alloc_count(), 0);
    alloc_fail_at(0);
    assert_true(image_done(&read));
    w->t = next;
    buffer_free(&bytes);
    l->written++;
}

static void moves(struct life *l)
{
    bool watching = l->w.watching;

    assert_true(world_hands_over(&l->w, NULL, NULL));
    /* it watches anew, as the one before may have done */
    l->w.watching = l->w.watching || watching;
    l->written++;
}

/* What is begun anew in another process is not there, so that all goes on alike. */
static bool may_move(const struct world *w)
{
    return w->t.state > TUNNEL_opening && w->t.state < TUNNEL_ended &&
           w->t.connector.phase == CONNECTOR_IDLE && !w->dialling && !w->asking && !w->t.recheck &&
           w->watching;
}

static void write_some(enum how how)
{
    struct life *l = &lives[1];

    if (how == AT_REST && l->w.t.state < TUNNEL_ended && !l->w.t.recheck && dice(2))
        rests(l);
    else if (how == BY_ANOTHER_PROCESS && may_move(&l->w) && dice(2))
        moves(l);
}

/* ---- what happens to both ---- */
static void connects(struct world *w)
{
    static struct http_head head;
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    uint8_t memory[2][512];
    struct writer query = writer_of(memory[0], 512), fields = writer_of(memory[1], 512);
    char text[200];

    if (w->t.forward.adapter->request)
        w->t.forward.adapter->request(w->t.forward.adapter_state, &query, &fields);
    const struct adapter *adapter = w->t.forward.adapter;
    snprintf(text, sizeof text, "HTTP/1.1 101 S\r\n%s\r\n",
             adapter->numbers ? "Cell-Resume: 1; recv=0; next=1\r\n" : "");
    assert_int_equal(http_read(&r, slice_text(text), &head), HTTP_DONE);
    w->head = &head;
    world_dialled(w, DIAL_OPEN, 101);
}

/* What a worker may say, by its protocol; some of it breaks that. */
static struct slice words(enum handover_resume resume, uint8_t said[SAID_MAX])
{
    static const size_t sizes[] = {1, 2, 5, 125, 126, 600, 4000, 17000, 30000};
    size_t len = sizes[dice(9)];

    for (size_t i = 0; i < len; i++)
        said[i] = (uint8_t)(i * 7 + len);
    if (resume == HANDOVER_RESUME_SCROLLBACK)
        said[0] = (uint8_t)(1 + (dice(8) ? dice(2) : dice(4)));
    if (resume == HANDOVER_RESUME_SINCE) {
        said[0] = dice(4) ? 1 : 3;
        if (said[0] == 3 && len > 9)
            memset(said + 1, 0, 7);
    }
    return slice_of(said, len);
}

/* What each side is saying: some of a frame is still to come, and a message may be open. */
static struct {
    uint8_t memory[SAID_MAX + WS_HEAD_MAX];
    struct slice rest;
    bool open;
    unsigned leg; /* the worker's */
} talks[2];

/* The chunk that a worker of `cursor` is at. The next worker begins with it, if it was not whole. */
static struct {
    unsigned number;
    size_t len, left; /* its bytes, and those that this worker has not sent */
    bool announced;   /* by this worker */
} chunk;

/* Puts an announcement, or bytes of its chunk, in place of what was to be said. */
static void says_chunk(uint8_t said[SAID_MAX], bool open, unsigned *start, struct slice *bytes)
{
    static char text[100];

    if (!chunk.announced) {
        if (!chunk.len)
            chunk.len = bytes->len;
        snprintf(text, sizeof text, "{\"type\":\"chunk\",\"cursor\":\"c%u\",\"byteLength\":%zu}", chunk.number,
                 chunk.len);
        chunk.left = chunk.len;
        chunk.announced = true;
        *start = 0x81;
        *bytes = slice_text(text);
        return;
    }
    size_t part = *start & 0x80 || bytes->len > chunk.left ? chunk.left : bytes->len;
    chunk.left -= part;
    *start = (open ? 0 : 2) | (chunk.left ? 0 : 0x80);
    *bytes = slice_of(said, part);
    if (chunk.left)
        return;
    chunk.announced = false;
    chunk.len = 0;
    chunk.number++;
}

static void begins_frame(enum side from)
{
    static uint8_t said[SAID_MAX];
    enum handover_resume resume = (enum handover_resume)lives[0].w.handover.resume;
    bool open = talks[from].open, control = !dice(5), last = dice(3), text = !dice(4);
    unsigned start = control ? (dice(2) ? 0x89 : 0x8a) : (open ? 0 : text ? 1 : 2) | (last ? 0x80 : 0);
    struct slice bytes = words(resume, said);

    if (!dice(150))
        start ^= 0x02; /* which may be wrong */
    if (from == WORKER && resume == HANDOVER_RESUME_SINCE && start == 0x81)
        bytes = SLICE_LITERAL("{\"type\":\"connected\",\"mode\":\"pty\"}");
    if (from == WORKER && resume == HANDOVER_RESUME_CURSOR && !control && dice(150))
        says_chunk(said, open, &start, &bytes);
    if (from == CLIENT)
        said[0] = (uint8_t)dice(2);
    if (control)
        bytes = slice_sub(bytes, 0, 100);
    else
        talks[from].open = !(start & 0x80);
    talks[from].rest = world_frame(talks[from].memory, from, start, bytes);
}

/* A part of the frame, in reads of some size, or all of it. */
static void says(enum side from)
{
    static uint8_t copy[SAID_MAX + WS_HEAD_MAX];
    struct slice *rest = &talks[from].rest;

    if (from == WORKER && talks[WORKER].leg != lives[0].w.adopts) {
        talks[WORKER].rest.len = talks[WORKER].open = 0;
        talks[WORKER].leg = lives[0].w.adopts;
        chunk.announced = false;
    }
    if (!lives[0].w.t.forward.there[from] || !lives[0].w.t.forward.legs[from].reading)
        return;
    if (!rest->len)
        begins_frame(from);
    struct slice part = dice(3) ? *rest : slice_sub(*rest, 0, 1 + dice((uint32_t)rest->len));
    size_t step = 1 + dice(20000);
    unsigned leg = lives[0].w.adopts;
    *rest = slice_from(*rest, part.len);
    for (unsigned i = 0; i < 2; i++) {
        struct world *w = &lives[i].w;
        memcpy(copy, part.at, part.len);
        for (struct slice left = slice_of(copy, part.len); left.len && w->adopts == leg;) {
            struct slice read = slice_sub(left, 0, step);
            left = slice_from(left, read.len);
            if (w->t.state < TUNNEL_ended && w->t.forward.there[from])
                world_bytes(w, from, read, SIZE_MAX);
        }
    }
}

static void has_room(void)
{
    static const size_t rooms[] = {0, 1, 3, 100, 5000, SIZE_MAX, SIZE_MAX};
    size_t room = rooms[dice(7)];
    enum side side = (enum side)dice(2);

    for (unsigned i = 0; i < 2; i++) {
        lives[i].w.ears[side].room = room;
        if (lives[i].w.t.forward.there[side])
            world_writable(&lives[i].w, side, lives[i].w.now);
    }
}

static void is_lost(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (lives[i].w.t.forward.there[WORKER])
            world_lost(&lives[i].w, WORKER, LOSS_reset, lives[i].w.now);
}

static void is_closed(enum side from)
{
    unsigned code = dice(2) ? 1000 : 1012;

    for (unsigned i = 0; i < 2; i++)
        if (lives[i].w.t.state < TUNNEL_ended && lives[i].w.t.forward.there[from])
            world_closes(&lives[i].w, from, code, "why");
}

static void is_told(void)
{
    uint16_t port = (uint16_t)(1 + dice(3));

    if (!lives[0].w.watching || !lives[1].w.watching || lives[0].w.t.state >= TUNNEL_closing)
        return;
    for (unsigned i = 0; i < 2; i++)
        world_tells(&lives[i].w, ANSWER_RUNNING, port, port);
}

static void passes(void)
{
    static const uint64_t times[] = {1, MS, 100 * MS, SEC, 5 * SEC, 30 * SEC};
    uint64_t time = times[dice(6)];

    for (unsigned i = 0; i < 2; i++)
        world_pass(&lives[i].w, time);
}

/* What the outside owes is done. */
static void goes_on(void)
{
    bool fails = !dice(6);

    for (unsigned i = 0; i < 2; i++) {
        struct world *w = &lives[i].w;
        if (w->asking)
            world_answers(w, ANSWER_RUNNING, 2, 2);
        if (w->dialling && fails)
            world_dialled(w, DIAL_UNREACHABLE, 0);
        else if (w->dialling)
            connects(w);
        if (w->rechecking && w->t.recheck) {
            w->rechecking = false;
            tunnel_recheck_over(&w->t, w->now);
            world_obeys(w);
        }
    }
}

static void happens(void)
{
    switch (dice(20)) {
    case 0:
    case 1:
        has_room();
        break;
    case 2:
        if (!dice(lives[0].w.t.one_leg ? 40 : 4))
            is_lost();
        break;
    case 3:
        if (!dice(20))
            is_closed((enum side)dice(2));
        break;
    case 4:
        if (!dice(lives[0].w.t.one_leg ? 40 : 4))
            is_told();
        break;
    case 5:
    case 6:
    case 7:
        passes();
        break;
    case 10:
        goes_on();
        break;
    default:
        says((enum side)dice(2));
    }
    if (dice(3))
        goes_on();
}

/* ---- that nothing differs ---- */
#define same(field)                                                                   \
    do {                                                                              \
        if (lives[0].field != lives[1].field)                                         \
            fail_msg("%s: %llu and %llu", #field, (unsigned long long)lives[0].field, \
                     (unsigned long long)lives[1].field);                             \
    } while (0)

static void are_alike(enum how how)
{
    for (int side = 0; side < 2; side++) {
        same(sent[side]);
        same(hash[side]);
        same(w.parted[side]);
        same(w.dropped[side]);
        same(w.t.forward.legs[side].reading);
        same(w.t.forward.there[side]);
        same(w.declared[side]);
    }
    same(w.t.state);
    same(w.t.reason);
    same(w.dials);
    same(w.adopts);
    same(w.resumes);
    same(w.unread);
    same(w.unconfirmed);
    same(w.missing);
    same(w.rechecks);
    if (how == BY_ANOTHER_PROCESS)
        return; /* which asks and watches anew */
    same(w.asks);
    same(w.watches);
    same(w.seed);
    if (lives[0].w.t.state < TUNNEL_ended && tunnel_due(&lives[0].w.t) != tunnel_due(&lives[1].w.t))
        fail_msg("due at %llu and %llu", (unsigned long long)tunnel_due(&lives[0].w.t),
                 (unsigned long long)tunnel_due(&lives[1].w.t));
}

/* ---- the runs ---- */
static void live(const struct handover *h, bool client_resumes, enum how how)
{
    host = world_host;
    host.send = notes;
    for (unsigned i = 0; i < 2; i++) {
        lives[i] = (struct life){.written = 0};
        assert_true(world_open_to(&lives[i].w, h, "/pty/x/ws?since=0", client_resumes));
        lives[i].w.t.forward.place.host = lives[i].w.t.connector.place.host = &host;
    }
    memset(talks, 0, sizeof talks);
    memset(&chunk, 0, sizeof chunk);
    for (unsigned i = 0; i < EVENTS && lives[0].w.t.state < TUNNEL_ended; i++) {
        if (!i)
            goes_on();
        write_some(how);
        happens();
        are_alike(how);
    }
    for (unsigned i = 0; i < 2; i++)
        world_close(&lives[i].w);
}

/* As test_resume_sim does it: for what watches the program at a price, fewer. */
static unsigned runs(void)
{
    const char *every = getenv("SIM_EVERY");
    unsigned factor = every ? (unsigned)atoi(every) : 1;
    return 1 + 300 / (factor ? factor : 1);
}

static void all_live(enum handover_resume resume, bool client_resumes, enum how how)
{
    struct handover h = world_handover();
    unsigned written = 0;

    h.resume = resume;
    h.stream = true;
    h.session = SLICE_LITERAL("name");
    h.end = resume == HANDOVER_RESUME_SCROLLBACK ? HANDOVER_END_EXIT_FRAME : HANDOVER_END_CLOSE;
    for (uint32_t run = 0; run < runs(); run++) {
        seed = run * 7919 + 1;
        h.overlap = run % 2;
        world_rechecks = run % 3 == 0;
        live(&h, client_resumes, how);
        written += lives[1].written;
    }
    world_rechecks = false;
    assert_true(written > 10 * runs());
}

#define LIVES(name, resume, client_resumes, how) \
    static void name(void **state)               \
    {                                            \
        (void)state;                             \
        all_live(resume, client_resumes, how);   \
    }
LIVES(none_rests_unnoticed, HANDOVER_RESUME_NONE, false, AT_REST)
LIVES(through_rests_unnoticed, HANDOVER_RESUME_CELL, true, AT_REST)
LIVES(scrollback_rests_unnoticed, HANDOVER_RESUME_SCROLLBACK, false, AT_REST)
LIVES(since_rests_unnoticed, HANDOVER_RESUME_SINCE, false, AT_REST)
LIVES(cell_rests_unnoticed, HANDOVER_RESUME_CELL, false, AT_REST)
LIVES(cursor_rests_unnoticed, HANDOVER_RESUME_CURSOR, false, AT_REST)
LIVES(none_moves_unnoticed, HANDOVER_RESUME_NONE, false, BY_ANOTHER_PROCESS)
LIVES(through_moves_unnoticed, HANDOVER_RESUME_CELL, true, BY_ANOTHER_PROCESS)
LIVES(scrollback_moves_unnoticed, HANDOVER_RESUME_SCROLLBACK, false, BY_ANOTHER_PROCESS)
LIVES(since_moves_unnoticed, HANDOVER_RESUME_SINCE, false, BY_ANOTHER_PROCESS)
LIVES(cell_moves_unnoticed, HANDOVER_RESUME_CELL, false, BY_ANOTHER_PROCESS)
LIVES(cursor_moves_unnoticed, HANDOVER_RESUME_CURSOR, false, BY_ANOTHER_PROCESS)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_rests_unnoticed),       cmocka_unit_test(through_rests_unnoticed),
        cmocka_unit_test(scrollback_rests_unnoticed), cmocka_unit_test(since_rests_unnoticed),
        cmocka_unit_test(cell_rests_unnoticed),       cmocka_unit_test(none_moves_unnoticed),
        cmocka_unit_test(through_moves_unnoticed),    cmocka_unit_test(scrollback_moves_unnoticed),
        cmocka_unit_test(since_moves_unnoticed),      cmocka_unit_test(cell_moves_unnoticed),
        cmocka_unit_test(cursor_rests_unnoticed),     cmocka_unit_test(cursor_moves_unnoticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
