/* SPDX-License-Identifier: MIT */
/*
 * scrollback: OpenComputer's exec. Each worker replays the session's ring from its start, then says `04`; the
 * messages are `01` and output, `02` and standard error. Nothing is numbered, so the replay of a further
 * worker is collected and compared with what the client had when that worker was asked, for each of both
 * streams:
 *   - the ring never was full: the count says where it goes on, if the bytes that stand there agree;
 *   - else where the last bytes delivered occur, if they do exactly once;
 *   - else there may be a gap. What can be a repetition is not passed on then.
 * A stream without a place of its own goes on where the other one does: the ring drops its oldest chunks, so
 * what it has behind that place is all there ever was.
 * What the old worker has said since the new one was asked comes next, in the replay or live: as many bytes are
 * not passed on.
 */
#include "spoa/relay/adapter.h"

#include <stdlib.h>

#include "spoa/lib/reader.h"

#define RING_LEN   (1 << 20)
#define CHUNK_MAX  4096 /* bytes of output in a message, at most */
#define TAIL_LEN   1024
#define REPLAY_MAX (4 << 20) /* bytes collected, with RECORD_LEN in front of each record */
#define INSERT_MAX (REPLAY_MAX + WS_HEAD_MAX + 1) /* and the head and tag of the message behind them */

#define TAG_OUTPUT 1
#define TAG_ERRORS 2
#define TAG_EXIT   3
#define TAG_LIVE   4 /* the replay has ended */
#define RECORD_LEN 5 /* in front of what was collected, at most CHUNK_MAX bytes: tag, 32 bits of length */

struct extent {
    uint64_t len;  /* bytes */
    uint8_t *tail; /* the last TAIL_LEN of them, a ring; NULL: none yet */
};

struct stream {
    struct extent delivered;
    struct extent asked;  /* as it was when the next worker was asked */
    struct extent joined; /* as it was when the one that serves was asked, until its replay has ended */
    uint64_t skip;        /* bytes of the live output that were delivered already */
};

struct scrollback {
    struct stream streams[2];
    bool resumed;    /* this is not the first worker */
    bool collecting; /* its replay */
    bool live;       /* the client has its `04` */
    bool exited;     /* and its `03` */
    bool torn;       /* a message that is not output was cut: its rest may not come again */
    bool inside;     /* a message */
    struct buffer replay;
    size_t record; /* where the last record begins */
    uint8_t tag;   /* of the message that is coming in; 0: none yet */
    bool begun;    /* some of it was passed on */
};

static struct stream *stream_of(struct scrollback *s, uint8_t tag)
{
    return tag == TAG_OUTPUT || tag == TAG_ERRORS ? &s->streams[tag - TAG_OUTPUT] : NULL;
}

/* ---- what was delivered ---- */
static bool deliver(struct stream *stream, struct slice bytes)
{
    struct extent *to = &stream->delivered;

    if (bytes.len && !to->tail && !(to->tail = malloc(TAIL_LEN)))
        return false;
    uint64_t at = to->len;
    to->len += bytes.len;
    if (bytes.len > TAIL_LEN) {
        at += bytes.len - TAIL_LEN;
        bytes = slice_from(bytes, bytes.len - TAIL_LEN);
    }
    size_t start = (size_t)(at % TAIL_LEN), first = TAIL_LEN - start;
    struct slice behind = slice_from(bytes, first);
    if (bytes.len)
        memcpy(to->tail + start, bytes.at, bytes.len - behind.len);
    if (behind.len)
        memcpy(to->tail, behind.at, behind.len);
    return true;
}

/* What the next worker's replay will hold for certain, unless its ring has dropped it. */
static void remember(struct stream *stream)
{
    stream->asked.len = stream->delivered.len;
    if (stream->delivered.tail && !stream->asked.tail)
        stream->asked.tail = malloc(TAIL_LEN);
    if (stream->asked.tail)
        memcpy(stream->asked.tail, stream->delivered.tail, TAIL_LEN);
}

static void forget(struct extent *extent)
{
    free(extent->tail);
    *extent = (struct extent){0};
}

static void request(void *state, struct writer *query, struct writer *fields)
{
    struct scrollback *s = state;

    (void)query;
    (void)fields;
    remember(&s->streams[0]);
    remember(&s->streams[1]);
}

/* The last bytes that were delivered then, in their order. */
static size_t tail_of(const struct stream *stream, uint8_t tail[TAIL_LEN])
{
    size_t len = stream->joined.len < TAIL_LEN ? (size_t)stream->joined.len : TAIL_LEN;
    size_t start = len < TAIL_LEN ? 0 : (size_t)(stream->joined.len % TAIL_LEN);

    if (len == 0)
        return 0;
    memcpy(tail, stream->joined.tail + start, len - start);
    memcpy(tail + len - start, stream->joined.tail, start);
    return len;
}

/* ---- the replay ---- */
static bool take_record(struct slice *rest, uint8_t *tag, struct slice *bytes)
{
    struct reader r = reader_of(*rest);

    *tag = reader_u8(&r);
    *bytes = reader_take(&r, reader_u32(&r));
    *rest = r.rest;
    return !r.failed;
}

static void set_length(struct scrollback *s, size_t len)
{
    struct writer w = writer_of(s->replay.memory + s->replay.start + s->record + 1, 4);
    writer_be(&w, len, 4);
}

/* Bytes that the last record still takes of that stream. */
static size_t record_room(const struct scrollback *s, uint8_t tag)
{
    struct slice record = slice_from(buffer_slice(&s->replay), s->record);
    return record.len && record.at[0] == tag ? CHUNK_MAX + RECORD_LEN - record.len : 0;
}

static bool begin_record(struct scrollback *s, uint8_t tag)
{
    uint8_t head[RECORD_LEN] = {tag};

    s->record = buffer_len(&s->replay);
    return buffer_put(&s->replay, slice_of(head, sizeof head));
}

static bool has_room_for(const struct scrollback *s, struct slice bytes)
{
    size_t heads = (bytes.len / CHUNK_MAX + 1) * RECORD_LEN;
    return bytes.len <= REPLAY_MAX && buffer_len(&s->replay) + heads + bytes.len <= REPLAY_MAX;
}

/* False: out of memory. However long a piece is, no record is longer than CHUNK_MAX. */
static bool collect(struct scrollback *s, uint8_t tag, struct slice bytes)
{
    while (bytes.len) {
        size_t room = record_room(s, tag);
        struct slice part = slice_sub(bytes, 0, room ? room : CHUNK_MAX);
        if ((!room && !begin_record(s, tag)) || !buffer_put(&s->replay, part))
            return false;
        set_length(s, buffer_len(&s->replay) - s->record - RECORD_LEN);
        bytes = slice_from(bytes, part.len);
    }
    return true;
}

/* The replay of one stream in one piece; absent when out of memory. The caller frees it. */
static struct slice joined_bytes(const struct scrollback *s, uint8_t wanted)
{
    struct slice rest = buffer_slice(&s->replay), bytes;
    uint8_t *memory = malloc(rest.len + 1), tag;
    size_t len = 0;

    while (memory && take_record(&rest, &tag, &bytes)) {
        if (tag != wanted)
            continue;
        memcpy(memory + len, bytes.at, bytes.len);
        len += bytes.len;
    }
    return slice_of(memory, len);
}

/* Where a stream goes on. */
struct place {
    bool found;  /* without a doubt */
    uint64_t at; /* bytes of its replay that are not passed on */
};

static const uint8_t *find(struct slice in, size_t from, struct slice wanted)
{
    struct slice rest = slice_from(in, from);
    return memmem(rest.at, rest.len, wanted.at, wanted.len);
}

static void turn_round(struct slice bytes)
{
    uint8_t *first = (uint8_t *)bytes.at, *last = first + bytes.len;

    while (first + 1 < last) {
        uint8_t byte = *first;
        *first++ = *--last;
        *last = byte;
    }
}

/* Behind the last occurrence, of which there is one: the first one from the end, whatever the bytes are, in one pass. Both are
 * turned round. */
static size_t behind_last(struct slice in, struct slice wanted)
{
    turn_round(in);
    turn_round(wanted);
    return in.len - (size_t)(find(in, 0, wanted) - in.at);
}

/* Behind the last occurrence of the tail; found if that is the only one. Both are the caller's to change, and lost. */
static struct place find_tail(struct slice replay, struct slice tail)
{
    const uint8_t *first = tail.len ? find(replay, 0, tail) : NULL;

    if (!first)
        return (struct place){false, 0};
    size_t at = (size_t)(first - replay.at);
    if (!find(replay, at + 1, tail))
        return (struct place){true, at + tail.len};
    return (struct place){false, behind_last(replay, tail)};
}

static bool place_stream(const struct scrollback *s, uint8_t tag, bool complete, struct place *place)
{
    const struct stream *stream = &s->streams[tag - TAG_OUTPUT];
    uint8_t memory[TAIL_LEN];

    if (stream->joined.len && !stream->joined.tail)
        return false;
    struct slice tail = slice_of(memory, tail_of(stream, memory)), replay = joined_bytes(s, tag);
    if (!slice_present(replay))
        return false;
    bool agrees = stream->joined.len <= replay.len &&
                  slice_equal(slice_sub(replay, (size_t)stream->joined.len - tail.len, tail.len), tail);
    *place = complete && agrees ? (struct place){true, stream->joined.len} : find_tail(replay, tail);
    free((void *)replay.at);
    return true;
}

/* How many bytes of the stream `of` stand in front of that place of the other one. */
static uint64_t before(const struct scrollback *s, uint8_t of, uint64_t place)
{
    struct slice rest = buffer_slice(&s->replay), bytes;
    uint64_t mine = 0, others = 0;
    uint8_t tag;

    while (others < place && take_record(&rest, &tag, &bytes))
        *(tag == of ? &mine : &others) += bytes.len;
    return mine;
}

static bool has_gap(struct scrollback *s, bool complete, struct place places[2])
{
    bool gap = false;

    /* a client that had read an empty ring to its end lacks what was dropped since */
    if (!s->streams[0].joined.len && !s->streams[1].joined.len)
        return s->live && !complete;
    for (uint8_t i = 0; i < 2; i++) {
        if (places[i].found)
            continue;
        if (!places[1 - i].found) {
            gap = true;
        } else if (s->streams[i].joined.len) {
            gap = true;
            places[i].at = before(s, TAG_OUTPUT + i, places[1 - i].at);
        }
    }
    return gap;
}

static size_t replay_len(const struct scrollback *s)
{
    struct slice rest = buffer_slice(&s->replay), bytes;
    size_t len = 0;
    uint8_t tag;

    while (take_record(&rest, &tag, &bytes))
        len += bytes.len;
    return len;
}

/* ---- what follows what was delivered ---- */

/* A record's bytes become a frame where they lie, and move down to the end of the frames before them; false: there is no
 * room for its head. */
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

/* Turns the records into frames, over the same memory: of at most CHUNK_MAX bytes, the head of a frame and its tag are
 * as long as the head of a record. */
static bool put_rest(struct scrollback *s, const struct place places[2])
{
    struct slice rest = buffer_slice(&s->replay), bytes;
    uint8_t *frames = (uint8_t *)rest.at, tag;
    uint64_t seen[2] = {0, 0};
    size_t len = 0;

    while (take_record(&rest, &tag, &bytes)) {
        unsigned i = tag - TAG_OUTPUT;
        uint64_t place = places[i].at, from = seen[i];
        seen[i] += bytes.len;
        if (place >= seen[i])
            continue;
        if (place > from)
            bytes = slice_from(bytes, (size_t)(place - from));
        if (!deliver(&s->streams[i], bytes) || !put_frame(frames, &len, tag, bytes))
            return false;
    }
    s->replay.end = s->replay.start + len;
    buffer_consume(&s->replay, 0);
    for (unsigned i = 0; i < 2; i++)
        s->streams[i].skip = places[i].at > seen[i] ? places[i].at - seen[i] : 0;
    return true;
}

/* too_long: there was no room for all of it. What was collected is compared, but whether the rest agrees nobody knows. */
static bool end_replay(struct scrollback *s, bool too_long, struct adapter_edit *edit)
{
    bool complete = !too_long && replay_len(s) + CHUNK_MAX < RING_LEN;
    struct place places[2];

    if (!place_stream(s, TAG_OUTPUT, complete, &places[0]) ||
        !place_stream(s, TAG_ERRORS, complete, &places[1]))
        return false;
    edit->outcome = has_gap(s, complete, places) || too_long || s->torn ? ADAPTER_GAP : ADAPTER_EXACT;
    s->torn = false;
    edit->gap = edit->outcome == ADAPTER_GAP ? ADAPTER_UNKNOWN : 0;
    for (unsigned i = 0; i < 2; i++) {
        places[i].at += s->streams[i].delivered.len - s->streams[i].joined.len;
        forget(&s->streams[i].joined);
    }
    if (!put_rest(s, places))
        return false;
    edit->insert = s->replay;
    edit->insert.limit = INSERT_MAX;
    s->replay = buffer_with_limit(REPLAY_MAX);
    s->record = 0;
    s->collecting = false;
    return true;
}

/* ---- messages ---- */
static bool may_end(const void *state)
{
    const struct scrollback *s = state;
    return s->tag == TAG_OUTPUT || s->tag == TAG_ERRORS;
}

static void joined(void *state, struct outbox *kept, struct adapter_edit *edit)
{
    struct scrollback *s = state;

    (void)kept;
    (void)edit;
    buffer_free(&s->replay);
    s->replay = buffer_with_limit(REPLAY_MAX);
    s->record = 0;
    s->torn = s->torn || (s->inside && s->tag && !may_end(s));
    s->inside = false;
    s->tag = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct stream *stream = &s->streams[i];
        stream->skip = 0;
        forget(&stream->joined);
        stream->joined = stream->asked;
        stream->asked = (struct extent){0};
    }
    s->collecting = s->resumed;
    s->resumed = true;
}

static enum adapter_verdict on_live(struct scrollback *s, const struct adapter_piece *piece,
                                    struct adapter_edit *edit)
{
    if (!piece->last)
        return ADAPTER_DROP;
    if (s->collecting && !end_replay(s, false, edit))
        return ADAPTER_NO_MEMORY;
    if (s->live)
        return ADAPTER_DROP;
    s->live = true;
    if (piece->first)
        return ADAPTER_PASS;
    /* its first fragments were dropped */
    return adapter_put_frame(&edit->insert, WS_BINARY, true, slice_of(&s->tag, 1)) ? ADAPTER_DROP
                                                                                   : ADAPTER_NO_MEMORY;
}

/* Live output; of a message that the client has the beginning of, the rest passes behind a tag of its own. */
static enum adapter_verdict pass_output(struct scrollback *s, struct stream *stream, struct slice bytes,
                                        const struct adapter_piece *piece, struct adapter_edit *edit)
{
    bool tagged = bytes.len < piece->bytes.len;
    size_t skipped = stream->skip < bytes.len ? (size_t)stream->skip : bytes.len;

    s->begun = s->begun || (tagged && !stream->skip);
    stream->skip -= skipped;
    bytes = slice_from(bytes, skipped);
    if (!deliver(stream, bytes))
        return ADAPTER_NO_MEMORY;
    if (s->begun)
        return ADAPTER_PASS;
    if (!bytes.len)
        return ADAPTER_DROP;
    s->begun = true;
    edit->opened = WS_BINARY;
    edit->skip = piece->bytes.len - bytes.len;
    return adapter_put_frame(&edit->insert, WS_BINARY, false, slice_of(&s->tag, 1)) ? ADAPTER_PASS
                                                                                    : ADAPTER_NO_MEMORY;
}

static enum adapter_verdict from_worker(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    struct scrollback *s = state;
    bool tagged;

    if (piece->first) {
        s->tag = 0;
        s->begun = false;
    }
    s->inside = !piece->last;
    tagged = !s->tag && piece->bytes.len && piece->opcode == WS_BINARY;
    if (tagged)
        s->tag = piece->bytes.at[0];
    if (!s->tag && piece->opcode == WS_BINARY && !piece->last)
        return ADAPTER_DROP; /* an empty fragment: what it begins is not known yet */
    if (s->tag == TAG_LIVE)
        return on_live(s, piece, edit);
    if (s->tag == TAG_EXIT && piece->first && piece->last) {
        enum adapter_verdict verdict = s->exited ? ADAPTER_DROP : ADAPTER_PASS;
        s->exited = true;
        return verdict;
    }
    struct stream *stream = stream_of(s, s->tag);
    struct slice bytes = slice_from(piece->bytes, tagged ? 1 : 0);
    if (s->collecting && stream && has_room_for(s, bytes))
        return collect(s, s->tag, bytes) ? ADAPTER_DROP : ADAPTER_NO_MEMORY;
    if (s->collecting && stream && !end_replay(s, true, edit))
        return ADAPTER_NO_MEMORY;
    return stream ? pass_output(s, stream, bytes, piece, edit) : ADAPTER_PASS;
}

static size_t tails(const struct stream *stream)
{
    return (stream->delivered.tail ? (size_t)TAIL_LEN : 0) + (stream->asked.tail ? TAIL_LEN : 0) +
           (stream->joined.tail ? TAIL_LEN : 0);
}

static size_t held(const void *state)
{
    const struct scrollback *s = state;
    return s->replay.size + tails(&s->streams[0]) + tails(&s->streams[1]);
}

static bool collects(const void *state)
{
    return ((const struct scrollback *)state)->collecting;
}

static void end(void *state)
{
    struct scrollback *s = state;

    buffer_free(&s->replay);
    for (unsigned i = 0; i < 2; i++) {
        forget(&s->streams[i].delivered);
        forget(&s->streams[i].asked);
        forget(&s->streams[i].joined);
    }
}

const struct adapter adapter_scrollback = {
    .name = "scrollback",
    .overlap = true,
    .tagged = true,
    .insert_max = INSERT_MAX,
    .state_len = sizeof(struct scrollback),
    .request = request,
    .joined = joined,
    .from_worker = from_worker,
    .may_end = may_end,
    .collects = collects,
    .held = held,
    .end = end,
};
