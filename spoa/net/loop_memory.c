/* SPDX-License-Identifier: MIT */
#include "spoa/net/loop_memory.h"

#include <ev.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS    6     /* about the number of a loop's arrays that grow with its descriptors and timers */
#define ROUNDING  8192  /* libev rounds the size of an array up to pages */
#define BLOCK_MIN 16384 /* bytes of a block; several times the first size of libev's arrays */

static struct {
    pthread_mutex_t lock;
    void *blocks[BLOCKS];
    size_t wanted;     /* bytes of each block: the next size of the largest array so far */
    atomic_bool lacks; /* a block is given out, or is too small */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Replaces the blocks that are given out or too small, as far as there is memory. */
static void refill(void)
{
    bool lacks = false;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (malloc_usable_size(reserve.blocks[i]) >= reserve.wanted)
            continue;
        void *block = malloc(reserve.wanted);
        if (block)
            free(reserve.blocks[i]);
        reserve.blocks[i] = block ? block : reserve.blocks[i];
        lacks = lacks || !block;
    }
    atomic_store_explicit(&reserve.lacks, lacks, memory_order_relaxed);
}

/* Does what realloc could not do, with a block of the reserve. Returns NULL if no block is large enough. */
static void *give_out(void *at, size_t size)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        void *block = reserve.blocks[i];
        size_t held = malloc_usable_size(at);
        if (malloc_usable_size(block) < size)
            continue;
        reserve.blocks[i] = NULL;
        if (at)
            memcpy(block, at, held < size ? held : size);
        free(at);
        return block;
    }
    return NULL;
}

static void *allocate(void *at, long size)
{
    if (size == 0) {
        free(at);
        return NULL;
    }
    size_t wanted = (size_t)size;
    if (malloc_usable_size(at) >= wanted) /* a block from the reserve is larger than libev knows */
        return at;
    void *memory = realloc(at, wanted);
    pthread_mutex_lock(&reserve.lock);
    if (reserve.wanted < 2 * wanted + ROUNDING)
        reserve.wanted = 2 * wanted + ROUNDING;
    if (!memory)
        memory = give_out(at, wanted);
    refill();
    pthread_mutex_unlock(&reserve.lock);
    return memory;
}

static void set_allocator(void)
{
    reserve.wanted = BLOCK_MIN;
    ev_set_allocator(allocate);
}

bool loop_memory_set_aside(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    atomic_store_explicit(&reserve.lacks, true, memory_order_relaxed);
    return loop_memory_whole();
}

bool loop_memory_whole(void)
{
    if (!atomic_load_explicit(&reserve.lacks, memory_order_relaxed))
        return true;
    pthread_mutex_lock(&reserve.lock);
    refill();
    pthread_mutex_unlock(&reserve.lock);
    return !atomic_load_explicit(&reserve.lacks, memory_order_relaxed);
}
