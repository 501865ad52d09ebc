/* SPDX-License-Identifier: MIT */
/*
 * handover: the memory file in which a relay writes its tunnels for the next one (spoa/service/keeper_exec.h has its head). After
 * the descriptors, two for each tunnel, come the time at which it was begun (uint64_t, µs of loop_clock) and the records, each behind its
 * length (uint32_t).
 */
#ifndef CELLGATE_RELAY_SERVE_HANDOVER_H
#define CELLGATE_RELAY_SERVE_HANDOVER_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/thread/relay_thread.h"

/* A file that is being written. */
struct handover_file {
    int fd;            /* -1: it failed */
    struct buffer out; /* private: what is not written yet */
    size_t tunnels;    /* for which there is room */
    size_t written;    /* tunnels */
    int32_t *fds;      /* two for each of `tunnels` */
};

/* Begins a file for at most so many tunnels; file->fd is -1 if memory is short. */
void handover_begin(struct handover_file *file, size_t tunnels);
/* On a thread whose loop ends after this: writes each of its tunnels, and ends those that nobody can go on with. */
void handover_write(struct handover_file *file, struct relay_thread *thread);
/* Returns the file, or -1 if it failed. */
int handover_end(struct handover_file *file);

/* The records of a file, of which a thread takes every `step`th one from `first` on. */
struct handover_records {
    struct slice bytes;
    uint64_t begun; /* when the relay before began to write, in µs of loop_clock */
    size_t first, step;
    size_t taken, lost; /* tunnels that go on, and that do not */
    const void *map;    /* private: these two are the mapped file */
    size_t map_size;
};

/* Maps the file, and closes the sockets of tunnels that it names and has no record of. Returns false if it is none. */
bool handover_map(int fd, struct handover_records *records) MUST_CHECK;
void handover_unmap(struct handover_records *records);
/* On `thread`: goes on with its records. */
void handover_read(struct handover_records *records, struct relay_thread *thread);

#endif
