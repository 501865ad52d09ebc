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

void target_image(struct image *image, struct target *target)
{
    struct target seen = *target;
    bool set = target->texts != NULL || target_known(target);

    IMAGE_BOOL(image, set);
    IMAGE(image, seen.addr.family, 6);
    image_bytes(image, seen.addr.bytes, sizeof seen.addr.bytes);
    IMAGE(image, seen.port, UINT16_MAX);
    IMAGE_BOOL(image, seen.tls);
    IMAGE_BOOL(image, seen.withhold);
    image_text(image, &seen.unix_path);
    image_text(image, &seen.sni);
    image_text(image, &seen.host);
    image_text(image, &seen.headers);
    image_check(image, seen.addr.family == 0 || seen.addr.family == 4 || seen.addr.family == 6);
    if (!image->to && !image->failed && set)
        image_check(image, target_set(target, &seen));
}
