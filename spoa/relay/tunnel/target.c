/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/target.h"

#include "spoa/base/bytes/reader.h"

#include <stdlib.h>

const char *const answer_state_names[] = {"running", "migrating",   "waking",       "suspended", "stopped",
                                          "absent",  "unavailable", "not_admitted", NULL};

bool target_known(const struct target *target)
{
    return target->addr.family != 0 || slice_present(target->unix_path);
}

bool target_same(const struct target *a, const struct target *b)
{
    size_t bytes = a->addr.family == 4 ? 4 : 16;

    return a->addr.family == b->addr.family && memcmp(a->addr.bytes, b->addr.bytes, bytes) == 0 &&
           a->port == b->port && a->tls == b->tls && slice_equal(a->unix_path, b->unix_path);
}

static struct slice move_text(struct slice text, uint8_t **to)
{
    if (!text.len)
        return slice_present(text) ? SLICE_LITERAL("") : text;
    memcpy(*to, text.at, text.len);
    text.at = *to;
    *to += text.len;
    return text;
}

bool target_set(struct target *to, const struct target *from)
{
    struct target copy = *from;
    size_t len = from->unix_path.len + from->sni.len + from->host.len + from->headers.len;
    uint8_t *at = len ? malloc(len) : NULL;

    if (len && !at)
        return false;
    copy.texts = at;
    copy.unix_path = move_text(from->unix_path, &at);
    copy.sni = move_text(from->sni, &at);
    copy.host = move_text(from->host, &at);
    copy.headers = move_text(from->headers, &at);
    target_free(to);
    *to = copy;
    return true;
}

void target_free(struct target *target)
{
    free(target->texts);
    *target = (struct target){0};
}

bool target_put(struct target **to, const struct target *from)
{
    struct target *copy = *to ? *to : calloc(1, sizeof *copy);

    if (!copy || !target_set(copy, from)) {
        if (copy != *to)
            free(copy);
        return false;
    }
    *to = copy;
    return true;
}

void target_drop(struct target **target)
{
    if (*target)
        target_free(*target);
    free(*target);
    *target = NULL;
}

bool target_header(struct slice *rest, struct slice *name, struct slice *value)
{
    struct reader r = reader_of(*rest);

    *name = reader_take(&r, reader_be(&r, 2));
    *value = reader_take(&r, reader_be(&r, 2));
    *rest = r.rest;
    return !r.failed;
}

static bool is_family(const void *object)
{
    const struct address *addr = object;
    return addr->family == 0 || addr->family == 4 || addr->family == 6;
}

static const struct image_field address_fields[] = {
    IMAGE_ANY(struct address, family),
    IMAGE_BYTES(struct address, bytes),
};
static IMAGE_TABLE(address_table, struct address, address_fields, .holds = is_family);

/* Reads or writes the length of a text that may be absent, and adds the length to `*len`. Returns the text without its place. */
static struct slice image_text(struct image *image, struct slice text, size_t *len)
{
    uint64_t text_len = text.len;

    if (!image_bit(image, slice_present(text)))
        return slice_text(NULL);
    image_number(image, &text_len, UINT32_MAX);
    *len += image->failed ? 0 : text_len;
    return slice_of("", text_len);
}

static struct slice place_text(struct slice text, uint8_t **at)
{
    if (!text.len)
        return text;
    text.at = *at;
    *at += text.len;
    return text;
}

/* Reads or writes all texts of a target, which share one piece of memory in this order. */
static void image_texts(struct image *image, void *object)
{
    struct target *target = object;
    struct slice *const texts[] = {&target->unix_path, &target->sni, &target->host, &target->headers};
    enum { COUNT = sizeof texts / sizeof texts[0] };
    struct slice read[COUNT];
    size_t len = 0;
    void *memory = target->texts;

    for (size_t i = 0; i < COUNT; i++)
        read[i] = image_text(image, *texts[i], &len);
    image_memory(image, &memory, len, len);
    image_check(image, (memory != NULL) == (len > 0));
    if (image->to || image->failed) {
        if (!image->to && !image->kept)
            free(memory);
        return;
    }
    uint8_t *at = target->texts = memory;
    for (size_t i = 0; i < COUNT; i++)
        *texts[i] = place_text(read[i], &at);
}

static const struct image_field fields[] = {
    IMAGE_PART(struct target, addr, &address_table),
    IMAGE_ANY(struct target, port),
    IMAGE_FLAG(struct target, tls),
    IMAGE_FLAG(struct target, withhold),
    IMAGE_BY(struct target, unix_path, image_texts),
    IMAGE_DERIVED(struct target, sni), /* image_texts restores these, too */
    IMAGE_DERIVED(struct target, host),
    IMAGE_DERIVED(struct target, headers),
    IMAGE_DERIVED(struct target, texts),
};
IMAGE_TABLE(target_table, struct target, fields);
