/* SPDX-License-Identifier: MIT */
/*
 * The upstream leg is cut at every byte of a conversation, handshakes included, in both directions, for each
 * adapter; and the worker is moved at every byte, and the leg cut twice. Each time the client gets exactly what
 * the session said, and a session that numbers gets exactly what the client said.
 *
 * SIM_EVERY=N: only at every Nth of these places, for what watches the program at a price (tests/check).
 */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "tests/unit/relay/resume_world.h"

/* ---- a session of OpenSandbox ---- */
static uint64_t query_number(struct slice target, const char *name)
{
    struct slice query = slice_from(target, slice_find(target, '?') + 1), part, key;
    uint64_t value = 0;
    unsigned seen = 0;

    while (slice_split(&query, '&', &part)) {
        if (!slice_split(&part, '=', &key) || !slice_is(key, name))
            continue;
        must(slice_u64(part, UINT64_MAX, &value));
        seen++;
    }
    must(seen <= 1);
    return value;
}

static size_t ring_start(const struct session *s)
{
    size_t total = buffer_len(&s->output.bytes);
    return total > s->ring ? total - s->ring : 0;
}

static bool since_attach(struct network *n, struct link *link, const struct http_head *head,
                         struct writer *fields)
{
    struct session *s = &n->session;
    size_t total = buffer_len(&s->output.bytes), since = (size_t)query_number(head->target, "since");
    struct buffer frame = buffer_with_limit(1 << 22);
    uint8_t prefix[9] = {3};

    (void)fields;
    if (s->leg && !query_number(head->target, "takeover"))
        return false;
    must(!s->ended);
    take_over(n, link);
    if (since < ring_start(s))
        since = ring_start(s);
    if (since < total) {
        struct writer w = writer_of(prefix + 1, 8);
        writer_be(&w, since, 8);
        put(&frame, slice_of(prefix, 9));
        put(&frame, slice_from(buffer_slice(&s->output.bytes), since));
        link_frame(link, 0x82, buffer_slice(&frame));
        buffer_free(&frame);
    }
    link_frame(link, 0x81, slice_text("{\"type\":\"connected\",\"session_id\":\"x\",\"mode\":\"pty\"}"));
    return true;
}

static void say_last_to(struct network *n, struct link *link)
{
    const struct log *output = &n->session.output;
    size_t last = output->count - 1;

    link_message(link, &output->said[last], log_at(output, last), last % 4 == 3 ? 37 : SIZE_MAX);
}

static void say_last(struct network *n)
{
    if (n->session.leg)
        say_last_to(n, n->session.leg);
}

static void since_ended(struct network *n)
{
    if (!n->session.leg)
        return;
    link_frame(n->session.leg, 0x81, slice_text("{\"type\":\"exit\",\"exit_code\":0}"));
    link_close(n->session.leg, 1000, "process exited");
}

static void take_input(struct network *n, struct link *link, enum ws_opcode opcode, struct slice bytes)
{
    (void)link;
    log_put(&n->session.input, 0, opcode, bytes);
    n->session.consumed++;
}

static const struct model since_model = {
    .resume = HANDOVER_RESUME_SINCE,
    .end = HANDOVER_END_EXIT_JSON,
    .target = "/pty/x/ws?pty=1&since=0",
    .session = "x",
    .attach = since_attach,
    .produced = say_last,
    .ended = since_ended,
    .message = take_input,
};

/* ---- a terminal of sandbox-sdk: any number of connections, and chunks with cursors of its own ---- */
static struct slice query_text(struct slice target, const char *name)
{
    struct slice query = slice_from(target, slice_find(target, '?') + 1), part, key, value = {NULL, 0};

    while (slice_split(&query, '&', &part)) {
        if (!slice_split(&part, '=', &key) || !slice_is(key, name))
            continue;
        must(!slice_present(value));
        value = part;
    }
    return value;
}

static void send_chunk(struct network *n, struct link *link, size_t i)
{
    const struct log *output = &n->session.output;
    char text[100];

    snprintf(text, sizeof text, "{\"type\":\"chunk\",\"cursor\":\"v1-%zu\",\"byteLength\":%zu}", i + 1,
             output->said[i].len);
    link_frame(link, 0x81, slice_text(text));
    link_message(link, &output->said[i], log_at(output, i), i % 4 == 3 ? 37 : SIZE_MAX);
}

static void cursor_produced(struct network *n)
{
    if (n->session.leg)
        send_chunk(n, n->session.leg, n->session.output.count - 1);
}

static void cursor_ended(struct network *n)
{
    if (!n->session.leg)
        return;
    link_frame(n->session.leg, 0x81, slice_text("{\"type\":\"exit\",\"cursor\":\"v1-9\",\"exit\":{\"code\":0}}"));
    link_close(n->session.leg, 1000, "Terminal exited");
}

static bool cursor_attach(struct network *n, struct link *link, const struct http_head *head,
                          struct writer *fields)
{
    struct slice cursor = query_text(head->target, "cursor");
    uint64_t after = 0;

    (void)fields;
    must(!cursor.len || slice_u64(slice_from(cursor, 3), UINT64_MAX, &after));
    must(after <= n->session.output.count);
    /* the client may have resized the terminal */
    must(slice_is(query_text(head->target, "cols"), n->accepted ? "" : "80"));
    n->session.leg = link;
    link_frame(link, 0x81, slice_text("{\"type\":\"ready\"}"));
    for (size_t i = (size_t)after; i < n->session.output.count; i++)
        send_chunk(n, link, i);
    if (n->session.ended)
        cursor_ended(n);
    return true;
}

static const struct model cursor_model = {
    .resume = HANDOVER_RESUME_CURSOR,
    .end = HANDOVER_END_EXIT_JSON,
    .target = "/ws/terminal?terminalId=x&cols=80&rows=24",
    .session = "x",
    .attach = cursor_attach,
    .produced = cursor_produced,
    .ended = cursor_ended,
    .message = take_input,
};

/* ---- a session of OpenComputer: any number of readers at once ---- */
static bool is_reader(const struct link *link)
{
    return (link->state == LINK_UPGRADING || link->state == LINK_OPEN) && link->upgraded && !link->closed &&
           !link->dead;
}

static void scrollback_produced(struct network *n)
{
    for (size_t i = 0; i < LINKS; i++)
        if (is_reader(&n->links[i]))
            say_last_to(n, &n->links[i]);
}

static void scrollback_exit(struct link *link)
{
    link_frame(link, 0x82, slice_of("\3\0\0\0\0", 5));
    link_close(link, 1000, "");
}

static bool scrollback_attach(struct network *n, struct link *link, const struct http_head *head,
                              struct writer *fields)
{
    const struct log *output = &n->session.output;

    (void)head;
    (void)fields;
    n->session.leg = link; /* whose input is taken */
    for (size_t i = 0; i < output->count; i++)
        link_message(link, &output->said[i], log_at(output, i), SIZE_MAX);
    link_frame(link, 0x82, slice_text("\4"));
    if (n->session.ended)
        scrollback_exit(link);
    return true;
}

static void scrollback_ended(struct network *n)
{
    for (size_t i = 0; i < LINKS; i++)
        if (is_reader(&n->links[i]))
            scrollback_exit(&n->links[i]);
}

static const struct model scrollback_model = {
    .resume = HANDOVER_RESUME_SCROLLBACK,
    .end = HANDOVER_END_EXIT_FRAME,
    .target = "/exec/x",
    .session = "x",
    .attach = scrollback_attach,
    .produced = scrollback_produced,
    .ended = scrollback_ended,
    .message = take_input,
};

/* ---- a session that numbers ---- */
static uint64_t term(const char *line, const char *name, bool *has)
{
    const char *at = strstr(line, name);
    *has = at != NULL;
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static uint64_t unacknowledged_cost(const struct session *s)
{
    uint64_t cost = 0;
    for (uint64_t i = s->acknowledged; i + 1 < s->next && i < s->output.count; i++)
        cost += s->output.said[i].len + 16;
    return cost;
}

static void number_pong(struct link *link, uint64_t number, const char *what)
{
    uint8_t payload[32];
    struct writer w = writer_of(payload, sizeof payload);

    writer_text(&w, "cr");
    writer_be(&w, number, 8);
    writer_text(&w, what);
    link_frame(link, 0x8a, writer_slice(&w));
}

static void cell_pump(struct network *n)
{
    struct session *s = &n->session;

    while (s->leg && s->next <= s->output.count) {
        size_t i = (size_t)s->next - 1, fragment = i % 3 == 2 ? 29 : SIZE_MAX;
        struct slice bytes = log_at(&s->output, i);
        if (unacknowledged_cost(s) + bytes.len + 16 > s->window)
            return;
        if (i % 5 == 4)
            link_frame(s->leg, 0x89, slice_text("worker"));
        link_message(s->leg, &s->output.said[i], bytes, bytes.len > 4000 ? SIZE_MAX : fragment);
        s->next++;
    }
    if (s->leg && s->ended && s->next == s->output.count + 1) {
        s->next++;
        number_pong(s->leg, s->output.count + 1, "end");
        link_close(s->leg, 1011, "bye");
    }
}

static bool cell_attach(struct network *n, struct link *link, const struct http_head *head,
                        struct writer *fields)
{
    struct session *s = &n->session;
    char line[256], id[33] = "";
    bool has, has_recv;

    must(http_count(head, "Cell-Resume") == 1);
    snprintf(line, sizeof line, "%.*s", SLICE_PRINTF(http_get(head, "Cell-Resume")));
    must(sscanf(line, "1; tunnel=%32[0-9a-f];", id) == 1 && strlen(id) == 32);
    uint64_t attempt = term(line, "attempt=", &has), recv = term(line, "; recv=", &has_recv);
    must(has && attempt > 0);
    must(s->known || !has_recv);
    must(!s->known || strcmp(id, s->id) == 0);
    memcpy(s->id, id, sizeof id);
    s->known = true;
    if (attempt <= s->attempt)
        return false;
    s->attempt = attempt;
    take_over(n, link);
    if (recv > s->acknowledged)
        s->acknowledged = recv;
    s->next = s->acknowledged + 1;
    s->told = s->consumed;
    writer_printf(fields, "Cell-Resume: 1; recv=%" PRIu64 "; next=%" PRIu64 "; buffer=%zu\r\n", s->consumed,
                  s->next, s->window);
    cell_pump(n);
    return true;
}

static void cell_message(struct network *n, struct link *link, enum ws_opcode opcode, struct slice bytes)
{
    struct session *s = &n->session;

    take_input(n, link, opcode, bytes);
    if (s->consumed - s->told >= 4) {
        s->told = s->consumed;
        number_pong(link, s->told, "");
    }
    s->tell_at = n->now + 200 * MS;
}

static void cell_pong(struct network *n, struct link *link, struct slice payload)
{
    struct session *s = &n->session;
    uint64_t recv = 0;

    if (link != s->leg || !slice_starts(payload, "cr"))
        return;
    must(payload.len == 10);
    for (size_t i = 2; i < 10; i++)
        recv = recv << 8 | payload.at[i];
    must(recv < s->next);
    if (recv > s->acknowledged)
        s->acknowledged = recv;
    s->end_acknowledged = s->ended && recv == s->output.count + 1;
    cell_pump(n);
}

static void cell_pass(struct network *n)
{
    struct session *s = &n->session;

    if (!s->leg || s->told == s->consumed || n->now < s->tell_at)
        return;
    s->told = s->consumed;
    number_pong(s->leg, s->told, "");
}

static const struct model cell_model = {
    .resume = HANDOVER_RESUME_CELL,
    .end = HANDOVER_END_CLOSE,
    .target = "/terminal?cols=80",
    .attach = cell_attach,
    .produced = cell_pump,
    .ended = cell_pump,
    .message = cell_message,
    .pong = cell_pong,
    .pass = cell_pass,
};

/* ---- what must have come of it ---- */

/* The fragments of a message that did not go to a lost worker are one for the next. */
static bool is_same(const struct log *got, size_t i, const struct log *sent, size_t at, bool whole)
{
    struct slice a = log_at(got, i), b = log_at(sent, at);
    bool rest = !whole && a.len < b.len && slice_equal(a, slice_from(b, b.len - a.len));

    return got->said[i].opcode == sent->said[at].opcode && (slice_equal(a, b) || rest);
}

/* Each message that was consumed was sent, once, in order. */
static void check_input(const struct network *n, bool all)
{
    const struct log *sent = &n->sent, *got = &n->session.input;
    size_t at = 0;

    for (size_t i = 0; i < got->count; i++, at++) {
        while (at < sent->count && !is_same(got, i, sent, at, all))
            at++;
        must(at < sent->count);
    }
    must(!all || got->count == sent->count);
    must(!all || got->count == n->script->in_count);
}

static void check_cell(const struct network *n)
{
    const struct log *said = &n->session.output;

    must(n->got.count == said->count);
    for (size_t i = 0; i < said->count; i++) {
        must(n->got.said[i].opcode == said->said[i].opcode);
        must(slice_equal(log_at(&n->got, i), log_at(said, i)));
    }
    check_input(n, true);
    must(n->close_code == 1011 && strcmp(n->close_reason, "bye") == 0);
    must(n->t.reason == CLOSE_session_ended);
    must(n->gaps == 0 && n->exact >= (n->cuts && n->t.redials ? 1 : 0));
    must(n->pong == n->pings); /* of several that were open, a relay may answer the newest alone */
}

static void check_since(const struct network *n)
{
    struct buffer got = buffer_with_limit(1 << 22);
    struct slice said = buffer_slice(&n->session.output.bytes);
    uint64_t missing = 0;
    unsigned connected = 0, exits = 0;

    for (size_t i = 0; i < n->got.count; i++) {
        struct slice message = log_at(&n->got, i);
        if (n->got.said[i].opcode == WS_TEXT) {
            *(memmem(message.at, message.len, "connected", 9) ? &connected : &exits) += 1;
            continue;
        }
        size_t head = message.at[0] == 3 ? 9 : 1;
        must(message.len >= head && (message.at[0] == 3 || message.at[0] == 1));
        if (message.at[0] == 3) {
            uint64_t offset = 0;
            for (size_t k = 1; k < 9; k++)
                offset = offset << 8 | message.at[k];
            must(offset >= buffer_len(&got) + missing);
            missing = offset - buffer_len(&got);
        }
        struct slice output = slice_from(message, head);
        must(slice_equal(output, slice_sub(said, (size_t)missing + buffer_len(&got), output.len)));
        put(&got, output);
    }
    must(connected <= 1 && exits <= 1);
    if (n->accepted) {
        bool own = strcmp(n->close_reason, "process exited") == 0; /* else the leg was cut behind the exit */
        must(n->close_code == 1000 && (own || strcmp(n->close_reason, "exec completed") == 0));
        must(exits == 1 || n->t.reason == CLOSE_process_exited);
        must(buffer_len(&got) + n->missing == said.len);
        must((n->missing == 0) == (n->gaps == 0));
    }
    check_input(n, false);
    buffer_free(&got);
}

/* Each chunk came once and whole, directly after its announcement. */
static void check_cursor(const struct network *n)
{
    const struct log *said = &n->session.output;
    unsigned ready = 0, exits = 0;
    size_t chunks = 0;
    char text[100];

    for (size_t i = 0; i < n->got.count; i++) {
        struct slice message = log_at(&n->got, i);
        must(n->got.said[i].opcode == WS_TEXT);
        ready += memmem(message.at, message.len, "ready", 5) != NULL;
        exits += memmem(message.at, message.len, "exit", 4) != NULL;
        if (!memmem(message.at, message.len, "chunk", 5))
            continue;
        must(chunks < said->count && i + 1 < n->got.count);
        snprintf(text, sizeof text, "\"cursor\":\"v1-%zu\",\"byteLength\":%zu}", chunks + 1,
                 said->said[chunks].len);
        must(memmem(message.at, message.len, text, strlen(text)));
        must(n->got.said[++i].opcode == WS_BINARY);
        must(slice_equal(log_at(&n->got, i), log_at(said, chunks++)));
    }
    must(!n->accepted || (chunks == said->count && ready == 1 && exits == 1));
    must(!n->accepted || n->t.reason == CLOSE_exec_completed);
    must(n->gaps == 0 && n->exact >= (n->cuts && n->t.redials ? 1 : 0));
    check_input(n, false);
}

static void check_scrollback(const struct network *n)
{
    struct buffer got[2] = {buffer_with_limit(1 << 22), buffer_with_limit(1 << 22)};
    struct buffer said[2] = {buffer_with_limit(1 << 22), buffer_with_limit(1 << 22)};
    unsigned lives = 0, exits = 0;

    for (size_t i = 0; i < n->session.output.count; i++)
        put(&said[n->session.output.said[i].tag - 1], log_at(&n->session.output, i));
    for (size_t i = 0; i < n->got.count; i++) {
        struct slice message = log_at(&n->got, i);
        must(message.len > 0 && message.at[0] >= 1 && message.at[0] <= 4);
        if (message.at[0] <= 2)
            put(&got[message.at[0] - 1], slice_from(message, 1));
        lives += message.at[0] == 4;
        exits += message.at[0] == 3;
    }
    for (int i = 0; i < 2 && n->accepted; i++)
        must(slice_equal(buffer_slice(&got[i]), buffer_slice(&said[i])));
    must(!n->accepted || (lives == 1 && exits == 1 && n->gaps == 0));
    must(!n->accepted || n->t.reason == CLOSE_exec_completed);
    check_input(n, false);
    for (int i = 0; i < 2; i++) {
        buffer_free(&got[i]);
        buffer_free(&said[i]);
    }
}

static void check(const struct network *n)
{
    if (n->model->resume == HANDOVER_RESUME_CELL)
        check_cell(n);
    else if (n->model->resume == HANDOVER_RESUME_SINCE)
        check_since(n);
    else if (n->model->resume == HANDOVER_RESUME_CURSOR)
        check_cursor(n);
    else
        check_scrollback(n);
    must(n->refused == !n->accepted);
}

/* ---- the runs ---- */
struct plan {
    enum direction where;
    uint64_t cut_at, cut_again, move_at;
    size_t ring;
    bool hands_over;
};

static struct network n;

static void run(const struct model *model, const struct script *script, const struct plan *plan,
                uint32_t seed, uint64_t moved[2])
{
    network_open(&n, model, script, seed);
    n.where = plan->where;
    n.cut_at = plan->cut_at;
    n.cut_again = plan->cut_again;
    n.move_at = plan->move_at;
    n.hands_over = plan->hands_over;
    if (plan->ring)
        n.session.ring = plan->ring;
    network_run(&n);
    check(&n);
    if (moved)
        memcpy(moved, n.moved, sizeof n.moved);
    network_free(&n);
}

enum harm { CUT, CUT_TWICE, MOVED };
static bool handing_over;

static unsigned stride_of(unsigned stride)
{
    const char *every = getenv("SIM_EVERY");
    unsigned factor = every ? (unsigned)atoi(every) : 1;
    return stride * (factor ? factor : 1);
}

static void at_many_bytes(const struct model *model, const struct script *script, enum harm harm,
                          unsigned stride)
{
    struct plan none = {TO_WORKER, NOWHERE, NOWHERE, NOWHERE, 0, false};
    uint64_t moved[2];

    stride = stride_of(stride);
    run(model, script, &none, 1, moved);
    for (enum direction where = TO_WORKER; where <= TO_RELAY; where++)
        for (uint64_t at = 0; at <= moved[where]; at += stride) {
            struct plan plan = {.where = where,
                                .cut_at = harm == MOVED ? NOWHERE : at,
                                .cut_again = harm == CUT_TWICE ? at * 2654435761u % 700 : NOWHERE,
                                .move_at = harm == MOVED ? at : NOWHERE,
                                .hands_over = handing_over};
            run(model, script, &plan, (uint32_t)(at * 7 + stride), NULL);
        }
}

static void at_every_byte(const struct model *model, enum harm harm, unsigned stride)
{
    at_many_bytes(model, &small_script, harm, stride);
}

static void since_survives_a_cut_at_every_byte(void **state)
{
    (void)state;
    at_every_byte(&since_model, CUT, 1);
}

static void scrollback_survives_a_cut_at_every_byte(void **state)
{
    (void)state;
    at_every_byte(&scrollback_model, CUT, 1);
}

static void cell_survives_a_cut_at_every_byte(void **state)
{
    (void)state;
    at_every_byte(&cell_model, CUT, 1);
}

static void cursor_survives_a_cut_at_every_byte(void **state)
{
    (void)state;
    at_every_byte(&cursor_model, CUT, 1);
}

static void all_survive_two_cuts(void **state)
{
    (void)state;
    at_every_byte(&since_model, CUT_TWICE, 7);
    at_every_byte(&scrollback_model, CUT_TWICE, 7);
    at_every_byte(&cell_model, CUT_TWICE, 3);
    at_every_byte(&cursor_model, CUT_TWICE, 3);
}

static void all_survive_a_move_at_every_byte(void **state)
{
    (void)state;
    at_every_byte(&since_model, MOVED, 3);
    at_every_byte(&scrollback_model, MOVED, 3);
    at_every_byte(&cell_model, MOVED, 1);
    at_every_byte(&cursor_model, MOVED, 1);
}

static void all_survive_with_what_is_long(void **state)
{
    static const struct model *const models[] = {&since_model, &scrollback_model, &cell_model, &cursor_model};

    (void)state;
    for (unsigned i = 0; i < COUNT_OF(models); i++)
        for (enum harm harm = CUT; harm <= MOVED; harm++)
            at_many_bytes(models[i], &large_script, harm, 1999);
}

/* The tunnel's state is written out and read back at any moment, beside cuts and moves. */
static void all_survive_other_processes(void **state)
{
    static const struct model *const models[] = {&since_model, &scrollback_model, &cell_model, &cursor_model};

    (void)state;
    handing_over = true;
    for (unsigned i = 0; i < COUNT_OF(models); i++)
        for (enum harm harm = CUT; harm <= MOVED; harm++) {
            at_many_bytes(models[i], &small_script, harm, 5);
            assert_true(n.handed_over > 0);
            at_many_bytes(models[i], &large_script, harm, 3999);
        }
    handing_over = false;
}

static void an_offset_that_was_clamped_is_a_gap_of_that_size(void **state)
{
    struct plan plan = {TO_RELAY, 0, NOWHERE, NOWHERE, 500, false};
    unsigned gaps = 0, stride = stride_of(11);

    (void)state;
    for (plan.cut_at = 400; plan.cut_at < 26000; plan.cut_at += stride) {
        network_open(&n, &since_model, &small_script, (uint32_t)plan.cut_at);
        n.where = plan.where;
        n.cut_at = plan.cut_at;
        n.session.ring = plan.ring;
        network_run(&n);
        check(&n);
        gaps += n.gaps;
        network_free(&n);
    }
    assert_true(gaps > 1100 / stride);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(since_survives_a_cut_at_every_byte),
        cmocka_unit_test(scrollback_survives_a_cut_at_every_byte),
        cmocka_unit_test(cell_survives_a_cut_at_every_byte),
        cmocka_unit_test(cursor_survives_a_cut_at_every_byte),
        cmocka_unit_test(all_survive_two_cuts),
        cmocka_unit_test(all_survive_a_move_at_every_byte),
        cmocka_unit_test(all_survive_with_what_is_long),
        cmocka_unit_test(all_survive_other_processes),
        cmocka_unit_test(an_offset_that_was_clamped_is_a_gap_of_that_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
