/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_json: looks into an object without reading all of it. A Sandbox has kilobytes that a record does not need
 * (managedFields, a pod's template), and parts that whoever creates one may fill with anything: they are skipped by their
 * brackets and quotes, so that they can neither cost much nor make the rest unreadable. Allocates nothing; recursion has
 * no part in it.
 *
 * A value is a slice of the text from its first byte to its last. A container that is not well-formed ends early.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_JSON_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_JSON_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

/* Whether it may stand between the parts of a text. */
static inline bool kubernetes_json_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Start with *cursor = 0; false at the end, or at what is not well-formed, or of what is no such container. Of an array
 * the key is absent; of an object it is as it stands between the quotes. */
bool kubernetes_json_next(struct slice container, size_t *cursor, struct slice *key, struct slice *value);
/* The object's member, of several the last. False: there is none. A member that is null is none. */
bool kubernetes_json_member(struct slice object, const char *key, struct slice *value);
/* The members of these keys in one pass, each as kubernetes_json_member gives it, absent where there is none. Whether it is
 * one object and nothing else, with its members well-formed on the outside. */
bool kubernetes_json_members(struct slice object, const char *const keys[], struct slice values[],
                             size_t count);
/* Whether it is one container and nothing else, with its members well-formed on the outside. */
bool kubernetes_json_sound(struct slice container);

/* A string's text, unescaped in `scratch` where it has escapes. False: it is no string that is well-formed UTF-8 without
 * NUL, or scratch is full. */
bool kubernetes_json_text(struct slice value, struct writer *scratch, struct slice *text);
/* Whether it is this string, spelled without escapes. */
bool kubernetes_json_is(struct slice value, const char *text);
/* A whole number from 0 on. */
bool kubernetes_json_u64(struct slice value, uint64_t *number);

#endif
