/* SPDX-License-Identifier: MIT */
/*
 * handover: the memory file in which a relay writes its tunnels for the next one. All threads write it, and read it, at the same time.
 *
 * The file begins with its head: a magic number, the number of descriptors, and the time at which it was begun (uint64_t each, the time in µs
 * of loop_clock). The descriptors follow, an int32_t each, in no order, then the records, each after its length (uint32_t).
 *
 * The sockets of tunnels that are in the file survive execve; everything else that a relay opens is close-on-exec.
 */
#ifndef CELLGATE_RELAY_SERVE_HANDOVER_H
#define CELLGATE_RELAY_SERVE_HANDOVER_H

#include <stdatomic.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/thread/relay_thread.h"

#define HANDOVER_MAGIC UINT64_C(0x32736567616d6963)

struct handover_head {
    uint64_t magic, descriptors, begun;
};

/* A file that is being written. */
struct handover_file {
    int fd; /* -1: memory was short at the beginning */
    uint64_t begun;
    size_t room;          /* for descriptors */
    int32_t *descriptors; /* as many as there is room for */
    atomic_size_t taken;  /* places in `descriptors`; those of tunnels that could not be written hold -1 */
    _Atomic uint64_t end; /* where the next records go */
    atomic_bool failed;   /* memory was short later */
};

/* Begins a file for at most this number of tunnels; file->fd is -1 if memory is short. */
void handover_begin(struct handover_file *file, size_t tunnels);
/* On a thread whose loop ends after this: writes each of its tunnels, and ends those that nobody can go on with. */
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
    uint64_t begun; /* when the relay before began to write, in µs of loop_clock */
    size_t first, step;
    const unsigned
        *left_out; /* numbers of records that are not read, because another server has died of them */
    size_t left_out_count;
    _Atomic unsigned *
        reads; /* gets the number of the record that is read, plus one; 0: none. NULL: nobody wants to know */
    size_t taken, lost;    /* tunnels that go on, and that do not */
    _Atomic uint8_t *seen; /* one for each descriptor number below `seen_size`: whether a record names it */
    size_t seen_size;
    const void *map; /* private: these two are the mapped file */
    size_t map_size;
};

/* Maps the file. Returns false if it is none, or memory is short. */
bool handover_map(int fd, struct handover_records *records) MUST_CHECK;
/* On `thread`: goes on with its records. */
void handover_read(struct handover_records *records, struct relay_thread *thread);
/* Closes the descriptors of the file that no record names, which nobody would ever serve, and unmaps the file. */
void handover_unmap(struct handover_records *records);

#endif
