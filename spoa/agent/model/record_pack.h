/* SPDX-License-Identifier: MIT */
/*
 * record_pack: the memory layout of a record's ports and headers, which record_port and record_header read.
 *   ports:   { u16 port, worker }*        headers: { u16 length, name, u16 length, value }*
 *   details: { u16 port, u8 serves, u8 h2, u16 length, access, u16 length, headers }*
 *   management: { u16 from, u16 to }*
 *   worker:  u8 kind, u16 port, u8 family, 0, 4 or 16 bytes of address, u16 length, host
 * A packed record holds all fields of the record. Integers are big-endian.
 */
#ifndef CELLGATE_AGENT_MODEL_RECORD_PACK_H
#define CELLGATE_AGENT_MODEL_RECORD_PACK_H

#include "spoa/agent/model/record.h"
#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

/* The sum of these limits must fit into one frame (SPOP_FRAME_USUAL), because the relay gets them in one: the record's headers as they
 * are packed, the headers that the route sets, and an answer's other variables. */
#define RECORD_HEADERS_MOST 12288
#define ROUTE_SET_MOST      2560
#define ANSWER_REST_MOST    1532

void record_pack_text(struct writer *w, struct slice text); /* at most 65535 bytes, else w->full */
struct slice record_unpack_text(struct reader *r);
void record_pack_worker(struct writer *w, const struct worker *worker);
void record_unpack_worker(struct reader *r, struct worker *worker);
void record_pack_port(struct writer *w, uint16_t port, const struct worker *worker);
void record_pack_details(struct writer *w, uint16_t port, const struct record_details *details);
void record_pack_management(struct writer *w, const struct port_list *ports);
void record_pack_header(struct writer *w, struct slice name, struct slice value);
/* Packs a whole record. Sets w->full if a text is longer than 65535 bytes. */
void record_pack(struct writer *w, const struct record *record);
/* Unpacks a whole record; slices of *record point into the input. */
void record_unpack(struct reader *r, struct record *record);

#endif
