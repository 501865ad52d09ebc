/* SPDX-License-Identifier: MIT */
/*
 * handover: the memory file through which a relay process hands its tunnels to the next one. All threads write it in parallel, and all
 * threads of the next process read it in parallel.
 *
 * The file begins with its head: a magic number, the number of descriptors, and the time at which it was begun (uint64_t each, the time in µs
 * of loop_clock). The descriptors follow, an int32_t each, in no order, then the records, each after its head: its length, its kind (uint32_t
 * each), and its two descriptors (int32_t). The file is the only place that names them, and its reader the only judge of them.
 *
 * The sockets of tunnels that are in the file survive execve; everything else that a relay opens is close-on-exec.
 */
#ifndef CELLGATE_RELAY_SERVE_HANDOVER_H
#define CELLGATE_RELAY_SERVE_HANDOVER_H

#include <stdatomic.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/thread/relay_thread.h"

#define HANDOVER_MAGIC UINT64_C(0x33736567616d6963)

struct handover_head {
    uint64_t magic, descriptors, begun;
};

/* A file that is being written. */
struct handover_file {
    int fd;               /* -1 if memory was short at the beginning */
    uint64_t begun;       /* time when the file was begun, in µs of loop_clock */
    size_t room;          /* size of `descriptors` */
    int32_t *descriptors; /* part of the file, mapped */
    atomic_size_t
        taken; /* used entries of `descriptors`; those of tunnels that could not be written hold -1 */
    _Atomic uint64_t end; /* offset in the file for the next record */
    atomic_bool failed;   /* memory was short while tunnels were written */
};

/* Begins a file for at most this number of tunnels; file->fd is -1 if memory is short. */
void handover_begin(struct handover_file *file, size_t tunnels);
/* Writes each tunnel of a thread, and ends those that cannot be continued. Runs on that thread, whose loop must end next. */
void handover_write(struct handover_file *file, struct relay_thread *thread);
/* In the memory of a dead relay: writes one of its tunnels (tunnel_salvage). Returns where its record is in the file, or 0 if nobody can go on with the
 * tunnel. */
uint64_t handover_salvage(struct handover_file *file, struct tunnel_seat *seat) MUST_CHECK;
/* Makes a record of handover_salvage one that nobody can read: its descriptors are then closed. */
void handover_spoil(struct handover_file *file, uint64_t at);
/* Returns the file, or -1 if it failed. */
int handover_end(struct handover_file *file);

/* A file that is being read. Each thread has a copy, which reads every `step`th record from `first` on. */
struct handover_records {
    struct slice bytes, descriptors;
    uint64_t begun; /* time when the previous process began the file, in µs of loop_clock */
    size_t first, step;
    const unsigned
        *left_out; /* numbers of records that are not read, because another server has died of them */
    size_t left_out_count;
    _Atomic unsigned
        *reads;         /* where the reader stores 1 + the number of its present record, or 0; may be NULL */
    size_t taken, lost; /* number of tunnels that were continued; that were not */
    _Atomic uint8_t *seen; /* one for each descriptor number below `seen_size`: whether a record has got it */
    size_t seen_size;
    const void *map; /* private: these two are the mapped file */
    size_t map_size;
};

/* Maps the file. Returns false if it is none, or memory is short. */
bool handover_map(int fd, struct handover_records *records) MUST_CHECK;
/* Continues the tunnels of the thread's share of the records. Runs on that thread. */
void handover_read(struct handover_records *records, struct relay_thread *thread);
/* Closes the descriptors of the file that no record names, which nobody would ever serve, and unmaps the file. */
void handover_unmap(struct handover_records *records);

#endif
