/* SPDX-License-Identifier: MIT */
/*
 * since: the PTY of OpenSandbox. Output has absolute offsets: a binary message is `01` and output, or `03`, an offset of eight
 * bytes and a replay from that offset; `02` is the standard error of pipes. The relay asks a worker with since=<delivered>, and the
 * worker replays all later output, or as much as it still has. The next worker may keep the slot of the lost leg for a
 * while, hence takeover=1. A viewer (mode=viewer) only reads: a viewer has no slot, and takes over none.
 *
 * The relay ends a cut message of output at the cut, and the replay continues there.
 */
#include "spoa/relay/resume/adapter.h"

#include <inttypes.h>

#include "spoa/base/bytes/reader.h"
#include "spoa/base/json/json.h"

#define TAG_OUTPUT  1
#define TAG_ERRORS  2
#define TAG_REPLAY  3
#define HEAD_LEN    9    /* bytes of a replay's head: tag and offset */
#define MESSAGE_MAX 4096 /* largest `connected`, in bytes */
#define BODY_MAX    4096
#define OFFSET_MAX  ((UINT64_C(1) << 53) - 1) /* largest integer that every JSON parser reads exactly */

struct since {
    uint64_t delivered; /* offset after the last byte sent to the client */
    uint64_t requested; /* offset in the last request, from which the next worker continues */
    uint64_t position;  /* offset of the worker's next byte; bytes below `delivered` are repeats */
    uint64_t asked;     /* value of `delivered` when the relay last asked a worker about the session */
    bool pipes;         /* two streams share one offset, so a resume cannot be exact */
    bool viewer;        /* the client only reads, beside the one that types */
    bool resumed;       /* the tunnel has had an earlier worker */
    bool unresolved;    /* the outcome of the resume is still unknown */
    bool connected;     /* the client has received a `connected` */
    bool swallow;       /* the `connected` of this worker is not forwarded */
    bool torn;          /* a message other than output was cut, and its rest will never arrive */
    bool restarted;     /* the offsets of the session restarted at 0 */
    /* ---- the incoming message ---- */
    uint8_t tag; /* first byte of a binary message; 0 if not read yet, or the message is text */
    bool text;
    bool inside; /* the message is unfinished */
    bool begun;  /* a part of the message was forwarded */
    bool absurd; /* the message is a replay with an impossible offset */
    uint8_t head[HEAD_LEN];
    size_t head_len;
};

/* ---- the request ---- */

/* Returns the value of a query parameter as a number, or 0 if the parameter is missing or no number. */
static uint64_t parameter(struct slice query, const char *name)
{
    struct slice part, key;
    uint64_t value = 0;

    while (slice_split(&query, '&', &part)) {
        key = part;
        if (slice_split(&part, '=', &key) && slice_is(key, name) && slice_present(part))
            return slice_u64(part, OFFSET_MAX, &value) ? value : 0;
    }
    return 0;
}

static bool says(struct slice query, const char *parameter)
{
    struct slice part;

    while (slice_split(&query, '&', &part))
        if (slice_is(part, parameter))
            return true;
    return false;
}

static void start(void *state, const struct adapter_start *start)
{
    struct since *s = state;
    struct slice query = slice_from(start->target, slice_find(start->target, '?') + 1);

    s->delivered = parameter(query, "since");
    s->pipes = says(query, "pty=0");
    s->viewer = says(query, "mode=viewer");
}

static bool probe(void *state, struct slice target, struct writer *w)
{
    struct since *s = state;
    struct slice path = slice_sub(target, 0, slice_find(target, '?'));

    if (!s->resumed || path.len < 3 || !slice_is(slice_from(path, path.len - 3), "/ws"))
        return false;
    writer_put(w, slice_sub(path, 0, path.len - 3));
    s->asked = s->delivered;
    return true;
}

static enum adapter_found probed(void *state, unsigned status, struct slice body, uint64_t *missing)
{
    struct since *s = state;
    struct fail why;
    int64_t offset;
    bool running = false;

    *missing = 0;
    if (status != 200)
        return ADAPTER_UNCLEAR;
    struct json *doc = json_parse(body, "session", 0, (struct json_limits){BODY_MAX, 8}, &why);
    bool understood = doc && json_bool(json_member(json_root(doc), "running"), &running);
    const json_node *said = understood ? json_member(json_root(doc), "output_offset") : NULL;
    if (said && json_int(doc, said, 0, (int64_t)OFFSET_MAX, &offset)) {
        s->restarted = (uint64_t)offset < s->asked;
        uint64_t lacks = (uint64_t)offset > s->delivered ? (uint64_t)offset - s->delivered : 0;
        *missing = s->restarted || s->pipes ? ADAPTER_UNKNOWN : lacks;
    } else if (said) {
        *missing = ADAPTER_UNKNOWN;
    }
    json_free(doc);
    return !understood ? ADAPTER_UNCLEAR : running ? ADAPTER_ALIVE : ADAPTER_ENDED;
}

static void request(void *state, struct writer *query, struct writer *fields)
{
    struct since *s = state;

    (void)fields;
    s->requested = s->restarted ? 0 : s->delivered;
    if (s->resumed)
        writer_printf(query, "since=%" PRIu64 "%s", s->requested, s->viewer ? "" : "&takeover=1");
}

/* ---- output ---- */
static void resolve(struct since *s, struct adapter_edit *edit, uint64_t gap)
{
    if (!s->unresolved)
        return;
    s->unresolved = false;
    edit->gap = s->pipes || s->restarted || s->torn ? ADAPTER_UNKNOWN : gap;
    edit->outcome = edit->gap ? ADAPTER_GAP : ADAPTER_EXACT;
    s->restarted = false;
    s->torn = false;
}

static void joined(void *state, struct send_queue *kept, struct adapter_edit *edit)
{
    struct since *s = state;

    (void)kept;
    (void)edit;
    if (s->restarted)
        s->delivered = 0;
    s->position = s->requested;
    s->torn = s->torn || (s->inside && s->text);
    s->inside = false;
    s->unresolved = s->resumed;
    s->resumed = true;
    s->swallow = s->connected;
    s->tag = 0;
    s->begun = false;
}

/* Uses the offset of a replay to find the bytes that it repeats or lacks. After an impossible offset, the replay counts as the next
 * output: the client gets the offset that follows, and the size of the gap is unknown. A replay may be several messages: a message
 * that begins within the repeated bytes changes nothing. */
static void place_replay(struct since *s, struct adapter_edit *edit)
{
    struct reader r = reader_of(slice_of(s->head + 1, HEAD_LEN - 1));
    uint64_t offset = reader_be(&r, 8), gap = 0;

    s->absurd = offset > OFFSET_MAX;
    if (s->absurd) {
        s->position = s->delivered;
        resolve(s, edit, ADAPTER_UNKNOWN);
        return;
    }
    bool twice = offset >= s->position && offset < s->delivered;
    if (!twice && (!s->unresolved || offset >= s->delivered)) {
        gap = s->unresolved ? offset - s->delivered : 0;
        s->delivered = offset;
    }
    s->position = offset;
    resolve(s, edit, gap);
}

/* Advances the position by `len` bytes of the worker. Returns the number of them that the client already has. */
static size_t go_on(struct since *s, size_t len)
{
    uint64_t known = s->delivered > s->position ? s->delivered - s->position : 0;
    size_t trimmed = known < len ? (size_t)known : len;

    s->position += len;
    s->delivered += len - trimmed;
    return trimmed;
}

/* Inserts a replay's head for the forwarded bytes, which are the last `len` before `delivered`. */
static bool put_head(struct since *s, size_t len, struct adapter_edit *edit)
{
    struct writer w = writer_of(s->head, HEAD_LEN);

    writer_u8(&w, TAG_REPLAY);
    writer_be(&w, s->delivered - len, HEAD_LEN - 1);
    edit->opened = WS_BINARY;
    return adapter_put_frame(&edit->insert, WS_BINARY, false, writer_slice(&w));
}

static enum adapter_verdict pass_replay(struct since *s, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    size_t had = s->head_len, wanted = HEAD_LEN - had;
    struct slice head = slice_sub(piece->bytes, 0, wanted), rest = slice_from(piece->bytes, head.len);

    if (head.len) {
        memcpy(s->head + had, head.at, head.len);
        s->head_len += head.len;
        if (s->head_len == HEAD_LEN)
            place_replay(s, edit);
    }
    if (s->head_len < HEAD_LEN)
        return piece->last ? ADAPTER_WRONG : ADAPTER_DROP;
    bool whole_head = head.len == HEAD_LEN && s->position >= s->delivered && !s->absurd;
    size_t trimmed = go_on(s, rest.len);
    edit->skip = whole_head ? 0 : head.len + trimmed;
    rest = slice_from(rest, trimmed);
    if (!rest.len && !s->begun && !whole_head)
        return ADAPTER_DROP;
    if (!s->begun && !whole_head && !put_head(s, rest.len, edit))
        return ADAPTER_NO_MEMORY;
    s->begun = true;
    return ADAPTER_PASS;
}

static enum adapter_verdict pass_output(struct since *s, const struct adapter_piece *piece, bool tagged,
                                        struct adapter_edit *edit)
{
    size_t len = piece->bytes.len - (tagged ? 1 : 0);

    resolve(s, edit, 0);
    s->begun = s->begun || (tagged && s->position >= s->delivered);
    size_t rest = len - go_on(s, len);
    if (s->begun)
        return ADAPTER_PASS;
    if (!rest)
        return ADAPTER_DROP;
    s->begun = true;
    edit->opened = WS_BINARY;
    edit->skip = piece->bytes.len - rest;
    return adapter_put_frame(&edit->insert, WS_BINARY, false, slice_of(&s->tag, 1)) ? ADAPTER_PASS
                                                                                    : ADAPTER_NO_MEMORY;
}

/* ---- text ---- */
static bool is_connected(struct since *s, struct slice text)
{
    struct fail why;
    struct slice type, mode;

    if (text.len > MESSAGE_MAX)
        return false;
    struct json *doc = json_parse(text, "message", 0, (struct json_limits){MESSAGE_MAX, 8}, &why);
    bool is = doc && json_text(json_member(json_root(doc), "type"), &type) && slice_is(type, "connected");
    if (is && json_text(json_member(json_root(doc), "mode"), &mode) && !slice_is(mode, "pty"))
        s->pipes = true;
    json_free(doc);
    return is;
}

static enum adapter_verdict pass_text(struct since *s, const struct adapter_piece *piece,
                                      struct adapter_edit *edit)
{
    bool looked_for = s->swallow || !s->connected;

    if (looked_for && piece->first && piece->last && is_connected(s, piece->bytes)) {
        bool swallowed = s->swallow;
        s->swallow = false;
        s->connected = true;
        resolve(s, edit, 0); /* a replay would have preceded the `connected` */
        return swallowed ? ADAPTER_DROP : ADAPTER_PASS;
    }
    s->begun = true;
    return ADAPTER_PASS;
}

static enum adapter_verdict from_worker(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    struct since *s = state;

    if (piece->first) {
        s->tag = 0;
        s->text = piece->opcode == WS_TEXT;
        s->begun = false;
        s->absurd = false;
        s->head_len = 0;
    }
    s->inside = !piece->last;
    if (s->text)
        return pass_text(s, piece, edit);
    bool tagged = !s->tag && piece->bytes.len;
    if (tagged)
        s->tag = piece->bytes.at[0];
    switch (s->tag) {
    case 0: /* after an empty fragment, the kind of the message is still unknown */
        return piece->last ? ADAPTER_PASS : ADAPTER_DROP;
    case TAG_REPLAY:
        return pass_replay(s, piece, edit);
    case TAG_ERRORS:
        s->pipes = true;
        return pass_output(s, piece, tagged, edit);
    default:
        return pass_output(s, piece, tagged, edit);
    }
}

static bool whole(void *state, enum ws_opcode opcode, struct slice bytes)
{
    struct since *s = state;
    bool text = opcode == WS_TEXT;

    if (s->unresolved || s->swallow || !s->connected || s->position < s->delivered ||
        (!text && (!bytes.len || bytes.at[0] != TAG_OUTPUT)))
        return false;
    s->text = text;
    s->tag = text ? 0 : TAG_OUTPUT;
    s->begun = true;
    s->absurd = s->inside = false;
    s->head_len = 0;
    if (!text)
        go_on(s, bytes.len - 1);
    return true;
}

static uint64_t progress(const void *state)
{
    return ((const struct since *)state)->delivered;
}

static bool may_end(const void *state)
{
    const struct since *s = state;
    return !s->text;
}

/* ---- as an image ---- */
static bool holds(const void *state)
{
    return ((const struct since *)state)->head_len <= HEAD_LEN;
}

static const struct image_field fields[] = {
    /* may exceed OFFSET_MAX, because output continues after the last offset that a replay may have */
    IMAGE_ANY(struct since, delivered),  IMAGE_ANY(struct since, requested),
    IMAGE_ANY(struct since, position),   IMAGE_ANY(struct since, asked),
    IMAGE_FLAG(struct since, pipes),     IMAGE_FLAG(struct since, viewer),
    IMAGE_FLAG(struct since, resumed),   IMAGE_FLAG(struct since, unresolved),
    IMAGE_FLAG(struct since, connected), IMAGE_FLAG(struct since, swallow),
    IMAGE_FLAG(struct since, torn),      IMAGE_FLAG(struct since, restarted),
    IMAGE_ANY(struct since, tag),        IMAGE_FLAG(struct since, text),
    IMAGE_FLAG(struct since, inside),    IMAGE_FLAG(struct since, begun),
    IMAGE_FLAG(struct since, absurd),    IMAGE_BYTES(struct since, head),
    IMAGE_ANY(struct since, head_len),
};
static IMAGE_TABLE(table, struct since, fields, .holds = holds);

const struct adapter adapter_since = {
    .name = "since",
    .overlap = true,
    .tagged = true,
    .insert_max = 64,
    .state_len = sizeof(struct since),
    .image = &table,
    .start = start,
    .probe = probe,
    .probed = probed,
    .request = request,
    .joined = joined,
    .from_worker = from_worker,
    .whole = whole,
    .may_end = may_end,
    .progress = progress,
};
