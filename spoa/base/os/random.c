/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { POOL = 256 }; /* bytes; getrandom(2) returns up to 256 whole, without being interrupted */

bool random_bytes(void *to, size_t len)
{
    static _Thread_local uint8_t pool[POOL];
    static _Thread_local size_t left; /* bytes at the front of the pool that were not handed out */

    assert(len <= RANDOM_MAX);
    if (left < len) {
        if (getrandom(pool, sizeof pool, 0) != sizeof pool)
            return false;
        left = sizeof pool;
    }
    left -= len;
    memcpy(to, pool + left, len);
    memset(pool + left, 0, len);
    return true;
}

uint32_t random_u32(void)
{
    uint32_t number;
    return random_bytes(&number, sizeof number) ? number : arc4random();
}
