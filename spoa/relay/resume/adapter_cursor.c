/* SPDX-License-Identifier: MIT */
/*
 * cursor: the terminal of sandbox-sdk 1.0. Output is chunks. The worker announces a chunk by a text message with the chunk's cursor and
 * length, and the chunk follows as one binary message. The relay asks the next worker with cursor=<last whole chunk>, and that worker sends
 * all later chunks, or says `truncated` if it no longer has them. Every connection gets the same chunks, and a cursor means nothing to the relay.
 *
 * A chunk that was cut is the first one that the next worker sends: the relay drops its announcement and the bytes that the client has, and
 * continues the client's message. Without `overlap`, the last worker is closed before the next one is asked, so no other chunk comes twice.
 */
#include "spoa/relay/resume/adapter.h"

#include "spoa/base/bytes/min_max.h"
#include "spoa/base/json/json.h"

#define CURSOR_SIZE 161   /* largest cursor in bytes, with its NUL */
#define TEXT_MAX    16384 /* largest text message, in bytes */
#define LENGTH_MAX  ((INT64_C(1) << 53) - 1)

struct cursor {
    char last[CURSOR_SIZE]; /* cursor of the last chunk that the client has whole; empty if there is none */
    char next[CURSOR_SIZE]; /* cursor of the chunk that was announced to the client last */
    uint64_t length;        /* the number of bytes of that chunk */
    uint64_t got;           /* the number of them that the client has */
    uint64_t position;      /* the number of them that this worker has sent */
    uint64_t delivered;     /* the number of bytes of output that the client has */
    bool open;              /* the client does not have all of the chunk that was announced to it */
    bool announced;         /* this worker has announced that chunk, and its bytes follow */
    bool ready;             /* the client has received a `ready` */
    bool exited;            /* the client has received an `exit` */
    bool resumed;           /* the tunnel has had an earlier worker */
    bool unresolved;        /* the outcome of the resume is still unknown */
    bool text;              /* the incoming message is text */
};

/* Writes empty `cols` and `rows`, because the client may have resized the terminal since it connected. */
static void request(void *state, struct writer *query, struct writer *fields)
{
    const struct cursor *s = state;

    (void)fields;
    if (!s->resumed)
        return;
    writer_printf(query, "%s%s%scols=&rows=", s->last[0] ? "cursor=" : "", s->last, s->last[0] ? "&" : "");
}

static void joined(void *state, struct send_queue *kept, struct adapter_edit *edit)
{
    struct cursor *s = state;

    (void)kept;
    (void)edit;
    s->announced = false;
    s->position = 0;
    s->unresolved = s->resumed;
    s->resumed = true;
}

static void resolve(struct cursor *s, struct adapter_edit *edit, uint64_t gap)
{
    if (!s->unresolved)
        return;
    s->unresolved = false;
    edit->gap = gap;
    edit->outcome = gap ? ADAPTER_GAP : ADAPTER_EXACT;
}

/* ---- text ---- */
static enum adapter_verdict announce(struct cursor *s, struct slice name, uint64_t length,
                                     struct adapter_edit *edit)
{
    bool cut = s->open;

    if (cut && (length != s->length || !slice_is(name, s->next)))
        return ADAPTER_CUT;
    resolve(s, edit, 0);
    s->open = s->announced = true;
    s->position = 0;
    if (cut)
        return ADAPTER_DROP;
    memset(s->next, 0, sizeof s->next);
    memcpy(s->next, name.at, name.len);
    s->length = length;
    s->got = 0;
    return ADAPTER_PASS;
}

static enum adapter_verdict read_chunk(struct cursor *s, const struct json *doc, struct adapter_edit *edit)
{
    const json_node *root = json_root(doc);
    struct slice name;
    int64_t length;

    if (!json_text(json_member(root, "cursor"), &name) || !name.len || name.len >= CURSOR_SIZE ||
        !slice_unreserved(name) || !json_int(doc, json_member(root, "byteLength"), 0, LENGTH_MAX, &length))
        return ADAPTER_WRONG;
    return announce(s, name, (uint64_t)length, edit);
}

static enum adapter_verdict read_text(struct cursor *s, const struct json *doc, struct adapter_edit *edit)
{
    struct slice type = slice_text("");

    if (doc && !json_text(json_member(json_root(doc), "type"), &type))
        type = slice_text("");
    if (slice_is(type, "chunk"))
        return read_chunk(s, doc, edit);
    bool truncated = slice_is(type, "truncated"), ends = slice_is(type, "exit");
    if (s->open && (truncated || ends))
        return ADAPTER_CUT; /* nobody can complete the chunk: the client must reconnect */
    if (truncated || ends)
        resolve(s, edit, truncated ? ADAPTER_UNKNOWN : 0);
    bool begins = slice_is(type, "ready"), again = (begins && s->ready) || (ends && s->exited);
    s->ready = s->ready || begins;
    s->exited = s->exited || ends;
    return again || s->open ? ADAPTER_DROP : ADAPTER_PASS;
}

static enum adapter_verdict pass_text(struct cursor *s, const struct adapter_piece *piece,
                                      struct adapter_edit *edit)
{
    struct fail why;

    /* the worker sends each text in one frame, and the bytes of a chunk directly after its announcement */
    if (!piece->first || !piece->last || s->announced)
        return ADAPTER_WRONG;
    struct json *doc = json_parse(piece->bytes, "message", 0, (struct json_limits){TEXT_MAX, 8}, &why);
    enum adapter_verdict verdict = read_text(s, doc, edit);
    json_free(doc);
    return verdict;
}

/* ---- output ---- */
static enum adapter_verdict pass_bytes(struct cursor *s, const struct adapter_piece *piece,
                                       struct adapter_edit *edit)
{
    size_t len = piece->bytes.len;

    if (!s->announced || len > s->length - s->position || (piece->last && len != s->length - s->position))
        return ADAPTER_WRONG;
    size_t known = s->got > s->position ? (size_t)min_u64(s->got - s->position, len) : 0;
    s->position += len;
    s->got += len - known;
    s->delivered += len - known;
    edit->skip = known;
    if (piece->last) {
        memcpy(s->last, s->next, sizeof s->last);
        s->open = s->announced = false;
    }
    return known == len && !piece->last ? ADAPTER_DROP : ADAPTER_PASS;
}

static enum adapter_verdict from_worker(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    struct cursor *s = state;

    if (piece->first)
        s->text = piece->opcode == WS_TEXT;
    return s->text ? pass_text(s, piece, edit) : pass_bytes(s, piece, edit);
}

static uint64_t progress(const void *state)
{
    return ((const struct cursor *)state)->delivered;
}

/* ---- as an image ---- */
static bool is_cursor(const char name[CURSOR_SIZE])
{
    return !name[CURSOR_SIZE - 1] && slice_unreserved(slice_text(name));
}

static bool holds(const void *state)
{
    const struct cursor *s = state;
    return is_cursor(s->last) && is_cursor(s->next) && s->got <= s->length && s->position <= s->length &&
           (s->open || !s->announced);
}

static const struct image_field fields[] = {
    IMAGE_BYTES(struct cursor, last),      IMAGE_BYTES(struct cursor, next),
    IMAGE_ANY(struct cursor, length),      IMAGE_ANY(struct cursor, got),
    IMAGE_ANY(struct cursor, position),    IMAGE_ANY(struct cursor, delivered),
    IMAGE_FLAG(struct cursor, open),       IMAGE_FLAG(struct cursor, announced),
    IMAGE_FLAG(struct cursor, ready),      IMAGE_FLAG(struct cursor, exited),
    IMAGE_FLAG(struct cursor, resumed),    IMAGE_FLAG(struct cursor, unresolved),
    IMAGE_FLAG(struct cursor, text),
};
static IMAGE_TABLE(table, struct cursor, fields, .holds = holds);

const struct adapter adapter_cursor = {
    .name = "cursor",
    .exact = true,
    .state_len = sizeof(struct cursor),
    .image = &table,
    .request = request,
    .joined = joined,
    .from_worker = from_worker,
    .progress = progress,
};
