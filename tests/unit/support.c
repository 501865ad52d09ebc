/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t guarded_span(size_t len)
{
    size_t page = page_size();
    return (len + page - 1) / page * page + page;
}

struct slice guarded(struct slice s)
{
    size_t span = guarded_span(s.len), page = page_size();
    uint8_t *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map + span - page, page, PROT_NONE), 0);
    uint8_t *at = map + span - page - s.len;
    if (s.len)
        memcpy(at, s.at, s.len);
    return slice_of(at, s.len);
}

void guarded_free(struct slice s)
{
    size_t span = guarded_span(s.len);
    const uint8_t *map = s.at + s.len + page_size() - span;
    munmap((void *)(uintptr_t)map, span);
}

static _Atomic unsigned fail_at, asked; /* threads of what is tested allocate too */

void alloc_fail_at(unsigned n)
{
    fail_at = n;
    asked = 0;
}

unsigned alloc_count(void)
{
    return asked;
}

static bool refuse(void)
{
    unsigned number = ++asked, first = fail_at;
    return first && number >= first;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max);

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return refuse() ? NULL : __real_realloc(old, size);
}

char *__wrap_strndup(const char *text, size_t max)
{
    size_t len = strnlen(text, max);
    char *copy = __wrap_malloc(len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}
