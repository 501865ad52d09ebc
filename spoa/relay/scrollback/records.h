/* SPDX-License-Identifier: MIT */
/*
 * records: output of a worker as tagged records in one buffer, in the order in which it arrived. A record is a tag, 32 bits of
 * length and at most RECORD_MAX bytes; adjacent output of one stream shares a record. A record can become a WebSocket frame in
 * place, because the frame's head and tag are never longer than the record's head.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_RECORDS_H
#define CELLGATE_RELAY_SCROLLBACK_RECORDS_H

#include <stdbool.h>

#include "spoa/base/bytes/image.h"

#define RECORD_MAX  4096 /* largest number of bytes of output in a record */
#define RECORD_HEAD 5    /* bytes of tag and length in front of the output */

struct records {
    struct buffer memory;
    size_t last; /* offset of the last record */
};

/* Returns an empty object whose memory may grow to `limit` bytes. */
struct records records_with_limit(size_t limit);
/* Frees the memory; the limit stays. */
void records_clear(struct records *records);
/* Returns true if the records, with their heads, stay within `most` bytes after records_put of `bytes`. */
bool records_has_room(const struct records *records, struct slice bytes, size_t most);
/* Appends output. Returns false if memory is short; a part may have been appended then. */
bool records_put(struct records *records, uint8_t tag, struct slice bytes)
    __attribute__((warn_unused_result));
/* Reads the first record of *rest, and moves *rest to the next one. *rest begins as the slice of `memory`. Returns false at the end. */
bool records_take(struct slice *rest, uint8_t *tag, struct slice *bytes);
/* Returns the output of one stream, without its first `skip` bytes, in memory that the caller frees; an absent slice if memory is
 * short. */
struct slice records_join(const struct records *records, uint8_t tag, uint64_t skip);

/* Layout in an image. Only records of the two output streams are accepted. */
extern const struct image_table records_table;

#endif
