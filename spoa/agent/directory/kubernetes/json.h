/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_json: reads single members of an object without parsing all of it. A Sandbox has kilobytes that a record does not need
 * (managedFields, a pod's template), and parts that whoever creates one may fill with anything. These are skipped by their brackets
 * and quotes, so they can neither cost much nor make the rest unreadable. Nothing is allocated, and nothing recurses.
 *
 * A value is a slice of the text, from its first byte to its last. A container that is not well-formed ends early.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_JSON_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_JSON_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

/* Returns whether the byte is white space of JSON (RFC 8259 section 2). */
static inline bool kubernetes_json_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Returns the next element of an array or member of an object. Start with *cursor = 0. *key is absent for an array; for an object it is
 * the text between the quotes, with its escapes. Returns false at the end, at anything that is not well-formed, and if `container`
 * is neither. */
bool kubernetes_json_next(struct slice container, size_t *cursor, struct slice *key, struct slice *value);
/* Finds a member of an object; of several with the same key the last one. Returns false if there is none or it is null. */
bool kubernetes_json_member(struct slice object, const char *key, struct slice *value) MUST_CHECK;
/* Finds several members in one pass; a value is absent if there is no such member. Returns whether `object` is one object and nothing
 * else, and its members are well-formed on the outside. */
bool kubernetes_json_members(struct slice object, const char *const keys[], struct slice values[],
                             size_t count);
/* Returns whether `container` is one container and nothing else, and its members are well-formed on the outside. */
bool kubernetes_json_sound(struct slice container);

/* Reads a string; *text points into `value`, or into `scratch` if there are escapes. Returns false if the value is not a string of
 * well-formed UTF-8 without NUL, or if `scratch` is full. */
bool kubernetes_json_text(struct slice value, struct writer *scratch, struct slice *text) MUST_CHECK;
/* Returns whether the value is this string, spelled without escapes. */
bool kubernetes_json_is(struct slice value, const char *text);
/* Reads a whole number from 0 on. Returns false if the value is not one. */
bool kubernetes_json_u64(struct slice value, uint64_t *number) MUST_CHECK;

#endif
