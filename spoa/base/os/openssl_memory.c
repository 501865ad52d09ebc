/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/openssl_memory.h"

#include <openssl/crypto.h>
#include <stdlib.h>

static _Thread_local bool lacked; /* an allocation failed since openssl_memory_watch */

static void *got(void *memory)
{
    lacked = lacked || !memory;
    return memory;
}

static void *openssl_malloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return size ? got(malloc(size)) : NULL;
}

static void *openssl_realloc(void *memory, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    if (size)
        return got(realloc(memory, size));
    free(memory);
    return NULL;
}

static void openssl_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    free(memory);
}

/* Runs before main, because OpenSSL accepts the functions only before its first allocation. */
__attribute__((constructor)) static void install(void)
{
    if (!CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free))
        abort();
}

bool openssl_memory_begin(struct fail *why)
{
    openssl_memory_watch();
    /* the call creates the default context and, given NULL, does not replace it */
    (void)OSSL_LIB_CTX_set0_default(NULL);
    return !lacked || fail(why, "out of memory");
}

void openssl_memory_watch(void)
{
    lacked = false;
}

bool openssl_memory_lacked(void)
{
    return lacked;
}
