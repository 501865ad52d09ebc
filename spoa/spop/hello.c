/* SPDX-License-Identifier: MIT */
#include "spoa/spop/hello.h"

#define VERSION "2.0"

/* The values of a hello or a disconnect; SPOP_NULL if the payload does not have one. */
struct list {
    struct spop_value versions, version, frame_size, capabilities, healthcheck, engine_id, status, message;
};

/* Reads a payload. Unknown names are skipped, as the protocol demands. Returns false for malformed bytes. */
static bool list_read(struct slice payload, struct list *list)
{
    const struct {
        const char *name;
        struct spop_value *value;
    } known[] = {
        {"supported-versions", &list->versions}, {"version", &list->version},
        {"max-frame-size", &list->frame_size},   {"capabilities", &list->capabilities},
        {"healthcheck", &list->healthcheck},     {"engine-id", &list->engine_id},
        {"status-code", &list->status},          {"message", &list->message},
    };
    *list = (struct list){.version = spop_null()};
    struct reader r = reader_of(payload);
    while (!r.failed && r.rest.len) {
        struct slice name;
        struct spop_value value;
        if (!spop_item_read(&r, &name, &value))
            break;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (slice_is(name, known[i].name))
                *known[i].value = value;
    }
    return !r.failed;
}

static struct spop_value number(size_t value)
{
    return (struct spop_value){.kind = SPOP_UINT32, .number = (int64_t)value};
}

/* Returns true if a comma-separated list has the word, in exactly this case. */
static bool has_word(struct slice words, const char *word)
{
    struct slice part;
    while (slice_split(&words, ',', &part))
        if (slice_is(slice_trim(part), word))
            return true;
    return false;
}

static enum spop_status frame_size_judge(struct spop_value value, size_t max, size_t *size)
{
    uint64_t wanted;
    if (value.kind == SPOP_NULL)
        return SPOP_STATUS_NO_FRAME_SIZE;
    if (!spop_value_unsigned(value, &wanted) || wanted < SPOP_SIZE_MIN || wanted > max)
        return SPOP_STATUS_BAD_FRAME_SIZE;
    *size = (size_t)wanted;
    return SPOP_STATUS_NORMAL;
}

/* ---- HAPROXY-HELLO ---- */
enum spop_status spop_offer_read(struct slice payload, struct spop_offer *offer)
{
    struct list list;
    if (!list_read(payload, &list))
        return SPOP_STATUS_INVALID;
    if (list.versions.kind != SPOP_TEXT)
        return SPOP_STATUS_NO_VERSION;
    if (!has_word(list.versions.bytes, VERSION))
        return SPOP_STATUS_BAD_VERSION;
    *offer = (struct spop_offer){.frame_size = 0};
    enum spop_status judged = frame_size_judge(list.frame_size, UINT32_MAX, &offer->frame_size);
    if (judged != SPOP_STATUS_NORMAL)
        return judged;
    if (list.capabilities.kind != SPOP_TEXT)
        return SPOP_STATUS_NO_CAPABILITIES;
    if (offer->frame_size > SPOP_FRAME_MAX)
        offer->frame_size = SPOP_FRAME_MAX;
    offer->pipelining = has_word(list.capabilities.bytes, "pipelining");
    offer->healthcheck = list.healthcheck.kind == SPOP_BOOL && list.healthcheck.truth;
    offer->engine_id = list.engine_id.bytes;
    return SPOP_STATUS_NORMAL;
}

void spop_offer_write(struct writer *w, const struct spop_offer *offer)
{
    size_t begin = spop_frame_begin(w, SPOP_TYPE_HAPROXY_HELLO, 0, 0);
    spop_item_write(w, SLICE_LITERAL("supported-versions"), spop_text(SLICE_LITERAL(VERSION)));
    spop_item_write(w, SLICE_LITERAL("max-frame-size"), number(offer->frame_size));
    spop_item_write(w, SLICE_LITERAL("capabilities"),
                    spop_text(offer->pipelining ? SLICE_LITERAL("pipelining") : SLICE_LITERAL("")));
    if (offer->healthcheck)
        spop_item_write(w, SLICE_LITERAL("healthcheck"), spop_bool(true));
    if (slice_present(offer->engine_id))
        spop_item_write(w, SLICE_LITERAL("engine-id"), spop_text(offer->engine_id));
    if (!spop_frame_end(w, begin, SPOP_FRAME_USUAL))
        w->full = true;
}

/* ---- AGENT-HELLO ---- */
enum spop_status spop_agreement_read(struct slice payload, size_t offered, struct spop_agreement *agreement)
{
    struct list list;
    if (!list_read(payload, &list))
        return SPOP_STATUS_INVALID;
    if (list.version.kind != SPOP_TEXT)
        return SPOP_STATUS_NO_VERSION;
    if (!slice_is(slice_trim(list.version.bytes), VERSION))
        return SPOP_STATUS_BAD_VERSION;
    *agreement = (struct spop_agreement){.frame_size = 0};
    enum spop_status judged = frame_size_judge(list.frame_size, offered, &agreement->frame_size);
    if (judged != SPOP_STATUS_NORMAL)
        return judged;
    if (list.capabilities.kind != SPOP_TEXT)
        return SPOP_STATUS_NO_CAPABILITIES;
    agreement->pipelining = has_word(list.capabilities.bytes, "pipelining");
    return SPOP_STATUS_NORMAL;
}

void spop_agreement_write(struct writer *w, const struct spop_agreement *agreement)
{
    size_t begin = spop_frame_begin(w, SPOP_TYPE_AGENT_HELLO, 0, 0);
    spop_item_write(w, SLICE_LITERAL("version"), spop_text(SLICE_LITERAL(VERSION)));
    spop_item_write(w, SLICE_LITERAL("max-frame-size"), number(agreement->frame_size));
    spop_item_write(w, SLICE_LITERAL("capabilities"),
                    spop_text(agreement->pipelining ? SLICE_LITERAL("pipelining") : SLICE_LITERAL("")));
    if (!spop_frame_end(w, begin, SPOP_FRAME_USUAL))
        w->full = true;
}

/* ---- DISCONNECT ---- */
void spop_disconnect_write(struct writer *w, enum spop_type type, enum spop_status status)
{
    size_t begin = spop_frame_begin(w, type, 0, 0);
    spop_item_write(w, SLICE_LITERAL("status-code"), number(status));
    spop_item_write(w, SLICE_LITERAL("message"), spop_text(slice_text(spop_status_text(status))));
    if (!spop_frame_end(w, begin, SPOP_FRAME_USUAL))
        w->full = true;
}

bool spop_disconnect_read(struct slice payload, uint64_t *status, struct slice *message)
{
    struct list list;
    if (!list_read(payload, &list) || !spop_value_unsigned(list.status, status))
        return false;
    *message = list.message.bytes;
    return true;
}
